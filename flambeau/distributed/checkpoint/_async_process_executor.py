"""Another place where programs look for `_ProcessBasedAsyncCheckpointExecutor`."""

from ._async_executor import _ProcessBasedAsyncCheckpointExecutor

__all__ = ["_ProcessBasedAsyncCheckpointExecutor"]
