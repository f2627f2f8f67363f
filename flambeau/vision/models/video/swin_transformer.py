"""Video Swin Transformer (Liu et al., 2022): attention in windows of space and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F

from .._api import builder, weights_enums
from ..swin_transformer import (
    PatchMerging,
    ShiftedWindowAttention,
    SwinTransformerBlock,
    initialise_linear,
    swin_stages,
)

__all__ = [
    "Swin3D_B_Weights", "Swin3D_S_Weights", "Swin3D_T_Weights", "SwinTransformer3d", "swin3d_b", "swin3d_s", "swin3d_t",
]  # fmt: skip

Layer = Callable[..., nn.Module]


class ShiftedWindowAttention3d(ShiftedWindowAttention):
    """Attention inside windows of space and time, with a learned bias for each relative position."""

    rank = 3

    def define_relative_position_index(self) -> None:
        self.register_buffer("relative_position_index", self._index())

    def get_relative_position_bias(self, window_size: list[int] | None = None) -> Tensor:
        """Return the bias (1, heads, positions, positions) of a window that may be smaller than the module's."""
        size = self.window_size if window_size is None else window_size
        count = size[0] * size[1] * size[2]
        bias = self.relative_position_bias_table[self.relative_position_index[:count, :count].flatten()]
        return bias.view(count, count, -1).permute(2, 0, 1).contiguous().unsqueeze(0)

    def forward(self, x: Tensor, logit_scale: Tensor | None = None) -> Tensor:
        window_size = [min(x.shape[i + 1], size) for i, size in enumerate(self.window_size)]
        return self._attend(x, self.get_relative_position_bias(window_size), window_size, self.shift_size)


class PatchEmbed3d(nn.Module):
    """Patches of space and time as vectors: (B, C, T, H, W) -> (B, T', H', W', embed_dim)."""

    def __init__(
        self, patch_size: Sequence[int], in_channels: int = 3, embed_dim: int = 96, norm_layer: Layer | None = None
    ):
        super().__init__()
        self.tuple_patch_size = (patch_size[0], patch_size[1], patch_size[2])
        self.proj = nn.Conv3d(in_channels, embed_dim, kernel_size=self.tuple_patch_size, stride=self.tuple_patch_size)
        self.norm = nn.Identity() if norm_layer is None else norm_layer(embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        _, _, time, height, width = x.shape
        t, h, w = self.tuple_patch_size
        x = self.proj(F.pad(x, (0, -width % w, 0, -height % h, 0, -time % t)))
        return self.norm(x.permute(0, 2, 3, 4, 1))


class SwinTransformer3d(nn.Module):
    """Transformer blocks over windows of videos (B, 3, T, H, W), in stages that halve height and width."""

    def __init__(
        self,
        patch_size: Sequence[int],
        embed_dim: int,
        depths: Sequence[int],
        num_heads: Sequence[int],
        window_size: Sequence[int],
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth_prob: float = 0.1,
        num_classes: int = 400,
        norm_layer: Layer | None = None,
        block: Layer | None = None,
        downsample_layer: Layer = PatchMerging,
        patch_embed: Layer | None = None,
    ):
        super().__init__()
        self.num_classes = num_classes
        norm = norm_layer or partial(nn.LayerNorm, eps=1e-5)
        embed: Layer = patch_embed or PatchEmbed3d
        self.patch_embed = embed(patch_size=patch_size, embed_dim=embed_dim, norm_layer=norm)
        self.pos_drop = nn.Dropout(p=dropout)
        made: Layer = partial(
            block or SwinTransformerBlock, window_size=window_size, mlp_ratio=mlp_ratio, dropout=dropout,
            attention_dropout=attention_dropout, norm_layer=norm, attn_layer=ShiftedWindowAttention3d,
        )  # fmt: skip
        shrink = partial(downsample_layer, norm_layer=norm)
        layers, dim = swin_stages(made, shrink, embed_dim, depths, num_heads, window_size, stochastic_depth_prob)
        self.features = nn.Sequential(*layers)
        self.num_features = dim
        self.norm = norm(dim)
        self.avgpool = nn.AdaptiveAvgPool3d(1)
        self.head = nn.Linear(dim, num_classes)
        initialise_linear(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.features(self.pos_drop(self.patch_embed(x))))
        return self.head(flambeau.flatten(self.avgpool(x.permute(0, 4, 1, 2, 3)), 1))


def _swin3d(embed_dim: int, depth: int, heads: int, **kwargs: Any) -> SwinTransformer3d:
    """transformer blocks over windows of videos, in stages that halve height and width."""
    return SwinTransformer3d(
        [2, 4, 4],
        embed_dim,
        [2, 2, depth, 2],
        [heads * 2**i for i in range(4)],
        [8, 7, 7],
        stochastic_depth_prob=0.1,
        **kwargs,
    )


Swin3D_T_Weights, Swin3D_S_Weights, Swin3D_B_Weights = weights_enums("Swin3D_T", "Swin3D_S", "Swin3D_B")
swin3d_t = builder("swin3d_t", _swin3d, Swin3D_T_Weights, 96, 6, 3)
swin3d_s = builder("swin3d_s", _swin3d, Swin3D_S_Weights, 96, 18, 3)
swin3d_b = builder("swin3d_b", _swin3d, Swin3D_B_Weights, 128, 18, 4)
