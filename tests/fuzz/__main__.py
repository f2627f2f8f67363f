"""Look for calls that Flambeau answers otherwise than PyTorch, and print the smallest ones as programs.

python -m tests.fuzz windows --seconds 60 --seed 3      random programs of a family
python -m tests.fuzz all --seconds 20                   each family in turn
python -m tests.fuzz windows --number 17 --seed 3       that one program again
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from importlib.util import find_spec

from .execution import program
from .families import FAMILIES
from .judging import compared
from .search import Search


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("family", choices=[*FAMILIES, "all"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, help="only this program of the seed, as it was made")
    parser.add_argument(
        "--brief", action="store_true", help="print the lines of programs without what stands before them"
    )
    parser.add_argument(
        "--kinds", default="", help="only kinds of difference that this pattern matches: 'value|SIG' for the worst"
    )
    given = parser.parse_args()
    if find_spec("torch") is None:
        sys.exit("PyTorch is not installed: there is nothing to compare with")
    os.environ["OMP_NUM_THREADS"] = "1"  # before the libraries start threads, which no forked process has
    theirs, ours = import_module("torch"), import_module("flambeau")
    theirs.set_num_threads(1)
    total = 0
    for family in FAMILIES if given.family == "all" else [given.family]:
        search = Search(family, given.seed, ours, theirs, given.seconds, kinds=given.kinds)
        if given.number is not None:
            lines = search.lines(given.number)
            difference = compared(lines, ours, theirs, FAMILIES[family].exact)
            print(f"{program(lines)}\n{difference.text if difference else 'no difference'}")
            return difference is not None
        for found in search:
            total += 1
            print(f"--- {family}, seed {given.seed}, number {found.number}: {found.difference.kind}")
            print("\n".join(found.lines) if given.brief else program(found.lines))
            print("# " + found.difference.text.replace("\n", "\n# "), flush=True)
        again = ", ".join(f"{count} of {sign}" for sign, count in search.seen.most_common() if count > 1)
        print(
            f"{family}: {search.ran} programs, {len(search.seen)} kinds of difference ({again}), {sum(search.known.values())} known"
        )
    return total > 0


if __name__ == "__main__":
    raise SystemExit(main())
