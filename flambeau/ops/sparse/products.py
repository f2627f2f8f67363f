"""Products of sparse matrices with dense and sparse ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.dtype import opmath
from ...core.layout import sparse_csr, strided
from ...core.size import make_size
from ...core.sparse import SparseCoo, SparseCsr, SparseRefusal, SparseTensor, new_coo, new_csr
from ...core.tensor import Tensor
from ...kernels.library import sparse as kernels
from ..creation.filled import fill_raw, full_like
from ..linalg import addmm as sums
from ..linalg import linear, matmul, triangular
from ..machinery.declare import composite, internal
from ..machinery.memory import dense
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
from ..machinery.sparse_dispatch import sparse_form, sparse_primitive
from .conversion import as_coo, in_layout_of
from .coo import coalesce, layout_word, listed_places, values_in_place_of
from .index import by_row, entry_keys, index_tensor, keys_of, on_host, packed, within_bounds
from .places import repeated

# -- kernels -----------------------------------------------------------------------------------------------------------


def _rows_and_columns(t: Any) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Return where rows start, the order of entries by row (None: as they are stored) and their columns; a batch of matrices is one
    block-diagonal matrix."""
    if isinstance(t, SparseCsr) and t.layout is sparse_csr and not t._batch_dims:
        return on_host(t._compressed_part).astype(np.int64), None, on_host(t._plain_part).astype(np.int64)
    places = listed_places(t)[0] if isinstance(t, SparseCsr) else within_bounds(t)._index_part
    *batch, rows, columns = on_host(places)
    *sizes, height, width = t.shape
    if batch:
        matrix = keys_of(batch, tuple(sizes))
        rows, columns = matrix * height + rows, matrix * width + columns
    return *by_row(rows, math.prod(sizes) * height), packed(columns)


@internal(batching="each")
def rows_times_matrix(starts: Any, order: Any, columns: Any, values: Tensor, table: Tensor) -> NewTensor:
    """A sparse matrix times the dense one `table`. Arrays give where the rows start, the order of entries by row, and their columns."""
    return (starts.size - 1, table.shape[1]), table.dtype, table.device


@rows_times_matrix.on("cpu")
def _(out: Tensor, starts: np.ndarray, order: Any, columns: np.ndarray, values: Tensor, table: Tensor) -> None:
    n, width = out.shape
    if table.dtype.is_complex:
        fill_raw(out, 0)
        rows = np.repeat(np.arange(n), np.diff(starts))
        k = slice(None) if order is None else order
        np.add.at(out._array(), rows, values._array()[k][:, None] * table._array()[columns[k]])
        return
    kernels.rows_times_matrix(out, starts, order, columns, dense(values), dense(table), n, width, values.shape[0])


def times_dense(sparse: Any, other: Tensor) -> Tensor:
    """Return a sparse matrix, or batch of them, times dense ones, checked."""
    *batch, height, width = sparse.shape
    table = other.reshape(math.prod(batch) * width, other.shape[-1])
    product = rows_times_matrix(*_rows_and_columns(sparse), sparse._values_part.reshape(-1), table)
    return product.reshape(*batch, height, other.shape[-1])


def _check_operands(a: Any, b: Any) -> None:
    compressed = isinstance(a, SparseCsr) or isinstance(b, SparseCsr)
    for name, t in (("mat1", a), ("mat2", b)):
        if len(t.shape) != 2 or (isinstance(t, SparseTensor) and t.dense_dim()):
            kind = RuntimeError if compressed or isinstance(t, SparseTensor) else IndexError
            raise kind(f"{name} must be a matrix, got {len(t.shape)}-D tensor")
    if a.shape[1] != b.shape[0]:
        sizes = f"{a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]}"
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({sizes})")
    if a.dtype is not b.dtype:
        raise RuntimeError(f"expected scalar type {a.dtype.scalar_type} but found {b.dtype.scalar_type}")


def _product(a: Any, b: Any) -> Tensor:
    """Return the product of any mix of sparse and dense matrices."""
    if not isinstance(a, SparseTensor) and not isinstance(b, SparseTensor):
        return a.mm(b)
    _check_operands(a, b)
    if isinstance(a, SparseTensor) and isinstance(b, SparseTensor):
        return sparse_times_sparse(a, b)
    if isinstance(a, SparseTensor):
        return times_dense(a, b)
    return times_dense(b.t(), a.t()).t()


def sparse_times_sparse(a: Any, b: Any) -> Tensor:
    """Return the product of two sparse matrices: every entry (i, k) of `a` times the entries of row k of `b`."""
    if any(getattr(t, "_blocksize", None) is not None for t in (a, b)):
        raise RuntimeError(
            "zeros_sparse_compressed expected sparse compressed (non-block) tensor layout but got blocks"
        )
    compressed = isinstance(a, SparseCsr)
    left, right = (coalesce(as_coo(t)) for t in (a, b))
    rows, middle = on_host(within_bounds(left)._index_part)
    starts, order, columns = _rows_and_columns(right)
    counts = starts[middle + 1] - starts[middle]
    entry = repeated(np.arange(rows.size), counts)
    partner = np.arange(entry.size) - repeated(np.cumsum(counts) - counts, counts) + repeated(starts[middle], counts)
    partner = partner if order is None else order[partner]
    values = left._values_part.index_select(0, index_tensor(entry)) * right._values_part.index_select(
        0, index_tensor(partner)
    )
    indices = index_tensor(np.stack([rows[entry], columns[partner]]))
    result = coalesce(new_coo(indices, values, (a.shape[0], b.shape[1])))
    return result.to_sparse_csr() if compressed else result


# -- operators ---------------------------------------------------------------------------------------------------------


@sparse_form(
    matmul.mm,
    grads={"input": lambda g, mat2: g.mm(mat2.mH), "mat2": lambda g, input: input.mH.mm(g)},
    quirks=Quirks(label="MmBackward0"),
)
def mm(input: Any, mat2: Any) -> Tensor:
    return _product(input, mat2)


@sparse_form(
    matmul.mv,
    grads={"input": lambda g, vec: g.unsqueeze(1) * vec.conj().unsqueeze(0), "vec": lambda g, input: input.mH.mv(g)},
    quirks=Quirks(label="MvBackward0"),
)
def mv(input: Any, vec: Any) -> Tensor:
    if len(vec.shape) != 1 or len(input.shape) != 2:
        raise RuntimeError(
            f"mv: expected a matrix and a vector, got {len(input.shape)}-D and {len(vec.shape)}-D tensors"
        )
    if isinstance(vec, SparseTensor):
        vec = vec.to_dense()
    if not isinstance(input, SparseTensor):
        return input.mv(vec)
    if input.dense_dim() or input.shape[1] != vec.shape[0]:
        height, width = input.shape
        raise RuntimeError(f"size mismatch, got input ({height}), mat ({height}x{width}), vec ({vec.shape[0]})")
    return times_dense(input, vec.unsqueeze(1)).squeeze(1)


def _scaled(t: Tensor, factor: Any) -> Tensor:
    return t if factor == 1 else t * factor


def _addmm(input: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Tensor:
    if isinstance(input, SparseCoo):
        raise RuntimeError("addmm_sparse_dense: expected strided result tensor, got tensor with layout Sparse")
    if input.dtype is not mat1.dtype:
        raise RuntimeError(f"expected scalar type {mat1.dtype.scalar_type} but found {input.dtype.scalar_type}")
    beta, alpha = sums.whole_factors(input, beta, alpha)
    product = _scaled(_product(mat1, mat2), alpha)
    if isinstance(input, SparseTensor) and isinstance(product, SparseTensor):
        return in_layout_of(input, as_coo(product)) if beta == 0 else _scaled(input, beta) + product
    input, product = (t.to_dense() if isinstance(t, SparseTensor) else t for t in (input, product))
    return product if beta == 0 else _scaled(input, beta).expand(product.shape) + product


@sparse_form(
    sums.addmm,
    grads={
        "input": lambda g, input_shape, beta: _scaled(g, beta).sum_to_size(input_shape),
        "mat1": lambda g, mat2, alpha: _scaled(g.mm(mat2.mH), alpha),
        "mat2": lambda g, mat1, alpha: _scaled(mat1.mH.mm(g), alpha),
    },
    quirks=Quirks(label="AddmmBackward0"),
)
def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _addmm(input, mat1, mat2, beta, alpha)


@sparse_form(linear.linear_matrix)
def linear_matrix(input: Any, weight: Any, bias: Any) -> Tensor:
    out = input.matmul(weight.t())
    return out if bias is None else out + bias


@sparse_form(
    matmul.bmm,
    grads={"input": lambda g, mat2: g.bmm(mat2.mH), "mat2": lambda g, input: _transposed(input).bmm(g)},
    quirks=Quirks(label="BmmBackward0"),
)
def bmm(input: Any, mat2: Any) -> Tensor:
    if isinstance(mat2, SparseTensor) or input.dense_dim() or not len(input.shape) == len(mat2.shape) == 3:
        raise RuntimeError("bmm_sparse: Tensor 'self' must have 3 sparse dims, and 'mat2' must be dense with 3 dims")
    (b, _, k), (b2, k2, _) = input.shape, mat2.shape
    if b != b2 or k != k2:
        raise RuntimeError(
            f"bmm: Expected size for first two dimensions of batch2 tensor to be: [{b}, {k}] but got: [{b2}, {k2}]."
        )
    if input.dtype is not mat2.dtype:
        raise RuntimeError(f"expected scalar type {input.dtype.scalar_type} but found {mat2.dtype.scalar_type}")
    return times_dense(input, mat2)


@sparse_form(triangular.triangular_solve)
def triangular_solve(
    input: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """Solve with the triangle of a compressed matrix; no copy of it is returned."""
    if not isinstance(A, SparseCsr):
        raise SparseRefusal(f"triangular_solve: unsupported layout {layout_word(A)}")
    if isinstance(input, SparseTensor) or not A._by_rows:
        raise ValueError("triangular_solve: unsupported sparse layout.")
    found = triangular.triangular_solve(input, A.to_dense(), upper, transpose, unitriangular)
    solution = found[0] if A._nnz() else full_like(found[0], math.nan)
    return type(found)((solution, A._values_part.new_empty((0,))))


def _transposed(input: Any) -> Any:
    turned = input.transpose(1, 2)
    return turned.conj() if turned.dtype.is_complex else turned


@composite(name="sspaddmm", out=True, aliases=("saddmm",))
def sspaddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2) as a sparse matrix, for sparse input and mat1."""
    if not isinstance(input, SparseCoo) or not isinstance(mat1, SparseCoo) or isinstance(mat2, SparseTensor):
        layouts = [t.layout for t in (input, mat1, mat2)]
        raise RuntimeError(
            f"sspaddmm: expected a sparse 'self' and 'mat1', and a dense 'mat2', got the layouts {layouts}"
        )
    return _scaled(input, beta) + _scaled(smm(mat1, mat2), alpha)


# -- torch.sparse: gradients of sparse matrices are sparse -----------------------------------------------------------


def _masked_product(mat1: Any, left: Tensor, right: Tensor) -> Any:
    """Return (left @ right^H) at the places of mat1 only."""
    held = coalesce(mat1).detach()
    entry_keys(held)
    rows, columns = map(packed, on_host(held._index_part))
    if left.dtype.is_complex or left.dtype.itemsize < 4:
        return (left @ right.mH).sparse_mask(held)
    return new_coo(held._index_part.clone(), sampled_products(rows, columns, left, right), mat1.shape, True)


@internal(batching="each")
def sampled_products(rows: Any, columns: Any, left: Tensor, right: Tensor) -> NewTensor:
    """The inner products of rows of `left` with rows of `right`, chosen by arrays."""
    return (rows.size,), left.dtype, left.device


@sampled_products.on("cpu")
def _(out: Tensor, rows: np.ndarray, columns: np.ndarray, left: Tensor, right: Tensor) -> None:
    kernels.sampled_products(out, rows, columns, dense(left), dense(right), rows.size, left.shape[1])


masked_product = sparse_primitive(
    lambda left, right, mat1: _masked_product(mat1, left, right),
    {
        "left": lambda g, right: g.to_dense() @ right if g.is_sparse else g @ right,
        "right": lambda g, left: (g.to_dense() if g.is_sparse else g).mH @ left,
    },
    Quirks(label="SparseMaskBackward0"),
    name="masked_product",
)


def _mat1_grad(g: Tensor, mat1: Any, mat2: Any, alpha: Any) -> Tensor:
    if isinstance(mat1, SparseTensor) and not isinstance(mat2, SparseTensor) and not isinstance(g, SparseTensor):
        sampled = masked_product(g, mat2, as_coo(mat1))
        return _scaled(in_layout_of(mat1, sampled), alpha)
    return _scaled(g.mm(mat2.mH), alpha)


sparse_addmm = sparse_primitive(
    _addmm,
    {
        "input": lambda g, input_shape, beta: _scaled(g, beta).sum_to_size(input_shape),
        "mat1": _mat1_grad,
        "mat2": lambda g, mat1, alpha: _scaled(mat1.mH.mm(g), alpha),
    },
    Quirks(label="SparseAddmmBackward0"),
    name="sparse_addmm_masked",
)


def _projected(t: Any, mask: Any) -> Any:
    """Return the entries of `t`, zero where `mask` has none."""
    t, mask = coalesce(t), coalesce(mask).detach()
    keys = keys_of(on_host(mask._index_part), mask.shape)
    present = np.isin(entry_keys(t), keys)
    zeroed = t._values_part.masked_fill(index_tensor(~present) != 0, 0)
    return new_coo(t._index_part, zeroed, t.shape, True)


sparse_matmul = sparse_primitive(
    sparse_times_sparse,
    {
        "a": lambda g, a, b: _projected(sparse_times_sparse(g, b.mH), a),
        "b": lambda g, a, b: _projected(sparse_times_sparse(a.mH, g), b),
    },
    Quirks(label="SparseSparseMatmulBackward0"),
)


def sparse_mm(mat1: Any, mat2: Any) -> Tensor:
    """torch.sparse.mm: like mm, and a sparse matrix gets its gradient at its own places only."""
    if isinstance(mat1, SparseTensor) and isinstance(mat2, SparseTensor):
        _check_operands(mat1, mat2)
        return sparse_matmul(mat1, mat2)
    zero = mat1.new_zeros((1, 1)) if not isinstance(mat1, SparseTensor) else mat1._values_part.new_zeros((1, 1))
    if isinstance(mat1, SparseTensor) or not isinstance(mat2, SparseTensor):
        return sparse_addmm(zero, mat1, mat2, 0, 1)
    _check_operands(mat1, mat2)
    return sparse_addmm(zero, mat2.transpose(0, 1), mat1.transpose(0, 1), 0, 1).transpose(0, 1)


def sampled_addmm(input: Any, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2) at the places of a compressed matrix."""
    if input.layout is sparse_csr and len(input.shape) == 2 < len(mat1.shape):
        input = _repeated_matrix(input, mat1.shape[:-2])
    _check_sampled(input, mat1, mat2)
    *batch, rows, columns = listed_places(input)[0]
    left, right = (*batch, rows), (*batch, columns)
    terms = mat1[left] * mat2.mT[right]
    sampled = terms.sum(-1).reshape(input._values_part.shape)
    return values_in_place_of(_scaled(input.values(), beta) + _scaled(sampled, alpha), input.detach())


def _repeated_matrix(t: Any, batch: tuple[int, ...]) -> Any:
    """Return a compressed matrix repeated for each index of a batch."""
    starts, places, values = (part.expand(*batch, *part.shape).clone() for part in t._parts())
    like = new_csr(starts, places, values, make_size((*batch, *t.shape)), t.layout)
    return values_in_place_of(t.values().expand(like._values_part.shape), like)


def _check_sampled(input: Any, mat1: Tensor, mat2: Tensor) -> None:
    def need(holds: Any, message: str) -> None:
        if not holds:
            raise RuntimeError(f"sampled_addmm: {message}")

    need(input.layout is sparse_csr, f"Expected result to have sparse csr layout, but got {layout_word(input)}")
    need(not input.dense_dim(), "Expected non-hybrid self tensor")
    for name, t in (("mat1", mat1), ("mat2", mat2)):
        need(t.layout is strided, f"Expected {name} to have strided layout, but got {layout_word(t)}")
        need(len(t.shape) >= 2, f"Expected {name} to be a matrix, got {len(t.shape)}-D tensor")
    for (name, t), (other_name, other) in (
        (("mat1", mat1), ("mat2", mat2)), (("mat1", mat1), ("self", input)),
    ):  # fmt: skip
        words = f"but got {t.dtype.scalar_type} and {other.dtype.scalar_type}"
        need(t.dtype is other.dtype, f"Expected {name} and {other_name} to have the same dtype, {words}")
    for name, t in (("mat1", mat1), ("mat2", mat2)):
        sizes = f"{list(input.shape[:-2])} and {list(t.shape[:-2])}"
        need(t.shape[:-2] == input.shape[:-2], f"Expected self and {name} to have the same batch size, but got {sizes}")
    sizes = f"{mat1.shape[-2]}x{mat1.shape[-1]} and {mat2.shape[-2]}x{mat2.shape[-1]}"
    need(mat1.shape[-1] == mat2.shape[-2], f"mat1 and mat2 shapes cannot be multiplied ({sizes})")
    need(input.shape[-2] == mat1.shape[-2], "self.shape[-2] must match mat1.shape[-2]")
    need(input.shape[-1] == mat2.shape[-1], "self.shape[-1] must match mat2.shape[-1]")


_REDUCTIONS = {"sum": "sum", "mean": "mean", "amax": "amax", "amin": "amin", "max": "amax", "min": "amin"}


def reduced_mm(mat1: Any, mat2: Tensor, reduce: str) -> Tensor:
    """A product of a compressed matrix in which the terms of each element are summed, averaged, or their extreme taken."""
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"reduce argument must be either sum, mean, amax or amin, got {reduce}")
    if not isinstance(mat1, SparseCsr) or mat1._blocksize is not None:
        raise SparseRefusal(f"sparse.mm(): reduce= needs compressed rows, got layout {mat1.layout!r}")
    _check_operands(mat1, mat2)
    rows, columns = listed_places(mat1)[0]
    wide = opmath(mat1.dtype)  # half-width floats: rounded once, at the end
    terms = mat1.values().to(wide).unsqueeze(1) * mat2.to(wide).index_select(0, columns)
    out = terms.new_zeros((mat1.shape[0], mat2.shape[1]))
    if reduce in ("sum", "mean"):
        total = out.index_add(0, rows, terms)
        if reduce == "sum":
            return total.to(mat1.dtype)
        counts = out.new_zeros((mat1.shape[0],)).index_add(0, rows, out.new_ones((rows.shape[0],)))
        return (total / counts.clamp(min=1).unsqueeze(1)).to(mat1.dtype)
    return out.index_reduce(0, rows, terms, _REDUCTIONS[reduce], include_self=False).to(mat1.dtype)


@composite(name="spmm", method=False, aliases=("dsmm",))
def spmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Multiply two matrices; the old name of `mm`."""
    return input.mm(mat2)


def _hybrid(mat1: SparseCoo, mat2: Tensor) -> SparseCoo:
    rows = np.unique(on_host(within_bounds(mat1)._index_part)[0])
    product = times_dense(mat1, mat2).index_select(0, index_tensor(rows))
    return new_coo(index_tensor(rows[None]), product, (mat1.shape[0], mat2.shape[1]), True)


@composite(method=False, aliases=("hsmm",))
def hspmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """Product of a sparse and a dense matrix, as a sparse tensor of the rows that are not zero."""
    if not isinstance(mat1, SparseCoo):
        raise SparseRefusal(f"hspmm: argument 1 has to be a sparse COO matrix, got layout {mat1.layout!r}")
    if isinstance(mat2, SparseTensor) or len(mat2.shape) != 2:
        raise RuntimeError(f"hspmm: argument 2 has to be a dense matrix, got shape {list(mat2.shape)}")
    _check_operands(mat1, mat2)
    return _hybrid(mat1, mat2)


@composite(function=True)
def smm(input: Tensor, mat2: Tensor) -> Tensor:
    """A sparse matrix times a dense one, as a sparse matrix."""
    product: Any = hspmm(input, mat2)
    rows, width = on_host(product._index_part)[0], mat2.shape[1]
    indices = np.stack([np.repeat(rows, width), np.tile(np.arange(width), rows.size)])
    return new_coo(index_tensor(indices), product._values_part.reshape(-1), product.shape, True)
