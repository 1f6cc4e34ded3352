"""Helm and kubectl against a living leader: install, roll, upgrade, uninstall, apply again."""

import json
import shutil

from cluster import CHART, ROOT, Release, holder_of, image_values, merged, now, wait

SECOND = 1000


def demo(cluster, name, mode="native", **values):
    """The chart itself with its demo, in a namespace of its own."""
    registry, _, rest = cluster.app_image.partition("/")
    repository, _, tag = rest.partition(":")
    image = {"registry": registry, "repository": repository, "tag": tag}
    settings = merged({"mode": mode, **image_values(cluster.image), "demo": {"enabled": True, "image": image}}, values)
    release = Release(cluster, name, mode=mode, chart=CHART, install=False)
    release.values = settings
    return release


def test_from_helm_install_of_the_demo_to_a_named_leader(cluster, mode, figure):
    release = demo(cluster, "demo", mode)
    try:
        start = now()
        release.helm("install")
        installed = now()
        leader = release.leader(seconds=60)
        figure("helm install to named leader", now() - start, f"ms (helm itself {installed - start} ms)")
        release.ready(3)
        assert leader in release.pods()
        wait(lambda: [l for l in release.record.lines if '"leader":true' in l.get("text", "")], 20, "the demo prints its leader")
        # A rolling update of the demo completes, and with it every pod is new.
        old = set(release.pods())
        release.helm("upgrade", values={"demo": {"podAnnotations": {"roll": "1"}}})
        cluster.kubectl("rollout", "status", f"deployment/{release.name}-demo", "-n", release.namespace, "--timeout=120s")
        release.ready(3)
        assert not old & set(release.pods())
    finally:
        release.close()


def test_a_rolling_update_of_three_replicas_never_waits_for_an_expiry(releases, mode, figure, cluster):
    release = releases({"replicas": 3}, mode)
    release.record.first("lead")
    release.helm("upgrade", values={"annotations": {"roll": "1"}})
    cluster.kubectl("rollout", "status", f"deployment/{release.name}", "-n", release.namespace, "--timeout=180s")
    release.ready()
    for pod in {t[2] for t in release.record.terms()} - set(release.pods()):
        release.gone(pod)
    last = wait(lambda: [t for t in release.record.terms() if t[2] in release.pods()], 20, "no new pod leads")[-1]
    terms = release.record.check()
    gaps = [start - end for (_, end, _, _), (start, _, _, _) in zip(terms, terms[1:])]
    figure("hand-overs", len(gaps)), figure("leaderless time in sum", sum(gaps), f"ms, each {gaps}")
    assert last[3] == terms[-1][3]
    # In sum well under a second on an idle machine; an expiry alone would take 13 s.
    assert sum(gaps) < 10 * SECOND


def test_scenario_p1_one_replica_without_unavailability_rolls(releases, mode, cluster):
    release = releases({"replicas": 1}, mode)
    leader = release.leader()
    release.helm("upgrade", values={"annotations": {"roll": "1"}})
    cluster.kubectl("rollout", "status", f"deployment/{release.name}", "-n", release.namespace, "--timeout=120s")
    wait(lambda: release.leader(other_than=leader), 30, "the new pod does not lead")
    release.record.check()


def test_a_statefulset_whose_pod_comes_back_under_its_name_is_somebody_new(releases, mode):
    release = releases({"kind": "StatefulSet"}, mode)
    leader = release.leader()
    release.record.first("lead", leader)
    before = holder_of(release.lease())
    release.delete(leader)
    wait(lambda: holder_of(release.lease()) not in ("", before), 40, "nobody took over")
    release.record.check()


def test_upgrades_and_repeated_applies_touch_nothing_that_electors_wrote(releases, mode, cluster):
    release = releases(mode=mode)
    leader, epoch = release.leader(), release.epoch()
    release.record.first("lead", leader)
    for step in range(2):
        release.helm("upgrade", values={"tenure": {"commonLabels": {"step": f"s{step}"}}})
        wait(lambda: release.lease()["metadata"]["labels"].get("step") == f"s{step}", 10, "the label")
    lease = release.lease()
    assert holder_of(lease).startswith(leader + "_") and release.epoch() == epoch
    assert lease["spec"]["leaseDurationSeconds"] == 15 and lease["spec"]["renewTime"]
    assert release.ask(leader)[1]["epoch"] == epoch
    assert len(release.record.check()) == 1


def test_the_epoch_outlives_an_uninstall(releases, mode, cluster):
    release = releases(mode=mode)
    epoch = release.epoch() if release.leader() else 0
    cluster.helm("uninstall", release.name, "-n", release.namespace, "--wait")
    wait(lambda: not release.pods(), 60, "pods are still there")
    kept = release.lease()
    assert int(kept["metadata"]["annotations"]["tenure.dev/epoch"]) == epoch
    release.helm("install")
    release.ready()
    release.leader()
    assert release.epoch() > epoch
    assert release.lease()["metadata"]["uid"] == kept["metadata"]["uid"]


def test_another_release_takes_a_kept_lease_over_only_when_told_to(cluster, releases):
    release = releases()
    epoch = release.epoch() if release.leader() else 0
    cluster.helm("uninstall", release.name, "-n", release.namespace, "--wait")
    arguments = ["install", "other", CHART, "-n", release.namespace, f"--set=lease.name={release.name}"]
    assert "cannot be imported" in cluster.helm(*arguments, ok=False)
    cluster.helm(*arguments, "--take-ownership")
    assert release.epoch() == epoch


def test_the_plain_manifests_work_as_they_are_and_can_be_applied_again(cluster):
    release = Release(cluster, "manifests", install=False)
    try:
        text = "\n---\n".join(f.read_text() for f in sorted((ROOT / "deploy/manifests").glob("*.yaml")))
        text = local_images(text, cluster)
        release.name = "tenure"
        apply = lambda: cluster.kubectl("apply", "-n", release.namespace, "-f", "-", text=text)  # noqa: E731
        apply()
        release.ready(3)
        leader, epoch = release.leader(), release.epoch()
        for _ in range(2):
            apply()
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-n", release.namespace, "-f", "-", text=text)
        assert release.leader() == leader and release.epoch() == epoch
        release.ready(3)
    finally:
        release.close()


def test_the_component_works_on_a_deployment_and_a_statefulset(cluster, tmp_path):
    release = Release(cluster, "component", install=False)
    try:
        shutil.copytree(ROOT / "deploy/component", tmp_path / "component")
        (tmp_path / "kustomization.yaml").write_text(json.dumps({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namePrefix": "shop-",
            "namespace": release.namespace, "resources": ["web.yaml"], "components": ["component"]}))
        (tmp_path / "web.yaml").write_text("\n---\n".join(
            json.dumps(workload(kind, label, cluster.app_image)) for kind, label in (("Deployment", "native"), ("StatefulSet", "classic"))))
        text = local_images(cluster.kubectl("kustomize", str(tmp_path)), cluster)
        release.name = "shop-tenure"
        apply = lambda: cluster.kubectl("apply", "-f", "-", text=text)  # noqa: E731
        apply()
        release.ready(4)
        leader, epoch = release.leader(), release.epoch()
        apply()
        assert release.leader() == leader and release.epoch() == epoch
    finally:
        release.close()


def workload(kind, label, image):
    name = label
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod = {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
           "containers": [{"name": "app", "image": image, "args": ["run"], "securityContext": security}]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "labels": {"tenure.dev/sidecar": label}},
            "spec": {**spec, "serviceName": name} if kind == "StatefulSet" else spec}


def local_images(text, cluster):
    return (text.replace("ghcr.io/tenure-dev/tenure:0.1.0", cluster.image)
            .replace("docker.io/nginxinc/nginx-unprivileged:stable-alpine", cluster.app_image))
