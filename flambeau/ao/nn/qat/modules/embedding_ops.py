"""Embeddings that round their weights while they are trained."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ..... import nn
from .....core.tensor import Tensor
from .origin import check_float_module, require_qconfig

__all__ = ["Embedding", "EmbeddingBag"]
F = nn.functional


def _check_scheme(qconfig: Any, name: str) -> None:
    scheme = qconfig.weight().qscheme
    if scheme != torch.per_channel_affine_float_qparams:
        raise AssertionError(
            f"{name} weights requires a qscheme of torch.per_channel_affine_float_qparams Got {scheme}"
        )


class Embedding(nn.Embedding):
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
        super().__init__(
            num_embeddings,
            embedding_dim,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight,
            **factory_kwargs,
        )
        self.qconfig = require_qconfig(qconfig)
        _check_scheme(qconfig, "Embedding")
        self.weight_fake_quant = qconfig.weight(factory_kwargs=factory_kwargs)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight_fake_quant(self.weight), self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.sparse,
        )  # fmt: skip

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer with the weight of a float layer."""
        check_float_module(cls, mod, cls._FLOAT_MODULE, with_found=False)
        return cls(
            mod.num_embeddings, mod.embedding_dim, mod.padding_idx, mod.max_norm, mod.norm_type, mod.scale_grad_by_freq,
            mod.sparse, mod.weight, qconfig=mod.qconfig,
        )  # fmt: skip

    def to_float(self) -> nn.Embedding:
        """The layer without rounding."""
        made = nn.Embedding(
            self.num_embeddings, self.embedding_dim, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq,
            self.sparse,
        )  # fmt: skip
        made.weight = nn.Parameter(self.weight.detach())
        made.train(self.training)
        return made


class EmbeddingBag(nn.EmbeddingBag):
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
        super().__init__(
            num_embeddings, embedding_dim, max_norm, norm_type, scale_grad_by_freq, mode, sparse, _weight, include_last_offset,
            padding_idx, **factory_kwargs,
        )  # fmt: skip
        self.qconfig = require_qconfig(qconfig)
        _check_scheme(qconfig, "Embedding Bag")
        self.weight_fake_quant = qconfig.weight(factory_kwargs=factory_kwargs)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight_fake_quant(self.weight), offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer with the weight of a float layer."""
        check_float_module(cls, mod, cls._FLOAT_MODULE, with_found=False)
        return cls(
            mod.num_embeddings, mod.embedding_dim, mod.max_norm, mod.norm_type, mod.scale_grad_by_freq, mod.mode, mod.sparse,
            mod.weight, mod.include_last_offset, mod.padding_idx, qconfig=mod.qconfig,
        )  # fmt: skip

    def to_float(self) -> nn.EmbeddingBag:
        """The layer without rounding."""
        made = nn.EmbeddingBag(
            self.num_embeddings, self.embedding_dim, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, None, self.include_last_offset, self.padding_idx,
        )  # fmt: skip
        made.weight = nn.Parameter(self.weight.detach())
        made.train(self.training)
        return made
