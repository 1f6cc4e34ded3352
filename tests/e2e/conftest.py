"""One cluster for the whole run; a release with a record for each test that asks for one."""

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import images
import node as own
import pytest
from cluster import Cluster, Release

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("TENURE_CACHE", ROOT / ".cache")).resolve()
IMAGE = os.environ.get("TENURE_IMAGE", "ghcr.io/tenure-dev/tenure:0.1.0")
FIGURES = []


def pytest_sessionstart(session):
    """Installs what is missing, or says why nothing can be run here."""
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))  # ended from outside: clean up, too
    if os.environ.get("KUBECONFIG"):
        return
    subprocess.run([ROOT / "deploy/debian.sh", *own.PACKAGES], check=False)
    try:
        own.check_machine()
    except own.Unfit as why:
        text = f"no real pods on this machine: {why}. Set KUBECONFIG to run in a cluster, or E2E_SKIP=1 to do without."
        pytest.exit(text, returncode=0 if os.environ.get("E2E_SKIP") else 1)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        item.session.failed_once = True
        release = item.funcargs.get("releases")
        for made in release.made if release else []:
            report.sections.append((f"record of {made.namespace}", made.story()))


def pytest_terminal_summary(terminalreporter):
    if FIGURES:
        terminalreporter.section("figures")
        terminalreporter.write("".join(FIGURES))


@pytest.fixture
def figure(request):
    """figure("gap", 12, "ms") keeps a number for the summary."""
    def write(name, value, unit=""):
        FIGURES.append(f"{request.node.name}: {name} {value} {unit}\n")
    return write


def own_node(request, family):
    app, pause = images.app_images(CACHE)
    node = own.Node(CACHE / "e2e", os.environ["KUBE_BIN"], family)
    request.addfinalizer(lambda: node.stop(keep_logs=getattr(request.session, "failed_once", False)))
    node.start()
    for archive in (pause, app, os.environ["TENURE_IMAGE_ARCHIVE"]):
        node.load(archive)
    return node


def cluster_on(request, node, kubeconfig):
    folder = tempfile.TemporaryDirectory(prefix="tenure-e2e-", dir="/tmp")
    request.addfinalizer(folder.cleanup)
    cluster = Cluster(os.environ["KUBECTL"], os.environ["HELM"], kubeconfig, folder.name, IMAGE, images.APP,
                      inside=node.inside if node else (), node=node)
    request.addfinalizer(cluster.close)
    return cluster


@pytest.fixture(scope="session")
def cluster(request):
    if kubeconfig := os.environ.get("KUBECONFIG"):
        return cluster_on(request, None, kubeconfig)
    node = own_node(request, family=4)
    return cluster_on(request, node, node.kubeconfig)


@pytest.fixture
def node(cluster):
    """Tests that stop parts of the node need our own."""
    if cluster.node is None:
        pytest.skip("needs a node of our own; KUBECONFIG names a cluster")
    return cluster.node


@pytest.fixture(params=["native", "classic"])
def mode(request):
    return request.param


@pytest.fixture
def releases(request, cluster):
    """releases(values, mode=…) installs the guarded app in a namespace of its own."""
    def make(values=None, mode="native", **kwargs):
        name = request.function.__name__.removeprefix("test_").replace("_", "-")[:30].strip("-")
        release = Release(cluster, name, values, mode, install=False, **kwargs)
        make.made.append(release)
        release.values = with_uid(release.values)
        release.helm("install")
        release.ready()
        return release
    make.made = []
    yield make
    for release in make.made:
        release.close()


def with_uid(values):
    """E2E_UID: every container under this user and group, as OpenShift would say it."""
    if not (uid := os.environ.get("E2E_UID")):
        return values
    security = {"runAsUser": int(uid), "fsGroup": int(uid), **values.get("podSecurity", {})}
    return {**values, "podSecurity": security}
