"""Looking up rows of a table: embedding, embedding_bag, one_hot.

With `sparse=True` the gradient of the table is a sparse tensor of the rows that were read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.cpu.threads import get_num_threads
from ...core import dtype as dt
from ...core.graph import unrecorded
from ...core.random_math import narrow, widen
from ...core.size import make_size
from ...core.tensor import Tensor, empty, numel_of
from ...kernels.library import index as kernels
from ..creation.filled import fill_raw
from ..index.bad_index import bad_index
from ..machinery.arguments import as_int, need_tensors
from ..machinery.declare import composite, internal
from ..machinery.memory import dense
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
from ..sparse.coo import coo_from_parts

FUNCTIONAL: dict[str, Any] = {"namespaces": ("nn.functional",), "method": False}


def check_row_indices(name: str, indices: Tensor) -> None:
    if indices.dtype is not dt.int64 and indices.dtype is not dt.int32:
        raise RuntimeError(
            f"Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got"
            f" {indices.type()} instead (while checking arguments for {name})"
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
        )
    return embedding_dense_backward(g, indices, weight_shape[0], padding_idx, scale_grad_by_freq)


def rows_gradient(rows: Tensor, indices: Tensor, shape: Any, padding_idx: int) -> Tensor:
    """Return the gradient of a table as a sparse tensor that lists the rows that were read, in that order."""
    if padding_idx >= 0 and numel_of(indices.shape):
        kept = (indices != padding_idx).nonzero().squeeze(1)
        rows, indices = rows.index_select(0, kept), indices.index_select(0, kept)
    place = indices.to(dt.int64).unsqueeze(0)
    return coo_from_parts(rows, place, make_size(shape), place.shape[1] < 2, True)


def _dense_backward_grad(v: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool) -> Tensor:
    rows = embedding_rows(v, indices, -1, False, False)
    return rows.masked_fill((indices == padding_idx).unsqueeze(-1), 0) if padding_idx >= 0 else rows


@internal(
    row_sums=lambda grad_output, indices, num_weights, padding_idx, scale_grad_by_freq: (
        None if scale_grad_by_freq else (grad_output, indices)
    ),
    grads={"grad_output": _dense_backward_grad},
    quirks=Quirks(label="EmbeddingDenseBackwardBackward0"),
)
def embedding_dense_backward(
    grad_output: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> NewTensor:
    """The gradient of the table: each row of `grad_output` is added to the row it was read from."""
    if grad_output.shape[:-1] != indices.shape:
        raise RuntimeError(
            f"indices of sizes {list(indices.shape)} do not fit a gradient of sizes {list(grad_output.shape)}"
        )
    return (num_weights, grad_output.shape[-1]), grad_output.dtype, grad_output.device


@embedding_dense_backward.on("any")
def _(
    out: Tensor, grad_output: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> None:
    count, dim = numel_of(indices.shape), grad_output.shape[-1]
    counts = empty((num_weights,), dt.int64, out.device) if scale_grad_by_freq else None
    parts = row_ranges(count, num_weights, dim)
    kernels.embedding_backward(
        out, dense(grad_output), dense(indices), counts, count, num_weights, dim, padding_idx, parts
    )


def row_ranges(count: int, rows: int, dim: int) -> int:
    """Return the number of row ranges into which the table is divided; every range reads all indices."""
    return 1 if (count + rows) * dim < 1 << 16 else max(1, min(get_num_threads(), rows))


@internal(
    table_rows=lambda weight, indices, padding_idx, scale_grad_by_freq, sparse: (weight, indices),
    grads={"weight": _embedding_grad},
    quirks=Quirks(label="EmbeddingBackward0"),
    sharding="embedding",
    aten="embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse)",
)
def embedding_rows(
    weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, sparse: bool
) -> NewTensor:
    """The rows of `weight` that `indices` name. The other arguments are for the derivative."""
    return (*indices.shape, weight.shape[1]), weight.dtype, weight.device


@embedding_rows.on("cpu")
def _(out: Tensor, weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, sparse: bool) -> None:
    n, dim = weight.shape
    kernels.embedding(out, dense(weight), dense(indices), bad_index.buffer, numel_of(indices.shape), n, dim)
    if bad_index.taken() is not None:
        raise IndexError("index out of range in self")


@embedding_rows.on("any")
def _(out: Tensor, weight: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, sparse: bool) -> None:
    n, dim = weight.shape
    where = out.device
    kernels.embedding(
        out, dense(weight), dense(indices), bad_index.on(where, "embedding"), numel_of(indices.shape), n, dim
    )
    if bad_index.taken(where) is not None:
        raise IndexError("index out of range in self")


@composite(name="embedding", method=False)
def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """`nn.functional.embedding` with the table first."""
    need_tensors("embedding", weight=weight, indices=indices)
    if len(weight.shape) != 2:
        raise RuntimeError("'weight' must be 2-D")
    check_row_indices("embedding", indices)
    return embedding_rows(weight, indices, padding_idx, scale_grad_by_freq, sparse)


@composite(**FUNCTIONAL, aten="embedding(weight, input, row(padding_idx, weight), scale_grad_by_freq, sparse)")
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
    if padding_idx is None:
        padding_idx = -1
    else:
        if padding_idx < -weight.size(0) or padding_idx >= weight.size(0):
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx = padding_idx % weight.size(0)
    if max_norm is not None:
        unrecorded(embedding_renorm_, weight, input, max_norm, norm_type)
    if len(weight.shape) != 2:
        raise RuntimeError("'weight' must be 2-D")
    check_row_indices("embedding", input)
    return embedding_rows(weight, input, padding_idx, scale_grad_by_freq, sparse)


@composite(method=False)
def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scale the rows that `indices` name down to the norm `max_norm` if they are longer."""
    if len(input.shape) != 2:
        raise RuntimeError(
            f"Expected 2-dimensional tensor, but got {len(input.shape)}-dimensional tensor for argument #1"
        )
    check_row_indices("embedding_renorm_", indices)
    return renorm_rows(input, indices, max_norm, norm_type)


@internal(writes=("input",), batching="each", aten="embedding_renorm_")
def renorm_rows(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Apply embedding_renorm_ after its checks."""


@renorm_rows.on("cpu")
def _(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
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


# -- one_hot ----------------------------------------------------------------------------------------------------------


@internal(runs_empty=True, batching="each")
def one_hot_rows(index: Tensor, classes: int) -> NewTensor:
    """A row of zeros with a one at the index, for each index."""
    return (*index.shape, classes), dt.int64, index.device


@one_hot_rows.on("any")
def _(out: Tensor, index: Tensor, classes: int) -> None:
    wrong = fill_raw(empty((1,), dt.int64, out.device), 0)
    kernels.one_hot(out, dense(index), wrong, numel_of(index.shape), classes)
    if wrong.item():
        which = "non-negative" if index.min().item() < 0 else "smaller than num_classes"
        raise RuntimeError(f"Class values must be {which}.")


@composite(namespaces=("nn.functional",), method=False)
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """A row of zeros with a one at the index, for each index.

    >>> one_hot(tensor([0, 2]))
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    if tensor.dtype is not dt.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    num_classes = as_int(num_classes, "one_hot", "num_classes", 2)
    if numel_of(tensor.shape) == 0:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return tensor.new_empty((*tensor.shape, num_classes))
    if num_classes == -1:
        num_classes = int(tensor.max()) + 1
    return one_hot_rows(tensor, max(num_classes, 0))  # of no classes every index is wrong
