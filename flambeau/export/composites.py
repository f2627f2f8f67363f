"""What operators are made of. An entry is a function that makes the calls of other operators."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import flambeau

from ..core.tensor import Tensor
from ..library.aten import OpOverload, aten, recording

_COMPOSITE: dict[str, Callable] = {}
_CORE: dict[str, Callable] = {}


def composite(*names: str) -> Callable[[Callable], Callable]:
    """An entry for operators that PyTorch itself takes apart before they reach a kernel."""
    return _entry(_COMPOSITE, names)


def core(*names: str) -> Callable[[Callable], Callable]:
    """An entry for operators that are not among PyTorch's core ones."""
    return _entry(_CORE, names)


def _entry(table: dict[str, Callable], names: tuple[str, ...]) -> Callable[[Callable], Callable]:
    def note(function: Callable) -> Callable:
        for name in names:
            table[name] = function
        return function

    return note


def _overload(name: str) -> OpOverload:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload)


def composite_table() -> dict[Any, Callable]:
    """What composite operators are made of."""
    from . import recurrent  # noqa: F401, PLC0415  it adds entries, and imports this module

    return {_overload(name): function for name, function in _COMPOSITE.items()}


def core_table() -> dict[Any, Callable]:
    """What all but PyTorch's core operators are made of."""
    return {**composite_table(), **{_overload(name): function for name, function in _CORE.items()}}


# -- shapes ---------------------------------------------------------------------------------------------------------------


@composite("flatten.using_ints")
def _flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    rank = self.dim()
    if rank == 0:
        return _reshape(self, [1])
    start, end = start_dim % rank, end_dim % rank
    if start == end:
        return self
    size = list(self.shape)
    return _reshape(self, size[:start] + [math.prod(size[start : end + 1])] + size[end + 1 :])


@composite("reshape.default")
def _reshape(self: Tensor, shape: list[int]) -> Tensor:
    if recording.recorder.unseen(_can_view, self, shape):
        return aten.view.default(self, shape)
    return aten._unsafe_view.default(aten.clone.default(self, memory_format=flambeau.contiguous_format), shape)


def _can_view(self: Tensor, shape: list[int]) -> bool:
    try:
        self.detach().view(shape)
    except RuntimeError:
        return False
    return True


@composite("view_as.default")
def _view_as(self: Tensor, other: Tensor) -> Tensor:
    return aten.view.default(self, list(other.shape))


@composite("expand_as.default")
def _expand_as(self: Tensor, other: Tensor) -> Tensor:
    return aten.expand.default(self, list(other.shape))


@composite("numpy_T.default")
def _numpy_t(self: Tensor) -> Tensor:
    return aten.permute.default(self, list(range(self.dim() - 1, -1, -1)))


@composite("contiguous.default")
def _contiguous(self: Tensor, *, memory_format: Any = flambeau.contiguous_format) -> Tensor:
    return aten.clone.default(self, memory_format=memory_format)


@composite("chunk.default")
def _chunk(self: Tensor, chunks: int, dim: int = 0) -> Any:
    length = self.size(dim)
    size = -(-length // chunks)
    return aten.split.Tensor(self, size, dim)


@composite("narrow.default")
def _narrow(self: Tensor, dim: int, start: int, length: int) -> Tensor:
    return aten.slice.Tensor(self, dim, start, start + length)


@composite("broadcast_tensors.default")
def _broadcast_tensors(tensors: list[Tensor]) -> list[Tensor]:
    shape = flambeau.broadcast_shapes(*(t.shape for t in tensors))
    return [t if t.shape == shape else aten.expand.default(t, list(shape)) for t in tensors]


@composite("to.dtype", "to.device", "to.dtype_layout", "to.other", "type_as.default")
def _to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    wanted = next((a for a in args if isinstance(a, flambeau.dtype)), kwargs.get("dtype"))
    other = next((a for a in args if isinstance(a, Tensor)), None)
    wanted = other.dtype if other is not None else wanted
    copy = kwargs.get("copy", False)
    if (wanted is None or wanted == self.dtype) and not copy:
        return self
    return aten._to_copy.default(self, dtype=wanted)


@composite("lift_fresh.default")
def _lift_fresh(self: Tensor) -> Tensor:
    return self


@core("t.default")
def _t(self: Tensor) -> Tensor:
    return aten.permute.default(self, [1, 0]) if self.dim() == 2 else self


@core("transpose.int")
def _transpose(self: Tensor, dim0: int, dim1: int) -> Tensor:
    dims = list(range(self.dim()))
    dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return aten.permute.default(self, dims)


@core("_unsafe_view.default")
def _unsafe_view(self: Tensor, size: list[int]) -> Tensor:
    return aten.view.default(self, size)


@core("split.Tensor")
def _split(self: Tensor, split_size: int, dim: int = 0) -> Any:
    length = self.size(dim)
    sizes = [min(split_size, length - start) for start in range(0, length, split_size)]
    return aten.split_with_sizes.default(self, sizes, dim)


@core("unbind.int")
def _unbind(self: Tensor, dim: int = 0) -> Any:
    pieces = [aten.slice.Tensor(self, dim, i, i + 1) for i in range(self.size(dim))]
    return [aten.squeeze.dim(piece, dim) for piece in pieces]


@core("stack.default")
def _stack(tensors: list[Tensor], dim: int = 0) -> Tensor:
    rank = tensors[0].dim() + 1
    dim %= rank
    if dim == rank - 1:
        return aten.cat.default([aten.unsqueeze.default(t, dim) for t in tensors], dim)
    shape = list(tensors[0].shape)
    return aten.view.default(aten.cat.default(tensors, dim), [*shape[:dim], len(tensors), *shape[dim:]])


@core("squeeze.dim")
def _squeeze(self: Tensor, dim: int) -> Tensor:
    return aten.squeeze.dims(self, [dim])


# -- products -------------------------------------------------------------------------------------------------------------


@composite("linear.default")
def _linear(input: Tensor, weight: Tensor, bias: Any = None) -> Tensor:
    if input.dim() != 2 and not input.is_contiguous():
        product = _matmul(input, aten.t.default(weight))
        return product if bias is None else aten.add.Tensor(product, bias)
    flat = input if input.dim() == 2 else aten.view.default(input, [math.prod(input.shape[:-1]), input.size(-1)])
    transposed = aten.t.default(weight)
    product = aten.mm.default(flat, transposed) if bias is None else aten.addmm.default(bias, flat, transposed)
    return product if input.dim() == 2 else aten.view.default(product, [*input.shape[:-1], weight.size(0)])


@composite("matmul.default")
def _matmul(self: Tensor, other: Tensor) -> Tensor:
    if self.dim() == 1 and other.dim() == 1:
        return aten.dot.default(self, other)
    if self.dim() == 2 and other.dim() == 1:
        return aten.mv.default(self, other)
    if self.dim() == 1 and other.dim() == 2:
        return aten.squeeze.dim(aten.mm.default(aten.unsqueeze.default(self, 0), other), 0)
    if self.dim() == 2 and other.dim() == 2:
        return aten.mm.default(self, other)
    if self.dim() >= 3 and other.dim() in (1, 2) and _folds(self):
        return _folded_product(self, other)
    return _batched_product(self, other)


def _folds(self: Tensor) -> bool:
    """Whether all dimensions but the last are one, in memory."""
    shape, strides = self.shape, self.stride()
    return all(strides[d] == strides[d + 1] * shape[d + 1] for d in range(self.dim() - 2))


def _folded_product(self: Tensor, other: Tensor) -> Tensor:
    flat = _reshape(self, [-1, self.size(-1)])
    if other.dim() == 1:
        return aten._unsafe_view.default(aten.mv.default(flat, other), list(self.shape[:-1]))
    return aten._unsafe_view.default(aten.mm.default(flat, other), [*self.shape[:-1], other.size(-1)])


def _batched_product(self: Tensor, other: Tensor) -> Tensor:
    left = aten.unsqueeze.default(self, 0) if self.dim() == 1 else self
    right = aten.unsqueeze.default(other, 1) if other.dim() == 1 else other
    batch = list(flambeau.broadcast_shapes(left.shape[:-2], right.shape[:-2]))
    count = math.prod(batch)
    a = _reshape(aten.expand.default(left, [*batch, *left.shape[-2:]]), [count, *left.shape[-2:]])
    b = _reshape(aten.expand.default(right, [*batch, *right.shape[-2:]]), [count, *right.shape[-2:]])
    product = aten._unsafe_view.default(aten.bmm.default(a, b), [*batch, left.size(-2), right.size(-1)])
    if self.dim() == 1:
        product = aten.squeeze.dim(product, -2)
    return aten.squeeze.dim(product, -1) if other.dim() == 1 else product


def _window(value: list, rank: int) -> list:
    return list(value) * (rank if len(value) == 1 else 1)


def _convolution(transposed: bool, rank: int) -> Callable:
    def conv(
        input: Tensor,
        weight: Tensor,
        bias: Any = None,
        stride: Any = (1,),
        padding: Any = (0,),
        dilation: Any = (1,),
        groups: int = 1,
    ) -> Tensor:
        if isinstance(padding, str):
            raise NotImplementedError(f"taking apart a convolution with padding={padding!r}")
        sizes = [_window(v, rank) for v in (stride, padding, dilation)]
        return aten.convolution.default(input, weight, bias, *sizes, False, [0] * rank, groups)

    def conv_transpose(
        input: Tensor,
        weight: Tensor,
        bias: Any = None,
        stride: Any = (1,),
        padding: Any = (0,),
        output_padding: Any = (0,),
        groups: int = 1,
        dilation: Any = (1,),
    ) -> Tensor:
        sizes = [_window(v, rank) for v in (stride, padding, dilation)]
        return aten.convolution.default(input, weight, bias, *sizes, True, _window(output_padding, rank), groups)

    return conv_transpose if transposed else conv


for _rank in (1, 2, 3):
    _COMPOSITE[f"conv{_rank}d.default"] = _convolution(False, _rank)
for _rank, _suffix in ((1, "default"), (2, "input"), (3, "input")):
    _COMPOSITE[f"conv_transpose{_rank}d.{_suffix}"] = _convolution(True, _rank)


# -- nn -------------------------------------------------------------------------------------------------------------------


@composite("softmax.int")
def _softmax(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return aten._softmax.default(self if dtype is None else _to(self, dtype), dim, False)


@composite("log_softmax.int")
def _log_softmax(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return aten._log_softmax.default(self if dtype is None else _to(self, dtype), dim, False)


@composite("dropout.default")
def _dropout(input: Tensor, p: float, train: bool) -> Tensor:
    if not train or p == 0:
        return aten.clone.default(input)
    return aten.native_dropout.default(input, p, True)[0]


@composite("dropout_.default")
def _dropout_in_place(input: Tensor, p: float, train: bool) -> Tensor:
    return input if not train or p == 0 else aten.copy_.default(input, aten.native_dropout.default(input, p, True)[0])


@composite("layer_norm.default")
def _layer_norm(
    input: Tensor, shape: list, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Tensor:
    return aten.native_layer_norm.default(input, shape, weight, bias, eps)[0]


@composite("batch_norm.default")
def _batch_norm(
    input: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float, cudnn: bool
) -> Tensor:
    if not training:
        return aten._native_batch_norm_legit_no_training.default(input, weight, bias, mean, var, momentum, eps)[0]
    if mean is None:
        return aten._native_batch_norm_legit.no_stats(input, weight, bias, True, momentum, eps)[0]
    given = (input, weight, bias, mean, var, True, momentum, eps)
    out, _, _, new_mean, new_var = aten._native_batch_norm_legit_functional.default(*given)
    aten.copy_.default(mean, new_mean)
    aten.copy_.default(var, new_var)
    return out


@composite("max_pool2d.default")
def _max_pool2d(self: Tensor, kernel_size: list, stride: Any = (), padding: Any = (0, 0), *rest: Any) -> Tensor:
    return aten.max_pool2d_with_indices.default(self, kernel_size, list(stride), list(padding), *rest)[0]


@composite("adaptive_avg_pool2d.default")
def _adaptive_avg_pool2d(self: Tensor, output_size: list) -> Tensor:
    if list(output_size) == [1, 1]:
        found = aten.mean.dim(self, [-1, -2], True)
        last = self.dim() == 4 and self.is_contiguous(memory_format=flambeau.channels_last) and not self.is_contiguous()
        count = self.size(1)
        return aten.as_strided.default(found, list(found.shape), [count, 1, count, count]) if last else found
    return aten._adaptive_avg_pool2d.default(self, output_size)


@composite("cross_entropy_loss.default")
def _cross_entropy(
    self: Tensor,
    target: Tensor,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: int = -100,
    smoothing: float = 0.0,
) -> Tensor:
    if smoothing or target.is_floating_point():
        raise NotImplementedError("taking apart cross_entropy with label_smoothing or probabilities")
    dim = 1 if self.dim() > 1 else 0
    return aten.nll_loss_nd.default(
        aten._log_softmax.default(self, dim, False), target, weight, reduction, ignore_index
    )


@composite("pad.default")
def _pad(self: Tensor, pad: list, mode: str = "constant", value: Any = None) -> Tensor:
    if mode == "constant":
        return aten.constant_pad_nd.default(self, pad, 0.0 if value is None else value)
    names = {"reflect": "reflection_pad", "replicate": "replication_pad"}
    if mode not in names:
        raise NotImplementedError(f"taking apart a padding of mode {mode!r}")
    return getattr(aten, f"{names[mode]}{len(pad) // 2}d").default(self, pad)


@composite("scaled_dot_product_attention.default")
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Tensor:
    if enable_gqa or dropout_p:
        raise NotImplementedError("taking apart attention with dropout or shared heads")
    factor = math.sqrt(1 / math.sqrt(query.size(-1)) if scale is None else scale)
    queries = aten.mul.Scalar(query, factor)
    scores = _batched_product(queries, aten.mul.Scalar(aten.transpose.int(key, -2, -1), factor))
    if is_causal:
        ones = aten.ones.default(
            [query.size(-2), key.size(-2)], dtype=flambeau.bool, device=query.device, pin_memory=False
        )
        mask = aten.tril.default(ones)
    if mask is not None:
        if mask.dtype == flambeau.bool:
            mask = aten.where.ScalarOther(mask, aten.zeros_like.default(scores), -math.inf)
        scores = aten.add.Tensor(scores, mask)
    out = _batched_product(_safe_softmax(scores), value)
    rows = aten.clone.default(aten.permute.default(out, [2, 0, 1, 3]), memory_format=flambeau.contiguous_format)
    return aten.permute.default(rows, [1, 2, 0, 3])  # in memory as PyTorch's kernel leaves it


def _safe_softmax(scores: Tensor) -> Tensor:
    """Zeros for a row in which everything is masked."""
    found = aten._softmax.default(scores, -1, False)
    shown = aten.logical_not.default(aten.eq.Scalar(scores, -math.inf))
    empty = aten.logical_not.default(aten.any.dim(shown, -1, True))
    return aten.where.self(empty, aten.full_like.default(found, 0, pin_memory=False), found)


@composite("std.dim", "std.default")
def _std(self: Tensor, dim: Any = None, unbiased: Any = True, keepdim: bool = False) -> Tensor:
    dims, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)
    return aten.sqrt.default(aten.var.correction(self, dims, correction=float(unbiased), keepdim=keepdim))


@composite("var.dim", "var.default")
def _var(self: Tensor, dim: Any = None, unbiased: Any = True, keepdim: bool = False) -> Tensor:
    dims, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)
    return aten.var.correction(self, dims, correction=float(unbiased), keepdim=keepdim)


@core("sum.default")
def _sum(self: Tensor, *, dtype: Any = None) -> Tensor:
    return aten.sum.dim_IntList(self, [], dtype=dtype)


@core("clamp_min.default")
def _clamp_min(self: Tensor, min: Any) -> Tensor:
    return aten.clamp.default(self, min)


@core("silu.default")
def _silu(self: Tensor) -> Tensor:
    return aten.mul.Tensor(self, aten.sigmoid.default(self))


@core("rsub.Scalar")
def _rsub(self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    full = aten.scalar_tensor.default(other, dtype=self.dtype, device=self.device)
    return aten.sub.Tensor(full, self)


@core("mse_loss.default")
def _mse_loss(self: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    square = aten.pow.Tensor_Scalar(aten.sub.Tensor(self, target), 2)
    if reduction == 0:
        return square
    return aten.mean.default(square) if reduction == 1 else aten.sum.dim_IntList(square, [])


@core("hardswish.default")
def _hardswish(self: Tensor) -> Tensor:
    gate = aten.clamp.default(aten.clamp.default(aten.add.Tensor(self, 3), 0), None, 6)
    return aten.div.Tensor(aten.mul.Tensor(self, gate), 6)


@core("hardsigmoid.default")
def _hardsigmoid(self: Tensor) -> Tensor:
    return aten.div.Tensor(aten.clamp.default(aten.clamp.default(aten.add.Tensor(self, 3), 0), None, 6), 6)


@core("masked_fill.Scalar")
def _masked_fill(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    options = {"dtype": self.dtype, "layout": self.layout, "device": self.device}
    return aten.where.self(mask, aten.scalar_tensor.default(value, **options), self)


@core("lift_fresh_copy.default")
def _lift_fresh_copy(self: Tensor) -> Tensor:
    return aten.clone.default(self)


@composite("detach_.default")
@core("detach.default")
def _detach(self: Tensor) -> Tensor:
    return self


for _name, _value in (("zeros", 0), ("ones", 1)):
    _CORE[f"{_name}.default"] = functools.partial(
        lambda size, value, **options: aten.full.default(size, value, **options), value=_value
    )


@core("new_zeros.default")
def _new_zeros(self: Tensor, size: list, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    return aten.full.default(size, 0, dtype=dtype or self.dtype, device=device or self.device, pin_memory=False)


@composite("unflatten.int")
def _unflatten(self: Tensor, dim: int, sizes: list[int]) -> Tensor:
    dim %= self.dim()
    known = math.prod(s for s in sizes if s != -1)
    filled = [self.size(dim) // known if s == -1 else s for s in sizes]
    return aten.view.default(self, [*self.shape[:dim], *filled, *self.shape[dim + 1 :]])
