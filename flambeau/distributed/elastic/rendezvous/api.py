"""Interface of a rendezvous and its results."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ....core import naming
from ...store import Store

__all__ = [
    "RendezvousClosedError", "RendezvousConnectionError", "RendezvousError", "RendezvousGracefulExitError",
    "RendezvousHandler", "RendezvousHandlerCreator", "RendezvousHandlerRegistry", "RendezvousInfo",
    "RendezvousParameters", "RendezvousStateError", "RendezvousStoreInfo", "RendezvousTimeoutError",
    "get_rendezvous_handler", "rendezvous_handler_registry",
]  # fmt: skip


class RendezvousError(Exception):
    """Raised when agents cannot agree on a rendezvous."""


class RendezvousClosedError(RendezvousError):
    """Raised when the job is over and no agent can join any more."""


class RendezvousTimeoutError(RendezvousError):
    """Raised when too few agents joined in time."""


class RendezvousConnectionError(RendezvousError):
    """Raised when the store of the rendezvous cannot be reached."""


class RendezvousStateError(RendezvousError):
    """Raised if the store's content is not a valid state of a rendezvous."""


class RendezvousGracefulExitError(RendezvousError):
    """Raised when this agent has left the rendezvous."""


class RendezvousStoreInfo(NamedTuple):
    """Address at which the workers of a round meet."""

    master_addr: str
    master_port: int


@dataclass
class RendezvousInfo:
    """Result of a rendezvous round: the shared store, this agent's rank, and the address where the workers meet."""

    store: Store
    rank: int
    world_size: int
    bootstrap_store_info: RendezvousStoreInfo


class RendezvousHandler(ABC):
    """Interface of an agent to a rendezvous."""

    use_agent_store = True

    @abstractmethod
    def get_backend(self) -> str: ...

    @abstractmethod
    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the others and return when a round is complete."""

    @abstractmethod
    def num_nodes_waiting(self) -> int:
        """Return the number of agents that wait to join."""

    @abstractmethod
    def set_closed(self) -> None: ...

    @abstractmethod
    def is_closed(self) -> bool: ...

    @abstractmethod
    def get_run_id(self) -> str: ...

    def leave(self) -> bool:
        """Leave the rendezvous; the others continue without this agent."""
        return True

    def shutdown(self) -> bool:
        """End the job's rendezvous."""
        return True

    def everybody_is_there(self) -> bool:
        """Return whether all agents of this round are still in it, as far as this one knows."""
        return True


class RendezvousParameters:
    """Parameters that a rendezvous is made from."""

    def __init__(
        self,
        backend: str,
        endpoint: str,
        run_id: str,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        if min_nodes < 1:
            raise ValueError(f"The minimum number of rendezvous nodes ({min_nodes}) must be greater than zero.")
        if max_nodes < min_nodes:
            raise ValueError(
                f"The maximum number of rendezvous nodes ({max_nodes}) must be greater than or equal to the minimum number of"
                f" rendezvous nodes ({min_nodes})."
            )
        self.backend, self.endpoint, self.run_id = backend, endpoint, run_id
        self.min_nodes, self.max_nodes, self.local_addr, self.config = min_nodes, max_nodes, local_addr, kwargs

    def get(self, key: str, default: Any = None) -> Any:
        return self.config.get(key, default)

    def get_as_int(self, key: str, default: int | None = None) -> int | None:
        value = self.get(key)
        try:
            return default if value is None else int(value)
        except ValueError:
            raise ValueError(
                f"The rendezvous configuration option '{key}' does not represent a valid integer value."
            ) from None

    def get_as_bool(self, key: str, default: bool | None = None) -> bool | None:
        value = self.get(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        if str(value).lower() in ("1", "true", "t", "yes", "y"):
            return True
        if str(value).lower() in ("0", "false", "f", "no", "n"):
            return False
        raise ValueError(f"The rendezvous configuration option '{key}' does not represent a valid boolean value.")


def parse_endpoint(endpoint: str, default_port: int) -> tuple[str, int]:
    """Split `host:port`, where both may be missing, or `[address]:port`, into host and port."""
    text = (endpoint or "").strip()
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        port = port.lstrip(":")
    else:
        host, _, port = text.rpartition(":") if ":" in text else (text, "", "")
    if port and not port.isdigit():
        raise ValueError(
            f"The port number of the rendezvous endpoint '{endpoint}' must be an integer between 0 and 65536."
        )
    return host or "localhost", int(port) if port else default_port


def is_this_machine(host: str) -> bool:
    """Return whether an address is one of this machine's."""
    if host in ("localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn()):
        return True
    try:
        addresses = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
        own = {entry[4][0] for entry in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return False
    return bool(addresses & (own | {"127.0.0.1", "::1"}))


RendezvousHandlerCreator = Callable[[RendezvousParameters], RendezvousHandler]


class RendezvousHandlerRegistry:
    """Table of the functions that make the rendezvous of each backend."""

    def __init__(self) -> None:
        self._creators: dict[str, RendezvousHandlerCreator] = {}

    def register(self, backend: str, creator: RendezvousHandlerCreator) -> None:
        """Register a backend whose rendezvous `creator(parameters)` makes."""
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        held = self._creators.setdefault(backend, creator)
        if held != creator:
            raise ValueError(
                f"The rendezvous backend '{backend}' cannot be registered with '{creator}' as it is already registered with '{held}'."
            )

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        if params.backend not in self._creators:
            raise ValueError(
                f"The rendezvous backend '{params.backend}' is not registered. Did you forget to call `register`?"
            )
        handler = self._creators[params.backend](params)
        if handler.get_backend() != params.backend:
            raise RuntimeError(
                f"The rendezvous backend '{handler.get_backend()}' does not match the requested backend '{params.backend}'."
            )
        return handler


def _lazy_function(module: str, function: str) -> RendezvousHandlerCreator:
    """Return a function of another module, which is imported when it is called."""
    return lambda params: naming.attribute(__package__, module, function)(params)


rendezvous_handler_registry = RendezvousHandlerRegistry()  # programs register theirs here, as with PyTorch
rendezvous_handler_registry.register("static", _lazy_function("static_tcp_rendezvous", "create_rdzv_handler"))
rendezvous_handler_registry.register("c10d", _lazy_function("c10d_rendezvous", "create_handler"))
for _name in ("etcd", "etcd-v2"):
    rendezvous_handler_registry.register(_name, _lazy_function("c10d_rendezvous", "create_etcd_handler"))


def get_rendezvous_handler(params: RendezvousParameters) -> RendezvousHandler:
    """Return the rendezvous handler of a backend: static, c10d, etcd, etcd-v2, or one that was registered."""
    return rendezvous_handler_registry.create_handler(params)
