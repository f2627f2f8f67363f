"""Record PyTorch's answers to tests, with PyTorch and torchvision installed.

python -m tests.answers record tests/ops          run these tests, keep what PyTorch answers, then replay and keep what passes
python -m tests.answers show [tests/ops]          how many tests are recorded, and how large the files are
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from .store import FOLDER, Recorded

ROOT = Path(__file__).parents[2]


def record(paths: list[str]) -> int:
    for mode in ("record", "verify"):
        command = [
            sys.executable,
            "-m",
            "pytest",
            f"--answers={mode}",
            "-p",
            "no:xdist",
            "-p",
            "no:cacheprovider",
            "--tb=line",
            *paths,
        ]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        print(f"{mode}: pytest ended with {status}")
    return show(paths)


def show(paths: list[str]) -> int:
    total = size = 0
    for file in sorted(FOLDER.rglob("*.xz")):
        name = Path("tests") / file.relative_to(FOLDER).with_suffix(".py")
        if any(str(name).startswith(p) for p in paths or ["tests"]):
            recorded = Recorded(file)
            count = sum(not test.startswith("(") for test in recorded.rows)
            print(f"{count:6} tests {file.stat().st_size:9,} bytes  {name}")
            total, size = total + count, size + file.stat().st_size
    print(f"{total:6} tests {size:9,} bytes")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "show"])
    parser.add_argument("paths", nargs="*")
    given = parser.parse_args()
    return record(given.paths) if given.what == "record" else show(given.paths)


if __name__ == "__main__":
    raise SystemExit(main())
