"""Scalar expressions, which a formula builds when it is called with symbols instead of numbers.

Nodes are interned, so structural equality is identity and `==` is free to mean "compare in the kernel".
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any

from ..core.dtype import dtype

_INTERNED: dict[tuple[Any, ...], Expr] = {}

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
PREDICATES = COMPARISONS | {"isnan", "isinf", "isfinite", "signbit", "logical_not"}


class Expr:
    """Operation `op` on `args`. Leaves: ("arg", (i,)), ("const", (number,)); all other args are expressions, the `operands`, except the
    trailing dtype of "cast"/"bitcast" and the leading function of "call"."""

    __slots__ = ("op", "args", "operands")

    op: str
    args: tuple[Any, ...]
    operands: tuple[Expr, ...]

    def __add__(self, other: Any) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return binary("floordiv", self, other)

    def __mod__(self, other: Any) -> Expr:
        return binary("mod", self, other)

    def __pow__(self, other: Any) -> Expr:
        return binary("pow", self, other)

    def __rpow__(self, other: Any) -> Expr:
        return binary("pow", other, self)

    def __neg__(self) -> Expr:
        return node("neg", self)

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return node("abs", self)

    def __invert__(self) -> Expr:
        return node("not", self)

    def __and__(self, other: Any) -> Expr:
        return binary("and", self, other)

    def __rand__(self, other: Any) -> Expr:
        return binary("and", other, self)

    def __or__(self, other: Any) -> Expr:
        return binary("or", self, other)

    def __ror__(self, other: Any) -> Expr:
        return binary("or", other, self)

    def __xor__(self, other: Any) -> Expr:
        return binary("xor", self, other)

    def __rxor__(self, other: Any) -> Expr:
        return binary("xor", other, self)

    def __lshift__(self, other: Any) -> Expr:
        return binary("shl", self, other)

    def __rlshift__(self, other: Any) -> Expr:
        return binary("shl", other, self)

    def __rshift__(self, other: Any) -> Expr:
        return binary("shr", self, other)

    def __rrshift__(self, other: Any) -> Expr:
        return binary("shr", other, self)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("eq", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("ne", self, other)

    def __lt__(self, other: Any) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: Any) -> Expr:
        return binary("gt", self, other)

    def __ge__(self, other: Any) -> Expr:
        return binary("ge", self, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError(
            "a formula has no truth value: it is evaluated later, for every element. Use where(condition, a, b) for `if`."
        )

    def __repr__(self) -> str:
        return show(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_make, (self.op, self.args))


def _make(op: str, args: tuple[Any, ...]) -> Expr:
    # Constants are keyed by type and text: 1, 1.0 and True are different constants, and nan equals nan.
    key = (op, type(args[0]), repr(args[0])) if op == "const" else (op, args)
    found = _INTERNED.get(key)
    if found is None:
        found = object.__new__(Expr)
        found.op, found.args = op, args
        found.operands = tuple([a for a in args if isinstance(a, Expr)])
        _INTERNED[key] = found
    return found


def const(value: Any) -> Expr:
    """Return a number as an expression. It takes the dtype of the other operand."""
    return _make("const", (value,))


def arg(index: int) -> Expr:
    """Return the expression for the element of operand number `index`."""
    return _make("arg", (index,))


def as_expr(value: Any) -> Expr:
    if isinstance(value, Expr):
        return value
    if isinstance(value, (bool, int, float, complex)):
        return const(value)
    raise TypeError(f"a formula can use numbers and its own arguments, not {type(value).__name__}")


def node(op: str, *args: Any) -> Expr:
    return _make(op, tuple(as_expr(a) for a in args))


def cast(x: Any, to: dtype) -> Expr:
    x = as_expr(x)
    return _make("cast", (x, to))


def bitcast(x: Any, to: dtype) -> Expr:
    """Reinterpret the bits of x as another dtype of the same size."""
    return _make("bitcast", (as_expr(x), to))


def call(function: Any, *args: Any) -> Expr:
    """Apply a scalar function written with loops (see kernels.loops)."""
    return _make("call", (function, *(as_expr(a) for a in args)))


def is_const(x: Expr, value: Any = None) -> bool:
    return x.op == "const" and (value is None or x.args[0] == value)


_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
}


def binary(op: str, a: Any, b: Any) -> Expr:
    """Return a two-operand node, with the simplifications that hold for every number including nan and inf, and for every dtype: a product
    with 1.0, or a quotient by 1, makes floats of integers (see simplify)."""
    a, b = as_expr(a), as_expr(b)
    if a.op == "const" and b.op == "const" and op in _FOLD:
        return const(_FOLD[op](a.args[0], b.args[0]))
    if op == "mul":
        if is_const(a, 1) and type(a.args[0]) is int:
            return b
        if is_const(b, 1) and type(b.args[0]) is int:
            return a
        if is_const(a, -1) and type(a.args[0]) is int:
            return node("neg", b)
    return _make(op, (a, b))


def walk(roots: tuple[Expr, ...]) -> list[Expr]:
    """Return every node once, operands before users. Iterative: formulas may be deep after fusion."""
    done: dict[Expr, None] = {}
    stack = list(roots[::-1])
    while stack:
        x = stack[-1]
        if x not in done:
            for operand in x.operands[::-1]:
                if operand not in done:
                    stack += (operand,)
        if stack[-1] is x:
            del stack[-1]
            done[x] = None
    return list(done)


def rebuild(x: Expr, operands: list[Expr]) -> Expr:
    """Return the node with these operands in place of its own."""
    if all(map(is_, operands, x.operands)):
        return x
    it = iter(operands)
    return _make(x.op, tuple(next(it) if isinstance(a, Expr) else a for a in x.args))


def substitute(roots: tuple[Expr, ...], replace: Callable[[Expr], Expr | None]) -> tuple[Expr, ...]:
    """Rewrite bottom-up: `replace(node)` returns the new node, or None to keep it."""
    done: dict[int, Expr] = {}
    for x in walk(roots):
        new = rebuild(x, [done[id(o)] for o in x.operands])
        swapped = replace(new)
        done[id(x)] = new if swapped is None else swapped
    return tuple(done[id(r)] for r in roots)


_rewritten: dict[
    tuple[Any, ...], tuple[Expr, ...]
] = {}  # both by the identity of expressions, which are interned for good
_read: dict[tuple[Any, ...], frozenset[int]] = {}


def replace_arguments(roots: tuple[Expr, ...], symbols: dict[int, Expr]) -> tuple[Expr, ...]:
    """Return the formulas with symbols[i] in place of arg(i)."""
    key = (*map(id, roots), *symbols, *map(id, symbols.values()))
    found = _rewritten.get(key)
    if found is None:
        found = substitute(roots, lambda e: symbols[e.args[0]] if e.op == "arg" else None)
        _rewritten[key] = found
    return found


def arguments(roots: tuple[Expr, ...]) -> frozenset[int]:
    """Return the operands that expressions read."""
    key = tuple(map(id, roots))
    found = _read.get(key)
    if found is None:
        found = _read[key] = frozenset(x.args[0] for x in walk(roots) if x.op == "arg")
    return found


INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**", "and": "&", "or": "|",
    "xor": "^", "shl": "<<", "shr": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip


def show(x: Expr) -> str:
    """Return the expression as the Python text that would build it; kernel cache keys use it, too."""
    text: dict[int, str] = {}
    for n in walk((x,)):
        if n.op == "const":
            text[id(n)] = repr(n.args[0])
        elif n.op == "arg":
            text[id(n)] = f"a{n.args[0]}"
        elif n.op in INFIX:
            text[id(n)] = f"({text[id(n.args[0])]} {INFIX[n.op]} {text[id(n.args[1])]})"
        else:
            parts = [text[id(a)] if isinstance(a, Expr) else getattr(a, "name", str(a)) for a in n.args]
            text[id(n)] = f"{n.op}({', '.join(parts)})"
    return text[id(x)]
