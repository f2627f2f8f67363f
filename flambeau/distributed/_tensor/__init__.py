"""Another place where programs look for `torch.distributed.tensor`."""

from ..tensor import *
from ..tensor import DTensor, Partial, Placement, Replicate, Shard

__all__ = ["DTensor", "Partial", "Placement", "Replicate", "Shard"]
