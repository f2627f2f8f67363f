"""Small helpers for programs that use the elastic launcher as a library."""

from __future__ import annotations

import os

from .distributed import get_free_port, get_socket_with_port

__all__ = ["get_env_variable_or_raise", "get_free_port", "get_socket_with_port"]


def get_env_variable_or_raise(env_name: str) -> str:
    """Return the value of an environment variable that must be set."""
    value = os.environ.get(env_name)
    if value is None:
        raise ValueError(f"Environment variable {env_name} expected, but not set")
    return value
