"""Another place where programs look for `_ThreadBasedAsyncCheckpointExecutor`."""

from ._async_executor import _ThreadBasedAsyncCheckpointExecutor

__all__ = ["_ThreadBasedAsyncCheckpointExecutor"]
