"""The pages about pods: every test that they name exists, every object that they show is valid."""

import http.server
import json
import os
import re
import socket
import subprocess
import threading
import time
import urllib.request
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


@pytest.fixture
def old_elector():
    """What the old image answers; `name` is who it says leads."""
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"name": self.server.name}).encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.name = "other"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in held]
    [s.close() for s in held]
    return ports


def until(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_loop_of_a_migration_works_with_both_locks_and_else_gives_the_lease_up(old_elector, tmp_path):
    (block,) = [b for b in re.findall(r"(?:^    .*\n)+", (DOCS / "migrating.md").read_text(), re.M) if "own loop" in b]
    api, admin = free_ports(2)
    for old, new in (("localhost:4050", f"127.0.0.1:{old_elector.server_port}"), ("localhost:4040", f"127.0.0.1:{api}"), ("20s", "1s")):
        assert old in block
        block = block.replace(old, new)
    unit, done = tmp_path / "guarded-unit", tmp_path / "done"
    unit.write_text(f"#!/bin/sh\necho >>{done}\n")
    unit.chmod(0o755)
    done.touch()

    def leader():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{api}/leader?max_valid=1ms", timeout=5) as answer:
                return json.load(answer)
        except OSError:
            return {"state": "starting", "lease": {"epoch": 0}}

    sidecar = subprocess.Popen([test_chart.TENURE, "sidecar", "--dev", "--lease-name=x", f"--listen=127.0.0.1:{api}",
                                f"--admin-listen=127.0.0.1:{admin}"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until(lambda: leader()["state"] == "leading")
    first = leader()["lease"]["epoch"]
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "POD_NAME": "web-1"}
    loop = subprocess.Popen(["sh", "-c", block], env=env, stdout=subprocess.DEVNULL)
    try:
        until(lambda: leader()["lease"]["epoch"] > first)
        assert not done.read_text(), "worked with one lock"
        old_elector.name = "web-1"
        until(lambda: len(done.read_text()) >= 2)
        second = leader()["lease"]["epoch"]
        old_elector.name = "web-10"
        until(lambda: leader()["lease"]["epoch"] > second)
    finally:
        for process in (loop, sidecar):
            process.kill()
            process.wait()
