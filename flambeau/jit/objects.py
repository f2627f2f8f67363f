"""Objects of compiled classes, and the conversion of values between Python and programs."""

from __future__ import annotations

import collections
import contextlib
import copy
import enum
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch

from ..core.native_class import CustomClass
from ..core.tensor import Tensor
from ..futures import Future
from ..ops.machinery.matching import as_list, as_number, unfit
from . import operators
from . import types as T
from .marks import compiled

_NUMBERS: dict[T.Type, type] = {T.FLOAT: float, T.BOOL: bool, T.COMPLEX: complex}
# The Python classes of the values of a type.
_CLASSES: dict[T.Type, Any] = {
    **_NUMBERS, T.NUMBER: (int, float, complex), T.STRING: str, T.NONE: type(None), T.DEVICE: torch.device, T.GENERATOR: torch.Generator,
    T.ANY_LIST: list, T.ANY_TUPLE: tuple, T.ANY_ENUM: enum.Enum,
}  # fmt: skip


class ScriptObject:
    """An object of a compiled class."""

    def __init__(self, script_type: T.ClassType):
        self.__dict__["script_type"] = script_type
        self.__dict__["slots"] = {}

    def _slot(self, name: str) -> Any:
        return self.slots[name]

    def _set_slot(self, name: str, value: Any) -> None:
        self.slots[name] = value

    def call(self, name: str, *args: Any) -> Any:
        """Run a method inside a program."""
        method = self.script_type.find_method(name)
        if method is None:
            raise AttributeError(f"'{self.script_type.name}' has no method '{name}'")
        return method.run([self, *args])

    def __getattr__(self, name: str) -> Any:
        kind: T.ClassType = self.__dict__["script_type"]
        if name in self.__dict__["slots"]:
            return to_python(self.slots[name], kind.attributes.get(name, T.ANY))
        if name in kind.constants:
            return kind.constants[name]
        if name in kind.properties:
            return to_python(kind.properties[name][0].run([self]), T.ANY)
        method = None if name.startswith("__") and name not in kind.methods else kind.find_method(name)
        if method is None:
            raise AttributeError(f"'{kind.name}' object has no attribute '{name}'")
        return lambda *args, **kwargs: method(self, *args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        kind = self.script_type
        if name not in kind.attributes:
            raise AttributeError(f"'{kind.name}' object has no attribute '{name}'")
        self.slots[name] = to_script(value, kind.attributes[name])

    def _call_magic(self, name: str, *args: Any) -> Any:
        method = self.script_type.find_method(name)
        if method is None:
            raise NotImplementedError(name)
        return method(self, *args)

    def __deepcopy__(self, memo: dict) -> ScriptObject:
        made = ScriptObject(self.script_type)
        memo[id(self)] = made
        made.slots.update({k: copy.deepcopy(v, memo) for k, v in self.slots.items()})
        return made

    def __repr__(self) -> str:
        if self.script_type.find_method("__str__") is not None:
            return str(self._call_magic("__str__"))
        return f"<torch.ScriptObject object of {self.script_type.name}>"


def _magic(name: str) -> Callable:
    def run(self: ScriptObject, *args: Any) -> Any:
        return self._call_magic(name, *args)

    return run


for _name in ["__len__", "__getitem__", "__setitem__", "__contains__", "__add__", "__sub__", "__mul__", "__truediv__", "__lt__", "__le__", "__gt__", "__ge__", "__call__", "__neg__", "__int__", "__float__", "__pow__", "__mod__", "__and__", "__or__", "__xor__", "__floordiv__"]:  # fmt: skip
    setattr(ScriptObject, _name, _magic(_name))


# -- the border between Python and programs -------------------------------------------------------------------------------


def to_script(value: Any, kind: T.Type) -> Any:
    """Convert a Python value to a program's value of a type; raises TypeError if it does not fit. Containers are copied."""
    if isinstance(kind, T.TensorType):
        if isinstance(value, Tensor):
            return value
        raise TypeError(unfit(value, str(kind)))
    if kind is T.ANY:
        return _any_to_script(value)
    if isinstance(kind, T.OptionalType):
        return None if value is None else to_script(value, kind.element)
    if isinstance(kind, T.UnionType):
        return _member_to_script(value, kind)
    if kind is T.INT or kind in T.INT_LIKE:
        return value.number if operators.is_numbered(value) else as_number(int, value)
    if kind in _NUMBERS:
        return as_number(_NUMBERS[kind], value)
    if isinstance(kind, T.ListType):
        if getattr(value, "script_kind", None) == kind:  # a ScriptList: programs change it in place
            return value
        alike = as_list if kind.element in _NUMBERS or kind.element in (T.INT, T.TENSOR) else list
        return [to_script(v, kind.element) for v in alike(value)]
    if isinstance(kind, T.DictType):
        if getattr(value, "script_kind", None) == kind:
            return value
        if not isinstance(value, dict):
            raise TypeError(unfit(value, str(kind)))
        return {to_script(k, kind.key): to_script(v, kind.value) for k, v in value.items()}
    if isinstance(kind, T.TupleType):
        parts = tuple(value)
        if len(parts) != len(kind.elements):
            raise TypeError(f"Object {value} had a different number of elements than type {kind}")
        return make_tuple(kind, [to_script(v, t) for v, t in zip(parts, kind.elements)])
    return _other_to_script(value, kind)


def _member_to_script(value: Any, kind: T.UnionType) -> Any:
    """Convert a value to the member of a union that has its type: no number becomes another kind of number."""
    for member in sorted(kind.members, key=lambda m: not fits(value, m)):
        if fits(value, member) or operators.is_numbered(value) or member not in T.OF_PYTHON.values():
            with contextlib.suppress(TypeError):
                return to_script(value, member)
    raise TypeError(unfit(value, str(kind)))


def _other_to_script(value: Any, kind: T.Type) -> Any:
    if isinstance(kind, T.ClassType):
        native = issubclass(kind.python_class or object, CustomClass)
        if kind.is_module or native or isinstance(value, (ScriptObject, CustomClass)):
            if getattr(value, "script_type", None) is not kind:
                raise TypeError(unfit(value, str(kind)))
            return value
        return object_to_script(value, kind)
    if isinstance(kind, T.InterfaceType):
        return _as_interface(value, kind)
    if kind is T.DEVICE and isinstance(value, str):
        return torch.device(value)
    if kind is T.STRING and isinstance(value, bytes):
        return value.decode()
    if fits(value, kind) or kind is T.STORAGE or kind is T.ANY_CLASS:
        return value
    raise TypeError(unfit(value, str(kind)))


def _as_interface(value: Any, kind: T.InterfaceType) -> Any:
    """Return an object as a value of an interface type; raises TypeError if it lacks methods of it."""
    actual: Any = getattr(value, "script_type", None) or compiled.get(type(value))
    if actual is None:
        raise TypeError(f"Cannot cast {value} to {kind}: the value is not a TorchScript compatible type, did you forget to turn it into a user defined TorchScript class?")  # fmt: skip
    why: list[str] = []
    if not T.is_subtype(actual, kind, why):
        raise TypeError(f"Object {value} is not compatible with interface {kind.name}\n{''.join(why)}")
    return value if hasattr(value, "script_type") else object_to_script(value, actual)


def object_to_script(value: Any, kind: T.ClassType) -> ScriptObject:
    """Convert a Python object, whose class was compiled, to a ScriptObject."""
    made = ScriptObject(kind)
    for name, t in kind.attributes.items():
        if not hasattr(value, name):
            raise TypeError(f"Tried to cast object to type {kind} but object was missing attribute {name}")
        try:
            made.slots[name] = to_script(getattr(value, name), t)
        except TypeError as problem:
            raise TypeError(f"Could not cast attribute '{name}' to type {t}: {problem}") from None
    return made


def _any_to_script(value: Any) -> Any:
    if isinstance(value, list):
        return [_any_to_script(v) for v in value]
    if isinstance(value, dict):
        return {k: _any_to_script(v) for k, v in value.items()}
    if operators.is_numbered(value):
        return value.number
    return value


def to_python(value: Any, kind: T.Type) -> Any:
    return value


_tuple_classes: dict[tuple, Any] = {}


def make_tuple(kind: T.TupleType, values: Sequence[Any]) -> tuple:
    if not kind.fields:
        return tuple(values)
    return tuple_class(kind)(*values)


def tuple_class(kind: T.TupleType) -> Any:
    """Return the Python class of a NamedTuple type."""
    if kind.python_class is not None:
        return kind.python_class
    name = (kind.tuple_name or "result").rpartition(".")[2]
    key = (name, kind.fields)
    if key not in _tuple_classes:
        _tuple_classes[key] = collections.namedtuple(name, kind.fields)
    return _tuple_classes[key]


def fits(value: Any, kind: T.Type) -> bool:
    """Return whether a program's value has a type."""
    if isinstance(kind, T.OptionalType):
        return value is None or fits(value, kind.element)
    if isinstance(kind, T.UnionType):
        return any(fits(value, m) for m in kind.members)
    if isinstance(kind, T.ListType):
        return isinstance(value, list) and all(fits(v, kind.element) for v in value)
    if isinstance(kind, T.DictType):
        return isinstance(value, dict) and all(fits(k, kind.key) and fits(v, kind.value) for k, v in value.items())
    if isinstance(kind, T.TupleType):
        return isinstance(value, tuple) and len(value) == len(kind.elements) and all(map(fits, value, kind.elements))
    if isinstance(kind, T.ClassType):
        return getattr(value, "script_type", None) is kind
    if isinstance(kind, T.TensorType):
        return isinstance(value, Tensor)
    if kind is T.INT:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(kind, T.EnumType):
        return isinstance(value, kind.python_class)
    if isinstance(kind, T.FutureType):
        return isinstance(value, Future)
    return kind is T.ANY or isinstance(value, _CLASSES.get(kind, ()))
