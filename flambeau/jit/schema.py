"""Schemas with TorchScript's types (see `ops.machinery.schema`), and the operators that graphs may hold."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from ..core import naming
from ..core.native_class import PREFIX
from ..ops.machinery import schema as notation
from ..ops.machinery.record import OPS
from ..ops.machinery.schema import REQUIRED, AliasInfo, Argument, Schema, TextTypes
from ..ops.machinery.schema_table import lines
from .types import INT, NAMED, TENSOR, DictType, FutureType, ListType, TupleType, Type, UnionType, VarType, optional_of

__all__ = ["REQUIRED", "Argument", "Schema", "all_names", "parse_schema", "schemas_of", "symbol_of"]

_SYMBOLIC = {"SymInt": INT, "SymBool": NAMED["bool"]}


class _ScriptTypes(TextTypes):
    """Types in TorchScript's notation; dtypes, layouts and memory formats are numbers."""

    def named(self, word: str) -> Type:
        known = NAMED.get(word) or _SYMBOLIC.get(word)
        if known is not None:
            return known
        if word.startswith(PREFIX):
            return naming.above("jit.classes").native_named(word)  # which reads schemas of methods
        if re.fullmatch(r"t\w*", word):
            return VarType(word)
        raise RuntimeError(f"the schema has an unknown type {word!r}")

    def list_of(self, element: Type) -> Type:
        return ListType(element)

    def optional(self, element: Type) -> Type:
        return optional_of(element)

    def tuple_of(self, parts: list[Type]) -> Type:
        return TupleType(parts)

    def generic(self, word: str, parts: list[Type]) -> Type:
        if word == "Dict":
            return DictType(*parts)
        return UnionType(parts) if word == "Union" else FutureType(parts[0])

    def value(self, value: Any, base: str) -> Any:
        return value


_TYPES = _ScriptTypes()


def parse_schema(text: str) -> Schema:
    """Read a schema."""
    return notation.parse_schema(text, _TYPES)


# -- the table --------------------------------------------------------------------------------------------------------------


@functools.cache
def _own_schemas(name: str) -> tuple[Schema, ...]:
    found = [parse_schema(text) for text in lines().get(name, {}).values()]
    return (*found, *(_out_schema(s) for s in found if _can_write(s)))


def _can_write(schema: Schema) -> bool:
    """Return whether an operator gets an overload with out=: an aten operator that makes one tensor from tensors."""
    if not schema.name.startswith("aten::") or schema.is_mutable or schema.result_types != [TENSOR]:
        return False
    if schema.name == "aten::to" or schema.index_of("device") is not None:  # which make tensors of another kind
        return False
    return any(str(a.type).startswith("Tensor") for a in schema.arguments)


def _out_schema(schema: Schema) -> Schema:
    overload = "out" if schema.overload_name in ("", "Tensor") else f"{schema.overload_name.removeprefix('dim_')}_out"
    mark = AliasInfo("(a!)")
    out = Argument("out", TENSOR, kwarg_only=True, alias_info=mark)
    return Schema(schema.name, overload, (*schema.arguments, out), [Argument("", TENSOR, alias_info=mark)])


def schemas_of(name: str) -> Sequence[Schema]:
    """Return the overloads of an operator; empty if there is no such operator."""
    return _own_schemas(name) or _user_schemas(name)


def symbol_of(op: Any) -> str:
    """Return the name of an operator in graphs: in `aten`, or in the operator's own namespace."""
    own = op.name if "::" in op.name else f"{op.namespaces[0]}::{op.name}" if op.namespaces else ""
    return own if schemas_of(own) else f"aten::{op.name}"


def _user_schemas(name: str) -> Sequence[Schema]:
    """Return the schemas of an operator that a user has registered from Python (`torch.library`) or C++ (TORCH_LIBRARY)."""
    record = OPS.get(name) if "::" in name else None
    return () if record is None else (parse_schema(str(record.schema)),)


def all_names() -> list[str]:
    return [*lines(), *(name for name in OPS if "::" in name)]
