"""Calls of `torch.ops.aten` as graphs of other tools make them, with few arguments: values, dtypes, shapes and strides are PyTorch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from answers import judge, told

import flambeau

CALLS = Path(__file__).with_name("aten_calls.txt").read_text().splitlines()


def _names(torch: Any) -> dict[str, Any]:
    """What the calls are about: floats x, integers i, a mask b, an invertible matrix sq, complex numbers z."""
    x = torch.arange(12.0).view(3, 4) / 5 - 1
    i = torch.arange(12).view(3, 4) - 5
    sq = torch.arange(9.0).view(3, 3) + torch.eye(3) * 3
    return {
        "torch": torch, "t": torch.tensor, "f32": torch.float32, "x": x, "i": i, "b": x > 0, "sq": sq, "z": torch.complex(x, x.flip(0)),
    }  # fmt: skip


def _described(torch: Any, thing: Any) -> Any:
    if isinstance(thing, torch.Tensor):
        kept = thing.resolve_conj()
        numbers = kept.to(torch.complex128 if kept.is_complex() else torch.float64).flatten().tolist()
        return [str(thing.dtype), list(thing.shape), list(thing.stride()), numbers]
    if isinstance(thing, (list, tuple)):
        return [_described(torch, part) for part in thing]
    return repr(thing)


def _outcome(torch: Any, call: str) -> Any:
    try:
        return _described(torch, eval(f"torch.ops.aten.{call}", _names(torch)))
    except (RuntimeError, TypeError, ValueError, IndexError) as problem:
        return type(problem).__name__


def _assert_close(found: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected)
        for one, other in zip(found, expected):
            _assert_close(one, other)
    elif isinstance(expected, (float, complex)):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-5, nan_ok=True)
    else:
        assert found == expected


@pytest.mark.parametrize("call", CALLS)
def test_call(call: str) -> None:
    _assert_close(
        _outcome(flambeau, call),
        told(call, lambda: _outcome(judge("torch"), call)),
    )
