"""The chart as Helm 3 and Helm 4 render it: objects, refusals, documentation. No cluster."""

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import schemas
import values_table
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "tenure"
TENURE = os.environ.get("TENURE_BIN", ROOT / "target" / "debug" / "tenure")
HELMS = [os.environ[name] for name in ("HELM4", "HELM3") if os.environ.get(name)]
ALL_ON = ["demo.enabled=true", "podMonitor.enabled=true", "prometheusRule.enabled=true", "socket.enabled=true"]
each_helm = pytest.mark.parametrize("helm", HELMS, ids=lambda path: Path(path).parent.name)


def run(*args, ok=True, **kwargs):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, **kwargs)
    assert (done.returncode == 0) == ok, f"{args}: {done.stdout}{done.stderr}"
    return done.stdout if ok else done.stdout + done.stderr


@functools.cache
def render_text(*sets, helm=HELMS[0], chart=CHART, release="shop", namespace="ns"):
    return run(helm, "template", release, chart, "-n", namespace, *[f"--set={s}" for s in sets])


def render(*sets, **kwargs):
    return [doc for doc in yaml.load_all(render_text(*sets, **kwargs), UniqueKeys) if doc]


def one(docs, kind):
    (doc,) = [d for d in docs if d["kind"] == kind]
    return doc


def pod_of(doc):
    return doc["spec"]["template"]["spec"]


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


def named(items, name):
    (item,) = [i for i in items if i["name"] == name]
    return item


class UniqueKeys(yaml.SafeLoader):
    """Refuses a mapping in which a key stands twice."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"twice: {keys}"
        return super().construct_mapping(node, deep)


@pytest.fixture(scope="session")
def parent(tmp_path_factory):
    """A user's chart that has tenure as a dependency twice, once under an alias."""
    chart = tmp_path_factory.mktemp("charts") / "parent"
    shutil.copytree(ROOT / "tests/chart/parent", chart)
    shutil.copytree(CHART, chart / "charts" / "tenure")
    return chart


@each_helm
def test_lint_is_clean_and_strict(helm, parent):
    for values in ([], [f"--set={s}" for s in ALL_ON], ["--set=mode=classic"]):
        run(helm, "lint", "--strict", CHART, *values)
    run(helm, "lint", "--strict", parent)


@each_helm
def test_both_helms_render_the_same(helm):
    assert render_text(*ALL_ON, helm=helm).replace("\n\n", "\n") == render_text(*ALL_ON).replace("\n\n", "\n")


@pytest.mark.parametrize("mode", ["native", "classic"])
@pytest.mark.parametrize("version", schemas.VERSIONS)
def test_rendered_objects_match_the_schemas_of_each_kubernetes(version, mode, parent, tmp_path):
    files = {
        "all": render_text(*ALL_ON, f"mode={mode}", "image.pullSecrets={a,b}", "lease.annotations.a=b"),
        "default": render_text(f"mode={mode}"),
        "parent": render_text(chart=parent),
        "numbers": render_text(*ALL_ON, f"mode={mode}", release="123", namespace="456"),
        "words": render_text(*ALL_ON, f"mode={mode}", release="true", namespace="null"),
    }
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    kubeconform(version, *tmp_path.glob("*.yaml"))


@pytest.mark.parametrize("version", schemas.VERSIONS)
def test_plain_manifests_match_the_schemas_of_each_kubernetes(version, tmp_path):
    (tmp_path / "component.yaml").write_text(kustomized(tmp_path))
    kubeconform(version, ROOT / "deploy" / "manifests", tmp_path / "component.yaml")


def kubeconform(version, *files):
    location = f"{schemas.schemas(version)}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    run(os.environ["KUBECONFORM"], "-strict", "-summary", "-skip", "PodMonitor,PrometheusRule",
        "-kubernetes-version", version, "-schema-location", location, *files)


def test_the_lease_is_metadata_only_and_kept():
    lease = one(render(), "Lease")
    assert set(lease) == {"apiVersion", "kind", "metadata"}
    assert lease["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert not [d for d in render("lease.create=false") if d["kind"] == "Lease"]
    for file in ("manifests", "component"):
        plain = yaml.safe_load((ROOT / f"deploy/{file}/lease.yaml").read_text())
        assert set(plain) == {"apiVersion", "kind", "metadata"}
        assert "annotations" not in plain["metadata"]


def test_scenario_p4_the_role_is_limited_to_the_one_lease():
    rules = one(render(), "Role")["rules"]
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "watch", "update", "create"]}
    events = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]}
    assert rules == [{**lease, "resourceNames": ["shop"]}, events]
    assert one(render("rbac.events=false"), "Role")["rules"] == rules[:1]
    for file in ("manifests", "component"):
        docs = yaml.safe_load_all((ROOT / f"deploy/{file}/rbac.yaml").read_text())
        assert one(list(docs), "Role")["rules"] == [{**lease, "resourceNames": ["tenure"]}, events]


def test_scenario_p3_only_the_sidecar_has_a_token_and_nobody_a_fixed_user():
    docs = render(*ALL_ON)
    pod = pod_of(one(docs, "Deployment"))
    mounts = {c["name"]: [m["name"] for m in c.get("volumeMounts", [])] for c in containers(pod)}
    assert mounts == {"tenure": ["tenure-token", "tenure-socket"], "app": ["tenure-socket"]}
    assert pod["automountServiceAccountToken"] is False
    assert one(docs, "ServiceAccount")["automountServiceAccountToken"] is False
    for word in ("runAsUser", "fsGroup", "runAsGroup"):
        assert word not in render_text(*ALL_ON)


def test_native_and_classic_differ_only_in_place_and_restart_policy():
    native, classic = (pod_of(one(render("demo.enabled=true", f"mode={m}"), "Deployment")) for m in ("native", "classic"))
    sidecar = named(native["initContainers"], "tenure")
    assert sidecar.pop("restartPolicy") == "Always"
    assert sidecar == named(classic["containers"], "tenure")
    assert "initContainers" not in classic
    assert "lifecycle" not in sidecar, "neither mode needs a preStop"
    assert "cpu" not in sidecar["resources"]["limits"]


def test_probes_name_ports_by_number_and_readiness_can_be_switched_off():
    sidecar = named(pod_of(one(render("demo.enabled=true"), "Deployment"))["initContainers"], "tenure")
    paths = {p: sidecar[p]["httpGet"] for p in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {(g["path"], g["port"]) for g in paths.values()} == {("/livez", 4041), ("/readyz", 4041)}
    assert [p["name"] for p in sidecar["ports"]] == ["tenure", "tenure-metrics"]
    off = pod_of(one(render("demo.enabled=true", "probes.readiness.enabled=false"), "Deployment"))
    assert "readinessProbe" not in named(off["initContainers"], "tenure")


def test_image_references():
    def image(*sets):
        return named(pod_of(one(render("demo.enabled=true", *sets), "Deployment"))["initContainers"], "tenure")["image"]

    digest = "sha256:" + "0" * 64
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert image() == f"ghcr.io/tenure-dev/tenure:{version}"
    assert image("global.imageRegistry=mirror:5000/x") == f"mirror:5000/x/tenure-dev/tenure:{version}"
    assert image("image.tag=v9", f"image.digest={digest}") == f"ghcr.io/tenure-dev/tenure@{digest}"
    assert image("image.registry=", "image.repository=local/tenure", "image.tag=e2e") == "local/tenure:e2e"


def test_the_dependency_speaks_for_itself_and_under_an_alias(parent):
    docs = render(chart=parent)
    one_pod, two_pod = pod_of(one(docs, "StatefulSet")), pod_of(one(docs, "Deployment"))
    first, second = named(one_pod["initContainers"], "tenure"), named(two_pod["containers"], "tenure")
    assert {"--lease-name=shop", "--lease-duration=30s"} <= set(first["args"])
    assert {"--lease-name=shop-second", "--lease-duration=15s"} <= set(second["args"])
    assert one_pod["serviceAccountName"] == "shop-tenure" and two_pod["serviceAccountName"] == "shop-second-tenure"
    assert named(two_pod["containers"], "app")["env"] == [{"name": "TENURE_URL", "value": "unix:/run/tenure/tenure.sock"}]
    names = [(d["kind"], d["metadata"]["name"]) for d in docs]
    assert len(names) == len(set(names)), "two elections share an object"


def test_names_that_look_like_numbers_stay_names():
    docs = render(*ALL_ON, release="1e3", namespace="456")
    assert {d["metadata"]["namespace"] for d in docs} == {"456"}
    assert {d["metadata"]["labels"]["app.kubernetes.io/instance"] for d in docs} == {"1e3"}
    assert one(docs, "Lease")["metadata"]["name"] == "1e3"
    assert one(docs, "Role")["rules"][0]["resourceNames"] == ["1e3"]


def test_the_longest_lease_name_leaves_room_for_what_is_made_of_it():
    docs = render("demo.enabled=true", "lease.name=" + "a" * 246)
    assert all(len(d["metadata"]["name"]) <= 253 for d in docs)
    assert len(one(docs, "Deployment")["metadata"]["name"] + "-0123456789") <= 253, "a ReplicaSet adds a hash"


def test_a_label_or_annotation_that_is_given_twice_stands_once(tmp_path):
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({
        "commonLabels": {"release": "prom", "app.kubernetes.io/name": "shop"},
        "podMonitor": {"enabled": True, "labels": {"release": "other"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "other"}},
        "lease": {"annotations": {"helm.sh/resource-policy": "keep", "a": "b"}}, "mesh": "istio",
        "demo": {"enabled": True, "podAnnotations": {"traffic.sidecar.istio.io/excludeInboundPorts": "1"}}}))
    text = run(HELMS[0], "template", "shop", CHART, "-f", tmp_path / "values.yaml")
    docs = [doc for doc in yaml.load_all(text, UniqueKeys) if doc]
    assert {d["metadata"]["labels"]["app.kubernetes.io/name"] for d in docs} == {"shop"}
    for doc in docs:
        wanted = "other" if doc["kind"] in ("PodMonitor", "PrometheusRule") else "prom"
        assert doc["metadata"]["labels"]["release"] == wanted
    annotations = one(docs, "Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["traffic.sidecar.istio.io/excludeInboundPorts"] == "1"


def test_pull_secrets_are_names_or_objects_as_other_charts_have_them():
    docs = render("demo.enabled=true", "global.imagePullSecrets[0].name=a", "global.imagePullSecrets[1]=b", "image.pullSecrets={a,c}")
    assert pod_of(one(docs, "Deployment"))["imagePullSecrets"] == [{"name": n} for n in "abc"]
    assert "imagePullSecrets" not in pod_of(one(render("demo.enabled=true", "image.pullSecrets=null"), "Deployment"))


def test_a_root_without_the_dependency_is_told_so(parent, tmp_path):
    chart = tmp_path / "parent"
    shutil.copytree(parent, chart)
    app = chart / "templates/app.yaml"
    for wrong in ("nope", "second.Values"):
        app.write_text((parent / "templates/app.yaml").read_text().replace(".Subcharts.second", f".Subcharts.{wrong}"))
        assert "dependency called tenure, or .Subcharts.<alias>" in run(HELMS[0], "template", "shop", chart, ok=False)


@pytest.mark.parametrize("mesh, keys", [
    ("none", set()),
    ("istio", {"traffic.sidecar.istio.io/excludeInboundPorts", "traffic.sidecar.istio.io/excludeOutboundPorts"}),
    ("linkerd", {"config.linkerd.io/skip-inbound-ports", "config.linkerd.io/skip-outbound-ports"}),
])
def test_pod_annotations_for_meshes(mesh, keys):
    template = one(render("demo.enabled=true", f"mesh={mesh}"), "Deployment")["spec"]["template"]
    assert set(template["metadata"]["annotations"]) == {"kubectl.kubernetes.io/default-container"} | keys
    ranges = render_text("demo.enabled=true", f"mesh={mesh}", "meshApiServerCidr=10.96.0.1/32")
    assert ("10.96.0.1/32" in ranges) == (mesh != "none")


def test_no_list_has_two_items_of_one_name():
    """Server-side apply refuses them."""
    for mode in ("native", "classic"):
        for container in containers(pod_of(one(render(*ALL_ON, f"mode={mode}"), "Deployment"))):
            for field, key in (("env", "name"), ("ports", "name"), ("volumeMounts", "mountPath")):
                keys = [item[key] for item in container.get(field, [])]
                assert len(keys) == len(set(keys))


WRONG = [
    "leaseNmae=x", "mode=auto", "mode=", "timings.leaseDuration=15", "timings.leaseDuration=1.5s", "timings.renew=1s",
    "timings.retryPeriod=-2s", "drainTimeout=never", "drainTimeout=", "onAppExit=exit", "maxValid=2", "ports.api=80",
    "ports.admin=x", "socket.mode=660", "socket.enabled=yes", "image.digest=sha256:1", "image.tag=a b",
    "image.pullPolicy=Sometimes", "image.registry=https://x", "mesh=consul", "meshApiServerCidr=10.0.0.1",
    "lease.name=", "lease.spec.holderIdentity=x", "lease.name=UPPER", "lease.name=a_b", "lease.annotations.tenure\\.dev/epoch=1",
    "serviceAccount.create=false", "probes.liveness.enabled=false", "resources.cpu=1", "extraArgs={x}",
    "extraEnv[0].value=x", "extraEnv[0].name=POD_UID", "log.format=xml", "podMonitor.interval=15", "prometheusRule.runbookUrl=x",
    "prometheusRule.flappingChanges=0", "demo.replicas=-1", "terminationGracePeriodSeconds=2", "ports.admin=4040",
    "drainTimeout=28s", "drainTimeout=1m", "timings.leaseDuration=1s1m", "timings.leaseDuration=1m1m", "maxValid=0s",
    "mode=null", "timings=null", "timings.leaseDuration=null", "drainTimeout=null", "lease.name=null", "log.filter=null",
    "terminationGracePeriodSeconds=null", "probes=null", "log.filter=loud", "serviceAccount.name=a_b",
    "extraArgs={--listen=0.0.0.0:1}", "extraEnv[0].name=A,extraEnv[1].name=A", "podMonitor.interval=1s1m",
]


@each_helm
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_values_are_refused(wrong, helm):
    said = run(helm, "template", "shop", CHART, f"--set={wrong}", ok=False)
    key = re.split(r"[.=\[]", wrong)[0]
    assert key in said or "drain-timeout" in said or "max-valid" in said, said


TIMINGS = [
    ("0s", "10s", "2s"), ("15s", "0s", "2s"), ("15s", "10s", "0s"), ("2500ms", "2s", "500ms"), ("1s", "800ms", "100ms"),
    ("2147483648s", "10s", "2s"), ("12s", "10001ms", "2s"), ("7s", "6s", "1s"), ("15s", "12s", "10s"), ("15s", "10s", "9s"),
    ("2s", "1s", "401ms"), ("1m1s500ms", "10s", "2s"), ("2s", "1s500ms", "1250ms"), ("999999999h", "999999999h", "1s"),
]


@pytest.mark.parametrize("timing", TIMINGS, ids=" ".join)
def test_scenario_c1_impossible_timings_fail_with_the_words_of_the_binary(timing):
    lease, renew, retry = timing
    said = run(HELMS[0], "template", "shop", CHART, f"--set=timings.leaseDuration={lease}",
               f"--set=timings.renewDeadline={renew}", f"--set=timings.retryPeriod={retry}", ok=False)
    # The form alone is refused by the schema; what the schema lets through, by the binary's sentence.
    sentence = re.search(r"(--[a-z-]+=.*)", said)
    assert sentence, said
    binary = subprocess.run(
        [TENURE, "sidecar", "--lease-name=x", "--namespace=x", "--identity=x", f"--lease-duration={lease}",
         f"--renew-deadline={renew}", f"--retry-period={retry}"], capture_output=True, text=True, timeout=20)
    assert binary.returncode == 2
    assert sentence[1].strip() in binary.stderr


def test_a_grant_of_nothing_fails_with_the_words_of_the_binary():
    said = run(HELMS[0], "template", "shop", CHART, "--set=maxValid=0s", ok=False)
    binary = run(TENURE, "sidecar", "--lease-name=x", "--namespace=x", "--identity=x", "--server=http://localhost:1",
                 "--max-valid=0s", ok=False)
    assert re.search(r"(--max-valid=.*)", said)[1].strip() in binary


def test_what_the_chart_passes_on_is_known_to_the_binary():
    """Flags given twice are refused by it, hence extraArgs may not name one of these."""
    sidecar = named(pod_of(one(render(*ALL_ON, "maxValid=2s"), "Deployment"))["initContainers"], "tenure")
    flags = [arg.split("=")[0] for arg in sidecar["args"][1:]]
    helped = run(TENURE, "sidecar", "--help")
    assert [flag for flag in flags if not re.search(rf"{flag}\b", helped)] == []
    for flag in flags:
        assert "extraArgs" in run(HELMS[0], "template", "shop", CHART, f"--set=extraArgs={{{flag}=1}}", ok=False)


@each_helm
def test_the_limits_themselves_are_allowed(helm):
    for timing in (("12s", "10s", "2s"), ("2s", "1s", "400ms"), ("2147483647s", "10s", "2s"), ("1m", "50s", "2s")):
        sets = [f"--set=timings.{k}={v}" for k, v in zip(("leaseDuration", "renewDeadline", "retryPeriod"), timing)]
        run(helm, "template", "shop", CHART, *sets)
    run(helm, "template", "shop", CHART, "--set=drainTimeout=27s")


def test_the_readme_lists_every_value_as_it_is():
    readme = (CHART / "README.md").read_text()
    assert values_table.BEGIN + values_table.table() + values_table.END in readme, "make chart-docs writes it anew"
    keys = [key for key, _, _ in values_table.rows()]
    undescribed = [leaf for leaf in values_table.leaves(yaml.safe_load((CHART / "values.yaml").read_text()))
                   if not any(leaf == key or leaf.startswith(key + ".") for key in keys)]
    assert undescribed == []


@pytest.mark.parametrize("mode, where", [("native", "extraInitContainers"), ("classic", "sidecars")])
def test_the_notes_hold_a_snippet_that_can_be_pasted(mode, where, tmp_path):
    notes = run(os.environ["HELM4"], "install", "shop", CHART, "-n", "ns", "--dry-run=client", "--set=socket.enabled=true",
                "--set=mesh=linkerd", f"--set=mode={mode}").split("NOTES:")[1]
    snippet = yaml.load(notes[notes.index(f"\n{where}:"):notes.index("Its pods must run")], UniqueKeys)
    demo = one(render("demo.enabled=true", "socket.enabled=true", "mesh=linkerd", f"mode={mode}"), "Deployment")
    pod = pod_of(demo)
    assert snippet[where] == [named(containers(pod), "tenure")]
    assert snippet["extraVolumes"] == pod["volumes"]
    app = named(pod["containers"], "app")
    assert snippet["extraEnv"] == app["env"] and snippet["extraVolumeMounts"] == app["volumeMounts"]
    assert snippet["podAnnotations"].items() <= demo["spec"]["template"]["metadata"]["annotations"].items()

    (tmp_path / "values.yaml").write_text(notes[notes.index(f"\n{where}:"):notes.index("Its pods must run")])
    for helm in HELMS:
        text = run(helm, "template", "foreign", ROOT / "tests/chart/foreign", "-f", tmp_path / "values.yaml")
        pasted = pod_of(one(list(yaml.load_all(text, UniqueKeys)), "Deployment"))
        assert named(containers(pasted), "tenure") == named(containers(pod), "tenure")
        assert pasted["volumes"] == pod["volumes"]
        assert named(pasted["containers"], "app")["volumeMounts"] == app["volumeMounts"]
    (tmp_path / "foreign.yaml").write_text(text)
    kubeconform(schemas.VERSIONS[0], tmp_path / "foreign.yaml")


def test_alerts_have_runbook_anchors_and_pass_their_tests(tmp_path):
    rule = one(render("prometheusRule.enabled=true"), "PrometheusRule")
    alerts = [a for group in rule["spec"]["groups"] for a in group["rules"]]
    assert [a["alert"] for a in alerts] == ["TenureNoLeader", "TenureTwoLeaders", "TenureFlapping", "TenureRenewSlow"]
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs/runbook.md").read_text(), re.M)
    for alert in alerts:
        assert alert["annotations"]["runbook_url"].endswith("docs/runbook.md#" + alert["alert"].lower())
        assert alert["alert"] in headings
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]))
    shutil.copy(ROOT / "tests/chart/alerts_test.yaml", tmp_path)
    run(os.environ["PROMTOOL"], "check", "rules", tmp_path / "rules.yaml")
    run(os.environ["PROMTOOL"], "test", "rules", tmp_path / "alerts_test.yaml")


def kustomized(tmp_path):
    """The component on a Deployment (native), a StatefulSet (classic) and a bystander, with a prefix."""
    folder = tmp_path / "overlay"
    shutil.copytree(ROOT / "deploy/component", folder / "component")
    shutil.copy(ROOT / "tests/chart/workloads.yaml", folder)
    (folder / "kustomization.yaml").write_text(
        "namePrefix: shop-\nnamespace: prod\nresources: [workloads.yaml]\ncomponents: [component]\n")
    return run(os.environ["KUBECTL"], "kustomize", folder)


def test_the_component_adds_the_sidecar_by_label(tmp_path):
    docs = list(yaml.load_all(kustomized(tmp_path), UniqueKeys))
    pods = {d["metadata"]["name"]: pod_of(d) for d in docs if "template" in d.get("spec", {})}
    assert [c["name"] for c in pods["shop-web"]["initContainers"]] == ["tenure", "migrate"]
    assert [c["name"] for c in pods["shop-db"]["containers"]] == ["tenure", "app"]
    assert [c["name"] for c in containers(pods["shop-other"])] == ["app"]
    for pod in (pods["shop-web"], pods["shop-db"]):
        env = named(named(containers(pod), "tenure")["env"], "TENURE_LEASE_NAME")
        assert env["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.annotations['tenure.dev/lease']"
    leases = {d["metadata"]["name"]: d["spec"]["template"]["metadata"].get("annotations") for d in docs if "template" in d.get("spec", {})}
    assert leases == {"shop-web": {"own": "x", "tenure.dev/lease": "shop-tenure"}, "shop-db": {"tenure.dev/lease": "shop-tenure"},
                      "shop-other": None}
    for pod in (pods["shop-web"], pods["shop-other"]):
        assert named(pod["containers"], "app")["env"] == [{"name": "SELF", "value": "tenure"}], "the app's own word"
    assert [v["name"] for v in pods["shop-web"]["volumes"]] == ["tenure-token", "data"]
    assert one(docs, "Lease")["metadata"]["name"] == "shop-tenure"
    assert one(docs, "Role")["rules"][0]["resourceNames"] == ["shop-tenure"]


def test_chart_manifests_and_component_run_the_same_sidecar(tmp_path):
    docs = list(yaml.safe_load_all(kustomized(tmp_path)))
    plain = yaml.safe_load((ROOT / "deploy/manifests/deployment.yaml").read_text())
    chart = named(pod_of(one(render("demo.enabled=true"), "Deployment"))["initContainers"], "tenure")
    web = [d for d in docs if d["metadata"]["name"] == "shop-web"][0]
    for other in (named(pod_of(plain)["initContainers"], "tenure"), named(pod_of(web)["initContainers"], "tenure")):
        for field in ("image", "restartPolicy", "resources", "securityContext", "volumeMounts"):
            assert other[field] == chart[field], field
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert other[probe]["httpGet"] == chart[probe]["httpGet"]
    assert pod_of(plain)["volumes"] == pod_of(one(render("demo.enabled=true"), "Deployment"))["volumes"]
