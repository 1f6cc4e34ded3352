"""What the sidecars really asked the API server, from its audit log (our own node's)."""

import json
import time

from cluster import ApiError, wait


# Tests that take rights away: on purpose, or by an uninstall, which removes them while the last pods are still going.
WITHOUT_RIGHTS = ("scenario-p7-a-removed", "the-epoch-outlives", "another-release")


def audited(node, namespace=None):
    """{(verb, resource, code, decision)} of service accounts: of one namespace, or of all that kept their rights."""
    used = set()
    for line in node.audit_log.read_text().splitlines():
        event = json.loads(line)
        user = event["user"]["username"].split(":")
        if user[:2] != ["system", "serviceaccount"] or user[2] == "kube-system" or not event.get("responseStatus"):
            continue
        if namespace == user[2] or (namespace is None and not user[2].startswith(WITHOUT_RIGHTS)):
            decision = event.get("annotations", {}).get("authorization.k8s.io/decision")
            used.add((event["verb"], event.get("objectRef", {}).get("resource"), event["responseStatus"]["code"], decision))
    return used


def delete_lease(release):
    release.leader()
    epoch = release.epoch()
    release.cluster.api("DELETE", release.lease_path)

    def again():
        try:
            return release.epoch() > epoch
        except ApiError:
            return False
    wait(again, 40, "nobody leads the new Lease")


def test_scenario_p4_no_verb_is_refused_and_none_is_unused(releases, node, mode):
    """One life with everything in it: acquired, renewed, deleted and made anew, handed over, released."""
    release = releases(mode=mode)
    release.record.first("lead", release.leader())
    # A writer may learn from its watch that its PUT was carried out and not wait for the answer; the log then shows no
    # 201. So the Lease is deleted until one PUT's answer was taken.
    for _ in range(10):
        delete_lease(release)
        if any(verb == "update" and code == 201 for verb, _, code, _ in audited(node, release.namespace)):
            break
    leader = release.leader()
    release.delete(leader)
    release.leader(other_than=leader)
    release.gone(leader)
    time.sleep(2)  # long-running requests are logged when they end
    used = audited(node, release.namespace)
    role = release.cluster.api("GET", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{release.namespace}/roles/{release.name}-tenure")
    granted = {(verb, resource) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    # A PUT that creates is authorized as `create` and logged as an update that was answered 201.
    needed = {("create" if (verb, code) == ("update", 201) else verb, resource) for verb, resource, code, _ in used
              if resource in ("leases", "events")}
    assert needed == granted, f"{used}"
    # Of the whole run so far. (A namespace that is being deleted answers 403, too, but was not refused by a Role.)
    assert not [entry for entry in audited(node) if entry[3] == "forbid" or entry[2] == 401]
