"""Operators that PyTorch's graphs call by names, or with arguments, that no public function has: copies, views, indexing, sizes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from ...core.tensor import Tensor
from ..creation.filled import zeros
from ..creation.ranges import arange, meshgrid
from ..index.unique import unique, unique_consecutive
from ..linalg.einsum import einsum
from ..linalg.matmul import tensordot
from ..machinery.aten_form import aten_only, aten_parts
from ..pointwise.arithmetic import pow as power
from ..reduce.statistics import std, var
from ..shape.copies import slice_of
from ..shape.dimensions import broadcast_tensors
from ..shape.parts import unfold_backward
from ..signal.spectrogram import stft
from ..sparse.products import sparse_addmm

# -- views and indexing ---------------------------------------------------------------------------------------------------


aten_only("slice.Tensor")(slice_of)


@aten_only("slice_backward")
def _slice_backward(g: Tensor, shape: list[int], dim: int, start: int, end: int, step: int) -> Tensor:
    whole = g.new_zeros(shape)
    slice_of(whole, dim, start, end, step).copy_(g)
    return whole


def _places(indices: list[Any]) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else i for i in indices)


@aten_only("index.Tensor", "index.Tensor_hacked_twin", "_unsafe_index")
def _index(self: Tensor, indices: list[Any]) -> Tensor:
    if not indices:
        raise IndexError("at least one index must be provided")
    return self[_places(indices)]


@aten_only("index_put", "_unsafe_index_put")
def _index_put(self: Tensor, indices: list[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    if all(i is not None for i in indices):
        return self.index_put(tuple(indices), values, accumulate)
    numbers = arange(self.numel(), device=self.device).reshape(self.shape)[_places(indices)]
    return self.reshape(-1).index_put((numbers,), values, accumulate).reshape(self.shape)


def _masked(self: Tensor, mask: Tensor, indices: list[Any]) -> list[Any]:
    """Return the indices with those that are not meant, which may be anywhere, at the first place."""
    return [None if i is None else i.where(mask, 0) for i in indices]


@aten_only("_unsafe_masked_index")
def _masked_index(self: Tensor, mask: Tensor, indices: list[Any], fill: Any) -> Tensor:
    return _index(self, _masked(self, mask, indices)).masked_fill(~mask, fill)


@aten_only("_unsafe_masked_index_put_accumulate")
def _masked_index_put(self: Tensor, mask: Tensor, indices: list[Any], values: Tensor) -> Tensor:
    return _index_put(self, _masked(self, mask, indices), values.masked_fill(~mask, 0), True)


@aten_only("index_put_", "_index_put_impl_")
def _put_in_place(self: Tensor, indices: list[Any], values: Tensor, accumulate: bool = False, *unsafe: Any) -> Tensor:
    if all(i is not None for i in indices):
        return self.index_put_(tuple(indices), values, accumulate)
    return self.copy_(_index_put(self, indices, values, accumulate))


@aten_only("_unsafe_view", "view.default", "_reshape_alias")
def _view(self: Tensor, size: list[int], *strides: Any) -> Tensor:
    return self.reshape(size) if strides else self.view(size)


aten_only("_reshape_alias_copy")(lambda self, size, stride: self.reshape(size).clone())


@aten_only("expand")
def _expand(self: Tensor, size: list[int], *, implicit: bool = False) -> Tensor:
    return self.expand(size)


aten_parts("numpy_T")(lambda aten, self: aten.permute.default(self, list(range(self.dim() - 1, -1, -1))))


@aten_only("numpy_T")
def _reversed(self: Tensor) -> Tensor:
    return self.permute(*range(self.dim() - 1, -1, -1))


for _name, _attribute in (("mT", "mT"), ("mH", "mH"), ("matrix_H", "H")):
    aten_only(_name)(operator.attrgetter(_attribute))
aten_only("sym_size.int")(lambda self, dim: self.size(dim))
aten_only("sym_size.default")(lambda self: list(self.shape))
aten_only("sym_stride.default")(lambda self: list(self.stride()))
aten_only("sym_stride.int")(lambda self, dim: self.stride(dim))
aten_only("sym_numel")(lambda self: self.numel())
aten_only("sym_storage_offset")(lambda self: self.storage_offset())
aten_only("einsum")(lambda equation, tensors, path=None: einsum(equation, *tensors))
aten_only("meshgrid")(lambda tensors, indexing="ij": meshgrid(*tensors, indexing=indexing))
aten_only("broadcast_tensors")(lambda tensors: broadcast_tensors(*tensors))


@aten_only("unfold_backward")
def _unfold_backward(grad_in: Tensor, input_sizes: list[int], dim: int, size: int, step: int) -> Tensor:
    if step <= 0:
        raise ValueError(f"step is {step} but must be > 0")
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    expected = zeros(input_sizes, device="meta").unfold(dim, size, step).shape
    if grad_in.shape != expected:
        raise RuntimeError(
            f"unfold_backward: expected a gradient of shape {list(expected)}, but got {list(grad_in.shape)}"
        )
    return unfold_backward(grad_in, input_sizes, dim, size, step)


# -- copies and dtypes ----------------------------------------------------------------------------------------------------


@aten_only("lift_fresh_copy", "clone.default")
def _copy(self: Tensor, *, memory_format: Any = None) -> Tensor:
    return self.clone() if memory_format is None else self.clone(memory_format=memory_format)


@aten_only("copy.default")
def _copied(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    return self.clone().copy_(src, non_blocking)


@aten_only("lift_fresh", "alias", "lift")
def _same(self: Tensor) -> Tensor:
    return self.view_as(self)


@aten_only("detach_")
def _detach(self: Tensor) -> Tensor:
    return self.detach_() if not self._is_view() else self.detach()


def _format(memory_format: Any) -> dict[str, Any]:
    return {} if memory_format is None else {"memory_format": memory_format}


@aten_only("to.dtype", "to.other")
def _to(self: Tensor, like: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None) -> Tensor:
    return self.to(like, non_blocking, copy, **_format(memory_format))


@aten_only("to.device")
def _to_device(
    self: Tensor, device: Any, dtype: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None
) -> Tensor:
    return self.to(device, dtype, non_blocking, copy, **_format(memory_format))


def _moving(copies: bool) -> Callable[..., Any]:
    def moved(
        self: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
        non_blocking: bool = False, copy: bool = copies, memory_format: Any = None,
    ) -> Tensor:  # fmt: skip
        given = {"non_blocking": non_blocking, "copy": copy, **_format(memory_format)}
        return self.to(device or self.device, dtype or self.dtype, **given)

    return moved


aten_only("to.dtype_layout")(_moving(False))
aten_only("_to_copy")(_moving(True))
aten_only("_pin_memory")(lambda self, device=None: self.pin_memory(device))


# -- checks ---------------------------------------------------------------------------------------------------------------


@aten_only("_assert_tensor_metadata")
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


@aten_only("_assert_async.default")
def _assert_async(self: Tensor) -> None:
    if not self:
        raise RuntimeError("Expected Tensor with single nonzero value, but got zero")


@aten_only("sym_constrain_range", "sym_constrain_range_for_size")
def _constrain_range(size: Any, *, min: int | None = None, max: int | None = None) -> None:
    if (min is not None and size < min) or (max is not None and size > max):
        raise RuntimeError(f"Invalid value range for {size} between [{min}, {max}].")


@aten_only("_assert_scalar")
def _assert_scalar(self: Any, assert_msg: str) -> None:
    if not self:
        raise RuntimeError(assert_msg)


@aten_only("stft.default")
def _stft(self: Tensor, n_fft: int, *args: Any, **kwargs: Any) -> Tensor:
    """Compute stft without padding at the ends, which PyTorch's Python function adds."""
    names = ("hop_length", "win_length", "window", "normalized", "onesided", "return_complex", "align_to_window")
    return stft(self, n_fft, **dict(zip(names, args)), **kwargs, center=False)


# -- values ---------------------------------------------------------------------------------------------------------------


@aten_only("_unique2")
def _unique2(
    self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Any, ...]:
    return _asked(unique(self, sorted, True, True), return_inverse, return_counts)


@aten_only("unique_consecutive")
def _unique_consecutive(
    self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Any, ...]:
    found = unique_consecutive(self, True, True, dim)
    return tuple(found) if dim is not None else _asked(found, return_inverse, return_counts)


def _asked(found: Any, *flags: bool) -> tuple[Any, ...]:
    """Return the unique elements, then inverse and counts, empty where they were not asked for."""
    return found[0], *(f if flag else f.new_empty(0) for f, flag in zip(found[1:], flags))


@aten_only("unique_dim")
def _unique_dim(
    self: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Any, ...]:
    return tuple(unique(self, sorted, True, True, dim=dim))


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    def spread(self: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
        return function(self, dim, correction=1 if correction is None else correction, keepdim=keepdim)

    return spread


aten_only("var.correction")(_spread(var))
aten_only("std.correction")(_spread(std))


@aten_parts("var.dim", "var.default")
def _variance(aten: Any, self: Tensor, dim: Any = None, unbiased: Any = True, keepdim: bool = False) -> Tensor:
    dims, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)
    return aten.var.correction(self, dims, correction=float(unbiased), keepdim=keepdim)


@aten_parts("std.dim", "std.default")
def _deviation(aten: Any, self: Tensor, dim: Any = None, unbiased: Any = True, keepdim: bool = False) -> Tensor:
    dims, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)
    return aten.std.correction(self, dims, correction=float(unbiased), keepdim=keepdim)


aten_parts("std.correction")(lambda aten, *args, **kwargs: aten.sqrt.default(aten.var.correction(*args, **kwargs)))


@aten_parts("rsub.Scalar")
def _subtracted(aten: Any, self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    scaled = self if alpha == 1 else aten.mul.Tensor(self, alpha)
    return aten.sub.Tensor(aten.scalar_tensor.default(other, dtype=self.dtype, device=self.device), scaled)


aten_only("rsub")(lambda self, other, alpha=1: other - self * alpha if alpha != 1 else other - self)
aten_only("pow.Scalar")(power)
aten_only("tensordot.default")(
    lambda self, other, dims_self, dims_other: tensordot(self, other, (dims_self, dims_other))
)
aten_only("_is_all_true")(lambda self: self.all())
aten_only("_is_any_true")(lambda self: self.any())
aten_only("_local_scalar_dense")(lambda self: self.item())
aten_only("_sparse_addmm")(lambda self, mat1, mat2, beta=1, alpha=1: sparse_addmm(self, mat1, mat2, beta, alpha))


@aten_only("_sparse_mm_reduce_impl")
def _sparse_mm_reduce_impl(self: Tensor, other: Tensor, reduce: str) -> Any:
    raise NotImplementedError("aten::_sparse_mm_reduce_impl: use torch.sparse.mm(a, b, reduce)")


# -- random numbers in a new tensor ---------------------------------------------------------------------------------------


for _name in ("uniform", "exponential", "log_normal", "cauchy", "geometric", "normal_functional"):
    _draw = functools.partial(
        lambda name, self, *rest, **options: getattr(self.clone(), name)(*rest, **options), f"{_name.split('_f')[0]}_"
    )
    aten_only(_name)(_draw)
