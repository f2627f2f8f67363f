"""The operator registry: one record per operator, and how its public faces come from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Op:
    """What is known about one operator.

    `function` is what users call; `method` / `inplace` / `out` say which faces exist. `kind` is "pointwise", "reduction",
    "view", "primitive" (own kernel and derivative), "composite" (made of other operators), "random" or "creation"."""

    name: str
    kind: str
    function: Callable
    namespaces: tuple[str, ...] = ("torch",)
    method: Callable | None = None
    inplace: Callable | None = None
    has_out: bool = False
    differentiable: bool = True
    impl: Any = None  # the Pointwise or Primitive behind it
    aliases: tuple[str, ...] = ()
    doc: str = ""
    tags: dict[str, Any] = field(default_factory=dict)


OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    space = op.namespaces[0] if op.namespaces else "Tensor" if op.method is not None else "internal"
    key = op.name if space in ("torch", "Tensor") else f"{space}.{op.name}"
    if key in OPS and space == "Tensor":  # a method whose arguments differ from the function's
        key = f"Tensor.{op.name}"
    if space == "internal":  # parts of public operators: several may share a name
        key += f".{sum(k.startswith(key) for k in OPS)}" if key in OPS else ""
    if key in OPS:
        raise ValueError(f"operator '{key}' is declared twice")
    OPS[key] = op
    return op


def lookup(name: str) -> Op:
    try:
        return OPS[name]
    except KeyError:
        raise KeyError(f"there is no operator called '{name}'") from None
