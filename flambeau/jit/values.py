"""Meanings of a name while a program is compiled: a value of the graph, a module, a function, a class, a range...

Each kind knows what `x.name`, `x(...)`, `x[i]`, `for ... in x` and `a, b = x` mean for it; `m` is the emitter at work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.dtype import METHODS
from . import types as T
from .ir import Value
from .matching import Named, match_call
from .schema import Schema, schemas_of
from .source import Range, error

if TYPE_CHECKING:
    from .emitter import Emitter
    from .functions import Function


class Sugared:
    """Compile-time object of a program that is not (yet) a value of the graph."""

    kind = "object"

    def as_value(self, place: Range | None, m: Emitter) -> Value:
        raise error(place, f"{self.kind} cannot be used as a value")

    def attr(self, place: Range | None, m: Emitter, name: str) -> Sugared:
        raise error(place, f"attribute lookup is not defined on {self.kind}")

    def has_attr(self, place: Range | None, m: Emitter, name: str) -> bool:
        raise error(place, f"attribute lookup is not defined on {self.kind}")

    def set_attr(self, place: Range | None, m: Emitter, name: str, value: Value) -> None:
        raise error(place, f"attribute assignment is not defined on {self.kind}")

    def call(self, place: Range | None, m: Emitter, args: Sequence[Named], kwargs: Sequence[Named]) -> Sugared:
        raise error(place, f"cannot call a {self.kind}")

    def as_tuple(self, place: Range | None, m: Emitter, size: int | None = None) -> list[Sugared]:
        raise error(place, f"{self.kind} cannot be used as a tuple")

    def as_tuple_value(self, place: Range | None, m: Emitter) -> SugaredTuple:
        raise error(place, f"{self.kind} cannot be used as a tuple")

    def iterate(self, place: Range | None, m: Emitter) -> Sugared:
        raise error(place, f"'{self.kind}' object is not iterable")

    def item(self, place: Range | None, m: Emitter, index: Value, kind: T.Type | None = None) -> Sugared:
        raise error(place, f"'{self.kind}' object is not subscriptable")

    def length(self, place: Range | None, m: Emitter) -> Value:
        raise error(place, f"'{self.kind}' object is not iterable")

    unrolled = False  # whether a loop over it is written out

    def static_length(self) -> int | None:
        return None

    def member_names(self) -> list[str] | None:
        """Return the names that `name in x` tests, if they are known at compile time; else None."""
        return None


class SimpleValue(Sugared):
    """A value of the graph."""

    def __init__(self, value: Value):
        self.value = value

    @property
    def kind(self) -> str:  # type: ignore[override]
        return f"value of type '{self.value.type.repr_str()}'"

    def as_value(self, place: Range | None, m: Emitter) -> Value:
        return self.value

    def attr(self, place: Range | None, m: Emitter, name: str) -> Sugared:
        found = self._attribute(place, m, name)
        if found is not None:
            return found
        raise no_attribute(place, self.value.type, name)

    def has_attr(self, place: Range | None, m: Emitter, name: str) -> bool:
        kind = self.value.type
        if isinstance(kind, T.ClassType):
            return (
                name in kind.attributes
                or name in kind.constants
                or kind.find_method(name) is not None
                or name in kind.properties
            )
        if isinstance(kind, T.TupleType):
            return name in kind.fields
        raise error(
            place,
            f"hasattr's first argument must be a object or NamedTuple, but got a normal {kind.repr_str()} instead",
        )

    def _attribute(self, place: Range | None, m: Emitter, name: str) -> Sugared | None:
        value, kind = self.value, self.value.type
        if isinstance(kind, T.TensorType):
            if name in TENSOR_PROPERTIES:
                return SimpleValue(m.builtin(place, TENSOR_PROPERTIES[name], [value]))
            if name == "imag" or name == "real":
                return SimpleValue(m.builtin(place, f"aten::{name}", [value]))
        if kind is T.DEVICE and name in ("type", "index"):
            return SimpleValue(m.builtin(place, f"prim::{name}", [value]))
        if kind is T.COMPLEX and name in ("real", "imag"):
            return SimpleValue(m.builtin(place, f"aten::{name}", [value]))
        if isinstance(kind, T.TupleType) and name in kind.fields:
            index = kind.fields.index(name)
            return SimpleValue(m.tuple_item(place, value, index))
        if isinstance(kind, T.ClassType):
            return class_attribute(place, m, value, kind, name)
        if isinstance(kind, T.InterfaceType) and name in kind.methods:
            return MethodValue(value, [name])
        if isinstance(kind, T.EnumType):
            known, member = m.known(value)
            if known and name in ("name", "value"):
                return SimpleValue(m.constant(getattr(member, name), T.STRING if name == "name" else kind.value, None))
            if name == "name":
                return SimpleValue(m.graph.op("prim::EnumName", [value], T.STRING, place))
            if name == "value":
                return SimpleValue(m.graph.op("prim::EnumValue", [value], kind.value, place))
        if isinstance(kind, T.TensorType) and name in METHODS:
            return TensorCast(value, METHODS[name].number)
        if isinstance(kind, T.TensorType) and name in ("tolist", "__getitem__"):
            return SpecialForm(name, value)
        if isinstance(kind, T.TensorType) and name == "type":
            return BuiltinFunction("aten::to", Named(value, place))
        if isinstance(kind, T.FutureType) and name in ("wait", "value"):
            return BuiltinFunction("aten::wait", Named(value, place))
        symbol = f"aten::{name}"
        if schemas_of(symbol) and any(_accepts_self(s, kind) for s in schemas_of(symbol)):
            return BuiltinFunction(symbol, Named(value, place))
        if (
            (kind is T.STRING or isinstance(kind, (T.ListType, T.DictType)))
            and schemas_of(symbol)
            and not isinstance(kind, T.TensorType)
        ):
            return BuiltinFunction(symbol, Named(value, place))
        if schemas_of(f"prim::{name}") and any(_accepts_self(s, kind) for s in schemas_of(f"prim::{name}")):
            return BuiltinFunction(f"prim::{name}", Named(value, place))
        special = TENSOR_METHODS.get(name) if isinstance(kind, T.TensorType) else None
        return m.resolver.tensor_method(m, place, special, value) if special else None

    def set_attr(self, place: Range | None, m: Emitter, name: str, value: Value) -> None:
        kind = self.value.type
        if not isinstance(kind, T.ClassType):
            raise error(place, f"Tried to set an attribute: {name} on a non-class: {kind.repr_str()}")
        expected = kind.attributes.get(name)
        if expected is None:
            if name in kind.properties:
                setter = kind.properties[name][1]
                if setter is None:
                    raise error(place, f"Tried to set read-only attribute: {name}")
                MethodValue(self.value, [setter.name]).call(place, m, [Named(value, place)], [])
                return
            if not kind.is_module and m.is_initializing(self.value):
                if m.in_control_flow():
                    raise error(
                        place,
                        f"First assignment cannot be in a control-flow block. Initialize the field at the top level first.\n'{name}'",
                    )
                expected = kind.attributes[name] = value.type
            elif name in kind.constants:
                raise error(place, f"Can't set constant '{name}' which has value:{kind.constants[name]}")
            else:
                raise error(
                    place, f"Tried to set nonexistent attribute: {name}. Did you forget to initialize it in __init__()?"
                )
        if kind.is_module and name in kind.parameters:
            pass
        converted = m.convert(place, expected, value)
        if not T.is_subtype(converted.type, expected):
            raise error(
                place,
                f"Wrong type for attribute assignment. Expected {expected.repr_str()} but got {converted.type.repr_str()}",
            )
        node = m.graph.create("prim::SetAttr", [self.value, converted], 0, place)
        node.attributes["name"] = name
        m.graph.insert(node)

    def call(self, place: Range | None, m: Emitter, args: Sequence[Named], kwargs: Sequence[Named]) -> Sugared:
        kind = self.value.type
        if isinstance(kind, T.ClassType):
            return self.attr(place, m, "forward" if kind.is_module else "__call__").call(place, m, args, kwargs)
        if isinstance(kind, T.InterfaceType):
            return self.attr(place, m, "forward").call(place, m, args, kwargs)
        return super().call(place, m, args, kwargs)

    def as_tuple(self, place: Range | None, m: Emitter, size: int | None = None) -> list[Sugared]:
        kind = self.value.type
        if isinstance(kind, T.TupleType):
            return [SimpleValue(v) for v in m.graph.unpack(self.value, place)]
        if isinstance(kind, T.ListType):
            if size is None:
                raise error(place, "cannot statically infer the expected size of a list in this context")
            node = m.graph.create("prim::ListUnpack", [self.value], size, place)
            for out in node.outputs_:
                out.type = kind.element
            m.graph.insert(node)
            return [SimpleValue(v) for v in node.outputs_]
        if kind is T.ANY_TUPLE:
            raise error(
                place,
                "Provided tuple is not fully defined/refined including its element types, please provide a value of type like Tuple[int, int]",
            )
        raise error(place, f"{kind.repr_str()} cannot be used as a tuple")

    def as_tuple_value(self, place: Range | None, m: Emitter) -> SugaredTuple:
        return SugaredTuple(self.as_tuple(place, m))

    def iterate(self, place: Range | None, m: Emitter) -> Sugared:
        kind = self.value.type
        if isinstance(kind, (T.ListType, T.TensorType)) or kind is T.STRING:
            return self
        if isinstance(kind, T.DictType):
            return SimpleValue(m.builtin(place, "aten::keys", [self.value]))
        if isinstance(kind, T.TupleType):
            return SugaredTuple([SimpleValue(v) for v in m.graph.unpack(self.value, place)])
        if isinstance(kind, T.ClassType) and kind.find_method("__iter__") is not None:
            return self
        raise error(place, f"'{kind.repr_str()}' object is not iterable")

    def length(self, place: Range | None, m: Emitter) -> Value:
        kind = self.value.type
        if isinstance(kind, T.ListType) or kind is T.STRING or isinstance(kind, (T.TensorType, T.DictType)):
            return m.builtin(place, "aten::len", [self.value])
        if isinstance(kind, T.TupleType):
            return m.constant(len(kind.elements), T.INT, place)
        raise error(place, f"'{kind.repr_str()}' object is not iterable")

    def item(self, place: Range | None, m: Emitter, index: Value, kind: T.Type | None = None) -> Sugared:
        actual = self.value.type
        if isinstance(actual, T.ListType) or actual is T.STRING:
            return SimpleValue(m.builtin(place, "aten::__getitem__", [self.value, index]))
        if isinstance(actual, T.DictType):
            return SimpleValue(m.builtin(place, "aten::__getitem__", [self.value, index]))
        if isinstance(actual, T.TensorType):
            zero = m.constant(0, T.INT, place)
            return SimpleValue(m.builtin(place, "aten::select", [self.value, zero, index]))
        if isinstance(actual, T.ClassType):
            if actual.is_module and isinstance(kind, T.InterfaceType):
                return SimpleValue(m.graph.op("prim::ModuleContainerIndex", [self.value, index], kind, place))
            return self.attr(place, m, "__getitem__").call(place, m, [Named(index, place)], [])
        raise error(place, f"'{actual.repr_str()}' object is not subscriptable")


def no_attribute(place: Range | None, kind: T.Type, name: str) -> Exception:
    """Return the error for an attribute that values of a type do not have."""
    if not isinstance(kind, T.ClassType):
        return error(place, f"'{kind.repr_str()}' object has no attribute or method '{name}'.")
    if kind.is_module:
        return error(place, f"Module '{short_name(kind)}' has no attribute '{name}' ")
    hint = "Did you forget to initialize an attribute in __init__()?"
    if name in kind.class_attributes:
        hint = f"'{name}' is defined as a class attribute which currently is not supported. Consider converting this to an instance attribute."
    return error(place, f"'{kind.repr_str()}' object has no attribute or method '{name}'. {hint}")


def _accepts_self(schema: Schema, kind: T.Type) -> bool:
    """Return whether the schema's argument `self`, if any, could have a type (in the coarse sense of a method lookup)."""
    formal = next((a.type for a in schema.arguments if a.name == "self"), None)
    if formal is None:
        return False
    if isinstance(kind, T.TensorType):
        return isinstance(formal, T.TensorType)
    return str(formal) == "t" or type(formal) is type(kind) or T.is_subtype(kind, formal)


def short_name(kind: T.ClassType) -> str:
    return kind.name.rpartition(".")[2]


def class_attribute(place: Range | None, m: Emitter, value: Value, kind: T.ClassType, name: str) -> Sugared | None:
    if name in kind.attributes:
        node = m.graph.create("prim::GetAttr", [value])
        node.attributes["name"] = name
        out = m.graph.insert(node).outputs_[0]
        out.type = kind.attributes[name]
        if kind.is_module:
            out.set_name(valid_name(name)) if valid_name(name) else None
        return m.wrap_attribute(out, kind, name)
    if name in kind.constants:
        return m.resolver.sugared(m, place, kind.constants[name], constant=True)
    if name in kind.properties:
        return MethodValue(value, [kind.properties[name][0].name]).call(place, m, [], [])
    if kind.find_method(name) is not None:
        return MethodValue(value, [name])
    if name in kind.static_methods:
        return FunctionValue([kind.static_methods[name]])
    if name in kind.ignored:
        return m.resolver.ignored(m, kind.ignored[name], value, kind)
    return None


def valid_name(name: str) -> str:
    return name if name and not name.isdigit() else ""


# Attributes of tensors that are operators.
TENSOR_PROPERTIES = {
    **{
        name: f"prim::{name}"
        for name in ["dtype", "device", "grad", "data", "layout", "requires_grad", "is_cuda", "is_sparse", "is_sparse_csr", "is_mkldnn", "is_quantized", "is_meta", "is_mps", "is_vulkan", "is_ipu", "is_nested", "is_maia", "is_mtia", "name", "nbytes", "itemsize"]
    },
    "shape": "aten::size", "T": "aten::numpy_T", "H": "aten::matrix_H", "mT": "aten::mT", "mH": "aten::mH", "is_leaf": "aten::is_leaf",
    "ndim": "aten::dim",
}  # fmt: skip
TENSOR_METHODS = {"unique": "unique", "split": "split", "stft": "stft", "istft": "istft", "norm": "norm"}


class TensorCast(Sugared):
    """A method such as `x.long()` that converts a tensor."""

    kind = "method"

    def __init__(self, value: Value, dtype: int):
        self.value, self.dtype = value, dtype

    def call(self, place: Range | None, m: Emitter, args: Sequence[Named], kwargs: Sequence[Named]) -> Sugared:
        return SimpleValue(m.builtin(place, "aten::to", [self.value, m.constant(self.dtype, T.INT, place)]))


class BuiltinFunction(Sugared):
    """An operator; if it was looked up as a method, together with the value it is called on."""

    kind = "builtin"

    def __init__(self, symbol: str, owner: Named | None = None):
        self.symbol, self.owner = symbol, owner

    def call(self, place: Range | None, m: Emitter, args: Sequence[Named], kwargs: Sequence[Named]) -> Sugared:
        return SimpleValue(m.call_operator(place, self.symbol, args, kwargs, self.owner))

    def attr(self, place: Range | None, m: Emitter, name: str) -> Sugared:
        """Resolve `aten.add.Tensor` to the same operator: the arguments choose the overload."""
        return self if self.owner is None else super().attr(place, m, name)


class SpecialForm(Sugared):
    """A function implemented by the emitter: `isinstance`, `annotate`, `zip`..."""

    kind = "special form"

    def __init__(self, form: str, owner: Value | None = None):
        self.form, self.owner = form, owner
        self.kind = f"{form}"


class FunctionValue(Sugared):
    """A compiled function, or several that are overloads of one."""

    kind = "function"

    def __init__(self, functions: Sequence[Function]):
        self.functions = list(functions)

    def call(self, place: Range | None, m: Emitter, args: Sequence[Named], kwargs: Sequence[Named]) -> Sugared:
        for function in self.functions:
            function.ensure(place)
        match = match_call(m.graph, place, [f.schema for f in self.functions], args, kwargs)
        chosen = next(f for f in self.functions if f.schema is match.schema)
        name = m.graph.create("prim::Constant", (), 1, place)
        name.attributes.update(name=chosen.base_name, function=chosen)
        name.outputs_[0].type = T.FunctionType(chosen)
        fn = m.graph.insert(name).outputs_[0]
        inputs = [plan() for plan in match.plans]
        return SimpleValue(m.graph.op("prim::CallFunction", [fn, *inputs], T.result_type(chosen.schema), place))


class MethodValue(Sugared):
    """A method of an object."""

    kind = "method"

    def __init__(self, owner: Value, names: Sequence[str]):
        self.owner, self.names = owner, list(names)

    def call(self, place: Range | None, m: Emitter, args: Sequence[Named], kwargs: Sequence[Named]) -> Sugared:
        kind = self.owner.type
        schemas = []
        for name in self.names:
            if isinstance(kind, T.ClassType):
                method = kind.find_method(name)
                if method is None:
                    raise no_attribute(place, kind, name)
                method.ensure(place)
                schemas.append(method.schema)
            else:
                assert isinstance(kind, T.InterfaceType)
                schemas.append(kind.methods[name])
        match = match_call(m.graph, place, schemas, [Named(self.owner, place), *args], kwargs)
        node = m.graph.create("prim::CallMethod", [plan() for plan in match.plans], 1, place)
        node.attributes["name"] = self.names[schemas.index(match.schema)]
        node.outputs_[0].type = T.result_type(match.schema)
        return SimpleValue(m.graph.insert(node).outputs_[0])


class SugaredTuple(Sugared):
    """Tuple whose elements need not be values of the graph."""

    kind = "tuple"
    unrolled = True

    def __init__(self, items: Sequence[Sugared]):
        self.items = list(items)

    def as_tuple(self, place: Range | None, m: Emitter, size: int | None = None) -> list[Sugared]:
        return self.items

    def as_tuple_value(self, place: Range | None, m: Emitter) -> SugaredTuple:
        return self

    def as_value(self, place: Range | None, m: Emitter) -> Value:
        return m.graph.tuple_of([i.as_value(place, m) for i in self.items], place)

    def iterate(self, place: Range | None, m: Emitter) -> Sugared:
        return self

    def length(self, place: Range | None, m: Emitter) -> Value:
        return m.constant(len(self.items), T.INT, place)

    def static_length(self) -> int | None:
        return len(self.items)

    def attr(self, place: Range | None, m: Emitter, name: str) -> Sugared:
        return SimpleValue(self.as_value(place, m)).attr(place, m, name)

    def item(self, place: Range | None, m: Emitter, index: Value, kind: T.Type | None = None) -> Sugared:
        known, number = m.known(index)
        if not known:
            raise error(place, "Expected integer literal for index. ModuleList/Sequential indexing is only supported with integer literals. For example, 'i = 4; self.layers[i](x)' will fail because i is not a literal. Enumeration is supported, e.g. 'for index, v in enumerate(self): out = v(inp)'")  # fmt: skip
        if not -len(self.items) <= number < len(self.items):
            raise error(place, f"Index {number} out of range of length {len(self.items)}")
        return self.items[number]
