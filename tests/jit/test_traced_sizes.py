"""Arithmetic with sizes in a trace holds for other sizes than the example's, as in PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from answers import told

import flambeau

from .oracle import quiet, real_torch

EXPRESSIONS = [
    "x.sum() / (x.shape[0] / 2.0)", "x.sum() * x.shape[0] ** 0.5", "x.sum() * (x.shape[0] * 0.5)", "x.sum() * x.shape[0] ** 2",
    "x.sum() * 2 ** x.shape[0]", "x.sum() * -x.shape[0]", "x.sum() * abs(x.shape[0] - 7)", "x.sum() * (x.shape[0] // 2.0)",
    "x.sum() * (x.shape[0] % 3 + x.shape[1])", "x.sum() * (x.shape[0] / 2 - x.shape[1] / 4)", "x.view(x.shape[0] ** 2 // x.shape[0], -1)",
    "torch.full((x.shape[0],), x.shape[1] / 2)", "torch.full((x.shape[0],), x.shape[1])", "torch.zeros_like(x).fill_(x.shape[0])",
    "torch.tensor(x.shape[0], dtype=torch.float32) * 2", "torch.tensor(x.shape[0] / 2) * 2", "torch.as_tensor(x.shape[0]) * 2",
    "x.new_tensor(x.shape[0]) * 2", "torch.scalar_tensor(x.shape[0]) * 2", "torch.scalar_tensor(x.shape[0], dtype=torch.int32)",
    "x.shape[0]", "x.shape", "(x, x.shape[0])", "[x.numel(), x.shape[0] * 2, x.size(1) // 2]", "{'a': x, 'b': x.shape[0]}",
    "(x, (x.shape[0] / 2, (x.shape[1],)))",
]  # fmt: skip


def _traced(library: Any, expression: str) -> Any:
    function = eval(f"lambda x: ({expression})", {"torch": library, "__name__": __name__})
    return quiet(library.jit.trace, function, library.ones(2, 3), strict=False)


def _described(thing: Any) -> Any:
    if isinstance(thing, dict):
        return {key: _described(value) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [type(thing).__name__, *map(_described, thing)]
    return [str(thing.dtype), thing.tolist()]


def _outcome(library: Any, expression: str) -> Any:
    return _described(_traced(library, expression)(library.ones(5, 4)))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_other_sizes_than_the_examples(expression: str) -> None:
    assert _outcome(flambeau, expression) == told(expression, lambda: _outcome(real_torch(), expression))


@pytest.mark.parametrize("expression", ["x, 3", "x, 'a'", "{'a': x, 'b': (x.shape[0],)}", "x, len(x)"])
def test_what_cannot_be_returned(expression: str) -> None:
    with pytest.raises(RuntimeError, match="traced functions"):
        _traced(flambeau, expression)


@pytest.mark.parametrize(
    ("expression", "kind"),
    [("x * float(x.shape[0])", "float"), ("x * int(x.shape[0] / 2)", "integer"), ("x * (1 if x.shape[0] > 3 else 2)", "boolean")],
)  # fmt: skip
def test_sizes_that_become_constants_are_named(expression: str, kind: str) -> None:
    function = eval(f"lambda x: ({expression})")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        flambeau.jit.trace(function, flambeau.ones(2, 3))
    assert any(f"Converting a tensor to a Python {kind} might" in str(w.message) for w in caught)


class Named(flambeau.nn.Module):
    def __init__(this) -> None:
        super().__init__()
        this.numbers = [1, 2]

    def forward(me, x: flambeau.Tensor, me_: int) -> flambeau.Tensor:
        return x * me.numbers[0] + me_


def test_the_first_argument_keeps_its_name(tmp_path: Any) -> None:
    scripted = flambeau.jit.script(Named())
    assert scripted.code.startswith(
        "def forward(me,\n    x: Tensor,\n    me_: int) -> Tensor:\n  numbers = me.numbers\n"
    )
    scripted.save(tmp_path / "named.pt")
    loaded = flambeau.jit.load(tmp_path / "named.pt")
    assert loaded.code == scripted.code and loaded(flambeau.ones(2), 3).tolist() == [4.0, 4.0]


def test_scalar_tensors_have_the_default_dtype_in_aten_and_in_scripts() -> None:
    @flambeau.jit.script
    def program(n: int) -> flambeau.Tensor:
        return flambeau.scalar_tensor(n)

    assert program(3).dtype is flambeau.ops.aten.scalar_tensor(3).dtype is flambeau.float32
