"""Video Swin Transformer (Liu et al., 2022): attention in windows of space and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F

from .._api import builder, weights_enums
from ..swin_transformer import PatchMerging, SwinTransformerBlock, attention_in_windows, region_mask

__all__ = [
    "Swin3D_B_Weights", "Swin3D_S_Weights", "Swin3D_T_Weights", "SwinTransformer3d", "swin3d_b", "swin3d_s", "swin3d_t",
]  # fmt: skip

Layer = Callable[..., nn.Module]


def _windows(x: Tensor, size: list[int]) -> Tensor:
    """(B, T, H, W, C) -> (B * windows, positions in a window, C)."""
    batch, time, height, width, channels = x.shape
    t, h, w = size[0], size[1], size[2]
    x = x.view(batch, time // t, t, height // h, h, width // w, w, channels)
    return x.permute(0, 1, 3, 5, 2, 4, 6, 7).reshape(-1, t * h * w, channels)


def _padded(x: Tensor, size: list[int]) -> Tensor:
    """(B, T, H, W, C) with zeros behind, so that every length is a multiple of the window's."""
    _, time, height, width, _ = x.shape
    return F.pad(x, (0, 0, 0, -width % size[2], 0, -height % size[1], 0, -time % size[0]))


def _shift_mask(x: Tensor, size: list[int], shift: list[int]) -> Tensor:
    """(windows, positions, positions): -100 between positions that a shift brought together from opposite borders."""
    _, time, height, width, _ = x.shape
    region = x.new_zeros((time, height, width))
    count = 0
    for t in ((0, -size[0]), (-size[0], -shift[0]), (-shift[0], time)):
        for h in ((0, -size[1]), (-size[1], -shift[1]), (-shift[1], height)):
            for w in ((0, -size[2]), (-size[2], -shift[2]), (-shift[2], width)):
                region[t[0] : t[1], h[0] : h[1], w[0] : w[1]] = count
                count += 1
    return region_mask(_windows(region[None, :, :, :, None], size)[..., 0])


def shifted_window_attention_3d(
    input: Tensor,
    qkv_weight: Tensor,
    proj_weight: Tensor,
    relative_position_bias: Tensor,
    window_size: list[int],
    num_heads: int,
    shift_size: list[int],
    attention_dropout: float = 0.0,
    dropout: float = 0.0,
    qkv_bias: Tensor | None = None,
    proj_bias: Tensor | None = None,
    training: bool = True,
) -> Tensor:
    """Self-attention inside windows of (B, T, H, W, C), the windows moved by `shift_size`."""
    batch, time, height, width, channels = input.shape
    x = _padded(input, window_size)
    _, full_t, full_h, full_w, _ = x.shape
    t, h, w = window_size[0], window_size[1], window_size[2]
    shifted = sum(shift_size) > 0
    mask = None
    if shifted:
        x = flambeau.roll(x, shifts=(-shift_size[0], -shift_size[1], -shift_size[2]), dims=(1, 2, 3))
        mask = _shift_mask(x, window_size, shift_size)
    x = attention_in_windows(
        _windows(x, window_size), qkv_weight, proj_weight, relative_position_bias, mask, num_heads, attention_dropout, dropout,
        qkv_bias, proj_bias, None, training,
    )  # fmt: skip
    x = x.view(batch, full_t // t, full_h // h, full_w // w, t, h, w, channels)
    x = x.permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(batch, full_t, full_h, full_w, channels)
    if shifted:
        x = flambeau.roll(x, shifts=(shift_size[0], shift_size[1], shift_size[2]), dims=(1, 2, 3))
    return x[:, :time, :height, :width, :].contiguous()


class ShiftedWindowAttention3d(nn.Module):
    """Attention inside windows of space and time, with a learned bias for each relative position."""

    relative_position_index: Tensor

    def __init__(
        self,
        dim: int,
        window_size: Sequence[int],
        shift_size: Sequence[int],
        num_heads: int,
        qkv_bias: bool = True,
        proj_bias: bool = True,
        attention_dropout: float = 0.0,
        dropout: float = 0.0,
    ):
        super().__init__()
        if len(window_size) != 3 or len(shift_size) != 3:
            raise ValueError(f"window_size and shift_size must be of length 3, got {window_size} and {shift_size}")
        self.window_size, self.shift_size, self.num_heads = list(window_size), list(shift_size), num_heads
        self.attention_dropout, self.dropout = attention_dropout, dropout
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim, bias=proj_bias)
        self.define_relative_position_bias_table()
        self.define_relative_position_index()

    def define_relative_position_bias_table(self) -> None:
        time, height, width = (2 * size - 1 for size in self.window_size)
        self.relative_position_bias_table = nn.Parameter(flambeau.zeros(time * height * width, self.num_heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def define_relative_position_index(self) -> None:
        places = flambeau.meshgrid(*(flambeau.arange(size) for size in self.window_size), indexing="ij")
        index = flambeau.zeros((), dtype=flambeau.int64)
        for size, place in zip(self.window_size, places):
            offset = place.flatten()[:, None] - place.flatten()[None, :] + size - 1
            index = index * (2 * size - 1) + offset
        self.register_buffer("relative_position_index", index)

    def get_relative_position_bias(self, window_size: list[int]) -> Tensor:
        """(1, heads, positions, positions) of a window that may be smaller than the module's."""
        count = window_size[0] * window_size[1] * window_size[2]
        bias = self.relative_position_bias_table[self.relative_position_index[:count, :count].flatten()]
        return bias.view(count, count, -1).permute(2, 0, 1).contiguous().unsqueeze(0)

    def forward(self, x: Tensor) -> Tensor:
        _, t, h, w, _ = x.shape
        window_size, shift_size = self.window_size.copy(), self.shift_size.copy()
        for i, size in enumerate([t, h, w]):
            if size <= window_size[i]:  # one window covers this dimension: nothing to shift
                window_size[i] = size
                shift_size[i] = 0
        return shifted_window_attention_3d(
            x,
            self.qkv.weight,
            self.proj.weight,
            self.get_relative_position_bias(window_size),
            window_size,
            self.num_heads,
            shift_size=shift_size,
            attention_dropout=self.attention_dropout,
            dropout=self.dropout,
            qkv_bias=self.qkv.bias,
            proj_bias=self.proj.bias,
            training=self.training,
        )


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
        make: Layer = block or partial(SwinTransformerBlock, attn_layer=ShiftedWindowAttention3d)
        norm = norm_layer or partial(nn.LayerNorm, eps=1e-5)
        embed: Layer = patch_embed or PatchEmbed3d
        self.patch_embed = embed(patch_size=patch_size, embed_dim=embed_dim, norm_layer=norm)
        self.pos_drop = nn.Dropout(p=dropout)
        layers: list[nn.Module] = []
        rates = [stochastic_depth_prob * float(i) / (sum(depths) - 1) for i in range(sum(depths))]
        dim = embed_dim
        for i, (depth, heads) in enumerate(zip(depths, num_heads)):
            stage = []
            for j in range(depth):
                stage.append(
                    make(
                        dim,
                        heads,
                        window_size=window_size,
                        shift_size=[0 if j % 2 == 0 else size // 2 for size in window_size],
                        mlp_ratio=mlp_ratio,
                        dropout=dropout,
                        attention_dropout=attention_dropout,
                        stochastic_depth_prob=rates[sum(depths[:i]) + j],
                        norm_layer=norm,
                        attn_layer=ShiftedWindowAttention3d,
                    )
                )
            layers.append(nn.Sequential(*stage))
            if i < len(depths) - 1:
                layers.append(downsample_layer(dim, norm))
                dim *= 2
        self.features = nn.Sequential(*layers)
        self.num_features = dim
        self.norm = norm(dim)
        self.avgpool = nn.AdaptiveAvgPool3d(1)
        self.head = nn.Linear(dim, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

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
