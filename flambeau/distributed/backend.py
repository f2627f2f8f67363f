"""Names of backends, and the engine that implements each.

`gloo` is the CPU engine: shared memory if all ranks of a group are on one machine, else MPI. `mpi` is always MPI. `nccl` is for CUDA
tensors; other messages of such a group go through the CPU engine. `fake` simulates one rank of a world that does not exist."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from ..core import naming
from .errors import DistBackendError
from .fake_engine import FakeProcessGroup
from .store import PrefixStore, Store


class Backend(str):
    """The name of a backend, in lower case.

    >>> Backend("GLOO")
    'gloo'
    """

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    UCC = "ucc"
    MPI = "mpi"
    XCCL = "xccl"
    FAKE = "fake"

    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL, "xpu": XCCL}
    backend_capability = {GLOO: ["cpu", "cuda"], NCCL: ["cuda"], MPI: ["cpu", "cuda"], UCC: ["cpu", "cuda"]}
    _plugins: dict[str, tuple[Callable, bool]] = {}

    def __new__(cls, name: Any) -> Any:
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish")
        value = getattr(Backend, name.upper(), Backend.UNDEFINED)
        return name.lower() if value == Backend.UNDEFINED else value

    @classmethod
    def register_backend(
        cls, name: str, func: Callable[..., Any], extended_api: bool = False, devices: str | list[str] | None = None
    ) -> None:
        """Register a backend whose process groups `func(store, rank, size, timeout)` makes; with `extended_api`, func(about, options)
        where `about` has group_rank, group_size, store and timeout."""
        # A name without an engine, for programs that bring one.
        if hasattr(cls, name.upper()) and name.lower() != cls.FAKE:
            raise RuntimeError(f"{name} c10d backend already exist")
        setattr(cls, name.upper(), name.lower())
        cls.backend_list.append(name.lower())
        places = [devices] if isinstance(devices, str) else devices or ["cpu", "cuda"]
        cls.backend_capability[name.lower()] = places
        cls._plugins[name.lower()] = (func, extended_api)


class BackendConfig:
    """Table of the backends that serve kinds of devices: from "gloo" or "cpu:gloo,cuda:nccl"."""

    def __init__(self, backend: str) -> None:
        self.device_backend_map: dict[str, str] = {}
        text = str(backend)
        if text == Backend.UNDEFINED:
            self.device_backend_map = dict(Backend.default_device_backend_map)
        elif ":" in text:
            for pair in text.lower().split(","):
                device, colon, name = pair.partition(":")
                if not colon or not device or not name:
                    raise ValueError(
                        f"The custom backend string argument is invalid: {backend}.\n                Custom backend string is an"
                        " experimental feature where the backend string must be in the format:\n               "
                        " \"<device_type1>:<backend1>,<device_type2>:<backend2>...\". e.g. 'cpu:gloo,cuda:nccl'"
                    )
                if device in self.device_backend_map:
                    raise ValueError(f"Duplicate device type {device} in backend string: {backend}")
                self.device_backend_map[device] = Backend(name)
        else:
            name = Backend(text)
            for device in Backend.backend_capability.get(name, ["cpu", "cuda"]):
                self.device_backend_map[device] = name

    def get_device_backend_map(self) -> dict[str, str]:
        return self.device_backend_map

    def cpu_backend(self) -> str | None:
        return self.device_backend_map.get("cpu")

    def __repr__(self) -> str:
        return ",".join(f"{device}:{backend}" for device, backend in self.device_backend_map.items())


def is_mpi_available() -> bool:
    """Return whether mpi4py and an MPI library are installed."""
    return importlib.util.find_spec("mpi4py") is not None


def is_gloo_available() -> bool:
    """Return True: the CPU engine is part of the library."""
    return True


def is_nccl_available() -> bool:
    """Return whether NCCL can be loaded."""
    return naming.above("distributed.nccl_engine").available()


def is_ucc_available() -> bool:
    """Return False: there is no UCC backend."""
    return False


def is_xccl_available() -> bool:
    """Return False: there is no XCCL backend."""
    return False


def is_backend_available(backend: str) -> bool:
    """Return whether there is a backend of this name."""
    if backend.lower() == "nccl":
        return is_nccl_available()
    known = {"gloo": True, "fake": True, "mpi": is_mpi_available(), "ucc": False, "xccl": False}
    return known.get(backend.lower(), backend.lower() in Backend.backend_list)


def plugin_group(backend: str, store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    """Return the group of a backend that makes its own: a registered one, or `fake`."""
    if backend not in Backend._plugins:
        return FakeProcessGroup(rank, size)
    function, extended = Backend._plugins[backend]
    if not extended:
        return function(store, rank, size, timeout)
    about = SimpleNamespace(
        store=store, group_rank=rank, group_size=size, timeout=timeout, group_id="", global_ranks_in_group=[]
    )
    return function(about, None)


def engine_maker(
    backend: str | None, store: Store, rank: int, size: int, timeout: timedelta, ranks: list[int]
) -> Callable[[], Any]:
    """Return a function that makes the engine of a group, to be called on first use."""
    if backend == "mpi":
        return lambda: _make_mpi_engine(rank, size, timeout, ranks, store)
    if backend == "gloo":
        return lambda: _local_or_mpi(store, rank, size, timeout, ranks)
    raise RuntimeError(f"Distributed package doesn't have {str(backend).upper()} built in")


def nccl_maker(store: Store, rank: int, size: int, timeout: timedelta, ranks: list[int]) -> Callable[[Any], Any]:
    """Return a function that makes the NCCL engine of a device, to be called on first use."""
    made = itertools.count()

    def make(where: Any) -> Any:
        counted = PrefixStore(f"gpu {next(made)}", store)
        return naming.above("distributed.nccl_engine").NcclEngine(counted, rank, size, timeout, ranks, where)

    return make


def _local_or_mpi(store: Store, rank: int, size: int, timeout: timedelta, ranks: list[int]) -> Any:
    places = store.multi_get([f"process/{r}" for r in range(size)])
    machines = {place.rpartition(b" ")[0] for place in places}
    if len(machines) == 1 and (naming.above("distributed.window").supported() or size == 1):
        return naming.above("distributed.shared_engine").SharedEngine(store, rank, size, timeout, ranks)
    if not is_mpi_available():
        where = "several machines" if len(machines) > 1 else "one machine that is not Linux on x86-64"
        raise DistBackendError(f"ranks on {where} communicate through MPI: pip install flambeau[distributed]")
    return _make_mpi_engine(rank, size, timeout, ranks, store)


def _make_mpi_engine(rank: int, size: int, timeout: timedelta, ranks: list[int], store: Store) -> Any:
    return naming.above("distributed.mpi_engine").MpiEngine(rank, size, timeout, ranks, store)
