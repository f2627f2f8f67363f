"""Reference embeddings: the weight is quantized and dequantized."""

from __future__ import annotations

from typing import Any

from ...... import nn
from ......core.tensor import Tensor
from ....qat.modules.origin import settings_of
from .utils import ReferenceQuantizedModule

__all__ = ["Embedding", "EmbeddingBag"]
F = nn.functional


class _ReferenceTable(ReferenceQuantizedModule):
    """An embedding whose weight is quantized and dequantized at each call."""

    def __init__(self, *args: Any, weight_qparams: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._init_weight_qparams(weight_qparams, self.weight.device)

    def _get_name(self) -> str:
        return "QuantizedEmbedding(Reference)"

    @classmethod
    def _of(cls, mod: Any, weight_qparams: dict[str, Any]) -> Any:
        where = {"device": mod.weight.device, "dtype": mod.weight.dtype}
        return cls(**settings_of(mod), _weight=mod.weight, **where, weight_qparams=weight_qparams)


class Embedding(_ReferenceTable, nn.Embedding):
    """nn.Embedding whose weight is quantized and dequantized."""

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
        """Return the reference form of a float layer."""
        return cls._of(mod, weight_qparams)


class EmbeddingBag(_ReferenceTable, nn.EmbeddingBag):
    """nn.EmbeddingBag whose weight is quantized and dequantized."""

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.get_weight(), offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    @classmethod
    def from_float(
        cls, mod: Any, weight_qparams: dict[str, Any], use_precomputed_fake_quant: bool = False
    ) -> EmbeddingBag:
        """Return the reference form of a float layer."""
        return cls._of(mod, weight_qparams)
