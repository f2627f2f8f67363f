"""Queries of dtypes, schemes, configurations and modules, shared by the parts of quantization."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as torch

from ... import nn
from ...core.dtype import dtype as _dtype
from ...core.overrides import Given, Result
from ...core.tensor import Tensor
from ...nn.utils.parametrize import is_parametrized
from . import fixed_ranges
from .quant_type import QuantType

__all__ = [
    "DEPRECATION_WARNING", "MatchAllNode", "NodePattern", "Pattern", "activation_dtype", "activation_is_dynamically_quantized",
    "activation_is_int32_quantized", "activation_is_int8_quantized", "activation_is_statically_quantized", "calculate_qmin_qmax",
    "check_min_max_valid", "check_node", "determine_qparams", "get_combined_dict", "get_fqn_to_example_inputs",
    "get_qconfig_dtypes", "get_qparam_dict", "get_quant_type", "get_swapped_custom_module_class", "getattr_from_fqn",
    "has_no_children_ignoring_parametrizations", "is_per_channel", "is_per_tensor", "op_is_int8_dynamically_quantized",
    "to_underlying_dtype", "validate_qmin_qmax", "weight_dtype", "weight_is_quantized", "weight_is_statically_quantized",
]  # fmt: skip

NodePattern = Any
Pattern = Any
QuantizerCls = Any
DEPRECATION_WARNING = (
    "torch.ao.quantization is deprecated and will be removed in 2.10. \n"
    "For migrations of users: \n"
    "1. Eager mode quantization (torch.ao.quantization.quantize, torch.ao.quantization.quantize_dynamic), please migrate to use "
    "torchao eager mode quantize_ API instead \n"
    "2. FX graph mode quantization (torch.ao.quantization.quantize_fx.prepare_fx,torch.ao.quantization.quantize_fx.convert_fx, "
    "please migrate to use torchao pt2e quantization API instead (prepare_pt2e, convert_pt2e) \n"
    "3. pt2e quantization has been migrated to torchao (https://github.com/pytorch/ao/tree/main/torchao/quantization/pt2e) \n"
    "see https://github.com/pytorch/ao/issues/2259 for more details"
)


def deprecated(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Wrap a function to emit PyTorch's warning that this quantization interface is deprecated."""

    @functools.wraps(function)
    def warning(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        warnings.warn(DEPRECATION_WARNING, DeprecationWarning, stacklevel=2)
        return function(*args, **kwargs)

    return warning


class MatchAllNode:
    """Part of a pattern that matches any node."""


F = nn.functional
module_type_list = {
    nn.ReLU, nn.ReLU6, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AvgPool1d, nn.AvgPool2d,
    nn.AvgPool3d, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.Identity, nn.Hardsigmoid, nn.Sigmoid, nn.Tanh,
}  # fmt: skip
func_list = {
    F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d, F.elu, F.hardswish, F.instance_norm, F.layer_norm,
    F.leaky_relu, F.silu, F.mish, F.dropout, F.max_pool1d, F.max_pool2d, F.max_pool3d, F.relu, F.hardtanh, F.hardtanh_,
    torch.transpose, torch.repeat_interleave, torch.squeeze, torch.stack, torch.sum, torch.unsqueeze, torch.cat,
    *fixed_ranges.FUNCTIONS,
}  # fmt: skip
method_list = {
    torch.mean, "relu", "relu_", "contiguous", "detach", "detach_", "permute", "repeat", "repeat_interleave", "reshape", "resize_",
    "shape", "size", "squeeze", "squeeze_", "transpose", "unsqueeze", "unsqueeze_", "view", *fixed_ranges.METHODS,
}  # fmt: skip

_BYTES = (torch.quint8, torch.qint8, torch.uint8, torch.int8)
_PLAIN = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.float8_e5m2, torch.float8_e4m3fn)
_STATIC = (torch.quint8, torch.qint8, torch.quint4x2, torch.qint32, *_PLAIN)


def check_node(node: Any, modules: dict[str, Any]) -> tuple[bool, bool, bool]:
    """Return whether a node calls a function, a method or a module that accepts quantized and other values alike."""
    return (
        node.op == "call_function" and node.target in func_list,
        node.op == "call_method" and node.target in method_list,
        node.op == "call_module" and type(modules[str(node.target)]) in module_type_list,
    )


def get_combined_dict(default_dict: dict, additional_dict: dict) -> dict:
    return {**default_dict, **additional_dict}


def is_per_tensor(qscheme: Any) -> bool:
    return qscheme in (torch.per_tensor_affine, torch.per_tensor_symmetric)


def is_per_channel(qscheme: Any) -> bool:
    return qscheme in (torch.per_channel_affine, torch.per_channel_affine_float_qparams, torch.per_channel_symmetric)


def getattr_from_fqn(obj: Any, fqn: str) -> Any:
    """Return the attribute of `obj` at a dotted path."""
    return functools.reduce(getattr, fqn.split("."), obj)


def to_underlying_dtype(qdtype: _dtype) -> _dtype:
    """Return the integer dtype of a quantized dtype's values."""
    if qdtype.codes is None and qdtype not in (*_PLAIN, torch.uint16):
        raise AssertionError("Unsupported dtype: " + str(qdtype))
    return qdtype.codes or qdtype


def get_qparam_dict(observer_or_fake_quant: Any) -> dict[str, Any]:
    """Return scheme, dtype, scale, zero point, axis and limits, in the form of reference modules."""
    qscheme, dtype = getattr(observer_or_fake_quant, "qscheme", None), observer_or_fake_quant.dtype
    if not qscheme or type(observer_or_fake_quant).__name__ == "PlaceholderObserver":
        return {"qscheme": None, "dtype": dtype}
    qparams: dict[str, Any] = {"qscheme": qscheme, "dtype": dtype}
    if is_per_tensor(qscheme):
        qparams["qscheme"] = torch.per_tensor_affine
    elif is_per_channel(qscheme):
        if qscheme == torch.per_channel_symmetric:
            qparams["qscheme"] = torch.per_channel_affine
        qparams["axis"] = observer_or_fake_quant.ch_axis
    else:
        raise RuntimeError(f"Unrecognized qscheme: {qscheme}")
    qparams["scale"], qparams["zero_point"] = observer_or_fake_quant.calculate_qparams()
    for limit in ("quant_min", "quant_max"):
        if hasattr(observer_or_fake_quant, limit):
            qparams[limit] = getattr(observer_or_fake_quant, limit)
    return qparams


def get_swapped_custom_module_class(custom_module: nn.Module, custom_module_class_mapping: dict, qconfig: Any) -> Any:
    """Return the class that replaces a custom module, for its kind of quantization; raises if there is none."""
    class_mapping = custom_module_class_mapping.get(get_quant_type(qconfig), {})
    if type(custom_module) not in class_mapping:
        raise AssertionError(
            f"did not find corresponding observed module class for {type(custom_module)} in mapping: {class_mapping}"
        )
    return class_mapping[type(custom_module)]


# -- what a qconfig asks for ---------------------------------------------------------------------------------------------


def _instantiate(qconfig: Any, part: str, purpose: str) -> Any:
    if qconfig is None:
        raise AssertionError(f"qconfig must be provided to {purpose}")
    return getattr(qconfig, part)()


def activation_dtype(qconfig: Any) -> _dtype:
    return _instantiate(qconfig, "activation", "determine activation dtype").dtype


def weight_dtype(qconfig: Any) -> _dtype:
    return _instantiate(qconfig, "weight", "determine weight dtype").dtype


def get_qconfig_dtypes(qconfig: Any) -> tuple[_dtype, _dtype, bool]:
    """Return (dtype of activations, dtype of weights, whether activations are quantized dynamically)."""
    activation = _instantiate(qconfig, "activation", "extract dtypes")
    return activation.dtype, qconfig.weight().dtype, getattr(activation, "is_dynamic", False)


def activation_is_dynamically_quantized(qconfig: Any) -> bool:
    return get_qconfig_dtypes(qconfig)[2]


def activation_is_statically_quantized(qconfig: Any) -> bool:
    kinds = (torch.quint8, torch.qint8, torch.qint32, torch.float16, *_PLAIN)
    return activation_dtype(qconfig) in kinds and not activation_is_dynamically_quantized(qconfig)


def activation_is_int8_quantized(qconfig: Any) -> bool:
    return activation_dtype(qconfig) in _BYTES


def activation_is_int32_quantized(qconfig: Any) -> bool:
    return activation_dtype(qconfig) in (torch.qint32, torch.int32)


def weight_is_quantized(qconfig: Any) -> bool:
    return weight_dtype(qconfig) in (torch.quint8, torch.qint8, torch.float16, torch.quint4x2, *_PLAIN)


def weight_is_statically_quantized(qconfig: Any) -> bool:
    return weight_dtype(qconfig) in _BYTES


def op_is_int8_dynamically_quantized(qconfig: Any) -> bool:
    activation, weight, dynamic = get_qconfig_dtypes(qconfig)
    return activation in (torch.quint8, torch.uint8) and weight in (torch.qint8, torch.int8) and dynamic


def get_quant_type(qconfig: Any) -> QuantType:
    activation = _instantiate(qconfig, "activation", "determine quant type")
    weight = qconfig.weight()
    dynamic = getattr(activation, "is_dynamic", False)
    if weight.dtype in _STATIC:
        if dynamic:
            return QuantType.DYNAMIC
        return QuantType.STATIC if activation.dtype in _STATIC else QuantType.WEIGHT_ONLY
    if weight.dtype == torch.float16:
        if dynamic:
            return QuantType.DYNAMIC
        if activation.dtype == torch.float16:
            return QuantType.STATIC
    raise Exception(
        f"Unrecognized dtype combination in get_quant_type: activation({activation.dtype}),weight({weight.dtype})"
    )


# -- from the smallest and largest value to scale and zero point ---------------------------------------------------------

_NOT_RUN = "must run observer before calling calculate_qparams. Returning default values."


def check_min_max_valid(min_val: Tensor, max_val: Tensor) -> bool:
    """Return whether an observer has seen values; raises if the smallest exceeds the largest."""
    if min_val.numel() == 0 or max_val.numel() == 0:
        warnings.warn(_NOT_RUN, stacklevel=2)
        return False
    if min_val.dim() == 0 or max_val.dim() == 0:
        if min_val == float("inf") and max_val == float("-inf"):
            warnings.warn(_NOT_RUN, stacklevel=2)
            return False
        if min_val > max_val:
            raise AssertionError(f"min {min_val} should be less than max {max_val}")
    elif torch.any(min_val > max_val):
        raise AssertionError(f"min {min_val} should be less than max {max_val}")
    return True


def calculate_qmin_qmax(
    quant_min: Any, quant_max: Any, has_customized_qrange: bool, dtype: _dtype, reduce_range: bool
) -> tuple[int, int]:
    """Return the quantized range: the requested one, or all of the dtype's; half of it if `reduce_range`."""
    if has_customized_qrange:
        bits = 32 if dtype in (torch.qint32, torch.int32) else 8 if dtype in (torch.qint8, torch.int8) else None
        if bits is not None and not 0 < quant_max - quant_min + 1 <= 2**bits:
            raise AssertionError(
                f"quantization range should be positive and not exceed the maximum bit range (={2**bits})."
            )
        return (quant_min // 2, quant_max // 2) if reduce_range else (quant_min, quant_max)
    if dtype in (torch.qint8, torch.int8):
        return (-64, 63) if reduce_range else (-128, 127)
    if dtype in (torch.quint8, torch.uint8):
        return (0, 127) if reduce_range else (0, 255)
    if dtype in (torch.qint32, torch.int32):
        return -(2**31), 2**31 - 1
    if dtype is torch.uint16:
        return 0, 2**16 - 1
    if dtype is torch.int16:
        return -(2**15), 2**15 - 1
    return 0, 15


def validate_qmin_qmax(quant_min: int, quant_max: int) -> None:
    if not quant_min <= 0 <= quant_max:
        raise AssertionError("Used-specified quantization range must include 0.")
    if quant_min >= quant_max:
        raise AssertionError("qmin must be strictly less than qmax for user-specified quantization range.")


def scale_and_zero_point(
    min_val: Tensor,
    max_val: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: _dtype,
    eps: Tensor,
    custom: bool,
    qscheme: torch.qscheme,
) -> tuple[Tensor, Tensor]:
    """Return scale and zero point for values in [min_val, max_val], tensors of at least one element."""
    if not check_min_max_valid(min_val, max_val):
        return torch.tensor([1.0], device=min_val.device.type), torch.tensor([0], device=min_val.device.type)
    low, high = torch.min(min_val, torch.zeros_like(min_val)), torch.max(max_val, torch.zeros_like(max_val))
    levels = float(quant_max - quant_min)
    zero_point = torch.zeros(low.size(), dtype=torch.int64, device=low.device)
    if qscheme in (torch.per_tensor_symmetric, torch.per_channel_symmetric):
        scale = torch.max(torch.max(-low, high) / (levels / 2), eps)
        if dtype in (torch.quint8, torch.uint8):
            zero_point.fill_((quant_min + quant_max) // 2 if custom else 128)
        elif dtype == torch.uint16:
            zero_point.fill_(2**15)
    elif qscheme == torch.per_channel_affine_float_qparams:
        scale = (max_val - min_val) / levels
        scale = torch.where(scale > eps, scale, torch.ones_like(scale))
        zero_point = -1 * min_val / scale
    else:
        scale = torch.max((high - low) / levels, eps)
        zero_point = quant_min - torch.round(low / scale).to(torch.int)
        zero_point = torch.clamp(zero_point, quant_min, quant_max)
    return scale.reshape(1) if scale.dim() == 0 else scale, zero_point.reshape(
        1
    ) if zero_point.dim() == 0 else zero_point


def determine_qparams(
    min_val: Tensor,
    max_val: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: _dtype,
    eps: Tensor,
    has_customized_qrange: bool,
    qscheme: torch.qscheme = torch.per_tensor_affine,
) -> tuple[Tensor, Tensor]:
    """Return scale (in double precision) and zero point for values in [min_val, max_val]."""
    scale, zero_point = scale_and_zero_point(
        min_val, max_val, quant_min, quant_max, dtype, eps.to(min_val.device), has_customized_qrange, qscheme
    )
    return scale.to(torch.double), zero_point.to(torch.int64)


# -- modules ------------------------------------------------------------------------------------------------------------


def _parent_name(target: str) -> tuple[str, str]:
    """Split `a.b.c` into `a.b` and `c`."""
    parent, _, name = target.rpartition(".")
    return parent, name


def has_no_children_ignoring_parametrizations(module: nn.Module) -> bool:
    if not module._modules:
        return True
    return is_parametrized(module) and len(module._modules) == 1 and "parametrizations" in module._modules


def _normalized_inputs(forward: Callable, args: tuple, kwargs: dict) -> tuple:
    """Return the arguments of a call in the order of the signature, with defaults filled in after the given ones."""
    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return (*bound.args, *bound.kwargs.values())


def get_fqn_to_example_inputs(model: nn.Module, example_inputs: tuple) -> dict[str, tuple]:
    """Return the arguments that each module of a model gets, by its name, when the model is called with `example_inputs`."""
    found: dict[str, tuple] = {}
    names = {module: name for name, module in reversed(list(model.named_modules()))}

    def note(module: nn.Module, args: tuple, kwargs: dict) -> None:
        found[names[module]] = _normalized_inputs(module.forward, args, kwargs)

    handles = [m.register_forward_pre_hook(note, with_kwargs=True, prepend=True) for m in names]
    try:
        model(*example_inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _assert_and_get_unique_device(module: nn.Module) -> Any:
    """Return the device of a module's tensors, None if it has none; raises if there are several."""
    devices = {p.device for p in module.parameters()} | {b.device for b in module.buffers()}
    if {str(d) for d in devices} == {"cpu", "meta"}:
        warnings.warn(
            "Both 'meta' and 'cpu' are present in the list of devices. Module can have one device. We Select 'cpu'.",
            stacklevel=2,
        )
        return torch.device("cpu")
    if len(devices) > 1:
        raise AssertionError(f"prepare only works with cpu or single-device CUDA modules, but got devices {devices}")
    return next(iter(devices), None)
