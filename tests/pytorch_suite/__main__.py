"""The command line, and the supervision of the process that runs the tests: should it die, the next one goes on behind the test that
killed it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .report import Results, print_report, read_results

ROOT = Path(__file__).parents[2]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.pytorch_suite", description="Run one of PyTorch's test files."
    )
    parser.add_argument("file", help="the test file, in a checkout of PyTorch")
    parser.add_argument("-k", dest="select", default="", metavar="EXPR", help='parts of names: "view and not cpu_bool"')
    parser.add_argument("--torch", action="store_true", help="with the real PyTorch: the baseline")
    parser.add_argument("--json", metavar="FILE", help="write all results there")
    parser.add_argument("--baseline", metavar="FILE", help="list only what passed there and fails here")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="list the N slowest tests")
    parser.add_argument("--limit", type=int, default=60, metavar="SECONDS", help="of one test (60)")
    parser.add_argument("--ranks", type=int, default=0, metavar="N", help="tests for N GPUs in N processes on the CPU")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the traceback of each failure")
    return parser.parse_args()


def run_worker(arguments: argparse.Namespace, log: Path) -> int:
    command = [sys.executable, "-X", "faulthandler", "-m", f"{__package__}.worker", arguments.file, str(log)]
    command += [arguments.select, str(arguments.limit), "torch" if arguments.torch else "flambeau"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    if arguments.ranks:
        environment["SUITE_RANKS"] = str(arguments.ranks)
    return subprocess.run(command, env=environment).returncode


def run_all(arguments: argparse.Namespace) -> Results:
    """Runs workers until every test has a result."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "results"
        log.touch()
        while (code := run_worker(arguments, log)) != 0:
            results = read_results(log)
            if results.running is None:
                sys.exit(f"the file could not be loaded (exit code {code})")
            reason = "Crash: the process was ended" if code < 0 else "TimeLimit: stuck in native code"
            died = {"test": results.running, "outcome": "failed", "error": f"{reason} (code {code})", "seconds": 0.0}
            with log.open("a") as file:
                file.write(json.dumps(died) + "\n")
        return read_results(log)


def main() -> None:
    arguments = parse_arguments()
    results = run_all(arguments)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"tests": results.tests, "notes": results.notes}, indent=1))
    baseline = json.loads(Path(arguments.baseline).read_text())["tests"] if arguments.baseline else None
    print_report(results, baseline, arguments.slowest, arguments.verbose)


if __name__ == "__main__":
    main()
