"""The Vision Transformer (Dosovitskiy et al., 2021)."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F
from flambeau.nn.modules import Sequential

from ..ops.misc import MLP, Conv2dNormActivation
from ._api import builder, expect_option, weights_enums

__all__ = [
    "ViT_B_16_Weights", "ViT_B_32_Weights", "ViT_H_14_Weights", "ViT_L_16_Weights", "ViT_L_32_Weights", "VisionTransformer",
    "vit_b_16", "vit_b_32", "vit_h_14", "vit_l_16", "vit_l_32",
]  # fmt: skip

_NORM: Callable[..., nn.Module] = partial(nn.LayerNorm, eps=1e-6)


class ConvStemConfig(NamedTuple):
    """Configuration of a convolution in a stem that replaces the single patch projection."""

    out_channels: int
    kernel_size: int
    stride: int
    norm_layer: Callable[..., nn.Module] = nn.BatchNorm2d
    activation_layer: Callable[..., nn.Module] = nn.ReLU


class MLPBlock(MLP):
    """The MLP of an encoder block."""

    _version = 2

    def __init__(self, in_dim: int, mlp_dim: int, dropout: float):
        super().__init__(in_dim, [mlp_dim, in_dim], activation_layer=nn.GELU, inplace=None, dropout=dropout)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.normal_(module.bias, std=1e-6)

    def _load_from_state_dict(self, state_dict: dict, prefix: str, local_metadata: dict, *rest: Any) -> None:
        if (local_metadata.get("version") or 1) < 2:  # the layers used to have names
            for old, new in (("linear_1", "0"), ("linear_2", "3")):
                for kind in ("weight", "bias"):
                    if f"{prefix}{old}.{kind}" in state_dict:
                        state_dict[f"{prefix}{new}.{kind}"] = state_dict.pop(f"{prefix}{old}.{kind}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class EncoderBlock(nn.Module):
    """Self-attention and an MLP, each after a normalisation and with a shortcut."""

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float,
        attention_dropout: float,
        norm_layer: Callable[..., nn.Module] = _NORM,
    ):
        super().__init__()
        self.num_heads = num_heads
        self.ln_1 = norm_layer(hidden_dim)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads, dropout=attention_dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = norm_layer(hidden_dim)
        self.mlp = MLPBlock(hidden_dim, mlp_dim, dropout)

    def forward(self, input: Tensor) -> Tensor:
        flambeau._assert(input.dim() == 3, f"Expected (batch_size, seq_length, hidden_dim) got {input.shape}")
        x = self.ln_1(input)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x) + input
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Learned positions, then encoder blocks."""

    def __init__(
        self,
        seq_length: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float,
        attention_dropout: float,
        norm_layer: Callable[..., nn.Module] = _NORM,
    ):
        super().__init__()
        self.pos_embedding = nn.Parameter(flambeau.empty(1, seq_length, hidden_dim).normal_(std=0.02))
        self.dropout = nn.Dropout(dropout)
        layers: dict[str, nn.Module] = OrderedDict()
        for i in range(num_layers):
            layers[f"encoder_layer_{i}"] = EncoderBlock(
                num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer
            )
        self.layers = nn.Sequential(layers)
        self.ln = norm_layer(hidden_dim)

    def forward(self, input: Tensor) -> Tensor:
        flambeau._assert(input.dim() == 3, f"Expected (batch_size, seq_length, hidden_dim) got {input.shape}")
        return self.ln(self.layers(self.dropout(input + self.pos_embedding)))


class VisionTransformer(nn.Module):
    """A transformer encoder over patches of the image and one class token."""

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        num_classes: int = 1000,
        representation_size: int | None = None,
        norm_layer: Callable[..., nn.Module] = _NORM,
        conv_stem_configs: Sequence[ConvStemConfig] | None = None,
    ):
        super().__init__()
        if image_size % patch_size:
            raise AssertionError("Input shape indivisible by patch size!")
        self.image_size, self.patch_size, self.hidden_dim, self.mlp_dim = image_size, patch_size, hidden_dim, mlp_dim
        self.attention_dropout, self.dropout, self.num_classes = attention_dropout, dropout, num_classes
        self.representation_size, self.norm_layer = representation_size, norm_layer
        if conv_stem_configs is None:
            self.conv_proj: nn.Module = nn.Conv2d(3, hidden_dim, kernel_size=patch_size, stride=patch_size)
        else:
            self.conv_proj = _conv_stem(conv_stem_configs, hidden_dim)
        self.seq_length = (image_size // patch_size) ** 2 + 1
        self.class_token = nn.Parameter(flambeau.zeros(1, 1, hidden_dim))
        self.encoder = Encoder(
            self.seq_length, num_layers, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer
        )
        heads: dict[str, nn.Module] = OrderedDict()
        if representation_size is not None:
            heads["pre_logits"] = nn.Linear(hidden_dim, representation_size)
            heads["act"] = nn.Tanh()
        heads["head"] = nn.Linear(representation_size or hidden_dim, num_classes)
        self.heads = nn.Sequential(heads)
        self._initialise()

    def _initialise(self) -> None:
        if isinstance(self.conv_proj, nn.Conv2d):
            fan = math.prod(self.conv_proj.weight.shape[1:])
            nn.init.trunc_normal_(self.conv_proj.weight, std=math.sqrt(1 / fan))
            nn.init.zeros_(self.conv_proj.bias)
        else:
            last = self.conv_proj.conv_last
            nn.init.normal_(last.weight, mean=0.0, std=math.sqrt(2.0 / last.out_channels))
            nn.init.zeros_(last.bias)
        if self.representation_size is not None:
            first = self.heads.pre_logits
            nn.init.trunc_normal_(first.weight, std=math.sqrt(1 / first.in_features))
            nn.init.zeros_(first.bias)
        nn.init.zeros_(self.heads.head.weight)
        nn.init.zeros_(self.heads.head.bias)

    def _process_input(self, x: Tensor) -> Tensor:
        """Convert images (N, 3, H, W) to patch embeddings (N, patches, hidden)."""
        height, width = x.shape[2], x.shape[3]
        flambeau._assert(height == self.image_size, f"Wrong image height! Expected {self.image_size} but got {height}!")
        flambeau._assert(width == self.image_size, f"Wrong image width! Expected {self.image_size} but got {width}!")
        return self.conv_proj(x).flatten(2).permute(0, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self._process_input(x)
        x = flambeau.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        return self.heads(self.encoder(x)[:, 0])


def _conv_stem(configs: Sequence[ConvStemConfig], hidden_dim: int) -> Sequential:
    layers: dict[str, nn.Module] = OrderedDict()
    width = 3
    for i, (out, kernel, stride, norm, activation) in enumerate(configs):
        layers[f"conv_bn_relu_{i}"] = Conv2dNormActivation(
            width, out, kernel_size=kernel, stride=stride, norm_layer=norm, activation_layer=activation
        )
        width = out
    layers["conv_last"] = nn.Conv2d(width, hidden_dim, kernel_size=1)
    return nn.Sequential(layers)


def interpolate_embeddings(
    image_size: int,
    patch_size: int,
    model_state: Mapping[str, Tensor],
    interpolation_mode: str = "bicubic",
    reset_heads: bool = False,
) -> Mapping[str, Tensor]:
    """Return a checkpoint's state dict with its positions resampled for another image size; without the heads if `reset_heads`."""
    positions = model_state["encoder.pos_embedding"]
    batch, length, hidden = positions.shape
    if batch != 1:
        raise ValueError(f"Unexpected position embedding shape: {positions.shape}")
    new_side = image_size // patch_size
    if new_side**2 + 1 == length:
        return model_state
    side = math.isqrt(length - 1)
    if side * side != length - 1:
        raise ValueError(
            f"seq_length is not a perfect square! Instead got seq_length_1d * seq_length_1d = {side * side}"
        )
    token, grid = positions[:, :1], positions[:, 1:]
    grid = grid.permute(0, 2, 1).reshape(1, hidden, side, side)
    grid = F.interpolate(grid, size=new_side, mode=interpolation_mode, align_corners=True)
    grid = grid.reshape(1, hidden, new_side**2).permute(0, 2, 1)
    state: Any = model_state
    state["encoder.pos_embedding"] = flambeau.cat([token, grid], dim=1)
    if reset_heads:
        return OrderedDict((key, value) for key, value in state.items() if not key.startswith("heads"))
    return state


def _vit(patch_size: int, num_layers: int, num_heads: int, hidden_dim: int, mlp_dim: int, **kwargs: Any) -> VisionTransformer:  # fmt: skip
    """a transformer encoder over patches of the image."""
    size = kwargs.pop("image_size", 224)
    return VisionTransformer(size, patch_size, num_layers, num_heads, hidden_dim, mlp_dim, **kwargs)


def _fix_image_size(kwargs: dict[str, Any], weights: Any) -> None:
    expect_option(kwargs, "image_size", weights.meta["min_size"][0])


ViT_B_16_Weights, ViT_B_32_Weights, ViT_L_16_Weights, ViT_L_32_Weights, ViT_H_14_Weights = weights_enums(
    "ViT_B_16", "ViT_B_32", "ViT_L_16", "ViT_L_32", "ViT_H_14"
)
_builder = partial(builder, prepare=_fix_image_size)
vit_b_16 = _builder("vit_b_16", _vit, ViT_B_16_Weights, 16, 12, 12, 768, 3072)
vit_b_32 = _builder("vit_b_32", _vit, ViT_B_32_Weights, 32, 12, 12, 768, 3072)
vit_l_16 = _builder("vit_l_16", _vit, ViT_L_16_Weights, 16, 24, 16, 1024, 4096)
vit_l_32 = _builder("vit_l_32", _vit, ViT_L_32_Weights, 32, 24, 16, 1024, 4096)
vit_h_14 = _builder("vit_h_14", _vit, ViT_H_14_Weights, 14, 32, 16, 1280, 5120)
