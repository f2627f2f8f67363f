"""Matching of a call's values with the arguments of a schema: the one matcher of `torch.ops`, of users' operators and of TorchScript's
functions. Values may be Python objects or values of a graph: `assigned` accepts both, `bind` checks objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...core.device import device
from ...core.dtype import dtype
from ...core.generator import Generator
from ...core.layout import layout, memory_format
from ...core.native_class import CustomClass, scripted
from ...core.tensor import Tensor
from .schema import REQUIRED, Argument, Schema


class NoMatch(Exception):
    """Raised when arguments do not fit a schema. Holds the parts of a message, which `told` formats."""


def require_count(schema: Schema, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise NoMatch for a call with more arguments than the schema has."""
    allowed = len(schema.positional)
    if len(args) + len(kwargs) > len(schema.arguments) and not schema.is_vararg:
        raise NoMatch("many", len(schema.arguments), len(args) + len(kwargs))
    if len(args) > allowed and not schema.is_vararg:
        raise NoMatch("positional", allowed, len(args))


def assigned(
    schema: Schema, args: Sequence[Any], kwargs: Mapping[str, Any], also: Mapping[str, str] = {}
) -> Iterator[tuple[Argument, Any]]:
    """Yield each argument with the value it is given, REQUIRED if it is given none (and has a default). Raises NoMatch at a missing argument,
    and at the end for values that belong to no argument. `also`: other names of arguments."""
    position, rest = 0, dict(kwargs)
    for argument in schema.arguments:
        name = argument.name if argument.name in rest else also.get(argument.name, argument.name)
        if not argument.kwarg_only and position < len(args):
            yield argument, args[position]
            position += 1
        elif name in rest:
            yield argument, rest.pop(name)
        elif argument.default is not REQUIRED:
            yield argument, REQUIRED
        else:
            raise NoMatch("missing", argument.name)
    if position < len(args) and not schema.is_vararg:
        raise NoMatch("positional", position, len(args))
    for name in sorted(rest, key=lambda name: schema.index_of(name) is not None):  # unknown ones first
        raise NoMatch("unknown" if schema.index_of(name) is None else "twice", name)


def told(schema: Schema, problem: NoMatch) -> str:
    """Return PyTorch's error message for a call that does not match its schema."""
    kind, *details = problem.args
    if kind == "missing":
        return f"{schema.name}() is missing value for argument '{details[0]}'. Declaration: {schema}"
    if kind == "unknown":
        return f"Unknown keyword argument '{details[0]}' for operator '{schema.name}'. Schema: {schema}"
    if kind == "twice":
        return f"Argument '{details[0]}' specified both as positional and keyword argument. Schema: {schema}"
    if kind == "positional":
        return f"{schema.name}() takes {details[0]} positional argument(s) but {details[1]} was/were given.  Declaration: {schema}"
    if kind == "many":
        allowed, given = details
        return f"{schema.name}() expected at most {allowed} argument(s) but received {given} argument(s). Declaration: {schema}"
    argument, value = details
    return (
        f"{schema.name}() Expected a value of type '{spoken(str(argument.type))}' for argument '{argument.name}' but"
        f" instead found type '{type(value).__name__}'.\nPosition: {schema.index_of(argument.name)}\nValue: {value!r}\nDeclaration: {schema}"
    )


def spoken(kind: str) -> str:
    """Return a type of the schema as messages name it: `int[]?` is Optional[List[int]]."""
    if kind.endswith("?"):
        return f"Optional[{spoken(kind[:-1])}]"
    if kind.endswith("]"):
        return f"List[{spoken(kind[: kind.rindex('[')])}]"
    return {"SymInt": "int", "SymBool": "bool", "ScalarType": "int", "Scalar": "number"}.get(kind, kind)


# -- objects --------------------------------------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, complex)) or type(value).__name__ in ("SymInt", "SymFloat", "SymBool")


def _is_int(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or type(value).__name__ == "SymInt"


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "Tensor": lambda v: isinstance(v, Tensor),
    "int": _is_int,
    "float": lambda v: isinstance(v, float) or _is_int(v) or type(v).__name__ == "SymFloat",
    "bool": lambda v: isinstance(v, bool) or type(v).__name__ == "SymBool",
    "Scalar": _is_number,
    "str": lambda v: isinstance(v, str),
    "ScalarType": lambda v: isinstance(v, dtype),
    "Device": lambda v: isinstance(v, (device, str)) or _is_int(v),
    "Layout": lambda v: isinstance(v, layout),
    "MemoryFormat": lambda v: isinstance(v, memory_format),
    "Generator": lambda v: isinstance(v, Generator),
    "Any": lambda v: True,
}


def _element(value: Any, argument: Argument, numbers: bool) -> Any:
    base = argument.base
    if value is None and "?" in argument.type:
        return None
    check = _CHECKS.get(base) or (lambda v: isinstance(v, CustomClass) and scripted(type(v)).script_name() == base)
    if not check(value) and not (numbers and base == "Tensor" and _is_number(value)):
        raise NoMatch("type", argument, value)
    if base == "float" and isinstance(value, int):
        return float(value)
    if base == "Device":
        return device(value) if not isinstance(value, device) else value
    return value


def _fitted(value: Any, argument: Argument, numbers: bool) -> Any:
    if not argument.is_list:
        return _element(value, argument, numbers)
    if value is None and argument.is_optional:
        return None
    if isinstance(value, (list, tuple)):
        return [_element(v, argument, False) for v in value]
    if argument.N and not isinstance(value, Tensor):
        found = _element(value, argument, False)
        return [found] * argument.N if found is not None else None
    raise NoMatch("type", argument, value)


FUNCTION_NAMES = {"self": "input"}  # the functions' names for the `self` of schemas


def bind(
    schema: Schema, args: tuple[Any, ...], kwargs: Mapping[str, Any], numbers: bool = False, loose: bool = False
) -> list[Any]:
    """Return the value of every argument; raise NoMatch if the call does not fit. `numbers`: a number may stand for any tensor but the first.
    `loose`: the call is one of a public function, which may spread a list's elements (`x.view(2, 3)`), say `input` for `self`, and give None
    for arguments that the schema lacks."""
    if loose:
        known = {a.name for a in schema.arguments}
        kwargs = {k: v for k, v in kwargs.items() if v is not None or k in known}
        args = _joined(args, schema.positional)
    require_count(schema, args, kwargs)
    values: list[Any] = []
    for argument, value in assigned(schema, args, kwargs, FUNCTION_NAMES if loose else {}):
        if value is REQUIRED:
            values.append(argument.default)
        else:
            values.append(_fitted(value, argument, numbers and bool(values)))
    return values


def bound(schema: Schema, args: tuple[Any, ...], kwargs: Mapping[str, Any], numbers: bool = False) -> list[Any]:
    """Return the value of every argument; raise PyTorch's RuntimeError if they do not fit."""
    try:
        return bind(schema, args, kwargs, numbers)
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
    return type(value).__name__ not in ("SymInt", "SymFloat", "SymBool") and value == default


def shortened(schema: Schema, values: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments without those that have their default: the last positional ones, and all keywords."""
    positional, named = schema.as_call(values)
    args = list(positional)
    declared = schema.positional
    while args and _same(args[-1], declared[len(args) - 1].default):
        args.pop()
    defaults = {a.name: a.default for a in schema.arguments}
    return tuple(args), {n: v for n, v in named.items() if v is not None and not _same(v, defaults[n])}
