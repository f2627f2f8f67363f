"""The reducer of DistributedDataParallel: gradients are averaged in buckets, while the backward pass still runs.

A hook on every parameter's gradient accumulator copies the gradient into its bucket; a full bucket, if it is its turn, is reduced in the
process group's thread. When the last bucket has been started, the end of the backward pass waits for all of them and copies the averages
into `.grad`."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.engine import running
from ..core import watching
from ..core.dtype import BY_NAME
from ..core.graph import AccumulateGrad, Node, gradient_edge, unrecorded
from ..core.locks import new_lock
from ..core.tensor import Tensor, empty
from ..futures import Future
from ..ops import namespace
from . import records
from .buckets import DEFAULT_FIRST_BUCKET_BYTES, Bucket, GradBucket, assign_by_size
from .ddp_logging import Logger
from .process_group import ProcessGroup
from .reduce_op import ReduceOp

_DEFAULT_FIRST_BUCKET_BYTES = DEFAULT_FIRST_BUCKET_BYTES
_compute_bucket_assignment_by_size = assign_by_size


class BuiltinCommHookType(enum.Enum):
    """Communication hooks that come with DistributedDataParallel."""

    ALLREDUCE = 0
    FP16_COMPRESS = 1


class Iteration:
    """State from the first gradient to the end of the reduction: gradients that arrived, and buckets in flight."""

    def __init__(self, buckets: list[Bucket], passes: dict[int, int], backward: Any):
        self.passes = passes  # of a static graph: how often each gradient is still to arrive
        self.backward = backward  # the pass that runs
        self.ready_order: list[int] = []
        self.pending = [len(bucket.indices) for bucket in buckets]
        self.futures: list[Future | None] = [None] * len(buckets)
        self.next_bucket = 0
        self.buckets_reduced = 0


class Reducer:
    """Averages the gradients of parameters over the ranks of a group."""

    def __init__(
        self,
        params: Sequence[Tensor],
        bucket_indices: Sequence[Sequence[int]],
        process_group: ProcessGroup,
        expect_sparse_gradients: Sequence[bool] = (),
        bucket_bytes_cap: int = 25 * 1024 * 1024,
        find_unused_parameters: bool = False,
        gradient_as_bucket_view: bool = False,
        param_to_name_mapping: dict[int, str] | None = None,
        first_bucket_bytes_cap: int = DEFAULT_FIRST_BUCKET_BYTES,
        skip_all_reduce_unused_params: bool = False,
        bucket_bytes_cap_list: Sequence[int] = (),
    ) -> None:
        self.params = list(params)
        self.group = process_group
        self.sparse = list(expect_sparse_gradients) or [False] * len(self.params)
        self.limits = list(bucket_bytes_cap_list) or [first_bucket_bytes_cap, bucket_bytes_cap]
        self.find_unused, self.as_view = find_unused_parameters, gradient_as_bucket_view
        self.names = param_to_name_mapping or {}
        self.skip_unused = skip_all_reduce_unused_params
        self.hook: Callable[[GradBucket], Future] | None = None
        self.logger: Logger | None = None
        self.static_graph = False
        self.started = False  # whether there was a forward pass
        self.divisor = process_group.size()
        self.expects = False  # between a forward pass that will be reduced and the end of its reduction
        self.unused: list[int] = []  # parameters that will get no gradient then
        self._knows_outputs = (
            False  # whether the last forward pass returned tensors in which these could be searched for
        )
        self._missed: set[int] = (
            set()
        )  # parameters that would have got one, had more of its outputs been part of the backward pass
        self.now: Iteration | None = None  # while gradients arrive
        self.rebuilt = False
        self.first_order: list[int] = []  # in which gradients became ready, for buckets that are still to be rebuilt
        self._hooks_per_step: dict[int, int] | None = None  # of a static graph: how often each gradient arrives
        self._used_in_step: list[int] | None = (
            None  # of a static graph: on how many ranks each parameter got a gradient
        )
        self._lock = new_lock()
        self._used = [0] * len(self.params)
        self._make_buckets(bucket_indices)
        self._handles = []
        self._accumulators: list[Node] = []
        self._places = {}
        for index, parameter in enumerate(self.params):
            edge = gradient_edge(parameter)
            assert edge is not None
            node = edge[0]
            self._accumulators.append(node)  # which only a graph would keep alive
            self._places[node] = index
            self._handles.append(node.register_hook(functools.partial(self._arrived, index)))

    # -- buckets --------------------------------------------------------------------------------------------------------

    def _make_buckets(self, bucket_indices: Sequence[Sequence[int]]) -> None:
        self.buckets = [
            Bucket(one, self.params, len(one) == 1 and self.sparse[one[0]]) for one in bucket_indices if len(one)
        ]
        self.where = {
            index: (number, place)
            for number, bucket in enumerate(self.buckets)
            for place, index in enumerate(bucket.indices)
        }

    def _rebuild_buckets(self) -> bool:
        """Rebuild the buckets after the first iteration, in the order in which gradients became ready, the same on all ranks."""
        if self.rebuilt or self._searches or len(self.first_order) != len(self.params):
            return False
        if watching.active:
            watching.tell_once("gradients are put into other buckets")
        order = empty((len(self.params),), BY_NAME["int64"])
        for place, index in enumerate(self.first_order):
            order[place] = index
        records.broadcast_(order, 0, self.group)
        indices = order.tolist()
        tensors = [self.params[i] for i in indices]
        buckets, _ = assign_by_size(tensors, self.limits, self.sparse, indices)
        self.rebuilt, self.first_order = True, []
        self._make_buckets(buckets)
        if self.as_view:
            self._adopt_gradients()
        return True

    def _adopt_gradients(self) -> None:
        """Move gradients that were views of the old buckets to the new ones."""
        for index, parameter in enumerate(self.params):
            if parameter.grad is not None and not parameter.grad.is_sparse:
                number, place = self.where[index]
                view = self.buckets[number].views[place]
                unrecorded(view.copy_, parameter.grad)
                parameter.grad = view

    # -- an iteration ---------------------------------------------------------------------------------------------------

    @property
    def _searches(self) -> bool:
        """Return whether each iteration determines which parameters are used."""
        return self.find_unused and not self.static_graph

    def prepare_for_forward(self) -> None:
        self.started = True
        if self.logger is not None:
            self.logger.forward_begins()

    def prepare_for_backward(self, outputs: Sequence[Tensor]) -> None:
        """Prepare for the backward pass from `outputs`: determine which gradients to expect."""
        if self.logger is not None:
            self.logger.forward_ends()
        if self.now is not None:  # without a backward pass in between, the last forward pass counts
            self._fail(self._unfinished())
        self.expects, self.unused[:], self._knows_outputs = True, [], self._searches and bool(outputs)
        self._missed.clear()
        if self.static_graph:
            if self._hooks_per_step is not None:
                self.unused[:] = [i for i in range(len(self.params)) if i not in self._hooks_per_step]
        elif self.find_unused and outputs:
            reached = _accumulators_below(outputs)
            self.unused[:] = [i for i, node in enumerate(self._accumulators) if node not in reached]
            if not self.unused and self.logger is not None and not self.logger.told_unneeded:
                self.logger.nothing_unused()

    def expect_nothing(self) -> None:
        """Do not reduce the gradients of the last forward pass."""
        self._missed.clear()
        if self.now is None:
            self.expects = False

    def _arrived(self, index: int, *_: Any) -> None:
        """Handle the gradient of a parameter, which has been stored in `.grad`."""
        with self._lock:
            if self._searches or (self.static_graph and self._used_in_step is None):
                self._used[index] = 1
            if index in self._missed:
                self._fail(
                    "The gradients of this forward pass have been reduced. With find_unused_parameters=True all outputs that take"
                    " part in the loss must do so in one backward pass: add up their losses."
                )
            if not self.expects:
                return
            now = self._begin() if self.now is None else self.now
            if self.static_graph:
                self._arrived_in_static_graph(now, index)
                return
            if index in self.unused:
                self._fail(self._twice(index))
            self._ready(now, index)

    def _begin(self) -> Iteration:
        if self.logger is not None:
            self.logger.backward_begins()
        assert running.current is not None
        now = self.now = Iteration(self.buckets, dict(self._hooks_per_step or {}), running.current.outermost)
        if self.static_graph and self._hooks_per_step is None:
            now.backward.callbacks.append(self._end_of_first_static_pass)
        else:
            for index in self.unused:
                self._ready(now, index)
            if self._knows_outputs:
                now.backward.callbacks.append(self._end_of_pass)
        return now

    def _end_of_pass(self) -> None:
        """Count parameters as unused that only outputs without a gradient depend on."""
        now = self.now
        assert now is not None
        self._missed.update(set(range(len(self.params))).difference(now.ready_order))
        for index in sorted(self._missed):
            self._ready(now, index)

    def _arrived_in_static_graph(self, now: Iteration, index: int) -> None:
        if self._hooks_per_step is None:
            now.passes[index] = now.passes.get(index, 0) + 1
            return
        now.passes[index] = left = now.passes.get(index, 0) - 1
        if left < 0:
            self._fail(
                "Your training graph has changed in this iteration, e.g., one parameter is used in first iteration, but"
                " then got unused in the second iteration. this is not compatible with static_graph set to True."
            )
        if left == 0:
            self._ready(now, index)

    def _end_of_first_static_pass(self) -> None:
        now = self.now
        assert now is not None
        self._hooks_per_step = dict(now.passes)
        for index in dict.fromkeys([*now.passes, *range(len(self.params))]):
            self._ready(now, index)

    def _ready(self, now: Iteration, index: int) -> None:
        number, place = self.where[index]
        if now.pending[number] == 0 or index in now.ready_order:
            self._fail(self._twice(index))
        now.ready_order.append(index)
        if not self.buckets[number].sparse:
            self._fill(self.buckets[number], place, index)
        now.pending[number] -= 1
        while now.next_bucket < len(self.buckets) and now.pending[now.next_bucket] == 0:
            self._launch(now, now.next_bucket)
            now.next_bucket += 1
            if now.next_bucket == len(self.buckets):
                if self.logger is not None:
                    self.logger.backward_computed()
                now.backward.callbacks.append(self._finish)

    def _fill(self, bucket: Bucket, place: int, index: int) -> None:
        """Copy the gradient, divided, to its place in the bucket."""
        view, gradient = bucket.views[place], self.params[index].grad
        factor = 1.0 if self.hook is not None else 1.0 / self.divisor
        if gradient is None:
            unrecorded(view.zero_)
        elif gradient is view or (self.as_view and _same_memory(gradient, view)):
            if factor != 1.0:
                unrecorded(view.mul_, factor)
        elif factor != 1.0:
            unrecorded(_mul, gradient.detach(), factor, out=view)
        else:
            unrecorded(view.copy_, gradient.detach())
        if self.as_view and gradient is not None:
            self.params[index].grad = view

    def _launch(self, now: Iteration, number: int) -> None:
        bucket = self.buckets[number]
        if self.logger is not None and number == 0:
            self.logger.communication_begins()
        tensor = bucket.flat
        if bucket.sparse:
            tensor = self._sparse_gradient(bucket)
        if self.skip_unused and self.unused and all(i in self.unused for i in bucket.indices):
            return
        now.buckets_reduced += 1
        if self.hook is None:
            now.futures[number] = self._reduced(tensor)
        else:
            last = number == len(self.buckets) - 1
            now.futures[number] = self.hook(GradBucket(number, bucket, tensor, last))

    def _reduced(self, tensor: Tensor) -> Future:
        """Start the reduction of a tensor over the ranks."""
        return records.started(records.all_reduce_, tensor, ReduceOp.SUM, self.group).get_future()

    def _sparse_gradient(self, bucket: Bucket) -> Tensor:
        parameter = bucket.parameters[0]
        gradient = parameter.grad
        if gradient is None:
            gradient = namespace("torch")["sparse_coo_tensor"](size=tuple(parameter.shape), dtype=parameter.dtype)
        elif not gradient.is_sparse:
            gradient = unrecorded(gradient.to_sparse)
        if self.hook is None:
            gradient = unrecorded(gradient.div, self.divisor)
        return gradient

    # -- the end of the backward pass -----------------------------------------------------------------------------------

    def _finish(self) -> None:
        now = self.now
        assert now is not None
        used_anywhere = self._used_anywhere()
        for bucket, future in zip(self.buckets, now.futures):
            if future is None:
                continue
            value = future.wait()
            result = value[0] if isinstance(value, (list, tuple)) else value
            self._take_results(bucket, result, used_anywhere)
        if self.logger is not None:
            self.logger.communication_ends()
            self.logger.iteration_ends(self, now)
        if not self.rebuilt and not self._searches:
            self.first_order = now.ready_order
        self.now, self.expects = None, False
        self._used[:] = [0] * len(self.params)

    def _used_anywhere(self) -> list[int] | None:
        """Return which parameters got a gradient on any rank; None if unused parameters are not searched for. In a static graph the first
        iteration decides."""
        if not (self.find_unused or self.static_graph):
            return None
        if self.static_graph and self._used_in_step is not None:
            return self._used_in_step
        used = empty((len(self.params),), BY_NAME["int32"])
        for index, flag in enumerate(self._used):
            used[index] = flag
        records.all_reduce_(used, ReduceOp.SUM, self.group)
        self._used_in_step = used.tolist()
        return self._used_in_step

    def _take_results(self, bucket: Bucket, result: Any, used: list[int] | None) -> None:
        if bucket.sparse:
            bucket.parameters[0].grad = result
            return
        if result is not bucket.flat:
            unrecorded(bucket.flat.copy_, result.view(-1))
        for index, parameter, view in zip(bucket.indices, bucket.parameters, bucket.views):
            if used is not None and not used[index]:
                continue  # its gradient, if there is one, is from before
            if self.as_view:
                if parameter.grad is not view:
                    parameter.grad = view
            elif parameter.grad is None:
                parameter.grad = unrecorded(view.clone)  # other ranks had one
            else:
                unrecorded(parameter.grad.detach().copy_, view)

    # -- communication hooks ----------------------------------------------------------------------------------------------

    def register_hook(self, hook: Callable[[Any, GradBucket], Future], state: Any) -> None:
        if self.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self.hook = lambda bucket: hook(state, bucket)

    def register_builtin_hook(self, kind: BuiltinCommHookType) -> None:
        if self.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        if kind is BuiltinCommHookType.ALLREDUCE:
            self.hook = self._average
        else:
            self.hook = self._average_in_half

    def _average(self, bucket: GradBucket) -> Future:
        tensor = unrecorded(bucket.buffer().div_, self.group.size())
        return self._reduced(tensor).then(lambda done: done.value()[0])

    def _average_in_half(self, bucket: GradBucket) -> Future:
        original = bucket.buffer()
        small = unrecorded(lambda: original.to(BY_NAME["float16"]).div_(self.group.size()))
        return self._reduced(small).then(lambda done: original.copy_(done.value()[0]))

    # -- errors -----------------------------------------------------------------------------------------------------------

    def _fail(self, message: str) -> None:
        if self.logger is not None:
            self.logger.set_error_and_log(message)
        raise RuntimeError(message)

    def _name(self, index: int) -> str:
        return self.names.get(index, str(index))

    def _twice(self, index: int) -> str:
        text = (
            "Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) Use of a"
            " module parameter outside the `forward` function. Please make sure model parameters are not shared across multiple"
            " concurrent forward-backward passes. or try to use _set_static_graph() as a workaround if this module graph does"
            " not change during training loop.2) Reused parameters in multiple reentrant backward passes. For example, if you"
            " use multiple `checkpoint` functions to wrap the same part of your model, it would result in the same set of"
            " parameters been used by different reentrant backward passes multiple times, and hence marking a variable ready"
            " multiple times. DDP does not support such use cases in default. You can try to use _set_static_graph() as a"
            " workaround if your module graph does not change over iterations."
        )
        name = f" with name {self.names[index]}" if index in self.names else ""
        return f"{text}\nParameter at index {index}{name} has been marked as ready twice."

    def _unfinished(self) -> str:
        arrived = () if self.now is None else self.now.ready_order
        missing = [i for i in range(len(self.params)) if i not in arrived]
        text = (
            "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that"
            " your module has parameters that were not used in producing loss. "
        )
        if not self.find_unused:
            text += (
                "You can enable unused parameter detection by passing the keyword argument `find_unused_parameters=True` to"
                " `torch.nn.parallel.DistributedDataParallel`, and by \n"
            )
        else:
            text += "Since `find_unused_parameters=True` is enabled, this likely means that not all "
        text += (
            "making sure all `forward` function outputs participate in calculating loss. \nIf you already have done the above,"
            " then the distributed data parallel module wasn't able to locate the output tensors in the return value of your"
            " module's `forward` function. Please include the loss function and the structure of the return value of `forward`"
            " of your module when reporting this issue (e.g. list, dict, iterable)."
        )
        rank = self.group.rank()
        text += f"\nParameter indices which did not receive grad for rank {rank}: {' '.join(map(str, missing))}"
        if self.names:
            names = ", ".join(self._name(i) for i in missing)
            text += f"\nParameters which did not receive grad for rank {rank}: {names}"
        else:
            text += (
                "\n In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL to print"
                " out information about which particular parameters did not receive gradient on this rank as part of this error"
            )
        return text

    # -- what others of PyTorch's parts ask -------------------------------------------------------------------------------

    def _set_static_graph(self) -> None:
        if self.started:
            self._fail(
                "set_static_graph() should be called before training loop starts and after DistributedDataParallel is constructed."
            )
        self.static_graph = True

    def _check_reducer_finalized(self) -> None:
        if self.expects:
            self._fail(self._unfinished())

    def _get_zeros_like_grad_buckets(self) -> list[GradBucket]:
        """Return empty buckets, for a rank that has no more inputs and still takes part."""
        made = []
        for number, bucket in enumerate(self.buckets):
            zeros = namespace("torch")["zeros"](sum(bucket.lengths), dtype=bucket.parameters[0].dtype)
            made.append(GradBucket(number, bucket, zeros, number == len(self.buckets) - 1))
        return made

    def _remove_autograd_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _update_process_group(self, group: ProcessGroup) -> None:
        self.group, self.divisor = group, group.size()


_mul = namespace("torch")["mul"]


def _same_memory(one: Tensor, other: Tensor) -> bool:
    return one._storage is other._storage and one._offset == other._offset and one._strides == other._strides


def _accumulators_below(outputs: Sequence[Tensor]) -> set[Node]:
    """Return all gradient accumulators that a backward pass from these tensors would reach."""
    edges = [gradient_edge(t) for t in outputs if t.requires_grad]
    waiting = [edge[0] for edge in edges if edge is not None]
    seen = set(waiting)
    while waiting:
        for edge in waiting.pop().edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                waiting.append(edge[0])
    return {node for node in seen if isinstance(node, AccumulateGrad)}


def _register_comm_hook(reducer: Reducer, state: Any, comm_hook: Callable) -> None:
    reducer.register_hook(comm_hook, state)


def _register_builtin_comm_hook(reducer: Reducer, comm_hook_type: BuiltinCommHookType) -> None:
    reducer.register_builtin_hook(comm_hook_type)
