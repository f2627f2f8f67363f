"""Users' classes in programs: NamedTuple, Enum, interfaces, and classes whose methods are compiled."""

from __future__ import annotations

import ast
import copy
import dataclasses
import enum
import inspect
import typing
import weakref
from typing import Any

import flambeau as torch

from ..core import naming
from ..core.native_class import PREFIX, scripted
from ..library.native import classes as native_classes
from . import signatures as notes
from .emitter import Emitter
from .functions import Definition, Function, dedented, defaults_of
from .marks import Mark, compiled, mark_of
from .naming import qualified_name, unique_name
from .schema import Argument, Schema, parse_schema
from .source import Source, error
from .type_joins import unify_all
from .types import FLOAT, INFERRED, INT, STRING, ClassType, EnumType, InterfaceType, TupleType, Type
from .value_types import inferred

_tuples: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
_enums: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def named_tuple(thing: Any) -> TupleType:
    found = _tuples.get(thing)
    if found is None:
        hints = _hints(thing)
        kinds: list[Type] = [notes.python_type(hints[f]) if f in hints else INFERRED for f in thing._fields]
        defaults = [thing._field_defaults[f] for f in thing._fields if f in thing._field_defaults]
        if any(isinstance(value, torch.Tensor) for value in defaults):
            raise RuntimeError("Tensors are not supported as default NamedTuple fields. Their mutability could lead to potential memory aliasing problems")  # fmt: skip
        found = TupleType(kinds, qualified_name(thing), thing._fields, defaults)
        found.python_class = thing
        _tuples[thing] = found
    return found


def _hints(thing: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(thing)
    except Exception:  # names that cannot be looked up: the annotations as they stand
        return dict(getattr(thing, "__annotations__", {}))


def enum_type(thing: type[enum.Enum]) -> EnumType:
    found = _enums.get(thing)
    if found is None:
        members = [(m.name, m.value) for m in thing]
        kinds = [inferred(value) for _, value in members]
        if not members:
            raise RuntimeError(f"No enum values defined for: '{thing}'")
        joined = None if None in kinds else unify_all([k for k in kinds if k is not None])
        if joined is not None and joined not in (INT, FLOAT, STRING):
            raise RuntimeError(
                f"Cannot create Enum with value type '{joined.repr_str()}', only int, float and string are supported"
            )
        if joined is None or any(k != joined for k in kinds):
            raise RuntimeError(
                f"Could not unify type list of enum '{thing.__name__}': {', '.join(str(k) for k in kinds)}"
            )
        found = EnumType(qualified_name(thing), joined, thing, members)
        _enums[thing] = found
    return found


class NativeMethod:
    """A method written in C++: its schema, and the function that implements it."""

    graph = None

    def __init__(self, kind: ClassType, name: str):
        text, result = kind.python_class.schemas[name]
        self.base_name, self.qualified_name = name, f"{kind.name}.{name}"
        self.function = getattr(kind.python_class, kind.python_class.script_names.get(name, name))
        read = parse_schema(text)
        own = [Argument("self", kind), *read.arguments[1:]]
        self.schema = Schema(name, "", own, read.returns if result is None else [native_class(result)])

    def ensure(self, place: Any = None) -> NativeMethod:
        return self

    def run(self, values: list) -> Any:
        return self.function(*values)


def native_class(thing: Any) -> ClassType:
    """Return the type of a class written in C++ (`torch::class_`), or of a class here that PyTorch has in C++."""
    thing = scripted(thing)
    found = compiled.get(thing)
    if found is None:
        found = ClassType(thing.script_name())
        found.python_class = thing
        compiled[thing] = thing.script_type = found
        found.methods.update({name: NativeMethod(found, name) for name in thing.schemas})
    return found


def native_named(name: str) -> ClassType:
    """Return a native class by its full name in graphs and files."""
    space, _, last = name.removeprefix(PREFIX).partition(".")
    return native_class(getattr(getattr(native_classes, space), last))


def script_class(thing: type, outer: dict[str, Any] | None = None) -> Type:
    """Return the compiled form of a class. `__init__` is compiled at once, other methods on first use. `outer` holds the names that type
    comments in the class may use."""
    found = compiled.get(thing)
    if found is not None:
        return found
    if thing.__module__ in ("builtins", "typing", "collections", "abc") or issubclass(thing, BaseException):
        raise notes.UnknownType(thing)
    try:
        trees, source = class_source(thing)
    except (OSError, TypeError):
        raise notes.UnknownType(thing) from None
    if mark_of(thing) in (Mark.IGNORE, Mark.UNUSED):
        raise notes.UnknownType(thing)
    if any(base is not object for base in thing.__bases__) and not _allowed_bases(thing):
        raise RuntimeError("TorchScript classes does not support inheritance yet. Please directly inherit from object.")
    kind = ClassType(unique_name(qualified_name(thing)))
    kind.python_class = thing
    compiled[thing] = kind
    kind.class_attributes = frozenset(n for n, v in vars(thing).items() if not n.startswith("__") and not callable(v))

    def method(name: str, function: Any, static: bool = False, tree: Any = None, more: Any = None) -> Function:
        resolver = naming.above("jit.resolver").PythonResolver(
            function, {**(outer or {}), thing.__name__: thing, **(more or {})}
        )
        definition = Definition(tree or trees[name], source, resolver, defaults_of(function))
        return Function(f"{kind.name}.{name}", definition, None if static else kind)

    for name, value in vars(thing).items():
        plain = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if isinstance(value, property) and value.fget is not None and mark_of(value.fget) is None and name in trees:
            getter = method(name, value.fget)
            setter = (
                method(f"{name}.setter", value.fset) if value.fset is not None and f"{name}.setter" in trees else None
            )
            kind.methods[f"__{name}_getter"] = getter
            getter.qualified_name = f"{kind.name}.__{name}_getter"
            if setter is not None:
                setter.qualified_name = f"{kind.name}.__{name}_setter"
                kind.methods[f"__{name}_setter"] = setter
            kind.properties[name] = (getter, setter)
        elif inspect.isfunction(plain) and name in trees:
            if mark_of(plain) in (Mark.IGNORE, Mark.UNUSED):
                kind.ignored[name] = plain
            elif isinstance(value, classmethod):  # a function that knows the class by its first argument's name
                tree = copy.deepcopy(trees[name])
                first = tree.args.args.pop(0)
                kind.static_methods[name] = method(name, plain, True, tree, {first.arg: thing})
            else:
                made = method(name, plain, isinstance(value, staticmethod))
                (kind.static_methods if isinstance(value, staticmethod) else kind.methods)[name] = made
    if dataclasses.is_dataclass(thing):
        added = naming.above("jit.dataclass_methods").dataclass_methods(kind, thing, _hints(thing), set(trees))
        kind.methods.update(added)
    if "__init__" in kind.methods:
        try:
            kind.methods["__init__"].ensure()
        except Exception:
            del compiled[thing]
            raise
    return kind


def _allowed_bases(thing: type) -> bool:
    return all(
        base is object
        or base.__module__ in ("typing", "builtins", "abc")
        or not any(map(inspect.isfunction, vars(base).values()))
        for base in thing.__bases__
    )


def compile_all(kind: ClassType) -> None:
    for function in [*kind.methods.values(), *kind.static_methods.values()]:
        function.ensure()


def class_source(thing: type) -> tuple[dict[str, ast.FunctionDef], Source]:
    """Return the syntax trees of a class's methods by name, with property setters as `name.setter`, and the source they come from."""
    lines, first = inspect.getsourcelines(thing)
    indent = len(lines[0]) - len(lines[0].lstrip())
    text = dedented("".join(lines), indent)
    body = ast.parse(text).body[0]
    assert isinstance(body, ast.ClassDef)
    trees: dict[str, ast.FunctionDef] = {}
    for node in body.body:
        if isinstance(node, ast.FunctionDef):
            setter = any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list)
            trees[f"{node.name}.setter" if setter else node.name] = node
    return trees, Source(text, inspect.getsourcefile(thing), first, indent)


def make_interface(thing: type) -> InterfaceType:
    """Return the interface type that a class with empty methods declares."""
    if not isinstance(thing, type):
        raise RuntimeError("interface must be applied to a class")
    is_module = issubclass(thing, torch.nn.Module)
    if not is_module and thing.__bases__ != (object,):
        raise RuntimeError(
            "TorchScript interface does not support inheritance yet. Please directly inherit from 'object' or 'nn.Module'."
        )
    if is_module and len(thing.__mro__) != len(torch.nn.Module.__mro__) + 1:
        raise RuntimeError(
            "TorchScript interface does not support inheritance yet. Please directly inherit from 'object' or 'nn.Module'."
        )
    made = InterfaceType(unique_name(qualified_name(thing)), is_module)
    thing.__torch_script_interface__ = made  # type: ignore[attr-defined]
    trees, source = class_source(thing)
    for name, tree in trees.items():
        function = vars(thing).get(name)
        if not inspect.isfunction(function):
            continue
        reader = Emitter(naming.above("jit.resolver").PythonResolver(function, {thing.__name__: thing}), source)
        schema = notes.schema_of(reader, tree, made, {})
        if not schema.returns:
            raise error(source.range_of(tree), "interface declarations must have a return type annotated.")
        made.methods[name] = schema
    return made
