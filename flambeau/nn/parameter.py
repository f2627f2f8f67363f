"""Parameters and buffers: tensors that modules register."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.overrides import disabled_torch_function, refuse_real_tensors
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.filled import empty


class _ParameterMeta(type(Tensor)):  # type: ignore[misc]
    """Metaclass by which isinstance(t, Parameter) also holds for tensor subclasses marked with `_is_param`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that is part of a module: assigned as an attribute, it is listed by `parameters()`."""

    __torch_function__ = disabled_torch_function

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = empty(0)
        if requires_grad and not (data.dtype.is_floating_point or data.dtype.is_complex):
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        if type(data) is Tensor or type(data) is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        refuse_real_tensors([data])
        fresh = data.detach().requires_grad_(requires_grad)
        fresh._is_param = True
        return fresh

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Accept any arguments: `__new__` has already made the parameter."""

    def __deepcopy__(self, memo: dict) -> Parameter:
        if id(self) in memo:
            return memo[id(self)]
        result = type(self)(self.data.clone(), self.requires_grad)
        memo[id(self)] = result
        return result

    def __repr__(self, **kwargs: Any) -> str:
        return "Parameter containing:\n" + repr(self._bare_alias().requires_grad_(self.requires_grad))

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return (_rebuild_parameter, (self.data, self.requires_grad, dict(self.__dict__)))


def _rebuild_parameter(data: Tensor, requires_grad: bool, state: dict) -> Parameter:
    result = Parameter(data, requires_grad)
    result.__dict__.update(state)
    return result


class _BufferMeta(type(Tensor)):  # type: ignore[misc]
    """Metaclass by which isinstance(t, Buffer) holds for tensors marked with `_is_buffer`: buffers are plain tensors."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Buffer and isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that belongs to a module's state without being trained."""

    __torch_function__ = disabled_torch_function

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = empty(0)
        t = data.detach().requires_grad_(data.requires_grad)
        t.persistent = persistent
        t._is_buffer = True
        return t


def is_lazy(param: Any) -> bool:
    """Return whether the parameter has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)


_SHAPE_SLOT = Tensor.__dict__["shape"]


class UninitializedTensorMixin:
    """Base of parameters and buffers of lazy modules before the first forward: dtype and device, but no shape."""

    cls_to_become: type

    if TYPE_CHECKING:  # those of the Tensor it is mixed into

        def __getattr__(self, name: str) -> Any: ...

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. Call `forward` of its lazy module once"
            " (or, in `load_state_dict`, load an initialized state) before using its attributes."
        )

    @shape.setter
    def shape(self, value: Any) -> None:
        _SHAPE_SLOT.__set__(self, value)

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become an ordinary parameter or buffer of the given shape; the values are not defined yet."""
        where = self.device if device is None else device
        self._adopt(empty(shape, dtype=dtype or self.dtype, device=where))
        self.__class__ = self.cls_to_become

    def _bare_alias(self) -> Tensor:
        t = Tensor.__new__(Tensor)
        t._adopt(empty(0, dtype=self.dtype, device=self.device))
        return t

    def size(self) -> Size:
        return _SHAPE_SLOT.__get__(self)

    @property
    def ndim(self) -> int:
        return 1

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters"
            " before calling `module.share_memory()`."
        )

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return (type(self), (self.requires_grad, self.device, self.dtype))

    def __repr__(self, **kwargs: Any) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc]
    """A parameter of a lazy module before its first forward."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return Tensor._make_subclass(cls, empty(0, dtype=dtype, device=device), requires_grad)

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None):
        pass

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        result = type(self)(self.requires_grad, self.device, self.dtype)
        memo[id(self)] = result
        return result


class UninitializedBuffer(UninitializedTensorMixin, Tensor):  # type: ignore[misc]
    """A buffer of a lazy module before its first forward."""

    __torch_function__ = disabled_torch_function
    cls_to_become = Tensor

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> Any:
        t = Tensor._make_subclass(cls, empty(0, dtype=dtype, device=device), requires_grad)
        t.persistent = persistent
        t._is_buffer = True
        return t

    def __init__(self, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True):
        pass

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        result = type(self)(self.requires_grad, self.device, self.dtype, self.persistent)
        memo[id(self)] = result
        return result


# What may be asked of a tensor without a shape: its dtype, device and flags, and conversions.
_ALLOWED = {
    "bfloat16", "bool", "char", "copy_", "cpu", "cuda", "data", "double", "float", "get_device", "half", "int",
    "is_complex",
    "is_floating_point", "long", "short", "to", "type",
}  # fmt: skip
_OPERATORS = {
    "__add__", "__getitem__", "__iter__", "__len__", "__matmul__", "__mul__", "__neg__", "__pow__", "__radd__",
    "__rmatmul__", "__rmul__", "__rpow__", "__rsub__", "__rtruediv__", "__setitem__", "__sub__", "__truediv__",
}  # fmt: skip


def _convert(name: str) -> Any:
    def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self.data, name)(*args, **kwargs)
        if isinstance(self, UninitializedBuffer) and isinstance(result, Tensor):
            return type(self)(self.requires_grad, result.device, result.dtype, self.persistent)
        return result

    convert.__name__ = name
    return convert


def _refuse(name: str) -> Any:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {name}. This error happens when you are using a"
            f" `LazyModule` or explicitly manipulating `{type(self).__name__}` objects. Call `forward` with a dummy"
            " batch to initialize the parameters before calling functions on them"
        )

    refuse.__name__ = name
    return refuse


for _name in dir(Tensor):
    if _name in UninitializedTensorMixin.__dict__ or not callable(getattr(Tensor, _name)):
        continue
    if _name in _ALLOWED:
        setattr(UninitializedTensorMixin, _name, _convert(_name))
    elif not _name.startswith("_") or _name in _OPERATORS:
        setattr(UninitializedTensorMixin, _name, _refuse(_name))
