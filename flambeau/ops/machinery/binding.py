"""Attaching operators to the Tensor class and to the public namespaces, once, at import."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from .record import OPS, Op
from .shown import show_inplace_signature, show_signature


def bind_methods() -> None:
    """Make methods of all operators with a method form, under their aliases too; in-place forms get their underscore."""
    for op in list(OPS.values()):  # a copy at once: another thread may declare some
        names = (op.name, *(a for a in op.aliases if "." not in a))
        _describe_inplace(op)
        _show_signatures(op)
        for name in names:
            if op.method is not None and name not in Tensor.__dict__:
                setattr(Tensor, name, op.method)
            if op.inplace is not None and op.method is not None and name + "_" not in Tensor.__dict__:
                setattr(Tensor, name + "_", op.inplace)


def _describe_inplace(op: Op) -> None:
    """Set the docstring of `add_` and its like, where the in-place form was made from the operator."""
    if op.inplace is not None and not op.inplace.__doc__:
        op.inplace.__doc__ = f"`{op.name}` in place: {op.function.__doc__ or 'the result replaces the tensor'}"


def _show_signatures(op: Op) -> None:
    """Give an operator's function and in-place form the signatures that `help(add)` shows."""
    if op.namespaces or op.method is not None:
        show_signature(op.function, op.name)
        if op.inplace is not None:
            show_inplace_signature(op.inplace, op.function)


def namespace(which: str) -> dict[str, Any]:
    """The public functions of one namespace, e.g. "torch" or "nn.functional". An alias with a dot names its own:
    "special.psi"."""
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
