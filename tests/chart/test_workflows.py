"""The workflows: pinned, with few rights, over the verbs and versions that hold here. actionlint reads the rest."""

import re
from pathlib import Path

import pytest
import schemas
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILES = "".join((ROOT / file).read_text() for file in ("Makefile", "deploy/pod.mk"))


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_nothing_may_write_by_default(file):
    text = file.read_text()
    assert re.findall(r"uses: (?!actions/[a-z-]+@[0-9a-f]{40} # v[0-9.]+$).*", text, re.M) == []
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}


def test_the_cluster_matrix_is_the_newest_four_versions_both_modes_and_both_helms():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    matrix = jobs["kind"]["strategy"]["matrix"]
    minor = lambda version: version.lstrip("v").split("@")[0].rsplit(".", 1)[0]  # noqa: E731
    assert [minor(node) for node in matrix["node"]] == [minor(version) for version in schemas.VERSIONS]
    assert all(re.search(r"@sha256:[0-9a-f]{64}$", node) for node in matrix["node"])
    assert matrix["mode"] == ["native", "classic"] and matrix["target"] == ["e2e", "e2e-helm3"]
    for target in matrix["target"] + jobs["make"]["strategy"]["matrix"]["target"]:
        assert re.search(rf"^{target}:", MAKEFILES, re.M), target
