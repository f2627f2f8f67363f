"""Transformer, its encoder and decoder, and their layers."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

from ...core import device as dev
from ...core import dtype as dt
from ...core.graph import grad_mode
from ...core.settings import is_scripting
from ...core.tensor import Tensor
from ...ops.creation.filled import full
from ...ops.nn.multi_head_attention import float_mask
from .. import functional as F
from ..init import xavier_uniform_
from .attention import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm


def _causal_mask(size: int, device: dev.device | None = None, dtype: dt.dtype | None = None) -> Tensor:
    return full([size, size], float("-inf"), device=device, dtype=dtype).triu_(1)


def _clones(module: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


def _get_activation_fn(activation: Any) -> Callable:
    if not isinstance(activation, str):
        return activation
    if activation in ("relu", "gelu"):
        return getattr(F, activation)
    raise RuntimeError(f"activation should be relu/gelu, not {activation}")


def _sequence_length(src: Tensor, batch_first: bool) -> int | None:
    if src.is_nested:
        return None
    if src.dim() == 2:
        return src.size(0)
    return src.size(1 if batch_first else 0) if src.dim() == 3 else None


def _detect_causal(mask: Tensor | None, is_causal: bool | None, size: int | None) -> bool:
    """Return whether the mask is the causal one: as stated, or found by comparing."""
    if is_causal is not None:
        return is_causal
    if mask is None or size is None:
        return False
    if mask.dim() != 2 or mask.size(0) != size or mask.size(1) != size:
        return False
    return bool((mask == _causal_mask(size, None, mask.dtype)).all())


class _TransformerLayer(Module):
    """Blocks of attention and, last, a feed-forward network, each with a residual connection and normalisation."""

    __constants__ = ["norm_first"]
    _attentions: tuple[str, ...]  # the names of its attention blocks

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        options = {"bias": bias, "device": device, "dtype": dtype}
        for name in self._attentions:
            attention = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **options)
            self.add_module(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **options)
        self.norm_first = norm_first
        blocks = range(1, len(self._attentions) + 2)
        for block in blocks:
            self.add_module(f"norm{block}", LayerNorm(d_model, eps=layer_norm_eps, **options))
        for block in blocks:
            self.add_module(f"dropout{block}", Dropout(dropout))
        self.activation = _get_activation_fn(activation)

    def __setstate__(self, state: dict) -> None:
        state.setdefault("activation", F.relu)
        super().__setstate__(state)

    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        found = self.self_attn(
            x, x, x, need_weights=False, attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal
        )
        return self.dropout1(found[0])


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and a feed-forward network, each with a residual connection and normalisation."""

    _attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        padding = float_mask(src_key_padding_mask, "src_key_padding_mask", src.dtype)
        mask = float_mask(src_mask, "src_mask", src.dtype)
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), mask, padding, is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, mask, padding, is_causal))
        return self.norm2(x + self._ff_block(x))

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to the encoder's output, and a feed-forward network."""

    _attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory_mask, memory_key_padding_mask, memory_is_causal)
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), memory, *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, memory, *other))
        return self.norm3(x + self._ff_block(x))

    def _mha_block(
        self, x: Tensor, mem: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        found = self.multihead_attn(
            x, mem, mem, need_weights=False, attn_mask=attn_mask, key_padding_mask=key_padding_mask, is_causal=is_causal
        )
        return self.dropout2(found[0])

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoder(Module):
    """A stack of encoder layers: `num_layers` copies of the given one, with separate parameters."""

    __constants__ = ["norm"]

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = False
        self.mask_check = mask_check
        if enable_nested_tensor:
            reason = _why_not_nested(encoder_layer)
            if reason:
                warnings.warn(
                    f"enable_nested_tensor is True, but self.use_nested_tensor is False because {reason}", stacklevel=2
                )

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        padding = float_mask(src_key_padding_mask, "src_key_padding_mask", src.dtype)
        mask = float_mask(mask, "mask", src.dtype)
        causal = _detect_causal(mask, is_causal, _sequence_length(src, self.layers[0].self_attn.batch_first))
        padded: Tensor | None = None
        if not is_scripting() and not self.training:  # noqa: SIM102  compiled code leaves out what is inside
            if self._fast_path_pads(src, src_key_padding_mask, mask, self.layers[0]):
                padded = src_key_padding_mask
        output = src
        for layer in self.layers:
            output = layer(output, src_mask=mask, is_causal=causal, src_key_padding_mask=padding)
        if padded is not None:
            output = output.masked_fill(_as_bool(padded).unsqueeze(-1), 0)
        if self.norm is not None:
            output = self.norm(output)
        return output

    def _fast_path_pads(self, src: Tensor, padding: Tensor | None, mask: Tensor | None, first: Any) -> bool:
        """Return whether PyTorch would run its inference path on nested tensors, in which padded positions become zero."""
        if (
            padding is None
            or mask is not None
            or not self.enable_nested_tensor
            or _why_not_nested(first)
            or src.dim() != 3
        ):
            return False
        if any(p.requires_grad for p in self.parameters()) and grad_mode.enabled:
            return False
        lengths_ok = padding.dtype is dt.bool_ or padding.dtype.is_floating_point
        return lengths_ok and _is_left_aligned(padding)


def _as_bool(mask: Tensor) -> Tensor:
    return mask if mask.dtype is dt.bool_ else mask == float("-inf")


def _is_left_aligned(padding: Tensor) -> bool:
    """Return whether every row keeps its first positions and masks the rest."""
    masked = _as_bool(padding)._array()
    return bool((masked[:, 1:] >= masked[:, :-1]).all())


def _why_not_nested(layer: Any) -> str:
    """Return why PyTorch would not use its nested-tensor path for this layer ("" if it would)."""
    if not isinstance(layer, TransformerEncoderLayer):
        return "encoder_layer was not TransformerEncoderLayer"
    if layer.norm_first:
        return "encoder_layer.norm_first was True"
    if not layer.self_attn.batch_first:
        return "encoder_layer.self_attn.batch_first was not True(use batch_first for better inference performance)"
    if not layer.self_attn._qkv_same_embed_dim:
        return "encoder_layer.self_attn._qkv_same_embed_dim was not True"
    if layer.self_attn.in_proj_bias is None:
        return "encoder_layer.self_attn was passed bias=False"
    if layer.activation is not F.relu and layer.activation is not F.gelu:
        return "encoder_layer.activation_relu_or_gelu was not True"
    if layer.norm1.eps != layer.norm2.eps:
        return "encoder_layer.norm1.eps was not equal to encoder_layer.norm2.eps"
    if layer.self_attn.num_heads % 2 == 1:
        return "encoder_layer.self_attn.num_heads is odd"
    return ""


class TransformerDecoder(Module):
    """A stack of decoder layers: `num_layers` copies of the given one, with separate parameters."""

    __constants__ = ["norm"]

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        output = tgt
        size = _sequence_length(tgt, self.layers[0].self_attn.batch_first)
        causal = _detect_causal(tgt_mask, tgt_is_causal, size)
        for layer in self.layers:
            output = layer(
                output, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=causal, memory_is_causal=memory_is_causal,
            )  # fmt: skip
        if self.norm is not None:
            output = self.norm(output)
        return output


class Transformer(Module):
    """An encoder and a decoder of attention layers, as in Attention Is All You Need; masks restrict which positions attend to which.

    >>> out = nn.Transformer(nhead=8, num_encoder_layers=2)(torch.rand(10, 4, 512), torch.rand(20, 4, 512))
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        kwargs = {"device": device, "dtype": dtype}
        super().__init__()
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            encoder_layer = TransformerEncoderLayer(*layer, **kwargs)
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kwargs)
            self.encoder = TransformerEncoder(encoder_layer, num_encoder_layers, norm)
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            decoder_layer = TransformerDecoderLayer(*layer, **kwargs)
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **kwargs)
            self.decoder = TransformerDecoder(decoder_layer, num_decoder_layers, norm)
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        batched = src.dim() == 3
        axis = 0 if self.batch_first else 1
        if batched and src.size(axis) != tgt.size(axis):
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """Return a mask that hides later positions: -inf above the diagonal."""
        return _causal_mask(sz, device, dtype)

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.dim() > 1:
                xavier_uniform_(p)
