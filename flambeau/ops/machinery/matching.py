"""Matching of a call's values with the arguments of a schema: the one matcher of `torch.ops`, of users' operators and of TorchScript.
Values may be Python objects or values of a graph: whoever calls says how one value becomes that of its argument (`matched`), and what a
mismatch is called (`told`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ...core.device import device
from ...core.dtype import dtype
from ...core.generator import Generator
from ...core.layout import layout, memory_format
from ...core.native_class import CustomClass, scripted
from ...core.tensor import Tensor
from .schema import REQUIRED, Argument, Schema

T = TypeVar("T")


class NoMatch(Exception):
    """Raised when arguments do not fit a schema. Holds the parts of a message, which `told` formats."""


def matched(
    schema: Schema,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    convert: Callable[[Argument, Any], T],
    omitted: Callable[[Argument], T],
    also: Mapping[str, str] = {},
) -> list[T]:
    """Return what `convert` makes of the value given for each argument, and `omitted` of an argument that is left to its default; raise NoMatch,
    as they may, at a missing argument, and at the end for values that belong to no argument. `also`: other names of arguments."""
    position, rest = 0, dict(kwargs)
    found: list[T] = []
    for argument in schema.arguments:
        name = argument.name if argument.name in rest else also.get(argument.name, argument.name)
        if not argument.kwarg_only and position < len(args):
            found.append(convert(argument, args[position]))
            position += 1
        elif name in rest:
            found.append(convert(argument, rest.pop(name)))
        elif argument.default is not REQUIRED:
            found.append(omitted(argument))
        else:
            raise NoMatch("missing", argument.name)
    if position < len(args) and not schema.is_vararg:
        raise NoMatch("positional", position, len(args))
    for name in sorted(rest, key=lambda name: schema.index_of(name) is not None):  # unknown ones first
        raise NoMatch("unknown" if schema.index_of(name) is None else "twice", name)
    return found


def first_match(
    schemas: Iterable[Schema], match: Callable[[Schema], T], problems: list[tuple[Schema, NoMatch]] | None = None
) -> T | None:
    """Return what `match` returns for the first schema at which it does not raise NoMatch, None if there is none; collect the others with what
    they raise."""
    for schema in schemas:
        try:
            return match(schema)
        except NoMatch as problem:
            if problems is not None:
                problems.append((schema, problem.with_traceback(None)))  # whose frames would hold the list
    return None


_SAID = {
    "missing": "{name}() is missing value for argument '{0}'. Declaration: {schema}",
    "unknown": "Unknown keyword argument '{0}' for operator '{name}'. Schema: {schema}",
    "twice": "Argument '{0}' specified both as positional and keyword argument. Schema: {schema}",
    "positional": "{name}() takes {0} positional argument(s) but {1} was/were given.  Declaration: {schema}",
    "many": "{name}() expected at most {0} argument(s) but received {1} argument(s). Declaration: {schema}",
}


def told(schema: Schema, problem: NoMatch, said: Mapping[str, str] = _SAID) -> str:
    """Return PyTorch's error message for a call that does not match its schema; `said`: the messages by their kind."""
    kind, *details = problem.args
    if kind in said:
        return said[kind].format(*details, name=schema.name, schema=schema)
    argument, value, cast = details
    return (
        f"{schema.name}() {mismatch(argument.name, argument.type, type(value).__name__)}Position: {schema.index_of(argument.name)}\n"
        f"Value: {value!r}\nDeclaration: {schema}\nCast error details: {cast or unfit(value, argument.base)}"
    )


def mismatch(name: str, wanted: Any, found: str) -> str:
    """Return the error message about an argument of the wrong type."""
    kind = spoken(wanted)
    text = f"Expected a value of type '{kind}' for argument '{name}' but instead found type '{found}'.\n"
    if kind.endswith("(inferred)"):
        text += f"Inferred '{name}' to be of type 'Tensor' because it was not annotated with an explicit type.\n"
    return text


def unfit(value: Any, base: str) -> str:
    """Return what PyTorch's casts say about a value that is not of a type."""
    if base == "Tensor":
        return f"Unable to cast {value} to Tensor"
    if base == "Scalar":
        return f"Cannot cast {value} to number"
    hint = "#define PYBIND11_DETAILED_ERROR_MESSAGES or compile in debug mode for details"
    return f"Unable to cast Python instance of type {type(value)} to C++ type '?' ({hint})"


def spoken(kind: Any) -> str:
    """Return a type of the schema as messages name it: `int[]?` is Optional[List[int]]."""
    if not isinstance(kind, str):
        return kind.repr_str()
    if kind.endswith("?"):
        return f"Optional[{spoken(kind[:-1])}]"
    if kind.endswith("]"):
        return f"List[{spoken(kind[: kind.rindex('[')])}]"
    return {"SymInt": "int", "SymBool": "bool", "ScalarType": "int", "Scalar": "number"}.get(kind, kind)


# -- objects --------------------------------------------------------------------------------------------------------------------

# The symbols that may stand for a value of a type.
_SYMBOLS = {
    "int": ("SymInt",), "float": ("SymInt", "SymFloat"), "bool": ("SymBool",), "Scalar": ("SymInt", "SymFloat", "SymBool"),
}  # fmt: skip


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, complex)) or type(value).__name__ in _SYMBOLS["Scalar"]


def _is_int(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or type(value).__name__ == "SymInt"


def as_number(kind: type, value: Any) -> Any:
    """Return a value as an int (of 64 bits), float, bool or complex, as PyTorch's casts of arguments do: anything that has one. A float has no
    int; what has only a length is no bool, but None is; a tensor must have one element."""
    several = isinstance(value, Tensor) and (value.numel() != 1 or (value.is_complex() and kind in (int, float)))
    untrue = kind is bool and value is not None and not hasattr(value, "__bool__")
    try:
        if several or untrue or isinstance(value, (float, str, bytes) if kind is int else (str, bytes)):
            raise TypeError
        found = value if kind is int and _is_int(value) else kind(value)  # a traced size stays one
        if kind is int and not -(2**63) <= found < 2**63:
            raise OverflowError
    except (TypeError, ValueError, OverflowError):
        raise TypeError(unfit(value, kind.__name__)) from None
    return found


def _is_exact(value: Any, kind: str) -> bool:
    if value is None or kind.rstrip("?") not in ("int", "SymInt", "float", "bool"):
        return True
    return not isinstance(value, Tensor) and (type(value).__name__ in ("bool", "SymBool")) == kind.startswith("bool")


def as_list(value: Any) -> list[Any]:
    """Return the elements of a list, or of anything like it."""
    if isinstance(value, (str, bytes, Mapping, Tensor)) or not hasattr(value, "__iter__"):
        raise TypeError(unfit(value, "list"))
    return list(value)


def _only(*kinds: type) -> Callable[[Any], Any]:
    """Return a cast that leaves values of some classes as they are, and refuses others."""

    def same(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise TypeError
        return value

    return same


_CASTS: dict[str, Callable[[Any], Any]] = {
    **{kind.__name__: functools.partial(as_number, kind) for kind in (int, float, bool)},
    "Tensor": _only(Tensor), "Scalar": _only(int, float, complex), "str": _only(str), "ScalarType": _only(dtype),
    "Device": lambda v: v if isinstance(v, device) else device(_only(str, int)(v)), "Layout": _only(layout),
    "MemoryFormat": _only(memory_format), "Generator": _only(Generator), "Any": lambda v: v,
}  # fmt: skip


def _element(value: Any, argument: Argument, numbers: bool) -> Any:
    base = argument.base
    if value is None and "?" in argument.type:
        return None
    if type(value).__name__ in _SYMBOLS.get(base, ()) or (numbers and base == "Tensor" and _is_number(value)):
        return value
    if base in _CASTS:
        return _CASTS[base](value)
    if not isinstance(value, CustomClass) or scripted(type(value)).script_name() != base:
        raise TypeError
    return value


def _fitted(value: Any, argument: Argument, numbers: bool) -> Any:
    if not argument.is_list:
        return _element(value, argument, numbers)
    if value is None and argument.is_optional:
        return None
    if argument.N and not hasattr(value, "__iter__"):
        found = _element(value, argument, False)
        return [found] * argument.N if found is not None else None
    return [_element(v, argument, False) for v in as_list(value)]


FUNCTION_NAMES = {"self": "input"}  # the functions' names for the `self` of schemas


def bind(
    schema: Schema,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    numbers: bool = False,
    loose: bool = False,
    exact: bool = False,
) -> list[Any]:
    """Return the value of every argument; raise NoMatch if the call does not fit. `numbers`: a number may stand for any tensor but the first.
    `loose`: the call is one of a public function, which may spread a list's elements (`x.view(2, 3)`), say `input` for `self`, and give None
    for arguments that the schema lacks. `exact`: no bool stands for a number, no number for a bool and no tensor for either, as in those."""
    if loose:
        known = {a.name for a in schema.arguments}
        kwargs = {k: v for k, v in kwargs.items() if v is not None or k in known}
        args = _joined(args, schema.positional)

    def convert(argument: Argument, value: Any) -> Any:
        if (exact or loose) and not _is_exact(value, argument.type):
            raise TypeError
        return _fitted(value, argument, numbers and argument is not schema.arguments[0])

    return bind_objects(schema, args, kwargs, convert, FUNCTION_NAMES if loose else {})


def bind_objects(
    schema: Schema,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    convert: Callable[[Argument, Any], Any],
    also: Mapping[str, str] = {},
) -> list[Any]:
    """Return what `convert` makes of the object given for each argument, and the defaults of the others; raise NoMatch if the call does not
    fit, which is so where `convert` raises TypeError."""

    def converted(argument: Argument, value: Any) -> Any:
        try:
            return convert(argument, value)
        except TypeError as problem:
            raise NoMatch("type", argument, value, str(problem)) from None

    if len(args) + len(kwargs) > len(schema.arguments) and not schema.is_vararg:
        raise NoMatch("many", len(schema.arguments), len(args) + len(kwargs))
    if len(args) > len(schema.positional) and not schema.is_vararg:
        raise NoMatch("positional", len(schema.positional), len(args))
    return matched(schema, args, kwargs, converted, _default, also)


def _default(argument: Argument) -> Any:
    return list(argument.default) if isinstance(argument.default, list) else argument.default


def bound(schema: Schema, args: tuple[Any, ...], kwargs: Mapping[str, Any], numbers: bool = False) -> list[Any]:
    """Return the value of every argument; raise PyTorch's RuntimeError if they do not fit."""
    return required(schema, bind, args, kwargs, numbers)


def required(schema: Schema, match: Callable[..., T], *args: Any) -> T:
    """Return `match(schema, *args)`; raise PyTorch's RuntimeError where it raises NoMatch."""
    try:
        return match(schema, *args)
    except NoMatch as problem:
        raise RuntimeError(told(schema, problem)) from None


def _joined(args: tuple[Any, ...], positional: list[Argument]) -> tuple[Any, ...]:
    """Collect several ints (`x.view(2, 3)`) into the list that is the last argument, or several tensors into a list of tensors."""
    for position, argument in enumerate(positional[: len(args)]):
        if not argument.is_list or isinstance(args[position], (list, tuple)) or args[position] is None:
            continue
        if argument.base == "int" and position == len(positional) - 1 and all(_is_int(a) for a in args[position:]):
            return (*args[:position], list(args[position:]))
        if argument.base == "Tensor" and all(isinstance(a, Tensor) for a in args[position:]):
            return (*args[:position], list(args[position:]))
    return args


def _same(value: Any, default: Any) -> bool:
    if default is REQUIRED or isinstance(value, Tensor):
        return False
    if isinstance(value, (bool, int, float)) and type(value) is not type(default):
        return False  # the number 0.0 is not the default 0
    return type(value).__name__ not in _SYMBOLS["Scalar"] and value == default


def shortened(schema: Schema, values: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments without those that have their default: the last positional ones, and all keywords."""
    positional, named = schema.as_call(values)
    args = list(positional)
    declared = schema.positional
    while args and _same(args[-1], declared[len(args) - 1].default):
        args.pop()
    defaults = {a.name: a.default for a in schema.arguments}
    return tuple(args), {n: v for n, v in named.items() if v is not None and not _same(v, defaults[n])}
