"""Operators of one's own, declared by a formula: their dtypes are those that PyTorch's operators give step by step."""

from __future__ import annotations

import pytest
from answers import judge

import flambeau

torch = judge("torch")


@flambeau.ops.pointwise
def swish(x, beta):
    return x * sigmoid(beta * x)  # noqa: F821  the formula's vocabulary needs no import


FORMULAS = [
    "x * sigmoid(b * x)", "x * 0.5 + b", "x + b", "x / b", "x > b", "exp(x) > b", "where(x > 1.5, x, b)", "x // 2 + b",
    "x ** 2 + b", "sqrt(x) * b", "x + 1 + b", "x * 1j + b", "(x < b) | isnan(x)", "maximum(x, b) * 1.0", "(x + b) / 1", "(x + b) * -1.0",
]  # fmt: skip
DTYPES = ["int32", "int64", "uint8", "float32", "float16", "float64"]


def values(library, dtype, number):
    x = library.tensor([0, 1, 2, 3]).to(getattr(library, dtype))
    return x, library.tensor([1, 2, 1, 2], dtype=library.int16) if number is None else number


@pytest.mark.parametrize("default", ["float32", "float64"])
@pytest.mark.parametrize("formula", FORMULAS)
def test_dtypes_are_pytorchs(formula, default):
    names: dict = {}
    exec(f"def f(x, b):\n    return {formula}", names)
    ours = flambeau.ops.pointwise(names["f"])
    words = {word: getattr(torch, word) for word in ("sigmoid", "exp", "where", "sqrt", "isnan")}
    words["maximum"] = lambda a, b: torch.maximum(a, torch.as_tensor(b))
    for library in (flambeau, torch):
        library.set_default_dtype(getattr(library, default))
    try:
        for dtype in DTYPES:
            for number in (2, 2.0, None):
                if (formula == "x * 1j + b" and dtype == "float16") or (number == 2.0 and "maximum" in formula):
                    continue  # PyTorch's complex32; a number becomes a tensor there
                got = ours(*values(flambeau, dtype, number))
                x, b = values(torch, dtype, number)
                expected = eval(formula, {**words, "x": x, "b": b})
                where = f"{formula}, {dtype}, {number}"
                assert str(got.dtype).rpartition(".")[2] == str(expected.dtype).rpartition(".")[2], where
                assert got.tolist() == pytest.approx(expected.tolist(), rel=2e-3), where
    finally:
        for library in (flambeau, torch):
            library.set_default_dtype(library.float32)


def test_parameters_with_a_default_count_too():
    @flambeau.ops.pointwise
    def scaled(x, by=0.5):
        return x * by

    assert scaled(flambeau.tensor([1, 2])).tolist() == [0.5, 1.0]
    assert scaled(flambeau.tensor([1, 2]), 3).dtype is flambeau.int64


def test_in_place_it_must_fit():
    x = flambeau.ones(3, dtype=flambeau.int32)
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Int"):
        swish(x, 2, out=x)
    assert swish(x, 2).tolist() == pytest.approx([0.880797] * 3)
