"""JSON schemas for kubeconform, made from the swagger.json inside the k8s.io/kubernetes Go modules."""

import json
import os
import subprocess
from pathlib import Path

# The newest four minor versions.
VERSIONS = ["1.37.2", "1.36.4", "1.35.8", "1.34.11"]
ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("TENURE_CACHE", ROOT / ".cache")).resolve()


def schemas(version):
    """The folder of one version's schemas, made once: `<kind>-<group>-<version>.json`."""
    folder = CACHE / "schemas" / version
    if not folder.exists():
        swagger = json.loads((_module(version) / "api/openapi-spec/swagger.json").read_text())
        partial = folder.with_suffix(".partial")
        partial.mkdir(parents=True, exist_ok=True)
        definitions = {name: _strict(name, d) for name, d in swagger["definitions"].items()}
        for name, definition in swagger["definitions"].items():
            for gvk in definition.get("x-kubernetes-group-version-kind", []):
                group = gvk["group"].split(".")[0]
                file = "-".join(p for p in (gvk["kind"].lower(), group, gvk["version"]) if p)
                used = _closure(name, definitions)
                schema = {"$ref": f"#/definitions/{name}", "definitions": used}
                (partial / f"{file}.json").write_text(json.dumps(schema))
        partial.rename(folder)
    return folder


def _module(version):
    out = subprocess.run(
        ["go", "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"],
        check=True, capture_output=True, text=True, cwd="/", env={**os.environ, "GOFLAGS": "-mod=mod"},
    )
    return Path(json.loads(out.stdout)["Dir"])


def _strict(name, definition):
    """No unknown fields; the two types that are string or number."""
    if definition.get("format") == "int-or-string" or name.endswith(".Quantity"):
        return {"type": ["string", "integer", "number"]}
    if "properties" in definition and "additionalProperties" not in definition:
        return {**definition, "additionalProperties": False}
    return definition


def _closure(name, definitions):
    """The definitions that one needs, itself among them."""
    used, todo = {}, [name]
    while todo:
        name = todo.pop()
        if name not in used:
            used[name] = definitions[name]
            todo += [ref.removeprefix("#/definitions/") for ref in _refs(definitions[name])]
    return used


def _refs(node):
    if isinstance(node, list):
        return [ref for child in node for ref in _refs(child)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
    return own + [ref for child in node.values() for ref in _refs(child)]
