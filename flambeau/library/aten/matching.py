"""Which overload a call means: arguments as programs write them become those of the schema."""

from __future__ import annotations

from typing import Any

from ...core.device import device
from ...core.dtype import dtype
from ...core.generator import Generator
from ...core.layout import layout, memory_format
from ...core.tensor import Tensor
from .schemas import REQUIRED, Argument, FunctionSchema, overloads_of, schema_of

# Operators whose second tensor may be a plain number; others have an overload for numbers.
_NUMBERS_AS_TENSORS = frozenset(
    ["add", "sub", "mul", "div", "divide", "true_divide", "multiply", "subtract", "floor_divide", "copysign", "copy"]
)


class NoMatch(Exception):
    """The arguments do not fit. Holds what `told` makes a sentence of."""


def told(schema: FunctionSchema, problem: NoMatch) -> str:
    """What is wrong with a call, in PyTorch's words."""
    kind, *details = problem.args
    if kind == "missing":
        return f"{schema.name}() is missing value for argument '{details[0]}'. Declaration: {schema}"
    if kind == "unknown":
        return f"Unknown keyword argument '{details[0]}' for operator '{schema.name}'. Schema: {schema}"
    if kind == "many":
        allowed, given = details
        if any(a.kwarg_only for a in schema.arguments):
            return f"{schema.name}() takes {allowed} positional argument(s) but {given} was/were given.  Declaration: {schema}"
        return f"{schema.name}() expected at most {allowed} argument(s) but received {given} argument(s). Declaration: {schema}"
    argument, value = details
    wanted = {"Scalar": "number"}.get(argument.base, argument.base)
    wanted = f"List[{wanted}]" if argument.is_list else wanted
    place = [a.name for a in schema.arguments].index(argument.name)
    return (
        f"{schema.name}() Expected a value of type '{f'Optional[{wanted}]' if argument.is_optional else wanted}' for argument"
        f" '{argument.name}' but instead found type '{type(value).__name__}'.\nPosition: {place}\nValue: {value!r}\nDeclaration: {schema}"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, complex)) or type(value).__name__ in ("SymInt", "SymFloat", "SymBool")


def _is_int(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or type(value).__name__ == "SymInt"


_CHECKS = {
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
}


def _element(value: Any, argument: Argument, numbers: bool) -> Any:
    if value is None and (argument.is_optional or "?" in argument.type):
        return None
    check = _CHECKS.get(argument.base)
    if check is None or (not check(value) and not (numbers and argument.base == "Tensor" and _is_number(value))):
        raise NoMatch("type", argument, value)
    if argument.base == "float" and isinstance(value, int):
        return float(value)
    if argument.base == "Device":
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


def bind(schema: FunctionSchema, args: tuple, kwargs: dict[str, Any], numbers: bool = False) -> list[Any]:
    """The value of every argument; raises NoMatch where the call does not fit."""
    named = dict(kwargs)
    positional = [a for a in schema.arguments if not a.kwarg_only]
    if "input" in named and positional and positional[0].name == "self" and "self" not in named:
        named["self"] = named.pop("input")
    args = _joined(args, positional)
    if len(args) > len(positional):
        raise NoMatch("many", len(positional), len(args))
    values = []
    for position, argument in enumerate(schema.arguments):
        if position < len(args) and not argument.kwarg_only:
            given = args[position]
        elif argument.name in named:
            given = named.pop(argument.name)
        elif argument.default is not REQUIRED:
            values.append(argument.default)
            continue
        else:
            raise NoMatch("missing", argument.name)
        values.append(_fitted(given, argument, numbers and position > 0))
    for name, value in named.items():
        if value is not None:
            raise NoMatch("unknown", name)
    return values


def _joined(args: tuple, positional: list[Argument]) -> tuple:
    """`x.view(2, 3)`: several ints for a list of them that is the last argument; or tensors for a list of those."""
    for position, argument in enumerate(positional[: len(args)]):
        if not argument.is_list or isinstance(args[position], (list, tuple)) or args[position] is None:
            continue
        if argument.base == "int" and position == len(positional) - 1 and all(_is_int(a) for a in args[position:]):
            return (*args[:position], list(args[position:]))
        if argument.base == "Tensor" and all(isinstance(a, Tensor) for a in args[position:]):
            return (*args[:position], list(args[position:]))
    return args


def choose(name: str, args: tuple, kwargs: dict[str, Any]) -> tuple[FunctionSchema, list[Any]] | None:
    """The overload that a call of an operator means, and the values of its arguments."""
    numbers = name.rstrip("_") in _NUMBERS_AS_TENSORS
    for overload in overloads_of(name):
        try:
            schema = schema_of(name, overload)
        except ValueError:  # of TorchScript's own types
            continue
        if any(a.is_out for a in schema.arguments):
            continue
        try:
            return schema, bind(schema, args, kwargs, numbers)
        except NoMatch:
            continue
    return None


def refused(name: str, args: tuple, kwargs: dict[str, Any]) -> str:
    """Why no overload of an operator fits a call."""
    reasons = []
    for overload in overloads_of(name):
        try:
            schema = schema_of(name, overload)
        except ValueError:
            continue
        if any(a.is_out for a in schema.arguments):
            continue
        try:
            bind(schema, args, kwargs)
        except NoMatch as problem:
            reasons.append(told(schema, problem))
    if len(reasons) == 1:
        return reasons[0]
    lines = "\n\n".join(reasons)
    return f"Overloaded torch operator invoked from Python failed to match any schema:\n{lines}\n\n"


def _same(value: Any, default: Any) -> bool:
    if default is REQUIRED or isinstance(value, Tensor):
        return False
    if isinstance(value, (bool, int, float)) and type(value) is not type(default):
        return False  # the number 0.0 is not the default 0
    return type(value).__name__ not in ("SymInt", "SymFloat", "SymBool") and value == default


def shortened(schema: FunctionSchema, values: list[Any]) -> tuple[tuple, dict[str, Any]]:
    """Arguments without those that have their default: the last positional ones, and all that go by name."""
    args = [v for a, v in zip(schema.arguments, values) if not a.kwarg_only]
    positional = [a for a in schema.arguments if not a.kwarg_only]
    while args and _same(args[-1], positional[len(args) - 1].default):
        args.pop()
    kwargs = {
        a.name: v
        for a, v in zip(schema.arguments, values)
        if a.kwarg_only and v is not None and not _same(v, a.default)
    }
    return tuple(args), kwargs
