"""Errors of communication between processes."""

from __future__ import annotations


class DistError(RuntimeError):
    """Raised when communication between processes fails."""


class DistBackendError(DistError):
    """Raised when a collective fails: a rank died, timed out, or called another collective."""


class DistNetworkError(DistError):
    """Raised when a connection could not be made, or broke."""


class DistStoreError(DistError):
    """Raised when a store could not answer, mostly because a key was not set in time."""


class QueueEmptyError(DistStoreError):
    """Raised when a queue of a store has no value and the caller does not wait."""


for _error in (DistError, DistBackendError, DistNetworkError, DistStoreError, QueueEmptyError):
    _error.__module__ = "torch.distributed"  # what PyTorch prints
