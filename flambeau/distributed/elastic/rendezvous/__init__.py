"""Where agents meet, and agree who takes part in the next round."""

from .api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousHandlerCreator,
    RendezvousHandlerRegistry,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
    get_rendezvous_handler,
    rendezvous_handler_registry,
)

__all__ = [
    "RendezvousClosedError", "RendezvousConnectionError", "RendezvousError", "RendezvousGracefulExitError", "RendezvousHandler",
    "RendezvousHandlerCreator", "RendezvousHandlerRegistry",
    "RendezvousInfo", "RendezvousParameters", "RendezvousStateError", "RendezvousStoreInfo", "RendezvousTimeoutError",
    "get_rendezvous_handler", "rendezvous_handler_registry",
]  # fmt: skip
