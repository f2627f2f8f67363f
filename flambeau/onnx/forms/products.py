"""Matrix products and linear algebra."""

from __future__ import annotations

from typing import Any

import flambeau

from ..builder import Builder, Value
from ..registry import aten, form
from .creation import filled
from .pointwise import add, broadcast, mul
from .reductions import vector_norm


def product_shape(a: Value, b: Value) -> Any:
    if a.shape is None or b.shape is None:
        return None
    x = (1, *a.shape) if len(a.shape) == 1 else a.shape
    y = (*b.shape, 1) if len(b.shape) == 1 else b.shape
    lead = broadcast(Value(shape=x[:-2]), Value(shape=y[:-2]))
    shape = [*(lead or ()), *([] if len(a.shape) == 1 else [x[-2]]), *([] if len(b.shape) == 1 else [y[-1]])]
    return shape


@form(aten.linear)
def linear(g: Builder, input: Value, weight: Value, bias: Any = None) -> Value:
    if input.rank == 2 and weight.rank == 2 and bias is not None:
        return g.op("Gemm", input, weight, bias, transB_i=1, alpha_f=1.0, beta_f=1.0).known(
            input.dtype, (input.shape[0], weight.shape[0])
        )
    turned = (
        g.op("Transpose", weight, perm_i=[1, 0]).known(weight.dtype, weight.shape[::-1]) if weight.rank == 2 else weight
    )
    made = g.op("MatMul", input, turned).known(input.dtype, product_shape(input, turned))
    if bias is None:
        return made
    return g.op("Add", *((bias, made) if g.older else (made, bias))).known(made.dtype, made.shape)


@form(aten.addmm)
def addmm(g: Builder, self: Any, mat1: Value, mat2: Value, beta: Any = 1, alpha: Any = 1) -> Value:
    if beta == 0:
        self = None  # what is not added may be nan
    if mat1.shape[1] == 0:  # the product is zero, which engines do not know
        zeros = filled(g, [g.size(mat1, 0), g.size(mat2, 1)], 0, mat1.dtype)
        return zeros if self is None else add(g, zeros, mul(g, self, beta))
    return g.op("Gemm", mat1, mat2, self, alpha_f=alpha, beta_f=beta).known(mat1.dtype, (mat1.shape[0], mat2.shape[1]))


@form(aten.outer)
def outer(g: Builder, self: Value, vec2: Value) -> Value:
    return mul(g, g.unsqueeze(self, [1]), g.unsqueeze(vec2, [0]))


@form(aten.cosine_similarity)
def cosine_similarity(g: Builder, x1: Value, x2: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    if not x1.rank and not x2.rank:
        x1, x2 = g.unsqueeze(x1, [0]), g.unsqueeze(x2, [0])
        dim = 0
    if x1.rank != x2.rank:
        rank = max(x1.rank, x2.rank)
        x1, x2 = (g.unsqueeze(x, list(range(rank - x.rank))) if x.rank < rank else x for x in (x1, x2))
    dots = g.reduce("ReduceSum", mul(g, x1, x2), [dim % max(x1.rank, x2.rank)], False)
    sizes = [vector_norm(g, x, 2, dim, False) for x in (x1, x2)]
    low = g.number(eps, x1)
    sizes = [g.op("Max", s, low).known(s.dtype, s.shape) for s in sizes]
    return g.op("Div", dots, g.op("Mul", *sizes)).known(x1.dtype, dots.shape)


@form(aten.cdist, aten._cdist_forward)
def cdist(g: Builder, x1: Value, x2: Value, p: float = 2, compute_mode: Any = None) -> Value:
    off = g.op("Sub", g.unsqueeze(x1, [x1.rank - 1]), g.unsqueeze(x2, [x2.rank - 2]))
    off.known(x1.dtype, [*x1.shape[:-1], x2.shape[-2], x1.shape[-1]])
    return vector_norm(g, off, p, -1, False)


@form(aten.bilinear)
def bilinear(g: Builder, input1: Value, input2: Value, weight: Value, bias: Any = None) -> Value:
    if g.opset < 12:
        raise NotImplementedError("bilinear needs opset 12 or later")
    made = g.op("Einsum", input1, weight, input2, equation_s="...i,oij,...j->...o").known(
        input1.dtype, [*input1.shape[:-1], weight.shape[0]]
    )
    return made if bias is None else g.op("Add", made, bias).known(made.dtype, made.shape)


@form(aten.trace)
def trace(g: Builder, self: Value) -> Value:
    from .shapes import diagonal  # noqa: PLC0415

    x = self if self.dtype.is_floating_point else g.cast(self, flambeau.int64)
    return g.reduce("ReduceSum", diagonal(g, x), [0], False)
