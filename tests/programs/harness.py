"""Running a program that nobody here wrote with PyTorch and with Flambeau, and comparing what they say.

The sources are not part of this repository. The directory that holds them is named by the environment variable FLAMBEAU_PROGRAMS;
it has the checkouts `examples` (github.com/pytorch/examples), `nanoGPT` and `minGPT` (github.com/karpathy),
`pytorch-tutorial` (github.com/yunjey), `pytorch-cifar` (github.com/kuangliu), and, if they are not
installed, in `site` the packages that some of them need: `pip install --target site matplotlib tqdm tiktoken requests gymnasium`.
"""

from __future__ import annotations

import importlib.machinery
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import flambeau

HERE = Path(__file__).parent
ROOT = str(Path(flambeau.__file__).parents[1])

# Times, process numbers and the like: what no two runs print alike.
_CLOCK = re.compile(
    r"ms/batch +[\d.]+|time:? +[\d.]+ ?(ms|s)?|iter_dt [\d.]+ms|mfu -?[\d.]+%|\d+(\.\d+)? ?(s|sec|seconds|ms)\b|^\d+\t|0x[0-9a-f]+",
    re.MULTILINE,
)
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+\.?\d*(?:e[-+]?\d+)?")


def sources(name: str) -> Path:
    """The checkout called `name`, or the test is skipped."""
    place = os.environ.get("FLAMBEAU_PROGRAMS")
    if not place:
        pytest.skip(
            "the programs' sources are elsewhere: set FLAMBEAU_PROGRAMS to a directory with examples, nanoGPT and minGPT"
        )
    directory = Path(place) / name
    if not directory.is_dir():
        pytest.skip(f"{directory} is not there")
    return directory


@dataclass
class Run:
    """What a run left behind."""

    output: str
    losses: list[float]
    directory: Path

    def numbers(self) -> list[float]:
        return [float(found) for found in _NUMBER.findall(_CLOCK.sub("", self.output))]

    def text(self) -> str:
        """The output without its numbers."""
        return re.sub(r"\s+", " ", _NUMBER.sub("#", _CLOCK.sub("", self.output)))


def run(
    library: str, directory: Path, arguments: str | Sequence[str], seed: int = 0, stop: int = 0, timeout: int = 300
) -> Run:
    """Run `program.py arguments...` in `directory` with "torch" or "flambeau", for `stop` backward passes if that is not 0."""
    if isinstance(arguments, str):
        arguments = shlex.split(arguments)
    losses = directory / "recorded-losses.txt"
    losses.unlink(missing_ok=True)
    path = [
        str(HERE / "shim") if library == "torch" else ROOT,
        os.path.join(os.environ.get("FLAMBEAU_PROGRAMS", ""), "site"),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }
    environment["TORCH_HOME"] = str(directory.parent / "torch-home")
    environment["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # time_sequence_prediction is older than the restriction
    launcher = [] if library == "torch" else ["-m", "flambeau"]
    command = [sys.executable, *launcher, str(HERE / "driver.py"), str(losses), str(seed), str(stop), *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{library}: {done.stdout[-1000:]}\n{done.stderr[-4000:]}"
    recorded = [float(line) for line in losses.read_text().split()] if losses.exists() else []
    return Run(done.stdout, recorded, directory)


def largest_difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Relative to the larger of the two, and to 1e-3 for numbers near zero."""
    return max((abs(a - b) / max(abs(a), abs(b), 1e-3) for a, b in zip(ours, theirs)), default=0.0)


@dataclass
class Comparison:
    ours: Run
    theirs: Run

    def check_losses(self, tolerance: float, steps: int) -> None:
        """The same losses, step by step."""
        assert len(self.ours.losses) == len(self.theirs.losses) == steps
        worst = largest_difference(self.ours.losses, self.theirs.losses)
        print(f"{steps} losses, largest relative difference {worst:.2e}")
        assert worst < tolerance

    def check(self, tolerance: float, steps: int, printed_tolerance: float | None = None) -> None:
        """The same losses, step by step, and the same words and numbers printed."""
        self.check_losses(tolerance, steps)
        assert self.ours.text() == self.theirs.text()
        printed = largest_difference(self.ours.numbers(), self.theirs.numbers())
        print(f"{len(self.ours.numbers())} printed numbers, largest relative difference {printed:.2e}")
        assert printed < (printed_tolerance or 10 * tolerance)


def both(
    source: str,
    copies: Path,
    arguments: str | Sequence[str],
    prepare: Callable[[Path], None] = lambda place: None,
    seed: int = 0,
    stop: int = 0,
) -> Comparison:
    """Run a program from two copies of the directory `source`, with the two libraries. `prepare(copy)` puts its data there."""
    directory = sources(source)
    runs = {}
    for library in ("torch", "flambeau"):
        place = copies / library / directory.name
        if not place.exists():
            shutil.copytree(directory, place, ignore=shutil.ignore_patterns("wikitext-2", "*.ipynb", ".git"))
            prepare(place)
        runs[library] = run(library, place, arguments, seed, stop)
    return Comparison(runs["flambeau"], runs["torch"])


def needs(*packages: str) -> None:
    """Skip the test if a package that the program itself imports is missing."""
    site = os.path.join(os.environ.get("FLAMBEAU_PROGRAMS", ""), "site")
    for package in packages:
        if importlib.machinery.PathFinder.find_spec(package, [site, *sys.path]) is None:
            pytest.skip(f"the program imports {package}: pip install {package}")
