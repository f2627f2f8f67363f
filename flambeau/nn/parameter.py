"""Parameters and buffers: tensors that modules notice."""

from __future__ import annotations

from typing import Any

from ..core.overrides import disabled_torch_function
from ..core.tensor import Tensor, empty
from ..core.promotion import get_default_dtype


class _ParameterMeta(type(Tensor)):  # type: ignore[misc]
    """isinstance(t, Parameter) also holds for tensor subclasses marked with `_is_param`."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that is part of a module: assigned as an attribute, it is listed by `parameters()`."""

    __torch_function__ = disabled_torch_function

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = empty((0,), get_default_dtype())
        if type(data) is Tensor or type(data) is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        fresh = data.detach().requires_grad_(requires_grad)
        fresh._is_param = True
        return fresh

    def __init__(self, data: Any = None, requires_grad: bool = True):
        pass

    def __deepcopy__(self, memo: dict) -> Parameter:
        if id(self) in memo:
            return memo[id(self)]
        result = type(self)(self.data.clone(), self.requires_grad)
        memo[id(self)] = result
        return result

    def __repr__(self, **kwargs: Any) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return (_rebuild_parameter, (self.data, self.requires_grad, dict(self.__dict__)))


def _rebuild_parameter(data: Tensor, requires_grad: bool, state: dict) -> Parameter:
    result = Parameter(data, requires_grad)
    result.__dict__.update(state)
    return result


class Buffer(Tensor):
    """A tensor that belongs to a module's state without being trained."""

    __torch_function__ = disabled_torch_function

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = empty((0,), get_default_dtype())
        t = Tensor._make_subclass(cls, data, data.requires_grad)
        t.persistent = persistent
        return t

    def __init__(self, data: Any = None, *, persistent: bool = True):
        pass


def is_lazy(parameter: Any) -> bool:
    return isinstance(parameter, (UninitializedParameter, UninitializedBuffer))


class UninitializedParameter(Parameter):
    """A parameter of a lazy module before its first forward."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return Tensor._make_subclass(cls, empty((0,), dtype or get_default_dtype()), requires_grad)

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None):
        pass

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        self._adopt(empty(tuple(shape), dtype or self.dtype))
        self.__class__ = self.cls_to_become

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        result = type(self)(self.requires_grad, None, self.dtype)
        memo[id(self)] = result
        return result

    def __repr__(self, **kwargs: Any) -> str:
        return "<UninitializedParameter>"


class UninitializedBuffer(Tensor):
    """A buffer of a lazy module before its first forward."""

    __torch_function__ = disabled_torch_function
    cls_to_become = Tensor

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True) -> Any:
        t = Tensor._make_subclass(cls, empty((0,), dtype or get_default_dtype()), requires_grad)
        t.persistent = persistent
        return t

    def __init__(self, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True):
        pass

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        self._adopt(empty(tuple(shape), dtype or self.dtype))
        self.__class__ = self.cls_to_become

    def __repr__(self, **kwargs: Any) -> str:
        return "<UninitializedBuffer>"
