"""Helpers of handlers: sending partial responses, and importing a class by name."""

from __future__ import annotations

import importlib
from typing import Any

from ..context import Context


def import_class(class_name: str, module_prefix: str | None = None) -> Any:
    """Import and return the class `module.Class`, whose module is inside the package `module_prefix` if one is given."""
    module_name, _, name = (class_name or "").rpartition(".")
    path = ".".join(part for part in (module_prefix, module_name) if part)
    if not name or not path:
        raise ImportError(f"{class_name!r} names no class in a module")
    found = getattr(importlib.import_module(path), name, None)
    if found is None:
        raise ImportError(f"class:{name} not found in module:{path}.")
    return found


def send_intermediate_predict_response(
    ret: list[Any], req_id_map: dict[int, str], message: str, code: int, context: Context
) -> None:
    """Send a part of the answers of a batch now; the handler's return value is the last part."""
    if context.send_intermediate is None:
        raise RuntimeError("parts of an answer can only be sent while a request is being answered")
    context.send_intermediate(ret, req_id_map, message, code)
