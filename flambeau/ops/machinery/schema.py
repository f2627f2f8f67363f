"""Schemas: what an operator takes and returns, in PyTorch's notation `(Tensor x, int[] sizes, *, float eps=1e-05) -> Tensor`.

A schema is inferred from a function's annotations (`infer_schema`) or read from text (`parse_schema`); it binds the arguments of a call.
"""

from __future__ import annotations

import ast
import collections.abc
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ...core.device import device
from ...core.dtype import dtype
from ...core.tensor import Tensor

_REQUIRED = inspect.Parameter.empty
Number = typing.Union[int, float, bool]  # as in `types`
_BASIC: dict[Any, str] = {
    Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", dtype: "ScalarType", device: "Device",
}  # fmt: skip
_RETURNED = ("Tensor", "Tensor[]", "SymInt", "float", "bool", "Scalar")


@dataclass(frozen=True)
class Argument:
    name: str
    type: str
    default: Any = _REQUIRED
    keyword_only: bool = False
    mutated: str = ""  # its mark in the schema, as `a0`

    def __str__(self) -> str:
        kind = self.type
        if self.mutated:
            base = re.match(r"\w+", kind)
            assert base is not None
            kind = f"{base.group()}({self.mutated}!){kind[base.end() :]}"
        return f"{kind} {self.name}" + ("" if self.default is _REQUIRED else f"={_written(self.default)}")


@dataclass(frozen=True)
class Schema:
    name: str
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]

    def __str__(self) -> str:
        words, star = [], False
        for argument in self.arguments:
            if argument.keyword_only and not star:
                words.append("*")
                star = True
            words.append(str(argument))
        results = self.returns[0] if len(self.returns) == 1 else f"({', '.join(self.returns)})"
        return f"{self.name}({', '.join(words)}) -> {results}"

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The arguments as those of a Python function."""
        kinds = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        return {a.name: inspect.Parameter(a.name, kinds[not a.keyword_only], default=a.default) for a in self.arguments}

    @property
    def is_mutable(self) -> bool:
        return any(a.mutated for a in self.arguments)

    def bind(self, args: tuple, kwargs: dict) -> list:
        """The value of every argument of a call; RuntimeError, as PyTorch's, where they do not fit."""
        positional = [a for a in self.arguments if not a.keyword_only]
        if len(args) > len(positional):
            raise RuntimeError(
                f"{self.name}() expected at most {len(positional)} argument(s) but received {len(args)} argument(s)."
                f" Declaration: {self}"
            )
        values = dict(zip((a.name for a in positional), args))
        known = {a.name for a in self.arguments}
        for name in kwargs:
            if name not in known or name in values:
                raise RuntimeError(f"Unknown keyword argument '{name}' for operator '{self.name}'. Schema: {self}")
        values.update(kwargs)
        for position, argument in enumerate(self.arguments):
            if argument.name in values:
                self._require_type(position, argument, values[argument.name])
            elif argument.default is _REQUIRED:
                raise RuntimeError(
                    f"{self.name}() is missing value for argument '{argument.name}'. Declaration: {self}"
                )
        return [values.get(a.name, a.default) for a in self.arguments]

    def _require_type(self, position: int, argument: Argument, value: Any) -> None:
        if not _fits(argument.type, value):
            raise RuntimeError(
                f"{self.name}() Expected a value of type '{_spoken(argument.type)}' for argument '{argument.name}' but"
                f" instead found type '{type(value).__name__}'.\nPosition: {position}\nValue: {value}\nDeclaration: {self}"
            )


def _fits(kind: str, value: Any) -> bool:
    if kind.endswith("?"):
        return value is None or _fits(kind[:-1], value)
    if kind.endswith("]"):
        return isinstance(value, (list, tuple)) and all(_fits(kind[: kind.index("[")], v) for v in value)
    if kind == "Tensor":
        return isinstance(value, Tensor)
    if kind in ("SymInt", "int"):
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "float":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "Scalar":
        return isinstance(value, (int, float, complex))
    expected: dict[str, Any] = {"bool": bool, "str": str, "ScalarType": dtype, "Device": (device, str)}
    return kind not in expected or isinstance(value, expected[kind])


def _spoken(kind: str) -> str:
    """A type of the schema as messages call it: `int[]?` is Optional[List[int]]."""
    if kind.endswith("?"):
        return f"Optional[{_spoken(kind[:-1])}]"
    if kind.endswith("]"):
        return f"List[{_spoken(kind[: kind.index('[')])}]"
    return {"SymInt": "int", "ScalarType": "int", "Scalar": "number"}.get(kind, kind)


def _written(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).split(".")[-1] if isinstance(value, dtype) else str(value)


def type_name(annotation: Any) -> str | None:
    """The schema's word for an annotation, or None for one that operators cannot take."""
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
    prototype_function: Callable, /, *, mutates_args: str | Iterable[str], op_name: str | None = None
) -> str:
    """The schema that a function's annotations say; `mutates_args` names what it changes in place, or is "unknown"."""
    arguments, returns = inferred(prototype_function, mutates_args)
    return str(Schema(op_name or "", arguments, returns))


def inferred(function: Callable, mutates_args: str | Iterable[str]) -> tuple[tuple[Argument, ...], tuple[str, ...]]:
    signature = inspect.signature(function, eval_str=True)

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
    arguments = tuple(_argument(i, p, mutates_args, problem) for i, p in enumerate(signature.parameters.values()))
    return arguments, _returned(signature.return_annotation, problem)


def _argument(
    position: int, parameter: inspect.Parameter, mutates_args: str | Iterable[str], problem: Callable[[str], ValueError]
) -> Argument:
    name = parameter.name
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise problem("We do not support positional-only args, varargs, or varkwargs.")
    if parameter.annotation is parameter.empty:
        raise problem(f"Parameter {name} must have a type annotation.")
    kind = type_name(parameter.annotation)
    if kind is None:
        raise problem(f"Parameter {name} has unsupported type {parameter.annotation}.")
    default = parameter.default
    if default is not _REQUIRED and default is not None and not isinstance(default, (int, float, bool, str, dtype)):
        raise problem(f"Parameter {name} has an unsupported default value type {type(default)}.")
    is_tensor = kind.startswith("Tensor")
    mutated = is_tensor if mutates_args == "unknown" else name in mutates_args
    if mutated and not is_tensor:
        raise problem(f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated")
    return Argument(name, kind, default, parameter.kind is parameter.KEYWORD_ONLY, f"a{position}" if mutated else "")


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
    "tuple[Tensor, ...]": "Tensor[]", "tuple": "Tensor[]",
}  # fmt: skip


def described(
    name: str, parameters: Iterable[inspect.Parameter], returns: Any, writes: tuple[str, ...], operands: tuple[str, ...]
) -> Schema:
    """The schema of a built-in operator: what its declaration says, "Any" where that says nothing."""
    arguments = []
    for position, p in enumerate(parameters):
        kind = "Tensor" if p.name in operands else _word(p.annotation)
        if kind == "Any" and type(p.default) in (bool, int, float, str):
            kind = {bool: "bool", int: "Scalar", float: "Scalar", str: "str"}[type(p.default)]
        if p.default is None and not kind.endswith("?"):
            kind += "?"
        mark = f"a{position}" if p.name in writes else ""
        arguments.append(Argument(p.name, kind, p.default, p.kind is p.KEYWORD_ONLY, mark))
    return Schema(name, tuple(arguments), () if returns in (None, "None") else (_word(returns),))


def _word(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else "Any"
    optional = text.endswith(" | None")
    word = _WORDS.get(text.removesuffix(" | None"), "Any")
    return f"{word}?" if optional else word


_SCHEMA = re.compile(r"^\s*(?P<name>[\w:.]*)\s*\((?P<arguments>.*)\)\s*->\s*(?P<returns>.*?)\s*$", re.DOTALL)
_ARGUMENT = re.compile(
    r"^(?P<type>\w+)(\((?P<mark>\w+)(?P<mutated>!)?\))?(?P<suffix>[\[\]\d?]*)\s+(?P<name>\w+)(=(?P<default>.*))?$"
)


def parse_schema(text: str) -> Schema:
    """Read `name(Tensor x, int k=2) -> Tensor`."""
    match = _SCHEMA.match(text)
    if match is None:
        raise RuntimeError(f"expected a schema such as 'name(Tensor x, int k=2) -> Tensor', but got {text!r}")
    arguments, keyword_only = [], False
    for word in _split(match["arguments"]):
        if word == "*":
            keyword_only = True
            continue
        found = _ARGUMENT.match(word)
        if found is None:
            raise RuntimeError(f"cannot read the argument {word!r} of the schema {text!r}")
        default = _REQUIRED if found["default"] is None else _literal(found["default"])
        kind = re.sub(r"\d", "", found["type"] + found["suffix"]) if found["suffix"] else found["type"]
        arguments.append(
            Argument(found["name"], kind, default, keyword_only, found["mark"] if found["mutated"] else "")
        )
    returns = match["returns"]
    inside = returns[1:-1] if returns.startswith("(") else returns
    return Schema(
        match["name"], tuple(arguments), tuple(re.sub(r"\(\w+!?\)", "", r).split()[0] for r in _split(inside))
    )


def _split(text: str) -> list[str]:
    """Parted at the commas that are in no brackets and no quotes."""
    parts, depth, quoted, start = [], 0, "", 0
    for i, letter in enumerate(text):
        if quoted:
            quoted = "" if letter == quoted else quoted
        elif letter in "'\"":
            quoted = letter
        elif letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif letter == "," and not depth:
            parts.append(text[start:i])
            start = i + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # a word such as `mean`
