"""Sums, norms and softmax of COO tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.layout import sparse_csr, wrap_dim
from ...core.size import make_size
from ...core.sparse import SparseCoo, SparseCsr
from ...core.tensor import Tensor
from ..machinery.arguments import as_dtype
from ..machinery.quirks import Quirks
from ..machinery.record import OPS
from ..machinery.sparse_dispatch import sparse_form, sparse_primitive
from ..methods import python_protocol
from ..reduce import norms, sums
from .arithmetic import apply_to_values
from .conversion import as_coo, in_layout_of
from .coo import coalesce, coo_from_parts, layout_word, need_coo
from .index import entry_keys, groups_of, index_tensor, keys_of, on_host


def _spread(g: Tensor, input_shape: Any, input_dtype: Any) -> Tensor:
    g = g if g.dtype is input_dtype else g.to(input_dtype)
    return g.expand(input_shape)


def _sum_all(input: Any, d: Any) -> Tensor:
    return input._values_part.sum(dtype=d)


sum_all = sparse_primitive(_sum_all, {"input": _spread}, Quirks(label="SumBackward0"), name="sparse_sum")


@sparse_form(sums.sum_)
def sum_(input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    d = None if dtype is None else as_dtype(dtype, "sum")
    if dim is None or dim == () or dim == []:
        return sum_all(input, d)
    result = sum_dims(input, dim, d, keepdim)
    if keepdim and not isinstance(input, SparseCsr):
        for i in sorted(_dims(input, dim)):
            result = result.unsqueeze(i)
    return result


def _dims(t: Tensor, dim: Any) -> list[int]:
    given = [dim] if isinstance(dim, int) else list(dim)
    wrapped = [wrap_dim(i, len(t.shape)) for i in given]
    for i in wrapped:
        if wrapped.count(i) > 1:
            raise RuntimeError(f"dim {i} appears multiple times in the list of dims")
    return wrapped


def sum_dims(input: Any, dim: Any, d: Any = None, keepdim: bool = False) -> Tensor:
    """The sum over some dimensions: sparse while a sparse dimension is left, else strided. Integers are summed in int64."""
    if isinstance(input, SparseCsr):
        return _sum_compressed(input, _dims(input, dim), d, keepdim)
    t = coalesce(need_coo(input, "sum"))
    gone = _dims(t, dim)
    sparse = t._index_part.shape[0]
    values = t.values().to(d or (dt.int64 if t.dtype.category < 2 else t.dtype))
    inner = [i - sparse + 1 for i in gone if i >= sparse]
    values = values.sum(inner) if inner else values
    kept = [i for i in range(sparse) if i not in gone]
    if not kept:
        return values.sum(0)
    shape = make_size([n for i, n in enumerate(t.shape) if i not in gone])
    if len(kept) == sparse:
        return coo_from_parts(values, t._index_part, shape, True, True)
    rows = index_tensor(on_host(t._index_part)[kept])
    return coalesce(coo_from_parts(values, rows, shape, False, True))


def _sum_compressed(t: SparseCsr, gone: list[int], d: Any, keepdim: bool) -> Tensor:
    if t.layout is not sparse_csr:
        raise RuntimeError(
            f"Currently the only compressed sparse format supported for sum.dim_IntList is CSR, but got layout {layout_word(t)}"
        )
    if not keepdim:
        raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
    total: Any = sum_dims(as_coo(t), gone, d)
    for i in sorted(gone):
        total = total.unsqueeze(i)
    return in_layout_of(t, total if isinstance(total, SparseCoo) else total.to_sparse(t._sparse_dims))


@sparse_form(norms.norm, norms.linalg_norm)
def norm(input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    if dim not in (None, (), []) and sorted(_dims(input, dim)) != list(range(len(input.shape))):
        raise RuntimeError(
            "norm_sparse currently only supports full reductions, so 'dim' must either be empty or contain all dimensions of the input"
        )
    if keepdim:
        raise RuntimeError("norm_sparse currently does not support keepdim=True")
    if dtype is not None:
        raise RuntimeError("norm_sparse currently does not support 'dtype' argument")
    values = coalesce(input).values() if isinstance(input, SparseCoo) else input.values()
    return values.norm(2 if p in ("fro", None) else p)


@sparse_form(sums.any_)
def any_(input: Any, *args: Any, **kwargs: Any) -> Tensor:
    if args or kwargs:
        raise NotImplementedError("any() of sparse tensors takes no dimension")
    return input._values_part.any()


@sparse_form(python_protocol.item)
def item(self: Any) -> Any:
    if self.numel() != 1:
        raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
    return self._values_part.sum(dtype=self.dtype).item()


# -- softmax -----------------------------------------------------------------------------------------------------------


def _grouped_softmax(values: Tensor, group: np.ndarray, count: int, logarithm: bool) -> Tensor:
    """Compute softmax over the entries of each group, at every dense place separately."""
    member = index_tensor(group)
    top = values.detach().new_full((count, *values.shape[1:]), -np.inf)
    top = top.index_reduce(0, member, values.detach(), "amax")
    shifted = values - top.index_select(0, member)
    powers = shifted.exp()
    totals = powers.new_zeros(top.shape).index_add(0, member, powers).index_select(0, member)
    return shifted - totals.log() if logarithm else powers / totals


def sparse_softmax(input: Any, dim: int, dtype: Any, logarithm: bool) -> Tensor:
    """Softmax over the listed entries: others count as minus infinity."""
    name = "log_softmax" if logarithm else "softmax"
    t: Any = coalesce(need_coo(input, name))
    if dtype is not None:
        t = t.to(as_dtype(dtype, name))
    d = wrap_dim(dim, len(t.shape))
    sparse = t._index_part.shape[0]
    if d >= sparse:
        return apply_to_values(t, lambda v: OPS[name].function(v, d - sparse + 1), "sparse_" + name)
    entry_keys(t)
    rows = on_host(t._index_part)
    others = [i for i in range(sparse) if i != d]
    group, count = groups_of(keys_of(rows[others], tuple(t.shape[i] for i in others)))
    if not rows.shape[1]:
        return t
    return apply_to_values(t, lambda v: _grouped_softmax(v, group, count, logarithm), "sparse_" + name)
