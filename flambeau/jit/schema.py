"""Schemas: what an operator or a function takes and gives, `aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`;
and the table of the operators that there are."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.native_class import PREFIX
from ..ops.machinery.record import OPS
from .ir import number_text, quoted
from .types import (
    INT,
    NAMED,
    NONE,
    DictType,
    FutureType,
    ListType,
    OptionalType,
    TupleType,
    Type,
    UnionType,
    VarType,
    optional_of,
)

REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "required"})()


class Argument:
    __slots__ = ("default", "keyword_only", "name", "size", "type", "written")

    def __init__(
        self,
        name: str,
        type: Type,
        default: Any = REQUIRED,
        keyword_only: bool = False,
        size: int | None = None,
        written: bool = False,
    ):
        self.name, self.type, self.default, self.keyword_only = name, type, default, keyword_only
        self.size = size  # of a list: a single element may stand for this many
        self.written = written  # whether the operator changes it

    def has_default_value(self) -> bool:
        return self.default is not REQUIRED

    @property
    def default_value(self) -> Any:
        return None if self.default is REQUIRED else self.default

    def __str__(self) -> str:
        kind = str(self.type)
        if self.size is not None and kind.endswith("[]"):
            kind = f"{kind[:-1]}{self.size}]"
        if self.default is REQUIRED:
            return f"{kind} {self.name}"
        return f"{kind} {self.name}={default_text(self.default)}"


def default_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(default_text, value))}]"
    return number_text(value)


class Schema:
    """A name, an overload's name, arguments and results."""

    def __init__(
        self,
        name: str,
        overload: str,
        arguments: Sequence[Argument],
        returns: Sequence[Type],
        varargs: bool = False,
        varrets: bool = False,
        fields: Sequence[str] = (),
    ):
        self.fields = tuple(fields)  # the results' names
        self.shares = False  # whether a result may share memory with an argument
        self.name, self.overload = name, overload
        self.arguments, self.returns = tuple(arguments), tuple(returns)
        self.varargs, self.varrets = varargs, varrets

    @property
    def overload_name(self) -> str:
        return self.overload

    @property
    def key(self) -> str:
        return f"{self.name}.{self.overload}" if self.overload else self.name

    @property
    def is_mutable(self) -> bool:
        return any(a.written for a in self.arguments)

    def index_of(self, name: str) -> int | None:
        for index, argument in enumerate(self.arguments):
            if argument.name == name:
                return index
        return None

    def result_type(self) -> Type:
        return self.returns[0] if len(self.returns) == 1 else TupleType(self.returns) if self.returns else NONE

    def __str__(self) -> str:
        words, star = [], False
        for argument in self.arguments:
            if argument.keyword_only and not star:
                words.append("*")
                star = True
            words.append(str(argument))
        if self.varargs:
            words.append("...")
        out = (
            "..."
            if self.varrets
            else str(self.returns[0])
            if len(self.returns) == 1
            else f"({', '.join(map(str, self.returns))})"
        )
        return f"{self.key}({', '.join(words)}) -> {out}"

    __repr__ = __str__


# -- reading ----------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(->|\.\.\.|[A-Za-z_][\w.:]*|-?\d[\w.+-]*|-?inf|\"[^\"]*\"|'[^']*'|.)")
_VARIABLES = ("t", "t1", "t2", "tVal", "AnyEnumType")


class _Reader:
    def __init__(self, text: str):
        self.tokens = _TOKEN.findall(text)
        self.place = 0

    def peek(self, ahead: int = 0) -> str:
        place = self.place + ahead
        return self.tokens[place] if place < len(self.tokens) else ""

    def take(self, wanted: str | None = None) -> str:
        token = self.peek()
        if wanted is not None and token != wanted:
            raise RuntimeError(f"expected {wanted!r} but found {token!r} in the schema {''.join(self.tokens)}")
        self.place += 1
        return token

    def alias(self) -> bool:
        """Skip `(a!)`; whether it says that the argument is changed."""
        if self.peek() != "(":
            return False
        depth, written = 0, False
        while True:
            token = self.take()
            depth += (token == "(") - (token == ")")
            written = written or token == "!"
            if depth == 0:
                return written

    def base(self) -> Type:
        token = self.take()
        if token == "(":
            parts = []
            while self.peek() != ")":
                parts.append(self.type()[0])
                if self.peek() == ",":
                    self.take()
            self.take(")")
            return TupleType(parts)
        if token in ("Dict", "Future", "Union", "RRef", "Await"):
            self.take("(")
            inner = [self.type()[0]]
            while self.peek() == ",":
                self.take()
                inner.append(self.type()[0])
            self.take(")")
            return (
                DictType(*inner) if token == "Dict" else UnionType(inner) if token == "Union" else FutureType(inner[0])
            )
        if token in ("SymInt", "SymBool"):
            return INT if token == "SymInt" else NAMED["bool"]
        known = NAMED.get(token)
        if known is not None:
            return known
        if token.startswith(PREFIX):
            from .classes import native_named  # noqa: PLC0415  which reads schemas of methods

            return native_named(token)
        if token in _VARIABLES or re.fullmatch(r"t\w*", token):
            return VarType(token)
        raise RuntimeError(f"the schema has an unknown type {token!r}")

    def type(self) -> tuple[Type, bool, int | None]:
        """A type, whether it is written to, and the size of a list."""
        kind = self.base()
        written, size = self.alias(), None
        while self.peek() in ("[", "?"):
            if self.take() == "?":
                kind = optional_of(kind)
                written = self.alias() or written
                continue
            if self.peek() != "]":
                size = int(self.take())
            self.take("]")
            kind = ListType(kind)
            written = self.alias() or written
        return kind, written, size

    def default(self, kind: Type) -> Any:
        token = self.take()
        if token == "[":
            items = []
            while self.peek() != "]":
                items.append(self.default(kind))
                if self.peek() == ",":
                    self.take()
            self.take("]")
            return items
        if token[0] in "\"'":
            return token[1:-1]
        words = {"None": None, "True": True, "False": False, "inf": float("inf"), "Mean": 1, "contiguous_format": 0, "long": 4, "strided": 0}  # fmt: skip
        if token in words:
            return words[token]
        if re.fullmatch(r"-?\d+", token):
            return float(token) if _holds_float(kind) else int(token)
        return float(token)


def _holds_float(kind: Type) -> bool:
    while isinstance(kind, (OptionalType, ListType)):
        kind = kind.element
    return str(kind) == "float"


def parse_schema(text: str) -> Schema:
    """Read a schema."""
    head, _, _ = text.partition("(")
    name, _, overload = head.strip().partition(".") if "::" in head else (head.strip(), "", "")
    reader = _Reader(text[len(head) :])
    reader.take("(")
    arguments: list[Argument] = []
    keyword_only = varargs = False
    while reader.peek() != ")":
        if reader.peek() == "*":
            reader.take()
            keyword_only = True
        elif reader.peek() == "...":
            reader.take()
            varargs = True
        else:
            kind, written, size = reader.type()
            label = reader.take() if reader.peek() not in (",", ")") else f"argument_{len(arguments)}"
            default = REQUIRED
            if reader.peek() == "=":
                reader.take()
                default = reader.default(kind)
            arguments.append(Argument(label, kind, default, keyword_only, size, written))
        if reader.peek() == ",":
            reader.take()
    reader.take(")")
    reader.take("->")
    returns: list[Type] = []
    varrets, fields = False, []
    if reader.peek() == "...":
        varrets = True
    elif reader.peek() == "(":
        reader.take()
        while reader.peek() != ")":
            returns.append(reader.type()[0])
            if reader.peek() not in (",", ")"):
                fields.append(reader.take())
            if reader.peek() == ",":
                reader.take()
        reader.take(")")
    else:
        returns.append(reader.type()[0])
    made = Schema(name, overload, arguments, returns, varargs, varrets, fields)
    made.shares = re.search(r"-> .*\(\w", text) is not None
    return made


# -- the table --------------------------------------------------------------------------------------------------------------


@functools.cache
def _lines() -> dict[str, list[str]]:
    """The schemas of each operator's name, in the order in which calls try them."""
    table: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / "operators.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        # A line without "::" is an operator of aten.
        text = line if "::" in line.partition("(")[0] else f"aten::{line}"
        table.setdefault(re.split(r"[.(]", text, maxsplit=1)[0], []).append(text)
    return table


@functools.cache
def _own_schemas(name: str) -> tuple[Schema, ...]:
    found = list(map(parse_schema, _lines().get(name, ())))
    return (*found, *(_with_out(s) for s in found if _can_write(s)))


def _can_write(schema: Schema) -> bool:
    """Whether there is a form with out=: operators of aten that make one tensor from tensors."""
    if not schema.name.startswith("aten::") or schema.is_mutable or [str(r) for r in schema.returns] != ["Tensor"]:
        return False
    if schema.name == "aten::to" or schema.index_of("device") is not None:  # which make tensors of another kind
        return False
    return any(str(a.type).startswith("Tensor") for a in schema.arguments)


def _with_out(schema: Schema) -> Schema:
    overload = "out" if schema.overload in ("", "Tensor") else f"{schema.overload.removeprefix('dim_')}_out"
    out = Argument("out", NAMED["Tensor"], keyword_only=True, written=True)
    return Schema(schema.name, overload, (*schema.arguments, out), schema.returns)


def schemas_of(name: str) -> Sequence[Schema]:
    """The overloads of an operator; none if there is no such operator."""
    return _own_schemas(name) or _user_schemas(name)


def symbol_of(op: Any) -> str:
    """What graphs call an operator: one of aten, or of a namespace of its own."""
    own = op.name if "::" in op.name else f"{op.namespaces[0]}::{op.name}" if op.namespaces else ""
    return own if schemas_of(own) else f"aten::{op.name}"


def _user_schemas(name: str) -> Sequence[Schema]:
    """Of an operator that a user has registered, from Python (`torch.library`) or C++ (TORCH_LIBRARY)."""
    record = OPS.get(name) if "::" in name else None
    return () if record is None else (parse_schema(str(record.schema)),)


def all_names() -> list[str]:
    return [*_lines(), *(name for name in OPS if "::" in name)]
