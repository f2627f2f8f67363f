"""The schemas of PyTorch's operators: `aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`.

They are read from the table of `flambeau.jit`; this module is the only one here that knows where it is and how it looks.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any

from ...core.dtype import int64
from ...core.layout import contiguous_format, strided

REQUIRED: Any = object()

_ARGUMENT = re.compile(
    r"(?P<kind>\w+)(?P<alias>\([^)]*\))?(?P<lists>(?:\[\d*\]|\?)*)(?P<late>\([^)]*\))?(?P<more>\??)\s+(?P<name>\w+)"
    r"(?:=(?P<default>.+))?"
)


class AliasInfo:
    """Which memory an argument shares with others, and whether it is written to."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_write = "!" in text
        self.before_set = set(text.strip("()!").split("|"))
        self.after_set = self.before_set

    def __repr__(self) -> str:
        return self.text


class Argument:
    """One argument of a schema. `type` is its type in PyTorch's notation, `N` the length of a list that one value may stand for."""

    def __init__(self, text: str, kwarg_only: bool) -> None:
        found = _ARGUMENT.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"{text!r} is no argument of a schema")
        self.text = text.strip()
        self.name = found["name"]
        self.kwarg_only = kwarg_only
        shape = found["lists"] + found["more"]
        length = re.search(r"\[(\d+)\]", shape)
        self.N = int(length[1]) if length else None
        self.type = found["kind"] + re.sub(r"\[\d+\]", "[]", shape)
        alias = found["alias"] or found["late"]
        self.alias_info = AliasInfo(alias) if alias else None
        self.default = (
            REQUIRED if found["default"] is None else _value(found["default"], self.base, self.is_list, self.N)
        )

    @property
    def base(self) -> str:
        """The type of one element: "int" of "SymInt[]?"."""
        return re.sub(r"[\[\]?]", "", self.type).replace("SymInt", "int")

    @property
    def is_list(self) -> bool:
        return "[]" in self.type

    @property
    def is_optional(self) -> bool:
        return self.type.endswith("?")

    @property
    def real_type(self) -> str:
        return self.type

    @property
    def default_value(self) -> Any:
        return None if self.default is REQUIRED else self.default

    @property
    def is_out(self) -> bool:
        return self.kwarg_only and self.alias_info is not None and self.alias_info.is_write

    def has_default_value(self) -> bool:
        return self.default is not REQUIRED

    def __repr__(self) -> str:
        return self.text


_NAMED_VALUES = {
    "contiguous_format": contiguous_format,
    "strided": strided,
    "Mean": 1,
    "long": int64,
    "none": None,
    "None": None,
}
# TorchScript writes these as numbers.
_NUMBERED = {"MemoryFormat": (contiguous_format,), "Layout": (strided,), "ScalarType": (None, None, None, None, int64)}


def _value(text: str, base: str, is_list: bool, length: int | None) -> Any:
    """A default, as a call would give it."""
    text = text.strip()
    if text in _NAMED_VALUES:
        return _NAMED_VALUES[text]
    found = text == "True" if text in ("True", "False") else ast.literal_eval(text)
    if base in _NUMBERED:
        return _NUMBERED[base][found]
    if is_list and length and not isinstance(found, list):
        return [found] * length
    return float(found) if base == "float" and isinstance(found, int) and not isinstance(found, bool) else found


class FunctionSchema:
    """What one overload of an operator takes and gives."""

    def __init__(self, line: str) -> None:
        head, arguments, returns = _taken_apart(line)
        self.name, _, self.overload_name = head.partition(".")
        if "::" not in self.name:
            self.name = f"aten::{self.name}"
        self.arguments: list[Argument] = []
        kwarg_only = False
        for text in _split(arguments):
            if text.strip() == "*":
                kwarg_only = True
            else:
                self.arguments.append(Argument(text, kwarg_only))
        self.returns = [_Return(text) for text in _split(returns)]
        self.text = f"{self.name}{'.' if self.overload_name else ''}{self.overload_name}({arguments}) -> "
        self.text += returns if len(self.returns) == 1 else f"({returns})"

    @property
    def is_mutable(self) -> bool:
        return any(a.alias_info is not None and a.alias_info.is_write for a in self.arguments)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


class _Return:
    """A result: its type and name."""

    def __init__(self, text: str) -> None:
        words = text.strip().rsplit(" ", 1)
        alias = re.search(r"\([^)]*\)", words[0])
        self.alias_info = AliasInfo(alias[0]) if alias else None
        self.type = re.sub(r"\([^)]*\)", "", words[0])
        self.name = words[1] if len(words) == 2 else ""


def _taken_apart(line: str) -> tuple[str, str, str]:
    head, _, rest = line.partition("(")
    arguments, _, returns = rest.rpartition(") -> ")
    returns = returns.strip()
    if returns.startswith("("):
        returns = returns[1:-1]
    return head.strip(), arguments, returns


def _split(text: str) -> list[str]:
    """At commas outside of brackets and quotes."""
    parts, depth, start = [], 0, 0
    quoted = False
    for position, letter in enumerate(text):
        if letter in "\"'":
            quoted = not quoted
        elif not quoted:
            depth += (letter in "([") - (letter in ")]")
            if letter == "," and depth == 0:
                parts.append(text[start:position])
                start = position + 1
    return [part for part in [*parts, text[start:]] if part.strip()]


@functools.cache
def table() -> dict[str, dict[str, FunctionSchema]]:
    """The schemas by the operator's name and the overload's."""
    here = Path(__file__).parent  # and not importlib.resources, which two threads cannot import at once
    text = (here.parents[1] / "jit" / "operators.txt").read_text()
    text += (here / "more.txt").read_text()
    found: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        head = line.partition("(")[0]
        name, _, overload = head.partition(".")
        if head and not head.startswith("#") and ("::" not in head or head.startswith("aten::")):
            found.setdefault(name.removeprefix("aten::"), {}).setdefault(overload, line)
    return found


@functools.cache
def schema_of(name: str, overload: str) -> FunctionSchema:
    """The schema of one overload."""
    return FunctionSchema(table()[name][overload])  # type: ignore[arg-type]


def overloads_of(name: str) -> list[str]:
    """The names of an operator's overloads, none where there is no such operator."""
    return list(table().get(name, ()))
