"""Embedding tables in 8 bits: every row has its own scale and smallest value, stored after its codes in the packed form."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ...core import dtype as dt
from ...core.quantized import QuantizedTensor, from_bytes, in_bytes, per_channel_float
from ...core.tensor import Tensor, copy_of_array
from ..machinery.declare import composite
from ..machinery.memory import values_on_host
from ..nn import embedding as tables
from ..nn import embedding_bag
from ..shape.joining import cat
from .codes import values_of
from .linear import check_packed, quantized_operator
from .packed import NativeObject, methods, row

_TAIL = 8  # bytes: scale and smallest value, in float32
_EPSILON = np.float32(1e-8)
_MODES = ("sum", "mean", "max")


class EmbeddingPackedParams(NativeObject):
    """A table in 8 bits with the scales of its rows."""

    __torch_class__ = "quantized.EmbeddingPackedParamsBase"
    schemas: ClassVar[Any] = methods(
        unpack="(Any self) -> Tensor", bit_rate="(Any self) -> int", version="(Any self) -> int",
        __getstate__="(Any self) -> (int, Tensor[], float[], int[])",
        __setstate__="(Any self, (int, Tensor[], float[], int[]) state) -> NoneType",
    )  # fmt: skip

    def __init__(self, weight: Any):
        if not isinstance(weight, QuantizedTensor) or weight.dtype not in (dt.quint8, dt.quint4x2):
            raise RuntimeError(
                "quantized::embedding_bag_prepack: expected a table of dtype torch.quint8 or torch.quint4x2"
            )
        if weight._quantizer.scheme is not per_channel_float:
            raise RuntimeError(
                "Expected embedding_bag weights to be quantized using kPerChannelAffineFloatQParams scheme"
            )
        self.weight = weight
        self.table = values_of(weight)

    def unpack(self) -> Any:
        return self.weight

    def bit_rate(self) -> int:
        return 8 if self.weight.dtype is dt.quint8 else 4

    def version(self) -> int:
        return 1

    def state(self) -> tuple[Any, ...]:
        return self.version(), [self.weight], [], [self.bit_rate()]

    def set_state(self, state: Any) -> None:
        EmbeddingPackedParams.__init__(self, state[1][0])


@quantized_operator()
def embedding_bag_prepack(weight: Tensor) -> Any:
    """Pack a quantized embedding table."""
    return EmbeddingPackedParams(weight)


@quantized_operator()
def embedding_bag_unpack(W_prepack: Any) -> Tensor:
    """The quantized table that was packed."""
    check_packed(W_prepack, EmbeddingPackedParams, "embedding_bag_unpack")
    return W_prepack.unpack()


@quantized_operator(kind="primitive", reads_values=True, batching="each")
def embedding_bag_byte_prepack(weight: Tensor) -> Tensor:
    """A table of floats as bytes: the codes of each row, its scale and its smallest value."""
    if len(weight.shape) < 2:
        raise RuntimeError("'embedding_bag_byte_prepack' only support 2 or more dimensions")
    values = values_on_host(weight.detach()).astype(np.float32)
    return _in_rows(values, values.min(-1, keepdims=True), values.max(-1, keepdims=True))


@quantized_operator(kind="primitive", reads_values=True, batching="each")
def embedding_bag_byte_prepack_with_rowwise_min_max(weight: Tensor, rowwise_min_max: Tensor) -> Tensor:
    """Pack rows as bytes, with a given smallest and largest value for each row."""
    values, limits = (values_on_host(t.detach()).astype(np.float32) for t in (weight, rowwise_min_max))
    return _in_rows(values, limits[..., :1], limits[..., 1:])


def _in_rows(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> Tensor:
    span = high - low
    codes = np.rint((values - low) * (np.float32(255) / (span + _EPSILON))).astype(np.uint8)
    tail = np.concatenate([span / np.float32(255), low], -1).astype(np.float32)
    return copy_of_array(np.concatenate([codes, np.ascontiguousarray(tail).view(np.uint8)], -1), dt.uint8)


def _unpacked(weight: Tensor) -> np.ndarray:
    if weight.dtype is not dt.uint8 or weight.shape[-1] <= _TAIL:
        raise RuntimeError(
            f"expected rows of bytes with {_TAIL} more behind the codes, got {list(weight.shape)} of {weight.dtype}"
        )
    rows = values_on_host(weight)
    tail = np.ascontiguousarray(rows[..., -_TAIL:]).view(np.float32)
    scale, low = tail[..., :1].astype(np.float64), tail[..., 1:].astype(np.float64)
    return (rows[..., :-_TAIL] * scale + low).astype(np.float32)


@quantized_operator(kind="primitive", reads_values=True, batching="each")
def embedding_bag_byte_unpack(weight: Tensor) -> Tensor:
    """The floats of a table that was packed as bytes."""
    return copy_of_array(_unpacked(weight), dt.float32)


def _bag(table: Tensor, indices: Tensor, offsets: Any, mode: int, samples: Any, last: bool) -> Tensor:
    if offsets is None and len(indices.shape) == 1:
        raise RuntimeError("embedding_bag_byte operator expects offsets to be set for 1D indices.")
    if offsets is not None and len(indices.shape) == 2:
        raise RuntimeError(
            "embedding_bag_byte operator: input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences."
        )
    given = None if offsets is None else offsets.to(indices.dtype)
    return embedding_bag.embedding_bag(
        indices, table, given, mode=_MODES[mode], per_sample_weights=samples, include_last_offset=last
    )


def _kept(table: Tensor, indices: Tensor, pruned: bool, mapping: Any) -> tuple[Tensor, Tensor]:
    """Return the table and indices into it; pruned rows have -1 in `mapping`, and count as zeros."""
    if not pruned or mapping is None or mapping.numel() <= 1:
        return table, indices
    places = mapping.to(dt.int64)[indices]
    zero = table.new_zeros((1, table.shape[1]))
    return cat([table, zero], 0), places.masked_fill(places < 0, table.shape[0]).to(indices.dtype)


@quantized_operator()
def embedding_bag_byte(
    weight: Any, indices: Tensor, offsets: Any = None, scale_grad_by_freq: bool = False, mode: int = 0,
    pruned_weights: bool = False, per_sample_weights: Any = None, compressed_indices_mapping: Any = None,
    include_last_offset: bool = False,
) -> Tensor:  # fmt: skip
    """Sums of the rows of bags of indices, from a packed table."""
    check_packed(weight, EmbeddingPackedParams, "embedding_bag_byte")
    table, indices = _kept(weight.table, indices, pruned_weights, compressed_indices_mapping)
    return _bag(table, indices, offsets, mode, per_sample_weights, include_last_offset)


@quantized_operator()
def embedding_bag_byte_rowwise_offsets(
    weight: Tensor, indices: Tensor, offsets: Any = None, scale_grad_by_freq: bool = False, mode: int = 0,
    pruned_weights: bool = False, per_sample_weights: Any = None, compressed_indices_mapping: Any = None,
    include_last_offset: bool = False,
) -> Tensor:  # fmt: skip
    """Sums of the rows of bags of indices, from a table of bytes."""
    table, indices = _kept(embedding_bag_byte_unpack(weight), indices, pruned_weights, compressed_indices_mapping)
    return _bag(table, indices, offsets, mode, per_sample_weights, include_last_offset)


@quantized_operator()
def embedding_byte(weight: Any, indices: Tensor, pruned_weights: bool = False) -> Tensor:
    """The rows of indices, from a packed table."""
    check_packed(weight, EmbeddingPackedParams, "embedding_byte")
    return tables.embedding(indices, weight.table)


# -- less than 8 bits ------------------------------------------------------------------------------------------------------


def _coded(values: np.ndarray, low: Any, high: Any, bits: int) -> tuple[np.ndarray, Any, Any]:
    """Return the codes of values between two numbers, their scale and their smallest value, both rounded to float16."""
    most = (1 << bits) - 1
    low = low.astype(np.float16).astype(np.float32)
    span = high - low
    scale = np.where(span == 0, np.float32(1), span / np.float32(most)).astype(np.float16).astype(np.float32)
    with np.errstate(divide="ignore"):
        inverse = np.float32(1) / scale
    scale, inverse = (np.where(np.isinf(inverse), np.float32(1), x) for x in (scale, inverse))
    return np.clip(np.rint((values - low) * inverse), 0, most).astype(np.uint8), scale, low


def _best_range(x: np.ndarray, bins: int, ratio: float, bits: int) -> tuple[np.float32, np.float32]:
    """Return the largest and smallest value of the range whose codes lose least: steps of a bin inwards, from the side that costs less."""

    def loss(low: Any, high: Any) -> np.float32:
        codes, scale, smallest = _coded(x, low, high, bits)
        return np.linalg.norm(x - (codes * scale + smallest))

    low, high = x.min(), x.max()
    step = (high - low) / np.float32(bins)
    least = np.float32(bins) * (np.float32(1) - np.float32(ratio)) * step
    best, now = (high, low, np.float32(np.inf)), (high, low, loss(low, high))
    while now[1] + least < now[0]:
        high, low, here = now
        left, right = loss(low + step, high), loss(low, high - step)
        if here < left and here < right and here < best[2]:
            best = now
        now = (high, low + step, left) if left < right else (high - step, low, right)
    return best[0], best[1]


@composite(kind="primitive", method=False, reads_values=True, batching="each", namespaces=())
def choose_qparams_optimized(
    input: Tensor, numel: int, n_bins: int, ratio: float, bit_width: int
) -> tuple[Tensor, ...]:
    """Largest and smallest value of a range in which codes of a few bits lose least of the first `numel` numbers."""
    if input.numel() == 0:
        raise ValueError("input tensor is empty and has no data")
    if not 0 <= numel <= input.numel():
        raise RuntimeError("numel is out of the bound of input tensor")
    values = values_on_host(input.detach()).astype(np.float32).reshape(-1)[:numel]
    return tuple(row([found], dt.float32) for found in _best_range(values, n_bins, ratio, bit_width))


def _declare_bits(bits: int) -> None:
    """Declare the operators of tables with codes of `bits` bits; scale and smallest value of a row are in float16."""
    per_byte, tail = 8 // bits, 4

    def prepack_within(
        weight: Tensor, rowwise_min_max: Tensor, optimized_qparams: bool = False, nbins: int = 200, ratio: float = 0.16
    ) -> Tensor:
        return prepack(weight, optimized_qparams, nbins, ratio, values_on_host(rowwise_min_max).astype(np.float32))

    def prepack(
        weight: Tensor, optimized_qparams: bool = False, nbins: int = 200, ratio: float = 0.16, limits: Any = None
    ) -> Tensor:
        values = values_on_host(weight.detach()).astype(np.float32)
        if optimized_qparams:
            rows = values.reshape(-1, values.shape[-1])
            high, low = np.array([_best_range(r, nbins, ratio, bits) for r in rows]).T.reshape(2, *values.shape[:-1], 1)
        elif limits is not None:
            low, high = limits[..., :1], limits[..., 1:]
        else:
            low, high = values.min(-1, keepdims=True), values.max(-1, keepdims=True)
        codes, scale, low = _coded(values, low, high, bits)
        rows = in_bytes(codes, per_byte).reshape(*codes.shape[:-1], -1)
        ends = np.concatenate([scale, low], -1).astype(np.float16)
        return copy_of_array(np.concatenate([rows, np.ascontiguousarray(ends).view(np.uint8)], -1), dt.uint8)

    def unpack(weight: Tensor) -> Tensor:
        rows = values_on_host(weight)
        if weight.dtype is not dt.uint8 or rows.shape[-1] <= tail:
            raise RuntimeError(
                f"expected rows of bytes with {tail} more behind the codes, got {list(weight.shape)} of {weight.dtype}"
            )
        ends = np.ascontiguousarray(rows[..., -tail:]).view(np.float16).astype(np.float32)
        shape = (*rows.shape[:-1], (rows.shape[-1] - tail) * per_byte)
        codes = from_bytes(np.ascontiguousarray(rows[..., :-tail]).reshape(-1), shape, per_byte)
        return copy_of_array(codes * ends[..., :1] + ends[..., 1:], dt.float32)

    def bag(
        weight: Any, indices: Tensor, offsets: Any = None, scale_grad_by_freq: bool = False, mode: int = 0, pruned_weights: bool = False,
        per_sample_weights: Any = None, compressed_indices_mapping: Any = None, include_last_offset: bool = False,
    ) -> Tensor:  # fmt: skip
        table = weight.table if isinstance(weight, EmbeddingPackedParams) else unpack(weight)
        table, indices = _kept(table, indices, pruned_weights, compressed_indices_mapping)
        return _bag(table, indices, offsets, mode, per_sample_weights, include_last_offset)

    def rows_of(weight: Any, indices: Tensor, pruned_weights: bool = False) -> Tensor:
        check_packed(weight, EmbeddingPackedParams, "embedding_4bit")
        return tables.embedding(indices, weight.table)

    memory = {"kind": "primitive", "reads_values": True, "batching": "each"}
    made: list[Any] = [
        (prepack, f"embedding_bag_{bits}bit_prepack", f"A table of floats as codes of {bits} bits.", memory),
        (
            prepack_within,
            f"embedding_bag_{bits}bit_prepack_with_rowwise_min_max",
            "The same with known limits of rows.",
            memory,
        ),
        (unpack, f"embedding_bag_{bits}bit_unpack", "The floats of a table that was packed.", memory),
        (bag, f"embedding_bag_{bits}bit_rowwise_offsets", "Sums of the rows of bags of indices.", {}),
    ]
    if bits == 4:
        made += [
            (bag, "embedding_bag_4bit", "Sums of the rows of bags of indices.", {}),
            (rows_of, "embedding_4bit", "The rows of indices.", {}),
        ]
    for function, name, told, fields in made:

        def declared(*args: Any, _run: Any = function, **kwargs: Any) -> Any:
            return _run(*args, **kwargs)

        declared.__name__, declared.__doc__ = name, told
        quantized_operator(name=name, **fields)(declared)


for _bits in (2, 4):
    _declare_bits(_bits)
