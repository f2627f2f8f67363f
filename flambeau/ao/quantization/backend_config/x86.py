"""The former home of `get_x86_backend_config`."""

from .native import get_x86_backend_config

__all__ = ["get_x86_backend_config"]
