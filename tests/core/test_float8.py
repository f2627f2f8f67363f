"""The 8-bit floats: every code, conversions both ways, files, and what moves bytes."""

from __future__ import annotations

import numpy as np
import pytest
from answers import judge

import flambeau as torch
from flambeau.core import dtype as dt
from flambeau.core import float8

NAMES = [d.name for d in dt.FLOAT8_DTYPES]
each = pytest.mark.parametrize("name", NAMES)


def numbers(name):
    """Every half, every value of the type, the middles between them, and their neighbours."""
    values = float8.values(name)
    values = np.sort(values[np.isfinite(values)]).astype(np.float64)
    edge = values[-1] * np.array([1.03125, 1.0625, 1.125, 1.25])
    with np.errstate(over="ignore"):
        exact = np.concatenate([values, (values[1:] + values[:-1]) / 2, edge]).astype(np.float32)
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    near = [np.nextafter(exact, np.float32(way)) for way in (np.inf, -np.inf)]
    found = np.concatenate([exact, *near, halves, np.float32([np.inf, np.nan, 0.0])])
    return np.concatenate([found, -found])


def codes(tensor):
    return tensor.view(torch.uint8).tolist()


@each
def test_conversions_are_pytorchs(name):
    real = judge("torch")
    kind, theirs = getattr(torch, name), getattr(real, name)
    every = torch.arange(256, dtype=torch.uint8).view(kind)
    twin = real.arange(256, dtype=real.uint8).view(theirs)
    for target in ("float32", "float64", "float16", "bfloat16", "bool"):
        ours = every.to(getattr(torch, target)).double().numpy()
        assert np.array_equal(ours, twin.to(getattr(real, target)).double().numpy(), equal_nan=True)
    values = numbers(name)
    for source in ("float32", "float64", "float16", "bfloat16"):
        if source == "bfloat16":
            values = values[~np.isnan(values)]  # its NaN has a sign of its own in either library
        ours = torch.from_numpy(values).to(getattr(torch, source)).to(kind)
        other = real.from_numpy(values).to(getattr(real, source)).to(theirs)
        assert np.array_equal(ours.view(torch.uint8).numpy(), other.view(real.uint8).numpy())
    assert codes(torch.arange(-5, 300).to(kind)) == real.arange(-5, 300).to(theirs).view(real.uint8).tolist()


@each
def test_what_they_print_and_hold(name):
    real = judge("torch")
    for lib in (torch, real):
        kind = getattr(lib, name)
        x = lib.tensor([1.5, 2, 0.3, 100, 1e9], dtype=kind)
        texts = [
            repr(x), repr(x.tolist()), x[1].item(), repr(lib.zeros(2, 2, dtype=kind).view(lib.uint8)), repr(lib.ones(3, dtype=kind)),
            repr(lib.full((2,), 3.0, dtype=kind)), repr(lib.finfo(kind)), repr(kind), kind.itemsize, kind.is_floating_point,
            repr(lib.cat([x, x])), repr(lib.stack([x, x]).t()), repr(x[lib.tensor([2, 0])]), repr(x[::2].clone()), repr(x == x),
            repr(lib.where(lib.tensor([True, False, True, False, True]), x, x.flip(0) if lib is torch else x.view(lib.uint8).flip(0).view(kind))),
        ]  # fmt: skip
        if lib is torch:
            ours = texts
    assert ours == texts


@each
def test_moving_keeps_every_bit(name):
    kind = getattr(torch, name)
    every = torch.arange(256, dtype=torch.uint8).reshape(16, 16)
    moved = every.view(kind).t().contiguous()
    assert torch.equal(moved.view(torch.uint8), every.t())
    assert torch.equal(every.view(kind).clone().view(torch.uint8), every)
    assert torch.equal(torch.empty(16, 16, dtype=kind).copy_(every.view(kind)).view(torch.uint8), every)


@each
def test_files(name, tmp_path):
    kind = getattr(torch, name)
    every = torch.arange(256, dtype=torch.uint8).view(kind)
    torch.save({"x": every}, tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt")["x"].dtype is kind
    assert codes(torch.load(tmp_path / "x.pt")["x"]) == list(range(256))
    real = judge("torch")
    again = real.load(tmp_path / "x.pt")["x"]
    assert again.dtype is getattr(real, name) and again.view(real.uint8).tolist() == list(range(256))
    real.save({"x": again}, tmp_path / "y.pt")
    assert codes(torch.load(tmp_path / "y.pt")["x"]) == list(range(256))


@each
def test_bits_are_never_taken_for_numbers(name):
    kind = getattr(torch, name)
    x = torch.tensor([[1.0, 2.0], [4.0, 8.0]], dtype=kind)
    with pytest.raises(TypeError, match="unsupported ScalarType Float8"):
        x.numpy()
    with pytest.raises(RuntimeError, match="Promotion for Float8 Types is not supported"):
        x + torch.ones(2, 2)
    with pytest.raises(BufferError, match="DLPack"):
        x.__dlpack__()
    if name == "float8_e4m3fn":
        assert torch.mm(x, x).float().tolist() == [[9.0, 18.0], [36.0, 72.0]]
    for action in (lambda: torch.histc(x), lambda: torch.randn(3, dtype=kind)):
        with pytest.raises((TypeError, NotImplementedError, RuntimeError)):
            action()
    assert (x + x).float().tolist() == [[2.0, 4.0], [8.0, 16.0]]
    assert torch.arange(3, dtype=kind).float().tolist()[1:] == [1.0, 2.0]
