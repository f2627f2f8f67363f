"""Comparing an operator with PyTorch's by values and gradients, within the precision of the dtype."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau

TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "bfloat16": 2e-2, "float16": 4e-3, "int64": 0, "uint8": 0}


def _as_array(t: Any) -> np.ndarray:
    t = t.detach()
    name = str(t.dtype).removeprefix("torch.")
    return (t.float() if name in ("bfloat16", "float16") else t).numpy()


def _tensors(library: Any, arrays: list[np.ndarray], dtype: str, channels_last: bool) -> list[Any]:
    made = []
    for a in arrays:
        t = library.tensor(a).to(getattr(library, dtype)) if a.dtype.kind == "f" else library.tensor(a)
        if channels_last and t.dim() == 4:
            t = t.contiguous(memory_format=library.channels_last)
        made.append(t.requires_grad_() if a.dtype.kind == "f" and dtype[0] in "fb" else t)
    return made


def _run(library: Any, call: Callable, arrays: list[np.ndarray], dtype: str, channels_last: bool) -> dict[str, Any]:
    tensors = _tensors(library, arrays, dtype, channels_last)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = call(library, library.nn.functional, *tensors)
    outputs = list(result) if isinstance(result, tuple) else [result]
    found: dict[str, Any] = {f"output {i}": _as_array(o) for i, o in enumerate(outputs)}
    found["strides"] = [tuple(o.stride()) for o in outputs]
    found["dtypes"] = [str(o.dtype) for o in outputs]
    node = outputs[0].grad_fn
    if node is not None:
        found["grad_fn"] = node.name()
        generator = np.random.default_rng(5)
        cotangent = library.tensor(generator.standard_normal(outputs[0].shape)).to(outputs[0].dtype)
        wanted = [t for t in tensors if t.requires_grad]
        for i, g in enumerate(library.autograd.grad(outputs[0], wanted, cotangent, allow_unused=True)):
            found[f"gradient {i}"] = None if g is None else _as_array(g)
    return found


@pytest.fixture
def matches() -> Callable:
    """matches(call, *arrays): call(torch, F, *tensors) gives the same outputs, strides, grad_fn and gradients as PyTorch."""
    torch = judge("torch")

    def check(
        call: Callable, *arrays: np.ndarray, dtype: str = "float32", channels_last: bool = False, ignore: tuple = ()
    ) -> None:
        try:
            theirs = _run(torch, call, list(arrays), dtype, channels_last)
        except NotImplementedError as problem:
            pytest.skip(f"PyTorch has no kernel to compare with: {problem}")
        ours = _run(flambeau, call, list(arrays), dtype, channels_last)
        assert set(ours) == set(theirs)
        bound = TOLERANCE[dtype]
        for name, expected in theirs.items():
            if name in ignore:
                continue
            if isinstance(expected, np.ndarray):
                np.testing.assert_allclose(ours[name], expected, rtol=bound, atol=bound, err_msg=name)
            else:
                assert ours[name] == expected, name

    return check


@pytest.fixture
def differentiable_twice() -> Callable:
    """differentiable_twice(call, *arrays): first and second derivatives agree with differences, in float64."""

    def check(call: Callable, *arrays: np.ndarray) -> None:
        inputs = tuple(
            flambeau.tensor(a, dtype=flambeau.float64, requires_grad=True)
            if a.dtype.kind == "f"
            else flambeau.tensor(a)
            for a in arrays
        )

        def function(*tensors: Any) -> Any:
            return call(flambeau, flambeau.nn.functional, *tensors)

        assert flambeau.autograd.gradcheck(function, inputs)
        assert flambeau.autograd.gradgradcheck(function, inputs)

    return check
