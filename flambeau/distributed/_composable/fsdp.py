"""Another place where programs look for the names of `torch.distributed.fsdp`."""

from ..fsdp import *  # noqa: F403
