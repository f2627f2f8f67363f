"""Swin Transformer (Liu et al., 2021) and Swin Transformer V2 (Liu et al., 2022)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F
from flambeau.nn.modules.settings import extending

from ..ops.misc import MLP, Permute
from ..ops.stochastic_depth import StochasticDepth
from ._api import builder, weights_enums

__all__ = [
    "SwinTransformer", "Swin_B_Weights", "Swin_S_Weights", "Swin_T_Weights", "Swin_V2_B_Weights", "Swin_V2_S_Weights",
    "Swin_V2_T_Weights", "swin_b", "swin_s", "swin_t", "swin_v2_b", "swin_v2_s", "swin_v2_t",
]  # fmt: skip

Layer = Callable[..., nn.Module]


def _four_neighbours(x: Tensor) -> Tensor:
    """Reshape (..., H, W, C) to (..., H/2, W/2, 4C); odd sizes are padded."""
    height, width = x.shape[-3:-1]
    x = F.pad(x, (0, 0, 0, width % 2, 0, height % 2))
    parts = [x[..., 0::2, 0::2, :], x[..., 1::2, 0::2, :], x[..., 0::2, 1::2, :], x[..., 1::2, 1::2, :]]
    return flambeau.cat(parts, -1)


class PatchMerging(nn.Module):
    """Layer that halves the size and doubles the width."""

    _normalised = 4  # the width that is normalised, in widths of the input

    def __init__(self, dim: int, norm_layer: Layer = nn.LayerNorm):
        super().__init__()
        self.dim = dim
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.norm = norm_layer(self._normalised * dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.reduction(self.norm(_four_neighbours(x)))


class PatchMergingV2(PatchMerging):
    """Layer that halves the size, doubles the width, and normalises."""

    _normalised = 2

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.reduction(_four_neighbours(x)))


def _windows(x: Tensor, size: list[int]) -> Tensor:
    """Reshape (B, H, W, C) or (B, T, H, W, C) to (B * windows, positions in a window, C)."""
    rank, positions = len(size), 1
    split = [x.shape[0]]
    for i in range(rank):
        split += [x.shape[i + 1] // size[i], size[i]]
        positions *= size[i]
    order = [0] + [2 * i + 1 for i in range(rank)] + [2 * i + 2 for i in range(rank)] + [2 * rank + 1]
    return x.view(split + [x.shape[-1]]).permute(order).reshape(-1, positions, x.shape[-1])


def _from_windows(x: Tensor, size: list[int], shape: list[int]) -> Tensor:
    """Invert `_windows`: `shape` is that of the result."""
    rank = len(size)
    order = [0]
    for i in range(rank):
        order += [i + 1, i + 1 + rank]
    parts = [shape[0]] + [shape[i + 1] // size[i] for i in range(rank)] + size + [shape[-1]]
    return x.view(parts).permute(order + [2 * rank + 1]).reshape(shape)


def _shift_mask(x: Tensor, size: list[int], shift: list[int]) -> Tensor:
    """Return a mask (windows, positions, positions): -100 between positions that a shift brought together from opposite borders."""
    rank = len(size)
    region = x.new_zeros(x.shape[1:-1])
    for i in range(rank):
        part = x.new_zeros(x.shape[i + 1])
        part[-size[i] : -shift[i]] = 1
        part[-shift[i] :] = 2
        region = region * 3 + part.view([-1 if i == j else 1 for j in range(rank)])
    return region_mask(_windows(region.unsqueeze(0).unsqueeze(-1), size)[..., 0])


def region_mask(region: Tensor) -> Tensor:
    """Return a mask (windows, positions, positions) from the region of each position: 0 inside a region, -100 between regions."""
    apart = region.unsqueeze(1) - region.unsqueeze(2)
    return apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0)


def attention_in_windows(
    x: Tensor,
    qkv_weight: Tensor,
    proj_weight: Tensor,
    relative_position_bias: Tensor,
    mask: Tensor | None,
    num_heads: int,
    attention_dropout: float,
    dropout: float,
    qkv_bias: Tensor | None,
    proj_bias: Tensor | None,
    logit_scale: Tensor | None,
    training: bool,
) -> Tensor:
    """Compute self-attention of (B * windows, positions, C); `mask` (windows, positions, positions) is added to the scores."""
    positions, channels = x.shape[1], x.shape[2]
    if logit_scale is not None and qkv_bias is not None:  # keys have no bias in V2
        qkv_bias = qkv_bias.clone()
        third = qkv_bias.numel() // 3
        qkv_bias[third : 2 * third].zero_()
    qkv = F.linear(x, qkv_weight, qkv_bias)
    q, k, v = qkv.reshape(-1, positions, 3, num_heads, channels // num_heads).permute(2, 0, 3, 1, 4).unbind(0)
    if logit_scale is not None:
        attention = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        attention = attention * logit_scale.clamp(max=math.log(100.0)).exp()
    else:
        attention = (q * (channels // num_heads) ** -0.5).matmul(k.transpose(-2, -1))
    attention = attention + relative_position_bias
    if mask is not None:
        count = mask.shape[0]
        attention = attention.view(-1, count, num_heads, positions, positions) + mask.unsqueeze(1).unsqueeze(0)
        attention = attention.view(-1, num_heads, positions, positions)
    attention = F.dropout(F.softmax(attention, dim=-1), p=attention_dropout, training=training)
    x = attention.matmul(v).transpose(1, 2).reshape(-1, positions, channels)
    return F.dropout(F.linear(x, proj_weight, proj_bias), p=dropout, training=training)


def shifted_window_attention(
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
    logit_scale: Tensor | None = None,
    training: bool = True,
) -> Tensor:
    """Compute self-attention in windows of (B, H, W, C) or (B, T, H, W, C), shifted by `shift_size`; of cosines with `logit_scale`."""
    rank = len(window_size)
    sizes = [input.shape[i + 1] for i in range(rank)]
    pads = [0, 0]
    for i in range(rank - 1, -1, -1):
        pads += [0, -sizes[i] % window_size[i]]
    x = F.pad(input, pads)
    # One window that covers everything has nothing to shift.
    shift = [0 if window_size[i] >= x.shape[i + 1] else shift_size[i] for i in range(rank)]
    dims = [i + 1 for i in range(rank)]
    mask: Tensor | None = None
    if sum(shift) > 0:
        x = flambeau.roll(x, [-step for step in shift], dims)
        mask = _shift_mask(x, window_size, shift)
    shape = list(x.shape)
    x = attention_in_windows(
        _windows(x, window_size), qkv_weight, proj_weight, relative_position_bias, mask, num_heads, attention_dropout, dropout,
        qkv_bias, proj_bias, logit_scale, training,
    )  # fmt: skip
    x = _from_windows(x, window_size, shape)
    if sum(shift) > 0:
        x = flambeau.roll(x, shift, dims)
    for i in range(rank):
        x = x.narrow(i + 1, 0, sizes[i])
    return x.contiguous()


class ShiftedWindowAttention(nn.Module):
    """Attention inside windows, with a learned bias for each relative position."""

    rank = 2
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
        if len(window_size) != self.rank or len(shift_size) != self.rank:
            raise ValueError(f"window_size and shift_size must be of length {self.rank}")
        self.window_size, self.shift_size, self.num_heads = list(window_size), list(shift_size), num_heads
        self.attention_dropout, self.dropout = attention_dropout, dropout
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim, bias=proj_bias)
        self.define_relative_position_bias_table()
        self.define_relative_position_index()

    def define_relative_position_bias_table(self) -> None:
        places = math.prod(2 * size - 1 for size in self.window_size)
        self.relative_position_bias_table = nn.Parameter(flambeau.zeros(places, self.num_heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def define_relative_position_index(self) -> None:
        self.register_buffer("relative_position_index", self._index().flatten())

    def _index(self) -> Tensor:
        """Return the row of the bias table for each pair of positions."""
        places = flambeau.meshgrid(*(flambeau.arange(size) for size in self.window_size), indexing="ij")
        index = flambeau.zeros((), dtype=flambeau.int64)
        for size, place in zip(self.window_size, places):
            index = index * (2 * size - 1) + place.flatten()[:, None] - place.flatten()[None, :] + size - 1
        return index

    def _bias(self, table: Tensor) -> Tensor:
        count = self.window_size[0] * self.window_size[1]
        return table[self.relative_position_index].view(count, count, -1).permute(2, 0, 1).contiguous().unsqueeze(0)

    def get_relative_position_bias(self) -> Tensor:
        return self._bias(self.relative_position_bias_table)

    def forward(self, x: Tensor, logit_scale: Tensor | None = None) -> Tensor:
        return self._attend(x, self.get_relative_position_bias(), self.window_size, self.shift_size, logit_scale)

    def _attend(
        self, x: Tensor, bias: Tensor, window_size: list[int], shift_size: list[int], logit_scale: Tensor | None = None
    ) -> Tensor:
        return shifted_window_attention(
            x,
            self.qkv.weight,
            self.proj.weight,
            bias,
            window_size,
            self.num_heads,
            shift_size=shift_size,
            attention_dropout=self.attention_dropout,
            dropout=self.dropout,
            qkv_bias=self.qkv.bias,
            proj_bias=self.proj.bias,
            logit_scale=logit_scale,
            training=self.training,
        )


class ShiftedWindowAttentionV2(ShiftedWindowAttention):
    """Cosine attention inside windows; the bias is a small network of the relative position."""

    relative_coords_table: Tensor

    @extending(ShiftedWindowAttention)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.logit_scale = nn.Parameter(flambeau.log(10 * flambeau.ones((self.num_heads, 1, 1))))
        self.cpb_mlp = nn.Sequential(
            nn.Linear(2, 512, bias=True), nn.ReLU(inplace=True), nn.Linear(512, self.num_heads, bias=False)
        )
        if settings["qkv_bias"]:
            third = self.qkv.bias.numel() // 3
            self.qkv.bias[third : 2 * third].data.zero_()

    def define_relative_position_bias_table(self) -> None:
        height, width = self.window_size
        down = flambeau.arange(-(height - 1), height, dtype=flambeau.float32) / (height - 1)
        right = flambeau.arange(-(width - 1), width, dtype=flambeau.float32) / (width - 1)
        table = (
            flambeau.stack(flambeau.meshgrid([down, right], indexing="ij")).permute(1, 2, 0).contiguous().unsqueeze(0)
        )
        table = table * 8
        table = flambeau.sign(table) * flambeau.log2(flambeau.abs(table) + 1.0) / 3.0
        self.register_buffer("relative_coords_table", table)

    def get_relative_position_bias(self) -> Tensor:
        return 16 * flambeau.sigmoid(self._bias(self.cpb_mlp(self.relative_coords_table).view(-1, self.num_heads)))

    def forward(self, x: Tensor, logit_scale: Tensor | None = None) -> Tensor:
        return super().forward(x, self.logit_scale)


class SwinTransformerBlock(nn.Module):
    """Window attention and an MLP, each after a normalisation and with a shortcut."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        window_size: Sequence[int],
        shift_size: Sequence[int],
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth_prob: float = 0.0,
        norm_layer: Layer = nn.LayerNorm,
        attn_layer: Layer = ShiftedWindowAttention,
    ):
        super().__init__()
        self.norm1 = norm_layer(dim)
        self.attn = attn_layer(
            dim, window_size, shift_size, num_heads, attention_dropout=attention_dropout, dropout=dropout
        )
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")
        self.norm2 = norm_layer(dim)
        self.mlp = MLP(dim, [int(dim * mlp_ratio), dim], activation_layer=nn.GELU, inplace=None, dropout=dropout)
        for module in self.mlp.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.normal_(module.bias, std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.stochastic_depth(self.attn(self.norm1(x)))
        return x + self.stochastic_depth(self.mlp(self.norm2(x)))


class SwinTransformerBlockV2(SwinTransformerBlock):
    """The block of V2: normalisations come last."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{"attn_layer": ShiftedWindowAttentionV2, **kwargs})

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.stochastic_depth(self.norm1(self.attn(x)))
        return x + self.stochastic_depth(self.norm2(self.mlp(x)))


def swin_stages(
    make: Layer, shrink: Layer, dim: int, depths: Sequence[int], num_heads: Sequence[int], window_size: Sequence[int], drop: float
) -> tuple[list[nn.Module], int]:  # fmt: skip
    """Return stages of blocks with `shrink` between them, and the final width; every other block is shifted, later ones drop more often."""
    layers: list[nn.Module] = []
    done, total = 0, sum(depths)
    for depth, heads in zip(depths, num_heads):
        if layers:
            layers.append(shrink(dim))
            dim *= 2
        shifts = [[0 if j % 2 == 0 else size // 2 for size in window_size] for j in range(depth)]
        rates = [drop * float(done + j) / (total - 1) for j in range(depth)]
        stage = [make(dim, heads, shift_size=s, stochastic_depth_prob=p) for s, p in zip(shifts, rates)]
        layers.append(nn.Sequential(*stage))
        done += depth
    return layers, dim


def initialise_linear(model: nn.Module) -> None:
    """Draw the weights of linear layers from a narrow normal distribution; set their biases to zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


class SwinTransformer(nn.Module):
    """Transformer blocks over windows, in stages that halve the size."""

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
        num_classes: int = 1000,
        norm_layer: Layer | None = None,
        block: Layer | None = None,
        downsample_layer: Layer = PatchMerging,
    ):
        super().__init__()
        self.num_classes = num_classes
        norm = norm_layer or partial(nn.LayerNorm, eps=1e-5)
        patch = (patch_size[0], patch_size[1])
        embed = nn.Conv2d(3, embed_dim, kernel_size=patch, stride=patch)
        layers: list[nn.Module] = [nn.Sequential(embed, Permute([0, 2, 3, 1]), norm(embed_dim))]
        make: Layer = partial(
            block or SwinTransformerBlock, window_size=window_size, mlp_ratio=mlp_ratio, dropout=dropout,
            attention_dropout=attention_dropout, norm_layer=norm,
        )  # fmt: skip
        shrink = partial(downsample_layer, norm_layer=norm)
        stages, dim = swin_stages(make, shrink, embed_dim, depths, num_heads, window_size, stochastic_depth_prob)
        layers += stages
        self.features = nn.Sequential(*layers)
        self.norm = norm(dim)
        self.permute = Permute([0, 3, 1, 2])
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten(1)
        self.head = nn.Linear(dim, num_classes)
        initialise_linear(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.permute(self.norm(self.features(x)))
        return self.head(self.flatten(self.avgpool(x)))


def _swin(embed_dim: int, depth: int, heads: int, window: int, drop: float, **kwargs: Any) -> SwinTransformer:
    """transformer blocks over windows, in stages that halve the size."""
    return SwinTransformer(
        [4, 4],
        embed_dim,
        [2, 2, depth, 2],
        [heads * 2**i for i in range(4)],
        [window, window],
        stochastic_depth_prob=kwargs.pop("stochastic_depth_prob", drop),
        **kwargs,
    )


Swin_T_Weights, Swin_S_Weights, Swin_B_Weights = weights_enums("Swin_T", "Swin_S", "Swin_B")
Swin_V2_T_Weights, Swin_V2_S_Weights, Swin_V2_B_Weights = weights_enums("Swin_V2_T", "Swin_V2_S", "Swin_V2_B")
_V2: dict[str, Any] = {"block": SwinTransformerBlockV2, "downsample_layer": PatchMergingV2}
swin_t = builder("swin_t", _swin, Swin_T_Weights, 96, 6, 3, 7, 0.2)
swin_s = builder("swin_s", _swin, Swin_S_Weights, 96, 18, 3, 7, 0.3)
swin_b = builder("swin_b", _swin, Swin_B_Weights, 128, 18, 4, 7, 0.5)
swin_v2_t = builder("swin_v2_t", _swin, Swin_V2_T_Weights, 96, 6, 3, 8, 0.2, **_V2)
swin_v2_s = builder("swin_v2_s", _swin, Swin_V2_S_Weights, 96, 18, 3, 8, 0.3, **_V2)
swin_v2_b = builder("swin_v2_b", _swin, Swin_V2_B_Weights, 128, 18, 4, 8, 0.5, **_V2)
