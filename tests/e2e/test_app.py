"""The app and its sidecar in a pod that lives on."""

import time

import pytest
from cluster import now, wait

SECOND = 1000


def test_scenario_s9_a_killed_app_that_held_the_stream_frees_the_lease_at_once(releases, mode, figure):
    release = releases(mode=mode)
    leader = release.leader()
    release.record.first("lead", leader)
    # The container ends with its app, and may take the killing command with it.
    release.exec(leader, "/app", "kill", "/proc/self/exe work", ok=False)
    died = release.record.first("died", leader)["ms"]
    start = wait(lambda: [t for t in release.record.terms() if t[2] != leader], 20, "nobody took over")[0][0]
    figure("app killed to next leader", start - died, "ms")
    assert start - died < 12 * SECOND, "an expiry takes longer"
    assert release.leader() != leader


def test_a_crash_looping_app_passes_leadership_on_and_never_overlaps(releases, mode):
    """Each crash closes the hold: the Lease goes to the other pod, whose app crashes in turn; both sidecars live on."""
    release = releases({"args": ["--mode=hold", "--crash-after=1s"]}, mode)
    wait(lambda: len({t[2] for t in release.record.terms()}) == 2 and len(release.record.terms()) >= 3, 60,
         lambda: f"{release.record.terms()}")
    release.record.check()
    for pod in release.pods().values():
        (sidecar,) = [c for c in pod["status"].get("initContainerStatuses", []) + pod["status"]["containerStatuses"]
                      if c["name"] == "tenure"]
        assert sidecar["restartCount"] == 0


def test_scenario_s12_an_observer_that_leaves_releases_nothing(releases, mode):
    release = releases(mode=mode)
    leader, epoch = release.leader(), release.epoch()
    release.exec(leader, "/bin/sh", "-c", "wget -qO- $TENURE_URL/leader/events >/dev/null & sleep 1; kill -9 $!", ok=False)
    time.sleep(3)
    assert release.leader() == leader and release.epoch() == epoch
    assert release.ask(leader)[1]["leader"] is True


def test_scenario_s12_an_observer_that_leaves_a_draining_pod_releases_nothing(releases):
    release = releases({"args": ["--mode=hold", "--drain=6s"]}, "classic")
    leader = release.leader()
    release.record.first("lead", leader)
    deleted = release.delete(leader)
    release.record.first("draining", leader)
    release.exec(leader, "/bin/sh", "-c", "wget -qO- $TENURE_URL/leader/events >/dev/null & sleep 1; kill -9 $!", ok=False)
    stopped = release.record.first("stopped", leader)["ms"]
    assert stopped - deleted > 5 * SECOND
    assert all(holder == leader for at, holder in release.record.holders(since=deleted) if at < stopped)


def test_scenario_s13_a_hold_that_never_reads_is_kept_and_delays_nobody(releases, mode):
    """Its buffers are full after some hundred events; short times make 100 changes of leadership quick."""
    quick = {"timings": {"leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "300ms"}}
    release = releases({"replicas": 1, "args": ["--mode=idle"], "tenure": quick}, mode)
    pod = release.leader()
    release.exec(pod, "/bin/sh", "-c", "/app streams 1 hold >/dev/null 2>&1 & sleep 0.5")
    wait(lambda: release.ask(pod)[1]["holds"] == 1, 10, "no hold")
    changes, first = 0, release.ask(pod)[1]["version"]
    slowest = 0
    while changes < 100:
        before = now()
        status, said = release.ask(pod, "/release", "POST", "{\"wait\": \"5s\"}")
        slowest = max(slowest, now() - before)
        assert status == 200, said
        # Alone: it has the Lease again after its cool-down of one retry period.
        status, said = release.ask(pod, "/leader?wait=5s&min_valid=1s")
        changes = release.ask(pod)[1]["version"] - first
    said = release.ask(pod)[1]
    assert said["holds"] == 1
    wait(lambda: release.ask(pod)[1]["leader"], 10, "does not lead any more")
    # The end of the deaf process closes it, and that is the app's word.
    release.exec(pod, "/app", "kill", "streams 1 hold")
    wait(lambda: release.ask(pod)[1]["holds"] == 0, 10, "still held")


def test_scenario_s15_a_late_word_of_an_older_term_ends_nothing(releases, mode):
    release = releases({"args": ["--mode=idle"]}, mode)
    leader = release.leader()
    old = release.ask(leader)[1]["epoch"]
    assert release.ask(leader, "/release", "POST", f'{{"epoch": {old}, "wait": "5s"}}')[0] == 200
    taken = wait(lambda: [p for p in release.pods() if release.ask(p)[1]["leader"]], 20, "nobody leads")[0]
    new = release.ask(taken)[1]["epoch"]
    assert new > old
    status, said = release.ask(taken, "/release", "POST", f'{{"epoch": {old}}}')
    assert status == 409, said
    assert release.ask(taken)[1]["epoch"] == new
    standby = release.standby(taken)
    status, said = release.ask(standby, "/release", "POST")
    assert (status, said["released"], said["held"]) == (200, False, False)
    assert release.ask(taken)[1]["epoch"] == new


def test_scenario_p3_restricted_read_only_root_and_no_token_for_the_app(releases, mode, cluster):
    release = releases(mode=mode)
    started = release.record.first("start")
    assert (started["token"], started["writable"]) == ("false", "false")
    labels = cluster.api("GET", f"/api/v1/namespaces/{release.namespace}")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert release.leader()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_scenario_p5_the_app_reaches_the_api_by_every_name_of_localhost(releases, mode, host):
    release = releases({"replicas": 1}, mode)
    pod = release.leader()
    status, said = release.ask(pod, f"http://{host}:4040/leader")
    assert status == 200 and said["leader"] is True


def test_the_unix_socket_serves_the_app(releases, mode):
    """Sidecar and app have different users: the socket's mode (or an fsGroup) lets the app in."""
    release = releases({"tenure": {"socket": {"enabled": True, "mode": "0666"}}}, mode)
    leader = release.leader()
    release.record.first("lead", leader)
    assert release.ask(leader, "/leader")[1]["holds"] == 1
