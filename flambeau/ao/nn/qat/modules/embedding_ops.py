"""Embeddings for quantization-aware training."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ..... import nn
from .....core.tensor import Tensor
from .....nn.modules.settings import extending
from .origin import check_float_module, require_qconfig, settings_of

__all__ = ["Embedding", "EmbeddingBag"]
F = nn.functional


class _QatEmbedding(nn.Module):
    """An embedding whose weight passes through `weight_fake_quant`, made by `qconfig.weight`."""

    _FLOAT_MODULE: type
    weight: Any

    def _round_weight(self, qconfig: Any, title: str, settings: dict[str, Any]) -> None:
        self.qconfig = require_qconfig(qconfig)
        scheme = qconfig.weight().qscheme
        if scheme != torch.per_channel_affine_float_qparams:
            raise AssertionError(
                f"{title} weights requires a qscheme of torch.per_channel_affine_float_qparams Got {scheme}"
            )
        where = {"device": settings["device"], "dtype": settings["dtype"]}
        self.weight_fake_quant = qconfig.weight(factory_kwargs=where)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the layer with the weight of a float layer."""
        check_float_module(cls, mod, cls._FLOAT_MODULE, with_found=False)
        return cls(**settings_of(mod), _weight=mod.weight, qconfig=mod.qconfig)

    def to_float(self) -> Any:
        """Return the layer without fake quantization."""
        made = self._FLOAT_MODULE(**settings_of(self))
        made.weight = nn.Parameter(self.weight.detach())
        made.train(self.training)
        return made


class Embedding(_QatEmbedding, nn.Embedding):
    """nn.Embedding with a fake-quantized weight."""

    _FLOAT_MODULE = nn.Embedding

    @extending(nn.Embedding, without=("_freeze",))
    def __init__(self, qconfig: Any = None, **settings: Any) -> None:
        super().__init__(**settings)
        self._round_weight(qconfig, "Embedding", settings)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight_fake_quant(self.weight), self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.sparse,
        )  # fmt: skip


class EmbeddingBag(_QatEmbedding, nn.EmbeddingBag):
    """nn.EmbeddingBag with a fake-quantized weight."""

    _FLOAT_MODULE = nn.EmbeddingBag

    @extending(nn.EmbeddingBag, before="device")
    def __init__(self, qconfig: Any = None, **settings: Any) -> None:
        super().__init__(**settings)
        self._round_weight(qconfig, "Embedding Bag", settings)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight_fake_quant(self.weight), offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip
