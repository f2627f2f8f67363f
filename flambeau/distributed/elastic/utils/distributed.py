"""Free ports, and stores on them."""

from __future__ import annotations

import contextlib
import socket
from datetime import timedelta

from ...tcp_store import TCPStore


def get_socket_with_port() -> socket.socket:
    """Return a socket bound to a free port; close it just before the port is used."""
    return socket.create_server(("localhost", 0))


def get_free_port() -> int:
    """Return a port on which no process listens now. (Another process may open it before it is used.)"""
    with contextlib.closing(get_socket_with_port()) as bound:
        return bound.getsockname()[1]


def create_c10d_store(
    is_server: bool,
    server_addr: str,
    server_port: int = -1,
    world_size: int = 1,
    timeout: float = 60 * 10,
    wait_for_workers: bool = True,
    retries: int = 3,
    use_libuv: bool | None = None,
) -> TCPStore:
    """Return a TCPStore; with one process on any free port (-1)."""
    if server_port == -1 and world_size > 1:
        raise ValueError(
            f"server_port must be specified when world_size > 1, got server_port={server_port}, world_size={world_size}"
        )
    port = 0 if server_port == -1 else server_port
    return TCPStore(server_addr, port, world_size, is_server, timedelta(seconds=timeout), wait_for_workers)
