"""The arguments of `compile`, checked in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Names of PyTorch's, with the tag by which `list_backends` leaves them out; all of them mean "run it as it is" for now.
BACKENDS = {"aot_eager": "debug", "cudagraphs": "", "eager": "debug", "inductor": ""}
_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")


def check_compile_options(
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> None:
    """Raise PyTorch's errors for values `compile` does not take."""
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    if backend is None or (isinstance(backend, str) and backend in BACKENDS):
        return
    if isinstance(backend, str):
        raise RuntimeError(f"Invalid backend: {backend!r}, expected one of: {', '.join(BACKENDS)}")
    raise NotImplementedError("compile(backend=function) needs captured graphs, which are not in Flambeau yet")
