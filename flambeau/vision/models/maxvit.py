"""MaxViT (Tu et al., 2022): convolutions, attention in windows, attention across a grid."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F

from ..ops.misc import Conv2dNormActivation, SqueezeExcitation
from ..ops.stochastic_depth import StochasticDepth
from ._api import builder, expect_option, weights_enums
from ._utils import initialise

__all__ = ["MaxVit", "MaxVit_T_Weights", "maxvit_t"]

Layer = Callable[..., nn.Module]
Size = tuple[int, int]


def _halved_size(size: Size) -> Size:
    """Return the size of an image after a 3x3 convolution of stride 2."""
    return (size[0] - 1) // 2 + 1, (size[1] - 1) // 2 + 1


class MBConv(nn.Module):
    """Block that widens, convolves each channel, gates the channels, and narrows, with a (pooled) shortcut."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        expansion_ratio: float,
        squeeze_ratio: float,
        stride: int,
        activation_layer: Layer,
        norm_layer: Layer,
        p_stochastic_dropout: float = 0.0,
    ):
        super().__init__()
        self.proj: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            pool = [nn.AvgPool2d(kernel_size=3, stride=stride, padding=1)] if stride == 2 else []
            self.proj = nn.Sequential(*pool, nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=1, bias=True))
        wide = int(out_channels * expansion_ratio)
        self.stochastic_depth = StochasticDepth(p_stochastic_dropout, "row") if p_stochastic_dropout else nn.Identity()
        layer = partial(Conv2dNormActivation, activation_layer=activation_layer, norm_layer=norm_layer, inplace=None)
        layers: dict[str, nn.Module] = OrderedDict()
        layers["pre_norm"] = norm_layer(in_channels)
        layers["conv_a"] = layer(in_channels, wide, kernel_size=1, stride=1, padding=0)
        layers["conv_b"] = layer(wide, wide, kernel_size=3, stride=stride, padding=1, groups=wide)
        layers["squeeze_excitation"] = SqueezeExcitation(wide, int(out_channels * squeeze_ratio), activation=nn.SiLU)
        layers["conv_c"] = nn.Conv2d(wide, out_channels, kernel_size=1, bias=True)
        self.layers = nn.Sequential(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x) + self.stochastic_depth(self.layers(x))


class RelativePositionalMultiHeadAttention(nn.Module):
    """Attention among the positions of a square, with a learned bias for each relative position."""

    relative_position_index: Tensor

    def __init__(self, feat_dim: int, head_dim: int, max_seq_len: int):
        super().__init__()
        if feat_dim % head_dim != 0:
            raise ValueError(f"feat_dim: {feat_dim} must be divisible by head_dim: {head_dim}")
        self.n_heads, self.head_dim = feat_dim // head_dim, head_dim
        self.size = int(np.sqrt(max_seq_len))
        self.max_seq_len = max_seq_len
        self.to_qkv = nn.Linear(feat_dim, self.n_heads * head_dim * 3)
        self.scale_factor = feat_dim**-0.5
        self.merge = nn.Linear(head_dim * self.n_heads, feat_dim)
        side = 2 * self.size - 1
        self.relative_position_bias_table = nn.Parameter(flambeau.empty((side * side, self.n_heads)))
        rows = flambeau.arange(self.size).repeat_interleave(self.size)
        columns = flambeau.arange(self.size).repeat(self.size)
        down = rows[:, None] - rows[None, :] + self.size - 1
        right = columns[:, None] - columns[None, :] + self.size - 1
        self.register_buffer("relative_position_index", down * side + right)
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def get_relative_positional_bias(self) -> Tensor:
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)]
        return bias.view(self.max_seq_len, self.max_seq_len, -1).permute(2, 0, 1).contiguous().unsqueeze(0)

    def forward(self, x: Tensor) -> Tensor:
        batch, groups, positions, dim = x.shape
        shape = (batch, groups, positions, self.n_heads, self.head_dim)
        q, k, v = [t.reshape(shape).permute(0, 1, 3, 2, 4) for t in self.to_qkv(x).chunk(3, dim=-1)]
        scores = q @ (k * self.scale_factor).transpose(-2, -1)
        attention = F.softmax(scores + self.get_relative_positional_bias(), dim=-1)
        return self.merge((attention @ v).permute(0, 1, 3, 2, 4).reshape(batch, groups, positions, dim))


class SwapAxes(nn.Module):
    """A layer that exchanges two dimensions."""

    def __init__(self, a: int, b: int):
        super().__init__()
        self.a, self.b = a, b

    def forward(self, x: Tensor) -> Tensor:
        return flambeau.swapaxes(x, self.a, self.b)


class WindowPartition(nn.Module):
    """Layer that reshapes (B, C, H, W) to (B, windows, positions, C) for windows of side p."""

    def forward(self, x: Tensor, p: int) -> Tensor:
        batch, channels, height, width = x.shape
        x = x.reshape(batch, channels, height // p, p, width // p, p).permute(0, 2, 4, 3, 5, 1)
        return x.reshape(batch, (height // p) * (width // p), p * p, channels)


class WindowDepartition(nn.Module):
    """The inverse of WindowPartition, for h_partitions by w_partitions windows."""

    def forward(self, x: Tensor, p: int, h_partitions: int, w_partitions: int) -> Tensor:
        batch, _, _, channels = x.shape
        x = x.reshape(batch, h_partitions, w_partitions, p, p, channels).permute(0, 5, 1, 3, 2, 4)
        return x.reshape(batch, channels, h_partitions * p, w_partitions * p)


class PartitionAttentionLayer(nn.Module):
    """Attention and an MLP inside windows ("window"), or among equal positions of all windows ("grid")."""

    def __init__(
        self,
        in_channels: int,
        head_dim: int,
        partition_size: int,
        partition_type: str,
        grid_size: Size,
        mlp_ratio: int,
        activation_layer: Layer,
        norm_layer: Layer,
        attention_dropout: float,
        mlp_dropout: float,
        p_stochastic_dropout: float,
    ):
        super().__init__()
        if partition_type not in ("grid", "window"):
            raise ValueError("partition_type must be either 'grid' or 'window'")
        self.n_heads, self.head_dim = in_channels // head_dim, head_dim
        self.n_partitions = grid_size[0] // partition_size
        self.partition_type, self.grid_size = partition_type, grid_size
        across = partition_type == "grid"
        self.p, self.g = (self.n_partitions, partition_size) if across else (partition_size, self.n_partitions)
        self.partition_op = WindowPartition()
        self.departition_op = WindowDepartition()
        self.partition_swap = SwapAxes(-2, -3) if across else nn.Identity()
        self.departition_swap = SwapAxes(-2, -3) if across else nn.Identity()
        self.attn_layer = nn.Sequential(
            norm_layer(in_channels),
            RelativePositionalMultiHeadAttention(in_channels, head_dim, partition_size**2),
            nn.Dropout(attention_dropout),
        )
        self.mlp_layer = nn.Sequential(
            nn.LayerNorm(in_channels),
            nn.Linear(in_channels, in_channels * mlp_ratio),
            activation_layer(),
            nn.Linear(in_channels * mlp_ratio, in_channels),
            nn.Dropout(mlp_dropout),
        )
        self.stochastic_dropout = StochasticDepth(p_stochastic_dropout, "row")

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = self.grid_size[0] // self.p, self.grid_size[1] // self.p
        if self.grid_size[0] % self.p or self.grid_size[1] % self.p:
            raise AssertionError(
                f"Grid size must be divisible by partition size. Got grid size of {self.grid_size} and partition size of "
                f"{self.p}"
            )
        x = self.partition_swap(self.partition_op(x, self.p))
        x = x + self.stochastic_dropout(self.attn_layer(x))
        x = x + self.stochastic_dropout(self.mlp_layer(x))
        return self.departition_op(self.departition_swap(x), self.p, rows, columns)


class MaxVitLayer(nn.Module):
    """MBConv, then attention in windows, then across the grid."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        squeeze_ratio: float,
        expansion_ratio: float,
        stride: int,
        norm_layer: Layer,
        activation_layer: Layer,
        head_dim: int,
        mlp_ratio: int,
        mlp_dropout: float,
        attention_dropout: float,
        p_stochastic_dropout: float,
        partition_size: int,
        grid_size: Size,
    ):
        super().__init__()
        layers: dict[str, nn.Module] = OrderedDict()
        layers["MBconv"] = MBConv(
            in_channels,
            out_channels,
            expansion_ratio,
            squeeze_ratio,
            stride,
            activation_layer,
            norm_layer,
            p_stochastic_dropout,
        )
        for kind in ("window", "grid"):
            layers[f"{kind}_attention"] = PartitionAttentionLayer(
                out_channels,
                head_dim,
                partition_size,
                kind,
                grid_size,
                mlp_ratio,
                activation_layer,
                nn.LayerNorm,
                attention_dropout,
                mlp_dropout,
                p_stochastic_dropout,
            )
        self.layers = nn.Sequential(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class MaxVitBlock(nn.Module):
    """Layers of one width; the first halves the size."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        squeeze_ratio: float,
        expansion_ratio: float,
        norm_layer: Layer,
        activation_layer: Layer,
        head_dim: int,
        mlp_ratio: int,
        mlp_dropout: float,
        attention_dropout: float,
        partition_size: int,
        input_grid_size: Size,
        n_layers: int,
        p_stochastic: Sequence[float],
    ):
        super().__init__()
        if len(p_stochastic) != n_layers:
            raise ValueError(f"p_stochastic must have length n_layers={n_layers}, got p_stochastic={p_stochastic}.")
        self.layers = nn.ModuleList()
        self.grid_size = _halved_size(input_grid_size)
        for i, drop in enumerate(p_stochastic):
            self.layers.append(
                MaxVitLayer(
                    in_channels if i == 0 else out_channels,
                    out_channels,
                    squeeze_ratio,
                    expansion_ratio,
                    2 if i == 0 else 1,
                    norm_layer,
                    activation_layer,
                    head_dim,
                    mlp_ratio,
                    mlp_dropout,
                    attention_dropout,
                    drop,
                    partition_size,
                    self.grid_size,
                )
            )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def _block_sizes(input_size: Size, blocks: int, partition_size: int) -> list[Size]:
    """Return the sizes of images before each block and after the last."""
    sizes = [_halved_size(input_size)]
    for _ in range(blocks):
        sizes.append(_halved_size(sizes[-1]))
    for i, (height, width) in enumerate(sizes[1:]):
        if height % partition_size or width % partition_size:
            raise ValueError(
                f"Input size {(height, width)} of block {i} is not divisible by partition size {partition_size}. "
                "Consider changing the partition size or the input size.\n"
                f"Current configuration yields the following block input sizes: {sizes[1:]}."
            )
    return sizes


class MaxVit(nn.Module):
    """Blocks of convolution and two kinds of attention, for images of one size."""

    def __init__(
        self,
        input_size: Size,
        stem_channels: int,
        partition_size: int,
        block_channels: Sequence[int],
        block_layers: Sequence[int],
        head_dim: int,
        stochastic_depth_prob: float,
        norm_layer: Layer | None = None,
        activation_layer: Layer = nn.GELU,
        squeeze_ratio: float = 0.25,
        expansion_ratio: float = 4,
        mlp_ratio: int = 4,
        mlp_dropout: float = 0.0,
        attention_dropout: float = 0.0,
        num_classes: int = 1000,
    ):
        super().__init__()
        norm = norm_layer or partial(nn.BatchNorm2d, eps=1e-3, momentum=0.01)
        sizes = _block_sizes(input_size, len(block_channels), partition_size)
        layer = Conv2dNormActivation
        self.stem = nn.Sequential(
            layer(3, stem_channels, 3, stride=2, norm_layer=norm, activation_layer=activation_layer, inplace=None),
            layer(stem_channels, stem_channels, 3, stride=1, norm_layer=None, activation_layer=None, bias=True),
        )
        self.partition_size = partition_size
        self.blocks = nn.ModuleList()
        drops = np.linspace(0, stochastic_depth_prob, sum(block_layers)).tolist()
        width_in = stem_channels
        for size, width, count in zip(sizes, block_channels, block_layers):
            self.blocks.append(
                MaxVitBlock(
                    width_in,
                    width,
                    squeeze_ratio,
                    expansion_ratio,
                    norm,
                    activation_layer,
                    head_dim,
                    mlp_ratio,
                    mlp_dropout,
                    attention_dropout,
                    partition_size,
                    size,
                    count,
                    drops[:count],
                )
            )
            drops, width_in = drops[count:], width
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.LayerNorm(width_in),
            nn.Linear(width_in, width_in),
            nn.Tanh(),
            nn.Linear(width_in, num_classes, bias=False),
        )
        fill = partial(nn.init.normal_, std=0.02)
        initialise(self, fill, fill)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.classifier(x)


def _maxvit(stem: int, widths: Sequence[int], layers: Sequence[int], **kwargs: Any) -> MaxVit:
    """blocks of convolution, attention in windows and attention across a grid."""
    options = {"input_size": (224, 224), "partition_size": 7, "head_dim": 32, "stochastic_depth_prob": 0.2, **kwargs}
    return MaxVit(stem_channels=stem, block_channels=widths, block_layers=layers, **options)


def _fix_size(kwargs: dict[str, Any], weights: Any) -> None:
    expect_option(kwargs, "input_size", weights.meta["min_size"])


(MaxVit_T_Weights,) = weights_enums("MaxVit_T")
maxvit_t = builder("maxvit_t", _maxvit, MaxVit_T_Weights, 64, (64, 128, 256, 512), (2, 2, 5, 2), prepare=_fix_size)
