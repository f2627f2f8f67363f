"""Sobol' sequences: PyTorch's points."""

from __future__ import annotations

import pytest
from answers import judge

import flambeau
from flambeau.quasirandom import SobolEngine

torch = judge("torch")
pytest.importorskip("scipy", reason="it ships the direction numbers")


@pytest.mark.parametrize("dimension", [1, 2, 7, 1500])
@pytest.mark.parametrize("scramble", [False, True])
def test_points(dimension, scramble):
    seed = 11 if scramble else None
    mine, theirs = (lib(dimension, scramble, seed) for lib in (SobolEngine, torch.quasirandom.SobolEngine))
    assert repr(mine) == repr(theirs)
    assert mine.sobolstate.tolist() == theirs.sobolstate.tolist()
    for n in (1, 5, 2):
        assert mine.draw(n).tolist() == theirs.draw(n).tolist()
    mine.fast_forward(37), theirs.fast_forward(37)
    assert mine.draw(3, dtype=flambeau.float64).tolist() == theirs.draw(3, dtype=torch.float64).tolist()
    mine.reset(), theirs.reset()
    mine.fast_forward(4), theirs.fast_forward(4)
    assert mine.draw_base2(2).tolist() == theirs.draw_base2(2).tolist()
    assert mine.num_generated == theirs.num_generated == 8


def test_scrambling_follows_the_global_seed():
    points = []
    for lib, engine in ((flambeau, SobolEngine), (torch, torch.quasirandom.SobolEngine)):
        lib.manual_seed(3)
        points.append(engine(4, scramble=True).draw(6).tolist())
    assert points[0] == points[1]


def test_out_and_errors():
    out = flambeau.empty(0)
    assert SobolEngine(2).draw(3, out=out) is out and out.shape == (3, 2)
    for dimension in (0, 21202):
        with pytest.raises(ValueError, match="Supported range"):
            SobolEngine(dimension)
    engine = SobolEngine(2)
    engine.draw(3)
    with pytest.raises(ValueError, match="power of 2"):
        engine.draw_base2(2)
    with pytest.raises(RuntimeError, match="negative dimension"):
        engine.reset().draw(0)
