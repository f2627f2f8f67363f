"""The former home of `get_qnnpack_backend_config`."""

from .native import get_qnnpack_backend_config

__all__ = ["get_qnnpack_backend_config"]
