"""An MPI world of processes that were started by any launcher.

MPICH learns about its ranks through PMI, a text protocol of ten commands over a socket whose number is in PMI_FD. Here a thread of the
process itself answers at the other end of that socket, from the store that the ranks share: so torchrun, multiprocessing, Slurm, Kubernetes
or a notebook can start the ranks, no mpiexec is needed, and no port is open for others."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import socket
import sys
import threading
from datetime import timedelta
from typing import Any

from .errors import DistBackendError
from .store import Store
from .tcp_store import TCPStore

_THREAD_MULTIPLE = 3


class _State:
    ranks: tuple[int, int] | None = None  # own rank and size of the MPI world, once it exists


def _answer_pmi_command(line: str, store: Store, rank: int, size: int, barriers: list[int]) -> str:
    """Return a PMI server's answer to one command."""
    said = dict(part.split("=", 1) for part in line.split() if "=" in part)
    command = said.get("cmd", "")
    if command == "initack":
        return f"cmd=initack rc=0\ncmd=set size={size}\ncmd=set rank={rank}\ncmd=set debug=0"
    if command == "put":
        store.set(f"pmi/{said['key']}", line.split("value=", 1)[1])
        return "cmd=put_result rc=0 msg=success"
    if command == "get":
        key = f"pmi/{said['key']}"
        if not store.check([key]):
            return "cmd=get_result rc=-1 msg=- value=unknown"
        return f"cmd=get_result rc=0 msg=- value={store.get(key).decode()}"
    if command == "barrier_in":
        barriers[0] += 1
        store.barrier(f"pmi barrier {barriers[0]}", size)
        return "cmd=barrier_out rc=0"
    known = {
        "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
        "get_maxes": "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=4096 rc=0",
        "get_appnum": "cmd=appnum appnum=0 rc=0",
        "get_universe_size": f"cmd=universe_size size={size} rc=0",
        "get_my_kvsname": "cmd=my_kvsname kvsname=flambeau rc=0",
        "finalize": "cmd=finalize_ack rc=0",
    }
    return known.get(command, f"cmd={command} rc=-1 msg=unknown_command")


def _serve_pmi(connection: socket.socket, store: Store, rank: int, size: int) -> None:
    stream = connection.makefile("rw", newline="\n")
    barriers = [0]
    for line in stream:
        stream.write(_answer_pmi_command(line.strip(), store, rank, size, barriers) + "\n")
        stream.flush()


def _import_mpi() -> Any:
    """Return mpi4py's MPI, without initialising it."""
    try:
        import mpi4py  # noqa: PLC0415  an optional package
    except ModuleNotFoundError:
        raise DistBackendError("MPI needs the packages mpi4py and mpich: pip install flambeau[distributed]") from None
    mpi4py.rc.initialize = False
    mpi4py.rc.finalize = False  # a rank must be able to end although others have died
    from mpi4py import MPI  # noqa: PLC0415

    return MPI


def _load_mpi_library() -> ctypes.CDLL:
    """Return the MPI library that mpi4py has loaded. (mpi4py's own calls hold the interpreter lock, so that nobody could answer PMI.)"""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "libmpi" in line}
    for path in sorted(paths):
        library = ctypes.CDLL(path)
        if hasattr(library, "MPI_Init_thread"):
            return library
    raise DistBackendError("mpi4py has loaded no MPI library")


def start(store: Store, rank: int, size: int) -> Any:
    """Create the MPI world of all ranks, which must call this together. A process can be in one world only."""
    MPI = _import_mpi()
    if not MPI.Is_initialized():
        under_mpiexec = "PMI_FD" in os.environ or "PMI_PORT" in os.environ or "OMPI_COMM_WORLD_RANK" in os.environ
        if under_mpiexec:
            _join_launched_world(MPI)
        else:
            _start_with_store(store, rank, size)
    _State.ranks = (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    if _State.ranks == (0, 1) and size > 1 and MPI.get_vendor()[0] == "Open MPI":
        raise DistBackendError(
            "Open MPI makes a world only of processes that its own mpiexec has started (MPICH: of any): start them so, or install mpich"
        )
    if _State.ranks != (rank, size):
        raise DistBackendError(
            f"this process is rank {_State.ranks[0]} of {_State.ranks[1]} in an MPI world that exists already, and cannot become"
            f" rank {rank} of {size}: start a new process"
        )
    return MPI


def world() -> Any:
    """Return mpi4py's MPI, once `start` has created the world."""
    if _State.ranks is None:
        raise DistBackendError("there is no MPI world: init_process_group makes it where it is needed")
    return _import_mpi()


def _start_with_store(store: Store, rank: int, size: int) -> None:
    ours, theirs = socket.socketpair()
    theirs.set_inheritable(True)
    threading.Thread(target=_serve_pmi, args=(ours, store, rank, size), name="PMI server", daemon=True).start()
    settings = {"PMI_FD": str(theirs.fileno()), "PMI_RANK": str(rank), "PMI_SIZE": str(size), "PMI_ID": str(rank)}
    os.environ.update(settings)
    given = ctypes.c_int(0)
    try:
        code = _load_mpi_library().MPI_Init_thread(None, None, _THREAD_MULTIPLE, ctypes.byref(given))
    finally:
        for name in settings:
            del os.environ[name]  # processes started later are not in this world
    if code != 0 or given.value != _THREAD_MULTIPLE:
        raise DistBackendError(f"MPI_Init_thread failed (code {code}, thread level {given.value})")
    _keep.append(theirs)
    store.barrier("MPI world", size)
    _unlink_shared_memory()


def _join_launched_world(MPI: Any) -> None:
    """Join the world that mpiexec or srun has prepared."""
    MPI.Init_thread(MPI.THREAD_MULTIPLE)
    MPI.COMM_WORLD.Barrier()
    _unlink_shared_memory()
    atexit.register(_finalize_at_exit, MPI)


def _finalize_at_exit(MPI: Any) -> None:
    """Finalize MPI at exit, unless the process ends by an error: mpiexec treats a process that ends without MPI_Finalize as failed, and
    ends all others."""
    if not hasattr(sys, "last_value") and not MPI.Is_finalized():
        MPI.Finalize()


def _unlink_shared_memory() -> None:
    """Remove the name of MPI's shared memory, which all ranks of this machine have mapped, so that it cannot outlive them."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "/dev/shm/mpich_shm" in line}
    for path in paths:
        with contextlib.suppress(OSError):  # another rank was faster
            os.unlink(path)


_keep: list[socket.socket] = []


def store_of_launched_world(timeout: timedelta) -> tuple[Store, int, int]:
    """Return a store for processes started by mpiexec or srun, which share nothing but their MPI world."""
    MPI = _import_mpi()
    if not MPI.Is_initialized():
        _join_launched_world(MPI)
    world = MPI.COMM_WORLD
    store: TCPStore | None = None
    if world.rank == 0:
        store = TCPStore("127.0.0.1", 0, None, True, timeout, wait_for_workers=False)
    place = world.bcast((socket.gethostname(), store.port) if store is not None else None)
    if store is None:
        host = "127.0.0.1" if place[0] == socket.gethostname() else place[0]
        store = TCPStore(host, place[1], None, False, timeout)
    return store, world.rank, world.size
