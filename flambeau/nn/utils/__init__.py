"""Helpers for networks."""

from . import rnn

__all__ = ["rnn"]
