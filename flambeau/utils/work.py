"""Counts of the multiply-adds in one call of a layer, by published formulas."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..nn.modules.attention import MultiheadAttention
from ..nn.modules.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ..nn.modules.linear import Bilinear, Linear
from ..nn.modules.module import Module
from ..nn.modules.rnn import RNNBase, RNNCellBase
from ..nn.modules.sparse import Embedding, EmbeddingBag


def _matrices(module: Module) -> int:
    """Return the number of elements of all weight matrices of a layer itself."""
    return sum(p.numel() for p in module.parameters(recurse=False) if p.dim() >= 2)


def _attention(module: Any, query: Tensor) -> int:
    """Return the multiply-adds of self-attention: four projections, and for every query one product with each key and each value."""
    width = module.embed_dim
    if query.dim() == 2:
        batch, length = 1, query.shape[0]
    else:
        batch, length = (query.shape[0], query.shape[1]) if module.batch_first else (query.shape[1], query.shape[0])
    return batch * (4 * length * width * width + 2 * length * length * width)


def multiply_adds(module: Module, input: Tensor | None, output: Tensor | None) -> int:
    """Return the multiply-adds of one layer, without its sublayers; lookups and copies count nothing."""
    if input is None or output is None or isinstance(module, (Embedding, EmbeddingBag)):
        return 0
    if isinstance(module, (Conv1d, Conv2d, Conv3d)):
        positions = output.numel() // max(1, module.out_channels)
        return module.weight.numel() * positions
    if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)):
        positions = input.numel() // max(1, module.in_channels)
        return module.weight.numel() * positions
    if isinstance(module, Linear):
        return output.numel() * module.in_features
    if isinstance(module, Bilinear):
        return output.numel() * module.in1_features * module.in2_features
    if isinstance(module, (RNNBase, RNNCellBase)):
        return _matrices(module) * (input.numel() // max(1, module.input_size))
    if isinstance(module, MultiheadAttention):
        return _attention(module, input)
    own = list(module.parameters(recurse=False))
    if not own:
        return 0
    if all(p.dim() <= 1 for p in own):  # norms, slopes and scales touch every element once
        return output.numel()
    # A layer of unknown kind is taken to use its weights once per example.
    return _matrices(module) * (output.shape[0] if output.dim() else 1)
