"""A cluster as the tests use it, their own node's or any that KUBECONFIG names: the API through `kubectl proxy`, Helm,
and releases of the guarded app whose logs and Lease are recorded."""

import contextlib
import http.client
import json
import secrets
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import quote, urlencode

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "tenure"


def now():
    """Milliseconds of the machine's boottime clock, which its pods share."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def wait(condition, seconds, what):
    """The first true value of the condition."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what() if callable(what) else what}"
        time.sleep(0.05)
    return value


class ApiError(Exception):
    def __init__(self, status, body):
        super().__init__(f"{status}: {body[:500]}")
        self.status = status


class Cluster:
    def __init__(self, kubectl, helm, kubeconfig, folder, image, app_image, inside=(), node=None):
        self.inside, self.image, self.app_image, self.node = list(inside), image, app_image, node
        self.kubectl_command = [*self.inside, str(kubectl), f"--kubeconfig={kubeconfig}"]
        self.helm_command = [*self.inside, str(helm), f"--kubeconfig={kubeconfig}"]
        self.folder = Path(folder)
        self.socket = self.folder / "proxy.sock"
        self.proxy = subprocess.Popen([*self.kubectl_command, "proxy", f"--unix-socket={self.socket}"],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait(self.socket.exists, 20, "kubectl proxy")
        self.chart = self.folder / "guarded"
        shutil.copytree(ROOT / "tests/e2e/chart", self.chart)
        shutil.copytree(CHART, self.chart / "charts/tenure")

    def close(self):
        self.proxy.terminate()
        self.proxy.wait()

    # -- the API -------------------------------------------------------------------------------------------------

    def open(self, method, path, body=None, content_type="application/json", timeout=60):
        connection = http.client.HTTPConnection("localhost", timeout=timeout)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(timeout)
        connection.sock.connect(str(self.socket))
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": content_type})
        response = connection.getresponse()
        if response.status >= 300:
            raise ApiError(response.status, response.read().decode())
        return response

    def api(self, method, path, body=None, **kwargs):
        text = self.open(method, path, body, **kwargs).read()
        return json.loads(text) if text[:1] == b"{" else text.decode()

    def patch(self, path, body):
        return self.api("PATCH", path, body, content_type="application/merge-patch+json")

    def kubectl(self, *args, ok=True, text=None, timeout=180):
        return _run([*self.kubectl_command, *args], ok, text, timeout)

    def helm(self, *args, ok=True, timeout=240):
        return _run([*self.helm_command, *args], ok, None, timeout)

    def namespace(self, name):
        """A namespace of its own, under Pod Security "restricted"."""
        full = f"{name}-{secrets.token_hex(3)}"
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
        self.api("POST", "/api/v1/namespaces", {"metadata": {"name": full, "labels": labels}})
        self.api_when_there(f"/api/v1/namespaces/{full}/configmaps/kube-root-ca.crt")
        return full

    def api_when_there(self, path):
        def get():
            with contextlib.suppress(ApiError):
                return self.api("GET", path)
        return wait(get, 30, path)


class Release:
    """One `helm install` of the guarded app in a namespace of its own, and the record of what happens there."""

    def __init__(self, cluster, name, values=None, mode="native", chart=None, install=True):
        self.cluster, self.name, self.mode = cluster, "guarded", mode
        self.chart = chart or cluster.chart
        self.namespace = cluster.namespace(name)
        self.record = Record(cluster, self.namespace, self.name)
        self.values = merged({"image": cluster.app_image, "tenure": {"mode": mode, **image_values(cluster.image)}}, values or {})
        if install:
            self.helm("install")
            self.ready()

    def helm(self, verb, *args, values=None):
        self.values = merged(self.values, values or {})
        file = self.cluster.folder / f"{self.namespace}.json"
        file.write_text(json.dumps(self.values))
        return self.cluster.helm(verb, self.name, self.chart, "-n", self.namespace, "-f", file, *args)

    def close(self):
        self.record.close()
        with contextlib.suppress(ApiError):
            self.cluster.api("DELETE", f"/api/v1/namespaces/{self.namespace}")
        # Pods of a finished test must not compete with the next one for the processor.
        self.cluster.kubectl("delete", "pods", "--all", "-n", self.namespace, "--grace-period=1", "--wait=false", ok=False)

    # -- pods ----------------------------------------------------------------------------------------------------

    def pods(self):
        """Living pods that are not about to go, by name."""
        items = self.cluster.api("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return {p["metadata"]["name"]: p for p in items if "deletionTimestamp" not in p["metadata"]}

    def ready(self, count=None, seconds=90):
        def all_ready():
            pods = self.pods()
            wanted = count if count is not None else self.values.get("replicas", 2)
            return len(pods) == wanted and all(is_ready(p) for p in pods.values())
        wait(all_ready, seconds, lambda: f"pods are not ready: {[(n, conditions(p)) for n, p in self.pods().items()]}")

    def pod_path(self, pod):
        return f"/api/v1/namespaces/{self.namespace}/pods/{pod}"

    def delete(self, pod, grace=None):
        body = {} if grace is None else {"gracePeriodSeconds": grace}
        self.cluster.api("DELETE", self.pod_path(pod), body)
        return now()

    def gone(self, pod, seconds=60):
        def absent():
            try:
                self.cluster.api("GET", self.pod_path(pod))
            except ApiError as error:
                return error.status == 404
        wait(absent, seconds, f"{pod} is still there")

    def exec(self, pod, *command, container="app", ok=True):
        return self.cluster.kubectl("exec", "-n", self.namespace, pod, "-c", container, "--", *command, ok=ok)

    def ask(self, pod, path="/leader", method="GET", body=""):
        """(status, body) of a call to the pod's sidecar, from the app's container."""
        status, _, text = self.exec(pod, "/app", "http", method, path, body).partition(" ")
        return int(status), json.loads(text) if text.startswith("{") else text

    # -- election ------------------------------------------------------------------------------------------------

    @property
    def lease_path(self):
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{self.name}"

    def lease(self):
        return self.cluster.api("GET", self.lease_path)

    def leader(self, other_than=None, seconds=30):
        """Name of the pod that the Lease names, once it does."""
        def holder():
            pod = holder_of(self.lease()).partition("_")[0]
            return pod if pod and pod != other_than and not pod.startswith("tenure/") else None
        return wait(holder, seconds, lambda: f"no leader: {self.lease().get('spec')}")

    def standby(self, leader):
        return next(name for name in self.pods() if name != leader)

    def epoch(self):
        return epoch_of(self.lease())

    def story(self):
        """What happened, for the report of a failed test."""
        lines = [(l["at"], f"{l['pod']}/{l['container']}", json.dumps({k: v for k, v in l.items() if k not in ("pod", "container", "at")}))
                 for l in list(self.record.lines)]
        lines += [(at, "lease", f"{kind} {holder_of(l)!r} epoch {epoch_of(l)}") for at, kind, l in list(self.record.leases)]
        return "\n".join(f"{at} {who}: {what}" for at, who, what in sorted(lines)[-300:])


class Record:
    """Lease events and the JSON lines of every container, with the time of their arrival."""

    def __init__(self, cluster, namespace, lease):
        self.cluster, self.namespace = cluster, namespace
        self.leases = []  # (ms, "ADDED" | "MODIFIED" | "DELETED", object)
        self.lines = []  # {"pod", "container", "at", ...the line}
        self.pod_events = []  # (ms, type, object)
        self._open = True
        self._followed = set()
        selector = quote(f"metadata.name={lease}")
        self._thread(self._watch, f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases?fieldSelector={selector}", self._lease)
        self._thread(self._watch, f"/api/v1/namespaces/{namespace}/pods?", self._pod)

    def close(self):
        self._open = False

    def of(self, what, pod=None, since=0):
        return [l for l in list(self.lines) if l.get("what") == what and pod in (None, l["pod"]) and l["ms"] >= since]

    def first(self, what, pod=None, since=0, seconds=40):
        found = wait(lambda: self.of(what, pod, since), seconds, f"no line {what!r} of {pod or 'any pod'}")
        return found[0]

    def holders(self, since=0):
        """[(ms, holder pod or "")], each change once."""
        changes = []
        for at, kind, lease in list(self.leases):
            holder = "" if kind == "DELETED" else holder_of(lease).partition("_")[0]
            if at >= since and (not changes or changes[-1][1] != holder):
                changes.append((at, holder))
        return changes

    def renewals(self, pod, since):
        return [(at, l) for at, kind, l in list(self.leases) if at >= since and kind != "DELETED" and holder_of(l).startswith(pod + "_")]

    def terms(self):
        """[(start, end, pod, epoch)] as the apps lived them, in order of their start; a killed app's ends with its grant."""
        terms = []
        for start in self.of("lead"):
            ends = [l["ms"] for l in list(self.lines) if l["pod"] == start["pod"] and l is not start and l["ms"] >= start["ms"]
                    and l.get("what") in ("end", "died", "crash", "lead")]
            terms.append((start["ms"], min(ends, default=None) or start["until"], start["pod"], start["epoch"]))
        return sorted(terms)

    def check(self):
        """No two apps were at their guarded work at once, and epochs only grew (invariants S1, S2)."""
        terms = self.terms()
        for (_, end, pod, epoch), (start, _, next_pod, next_epoch) in zip(terms, terms[1:]):
            assert end <= start, f"{pod} worked until {end}, {next_pod} began at {start}: {terms}"
            assert epoch < next_epoch, terms
        return terms

    # -- threads -------------------------------------------------------------------------------------------------

    def _thread(self, function, *args):
        threading.Thread(target=function, args=args, daemon=True).start()

    def _watch(self, path, take):
        while self._open:
            with contextlib.suppress(OSError, ApiError, http.client.HTTPException, ValueError):
                for line in self.cluster.open("GET", f"{path}&watch=true", timeout=600):
                    if not self._open:
                        return
                    event = json.loads(line)
                    take(now(), event["type"], event["object"])
            time.sleep(0.1)

    def _lease(self, at, kind, lease):
        if not any(l["metadata"]["resourceVersion"] == lease["metadata"]["resourceVersion"] and k == kind for _, k, l in self.leases[-3:]):
            self.leases.append((at, kind, lease))

    def _pod(self, at, kind, pod):
        self.pod_events.append((at, kind, pod))
        status = pod.get("status", {})
        for container in status.get("containerStatuses", []) + status.get("initContainerStatuses", []):
            key = (pod["metadata"]["name"], container["name"], container.get("containerID"))
            if "running" in container.get("state", {}) and key not in self._followed:
                self._followed.add(key)
                self._thread(self._follow, *key)

    def _follow(self, pod, container, instance):
        """Every line once, also where the stream breaks because the API server was away."""
        query = urlencode({"container": container, "follow": "true"})
        taken = 0
        while self._open:
            with contextlib.suppress(OSError, ApiError, http.client.HTTPException):
                response = self.cluster.open("GET", f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log?{query}", timeout=600)
                for number, raw in enumerate(response):
                    if number >= taken:
                        taken += 1
                        self._take(raw, pod, container)
            time.sleep(0.2)
            with contextlib.suppress(OSError, http.client.HTTPException):
                if not self._runs(pod, container, instance):
                    return

    def _runs(self, pod, container, instance):
        try:
            status = self.cluster.api("GET", f"/api/v1/namespaces/{self.namespace}/pods/{pod}")["status"]
        except ApiError as error:
            return error.status != 404  # an API server that is away says nothing about the pod
        return any(c["name"] == container and c.get("containerID") == instance and "running" in c["state"]
                   for c in status.get("containerStatuses", []) + status.get("initContainerStatuses", []))

    def _take(self, raw, pod, container):
        try:
            line = json.loads(raw)
        except ValueError:
            line = {"text": raw.decode(errors="replace").rstrip()}
        if isinstance(line, dict):
            self.lines.append({"ms": 0, **line, "pod": pod, "container": container, "at": now()})


def holder_of(lease):
    return (lease.get("spec") or {}).get("holderIdentity") or ""


def epoch_of(lease):
    return int((lease["metadata"].get("annotations") or {}).get("tenure.dev/epoch", 0))


def conditions(pod):
    return [f"{c['type']}={c['status']}" for c in pod.get("status", {}).get("conditions", [])]


def is_ready(pod):
    return "Ready=True" in conditions(pod)


def image_values(image):
    name, _, tag = image.rpartition(":")
    return {"image": {"registry": "", "repository": name, "tag": tag, "pullPolicy": "IfNotPresent"}}


def merged(base, over):
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{k: merged(base.get(k), v) for k, v in over.items()}}


def _run(command, ok, text, timeout):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, input=text, timeout=timeout)
    assert not ok or done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}"
    return done.stdout if ok else done.stdout + done.stderr
