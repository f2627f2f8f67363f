"""regression, time_sequence_prediction, reinforcement_learning, gcn and gat of pytorch/examples."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from . import data
from .harness import both, needs

pytest.importorskip("torch", reason="compares with the real PyTorch")


def test_regression(tmp_path):
    """Its training is chaotic: PyTorch itself takes 830 or 942 steps when one weight is moved by 1e-7. The first steps agree."""
    both("examples/regression", tmp_path, ["main.py"], stop=250).check(1e-4, steps=250)


def test_time_sequence_prediction(tmp_path):
    needs("matplotlib")
    options = ["train.py", "--steps", "1"]
    both("examples/time_sequence_prediction", tmp_path, options, data.sine_waves).check(1e-10, steps=20)


@pytest.mark.parametrize("program", ["reinforce.py", "actor_critic.py"])
def test_reinforcement_learning(tmp_path, program):
    """Actions are sampled, and the same ones, for some episodes: a rounding error that flips one ends the likeness."""
    needs("gymnasium")
    both("examples/reinforcement_learning", tmp_path, [program, "--log-interval", "1"], stop=8).check(1e-3, steps=8)


# What the program fetches its data with, fetching nothing.
REQUESTS = """
import contextlib, types

@contextlib.contextmanager
def get(url, stream):
    with open("cora.tgz", "rb") as file:
        yield types.SimpleNamespace(raw=file)
"""


def test_gcn(tmp_path):
    """It always downloads its data set; here from a file."""

    def prepare(place: Path) -> None:
        data.citations(place)
        with tarfile.open(place / "cora.tgz", "w:gz") as archive:
            archive.add(place / "cora", "cora")
        (place / "requests.py").write_text(REQUESTS)

    options = ["main.py", "--epochs", "5", "--val-every", "1", "--include-bias"]
    both("examples/gcn", tmp_path, options, prepare).check(1e-5, steps=5)


def test_gat(tmp_path):
    needs("requests")
    options = ["main.py", "--epochs", "3", "--val-every", "1", "--num-heads", "2", "--hidden-dim", "4"]
    both("examples/gat", tmp_path, options, data.citations).check(1e-5, steps=3)
