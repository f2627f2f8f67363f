"""Batch norms that evaluate: a factor and an addend for each channel, and a formula over all elements."""

from __future__ import annotations

from typing import Any

from ...backends import compiled
from ...backends.cpu import jit
from ...core.dtype import float32, float64
from ...core.tensor import contiguous_strides
from ...expr.functions import rsqrt
from ...expr.node import Expr, arg, cast
from ..record.steps import Buffer, Graph, Launch, Ref
from .loops import Loop, emitted

_NAMES = ("apply_planes", "apply_columns")


def spread_norms(graph: Graph, results: set[int]) -> None:
    """Make a loop over a formula of each batch norm by given statistics, so that it can join with the loops around it. One that
    follows a convolution by Winograd's algorithm is left to that."""
    launches = [s for s in graph.steps if isinstance(s, Launch)]
    made = {r.buffer for s in launches if s.other is not None for r in s.writes()}
    changed = {r.buffer for s in graph.steps for r in (s.writes() if isinstance(s, Launch) else s.refs())}
    first: list[Any] = []  # what makes factors of numbers that nobody changes, out of the way of other loops
    steps: list[Any] = []
    for step in graph.steps:
        has = None if not isinstance(step, Launch) else operands_of(graph, results, step)
        if has is None or has["x"].buffer in made:
            steps.append(step)
            continue
        loop, scale, shift = by_channel(graph, step, has, None)
        (steps if any(r.buffer in changed for r in loop.reads()) else first).append(loop)
        steps.append(_over_elements(step, has, scale, shift))
    graph.steps = first + steps


def operands_of(graph: Graph, results: set[int], norm: Launch) -> dict[str, Any] | None:
    """Of a batch norm by given float32 statistics, its arguments by name; None for other steps, and where somebody wants to know
    what it was divided by."""
    known = jit.facts.get(norm.address)
    if known is None or known.name not in _NAMES:
        return None
    has = dict(zip(known.parameters, norm.arguments))
    kept = {has[name].buffer for name in ("rstd", "factors") if name in has}
    used = any(r.buffer in kept for s in graph.steps if s is not norm for r in s.refs())
    fixed = [graph.buffers[has[n].buffer] for n in ("mean", "var", "weight", "bias") if has.get(n) is not None]
    plain = all(b.source == "state" and b.dtype is float32 for b in fixed)
    size, out = 4 * has["channels"] * has.get("space", 1) * has.get("batch", has.get("rows", 1)), has["out"]
    wide = size <= graph.buffers[out.buffer].size - out.offset < 2 * size  # elements of four bytes
    return has if plain and wide and not used and not kept & results else None


def by_channel(graph: Graph, norm: Launch, has: dict[str, Any], bias: Ref | None) -> tuple[Launch, Ref, Ref]:
    """The loop over channels that makes the factors and addends of a batch norm whose input has yet to get a bias, and where they are:
    scale = weight / sqrt(var + eps), shift = (bias of the input - mean) * scale + bias."""
    scale, shift = (new_buffer(graph, size * has["channels"]) for size in (12, 4))
    reads = [(has["mean"], "c"), (has["var"], "c"), (has["eps"], "d")]

    def further(place: Ref) -> Expr:
        reads.append((place, "c"))
        return arg(len(reads) - 1)

    factor = rsqrt(arg(1) + cast(arg(2), float32))
    if has.get("weight") is not None:
        factor = factor * further(has["weight"])
    moved = (-arg(0) if bias is None else further(bias) - arg(0)) * factor
    if has.get("bias") is not None:
        moved = moved + further(has["bias"])
    kinds = "cc" + "".join(kind for _, kind in reads)
    dtypes = tuple(float64 if kind == "d" else float32 for _, kind in reads)
    kernel = compiled.map_kernel((factor, moved), dtypes, (float32, float32), kinds, 1, brief=True)
    address = jit.address_of(kernel)
    arguments = [has["channels"], scale, shift, *(place for place, _ in reads)]
    return Launch(f"{norm.name} by channels", address, jit.signatures[address], arguments), scale, shift


def spare(scale: Ref, has: dict[str, Any]) -> Ref:
    """Room behind the factors for those that a norm makes itself, where it is computed once more."""
    return Ref(scale.buffer, 4 * has["channels"])


def _over_elements(norm: Launch, has: dict[str, Any], scale: Ref, shift: Ref) -> Launch:
    """The loop over elements: x * scale + shift."""
    sizes: tuple[int, ...]
    walked: tuple[int, ...]
    if "space" in has:
        sizes, walked = (has["batch"], has["channels"], has["space"]), (0, 1, 0)
    else:
        sizes, walked = (has["rows"], has["channels"]), (0, 1)
    dense = contiguous_strides(sizes)
    reads = [((has["x"], dense), float32), ((scale, walked), float32), ((shift, walked), float32)]
    out = (has["out"], dense)
    loop = Loop(sizes, [norm.name], reads, {out: (arg(0) * arg(1) + arg(2), float32)}, 0, norm.weight)
    return emitted(loop, [out])


def new_buffer(graph: Graph, size: int, source: str = "new") -> Ref:
    """Memory of the function's own, or the memory that plans of oneDNN share, which holds nothing between two steps."""
    graph.buffers.append(Buffer(len(graph.buffers), 0, size, source))
    return Ref(graph.buffers[-1].index, 0)


__all__ = ["by_channel", "new_buffer", "operands_of", "spare", "spread_norms"]
