"""The inside of the data loader."""

from . import channel, collate, failure, fetch, info, pin_memory, team, worker

__all__ = ["channel", "collate", "failure", "fetch", "info", "pin_memory", "team", "worker"]
