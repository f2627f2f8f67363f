"""Resolution of the names in the source inside archives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .functions import Function
from .named_values import CastValue, ClassValue, EnumClass, NamedTupleClass, OperatorNamespace
from .resolver import Resolver
from .source import Range, error
from .types import BOOL, COMPLEX, FLOAT, INT, STRING, ClassType, EnumType, TupleType
from .value_types import inferred
from .values import BuiltinFunction, FunctionValue, SimpleValue, SpecialForm, Sugared

if TYPE_CHECKING:
    from .loading import Loader

_FORMS = {
    "annotate", "unchecked_cast", "uninitialized", "getattr", "hasattr", "range", "isinstance", "print", "fork", "len", "list", "tuple",
    "dict", "zip", "enumerate",
}  # fmt: skip
_CASTS = {
    "int": (INT, "Int"),
    "float": (FLOAT, "Float"),
    "bool": (BOOL, "Bool"),
    "complex": (COMPLEX, "Complex"),
    "str": (STRING, "str"),
}
NUMBERS = {"inf": math.inf, "nan": math.nan, "infj": complex(0, math.inf), "nanj": complex(0, math.nan)}


class ArchiveResolver(Resolver):
    """Resolver for source in archives, which can name `torch`, `ops`, `CONSTANTS`, `__torch__` and a few functions only."""

    trusts_returns = True  # a NamedTuple among the constants has lost its name

    def __init__(self, loader: Loader):
        self.loader = loader

    def name(self, m: Any, place: Range | None, name: str) -> Sugared | None:
        if name == "torch":
            return OperatorNamespace("aten")
        if name == "ops":
            return _NamespaceRoot()
        if name == "CONSTANTS":
            return _Constants(self.loader)
        if name == "__torch__":
            return _Qualified(self.loader, name)
        if name in _CASTS:
            return CastValue(_CASTS[name][0], f"aten::{_CASTS[name][1]}")
        if name in _FORMS:
            return SpecialForm(name)
        if name in NUMBERS:
            number = NUMBERS[name]
            return SimpleValue(m.constant(number, COMPLEX if isinstance(number, complex) else FLOAT, place))
        if name == "_unwrap_optional":
            return BuiltinFunction("aten::_unwrap_optional")
        return None

    def type(self, m: Any, name: str) -> Any:
        return (
            self.loader.type(name) if name.startswith("__torch__.") and name != "__torch__.torch.classes.Any" else None
        )

    def attribute_value(self, m: Any, value: Any, owner: ClassType | None, name: str) -> Sugared:
        return SimpleValue(value)

    def sugared(self, m: Any, place: Range | None, thing: Any, constant: bool = False) -> Sugared:
        simple = self._constant(m, place, thing, True)
        if simple is None:
            raise error(place, f"corrupt archive: a constant of type {type(thing).__name__}")
        return simple


class _NamespaceRoot(Sugared):
    kind = "module"

    def attr(self, place: Range | None, m: Any, name: str) -> Sugared:
        return OperatorNamespace(name)


class _Constants(Sugared):
    kind = "module"

    def __init__(self, loader: Loader):
        self.loader = loader

    def attr(self, place: Range | None, m: Any, name: str) -> Sugared:
        value = self.loader.constant(name)
        kind = inferred(value)
        if kind is None:
            raise error(place, f"corrupt archive: the constant {name} has no type")
        return SimpleValue(m.graph.constant(value, kind, place))


class _Qualified(Sugared):
    """A dotted name that begins with `__torch__`: a class or function of the archive."""

    kind = "module"

    def __init__(self, loader: Loader, name: str):
        self.loader, self.path = loader, name

    def attr(self, place: Range | None, m: Any, name: str) -> Sugared:
        full = f"{self.path}.{name}"
        found = self.loader.find(full)
        if found is None:
            return _Qualified(self.loader, full)
        if isinstance(found, Function):
            return FunctionValue([found])
        if isinstance(found, TupleType):
            return NamedTupleClass(found)
        if isinstance(found, EnumType):
            return EnumClass(found)
        if isinstance(found, ClassType):
            return ClassValue(found)
        raise error(place, f"{full} cannot be used as a value")
