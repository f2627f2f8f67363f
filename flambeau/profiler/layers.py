"""Ranges for the layers of a network: one for each call of a module, named as in PyTorch's traces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..core import modes
from ..nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from .recorder import Recorder


@contextlib.contextmanager
def named_layers(recorder: Recorder) -> Iterator[None]:
    """Context manager: record calls of modules as ranges: the first Linear is `nn.Module: Linear_0`, the next one `Linear_1`."""
    names: dict[int, str] = {}
    counts: dict[str, int] = {}
    kept: list[Any] = []  # modules that have a number: another one must not get the same id
    running: list[Any] = []

    def begin(module: Any, args: Any) -> None:
        if modes.observing() is not recorder:
            return
        name = names.get(id(module))
        if name is None:
            kind = type(module).__name__
            name = names[id(module)] = f"nn.Module: {kind}_{counts.get(kind, 0)}"
            counts[kind] = counts.get(kind, 0) + 1
            kept.append(module)
        note = recorder.begin(name, modes.FUNCTION)
        note.extra = "python"
        note.module = id(module), type(module).__name__, list(module._parameters.items())
        running.append((module, note))

    def end(module: Any, args: Any, result: Any) -> None:
        if running and running[-1][0] is module:
            recorder.end(running.pop()[1])

    first, last = register_module_forward_pre_hook(begin), register_module_forward_hook(end, always_call=True)
    try:
        yield
    finally:
        first.remove()
        last.remove()
