"""Geometry of operands in memory: fewest dimensions, best order, and the kind of each operand's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Strides = tuple[int, ...]

# A kept dimension shorter than this is a poor inner loop: better to jump through memory along the reduced one.
_SHORT_ROW = 8


def plan(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[int, tuple[int, ...], tuple[Strides, ...], str]:
    """Return (rank, sizes, strides per operand, kinds) of an elementwise loop nest over `shape`.

    Dimensions of size 1 go, the rest are ordered so that the innermost has the smallest strides (the first operands
    count most), and neighbours that every operand steps through evenly become one. Rank is at least 1. `kinds` has one
    character per operand: "c" inner stride 1, "b" inner stride 0, "s" any other.
    """
    if 0 in shape:
        return 1, (0,), tuple((1,) for _ in strides), "c" * len(strides)
    dims = [d for d, size in enumerate(shape) if size != 1]
    if not dims:
        return 1, (1,), tuple((1,) for _ in strides), "c" * len(strides)
    sizes, merged = _merge(_order(dims, strides), shape, strides)
    if len(sizes) > 2:
        _bring_transposed_inside(sizes, merged)
    return len(sizes), tuple(sizes), tuple(tuple(s) for s in merged), kinds_of([s[-1] for s in merged])


def kinds_of(inner_strides: Sequence[int]) -> str:
    return "".join("c" if s == 1 else "b" if s == 0 else "s" for s in inner_strides)


def _order(dims: list[int], strides: Sequence[Sequence[int]]) -> list[int]:
    """Return the dimensions, outermost first. Broadcast dimensions (stride 0) of one operand are placed by the next operand."""

    def outside(a: int, b: int) -> bool:
        for s in strides:
            x, y = abs(s[a]), abs(s[b])
            if x and y and x != y:
                return x > y
        return False

    order: list[int] = []
    for d in dims:  # insertion sort: the comparison is not transitive in every case, and ranks are small
        position = len(order)
        while position and outside(d, order[position - 1]):
            position -= 1
        order.insert(position, d)
    return order


def _merge(
    order: list[int], shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Return sizes, and strides per operand, of the dimensions in `order` with evenly spaced neighbours merged."""
    if not order:
        return [], [[] for _ in strides]
    sizes = [shape[order[0]]]
    merged = [[s[order[0]]] for s in strides]
    for d in order[1:]:
        size = shape[d]
        if all(m[-1] == s[d] * size for m, s in zip(merged, strides, strict=True)):
            sizes[-1] *= size
            for m, s in zip(merged, strides, strict=True):
                m[-1] = s[d]
        else:
            sizes.append(size)
            for m, s in zip(merged, strides, strict=True):
                m.append(s[d])
    return sizes, merged


def _bring_transposed_inside(sizes: list[int], strides: list[list[int]]) -> None:
    """Make a dimension along which an operand is contiguous the second innermost, if it is not the innermost: kernels work on blocks of
    the last two."""
    for s in strides:
        if abs(s[-1]) > 1 and 1 in s[:-2]:
            d = s.index(1)
            for values in (sizes, *strides):
                values.insert(-1, values.pop(d))
            return


class ReductionLoops(NamedTuple):
    """Loops of a reduction: the ranks and kinds for `backends.compiled.reduce_kernel`, and the numbers its kernel reads."""

    kept_rank: int
    reduced_rank: int
    inner: str
    kinds: str  # one character per input
    geometry: tuple[int, ...]


def plan_reduction(
    shape: Sequence[int], strides: Sequence[Sequence[int]], reduced_dims: Sequence[int], ordered: bool = False
) -> ReductionLoops:
    """Collapse a reduction over `reduced_dims` of `shape`.

    `strides[0]` belongs to the output, spread over all of `shape` (its entries for reduced dimensions do not matter);
    the rest belong to the inputs. `ordered` keeps the reduced dimensions in logical order, as argmax needs.
    """
    inputs = [tuple(s) for s in strides[1:]]
    chosen = set(reduced_dims)
    reduced = [d for d in range(len(shape)) if d in chosen and shape[d] != 1]
    kept = [d for d in range(len(shape)) if d not in chosen and shape[d] != 1]
    if not ordered:
        reduced = _order(reduced, inputs)
    kept_sizes, kept_strides = _merge(_order(kept, [*inputs, strides[0]]), shape, [strides[0], *inputs])
    reduced_sizes, reduced_strides = _merge(reduced, shape, inputs)
    if not reduced_sizes:
        reduced_sizes, reduced_strides = [1], [[1] for _ in inputs]
    inner = _inner(kept_sizes, kept_strides[1:], reduced_sizes, reduced_strides, foldable=not ordered)
    rows = kept_strides[1:] if inner == "kept" else reduced_strides
    numbers = [*kept_sizes, *reduced_sizes, *kept_strides[0]]
    for k, r in zip(kept_strides[1:], reduced_strides, strict=True):
        numbers += [*k, *r]
    return ReductionLoops(len(kept_sizes), len(reduced_sizes), inner, kinds_of([s[-1] for s in rows]), tuple(numbers))


def _inner(
    kept_sizes: list[int], kept: list[list[int]], reduced_sizes: list[int], reduced: list[list[int]], foldable: bool
) -> str:
    """Return the dimension of the innermost loop: the one with the smaller steps through memory. Short rows that follow each other without
    gaps count as long ones if they are `foldable`: column reductions fold many into one."""
    if not kept_sizes:
        return "reduced"
    width = kept_sizes[-1]
    gapless = len(reduced_sizes) == 1 and all(k[-1] == 1 and r[-1] == width for k, r in zip(kept, reduced, strict=True))
    if width < _SHORT_ROW and reduced_sizes[-1] >= 4 * _SHORT_ROW and not (foldable and gapless):
        return "reduced"
    for k, r in zip(kept, reduced, strict=True):
        x, y = abs(k[-1]), abs(r[-1])
        if x and y and x != y:
            return "kept" if x < y else "reduced"
    return "reduced"
