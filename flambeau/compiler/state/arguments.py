"""Description of a call: its tensors, and a key of everything else that decides which recording fits."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...backends.cpu import heavy, threads
from ...core import settings
from ...core.casts import casts
from ...core.compile_options import generation
from ...core.device import default_device
from ...core.graph import INFERENCE, grad_mode
from ...core.promotion import get_default_dtype
from ...core.sharded import SpreadTensor
from ...core.tensor import Tensor
from ...nn.parameter import Parameter

ATOMS = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
_GPU_THREADS = f"{__name__.partition('.')[0]}.backends.nvidia.threads"
# Attributes of tensors that mark sizes; weakly dynamic ones are in the first, too.
DYNAMIC, STATIC, WEAK = "_dynamo_dynamic_indices", "_dynamo_static_indices", "_dynamo_weak_dynamic_indices"


class Arguments:
    """The tensors among the arguments of a call, and a key of everything else about them."""

    __slots__ = ("tensors", "key", "objects", "containers")

    def __init__(self, args: tuple, kwargs: dict):
        self.tensors: list[Tensor] = []
        self.objects: list[Any] = []  # that are neither tensors nor plain values
        self.containers: list[Any] = []  # lists and dicts, which a function may change
        parts = [self._describe(a) for a in args]
        if kwargs:
            parts.append(tuple([(name, self._describe(value)) for name, value in kwargs.items()]))
        self.key = (*parts, self._shared())

    def pattern(self, sizes_count: bool) -> tuple:
        """Return the key without the sizes of tensors, equal for calls that differ only in these. `mark_static` and
        `mark_dynamic` say of single sizes whether they count; `sizes_count` says it of the others."""
        return _general(self.key, iter(self.tensors), sizes_count)

    def plain(self, args: tuple) -> bool:
        """Return whether these arguments are all tensors that `Last` knows how to compare."""
        tensors = self.tensors
        if len(args) != len(tensors) or any(a is not t for a, t in zip(args, tensors)) or self.key[-1]:
            return False
        return all(
            type(t) is Tensor and t._autograd is None and t._base is None and not t.is_sparse and not t.__dict__
            for t in tensors
        )

    def _describe(self, value: Any) -> Any:
        kind = type(value)
        if kind is Tensor or kind is Parameter:
            self.tensors.append(value)
            meta = value._autograd
            if value.is_sparse:
                return "sparse"
            hooked = meta is not None and bool(meta.hooks or meta.post_hooks or meta.accumulator_hooks)
            history = (
                None if meta is None else (value.requires_grad + 2 * hooked, meta.grad_fn is None, layout_of(meta.grad))
            )
            base = value._base is not None and value._base.requires_grad
            flags: Any = base + 2 * (value._storage.version >= INFERENCE)
            if value.__dict__:
                flags = flags, self._attributes(value)
            return kind, value.shape, value._strides, value.dtype, value.device, history, flags
        if kind in ATOMS:
            return atom(value)
        if kind is list or kind is dict:
            self.containers.append(value)
        if kind is tuple or kind is list:
            return kind, tuple([self._describe(v) for v in value])
        if kind is dict:
            return kind, tuple([(self._describe_key(k), self._describe(v)) for k, v in value.items()])
        return self._describe_object(value)

    def _describe_key(self, key: Any) -> Any:
        """Describe a key of a dict: a key may be equal to another (1 and True) that cannot replace it."""
        kind = type(key)
        if kind is tuple or kind is frozenset:
            return kind, tuple([self._describe_key(k) for k in key])
        return atom(key) if kind in ATOMS else self._describe_object(key)

    def _describe_object(self, value: Any) -> tuple:
        if isinstance(value, np.generic):
            return type(value), value.dtype, value.tobytes()
        self.objects.append(value)  # kept together with the key, so that their ids stay unique
        return "object", id(value)

    def _attributes(self, t: Tensor) -> tuple:
        """Return the attributes that a program has set on a tensor."""
        found = []
        for name, value in t.__dict__.items():
            if name not in (DYNAMIC, STATIC, WEAK):
                if type(value) not in ATOMS:
                    self.objects.append(value)
                found.append((name, atom(value) if type(value) in ATOMS else id(value)))
        return tuple(found)

    def _shared(self) -> Any:
        """Describe which tensors share memory and at which offsets, and which tensors, lists and dicts are the same object."""
        tensors = self.tensors
        found: list[Any] = []
        if len(self.containers) > 1:
            first_of: dict[int, int] = {}
            for i, held in enumerate(self.containers):
                if first_of.setdefault(id(held), i) != i:
                    found.append((first_of[id(held)], i))
        if len(tensors) < 2:
            return tuple(found) or None
        seen: dict[int, int] = {}
        one: dict[int, int] = {}
        if any(t._storage.owner is not None for t in tensors if not t.is_sparse) and self._overlapping():
            found.append(id(self))  # unlike any other call
        for i, t in enumerate(tensors):
            at = getattr(t._storage, "ptr", 0) or 0
            first = seen.setdefault(at, i)
            if first != i and at:
                apart = t._offset * t.dtype.itemsize - tensors[first]._offset * tensors[first].dtype.itemsize
                found.append((first, i, apart, one.get(id(t))))
            elif id(t) in one:  # without memory
                found.append((one[id(t)], i))
            one.setdefault(id(t), i)
        return tuple(found)

    def _overlapping(self) -> bool:
        """Return whether the memory of two tensors overlaps, though their storages begin at different places."""
        storages = {t._storage.ptr: t._storage for t in self.tensors if not t.is_sparse}
        spans = sorted((s.ptr, s.ptr + s.size_bytes) for s in storages.values() if s.ptr)
        return any(a[1] > b[0] for a, b in zip(spans, spans[1:]))


def marked(tensors: list[Tensor]) -> bool:
    """Return whether a size of one of the tensors is marked as dynamic."""
    return any(t.__dict__ and DYNAMIC in t.__dict__ for t in tensors)


def _general(part: Any, tensors: Iterator[Tensor], sizes_count: bool) -> Any:
    """Return a part of a key without the sizes of tensors; `tensors` yields these in the order of the key."""
    if type(part) is not tuple:
        return part
    if len(part) == 7 and (part[0] is Tensor or part[0] is Parameter):
        t = next(tensors)
        fixed = t.__dict__.get(STATIC, frozenset()) if t.__dict__ else frozenset()
        free = t.__dict__.get(DYNAMIC, frozenset()) if t.__dict__ else frozenset()
        shape = tuple(
            n if n < 2 or i in fixed or (sizes_count and i not in free) else None for i, n in enumerate(part[1])
        )
        order = tuple(sorted(range(len(shape)), key=lambda i: (-part[2][i], i)))
        return (part[0], shape, order, t._contig, *part[3:5], general_history(part[5]), part[6])
    return tuple([_general(p, tensors, sizes_count) for p in part])


def atom(value: Any) -> tuple:
    """Return a plain value as a part of a key: equal only to values that can replace it (1 is not 1.0, and 0.0 is not -0.0)."""
    kind = type(value)
    if kind is float:
        return kind, value if value and value == value else repr(value)
    return kind, repr(value) if kind is complex else value


def layout_of(t: Any) -> Any:
    """Return shape, strides and dtype of a strided tensor without history; None for None."""
    if t is None:
        return None
    if t.is_sparse or not t.is_leaf:
        return "unusual"
    if isinstance(t, SpreadTensor):
        return t.shape, layout_of(t._beside(t))
    return t.shape, t._strides, t.dtype, t.requires_grad


def _chosen_gpu() -> int:
    """Return the index of the device that "cuda" means, 0 if GPUs are not in use."""
    room = sys.modules.get(_GPU_THREADS)
    return 0 if room is None else room.mine.chosen


def general_history(history: Any) -> Any:
    """Return the part of a tensor's history that does not depend on its sizes."""
    if history is None or history[2] is None or type(history[2]) is str:
        return history
    return (*history[:2], (len(history[2][0]), *history[2][2:]))


def settings_key() -> tuple:
    """Return the settings that decide what operators do."""
    cast = (casts.active, casts.switched, tuple(casts.dtypes.values()), casts.cache_enabled)
    state = settings._State
    return (
        grad_mode.enabled, grad_mode.inference, cast, get_default_dtype(), default_device(), threads.get_num_threads(),
        heavy._enabled, settings.matmul_switches.state, settings.matmul_switches.precision, settings.cudnn_switches.state(), _chosen_gpu(), state.deterministic, state.warn_only,
        state.fill_uninitialized_memory, state.warn_always, tuple(settings.attention_kernels.values()),
        threading.get_ident(), os.getpid(), generation[0],
    )  # fmt: skip
