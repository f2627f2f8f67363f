"""Negotiation of named operations: each rank announces which it is ready for, and those that all are ready for run, in an order that is the
same everywhere. Ranks may call operations in different orders; calls that do not fit together are an error on every rank.

One thread for each set of processes does this. It takes part in a round of negotiation only while its rank has something to do, so an idle
rank sleeps; the others' rounds wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ...core.graph import unrecorded
from ...core.locks import new_lock
from ...core.tensor import Tensor
from ...distributed.replicas import _gather_objects
from . import execution
from .timeline_hook import mark_cycle, note

_CYCLE_SECONDS = 0.001  # seconds before the next round, if nothing was ready in the last


class HorovodInternalError(RuntimeError):
    """Raised when communication between processes fails; elastic programs restore their state and continue."""


class Request:
    """An operation that was called on this rank."""

    def __init__(self, kind: str, name: str, tensors: list[Tensor], settings: dict[str, Any]):
        self.kind, self.name, self.tensors, self.settings = kind, name, tensors, settings
        self.done = threading.Event()
        self.result: Any = None
        self.error: Exception | None = None
        self.began = time.perf_counter()

    def description(self) -> dict[str, Any]:
        """Return the properties of a request that the other ranks need."""
        shapes = [(t.dtype.name, tuple(t.shape)) for t in self.tensors]
        return {"kind": self.kind, "tensors": shapes, **self.settings}

    def finish(self, result: Any, error: Exception | None) -> None:
        self.result, self.error = result, error
        self.done.set()

    def wait(self) -> Any:
        self.done.wait()
        if self.error is not None:
            raise self.error
        return self.result


class Negotiator:
    """Runs the operations of one set of processes in an agreed order."""

    def __init__(self, group: Any):
        self.group = group
        self._pending: dict[str, Request] = {}
        self._changed = threading.Condition(new_lock())
        self._stopping = False
        self._counts: dict[str, int] = {}
        self._joining: Request | None = None
        self._joined: list[int] = []  # ranks in the order in which they joined
        self._thread: threading.Thread | None = None

    # -- from the program -------------------------------------------------------------------------------------------------

    def automatic_name(self, kind: str) -> str:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind}.noname.{self._counts[kind]}"

    def submit(self, kind: str, name: str | None, tensors: list[Tensor], settings: dict[str, Any]) -> Request:
        """Start an operation."""
        full = self.automatic_name(kind) if name is None else f"{kind}.{name}"
        request = Request(kind, full, tensors, settings)
        with self._changed:
            if self._stopping:
                raise HorovodInternalError("Horovod has been shut down")
            if full in self._pending:
                raise ValueError(
                    f"Requested to {kind} a tensor with the same name as another tensor that is currently being processed: {full}"
                )
            self._pending[full] = request
            if kind == "join":
                self._joining = request
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="horovod", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return request

    def call(self, kind: str, name: str | None, tensors: list[Tensor], settings: dict[str, Any]) -> Any:
        return self.submit(kind, name, tensors, settings).wait()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            pending = list(self._pending.values())
            self._changed.notify_all()
        if self._thread is not None and not pending:
            self._thread.join(5)

    # -- rounds ---------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._stopping)
                if self._stopping:
                    return
                mine = {
                    name: request.description() for name, request in self._pending.items() if request.kind != "join"
                }
                joined = self._joining is not None
            try:
                progressed = self._round(mine, joined)
            except Exception as problem:
                self._fail(problem)
                return
            if not progressed:
                time.sleep(_CYCLE_SECONDS)

    def _fail(self, problem: Exception) -> None:
        """Fail all pending operations, because the group is broken."""
        with self._changed:
            self._stopping = True
            pending, self._pending = list(self._pending.values()), {}
        for request in pending:
            request.finish(None, HorovodInternalError(str(problem)))

    def _round(self, mine: dict[str, dict], joined: bool) -> bool:
        mark_cycle()
        told = _gather_objects(self.group, (mine, joined))
        for rank, (_, has_joined) in enumerate(told):
            if has_joined and rank not in self._joined:
                self._joined.append(rank)
        active = [rank for rank in range(self.group.size()) if rank not in self._joined]
        if not active:
            self._all_joined()
            return True
        ready = [name for name in told[active[0]][0] if all(name in told[rank][0] for rank in active)]
        for name in ready:
            self._execute(name, {rank: told[rank][0][name] for rank in active})
        return bool(ready)

    def _all_joined(self) -> None:
        last, self._joined = self._joined[-1], []
        with self._changed:
            self._counts.clear()  # ranks that joined earlier have named fewer operations
            request, self._joining = self._joining, None
            if request is not None:
                self._pending.pop(request.name, None)
        if request is not None:
            request.finish(last, None)

    def _execute(self, name: str, told: dict[int, dict]) -> None:
        """Perform one operation that all active ranks have called."""
        with self._changed:
            request = self._pending.get(name)
        negotiated = time.perf_counter()
        problem = self._mismatch(name, told)
        result: Any = None
        if problem is None:
            try:
                result = unrecorded(execution.execute, self.group, request, told, self._joined)
            except (ValueError, NotImplementedError) as error:
                problem = error
        with self._changed:
            self._pending.pop(name, None)
        if request is not None:
            note(name, request.kind, request.began, negotiated, time.perf_counter())
            request.finish(result, problem)

    def _mismatch(self, name: str, told: dict[int, dict]) -> Exception | None:
        """Return an error if the ranks' calls do not fit together (the same one on all ranks), else None."""
        ranks = sorted(told)
        first = told[ranks[0]]
        kind = first["kind"]
        for rank in ranks[1:]:
            for what, text in _CHECKS[kind]:
                mine, theirs = what(first), what(told[rank])
                if mine != theirs:
                    return HorovodInternalError(
                        f"Mismatched {text} of {name}: rank {ranks[0]} has {mine}, but rank {rank} has {theirs}."
                    )
        if self._joined and kind not in ("allreduce", "barrier"):
            return HorovodInternalError(f"{kind} is not supported with Join at this time.")
        return None


def _dtypes(told: dict) -> list:
    return [dtype for dtype, _ in told["tensors"]]


def _shapes(told: dict) -> list:
    return [shape for _, shape in told["tensors"]]


def _inner_shapes(told: dict) -> list:
    return [(len(shape), *shape[1:]) for _, shape in told["tensors"]]


def _setting(name: str) -> Callable[[dict], Any]:
    return lambda told: told.get(name)


_REDUCTION = [
    (_dtypes, "data types"),
    (_shapes, "shapes"),
    (_setting("op"), "operations"),
    (_setting("scale"), "factors"),
]
_CHECKS: dict[str, list[tuple[Callable[[dict], Any], str]]] = {
    "allreduce": _REDUCTION,
    "reducescatter": _REDUCTION,
    "allgather": [(_dtypes, "data types"), (_inner_shapes, "shapes")],
    "alltoall": [(_dtypes, "data types"), (_inner_shapes, "shapes")],
    "broadcast": [(_dtypes, "data types"), (_shapes, "shapes"), (_setting("root"), "root ranks")],
    "barrier": [],
}
