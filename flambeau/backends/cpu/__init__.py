"""The CPU backend."""

from . import device as device
from . import loop_kernels as loop_kernels
from .features import get_cpu_capability as get_cpu_capability
