"""Sources compiled and loaded as modules, whose kernels are Python functions."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ...core.aliases import AnyFunction, Values
from ...core.device import device
from . import compiler, driver, launch, threads

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PLAIN_SHARED = 48 << 10  # shared memory that a block may have without an attribute


class Module:
    """Machine code loaded on one device."""

    def __init__(self, code: bytes, index: int):
        threads.activate(index)
        self.index = index
        self.handle = driver.number("cuModuleLoadData", code, kind=ctypes.c_void_p)

    def address(self, name: str) -> int:
        """Return the handle of a kernel."""
        return driver.number("cuModuleGetFunction", self.handle, name.encode(), kind=ctypes.c_void_p)

    def function(self, name: str, kinds: Values, shared: int = 0) -> AnyFunction:
        """Return the kernel as f(grid, block, *values) on the current stream. `kinds` says how each value is passed (see launch.Kinds);
        `shared` is the size of its dynamic shared memory."""
        threads.activate(self.index)
        handle = self.address(name)
        if shared > _PLAIN_SHARED:
            driver.call("cuFuncSetAttribute", handle, _MAX_DYNAMIC_SHARED, shared)
        return launch.launcher(handle, tuple(kinds), self.index, shared)

    def fixed(self, name: str, kinds: Values, grid: Any, block: Any, first: Values, shared: int = 0) -> AnyFunction:
        """Return the kernel as f(_, *values): grid, block and its `first` arguments are fixed, and the call's first argument is ignored. For
        plans, which are called often."""
        threads.activate(self.index)
        return launch.fixed_launcher(self.address(name), tuple(kinds), self.index, shared, grid, block, first)

    def variable(self, name: str) -> int:
        """Return the address of a global variable."""
        place, size = ctypes.c_uint64(), ctypes.c_size_t()
        driver.call("cuModuleGetGlobal_v2", ctypes.byref(place), ctypes.byref(size), self.handle, name.encode())
        return place.value


def architecture(index: int) -> str:
    """Return NVRTC's name for a device's architecture: sm_90a if kernels may use all that Hopper has."""
    major, minor = driver.capability(index)
    return f"sm_{major}{minor}"


@functools.cache
def _load(source: str, index: int, options: tuple[str, ...]) -> Module:
    return Module(compiler.cubin(source, architecture(index), options), index)


class Later:
    """A module that other threads compile. Its kernels are loaded when they are first launched outside a rehearsal."""

    def __init__(self, source: str, index: int, options: tuple[str, ...]):
        self._source = source, index, options
        compiler.begin(source, architecture(index), options)

    def __getattr__(self, name: str) -> Any:
        return getattr(_loaded(*self._source), name)

    def function(self, *given: Any) -> AnyFunction:
        return self._launched(lambda: _loaded(*self._source).function(*given))

    def fixed(self, *given: Any) -> AnyFunction:
        return self._launched(lambda: _loaded(*self._source).fixed(*given))

    @staticmethod
    def _launched(make: Callable[[], AnyFunction]) -> AnyFunction:
        launch: AnyFunction | None = None

        def run(*values: Any) -> None:
            nonlocal launch
            if launch is None:
                if rehearsal.on:
                    return
                launch = make()
            launch(*values)

        return run


def _loaded(source: str, index: int, options: tuple[str, ...]) -> Module:
    _seen.add((source, index, options))
    return _load(source, index, options)


class _Rehearsal(threading.local):
    on = False


rehearsal = _Rehearsal()
_seen: set[tuple[Any, ...]] = set()  # sources that were loaded


@contextlib.contextmanager
def rehearsing() -> Iterator[None]:
    """Context manager for work that is captured and thrown away: kernels that have to be compiled are not launched; other threads begin to
    compile them, all at the same time."""
    before, rehearsal.on = rehearsal.on, True
    try:
        yield
    finally:
        rehearsal.on = before


def load_source(source: str, where: device, options: tuple[str, ...] = ()) -> Module:
    """Compile a source (or find it on disk) and load it on a device, once."""
    key = source, where.index or 0, tuple(options)
    if rehearsal.on and key not in _seen:
        return Later(*key)  # type: ignore[return-value]
    return _loaded(*key)


class Bound:
    """A device in the form that `kernels.cuda_program` expects."""

    def __init__(self, where: device, scratch: Callable[[int], int]):
        self.where, self.scratch = where, scratch
        self.processors = driver.attribute("multi_processor_count", where.index or 0)

    def load(self, source: str) -> Module:
        return load_source(source, self.where)
