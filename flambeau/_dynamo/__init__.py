"""Names of PyTorch's graph capture that programs use; see `flambeau.compiler`."""

from ..compiler import OptimizedModule, allow_in_graph, assume_constant_result, disable, list_backends, reset
from . import config

__all__ = ["OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "list_backends", "reset"]
