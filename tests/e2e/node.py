"""A whole Kubernetes node of our own: etcd, API server, controllers, scheduler, containerd, kubelet; no engine, no registry.

Everything lives in one network namespace, one state folder and one folder of sockets; processes are stopped by pid,
containers by their shims, and what a kubelet leaves behind on a machine is removed again.
"""

import contextlib
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from images import PAUSE

CGROUPS = Path("/sys/fs/cgroup")
# Kubelet, CNI and containerd write here whatever they are told.
LEFT_BEHIND = ["/var/lib/kubelet", "/var/lib/cni", "/var/log/containers", "/var/log/pods", "/run/containerd", "/opt/containerd"]
BEFORE = Path("/run/tenure-before")  # which of them were there before the first of our nodes
PACKAGES = "containerd runc containernetworking-plugins nftables iproute2 busybox-static openssl util-linux".split()


class Unfit(Exception):
    """This machine cannot run a node; the text says why."""


class Network:
    """Addresses of one IP family."""

    def __init__(self, family):
        six = family == 6
        self.family = family
        self.node = "fd00:7e::1" if six else "172.31.254.1"
        self.router = "fd00:7e::2" if six else "172.31.254.2"
        self.prefix = 64 if six else 24
        self.pods = "fd00:7f::/112" if six else "172.30.254.0/24"
        self.services = "fd00:80::/112" if six else "10.0.0.0/24"
        self.loopback = "::1" if six else "127.0.0.1"
        self.api_service = str(ipaddress.ip_network(self.services)[1])

    def url(self, scheme, host, port):
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Node:
    def __init__(self, folder, binaries, family=4, name=None):
        self.name = name or f"e2e{os.getpid()}v{family}"
        self.dir = Path(folder) / self.name
        self.run_dir = Path("/run") / f"tenure-{self.name}"  # socket paths must stay short
        self.logs = self.dir / "logs"
        self.bin = Path(binaries)
        self.net = Network(family)
        self.processes = {}  # name -> Popen, in the order of their start
        self.cgroup = f"tenure-{self.name}"  # all pods are below it: other kubelets of this machine stay untouched
        self.inside = ["nsenter", f"--net=/run/netns/{self.name}"]
        self.kubeconfig = self.dir / "admin.kubeconfig"
        self.audit_log = self.dir / "audit.log"

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self):
        check_machine()
        for name in _nodes(alive=False):
            Node(self.dir.parent, self.bin, name=name).stop(keep_logs=False)
        for old in self.dir.parent.glob("e2e*v?"):  # logs of failed runs
            if not Path(f"/proc/{_pid_of(old.name)}").exists():
                shutil.rmtree(old, ignore_errors=True)
        if not _nodes(alive=True):
            BEFORE.write_text("\n".join(path for path in LEFT_BEHIND if Path(path).exists()))
        for folder in (self.dir, self.logs, self.run_dir, self.dir / "pki"):
            folder.mkdir(parents=True, exist_ok=True)
        self._network()
        self._certificates()
        self._kubeconfig()
        self._control_plane()
        self._containerd()
        self._kubelet()

    def stop(self, keep_logs):
        for name in ("kubelet", "kube-scheduler", "kube-controller-manager"):
            self.end(name)
        self._end_containers()
        for name in reversed(list(self.processes)):
            self.end(name)
        left = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False)
        for pid in left.stdout.split():
            _kill(int(pid))
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True, check=False)
        self._unmount()
        for cgroup in reversed(self._cgroups()):
            with contextlib.suppress(OSError):
                cgroup.rmdir()
        shutil.rmtree(self.run_dir, ignore_errors=True)
        if not (_nodes(alive=True) or _nodes(alive=False)) and BEFORE.exists():
            for path in set(LEFT_BEHIND) - set(BEFORE.read_text().split()):
                shutil.rmtree(path, ignore_errors=True)
            BEFORE.unlink()
        for entry in self.dir.iterdir() if self.dir.exists() else ():
            if not (keep_logs and entry in (self.logs, self.audit_log)):
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink()
        if not keep_logs:
            shutil.rmtree(self.dir, ignore_errors=True)

    def spawn(self, name, *command):
        log = (self.logs / f"{name}.log").open("a")
        self.processes[name] = subprocess.Popen(
            [*self.inside, *map(str, command)], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)

    def end(self, name, sig=signal.SIGTERM, patience=20):
        process = self.processes.pop(name, None)
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.send_signal(sig)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def signal(self, name, sig):
        self.processes[name].send_signal(sig)

    # -- parts ---------------------------------------------------------------------------------------------------

    def _network(self):
        net, ns = self.net, self.name
        _run("ip", "netns", "add", ns)
        for command in (
            "link set lo up",
            "link add node0 type veth peer name router0",
            f"addr add {net.node}/{net.prefix} dev node0" + (" nodad" if net.family == 6 else ""),
            "link set node0 up",
            "link set router0 up",
            # The kubelet looks for a default route to tell its address; nothing is behind it.
            f"-{net.family} route add default via {net.router} dev node0",
        ):
            _run("ip", "-n", ns, *command.split())
        for setting in ("ipv4.ip_forward", "ipv6.conf.all.forwarding"):
            self._sh(f"echo 1 > /proc/sys/net/{setting.replace('.', '/')}")
        ip = "ip6" if net.family == 6 else "ip"
        target = f"[{net.node}]:6443" if net.family == 6 else f"{net.node}:6443"
        rule = f"{ip} daddr {net.api_service} tcp dport 443 dnat to {target}"
        ruleset = f"""table {ip} tenure {{
            chain pre {{ type nat hook prerouting priority -100; {rule}; }}
            chain out {{ type nat hook output priority -100; {rule}; }}
        }}"""
        subprocess.run([*self.inside, "nft", "-f", "-"], input=ruleset, text=True, check=True)

    def _certificates(self):
        """A CA of our own: rustls refuses the API server's self-made certificate."""
        pki = self.dir / "pki"
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
        sans = ",".join([f"DNS:{n}" for n in names] + [f"IP:{a}" for a in ("127.0.0.1", "::1", self.net.api_service, self.net.node)])
        (pki / "server.ext").write_text(f"subjectAltName={sans}\nextendedKeyUsage=serverAuth\n")
        for command in (
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=e2e-ca"
            " -addext keyUsage=critical,keyCertSign,cRLSign",
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr -subj /CN=kube-apiserver",
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.crt",
            "genrsa -out sa.key 2048",
            "rsa -in sa.key -pubout -out sa.pub",
        ):
            _run("openssl", *command.split(), cwd=pki)

    def _kubeconfig(self):
        token = os.urandom(16).hex()
        (self.dir / "tokens.csv").write_text(f'{token},admin,1,"system:masters"\n')
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster": {
                "server": self.net.url("https", self.net.node, 6443), "certificate-authority": str(self.dir / "pki/ca.crt")}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "admin"}}],
        }))

    def _control_plane(self):
        local = self.net.loopback
        client = self.net.url("http", local, 2379)
        self.spawn("etcd", self.bin / "etcd", f"--data-dir={self.dir}/etcd", f"--listen-client-urls={client}",
                   f"--advertise-client-urls={client}", f"--listen-peer-urls={self.net.url('http', local, 2380)}",
                   "--unsafe-no-fsync=true")
        self._start_api_server()
        kubeconfig = f"--kubeconfig={self.kubeconfig}"
        self.spawn("kube-controller-manager", self.bin / "kube-controller-manager", kubeconfig, "--leader-elect=false",
                   f"--root-ca-file={self.dir}/pki/ca.crt", f"--service-account-private-key-file={self.dir}/pki/sa.key",
                   "--use-service-account-credentials=false")
        self.spawn("kube-scheduler", self.bin / "kube-scheduler", kubeconfig, "--leader-elect=false")

    def _start_api_server(self):
        pki = self.dir / "pki"
        policy = self.dir / "audit-policy.yaml"
        # What pods ask for, and nothing else.
        policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
            {"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}]}))
        any_address = "::" if self.net.family == 6 else "0.0.0.0"
        self.spawn(
            "kube-apiserver", self.bin / "kube-apiserver", f"--etcd-servers={self.net.url('http', self.net.loopback, 2379)}",
            f"--bind-address={any_address}", "--secure-port=6443", f"--advertise-address={self.net.node}", f"--cert-dir={pki}",
            f"--tls-cert-file={pki}/server.crt", f"--tls-private-key-file={pki}/server.key",
            f"--service-cluster-ip-range={self.net.services}", "--authorization-mode=Node,RBAC",
            f"--token-auth-file={self.dir}/tokens.csv", "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki}/sa.pub", f"--service-account-signing-key-file={pki}/sa.key",
            "--endpoint-reconciler-type=none", "--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP",
            f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}")
        self.wait(lambda: self.kubectl("get", "--raw=/readyz", ok=None).strip() == "ok", 60, "the API server is not ready")

    def _containerd(self):
        config = self.dir / "containerd.toml"
        cni = self.dir / "cni"
        cni.mkdir()
        (cni / "10-e2e.conflist").write_text(json.dumps({"cniVersion": "1.0.0", "name": "e2e", "plugins": [
            {"type": "bridge", "bridge": "pods0", "isGateway": True, "ipam": {
                "type": "host-local", "dataDir": str(self.dir / "ipam"), "ranges": [[{"subnet": self.net.pods}]],
                "routes": [{"dst": "::/0" if self.net.family == 6 else "0.0.0.0/0"}]}},
            {"type": "loopback"}]}))
        config.write_text(f"""
version = 2
root = "{self.dir}/containerd"
state = "{self.run_dir}/containerd"
[grpc]
  address = "{self.run_dir}/containerd.sock"
[ttrpc]
  address = "{self.run_dir}/containerd.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{self.dir}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{cni}"
""")
        self.spawn("containerd", "containerd", "--config", config)
        self.wait(lambda: subprocess.run(self._ctr("version"), capture_output=True).returncode == 0, 30, "containerd does not answer")

    def load(self, archive):
        _run(*self._ctr("images", "import", archive))

    def _ctr(self, *args):
        return [*self.inside, "ctr", "-a", f"{self.run_dir}/containerd.sock", "-n", "k8s.io", *map(str, args)]

    def _make_cgroups(self):
        if (CGROUPS / "cgroup.controllers").is_file():
            (CGROUPS / self.cgroup).mkdir()
            return
        for controller in CGROUPS.iterdir():
            if controller.is_dir() and not controller.is_symlink() and (controller / "cgroup.procs").exists():
                (controller / self.cgroup).mkdir()
                for setting in ("cpuset.cpus", "cpuset.mems"):
                    if (controller / setting).exists():
                        (controller / self.cgroup / setting).write_text((controller / setting).read_text())

    def _kubelet(self):
        self._make_cgroups()
        config = self.dir / "kubelet.yaml"
        config.write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "failCgroupV1": False, "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self.cgroup}", "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{self.run_dir}/containerd.sock", "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"}, "address": "::" if self.net.family == 6 else "0.0.0.0",
            "podLogsDir": f"{self.dir}/pod-logs", "localStorageCapacityIsolation": False,
            "nodeStatusUpdateFrequency": "4s", "resolvConf": "",
        }))
        self._start_kubelet()
        self.wait(self.is_ready, 90, "the node is not Ready")
        self.wait(lambda: "default" in self.kubectl("get", "serviceaccounts", "-oname", ok=None), 60, "no ServiceAccounts")

    def _start_kubelet(self):
        self.spawn("kubelet", self.bin / "kubelet", f"--config={self.dir}/kubelet.yaml", f"--kubeconfig={self.kubeconfig}",
                   f"--root-dir={self.dir}/kubelet", f"--hostname-override={self.name}", f"--node-ip={self.net.node}")

    def is_ready(self):
        return "True" == self.kubectl(
            "get", "nodes", "-o", 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}', ok=None).strip()

    # -- use -----------------------------------------------------------------------------------------------------

    def kubectl(self, *args, ok=True):
        done = subprocess.run([*self.inside, self.bin / "kubectl", f"--kubeconfig={self.kubeconfig}", *args],
                              capture_output=True, text=True, timeout=120)
        assert not ok or done.returncode == 0, f"kubectl {args}: {done.stderr}"
        return done.stdout

    def wait(self, condition, seconds, failure):
        deadline = time.monotonic() + seconds
        while not condition():
            for name, process in self.processes.items():
                assert process.poll() is None, f"{failure}: {name} ended, see {self.logs}/{name}.log"
            assert time.monotonic() < deadline, f"{failure} after {seconds} s, see {self.logs}"
            time.sleep(0.2)

    # -- the end -------------------------------------------------------------------------------------------------

    def _end_containers(self):
        """The shims of our containerd and everything in our pods' cgroups."""
        for pid in _pids_with(f"{self.run_dir}/containerd.sock"):
            if pid not in {p.pid for p in self.processes.values()}:
                _kill(pid)
        for cgroup in self._cgroups():
            with contextlib.suppress(OSError):
                for pid in (cgroup / "cgroup.procs").read_text().split():
                    _kill(int(pid))

    def _cgroups(self):
        """Our pods' cgroups, parents first: of the one hierarchy (v2), or of each controller's (v1)."""
        tops = [root / self.cgroup for root in (CGROUPS, *CGROUPS.glob("*")) if (root / self.cgroup).is_dir()]
        return [Path(path) for top in tops for path, _, _ in os.walk(top)]  # they come and go: walk forgives that

    def _unmount(self):
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for mount in reversed(mounts):
            if mount.startswith((str(self.dir), str(self.run_dir))):
                subprocess.run(["umount", "-l", mount], check=False)

    def _sh(self, script):
        _run(*self.inside, "sh", "-c", script)


def check_machine():
    """Refuses early, with the reason, where no kubelet can run."""
    if os.geteuid() != 0:
        raise Unfit("a kubelet needs root")
    v1, v2 = (CGROUPS / "memory").is_dir(), (CGROUPS / "cgroup.controllers").is_file()
    if not (v1 or v2) or not os.access(CGROUPS, os.W_OK):
        raise Unfit("no writable cgroups below /sys/fs/cgroup")
    missing = [tool for tool in ("containerd", "runc", "nft", "ip", "nsenter", "openssl", "busybox", "ctr") if not shutil.which(tool)]
    if missing:
        raise Unfit(f"missing: {', '.join(missing)} (Debian: {' '.join(PACKAGES)})")


def _nodes(alive):
    """Names of the nodes on this machine whose test run lives, or was killed before it could clean up."""
    names = [path.name.removeprefix("tenure-") for path in Path("/run").glob("tenure-e2e*v?")]
    return [name for name in names if Path(f"/proc/{_pid_of(name)}").exists() == alive]


def _pid_of(name):
    return name.removeprefix("e2e").partition("v")[0]


def _pids_with(text):
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if text in (entry / "cmdline").read_text().replace("\0", " "):
                    yield int(entry.name)


def _kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _run(*command, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr or done.stdout}"
    return done.stdout
