"""The CPU backend."""

from . import loop_kernels as loop_kernels
