"""Saving in the background: in a thread, or in a process per rank that serves many saves."""

from __future__ import annotations

import abc
import atexit
import multiprocessing
import os
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from ...core import naming
from .. import groups, object_collectives
from .._state_dict_utils import _map_tensors
from ..distributed_c10d import destroy_process_group, init_process_group
from ..tcp_store import TCPStore
from ..tensor import DTensor
from .planner_helpers import SpreadPart, _is_elsewhere

_EXIT_TIMEOUT_SECONDS = timedelta(minutes=10)


class _AsyncCheckpointExecutor(abc.ABC):
    """Base of executors that save a staged state dict and return a future of the Metadata."""

    @abc.abstractmethod
    def execute_save(self, staging_future_or_state_dict: Any, **options: Any) -> Future: ...


def _save(staged: Any, options: dict[str, Any]) -> Any:
    save = naming.above("distributed.checkpoint.state_dict_saver").save  # which offers to save in the background
    return save(staged.result() if isinstance(staged, Future) else staged, **options)


class _ThreadBasedAsyncCheckpointExecutor(_AsyncCheckpointExecutor):
    """Executor that saves in a thread. Collectives run in it: pass a process group that nothing else uses meanwhile."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "async checkpoint")

    def execute_save(self, staging_future_or_state_dict: Any, **options: Any) -> Future:
        future = self._executor.submit(_save, staging_future_or_state_dict, options)
        future.add_done_callback(lambda _: self._executor.shutdown(wait=False))
        return future


class _ProcessBasedAsyncCheckpointExecutor(_AsyncCheckpointExecutor):
    """Executor that saves in another process: each rank has one, and these form a separate world."""

    def execute_save(self, staging_future_or_state_dict: Any, **options: Any) -> Future:
        if options.pop("process_group", None) is not None:
            raise NotImplementedError("a save in another process is one of all ranks: process_group is not taken")
        helper = _SavingProcess.of_this_process(options.get("no_dist", False))
        executor = ThreadPoolExecutor(1, "async checkpoint")
        future = executor.submit(helper.save, staging_future_or_state_dict, options)
        future.add_done_callback(lambda _: executor.shutdown(wait=False))
        return future


class _SavingProcess:
    """The process that writes checkpoints in the background."""

    _made: _SavingProcess | None = None

    def __init__(self, no_dist: bool) -> None:
        world = None if no_dist or not groups.is_initialized() else self._meeting_point()
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, world), name="checkpoint saver", daemon=True)
        self.process.start()
        other.close()
        self._expect()  # it is ready, or says why not
        atexit.register(self.close)

    @classmethod
    def of_this_process(cls, no_dist: bool) -> _SavingProcess:
        if cls._made is None or not cls._made.process.is_alive():
            cls._made = cls(no_dist)
        return cls._made

    @staticmethod
    def _meeting_point() -> tuple[int, int, str, int]:
        """Return rank, world size, host and port at which the helpers of all ranks rendezvous; the port is free on rank 0's machine."""
        rank, size = groups.get_rank(), groups.get_world_size()
        place: list[Any] = [None]
        if rank == 0:
            probe = TCPStore("127.0.0.1", 0, 1, True)
            place = [(os.environ.get("MASTER_ADDR", "127.0.0.1"), probe.port)]
            probe._server.close()  # type: ignore[union-attr]
        object_collectives.broadcast_object_list(place)
        return rank, size, *place[0]

    def _expect(self) -> Any:
        try:
            kind, value = self.pipe.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(f"the process that saves has ended with code {self.process.exitcode}") from None
        if kind == "error":
            raise RuntimeError(f"the process that saves has failed: {value}")
        return value

    def save(self, staged: Any, options: dict[str, Any]) -> Any:
        state = staged.result() if isinstance(staged, Future) else staged
        self.pipe.send((_map_tensors(state, _without_mesh), options))
        return self._expect()

    def close(self) -> None:
        if self.process.is_alive():
            self.pipe.send(None)
            self.process.join(5)


def _without_mesh(tensor: Any) -> Any:
    if not isinstance(tensor, DTensor):
        return tensor
    return None if _is_elsewhere(tensor) else SpreadPart(tensor)


def _serve(pipe: Any, world: tuple[int, int, str, int] | None) -> None:
    try:
        if world is not None:
            rank, size, host, port = world
            os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
            init_process_group(
                "gloo", init_method=f"tcp://{host}:{port}", rank=rank, world_size=size, timeout=_EXIT_TIMEOUT_SECONDS
            )
        pipe.send(("ready", None))
    except BaseException as problem:
        pipe.send(("error", repr(problem)))
        return
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            break
        if task is None:
            break
        try:
            pipe.send(("saved", _save(*task)))
        except BaseException as problem:
            pipe.send(("error", f"{type(problem).__name__}: {problem}"))
    if world is not None:
        destroy_process_group()
