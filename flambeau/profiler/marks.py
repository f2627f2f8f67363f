"""Operators and ranges as marks for other profilers: `emit_nvtx` for NVIDIA's, `emit_itt` for Intel's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import modes
from ..core.naming import above
from .recorder import operator_name


class _Marks(modes.Observer):
    """Observer that reports operators and ranges to another profiler: `push(name)` and `pop()`."""

    def __init__(self, push: Callable[[str], Any], pop: Callable[[], Any], shapes: bool):
        self.push, self.pop, self.shapes = push, pop, shapes

    def operator(self, op: Any, run: Callable, args: tuple, kwargs: dict) -> Any:
        name = operator_name(op)
        if self.shapes:
            name += f", sizes = {[list(getattr(a, 'shape', ())) for a in args]}"
        self.push(name)
        try:
            result = run(*args, **kwargs)
        finally:
            self.pop()
        return result

    def begin(self, name: str, scope: int, sequence: int = -1) -> None:
        self.push(f"{name}, seq = {sequence}" if sequence >= 0 else name)

    def end(self, event: Any) -> None:
        self.pop()


class _EmitBase:
    """Base of context managers that emit marks for other profilers."""

    kind = ""

    def __init__(self, enabled: bool = True, record_shapes: bool = False):
        self.enabled, self.record_shapes, self.entered = enabled, record_shapes, False

    def _marks(self) -> tuple[Callable, Callable]:
        raise NotImplementedError

    def __enter__(self) -> Any:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError(f"{self.kind} annotation context manager is not reentrant")
        marks = _Marks(*self._marks(), self.record_shapes)
        self.entered = True
        self._before = modes.observe(marks)
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> bool | None:
        if not self.enabled:
            return None
        modes.observe(self._before)
        self._finish()
        return False

    def _finish(self) -> None:
        """Finish the marks, when the context is left."""


class emit_nvtx(_EmitBase):  # noqa: N801
    """Context manager: make every operator a range that NVIDIA's Nsight Systems shows."""

    kind = "NVTX"

    def _marks(self) -> tuple[Callable, Callable]:
        cuda = above("cuda")
        cuda.synchronize()
        return cuda.nvtx.range_push, cuda.nvtx.range_pop

    def _finish(self) -> None:
        above("cuda").synchronize()


class emit_itt(_EmitBase):  # noqa: N801
    """Context manager: make every operator a range that Intel's VTune shows; needs the package `ittapi`."""

    kind = "ITT"

    def _marks(self) -> tuple[Callable, Callable]:
        itt = above("profiler.itt")
        return itt.range_push, itt.range_pop
