"""DropBlock (Ghiasi et al., 2018): dropout of whole squares or cubes of a feature map."""

from __future__ import annotations

from flambeau import Tensor, nn
from flambeau.nn import functional as F


def _drop_block(input: Tensor, p: float, block: int, inplace: bool, eps: float, training: bool, dims: int) -> Tensor:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"drop probability has to be between 0 and 1, but got {p}.")
    if input.ndim != dims + 2:
        raise ValueError(f"input should be {dims + 2} dimensional. Got {input.ndim} dimensions.")
    if not training or p == 0.0:
        return input
    sizes = tuple(input.shape[2:])
    block = min(block, *sizes)
    seeds = tuple(size - block + 1 for size in sizes)  # where a block may start
    rate = p / block**dims
    for size, places in zip(sizes, seeds):
        rate = rate * size / places
    noise = input.new_empty((*input.shape[:2], *seeds)).bernoulli_(rate)
    noise = F.pad(noise, [block // 2] * (2 * dims), value=0)
    pool = F.max_pool2d if dims == 2 else F.max_pool3d
    keep = 1 - pool(noise, stride=1, kernel_size=block, padding=block // 2)
    scale = keep.numel() / (eps + keep.sum())
    return input.mul_(keep).mul_(scale) if inplace else input * keep * scale


def drop_block2d(
    input: Tensor, p: float, block_size: int, inplace: bool = False, eps: float = 1e-06, training: bool = True
) -> Tensor:
    """Zero about a fraction p of each (H, W) map in squares, and rescale what is left."""
    return _drop_block(input, p, block_size, inplace, eps, training, 2)


def drop_block3d(
    input: Tensor, p: float, block_size: int, inplace: bool = False, eps: float = 1e-06, training: bool = True
) -> Tensor:
    """Zero about a fraction p of each (D, H, W) volume in cubes, and rescale what is left."""
    return _drop_block(input, p, block_size, inplace, eps, training, 3)


class DropBlock2d(nn.Module):
    """A layer that applies `drop_block2d`."""

    _dims = 2

    def __init__(self, p: float, block_size: int, inplace: bool = False, eps: float = 1e-06):
        super().__init__()
        self.p, self.block_size, self.inplace, self.eps = p, block_size, inplace, eps

    def forward(self, input: Tensor) -> Tensor:
        return _drop_block(input, self.p, self.block_size, self.inplace, self.eps, self.training, self._dims)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p}, block_size={self.block_size}, inplace={self.inplace})"


class DropBlock3d(DropBlock2d):
    """A layer that applies `drop_block3d`."""

    _dims = 3
