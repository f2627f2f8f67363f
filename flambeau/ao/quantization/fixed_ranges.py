"""Functions, methods and layers whose results have a known range, so that no observer is needed."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ... import nn

ZERO_TO_ONE: tuple = (
    nn.Hardsigmoid, nn.functional.hardsigmoid, "hardsigmoid", "hardsigmoid_", nn.Sigmoid, torch.sigmoid, "sigmoid", "sigmoid_",
    nn.Softmax,
)  # fmt: skip
MINUS_ONE_TO_ONE: tuple = (nn.Tanh, torch.tanh, "tanh", "tanh_")
_ALL = (*ZERO_TO_ONE, *MINUS_ONE_TO_ONE)

METHODS: tuple[Any, ...] = tuple(form for form in _ALL if isinstance(form, str))
LAYERS = tuple(form for form in _ALL if isinstance(form, type))
FUNCTIONS: tuple[Any, ...] = (*(form for form in _ALL if form not in (*METHODS, *LAYERS)), nn.functional.sigmoid)


def by_range(zero_to_one: Any, minus_one_to_one: Any) -> dict[Any, Any]:
    """Map each of these operators to the value given for its range."""
    return {**dict.fromkeys(ZERO_TO_ONE, zero_to_one), **dict.fromkeys(MINUS_ONE_TO_ONE, minus_one_to_one)}
