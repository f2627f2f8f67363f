"""Operators that overwrite a tensor's values: copy_, fill_, zero_, fill_diagonal_."""

from __future__ import annotations

from typing import Any

from ...core.device import device
from ...core.dtype import dtype
from ...core.graph import grad_mode
from ...core.layout import broadcast_two
from ...core.promotion import scalar_dtype
from ...core.raw_memory import transfers
from ...core.tensor import Tensor
from ...core.tensor import empty as raw_empty
from ...core.typenames import type_name
from ..machinery.arguments import as_number
from ..machinery.declare import composite, internal
from ..machinery.dtype_rules import check_fits
from ..machinery.inplace import check_history_writable, check_partial_overlap, check_writable, raw_copy, rebase_history
from ..machinery.quirks import Quirks
from .convert import _convert_backward, _warn_of_imaginary_parts, converted, copy_raw
from .filled import fill_raw, layout_as, zeros_like


def _copied_backward(g: Tensor, src_shape: Any, src_dtype: dtype, src_device: device) -> Tensor:
    return _convert_backward(g.sum_to_size(src_shape), src_dtype, src_device)


@internal(
    grads={"input": lambda g: zeros_like(g), "src": _copied_backward},
    quirks=Quirks(label="CopyBackwards"),
    batching="each",
)
def copied(input: Tensor, src: Tensor) -> Tensor:
    """The value of `input` after copy_: src's values in input's shape and dtype (a node for autograd, without work)."""
    return input._bare_alias()


@composite(
    function=False,
    sharding="pointwise",
    formula=lambda self, src, non_blocking=False: raw_copy.op.formula(self, src),
    quirks=Quirks(numbers_as_tensors=True),
)
def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Copy the values of `src`, broadcast and converted."""
    if not isinstance(src, Tensor):
        if not isinstance(src, (int, float, complex)):
            raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type_name(src)}")
        kind = scalar_dtype(src)
        src = fill_raw(raw_empty((), kind, self.device), src)
    check_writable(self)
    if self.shape != src.shape and broadcast_two(self.shape, src.shape) != self.shape:
        raise RuntimeError(f"output with shape {list(self.shape)} doesn't match the broadcast shape {list(src.shape)}")
    if self is not src:
        check_partial_overlap(self, src)
        if src.dtype.is_complex:
            _warn_of_imaginary_parts(self.dtype)
    node = None
    if grad_mode.enabled and (self.requires_grad or src.requires_grad) and self.dtype.category > 1:
        node = copied(self, src).grad_fn
    if self is not src:
        if non_blocking and self.device is not src.device:
            before, transfers.wait = transfers.wait, False
            try:
                copy_raw(self, src)
            finally:
                transfers.wait = before
        else:
            copy_raw(self, src)
    self._bump("copy_")
    if node is not None:
        rebase_history(self, node, 0)
    return self


def _filled_layout(input: Tensor, value: Any) -> tuple[Any, ...]:
    return layout_as(input)


@internal(
    layout=_filled_layout,
    grads={"input": lambda g: zeros_like(g), "value": lambda g: g.sum()},
    quirks=Quirks(label="FillBackward1"),
    batching="each",
)
def filled_with(input: Tensor, value: Tensor) -> Tensor:
    """A tensor like `input` whose elements are all equal to the single element of `value`."""


filled_with.on("any")(lambda out, input, value: raw_copy(out, value))


@internal(
    layout=_filled_layout,
    grads={"input": lambda g: zeros_like(g)},
    quirks=Quirks(label="FillBackward0"),
    batching="each",
)
def filled_with_number(input: Tensor, value: complex) -> Tensor:
    """A tensor like `input` whose elements are `value`."""


filled_with_number.on("any")(lambda out, input, value: fill_raw(out, value))


def _fill_value(value: Any, d: dtype, name: str) -> Any:
    if isinstance(value, Tensor):
        if value.shape != ():
            raise RuntimeError(
                f"{name} only supports 0-dimension value tensor but got tensor with {len(value.shape)} dimensions."
            )
        return value
    return check_fits(as_number(value, name, "value", 2), d)


@composite
def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor like this one with every element `value`."""
    value = _fill_value(value, input.dtype, "fill")
    if isinstance(value, Tensor):
        return filled_with(input, converted(value, value.dtype, input.device))
    return filled_with_number(input, value)


def _overwrite(self: Tensor, value: Any, name: str) -> Tensor:
    """Set every element to `value`, a number or a 0-dim tensor."""
    tensor_value = isinstance(value, Tensor)
    if tensor_value:
        check_writable(self)
    else:
        check_history_writable(self)
    node = None
    if grad_mode.enabled and (self.requires_grad or (tensor_value and value.requires_grad)):
        node = _overwrite_node(self, value, name)
    if tensor_value:
        raw_copy(self, value)
    else:
        fill_raw(self, value)
    self._bump(name)
    if node is not None:
        rebase_history(self, node, 0)
    return self


@internal(grads={"input": lambda g: zeros_like(g)}, quirks=Quirks(label="FillBackward2"), batching="each")
def overwritten(input: Tensor) -> Tensor:
    return input._bare_alias()


@internal(
    grads={"input": lambda g: zeros_like(g), "value": lambda g: g.sum()},
    quirks=Quirks(label="FillBackward3"),
    batching="each",
)
def overwritten_with(input: Tensor, value: Tensor) -> Tensor:
    return input._bare_alias()


@internal(grads={"input": lambda g: zeros_like(g)}, quirks=Quirks(label="ZeroBackward0"), batching="each")
def zeroed(input: Tensor) -> Tensor:
    return input._bare_alias()


def _overwrite_node(self: Tensor, value: Any, name: str) -> Any:
    if name == "zero_":
        return zeroed(self).grad_fn
    return (overwritten_with(self, value) if isinstance(value, Tensor) else overwritten(self)).grad_fn


@composite(sharding="pointwise", formula=lambda self, value: fill_raw.op.formula(self, value))
def fill_(self: Tensor, value: Any) -> Tensor:
    """Set every element to `value`."""
    return _overwrite(self, _fill_value(value, self.dtype, "fill_"), "fill_")


@composite(sharding="pointwise", formula=lambda self: fill_raw.op.formula(self, 0))
def zero_(self: Tensor) -> Tensor:
    """Set every element to zero."""
    if self._autograd is None and self._base is None:
        check_history_writable(self)
        fill_raw(self, 0)
        self._bump("zero_")
        return self
    return _overwrite(self, 0, "zero_")


@composite(function=False)
def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Write `fill_value` on the main diagonal; `wrap` starts over below it in tall matrices."""
    n = len(self.shape)
    if n < 2:
        raise RuntimeError("dimensions must larger than 1")
    if n > 2 and len(set(self.shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    step, side = sum(self._strides), min(self.shape)
    cells = self.as_strided((side,), (step,), self._offset)
    _overwrite(cells, _fill_value(fill_value, self.dtype, "fill_diagonal_"), "fill_diagonal_")
    if wrap and n == 2 and self.shape[0] > self.shape[1] + 1:
        below = self[self.shape[1] + 1 :]
        fill_diagonal_(below, fill_value, True)
    return self
