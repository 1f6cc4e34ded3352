"""A pod goes: who leads when, native and classic. Ends of work are told by the apps themselves, on one clock."""

import pytest
from cluster import holder_of, now, wait

SECOND = 1000
# Without a release the next leader waits a lease duration (15 s) from the last renewal, which is at most 2 s old: a gap
# shorter than this one was no expiry. The gaps themselves are figures, not assertions.
EXPIRY = 12 * SECOND


def hand_over(release, leader, seconds=40):
    """(end of the old app's work, start of the next one's) after the leader's pod was told to go."""
    wait(lambda: len(release.record.terms()) > 1 and release.record.terms()[-1][2] != leader, seconds,
         lambda: f"nobody took over: {release.record.terms()}")
    terms = release.record.check()
    return terms[-2][1], terms[-1][0]


def test_scenario_s1_a_deleted_leader_whose_app_is_done_hands_over_at_once(releases, mode, figure):
    release = releases(mode=mode)
    leader = release.leader()
    release.record.first("lead", leader)
    release.delete(leader)
    end, start = hand_over(release, leader)
    figure("work ends to next leader", start - end, "ms")
    assert start - end < EXPIRY
    release.gone(leader)


def test_scenario_s2_p2_an_app_with_a_hold_takes_its_time_and_nobody_else_leads(releases, mode, figure):
    release = releases({"args": ["--mode=hold", "--drain=20s"]}, mode)
    leader = release.leader()
    release.record.first("lead", leader)
    deleted = release.delete(leader)
    stopped = release.record.first("stopped", leader)["ms"]
    assert stopped - deleted > 19 * SECOND
    # Renewed to the end, by this pod and nobody else.
    assert all(holder == leader for at, holder in release.record.holders(since=deleted) if at < stopped)
    assert [at for at, _ in release.record.renewals(leader, since=stopped - 4 * SECOND) if at < stopped]
    draining = [l for l in release.record.of("draining", leader) if l["ms"] < stopped]
    assert bool(draining) == (mode == "classic"), "native: goes on leading; classic: drains"
    end, start = hand_over(release, leader)
    figure("work ends to next leader", start - end, "ms")
    assert start - end < EXPIRY


def test_scenario_s3_an_app_that_never_says_it_stopped_is_waited_out(releases, mode, figure):
    """A poller is granted up to the renew deadline (10 s); it exits without a word."""
    release = releases({"args": ["--mode=poll"]}, mode)
    leader = release.leader()
    release.record.first("lead", leader)
    deleted = release.delete(leader)
    granted = release.record.first("stopped", leader)["until"]
    released = wait(lambda: [at for at, holder in release.record.holders(since=deleted) if holder != leader], 40, "not released")[0]
    figure("last grant lapses to release", released - granted, "ms")
    assert released >= granted, "released while the app may still have worked"
    assert released - granted < 5 * SECOND
    # From its SIGTERM on the sidecar wrote nothing but the release; in native mode that SIGTERM comes after the app's end.
    term = wait(lambda: term_of_sidecar(release, leader), 5, "the sidecar's log names its SIGTERM")
    assert not release.record.renewals(leader, since=term + 500)
    _, start = hand_over(release, leader)
    figure("release to next leader", start - released, "ms")


def term_of_sidecar(release, pod):
    lines = [l for l in list(release.record.lines) if l["pod"] == pod and l["container"] == "tenure"]
    ends = [l["at"] for l in lines if "shutdown" in str(l) or "SIGTERM" in str(l)]
    return min(ends, default=None)


def test_scenario_s7_a_deleted_standby_changes_nothing(releases, mode):
    release = releases(mode=mode)
    leader = release.leader()
    release.record.first("lead", leader)
    standby, epoch = release.standby(leader), release.epoch()
    deleted = release.delete(standby)
    release.gone(standby)
    release.ready()
    assert release.leader() == leader and release.epoch() == epoch
    assert {holder for _, holder in release.record.holders(since=deleted)} <= {leader}
    assert not release.record.of("lead", standby)


def test_scenario_s14_short_grants_make_a_short_hand_over_without_any_word(releases, mode, figure):
    release = releases({"args": ["--mode=poll", "--max-valid=2s"]}, mode)
    leader = release.leader()
    release.record.first("lead", leader)
    release.delete(leader)
    granted = release.record.first("stopped", leader)["until"]
    end, start = hand_over(release, leader)
    figure("app's end to next leader", start - end, "ms")
    assert start >= granted, "the last grant had not lapsed"
    assert start - end < 6 * SECOND, "grants of up to 10 s would have been waited for"


def test_an_app_that_ignores_sigterm_is_never_overtaken(releases, mode):
    """Killed when the grace ends; the hold closes with it."""
    release = releases({"args": ["--mode=hold", "--ignore-term"], "tenure": {"terminationGracePeriodSeconds": 6}}, mode)
    leader = release.leader()
    release.record.first("lead", leader)
    release.delete(leader)
    wait(lambda: release.record.terms()[-1][2] != leader, 60, lambda: f"nobody took over: {release.record.terms()}")
    # By the app's own clock: its lines may arrive here after those of its successor.
    last = max(l["ms"] for l in release.record.lines if l["pod"] == leader and l["container"] == "app")
    assert release.record.terms()[-1][0] >= last
    release.gone(leader)


@pytest.mark.parametrize("grace", [0, 1])
def test_a_force_deleted_leader_is_replaced_without_overlap(releases, mode, grace, figure):
    release = releases(mode=mode)
    leader = release.leader()
    release.record.first("lead", leader)
    deleted = release.delete(leader, grace)
    end, start = hand_over(release, leader)
    figure("deletion to next leader", start - deleted, "ms")


def test_a_drained_node_evicts_the_leader_and_the_others_take_over(releases, mode, cluster, figure):
    """kubectl drain uses the eviction API; limited to the leader's pod, since there may be only one node."""
    release = releases({"replicas": 3}, mode)
    leader = release.leader()
    release.record.first("lead", leader)
    pod = cluster.api("GET", release.pod_path(leader))
    node = pod["spec"]["nodeName"]
    cluster.kubectl("label", "pod", leader, "-n", release.namespace, "drain=me")
    try:
        cluster.kubectl("drain", node, "--pod-selector=drain=me", "--delete-emptydir-data", "--ignore-daemonsets")
        end, start = hand_over(release, leader)
    finally:
        cluster.kubectl("uncordon", node)
    figure("work ends to next leader", start - end, "ms")
    assert start - end < EXPIRY


def test_an_evicted_leader_is_replaced(releases, mode, cluster, figure):
    release = releases(mode=mode)
    leader = release.leader()
    release.record.first("lead", leader)
    cluster.api("POST", release.pod_path(leader) + "/eviction", {
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": leader, "namespace": release.namespace}})
    end, start = hand_over(release, leader)
    figure("work ends to next leader", start - end, "ms")
    assert start - end < EXPIRY


def test_a_release_in_prestop_lets_two_apps_work_at_once(releases, mode):
    """What breaks if one releases there: preStop runs while the app still works. Hence neither mode has one."""
    release = releases({
        "args": ["--mode=idle", "--drain=1s"],
        "lifecycle": {"preStop": {"exec": {"command": [
            "/bin/sh", "-c", "/app http POST /release '{\"final\": true, \"wait\": \"3s\"}'; sleep 3"]}}},
    }, mode)
    leader = release.leader()
    release.delete(leader)
    taken = wait(lambda: [at for at, l in all_leases(release) if holder_of(l) and not holder_of(l).startswith(leader)], 30, "not taken")[0]
    told_to_stop = release.record.first("term", leader)["ms"]
    assert taken < told_to_stop, "another pod led before this app was even told to stop"


def all_leases(release):
    return [(at, lease) for at, _, lease in list(release.record.leases)]


def test_without_prestop_the_same_app_is_waited_for(releases, mode):
    """The counterpart: the app's word comes when its work has stopped. It polls and holds nothing, so it says in its
    configuration that it needs longer than a grant."""
    release = releases({"args": ["--mode=poll", "--max-valid=2s", "--drain=5s", "--release"], "tenure": {"drainTimeout": "10s"}}, mode)
    leader = release.leader()
    release.record.first("lead", leader)
    release.delete(leader)
    stopped = release.record.first("stopped", leader)["ms"]
    _, start = hand_over(release, leader)
    assert start >= stopped
    assert now() > start
