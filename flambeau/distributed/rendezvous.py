"""Rendezvous of processes: from an address to a store, a rank and a world size.

`env://` reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT or, without RANK, the variables that Slurm, Open MPI or MPICH's mpiexec set for
their processes; `tcp://host:port` and `file:///path` name the location themselves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlparse

from .options import default_pg_timeout
from .store import FileStore, PrefixStore, Store
from .tcp_store import TCPStore

_handlers: dict[str, Callable[..., Iterator[tuple[Store, int, int]]]] = {}
default_pg_nccl_timeout = timedelta(minutes=10)

# Where launchers put the rank, the number of ranks, and the rank on this machine.
_LAUNCHERS = (
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)


def launcher_ranks() -> tuple[int, int] | None:
    """Return rank and world size from the environment of a launcher other than torchrun, or None."""
    for rank, size, _ in _LAUNCHERS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return None


def register_rendezvous_handler(scheme: str, handler: Callable[..., Iterator[tuple[Store, int, int]]]) -> None:
    """Register `handler(url, timeout=...)` for addresses that begin with `scheme://`."""
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Iterator[tuple[Store, int, int]]:
    """Yield (store, rank, world size)."""
    if not isinstance(url, (str, bytes)):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    if not isinstance(rank, int):
        raise RuntimeError(f"`rank` must be an integer. {rank}")
    if not isinstance(world_size, int):
        raise RuntimeError(f"`world_size` must be an integer. {world_size}")
    parts = urlparse(str(url))
    query = dict(parse_qsl(parts.query))
    if rank != -1:
        query["rank"] = str(rank)
    if world_size != -1:
        query["world_size"] = str(world_size)
    handler = _handlers.get(parts.scheme)
    if handler is None:
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")
    full = parts._replace(query="&".join(f"{k}={v}" for k, v in query.items())).geturl()
    return handler(full, **kwargs)


def _error(message: str, scheme: str) -> ValueError:
    return ValueError(f"Error initializing torch.distributed using {scheme}:// rendezvous: {message}")


def _file(url: str, **kwargs: Any) -> Iterator[tuple[Store, int, int]]:
    parts = urlparse(url)
    query = dict(parse_qsl(parts.query))
    for name, text in (("rank", "rank"), ("world_size", "world size")):
        if name not in query:
            raise _error(f"{text} parameter missing", "file")
    if not parts.path:
        raise _error("path missing", "file")
    rank, size = int(query["rank"]), int(query["world_size"])
    yield FileStore(parts.netloc + parts.path, size), rank, size
    raise RuntimeError("Unable to perform rerendezvous using file:// method")


def _tcp(url: str, timeout: timedelta = default_pg_timeout, **kwargs: Any) -> Iterator[tuple[Store, int, int]]:
    parts = urlparse(url)
    query = dict(parse_qsl(parts.query))
    if parts.port is None:
        raise _error("port number missing", "tcp")
    for name, text in (("rank", "rank"), ("world_size", "world size")):
        if name not in query:
            raise _error(f"{text} parameter missing", "tcp")
    rank, size = int(query["rank"]), int(query["world_size"])
    assert parts.hostname is not None
    yield _store_at(parts.hostname, parts.port, rank, size, timeout), rank, size
    raise RuntimeError("Unable to perform re-rendezvous using tcp:// method")


def _store_at(host: str, port: int, rank: int, size: int, timeout: timedelta) -> Store:
    """Return the store at an address. Rank 0 serves it, unless torchrun's agent does already."""
    if not 0 <= port < 2**16:
        raise ValueError(f"port must have value from 0 to 65535 but was {port}.")
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = TCPStore(host, port, size, False, timeout)
        return PrefixStore(f"/worker/attempt_{attempt}", store)
    return TCPStore(host, port, size, rank == 0, timeout, multi_tenant=True)


def _environment(url: str, timeout: timedelta = default_pg_timeout, **kwargs: Any) -> Iterator[tuple[Store, int, int]]:
    query = dict(parse_qsl(urlparse(url).query))
    told = launcher_ranks() if "RANK" not in os.environ else None

    def value(name: str, key: str | None, position: int) -> str:
        if key in query:
            return query[key]
        if name in os.environ:
            return os.environ[name]
        if told is not None and position >= 0:
            return str(told[position])
        raise _error(f"environment variable {name} expected, but not set", "env")

    rank, size = int(value("RANK", "rank", 0)), int(value("WORLD_SIZE", "world_size", 1))
    host, port = value("MASTER_ADDR", None, -1), int(value("MASTER_PORT", None, -1))
    yield _store_at(host, port, rank, size, timeout), rank, size
    raise RuntimeError("Unable to perform re-rendezvous using env:// method")


register_rendezvous_handler("file", _file)
register_rendezvous_handler("tcp", _tcp)
register_rendezvous_handler("env", _environment)


def _create_store_from_options(backend_options: Any, rank: int) -> Store:
    return next(rendezvous(backend_options.init_method, rank, backend_options.world_size))[0]
