"""Implementation of the data loader."""

from . import blocks, channel, collate, failure, fetch, info, pin_memory, team, worker

__all__ = ["blocks", "channel", "collate", "failure", "fetch", "info", "pin_memory", "team", "worker"]
