"""The pages about pods: every test that they name exists, every object that they show is valid."""

import re
from pathlib import Path

import pytest
import schemas
import test_chart
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = ["adding.md", "pods.md", "migrating.md", "network.md", "pod-security.md", "runbook.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_tests_that_a_page_names_exist(page):
    tests = "\n".join(path.read_text() for path in ROOT.glob("tests/e2e/test_*.py"))
    prose = re.sub(r"^    .*$|`[^`]*`", "", (DOCS / page).read_text(), flags=re.M)
    text = re.sub(r"\s+", " ", prose)
    named = [name.strip() for group in re.findall(r"\[([a-z0-9_, ]+)\](?!\()", text) for name in group.split(",")]
    assert [name for name in named if not re.search(rf"^def test_{name}", tests, re.M)] == []
    assert named or page in ("adding.md", "migrating.md", "network.md", "runbook.md")


@pytest.mark.parametrize("version", schemas.VERSIONS)
def test_the_objects_that_a_page_shows_are_valid(version, tmp_path):
    blocks = [block for page in PAGES for block in re.findall(r"(?:^    .*\n|^\n)+", (DOCS / page).read_text(), re.M)]
    objects = [yaml.safe_load(re.sub(r"^    ", "", block, flags=re.M)) for block in blocks if "apiVersion:" in block]
    assert {o["kind"] for o in objects} == {"NetworkPolicy", "FlowSchema"}
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    test_chart.kubeconform(version, tmp_path / "objects.yaml")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)", (DOCS / page).read_text()):
        assert link.startswith("http") or (DOCS / link).exists(), link
