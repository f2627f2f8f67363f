"""Embeddings with weights of quantized values."""

from __future__ import annotations

from typing import Any

from ...... import nn
from ......core.tensor import Tensor
from .utils import ReferenceQuantizedModule

__all__ = ["Embedding", "EmbeddingBag"]
F = nn.functional


class Embedding(nn.Embedding, ReferenceQuantizedModule):
    """nn.Embedding with a weight of quantized values."""

    def __init__(self, *args: Any, weight_qparams: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._init_weight_qparams(weight_qparams, self.weight.device)

    def _get_name(self) -> str:
        return "QuantizedEmbedding(Reference)"

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input,
            self.get_weight(),
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    @classmethod
    def from_float(cls, mod: Any, weight_qparams: dict[str, Any]) -> Embedding:
        """The reference form of a float layer."""
        return cls(
            mod.num_embeddings, mod.embedding_dim, mod.padding_idx, mod.max_norm, mod.norm_type, mod.scale_grad_by_freq,
            mod.sparse, mod.weight, mod.weight.device, mod.weight.dtype, weight_qparams=weight_qparams,
        )  # fmt: skip


class EmbeddingBag(nn.EmbeddingBag, ReferenceQuantizedModule):
    """nn.EmbeddingBag with a weight of quantized values."""

    def __init__(self, *args: Any, weight_qparams: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._init_weight_qparams(weight_qparams, self.weight.device)

    def _get_name(self) -> str:
        return "QuantizedEmbedding(Reference)"

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.get_weight(), offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    @classmethod
    def from_float(
        cls, mod: Any, weight_qparams: dict[str, Any], use_precomputed_fake_quant: bool = False
    ) -> EmbeddingBag:
        """The reference form of a float layer."""
        return cls(
            mod.num_embeddings, mod.embedding_dim, mod.max_norm, mod.norm_type, mod.scale_grad_by_freq, mod.mode, mod.sparse,
            mod.weight, mod.include_last_offset, mod.padding_idx, mod.weight.device, mod.weight.dtype,
            weight_qparams=weight_qparams,
        )  # fmt: skip
