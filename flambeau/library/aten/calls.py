"""What runs for each of PyTorch's operators.

Most are found by name: `aten::linalg_norm` is `linalg.norm`, `aten::add_` is `Tensor.add_`, `aten::relu` is `relu`; their arguments are
the same. The others are below."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import flambeau

from ...core.tensor import Tensor
from ...ops import OPS, namespace
from ...ops.machinery.record import Op
from ...ops.pointwise.foreach import FOREACH
from ...ops.sparse import products

F: Any = SimpleNamespace(**namespace("nn.functional"))
REDUCTIONS = ("none", "mean", "sum")
_SPECIAL: dict[str, Callable] = {}


def special(*names: str) -> Callable[[Callable], Callable]:
    """The decorated function is what runs for these operators (`softmax`) or overloads (`slice.Tensor`)."""

    def note(function: Callable) -> Callable:
        for name in names:
            _SPECIAL[name] = function
        return function

    return note


@functools.cache
def _function(name: str, overload: str) -> Callable:
    for key in (f"{name}.{overload}", name):
        if key in _SPECIAL:
            return _SPECIAL[key]
    if name in FOREACH:
        return FOREACH[name]
    for space in ("linalg", "fft", "special"):
        if name.startswith(f"{space}_") and name[len(space) + 1 :] in namespace(space):
            return namespace(space)[name[len(space) + 1 :]]
    found = namespace("torch").get(name) or getattr(Tensor, name, None) or namespace("nn.functional").get(name)
    if found is None and name.endswith("_") and name[:-1] in namespace("nn.functional"):
        return functools.partial(namespace("nn.functional")[name[:-1]], inplace=True)
    if found is None and name.startswith("_"):
        found = getattr(flambeau, name, None)
    if found is None:
        raise NotImplementedError(f"the operator aten::{name}.{overload} is not in Flambeau yet")
    return found


@functools.cache
def _functions(space: str) -> dict[str, Any]:
    return namespace(space)


def record_of(name: str) -> Op | None:
    """The record of the operator that PyTorch calls `aten::name`, where there is one."""
    for space, prefix in (("torch", ""), ("linalg", "linalg_"), ("fft", "fft_"), ("special", "special_")):
        found = _functions(space).get(name[len(prefix) :]) if name.startswith(prefix) else None
        if found is not None and hasattr(found, "op"):
            return found.op
    if name in OPS:
        return OPS[name]  # a method
    return OPS.get(f"nn.functional.{name}")


def run(overload: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Call what the overload means."""
    given = {k: v for k, v in kwargs.items() if not (k == "pin_memory" and not v)}
    result = _function(overload._overloadpacket.__name__, overload._overloadname)(*args, **given)
    return list(result) if overload._schema.returns and "[]" in overload._schema.returns[0].type else result


# -- views and indexing ---------------------------------------------------------------------------------------------------


@special("slice.Tensor")
def _slice(self: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    return self[(slice(None),) * (dim % self.dim()) + (slice(start, _bounded(end), step),)]


def _bounded(end: Any) -> Any:
    return None if end is None or end >= 2**62 else end


@special("index.Tensor")
def _index(self: Tensor, indices: list) -> Tensor:
    return self[tuple(slice(None) if i is None else i for i in indices)]


@special("index_put")
def _index_put(self: Tensor, indices: list, values: Tensor, accumulate: bool = False) -> Tensor:
    if all(i is not None for i in indices):
        return self.index_put(tuple(indices), values, accumulate)
    result = self.clone()
    result[tuple(slice(None) if i is None else i for i in indices)] = values
    return result


@special("index_put_.default")
def _index_put_in_place(self: Tensor, indices: list, values: Tensor, accumulate: bool = False) -> Tensor:
    return self.copy_(_index_put(self, indices, values, accumulate))


@special("numpy_T")
def _reversed(self: Tensor) -> Tensor:
    return self.permute(*range(self.dim() - 1, -1, -1))


@special("_unsafe_view", "view.default", "_reshape_alias")
def _view(self: Tensor, size: list[int], *strides: Any) -> Tensor:
    return self.reshape(size) if strides else self.view(size)


@special("expand")
def _expand(self: Tensor, size: list[int], *, implicit: bool = False) -> Tensor:
    return self.expand(size)


@special("im2col")
def _im2col(self: Tensor, kernel_size: list, dilation: list, padding: list, stride: list) -> Tensor:
    return F.unfold(self, kernel_size, dilation, padding, stride)


@special("col2im")
def _col2im(self: Tensor, output_size: list, kernel_size: list, dilation: list, padding: list, stride: list) -> Tensor:
    return F.fold(self, output_size, kernel_size, dilation, padding, stride)


@special("sym_size.int")
def _size(self: Tensor, dim: int) -> int:
    return self.size(dim)


@special("sym_size.default")
def _sizes(self: Tensor) -> list[int]:
    return list(self.shape)


@special("sym_stride.int")
def _stride(self: Tensor, dim: int) -> int:
    return self.stride(dim)


@special("sym_numel")
def _numel(self: Tensor) -> int:
    return self.numel()


@special("sym_storage_offset")
def _storage_offset(self: Tensor) -> int:
    return self.storage_offset()


@special("split.Tensor", "split.sizes", "split_with_sizes")
def _split(self: Tensor, split_size: Any, dim: int = 0) -> Any:
    return flambeau.split(self, split_size, dim)


@special("einsum")
def _einsum(equation: str, tensors: list, *, path: Any = None) -> Tensor:
    return flambeau.einsum(equation, *tensors)


@special("meshgrid")
def _meshgrid(tensors: list, *, indexing: str = "ij") -> Any:
    return flambeau.meshgrid(*tensors, indexing=indexing)


@special("broadcast_tensors")
def _broadcast_tensors(tensors: list) -> Any:
    return flambeau.broadcast_tensors(*tensors)


# -- copies and dtypes ----------------------------------------------------------------------------------------------------


@special("lift_fresh_copy", "clone.default")
def _copy(self: Tensor, *, memory_format: Any = None) -> Tensor:
    return self.clone() if memory_format is None else self.clone(memory_format=memory_format)


@special("lift_fresh", "alias", "lift")
def _same(self: Tensor) -> Tensor:
    return self.view_as(self)


@special("detach_")
def _detach(self: Tensor) -> Tensor:
    return self.detach_() if not self._is_view() else self.detach()


@special("to.dtype")
def _to_dtype(
    self: Tensor, dtype: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None
) -> Tensor:
    return self.to(dtype, non_blocking, copy, **_format(memory_format))


@special("to.device")
def _to_device(
    self: Tensor, device: Any, dtype: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None
) -> Tensor:
    return self.to(device, dtype, non_blocking, copy, **_format(memory_format))


@special("to.other")
def _to_other(
    self: Tensor, other: Tensor, non_blocking: bool = False, copy: bool = False, memory_format: Any = None
) -> Tensor:
    return self.to(other, non_blocking, copy, **_format(memory_format))


@special("to.dtype_layout", "_to_copy")
def _to_copy(
    self: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: bool = False,
    copy: bool = True,
    memory_format: Any = None,
) -> Tensor:
    return self.to(
        device or self.device, dtype or self.dtype, non_blocking=non_blocking, copy=copy, **_format(memory_format)
    )


@special("_pin_memory")
def _pin_memory(self: Tensor, device: Any = None) -> Tensor:
    return self.pin_memory(device)


@special("_sparse_addmm")
def _sparse_addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return products.sparse_addmm(self, mat1, mat2, beta, alpha)


@special("_sparse_mm_reduce_impl")
def _sparse_mm_reduce_impl(self: Tensor, other: Tensor, reduce: str) -> Any:
    raise NotImplementedError("aten::_sparse_mm_reduce_impl: use torch.sparse.mm(a, b, reduce)")


def _format(memory_format: Any) -> dict[str, Any]:
    return {} if memory_format is None else {"memory_format": memory_format}


@special("_assert_tensor_metadata")
def _assert_tensor_metadata(
    a: Tensor, size: Any = None, stride: Any = None, dtype: Any = None, *, device: Any = None, layout: Any = None
) -> None:
    checks = (
        ("shape", size, list(a.shape)),
        ("dtype", dtype, a.dtype),
        ("device", device, a.device),
        ("layout", layout, a.layout),
    )
    for name, wanted, found in checks:
        if wanted is not None and wanted != found:
            raise RuntimeError(f"Tensor {name} mismatch! Expected: {wanted}, Got: {found}")


@special("_assert_scalar")
def _assert_scalar(self: Any, assert_msg: str) -> None:
    if not self:
        raise RuntimeError(assert_msg)


@special("scalar_tensor")
def _scalar_tensor(s: Any, **options: Any) -> Tensor:
    return flambeau.tensor(s, **{k: v for k, v in options.items() if k in ("dtype", "device") and v is not None})


# -- nn -------------------------------------------------------------------------------------------------------------------


@special("softmax")
def _softmax(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return flambeau.softmax(self, dim, dtype=dtype)


@special("log_softmax")
def _log_softmax(self: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return flambeau.log_softmax(self, dim, dtype=dtype)


@special("_softmax")
def _softmax_kernel(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return flambeau.softmax(self, dim, dtype=flambeau.float32 if half_to_float else None)


@special("_log_softmax")
def _log_softmax_kernel(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return flambeau.log_softmax(self, dim, dtype=flambeau.float32 if half_to_float else None)


@special("dropout")
def _dropout(input: Tensor, p: float, train: bool) -> Tensor:
    return F.dropout(input, p, train)


@special("feature_dropout")
def _feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    return F.dropout2d(input, p, train)


@special("batch_norm")
def _batch_norm(
    input: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float, cudnn: bool
) -> Tensor:
    return F.batch_norm(input, mean, var, weight, bias, training, momentum, eps)


@special("instance_norm")
def _instance_norm(
    input: Tensor,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    use_input: bool,
    momentum: float,
    eps: float,
    cudnn: bool,
) -> Tensor:
    return F.instance_norm(input, mean, var, weight, bias, use_input, momentum, eps)


@special("layer_norm")
def _layer_norm(
    input: Tensor, shape: list[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Tensor:
    return F.layer_norm(input, shape, weight, bias, eps)


@special("native_layer_norm")
def _native_layer_norm(input: Tensor, shape: list[int], weight: Any, bias: Any, eps: float) -> tuple:
    dims = tuple(range(-len(shape), 0))
    mean = input.mean(dims, keepdim=True)
    rstd = (input.var(dims, correction=0, keepdim=True) + eps).rsqrt()
    return F.layer_norm(input, shape, weight, bias, eps), mean, rstd


@special("_native_batch_norm_legit_no_training")
def _native_batch_norm_eval(
    input: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> tuple:
    empty = input.new_empty(0)
    return F.batch_norm(input, mean, var, weight, bias, False, momentum, eps), empty, empty


@special("_native_batch_norm_legit_functional")
def _native_batch_norm_functional(
    input: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, training: bool, momentum: float, eps: float
) -> tuple:
    new_mean, new_var = mean.clone(), var.clone()
    out = F.batch_norm(input, new_mean, new_var, weight, bias, training, momentum, eps)
    dims = [d for d in range(input.dim()) if d != 1]
    return out, input.mean(dims), (input.var(dims, correction=0) + eps).rsqrt(), new_mean, new_var


@special("_native_batch_norm_legit.no_stats")
def _native_batch_norm_alone(
    input: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple:
    dims = [d for d in range(input.dim()) if d != 1]
    out = F.batch_norm(input, None, None, weight, bias, True, momentum, eps)
    return out, input.mean(dims), (input.var(dims, correction=0) + eps).rsqrt()


@special("group_norm")
def _group_norm(
    input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Tensor:
    return F.group_norm(input, num_groups, weight, bias, eps)


@special("embedding")
def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    padding = None if padding_idx == -1 else padding_idx
    return F.embedding(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


@special("convolution")
def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Any,
    stride: list,
    padding: list,
    dilation: list,
    transposed: bool,
    extra: list,
    groups: int,
) -> Tensor:
    rank = input.dim() - 2
    if transposed:
        functions = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
        return functions[rank - 1](input, weight, bias, stride, padding, extra, groups, dilation)
    return (F.conv1d, F.conv2d, F.conv3d)[rank - 1](input, weight, bias, stride, padding, dilation, groups)


def _pool(name: str, returns_indices: bool) -> Callable:
    def pool(
        self: Tensor,
        kernel_size: list,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        function = getattr(F, name)
        return function(self, kernel_size, stride or None, padding, dilation, ceil_mode, return_indices=returns_indices)

    return pool


for _rank in (1, 2, 3):
    _SPECIAL[f"max_pool{_rank}d"] = _pool(f"max_pool{_rank}d", False)
    _SPECIAL[f"max_pool{_rank}d_with_indices"] = _pool(f"max_pool{_rank}d", True)


def _adaptive_max(name: str) -> Callable:
    def pool(self: Tensor, output_size: list) -> Any:
        return getattr(F, name)(self, output_size, return_indices=True)

    return pool


for _rank in (1, 2, 3):
    _SPECIAL[f"adaptive_max_pool{_rank}d"] = _adaptive_max(f"adaptive_max_pool{_rank}d")


def _average(name: str) -> Callable:
    def pool(self: Tensor, kernel_size: list, stride: Any = None, *rest: Any) -> Tensor:
        return getattr(F, name)(self, kernel_size, stride or None, *rest)

    return pool


for _rank in (1, 2, 3):
    _SPECIAL[f"avg_pool{_rank}d"] = _average(f"avg_pool{_rank}d")


def _resize(mode: str, aligned: bool, **more: Any) -> Callable:
    def with_scales(input: Tensor, output_size: Any, *rest: Any) -> Tensor:
        corners = rest[0] if aligned else None
        scales = rest[1] if aligned else rest[0]
        return F.interpolate(input, output_size, scales if output_size is None else None, mode, corners, **more)

    return with_scales


for _name, _mode, _aligned in (
    ("nearest1d", "nearest", False),
    ("nearest2d", "nearest", False),
    ("nearest3d", "nearest", False),
    ("linear1d", "linear", True),
    ("bilinear2d", "bilinear", True),
    ("bicubic2d", "bicubic", True),
    ("trilinear3d", "trilinear", True),
):
    _SPECIAL[f"upsample_{_name}.vec"] = _resize(_mode, _aligned)
for _rank in (1, 2, 3):
    _SPECIAL[f"_upsample_nearest_exact{_rank}d.vec"] = _resize("nearest-exact", False)
for _mode in ("bilinear", "bicubic"):
    _SPECIAL[f"_upsample_{_mode}2d_aa.vec"] = _resize(_mode, True, antialias=True)


def _loss(name: str, *between: str) -> Callable:
    """A loss that knows its reduction as a number; `between` are the parameters after the target, in order."""

    def loss(self: Tensor, target: Tensor, *args: Any) -> Tensor:
        given = dict(zip(between, args))
        reduction = REDUCTIONS[given.pop("reduction", 1)]
        return getattr(F, name)(self, target, reduction=reduction, **given)

    return loss


_SPECIAL["mse_loss"] = _loss("mse_loss", "reduction")
_SPECIAL["l1_loss"] = _loss("l1_loss", "reduction")
_SPECIAL["smooth_l1_loss"] = _loss("smooth_l1_loss", "reduction", "beta")
_SPECIAL["huber_loss"] = _loss("huber_loss", "reduction", "delta")
_SPECIAL["soft_margin_loss"] = _loss("soft_margin_loss", "reduction")
_SPECIAL["multilabel_margin_loss"] = _loss("multilabel_margin_loss", "reduction")
_SPECIAL["binary_cross_entropy"] = _loss("binary_cross_entropy", "weight", "reduction")
_SPECIAL["binary_cross_entropy_with_logits"] = _loss(
    "binary_cross_entropy_with_logits", "weight", "pos_weight", "reduction"
)
_SPECIAL["cross_entropy_loss"] = _loss("cross_entropy", "weight", "reduction", "ignore_index", "label_smoothing")
_SPECIAL["nll_loss"] = _SPECIAL["nll_loss_nd"] = _SPECIAL["nll_loss2d"] = _loss(
    "nll_loss", "weight", "reduction", "ignore_index"
)


@special("log_sigmoid")
def _log_sigmoid(self: Tensor) -> Tensor:
    return F.logsigmoid(self)


@special("_unique2")
def _unique2(self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> tuple:
    found = flambeau.unique(self, sorted, True, True)
    return found[0], *(f if flag else f.new_empty(0) for f, flag in zip(found[1:], (return_inverse, return_counts)))


@special("unique_dim")
def _unique_dim(
    self: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple:
    return tuple(flambeau.unique(self, sorted, True, True, dim=dim))


@special("kl_div")
def _kl_div(self: Tensor, target: Tensor, reduction: int = 1, *, log_target: bool = False) -> Tensor:
    return F.kl_div(self, target, reduction=REDUCTIONS[reduction], log_target=log_target)


def _recurrent(kind: str) -> Callable:
    def run_layers(
        input: Tensor,
        hx: Any,
        params: list,
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        both: bool,
        first: bool,
    ) -> Any:
        return getattr(flambeau, kind)(input, hx, params, has_biases, layers, dropout, train, both, first)

    return run_layers


for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    _SPECIAL[f"{_name}.input"] = _recurrent(_name)


# -- numbers --------------------------------------------------------------------------------------------------------------


@special("rsub")
def _rsub(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    return other - self * alpha if alpha != 1 else other - self


@special("pow.Scalar")
def _pow(self: Any, exponent: Tensor) -> Tensor:
    return flambeau.pow(self, exponent)


@special("var.correction")
def _var(self: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    return flambeau.var(self, dim, correction=1 if correction is None else correction, keepdim=keepdim)


@special("std.correction")
def _std(self: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    return flambeau.std(self, dim, correction=1 if correction is None else correction, keepdim=keepdim)


@special("_local_scalar_dense")
def _local_scalar_dense(self: Tensor) -> Any:
    return self.item()
