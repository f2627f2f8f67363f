"""Choice of the QConfig for each node of a graph."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import flambeau as torch

from ....fx import Graph, GraphModule
from ...nn.intrinsic import _FusedModule
from ..backend_config import BackendConfig, DTypeConfig
from ..backend_config.utils import get_module_to_qat_module
from ..observer import _is_activation_post_process
from ..qconfig import QConfig, QConfigAny, _add_module_to_qconfig_obs_ctr, qconfig_equals
from ..qconfig_mapping import QConfigMapping
from ..utils import _parent_name, get_qconfig_dtypes

__all__: list[str] = []


def _update_qconfig_for_fusion(model: GraphModule, qconfig_mapping: QConfigMapping) -> None:
    """Copy the qconfig of the types in a fused layer, which must agree, to the fused type."""
    by_type = qconfig_mapping.object_type_qconfigs
    if not by_type:
        return
    modules = dict(model.named_modules())
    for node in model.graph.nodes:
        fused = modules.get(str(node.target)) if node.op == "call_module" else None
        if not isinstance(fused, _FusedModule):
            continue
        first, *others = fused._modules.values()
        qconfig = by_type.get(type(first))
        for other in others:
            if not qconfig_equals(by_type.get(type(other)), qconfig):
                raise LookupError(
                    f"During fusion, we need to specify the same qconfigs for all module types in {type(fused)} "
                    f"offending type: {type(other)}"
                )
        if qconfig is not None:
            by_type[type(fused)] = qconfig


def _update_qconfig_for_qat(qconfig_mapping: QConfigMapping, backend_config: BackendConfig) -> None:
    trained, by_type = get_module_to_qat_module(backend_config), qconfig_mapping.object_type_qconfigs
    for kind, qconfig in list(by_type.items()):
        if kind in trained:
            by_type[trained[kind]] = qconfig


def _get_flattened_qconfig_dict(qconfig_mapping: QConfigMapping) -> dict[Any, QConfigAny]:
    return {
        "": qconfig_mapping.global_qconfig,
        **qconfig_mapping.object_type_qconfigs,
        **qconfig_mapping.module_name_qconfigs,
    }


def _get_object_type_qconfig(
    qconfig_mapping: QConfigMapping, object_type: Any, fallback_qconfig: QConfigAny
) -> QConfigAny:
    return qconfig_mapping.object_type_qconfigs.get(object_type, fallback_qconfig)


def _get_module_name_regex_qconfig(
    qconfig_mapping: QConfigMapping, module_name: str, fallback_qconfig: QConfigAny
) -> QConfigAny:
    """Return the qconfig of the first regular expression that matches a module name."""
    told = qconfig_mapping.module_name_regex_qconfigs
    return next(
        (qconfig for expression, qconfig in told.items() if re.match(expression, module_name)), fallback_qconfig
    )


def _get_module_name_qconfig(
    qconfig_mapping: QConfigMapping, module_name: str, fallback_qconfig: QConfigAny
) -> QConfigAny:
    """Return the qconfig of a module by name, or of the nearest parent that has one."""
    while module_name:
        if module_name in qconfig_mapping.module_name_qconfigs:
            return qconfig_mapping.module_name_qconfigs[module_name]
        module_name = _parent_name(module_name)[0]
    return fallback_qconfig


def _maybe_adjust_qconfig_for_module_name_object_type_order(
    qconfig_mapping: QConfigMapping,
    cur_module_path: str,
    cur_object_type: Any,
    cur_object_type_idx: int,
    fallback_qconfig: QConfigAny,
) -> QConfigAny:
    """Return the qconfig of a call in a module by its type and position."""
    key = (cur_module_path, cur_object_type, cur_object_type_idx)
    return qconfig_mapping.module_name_object_type_order_qconfigs.get(key, fallback_qconfig)


def _maybe_adjust_qconfig_for_module_type_or_name(
    qconfig_mapping: QConfigMapping, module_type: Any, module_name: str, global_qconfig: QConfigAny
) -> QConfigAny:
    """Return a module's qconfig: by its name, else by the first matching expression, else by its type, else the global one."""
    qconfig = _get_object_type_qconfig(qconfig_mapping, module_type, global_qconfig)
    qconfig = _get_module_name_regex_qconfig(qconfig_mapping, module_name, qconfig)
    return _get_module_name_qconfig(qconfig_mapping, module_name, qconfig)


def _generate_node_name_to_qconfig(
    root: Any,
    modules: dict[str, Any],
    input_graph: Graph,
    qconfig_mapping: QConfigMapping,
    node_name_to_scope: dict[str, tuple[str, type]],
) -> dict[str, QConfigAny]:
    """Return the QConfig of each node by name; modules get theirs as an attribute."""
    counts: dict[tuple[str, Any], int] = defaultdict(int)
    everywhere, adjust = qconfig_mapping.global_qconfig, _maybe_adjust_qconfig_for_module_type_or_name

    def ordered(path: str, kind: Any, otherwise: QConfigAny) -> QConfigAny:
        counts[path, kind] += 1
        place = counts[path, kind] - 1
        return _maybe_adjust_qconfig_for_module_name_object_type_order(qconfig_mapping, path, kind, place, otherwise)

    found: dict[str, QConfigAny] = {}
    for node in input_graph.nodes:
        target: Any = node.target
        qconfig = None
        if node.op == "get_attr":
            owner = _parent_name(target)[0]
            qconfig = adjust(qconfig_mapping, type(modules[owner]), owner, everywhere)
        elif node.op in ("call_function", "call_method"):
            path, kind = node_name_to_scope[node.name]
            if node.op == "call_function":
                qconfig = qconfig_mapping.object_type_qconfigs.get(target, everywhere)
            else:
                qconfig = adjust(qconfig_mapping, target, path, everywhere)
            qconfig = adjust(qconfig_mapping, kind, path, qconfig)
            if node.op == "call_function":
                qconfig = ordered(path, target, qconfig)
        elif node.op == "call_module":
            if _is_activation_post_process(modules[target]):
                continue
            path, kind = node_name_to_scope[node.name]
            qconfig = adjust(qconfig_mapping, type(modules[target]), target, everywhere)
            qconfig = ordered(_parent_name(path)[0], kind, qconfig)
        owner_module = modules.get(target) if isinstance(target, str) else None
        qconfig = _add_module_to_qconfig_obs_ctr(qconfig, owner_module)
        if node.op == "call_module":
            modules[target].qconfig = qconfig
        found[node.name] = qconfig
    return found


def _compare_prepare_convert_qconfig_mappings(prepared: QConfigMapping, converted: QConfigMapping) -> None:
    """Raise unless the mapping of `convert` equals that of `prepare`, except for entries set to None (left in floating point)."""
    if not qconfig_equals(prepared.global_qconfig, converted.global_qconfig):
        raise AssertionError("Expected global qconfigs to be the same in the prepare and convert quantization configs")
    for key in ("object_type", "module_name", "module_name_regex"):
        before, now = getattr(prepared, f"{key}_qconfigs"), getattr(converted, f"{key}_qconfigs")
        for name, qconfig in before.items():
            if name not in now:
                raise AssertionError(
                    f"Missing key {key} {name} in convert QConfigMapping when it was present in prepare"
                )
            if now[name] is not None and not qconfig_equals(qconfig, now[name]):
                raise AssertionError(
                    f"Expected convert QConfigMapping to have the same qconfig as prepare for key {key} {name}; "
                    f"prepare: {qconfig}; convert: {now[name]}"
                )


def _is_qconfig_supported_by_dtype_configs(qconfig: QConfig, dtype_configs: list[DTypeConfig]) -> bool:
    activation, weight, dynamic = get_qconfig_dtypes(qconfig)
    for config in dtype_configs:
        result = torch.float if config.is_dynamic else activation
        both_half = activation == weight == torch.float16 and not config.is_dynamic
        matches = (
            (config.input_dtype or torch.float) == activation
            and (config.output_dtype or torch.float) == result
            and (config.weight_dtype or torch.float) == weight
        )
        bias_matches = (config.bias_dtype or torch.float) == (torch.float16 if both_half else torch.float)
        if matches and (dynamic if config.is_dynamic else bias_matches):
            return True
    return False
