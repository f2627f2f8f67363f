"""Types from annotations of arguments and variables, from type comments, and from Python objects such as `List[int]`."""

from __future__ import annotations

import ast
import enum
import re
import types as python_types
import typing
import warnings
from typing import Any

import flambeau as torch

from ..compat.legacy import TENSOR_TYPES
from ..core import naming
from ..core.native_class import CustomClass
from ..core.tensor import Tensor
from . import types as T
from .objects import to_script
from .schema import REQUIRED, Argument, Schema
from .source import FrontendError, NotSupportedError, Range, error

_SIMPLE: dict[Any, T.Type] = {**T.OF_PYTHON, None: T.NONE, Any: T.ANY, Tensor: T.TENSOR}
_NAMES: dict[str, T.Type] = {
    "Tensor": T.TENSOR, "int": T.INT, "float": T.FLOAT, "bool": T.BOOL, "str": T.STRING, "complex": T.COMPLEX, "None": T.NONE, "NoneType": T.NONE,
    "Any": T.ANY, "Device": T.DEVICE, "number": T.NUMBER, "Generator": T.GENERATOR, "Storage": T.STORAGE, "__torch__.torch.classes.Any": T.ANY,
}  # fmt: skip
_BROADCASTING = re.compile(r"BroadcastingList(\d)")


class UnknownType(Exception):
    """A Python object that is no type of TorchScript."""


# -- Python objects -----------------------------------------------------------------------------------------------------


def python_type(thing: Any) -> T.Type:
    """Return the type of a Python object used as an annotation (a class, `List[int]`...); raises UnknownType."""
    try:
        known = _SIMPLE.get(thing)
    except TypeError:
        known = None
    if known is not None:
        return known
    if isinstance(thing, T.Type):
        return thing
    origin, inside = typing.get_origin(thing), typing.get_args(thing)
    if origin in (list,) or thing in (list,):
        if not inside:
            raise error(
                None, "Attempted to use List without a contained type. Please add a contained type, e.g. List[int]"
            )
        return T.ListType(python_type(inside[0]))
    if origin is dict or thing is dict:
        if not inside:
            raise error(
                None, "Attempted to use Dict without contained types. Please add contained type, e.g. Dict[int, int]"
            )
        return T.DictType(python_type(inside[0]), python_type(inside[1]))
    if origin is tuple or thing is tuple:
        if thing is tuple or thing is typing.Tuple:  # noqa: UP006  Tuple[()] has no parts either
            raise error(
                None, "Attempted to use Tuple without a contained type. Please add a contained type, e.g. Tuple[int]"
            )
        return T.TupleType([] if inside in ((), ((),)) else [python_type(t) for t in inside])
    if origin in (typing.Union, python_types.UnionType):
        return T.union_of([python_type(t) for t in inside])
    if origin is typing.Final or getattr(origin, "__name__", "") == "Final":
        return python_type(inside[0])
    if origin is torch.futures.Future:
        return T.FutureType(python_type(inside[0]))
    if thing is torch.futures.Future or thing is typing.Optional:
        word = "Future" if thing is torch.futures.Future else "Optional"
        raise error(
            None, f"Attempted to use {word} without a contained type. Please add a contained type, e.g. {word}[int]"
        )
    if thing in (torch.device,):
        return T.DEVICE
    if thing in (torch.dtype, torch.layout, torch.memory_format, torch.qscheme):
        return T.INT
    if thing is torch.Generator:
        return T.GENERATOR
    if thing is torch.Size:
        return T.ListType(T.INT)
    if thing in TENSOR_TYPES.values():
        warnings.warn(
            "TorchScript will treat type annotations of Tensor dtype-specific subtypes as if they are normal Tensors. dtype constraints are not enforced in compilation either.",
            stacklevel=2,
        )
        return T.TENSOR
    if isinstance(thing, type):
        return class_type(thing)
    raise UnknownType(thing)


def class_type(thing: type) -> T.Type:
    """Return the type of a user's class: tensor, NamedTuple, Enum, interface, or a class to compile."""
    classes = naming.above("jit.classes")  # classes have methods, whose signatures are read here
    if issubclass(thing, Tensor):
        return T.TENSOR
    if issubclass(thing, tuple) and hasattr(thing, "_fields"):
        return classes.named_tuple(thing)
    if issubclass(thing, enum.Enum):
        return classes.enum_type(thing)
    interface = thing.__dict__.get("__torch_script_interface__")
    if interface is not None:
        return interface
    if issubclass(thing, torch.nn.Module):
        raise UnknownType(thing)
    return classes.native_class(thing) if issubclass(thing, CustomClass) else classes.script_class(thing)


# -- syntax -----------------------------------------------------------------------------------------------------------------


def dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return None if owner is None else f"{owner}.{node.attr}"
    return None


def type_of(m: Any, node: ast.expr | None) -> T.Type:
    """Return the type that an annotation names."""
    place = m.at(node)
    if isinstance(node, ast.Constant):
        if node.value is None:
            return T.NONE
        if isinstance(node.value, str):
            return _from_text(m, node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return T.union_of([type_of(m, node.left), type_of(m, node.right)])
    if isinstance(node, ast.Tuple) and not node.elts:
        return T.TupleType([])
    if isinstance(node, ast.Subscript):
        return _subscript_type(m, node, place)
    name = dotted(node) if node is not None else None
    if name is None:
        word = _SIGNS.get(type(getattr(node, "op", None)), type(node).__name__)
        raise error(place, f"Expression of type {word} cannot be used in a type expression")
    found = m.resolver.type(m, name)
    if isinstance(found, T.Type):
        return found
    if found is not None and found in _BARE_GENERIC_MESSAGES:
        raise error(place, _BARE_GENERIC_MESSAGES[found])
    if found is None:
        known = _NAMES.get(name.rpartition(".")[2] if name.startswith(("torch.", "typing.")) else name)
        if known is not None:
            return known
        raise error(place, f"Unknown type name '{name}'")
    return annotated_type(found, place)


def annotated_type(thing: Any, place: Range) -> T.Type:
    """Return the type of an annotation's value; raises an error with the source location."""
    try:
        return python_type(thing)
    except UnknownType as unknown:
        what = unknown.args[0]
        raise ValueError(
            f"Unknown type annotation: '{what if not isinstance(what, typing.ForwardRef) else thing}' at {place.highlight()}"
        ) from None


_BARE_GENERIC_MESSAGES = {
    typing.Optional: "Attempted to use Optional without a contained type. Please add a contained type, e.g. Optional[int]",
    typing.Tuple: "Attempted to use Tuple without a contained type. Please add a contained type, e.g. Tuple[int]",  # noqa: UP006
}
_SIGNS: dict[type, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%", ast.Pow: "**"}


def _from_text(m: Any, node: ast.Constant) -> T.Type:
    try:
        tree = ast.parse(str(node.value), mode="eval").body
    except SyntaxError:
        raise error(m.at(node), f"Unknown type name {node.value!r}") from None
    for part in ast.walk(tree):
        if hasattr(part, "lineno"):
            ast.copy_location(part, node)
    return type_of(m, tree)


def _subscript_type(m: Any, node: ast.Subscript, place: Range) -> T.Type:
    name = dotted(node.value)
    if name is None:
        raise error(m.at(node.value), "Subscripted type must be a type identifier")
    word = name.rpartition(".")[2]
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if word in ("List", "list", "Sequence"):
        return T.ListType(type_of(m, parts[0]))
    if word == "Optional":
        return T.optional_of(type_of(m, parts[0]))
    if word == "Union":
        return T.union_of([type_of(m, p) for p in parts])
    if word in ("Dict", "dict"):
        return T.DictType(type_of(m, parts[0]), type_of(m, parts[1]))
    if word in ("Tuple", "tuple"):
        if not parts:
            return T.TupleType([])
        if isinstance(node.slice, ast.Tuple) and m.at(node.slice).text().startswith("("):
            raise error(m.at(node.slice), "Tuple literal in Tuple type annotation must not have any elements!")
        return T.TupleType([type_of(m, p) for p in parts])
    if word == "Final":
        return type_of(m, parts[0])
    if word in ("Future",):
        return T.FutureType(type_of(m, parts[0]))
    if word.startswith("BroadcastingList"):
        if not _BROADCASTING.fullmatch(word):
            raise error(place, "subscript of Broadcastable list must be a positive integer")
        return T.ListType(type_of(m, parts[0]))
    alias = m.resolver.type(m, name)
    if alias is not None and not isinstance(alias, T.Type):
        try:
            return python_type(alias[tuple(m.resolver.type(m, dotted(p) or "") for p in parts)])
        except (TypeError, UnknownType):
            pass
    raise error(place, f"Unknown type constructor {name}")


def _broadcast_size(node: ast.expr | None) -> int | None:
    """Return the N of BroadcastingListN[T]."""
    if isinstance(node, ast.Subscript):
        word = (dotted(node.value) or "").rpartition(".")[2]
        found = _BROADCASTING.fullmatch(word)
        if found:
            return int(found[1])
        if word == "Optional":
            return _broadcast_size(node.slice)
    return _broadcast_size(node.left) if isinstance(node, ast.BinOp) else None  # `BroadcastingList2[int] | None`


# -- definitions ------------------------------------------------------------------------------------------------------------

_COMMENT = re.compile(r"# type:\s*(?!ignore)(.*?)\s*$")
_MISSPELT = re.compile(r"#[\t ]*type[\t ]*:\s*\(")
_VARIABLE = "Compiled functions can't take variable number of arguments or use keyword-only arguments with defaults"


def schema_of(m: Any, tree: ast.FunctionDef, self_type: T.Type | None, defaults: dict[str, Any]) -> Schema:
    """Return the schema that a definition declares; its result type is open if it is not annotated."""
    for extra in (tree.args.vararg, tree.args.kwarg):
        if extra is not None:
            raise error(m.at(extra), _VARIABLE, NotSupportedError)
    for default in tree.args.kw_defaults:
        if default is not None and not m.resolver.is_library and not m.resolver.is_text:
            raise error(m.at(default), _VARIABLE, NotSupportedError)
    names = [*tree.args.posonlyargs, *tree.args.args]
    if self_type is not None and not names:
        raise error(m.at(tree), "methods must have a self argument")
    comment_types, comment_result = _comment_signature(m, tree, len(names) - (self_type is not None))
    arguments = []
    for number, parameter in enumerate([*names, *tree.args.kwonlyargs]):
        if number == 0 and self_type is not None:
            arguments.append(Argument(parameter.arg, self_type))
            continue
        kind: T.Type = T.INFERRED
        if comment_types is not None and number < len(names):
            kind, size = comment_types[number - (self_type is not None)]
        else:
            size = _broadcast_size(parameter.annotation)
            given = m.resolver.argument_type(m, tree, parameter.arg)
            if tree.name == "__setstate__" and parameter.annotation is None and isinstance(self_type, T.ClassType):
                given = _state_type(m, tree, self_type)
            if given is not None:
                kind = given
            elif parameter.annotation is not None and not _is_undeclared(m, parameter.annotation):
                kind = _annotation_type(m, parameter.annotation, parameter.arg)
        default = defaults.get(parameter.arg, REQUIRED)
        if default is not REQUIRED:
            default = _checked_default(m, tree, parameter.arg, default, kind, size)
        arguments.append(Argument(parameter.arg, kind, default, number >= len(names), size))
    if comment_types is not None:
        returns = [comment_result] if comment_result is not None else []
    elif tree.returns is not None and not _is_undeclared(m, tree.returns):
        returns = [_annotation_type(m, tree.returns, "return")]
    else:
        returns = []
    return Schema(tree.name, "", arguments, returns)


def _state_type(m: Any, tree: ast.FunctionDef, owner: T.ClassType) -> T.Type:
    """Return the type that `__setstate__` is given: what `__getstate__` returns."""
    getter = owner.find_method("__getstate__")
    if getter is None:
        raise error(
            m.at(tree), f"'{owner.name}' defines __setstate__ but no __getstate__ (torch.jit.export marks both)"
        )
    return T.result_type(getter.schema)


def _annotation_type(m: Any, node: ast.expr, name: str) -> T.Type:
    """Return the type of an annotation; if its names are local to another function, from the value that Python evaluated it to."""
    try:
        return type_of(m, node)
    except RuntimeError:
        value = m.resolver.annotation(name)
        if value is None or isinstance(value, str):
            raise
        return annotated_type(value, m.at(node))


def _is_undeclared(m: Any, node: ast.expr) -> bool:
    """Return whether an annotation is `Any` in the library's own code, where it declares nothing: a tensor, or the type returned."""
    return m.resolver.is_library and dotted(node) == "Any"


def _checked_default(m: Any, tree: ast.FunctionDef, name: str, default: Any, kind: T.Type, size: int | None) -> Any:
    if _is_mutable(default) and not m.resolver.trusts_returns and not m.resolver.is_text:  # an archive may hold any
        raise error(
            m.at(tree),
            f"Mutable default parameters are not supported because Python binds them to the function and they persist across function calls.\n As a workaround, make the default None and instantiate the default parameter within the body of the function. Found {type(default)} on parameter {name}",
        )
    if size is not None and isinstance(default, (int, float)):
        default = [default] * size
    if (
        isinstance(default, float) is False
        and isinstance(default, int)
        and not isinstance(default, bool)
        and kind is T.FLOAT
    ):
        return float(default)
    try:
        return to_script(default, kind)
    except TypeError:
        raise error(m.at(tree), f'Expected a default value of type {kind.repr_str()} on parameter "{name}"') from None


def _is_mutable(value: Any) -> bool:
    return isinstance(value, (list, dict)) or (isinstance(value, tuple) and any(map(_is_mutable, value)))


def comment_type(m: Any, node: ast.stmt) -> T.Type | None:
    """Return the type in the comment of `x = ...  # type: T`, or None."""
    line = m.source.lines[node.end_lineno - 1] if node.end_lineno is not None else ""
    if "# type:" not in line:
        return None
    found = _COMMENT.search(line[node.end_col_offset or 0 :])
    if found is None or "->" in found[1]:
        return None
    return _parse_comment(m, found[1], node)


def _parse_comment(m: Any, text: str, node: Any) -> T.Type:
    tree = _locate(ast.parse(text.strip(), mode="eval").body, node)
    return type_of(m, tree)


def _locate(tree: Any, node: Any) -> Any:
    for part in ast.walk(tree):
        if isinstance(part, (ast.expr, ast.arg, ast.keyword)):
            part.lineno, part.col_offset = node.lineno, node.col_offset
            part.end_lineno, part.end_col_offset = node.lineno, node.col_offset + 1
    return tree


def _comment_signature(m: Any, tree: ast.FunctionDef, count: int) -> tuple[list | None, T.Type | None]:
    """Return the types in a comment `# type: (Tensor, int) -> Tensor` under (or in) a definition."""
    body = tree.body[0].lineno if tree.body else tree.lineno
    if tree.body and isinstance(tree.body[0], ast.Expr) and len(tree.body) > 1:
        body = tree.body[1].lineno  # a docstring stands before
    lines = m.source.lines[tree.lineno - 1 : max(body - 1, tree.lineno)]
    found = [c[1] for c in (_COMMENT.search(line) for line in lines) if c]
    if not found:
        _check_spelling(lines)
        return None, None
    text = found[0]
    if len(found) > 1:  # one comment per argument
        text = next((c for c in found if re.match(r"\(\.\.\.\) -> ", c)), "")
        if not text:
            raise RuntimeError(
                "Return type line '# type: (...) -> ...' not found on multiline type annotation\nfor type lines:\n"
                + "\n".join(f"# type: {c}" for c in found)
                + "\n(See PEP 484 https://www.python.org/dev/peps/pep-0484/#suggested-syntax-for-python-2-7-and-straddling-code)"
            )
        single = [_strip_comment(c) for c in found[: found.index(text)]]
        text = f"({', '.join(single)}) -> {text.partition('->')[2]}"
    if not text.startswith("("):
        return None, None
    text = _strip_comment(text)
    result = "->" in text
    try:
        signature = ast.parse(text if result else f"{text} -> None", mode="func_type")
    except SyntaxError:
        raise error(m.at(tree), f"Failed to parse the type comment '{text}'", FrontendError) from None
    if len(signature.argtypes) == count + 1:  # the type of self may stand there too
        signature.argtypes = signature.argtypes[1:]
    if len(signature.argtypes) != count:
        whole = m.at(tree)
        head = Range(m.source, whole.line, whole.column, whole.line, len(m.source.lines[whole.line]))
        raise error(
            head,
            f"Number of type annotations ({len(signature.argtypes)}) did not match the number of function parameters ({count})",
        )
    kinds = [(type_of(m, _locate(t, tree)), _broadcast_size(t)) for t in signature.argtypes]
    return kinds, type_of(m, _locate(signature.returns, tree)) if result else None


def _strip_comment(text: str) -> str:
    return text.partition("#")[0].strip().rstrip(",")


def _check_spelling(lines: list[str]) -> None:
    for number, line in enumerate(lines):
        if _MISSPELT.search(line):
            raise RuntimeError(
                f"The annotation prefix in line {number} is probably invalid.\nIt must be '# type:'"
                "\nSee PEP 484 (https://www.python.org/dev/peps/pep-0484/#suggested-syntax-for-python-2-7-and-straddling-code)"
                "\nfor examples"
            )
