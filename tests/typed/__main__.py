"""Check programs with mypy, in strict mode: of tests/typed/programs.py, and of a program that asks about every name of the reference,
every line marked wrong is an error and no other line is; in the tutorials and the examples there is no error."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from mypy import api

from .names import write_names
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
        asked = (PROGRAMS, write_names(Path(folder)))
        lines = {(p.name, i): line for p in asked for i, line in enumerate(p.read_text().splitlines(), 1)}
        expected, constructors = (
            {k for k, v in lines.items() if v.endswith(end)} for end in ("# wrong", "# constructor")
        )
        told, problems, _ = api.run([str(PROGRAMS), *map(str, write(Path(folder))), *OPTIONS])  # names among them
    known = re.compile(r"(?:^|/)(programs\.py|names\.py):(\d+): (?:error: (.*)|note: Revealed type is \"(Any)\")", re.M)
    found = {(m[1], int(m[2])): m[3] or m[4] for m in known.finditer(told)}
    found = {place: said for place, said in found.items() if said != "Any" or place not in constructors}
    for name, line in sorted(expected - found.keys()):
        print(f"{name}:{line} is wrong, and mypy does not say so")
    for name, line in sorted(found.keys() - expected):
        print(f"{name}:{line} is right, and mypy says: {found[name, line]}")
    # The library itself has settings of its own, with which mypy runs over all of it.
    others = [
        e for e in told.splitlines() if ": error: " in e and not e.startswith("flambeau/") and not known.search(e)
    ]
    print("".join(line + "\n" for line in others) + problems, end="")
    return bool(expected ^ found.keys() or others or problems)


if __name__ == "__main__":
    sys.exit(main())
