"""`flambeau.compile` and `torch.compiler`'s switches.

There is no compiler yet: what `compile` returns runs the model or function eagerly, with the same results, and looks the way PyTorch's
does (a model is wrapped in an `OptimizedModule` that keeps it as `_orig_mod`), so that programs and checkpoints written for
`torch.compile` work.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from .core.compile_options import BACKENDS, check_compile_options
from .nn import Module

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends", "reset", "set_stance",
]  # fmt: skip


class OptimizedModule(Module):
    """A compiled model: called like the original, which it keeps as `_orig_mod`."""

    def __init__(self, mod: Module):
        super().__init__()
        self._orig_mod = mod
        self.training = mod.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._orig_mod(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = (
            name in ("_orig_mod", "training")
            or name in self.__dict__
            or "_orig_mod" not in self.__dict__.get("_modules", {})
        )
        if own:
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)


def _compiled_function(function: Callable) -> Callable:
    @functools.wraps(function)
    def eager(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    eager._torchdynamo_orig_callable = function  # type: ignore[attr-defined]
    return eager


def compile(model: Callable | None = None, **options: Any) -> Any:
    """The model or function, compiled. For now that means: run eagerly, with the same results.

    Keywords are those of PyTorch: fullgraph, dynamic, backend, mode, options, disable. Without `model` it is a decorator.

    >>> model = flambeau.compile(flambeau.nn.Linear(2, 2))
    >>> list(model.state_dict())
    ['_orig_mod.weight', '_orig_mod.bias']
    """
    check_compile_options(**options)
    if model is None:
        return functools.partial(compile, **options)
    if not callable(model):
        raise AssertionError(f"A callable function is expected, but {type(model)} is provided.")
    if options.get("disable"):
        return model
    return OptimizedModule(model) if isinstance(model, Module) else _compiled_function(model)


def disable(fn: Callable | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Mark a function as not to be compiled: it is left as it is."""
    return (lambda function: function) if fn is None else fn


def allow_in_graph(fn: Any) -> Any:
    """Mark a function as one node of a compiled graph: it is left as it is."""
    return fn


def assume_constant_result(fn: Callable) -> Callable:
    """Mark a function whose result never changes: it is left as it is."""
    return fn


def is_compiling() -> bool:
    """Whether a graph is being captured now."""
    return False


def is_dynamo_compiling() -> bool:
    """Whether a program is being captured."""
    return False


def is_exporting() -> bool:
    """Whether a program is being exported."""
    return False


def reset() -> None:
    """Forget compiled code: there is none."""


def cudagraph_mark_step_begin() -> None:
    """Tells CUDA graphs that a step begins; there are none."""


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names that `compile(backend=...)` takes, without those for debugging unless told otherwise."""
    return [name for name, tag in BACKENDS.items() if tag not in (exclude_tags or ())]


@contextlib.contextmanager
def set_stance(
    stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
) -> Iterator[None]:
    """Inside, compiled functions would be run the given way; all ways are eager for now."""
    yield
