"""Reductions of many dense tensors to one number each, such as norms of gradients, in two launches. Sums are formed in another order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.backend import backend_of
from ..core.device import device
from ..core.tensor import Tensor, numel_of
from ..kernels.reduction import ARG_COMBINES
from ..kernels.reduction_parts import Reduction as Parts
from ..ops.machinery.plan import compiles
from ..ops.machinery.record import Op
from .program import Call, Value
from .reductions import Reduced, reduced


@dataclass(eq=False)
class ReducedMember:
    """A reduction that may become part of a list call."""

    call: Call
    of: Reduced
    key: tuple
    parts: Parts


def reduced_member(call: Call) -> ReducedMember | None:
    """Return a call as a member of a list of reductions; None for other calls, and for reductions to more than one number."""
    found = reduced(call)
    if found is None or len(found.dims) != len(found.value.shape) or not numel_of(found.value.shape):
        return None
    value, impl = found.value, found.impl
    compute, acc, out = impl.rule(impl, value.dtype, found.requested)
    dense = value.is_contiguous
    if (
        not dense
        or impl.combine in ARG_COMBINES
        or out is not call.results.dtype
        or any(d.is_complex for d in (value.dtype, compute, acc, out))
    ):
        return None
    if not acc.is_floating_point or not compiles(value.device, value.dtype, compute, acc):
        return None
    parts = Parts(impl.trace((value.dtype,), compute), impl.combine, impl._final(), (value.dtype,), out, acc, 0, 1, "c")
    key = ("reduced", id(impl), value.dtype, out, value.device)
    return ReducedMember(call, found, key, parts)


def reduced_list(members: list[ReducedMember]) -> Call:
    """Return one call that does the reductions of all members."""
    first = members[0]
    impl = FusedReductions(first.parts, first.of.value.device, [(m.of.impl, m.of.requested) for m in members])
    name = f"{first.call.op.name} of a list"
    op = Op(name, "reduction", impl.run, (), differentiable=False, impl=impl, writes=("outs",))
    results: list[Value] = [m.call.results for m in members]
    return Call(
        op, impl.run, tuple(m.of.value for m in members), {}, results, sorted(v.buffer for v in results), frozenset(),
        first.call.line, tuple(m.call for m in members),
    )  # fmt: skip


class FusedReductions:
    """Reductions of many tensors: `run(outs, *inputs)`. On devices without a kernel for lists they run one by one."""

    def __init__(self, parts: Parts, where: device, alone: list[tuple[Any, Any]]):
        self.parts, self.where, self.alone = parts, where, alone
        self.compiled: Any = None
        self.asked = False

    def run(self, outs: list[Tensor], *inputs: Tensor) -> None:
        if not self.asked:
            self.compiled, self.asked = backend_of(self.where).compile_reductions(self.parts, self.where), True
        if self.compiled is not None:
            self.compiled([(t.data_ptr(), out.data_ptr(), numel_of(t.shape)) for t, out in zip(inputs, outs)])
            return
        for (impl, requested), t, out in zip(self.alone, inputs, outs):
            out.copy_(impl.call(t, None, False, requested).reshape(out.shape))


__all__ = ["ReducedMember", "reduced_list", "reduced_member"]
