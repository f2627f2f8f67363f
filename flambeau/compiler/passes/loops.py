"""Recorded native calls seen as what they are: formulas over the elements of a space."""

from __future__ import annotations

import math
import struct
from array import array
from dataclasses import dataclass, field
from typing import Any

from ...backends import compiled
from ...backends.cpu import jit
from ...core.dtype import dtype
from ...core.tensor import contiguous_strides
from ...expr.node import Expr, arg, replace_arguments, walk
from ...expr.simplify import simplify
from ...kernels import geometry
from ...kernels.elementwise import passing
from ..record.steps import Launch, Ref, Test, places_of

_BRIEF = 1 << 15  # bytes
Place = tuple[Ref, tuple[int, ...]]  # where an operand begins, and its strides in elements


@dataclass(eq=False)
class Loop:
    """Formulas over the elements of one space. `reads` are the arguments of the formulas: places with a dtype, or numbers."""

    sizes: tuple[int, ...]
    names: list[str]
    reads: list[tuple[Any, dtype]]
    results: dict[Place, tuple[Expr, dtype]]
    at: int  # which step it stands at
    weight: int = 1
    launch: Launch | None = None  # the recorded call, if it is still that one
    pointers: set[int] = field(default_factory=set)

    def spread(self, sizes: tuple[int, ...]) -> Loop | None:
        """The same loop over a space of these sizes, where it is a plain row of as many elements."""
        if self.sizes == sizes:
            return self
        if len(self.sizes) != 1 or math.prod(sizes) != self.sizes[0]:
            return None
        dense, still = contiguous_strides(sizes), (0,) * len(sizes)

        def moved(place: Any) -> Any:
            if type(place) is not tuple:
                return place
            if place[1][0] not in (0, 1):
                return None
            return place[0], dense if place[1][0] else still

        reads = [(moved(p), d) for p, d in self.reads]
        results = {moved(p): value for p, value in self.results.items()}
        if None in results or any(p is None for p, _ in reads):
            return None
        return Loop(sizes, self.names, reads, results, self.at, self.weight)


def parsed(step: Launch, at: int) -> Loop | None:
    """A recorded call as a loop, if it is one over real numbers."""
    known = compiled.maps.get(step.address)
    if known is None:
        return None
    roots, in_dtypes, out_dtypes, kinds, rank = known
    if "z" in kinds or any(d.is_complex for d in (*in_dtypes, *out_dtypes)):
        return None
    first = step.arguments[0]
    sizes = struct.unpack_from(f"{rank}q", first) if type(first) is bytes else (first,)
    places = places_of(step, kinds, rank)
    outputs, inputs = places[: len(out_dtypes)], places[len(out_dtypes) :]
    if len(set(outputs)) != len(outputs):
        return None
    reads = list(zip(inputs, in_dtypes))
    results = {p: (root, d) for p, root, d in zip(outputs, roots, out_dtypes)}
    return Loop(sizes, [step.name], reads, results, at, 1, step)


def emitted(loop: Loop, keep: list[Place]) -> Launch:
    """A loop as a native call."""
    roots = tuple(loop.results[p][0] for p in keep)
    used = sorted({x.args[0] for x in walk(roots) if x.op == "arg"})
    roots = tuple(simplify(r, True) for r in replace_arguments(roots, {k: arg(i) for i, k in enumerate(used)}))
    reads = [loop.reads[k] for k in used]
    out_dtypes = tuple(loop.results[p][1] for p in keep)
    in_dtypes = tuple(d for _, d in reads)
    places = [*keep, *(p for p, _ in reads if type(p) is tuple)]
    rank, sizes, strides, kinds_of_places = geometry.plan(loop.sizes, [p[1] for p in places])
    pointer_kinds = iter(kinds_of_places[len(keep) :])
    kinds = kinds_of_places[: len(keep)]
    kinds += "".join(next(pointer_kinds) if type(p) is tuple else passing(d) for p, d in reads)
    brief = math.prod(loop.sizes) * out_dtypes[0].itemsize < _BRIEF
    fn = compiled.map_kernel(roots, in_dtypes, out_dtypes, kinds, rank, brief=brief)
    first: Any = sizes[0]
    if rank > 1 or "s" in kinds:
        first = array("q", [*sizes, *(s for operand in strides for s in operand)]).tobytes()
    given = [first, *(p[0] for p in keep), *(p[0] if type(p) is tuple else p for p, _ in reads)]
    address = jit.address_of(fn)
    return Launch("+".join(dict.fromkeys(loop.names)), address, jit.signatures[address], given, weight=loop.weight)


def used(step: Any) -> set[int]:
    """The buffers that a step or a loop reads or writes."""
    if isinstance(step, Loop):
        return {p[0].buffer for p in step.results} | {p[0].buffer for p, _ in step.reads if type(p) is tuple}
    refs = [*step.refs(), *(step.again.refs() if isinstance(step, Test) and step.again else ())]
    return {r.buffer for r in refs}


__all__ = ["Loop", "Place", "emitted", "parsed", "used"]
