"""Schemas: the arguments and results of an operator, `aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`.

One class for all of them, whatever their types are made of: text in PyTorch's notation ("SymInt[]?"), or objects that print as such
(TorchScript's types). `parse_schema` reads one, `str` writes it as PyTorch does."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ...core import dtype as dt
from ...core.dtype import dtype
from ...core.layout import LAYOUTS, MEMORY_FORMATS, layout, memory_format

REQUIRED: Any = inspect.Parameter.empty


class AliasInfo:
    """Alias annotation of an argument, the memory it shares and whether that is written to: `(a!)`, `(a -> *)`. `of_elements`: it applies to
    the elements of a list, not to the list."""

    __slots__ = ("after_set", "before_set", "is_write", "of_elements", "text")

    def __init__(self, text: str, of_elements: bool = False) -> None:
        before, _, after = text.strip("()").replace("!", "").partition(" -> ")
        self.text, self.of_elements = text, of_elements
        self.is_write = "!" in text
        self.before_set = set(before.split("|"))
        self.after_set = set(after.split("|")) if after else self.before_set

    def __repr__(self) -> str:
        return self.text


@functools.lru_cache(512)
def _base(kind: str) -> str:
    return re.sub(r"[\[\]?]", "", kind).replace("SymInt", "int")


class Argument:
    """Argument or result of a schema.

    `type` is its type, `real_type` the same with "SymInt" distinguished from "int"; `N` is the length of a list that a single value may stand
    for; `default` is REQUIRED for an argument that must be given."""

    __slots__ = ("N", "alias_info", "default", "kwarg_only", "name", "real_type", "type")

    def __init__(
        self,
        name: str,
        type: Any,
        default: Any = REQUIRED,
        kwarg_only: bool = False,
        N: int | None = None,
        alias_info: AliasInfo | None = None,
        real_type: str | None = None,
    ) -> None:
        self.name, self.type, self.default, self.kwarg_only = name, type, default, kwarg_only
        self.N, self.alias_info = N, alias_info
        self.real_type = type if real_type is None else real_type

    def has_default_value(self) -> bool:
        return self.default is not REQUIRED

    @property
    def default_value(self) -> Any:
        return None if self.default is REQUIRED else self.default

    @property
    def is_write(self) -> bool:
        """Return whether the operator changes the argument."""
        return self.alias_info is not None and self.alias_info.is_write

    @property
    def is_out(self) -> bool:
        """Return whether the argument receives the result: `out=`."""
        return self.kwarg_only and self.is_write

    @property
    def base(self) -> str:
        """Return the type of one element: "int" of "SymInt[]?"."""
        return _base(str(self.type))

    @property
    def is_list(self) -> bool:
        return "[]" in str(self.type)

    @property
    def is_optional(self) -> bool:
        return str(self.type).endswith("?")

    def _kind(self) -> str:
        """Return the type as text, with the length of its list and its alias annotation."""
        kind = str(self.real_type)
        mark, optional = self.alias_info, kind.endswith("?")
        core = kind[:-1] if optional else kind
        if core.endswith("[]"):
            inner = mark.text if mark is not None and mark.of_elements else ""
            core = f"{core[:-2]}{inner}[{'' if self.N is None else self.N}]"
        outer = mark.text if mark is not None and not mark.of_elements else ""
        return core + outer + ("?" if optional else "")

    def __str__(self) -> str:
        words = f"{self._kind()} {self.name}" if self.name else self._kind()
        return words if self.default is REQUIRED else f"{words}={self._default_text()}"

    def _default_text(self) -> str:
        value = self.default
        if isinstance(value, (list, tuple)) and len(value) > 1 and self.N and str(self.real_type) == "int[]":
            value = value[0] if all(v == value[0] for v in value) else value
        return value_text(value)

    __repr__ = __str__


class Schema:
    """A name, an overload's name, arguments and results. Results may be given as their types alone."""

    def __init__(
        self,
        name: str,
        overload_name: str,
        arguments: Iterable[Argument],
        returns: Iterable[Any],
        is_vararg: bool = False,
        is_varret: bool = False,
    ) -> None:
        self.name, self.overload_name = name, overload_name
        self.arguments = tuple(arguments)
        self.returns = tuple(r if isinstance(r, Argument) else Argument("", r) for r in returns)
        self.is_vararg, self.is_varret = is_vararg, is_varret

    @property
    def key(self) -> str:
        """Return the name with that of the overload: "aten::add.Tensor"."""
        return f"{self.name}.{self.overload_name}" if self.overload_name else self.name

    @property
    def is_mutable(self) -> bool:
        return any(a.is_write for a in self.arguments)

    @property
    def is_out(self) -> bool:
        """Return whether the result is written to an argument `out`."""
        return any(a.is_out for a in self.arguments)

    @property
    def shares(self) -> bool:
        """Return whether a result may share memory with an argument."""
        return any(r.alias_info is not None for r in self.returns)

    @property
    def result_types(self) -> list[Any]:
        return [r.type for r in self.returns]

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the names of the results that have one."""
        return tuple(r.name for r in self.returns if r.name)

    @property
    def positional(self) -> list[Argument]:
        return [a for a in self.arguments if not a.kwarg_only]

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """Return the arguments as parameters of a Python function."""
        kinds = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        return {a.name: inspect.Parameter(a.name, kinds[not a.kwarg_only], default=a.default) for a in self.arguments}

    def index_of(self, name: str) -> int | None:
        return next((index for index, argument in enumerate(self.arguments) if argument.name == name), None)

    def renamed(self, name: str) -> Schema:
        """Return this schema under another name."""
        return Schema(name, self.overload_name, self.arguments, self.returns, self.is_vararg, self.is_varret)

    def as_call(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the values of all arguments as positional and keyword arguments of a call."""
        pairs = list(zip(self.arguments, values))
        return tuple(v for a, v in pairs if not a.kwarg_only), {a.name: v for a, v in pairs if a.kwarg_only}

    def __str__(self) -> str:
        words = [str(a) for a in self.arguments]
        first = next((i for i, a in enumerate(self.arguments) if a.kwarg_only), None)
        if first is not None:
            words.insert(first, "*")
        if self.is_vararg:
            words.append("...")
        return f"{self.key}({', '.join(words)}) -> {self._results()}"

    def _results(self) -> str:
        words = [*map(str, self.returns), *(["..."] if self.is_varret else [])]
        alone = len(words) == 1 and not words[0].startswith("(")
        return words[0] if alone else f"({', '.join(words)})"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(self.key)


# -- values ---------------------------------------------------------------------------------------------------------------------

# Types whose values a schema writes as numbers.
_NUMBERED: dict[str, Any] = {
    "MemoryFormat": MEMORY_FORMATS,
    "Layout": LAYOUTS,
    "ScalarType": dt.BY_NUMBER,
}
_WORDS: dict[str, Any] = {
    "None": None, "True": True, "False": False, "inf": float("inf"), "-inf": -float("inf"), "nan": float("nan"),
    "Mean": 1, "contiguous_format": 0, "strided": 0, "long": 4,
}  # fmt: skip
_ESCAPES = {
    "\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v",
}  # fmt: skip


def quoted(text: str) -> str:
    """Return a string literal as TorchScript writes it."""
    out = ['"']
    for char in text:
        if char in _ESCAPES:
            out.append(_ESCAPES[char])
        elif char.isascii() and char.isprintable():
            out.append(char)
        else:
            out.append("".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape")))
    return "".join(out) + '"'


def number_text(value: Any) -> str:
    """Return a number as text with all its digits."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return "nan" if value != value else "inf" if value > 0 else "-inf"
        text = f"{value:.17g}"
        return text if any(c in text for c in ".en") else text + "."
    if isinstance(value, complex):
        return f"{number_text(value.real).rstrip('.')}{'+' if value.imag >= 0 else ''}{number_text(value.imag).rstrip('.')}j"
    return str(value)


def value_text(value: Any) -> str:
    """Format a default as schemas write it."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, (dtype, layout, memory_format)):
        return str(value.number) if value is dt.int64 or not isinstance(value, dtype) else value.name
    return number_text(value)


# -- reading --------------------------------------------------------------------------------------------------------------------


class TextTypes:
    """Reader of types and defaults: types stay text, defaults become the values that a caller would pass."""

    def named(self, word: str) -> Any:
        return word

    def list_of(self, element: Any) -> Any:
        return f"{element}[]"

    def optional(self, element: Any) -> Any:
        return f"{element}?"

    def tuple_of(self, parts: list[Any]) -> Any:
        return f"({', '.join(parts)})"

    def generic(self, word: str, parts: list[Any]) -> Any:
        return f"{word}({', '.join(parts)})"

    def value(self, value: Any, base: str) -> Any:
        """Return the value of a default that is written as a number or a word for an argument of this type."""
        things = _NUMBERED.get(base)
        if things is not None and isinstance(value, int):
            return things[value]
        if base != "ScalarType" or not isinstance(value, str):
            return value
        return dt.BY_NAME[value] if value in dt.BY_NAME else dt.ALIASES[value]


TEXT = TextTypes()
_GENERIC = ("Dict", "Future", "Union", "RRef", "Await")
_TOKEN = re.compile(
    r"\s*(->|\.\.\.|[A-Za-z_][\w.:]*|-?\d[\w.+-]*|-?inf|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|.)", re.DOTALL
)


class SchemaReader:
    """Reader of a schema, token by token; `types` makes the types."""

    def __init__(self, text: str, types: TextTypes = TEXT) -> None:
        self.text, self.types = text, types
        self.tokens = [token for token in _TOKEN.findall(text) if token.strip()]
        self.place = self.unnamed = 0

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self, wanted: str | None = None) -> str:
        token = self.peek()
        if not token or (wanted is not None and token != wanted):
            expected = f"{wanted!r}" if wanted is not None else "more"
            raise RuntimeError(
                f"expected {expected} but found {token!r} in the schema {self.text!r}, which should look like 'name(Tensor x, int k=2)"
                " -> Tensor'"
            )
        self.place += 1
        return token

    def between(self, end: str) -> Iterable[str]:
        """Yield the first token of each part up to `end`, which is consumed; parts are separated by commas."""
        while self.peek() != end:
            yield self.peek()
            if self.peek() != end:
                self.take(",")
        self.take(end)

    def alias(self) -> str:
        """Read an alias annotation `(a!)`, if one is next. A bare `!` marks memory that is written but not shared: it gets a new name."""
        if self.peek() == "!":
            self.take()
            self.unnamed += 1
            return f"(${self.unnamed - 1}! -> )"
        if self.peek() != "(":
            return ""
        words = [self.take()]
        while words[-1] != ")":
            words.append(self.take())
        return "".join(words).replace("->", " -> ")

    def base(self) -> tuple[Any, str]:
        """Read a type without its suffixes; return it and its name."""
        token = self.take()
        if token == "(":
            return self.types.tuple_of([self.type().type for _ in self.between(")")]), "("
        if token in _GENERIC:
            self.take("(")
            return self.types.generic(token, [self.type().type for _ in self.between(")")]), token
        if not re.match(r"[A-Za-z_]", token):
            raise RuntimeError(f"cannot read the type {token!r} in the schema {self.text!r}")
        return self.types.named(token), token

    def type(self) -> Argument:
        """Read a type with its alias annotation and the length of its list, as an argument without a name."""
        kind, base = self.base()
        real, symbolic = str(kind), base.startswith("Sym")
        real = base if symbolic else real
        mark, size = self.alias(), None
        of_elements = False
        while self.peek() in ("[", "?"):
            if self.take() == "?":
                kind, real = self.types.optional(kind), f"{real}?"
            else:
                of_elements = of_elements or bool(mark)
                size = int(self.take()) if self.peek() != "]" else size
                self.take("]")
                kind, real = self.types.list_of(kind), f"{real}[]"
            mark = mark or self.alias()
        info = AliasInfo(mark, of_elements) if mark else None
        return Argument(base, kind, N=size, alias_info=info, real_type=real if symbolic else None)

    def argument(self, position: int, kwarg_only: bool) -> Argument:
        read = self.type()
        base, read.kwarg_only = read.name, kwarg_only
        read.name = self.take() if self.peek() not in (",", ")") else f"argument_{position}"
        if self.peek() == "=":
            self.take()
            value = self.default(base)
            read.default = [value] * read.N if read.N and isinstance(value, (int, float)) and read.is_list else value
        return read

    def default(self, base: str) -> Any:
        token = self.take()
        if token == "[":
            return [self.default(base) for _ in self.between("]")]
        if token[0] in "\"'":
            return ast.literal_eval(token)
        if token in _WORDS:
            found = _WORDS[token]
        elif re.fullmatch(r"-?\d+", token):
            found = float(token) if base == "float" else int(token)
        else:
            found = token if base == "ScalarType" or token[0].isalpha() else float(token)
        return self.types.value(found, base)

    def arguments(self) -> tuple[list[Argument], bool]:
        """Read the arguments; return them, and whether any number of others may follow."""
        found: list[Argument] = []
        kwarg_only = more = False
        self.take("(")
        for first in self.between(")"):
            if first in ("*", "..."):
                self.take()
                kwarg_only, more = kwarg_only or first == "*", more or first == "..."
            else:
                found.append(self.argument(len(found), kwarg_only))
        return found, more

    def result(self) -> Argument:
        read = self.type()
        read.name = self.take() if self.peek() not in (",", ")", "") else ""
        return read

    def results(self) -> tuple[list[Argument], bool]:
        if self.peek() == "...":
            self.take()
            return [], True
        if self.peek() != "(":
            return [self.result()], False
        start = self.place
        self.take()
        found, more = [], False
        for first in self.between(")"):
            if first == "...":
                self.take()
                more = True
            else:
                found.append(self.result())
        if self.peek() in ("[", "?"):  # one result, a list of tuples
            self.place = start
            return [self.result()], False
        return found, more


def parse_schema(text: str, types: TextTypes = TEXT) -> Schema:
    """Read `name(Tensor x, int k=2) -> Tensor`; the name may be left out."""
    head = text.partition("(")[0]
    name, _, overload = head.strip().partition(".")
    reader = SchemaReader(text[len(head) :], types)
    arguments, is_vararg = reader.arguments()
    reader.take("->")
    returns, is_varret = reader.results()
    if reader.peek():
        raise RuntimeError(f"cannot read {reader.peek()!r} behind the results of the schema {text!r}")
    return Schema(name, overload, arguments, returns, is_vararg, is_varret)
