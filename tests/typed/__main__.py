"""Check programs with mypy, in strict mode: of tests/typed/programs.py every line marked wrong is an error and no other line is; in the
tutorials and the examples there is no error."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from mypy import api

from .pages import ROOT, write

PROGRAMS = Path(__file__).parent / "programs.py"
OPTIONS = (
    "--config-file=",
    "--no-error-summary",
    "--strict",
    "--explicit-package-bases",
    "--follow-imports=silent",
    "--ignore-missing-imports",
)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MYPYPATH"] = f"{folder}:{ROOT}"
        told, problems, _ = api.run([str(PROGRAMS), *map(str, write(Path(folder))), *OPTIONS])
    expected = {i for i, line in enumerate(PROGRAMS.read_text().splitlines(), 1) if line.endswith("# wrong")}
    found = {int(m[1]): m[2] for m in re.finditer(r"typed/programs\.py:(\d+): error: (.*)", told)}
    for line in sorted(expected - found.keys()):
        print(f"programs.py:{line} is wrong, and mypy does not say so")
    for line in sorted(found.keys() - expected):
        print(f"programs.py:{line} is right, and mypy says: {found[line]}")
    # The library itself has settings of its own, with which mypy runs over all of it.
    own = ("flambeau/", str(PROGRAMS), str(PROGRAMS.relative_to(ROOT)))
    others = [line for line in told.splitlines() if ": error: " in line and not line.startswith(own)]
    print("".join(line + "\n" for line in others) + problems, end="")
    return bool(expected ^ found.keys() or others or problems)


if __name__ == "__main__":
    sys.exit(main())
