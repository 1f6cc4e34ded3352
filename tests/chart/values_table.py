"""The README's table of values, made from values.yaml: a key with a comment above it is one row.

python3 tests/chart/values_table.py --write   puts the table into the README anew
"""

import json
import re
import sys
from pathlib import Path

import yaml

CHART = Path(__file__).resolve().parents[2] / "charts" / "tenure"
BEGIN, END = "<!-- values: begin -->\n", "<!-- values: end -->\n"


def rows():
    """[(key, default, description)] in the file's order."""
    text = (CHART / "values.yaml").read_text()
    values = yaml.safe_load(text)
    found, path, comment = [], [], []
    for line in text.splitlines():
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if not stripped:
            comment = []  # a comment that stands alone speaks of no key
        elif stripped.startswith("# "):
            comment.append(stripped[2:])
        elif match := re.match(r"([A-Za-z]\w*):", stripped):
            path = path[: indent // 2] + [match[1]]
            if comment:
                default = values
                for key in path:
                    default = default[key]
                found.append((".".join(path), default, " ".join(comment)))
            comment = []
    return found


def table():
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for key, default, description in rows():
        lines.append(f"| `{key}` | `{json.dumps(default)}` | {description} |")
    return "\n".join(lines) + "\n"


def leaves(value, path=()):
    """Paths of everything that is no map."""
    if not isinstance(value, dict) or not value:
        return [".".join(path)]
    return [leaf for key, child in value.items() for leaf in leaves(child, (*path, key))]


if __name__ == "__main__":
    readme = CHART / "README.md"
    head, rest = readme.read_text().split(BEGIN)
    new = head + BEGIN + table() + END + rest.split(END)[1]
    if "--write" in sys.argv:
        readme.write_text(new)
    else:
        sys.stdout.write(table())
