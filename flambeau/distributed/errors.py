"""Errors of communication between processes."""

from __future__ import annotations


class DistError(RuntimeError):
    """A failure of communication between processes."""


class DistBackendError(DistError):
    """The engine that moves the bytes failed: a rank died, did not come, or came with something else."""


class DistNetworkError(DistError):
    """A connection could not be made, or broke."""


class DistStoreError(DistError):
    """A store could not answer, mostly because nobody has set a key in time."""


class QueueEmptyError(DistStoreError):
    """A queue of a store was asked for a value without waiting, and has none."""


for _error in (DistError, DistBackendError, DistNetworkError, DistStoreError, QueueEmptyError):
    _error.__module__ = "torch.distributed"  # what PyTorch prints
