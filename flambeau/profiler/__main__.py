"""Profile a program: `python -m flambeau.profiler script.py [arguments of the script]`.

Prints where the time went, and writes `trace.json` (for chrome://tracing, Perfetto or TensorBoard) and `flame.svg`."""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import sys

from .profiler import profile


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m flambeau.profiler", description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=".", help="the folder for trace.json and flame.svg (default: this one)")
    parser.add_argument(
        "--sort", default="self_cpu_time_total", help="the column to sort by (default: self_cpu_time_total)"
    )
    parser.add_argument("--rows", type=int, default=30, help="how many rows to print (default: 30)")
    parser.add_argument("--shapes", action="store_true", help="tell calls with different shapes apart")
    parser.add_argument("--memory", action="store_true", help="also what is allocated; writes memory.svg")
    parser.add_argument("--stack", action="store_true", help="write the lines of code that called into the trace")
    parser.add_argument("script", help="the program")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    return parser.parse_args()


def main() -> None:
    given = _arguments()
    os.makedirs(given.out, exist_ok=True)
    sys.argv = [given.script, *given.args]
    sys.path.insert(0, os.path.dirname(os.path.abspath(given.script)))
    recording = profile(
        record_shapes=given.shapes or given.memory,
        profile_memory=given.memory,
        with_stack=given.stack or given.memory,
        with_modules=True,
    )
    with recording, contextlib.suppress(SystemExit):
        runpy.run_path(given.script, run_name="__main__")
    print(recording.key_averages(group_by_input_shape=given.shapes).table(sort_by=given.sort, row_limit=given.rows))
    files = [os.path.join(given.out, name) for name in ("trace.json", "flame.svg")]
    recording.export_chrome_trace(files[0])
    recording.export_flame_graph(files[1])
    if given.memory:
        files.append(os.path.join(given.out, "memory.svg"))
        recording._memory_profile().save(files[-1], "cpu")
    print("wrote " + ", ".join(files))


if __name__ == "__main__":
    main()
