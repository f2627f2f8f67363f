"""Run a program twice, with Python's profiler and with the autograd profiler, and sum up both.

python -m flambeau.utils.bottleneck /path/to/script.py [arguments]"""

from __future__ import annotations

import argparse
import cProfile
import io
import os
import pstats
import sys
from typing import Any

# By their full names: `python -m torch.utils.bottleneck` runs this file as a part of another package.
from flambeau.profiler.session import profile
from flambeau.profiler.settings import ProfilerActivity, supported_activities
from flambeau.utils.collect_env import get_pretty_env_info

_RULE = "-" * 80
_INTRODUCTION = """\
`bottleneck` is a tool that can be used as an initial step for debugging
bottlenecks in your program.

It summarizes runs of your script with the Python profiler and PyTorch's
autograd profiler. Because your script will be profiled, please ensure that it
exits in a finite amount of time.

For more complicated uses of the profilers, please see
https://docs.python.org/3/library/profile.html and
https://pytorch.org/docs/main/autograd.html#profiler for more information."""


def headed(title: str, text: str) -> str:
    """Return a part of the report under a heading."""
    return f"{_RULE}\n  {title}\n{_RULE}\n{text}"


def environment() -> str:
    """Return a description of the environment."""
    return headed("Environment Summary", get_pretty_env_info())


def run_cprofile(code: Any, space: dict[str, Any]) -> str:
    """Return the report of Python's profiler."""
    print("Running your script with cProfile")
    profiler = cProfile.Profile()
    profiler.enable()
    exec(code, space, None)  # noqa: S102 - the user's program
    profiler.disable()
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(15)
    return headed("cProfile output", text.getvalue().rstrip())


def run_autograd(code: Any, space: dict[str, Any]) -> list[str]:
    """Return the report of the autograd profiler: on the host, and with the GPU's times if there is one."""
    print("Running your script with the autograd profiler...")
    parts = []
    for device in (None, "cuda") if ProfilerActivity.CUDA in supported_activities() else (None,):
        found = profile(use_device=device)
        with found:
            exec(code, dict(space), None)  # noqa: S102 - the user's program
        column, mode = ("cpu_time_total", "CPU") if device is None else ("device_time_total", "CUDA")
        events = found.function_events
        shown = events.table(sort_by=column, row_limit=15) if events else "No operator was called.\n"
        parts.append(
            headed(f"autograd profiler output ({mode} mode)", f"        top 15 events sorted by {column}\n\n{shown}")
        )
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=_INTRODUCTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog="python -m flambeau.utils.bottleneck",
    )
    parser.add_argument("scriptfile", help="path to the script to be run, followed by its arguments")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="command-line arguments to be passed to the script")
    given = parser.parse_args()
    sys.argv = [given.scriptfile, *given.args]
    sys.path.insert(0, os.path.dirname(os.path.abspath(given.scriptfile)))
    with open(given.scriptfile) as file:
        code = compile(file.read(), given.scriptfile, "exec")
    space = {"__file__": given.scriptfile, "__name__": "__main__", "__package__": None, "__cached__": None}
    print(_INTRODUCTION)
    print("Running environment analysis...")
    parts = [environment()]
    parts.append(run_cprofile(code, dict(space)))
    parts += run_autograd(code, dict(space))
    print("\n\n".join(parts))


if __name__ == "__main__":
    main()
