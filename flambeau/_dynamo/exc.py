"""Errors of compiled functions, by the names that programs catch them by."""


class TorchDynamoException(RuntimeError):
    """Something about compiling went wrong."""


class Unsupported(TorchDynamoException):
    """`compile(fullgraph=True)` of a function that cannot be one graph."""


__all__ = ["TorchDynamoException", "Unsupported"]
