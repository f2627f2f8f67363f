"""`torch.ops.profiler`: named ranges, as functions that graphs can call."""

from __future__ import annotations

from typing import Any

from ..core.overrides import overridable
from .session import record_function


@overridable
def _record_function_enter(name: str, args: str | None = None) -> Any:
    """Begin a range; return the handle that ends it."""
    return record_function(name, args).__enter__()


_record_function_enter_new = _record_function_enter


@overridable
def _record_function_exit(handle: Any) -> None:
    """End the range of a handle."""
    if not isinstance(handle, record_function):
        raise TypeError(
            f"_record_function_exit(): expected what _record_function_enter returned, not {type(handle).__name__}"
        )
    handle.__exit__(None, None, None)
