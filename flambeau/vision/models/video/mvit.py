"""Multiscale Vision Transformers (Fan et al., 2021; Li et al., 2022): attention whose queries and keys are pooled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F

from ...ops.misc import MLP
from ...ops.stochastic_depth import StochasticDepth
from .._api import builder, expect_option, weights_enums

__all__ = ["MViT", "MViT_V1_B_Weights", "MViT_V2_S_Weights", "mvit_v1_b", "mvit_v2_s"]

Layer = Callable[..., nn.Module]


@dataclass
class MSBlockConfig:
    """Configuration of one block: its heads, widths, and the kernels and strides (T, H, W) that pool queries and keys; empty: not pooled."""

    num_heads: int
    input_channels: int
    output_channels: int
    kernel_q: list[int]
    kernel_kv: list[int]
    stride_q: list[int]
    stride_kv: list[int]


class Pool(nn.Module):
    """Pool tokens as a video (T, H, W); the class token, which comes first, is kept."""

    def __init__(
        self,
        pool: nn.Module,
        norm: nn.Module | None,
        activation: nn.Module | None = None,
        norm_before_pool: bool = False,
    ):
        super().__init__()
        self.pool = pool
        layers = [layer for layer in (norm, activation) if layer is not None]
        self.norm_act = nn.Sequential(*layers) if layers else None
        self.norm_before_pool = norm_before_pool

    def forward(self, x: Tensor, thw: tuple[int, int, int]) -> tuple[Tensor, tuple[int, int, int]]:
        dims = x.dim()
        if dims == 3:
            x = x.unsqueeze(1)
        elif dims != 4:
            raise ValueError(f"expected tokens of 3 or 4 dimensions, got shape {x.shape}")
        token, x = x[:, :, :1], x[:, :, 1:].transpose(2, 3)
        batch, heads, channels = x.shape[0], x.shape[1], x.shape[2]
        x = x.reshape(batch * heads, channels, thw[0], thw[1], thw[2]).contiguous()
        if self.norm_before_pool and self.norm_act is not None:
            x = self.norm_act(x)
        x = self.pool(x)
        pooled = (x.shape[2], x.shape[3], x.shape[4])
        x = flambeau.cat((token, x.reshape(batch, heads, channels, -1).transpose(2, 3)), dim=2)
        if not self.norm_before_pool and self.norm_act is not None:
            x = self.norm_act(x)
        return (x.squeeze(1) if dims == 3 else x), pooled


def _interpolate_table(table: Tensor, length: int) -> Tensor:
    """Interpolate a table of relative positions (positions, C) to another number of them."""
    if table.shape[0] == length:
        return table
    return F.interpolate(table.permute(1, 0).unsqueeze(0), size=length, mode="linear").squeeze(0).permute(1, 0)


def _relative_positions(table: Tensor, queries: int, keys: int) -> Tensor:
    """Return the table's entry for the distance of each pair, counted in the finer of the two grids: (queries, keys, C)."""
    q_step, k_step = max(keys / queries, 1.0), max(queries / keys, 1.0)
    q = flambeau.arange(queries)[:, None] * q_step
    k = (flambeau.arange(keys)[None, :] + (1.0 - keys)) * k_step
    return _interpolate_table(table, int(2 * max(queries, keys) - 1))[(q - k).long()]


def _add_rel_pos(
    attn: Tensor,
    q: Tensor,
    q_thw: tuple[int, int, int],
    k_thw: tuple[int, int, int],
    rel_pos_h: Tensor,
    rel_pos_w: Tensor,
    rel_pos_t: Tensor,
) -> Tensor:
    """Add, in place, products of queries and relative positions to the scores of all tokens but the class token."""
    (t, h, w), (kt, kh, kw) = q_thw, k_thw
    batch, heads, _, dim = q.shape
    r = q[:, :, 1:].reshape(batch, heads, t, h, w, dim)
    by_h = flambeau.einsum("bythwc,hkc->bythwk", r, _relative_positions(rel_pos_h, h, kh))
    by_w = flambeau.einsum("bythwc,wkc->bythwk", r, _relative_positions(rel_pos_w, w, kw))
    frames = r.permute(2, 0, 1, 3, 4, 5).reshape(t, batch * heads * h * w, dim)
    by_t = flambeau.matmul(frames, _relative_positions(rel_pos_t, t, kt).transpose(1, 2)).transpose(0, 1)
    by_t = by_t.view(batch, heads, h, w, t, kt).permute(0, 1, 4, 2, 3, 5)
    added = by_h[:, :, :, :, :, None, :, None] + by_w[:, :, :, :, :, None, None, :] + by_t[:, :, :, :, :, :, None, None]
    attn[:, :, 1:, 1:] += added.reshape(batch, heads, t * h * w, kt * kh * kw)
    return attn


def _pooling(channels: int, kernel: list[int], stride: list[int], norm_layer: Layer) -> nn.Module | None:
    """Return a depthwise pooling convolution, or None if neither kernel nor stride asks for it."""
    if math.prod(kernel) <= 1 and math.prod(stride) <= 1:
        return None
    padding = [int(size // 2) for size in kernel]
    conv: Any = nn.Conv3d
    return Pool(
        conv(channels, channels, kernel, stride=stride, padding=padding, groups=channels, bias=False),
        norm_layer(channels),
    )


class MultiscaleAttention(nn.Module):
    """Attention with pooled queries, keys and values."""

    def __init__(
        self,
        input_size: list[int],
        embed_dim: int,
        output_dim: int,
        num_heads: int,
        kernel_q: list[int],
        kernel_kv: list[int],
        stride_q: list[int],
        stride_kv: list[int],
        residual_pool: bool,
        residual_with_cls_embed: bool,
        rel_pos_embed: bool,
        dropout: float = 0.0,
        norm_layer: Layer = nn.LayerNorm,
    ):
        super().__init__()
        self.embed_dim, self.output_dim, self.num_heads = embed_dim, output_dim, num_heads
        self.head_dim = output_dim // num_heads
        self.scaler = 1.0 / math.sqrt(self.head_dim)
        self.residual_pool, self.residual_with_cls_embed = residual_pool, residual_with_cls_embed
        self.qkv = nn.Linear(embed_dim, 3 * output_dim)
        layers: list[nn.Module] = [nn.Linear(output_dim, output_dim)]
        if dropout > 0.0:
            layers.append(nn.Dropout(dropout, inplace=True))
        self.project = nn.Sequential(*layers)
        self.pool_q = _pooling(self.head_dim, kernel_q, stride_q, norm_layer)
        self.pool_k = _pooling(self.head_dim, kernel_kv, stride_kv, norm_layer)
        self.pool_v = _pooling(self.head_dim, kernel_kv, stride_kv, norm_layer)
        self.rel_pos_h: nn.Parameter | None = None
        self.rel_pos_w: nn.Parameter | None = None
        self.rel_pos_t: nn.Parameter | None = None
        if rel_pos_embed:
            size = max(input_size[1:])
            places = 2 * max(size // stride[1] if stride else size for stride in (stride_q, stride_kv)) - 1
            self.rel_pos_h = nn.Parameter(flambeau.zeros(places, self.head_dim))
            self.rel_pos_w = nn.Parameter(flambeau.zeros(places, self.head_dim))
            self.rel_pos_t = nn.Parameter(flambeau.zeros(2 * input_size[0] - 1, self.head_dim))
            for table in (self.rel_pos_h, self.rel_pos_w, self.rel_pos_t):
                nn.init.trunc_normal_(table, std=0.02)

    def forward(self, x: Tensor, thw: tuple[int, int, int]) -> tuple[Tensor, tuple[int, int, int]]:
        batch, count = x.shape[0], x.shape[1]
        q, k, v = self.qkv(x).reshape(batch, count, 3, self.num_heads, self.head_dim).transpose(1, 3).unbind(dim=2)
        k_thw = thw
        if self.pool_k is not None:
            k, k_thw = self.pool_k(k, thw)
        if self.pool_v is not None:
            v = self.pool_v(v, thw)[0]
        if self.pool_q is not None:
            q, thw = self.pool_q(q, thw)
        attn = flambeau.matmul(self.scaler * q, k.transpose(2, 3))
        if self.rel_pos_h is not None and self.rel_pos_w is not None and self.rel_pos_t is not None:
            attn = _add_rel_pos(attn, q, thw, k_thw, self.rel_pos_h, self.rel_pos_w, self.rel_pos_t)
        x = flambeau.matmul(attn.softmax(dim=-1), v)
        if self.residual_pool:
            if self.residual_with_cls_embed:
                x.add_(q)
            else:
                x[:, :, 1:, :] += q[:, :, 1:, :]
        return self.project(x.transpose(1, 2).reshape(batch, -1, self.output_dim)), thw


class MultiscaleBlock(nn.Module):
    """Pooled attention and an MLP, each after a normalisation and with a shortcut that is pooled as well."""

    def __init__(
        self,
        input_size: list[int],
        cnf: MSBlockConfig,
        residual_pool: bool,
        residual_with_cls_embed: bool,
        rel_pos_embed: bool,
        proj_after_attn: bool,
        dropout: float = 0.0,
        stochastic_depth_prob: float = 0.0,
        norm_layer: Layer = nn.LayerNorm,
    ):
        super().__init__()
        self.proj_after_attn = proj_after_attn
        self.pool_skip: nn.Module | None = None
        if math.prod(cnf.stride_q) > 1:
            kernel = [step + 1 if step > 1 else step for step in cnf.stride_q]
            pool: Any = nn.MaxPool3d
            self.pool_skip = Pool(pool(kernel, stride=cnf.stride_q, padding=[int(size // 2) for size in kernel]), None)
        width = cnf.output_channels if proj_after_attn else cnf.input_channels
        self.norm1 = norm_layer(cnf.input_channels)
        self.norm2 = norm_layer(width)
        self.needs_transposal = isinstance(self.norm1, nn.BatchNorm1d)
        self.attn = MultiscaleAttention(
            input_size,
            cnf.input_channels,
            width,
            cnf.num_heads,
            kernel_q=cnf.kernel_q,
            kernel_kv=cnf.kernel_kv,
            stride_q=cnf.stride_q,
            stride_kv=cnf.stride_kv,
            rel_pos_embed=rel_pos_embed,
            residual_pool=residual_pool,
            residual_with_cls_embed=residual_with_cls_embed,
            dropout=dropout,
            norm_layer=norm_layer,
        )
        self.mlp = MLP(width, [4 * width, cnf.output_channels], activation_layer=nn.GELU, dropout=dropout, inplace=None)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")
        self.project: nn.Module | None = None
        if cnf.input_channels != cnf.output_channels:
            self.project = nn.Linear(cnf.input_channels, cnf.output_channels)

    def forward(self, x: Tensor, thw: tuple[int, int, int]) -> tuple[Tensor, tuple[int, int, int]]:
        first = self.norm1(x.transpose(1, 2)).transpose(1, 2) if self.needs_transposal else self.norm1(x)
        attended, pooled = self.attn(first, thw)
        if self.project is not None and self.proj_after_attn:
            x = self.project(first)
        if self.pool_skip is not None:
            x = self.pool_skip(x, thw)[0]
        x = x + self.stochastic_depth(attended)
        second = self.norm2(x.transpose(1, 2)).transpose(1, 2) if self.needs_transposal else self.norm2(x)
        if self.project is not None and not self.proj_after_attn:
            x = self.project(second)
        return x + self.stochastic_depth(self.mlp(second)), pooled


class PositionalEncoding(nn.Module):
    """Prepend the class token; without relative positions, add learned ones for space and for time."""

    def __init__(self, embed_size: int, spatial_size: tuple[int, int], temporal_size: int, rel_pos_embed: bool):
        super().__init__()
        self.spatial_size, self.temporal_size = spatial_size, temporal_size
        self.class_token = nn.Parameter(flambeau.zeros(embed_size))
        self.spatial_pos: nn.Parameter | None = None
        self.temporal_pos: nn.Parameter | None = None
        self.class_pos: nn.Parameter | None = None
        if not rel_pos_embed:
            self.spatial_pos = nn.Parameter(flambeau.zeros(spatial_size[0] * spatial_size[1], embed_size))
            self.temporal_pos = nn.Parameter(flambeau.zeros(temporal_size, embed_size))
            self.class_pos = nn.Parameter(flambeau.zeros(embed_size))

    def forward(self, x: Tensor) -> Tensor:
        x = flambeau.cat((self.class_token.expand(x.size(0), -1).unsqueeze(1), x), dim=1)
        if self.spatial_pos is not None and self.temporal_pos is not None and self.class_pos is not None:
            area, width = self.spatial_pos.shape
            places = flambeau.repeat_interleave(self.temporal_pos, area, dim=0)
            places.add_(self.spatial_pos.unsqueeze(0).expand(self.temporal_size, -1, -1).reshape(-1, width))
            x.add_(flambeau.cat((self.class_pos.unsqueeze(0), places), dim=0).unsqueeze(0))
        return x


class MViT(nn.Module):
    """Transformer over videos (B, 3, T, H, W) whose blocks pool space while they grow wider."""

    def __init__(
        self,
        spatial_size: tuple[int, int],
        temporal_size: int,
        block_setting: Sequence[MSBlockConfig],
        residual_pool: bool,
        residual_with_cls_embed: bool,
        rel_pos_embed: bool,
        proj_after_attn: bool,
        dropout: float = 0.5,
        attention_dropout: float = 0.0,
        stochastic_depth_prob: float = 0.0,
        num_classes: int = 400,
        block: Layer | None = None,
        norm_layer: Layer | None = None,
        patch_embed_kernel: tuple[int, int, int] = (3, 7, 7),
        patch_embed_stride: tuple[int, int, int] = (2, 4, 4),
        patch_embed_padding: tuple[int, int, int] = (1, 3, 3),
    ):
        super().__init__()
        if not block_setting:
            raise ValueError("The configuration parameter can't be empty.")
        make: Layer = block or MultiscaleBlock
        norm = norm_layer or partial(nn.LayerNorm, eps=1e-6)
        width = block_setting[0].input_channels
        self.conv_proj = nn.Conv3d(
            3, width, kernel_size=patch_embed_kernel, stride=patch_embed_stride, padding=patch_embed_padding
        )
        size = [length // step for length, step in zip((temporal_size, *spatial_size), patch_embed_stride)]
        self.pos_encoding = PositionalEncoding(width, (size[1], size[2]), size[0], rel_pos_embed)
        self.blocks = nn.ModuleList()
        for i, setting in enumerate(block_setting):
            self.blocks.append(
                make(
                    input_size=size,
                    cnf=setting,
                    residual_pool=residual_pool,
                    residual_with_cls_embed=residual_with_cls_embed,
                    rel_pos_embed=rel_pos_embed,
                    proj_after_attn=proj_after_attn,
                    dropout=attention_dropout,
                    stochastic_depth_prob=stochastic_depth_prob * i / (len(block_setting) - 1.0),
                    norm_layer=norm,
                )
            )
            if setting.stride_q:
                size = [length // step for length, step in zip(size, setting.stride_q)]
        self.norm = norm(block_setting[-1].output_channels)
        self.head = nn.Sequential(
            nn.Dropout(dropout, inplace=True), nn.Linear(block_setting[-1].output_channels, num_classes)
        )
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                if module.weight is not None:
                    nn.init.ones_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, PositionalEncoding):
                for weight in module.parameters():
                    nn.init.trunc_normal_(weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 4:  # one frame
            x = x.unsqueeze(2)
        elif x.dim() != 5:
            raise ValueError(f"expected videos (B, C, T, H, W) or images (B, C, H, W), got shape {x.shape}")
        x = self.pos_encoding(self.conv_proj(x).flatten(2).transpose(1, 2))
        thw = (self.pos_encoding.temporal_size, self.pos_encoding.spatial_size[0], self.pos_encoding.spatial_size[1])
        for block in self.blocks:
            x, thw = block(x, thw)
        return self.head(self.norm(x)[:, 0])


_CUBE = [3, 3, 3]
_STRIDE_KV = [[1, 8, 8], *[[1, 4, 4]] * 2, *[[1, 2, 2]] * 11, *[[1, 1, 1]] * 2]
_HEADS = (1, 2, 2, *(4,) * 11, 8, 8)
_HALVED = (1, 3, 14)  # the blocks whose queries are pooled to half the height and width


def _settings(inside: Sequence[int], outside: Sequence[int], always_pooled: bool) -> list[MSBlockConfig]:
    """Return the 16 block configurations; with `always_pooled`, queries are pooled in every block, not only where they are halved."""
    settings = []
    for i, heads in enumerate(_HEADS):
        stride = [1, 2, 2] if i in _HALVED else [1, 1, 1] if always_pooled else []
        kernel = list(_CUBE) if stride else []
        settings.append(MSBlockConfig(heads, inside[i], outside[i], kernel, list(_CUBE), stride, list(_STRIDE_KV[i])))
    return settings


def _v1_b(**kwargs: Any) -> MViT:
    """transformer that pools space while it grows wider; positions are learned."""
    inside, outside = (96, *(192,) * 2, *(384,) * 11, 768, 768), (*(192,) * 2, *(384,) * 11, *(768,) * 3)
    return _mvit(_settings(inside, outside, False), residual_with_cls_embed=False, **kwargs)


def _v2_s(**kwargs: Any) -> MViT:
    """transformer that pools space while it grows wider, with relative positions and shortcuts of pooled queries."""
    inside, outside = (*(96,) * 2, *(192,) * 2, *(384,) * 11, 768), (96, *(192,) * 2, *(384,) * 11, *(768,) * 2)
    v2 = {"residual_pool": True, "rel_pos_embed": True, "proj_after_attn": True, "residual_with_cls_embed": False}
    return _mvit(_settings(inside, outside, True), **v2, **kwargs)


def _mvit(block_setting: list[MSBlockConfig], **kwargs: Any) -> MViT:
    defaults = {
        "spatial_size": (224, 224), "temporal_size": 16, "residual_pool": False, "rel_pos_embed": False, "proj_after_attn": False,
        "stochastic_depth_prob": 0.2,
    }  # fmt: skip
    return MViT(block_setting=block_setting, **{**defaults, **kwargs})


def _fit_video_size(kwargs: dict[str, Any], weights: Any) -> None:
    """Set the size of the videos that the chosen weights require."""
    expect_option(kwargs, "spatial_size", weights.meta["min_size"])
    expect_option(kwargs, "temporal_size", weights.meta["min_temporal_size"])


MViT_V1_B_Weights, MViT_V2_S_Weights = weights_enums("MViT_V1_B", "MViT_V2_S")
mvit_v1_b = builder("mvit_v1_b", _v1_b, MViT_V1_B_Weights, prepare=_fit_video_size)
mvit_v2_s = builder("mvit_v2_s", _v2_s, MViT_V2_S_Weights, prepare=_fit_video_size)
