"""Names of PyTorch's graph capture that programs use; see `flambeau.compiler`."""

from collections.abc import Callable
from typing import Any

from ..compiler import (
    OptimizedModule,
    allow_in_graph,
    assume_constant_result,
    compile,
    disable,
    is_compiling,
    list_backends,
    reset,
)
from ..core import naming as _naming
from . import config
from .eval_frame import is_dynamo_supported


class ExplainOutput:
    """What became of a function: how many graphs, how many operators in them, and why there is none."""

    def __init__(self, compiled: Any):
        behind = compiled._compiled
        recorded = [r for entry in behind.found.values() if type(entry) is list for r in entry]
        self.graph_count = len(recorded)
        self.graph_break_count = len(behind.reasons)
        self.op_count = sum(len(r.program.graph.steps) for r in recorded)
        self.break_reasons = list(behind.reasons)
        self._text = compiled.explain()

    def __str__(self) -> str:
        return self._text


def explain(f: Callable, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """`explain(f)(*args)` calls f so often that it is recorded, and tells how that went."""

    def inner(*args: Any, **kwargs: Any) -> ExplainOutput:
        compiled = compile(f)
        for _ in range(3):
            compiled(*args, **kwargs)
        return ExplainOutput(compiled)

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """Say that a size changes. Each size is recorded by itself, so that this changes nothing."""


mark_static = maybe_mark_dynamic = mark_dynamic


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Say that a tensor stays where it is. Recorded programs read the address of each call, so that this changes nothing."""


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise _naming.no_attribute(__name__, name)
    return _naming.submodule(__name__, name)


__all__ = ["ExplainOutput", "OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "explain",
           "is_compiling", "is_dynamo_supported", "list_backends", "mark_dynamic", "mark_static", "mark_static_address",
           "maybe_mark_dynamic", "reset"]  # fmt: skip
