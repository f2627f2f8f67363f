"""Sparse tensors: headers over an index and the values at it, instead of over strided memory.

They are tensors to users and to autograd, but have no address, strides or offset. Code for strided memory that reads one of these raises
`SparseOperand` before it can touch anything. The operator's public face catches that and asks for the sparse form of the operator
(`ops.sparse_dispatch`), so strided calls pay nothing for the existence of sparse tensors."""

from __future__ import annotations

from typing import Any, NoReturn

from . import dtype as dt
from . import naming
from .absent import unreadable
from .dtype import dtype
from .graph import INFERENCE, grad_mode, inference_threads
from .layout import layout, sparse_bsc, sparse_bsr, sparse_coo, sparse_csr
from .overrides import disabled_torch_function
from .settings import may_change
from .size import Size, make_size
from .tensor import Tensor, empty

_new_object = object.__new__


@may_change
class Invariants:
    """Switch of the checks of indices when a sparse tensor is made (torch.sparse.check_sparse_tensor_invariants)."""

    checked = False


class SparseOperand(NotImplementedError):
    """Raised when code for strided memory reads a sparse tensor. `reason` says why an operator refuses one: an operator composed of it may
    have a sparse form nevertheless."""

    reason: str | None = None


class SparseRefusal(SparseOperand):
    """Raised by an operator that has no sparse form, or not for these arguments. A `final` refusal keeps its message; else an operator
    composed of this one refuses in its own name."""

    def __init__(self, message: str, final: bool = True):
        super().__init__(message)
        self.reason = message if final else None


SparseRefusal.__name__ = SparseRefusal.__qualname__ = "NotImplementedError"  # what a traceback shows
SparseRefusal.__module__ = "builtins"


class SparseStorage:
    """A placeholder in the storage slot of a sparse tensor: a version counter, and no memory."""

    __slots__ = ("version", "watched", "last_write")

    version: int
    watched: bool
    last_write: tuple[Any, ...] | None

    def __init__(self) -> None:
        self.last_write = None
        if inference_threads and grad_mode.inference:
            self.version, self.watched = INFERENCE, True
        else:
            self.version, self.watched = 0, False

    def __getattr__(self, name: str) -> NoReturn:
        raise SparseOperand("Cannot access storage of SparseTensorImpl")


class SparseTensor(Tensor):
    """The base of all sparse layouts: `_values_part` holds the values."""

    __slots__ = ("_values_part",)
    __torch_function__ = disabled_torch_function
    _prints_as_tensor = True

    _values_part: Tensor
    layout: layout

    _strides, _offset, _contig = unreadable(
        lambda t, what: SparseOperand(f"a tensor with layout {t.layout!r} has no {what}")
    )

    def _array(self) -> Any:
        raise SparseOperand(f"a tensor with layout {self.layout!r} is not one array")

    def _view(self, shape: Any, strides: tuple[int, ...], offset: int) -> Tensor:
        raise SparseOperand(f"a tensor with layout {self.layout!r} has no strided views")

    def _rebuild_view_history(self) -> None:
        """Do nothing: the view is not part of the history of its base, and was made before that had one."""

    def _set_header(self, shape: tuple[int, ...], d: dtype, where: Any) -> None:
        if where.type not in ("cpu", "meta", "cuda"):
            raise NotImplementedError(f"sparse tensors on device {where} are not implemented")
        naming.above("ops.late")  # the operators' forms for sparse tensors
        self._storage = SparseStorage()  # type: ignore[assignment]
        self.shape = shape if type(shape) is Size else make_size(shape)
        self.dtype, self.device = d, where
        self._autograd = self._base = None

    def _parts(self) -> Any:
        """Return the strided tensors this one is made of, values last."""
        raise NotImplementedError

    def _bare_alias(self) -> Tensor:
        t: Any = _new_object(type(self))
        t._adopt(self)
        t._autograd = t._base = None
        return t

    def _adopt(self, other: Tensor) -> None:
        if type(other) is not type(self):
            raise RuntimeError(
                "Attempted to set a tensor with the data of another layout: "
                f"{self.layout!r} here, {other.layout!r} given"
            )
        self._storage, self.shape, self.dtype, self.device = other._storage, other.shape, other.dtype, other.device
        self._take_parts(other)

    def _take_parts(self, other: Any) -> None:
        """Refer to the same index and values as `other`."""
        raise NotImplementedError

    # -- what users may ask of the memory -----------------------------------------------------------------------------
    def data_ptr(self) -> int:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    const_data_ptr = data_ptr

    def storage_offset(self) -> int:
        return 0

    def untyped_storage(self) -> Any:
        raise NotImplementedError("Cannot access storage of SparseTensorImpl")

    storage = storage_type = _typed_storage = share_memory_ = is_shared = untyped_storage

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return False

    def is_set_to(self, other: Any) -> bool:
        return self is other

    @property
    def nbytes(self) -> int:
        raise RuntimeError(
            "nbytes is not defined for sparse tensors.  If you want the size of the constituent tensors, add the nbytes of"
            " the indices and values.  If you want the size of the  equivalent dense tensor, multiply numel() by"
            " element_size()"
        )


class SparseCoo(SparseTensor):
    """Coordinates: column k of `_index_part` (sparse dimensions, entries) is the place of row k of the values.

    A place may occur several times (its values add up) unless the tensor is coalesced: sorted, each place once."""

    __slots__ = ("_index_part", "_is_coalesced", "_in_bounds")

    _index_part: Tensor
    _is_coalesced: bool
    _in_bounds: bool  # whether all indices are known to be inside the shape
    layout = sparse_coo
    is_sparse = True
    _sparse_dims = property(lambda self: self._index_part.shape[0])

    def _parts(self) -> Any:
        return self._index_part, self._values_part

    def _take_parts(self, other: SparseCoo) -> None:
        self._index_part, self._values_part = other._index_part, other._values_part
        self._is_coalesced, self._in_bounds = other._is_coalesced, other._in_bounds

    def stride(self, dim: Any = None) -> Any:
        return (0,) * len(self.shape) if dim is None else 0


class SparseCsr(SparseTensor):
    """Compressed rows (or, in CSC layout, columns) of a batch of matrices: the entries of line i are those from compressed[..., i] to
    compressed[..., i + 1], `_plain_part` is their position in the line. The index was checked when it was made. In the layouts BSR and BSC
    lines are lines of blocks, and an entry is a block. Values are (*batch, entries of one matrix, *block, *dense sizes)."""

    __slots__ = ("_compressed_part", "_plain_part", "layout")

    _compressed_part: Tensor
    _plain_part: Tensor
    is_sparse_csr = property(lambda self: self.layout is sparse_csr)
    _by_rows = property(lambda self: self.layout in (sparse_csr, sparse_bsr))
    _batch_dims = property(lambda self: len(self._compressed_part.shape) - 1)
    _sparse_dims = property(lambda self: len(self._compressed_part.shape) + 1)  # those of the batch and of its matrices

    @property
    def _blocksize(self) -> tuple[int, int] | None:
        """Return the size of the blocks; None if entries are single elements."""
        if self.layout not in (sparse_bsr, sparse_bsc):
            return None
        after = len(self._compressed_part.shape)
        return self._values_part.shape[after], self._values_part.shape[after + 1]

    def _parts(self) -> Any:
        return self._compressed_part, self._plain_part, self._values_part

    def _take_parts(self, other: SparseCsr) -> None:
        self._compressed_part, self._plain_part = other._compressed_part, other._plain_part
        self._values_part, self.layout = other._values_part, other.layout

    def _refuse(self, what: str) -> NoReturn:
        raise RuntimeError(f"Sparse {repr(self.layout)[-3:].upper()} tensors do not have {what}")

    def stride(self, dim: Any = None) -> Any:
        self._refuse("strides")

    def is_contiguous(self, memory_format: Any = None) -> bool:
        self._refuse("is_contiguous")

    @property
    def nbytes(self) -> int:
        return self.numel() * self.dtype.itemsize

    def untyped_storage(self) -> Any:
        raise NotImplementedError("Cannot access storage of SparseCsrTensorImpl")

    storage = storage_type = _typed_storage = share_memory_ = is_shared = untyped_storage


def new_coo(
    indices: Tensor, values: Tensor, shape: tuple[int, ...], coalesced: bool = False, in_bounds: bool = True
) -> SparseCoo:
    """Make a COO tensor without checks: the internal constructor."""
    t = _new_object(SparseCoo)
    t._set_header(shape, values.dtype, values.device)
    t._index_part, t._values_part = indices, values
    t._is_coalesced, t._in_bounds = coalesced, in_bounds
    return t


def new_csr(
    compressed: Tensor, plain: Tensor, values: Tensor, shape: tuple[int, ...], kind: layout = sparse_csr
) -> SparseCsr:
    """Make a compressed sparse tensor without checks: the internal constructor."""
    t = _new_object(SparseCsr)
    t._set_header(shape, values.dtype, values.device)
    t._compressed_part, t._plain_part, t._values_part = compressed, plain, values
    t.layout = kind
    return t


def empty_coo(shape: tuple[int, ...], d: dtype, sparse_dims: int | None = None, where: Any = None) -> SparseCoo:
    """Return a sparse tensor without entries."""
    count = len(shape) if sparse_dims is None else sparse_dims
    place = () if where is None else (where,)
    indices = empty((count, 0), dt.int64, *place)
    return new_coo(indices, empty((0, *shape[count:]), d, *place), shape, coalesced=True)
