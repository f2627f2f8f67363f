"""Looking up rows of a table: embedding, embedding_bag, one_hot.

With `sparse=True` the gradient of the table is a sparse tensor of the rows that were read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.cpu.threads import get_num_threads
from ...core import dtype as dt
from ...core.device import cpu
from ...core.graph import unrecorded
from ...core.random_math import narrow, widen
from ...core.size import make_size
from ...core.tensor import Tensor, copy_of_array, empty, numel_of
from ...kernels.library import embedding_bag as bag_kernels
from ...kernels.library import index as kernels
from ..index.bad_index import bad_index
from ..machinery.arguments import as_int, need_tensors
from ..machinery.declare import composite, internal
from ..machinery.memory import dense
from ..machinery.primitive import Saved
from ..sparse.coo import coo_from_parts

_FUNCTIONAL: dict[str, Any] = {"namespaces": ("nn.functional",), "method": False}


def _check_indices(name: str, indices: Tensor) -> None:
    if indices.dtype is not dt.int64 and indices.dtype is not dt.int32:
        raise RuntimeError(
            f"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got"
            f" {indices.type()} instead (while checking arguments for {name})"  # type: ignore[attr-defined]
        )


# -- embedding --------------------------------------------------------------------------------------------------------


def _embedding_grad(
    g: Tensor, weight_shape: Any, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, sparse: bool
) -> Tensor:
    if sparse:
        if scale_grad_by_freq:
            raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
        return rows_gradient(
            g.reshape(numel_of(indices.shape), g.shape[-1]), indices.reshape(-1), weight_shape, padding_idx
        )  # type: ignore[attr-defined]
    return embedding_dense_backward(g, indices, weight_shape[0], padding_idx, scale_grad_by_freq)


def rows_gradient(rows: Tensor, indices: Tensor, shape: Any, padding_idx: int) -> Tensor:
    """The gradient of a table as a sparse tensor that lists the rows that were read, in that order."""
    if padding_idx >= 0 and numel_of(indices.shape):
        kept = (indices != padding_idx).nonzero().squeeze(1)  # type: ignore[attr-defined]
        rows, indices = rows.index_select(0, kept), indices.index_select(0, kept)  # type: ignore[attr-defined]
    place = indices.to(dt.int64).unsqueeze(0)  # type: ignore[attr-defined]
    return coo_from_parts(rows, place, make_size(shape), place.shape[1] < 2, True)


def _dense_backward_grad(v: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool) -> Tensor:
    if scale_grad_by_freq:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with create_graph=True")
    rows = embedding_rows(v, indices, -1, False, False)
    return rows.masked_fill((indices == padding_idx).unsqueeze(-1), 0) if padding_idx >= 0 else rows  # type: ignore[attr-defined]


@internal(grads={"grad_output": _dense_backward_grad}, label="EmbeddingDenseBackwardBackward0")
def embedding_dense_backward(
    grad_output: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """The gradient of the table: each row of `grad_output` is added to the row it was read from."""
    dim = grad_output.shape[-1]
    grad_weight = empty(make_size((num_weights, dim)), grad_output.dtype, grad_output.device)
    count = numel_of(indices.shape)
    if grad_output.device is not cpu or not num_weights * dim:
        return grad_weight
    counts = np.empty(num_weights, np.int64) if scale_grad_by_freq else None
    parts = _parts(count, num_weights, dim)
    kernels.embedding_backward(
        grad_weight, dense(grad_output), dense(indices), counts, count, num_weights, dim, padding_idx, parts
    )
    return grad_weight


def _parts(count: int, rows: int, dim: int) -> int:
    """Into how many ranges of rows the table is cut; every range reads all indices."""
    return 1 if (count + rows) * dim < 1 << 16 else max(1, min(get_num_threads(), rows))


@internal(grads={"weight": _embedding_grad}, label="EmbeddingBackward0")
def embedding_rows(weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, sparse: bool) -> Tensor:
    n, dim = weight.shape
    out = empty(make_size((*indices.shape, dim)), weight.dtype, weight.device)
    count = numel_of(indices.shape)
    if weight.device is not cpu or not count:
        return out
    if indices.device is not cpu:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, cpu and {indices.device}!"
        )
    kernels.embedding(out, dense(weight), dense(indices), bad_index.buffer, count, n, dim)
    if bad_index.taken() is not None:
        raise IndexError("index out of range in self")
    return out


@composite(name="embedding", method=False)
def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """`nn.functional.embedding` with the table first."""
    need_tensors("embedding", weight=weight, indices=indices)
    if len(weight.shape) != 2:
        raise RuntimeError("'weight' must be 2-D")
    _check_indices("embedding", indices)
    return embedding_rows(weight, indices, padding_idx, scale_grad_by_freq, sparse)


@composite(**_FUNCTIONAL)
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of `weight` that the indices in `input` name.

    >>> embedding(tensor([1, 0, 1]), tensor([[1., 2.], [3., 4.]]))
    tensor([[3., 4.],
            [1., 2.],
            [3., 4.]])
    """
    need_tensors("embedding", input=input, weight=weight)
    if padding_idx is None:
        padding_idx = -1
    else:
        if not -weight.shape[0] <= padding_idx < weight.shape[0]:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx = padding_idx % weight.shape[0]
    if max_norm is not None:
        unrecorded(embedding_renorm_, weight, input, max_norm, norm_type)
    if len(weight.shape) != 2:
        raise RuntimeError("'weight' must be 2-D")
    _check_indices("embedding", input)
    return embedding_rows(weight, input, padding_idx, scale_grad_by_freq, sparse)


@composite(method=False)
def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scale the rows that `indices` name down to the norm `max_norm` where they are longer."""
    if len(input.shape) != 2:
        raise RuntimeError(
            f"Expected 2-dimensional tensor, but got {len(input.shape)}-dimensional tensor for argument #1"
        )
    _check_indices("embedding_renorm_", indices)
    rows = np.unique(indices._array())
    if rows.size and not 0 <= rows[0] <= rows[-1] < input.shape[0]:
        raise IndexError("index out of range in self")
    table = input._array()
    picked = table[rows]
    wide = widen(picked, input.dtype).reshape(picked.shape)
    norms = np.linalg.norm(wide.astype(np.float64), norm_type, axis=1)
    scale = np.where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
    table[rows] = narrow((wide * scale[:, None].astype(wide.dtype)).reshape(-1), input.dtype).reshape(picked.shape)
    input._bump("embedding_renorm_")
    return input


# -- embedding_bag ----------------------------------------------------------------------------------------------------

_MODES = {"sum": 0, "mean": 1, "max": 2}


def _bag_grads(
    g: tuple,
    weight: Tensor,
    index: Tensor,
    starts: np.ndarray,
    mode_name: str,
    scale_grad_by_freq: bool,
    per_sample_weights: Any,
    padding: int,
    sparse: bool,
    sizes: Tensor,
    winners: Any,
    needs: dict,
) -> tuple:
    grad = dense(g[0])
    n, dim = weight.shape
    bags = len(starts) - 1
    to_weight = to_scales = None
    scales = None if per_sample_weights is None else dense(per_sample_weights)
    if needs["weight"] and sparse:
        to_weight = _sparse_bag_grad(grad, weight.shape, index, starts, mode_name, scales, padding, sizes)
    elif needs["weight"]:
        to_weight = empty(weight.shape, weight.dtype)
        if mode_name == "max":
            bag_kernels.embedding_bag_max_backward(to_weight, grad, winners, sizes, bags, n, dim)
        else:
            counts = np.bincount(index._array(), minlength=n).astype(np.int64) if scale_grad_by_freq else None
            parts = _parts(numel_of(index.shape), n, dim)
            bag_kernels.embedding_bag_backward(
                to_weight, grad, index, starts, scales, sizes, counts, bags, n, dim, padding, parts,
                mean=mode_name == "mean",
            )  # fmt: skip
    if needs["per_sample_weights"] and scales is not None:
        to_scales = empty(index.shape, weight.dtype)
        to_scales._array()[...] = 0  # indices before the first bag belong to none
        table = dense(weight)
        bag_kernels.embedding_bag_scales_backward(to_scales, grad, table, index, starts, bags, dim, padding)
    return to_weight, to_scales


def _sparse_bag_grad(
    grad: Tensor,
    shape: Any,
    index: Tensor,
    starts: np.ndarray,
    mode_name: str,
    scales: Any,
    padding: int,
    sizes: Tensor,
) -> Tensor:
    bags = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    if mode_name == "mean":
        grad = grad / sizes.clamp(min=1).unsqueeze(1).to(grad.dtype)  # type: ignore[attr-defined]
    rows = grad.index_select(0, copy_of_array(bags, dt.int64))  # type: ignore[attr-defined]
    if scales is not None:
        rows = rows * scales.unsqueeze(1)
    return rows_gradient(rows, index.narrow(0, int(starts[0]) if len(starts) else 0, bags.size), shape, padding)  # type: ignore[attr-defined]


@internal(grads={("weight", "per_sample_weights"): _bag_grads}, label="EmbeddingBagBackward0")
def bag_rows(
    weight: Tensor,
    index: Tensor,
    starts: np.ndarray,
    mode_name: str,
    scale_grad_by_freq: bool,
    per_sample_weights: Any,
    padding: int,
    sparse: bool,
) -> Saved:
    bags, dim = len(starts) - 1, weight.shape[1]
    out = empty(make_size((bags, dim)), weight.dtype, weight.device)
    sizes = empty(make_size((bags,)), dt.int64, weight.device)
    winners = empty(make_size((bags, dim)), dt.int64, weight.device) if mode_name == "max" else None
    scales = None if per_sample_weights is None else dense(per_sample_weights)
    if weight.device is cpu and bags:
        bag_kernels.embedding_bag(
            out, sizes, winners, dense(weight), index, starts, scales, bags, dim, padding, mode=mode_name
        )
    return Saved((out, sizes) if winners is None else (out, sizes, winners), sizes=sizes, winners=winners)


def _checked_offsets(offsets: Tensor, count: int, include_last_offset: bool) -> np.ndarray:
    starts = offsets._array().astype(np.int64)
    if include_last_offset and starts.size < 1:
        raise RuntimeError("include_last_offset: number of offset should be at least 1")
    if starts.size and starts[0] != 0:
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got"
            f" {starts[0]}"
        )
    if starts.size and starts[-1] > count:
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {count} but got offsets[-1] of {starts[-1]}"
        )
    if (np.diff(starts) < 0).any() or (starts < 0).any():
        raise RuntimeError(f"offsets must not decrease, but got {starts.tolist()}")
    return starts


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
) -> tuple:
    """Result, bag of each index, bag sizes and winners, as PyTorch's embedding_bag returns them."""
    need_tensors("embedding_bag", weight=weight, indices=indices, offsets=offsets)
    _check_indices("embedding_bag", indices)
    if len(weight.shape) != 2:
        raise RuntimeError(f"weight has to be a 2D Tensor, but got Tensor of dimension {len(weight.shape)}")
    if len(indices.shape) != 1 or len(offsets.shape) != 1:
        raise RuntimeError("embedding_bag: indices and offsets have to be 1D Tensors")
    n = weight.shape[0]
    padding = -1
    if padding_idx is not None:
        if not -n <= padding_idx < n:
            raise RuntimeError(
                f"padding_idx must be within the number of embeddings, {-n} through {n - 1}, but got {padding_idx}"
            )
        padding = padding_idx % n
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        raise RuntimeError(
            f"Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 'per_sample_weights';"
            f" but type {weight.type()} does not equal {per_sample_weights.type()} (while checking arguments for"  # type: ignore[attr-defined]
            " embedding_bag)"
        )
    index = dense(indices.to(dt.int64))  # type: ignore[attr-defined]
    values = index._array()
    # PyTorch's kernel for narrow numbers believes the last offset and words a wrong index differently from the other one.
    narrow_numbers = mode_name != "max" and padding < 0 and weight.dtype is not dt.float64
    for place in np.flatnonzero((values < 0) | (values >= n))[:1]:
        raise RuntimeError(
            f"Index {place} of input takes value {values[place]} which is not in the valid range [0, {n})"
            if narrow_numbers
            else f"embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {values[place]}"
        )
    starts = _checked_offsets(offsets, index.shape[0], include_last_offset)
    if not include_last_offset:
        starts = np.append(starts, index.shape[0])
    elif not narrow_numbers:
        starts[-1] = index.shape[0]
    result = bag_rows(weight, index, starts, mode_name, scale_grad_by_freq, per_sample_weights, padding, sparse)
    return result, starts, index


def _bag_of_index(starts: np.ndarray, count: int) -> np.ndarray:
    bags = np.zeros(count + 1, np.int64)
    np.add.at(bags, starts[1:-1], 1)
    return np.cumsum(bags)[:count]


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
) -> tuple:
    """Bags of embedding rows, and for each index its bag, for each bag its size and winners."""
    name = next((name for name, number in _MODES.items() if number == mode), None)
    if name is None:
        raise RuntimeError(f"embedding_bag: mode has to be 0 (sum), 1 (mean) or 2 (max), but got {mode}")
    result, starts, index = _bags(
        weight, indices, offsets, scale_grad_by_freq, name, per_sample_weights, include_last_offset, padding_idx, sparse
    )
    count = 0 if name == "sum" else index.shape[0]
    owners = copy_of_array(_bag_of_index(starts, count), dt.int64)
    sizes = result[1] if name != "sum" else result[1].new_zeros((len(starts) - 1,))
    return result[0], owners, sizes, result[2] if name == "max" else sizes.clone()


@composite(**_FUNCTIONAL)
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
    """Sums, means or maxima of rows of `weight` over bags of indices, without making the rows."""
    if weight.dtype is dt.int64 and input.dtype.is_floating_point:
        input, weight = weight, input  # the order of arguments of long ago
    if per_sample_weights is not None and input.shape != per_sample_weights.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it must have the same shape"
            f" as the input ({input.shape})"
        )
    offsets = _bag_offsets(input, offsets, include_last_offset)
    if len(input.shape) == 2:
        input = input.reshape(-1)  # type: ignore[attr-defined]
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
    result, _, _ = _bags(
        weight, input, offsets, scale_grad_by_freq, mode, per_sample_weights, include_last_offset, padding_idx, sparse
    )
    return result[0]


def _bag_offsets(input: Tensor, offsets: Any, include_last_offset: bool) -> Tensor:
    """Where the bags start: as given for indices in one row, else every row is a bag."""
    if len(input.shape) == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences."
                f" However, found offsets of type {type(offsets)}"
            )
        rows, length = input.shape
        return copy_of_array(np.arange(rows + include_last_offset, dtype=np.int64) * length, dt.int64)
    if len(input.shape) != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {len(input.shape)}")
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if len(offsets.shape) != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    return offsets


# -- one_hot ----------------------------------------------------------------------------------------------------------


@composite(namespaces=("nn.functional",), method=False)
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """A row of zeros with a one at the index, for each index.

    >>> one_hot(tensor([0, 2]))
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    need_tensors("one_hot", tensor=tensor)
    if tensor.dtype is not dt.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    num_classes = as_int(num_classes, "one_hot", "num_classes", 2)
    if numel_of(tensor.shape) == 0:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return empty(make_size((*tensor.shape, num_classes)), dt.int64, tensor.device)
    flat = dense(tensor)
    if num_classes == -1:
        num_classes = int(flat.max()) + 1
    num_classes = max(num_classes, 0)  # then every index is wrong
    result = empty(make_size((*tensor.shape, num_classes)), dt.int64, tensor.device)
    if tensor.device is not cpu:
        return result
    wrong = empty(make_size((1,)), dt.int64).zero_()
    kernels.one_hot(result, flat, wrong, numel_of(tensor.shape), num_classes)
    if wrong.item():
        if flat.min() < 0:
            raise RuntimeError("Class values must be non-negative.")
        raise RuntimeError("Class values must be smaller than num_classes.")
    return result
