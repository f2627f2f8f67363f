"""What runs for each of PyTorch's operators.

Most are found by name: `aten::linalg_norm` is `linalg.norm`, `aten::add_` is `Tensor.add_`, `aten::relu` is `relu`; their arguments are
the same. The others are below."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import flambeau

from ...core.tensor import Tensor
from ...ops import OPS, namespace
from ...ops.machinery.record import Op
from ...ops.pointwise.foreach import FOREACH
from ...ops.sparse import products
from . import backward_calls, layer_calls  # noqa: F401  they add to the table
from .specials import SPECIAL, F, special


def special_call(name: str, overload: str) -> Callable | None:
    """What runs for an overload ("default" is one, too) that is not the function of its name."""
    return SPECIAL.get(f"{name}.{overload}") or SPECIAL.get(name)


@functools.cache
def _function(name: str, overload: str) -> Callable:
    found = special_call(name, overload)
    if found is not None:
        return found
    if name in FOREACH:
        return FOREACH[name]
    for space in ("linalg", "fft", "special"):
        if name.startswith(f"{space}_") and name[len(space) + 1 :] in namespace(space):
            return namespace(space)[name[len(space) + 1 :]]
    found = namespace("torch").get(name) or getattr(Tensor, name, None) or namespace("nn.functional").get(name)
    if found is None and name.endswith("_") and name[:-1] in namespace("nn.functional"):
        return functools.partial(namespace("nn.functional")[name[:-1]], inplace=True)
    if found is None and name.startswith("_"):
        found = getattr(flambeau, name, None)
    if found is None:
        raise NotImplementedError(f"the operator aten::{name}.{overload} is not in Flambeau yet")
    return found


@functools.cache
def _functions(space: str) -> dict[str, Any]:
    return namespace(space)


def record_of(name: str) -> Op | None:
    """The record of the operator that PyTorch calls `aten::name`, where there is one."""
    for space, prefix in (("torch", ""), ("linalg", "linalg_"), ("fft", "fft_"), ("special", "special_")):
        found = _functions(space).get(name[len(prefix) :]) if name.startswith(prefix) else None
        if found is not None and hasattr(found, "op"):
            return found.op
    if name in OPS:
        return OPS[name]  # a method
    return OPS.get(f"nn.functional.{name}")


def run(overload: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Call what the overload means."""
    given = {k: v for k, v in kwargs.items() if not (k == "pin_memory" and not v)}
    result = _function(overload._overloadpacket.__name__, overload._overloadname)(*args, **given)
    return list(result) if overload._schema.returns and "[]" in overload._schema.returns[0].type else result


# -- views and indexing ---------------------------------------------------------------------------------------------------


@special("slice.Tensor")
def _slice(self: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    rank = self.dim()
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    end = None if end is None or end >= 2**62 else end
    return self[(slice(None),) * (dim % rank) + (slice(start, end, step),)]


def _places(indices: list) -> tuple:
    return tuple(slice(None) if i is None else i for i in indices)


@special("index.Tensor", "index.Tensor_hacked_twin")
def _index(self: Tensor, indices: list) -> Tensor:
    return self[_places(indices)]


@special("index_put")
def _index_put(self: Tensor, indices: list, values: Tensor, accumulate: bool = False) -> Tensor:
    if all(i is not None for i in indices):
        return self.index_put(tuple(indices), values, accumulate)
    result = self.clone()
    result[_places(indices)] = values
    return result


@special("index_put_", "_index_put_impl_")
def _index_put_in_place(
    self: Tensor, indices: list, values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    if all(i is not None for i in indices):
        return self.index_put_(tuple(indices), values, accumulate)
    return self.copy_(_index_put(self, indices, values, accumulate))


@special("_unsafe_view", "view.default", "_reshape_alias")
def _view(self: Tensor, size: list[int], *strides: Any) -> Tensor:
    return self.reshape(size) if strides else self.view(size)


SPECIAL["expand"] = lambda self, size, implicit=False: self.expand(size)
SPECIAL["im2col"], SPECIAL["col2im"] = F.unfold, F.fold
SPECIAL["sym_size.int"] = lambda self, dim: self.size(dim)
SPECIAL["sym_size.default"] = lambda self: list(self.shape)
SPECIAL["sym_stride.int"] = lambda self, dim: self.stride(dim)
SPECIAL["sym_numel"] = lambda self: self.numel()
SPECIAL["sym_storage_offset"] = lambda self: self.storage_offset()
SPECIAL["split.Tensor"] = SPECIAL["split.sizes"] = SPECIAL["split_with_sizes"] = flambeau.split
SPECIAL["einsum"] = lambda equation, tensors, path=None: flambeau.einsum(equation, *tensors)
SPECIAL["meshgrid"] = lambda tensors, indexing="ij": flambeau.meshgrid(*tensors, indexing=indexing)
SPECIAL["broadcast_tensors"] = lambda tensors: flambeau.broadcast_tensors(*tensors)
SPECIAL["numpy_T"] = lambda self: self.permute(*range(self.dim() - 1, -1, -1))
for _name, _attribute in (("mT", "mT"), ("mH", "mH"), ("matrix_H", "H")):
    SPECIAL[_name] = operator.attrgetter(_attribute)


# -- copies and dtypes ----------------------------------------------------------------------------------------------------


@special("lift_fresh_copy", "clone.default")
def _copy(self: Tensor, *, memory_format: Any = None) -> Tensor:
    return self.clone() if memory_format is None else self.clone(memory_format=memory_format)


@special("lift_fresh", "alias", "lift")
def _same(self: Tensor) -> Tensor:
    return self.view_as(self)


@special("detach_")
def _detach(self: Tensor) -> Tensor:
    return self.detach_() if not self._is_view() else self.detach()


@special("to.dtype", "to.other")
def _to(self: Tensor, like: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None) -> Tensor:
    return self.to(like, non_blocking, copy, **_format(memory_format))


@special("to.device")
def _to_device(
    self: Tensor, device: Any, dtype: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None
) -> Tensor:
    return self.to(device, dtype, non_blocking, copy, **_format(memory_format))


def _moving(copies: bool) -> Callable:
    def moved(
        self: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
        non_blocking: bool = False, copy: bool = copies, memory_format: Any = None,
    ) -> Tensor:  # fmt: skip
        given = {"non_blocking": non_blocking, "copy": copy, **_format(memory_format)}
        return self.to(device or self.device, dtype or self.dtype, **given)

    return moved


SPECIAL["to.dtype_layout"], SPECIAL["_to_copy"] = _moving(False), _moving(True)
SPECIAL["_pin_memory"] = lambda self, device=None: self.pin_memory(device)
SPECIAL["_sparse_addmm"] = lambda self, mat1, mat2, beta=1, alpha=1: products.sparse_addmm(
    self, mat1, mat2, beta, alpha
)


@special("_sparse_mm_reduce_impl")
def _sparse_mm_reduce_impl(self: Tensor, other: Tensor, reduce: str) -> Any:
    raise NotImplementedError("aten::_sparse_mm_reduce_impl: use torch.sparse.mm(a, b, reduce)")


def _format(memory_format: Any) -> dict[str, Any]:
    return {} if memory_format is None else {"memory_format": memory_format}


@special("_assert_tensor_metadata")
def _assert_tensor_metadata(
    a: Tensor, size: Any = None, stride: Any = None, dtype: Any = None, *, device: Any = None, layout: Any = None
) -> None:
    checks = (
        ("shape", size, list(a.shape)),
        ("dtype", dtype, a.dtype),
        ("device", device, a.device),
        ("layout", layout, a.layout),
    )
    for name, wanted, found in checks:
        if wanted is not None and wanted != found:
            raise RuntimeError(f"Tensor {name} mismatch! Expected: {wanted}, Got: {found}")


@special("_assert_scalar")
def _assert_scalar(self: Any, assert_msg: str) -> None:
    if not self:
        raise RuntimeError(assert_msg)


@special("scalar_tensor")
def _scalar_tensor(s: Any, **options: Any) -> Tensor:
    return flambeau.tensor(s, **{k: v for k, v in options.items() if k in ("dtype", "device") and v is not None})


@special("_unique2")
def _unique2(self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> tuple:
    found = flambeau.unique(self, sorted, True, True)
    return found[0], *(f if flag else f.new_empty(0) for f, flag in zip(found[1:], (return_inverse, return_counts)))


@special("unique_dim")
def _unique_dim(
    self: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple:
    return tuple(flambeau.unique(self, sorted, True, True, dim=dim))


# -- numbers --------------------------------------------------------------------------------------------------------------

SPECIAL["rsub"] = lambda self, other, alpha=1: other - self * alpha if alpha != 1 else other - self
SPECIAL["pow.Scalar"] = flambeau.pow
SPECIAL["_local_scalar_dense"] = lambda self: self.item()


def _spread(name: str) -> Callable:
    def spread(self: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
        return getattr(flambeau, name)(self, dim, correction=1 if correction is None else correction, keepdim=keepdim)

    return spread


for _name in ("var", "std"):
    SPECIAL[f"{_name}.correction"] = _spread(_name)
