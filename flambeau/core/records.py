"""Records: classes of named fields, declared like data classes. `__init__` is written when the first record of a class is made.

`dataclasses` writes and compiles methods when a class is defined: for a module of a few such classes that takes longer than everything else
in importing it, and many of them are never used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from .written import written

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**options):  # what a type checker reads: Python has it only since 3.11
        return lambda function: function


_Kind = TypeVar("_Kind", bound=type)
_Record = TypeVar("_Record")


@dataclass_transform(eq_default=False)
def record(kind: _Kind) -> _Kind:
    """Give a class slots for its annotated names, and a constructor with these as arguments and their values as defaults. Of a default that
    is a list, dict or set each record gets its own."""
    own: Any = vars(kind)
    names = tuple(own["__annotations__"])
    defaults = {f"_{name}": own[name] for name in names if name in own}
    space = {n: v for n, v in own.items() if n not in (*names, "__dict__", "__weakref__")}
    space["__slots__"], space["__init__"] = names, written(lambda: _source(names, defaults), dict(defaults))
    return type(kind)(kind.__name__, kind.__bases__, space)


def _source(names: tuple[str, ...], defaults: dict[str, Any]) -> str:
    """Return the text of a constructor."""
    given = ", ".join(f"{n}=_{n}" if f"_{n}" in defaults else n for n in names)
    anew = {n: f"_{n}.copy() if {n} is _{n} else " for n in names if type(defaults.get(f"_{n}")) in (list, dict, set)}
    return "\n ".join([f"def compute(self, {given}):", *(f"self.{n} = {anew.get(n, '')}{n}" for n in names)])


def replace(one: _Record, **changes: Any) -> _Record:
    """Return a record like `one` with some fields changed."""
    kind: Any = type(one)
    return kind(**{name: getattr(one, name) for name in kind.__slots__} | changes)
