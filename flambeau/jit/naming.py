"""Qualified names: `__torch__.torch.nn.modules.linear.Linear`, made unique where several classes share one."""

from __future__ import annotations

import re
from typing import Any

_taken: set[str] = set()
_counter = [0]


def qualified_name(thing: Any) -> str:
    """Return the qualified name of a function or class in archives: PyTorch's for PyTorch's objects."""
    module = getattr(thing, "__module__", None) or "__main__"
    name = getattr(thing, "_jit_override_qualname", None)
    if name:
        return name
    module = re.sub(r"^flambeau\.vision\b", "torchvision", module)
    module = re.sub(r"^flambeau\b", "torch", module)
    short = getattr(thing, "__name__", type(thing).__name__)
    if short == "<lambda>":
        short = "_lambda"
    if "." in short:
        raise RuntimeError(f"Could not get qualified name for class '{short}': '{short}' is not a valid identifier")
    parts = [p for p in module.split(".") if p not in ("__main__", "<locals>")]
    return ".".join(["__torch__", *(_identifier(p) for p in parts), short])


def is_library(module: str) -> bool:
    """Return whether a module is Flambeau's own, under its name or (where it stands in for PyTorch) under PyTorch's."""
    return module.partition(".")[0] in ("flambeau", "torch")


def _identifier(part: str) -> str:
    return re.sub(r"\W", "_", part)


def unique_name(name: str) -> str:
    """Return the name, with a `___torch_mangle_N` before its last part if it is taken."""
    if name not in _taken:
        _taken.add(name)
        return name
    return mangled(name)


def unmangled(name: str) -> str:
    """Return a qualified name without its uniqueness suffix."""
    return re.sub(r"\.___torch_mangle_\d+", "", name)


def mangled(name: str) -> str:
    head, _, last = unmangled(name).rpartition(".")
    while True:
        made = f"{head}.___torch_mangle_{_counter[0]}.{last}"
        _counter[0] += 1
        if made not in _taken:
            _taken.add(made)
            return made
