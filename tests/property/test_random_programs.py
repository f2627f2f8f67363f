"""Whole programs, in lockstep with PyTorch: random ones, and small ones that once behaved differently."""

from __future__ import annotations

import warnings

import pytest
from once_different import ONCE_DIFFERENT
from random_programs import Side, generate, run

import flambeau

torch = pytest.importorskip("torch", reason="the programs are compared with PyTorch")

QUICK = range(60)  # thousands more: python tests/property/random_programs.py FIRST LAST


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("about", ONCE_DIFFERENT)
def test_once_different(about):
    lines = [line.strip() for line in ONCE_DIFFERENT[about].strip().split("\n")]
    run(lines, Side(flambeau), Side(torch))


@pytest.mark.parametrize("seed", QUICK)
def test_random_program(seed):
    lines, difference = generate(seed, Side(flambeau), Side(torch))
    assert difference is None, "\n".join(lines) + f"\n  {difference}"


def test_a_wrong_library_is_noticed():
    """The comparison itself must be able to fail."""

    class Wrong:
        Tensor = flambeau.Tensor

        def __getattr__(self, name):
            return flambeau.sub if name == "add" else getattr(flambeau, name)

    with pytest.raises(AssertionError, match="value"):
        run(["a = torch.add(torch.ones(2), 1)"], Side(Wrong()), Side(torch))
