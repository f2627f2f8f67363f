"""Loop nests: the one form that every kernel takes between its definition and native code.

Schedules build it from formulas, `loops` builds it from Python functions, and each emitter (llvm, cuda, numpy)
turns it into something that runs. Values are `expr.Expr` trees with two more leaves:

    var(name, dtype)         a loop index, scalar parameter or local variable
    load(buffer, index)      an element of a buffer; half-width floats arrive as float32
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..core.dtype import dtype
from ..expr.node import Expr, _make


@dataclass(frozen=True, eq=False)
class Buffer:
    """A pointer parameter, or (`local_size` > 0) a small array on the stack."""

    name: str
    dtype: dtype
    local_size: int = 0


@dataclass(frozen=True)
class Scalar:
    """A parameter passed by value: int64, float64 or bool."""

    name: str
    dtype: dtype


class Statement:
    pass


@dataclass
class Assign(Statement):
    """name = value. `reassociate` allows a float reduction to be vectorised."""

    name: str
    dtype: dtype
    value: Expr
    reassociate: bool = False


@dataclass
class Store(Statement):
    """buffer[index] = value. `reassociate` as in Assign."""

    buffer: Buffer
    index: Expr
    value: Expr
    reassociate: bool = False


@dataclass
class DeclareLocal(Statement):
    """Allocation on the stack of a buffer with a `local_size`."""

    buffer: Buffer


@dataclass
class For(Statement):
    """for name in range(start, stop, step). A parallel loop must have independent iterations; `cost` is roughly the
    number of elements one iteration touches: the loop forks only when iterations * cost is worth it."""

    name: str
    start: Expr
    stop: Expr
    step: Expr
    body: list[Statement]
    parallel: bool = False
    cost: Expr | None = None
    independent: bool = False  # iterations do not alias each other: the vectoriser need not prove it
    cold: bool = False  # runs rarely: emit the shortest code, not the fastest


@dataclass
class If(Statement):
    """if condition: then, else: otherwise."""

    condition: Expr
    then: list[Statement]
    otherwise: list[Statement] = field(default_factory=list)


@dataclass
class While(Statement):
    """while condition: body."""

    condition: Expr
    body: list[Statement]


@dataclass
class Break(Statement):
    """Statement that leaves the innermost loop."""


@dataclass
class Continue(Statement):
    """Statement that continues with the innermost loop's next iteration."""


@dataclass(frozen=True)
class LoopCall:
    """Origin of a nest: the loop kernel it was made of, and the buffer, scalar or constant bound to each of its parameters."""

    name: str
    bindings: dict[str, object]


@dataclass
class Kernel:
    """A complete native function: `name(params...)`. Writable buffers never alias other buffers unless
    `may_alias`. At most one level of parallel loops. `recipe` is what the loops were made of (a formula, a reduction), for
    emitters whose machine wants other loops."""

    name: str
    params: list[Buffer | Scalar]
    body: list[Statement]
    may_alias: bool = False
    recipe: object = None


def var(name: str, dtype: dtype) -> Expr:
    return _make("var", (name, dtype))


def load(buffer: Buffer, index: Expr) -> Expr:
    return _make("load", (buffer, index))
