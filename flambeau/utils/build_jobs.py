"""Build commands, run if their inputs have changed since the last time: by ninja, if that is installed."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
from concurrent import futures
from pathlib import Path


def write_text(path: Path, text: str) -> str:
    """Write a file unless it already has this content, so that its modification time stays valid for the build."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return str(path)


class Jobs:
    """Commands that build one library in a folder."""

    def __init__(self, name: str, folder: Path, verbose: bool) -> None:
        self.name, self.folder, self.verbose = name, folder, verbose

    def make(self, ninja: str | None, jobs: list[tuple[str, list[str], list[str]]]) -> None:
        """Run (output, inputs, command) jobs, the last of which links the outputs of the others."""
        if ninja is not None:
            self._with_ninja(ninja, jobs)
            return
        *compiling, link = jobs
        objects, sources, commands = zip(*compiling)
        inputs = [[*read, *self._headers(made)] for made, read in zip(objects, sources)]
        with futures.ThreadPoolExecutor(int(os.environ.get("MAX_JOBS") or os.cpu_count() or 1)) as pool:
            list(pool.map(self._make, objects, inputs, commands))
        self._make(*link)

    def _with_ninja(self, ninja: str, jobs: list[tuple[str, list[str], list[str]]]) -> None:
        lines = []
        for i, (made, read, command) in enumerate(jobs):
            lines += [f"rule r{i}", f"  command = {shlex.join(command).replace('$', '$$')}"]
            if made.endswith(".o"):
                lines += [f"  depfile = {_escape_path(made)}.d", "  deps = gcc"]
            lines.append(f"build {_escape_path(made)}: r{i} {' '.join(map(_escape_path, read))}")
        write_text(self.folder / "build.ninja", "\n".join(lines) + "\n")
        jobs_at_once = os.environ.get("MAX_JOBS")
        self._run([ninja, "-C", str(self.folder), "-v", *(["-j", jobs_at_once] if jobs_at_once else [])])

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        said = done.stdout + done.stderr
        if self.verbose and said and "no work to do" not in said:
            print(said, flush=True)
        if done.returncode:
            raise RuntimeError(f"Error building extension '{self.name}': {said}")

    @staticmethod
    def _headers(made: str) -> list[str]:
        """Return the headers that the last compilation read."""
        try:
            text = Path(f"{made}.d").read_text()
        except OSError:
            return []
        return [p for p in text.replace("\\\n", " ").partition(":")[2].split() if not p.startswith("/usr/")]

    def _make(self, target: str, inputs: list[str], command: list[str]) -> None:
        stamp, mark = Path(f"{target}.stamp"), _digest(inputs, command)
        if os.path.exists(target) and stamp.exists() and stamp.read_text() == mark:
            return
        if self.verbose:
            print(shlex.join(command), flush=True)
        self._run(command)
        stamp.write_text(_digest([inputs[0], *self._headers(target)] if target.endswith(".o") else inputs, command))


def _escape_path(path: str) -> str:
    """Return a path in the notation of ninja's files."""
    return path.replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def _digest(inputs: list[str], command: list[str]) -> str:
    """Return a digest of what a command's result depends on: the contents of its input files, and its options."""
    total = hashlib.sha256(shlex.join(command).encode())
    for path in dict.fromkeys(os.path.normpath(p) for p in inputs):
        total.update(path.encode())
        total.update(Path(path).read_bytes() if os.path.exists(path) else b"")
    return total.hexdigest()
