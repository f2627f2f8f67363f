"""Selective activation checkpointing: a policy says which operators' results are kept and which are recomputed.

>>> from functools import partial
>>> from flambeau.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
>>> contexts = partial(create_selective_checkpoint_contexts, [flambeau.ops.aten.mm.default])
>>> y = checkpoint(lambda x: (x @ x).sigmoid(), flambeau.ones(2, 2), use_reentrant=False, context_fn=contexts)
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from ..autograd.graph import saved_tensors_hooks
from ..core.graph import grad_mode
from ..core.tensor import Tensor
from ..library.aten.overloads import OpOverload, OpOverloadPacket, aten
from ..library.higher_order import HigherOrderOperator
from ._python_dispatch import TorchDispatchMode
from ._pytree import tree_leaves, tree_map_only

SAC_IGNORED_OPS = {aten.detach.default}  # checkpointing itself detaches, not as often in the second run

_CAUSE = (
    "This can happen if the operations in the checkpointed region are nondeterministic or depend on global state that"
    " changed between forward and backward."
)


class CheckpointPolicy(enum.Enum):
    """Treatment of an operator's result: kept, or recomputed during backward (as with the policies for offloading).

    `PREFER_...` allows a compiler to do otherwise."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_SAVING_POLICIES = (True, CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


class SelectiveCheckpointContext:
    """Argument of a policy besides the operator and its arguments: the result. Policies are called in the first run only."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


class _Saved:
    """A tensor that an operator saved for its gradient: itself, or as packed by the hooks around the operator."""

    __slots__ = ("packed", "unpack")

    def __init__(self, tensor: Tensor) -> None:
        self.packed: Any = tensor
        self.unpack: Callable[[Any], Tensor] | None = None

    def pack(self, pack: Callable, unpack: Callable) -> None:
        self.packed, self.unpack = pack(self.packed), unpack

    def get(self) -> Tensor:
        return self.packed if self.unpack is None else self.unpack(self.packed)


class _KeptTensor:
    """A tensor of a kept result, with its version."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.version, self.requires_grad = tensor.detach(), tensor._version, tensor.requires_grad

    def get(self, may_have_changed: bool) -> Tensor:
        if self.tensor._version != self.version and not may_have_changed:
            raise RuntimeError(
                "Tensor cached during selective activation checkpoint has been mutated: change it no more, or pass"
                " allow_cache_entry_mutation=True"
            )
        return self.tensor.detach().requires_grad_(self.requires_grad)


class _KeptResult:
    """The result of one call, and which of its arguments the call saved for its gradient, in their order."""

    def __init__(self, result: Any, saved_arguments: list[int]) -> None:
        self.result = tree_map_only(Tensor, _KeptTensor, result)
        self.saved_arguments = saved_arguments

    def get(self, may_have_changed: bool) -> Any:
        return tree_map_only(_KeptTensor, lambda kept: kept.get(may_have_changed), self.result)


def _tensors(args: tuple, kwargs: dict[str, Any]) -> list[Tensor]:
    return [v for v in tree_leaves((args, kwargs)) if isinstance(v, Tensor)]


def _index_among(tensor: Tensor, among: list[Tensor]) -> int | None:
    """Return the index of a tensor among others: the same object, or one over the same memory. None if it is not there."""
    for place, other in enumerate(among):
        same = tensor is other or (
            tensor.data_ptr() == other.data_ptr()
            and tensor.dtype is other.dtype
            and tensor.shape == other.shape
            and tensor.stride() == other.stride()
            and tensor.numel()
        )
        if same:
            return place
    return None


class _FirstRun(TorchDispatchMode):
    """Mode of the first run: calls the policy after every operator, and keeps the results it selects."""

    def __init__(self, policy: Callable, storage: dict[Any, list]) -> None:
        self.policy = policy
        self.storage = storage

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in SAC_IGNORED_OPS:
            return func(*args, **kwargs)
        given = _tensors(args, kwargs)
        saved: list[_Saved] = []

        def hold(tensor: Tensor) -> _Saved:
            saved.append(_Saved(tensor))
            return saved[-1]

        outer = grad_mode.saved_hooks[-1]
        with saved_tensors_hooks(hold, _Saved.get):
            result = func(*args, **kwargs)
        answer = self.policy(SelectiveCheckpointContext(is_recompute=False, op_output=result), func, *args, **kwargs)
        keep = answer in _SAVING_POLICIES
        places = []
        for one in saved:
            place = _index_among(one.packed, given) if keep else None
            if place is not None:
                places.append(place)
            if place is not None or not keep:
                one.pack(*outer)
            else:  # of the result, or found on the way to it
                one.packed = one.packed.detach()
        self.storage[func].append(_KeptResult(result, places) if keep else None)
        return result


class _SecondRun(TorchDispatchMode):
    """Mode of the second run: returns the kept results, in the order of each operator's calls, and recomputes the others."""

    def __init__(self, storage: dict[Any, list], may_have_changed: bool) -> None:
        self.storage = storage
        self.may_have_changed = may_have_changed
        self.used: dict[Any, int] = defaultdict(int)

    def __enter__(self) -> Any:
        self.used.clear()
        return super().__enter__()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in SAC_IGNORED_OPS:
            return func(*args, **kwargs)
        kept = self._next(func)
        if kept is None:
            return func(*args, **kwargs)
        result = kept.get(self.may_have_changed)
        given, (pack, _) = _tensors(args, kwargs), grad_mode.saved_hooks[-1]
        for place in kept.saved_arguments:
            pack(given[place])
        return result

    def _next(self, func: Any) -> _KeptResult | None:
        calls, number = self.storage.get(func), self.used[func]
        self.used[func] += 1
        if calls is None:
            raise RuntimeError(f"{func} encountered during backward but not found in storage. {_CAUSE}")
        if number >= len(calls):
            raise RuntimeError(
                f"{func} invocation index {number} encountered during backward but not found in storage. {_CAUSE}"
            )
        kept = calls[number]
        if kept is _USED_UP:
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward once on any region computed under"
                " selective activation checkpoint."
            )
        if kept is not None:
            calls[number] = _USED_UP
        return kept


_USED_UP: Any = object()


def create_selective_checkpoint_contexts(policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False) -> tuple[Any, ...]:  # fmt: skip
    """Return two contexts for `checkpoint(..., context_fn=)`: results of some operators are kept and not recomputed.

    Pass the operators in a list, or a function `policy(context, operator, *args, **kwargs)` that returns a `CheckpointPolicy`.
    A kept tensor that is changed afterwards is an error unless `allow_cache_entry_mutation=True`.
    """
    if isinstance(policy_fn_or_list, list):
        policy: Callable = _policy_of(policy_fn_or_list)
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    storage: dict[Any, list] = defaultdict(list)
    return _FirstRun(policy, storage), _SecondRun(storage, allow_cache_entry_mutation)


def _policy_of(operators: list) -> Callable:
    for op in operators:
        if not isinstance(op, OpOverload | HigherOrderOperator):
            more = (
                "Please update the OpOverloadPacket to a specific OpOverload. For example, if you have `torch.ops.aten.mm`,"
                " change it to `torch.ops.aten.mm.default`."
                if isinstance(op, OpOverloadPacket)
                else ""
            )
            raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. {more}")

    def policy(context: SelectiveCheckpointContext, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if op in operators else CheckpointPolicy.PREFER_RECOMPUTE

    return policy
