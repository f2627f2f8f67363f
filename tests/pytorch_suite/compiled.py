"""`python -m tests.pytorch_suite.compiled FILE...`: PyTorch's tests of `torch.compile`, sorted by what failures mean (see `compiling`).

Each file runs four times: each call repeated until it is native, and once, compiled and not. A test that passes uncompiled and fails
compiled is a mistake of this library's compiler. One that fails both ways asks for what is inside PyTorch, or has nothing to do with
compiling."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

WAYS = {
    "repeated": ("8", ""),
    "repeated, not compiled": ("8", "1"),
    "once": ("0", ""),
    "once, not compiled": ("0", "1"),
}


def run(file: str, way: str, log: Path, select: str, limit: int) -> dict[str, dict]:
    if not log.exists():
        repeat, plain = WAYS[way]
        environment = {**os.environ, "SUITE_REPEAT": repeat, "SUITE_UNCOMPILED": plain}
        command = [sys.executable, "-m", __package__, file, "--json", str(log), "-k", select, "--limit", str(limit)]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL)
    return json.loads(log.read_text())["tests"] if log.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(
        description="PyTorch's tests of torch.compile: what is wrong, and what is PyTorch's inside."
    )
    parser.add_argument("files", nargs="+")
    parser.add_argument("-k", dest="select", default="")
    parser.add_argument("--limit", type=int, default=60, help="seconds of one test")
    parser.add_argument("--logs", type=Path, required=True, help="a folder for results; what is there is not run again")
    arguments = parser.parse_args()
    arguments.logs.mkdir(exist_ok=True, parents=True)
    for file in arguments.files:
        found = {}
        for way in WAYS:
            log = arguments.logs / f"{Path(file).stem}-{way.replace(', ', '-').replace(' ', '-')}.json"
            found[way] = run(file, way, log, arguments.select, arguments.limit)
        tell(Path(file).stem, found)


def tell(name: str, found: dict[str, dict[str, dict]]) -> None:
    """One row of the table, and what is wrong."""
    native = once = inner = skipped = 0
    wrong: list[str] = []

    def outcome(way: str, test: str) -> str:
        return found[way].get(test, {"outcome": "failed"})["outcome"]

    for test in found["once"]:
        if outcome("once", test) == "skipped":
            skipped += 1
        elif "passed" not in (outcome("once, not compiled", test), outcome("repeated, not compiled", test)):
            inner += 1
        elif any(
            outcome(w, test) == "failed" and outcome(f"{w}, not compiled", test) == "passed"
            for w in ("once", "repeated")
        ):
            way = (
                "once"
                if outcome("once", test) == "failed" and outcome("once, not compiled", test) == "passed"
                else "repeated"
            )
            wrong.append(f"  {test}, {way}: {found[way].get(test, {}).get('error', 'it did not run')}")
        elif outcome("repeated, not compiled", test) == "passed":
            native += 1
        else:
            once += 1
    print(f"| {name} | {native} | {once} | {len(wrong)} | {inner} | {skipped} |", flush=True)
    print("\n".join(wrong), flush=True)


if __name__ == "__main__":
    main()
