"""Methods of sparse tensors that replace the strided ones: those that need no memory, and Python's."""

from __future__ import annotations

import copy
from typing import Any

from ...core import printing
from ...core.device import default_device
from ...core.promotion import get_default_dtype
from ...core.sparse import SparseCoo, SparseCsr, SparseRefusal, SparseTensor, new_coo, new_csr
from ...core.tensor import Tensor
from ..machinery.memory import values_on_host
from ..machinery.sparse_dispatch import sparse_form
from ..methods import per_element, python_protocol
from ..methods.python_protocol import rebuild_subclass
from ..shape import header_changes
from .arithmetic import become
from .conversion import as_coo
from .coo import coo_to_dense, layout_word, rebuilt, sparse_coo_tensor
from .shape import getitem
from .zero_filled import zeros


def to_dense(self: Any, dtype: Any = None, *, masked_grad: Any = None) -> Tensor:
    """The strided tensor with the same elements."""
    if dtype is not None:
        raise RuntimeError("dtype argument is not supported by sparse_to_dense")
    return coo_to_dense(as_coo(self), masked_grad)


def sparse_dim(self: Any) -> int:
    return self._sparse_dims if isinstance(self, SparseCoo) else 2


def dense_dim(self: Any) -> int:
    return len(self.shape) - self._sparse_dims


def new_zeros(self: Any, *size: Any, **options: Any) -> Tensor:
    given = {"dtype": self.dtype, "device": self.device, "layout": self.layout, **options}
    return zeros(*size, **given)


def new(self: Any, *args: Any, device: Any = None) -> Tensor:
    """A tensor of the same dtype and layout, without entries or, in coordinate layout, of indices and values."""
    options = {"dtype": self.dtype, "device": device or self.device}
    if isinstance(self, SparseCoo) and args and isinstance(args[0], Tensor):
        return sparse_coo_tensor(*args, **options)
    return zeros(*(args or (0,)), layout=self.layout, **options)


def _refuse_fill(self: Any, *size: Any, **options: Any) -> Tensor:
    raise NotImplementedError(
        "Could not run 'aten::fill_' with arguments from the 'SparseCPU' backend: a sparse tensor cannot be full of a value"
    )


def get_data(self: Any) -> Tensor:
    """Return the same entries outside autograd."""
    t = self._bare_alias()
    t._storage = type(self._storage)()
    return t


def set_data(self: Any, value: Tensor) -> None:
    self._adopt(value)


# -- Python ------------------------------------------------------------------------------------------------------------


def text(self: Any, *, tensor_contents: str | None = None) -> str:
    names: tuple[str, ...] = ("indices", "values")
    if isinstance(self, SparseCsr):
        rows, columns = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")
        names = rows if self._by_rows else columns
    grad_fn = self.grad_fn
    meta = self.device.type == "meta"
    components = [
        printing.Component(n, None if meta else values_on_host(p), p.dtype, p.shape)
        for n, p in zip(names, self._parts())
    ]
    return printing.sparse_repr(
        components,
        layout=repr(self.layout),
        size=self.shape,
        nnz=None if meta else self._nnz(),
        default_float_dtype=get_default_dtype(),
        requires_grad=self.requires_grad,
        grad_fn_name=None if grad_fn is None else grad_fn.name(),
        device=None if self.device is default_device() else str(self.device),
        prefix="Parameter containing:\ntensor(" if getattr(self, "_is_param", False) else "tensor(",
    )


def rebuild_sparse(kind: Any, parts: Any, shape: tuple[int, ...], coalesced: Any, requires_grad: bool) -> Tensor:
    """Rebuild a sparse tensor from its pickled parts."""
    t: Any
    if len(parts) == 3:
        compressed, plain, values = parts
        t = new_csr(compressed, plain, values, shape, kind)
    else:
        index, values = parts
        t = new_coo(index, values, shape, bool(coalesced), False)
    if requires_grad:
        t.requires_grad = True
    return t


def reduce_ex(self: Any, protocol: int) -> tuple[Any, ...]:
    if self.requires_grad and self.grad_fn is not None:
        raise RuntimeError("cannot pickle a tensor that is not a graph leaf: use tensor.detach() first")
    coalesced = self._is_coalesced if isinstance(self, SparseCoo) else None
    args = (self.layout, self._parts(), tuple(self.shape), coalesced, self.requires_grad)
    if not self.__dict__:
        return (rebuild_sparse, args)
    return (rebuild_subclass, (rebuild_sparse, type(self), args, dict(self.__dict__)))


def shallow_copy(self: Any) -> Tensor:
    t = self._bare_alias()
    if self.requires_grad:
        t.requires_grad = True
    t.__dict__.update(self.__dict__)
    return t


def deep_copy(self: Any, memo: dict[int, Any]) -> Tensor:
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
        )
    t = rebuilt(self, [copy.deepcopy(p, memo) for p in self._parts()])
    if self.requires_grad:
        t.requires_grad = True
    if self.grad is not None:
        t._ensure_autograd().grad = copy.deepcopy(self.grad, memo)
    memo[id(self)] = t
    t.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return t


def _no_numpy(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise TypeError(f"can't convert {layout_word(self)} layout tensor to numpy. Use Tensor.to_dense() first.")


def _no_export(self: Any, **kwargs: Any) -> Any:
    raise BufferError("Can't export tensors with layout other than torch.strided")


@sparse_form(python_protocol.tolist, per_element.apply_, per_element.map_)
def _no_elements(self: Any, *args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")


@sparse_form(header_changes.t_)
def t_(self: Any) -> Tensor:
    return become(self, self.t(), "t_")


@sparse_form(header_changes.transpose_)
def transpose_(self: Any, dim0: int, dim1: int) -> Tensor:
    return become(self, self.transpose(dim0, dim1), "transpose_")


def _no_assignment(self: Any, key: Any, value: Any) -> None:
    raise TypeError("Cannot assign to a sparse tensor")


def contiguous(self: Any, memory_format: Any = None) -> Tensor:
    raise SparseRefusal("unsupported memory format option Contiguous")


_METHODS: dict[str, Any] = {
    "to_dense": to_dense, "sparse_dim": sparse_dim, "dense_dim": dense_dim, "new": new, "new_zeros": new_zeros, "new_empty": new_zeros,
    "new_ones": _refuse_fill, "new_full": _refuse_fill, "numpy": _no_numpy, "contiguous": contiguous, "dim_order": _no_elements,
    "data": property(get_data, set_data), "__repr__": text, "__array__": _no_numpy, "__dlpack__": _no_export,
    "__reduce_ex__": reduce_ex, "__copy__": shallow_copy, "__deepcopy__": deep_copy, "__getitem__": getitem, "__setitem__": _no_assignment,
}  # fmt: skip

for _name, _method in _METHODS.items():
    setattr(SparseTensor, _name, _method)
