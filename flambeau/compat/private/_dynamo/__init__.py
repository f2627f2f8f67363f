"""Names of PyTorch's graph capture that programs use, implemented in `flambeau.compiler`."""

import functools
from collections.abc import Callable
from typing import Any

from ....compiler import (
    OptimizedModule,
    allow_in_graph,
    assume_constant_result,
    compile,
    disable,
    is_compiling,
    list_backends,
    reset,
)
from ....compiler.state.arguments import DYNAMIC, STATIC, WEAK
from ....core import compile_options as exc
from ....core import naming as _naming
from ....nn import Module
from ....nn.unchanged import unchanged
from . import config
from .eval_frame import is_dynamo_supported


class ExplainOutput:
    """A report on a compiled function: how many graphs and operators it has, and why it is not one graph."""

    def __init__(self, compiled: Any):
        behind = compiled._compiled
        recorded = _recordings(behind)
        self.graph_count = len(recorded)
        self.graph_break_count = len(behind.reasons)
        self.op_count = sum(len(r.program.graph.steps) for r in recorded)
        self.break_reasons = list(behind.reasons)
        self._text = compiled.explain()

    def __str__(self) -> str:
        return self._text


def _recordings(behind: Any) -> list[Any]:
    """Return the recordings of a compiled function and of the parts that it is split into."""
    return [*behind.recordings(), *(r for part in behind.parts() for r in _recordings(part))]


def explain(f: Callable, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """Return a function: `explain(f)(*args)` calls f often enough to record it, and reports the outcome. A module is left unchanged."""

    def inner(*args: Any, **kwargs: Any) -> ExplainOutput:
        compiled = compile(f)
        with unchanged(f):
            for _ in range(6):
                compiled(*args, **kwargs)
        return ExplainOutput(compiled._compiled if isinstance(f, Module) else compiled)

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner


def optimize(backend: Any = "inductor", *, nopython: bool = False, dynamic: bool | None = None, **others: Any) -> Any:
    """Return a decorator that compiles: the former name of `compile`, `optimize()(model)`."""
    return functools.partial(compile, backend=backend, fullgraph=nopython, dynamic=dynamic)


def optimize_assert(backend: Any = "inductor", **options: Any) -> Any:
    """Return a decorator that compiles a function, and raises an error if it cannot be one graph."""
    return optimize(backend, **{**options, "nopython": True})


def graph_break(msg: str = "") -> None:
    """Do nothing: a compiled function is split only where it has to be."""


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """Mark a size of a tensor as varying between calls: a new size is then no new kind of argument, whatever `compile(dynamic=)` says. It
    does not count as another compilation, and many sizes share one program if possible. A compiled function that accepts no other size raises
    ConstraintViolationError, on the CPU, when its recording is first used."""
    _mark(t, index, DYNAMIC, STATIC)


def mark_static(t: Any, index: Any = None) -> None:
    """Mark a size of a tensor, or every size, as constant: a new size is then a new kind of argument."""
    _mark(t, range(t.dim()) if index is None else index, STATIC, DYNAMIC)


def _mark(t: Any, index: Any, name: str, other: str) -> None:
    indices = {int(i) for i in (index if isinstance(index, (list, tuple, range)) else (index,))}
    wrong = [i for i in indices if not 0 <= i < t.dim()]
    if wrong:
        raise IndexError(f"a tensor of {t.dim()} dimensions has none with number {wrong[0]}")
    t.__dict__[name] = frozenset(t.__dict__.get(name, frozenset()) | indices)
    t.__dict__[other] = frozenset(t.__dict__.get(other, frozenset()) - indices)


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """Mark a size as varying, like `mark_dynamic`, without an error if it cannot vary."""
    _mark(t, index, DYNAMIC, STATIC)
    _mark(t, index, WEAK, STATIC)


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Mark a tensor whose address never changes. It has no effect: recorded programs read the addresses of each call."""


def __getattr__(name: str) -> Any:
    return _naming.submodule(__name__, name)


__all__ = ["ExplainOutput", "OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "exc", "explain", "graph_break",
           "is_compiling", "is_dynamo_supported", "list_backends", "mark_dynamic", "mark_static", "mark_static_address",
           "maybe_mark_dynamic", "optimize", "optimize_assert", "reset"]  # fmt: skip
