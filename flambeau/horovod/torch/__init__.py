"""Horovod for PyTorch programs: ranks, collectives by name, DistributedOptimizer."""

from . import elastic, operations, state
from . import operations as mpi_ops
from .compression import Compression
from .functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from .negotiation import HorovodInternalError
from .operations import *
from .optimizer import DistributedOptimizer
from .state import *
from .sync_batch_norm import SyncBatchNorm
from .timeline import start_timeline, stop_timeline

__all__ = [
    *operations.__all__, *state.__all__, "Compression", "DistributedOptimizer", "HorovodInternalError", "SyncBatchNorm",
    "allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters", "elastic", "mpi_ops",
    "start_timeline", "stop_timeline",
]  # fmt: skip
