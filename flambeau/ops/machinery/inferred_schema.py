"""Schemas from Python functions: from a function's annotations (`infer_schema`), or from the declaration of a built-in operator."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

from ...core.device import device
from ...core.dtype import dtype
from ...core.tensor import Tensor
from .schema import REQUIRED, AliasInfo, Argument, Schema

Number = typing.Union[int, float, bool]  # as in `types`
_BASIC: dict[Any, str] = {
    Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", dtype: "ScalarType", device: "Device",
}  # fmt: skip
_RETURNED = ("Tensor", "Tensor[]", "SymInt", "float", "bool", "Scalar")


def _written(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).split(".")[-1] if isinstance(value, dtype) else str(value)


def type_name(annotation: Any) -> str | None:
    """Return the schema's name for an annotation, or None for one that operators cannot take."""
    if annotation == Number:
        return "Scalar"
    if annotation in _BASIC:
        return _BASIC[annotation]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in inner if a is not type(None)]
        if len(rest) == len(inner):
            return None
        name = type_name(rest[0] if len(rest) == 1 else typing.Union[tuple(rest)])
        return name and f"{name}?"
    if origin in (list, collections.abc.Sequence) and len(inner) == 1:
        name = type_name(inner[0])
        return name and f"{name}[]"
    return None


def infer_schema(
    prototype_function: Callable[..., Any], /, *, mutates_args: str | Iterable[str], op_name: str | None = None
) -> str:
    """Return the schema that a function's annotations describe; `mutates_args` names the arguments that it changes in place, or is "unknown"."""
    signature = inspect.signature(prototype_function, eval_str=True)

    def problem(text: str) -> ValueError:
        return ValueError(f"infer_schema(func): {text} Got func with signature {signature})")

    if not isinstance(mutates_args, str):
        mutates_args = set(mutates_args)
        unknown = mutates_args - set(signature.parameters)
        if unknown:
            raise problem(f"{unknown} in mutates_args were not found in the custom op's signature.")
    elif mutates_args != "unknown":
        raise ValueError(
            "mutates_args must either be a sequence of the names of the arguments that are mutated or the string"
            " 'unknown'. "
        )
    parameters = list(signature.parameters.values())
    words = [_argument(i, p, mutates_args, problem) for i, p in enumerate(parameters)]
    first = next((i for i, p in enumerate(parameters) if p.kind is p.KEYWORD_ONLY), None)
    if first is not None:
        words.insert(first, "*")
    returns = _returned(signature.return_annotation, problem)
    results = returns[0] if len(returns) == 1 else f"({', '.join(returns)})"
    return f"{op_name or ''}({', '.join(words)}) -> {results}"


def _argument(
    position: int, parameter: inspect.Parameter, mutates_args: str | Iterable[str], problem: Callable[[str], ValueError]
) -> str:
    name = parameter.name
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise problem("We do not support positional-only args, varargs, or varkwargs.")
    if parameter.annotation is parameter.empty:
        raise problem(f"Parameter {name} must have a type annotation.")
    kind = type_name(parameter.annotation)
    if kind is None:
        raise problem(f"Parameter {name} has unsupported type {parameter.annotation}.")
    default = parameter.default
    if default is not REQUIRED and default is not None and not isinstance(default, (int, float, bool, str, dtype)):
        raise problem(f"Parameter {name} has an unsupported default value type {type(default)}.")
    is_tensor = kind.startswith("Tensor")
    mutated = is_tensor if mutates_args == "unknown" else name in mutates_args
    if mutated and not is_tensor:
        raise problem(f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated")
    if mutated:
        kind = f"Tensor(a{position}!){kind.removeprefix('Tensor')}"
    return f"{kind} {name}" + ("" if default is REQUIRED else f"={_written(default)}")


def _returned(annotation: Any, problem: Callable[[str], ValueError]) -> tuple[str, ...]:
    if annotation is inspect.Signature.empty:
        raise problem("No return type annotation was provided. Please add one.")
    if annotation is None or annotation is type(None):
        return ()
    parts = typing.get_args(annotation) if typing.get_origin(annotation) is tuple else (annotation,)
    kinds = [type_name(part) for part in parts]
    if any(kind not in _RETURNED for kind in kinds):
        raise problem(f"Return has unsupported type {annotation}. The valid types are: {', '.join(_RETURNED)}.")
    return tuple(kind for kind in kinds if kind is not None)


# -- built-in operators, whose annotations are text ---------------------------------------------------------------------

_WORDS = {
    "Tensor": "Tensor", "int": "SymInt", "float": "float", "bool": "bool", "str": "str", "dtype": "ScalarType",
    "dtype_type": "ScalarType", "device": "Device", "Size": "SymInt[]", "tuple[int, ...]": "SymInt[]",
    "tuple[Tensor, ...]": "Tensor[]", "tuple": "Tensor[]", "tuple[Any, ...]": "Tensor[]", "Values": "Tensor[]",
}  # fmt: skip


def described(
    name: str, parameters: Iterable[inspect.Parameter], returns: Any, writes: tuple[str, ...], operands: tuple[str, ...]
) -> Schema:
    """Return the schema of a built-in operator by its declaration, with "Any" for missing annotations."""
    arguments = []
    for position, p in enumerate(parameters):
        kind = "Tensor" if p.name in operands else _word(p.annotation)
        if kind == "Any" and type(p.default) in (bool, int, float, str):
            kind = {bool: "bool", int: "Scalar", float: "Scalar", str: "str"}[type(p.default)]
        if p.default is None and not kind.endswith("?"):
            kind += "?"
        mark = AliasInfo(f"(a{position}!)", of_elements=kind.endswith("[]")) if p.name in writes else None
        arguments.append(Argument(p.name, kind, p.default, p.kind is p.KEYWORD_ONLY, alias_info=mark))
    base, _, overload = name.partition(".")
    return Schema(base, overload, arguments, () if returns in (None, "None") else (_word(returns),))


def _word(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else "Any"
    optional = text.endswith(" | None")
    word = _WORDS.get(text.removesuffix(" | None"), "Any")
    return f"{word}?" if optional else word
