"""`torch.functional`: the functions that PyTorch implements in Python, under PyTorch's module name."""

from typing import Any

from . import ops as _ops
from .core import naming as _naming

_NAMES = """atleast_1d atleast_2d atleast_3d align_tensors block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist
chain_matmul einsum istft lu meshgrid norm pca_lowrank split stft svd_lowrank tensordot unique unique_consecutive
unravel_index"""
_TORCH = _ops.namespace("torch")
__all__ = [name for name in _NAMES.split() if name in _TORCH]


def __getattr__(name: str) -> Any:
    if name == "F":
        return _naming.above("nn.functional")
    raise _naming.no_attribute(__name__, name)


globals().update({name: _TORCH[name] for name in __all__})
