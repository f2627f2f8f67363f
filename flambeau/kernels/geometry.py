"""How operands lie in memory: fewest dimensions, best order, and what kind of row each operand has."""

from __future__ import annotations

from collections.abc import Sequence

Strides = tuple[int, ...]


def plan(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[int, tuple[int, ...], tuple[Strides, ...], str]:
    """(rank, sizes, strides per operand, kinds) of an elementwise loop nest over `shape`.

    Dimensions of size 1 go, the rest are ordered so that the innermost has the smallest strides (the first operands
    count most), and neighbours that every operand steps through evenly become one. Rank is at least 1. `kinds` has one
    character per operand: "c" inner stride 1, "b" inner stride 0, "s" any other.
    """
    dims = [d for d, size in enumerate(shape) if size != 1]
    if not dims:
        return 1, (1,), tuple((1,) for _ in strides), "c" * len(strides)
    if 0 in shape:
        return 1, (0,), tuple((1,) for _ in strides), "c" * len(strides)
    order = _order(dims, shape, strides)
    sizes, merged = _merge(order, shape, strides)
    kinds = "".join("c" if s[-1] == 1 else "b" if s[-1] == 0 else "s" for s in merged)
    return len(sizes), tuple(sizes), tuple(tuple(s) for s in merged), kinds


def _order(
    dims: list[int], shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> list[int]:
    """Outermost first. Broadcast dimensions (stride 0) of one operand are placed by the next operand."""

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
