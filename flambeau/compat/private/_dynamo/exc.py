"""Errors of compiled functions, by the names that programs catch them by."""

from ....core.compile_options import TorchDynamoException, Unsupported

__all__ = ["TorchDynamoException", "Unsupported"]
