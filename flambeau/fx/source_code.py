"""Compilation of generated source so that tracebacks show its lines, and the imports that it needs."""

from __future__ import annotations

import ast
import importlib
import itertools
import linecache
import pickle
import re
from collections.abc import Callable
from typing import Any

from ..core.naming import own_name
from .codegen import _custom_builtins
from .names import is_from_torch

# -- source ---------------------------------------------------------------------------------------------------------------


class _SourceCache:
    """Keeps generated source for tracebacks and `inspect`."""

    def __init__(self) -> None:
        self.eval_cache: dict[str, str] = {}
        self.next_id = itertools.count()

    def cache(self, source: str, values: dict[str, Any], origin: dict[str, Any]) -> str:
        """Register source text under a new file name, for tracebacks."""
        key = f"<eval_with_key>.flambeau.{next(self.next_id)}"  # PyTorch in the same process numbers its own
        if origin:
            key += f" from {origin['co_filename']}:{origin['co_firstlineno']} in {origin['co_name']}"
        self.eval_cache[key] = source
        linecache.lazycache(key, {**values, "__name__": key, "__file__": key, "__loader__": self})
        return key

    def get_source(self, module_name: str) -> str | None:
        """Return the source of a generated module: the method that the standard library calls on a module's loader."""
        return self.eval_cache.get(module_name)


_loader = _SourceCache()


def _exec_with_source(src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None) -> None:
    exec(compile(src, _loader.cache(src, globals, co_fields or {}), "exec", dont_inherit=True), globals)


def _method_from_src(
    method_name: str, src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None
) -> Callable:
    values = dict(globals)
    _exec_with_source(src, values, co_fields)
    return values.pop(method_name)


def _forward_from_src(src: str, globals: dict[str, Any], co_fields: dict[str, Any] | None = None) -> Callable:
    return _method_from_src("forward", src, globals, co_fields)


# -- pickling -------------------------------------------------------------------------------------------------------------


def _import_statement(name: str, value: Any) -> str:
    if name in _custom_builtins:
        return _custom_builtins[name].import_str
    if isinstance(value, str):  # an annotation that was written as text
        return f"{name} = {value!r}"
    if is_from_torch(value):
        return "import torch"
    module = pickle.whichmodule(value, value.__qualname__)  # type: ignore[attr-defined]
    return f"from {module} import {value.__qualname__} as {name}"


def _format_import_block(globals: dict[str, Any], importer: Any = None) -> str:
    return "\n".join(sorted({_import_statement(name, value) for name, value in globals.items()}))


_TEXT = re.compile(r"(\w+) = ('.*'|\".*\")")
_IMPORT_AS = re.compile(r"from ([\w.]+) import ([\w.]+)(?: as (\w+))?")


def _resolve_imports(block: str) -> dict[str, Any]:
    """Return the objects that the import lines of a pickled module name; `torch` means this package."""
    values = {name: builtin.obj for name, builtin in _custom_builtins.items()}
    known = {builtin.import_str for builtin in _custom_builtins.values()}
    for line in block.splitlines():
        if not line or line in known:
            continue
        text = _TEXT.fullmatch(line)
        if text is not None:
            values[text[1]] = ast.literal_eval(text[2])
            continue
        found = _IMPORT_AS.fullmatch(line)
        if found is None:
            raise RuntimeError(f"a pickled GraphModule imports its globals in a way that is not known here: {line!r}")
        value = importlib.import_module(own_name(found[1]))
        for part in found[2].split("."):
            value = getattr(value, part)
        values[found[3] or found[2]] = value
    return values
