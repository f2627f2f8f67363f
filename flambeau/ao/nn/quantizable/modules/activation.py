"""Multi-head attention composed of linear layers that can be observed and quantized; scores are computed in floating point."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as torch

from ..... import nn
from .....core import naming
from .....core.tensor import Tensor
from .....nn.modules.settings import extending
from ...quantized.modules.functional_modules import FloatFunctional

__all__ = ["MultiheadAttention"]
F = nn.functional


def _to_boolean(mask: Tensor | None, name: str) -> Tensor | None:
    if mask is None or mask.dtype != torch.uint8:
        return mask
    warnings.warn(
        f"Byte tensor for `{name}` in `nn.MultiheadAttention` is deprecated. Use bool tensor instead.", stacklevel=4
    )
    return mask.to(torch.bool)


def _append_zeros(x: Tensor) -> Tensor:
    """Append a row of zeros to the keys or values of each head."""
    zeros = torch.zeros((x.size(0), 1, *x.size()[2:]))
    if x.is_quantized:
        zeros = torch.quantize_per_tensor(zeros, x.q_scale(), x.q_zero_point(), x.dtype)
    return torch.cat([x, zeros], dim=1)


class MultiheadAttention(nn.MultiheadAttention):
    """nn.MultiheadAttention whose queries, keys and values come from separate linear layers."""

    _FLOAT_MODULE = nn.MultiheadAttention
    __constants__ = ["batch_first"]

    @extending(nn.MultiheadAttention)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        options = {name: settings[name] for name in ("bias", "device", "dtype")}
        self.linear_Q = nn.Linear(self.embed_dim, self.embed_dim, **options)
        self.linear_K = nn.Linear(self.kdim, self.embed_dim, **options)
        self.linear_V = nn.Linear(self.vdim, self.embed_dim, **options)
        self.out_proj: Any = nn.Linear(self.embed_dim, self.embed_dim, **options)
        self.q_scaling_product = FloatFunctional()
        stubs = naming.above("ao.quantization.stubs")  # a room that is made of these layers
        self.quant_attn_output, self.quant_attn_output_weights = stubs.QuantStub(), stubs.QuantStub()
        self.dequant_q, self.dequant_k, self.dequant_v = (stubs.DeQuantStub() for _ in range(3))

    def _get_name(self) -> str:
        return "QuantizableMultiheadAttention"

    @classmethod
    def from_float(cls, other: Any) -> Any:
        """Make an observed copy of an nn.MultiheadAttention."""
        prepare = naming.above("ao.quantization").prepare  # which swaps modules for this one

        if type(other) is not cls._FLOAT_MODULE:
            raise AssertionError(f"Expected type {cls._FLOAT_MODULE}, got {type(other)}")
        if not hasattr(other, "qconfig"):
            raise AssertionError("The float module must have 'qconfig'")
        observed: Any = cls(
            other.embed_dim, other.num_heads, other.dropout, other.in_proj_bias is not None, other.bias_k is not None,
            other.add_zero_attn, other.kdim, other.vdim, other.batch_first,
        )  # fmt: skip
        observed.bias_k, observed.bias_v, observed.qconfig = other.bias_k, other.bias_v, other.qconfig
        observed.out_proj.weight, observed.out_proj.bias = other.out_proj.weight, other.out_proj.bias
        if other._qkv_same_embed_dim:
            weights = other.in_proj_weight.split(other.embed_dim)
        else:
            weights = (other.q_proj_weight, other.k_proj_weight, other.v_proj_weight)
        biases = [None] * 3 if other.in_proj_bias is None else other.in_proj_bias.split(other.embed_dim)
        for layer, weight, bias in zip((observed.linear_Q, observed.linear_K, observed.linear_V), weights, biases):
            layer.weight = nn.Parameter(weight, weight.requires_grad)
            layer.bias = None if bias is None else nn.Parameter(bias, bias.requires_grad)
        return prepare(observed.eval(), inplace=True)

    def dequantize(self) -> nn.MultiheadAttention:
        """Return a float layer with the dequantized weights of a converted one."""
        fp = self._FLOAT_MODULE(
            self.embed_dim, self.num_heads, self.dropout, self.linear_Q._weight_bias()[1] is not None, self.bias_k is not None,
            self.add_zero_attn, self.kdim, self.vdim, self.batch_first,
        )  # fmt: skip
        if self.bias_k is not None:
            fp.bias_k = nn.Parameter(self.bias_k.dequantize())
        if self.bias_v is not None:
            fp.bias_v = nn.Parameter(self.bias_v.dequantize())
        weight, bias = self.out_proj._weight_bias()
        fp.out_proj.weight = nn.Parameter(weight.dequantize())
        if bias is not None:
            fp.out_proj.bias = nn.Parameter(bias)
        parts = [layer._weight_bias() for layer in (self.linear_Q, self.linear_K, self.linear_V)]
        weights = [w.dequantize() for w, _ in parts]
        if fp._qkv_same_embed_dim:
            fp.in_proj_weight = nn.Parameter(torch.cat(weights))
        else:
            fp.q_proj_weight, fp.k_proj_weight, fp.v_proj_weight = map(nn.Parameter, weights)
        if fp.in_proj_bias is not None:
            fp.in_proj_bias = nn.Parameter(torch.cat([b for _, b in parts]))
        return fp

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        raise NotImplementedError(
            "It looks like you are trying to prepare an MHA module. Please, see the examples on quantizable MHAs."
        )

    def _checked_mask(self, mask: Tensor | None, batch: int, query: Tensor, key: Tensor) -> Tensor | None:
        mask = _to_boolean(mask, "attn_mask")
        if mask is None:
            return None
        if not mask.is_floating_point() and mask.dtype != torch.bool:
            raise AssertionError(f"Only float and bool types are supported for attn_mask, not {mask.dtype}")
        if mask.dim() not in (2, 3):
            raise RuntimeError(f"attn_mask's dimension {mask.dim()} is not supported")
        given, mask = mask.dim(), mask.unsqueeze(0) if mask.dim() == 2 else mask
        if list(mask.size()) != [1 if given == 2 else batch * self.num_heads, query.size(0), key.size(0)]:
            raise RuntimeError(f"The size of the {given}D attn_mask is not correct.")
        return mask

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if attn_mask is not None and is_causal:
            raise AssertionError("Only allow causal mask or attn_mask")
        if is_causal:
            raise AssertionError("causal mask not supported by AO MHA module")
        if self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        length, batch, embed_dim = query.size()
        if self.embed_dim != embed_dim:
            raise AssertionError(f"embed_dim mismatch: {self.embed_dim} != {embed_dim}")
        if key.size(0) != value.size(0) or key.size(1) != value.size(1):
            raise AssertionError(f"key and value size mismatch: {key.size()=}, {value.size()=}")
        head_dim = self.embed_dim // self.num_heads
        q, k, v = self.linear_Q(query), self.linear_K(key), self.linear_V(value)
        q = self.q_scaling_product.mul_scalar(q, float(head_dim) ** -0.5)
        attn_mask = self._checked_mask(attn_mask, batch, query, key)
        key_padding_mask = _to_boolean(key_padding_mask, "key_padding_mask")
        if key_padding_mask is not None and key_padding_mask.shape != (batch, key.size(0)):
            raise AssertionError(f"key_padding_mask of shape {key_padding_mask.shape} is not ({batch}, {key.size(0)})")
        if (self.bias_k is None) != (self.bias_v is None):
            raise AssertionError("self.bias_k must be None when self.bias_v is None")
        more = 0
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (torch.cat([x, b.repeat(1, batch, 1)]) for x, b in ((k, self.bias_k), (v, self.bias_v)))
            more += 1
        q, k, v = (x.contiguous().view(-1, batch * self.num_heads, head_dim).transpose(0, 1) for x in (q, k, v))
        if self.add_zero_attn:
            k, v = _append_zeros(k), _append_zeros(v)
            more += 1
        if more and attn_mask is not None:
            attn_mask = F.pad(attn_mask, (0, more))
        if more and key_padding_mask is not None:
            key_padding_mask = F.pad(key_padding_mask, (0, more))
        q, k, v = self.dequant_q(q), self.dequant_k(k), self.dequant_v(v)
        weights = self._weights(torch.bmm(q, k.transpose(1, 2)), attn_mask, key_padding_mask, batch)
        result = torch.bmm(weights, v)
        if self.batch_first:  # as in PyTorch, where this is a view and not a transposition
            result = result.view(batch, length, self.embed_dim)
        else:
            result = result.transpose(0, 1).contiguous().view(length, batch, self.embed_dim)
        result = self.out_proj(self.quant_attn_output(result))
        weights = self.quant_attn_output_weights(weights)
        if not need_weights:
            return result, None
        weights = weights.view(batch, self.num_heads, length, k.size(1))
        return result, weights.mean(dim=1) if average_attn_weights else weights

    def _weights(self, scores: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, batch: int) -> Tensor:
        if attn_mask is not None:
            scores = scores.masked_fill(attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
        if key_padding_mask is not None:
            shape = scores.shape
            scores = scores.view(batch, self.num_heads, *shape[1:])
            scores = scores.masked_fill(key_padding_mask.unsqueeze(1).unsqueeze(2), -torch.inf).view(shape)
        return F.dropout(F.softmax(scores, dim=-1), p=self.dropout, training=self.training)
