"""Descriptions of a backend's quantized operators: patterns of layers, and dtypes for each."""

from .backend_config import BackendConfig, BackendPatternConfig, DTypeConfig, DTypeWithConstraints, ObservationType
from .native import (
    get_fbgemm_backend_config,
    get_native_backend_config,
    get_native_backend_config_dict,
    get_qnnpack_backend_config,
    get_test_only_legacy_native_backend_config,
    get_x86_backend_config,
)
from .onednn import get_onednn_backend_config

__all__ = [
    "BackendConfig", "BackendPatternConfig", "DTypeConfig", "DTypeWithConstraints", "ObservationType",
    "get_fbgemm_backend_config", "get_native_backend_config", "get_native_backend_config_dict", "get_onednn_backend_config",
    "get_qnnpack_backend_config",
    "get_test_only_legacy_native_backend_config", "get_x86_backend_config",
]  # fmt: skip
