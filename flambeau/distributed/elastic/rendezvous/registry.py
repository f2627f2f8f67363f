"""Rendezvous by the name of their backend."""

from .api import get_rendezvous_handler, rendezvous_handler_registry

__all__ = ["get_rendezvous_handler", "rendezvous_handler_registry"]
