"""The arguments of `compile`, checked in one place, and the errors of compilation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

# Names of PyTorch's, with the tag by which `list_backends` leaves them out.
BACKENDS = {"aot_eager": "debug", "cudagraphs": "", "eager": "debug", "inductor": ""}
generation = [0]  # counts what makes every recording useless: a reset, another world of ranks
_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")


class TorchDynamoException(RuntimeError):
    """Base of errors of compilation."""


class Unsupported(TorchDynamoException):
    """Raised by `compile(fullgraph=True)` for a function that cannot be one graph."""


class ConstraintViolationError(RuntimeError):
    """Raised by a compiled function for a size that was marked as dynamic, although the function accepts no other one."""


def check_compile_options(
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> None:
    """Raise PyTorch's errors for values that `compile` does not accept."""
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    if backend is None or (isinstance(backend, str) and backend in BACKENDS):
        return
    if isinstance(backend, str):
        raise RuntimeError(f"Invalid backend: {backend!r}, expected one of: {', '.join(BACKENDS)}")
    raise NotImplementedError("compile(backend=function) needs captured graphs, which are not in Flambeau yet")


class SettingsPatch(contextlib.ContextDecorator):
    """Context manager or decorator that sets settings of a module temporarily: `config.patch(name=value)`, `config.patch("name", value)`,
    `config.patch({"name": value})`."""

    def __init__(self, settings: ModuleType, *given: Any, **named: Any):
        first = given[0] if given else {}
        self.settings = settings
        self.values: dict[str, Any] = {**(first if isinstance(first, Mapping) else {first: given[1]}), **named}
        self.before: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        space = vars(self.settings)
        self.before.append({name: space[name] for name in self.values if name in space})
        space.update(self.values)

    def __exit__(self, *exc: Any) -> None:
        before = self.before.pop()
        for name in self.values:
            if name in before:
                setattr(self.settings, name, before[name])
            else:
                delattr(self.settings, name)
