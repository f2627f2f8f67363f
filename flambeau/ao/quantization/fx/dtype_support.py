"""Checks that a backend can compute a pattern with the dtypes that its QConfig asks for."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as torch

from ....fx import Node
from ..backend_config import BackendConfig, DTypeConfig, DTypeWithConstraints
from ..backend_config.utils import get_fusion_pattern_to_root_node_getter, get_pattern_to_dtype_configs
from ..fake_quantize import FixedQParamsFakeQuantize
from ..observer import FixedQParamsObserver, ObserverBase, PlaceholderObserver
from ..qconfig import QConfigAny, float16_dynamic_qconfig, float16_static_qconfig, qconfig_equals
from .quantize_handler import _default_root_node_getter
from .utils import node_arg_is_bias, node_arg_is_weight

_FLOAT = PlaceholderObserver.with_args(dtype=torch.float)
_SUGGESTION = (
    "Please use torch.ao.quantization.get_default_qconfig_mapping or torch.ao.quantization.get_default_qat_qconfig_mapping. "
    'Example:\n    qconfig_mapping = get_default_qconfig_mapping("fbgemm")\n'
    "    model = prepare_fx(model, qconfig_mapping, example_inputs)"
)


def made(constructor: Any) -> Any:
    """Return the observer that a constructor makes, or None if the constructor is None."""
    return constructor() if constructor else None


def dtype_and_dynamic(observer: Any) -> tuple[Any, bool]:
    """Return the dtype that an observer asks for, and whether it is dynamic."""
    return (None, False) if observer is None else (observer.dtype, getattr(observer, "is_dynamic", False))


def _observer_problem(observing: Any, told: DTypeWithConstraints, what: str, qconfig: Any) -> str | None:
    """Return why the limits, scale or zero point of an observer violate the backend's constraints, or None."""
    observer = observing if isinstance(observing, ObserverBase) else observing.activation_post_process
    low, high, eps = (getattr(observer, name, None) for name in ("quant_min", "quant_max", "eps"))
    limits = (told.quant_min_lower_bound, told.quant_max_upper_bound)
    if limits[0] is not None and limits[1] is not None:
        if low is None or high is None:
            return f"QConfig {what} must specify 'quant_min' and 'quant_max', ignoring {qconfig}"
        if low < limits[0] or high > limits[1]:
            return (
                f"QConfig {what} quantization range must fall within the backend's:\n"
                f"QConfig range = ({low}, {high}), BackendConfig range = {limits}, ignoring {qconfig}"
            )
    least = told.scale_min_lower_bound
    if least is not None:
        if eps is None:
            return f"QConfig {what} must specify 'eps', ignoring {qconfig}"
        if eps < least:
            return (
                f"QConfig {what} eps ({eps}) must be greater than or equal to the backend's min scale value ({least}), "
                f"ignoring {qconfig}"
            )
    fixed = (told.scale_exact_match, told.zero_point_exact_match)
    if fixed[0] is None or fixed[1] is None:
        return None
    if any(qconfig_equals(qconfig, half) for half in (float16_static_qconfig, float16_dynamic_qconfig)):
        return None
    if not isinstance(observing, (FixedQParamsObserver, FixedQParamsFakeQuantize)):
        return (
            "QConfig must specify a FixedQParamsObserver or a FixedQParamsFakeQuantize for fixed qparams ops, "
            f"ignoring {qconfig}.\n{_SUGGESTION}"
        )
    if observer.scale != fixed[0] or observer.zero_point != fixed[1]:
        return (
            f"QConfig fixed scale ({observer.scale}) and zero point ({observer.zero_point}) do not match the backend's "
            f"({fixed[0]} and {fixed[1]}), ignoring {qconfig}.\n{_SUGGESTION}"
        )
    return None


def _qconfig_satisfies_dtype_config_constraints(
    qconfig: QConfigAny, dtype_with_constraints: DTypeWithConstraints, is_activation: bool = True
) -> bool:
    """Return whether a QConfig's activation (or weight) settings are within the backend's limits; warns if not."""
    if qconfig is None or dtype_with_constraints.dtype is None:
        return True
    observing = made(qconfig.activation if is_activation else qconfig.weight)
    if observing is None or observing.dtype != dtype_with_constraints.dtype:
        return True
    problem = _observer_problem(observing, dtype_with_constraints, "activation" if is_activation else "weight", qconfig)
    if problem is not None:
        warnings.warn(problem, stacklevel=2)
    return problem is None


def _input_supported(arg: Any, node: Node, qconfig: QConfigAny, config: DTypeConfig) -> bool:
    if isinstance(arg, (list, tuple)):
        return all(_input_supported(a, node, qconfig, config) for a in arg)
    if not isinstance(arg, Node):
        return True
    info = node.meta["target_dtype_info"]
    if node_arg_is_weight(node, arg):
        wanted, _ = dtype_and_dynamic(made(info.get("weight_obs_or_fq_ctr")))
        satisfied = _qconfig_satisfies_dtype_config_constraints(qconfig, config.weight_dtype_with_constraints, False)
        return config.weight_dtype is None or (wanted == config.weight_dtype and satisfied)
    if node_arg_is_bias(node, arg):
        wanted, _ = dtype_and_dynamic(made(info.get("bias_obs_or_fq_ctr")))
        return config.bias_dtype is None or wanted == config.bias_dtype
    wanted, dynamic = dtype_and_dynamic(made(info.get("input_act_obs_or_fq_ctr")))
    return config.input_dtype is None or (
        config.input_dtype == wanted
        and bool(config.is_dynamic) == bool(dynamic)
        and _qconfig_satisfies_dtype_config_constraints(qconfig, config.input_dtype_with_constraints)
    )


def _output_supported(node: Node, qconfig: QConfigAny, config: DTypeConfig) -> bool:
    wanted, dynamic = dtype_and_dynamic(made(node.meta["target_dtype_info"].get("output_act_obs_or_fq_ctr", _FLOAT)))
    satisfied = _qconfig_satisfies_dtype_config_constraints(qconfig, config.output_dtype_with_constraints)
    result = torch.float32 if dynamic else wanted
    return config.output_dtype is None or (result == config.output_dtype and satisfied)


def supported_by_backend(pattern: Any, matched: Any, qconfig: QConfigAny, backend_config: BackendConfig) -> bool:
    """Return whether one of the backend's entries for a pattern has the dtypes that the matched nodes ask for."""
    if pattern is None:
        return True
    root_getter = get_fusion_pattern_to_root_node_getter(backend_config).get(pattern, _default_root_node_getter)
    first, last = root_getter(matched), matched[0]
    args = (*first.args, *first.kwargs.values())
    return any(
        all(_input_supported(arg, first, qconfig, config) for arg in args) and _output_supported(last, qconfig, config)
        for config in get_pattern_to_dtype_configs(backend_config).get(pattern, [])
    )
