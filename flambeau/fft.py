"""Fourier transforms: every operator declared in the namespace "fft"."""

from . import ops as _ops

globals().update(_ops.namespace("fft"))
