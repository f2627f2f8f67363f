"""Types from annotations: of arguments, of variables, in type comments; and from Python objects that stand for types."""

from __future__ import annotations

import ast
import collections
import enum
import inspect
import re
import types as python_types
import typing
from typing import Any

import flambeau as torch

from ..core.tensor import Tensor
from .interpreter import to_script
from .schema import REQUIRED, Argument, Schema
from .source import FrontendError, NotSupportedError, Range, error
from .types import (
    ANY,
    BOOL,
    COMPLEX,
    DEVICE,
    FLOAT,
    GENERATOR,
    INT,
    NONE,
    NUMBER,
    STORAGE,
    STRING,
    TENSOR,
    ClassType,
    DictType,
    EnumType,
    FutureType,
    InterfaceType,
    ListType,
    TupleType,
    Type,
    optional_of,
    unify_all,
    union_of,
)

_SIMPLE: dict[Any, Type] = {
    int: INT, float: FLOAT, complex: COMPLEX, bool: BOOL, str: STRING, None: NONE, type(None): NONE, Any: ANY, Tensor: TENSOR,
}  # fmt: skip
_NAMES: dict[str, Type] = {
    "Tensor": TENSOR, "int": INT, "float": FLOAT, "bool": BOOL, "str": STRING, "complex": COMPLEX, "None": NONE, "NoneType": NONE,
    "Any": ANY, "Device": DEVICE, "number": NUMBER, "Generator": GENERATOR, "Storage": STORAGE, "__torch__.torch.classes.Any": ANY,
}  # fmt: skip
_BROADCASTING = re.compile(r"BroadcastingList(\d)")


class UnknownType(Exception):
    """A Python object that is no type of TorchScript."""


# -- Python objects -----------------------------------------------------------------------------------------------------


def python_type(thing: Any) -> Type:
    """The type that a Python object (a class, `List[int]`...) stands for; UnknownType if none."""
    try:
        known = _SIMPLE.get(thing)
    except TypeError:
        known = None
    if known is not None:
        return known
    if isinstance(thing, Type):
        return thing
    origin, inside = typing.get_origin(thing), typing.get_args(thing)
    if origin in (list,) or thing in (list,):
        if not inside:
            raise error(
                None, "Attempted to use List without a contained type. Please add a contained type, e.g. List[int]"
            )
        return ListType(python_type(inside[0]))
    if origin is dict or thing is dict:
        if not inside:
            raise error(
                None, "Attempted to use Dict without contained types. Please add contained type, e.g. Dict[int, int]"
            )
        return DictType(python_type(inside[0]), python_type(inside[1]))
    if origin is tuple or thing is tuple:
        if not inside and thing in (tuple, tuple):
            raise error(
                None, "Attempted to use Tuple without a contained type. Please add a contained type, e.g. Tuple[int]"
            )
        return TupleType([] if inside in ((), ((),)) else [python_type(t) for t in inside])
    if origin in (typing.Union, python_types.UnionType):
        return union_of([python_type(t) for t in inside])
    if origin is typing.Final or getattr(origin, "__name__", "") == "Final":
        return python_type(inside[0])
    if origin is torch.futures.Future:
        return FutureType(python_type(inside[0]))
    if thing is torch.futures.Future:
        return FutureType(ANY)
    for word, name in (("List", "list"), ("Dict", "dict"), ("Tuple", "tuple")):
        if thing.__class__ is type and thing.__name__ == name and thing in (list, dict, tuple):
            raise error(
                None, f"Attempted to use {word} without a contained type. Please add a contained type, e.g. {word}[int]"
            )
    if thing in (torch.device,):
        return DEVICE
    if thing in (torch.dtype, torch.layout, torch.memory_format):
        return INT
    if thing is torch.Generator:
        return GENERATOR
    if thing is torch.Size:
        return ListType(INT)
    if isinstance(thing, type):
        return class_type(thing)
    if isinstance(thing, typing.TypeVar) or inspect.isfunction(thing):
        raise UnknownType(thing)
    raise UnknownType(thing)


def class_type(thing: type) -> Type:
    """The type of a user's class: tensor, NamedTuple, Enum, interface, or a class to compile."""
    from . import classes  # noqa: PLC0415  modules, classes and functions need one another

    if issubclass(thing, Tensor):
        return TENSOR
    if issubclass(thing, tuple) and hasattr(thing, "_fields"):
        return classes.named_tuple(thing)
    if issubclass(thing, enum.Enum):
        return classes.enum_type(thing)
    interface = thing.__dict__.get("__torch_script_interface__")
    if interface is not None:
        return interface
    if issubclass(thing, torch.nn.Module):
        raise UnknownType(thing)
    return classes.script_class(thing)


# -- syntax -----------------------------------------------------------------------------------------------------------------


def dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return None if owner is None else f"{owner}.{node.attr}"
    return None


def type_of(m: Any, node: ast.expr | None) -> Type:
    """The type an annotation names."""
    place = m.at(node)
    if isinstance(node, ast.Constant):
        if node.value is None:
            return NONE
        if isinstance(node.value, str):
            return _from_text(m, node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return union_of([type_of(m, node.left), type_of(m, node.right)])
    if isinstance(node, ast.Tuple) and not node.elts:
        return TupleType([])
    if isinstance(node, ast.Subscript):
        return _subscripted(m, node, place)
    name = dotted(node) if node is not None else None
    if name is None:
        raise error(place, "Expression of type " + type(node).__name__ + " cannot be used in a type expression")
    found = m.resolver.type(m, name)
    if isinstance(found, Type):
        return found
    if found is None:
        known = _NAMES.get(name.rpartition(".")[2] if name.startswith(("torch.", "typing.")) else name)
        if known is not None:
            return known
        raise error(place, f"Unknown type name '{name}'")
    try:
        return python_type(found)
    except UnknownType:
        raise error(place, f"Unknown type name '{name}'") from None


def _from_text(m: Any, node: ast.Constant) -> Type:
    try:
        tree = ast.parse(str(node.value), mode="eval").body
    except SyntaxError:
        raise error(m.at(node), f"Unknown type name {node.value!r}") from None
    for part in ast.walk(tree):
        if hasattr(part, "lineno"):
            ast.copy_location(part, node)
    return type_of(m, tree)


def _subscripted(m: Any, node: ast.Subscript, place: Range) -> Type:
    name = dotted(node.value) or ""
    word = name.rpartition(".")[2]
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if word in ("List", "list", "Sequence"):
        return ListType(type_of(m, parts[0]))
    if word == "Optional":
        return optional_of(type_of(m, parts[0]))
    if word == "Union":
        return union_of([type_of(m, p) for p in parts])
    if word in ("Dict", "dict"):
        return DictType(type_of(m, parts[0]), type_of(m, parts[1]))
    if word in ("Tuple", "tuple"):
        if len(parts) == 1 and isinstance(parts[0], ast.Tuple) and not parts[0].elts:
            return TupleType([])
        return TupleType([type_of(m, p) for p in parts])
    if word == "Final":
        return type_of(m, parts[0])
    if word in ("Future",):
        return FutureType(type_of(m, parts[0]))
    if _BROADCASTING.fullmatch(word):
        return ListType(type_of(m, parts[0]))
    alias = m.resolver.type(m, name)
    if alias is not None and not isinstance(alias, Type):
        try:
            return python_type(alias[tuple(m.resolver.type(m, dotted(p) or "") for p in parts)])
        except (TypeError, UnknownType):
            pass
    raise error(place, f"Unknown type constructor {name}")


def _broadcast_size(node: ast.expr | None) -> int | None:
    """The N of BroadcastingListN[T]."""
    if isinstance(node, ast.Subscript):
        word = (dotted(node.value) or "").rpartition(".")[2]
        found = _BROADCASTING.fullmatch(word)
        if found:
            return int(found[1])
        if word == "Optional":
            return _broadcast_size(node.slice)
    return None


# -- definitions ------------------------------------------------------------------------------------------------------------

_COMMENT = re.compile(r"#\s*type:\s*(?!ignore)(.*?)\s*$")


def schema_of(m: Any, tree: ast.FunctionDef, self_type: Type | None, defaults: dict[str, Any]) -> Schema:
    """The schema that a definition declares; results left open if it does not say."""
    if tree.args.vararg is not None or tree.args.kwarg is not None:
        raise error(
            m.at(tree).first(),
            "Compiled functions can't take variable number of arguments or use keyword-only arguments with defaults",
            NotSupportedError,
        )
    names = [*tree.args.posonlyargs, *tree.args.args]
    comment_types, comment_result = _comment_signature(m, tree, len(names) - (self_type is not None))
    arguments = []
    for number, parameter in enumerate([*names, *tree.args.kwonlyargs]):
        if number == 0 and self_type is not None:
            arguments.append(Argument(parameter.arg, self_type))
            continue
        kind: Type = TENSOR
        if comment_types is not None and number < len(names):
            kind, size = comment_types[number - (self_type is not None)]
        else:
            size = _broadcast_size(parameter.annotation)
            given = m.resolver.argument_type(m, tree, parameter.arg)
            if given is not None:
                kind = given
            elif parameter.annotation is not None and not _says_nothing(m, parameter.annotation):
                kind = type_of(m, parameter.annotation)
        default = defaults.get(parameter.arg, REQUIRED)
        if default is not REQUIRED:
            default = _checked_default(m, tree, parameter.arg, default, kind, size)
        arguments.append(Argument(parameter.arg, kind, default, number >= len(names), size))
    if comment_types is not None:
        returns = [comment_result] if comment_result is not None else []
    elif tree.returns is not None and not _says_nothing(m, tree.returns):
        returns = [type_of(m, tree.returns)]
    else:
        returns = []
    return Schema(tree.name, "", arguments, returns)


def _says_nothing(m: Any, node: ast.expr) -> bool:
    """The library's own layers are annotated with Any where Python does not care: a tensor, or what the code returns."""
    return m.resolver.is_library and dotted(node) == "Any"


def _checked_default(m: Any, tree: ast.FunctionDef, name: str, default: Any, kind: Type, size: int | None) -> Any:
    if size is not None and isinstance(default, (int, float)):
        default = [default] * size
    if (
        isinstance(default, float) is False
        and isinstance(default, int)
        and not isinstance(default, bool)
        and kind is FLOAT
    ):
        return float(default)
    try:
        return to_script(default, kind)
    except TypeError:
        raise error(m.at(tree), f'Expected a default value of type {kind.repr_str()} on parameter "{name}"') from None


def comment_type(m: Any, node: ast.stmt) -> Type | None:
    """The type in `x = ...  # type: T`."""
    line = m.source.lines[node.end_lineno - 1] if node.end_lineno is not None else ""
    if "# type:" not in line:
        return None
    found = _COMMENT.search(line[node.end_col_offset or 0 :])
    if found is None or "->" in found[1]:
        return None
    return _parse_comment(m, found[1], node)


def _parse_comment(m: Any, text: str, node: Any) -> Type:
    tree = _located(ast.parse(text.strip(), mode="eval").body, node)
    return type_of(m, tree)


def _located(tree: Any, node: Any) -> Any:
    for part in ast.walk(tree):
        if hasattr(part, "lineno"):
            part.lineno, part.col_offset = node.lineno, node.col_offset  # type: ignore[attr-defined]
            part.end_lineno, part.end_col_offset = node.lineno, node.col_offset + 1  # type: ignore[attr-defined]
    return tree


def _comment_signature(m: Any, tree: ast.FunctionDef, count: int) -> tuple[list | None, Type | None]:
    """The types of `# type: (Tensor, int) -> Tensor` under (or in) a definition."""
    body = tree.body[0].lineno if tree.body else tree.lineno
    if tree.body and isinstance(tree.body[0], ast.Expr) and len(tree.body) > 1:
        body = tree.body[1].lineno  # a docstring stands before
    lines = m.source.lines[tree.lineno - 1 : max(body - 1, tree.lineno)]
    found = [c for c in (_COMMENT.search(line) for line in lines) if c]
    whole = [c[1] for c in found if "->" in c[1]]
    single = [c[1] for c in found if "->" not in c[1]]
    if not whole:
        return None, None
    if len(whole) > 1:
        raise error(m.at(tree), "Too many type comments", FrontendError)
    text = whole[0]
    if single and re.match(r"\(\s*\.\.\.\s*\)", text):  # one comment per argument
        text = f"({', '.join(s.rstrip(', ') for s in single)}) -> {text.partition('->')[2]}"
    try:
        signature = ast.parse(text, mode="func_type")
    except SyntaxError:
        raise error(m.at(tree), f"Failed to parse the type comment '{text}'", FrontendError) from None
    if len(signature.argtypes) == count + 1:  # the type of self may stand there too
        signature.argtypes = signature.argtypes[1:]
    if len(signature.argtypes) != count:
        raise error(
            m.at(tree),
            f"Number of type annotations for function parameters ({len(signature.argtypes)}) does not match the number of parameters on the function ({count})!",
        )
    kinds = [(type_of(m, _located(t, tree)), _broadcast_size(t)) for t in signature.argtypes]
    return kinds, type_of(m, _located(signature.returns, tree))


# -- values -----------------------------------------------------------------------------------------------------------------


def inferred(value: Any) -> Type | None:
    """The type of a Python value, or None if it has none."""
    if isinstance(value, Tensor):
        return TENSOR
    kinds: dict[type, Type] = {bool: BOOL, int: INT, float: FLOAT, complex: COMPLEX, str: STRING, type(None): NONE}
    known = kinds.get(type(value))
    if known is not None:
        return known
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return INT
    if isinstance(value, torch.device):
        return DEVICE
    if isinstance(value, torch.Generator):
        return GENERATOR
    if isinstance(value, enum.Enum):
        return class_type(type(value))
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            return class_type(type(value))
        parts = [inferred(v) for v in value]
        return None if None in parts else TupleType([p for p in parts if p is not None])
    if isinstance(value, list):
        return _inferred_list(value)
    if isinstance(value, (dict, collections.OrderedDict)):
        return _inferred_dict(value)
    script_type = getattr(value, "script_type", None)
    return script_type if isinstance(script_type, (ClassType, InterfaceType)) else None


def _inferred_list(value: list) -> Type | None:
    if not value:
        return None
    parts = [inferred(v) for v in value]
    if None in parts:
        return None
    joined = unify_all([p for p in parts if p is not None])
    return None if joined is None else ListType(joined)


def _inferred_dict(value: dict) -> Type | None:
    if not value:
        return None
    keys, values = [inferred(k) for k in value], [inferred(v) for v in value.values()]
    if None in keys or None in values:
        return None
    key, item = unify_all([k for k in keys if k is not None]), unify_all([v for v in values if v is not None])
    return None if key is None or item is None else DictType(key, item)


__all__ = ["EnumType", "NotSupportedError", "inferred", "python_type", "schema_of", "type_of"]
