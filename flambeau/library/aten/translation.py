"""Calls of public functions as calls of PyTorch's operators.

The operator's record declares the translation: PyTorch's name and the order of its arguments (`Op.aten`), or the calls that replace it
(`Op.as_aten`). Without either, it is PyTorch's operator of the same name, if there is one that the arguments fit. Any other function runs,
and the calls inside it are translated."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from ...core.device import default_device
from ...core.graph import grad_mode
from ...core.pytree import tree_flatten
from ...core.tensor import Tensor
from ...ops.machinery.matching import NoMatch
from ...ops.machinery.reduction import Reduction
from ...ops.machinery.schema import Schema
from ...ops.machinery.schema_table import overloads_of
from . import formulas
from .choice import choose
from .derivatives import by_name
from .overloads import OpOverload, aten


class DataDependent(RuntimeError):
    """Raised when the program needs the value of a tensor."""


def translated(recorder: Any, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    """Make the translated calls of a call; return its result."""
    if op.tells:
        return _read(recorder, op.key, function, args, kwargs)
    if op.describes:
        return recorder.unseen(function, *args) if not kwargs else function(*args, **kwargs)
    if op.kind == "composite" and recorder.inside and recorder.inside[-1]._overloadpacket.op is op:
        return recorder.again(function, args, kwargs)  # the body of the operator whose parts are recorded
    if kwargs.get("requires_grad") is False:
        kwargs = {k: v for k, v in kwargs.items() if k != "requires_grad"}
    found = NotImplemented
    if kwargs.get("out") is None:
        found = _translate_declared(recorder, op, function, args, kwargs)
        if found is NotImplemented and (not op.aten or op.aten_forms[0].only_names):
            found = _translate_by_name(recorder, op, function, args, kwargs)
    return _translate_parts(recorder, op, function, args, kwargs) if found is NotImplemented else found


def _read(recorder: Any, key: str, function: Callable, args: tuple, kwargs: dict) -> Any:
    """Answer a query about values: if the recorder allows it, and about constants."""
    known = getattr(recorder, "known", {})
    constant = isinstance(args[0], Tensor) and not any(id(a) in known for a in args)
    if recorder.reads_values or constant:
        return recorder.unseen(lambda: function(*args, **kwargs))
    raise DataDependent(
        f"Could not extract specialized integer from data-dependent expression: the program asks for the value of a tensor"
        f" ({key}), which is not known in a graph"
    )


def _translate_declared(recorder: Any, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    """Make the call as the record declares; NotImplemented if that has nothing about a call like this one."""
    if op.aten_calls is not None:
        found = op.aten_calls(recorder, *args, **kwargs)
        if found is not NotImplemented:
            return found
    for form in op.aten_forms:
        if not form.only_names:
            with contextlib.suppress(NoMatch):
                own = {n: v for n, v in op.bind(args, kwargs).items() if n not in op.writes or n in form.mentioned()}
                schema, values = form.values(own, op.defaults, aten)
                overload = _overload(schema)
                found = _translate_body(recorder, op, overload, function, args, kwargs)
                if found is not NotImplemented:
                    return found
                result = _call_overload(overload, values)
                if schema.index_of("output_mask") is not None:  # gradients that are not wanted
                    return tuple(r for r in result if r is not None)
                return form.taken(result)
    return NotImplemented


def _translate_by_name(recorder: Any, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    """Make the call by PyTorch's operator of the same name."""
    written = getattr(function, "__name__", "")  # Python's operators are some of their own in PyTorch: `__and__`
    name = written if written.startswith("__") and overloads_of(written) else op.aten_name if not op.aten else op.name
    if "inplace" in op.arguments:
        name, args, kwargs = _without_inplace(name, list(op.arguments).index("inplace"), args, kwargs)
    if not overloads_of(name):
        return NotImplemented
    if not recorder.keeps(op, name):
        with contextlib.suppress(NotImplementedError):  # what has no parts that PyTorch knows stays whole
            if op.kind == "pointwise":
                return formulas.recorded(recorder, op, function, args, kwargs)
            return recorder.again(function, args, kwargs)
    found = choose(name, args, kwargs, loose=True)
    if found is None:
        return NotImplemented
    schema, values = found
    # The elements of a loss: a part, not all of it.
    if op.kind == "pointwise" and schema.index_of("reduction") is not None:
        return NotImplemented
    overload = _overload(schema)
    found = _translate_body(recorder, op, overload, function, args, kwargs)
    return _call_overload(overload, values) if found is NotImplemented else found


def _translate_body(recorder: Any, op: Any, overload: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    """Make a call by the calls of its body, because it is a part of the operator whose parts are recorded, or because its gradient is: a
    composite's derivative is that of its parts, and reads their results. NotImplemented for others."""
    if op.kind != "composite":
        return NotImplemented
    if overload in recorder.inside:
        return recorder.again(function, args, kwargs)
    if not recorder.differentiates or op.writes or not grad_mode.enabled or overload.derivative is not None:
        return NotImplemented
    if not any(isinstance(a, Tensor) and a.requires_grad for a in tree_flatten((args, kwargs))[0]):
        return NotImplemented
    return recorder.attempt(function, args, kwargs)


def _without_inplace(name: str, place: int, args: tuple, kwargs: dict) -> tuple[str, tuple, dict]:
    """Return name and arguments without `inplace`: `relu(x, inplace=True)` is `relu_(x)`."""
    given = args[place] if len(args) > place else kwargs.get("inplace", False)
    rest = {k: v for k, v in kwargs.items() if k != "inplace"}
    return f"{name}_" if given else name, (*args[:place], *args[place + 1 :]), rest


def _overload(schema: Schema) -> OpOverload:
    return getattr(getattr(aten, schema.name.removeprefix("aten::")), schema.overload_name or "default")


def _call_overload(overload: OpOverload, values: list[Any]) -> Any:
    positional, named = overload._schema.as_call(values)
    makes = not any(isinstance(value, Tensor) for value in positional)
    result = overload(*positional, **_with_device(named, makes))
    return tuple(result) if type(result) is list else result  # as public functions return several tensors


def _translate_parts(recorder: Any, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    """Make the calls of which this one consists."""
    if op.kind == "pointwise" and not op.namespaces:
        found = by_name(op.impl, args)
        if found is not NotImplemented:
            return found
        try:
            return formulas.recorded(recorder, op, function, args, kwargs)
        except formulas.NoStep as missing:
            try:
                return recorder.unknown(op, function, args, kwargs)
            except NotImplementedError:
                raise missing from None  # it names the step of the formula
    if hasattr(function, "as_node"):  # a user's operator stays one node, unless it is made of others
        return recorder.again(function, args, kwargs) if not function.as_node else recorder.node(function, args, kwargs)
    if isinstance(op.impl, Reduction) and not op.namespaces and (recorder.inside or op.kind == "reduction"):
        if op.kind == "reduction":
            args, kwargs = args[:1], dict(zip(("dim", "keepdim", "requested"), args[1:])) | kwargs
        return formulas.reduced(recorder, op, function, args, kwargs)
    if not op.has_parts:
        return recorder.unknown(op, function, args, kwargs)
    return recorder.again(function, args, kwargs)


def _with_device(named: dict[str, Any], makes: bool) -> dict[str, Any]:
    """Return the arguments of a function that makes tensors, with an explicit device."""
    if "pin_memory" not in named:
        return named
    named = {**named, "pin_memory": bool(named["pin_memory"])}
    if makes and named.get("device") is None:
        named["device"] = default_device()
    return named
