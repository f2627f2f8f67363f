"""Magnitude pruning in blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .... import full, logical_or, ones, ones_like, topk, zeros_like
from ....core.tensor import Tensor
from ....nn import functional
from ....nn.modules.module import Module
from .base_sparsifier import BaseSparsifier

__all__ = ["WeightNormSparsifier"]

_NORMS: dict[Any, Callable] = {1: lambda t: t.abs(), 2: lambda t: t * t}


class WeightNormSparsifier(BaseSparsifier):
    """Zeroes the share `sparsity_level` of the blocks of a matrix, those with the smallest norm.

    Blocks have `sparse_block_shape` (rows, columns) and begin at the first element. With `zeros_per_block` only so many elements of
    such a block become zero, the smallest. `norm` is 1, 2 or a function of the weights. All are defaults, which the
    configuration given to `prepare` overrides."""

    def __init__(
        self,
        sparsity_level: float = 0.5,
        sparse_block_shape: tuple[int, int] = (1, 4),
        zeros_per_block: int | None = None,
        norm: Callable | int | None = None,
    ) -> None:
        norm = 2 if norm is None else norm
        if not callable(norm) and norm not in _NORMS:
            raise NotImplementedError(f"L-{norm} is not yet implemented.")
        self.norm_fn = norm if callable(norm) else _NORMS[norm]
        rows, columns = sparse_block_shape
        super().__init__(
            defaults={
                "sparsity_level": sparsity_level,
                "sparse_block_shape": sparse_block_shape,
                "zeros_per_block": rows * columns if zeros_per_block is None else zeros_per_block,
            }
        )

    def update_mask(
        self,
        module: Module,
        tensor_name: str,
        sparsity_level: float = 0.5,
        sparse_block_shape: tuple[int, int] = (1, 4),
        zeros_per_block: int = 4,
        **kwargs: Any,
    ) -> None:
        size = sparse_block_shape[0] * sparse_block_shape[1]
        if zeros_per_block > size:
            raise ValueError(
                "Number of zeros per block cannot be more than the total number of elements in that block."
            )
        if zeros_per_block < 0:
            raise ValueError("Number of zeros per block should be positive.")
        mask: Any = getattr(module.parametrizations, tensor_name)[0].mask
        if sparsity_level <= 0 or zeros_per_block == 0:
            mask.data = ones_like(mask)
        elif sparsity_level >= 1 and zeros_per_block == size:
            mask.data = zeros_like(mask)
        else:
            norms = self.norm_fn(getattr(module, tensor_name))
            new = _block_mask(norms, sparsity_level, sparse_block_shape)
            if zeros_per_block != size:
                new = logical_or(new, _kept_in_blocks(norms, zeros_per_block, sparse_block_shape))
            mask.data = new


def _block_mask(norms: Tensor, level: float, shape: tuple[int, int]) -> Tensor:
    """Return a mask that is zero in the blocks with the smallest mean, one elsewhere."""
    if level >= 1:
        return zeros_like(norms)
    means = functional.avg_pool2d(norms[None, None], shape, stride=shape, ceil_mode=True)[0, 0]
    count = max(0, min(means.numel() - 1, round(level * means.numel())))
    kept = ones(means.numel(), device=norms.device)
    kept[topk(means.flatten(), count, largest=False).indices] = 0
    return _as_blocks(kept.reshape(means.shape), shape, norms)


def _kept_in_blocks(norms: Tensor, zeros: int, shape: tuple[int, int]) -> Tensor:
    """Return a mask that is zero at the `zeros` smallest elements of each block, one elsewhere."""
    height, width = norms.shape
    padded = full(
        (height + -height % shape[0], width + -width % shape[1]), float("nan"), dtype=norms.dtype, device=norms.device
    )
    padded[:height, :width] = norms
    blocks = functional.unfold(padded[None, None], shape, stride=shape)
    kept = ones(blocks.shape, device=norms.device)
    kept.scatter_(1, topk(blocks, zeros, dim=1, largest=False).indices, 0)
    return functional.fold(kept, padded.shape, shape, stride=shape)[0, 0, :height, :width].contiguous()


def _as_blocks(kept: Tensor, shape: tuple[int, int], like: Tensor) -> Tensor:
    wide = kept.repeat_interleave(shape[0], 0).repeat_interleave(shape[1], 1)
    return wide[: like.shape[0], : like.shape[1]].contiguous()
