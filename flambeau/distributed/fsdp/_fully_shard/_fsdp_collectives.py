"""Communication of a group of parameters: shards are gathered, gradients reduced and scattered, each in one operation.

Shards are received directly in the whole parameter's memory, and gradients are sent from where they are: nothing is copied into a buffer
first, unless a program brings custom communication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....autograd.grad_mode import no_grad
from ....core.dtype import BY_NAME
from ....core.tensor import Tensor
from ....ops import namespace
from ...pieces import lay_out
from ...records import all_gather_parts_, all_reduce_, reduce_scatter_parts_, started, told
from ...reduce_op import ReduceOp
from ._fsdp_api import AllGather, ReduceScatter
from ._fsdp_lanes import Lane
from ._fsdp_param import FSDPParam

_torch = namespace("torch")


class Gathering:
    """An all-gather of shards in flight."""

    def __init__(self, work: Any, finish: Any = None, mark: Any = None):
        self.work, self._finish, self._mark = work, finish, mark

    def wait(self) -> None:
        if self.work is not None:
            self.work.wait()
        if self._mark is not None:
            self._mark.wait()  # the stream that computes waits, not the program
        if self._finish is not None:
            self._finish()


@no_grad()
def foreach_all_gather(
    params: Sequence[FSDPParam],
    group: Any,
    async_op: bool,
    device: Any,
    comm: AllGather | None = None,
    lane: Lane | None = None,
) -> Gathering:
    """Start to gather the shards of all parameters; on a GPU, on a separate stream."""
    if lane is None:
        return _gather(params, group, async_op, device, comm)
    with lane.inside():
        started = _gather(params, group, async_op, device, comm)
        started._mark = lane.mark()
    return started


def _gather(params: Sequence[FSDPParam], group: Any, async_op: bool, device: Any, comm: AllGather | None) -> Gathering:
    ranks = 1 if group is None else group.size()
    sources = [p.all_gather_inputs for p in params]
    targets = [p.alloc_all_gather_outputs(given, ranks) for p, given in zip(params, sources)]
    inputs = [t for given in sources for t in given]
    outputs = [t for made in targets for t in made]
    if ranks == 1:
        for source, target in zip(inputs, outputs):
            version = target._storage.version
            target.copy_(source)
            target._storage.version = version
        return Gathering(None)
    told("c10d._allgather_base_")
    if comm is None:
        return Gathering(_start_or_run(async_op, all_gather_parts_, outputs, inputs, group))
    return _gather_with_custom(comm, group, inputs, outputs, ranks, device, async_op)


def _start_or_run(async_op: bool, collective: Any, *args: Any) -> Any:
    """Start a collective and return its work, or None if it is done."""
    return started(collective, *args) if async_op else collective(*args)


def _gather_with_custom(
    comm: AllGather, group: Any, inputs: list[Tensor], outputs: list[Tensor], ranks: int, device: Any, async_op: bool
) -> Gathering:
    """Gather with a program's custom all_gather, which takes one tensor from each rank."""
    as_bytes = len({t.dtype for t in inputs}) > 1
    sources = [t.view(BY_NAME["uint8"]) for t in inputs] if as_bytes else inputs
    counts = [t.numel() for t in sources]
    buffer = comm.allocate((sum(counts) * ranks,), dtype=sources[0].dtype, device=device)
    work = comm(buffer, _torch["cat"](sources), group, async_op)

    def finish() -> None:
        parts = buffer.view(ranks, -1).split(counts, 1)
        for part, output in zip(parts, outputs):
            version = output._storage.version
            (output.view(BY_NAME["uint8"]) if as_bytes else output).view(ranks, -1).copy_(part)
            output._storage.version = version

    return Gathering(work, no_grad()(finish))


class Reduction:
    """Reduction of a group's gradients in flight: over the ranks that shard the parameters, then over those that replicate them."""

    def __init__(self, group: Any, params: list[FSDPParam], grads: list[Any]):
        self.group, self.params = group, params
        self.dtype = group._reduce_dtype or (grads[0][0] if isinstance(grads[0], list) else grads[0]).dtype
        self.counts = [p.padded_sharded_param_size.numel() for p in params]
        scatter, replicate = group.reduce_scatter_group(), group.all_reduce_group()
        before, self.after, self.op, self.replicate_op = divisors(
            scatter, replicate, self.dtype, group.gradient_divide_factor, group.force_sum_reduction_for_comms
        )
        self.output = _torch["empty"](sum(self.counts), dtype=self.dtype, device=group.device)
        self.mark: Any = None
        lane: Lane | None = group.comm_ctx.reduces
        if lane is None:
            self.work = self._start(scatter, grads, before)
            return
        self.grads = grads  # until the stream that computes has waited for the other one
        lane.follow()
        with lane.inside():
            self.work = self._start(scatter, grads, before)
            self.mark = lane.mark()

    def _start(self, scatter: Any, grads: list[Any], before: float | None) -> Any:
        ranks = 1 if scatter is None else scatter.size()
        shares = self.group.shares(self.params, [self._scale_gradient(g, before) for g in grads], self.counts, ranks)
        if ranks == 1:
            lay_out(self.output, shares)
            return None
        told("c10d._reduce_scatter_base_")
        comm: ReduceScatter | None = self.group._reduce_scatter_comm
        if comm is None:
            plain = [list(map(tuple, own)) for own in shares]
            return _start_or_run(self.group.overlaps, reduce_scatter_parts_, self.output, plain, self.op, scatter)
        flat = comm.allocate((sum(self.counts) * ranks,), dtype=self.dtype, device=self.group.device)
        lay_out(flat, shares)
        self.output = comm.allocate((sum(self.counts),), dtype=self.dtype, device=self.group.device)
        return comm(self.output, flat, scatter, self.op, self.group.overlaps)

    def _scale_gradient(self, grad: Any, before: float | None) -> Any:
        """Return a gradient in the dtype of the reduction, divided by the factor that is applied before it."""
        if isinstance(grad, list):
            return [self._scale_gradient(one, before) for one in grad]
        grad = grad if grad.dtype is self.dtype else grad.to(self.dtype)
        return grad if before is None else grad / before

    @no_grad()
    def finish(self) -> None:
        """Wait for the reduction, and set every parameter's shard of the gradients."""
        if self.work is not None:
            self.work.wait()
        if self.mark is not None:
            self.mark.wait()
            del self.grads
        group, output = self.group, self.output
        replicate = group.all_reduce_group()
        if replicate is not None:
            if group._partial_reduce_output is not None:
                output += group._partial_reduce_output
                group._partial_reduce_output = None
            if not group.all_reduce_grads:
                group._partial_reduce_output = output
                return
            own = getattr(group._reduce_scatter_comm, "reduce_whole", None)
            if own is not None and group.reduce_scatter_group() is None:
                own(output)
            else:
                told("c10d.allreduce_")
                all_reduce_(output, self.replicate_op, replicate)
        if group._all_reduce_hook is not None:
            group._all_reduce_hook(output)
        if self.after is not None and self.after != 1:
            output.div_(self.after)
        if group._orig_dtype is not None and output.dtype is not group._orig_dtype and not group.keeps_low_precision:
            output = output.to(group._orig_dtype)
        for param, part in zip(self.params, output.split(self.counts)):
            param.accept(part, output.device.type != "cpu")
            for one in param.trained:
                for hook in list((one._ensure_autograd().post_hooks or {}).values()):
                    hook(one)


def divisors(
    scatter: Any, replicate: Any, dtype: Any, factor: float | None = None, sums_only: bool = False
) -> tuple[float | None, float | None, Any, Any]:
    """Return the factors to divide by before and after, and the operations of both reductions, that turn sums into averages. Where numbers
    may overflow (float16), half of the division comes before."""
    ranks = (1 if scatter is None else scatter.size()) * (1 if replicate is None else replicate.size())
    wide = dtype in (BY_NAME["float32"], BY_NAME["bfloat16"], BY_NAME["float64"])
    if wide and not sums_only:
        if factor is None:
            op = ReduceOp.SUM if ranks == 1 else ReduceOp.AVG
            return None, None, op, op
        if scatter is not None and factor == scatter.size():
            return None, None, ReduceOp.AVG, ReduceOp.SUM
        return None, factor, ReduceOp.SUM, ReduceOp.SUM
    total = float(ranks) if factor is None else factor
    if wide:
        return None, total, ReduceOp.SUM, ReduceOp.SUM
    before = 1
    while total % before == 0 and total / before > before:
        before *= 2
    return before, total / before, ReduceOp.SUM, ReduceOp.SUM


_get_gradient_divide_factors = divisors
