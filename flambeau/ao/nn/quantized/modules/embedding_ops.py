"""Embedding tables with 8-bit weights."""

from __future__ import annotations

from typing import Any, ClassVar

import flambeau as torch

from ..... import nn
from .....core.quantized import per_channel_float
from .....core.tensor import Tensor
from .....ops.quantizing.operators import quantized as Q
from .utils import _hide_packed_params_repr, _quantize_weight

__all__ = ["Embedding", "EmbeddingBag", "EmbeddingPackedParams"]


def _empty_table(rows: int, columns: int, dtype: Any) -> Tensor:
    scales, zero_points = torch.ones(rows), torch.zeros(rows)
    return torch._empty_per_channel_affine_quantized(
        [rows, columns], scales=scales, zero_points=zero_points, axis=0, dtype=dtype
    )


class EmbeddingPackedParams(nn.Module):
    """Module that holds a packed embedding table; files store it unpacked."""

    _version = 1

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: Any = torch.quint8):
        super().__init__()
        self.dtype = dtype
        if dtype not in (torch.quint8, torch.quint4x2):
            raise NotImplementedError(
                f"Unsupported dtype on quantized embedding! Supports quint8 and quint4x2. Got dtype: {dtype}"
            )
        self.set_weight(_empty_table(num_embeddings, embedding_dim, dtype))

    def set_weight(self, weight: Tensor) -> None:
        self._packed_weight = Q.embedding_bag_prepack(weight)

    def _weight(self) -> Tensor:
        return Q.embedding_bag_unpack(self._packed_weight)

    def forward(self, x: Any) -> Any:
        return x

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_weight"] = self._weight()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        self.dtype = state_dict.pop(prefix + "dtype")
        self.set_weight(state_dict.pop(prefix + "_packed_weight"))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *lists)

    def __repr__(self) -> str:
        return repr(self._weight())


class Embedding(nn.Module):
    """A table in 8 bits, a scale for each row: the values of its rows are floats.

    >>> Embedding(num_embeddings=10, embedding_dim=12)(torch.tensor([9, 6, 5])).shape
    torch.Size([3, 12])
    """

    _version = 1
    _FLOAT_MODULE: ClassVar[Any] = nn.Embedding

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: Any = None, max_norm: Any = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Any = None, dtype: Any = torch.quint8,
    ):  # fmt: skip
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.dtype = num_embeddings, embedding_dim, dtype
        expected = [num_embeddings, embedding_dim]
        if _weight is None:
            _weight = _empty_table(num_embeddings, embedding_dim, torch.quint8)
        elif list(_weight.shape) != expected:
            raise AssertionError(
                f"Shape of weight does not match num_embeddings and embedding_dim: expected {expected}, got {list(_weight.shape)}"
            )
        self._packed_params = EmbeddingPackedParams(num_embeddings, embedding_dim, dtype)
        self._packed_params.set_weight(_weight)

    def forward(self, indices: Tensor) -> Tensor:
        return Q.embedding_byte(self._packed_params._packed_weight, indices)

    def _get_name(self) -> str:
        return "QuantizedEmbedding"

    def __repr__(self) -> str:
        return _hide_packed_params_repr(self, EmbeddingPackedParams)

    def extra_repr(self) -> str:
        return (
            f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim},"
            f" dtype={self._packed_params.dtype}, qscheme={self.weight().qscheme()}"
        )

    def set_weight(self, w: Tensor) -> None:
        self._packed_params.set_weight(w)

    def weight(self) -> Any:
        return self._packed_params._weight()

    @classmethod
    def _from_float_sizes(cls, mod: Any, dtype: Any) -> Any:
        return cls(mod.num_embeddings, mod.embedding_dim)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Make the quantized table from a float table that was observed."""
        if hasattr(mod, "weight_fake_quant"):
            observer = mod.weight_fake_quant
        else:
            name = cls._FLOAT_MODULE.__name__
            if type(mod) is not cls._FLOAT_MODULE:
                raise AssertionError(f"nnq.{cls.__name__}.from_float only works for {name}")
            if not hasattr(mod, "qconfig"):
                raise AssertionError(f"{name} input float module must have qconfig defined")
            usual = torch.ao.quantization.float_qparams_weight_only_qconfig
            observer = (mod.qconfig if mod.qconfig is not None and mod.qconfig.weight is not None else usual).weight()
        if observer.qscheme is not per_channel_float:
            raise AssertionError(
                f"{cls.__name__} quantization is only supported with float_qparams_weight_only_qconfig."
            )
        if observer.dtype not in (torch.quint8, torch.quint4x2):
            raise AssertionError(
                f"The only supported dtype for nnq.{cls.__name__} is torch.quint8 and torch.quint4x2, got {observer.dtype}"
            )
        observer(mod.weight)
        made = cls._from_float_sizes(mod, observer.dtype)
        made.set_weight(_quantize_weight(mod.weight.float(), observer))
        return made

    @classmethod
    def from_reference(cls, ref_embedding: Any) -> Any:
        ref = ref_embedding
        options = (ref.padding_idx, ref.max_norm, ref.norm_type, ref.scale_grad_by_freq, ref.sparse)
        return cls(ref.num_embeddings, ref.embedding_dim, *options, ref.get_quantized_weight(), ref.weight_dtype)


class EmbeddingBag(Embedding):
    """Sums of rows of an 8-bit table over bags."""

    _FLOAT_MODULE: ClassVar[Any] = nn.EmbeddingBag

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: Any = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        mode: str = "sum", sparse: bool = False, _weight: Any = None, include_last_offset: bool = False, dtype: Any = torch.quint8,
    ):  # fmt: skip
        super().__init__(num_embeddings, embedding_dim, _weight=_weight, dtype=dtype)
        self.mode, self.pruned_weights, self.include_last_offset = mode, False, include_last_offset

    def forward(
        self,
        indices: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
        compressed_indices_mapping: Tensor | None = None,
    ) -> Tensor:
        return Q.embedding_bag_byte(
            self._packed_params._packed_weight, indices, offsets, False, 0, self.pruned_weights, per_sample_weights,
            compressed_indices_mapping, self.include_last_offset,
        )  # fmt: skip

    def _get_name(self) -> str:
        return "QuantizedEmbeddingBag"

    @classmethod
    def _from_float_sizes(cls, mod: Any, dtype: Any) -> Any:
        return cls(
            mod.num_embeddings, mod.embedding_dim, max_norm=mod.max_norm, norm_type=mod.norm_type,
            scale_grad_by_freq=mod.scale_grad_by_freq, mode=mod.mode, sparse=mod.sparse,
            include_last_offset=mod.include_last_offset, dtype=dtype,
        )  # fmt: skip

    @classmethod
    def from_reference(cls, ref_embedding: Any) -> Any:
        ref = ref_embedding
        options = (ref.max_norm, ref.norm_type, ref.scale_grad_by_freq, ref.mode, ref.sparse)
        weight = ref.get_quantized_weight()
        return cls(ref.num_embeddings, ref.embedding_dim, *options, weight, ref.include_last_offset, ref.weight_dtype)
