"""Attaching operators to the Tensor class and to the public namespaces, once, at import."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from .record import OPS, Op

# In-place forms that PyTorch also has as functions.
_INPLACE_FUNCTIONS = frozenset(
    [
        "abs",
        "acos",
        "acosh",
        "addmv",
        "alpha_dropout",
        "arccos",
        "arccosh",
        "arcsin",
        "arcsinh",
        "arctan",
        "arctanh",
        "as_strided",
        "asin",
        "asinh",
        "atan",
        "atanh",
        "ceil",
        "celu",
        "clamp",
        "clamp_max",
        "clamp_min",
        "clip",
        "conj_physical",
        "cos",
        "cosh",
        "deg2rad",
        "detach",
        "dropout",
        "embedding_renorm",
        "erf",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "feature_alpha_dropout",
        "feature_dropout",
        "fill",
        "fix",
        "floor",
        "frac",
        "gcd",
        "i0",
        "index_put",
        "lcm",
        "ldexp",
        "log",
        "log10",
        "log1p",
        "log2",
        "logit",
        "nan_to_num",
        "neg",
        "negative",
        "rad2deg",
        "reciprocal",
        "relu",
        "resize_as",
        "resize_as_sparse",
        "round",
        "rrelu",
        "rsqrt",
        "selu",
        "sigmoid",
        "sin",
        "sinc",
        "sinh",
        "sqrt",
        "square",
        "tan",
        "tanh",
        "threshold",
        "trunc",
        "xlogy",
        "zero",
    ]
)


def bind_methods() -> None:
    """Every operator with a method form becomes one; aliases too; in-place forms get their underscore."""
    for op in OPS.values():
        names = (op.name, *(a for a in op.aliases if "." not in a))
        _describe_inplace(op)
        for name in names:
            if op.method is not None and name not in Tensor.__dict__:
                setattr(Tensor, name, op.method)
            if op.inplace is not None and op.method is not None and name + "_" not in Tensor.__dict__:
                setattr(Tensor, name + "_", op.inplace)


def _describe_inplace(op: Op) -> None:
    """What `help(add_)` says, where the in-place form was made from the operator."""
    if op.inplace is not None and not op.inplace.__doc__:
        op.inplace.__doc__ = f"`{op.name}` in place: {op.function.__doc__ or 'the result replaces the tensor'}"


def namespace(which: str) -> dict[str, Any]:
    """The public functions of one namespace, e.g. "torch" or "nn.functional". An alias with a dot names its own:
    "special.psi"."""
    found: dict[str, Any] = {}
    for op in OPS.values():
        for alias in op.aliases:
            home, _, name = alias.rpartition(".")
            if home == which or (not home and which in op.namespaces):
                found[name] = op.function
        if which in op.namespaces:
            found[op.name] = op.function
        if which == "torch":
            _add_inplace(op, found)
    return found


def _add_inplace(op: Op, found: dict[str, Any]) -> None:
    for name in (op.name, *op.aliases):
        if op.inplace is not None and name in _INPLACE_FUNCTIONS:
            found[name + "_"] = op.inplace
        elif op.method is not None and name[-1] == "_" and name[:-1] in _INPLACE_FUNCTIONS:
            found[name] = op.method
