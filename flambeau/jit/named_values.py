"""Meanings of names outside a program while it is compiled: classes, modules, Python objects, ranges, exceptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import types as T
from .ir import Value
from .matching import Named, match_call
from .schema import Argument, Schema
from .source import Range, error

if TYPE_CHECKING:
    from .emitter import Emitter
from .values import BuiltinFunction, FunctionValue, MethodValue, SimpleValue, SpecialForm, Sugared, SugaredTuple


class CastValue(Sugared):
    """`int`, `float`, `bool`, `str`, `complex` as functions."""

    def __init__(self, type: T.Type, symbol: str):
        self.type, self.symbol = type, symbol
        self.kind = f"__{type}__"

    def call(self, place: Range | None, m: Emitter, args: Sequence[Named], kwargs: Sequence[Named]) -> Sugared:
        if len(args) == 1 and not kwargs:
            value = args[0].value
            if T.is_subtype(value.type, self.type):
                return SimpleValue(value)
            if self.type is T.BOOL and (isinstance(value.type, (T.ListType, T.DictType)) or value.type is T.STRING):
                return SimpleValue(m.to_bool(place, value))
            if isinstance(value.type, T.ClassType) and value.type.find_method(self.kind) is not None:
                return MethodValue(value, [self.kind]).call(place, m, [], [])
        return SimpleValue(m.call_operator(place, self.symbol, args, kwargs))


class MagicMethod(Sugared):
    """`len`, `hash`...: the class's own method if it has one, else an operator."""

    kind = "builtin"

    def __init__(self, method: str, base: Sugared):
        self.method, self.base = method, base

    def call(self, place: Range | None, m: Emitter, args: Sequence[Named], kwargs: Sequence[Named]) -> Sugared:
        if args:
            kind = args[0].value.type
            if isinstance(kind, T.ClassType) and kind.find_method(self.method) is not None:
                return MethodValue(args[0].value, [self.method]).call(place, m, args[1:], kwargs)
        return self.base.call(place, m, args, kwargs)


class ClassValue(Sugared):
    """A class: calling it makes an object."""

    kind = "class"

    def __init__(self, type: T.ClassType):
        self.type = type

    def call(self, place: Range | None, m: Emitter, args: Sequence[Named], kwargs: Sequence[Named]) -> Sugared:
        init = self.type.find_method("__init__")
        made = m.graph.op("prim::CreateObject", [], self.type, place)
        if init is None:
            raise error(place, f"Class {self.type.name} does not have an __init__ function defined")
        MethodValue(made, ["__init__"]).call(place, m, args, kwargs)
        return SimpleValue(made)

    def has_attr(self, place: Range | None, m: Emitter, name: str) -> bool:
        return self.type.find_method(name) is not None or name in self.type.static_methods

    def attr(self, place: Range | None, m: Emitter, name: str) -> Sugared:
        if name == "__new__":
            return SpecialForm("__new__")
        if name in self.type.static_methods:
            return FunctionValue([self.type.static_methods[name]])
        if name in self.type.constants:
            return m.resolver.sugared(m, place, self.type.constants[name], constant=True)
        raise error(place, f"Tried to lookup unknown attribute on class {self.type.name}: {name}")


class NamedTupleClass(Sugared):
    """A NamedTuple class: calling it makes a tuple with fields."""

    kind = "named tuple constructor"

    def __init__(self, type: T.TupleType):
        self.type = type
        required = len(type.fields) - len(type.defaults)
        arguments = [
            Argument(f, t, *([type.defaults[i - required]] if i >= required else []))
            for i, (f, t) in enumerate(zip(type.fields, type.elements))
        ]
        self.schema = Schema(type.tuple_name or "", "", arguments, [type])

    def call(self, place: Range | None, m: Emitter, args: Sequence[Named], kwargs: Sequence[Named]) -> Sugared:
        match = match_call(m.graph, place, [self.schema], args, kwargs)
        values = [plan() for plan in match.plans]
        return SimpleValue(m.graph.tuple_of(values, place, self.type))


class EnumClass(Sugared):
    """An Enum class: `Color.RED` is a value."""

    kind = "enum class"

    def __init__(self, type: T.EnumType):
        self.type = type

    def attr(self, place: Range | None, m: Emitter, name: str) -> Sugared:
        names = [n for n, _ in self.type.members]
        if name not in names:
            raise error(place, f"Enum class '{self.type.enum_name.rpartition('.')[2]}' has no attribute '{name}'")
        member = self.type.python_class[name]
        return SimpleValue(m.graph.constant(member, self.type, place))

    def iterate(self, place: Range | None, m: Emitter) -> Sugared:
        return SimpleValue(self.as_value(place, m))

    def as_value(self, place: Range | None, m: Emitter) -> Value:
        return m.graph.constant([self.type.python_class[n] for n, _ in self.type.members], T.ListType(self.type), place)


class SugaredDict(Sugared):
    """The submodules of a ModuleDict by name."""

    kind = "ModuleDict"

    def __init__(self, keys: SugaredTuple, values: SugaredTuple, names: Sequence[str]):
        self.keys, self.values, self.names = keys, values, list(names)

    def iterate(self, place: Range | None, m: Emitter) -> Sugared:
        return self.keys

    def find(self, name: str) -> Sugared | None:
        return self.values.items[self.names.index(name)] if name in self.names else None


class RangeValue(Sugared):
    """Value of `range(...)` while it is compiled."""

    kind = "range"

    def __init__(self, place: Range | None, m: Emitter, inputs: Sequence[Value], static: int | None = None):
        if not inputs:
            raise error(place, "range expected at least 1 arguments, got 0")
        for value in inputs:
            if value.type is not T.INT:
                raise error(
                    place,
                    f"all inputs of range must be ints, found {value.type.repr_str()} in argument {list(inputs).index(value)}",
                )
        self.static = static
        self.simple = len(inputs) == 1
        if self.simple:
            self.stop = inputs[0]
            return
        if not 2 <= len(inputs) <= 3:
            raise error(place, f"range expected at most 3 arguments, got {len(inputs)}")
        self.start, self.stop = inputs[0], inputs[1]
        self.step = inputs[2] if len(inputs) == 3 else m.constant(1, T.INT, place)

    def iterate(self, place: Range | None, m: Emitter) -> Sugared:
        return self

    def length(self, place: Range | None, m: Emitter) -> Value:
        if self.simple:
            return self.stop
        return m.builtin(place, "aten::__range_length", [self.start, self.stop, self.step])

    def item(self, place: Range | None, m: Emitter, index: Value, kind: T.Type | None = None) -> Sugared:
        if self.simple:
            return SimpleValue(index)
        return SimpleValue(m.builtin(place, "aten::__derive_index", [index, self.start, self.step]))

    def static_length(self) -> int | None:
        return self.static


class IterableTree(Sugared):
    """`zip(...)` and `enumerate(...)`: several iterables walked together."""

    kind = "iterabletree"

    def __init__(self, children: Sequence[Sugared], unrolled: bool):
        self.children, self.unrolled = list(children), unrolled

    def iterate(self, place: Range | None, m: Emitter) -> Sugared:
        return self

    def leaves(self) -> list[Sugared]:
        out: list[Sugared] = []
        for child in self.children:
            out += child.leaves() if isinstance(child, IterableTree) else [child]
        return out

    def length(self, place: Range | None, m: Emitter) -> Value:
        lengths = [
            leaf.length(place, m) for leaf in self.leaves() if not (isinstance(leaf, RangeValue) and leaf.static == -1)
        ]
        if not lengths:
            raise error(place, "Need at least one iterable")
        if len(lengths) == 1:
            return lengths[0]
        together = m.graph.list_of(T.INT, lengths, place)
        return m.builtin(place, "prim::min", [together])

    def item(self, place: Range | None, m: Emitter, index: Value, kind: T.Type | None = None) -> Sugared:
        return SugaredTuple([child.item(place, m, index) for child in self.children])

    def static_length(self) -> int | None:
        known = [n for n in (child.static_length() for child in self.children) if n is not None]
        return min(known) if known else None


class ExceptionClass(Sugared):
    """An exception class or instance: its Python name, and the value of its message."""

    kind = "exception"

    def __init__(self, name: str, message: Value | None = None):
        self.name, self.message = name, message

    def call(self, place: Range | None, m: Emitter, args: Sequence[Named], kwargs: Sequence[Named]) -> Sugared:
        if not args:
            return ExceptionClass(self.name, m.constant("", T.STRING, place))
        values = [a.value for a in args]
        if len(values) == 1 and values[0].type is T.STRING:
            return ExceptionClass(self.name, values[0])
        return ExceptionClass(
            self.name,
            m.call_operator(
                place,
                "aten::str",
                [Named(values[0] if len(values) == 1 else m.graph.tuple_of(values, place), place)],
                [],
            ),
        )


class SliceValue(Sugared):
    """`slice(1, 2)`: start, stop, step; None where not given."""

    kind = "slice"

    def __init__(self, parts: Sequence[Value | None]):
        self.parts = (list(parts) + [None, None, None])[:3]


class LocalFunction(Sugared):
    """A function without arguments defined inside another one, for `fork`."""

    kind = "local function"

    def __init__(self, tree: Any):
        self.tree = tree

    def call(self, place: Range | None, m: Emitter, args: Sequence[Named], kwargs: Sequence[Named]) -> Sugared:
        m.statements(self.tree.body[:-1])
        return m.sugared(self.tree.body[-1].value)


class PythonObject(Sugared):
    """A Python object that compiled code cannot use, with the reason."""

    def __init__(self, thing: Any, reason: str = ""):
        self.thing, self.reason = thing, reason
        self.kind = f"python value of type '{type(thing).__name__}'"

    def as_value(self, place: Range | None, m: Emitter) -> Value:
        text = f"{self.kind} cannot be used as a value."
        raise error(
            place,
            text
            + (
                f" {self.reason}"
                if self.reason
                else " Perhaps it is a closed over global variable? If so, please consider passing it in as an argument or use a local varible instead."
                if not self.reason
                else ""
            ),
        )

    def call(self, place: Range | None, m: Emitter, args: Sequence[Named], kwargs: Sequence[Named]) -> Sugared:
        """Insert a call back to Python; arguments and result are assumed to be tensors unless annotated."""
        if self.reason or not callable(self.thing):
            raise error(place, f"{self.reason or f'{self.kind} cannot be called in TorchScript.'}")
        name = getattr(self.thing, "__name__", "python_value")
        schema = Schema(name, "", [], [m.resolver.python_result(self.thing)], is_vararg=True)
        return IgnoredFunction(self.thing, schema, name).call(place, m, args, kwargs)

    def attr(self, place: Range | None, m: Emitter, name: str) -> Sugared:
        raise error(
            place, f"attribute lookup is not defined on {self.kind}" + (f". {self.reason}" if self.reason else "")
        )


class PythonModule(Sugared):
    """A Python module (or another namespace) whose names are resolved on use."""

    kind = "module"

    def __init__(self, module: Any):
        self.module = module
        self.kind = f"python module '{getattr(module, '__name__', module)}'"

    def attr(self, place: Range | None, m: Emitter, name: str) -> Sugared:
        try:
            found = getattr(self.module, name)
        except AttributeError:
            raise error(place, f"object has no attribute {name}") from None
        return m.resolver.sugared(m, place, found)


class IgnoredFunction(Sugared):
    """A Python function that is not compiled: the graph calls back to it. It runs, but cannot be saved."""

    kind = "ignored function"

    def __init__(
        self,
        function: Callable,
        schema: Schema,
        name: str,
        unused: bool = False,
        owner: Value | None = None,
        unannotated: bool = False,
    ):
        self.function, self.schema, self.name, self.unused, self.owner = function, schema, name, unused, owner
        self.unannotated = unannotated  # a tensor, then, or nothing

    def call(self, place: Range | None, m: Emitter, args: Sequence[Named], kwargs: Sequence[Named]) -> Sugared:
        given = [Named(self.owner, place), *args] if self.owner is not None else args
        if self.unused:
            m.raise_exception(place, m.constant(f"{self.unused_text()}", T.STRING, place), "")
            return SimpleValue(m.graph.op("prim::Uninitialized", [], T.result_type(self.schema), place))
        if self.schema.is_vararg:
            values = [a.value for a in (*given, *kwargs)]
            named = [str(k.name) for k in kwargs]
        else:
            values = [plan() for plan in match_call(m.graph, place, [self.schema], given, kwargs).plans]
            named = []
        node = m.graph.create("prim::PythonOp", values, 1, place)
        node.attributes.update(name=self.name, python=self.function)
        if named:
            node.attributes["keywords"] = named
        if self.unannotated:
            node.attributes["unannotated"] = True
        node.outputs_[0].type = T.result_type(self.schema)
        return SimpleValue(m.graph.insert(node).outputs_[0])

    def unused_text(self) -> str:
        return (
            f"The Python function <{self.name}> cannot be called from TorchScript because it was marked unused"
            if not self.name
            else "This Python function is annotated to be ignored and cannot be run"
        )


class OperatorNamespace(Sugared):
    """Namespace in which every name is an operator: `torch` and `ops.<namespace>` in archives, `aten` in this library's own forms."""

    kind = "module"

    def __init__(self, space: str):
        self.space = space

    def attr(self, place: Range | None, m: Emitter, name: str) -> Sugared:
        return BuiltinFunction(f"{self.space}::{name}")
