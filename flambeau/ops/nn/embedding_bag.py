"""Sums, means and maxima over bags of rows of a table: embedding_bag."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.graph import unrecorded
from ...core.tensor import Tensor, copy_of_array, numel_of
from ...kernels.library import embedding_bag as bag_kernels
from ..creation.filled import fill_raw
from ..machinery.arguments import need_tensors
from ..machinery.aten_form import aten_only, aten_parts
from ..machinery.declare import composite, internal
from ..machinery.inplace import raw_copy
from ..machinery.memory import dense
from ..machinery.primitive import unknown_derivative
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, NewTensors
from .embedding import FUNCTIONAL, check_row_indices, embedding_renorm_, row_ranges, rows_gradient

_MODES = {"sum": 0, "mean": 1, "max": 2}


@composite(function=False, method=False)
def bag_table_grad(
    grad: Tensor,
    weight_shape: tuple[int, ...],
    index: Tensor,
    starts: Tensor,
    mode: str,
    scale_grad_by_freq: bool,
    per_sample_weights: Any,
    padding: int,
    sparse: bool,
    sizes: Tensor,
    winners: Tensor,
) -> Tensor:
    """The gradient of a table of which bags took rows."""
    rows = weight_shape[0]
    if sparse and scale_grad_by_freq:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    if sparse:
        return _sparse_bag_grad(grad, weight_shape, index, starts, mode, per_sample_weights, padding, sizes)
    if mode == "max":
        return bag_winners_grad(grad, winners, sizes, rows)
    counts = index.bincount(minlength=rows) if scale_grad_by_freq else None
    return bag_rows_grad(grad, index, starts, per_sample_weights, sizes, counts, rows, mode == "mean", padding)


@bag_table_grad.op.as_aten
def _(
    recorder: Any, grad: Tensor, weight_shape: Any, index: Tensor, starts: Tensor, mode: str, scale_grad_by_freq: bool,
    per_sample_weights: Any, padding: int, sparse: bool, sizes: Tensor, winners: Tensor,
) -> Tensor:  # fmt: skip
    owners, offsets = recorder.unseen(bag_of_index, starts, index.shape[0]), recorder.unseen(lambda: starts[:-1])
    given = grad, index, offsets, owners, sizes, winners, weight_shape[0], scale_grad_by_freq, _MODES[mode], sparse
    return recorder.aten._embedding_bag_backward.default(*given, per_sample_weights, padding)


def _of_result(g: Any) -> Tensor:
    """Return the gradient of the bags; no other result has one."""
    return g[0] if isinstance(g, tuple) else g


def _bag_scales_grad(g: Any, weight: Tensor, index: Tensor, starts: Tensor, padding: int) -> Tensor:
    return bag_scales_grad(_of_result(g), weight, index, starts, padding)


def _bag_weight_grad(
    g: Any, weight_shape: Any, index: Tensor, starts: Tensor, mode: str, scale_grad_by_freq: bool,
    per_sample_weights: Any, padding: int, sparse: bool, sizes: Tensor, winners: Tensor,
) -> Tensor:  # fmt: skip
    how = mode, scale_grad_by_freq, per_sample_weights, padding, sparse
    return bag_table_grad(_of_result(g), weight_shape, index, starts, *how, sizes, winners)


def _table_layout(grad: Tensor, rows: int) -> tuple[Any, ...]:
    return (rows, grad.shape[1]), grad.dtype, grad.device


@internal(grads={"grad": unknown_derivative("_embedding_bag_dense_backward")}, batching="each")
def bag_winners_grad(grad: Tensor, winners: Tensor, sizes: Tensor, rows: int) -> NewTensor:
    """The gradient of a table with `rows` rows, of which bags took the maxima."""
    return _table_layout(grad, rows)


@bag_winners_grad.on("any")
def _(out: Tensor, grad: Tensor, winners: Tensor, sizes: Tensor, rows: int) -> None:
    bag_kernels.embedding_bag_max_backward(out, dense(grad), winners, sizes, *grad.shape[:1], *out.shape)


@internal(grads={("grad", "scales"): unknown_derivative("_embedding_bag_dense_backward")}, batching="each")
def bag_rows_grad(
    grad: Tensor,
    index: Tensor,
    starts: Tensor,
    scales: Tensor | None,
    sizes: Tensor,
    counts: Tensor | None,
    rows: int,
    mean: bool,
    padding: int,
) -> NewTensor:
    """The gradient of a table with `rows` rows, of which bags took sums or means. `counts` divide the gradient of each row."""
    return _table_layout(grad, rows)


@bag_rows_grad.on("any")
def _run_rows_grad(
    out: Tensor, grad: Tensor, index: Tensor, starts: Tensor, scales: Any, sizes: Tensor, counts: Any, rows: int,
    mean: bool, padding: int,
) -> None:  # fmt: skip
    dim, scales = grad.shape[1], None if scales is None else dense(scales)
    bag_kernels.embedding_bag_backward(
        out, dense(grad), index, starts, scales, sizes, counts, grad.shape[0], rows, dim, padding,
        row_ranges(numel_of(index.shape), rows, dim), mean=mean,
    )  # fmt: skip


@bag_rows_grad.on("cpu")
def _(
    out: Tensor, grad: Tensor, index: Tensor, starts: Tensor, scales: Any, sizes: Tensor, counts: Any, *rest: Any
) -> None:
    if counts is not None:
        counts = _counts_of_ranks(counts, index)
    _run_rows_grad(out, grad, index, starts, scales, sizes, counts, *rest)


def _counts_of_ranks(counts: Tensor, index: Tensor) -> Tensor:
    """Return the numbers by which PyTorch's CPU kernel divides: for the n-th row in use, how often the row of the n-th of all sorted
    indices occurs, instead of that row itself."""
    present = counts.nonzero().flatten()
    return counts.index_copy(0, present, counts[index.sort()[0][: len(present)]])


@internal(
    grads={("grad", "weight"): unknown_derivative("_embedding_bag_per_sample_weights_backward")},
    runs_empty=True,
    batching="each",
)
def bag_scales_grad(grad: Tensor, weight: Tensor, index: Tensor, starts: Tensor, padding: int) -> NewTensor:
    """The gradient of the numbers that rows were multiplied by."""
    return index.shape, weight.dtype, weight.device


@bag_scales_grad.op.as_aten
def _(recorder: Any, grad: Tensor, weight: Tensor, index: Tensor, starts: Tensor, padding: int) -> Tensor:
    owners, offsets = recorder.unseen(bag_of_index, starts, index.shape[0]), recorder.unseen(lambda: starts[:-1])
    backward = recorder.aten._embedding_bag_per_sample_weights_backward.default
    return backward(grad, weight, index, offsets, owners, _MODES["sum"], padding)


@bag_scales_grad.on("any")
def _(out: Tensor, grad: Tensor, weight: Tensor, index: Tensor, starts: Tensor, padding: int) -> None:
    fill_raw(out, 0)  # indices before the first bag belong to none
    bag_kernels.embedding_bag_scales_backward(out, dense(grad), dense(weight), index, starts, *grad.shape, padding)


def _sparse_bag_grad(
    grad: Tensor, shape: Any, index: Tensor, starts: Tensor, mode: str, scales: Any, padding: int, sizes: Tensor
) -> Tensor:
    if mode == "mean":
        grad = grad / sizes.clamp(min=1).unsqueeze(1).to(grad.dtype)
    bounds = starts.tolist()
    bags = [bag for bag in range(len(bounds) - 1) for _ in range(bounds[bag], bounds[bag + 1])]
    rows = grad.index_select(0, starts.new_tensor(bags, dtype=dt.int64))
    if scales is not None:
        rows = rows * scales.unsqueeze(1)
    return rows_gradient(rows, index.narrow(0, bounds[0] if bounds else 0, len(bags)), shape, padding)


@internal(
    saves=("sizes", "winners"),
    grads={"weight": _bag_weight_grad, "per_sample_weights": _bag_scales_grad},
    quirks=Quirks(label="EmbeddingBagBackward0"),
    batching="each",
)
def bag_rows(
    weight: Tensor,
    index: Tensor,
    starts: Tensor,
    mode: str,
    scale_grad_by_freq: bool,
    per_sample_weights: Tensor | None,
    padding: int,
    sparse: bool,
    details: bool,
) -> NewTensors:
    """Sums, means or maxima of the rows of each bag and, with `details`, the sizes of the bags and the rows of the maxima."""
    where, bags = weight.device, starts.shape[0] - 1
    shape = (bags, weight.shape[1])
    more = [((bags,), dt.int64, where), (shape if mode == "max" else (0,), dt.int64, where)]
    return [(shape, weight.dtype, where), *(more * 2 if details else more)]


@bag_rows.on("any")
def _(
    out: list[Tensor], weight: Tensor, index: Tensor, starts: Tensor, mode: str, scale_grad_by_freq: bool,
    per_sample_weights: Any, padding: int, sparse: bool, details: bool,
) -> None:  # fmt: skip
    scales = None if per_sample_weights is None else dense(per_sample_weights)
    sizes, winners = out[-2:]
    bag_kernels.embedding_bag(
        out[0], sizes, winners if mode == "max" else None, dense(weight), index, starts, scales, *out[0].shape,
        padding, mode=mode,
    )  # fmt: skip
    if details:
        raw_copy(out[1], sizes)
        raw_copy(out[2], winners)


@internal(batching="each")
def bag_starts(offsets: Tensor, index: Tensor, rows: int, include_last_offset: bool, narrow_numbers: bool) -> NewTensor:
    """Return where bags begin and the last one ends, after a check of all offsets and of all indices into a table of `rows` rows. PyTorch's
    kernel for `narrow_numbers` trusts the last offset and has another message for a wrong index."""
    if include_last_offset and offsets.shape[0] < 1:
        raise RuntimeError("include_last_offset: number of offset should be at least 1")
    return (offsets.shape[0] + (not include_last_offset),), dt.int64, index.device


@bag_starts.on("any")
def _(out: Tensor, offsets: Tensor, index: Tensor, rows: int, include_last_offset: bool, narrow_numbers: bool) -> None:
    values = index.cpu()._array()
    if values.size and (values.min() < 0 or values.max() >= rows):
        place = np.flatnonzero((values < 0) | (values >= rows))[0]
        raise RuntimeError(
            f"Index {place} of input takes value {values[place]} which is not in the valid range [0, {rows})"
            if narrow_numbers
            else f"embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {values[place]}"
        )
    starts = _checked_offsets(offsets.cpu()._array().astype(np.int64), values.size)
    if not include_last_offset:
        starts = np.append(starts, values.size)
    elif not narrow_numbers:
        starts[-1] = values.size
    raw_copy(out, copy_of_array(starts, dt.int64))


def _checked_offsets(starts: np.ndarray, count: int) -> np.ndarray:
    if starts.size and starts[0] != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got"
            f" {starts[0]}"
        )
    if starts.size and starts[-1] > count:
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {count} but got offsets[-1] of {starts[-1]}"
        )
    if (starts[1:] < starts[:-1]).any():
        raise RuntimeError(f"offsets must not decrease, but got {starts.tolist()}")
    return starts


def _padding_row(rows: int, padding_idx: int | None) -> int:
    if padding_idx is None:
        return -1
    if not -rows <= padding_idx < rows:
        raise RuntimeError(
            f"padding_idx must be within the number of embeddings, {-rows} through {rows - 1}, but got {padding_idx}"
        )
    return padding_idx % rows


def _bags(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool,
    mode_name: str,
    per_sample_weights: Any,
    include_last_offset: bool,
    padding_idx: int | None,
    sparse: bool,
    details: bool,
) -> tuple[Any, ...]:
    """Return the results of `bag_rows` and where the bags start, after PyTorch's checks."""
    need_tensors("embedding_bag", weight=weight, indices=indices, offsets=offsets)
    check_row_indices("embedding_bag", indices)
    check_row_indices("embedding_bag", offsets)
    if len(weight.shape) != 2:
        raise RuntimeError(f"weight has to be a 2D Tensor, but got Tensor of dimension {len(weight.shape)}")
    if len(indices.shape) != 1 or len(offsets.shape) != 1:
        raise RuntimeError("embedding_bag: indices and offsets have to be 1D Tensors")
    n = weight.shape[0]
    padding = _padding_row(n, padding_idx)
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        raise RuntimeError(
            f"Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 'per_sample_weights';"
            f" but type {weight.type()} does not equal {per_sample_weights.type()} (while checking arguments for"
            " embedding_bag)"
        )
    index = dense(indices.to(dt.int64))
    narrow_numbers = mode_name != "max" and padding < 0 and weight.dtype is not dt.float64
    starts = bag_starts(offsets, index, n, include_last_offset, narrow_numbers)
    scales = per_sample_weights
    return bag_rows(weight, index, starts, mode_name, scale_grad_by_freq, scales, padding, sparse, details), starts


@internal(batching="each")
def bag_of_index(starts: Tensor, count: int) -> NewTensor:
    """The bag that each of `count` indices belongs to."""
    return (count,), dt.int64, starts.device


@bag_of_index.on("any")
def _(out: Tensor, starts: Tensor, count: int) -> None:
    bags = np.zeros(count + 1, np.int64)
    np.add.at(bags, starts.cpu()._array()[1:-1], 1)
    raw_copy(out, copy_of_array(np.cumsum(bags)[:count], dt.int64))


@composite(name="embedding_bag", method=False)
def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Any, ...]:
    """Bags of embedding rows, with the bag of each index, and the size and the maxima's rows of each bag."""
    name = next((name for name, number in _MODES.items() if number == mode), None)
    if name is None:
        raise RuntimeError(f"embedding_bag: mode has to be 0 (sum), 1 (mean) or 2 (max), but got {mode}")
    (result, sizes, winners), starts = _bags(
        weight, indices, offsets, scale_grad_by_freq, name, per_sample_weights, include_last_offset, padding_idx, sparse,
        True,
    )  # fmt: skip
    owners = bag_of_index(starts, 0 if name == "sum" else indices.shape[0])
    sizes = sizes if name != "sum" else sizes.new_zeros(sizes.shape)
    return result, owners, sizes, winners if name == "max" else sizes.clone()


@aten_parts("embedding_bag", "embedding_bag.padding_idx")
def _bags_in_aten(aten: Any, weight: Tensor, *rest: Any) -> Any:
    given, padding = rest[:7], rest[7] if len(rest) > 7 else None
    return aten._embedding_bag.default(weight, *given, padding_idx=_padding_row(len(weight), padding))


@aten_only(
    "_embedding_bag",
    backward=(
        "_embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets, result1, mode, padding_idx) -> per_sample_weights",
        "_embedding_bag_backward(grad, indices, offsets, result1, result2, result3, rows(weight), scale_grad_by_freq, mode, sparse,"
        " per_sample_weights, padding_idx) -> weight",
    ),
)
def _bags_with_padding(*given: Any) -> Any:
    return _embedding_bag(*given[:8], padding_idx=None if given[8:] in ((), (-1,)) else given[8])


@aten_only("_embedding_bag_backward")
def _gradient_of_bags(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Any,
    padding_idx: int = -1,
) -> Tensor:
    """The gradient of the table."""
    index, shape = dense(indices.to(dt.int64)), (num_weights, grad.shape[1])
    starts = bag_starts(offsets, index, num_weights, len(offsets) > len(grad), False)
    rest = list(_MODES)[mode], scale_grad_by_freq, per_sample_weights, padding_idx, sparse, bag_size, maximum_indices
    return bag_table_grad(grad, shape, index, starts, *rest)


@aten_only("_embedding_bag_per_sample_weights_backward")
def _gradient_of_scales(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, mode: int, padding_idx: int = -1
) -> Tensor:
    """The gradient of the numbers that rows were multiplied by."""
    index = dense(indices.to(dt.int64))
    starts = bag_starts(offsets, index, len(weight), len(offsets) > len(grad), False)
    return bag_scales_grad(grad, weight, index, starts, padding_idx)


@composite(**FUNCTIONAL)
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Any = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of rows of `weight` over bags of indices, without materialising the rows."""
    if weight.dtype is dt.int64 and input.dtype.is_floating_point:
        input, weight = weight, input  # the order of arguments of long ago
    if len(weight.shape) != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {len(weight.shape)}")
    if per_sample_weights is not None and input.shape != per_sample_weights.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it must have the same shape"
            f" as the input ({input.shape})"
        )
    offsets = _bag_offsets(input, offsets, include_last_offset)
    if len(input.shape) == 2:
        input = input.reshape(-1)
        per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    if mode not in _MODES:
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and (scale_grad_by_freq or sparse):
        what = "scaling the gradient by the frequency" if scale_grad_by_freq else "sparse weights"
        raise ValueError(f"max mode does not support {what}")
    if max_norm is not None:
        unrecorded(embedding_renorm_, weight, input, max_norm, norm_type)
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got"
            f" mode='{mode}')."
        )
    return _bags(
        weight, input, offsets, scale_grad_by_freq, mode, per_sample_weights, include_last_offset, padding_idx, sparse,
        False,
    )[0]  # fmt: skip


@embedding_bag.op.as_aten
def _(
    recorder: Any, input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    aten = recorder.aten
    number = 0 if mode == "sum" else 1 if mode == "mean" else 2
    if input.dim() == 2:
        each = input.size(1)
        offsets = aten.arange.start_step(0, input.size(0) * each, each, device=input.device, pin_memory=False)
        input = aten.reshape.default(input, [-1])
        if per_sample_weights is not None:
            per_sample_weights = aten.reshape.default(per_sample_weights, [-1])
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if max_norm is not None:
        unrecorded(aten.embedding_renorm_.default, weight, input, max_norm, norm_type)
    weights = (sparse, per_sample_weights, include_last_offset, padding_idx)
    return aten.embedding_bag.padding_idx(weight, input, offsets, scale_grad_by_freq, number, *weights)[0]


def _bag_offsets(input: Tensor, offsets: Any, include_last_offset: bool) -> Tensor:
    """Return where the bags start: as given for indices in one row, else every row is a bag."""
    if len(input.shape) == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences."
                f" However, found offsets of type {type(offsets)}"
            )
        rows, length = input.shape
        return copy_of_array(np.arange(rows + include_last_offset, dtype=np.int64) * length, dt.int64).to(input.device)
    if len(input.shape) != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {len(input.shape)}")
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if len(offsets.shape) != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    return offsets
