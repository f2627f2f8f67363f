"""The tensors that a function under `vmap` gets: one element of a batch, standing for all of them.

A batched tensor is a header over another tensor, its *value*, with one dimension hidden. It has no memory of its own: code for strided memory
that reads one raises `BatchedOperand` before it can touch anything. Operators never get that far: the level that made it (a mode, see
`func.batching`) intercepts every call and runs it on the values. Autograd records only values, so the autograd fields of a batched tensor are
those of its value."""

from __future__ import annotations

from typing import Any

from .absent import unreadable
from .graph import AutogradState, Node
from .overrides import disabled_torch_function
from .size import make_size
from .tensor import Tensor

_new_object = object.__new__


class VmapRefusal(RuntimeError):
    """Raised for what cannot be done to a whole batch at once. An operator that contains it is run element by element instead."""


class BatchedOperand(VmapRefusal):
    """Raised when code for strided memory reads a batched tensor."""


VmapRefusal.__name__ = BatchedOperand.__name__ = "RuntimeError"  # what a traceback shows
VmapRefusal.__qualname__ = BatchedOperand.__qualname__ = "RuntimeError"


class BatchedTensor(Tensor):
    """A tensor under vmap: one element of the batch along dimension `_hidden` of `_value`; `_level` is the vmap call it belongs to."""

    __slots__ = ("_value", "_hidden", "_level")
    __torch_function__ = disabled_torch_function

    _value: Tensor
    _hidden: int
    _level: Any

    _strides, _offset, _contig, _storage = unreadable(
        lambda t, what: BatchedOperand(f"vmap: a tensor inside vmap has no {what} of its own"), "memory"
    )

    @property
    def _autograd(self) -> AutogradState | None:
        return self._value._autograd

    @_autograd.setter
    def _autograd(self, meta: AutogradState | None) -> None:
        self._value._autograd = meta

    @property
    def _base(self) -> Tensor | None:  # type: ignore[override]
        return None

    @property
    def grad_fn(self) -> Node | None:
        return self._value.grad_fn

    @property
    def _version(self) -> int:
        return self._value._version

    def _array(self) -> Any:
        raise BatchedOperand(
            "vmap: a tensor inside vmap cannot be converted to a NumPy array: it stands for a whole batch"
        )

    def _view(self, shape: Any, strides: tuple[int, ...], offset: int) -> Tensor:
        raise BatchedOperand("vmap: a tensor inside vmap has no strided views of its own")

    def _bare_alias(self) -> Tensor:
        return batched(self._value._bare_alias(), self._hidden, self._level)

    def _adopt(self, other: Tensor) -> None:
        raise BatchedOperand("vmap: the data of a tensor inside vmap cannot be replaced")

    def data_ptr(self) -> int:
        raise BatchedOperand("vmap: Cannot access data pointer of a Tensor that stands for a batch")

    def storage_offset(self) -> int:
        return self._value.storage_offset()

    def stride(self, dim: Any = None) -> Any:
        strides = list(self._value.stride())
        del strides[self._hidden]
        return tuple(strides) if dim is None else strides[dim]

    def is_contiguous(self, memory_format: Any = None) -> bool:
        front = self._value.movedim(self._hidden, 0)
        return front.is_contiguous() if memory_format is None else front.is_contiguous(memory_format=memory_format)

    def __bool__(self) -> bool:
        raise VmapRefusal(
            "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that:"
            " inside vmap a tensor stands for a whole batch. Use torch.where, or compute both branches."
        )

    @property  # type: ignore[misc]
    def data(self) -> Tensor:
        return self.detach()

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        shown = "\n    ".join(repr(self._value).split("\n"))
        return f"BatchedTensor(lvl={self._level.depth}, bdim={self._hidden}, value=\n    {shown}\n)"

    def __format__(self, spec: str) -> str:
        return repr(self)


def batched(value: Tensor, hidden: int, level: Any) -> BatchedTensor:
    """Return a header that hides dimension `hidden` of `value`."""
    t = _new_object(BatchedTensor)
    shape = value.shape
    t.shape = make_size((*shape[:hidden], *shape[hidden + 1 :]))
    t.dtype, t.device = value.dtype, value.device
    t._value, t._hidden, t._level = value, hidden, level
    return t
