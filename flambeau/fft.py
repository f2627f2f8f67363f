"""Fourier transforms: every operator declared in the namespace "fft"."""

from . import ops as _ops

__all__ = sorted(_ops.namespace("fft"))
globals().update(_ops.namespace("fft"))
