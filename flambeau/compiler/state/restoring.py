"""Restoring of guarded objects, after a function has run only to show its native calls: nothing that it has changed may stay."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import gc
from collections.abc import Iterator
from typing import Any

from ...core.generator import Generator, default_generator
from ...core.storage import UntypedStorage
from ...core.tensor import is_contiguous_layout
from ...graph.recorder import NotRecordable
from . import guards
from .guards import MISSING, same
from .reach import Reach

_SMALL = 1024  # bytes of a tensor that the host may write to


@contextlib.contextmanager
def put_back(reach: Reach, generators: list[Generator]) -> Iterator[None]:
    """Context manager: restore on exit Python's state, gradients, versions, the states of generators, and small tensors, since step counts of
    optimizers are written by the host itself. Raise NotRecordable if Python's state has changed: a function may store a size."""
    tensors = [t for _, t in reach.tensors.values()]
    grads = [(t, t.grad) for t in tensors if t.is_leaf]
    held = {id(t._storage): t._storage for t in [*tensors, *(g for _, g in grads if g is not None and not g.is_sparse)]}
    versions = [(s, s.version) for s in held.values()]
    small = [(s.ptr, ctypes.string_at(s.ptr, s.size_bytes)) for s in held.values() if s.ptr and s.size_bytes <= _SMALL]
    marks = [(g, g.state_bytes()) for g in {id(g): g for g in (default_generator, *generators)}.values()]
    roots = [s.owner if isinstance(s.owner, UntypedStorage) else s for s in held.values()]
    movable = {id(root): root for root in roots if not getattr(root, "fixed", False)}
    for root in movable.values():
        root.fixed = True
    try:
        yield
    finally:
        for root in movable.values():
            del root.fixed
        for t, grad in grads:
            if t.grad is not grad:
                t.grad = grad
        changed = [(item, why) for item in reach.items if (why := item.difference())]
        for item, _ in changed:
            _restore(item)
        for address, old in small:
            ctypes.memmove(address, old, len(old))
        for storage, version in versions:
            storage.version = version
        for generator, mark in marks:
            generator.set_state_bytes(mark)
    if changed:
        raise NotRecordable(f"it changes Python's state: {changed[0][1]}")


def _restore(item: guards.Item) -> None:
    """Give the object that an item guards the contents that the item has seen."""
    if isinstance(item, guards.DictItem):
        _restore_entries(item)
    elif isinstance(item, guards.CollectionItem):
        kind: Any = collections.deque if isinstance(item.held, collections.deque) else set
        kind.clear(item.held)
        (kind.update if kind is set else kind.extend)(item.held, item.seen)
    elif isinstance(item, guards.ListItem):
        list.__setitem__(item.held, slice(None), item.seen)
    elif isinstance(item, guards.CellItem):
        item.held.cell_contents = item.seen
    elif isinstance(item, guards.SlotsItem) and not isinstance(item.held, type):
        for name, old in zip(item.names, item.seen):
            if not same(old, getattr(item.held, name, MISSING)):
                object.__delattr__(item.held, name) if old is MISSING else object.__setattr__(item.held, name, old)
    elif isinstance(item, guards.TensorItem):
        t = item.held
        t._storage, t._autograd = item.storage, item.autograd
        _, t.shape, t._strides, t._offset, t.dtype, _, _, t._base = item.seen
        t._contig = is_contiguous_layout(t.shape, t._strides)
    elif isinstance(item, guards.AutogradItem):
        item.held.requires_grad, item.held.grad_fn = item.seen[:2]


def _restore_entries(item: guards.DictItem) -> None:
    held = item.held
    cls = next((c for c in gc.get_referrers(held) if isinstance(c, type)), None) if "__module__" in held else None
    kind: Any = collections.OrderedDict if isinstance(held, collections.OrderedDict) else dict
    if item.names is None and cls is None:
        kind.clear(held)
        kind.update(held, item.seen)
        return
    # A class keeps what is looked up in its dict: it is asked itself.
    write, drop = (kind.__setitem__, kind.__delitem__) if cls is None else (type.__setattr__, type.__delattr__)
    for name, (old, _) in item.changed().items():
        drop(cls or held, name) if old is MISSING else write(cls or held, name, old)
