"""Reductions of many dense tensors to one number each, such as norms of gradients, in two launches. Sums are formed in another order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.backend import backend_of
from ..core.tensor import Tensor, numel_of
from ..kernels.reduction import ARG_COMBINES
from ..kernels.reduction_parts import Reduction as Parts
from ..ops.machinery.plan import compiles
from ..ops.machinery.record import Op
from .program import Call, Value
from .reductions import FusedReduction, reduced


@dataclass(eq=False)
class ReducedMember:
    """A reduction of a dense value to one number that may become part of a list call."""

    call: Call
    value: Value
    result: Value
    fused: FusedReduction

    @property
    def key(self) -> tuple:
        f = self.fused
        return "reduced", id(f.impl), id(f.root), f.dtypes, f.results, f.where


def reduced_member(call: Call) -> ReducedMember | None:
    """Return a call as a member of a list of reductions; None for other calls, and for reductions to more than one number."""
    fused, found = call.op.impl, reduced(call)
    if isinstance(fused, FusedReduction) and len(call.args) == 1:
        (value,), (result,) = call.args, call.results
    elif found is not None and found.value.is_contiguous and numel_of(found.value.shape):
        value, impl, result = found.value, found.impl, call.results
        compute, acc, out = impl.rule(impl, value.dtype, found.requested)
        known = compiles(value.device, value.dtype, compute, acc) and out is result.dtype
        if not known or any(d.is_complex for d in (value.dtype, compute, acc, out)):
            return None
        root, where = impl.trace((value.dtype,), compute), value.device
        fused = FusedReduction(root, impl, (value.dtype,), (acc, out), value.shape, found.dims, ["e"], where)
    else:
        return None
    whole = fused.how == ["e"] and len(fused.dims) == len(fused.shape) and fused.impl.combine not in ARG_COMBINES
    return ReducedMember(call, value, result, fused) if whole and fused.results[0].is_floating_point else None


def reduced_list(members: list[ReducedMember]) -> Call:
    """Return one call that does the reductions of all members."""
    impl, first = FusedReductions([m.fused for m in members]), members[0].call
    name = f"{first.op.name} of a list"
    op = Op(name, "reduction", impl.run, (), differentiable=False, impl=impl, writes=("outs",))
    results, values = [m.result for m in members], tuple(m.value for m in members)
    parts = tuple(part for m in members for part in (m.call.parts or (m.call,)))
    makes = sorted(v.buffer for v in results)
    return Call(op, impl.run, values, {}, results, makes, frozenset(), first.line, parts)


class FusedReductions:
    """Reductions of many tensors: `run(outs, *inputs)`. On devices without a kernel for lists they run one by one."""

    def __init__(self, members: list[FusedReduction]):
        self.members = members
        self.compiled: Any = None
        self.asked = False

    def run(self, outs: list[Tensor], *inputs: Tensor) -> None:
        if not self.asked:
            f, self.asked = self.members[0], True
            parts = Parts(f.root, f.impl.combine, f.impl._final(), f.dtypes, f.results[1], f.results[0], 0, 1, "c")
            self.compiled = backend_of(f.where).compile_reductions(parts, f.where)
        if self.compiled is not None:
            self.compiled([(t.data_ptr(), out.data_ptr(), numel_of(t.shape)) for t, out in zip(inputs, outs)])
            return
        for member, t, out in zip(self.members, inputs, outs):
            member.run([out], t)
