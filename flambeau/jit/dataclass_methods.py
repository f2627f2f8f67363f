"""Generated methods of dataclasses (`__init__`, comparisons), which have no source, as compiled functions."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import typing
from typing import Any

from . import signatures as notes
from .functions import Definition, Function, defaults_of
from .resolver import Resolver
from .source import Source
from .types import ClassType, Type


class _FieldResolver(Resolver):
    """Resolver for the generated methods of a dataclass: the class, and the types of its fields."""

    def __init__(self, thing: type, hints: dict[str, Any]):
        self.thing, self.hints = thing, hints

    def lookup(self, name: str) -> tuple[bool, Any]:
        return (
            (True, self.thing)
            if name == self.thing.__name__
            else (hasattr(builtins, name), getattr(builtins, name, None))
        )

    def argument_type(self, m: Any, tree: ast.FunctionDef, name: str) -> Type | None:
        hint = self.hints.get(name)
        return None if hint is None else notes.python_type(getattr(hint, "type", hint))


def dataclass_methods(kind: ClassType, thing: Any, hints: dict[str, Any], written: set[str]) -> dict[str, Function]:
    """Return compiled `__init__` and comparison methods of a dataclass, except those in `written`, which it defines itself."""
    fields, options = dataclasses.fields(thing), thing.__dataclass_params__
    if any(f.default_factory is not dataclasses.MISSING for f in fields):
        raise NotImplementedError("Default factory initializers are not supported in TorchScript dataclasses")
    names = [n for n in inspect.signature(thing.__init__).parameters if n != "self"]
    own = {f.name for f in fields}
    lines = [f"self.{n} = {n}" for n in names if n in own]
    if hasattr(thing, "__post_init__"):
        lines.append(f"self.__post_init__({', '.join(n for n in names if n not in own)})")
    texts = {"__init__": (f"self, {', '.join(names)}) -> None", lines or ["pass"])}
    compared = [f for f in fields if f.compare]
    if options.eq:
        texts["__eq__"] = _comparison(thing, hints, compared, ["if val1 != val2:", "  return False"], True)
    if options.order:
        for name, sign, last in (("lt", "<", False), ("le", "<", True), ("gt", ">", False), ("ge", ">", True)):
            steps = [f"if val1 {sign} val2:", "  return True", f"elif val2 {sign} val1:", "  return False"]
            texts[f"__{name}__"] = _comparison(thing, hints, compared, steps, last)
    resolver = _FieldResolver(thing, hints)
    made = {}
    for name, (head, body) in texts.items():
        if name not in written:
            text = f"def {name}({head}:\n" + "".join(f"  {line}\n" for line in body)
            tree = ast.parse(text).body[0]
            assert isinstance(tree, ast.FunctionDef)
            defaults = defaults_of(thing.__init__) if name == "__init__" else {}
            made[name] = Function(f"{kind.name}.{name}", Definition(tree, Source(text), resolver, defaults), kind)
    return made


def _comparison(
    thing: Any, hints: dict[str, Any], fields: list, steps: list[str], equal: bool
) -> tuple[str, list[str]]:
    """Return the signature and body (source lines) of a method that compares two objects field by field."""
    lines = []
    for field in fields:
        lines += [f"val1 = self.{field.name}", f"val2 = other.{field.name}"]
        if type(None) in typing.get_args(hints[field.name]):
            lines += ["if val1 is not None and val2 is not None:", *(f"  {s}" for s in steps)]
            lines += ["elif (val1 is None) != (val2 is None):", "  return False"]
        else:
            lines += steps
    return f"self, other: {thing.__name__}) -> bool", [*lines, f"return {equal}"]
