"""Check tests/typed/programs.py with mypy: every line marked wrong is an error, and no other line is."""

from __future__ import annotations

import re
from pathlib import Path

from mypy import api

PROGRAMS = Path(__file__).parent / "programs.py"
OPTIONS = (
    "--config-file=",
    "--no-error-summary",
    "--check-untyped-defs",
    "--follow-imports=silent",
    "--ignore-missing-imports",
)


def main() -> int:
    expected = {i for i, line in enumerate(PROGRAMS.read_text().splitlines(), 1) if line.endswith("# wrong")}
    told, problems, _ = api.run([str(PROGRAMS), *OPTIONS])
    found = {int(m[1]): m[2] for m in re.finditer(r"programs\.py:(\d+): error: (.*)", told)}
    for line in sorted(expected - found.keys()):
        print(f"programs.py:{line} is wrong, and mypy does not say so")
    for line in sorted(found.keys() - expected):
        print(f"programs.py:{line} is right, and mypy says: {found[line]}")
    print(problems, end="")
    return bool(expected ^ found.keys() or problems)


if __name__ == "__main__":
    raise SystemExit(main())
