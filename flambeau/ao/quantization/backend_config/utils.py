"""Queries of a BackendConfig."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..fuser_method_mappings import _reverse2, _reverse3
from .backend_config import BackendConfig, BackendPatternConfig, DTypeConfig

__all__ = [
    "get_fused_module_classes", "get_fuser_method_mapping", "get_fusion_pattern_to_extra_inputs_getter",
    "get_fusion_pattern_to_root_node_getter", "get_module_to_qat_module", "get_pattern_to_dtype_configs",
    "get_pattern_to_input_type_to_index", "get_qat_module_classes", "get_root_module_to_quantized_reference_module",
]  # fmt: skip


def _settings_by_pattern(backend_config: BackendConfig, name: str) -> dict[Any, Any]:
    """Return a setting of all patterns that have it, by pattern."""
    patterns = backend_config._pattern_complex_format_to_config
    return {p: getattr(config, name) for p, config in patterns.items() if getattr(config, name) is not None}


def get_pattern_to_dtype_configs(backend_config: BackendConfig) -> dict[Any, list[DTypeConfig]]:
    return _settings_by_pattern(backend_config, "dtype_configs")


def get_pattern_to_input_type_to_index(backend_config: BackendConfig) -> dict[Any, dict[str, int]]:
    return _settings_by_pattern(backend_config, "_input_type_to_index")


def get_module_to_qat_module(backend_config: BackendConfig) -> dict[Any, Any]:
    return _settings_by_pattern(backend_config, "qat_module")


def get_fusion_pattern_to_root_node_getter(backend_config: BackendConfig) -> dict[Any, Callable]:
    return _settings_by_pattern(backend_config, "_root_node_getter")


def get_fusion_pattern_to_extra_inputs_getter(backend_config: BackendConfig) -> dict[Any, Callable]:
    return _settings_by_pattern(backend_config, "_extra_inputs_getter")


def get_qat_module_classes(backend_config: BackendConfig) -> tuple[type, ...]:
    return tuple(set(_settings_by_pattern(backend_config, "qat_module").values()))


def get_fused_module_classes(backend_config: BackendConfig) -> tuple[type, ...]:
    return tuple(set(_settings_by_pattern(backend_config, "fused_module").values()))


def get_root_module_to_quantized_reference_module(backend_config: BackendConfig) -> dict[Any, Any]:
    return {
        config.root_module: config.reference_quantized_module
        for config in backend_config.configs
        if config.root_module is not None and config.reference_quantized_module is not None
    }


def _reversed_fuser(config: BackendPatternConfig) -> Any:
    """Return the fuser adapted to layers in the order of the reversed pattern."""
    if config._pattern_complex_format is not None:
        return config.fuser_method
    if not isinstance(config.pattern, tuple):
        raise ValueError(f"Expected pattern to be a tuple, got: {config.pattern}")
    return {2: _reverse2, 3: _reverse3}[len(config.pattern)](config.fuser_method)  # type: ignore[arg-type]


def get_fuser_method_mapping(backend_config: BackendConfig) -> dict[Any, Any]:
    patterns = backend_config._pattern_complex_format_to_config
    return {p: _reversed_fuser(config) for p, config in patterns.items() if config.fuser_method is not None}
