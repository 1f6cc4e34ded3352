"""The Dockerfile where an engine runs it: what it calls is in the build context."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Stands for cargo: makes the binary that was asked for, and says what it was given.
CARGO = """#!/bin/sh
case " $* " in *" --bin tenure "*) ;; *) exit 9 ;; esac
for argument; do [ "$before" != --target ] || target=$argument; before=$argument; done
mkdir -p "target/$target/release"
echo "$target $TENURE_BUILD_COMMIT" >"target/$target/release/tenure"
"""


@pytest.fixture
def context(tmp_path):
    """A folder with what .dockerignore lets through, and nothing else."""
    folder = tmp_path / "src"
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert [line for line in lines if not line.startswith(("!", "#"))] == ["*"]
    for name in (line[1:] for line in lines if line.startswith("!")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, folder / name)
    return folder


@pytest.mark.parametrize("arch, target", [("amd64", "x86_64-unknown-linux-musl"), ("arm64", "aarch64-unknown-linux-musl")])
def test_the_first_stage_finds_all_it_needs_in_its_context(context, tmp_path, arch, target):
    (command,) = re.findall(r"^RUN (.*)$", (ROOT / "Dockerfile").read_text(), re.M)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, script in {"cargo": CARGO, "rustup": "#!/bin/sh\n", "aarch64-linux-gnu-gcc": "#!/bin/sh\n", "x86_64-linux-gnu-gcc": "#!/bin/sh\n"}.items():
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    assert command.endswith(" /")
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "TARGETARCH": arch, "REVISION": "abc", "OUT": str(tmp_path)}
    subprocess.run(["sh", "-ec", command.removesuffix(" /") + ' "$OUT"'], cwd=context, env=env, check=True, timeout=60)
    assert (tmp_path / "tenure").read_text() == f"{target} abc\n"


def test_the_sources_in_the_context_are_a_whole_crate(context):
    subprocess.run(["cargo", "metadata", "--no-deps", "--offline", "--locked", "--format-version=1"],
                   cwd=context, check=True, timeout=60, stdout=subprocess.DEVNULL)


def test_the_last_stage_is_the_binary_a_number_for_a_user_and_labels():
    last = (ROOT / "Dockerfile").read_text().split("\nFROM ")[-1]
    assert last.startswith("scratch\n")
    assert "COPY --from=bin /tenure /tenure\n" in last and last.count("COPY") == 1
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", last, re.M)
    assert "RUN" not in last
    for label in ("title", "description", "licenses", "source", "version", "revision"):
        assert f"org.opencontainers.image.{label}=" in last
