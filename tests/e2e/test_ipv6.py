"""A second node whose pods have an IPv6 address and no other."""

import ipaddress

import pytest
from cluster import Release, now, wait
from conftest import cluster_on, own_node


@pytest.fixture(scope="module")
def cluster6(request, cluster):
    if cluster.node is None:
        pytest.skip("needs a node of our own; KUBECONFIG names a cluster")
    node = own_node(request, family=6)
    return cluster_on(request, node, node.kubeconfig)


def test_scenario_p6_pods_whose_only_address_is_ipv6(cluster6, mode):
    release = Release(cluster6, "ipv6", mode=mode)
    try:
        leader = release.leader()
        for pod in release.pods().values():
            addresses = [ipaddress.ip_address(a["ip"]).version for a in pod["status"]["podIPs"]]
            assert addresses == [6]
            # Ready: startup, liveness and readiness probes came in over IPv6.
        release.record.first("lead", leader)
        ip = release.pods()[leader]["status"]["podIP"]
        for url in ("http://localhost:4040/leader", "http://127.0.0.1:4040/leader", "http://[::1]:4040/leader"):
            assert release.ask(leader, url)[0] == 200
        other = release.standby(leader)
        assert release.ask(other, f"http://[{ip}]:4041/metrics")[0] == 200
        assert release.ask(other, f"http://[{ip}]:4040/leader")[0] == 0, "the local API is not for other pods"
        deleted = now()
        release.delete(leader)
        wait(lambda: [t for t in release.record.terms() if t[0] > deleted], 30, "nobody took over")
        release.record.check()
    finally:
        release.close()


def test_scenario_p6_pods_whose_only_address_is_ipv4(releases, mode, node):
    release = releases(mode=mode)
    leader = release.leader()
    assert [":" in a["ip"] for a in release.pods()[leader]["status"]["podIPs"]] == [False]
    ip = release.pods()[leader]["status"]["podIP"]
    other = release.standby(leader)
    assert release.ask(other, f"http://{ip}:4041/metrics")[0] == 200
    assert release.ask(other, f"http://{ip}:4040/leader")[0] == 0, "the local API is not for other pods"
