"""Tensors that are made, not computed: of zeros, of numbers in a row, at random."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau

from ...core.dtype import dtype as DType  # noqa: N812
from ..builder import Builder, Value
from ..registry import aten, form
from .pointwise import promoted


def filled(g: Builder, size: Any, value: Any, dtype: DType) -> Value:
    if (
        not isinstance(size, Value)
        and all(isinstance(n, int) for n in size)
        and not isinstance(value, Value)
        and math.prod(size) <= 1024
    ):
        return (
            g.constant(np.full(size, value).tolist() if size else value, dtype)
            if math.prod(size)
            else g.expand(g.constant(value, dtype), list(size))
        )
    if isinstance(value, Value):
        return g.expand(g.cast(value, dtype), size)
    shape = None if isinstance(size, Value) else [n if isinstance(n, int) else None for n in size]
    one = g.constant([value], dtype).constant
    return g.op("ConstantOfShape", g.ints(size), value_t=one).known(dtype, shape)


def _default(dtype: DType | None) -> DType:
    return dtype if dtype is not None else flambeau.get_default_dtype()


def _filling(name: str, value: Any) -> None:
    @form(getattr(aten, name), *([aten.empty] if name == "zeros" else []))
    def made(g: Builder, size: Any, dtype: DType | None = None) -> Value:
        return filled(g, size, value, _default(dtype))

    @form(getattr(aten, f"{name}_like"), *([aten.empty_like] if name == "zeros" else []))
    def like(g: Builder, self: Value, dtype: DType | None = None) -> Value:
        return full_like(g, self, value, dtype)

    @form(getattr(aten, f"new_{name}"), *([aten.new_empty, aten.new_empty_strided] if name == "zeros" else []))
    def new(g: Builder, self: Value, size: Any, dtype: DType | None = None) -> Value:
        return filled(g, size, value, self.dtype if dtype is None else dtype)


_filling("zeros", 0)
_filling("ones", 1)


def full(g: Builder, size: Any, fill_value: Any, dtype: DType | None = None) -> Value:
    if dtype is None:
        dtype = promoted(fill_value) if isinstance(fill_value, Value) else flambeau.full((), fill_value).dtype
    return filled(g, size, fill_value, dtype)


def full_like(g: Builder, self: Value, fill_value: Any = None, dtype: DType | None = None, value: Any = None) -> Value:
    given = fill_value if fill_value is not None else value
    dtype = self.dtype if dtype is None else dtype
    if self.shape is not None and all(isinstance(s, int) for s in self.shape):
        return filled(g, list(self.shape), given, dtype)
    return filled(g, g.shape_of(self), given, dtype).known(dtype, self.shape)


@form(aten.zero_)
def zero_(g: Builder, self: Value) -> Value:
    return full_like(g, self, 0)


@form(aten.tensor, aten.as_tensor)
def scalar_tensor(g: Builder, s: Any = None, data: Any = None, dtype: DType | None = None) -> Value:
    given = s if s is not None else data
    if isinstance(given, Value):
        return given if dtype is None else g.cast(given, dtype)
    if isinstance(given, (list, tuple)) and any(isinstance(v, Value) for v in given):
        return g.ints(given) if dtype is None else g.cast(g.ints(given), dtype)
    return g.constant(given, dtype if dtype is not None else flambeau.tensor(given).dtype)


@form(aten.arange)
def arange(g: Builder, end: Any, start: Any = 0, step: Any = 1, dtype: DType | None = None) -> Value:
    if dtype is None:
        floats = any(
            isinstance(n, float) or (isinstance(n, Value) and n.dtype.is_floating_point) for n in (start, end, step)
        )
        dtype = flambeau.get_default_dtype() if floats else flambeau.int64
    return g.range(start, end, step, dtype)


@form(aten.linspace)
def linspace(g: Builder, start: Any, end: Any, steps: Any, dtype: DType | None = None) -> Value:
    if isinstance(steps, Value):
        raise NotImplementedError("linspace with a number of steps that changes")
    if isinstance(start, Value) or isinstance(end, Value):
        dtype = _default(dtype)
        first, last = (g.number(n, dtype) for n in (start, end))
        places = g.constant((np.arange(steps) / max(steps - 1, 1)).tolist(), dtype)
        made = g.op("Add", first, g.op("Mul", places, g.op("Sub", last, first)))
        return made.known(dtype, (steps,))
    made = flambeau.linspace(start, end, steps, dtype=dtype)
    return g.constant(made.tolist(), made.dtype)


def _drawn(name: str, kind: str, **attributes: float) -> None:
    from ..dtypes import NUMBER  # noqa: PLC0415

    @form(getattr(aten, name))
    def made(g: Builder, size: Any, dtype: DType | None = None) -> Value:
        dtype = _default(dtype)
        if all(isinstance(n, int) for n in size):
            return g.op(kind, shape_i=list(size), dtype_i=NUMBER[dtype]).known(dtype, size)
        return g.op(f"{kind}Like", filled(g, size, 0, dtype), dtype_i=NUMBER[dtype]).known(dtype, [None] * len(size))

    @form(getattr(aten, f"{name}_like"))
    def like(g: Builder, self: Value, dtype: DType | None = None) -> Value:
        dtype = self.dtype if dtype is None else dtype
        return g.op(f"{kind}Like", self, dtype_i=NUMBER[dtype]).known(dtype, self.shape)


_drawn("rand", "RandomUniform")
_drawn("randn", "RandomNormal")


def normal(g: Builder, mean: Any, std: Any = 1.0, size: Any = None, dtype: DType | None = None) -> Value:
    like = next((v for v in (mean, std) if isinstance(v, Value)), None)
    base = filled(g, size, 0, _default(dtype)) if like is None else like
    drawn = g.op("RandomNormalLike", base).known(base.dtype, base.shape)
    scaled = g.op("Mul", drawn, g.number(std, drawn))
    return g.op("Add", scaled, g.number(mean, drawn)).known(base.dtype, base.shape)


@form(aten.normal_)
def normal_(g: Builder, self: Value, mean: float = 0, std: float = 1) -> Value:
    return normal(g, mean, full_like(g, self, std))


@form(aten.bernoulli_)
def bernoulli_(g: Builder, self: Value, p: Any = 0.5) -> Value:
    return g.cast(bernoulli(g, p if isinstance(p, Value) else full_like(g, self, p, flambeau.float32)), self.dtype)


def bernoulli(g: Builder, self: Value, p: float | None = None) -> Value:
    x = self if p is None else full_like(g, self, p)
    return g.op("Bernoulli", x).known(self.dtype, self.shape)


@form(aten.multinomial)
def multinomial(g: Builder, self: Value, num_samples: int, replacement: bool = False) -> Value:
    logs = g.op("Log", self if self.rank == 2 else g.unsqueeze(self, [0])).known(self.dtype, None)
    if not replacement and num_samples > 1:  # the largest after noise of Gumbel's kind
        noise = g.op("Neg", g.op("Log", g.op("Neg", g.op("Log", g.op("RandomUniformLike", logs, low_f=1e-30)))))
        _, made = g.op("TopK", g.op("Add", logs, noise), g.ints([num_samples]), axis_i=-1, outputs=2)
        made.known(flambeau.int64, [self.shape[0] if self.rank == 2 else 1, num_samples])
        return made if self.rank == 2 else g.squeeze(made, [0])
    made = g.op("Multinomial", logs, sample_size_i=num_samples, dtype_i=7).known(
        flambeau.int64, [self.shape[0] if self.rank == 2 else 1, num_samples]
    )
    return made if self.rank == 2 else g.squeeze(made, [0])


@form(aten.sum_to_size)
def sum_to_size(g: Builder, self: Value, size: Any) -> Value:
    extra = (self.rank or 0) - len(size)
    ones = [extra + i for i, n in enumerate(size) if n == 1 and self.shape[extra + i] != 1]
    if any(not isinstance(n, int) for n in size):
        raise NotImplementedError("sum_to_size to sizes that change")
    made = g.reduce("ReduceSum", self, [*range(extra), *ones], True) if extra or ones else self
    return g.reshape(made, list(size)) if extra else made
