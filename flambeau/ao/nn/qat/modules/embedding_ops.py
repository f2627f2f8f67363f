"""Embeddings that round their weights while they are trained."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ..... import nn
from .....core.tensor import Tensor
from .origin import check_float_module, require_qconfig, settings_of

__all__ = ["Embedding", "EmbeddingBag"]
F = nn.functional


class _Table(nn.Module):
    """An embedding whose weight passes `weight_fake_quant`, made by `qconfig.weight`."""

    _FLOAT_MODULE: type
    weight: Any

    def _round_weight(self, qconfig: Any, title: str, factory_kwargs: dict[str, Any]) -> None:
        self.qconfig = require_qconfig(qconfig)
        scheme = qconfig.weight().qscheme
        if scheme != torch.per_channel_affine_float_qparams:
            raise AssertionError(
                f"{title} weights requires a qscheme of torch.per_channel_affine_float_qparams Got {scheme}"
            )
        self.weight_fake_quant = qconfig.weight(factory_kwargs=factory_kwargs)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Return the layer with the weight of a float layer."""
        check_float_module(cls, mod, cls._FLOAT_MODULE, with_found=False)
        return cls(**settings_of(mod), _weight=mod.weight, qconfig=mod.qconfig)

    def to_float(self) -> Any:
        """Return the layer without rounding."""
        made = self._FLOAT_MODULE(**settings_of(self))
        made.weight = nn.Parameter(self.weight.detach())
        made.train(self.training)
        return made


class Embedding(_Table, nn.Embedding):
    """nn.Embedding with a rounded weight."""

    _FLOAT_MODULE = nn.Embedding

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        device: Any = None,
        dtype: Any = None,
        qconfig: Any = None,
    ) -> None:
        factory_kwargs = {"device": device, "dtype": dtype}
        options = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight)
        nn.Embedding.__init__(self, num_embeddings, embedding_dim, *options, **factory_kwargs)
        self._round_weight(qconfig, "Embedding", factory_kwargs)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight_fake_quant(self.weight), self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.sparse,
        )  # fmt: skip


class EmbeddingBag(_Table, nn.EmbeddingBag):
    """nn.EmbeddingBag with a rounded weight."""

    _FLOAT_MODULE = nn.EmbeddingBag

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        factory_kwargs = {"device": device, "dtype": dtype}
        options = (max_norm, norm_type, scale_grad_by_freq, mode, sparse, _weight, include_last_offset, padding_idx)
        nn.EmbeddingBag.__init__(self, num_embeddings, embedding_dim, *options, **factory_kwargs)
        self._round_weight(qconfig, "Embedding Bag", factory_kwargs)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight_fake_quant(self.weight), offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip
