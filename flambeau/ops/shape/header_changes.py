"""In-place changes of shape: squeeze_, unsqueeze_, t_, transpose_, as_strided_ replace a tensor's header."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.tensor import Tensor
from ..machinery.declare import composite, view
from ..machinery.inplace import check_history_writable
from ..machinery.quirks import Quirks
from .dimensions import squeeze_argument, squeezed, swapped, unsqueezed
from .strided import as_strided as as_strided_view
from .strided import strided_geometry


def _recorded(geometry: Callable[..., Any], grad: Callable[..., Any], label: str) -> Any:
    """Return the view that the in-place form records: for autograd the new shape is an operation on the old tensor."""

    def changed(input: Tensor, *arguments: Any) -> Tensor:
        return input._view(*geometry(input, *arguments))

    return view(
        changed,
        grads={"input": grad},
        quirks=Quirks(label=label),
        function=False,
        method=False,
        name="_" + label,
        batching="each",
    )


def _restore(g: Any, input_shape: Any) -> Any:
    return g.reshape(input_shape)


_squeezed = [_recorded(squeezed, _restore, f"SqueezeBackward{i}") for i in (3, 4, 5)]
_unsqueezed = _recorded(unsqueezed, _restore, "UnsqueezeBackward1")
_swapped = _recorded(swapped, lambda g, arguments: g.transpose(*arguments), "TransposeBackward1")
_turned = _recorded(swapped, lambda g: g.t(), "TBackward1")


def change_header(self: Tensor, record: Callable[..., Any], name: str, *arguments: Any) -> Tensor:
    """Set the tensor's geometry and history to those of a view of it."""
    check_history_writable(self)
    result = record(self, *arguments)
    self.shape, self._strides, self._offset, self._contig = (
        result.shape,
        result._strides,
        result._offset,
        result._contig,
    )
    self._bump(name)
    if result._autograd is not None and result._autograd.grad_fn is not None:
        meta = self._ensure_autograd()
        meta.grad_fn, meta.output_nr = result._autograd.grad_fn, 0
        meta.view_version = meta.rebase_version = self._storage.version
    return self


@composite(function=False, sharding="header")
def squeeze_(self: Tensor, *dim: Any) -> Tensor:
    """Drop size-one dimensions (all, or the given ones)."""
    which = None if not dim else dim[0] if len(dim) == 1 else dim
    record = _squeezed[0 if which is None else 1 if isinstance(which, int) else 2]
    return change_header(self, record, "squeeze_", squeeze_argument(which, len(self.shape)))


@composite(function=False, sharding="header")
def unsqueeze_(self: Tensor, dim: int) -> Tensor:
    """Add a dimension of size one."""
    return change_header(self, _unsqueezed, "unsqueeze_", dim)


@composite(function=False, aliases=("swapaxes_", "swapdims_"))
def transpose_(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """Exchange two dimensions."""
    return change_header(self, _swapped, "transpose_", dim0, dim1)


@composite(function=False, sharding="header")
def t_(self: Tensor) -> Tensor:
    """Transpose a matrix."""
    if len(self.shape) > 2:
        raise RuntimeError(f"t_() expects a tensor with <= 2 dimensions, but self is {len(self.shape)}D")
    return change_header(self, _turned, "t_", 0, 0 if len(self.shape) < 2 else 1)


@composite
def as_strided_(self: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """Change shape, strides and offset in the same storage."""
    strided_geometry(self, size, stride, storage_offset, "as_strided_")
    return change_header(self, as_strided_view, "as_strided_", size, stride, storage_offset)
