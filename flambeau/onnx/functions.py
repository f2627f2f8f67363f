"""State of a running export, and functions that define their own ONNX form."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

from .. import export  # noqa: F401  the whole room before its parts: see naming.load
from ..export._trace import FunctionTarget, keeping
from . import torchlib
from .registry import custom_form, form_of, in_torchlib, parts_of, reason


class _State(threading.local):
    opset: int | None = None
    table: Collection[Any] = ()  # overloads that the user translates


_state = _State()


def is_in_onnx_export() -> bool:
    """Return whether an export to ONNX is running the model, so that a model can choose another path."""
    return _state.opset is not None


def current_opset() -> int:
    """Return the opset version of the running export, or the default one."""
    return _state.opset or 20


def form_of_function(target: Any) -> Callable | None:
    """Return the ONNX form of an autograd.Function: its `symbolic`."""
    return target.function.symbolic if isinstance(target, FunctionTarget) else None  # type: ignore[attr-defined]


def keeps(op: Any, name: str) -> bool:
    """Return whether an operator stays one node of the graph: it has a form, or cannot be decomposed."""
    if getattr(op, "kind", "") not in ("composite", "pointwise"):
        return True
    opset, plain = current_opset(), f"aten::{name.removesuffix('_')}"
    if any(getattr(overload, "overloadpacket", overload).__name__ == name for overload in _state.table):
        return True
    if custom_form(f"aten::{name}", opset) is not None or parts_of(plain, opset) is not None:
        return True
    form = form_of(f"aten::{name}") or form_of(plain)
    if form is not None:
        return form.since <= opset
    return in_torchlib(plain) and (
        torchlib.since(plain) <= opset
        or not (op.kind == "composite" or (op.impl.arity == 1 and (not op.impl.parameters)))
    )


def parts(overload: Any) -> Callable | None:
    """Return the function that makes the calls exported in place of an overload: the declared ones, or those of its body if nothing
    translates it. None if the overload itself is exported."""
    name, opset = overload._schema.name, current_opset()
    plain = name.removesuffix("_")
    if overload in _state.table or custom_form(name, opset) is not None:
        return None
    declared = parts_of(name, opset)
    if declared is not None:
        return declared
    made = parts_of(plain, opset) if plain != name else None
    if made is not None:
        return lambda first, *args, **kwargs: first.copy_(made(first, *args, **kwargs))
    if form_of(name) is not None or form_of(plain) is not None or reason(name):
        return None
    known = torchlib.function_of(plain, overload._schema.overload_name, overload._overloadpacket.op) is not None
    return None if known else overload.decompose


@contextlib.contextmanager
def exporting(opset: int, table: Collection[Any] = ()) -> Iterator[None]:
    """Context manager: mark an export as running; `table` holds the overloads that the user translates."""
    before, kept = (_state.opset, _state.table), (keeping.wanted, keeping.whole, keeping.parts)
    _state.opset, _state.table = opset, table
    keeping.wanted = lambda function: hasattr(function, "symbolic")
    keeping.whole = keeps
    keeping.parts = parts
    try:
        yield
    finally:
        _state.opset, _state.table = before
        keeping.wanted, keeping.whole, keeping.parts = kept
