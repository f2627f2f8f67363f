"""Functions of `nn.functional` as TorchScript programs: what a compiled call of them means.

They are never run as Python. `aten` stands for the operators of graphs, so that `aten.relu_(x)` is that operator and nothing else.
"""

from __future__ import annotations

import math
from typing import Any, List, Optional, Tuple, Union  # noqa: UP035  the spelling of TorchScript

import flambeau as torch
from flambeau import Tensor
from flambeau.jit.annotations import BroadcastingList1, BroadcastingList2, BroadcastingList3  # noqa: F401  for the texts

from .values import OperatorNamespace

# ruff: noqa: UP006, UP007, UP045, SIM102
# mypy: ignore-errors

aten: Any = OperatorNamespace("aten")

# name: (flag, its position, function if true, function if false)
DISPATCHED = {
    **{f"max_pool{d}d": ("return_indices", 6, f"max_pool{d}d_with_indices", f"_max_pool{d}d") for d in (1, 2, 3)},
    **{
        f"adaptive_max_pool{d}d": (
            "return_indices",
            2,
            f"adaptive_max_pool{d}d_with_indices",
            f"_adaptive_max_pool{d}d",
        )
        for d in (1, 2, 3)
    },
}
TORCH_LEVEL = {"unique"}


class no_grad:
    """`with torch.no_grad():` in compiled code."""

    _jit_override_qualname = "__torch__.torch.autograd.grad_mode.no_grad"

    def __init__(self) -> None:
        self.prev = True

    def __enter__(self) -> None:
        self.prev = aten.is_grad_enabled()
        aten.set_grad_enabled(False)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        aten.set_grad_enabled(self.prev)


class autocast:
    """`with torch.autocast("cpu", torch.bfloat16):` in compiled code. PyTorch's compiler and this interpreter know it by its name and
    its attributes; the methods do nothing."""

    _jit_override_qualname = "__torch__.torch.amp.autocast_mode.autocast"

    def __init__(
        self, device_type: str, dtype: Optional[int] = None, enabled: bool = True, cache_enabled: Optional[bool] = None
    ):
        self._enabled = enabled
        self.device = device_type
        self.fast_dtype = aten.get_autocast_dtype(device_type) if dtype is None else dtype

    def __enter__(self):
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        return None


class record_function:
    """`with torch.profiler.record_function("name"):` in compiled code, known by its name as `autocast` is."""

    _jit_override_qualname = "__torch__.torch.autograd.profiler.record_function"

    def __init__(self, name: str, args: Optional[str] = None):
        self.name = name
        self.args = args

    def __enter__(self):
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        return None


# -- functions that are alike -------------------------------------------------------------------------------------------------

_INPLACE = """def {name}(input: Tensor{declared}, inplace: bool = False) -> Tensor:
    if inplace:
        result = aten.{op}_(input{given})
    else:
        result = aten.{op}(input{given})
    return result
"""
_DROPOUT = """def {name}(input: Tensor, p: float = 0.5, training: bool = {training}, inplace: bool = False) -> Tensor:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {{p}}")
    if inplace:
        result = aten.{op}_(input, p, training)
    else:
        result = aten.{op}(input, p, training)
    return result
"""
_POOL = """def {name}(input: Tensor, kernel_size: {size}, stride: Optional[{size}] = None, padding: {size} = 0{declared}) -> {result}:
    if stride is None:
        stride = torch.jit.annotate(List[int], [])
    return aten.{op}(input, kernel_size, stride, padding{given})
"""
_VALUE = """def {name}({declared}) -> Tensor:
    return {value}
"""
_BROADCAST = """def {name}(input: Tensor, target: Tensor, {declared}) -> Tensor:
    expanded_input, expanded_target = aten.broadcast_tensors([input, target])
    return aten.{name}(expanded_input, expanded_target, _reduction(reduction){given})
"""
_SOFTMAX = """def {name}(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Optional[int] = None) -> Tensor:
    if dim is None:
        dim = 0 if input.dim() == 0 or input.dim() == 1 or input.dim() == 3 else 1
    if dtype is None:
        ret = aten.{op}({input}, dim)
    else:
        ret = aten.{op}({input}, dim, dtype=dtype)
    return ret
"""
_ADAPTIVE = """def {name}(input: Tensor, output_size: {size}) -> {result}:
    return aten.{op}(input, {given}){part}
"""
# name: (its parameters between the input and `inplace`, the operator and what it is given)
_ACTIVATIONS = {
    **{name: ("", name, "") for name in ("relu", "hardsigmoid", "hardswish", "silu", "mish", "selu")},
    "relu6": ("", "hardtanh", ", 0.0, 6.0"),
    "hardtanh": (", min_val: float = -1.0, max_val: float = 1.0", "hardtanh", ", min_val, max_val"),
    "elu": (", alpha: float = 1.0", "elu", ", alpha"),
    "celu": (", alpha: float = 1.0", "celu", ", alpha"),
    "leaky_relu": (", negative_slope: float = 0.01", "leaky_relu", ", negative_slope"),
    "threshold": (", threshold: float, value: float", "threshold", ", threshold, value"),
    "rrelu": (
        f", lower: float = {1 / 8}, upper: float = {1 / 3}, training: bool = False", "rrelu", ", lower, upper, training",
    ),
}  # fmt: skip
_DROPOUTS = {
    "dropout": ("dropout", True), "alpha_dropout": ("alpha_dropout", False), "feature_alpha_dropout": ("feature_alpha_dropout", False),
    "dropout2d": ("feature_dropout", True), "dropout3d": ("feature_dropout", True),
}  # fmt: skip

_REDUCED = 'size_average: Optional[bool] = None, reduce: Optional[bool] = None, reduction: str = "mean"'
_AFFINE = "weight: Optional[Tensor] = None, bias: Optional[Tensor] = None"
_WINDOW = ", ".join(
    f"{word}: BroadcastingList2[int] = {n}" for word, n in (("dilation", 1), ("padding", 0), ("stride", 1))
)
_BY_CLASS = """input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Optional[bool] = None,
    ignore_index: int = -100, reduce: Optional[bool] = None, reduction: str = "mean\""""
_PLAIN = "input: Tensor"
_PAIR = "input: Tensor, target: Tensor, weight: Optional[Tensor] = None"
# name: (its parameters, what it returns)
_VALUES = {
    "glu": ("input: Tensor, dim: int = -1", "aten.glu(input, dim)"),
    "gelu": ('input: Tensor, approximate: str = "none"', "aten.gelu(input, approximate=approximate)"),
    "tanh": (_PLAIN, "aten.tanh(input)"),
    "sigmoid": (_PLAIN, "aten.sigmoid(input)"),
    "tanhshrink": (_PLAIN, "input - aten.tanh(input)"),
    "softsign": (_PLAIN, "input / (aten.abs(input) + 1)"),
    "logsigmoid": (_PLAIN, "aten.log_sigmoid(input)"),
    "instance_norm": (
        f"input: Tensor, running_mean: Optional[Tensor] = None, running_var: Optional[Tensor] = None, {_AFFINE}, "
        "use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5",
        "aten.instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, True)",
    ),
    "layer_norm": (
        f"input: Tensor, normalized_shape: List[int], {_AFFINE}, eps: float = 1e-5",
        "aten.layer_norm(input, normalized_shape, weight, bias, eps, True)",
    ),
    "group_norm": (
        f"input: Tensor, num_groups: int, {_AFFINE}, eps: float = 1e-5",
        "aten.group_norm(input, num_groups, weight, bias, eps, True)",
    ),
    "pad": (
        'input: Tensor, pad: List[int], mode: str = "constant", value: Optional[float] = None',
        "aten.pad(input, pad, mode, value)",
    ),
    "unfold": (
        f"input: Tensor, kernel_size: BroadcastingList2[int], {_WINDOW}",
        "aten.im2col(input, kernel_size, dilation, padding, stride)",
    ),
    "fold": (
        f"input: Tensor, output_size: BroadcastingList2[int], kernel_size: BroadcastingList2[int], {_WINDOW}",
        "aten.col2im(input, output_size, kernel_size, dilation, padding, stride)",
    ),
    "cross_entropy": (
        f"{_BY_CLASS}, label_smoothing: float = 0.0",
        "aten.cross_entropy_loss(input, target, weight, _reduction(reduction), ignore_index, label_smoothing)",
    ),
    "nll_loss": (_BY_CLASS, "aten.nll_loss_nd(input, target, weight, _reduction(reduction), ignore_index)"),
    "binary_cross_entropy": (
        f"{_PAIR}, {_REDUCED}", "aten.binary_cross_entropy(input, target, weight, _reduction(reduction))",
    ),
    "binary_cross_entropy_with_logits": (
        f"{_PAIR}, {_REDUCED}, pos_weight: Optional[Tensor] = None",
        "aten.binary_cross_entropy_with_logits(input, target, weight, pos_weight, _reduction(reduction))",
    ),
}  # fmt: skip
# name: (its parameters after the tensors, what the operator is given after the reduction)
_BROADCASTS = {
    "mse_loss": (_REDUCED, ""),
    "l1_loss": (_REDUCED, ""),
    "huber_loss": ('reduction: str = "mean", delta: float = 1.0', ", delta"),
}


def texts() -> dict[str, str]:
    """The forms that are not written out, by name."""
    out = {n: _INPLACE.format(name=n, declared=d, op=op, given=g) for n, (d, op, g) in _ACTIVATIONS.items()}
    out |= {n: _DROPOUT.format(name=n, op=op, training=t) for n, (op, t) in _DROPOUTS.items()}
    out |= {n: _VALUE.format(name=n, declared=d, value=v) for n, (d, v) in _VALUES.items()}
    out |= {n: _BROADCAST.format(name=n, declared=d, given=g) for n, (d, g) in _BROADCASTS.items()}
    for name, op, input in (
        ("softmax",) * 2 + ("input",),
        ("log_softmax",) * 2 + ("input",),
        ("softmin", "softmax", "-input"),
    ):
        out[name] = _SOFTMAX.format(name=name, op=op, input=input)
    for d in (1, 2, 3):
        size, both = f"BroadcastingList{d}[int]", "Tuple[Tensor, Tensor]"
        more = f", dilation: {size} = 1, ceil_mode: bool = False", ", dilation, ceil_mode"
        for name, op, result in (
            (f"_max_pool{d}d", f"max_pool{d}d", "Tensor"),
            (f"max_pool{d}d_with_indices",) * 2 + (both,),
        ):
            out[name] = _POOL.format(name=name, op=op, size=size, result=result, declared=more[0], given=more[1])
        divisor = ", divisor_override: Optional[int] = None" if d > 1 else "", ", divisor_override" if d > 1 else ""
        more = (
            f", ceil_mode: bool = False, count_include_pad: bool = True{divisor[0]}",
            f", ceil_mode, count_include_pad{divisor[1]}",
        )
        out[f"avg_pool{d}d"] = _POOL.format(name=f"avg_pool{d}d", op=f"avg_pool{d}d", size=size, result="Tensor", declared=more[0], given=more[1])  # fmt: skip
        given = "output_size" if d == 1 else "_list_with_default(output_size, input.size())"
        for name, part, result in (
            (f"_adaptive_max_pool{d}d", "[0]", "Tensor"),
            (f"adaptive_max_pool{d}d_with_indices", "", both),
        ):
            out[name] = _ADAPTIVE.format(name=name, op=f"adaptive_max_pool{d}d", size=size, result=result, given=given, part=part)  # fmt: skip
        if d > 1:
            out[f"adaptive_avg_pool{d}d"] = _ADAPTIVE.format(name=f"adaptive_avg_pool{d}d", op=f"adaptive_avg_pool{d}d", size=size, result="Tensor", given="output_size", part="")  # fmt: skip
    return out


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    dims = input.dim()
    if dims != 2 and dims != 3:
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {dims}D input.")
    if dims == 2:
        input = input.unsqueeze_(0) if inplace else input.unsqueeze(0)
    if inplace:
        result = aten.feature_dropout_(input, p, training)
    else:
        result = aten.feature_dropout(input, p, training)
    if dims == 2:
        result = result.squeeze_(0) if inplace else result.squeeze(0)
    return result


# -- pooling ------------------------------------------------------------------------------------------------------------------


def _list_with_default(out_size: List[int], defaults: List[int]) -> List[int]:
    return out_size


def lp_pool2d(
    input: Tensor,
    norm_type: Union[int, float],
    kernel_size: BroadcastingList2[int],
    stride: Optional[BroadcastingList2[int]] = None,
    ceil_mode: bool = False,
) -> Tensor:
    kw, kh = kernel_size[0], kernel_size[1]
    if stride is None:
        stride = torch.jit.annotate(List[int], [])
    out = aten.avg_pool2d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return (aten.sign(out) * torch.nn.functional.relu(aten.abs(out))).mul(kw * kh).pow(1.0 / norm_type)


def lp_pool1d(
    input: Tensor,
    norm_type: Union[int, float],
    kernel_size: int,
    stride: Optional[BroadcastingList1[int]] = None,
    ceil_mode: bool = False,
) -> Tensor:
    if stride is None:
        stride = torch.jit.annotate(List[int], [])
    out = aten.avg_pool1d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return (aten.sign(out) * torch.nn.functional.relu(aten.abs(out))).mul(kernel_size).pow(1.0 / norm_type)


# -- normalisation --------------------------------------------------------------------------------------------------------------


def batch_norm(
    input: Tensor,
    running_mean: Optional[Tensor],
    running_var: Optional[Tensor],
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if training:
        _verify_batch_size(input.size())
    return aten.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, True)


def _verify_batch_size(size: List[int]) -> None:
    size_prods = size[0]
    for i in range(len(size) - 2):
        size_prods *= size[i + 2]
    if size_prods == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {size}")


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    dim = input.dim()
    div = input.mul(input)
    if dim == 3:
        div = div.unsqueeze(1)
        div = aten.pad(div, [0, 0, size // 2, (size - 1) // 2])
        div = aten.avg_pool2d(div, [size, 1], [1]).squeeze(1)
    else:
        sizes = input.size()
        div = div.view(sizes[0], 1, sizes[1], sizes[2], -1)
        div = aten.pad(div, [0, 0, 0, 0, size // 2, (size - 1) // 2])
        div = aten.avg_pool3d(div, [size, 1, 1], [1]).squeeze(1)
        div = div.view(sizes)
    div = div.mul(alpha).add(k).pow(beta)
    return input / div


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Optional[Tensor] = None) -> Tensor:
    denom = aten.norm(input, p, [dim], True).clamp_min(eps).expand_as(input)
    return input / denom


# -- embeddings, shapes ----------------------------------------------------------------------------------------------------------


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: Optional[int] = None,
    max_norm: Optional[float] = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    if padding_idx is not None:
        if padding_idx > 0:
            assert padding_idx < weight.size(0), "Padding_idx must be within num_embeddings"
        elif padding_idx < 0:
            assert padding_idx >= -weight.size(0), "Padding_idx must be within num_embeddings"
            padding_idx = weight.size(0) + padding_idx
    else:
        padding_idx = -1
    if max_norm is not None:
        with torch.no_grad():
            aten.embedding_renorm_(weight, input.contiguous(), max_norm, norm_type)
    return aten.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Optional[Tensor] = None,
    max_norm: Optional[float] = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Optional[Tensor] = None,
    include_last_offset: bool = False,
    padding_idx: Optional[int] = None,
) -> Tensor:
    if input.dim() == 2:
        offsets = aten.arange(0, input.numel(), input.size(1), dtype=input.dtype, device=input.device)
        input = input.reshape(-1)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    mode_enum = 0
    if mode == "mean":
        mode_enum = 1
    elif mode == "max":
        mode_enum = 2
    return aten.embedding_bag(
        weight,
        input,
        offsets,
        scale_grad_by_freq,
        mode_enum,
        sparse,
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )[0]


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: Optional[bool] = None,
) -> Tensor:
    if mode == "bilinear":
        mode_enum = 0
    elif mode == "nearest":
        mode_enum = 1
    else:
        mode_enum = 2
    if padding_mode == "zeros":
        padding_mode_enum = 0
    elif padding_mode == "border":
        padding_mode_enum = 1
    else:
        padding_mode_enum = 2
    if align_corners is None:
        align_corners = False
    return aten.grid_sampler(input, grid, mode_enum, padding_mode_enum, align_corners)


def affine_grid(theta: Tensor, size: List[int], align_corners: Optional[bool] = None) -> Tensor:
    if align_corners is None:
        align_corners = False
    return aten.affine_grid_generator(theta, size, align_corners)


def interpolate(
    input: Tensor,
    size: Optional[BroadcastingList1[int]] = None,
    scale_factor: Optional[BroadcastingList1[float]] = None,
    mode: str = "nearest",
    align_corners: Optional[bool] = None,
    recompute_scale_factor: Optional[bool] = None,
    antialias: bool = False,
) -> Tensor:
    dim = input.dim() - 2
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    output_size = torch.jit.annotate(Optional[List[int]], None)
    scale_factors = torch.jit.annotate(Optional[List[float]], None)
    if size is not None:
        if len(size) == 1 and dim > 1:
            output_size = [size[0] for _ in range(dim)]
        else:
            output_size = size
    elif scale_factor is not None:
        if len(scale_factor) == 1 and dim > 1:
            scale_factors = [scale_factor[0] for _ in range(dim)]
        else:
            scale_factors = scale_factor
    else:
        raise ValueError("either size or scale_factor should be defined")
    if recompute_scale_factor is not None and recompute_scale_factor and scale_factors is not None:
        output_size = [int(math.floor(float(input.size(i + 2)) * scale_factors[i])) for i in range(dim)]
        scale_factors = None
    if mode == "nearest":
        if input.dim() == 3:
            return aten.upsample_nearest1d(input, output_size, scale_factors)
        if input.dim() == 4:
            return aten.upsample_nearest2d(input, output_size, scale_factors)
        return aten.upsample_nearest3d(input, output_size, scale_factors)
    if align_corners is None:
        align_corners = False
    if mode == "linear":
        return aten.upsample_linear1d(input, output_size, align_corners, scale_factors)
    if mode == "bilinear":
        return aten.upsample_bilinear2d(input, output_size, align_corners, scale_factors)
    if mode == "trilinear":
        return aten.upsample_trilinear3d(input, output_size, align_corners, scale_factors)
    if mode == "bicubic":
        return aten.upsample_bicubic2d(input, output_size, align_corners, scale_factors)
    if mode == "area":
        if output_size is None:
            raise ValueError("area interpolation needs a size")
        if input.dim() == 3:
            return aten.adaptive_avg_pool1d(input, output_size)
        if input.dim() == 4:
            return aten.adaptive_avg_pool2d(input, output_size)
        return aten.adaptive_avg_pool3d(input, output_size)
    raise NotImplementedError(f"{input.dim()}D tensors with the mode {mode} are not supported")


# -- losses -----------------------------------------------------------------------------------------------------------------------


def _reduction(reduction: str) -> int:
    if reduction == "none":
        ret = 0
    elif reduction == "mean":
        ret = 1
    elif reduction == "sum":
        ret = 2
    else:
        ret = -1
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return ret


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    expanded_input, expanded_target = aten.broadcast_tensors([input, target])
    if beta == 0.0:
        return aten.l1_loss(expanded_input, expanded_target, _reduction(reduction))
    return aten.smooth_l1_loss(expanded_input, expanded_target, _reduction(reduction), beta)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: Optional[bool] = None,
    reduce: Optional[bool] = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    if reduction == "batchmean":
        reduction_enum = 2
    else:
        reduction_enum = _reduction(reduction)
    reduced = aten.kl_div(input, target, reduction_enum, log_target=log_target)
    if reduction == "batchmean" and input.dim() != 0:
        reduced = reduced / input.size(0)
    return reduced


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    gumbels = -aten.empty_like(logits).exponential_().log()
    gumbels = (logits + gumbels) / tau
    y_soft = gumbels.softmax(dim)
    if hard:
        index = y_soft.max(dim, keepdim=True)[1]
        y_hard = aten.zeros_like(logits).scatter_(dim, index, 1.0)
        ret = y_hard - y_soft.detach() + y_soft
    else:
        ret = y_soft
    return ret


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: Optional[int] = None,
) -> Tensor:
    if dim is not None:
        output, _, _ = aten.unique_dim(input, dim, sorted, False, False)
    else:
        output, _, _ = aten._unique2(input, sorted, False, False)
    return output


# -- attention -------------------------------------------------------------------------------------------------------------------


def _canonical_mask(mask: Optional[Tensor], dtype: int) -> Optional[Tensor]:
    """A boolean mask as numbers to be added."""
    if mask is not None:
        if mask.dtype == torch.bool:
            mask = aten.zeros_like(mask, dtype=dtype).masked_fill_(mask, -math.inf)
    return mask


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Optional[Tensor],
    in_proj_bias: Optional[Tensor],
    bias_k: Optional[Tensor],
    bias_v: Optional[Tensor],
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Optional[Tensor],
    training: bool = True,
    key_padding_mask: Optional[Tensor] = None,
    need_weights: bool = True,
    attn_mask: Optional[Tensor] = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Optional[Tensor] = None,
    k_proj_weight: Optional[Tensor] = None,
    v_proj_weight: Optional[Tensor] = None,
    static_k: Optional[Tensor] = None,
    static_v: Optional[Tensor] = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Tuple[Tensor, Optional[Tensor]]:
    is_batched = query.dim() == 3
    if not is_batched:
        query = query.unsqueeze(1)
        key = key.unsqueeze(1)
        value = value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    tgt_len = query.size(0)
    bsz = query.size(1)
    embed_dim = query.size(2)
    head_dim = embed_dim // num_heads
    key_padding_mask = _canonical_mask(key_padding_mask, query.dtype)
    attn_mask = _canonical_mask(attn_mask, query.dtype)
    if use_separate_proj_weight:
        assert q_proj_weight is not None and k_proj_weight is not None and v_proj_weight is not None
        if in_proj_bias is None:
            q = aten.linear(query, q_proj_weight)
            k = aten.linear(key, k_proj_weight)
            v = aten.linear(value, v_proj_weight)
        else:
            b_q, b_k, b_v = in_proj_bias.chunk(3)
            q = aten.linear(query, q_proj_weight, b_q)
            k = aten.linear(key, k_proj_weight, b_k)
            v = aten.linear(value, v_proj_weight, b_v)
    else:
        assert in_proj_weight is not None
        w_q, w_k, w_v = in_proj_weight.chunk(3)
        if in_proj_bias is None:
            q = aten.linear(query, w_q)
            k = aten.linear(key, w_k)
            v = aten.linear(value, w_v)
        else:
            b_q, b_k, b_v = in_proj_bias.chunk(3)
            q = aten.linear(query, w_q, b_q)
            k = aten.linear(key, w_k, b_k)
            v = aten.linear(value, w_v, b_v)
    if attn_mask is not None:
        if attn_mask.dim() == 2:
            attn_mask = attn_mask.unsqueeze(0)
    if bias_k is not None and bias_v is not None:
        k = aten.cat([k, bias_k.repeat(1, bsz, 1)])
        v = aten.cat([v, bias_v.repeat(1, bsz, 1)])
        if attn_mask is not None:
            attn_mask = aten.pad(attn_mask, [0, 1])
        if key_padding_mask is not None:
            key_padding_mask = aten.pad(key_padding_mask, [0, 1])
    q = q.view(tgt_len, bsz * num_heads, head_dim).transpose(0, 1)
    if static_k is None:
        k = k.view(k.size(0), bsz * num_heads, head_dim).transpose(0, 1)
    else:
        k = static_k
    if static_v is None:
        v = v.view(v.size(0), bsz * num_heads, head_dim).transpose(0, 1)
    else:
        v = static_v
    if add_zero_attn:
        k = aten.cat([k, aten.zeros([bsz * num_heads, 1, head_dim], dtype=k.dtype, device=k.device)], 1)
        v = aten.cat([v, aten.zeros([bsz * num_heads, 1, head_dim], dtype=v.dtype, device=v.device)], 1)
        if attn_mask is not None:
            attn_mask = aten.pad(attn_mask, [0, 1])
        if key_padding_mask is not None:
            key_padding_mask = aten.pad(key_padding_mask, [0, 1])
    src_len = k.size(1)
    if key_padding_mask is not None:
        key_padding_mask = (
            key_padding_mask.view(bsz, 1, 1, src_len).expand(-1, num_heads, -1, -1).reshape(bsz * num_heads, 1, src_len)
        )
        if attn_mask is None:
            attn_mask = key_padding_mask
        else:
            attn_mask = attn_mask + key_padding_mask
    if not training:
        dropout_p = 0.0
    if need_weights:
        q_scaled = q * math.sqrt(1.0 / float(head_dim))
        if attn_mask is not None:
            attn_output_weights = aten.baddbmm(attn_mask, q_scaled, k.transpose(-2, -1))
        else:
            attn_output_weights = aten.bmm(q_scaled, k.transpose(-2, -1))
        attn_output_weights = aten.softmax(attn_output_weights, -1)
        if dropout_p > 0.0:
            attn_output_weights = aten.dropout(attn_output_weights, dropout_p, True)
        attn_output = aten.bmm(attn_output_weights, v)
        attn_output = attn_output.transpose(0, 1).contiguous().view(tgt_len * bsz, embed_dim)
        attn_output = aten.linear(attn_output, out_proj_weight, out_proj_bias)
        attn_output = attn_output.view(tgt_len, bsz, attn_output.size(1))
        attn_output_weights = attn_output_weights.view(bsz, num_heads, tgt_len, src_len)
        if average_attn_weights:
            attn_output_weights = attn_output_weights.mean(1)
        if not is_batched:
            attn_output = attn_output.squeeze(1)
            attn_output_weights = attn_output_weights.squeeze(0)
        return attn_output, attn_output_weights
    if attn_mask is not None:
        if attn_mask.size(0) == 1 and attn_mask.dim() == 3:
            attn_mask = attn_mask.unsqueeze(0)
        else:
            attn_mask = attn_mask.view(bsz, num_heads, -1, src_len)
    q = q.view(bsz, num_heads, tgt_len, head_dim)
    k = k.view(bsz, num_heads, src_len, head_dim)
    v = v.view(bsz, num_heads, src_len, head_dim)
    attn_output = aten.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, False)
    attn_output = attn_output.permute(2, 0, 1, 3).contiguous().view(bsz * tgt_len, embed_dim)
    attn_output = aten.linear(attn_output, out_proj_weight, out_proj_bias)
    attn_output = attn_output.view(tgt_len, bsz, attn_output.size(1))
    if not is_batched:
        attn_output = attn_output.squeeze(1)
    return attn_output, None
