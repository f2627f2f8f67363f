"""The state before a call that is captured (host memory, versions, gradients, random generators), saved so that it can be restored."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from ...core.backend import backend_of
from ...core.device import cpu, device
from ...core.tensor import Tensor
from ..record.preparation import Prepared
from .values import Bytes, Copy, sums


class LeftState:
    """State besides gradients and device memory that a call changes: host memory, versions, positions of random generators."""

    def __init__(self, prepared: Prepared, where: device):
        memory = [s for s in prepared.storages.values() if s.device is cpu and s.ptr]
        self.bytes = [(s.ptr, ctypes.string_at(s.ptr, s.size_bytes)) for s in memory]
        self.versions = [(s, s.version) for s in prepared.storages.values()]
        self.generator: Any = backend_of(where).generator(where)
        self.mark = self.generator.state_bytes()

    def put_back(self) -> None:
        for place, old in self.bytes:
            ctypes.memmove(place, old, len(old))
        for storage, version in self.versions:
            storage.version = version
        self.generator.set_state_bytes(self.mark)


class StateBefore:
    """Snapshot of the state before a call, which `restore` writes back."""

    def __init__(self, prepared: Prepared, where: device, read: set[int], arguments: list[Tensor]):
        self.left = LeftState(prepared, where)
        leaves = {id(t): t for t in (*prepared.state, *arguments) if t.is_leaf}
        self.grads = [_Gradient(t, id(t) in read) for t in leaves.values()]
        self.tensors = [t for t in prepared.state if t.device is not cpu and t._storage.ptr]
        held = {id(t._storage) for t in self.tensors}
        kept = [g.kept for g in self.grads if g.kept is not None and _on_device(g.kept)]
        self.tensors += [g for g in kept if id(g._storage) not in held]
        self.copies = [Copy(t) for t in self.tensors]
        self.sums = [sums(t) for t in self.tensors]

    def restore(self, gradients: bool, has_run: bool = True) -> None:
        """Restore the state; `has_run` says whether the call has run on the device, so that values there must be written back, too."""
        for gradient in self.grads:
            gradient.put_back(gradients)
        for copy in self.copies if has_run else ():
            copy.put_back()
        self.left.put_back()


class _Gradient:
    """The gradient of a leaf before a call. A gradient that the function does not read may be freed meanwhile, as in an eager call;
    then `put_back` sets a new tensor with its values."""

    def __init__(self, leaf: Tensor, is_read: bool):
        grad: Any = leaf.grad
        self.leaf = leaf
        self.kept = grad if is_read or not _on_device(grad) else None
        self.loose = None if self.kept is grad else weakref.ref(grad)
        self.bytes = None if self.kept is grad else Bytes(grad)

    def _value_before(self) -> Tensor | None:
        return self.kept if self.loose is None else self.loose()

    def is_new(self) -> bool:
        """Return whether the leaf has another gradient now."""
        old = self._value_before()
        return self.leaf.grad is not old or (old is None and self.loose is not None)

    def now(self) -> Bytes | None:
        """Return a copy on the host of the gradient that the leaf has now."""
        grad: Any = self.leaf.grad
        return Bytes(grad) if _on_device(grad) or (grad is not None and not grad.numel()) else None

    def put_back(self, with_values: bool) -> None:
        old = self._value_before()
        if self.bytes is not None and (old is None or (with_values and not old._storage.ptr)):
            old = self.bytes.tensor(with_values)
            self.loose = weakref.ref(old)
        if self.leaf.grad is not old:
            self.leaf.grad = old


def _on_device(t: Any) -> bool:
    return t is not None and not t.is_sparse and t.device is not cpu and bool(t._storage.ptr)
