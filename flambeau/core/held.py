"""Tensors that hold their elements in another tensor, their *value*: the base of the oneDNN layout and of nested tensors.

They are tensors to users and to autograd, but have no strides or address of their own: code for strided memory that reads one of these raises
`HeldOperand` before it can touch anything. The operator's public face catches that and asks for the form that the operator's record has for
this kind of tensor (`ops.kinds`), so calls on plain tensors pay nothing for the existence of others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import naming
from .absent import unreadable
from .layout import mkldnn
from .overrides import disabled_torch_function
from .sharded import ShardedOperand
from .size import make_size
from .sparse import SparseOperand
from .tensor import Tensor

_new_object = object.__new__


class HeldOperand(ShardedOperand):
    """Raised when code for strided memory reads a tensor that holds its elements in another one."""

    reason: str | None = None

    def __init__(self, tensor: Any, message: str | None = None):
        SparseOperand.__init__(
            self, message or f"a tensor with layout {tensor.layout!r} has no strided memory of its own"
        )
        self.tensor, self.reason = tensor, message

    def instead(self, face: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
        return functools.partial(naming.above("ops.kinds").held_call, self, face, args, kwargs)


HeldOperand.__name__ = HeldOperand.__qualname__ = "NotImplementedError"  # what a traceback shows
HeldOperand.__module__ = "builtins"


class NoNumber:
    """Base class of sizes of dimensions in which the rows of a nested tensor differ: arithmetic with one raises, so that the operator's form
    for nested tensors is used."""

    kind: str
    layout: Any

    def _refuse(self, *others: Any) -> Any:
        raise HeldOperand(self, f"the size {self!r} of a nested tensor is no number: its rows differ in this dimension")

    __int__ = __index__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = (
        _refuse
    )
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __float__ = __divmod__ = _refuse


class HeldTensor(Tensor):
    """Base class of tensors that hold their elements in a plain tensor, `_value`; `kind` names the forms of operators in their records."""

    __slots__ = ("_value",)
    __torch_function__ = disabled_torch_function
    _prints_as_tensor = True

    kind: str
    _value: Any

    _strides, _offset, _contig = unreadable(lambda t, what: HeldOperand(t))

    def _hold(self, value: Tensor, shape: Any) -> None:
        naming.above(f"ops.kinds.{self.kind}")  # its methods
        self._value, self._storage, self.shape = value, value._storage, make_size(shape)
        self.dtype, self.device = value.dtype, value.device

    def _mold(self) -> Callable[[Tensor], Any]:
        """Return the function that makes a tensor like this one from another value: it checks nothing and keeps no value."""
        raise NotImplementedError

    def _arranged(self, mold: Callable[[Tensor], Any]) -> Any:
        """Return this gradient with its elements in the order of `mold`; most kinds have one order only."""
        return self

    def _bare_alias(self) -> Any:
        return self._mold()(self._value._bare_alias())

    def _view_func(self, base: Tensor) -> Any:
        """Return the view of another base that corresponds to this view of its own base."""
        return self._ensure_autograd().view_fn(base)  # type: ignore[misc]

    def _adopt(self, other: Tensor) -> None:
        if type(other) is not type(self):
            raise RuntimeError(
                f"Attempted to set a tensor with the data of another layout: {self.layout!r} here, {other.layout!r} given"
            )
        self._hold(other._value, other.shape)

    def _array(self) -> Any:
        raise HeldOperand(self)

    def _view(self, shape: Any, strides: tuple[int, ...], offset: int) -> Tensor:
        raise HeldOperand(self)

    def storage_offset(self) -> int:
        return 0


class MkldnnTensor(HeldTensor):
    """A tensor in oneDNN's layout, whose memory programs cannot see: here it holds a plain tensor."""

    __slots__ = ()

    kind = "mkldnn"
    layout = mkldnn
    is_mkldnn = True

    def _mold(self) -> Callable[[Tensor], Any]:
        return new_mkldnn

    def stride(self, dim: Any = None) -> Any:
        strides = (1,) + (0,) * (len(self.shape) - 1)
        return strides if dim is None else strides[dim]

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return True

    def data_ptr(self) -> int:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    const_data_ptr = tolist = data_ptr

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("can't convert Mkldnn layout tensor to numpy. Use Tensor.to_dense() first.")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.numpy()

    def untyped_storage(self) -> Any:
        raise NotImplementedError("Cannot access storage of OpaqueTensorImpl")

    storage = _typed_storage = share_memory_ = is_shared = __copy__ = untyped_storage

    def pin_memory(self, device: Any = None) -> Any:
        return self.untyped_storage()

    is_pinned = pin_memory

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        return self.untyped_storage()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.untyped_storage()


def new_mkldnn(value: Tensor) -> MkldnnTensor:
    """Return a tensor in oneDNN's layout that holds `value`, without checks."""
    t = _new_object(MkldnnTensor)
    t._autograd = t._base = None
    t._hold(value, value.shape)
    return t
