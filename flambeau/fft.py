"""Fourier transforms: every operator declared in the namespace "fft".

>>> spectrum = flambeau.fft.rfft(flambeau.tensor([1.0, 0.0, -1.0, 0.0]))
>>> spectrum.abs()
tensor([0., 2., 0.])
>>> flambeau.fft.irfft(spectrum)
tensor([ 1.,  0., -1.,  0.])
"""

from . import ops as _ops
from .core.tensor import Tensor as _Tensor

__all__ = sorted(_ops.namespace("fft"))
globals().update(_ops.namespace("fft"), Tensor=_Tensor)
