"""Attaching operators to the Tensor class and to the public namespaces, at import or, for late operators, on first use."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from ...core import naming
from ...core.tensor import Tensor
from .record import OPS, Op
from .shown import show_inplace_signature, show_signature

LATE_NAMES = Path(__file__).with_name("late_names.txt")  # written by `python -m flambeau.utils.stubs`


def bind_methods() -> None:
    """Attach the methods of new operators to Tensor, under their aliases too, with an underscore for in-place forms."""
    for op in [op for op in OPS.values() if not op.is_bound]:
        op.is_bound = True
        _describe_inplace(op)
        _show_signatures(op)
        for name in (op.name, *(a for a in op.aliases if "." not in a)):
            if op.method is not None:
                _bind(name, op.method)
                if op.inplace is not None:
                    _bind(name + "_", op.inplace)


def _bind(name: str, method: Any) -> None:
    if isinstance(Tensor.__dict__.get(name), LateMethod | None):
        setattr(Tensor, name, method)


class LateMethod:
    """Descriptor in place of a tensor's method whose operator is imported when the method is first looked up."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        naming.above("ops.late")
        if Tensor.__dict__[self.name] is self:
            bind_methods()  # asked for by one of the late rooms, while they are imported
        return Tensor.__dict__[self.name].__get__(instance, owner)


@functools.cache
def late_names() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of `torch` functions and of tensor methods that belong to operators which are imported on first use."""
    functions, methods = LATE_NAMES.read_text().splitlines()[1:]
    return frozenset(functions.split()), frozenset(methods.split())


def bind_late_methods() -> None:
    """Attach a descriptor to Tensor for each method of a late operator, which imports it."""
    for name in late_names()[1]:
        _bind(name, LateMethod(name))


def _describe_inplace(op: Op) -> None:
    """Set the docstring of an in-place form such as `add_` that was made from the operator."""
    if op.inplace is not None and not op.inplace.__doc__:
        op.inplace.__doc__ = f"`{op.name}` in place: {op.function.__doc__ or 'the result replaces the tensor'}"


def _show_signatures(op: Op) -> None:
    """Set the signatures that `help(add)` shows for an operator's function and in-place form."""
    if op.namespaces or op.method is not None:
        show_signature(op.function, op.name)
        if op.inplace is not None:
            show_inplace_signature(op.inplace, op.function)


def namespace(which: str) -> dict[str, Any]:
    """Return the public functions of one namespace, e.g. "torch" or "nn.functional"."""
    naming.above("ops.late")
    return declared(which)


def declared(which: str) -> dict[str, Any]:
    """Return the functions of a namespace that are imported already. An alias with a dot names its own namespace: "special.psi"."""
    found: dict[str, Any] = {}
    for op in list(OPS.values()):  # a copy at once: another thread may declare some
        for alias in op.aliases:
            home, _, name = alias.rpartition(".")
            if home == which or (not home and which in op.namespaces):
                found[name] = op.function
        if which in op.namespaces:
            found[op.name] = op.function
        if which == "torch" and op.inplace_function:
            found.update((name + "_", op.inplace) for name in (op.name, *op.aliases) if "." not in name)
    return found
