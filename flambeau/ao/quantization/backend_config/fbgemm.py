"""The former home of `get_fbgemm_backend_config`."""

from .native import get_fbgemm_backend_config

__all__ = ["get_fbgemm_backend_config"]
