"""`torch.functional`: the functions that PyTorch writes in Python, under the module they live in there."""

from . import ops as _ops

_NAMES = """atleast_1d atleast_2d atleast_3d align_tensors block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist
chain_matmul einsum istft lu meshgrid norm pca_lowrank split stft svd_lowrank tensordot unique unique_consecutive
unravel_index"""
_TORCH = _ops.namespace("torch")
__all__ = [name for name in _NAMES.split() if name in _TORCH]
globals().update({name: _TORCH[name] for name in __all__})
