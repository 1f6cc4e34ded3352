"""Small images made by hand, as docker archives: no engine, no registry."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
APP = "tenure.local/e2e-app:1"
PAUSE = "tenure.local/pause:1"


def app_images(cache):
    """Two archives: the guarded app of the tests (with busybox beside it), and the sandbox."""
    folder = Path(cache) / "images"
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder / "e2e-app"
    subprocess.run(["go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "."], cwd=HERE / "app", check=True,
                   env={**os.environ, "CGO_ENABLED": "0"})
    busybox = shutil.which("busybox")
    links = {f"bin/{tool}": "/bin/busybox" for tool in ("sh", "wget", "cat", "sleep", "ls", "touch", "kill")}
    app = {"app": binary, "bin/busybox": Path(busybox)}
    return (_archive(folder / "e2e-app.tar", APP, app, links, ["/app"]),
            _archive(folder / "e2e-pause.tar", PAUSE, {"app": binary}, {}, ["/app", "pause"]))


def _archive(path, name, files, links, entrypoint):
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for target, source in files.items():
            info = tarfile.TarInfo(target)
            info.size, info.mode = source.stat().st_size, 0o755
            with source.open("rb") as content:
                tar.addfile(info, content)
        for target, to in links.items():
            info = tarfile.TarInfo(target)
            info.type, info.linkname = tarfile.SYMTYPE, to
            tar.addfile(info)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps({
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine], "os": "linux",
        "config": {"Entrypoint": entrypoint, "User": "65534:65534", "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(path, "w") as tar:
        for target, content in (("layer.tar", layer.getvalue()), ("config.json", config), ("manifest.json", manifest)):
            info = tarfile.TarInfo(target)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


if __name__ == "__main__":
    print(*app_images(sys.argv[1]), sep="\n")
