"""Modules as values of the compiler: the meaning of `self.layer` in a program."""

from __future__ import annotations

import enum
import inspect
from typing import Any

from ..core.device import device
from . import operators
from .functions import Function
from .ir import Value
from .marks import Mark, mark_of
from .matching import Named
from .named_values import SugaredDict
from .naming import is_library
from .source import Range, error
from .types import INT, NONE, STRING, ClassType, InterfaceType, TupleType, Type, is_subtype
from .values import FunctionValue, MethodValue, SimpleValue, Sugared, SugaredTuple, class_attribute, short_name


class ModuleValue(Sugared):
    """A module inside a program: its submodules can be looped over, its attributes read."""

    def __init__(self, value: Value, concrete: Any):
        self.value, self.concrete = value, concrete
        self.kind = f"module '{short_name(self.script_type)}'" if concrete.script_type is not None else "module"
        self.unrolled = False

    @property
    def script_type(self) -> ClassType:
        assert self.concrete.script_type is not None
        return self.concrete.script_type

    @property
    def module(self) -> Any:
        return object.__new__(self.concrete.python_class)

    def as_value(self, place: Range | None, m: Any) -> Value:
        return self.value

    def member_names(self) -> list[str]:
        return list(self.concrete.modules)

    def has_attr(self, place: Range | None, m: Any, name: str) -> bool:
        kind = self.script_type
        if name in kind.attributes or name in kind.constants or name in self.concrete.functions:
            return True
        found = inspect.getattr_static(self.concrete.python_class, name, None)
        return found is not None

    def attr(self, place: Range | None, m: Any, name: str) -> Sugared:
        found = self.find(place, m, name)
        if found is not None:
            return found
        hint = self.concrete.failed.get(name, "")
        raise error(place, f"Module '{short_name(self.script_type)}' has no attribute '{name}' {hint}")

    def find(self, place: Range | None, m: Any, name: str) -> Sugared | None:
        kind, concrete = self.script_type, self.concrete
        if concrete.container == "dict" and name in ("keys", "values", "items"):
            return _DictMethod(self, name)
        if name in ("named_modules", "modules", "children", "named_children", "named_buffers") and name not in kind.attributes:  # fmt: skip
            return _DictMethod(self, name)
        if name in concrete.modules or name in kind.attributes or name in kind.constants:
            return class_attribute(place, m, self.value, kind, name)
        if name in concrete.functions:
            return self._function(m, place, name)
        if concrete.done is not None:
            return class_attribute(place, m, self.value, kind, name)
        return self._from_class(place, m, name)

    def _function(self, m: Any, place: Range | None, name: str) -> Sugared:
        found = m.resolver.sugared(m, place, self.concrete.functions[name])
        try:
            for function in found.functions if isinstance(found, FunctionValue) else ():
                function.ensure(place)
        except Exception as problem:
            raise error(
                place,
                f"Module '{short_name(self.script_type)}' has no attribute '{name}' (This function exists as an attribute on the Python module, but we failed to compile it to a TorchScript function. \nThe error stack is reproduced here:\n{problem}",
            ) from None
        return found

    def _from_class(self, place: Range | None, m: Any, name: str) -> Sugared | None:
        """Return what the Python class has under a name: methods, properties, static methods, the library's own constants."""
        kind = self.script_type
        if name in kind.properties:
            return MethodValue(self.value, [kind.properties[name][0].base_name]).call(place, m, [], [])
        found = inspect.getattr_static(self.concrete.python_class, name, None)
        if found is None:  # a method that was given as text
            return MethodValue(self.value, [name]) if name in kind.methods else None
        if isinstance(found, property):
            return self._property(place, m, name, found)
        if isinstance(found, (staticmethod, classmethod)):
            return m.resolver.sugared(m, place, found.__func__)
        mark = mark_of(found)
        if mark in (Mark.IGNORE, Mark.UNUSED):
            return m.resolver.ignored(m, found, self.value, kind)
        if inspect.isfunction(found):
            overloaded = self.concrete.overloads(found, name)
            if overloaded:
                return MethodValue(self.value, overloaded)
            if kind.find_method(name) is not None:
                return MethodValue(self.value, [name])
        holder = next((b for b in self.concrete.python_class.__mro__ if name in b.__dict__), None)
        if holder is not None and is_library(holder.__module__) and is_constant(found):
            return m.resolver.sugared(m, place, getattr(self.concrete.python_class, name), constant=True)
        if hasattr(found, "op"):
            return m.resolver.sugared(m, place, found)
        return None

    def _property(self, place: Range | None, m: Any, name: str, found: property) -> Sugared | None:
        kind = self.script_type
        if found.fget is None or mark_of(found.fget) in (Mark.IGNORE, Mark.UNUSED):
            return None
        if name not in kind.properties:
            getter = self.concrete.method(found.fget, f"__{name}_getter")
            kind.methods[f"__{name}_getter"] = getter
            setter = None
            if found.fset is not None:
                setter = self.concrete.method(found.fset, f"__{name}_setter")
                kind.methods[f"__{name}_setter"] = setter
            kind.properties[name] = (getter, setter)
        return MethodValue(self.value, [f"__{name}_getter"]).call(place, m, [], [])

    def set_attr(self, place: Range | None, m: Any, name: str, value: Value) -> None:
        found = inspect.getattr_static(self.concrete.python_class, name, None)
        if isinstance(found, property) and name not in self.script_type.attributes:
            self._property(place, m, name, found)
        SimpleValue(self.value).set_attr(place, m, name, value)

    def call(self, place: Range | None, m: Any, args: Any, kwargs: Any) -> Sugared:
        forward = self.find(place, m, "forward")
        if (
            forward is None
            or self.concrete.container in ("dict",)
            and not hasattr(self.concrete.python_class, "forward")
        ):
            raise error(place, f"Module '{short_name(self.script_type)}' has no attribute 'forward'")
        if not self.script_type.forward_pre_hooks and not self.script_type.forward_hooks:
            return forward.call(place, m, args, kwargs)
        return self._call_hooked(place, m, forward, args, kwargs)

    def _call_hooked(self, place: Range | None, m: Any, forward: Sugared, args: Any, kwargs: Any) -> Sugared:
        kind = self.script_type
        for hook in kind.forward_pre_hooks:
            packed = m.graph.tuple_of([a.value for a in args], place)
            out = _call_hook(m, place, hook, [self.value, packed])
            if out.type is not NONE:
                parts = m.graph.unpack(out, place) if isinstance(out.type, TupleType) else [out]
                args = [Named(v, place) for v in parts]
        result = forward.call(place, m, args, kwargs).as_value(place, m)
        for hook in kind.forward_hooks:
            packed = m.graph.tuple_of([a.value for a in args], place)
            out = _call_hook(m, place, hook, [self.value, packed, result])
            result = result if out.type is NONE else out
        return SimpleValue(result)

    # -- containers ----------------------------------------------------------------------------------------------------------
    def children(self, place: Range | None, m: Any) -> SugaredDict:
        names = self.member_names()
        values = [self.attr(place, m, n) for n in names]
        keys = [SimpleValue(m.constant(n, STRING, place)) for n in names]
        return SugaredDict(SugaredTuple(keys), SugaredTuple(values), names)

    def iterate(self, place: Range | None, m: Any) -> Sugared:
        word = self.concrete.container
        if word == "list":
            return self.children(place, m).values
        if word == "dict":
            return self.children(place, m).keys
        if word == "parameters":
            return SugaredTuple([self.attr(place, m, n) for n in self.script_type.attributes if n.isdigit()])
        if word == "parameter dict":
            return SugaredTuple(
                [
                    SimpleValue(m.constant(n, STRING, place))
                    for n in self.script_type.attributes
                    if n in self.script_type.parameters
                ]
            )
        raise error(
            place, "Only constant Sequential, ModuleList, ModuleDict, or ParameterList can be used as an iterable"
        )

    def as_tuple(self, place: Range | None, m: Any, size: int | None = None) -> list[Sugared]:
        found = self.iterate(place, m)
        assert isinstance(found, SugaredTuple)
        return found.items

    def as_tuple_value(self, place: Range | None, m: Any) -> SugaredTuple:
        return SugaredTuple(self.as_tuple(place, m))

    def length(self, place: Range | None, m: Any) -> Value:
        own = inspect.getattr_static(self.concrete.python_class, "__len__", None)
        if inspect.isfunction(own) and not is_library(own.__module__):
            return MethodValue(self.value, ["__len__"]).call(place, m, [], []).as_value(place, m)
        return m.constant(len(self.as_tuple(place, m)), INT, place)

    def item(self, place: Range | None, m: Any, index: Value, kind: Type | None = None) -> Sugared:
        word = self.concrete.container
        known, number = m.known(index)
        if word in ("list", "dict") and not known and isinstance(kind, InterfaceType):
            for name, inner in self.script_type.attributes.items():
                if name in self.concrete.modules and not is_subtype(inner, kind):
                    raise error(place, f"Attribute {name} is not of annotated type {kind.repr_str()}")
            return SimpleValue(m.graph.op("prim::ModuleContainerIndex", [self.value, index], kind, place))
        if word in ("list", "parameters"):
            return SugaredTuple(self.as_tuple(place, m)).item(place, m, index)
        if word in ("dict", "parameter dict"):
            if not known:
                raise error(place, "Unable to extract string literal index. ModuleDict indexing is only supported with string literals. For example, 'i = \"a\"; self.layers[i](x)' will fail because i is not a literal. Enumeration of ModuleDict is supported, e.g. 'for k, v in self.items(): out = v(inp)'")  # fmt: skip
            if number not in (self.member_names() if word == "dict" else self.script_type.attributes):
                raise error(place, f"Key Error, {number}")
            return self.attr(place, m, number)
        method = self.script_type.find_method("__getitem__")
        if method is not None:
            return MethodValue(self.value, ["__getitem__"]).call(place, m, [Named(index, place)], [])
        raise error(
            place, "Only ModuleList, Sequential, ModuleDict, ParameterList, and ParameterDict Modules are subscriptable"
        )


def _call_hook(m: Any, place: Range | None, hook: Function, values: list[Value]) -> Value:
    return (
        MethodValue(values[0], [hook.base_name])
        .call(place, m, [Named(v, place) for v in values[1:]], [])
        .as_value(place, m)
    )


class _DictMethod(Sugared):
    """`modules.items()`, `keys()` or `values()` of a ModuleDict, whose items are known at compile time."""

    kind = "method"

    def __init__(self, owner: ModuleValue, name: str):
        self.owner, self.name = owner, name

    def call(self, place: Range | None, m: Any, args: Any, kwargs: Any) -> Sugared:
        if self.name == "named_buffers":
            return self._buffers(place, m)
        found = self.owner.children(place, m)
        if self.name in ("modules", "named_modules"):
            return self._nested(place, m)
        if self.name == "keys":
            return found.keys
        if self.name in ("values", "children"):
            return found.values
        return SugaredTuple([SugaredTuple(list(pair)) for pair in zip(found.keys.items, found.values.items)])

    def _buffers(self, place: Range | None, m: Any) -> Sugared:
        kind = self.owner.script_type
        names = [n for n in kind.attributes if n in kind.buffers]
        values = [self.owner.attr(place, m, n) for n in names]
        keys = [SimpleValue(m.constant(n, STRING, place)) for n in names]
        return SugaredTuple([SugaredTuple([k, v]) for k, v in zip(keys, values)])

    def _nested(self, place: Range | None, m: Any) -> Sugared:
        rows: list[tuple[str, Sugared]] = []

        def visit(value: Sugared, prefix: str) -> None:
            rows.append((prefix, value))
            if isinstance(value, ModuleValue):
                for name in value.member_names():
                    visit(value.attr(place, m, name), f"{prefix}.{name}" if prefix else name)

        visit(self.owner, "")
        if self.name == "modules":
            return SugaredTuple([v for _, v in rows])
        return SugaredTuple([SugaredTuple([SimpleValue(m.constant(n, STRING, place)), v]) for n, v in rows])


class SuperValue(Sugared):
    """`super()` in a module's method."""

    kind = "super"

    def __init__(self, module: ModuleValue, owner: Any):
        self.module_value, self.owner = module, owner

    def attr(self, place: Range | None, m: Any, name: str) -> Sugared:
        kind = self.module_value.script_type
        order = self.module_value.concrete.python_class.__mro__
        after = order[order.index(self.owner) + 1 :] if self.owner in order else order[1:]
        for base in after:
            if name in base.__dict__:
                label = f"__{base.__name__}_{name}"
                if label not in kind.methods:
                    kind.methods[label] = self.module_value.concrete.method(base.__dict__[name], label)
                return MethodValue(self.module_value.value, [label])
        raise error(place, f"super has no method '{name}'")


def is_constant(value: Any) -> bool:
    """Return whether a Python value can be a constant of compiled code."""
    if isinstance(value, (list, tuple)):
        return all(map(is_constant, value))
    plain = (int, float, complex, bool, str, type(None), device, enum.Enum)
    return isinstance(value, plain) or operators.is_numbered(value)
