"""A group of ranks, and the order of its operations.

Operations of one group run one after the other, in the order in which they were called. An asynchronous one runs in a thread of the group;
one that is waited for runs in the calling thread if nothing else is pending, because a handover would take longer than most operations
do."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from ..core import watching
from ..core.device import cpu
from ..core.device import device as Device
from ..core.locks import new_lock
from ..core.tensor import Tensor
from ..futures import Future
from .options import NO_TIMEOUT, DebugLevel, get_debug_level
from .store import Store
from .work import Work

observers: list[
    Callable[[str, list, float, float], None]
] = []  # called with name, shapes, begin and end of every operation


_DONE = Work(what="done")  # the work of an operation that has completed
_DONE.get_future().set_result([])


def shapes_of(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Return shapes as a profiler shows them: complex numbers are pairs."""
    return [[*t.shape, 2] if t.dtype.is_complex else list(t.shape) for t in tensors]


class OrderedGroup:
    """Group of ranks that communicate in order: its members and its engine."""

    KNOWN_BY_IDENTITY = True

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int = 0,
        engine: Callable[[], Any] | None = None,
        backend: str = "undefined",
        timeout: timedelta = NO_TIMEOUT,
        ranks: Sequence[int] = (),
        group_name: str = "",
        group_desc: str = "",
        gpu_engine: Callable[[Any], Any] | None = None,
    ) -> None:
        if isinstance(store, int):  # (rank, size): of a class of the program's own, which moves the bytes itself
            store, rank, size = None, store, rank
            ranks = range(size)
        self.store, self._rank, self._size = store, rank, size
        self._make_engine = engine
        self._engine: Any = None
        self._make_gpu_engine, self._gpu_engines = gpu_engine, dict[Any, Any]()  # by device
        self.backend_name, self._timeout = backend, timeout
        self.ranks = list(ranks)
        self.group_name, self.group_desc = group_name, group_desc
        self.bound_device_id: Any = None
        self._order = new_lock()  # held by the operation that runs
        self._pending: queue.SimpleQueue = queue.SimpleQueue()
        self._unfinished = 0
        self._counting = new_lock()
        self._thread: threading.Thread | None = None
        self._monitored = 0
        self._sequence = 0
        self._closed = False

    # -- who is in it -------------------------------------------------------------------------------------------------

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def name(self) -> str:
        return self.backend_name

    def get_group_store(self) -> Store:
        return self.store

    def _get_backend_name(self) -> str:
        return self.backend_name

    def _get_backend(self, device: Any = None) -> OrderedGroup:
        return self

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    set_timeout = _set_default_timeout

    @property
    def options(self) -> Any:
        return self

    @property
    def supports_coalescing(self) -> bool:
        return False

    def engine(self) -> Any:
        """Return the engine that transfers the data; created on first use, by all ranks together."""
        if self._engine is None:
            with self._order:
                if self._engine is None:
                    if self._make_engine is None:
                        raise NotImplementedError(f"{type(self).__name__} does not say how this is done")
                    self._engine = self._make_engine()
        return self._engine

    @property
    def _device_types(self) -> list[Device]:
        """Devices of the tensors that this group can send; the CPU is always one."""
        return [cpu] if self._make_gpu_engine is None else [cpu, Device("cuda")]

    def engine_of(self, tensor: Tensor) -> Any:
        """Return the engine for a tensor's device."""
        where = tensor.device
        if where is cpu:
            return self.engine()
        with self._order:
            if where not in self._gpu_engines:
                if self._make_gpu_engine is None:
                    raise RuntimeError(f"No backend type associated with device type {where.type}")
                self._gpu_engines[where] = self._make_gpu_engine(where)
            return self._gpu_engines[where]

    def together(self, tensor: Tensor) -> contextlib.AbstractContextManager:
        """Return a context manager: messages started inside start together, since on a GPU one would wait for the other."""
        return contextlib.nullcontext() if tensor.device is cpu else self.engine_of(tensor).together()

    # -- the order of things ------------------------------------------------------------------------------------------

    def _seconds(self, timeout: timedelta | None) -> float:
        return (self._timeout if timeout is None or timeout == NO_TIMEOUT else timeout).total_seconds()

    def _run(
        self, what: str, function: Callable[[Any], Any], results: list, tensors: Sequence[Tensor], wait: bool
    ) -> Work:
        """Run function(engine), now or after the operations before it; return its Work."""
        if self._closed:
            raise RuntimeError(f"{what}: this process group was destroyed")
        if watching.active:
            watching.tell_sent(what)
        self._sequence += 1
        detail = self._describe_operation(what, tensors)

        def operate() -> None:
            began = time.perf_counter()
            engine = self.engine_of(tensors[0]) if tensors else self.engine()
            engine.detail = detail
            function(engine)
            if observers:
                for observe in list(observers):
                    observe(f"{self.backend_name}:{what}", shapes_of(tensors), began, time.perf_counter())

        if wait and not self._unfinished:
            with self._order:
                operate()
            return _DONE
        future: Future = Future()
        if tensors and tensors[0].device is not cpu:  # on a stream of the GPU, which keeps the order itself
            with self._order:
                operate()
            future.set_result(results)
            return Work(future, what=what)
        self._enqueue(operate, future, results)
        if wait:
            future.wait()
        return Work(future, what=what)

    def _describe_operation(self, what: str, tensors: Sequence[Tensor]) -> str:
        """Return the number and shapes of an operation as text, which ranks compare at debug level DETAIL; "" at other levels."""
        if get_debug_level() is not DebugLevel.DETAIL:
            return ""
        if what not in ("all_reduce", "broadcast", "reduce", "reduce_scatter", "scatter"):
            return f" #{self._sequence}"  # shapes may differ
        shapes = ", ".join(f"{t.dtype} {tuple(t.shape)}" for t in tensors)
        return f" #{self._sequence} of {shapes}"

    def _enqueue(self, operate: Callable[[], None], future: Future, results: list) -> None:
        with self._counting:
            self._unfinished += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_pending, name="process group", daemon=True)
                self._thread.start()
        self._pending.put((operate, future, results))

    def _run_pending(self) -> None:
        while (item := self._pending.get()) is not None:
            operate, future, results = item
            try:
                with self._order:
                    operate()
            except Exception as problem:  # raised in the thread that waits
                with self._counting:
                    self._unfinished -= 1
                future.set_exception(problem)
            else:
                with self._counting:
                    self._unfinished -= 1
                future.set_result(results)
            del item, operate, future, results  # the tensors may go now

    # -- the end ------------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Release threads and memory, after pending operations have finished."""
        if self._closed:
            return
        self._closed = True
        thread = self._thread
        if thread is not None:
            self._pending.put(None)
            thread.join(5)
        for engine in (self._engine, *self._gpu_engines.values()):
            if engine is not None:
                engine.close()
        self._gpu_engines.clear()

    abort = shutdown

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group_name!r}: rank {self._rank} of {self._size}, {self.backend_name}>"

    def __reduce__(self) -> tuple:
        raise TypeError(f"cannot pickle '{type(self).__name__}' object")
