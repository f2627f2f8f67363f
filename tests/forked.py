"""Python programs that each need a fresh process with the library: forks of one that has imported it, which takes half a second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = str(Path(__file__).parents[1])
# Reads a line with a program, its environment and two files for its output; answers with its exit status.
_SERVER = """
import json, os, sys, traceback
{preamble}
for line in sys.stdin:
    given = json.loads(line)
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.environ.clear()
    os.environ.update(given["environment"])
    for number, name in enumerate(given["files"], 1):
        os.dup2(os.open(name, os.O_WRONLY), number)
    status = 0
    try:
        exec(compile(given["program"], "<program>", "exec"), {{"__name__": "__main__", **{names}}})
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
"""


class Forked:
    """A process that has run a preamble, whose names programs find. `with Forked(preamble) as process: process.run(program)`."""

    def __init__(self, preamble: str) -> None:
        names = "{k: v for k, v in list(globals().items()) if not k.startswith('_')}"
        command = [sys.executable, "-c", _SERVER.format(preamble=preamble, names=names)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": ROOT}
        )

    def run(self, program: str, environment: Mapping[str, str] = os.environ) -> Any:
        """What a program wrote and how it ended: `returncode`, `stdout`, `stderr`."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
            given = {"program": program, "environment": dict(environment), "files": [out.name, err.name]}
            self.process.stdin.write(json.dumps(given) + "\n")
            self.process.stdin.flush()
            status = int(self.process.stdout.readline())
            return SimpleNamespace(returncode=status, stdout=out.read(), stderr=err.read())

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *problem: object) -> None:
        self.process.communicate()
