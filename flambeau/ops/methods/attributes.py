"""Attributes of tensors that need no computation: sizes, strides, layout, type."""

from __future__ import annotations

import warnings
from typing import Any

from ...core.device import cpu
from ...core.dtype import dtype
from ...core.graph import INFERENCE
from ...core.layout import (
    channels_last,
    channels_last_3d,
    dimension_order,
    is_channels_last,
    memory_format,
    strided,
    wrap_dim,
)
from ...core.promotion import can_cast as can_cast_dtypes
from ...core.promotion import promote_types as promote
from ...core.promotion import result_dtype
from ...core.size import Size
from ...core.storage import pinned_storage
from ...core.tensor import Tensor, contiguous_strides, new_tensor, numel_of
from ...core.typed_storage import TypedStorage
from ..machinery.arguments import as_dtype, need_tensor
from ..machinery.declare import composite
from ..machinery.formula import as_operand
from ..machinery.quirks import Quirks
from ..shape.dimensions import permute_dims
from .names import dimension_called


def size(self: Tensor, dim: Any = None) -> Size | int:
    """The shape, or the size of one dimension."""
    if dim is None:
        return self.shape
    if type(dim) is str:
        dim = dimension_called(dim, self)
    return self.shape[wrap_dim(dim, len(self.shape), allow_scalar=False)]


def stride(self: Tensor, dim: Any = None) -> tuple[int, ...] | int:
    """The distance between neighbours in memory, in elements: for all dimensions or one."""
    if dim is None:
        return self._strides
    if type(dim) is str:
        dim = dimension_called(dim, self)
    return self._strides[wrap_dim(dim, len(self.shape), allow_scalar=False)]


def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """Dimensions from the outermost to the innermost in memory. With `ambiguity_check`, which may list possible memory formats, an order that
    the strides do not determine raises."""
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not isinstance(ambiguity_check, (bool, list)) or not all(isinstance(f, memory_format) for f in formats):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    alike = len(set(self._strides)) < len(self._strides) or 0 in self._strides
    undecided = alike or 1 in self.shape
    if ambiguity_check is not False and undecided:
        fitting = [f for f in formats if not _impossible(self, f) and self.is_contiguous(memory_format=f)]
        one_format = self._contig is not is_channels_last(self.shape, self._strides)
        if len(fitting) != 1 or (alike and not one_format):
            raise RuntimeError(
                "The tensor does not have unique dim order, or cannot map to exact one of the given memory formats."
            )
    return tuple(reversed(dimension_order(self.shape, [self._strides])))


def _impossible(t: Tensor, wanted: memory_format) -> bool:
    """Return whether a memory format is for tensors with another number of dimensions."""
    return len(t.shape) != {channels_last: 4, channels_last_3d: 5}.get(wanted, len(t.shape))


def type_string(self: Tensor) -> str:
    """Return the legacy type's name, as in "torch.FloatTensor"."""
    prefix = "torch.cuda." if self.device.type == "cuda" else "torch."
    if self.is_sparse:
        prefix += "sparse."
    return f"{prefix}{self.dtype.scalar_type}Tensor"


def reversed_dims(self: Tensor) -> Tensor:
    """Transpose of a matrix: a view with the dimensions in reverse order."""
    n = len(self.shape)
    if n not in (0, 2):
        warnings.warn(
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will"
            " throw an error in a future release. Consider `x.mT` to transpose batches of matrices or"
            " `x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor.",
            UserWarning,
            stacklevel=2,
        )
    return permute_dims(self, tuple(range(n - 1, -1, -1)))


def matrix_transpose(self: Tensor) -> Tensor:
    """Transposes of a batch of matrices: a view with the last two dimensions exchanged."""
    if len(self.shape) == 0:
        return self
    if len(self.shape) < 2:
        raise RuntimeError(
            f"tensor.mT is only supported on matrices or batches of matrices. Got {len(self.shape)}-D tensor."
        )
    return self.transpose(-2, -1)


def conjugate_transpose(self: Tensor) -> Tensor:
    """Conjugate transpose of a matrix."""
    n = len(self.shape)
    if n not in (0, 2):
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {n}-D tensor.")
    return self if n == 0 else adjoint_of(self)


def adjoint_of(self: Tensor) -> Tensor:
    flipped = self.transpose(-2, -1)
    return flipped.conj() if self.dtype.is_complex else flipped


def batch_adjoint(self: Tensor) -> Tensor:
    """Conjugate transposes of a batch of matrices."""
    n = len(self.shape)
    if n == 0:
        return self
    if n < 2:
        raise RuntimeError(f"tensor.mH is only supported on matrices or batches of matrices. Got {n}-D tensor.")
    return adjoint_of(self)


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy in page-locked host memory, for copies to the accelerator; the tensor itself if it is pinned."""
    if not self.is_cpu:
        raise RuntimeError(
            f"cannot pin 'torch.{self.device.type}.{type(self).__name__}' only dense CPU tensors can be pinned"
        )
    if self._storage.is_pinned():
        return self
    dense = self.contiguous()
    nbytes = dense.numel() * dense.dtype.itemsize
    fresh = new_tensor(pinned_storage(nbytes), dense.shape, contiguous_strides(dense.shape), 0, dense.dtype, cpu, True)
    return fresh.copy_(dense.detach())


def share_memory_(self: Tensor) -> Tensor:
    """Move the storage to memory that can be shared with other processes."""
    self._storage.share_memory_()
    return self


def _giving(result: str, function: Any) -> Any:
    function.__annotations__["return"] = result
    return function


_METHODS = {
    "size": size, "stride": stride, "dim_order": dim_order,
    "const_data_ptr": Tensor.data_ptr, "is_distributed": _giving("bool", lambda self: False), "pin_memory": pin_memory, "share_memory_": share_memory_,
    "nelement": Tensor.numel, "ndimension": Tensor.dim,
    "is_pinned": _giving("bool", lambda self, device=None: self._storage.is_pinned()),
    "is_shared": _giving("bool", lambda self: self._storage.is_shared()),
    "is_set_to": _giving("bool", lambda self, other: (
        self._storage is other._storage and self.shape == other.shape and self._strides == other._strides
        and self._offset == other._offset
    )),
    "storage": _giving("TypedStorage", lambda self: TypedStorage(self._storage, self.dtype)),
    "_typed_storage": _giving("TypedStorage", lambda self: TypedStorage(self._storage, self.dtype)),
    "_is_view": _giving("bool", lambda self: self._base is not None),
    "dense_dim": _giving("int", lambda self: len(self.shape)),
    "sparse_dim": _giving("int", lambda self: 0),
}  # fmt: skip


def _is_on(kind: str) -> Any:
    return _giving("bool", lambda self: self.device.type == kind)


_PROPERTIES = {
    "T": reversed_dims, "mT": matrix_transpose, "H": conjugate_transpose, "mH": batch_adjoint,
    **{f"is_{kind}": _is_on(kind) for kind in ("cpu", "cuda", "meta")},
    "layout": _giving("layout", lambda self: strided),
    "name": _giving("None", lambda self: None),
    "volatile": _giving("bool", lambda self: False),
}  # fmt: skip


_WORDS = {
    "layout": "Layout of the elements in memory, such as `torch.strided`.",
    "name": "Name of the tensor: None, kept for programs that ask.",
    "volatile": "False: `no_grad` has taken its place.",
}
# Kinds of tensors and devices that do not exist here.
_ABSENT = (
    "is_sparse", "is_sparse_csr", "is_quantized", "is_mkldnn", "is_nested", "is_mps", "is_xpu", "is_xla", "is_hpu",
    "is_ipu", "is_maia", "is_mtia", "is_vulkan",
)  # fmt: skip


def bind_attributes() -> None:
    for name, method in _METHODS.items():
        if name not in Tensor.__dict__:
            setattr(Tensor, name, method)
    for name, getter in {**_PROPERTIES, **dict.fromkeys(_ABSENT, _giving("bool", lambda self: False))}.items():
        if name not in Tensor.__dict__:
            kind = name.removeprefix("is_")
            told = getter.__doc__ or (
                f"Whether this is a tensor of the kind or device {kind}." if kind != name else _WORDS[name]
            )
            setattr(Tensor, name, property(getter, doc=told))


bind_attributes()


def _check_tensor(value: Any, name: str) -> Tensor:
    need_tensor(name, value)
    return value


@composite(describes=True)
def is_floating_point(input: Tensor) -> bool:
    """Return whether the dtype is a floating-point type."""
    return _check_tensor(input, "is_floating_point").dtype.is_floating_point


@composite(describes=True)
def is_complex(input: Tensor) -> bool:
    """Return whether the dtype is complex."""
    return _check_tensor(input, "is_complex").dtype.is_complex


@composite
def is_signed(input: Tensor) -> bool:
    """Return whether the dtype holds negative numbers."""
    return _check_tensor(input, "is_signed").dtype.is_signed


@composite
def is_conj(input: Tensor) -> bool:
    """Return whether a conjugation is pending; here it is always done at once."""
    _check_tensor(input, "is_conj")
    return False


@composite
def is_neg(input: Tensor) -> bool:
    """Return whether a negation is pending; here it is always done at once."""
    _check_tensor(input, "is_neg")
    return False


@composite
def is_inference(input: Tensor) -> bool:
    """Return whether the tensor was made in inference mode."""
    return input._storage.version >= INFERENCE


@composite(tells="boolean")
def is_nonzero(input: Tensor) -> bool:
    """Return whether the only element is not zero."""
    return bool(_check_tensor(input, "is_nonzero"))


@composite
def get_device(input: Tensor) -> int:
    """The index of the device; -1 for the CPU and meta."""
    return -1 if input.device.index is None else input.device.index


@composite
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Return whether the shapes are equal."""
    return input.shape == other.shape


@composite(method=False, describes=True)
def numel(input: Tensor) -> int:
    """Return the number of elements."""
    return numel_of(_check_tensor(input, "numel").shape)


@composite(method=False, describes=True, quirks=Quirks(unasked=True))
def is_tensor(obj: Any) -> bool:
    """Return whether `obj` is a tensor."""
    return isinstance(obj, Tensor)


@composite(method=False, describes=True)
def result_type(tensor1: Any, tensor2: Any) -> dtype:
    """The dtype of an arithmetic operation on these two (tensors or numbers)."""
    return result_dtype((as_operand(tensor1, "result_type", 0), as_operand(tensor2, "result_type", 1)))


@composite(method=False)
def promote_types(type1: Any, type2: Any) -> dtype:
    """The smallest dtype that holds both."""
    if type1 is type2 and isinstance(type1, dtype):
        return type1
    return promote(as_dtype(type1, "promote_types"), as_dtype(type2, "promote_types"))


@composite(method=False, describes=True)
def can_cast(from_: Any, to: Any) -> bool:
    """Return whether type promotion allows storing the first dtype in the second."""
    return can_cast_dtypes(as_dtype(from_, "can_cast"), as_dtype(to, "can_cast"))
