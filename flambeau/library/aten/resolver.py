"""Lookup of the function that runs for each of PyTorch's operators, and of its record by name.

Most are found by name: `aten::linalg_norm` is `linalg.norm`, `aten::add_` is `Tensor.add_`, `aten::relu` is `relu`; their arguments are the
same. If they differ, the record declares it (`Op.aten`), or the operator is declared for PyTorch's graphs only (`aten_only`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau

from ...core import modes
from ...core.tensor import Tensor
from ...ops import OPS, namespace
from ...ops.aten_only import ATEN_ONLY, ATEN_PARTS
from ...ops.machinery.aten_form import AtenForm
from ...ops.machinery.matching import bound
from ...ops.machinery.record import Op
from ...ops.machinery.schema_table import aten_names, is_core_composite, overloads_of, schema_of
from ...ops.pointwise.foreach import FOREACH
from .derivatives import derivative_of as derivative_of
from .derivatives import function_of as derivative_function
from .overloads import OpOverload, aten

_SPACES = ("linalg", "fft", "special", "sparse")


@functools.cache
def _declared(public: bool = True) -> dict[str, tuple[Op, AtenForm, bool]]:
    """Return the records, of public operators or of parts, whose declaration names one of PyTorch's operators, with its form, and whether it
    is the in-place one."""
    found: dict[str, tuple[Op, AtenForm, bool]] = {}
    for op in list(OPS.values()):
        for form in op.aten_forms:
            if form.only_names or form.item is not None or bool(op.namespaces) is not public:
                continue
            overload = f".{form.overload}" if form.overload else ""
            found.setdefault(f"{form.name}{overload}", (op, form, False))
            if "inplace" in op.arguments and overloads_of(f"{form.name}_"):
                found.setdefault(f"{form.name}_{overload}", (op, form, True))
    return found


def _declared_overload(name: str, overload: str, inner: bool = False, public: bool = True) -> Callable | None:
    found = _declared(public).get(f"{name}.{overload}") or _declared(public).get(name)
    if found is None:
        return None
    op, form, inplace = found
    schema = schema_of(name, "" if overload == "default" else overload)
    changes = {"inplace": True} if inplace else {}
    function = op.unwatched if inner else op.function

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(**form.own(schema, bound(schema, args, kwargs), op.defaults), **changes)

    return call


@functools.cache
def by_name(name: str) -> Callable | None:
    """Return the public function or method with an operator's name, or one that takes the same arguments; else None."""
    declared = _declared().get(name)
    if declared is not None and declared[1].is_plain(list(declared[0].arguments)):
        return declared[0].function
    for space in _SPACES:
        found = namespace(space).get(name[len(space) + 1 :]) if name.startswith(f"{space}_") else None
        if found is not None:
            return found
    functional = namespace("nn.functional")
    found = namespace("torch").get(name) or getattr(Tensor, name, None) or functional.get(name)
    if found is None and f"internal.{name}" in OPS:
        return OPS[f"internal.{name}"].function
    if found is None and name.endswith("_") and name[:-1] in functional:
        return functools.partial(functional[name[:-1]], inplace=True)
    if found is None and not name.startswith("__"):
        found = getattr(flambeau, name, None)
    return found if callable(found) and not isinstance(found, type) else None


@functools.cache
def find(name: str, overload: str) -> Callable | None:
    """Return the function that runs for an overload (or for "default"); None if there is none."""
    return (
        ATEN_ONLY.get(f"{name}.{overload}")
        or ATEN_ONLY.get(name)
        or FOREACH.get(name)
        or _declared_overload(name, overload)
        or derivative_function(name, overload)
        or _call_by_keywords(by_name(name), name, overload)
        or _declared_overload(name, overload, public=False)
    )


def _declared_parts(name: str, overload: str) -> Callable | None:
    return ATEN_PARTS.get(f"{name}.{overload}") or (ATEN_PARTS.get(name) if overload == "default" else None)


@functools.cache
def body_of(name: str, overload: str) -> Callable | None:
    """Return the function that makes the calls an overload consists of: as declared, or the operator's body; None if it has none."""
    parts = _declared_parts(name, overload)
    if parts is not None:
        return functools.partial(parts, aten)
    function = ATEN_ONLY.get(f"{name}.{overload}") or ATEN_ONLY.get(name)
    if function is not None:
        return modes.unwatched(function) if hasattr(function, "op") else function
    declared = _declared().get(f"{name}.{overload}") or _declared().get(name)
    if declared is not None:
        return _declared_overload(name, overload, inner=True) if declared[0].kind == "composite" else None
    found = by_name(name)
    op = getattr(found, "op", None)
    return _call_by_keywords(found, name, overload, inner=True) if op is not None and op.kind == "composite" else None


@functools.cache
def made_of_others(core: bool = False) -> list[OpOverload]:
    """Return the overloads that PyTorch decomposes and that have such a body here; with `core`, also those whose parts are declared."""
    found = []
    for name in aten_names():
        packet = getattr(aten, name)
        for overload in packet.overloads():
            one = getattr(packet, overload)
            parts = _declared_parts(name, overload)
            if one._schema.is_out or not any(r.base == "Tensor" for r in one._schema.returns):
                continue
            kept = core and is_core_composite(name, one._schema.overload_name)
            wanted = (one.is_composite and not kept) or (parts is not None and (core or vars(parts)["unseen"]))
            if wanted and body_of(name, overload) is not None:
                found.append(one)
    return found


def _call_by_keywords(function: Callable | None, name: str, overload: str, inner: bool = False) -> Callable | None:
    """Return a function of the operator's name, called by keywords if its arguments are in other places than those of PyTorch's operator;
    `inner`: so that modes see its parts."""
    op = getattr(function, "op", None)
    function = modes.unwatched(function) if inner and function is not None else function
    key = "" if overload == "default" else overload
    if function is None or op is None or not op.arguments or key not in overloads_of(name):
        return function
    own = list(op.arguments.values())
    if any(p.kind is p.VAR_POSITIONAL for p in own):
        return function
    places = {p.name: i for i, p in enumerate(own) if p.kind is p.POSITIONAL_OR_KEYWORD}
    known = {p.name for p in own}
    moved = {i: a.name for i, a in enumerate(schema_of(name, key).positional) if i and a.name in known}
    moved = {i: argument for i, argument in moved.items() if places.get(argument) != i}
    if not moved:
        return function
    first = min(moved)

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args[:first], **{moved[i]: args[i] for i in range(first, len(args))}, **kwargs)

    return call if all(i in moved for i in range(first, len(schema_of(name, key).positional))) else function


def function_of(name: str, overload: str) -> Callable:
    """Return the function that runs for an overload; raise NotImplementedError if there is none."""
    found = find(name, overload)
    if found is None:
        raise NotImplementedError(f"the operator aten::{name}.{overload} is not in Flambeau yet")
    return found


@functools.cache
def _functions(space: str) -> dict[str, Any]:
    return namespace(space)


def record_of(name: str) -> Op | None:
    """Return the record of the operator that PyTorch calls `aten::name`, or None."""
    for space, prefix in (("torch", ""), *((space, f"{space}_") for space in _SPACES)):
        found = _functions(space).get(name[len(prefix) :]) if name.startswith(prefix) else None
        if found is not None and hasattr(found, "op"):
            return found.op
    if name in OPS:
        return OPS[name]  # a method
    return OPS.get(f"nn.functional.{name}")


def draws(name: str) -> bool:
    """Return whether `aten::name` draws random numbers."""
    record = record_of(name)
    return record is not None and record.kind == "random"


def run(overload: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Call the function that runs for an overload."""
    given = {k: v for k, v in kwargs.items() if not (k == "pin_memory" and not v)}
    result = function_of(overload._overloadpacket.__name__, overload._overloadname)(*args, **given)
    return list(result) if overload._schema.returns and "[]" in overload._schema.returns[0].type else result
