"""Forms of plain tensors' operators for quantized tensors. Views of a tensor with one scale need no form: they are views of its codes (see
machinery.quantized_dispatch). Imported when an operator is first called on a quantized tensor."""

from __future__ import annotations

import functools
import math
from operator import add
from typing import Any, NoReturn

from ...core import dtype as dt
from ...core.layout import is_channels_last, wrap_dim
from ...core.quantized import CODE_DTYPES, QuantizedTensor, Quantizer, per_tensor, wrap
from ...core.tensor import Tensor, empty
from ..creation import convert, filled, memory, overwrite
from ..index import gather, indexing, masked, sort
from ..machinery.quantized_dispatch import on_codes, quantized_form
from ..pointwise import activation, comparison
from ..reduce import agreement, extremes, statistics, sums
from ..shape import dimensions, joining, parts, rearrange, reshape
from .codes import channel_codes, code_of, codes_of, quantized, values_of
from .tensors import check_dtype


def one_scale(t: Any, name: str) -> Quantizer:
    """Return the quantizer of a tensor that must have one scale."""
    if not t._quantizer.per_tensor:
        raise RuntimeError(
            f"{name} operator for quantized tensors only works for per tensor quantized tensors. Please open an issue on"
            " https://github.com/pytorch/pytorch/issues if you need per channel quantized tensor support."
        )
    return t._quantizer


# -- copies and moves --------------------------------------------------------------------------------------------------


def _same_elements(*operators: Any) -> None:
    """Declare the forms of operators that keep every element in its place: scales by channel are unchanged."""
    for operator in operators:

        def form(input: Any, *args: Any, _run: Any = operator, **kwargs: Any) -> Tensor:
            return wrap(_run(input._codes, *args, **kwargs), input._quantizer, input.dtype)

        quantized_form(operator)(form)


def _moved_elements(*operators: Any) -> None:
    for operator in operators:
        quantized_form(operator)(lambda *args, _run=operator, **kwargs: on_codes(_run, args, kwargs))


_same_elements(convert.clone, memory.alias, convert.detach)
_moved_elements(
    rearrange.flip, gather.index_select, indexing.index, rearrange.repeat, reshape.reshape, reshape.flatten, dimensions.permute,
    dimensions.movedim, parts.chunk, parts.split, parts.unbind, parts.tensor_split, dimensions.expand, rearrange.roll, rearrange.tile,
    masked.masked_select,
)  # fmt: skip


@quantized_form(convert.contiguous)
def contiguous(self: Any, *args: Any, **kwargs: Any) -> Tensor:
    codes = self._codes.contiguous(*args, **kwargs)
    return self if codes is self._codes else wrap(codes, self._quantizer, self.dtype)


@quantized_form(convert.to)
def to(self: Any, *args: Any, **kwargs: Any) -> Tensor:
    kind = next((a for a in (*args, kwargs.get("dtype")) if isinstance(a, dt.dtype)), None)
    if kind is not None and kind is not self.dtype:
        raise RuntimeError("Creation of quantized tensor requires quantized dtype like torch.quint8")
    args = tuple(a for a in args if not isinstance(a, dt.dtype))
    codes = (
        self._codes.to(*args, **{k: v for k, v in kwargs.items() if k != "dtype"}) if args or kwargs else self._codes
    )
    if codes is self._codes:
        return self
    q = self._quantizer
    if not q.per_tensor:
        q = Quantizer(q.scheme, q.scale.to(codes.device), q.zero_point.to(codes.device), q.axis)
    return wrap(codes, q, self.dtype)


@quantized_form(*dict.fromkeys(convert.CASTS.values()))
def _no_cast(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError("Creation of quantized tensor requires quantized dtype like torch.quint8")


@quantized_form(overwrite.copy_)
def copy_(self: Any, src: Any, non_blocking: bool = False) -> Tensor:
    if not isinstance(self, QuantizedTensor):
        raise RuntimeError(
            "Copying from quantized Tensor to non-quantized Tensor is not allowed, please use dequantize to get a float Tensor from"
            " a quantized Tensor"
        )
    if isinstance(src, QuantizedTensor):
        if src.dtype is not self.dtype:
            raise RuntimeError("Expected self.scalar_type() == src.scalar_type() to be true, but got false.")
        self._codes.copy_(src._codes)
        self._quantizer = src._quantizer
        return self
    if src.dtype is not dt.float32 or src.shape != self.shape:
        raise RuntimeError(
            f"Quantized copy only works with float32 tensors of the same shape, got {src.dtype} {list(src.shape)}"
        )
    q = self._quantizer
    codes = codes_of(src, q.scale, q.zero_point, self.dtype) if q.per_tensor else channel_codes(src, q, self.dtype)
    self._codes.copy_(codes)
    return self


@quantized_form(overwrite.fill_)
def fill_(self: Any, value: Any) -> Tensor:
    number = value.item() if isinstance(value, Tensor) else value
    q = self._quantizer
    if q.per_tensor:
        self._codes.fill_(code_of(number, q.scale, q.zero_point, self.dtype))
        return self
    filled_values = empty(self.shape, dt.float32, self.device).fill_(number)
    self._codes.copy_(channel_codes(filled_values, q, self.dtype))
    return self


@quantized_form(memory.resize_)
def resize_(self: Any, *size: Any, **kwargs: Any) -> Tensor:
    one_scale(self, "resize_")
    self._codes.resize_(*size, **kwargs)
    self._take(self._codes, self._quantizer, self.dtype)
    return self


@quantized_form(filled.empty_like)
def empty_like(input: Any, *, dtype: Any = None, memory_format: Any = None, **options: Any) -> Tensor:
    check_dtype(dtype or input.dtype, "empty_like")
    kind = dtype or input.dtype
    if kind is not input.dtype:
        raise RuntimeError(
            "It is currently not supported to specify a dtype that doesn't match the input tensor's dtype via empty_like.  Specified:"
            f" c10::{kind.name} Input tensor's dtype: c10::{input.dtype.name}"
        )
    given = {"memory_format": memory_format} if memory_format is not None else {}
    return wrap(filled.empty_like(input._codes, dtype=CODE_DTYPES[kind], **given), input._quantizer, kind)


@quantized_form(filled.full_like, filled.ones_like)
def full_like(input: Any, fill_value: Any = 1, **options: Any) -> Tensor:
    return fill_(empty_like(input, **{k: v for k, v in options.items() if k == "memory_format"}), fill_value)


# -- parts of tensors with scales by channel ----------------------------------------------------------------------------


@quantized_form(dimensions.select)
def select(input: Any, dim: int, index: int) -> Tensor:
    q, codes = input._quantizer, input._codes.select(dim, index)
    if q.per_tensor:
        return wrap(codes, q, input.dtype)
    dim = wrap_dim(dim, len(input.shape))
    if dim != q.axis:
        return wrap(codes, q.along(q.axis - (dim < q.axis)), input.dtype)
    return per_tensor(codes, float(q.scale[index]), int(q.zero_point[index]), input.dtype)


@quantized_form(dimensions.slice_dim)
def slice_dim(input: Any, dim: int, start: Any, stop: Any, step: Any) -> Tensor:
    if input._quantizer.per_tensor:
        return on_codes(dimensions.slice_dim, (input, dim, start, stop, step), {})
    return input[(slice(None),) * dim + (slice(start, stop, step),)]


@quantized_form(dimensions.unsqueeze)
def unsqueeze(input: Any, dim: int) -> Tensor:
    q, codes = input._quantizer, input._codes.unsqueeze(dim)
    if q.per_tensor:
        return wrap(codes, q, input.dtype)
    return wrap(codes, q.along(q.axis + (wrap_dim(dim, len(input.shape) + 1) <= q.axis)), input.dtype)


@quantized_form(dimensions.squeeze)
def squeeze(input: Any, *dims: Any) -> Tensor:
    q, codes = input._quantizer, input._codes.squeeze(*dims)
    if q.per_tensor:
        return wrap(codes, q, input.dtype)
    given = dims[0] if dims and isinstance(dims[0], (tuple, list)) else dims or range(len(input.shape))
    gone = [d for d in (wrap_dim(g, len(input.shape)) for g in given) if input.shape[d] == 1]
    if q.axis in gone:
        raise RuntimeError("Squeeze is only possible on non-axis dimension for Per-Channel Quantized Tensors.")
    return wrap(codes, q.along(q.axis - sum(d < q.axis for d in gone)), input.dtype)


@quantized_form(reshape.view_shape, reshape.view_)
def view(input: Any, *shape: Any, **kwargs: Any) -> Tensor:
    q, codes = input._quantizer, input._codes.view(*shape, **kwargs)
    if not q.per_tensor and (q.axis >= len(codes.shape) or codes.shape[q.axis] != len(q.scale)):
        size = codes.shape[q.axis] if q.axis < len(codes.shape) else 0
        raise RuntimeError(f"length of scales must equal to channel, expected {size} got, {len(q.scale)}")
    return wrap(codes, q, input.dtype)


# -- joining and comparing ----------------------------------------------------------------------------------------------


@quantized_form(joining.cat)
def cat(tensors: Any, dim: int = 0) -> Tensor:
    """Concatenate quantized tensors; the result has the scale of the first."""
    for t in tensors:
        if not isinstance(t, QuantizedTensor) or not t._quantizer.per_tensor:
            raise RuntimeError("Only per-tensor quantization is supported in 'cat'!")
        if t.dtype is not tensors[0].dtype:
            raise RuntimeError("Expected qx.scalar_type() == x_dtype to be true, but got false.")
    q, d = tensors[0]._quantizer, tensors[0].dtype
    return joined(tensors, dim, q.scale, q.zero_point, d)


def joined(tensors: Any, dim: int, scale: float, zero_point: int, d: Any, relu: bool = False) -> Tensor:
    """Concatenate tensors with one scale; tensors that have that scale already keep their codes."""
    codes = []
    for t in tensors:
        q = t._quantizer
        same = float(q.scale) == float(scale) and q.zero_point == zero_point
        codes.append(t._codes if same else codes_of(values_of(t), scale, zero_point, d))
    whole = joining.cat(codes, dim)
    return per_tensor(whole.clamp(min=zero_point) if relu else whole, scale, zero_point, d)


def _plain(x: Any) -> Any:
    return values_of(x) if isinstance(x, QuantizedTensor) else x


for _compare in (comparison.eq, comparison.ne, comparison.lt, comparison.le, comparison.gt, comparison.ge):
    quantized_form(_compare)(lambda input, other, _run=_compare, **kwargs: _run(_plain(input), _plain(other), **kwargs))


@quantized_form(agreement.equal)
def equal(input: Any, other: Any) -> bool:
    if not (isinstance(input, QuantizedTensor) and isinstance(other, QuantizedTensor)):
        return False
    a, b = input._quantizer, other._quantizer
    if input.dtype is not other.dtype or a.scheme is not b.scheme or a.axis != b.axis:
        return False
    if a.per_tensor:
        same = a.scale == b.scale and a.zero_point == b.zero_point
    else:
        same = agreement.equal(a.scale, b.scale) and agreement.equal(a.zero_point, b.zero_point)
    return same and agreement.equal(input._codes, other._codes)


# -- order: codes are ordered as their values ----------------------------------------------------------------------------


def _ordering(operator: Any, label: str) -> None:
    def form(input: Any, *args: Any, **kwargs: Any) -> Any:
        one_scale(input, label)
        return on_codes(operator, (input, *args), kwargs)

    quantized_form(operator)(form)


for _op, _label in ((extremes.max_, "Max"), (extremes.min_, "Min"), (sort.sort, "Sort"), (sort.topk, "Topk")):
    _ordering(_op, _label)


@quantized_form(comparison.clamp)
def clamp(input: Any, min: Any = None, max: Any = None) -> Tensor:
    q = one_scale(input, "clamp")
    low, high = (None if x is None else code_of(x, q.scale, q.zero_point, input.dtype) for x in (min, max))
    return per_tensor(input._codes.clamp(low, high), q.scale, q.zero_point, input.dtype)


@quantized_form(activation.relu)
def relu(input: Any) -> Tensor:
    q = one_scale(input, "relu")
    return per_tensor(input._codes.clamp(min=q.zero_point), q.scale, q.zero_point, input.dtype)


@quantized_form(activation.relu.op.inplace)
def relu_(input: Any) -> Tensor:
    input._codes.clamp_(min=one_scale(input, "relu_").zero_point)
    return input


@quantized_form(masked.masked_fill)
def masked_fill(input: Any, mask: Tensor, value: Any) -> Tensor:
    q = one_scale(input, "masked_fill")
    number = value.item() if isinstance(value, Tensor) else value
    return per_tensor(
        input._codes.masked_fill(mask, code_of(number, q.scale, q.zero_point, input.dtype)),
        q.scale,
        q.zero_point,
        input.dtype,
    )


@quantized_form(joining.stack)
def stack(tensors: Any, dim: int = 0) -> Tensor:
    return cat([t.unsqueeze(dim) for t in tensors], wrap_dim(dim, len(tensors[0].shape) + 1))


@quantized_form(masked.masked_fill.op.inplace)
def masked_fill_(input: Any, mask: Tensor, value: Any) -> Tensor:
    q = one_scale(input, "masked_fill_")
    number = value.item() if isinstance(value, Tensor) else value
    input._codes.masked_fill_(mask, code_of(number, q.scale, q.zero_point, input.dtype))
    return input


@quantized_form(indexing.index_put)
def index_put(input: Any, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    if accumulate:
        raise RuntimeError("index_put for quantized tensors is currently only supported for accumulate=False")
    q = one_scale(input, "index_put")
    codes = codes_of(_plain(values).to(dt.float32), q.scale, q.zero_point, input.dtype)
    return per_tensor(indexing.index_put(input._codes, indices, codes), q.scale, q.zero_point, input.dtype)


# -- computed on values --------------------------------------------------------------------------------------------------


def _on_values(operator: Any, label: str) -> None:
    """Declare the form of an operator on the values, quantized with the same scale."""

    def form(input: Any, *args: Any, **kwargs: Any) -> Tensor:
        q = one_scale(input, label)
        return quantized(operator(values_of(input), *args, **kwargs), q.scale, q.zero_point, input.dtype)

    quantized_form(operator)(form)


_on_values(statistics.std, "std")


@quantized_form(sums.mean)
def mean(input: Any, dim: Any = None, keepdim: bool = False, **options: Any) -> Tensor:
    """The mean of a quantized tensor. PyTorch has a kernel for codes whose last dimensions are averaged; others are averages of values,
    summed in an order on which ties depend: that is followed for channels-last feature maps."""
    q = one_scale(input, "mean")
    rank = len(input.shape)
    given = [dim] if isinstance(dim, int) else dim or range(rank)  # none of them means all
    dims = sorted(wrap_dim(d, rank) for d in given)
    count = math.prod(input.shape[d] for d in dims)
    if input._codes._contig and not options.get("dtype") and dims == list(range(rank - len(dims), rank)):
        whole = input._codes.sum(dims, keepdim, dtype=dt.int32)
        return per_tensor(
            (whole.to(dt.float32) / count).round().to(input._codes.dtype), q.scale, q.zero_point, input.dtype
        )
    values = values_of(input)
    if rank == 4 and dims == [2, 3] and is_channels_last(values.shape, values._strides):
        total = _cascade(list(values.flatten(2).unbind(2))).div(count)
        total = total[:, :, None, None] if keepdim else total
    else:
        total = sums.mean(values, dims, keepdim, **options)
    return quantized(total, q.scale, q.zero_point, input.dtype)


def _cascade(rows: list[Tensor]) -> Tensor:
    """Return the sum of tensors in the order of PyTorch's kernel for up to 256: sixteen at a time, the rest, then the sums of sixteen."""
    whole = len(rows) // 16 * 16
    parts = [functools.reduce(add, rows[i : i + 16]) for i in range(0, whole, 16)]
    rest = rows[whole:] or [rows[0] * 0]
    return functools.reduce(add, [*rest, functools.reduce(add, parts)] if parts else rest)
