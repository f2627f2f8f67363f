"""Formulas of complex numbers rewritten as formulas of real ones, so that every emitter can compile them.

Each complex node becomes a pair of real expressions. The caller converts complex leaves (operands, variables, elements in memory), since it
knows where the two parts are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import dtype as dt
from ..core.dtype import dtype
from .complex_functions import COMPLEX, REAL, Pair, converted, power
from .functions import cast, const, where
from .node import Expr, rebuild, walk
from .typing import infer, operand_dtype

_LEAVES = ("arg", "var", "load")


def is_complex(root: Expr, arg_dtypes: tuple[dtype, ...] = ()) -> bool:
    """Return whether any node of a formula is a complex number."""
    return any(d.is_complex for d in infer((root,), arg_dtypes).values())


class Parts:
    """Rewriter of the expressions of one kernel. `leaf` returns the parts of a complex leaf whose operands are rewritten."""

    def __init__(self, leaf: Callable[[Expr], Pair], replace: Callable[[Expr], Expr], arg_dtypes: tuple[Any, ...] = ()):
        self.leaf = leaf
        self.replace = replace  # what a real leaf becomes
        self.arg_dtypes = arg_dtypes
        self.types: dict[int, dtype] = {}
        self.done: dict[int, Expr | Pair] = {}

    def real(self, root: Expr, to: dtype) -> Expr:
        """Return the expression as a real number of dtype `to`."""
        value = self._visit(root)
        return value if isinstance(value, Expr) else _as_real(value, to)

    def pair(self, root: Expr, to: dtype) -> Pair:
        """Return the expression as a complex number of dtype `to`, with both parts explicit."""
        z = self._operand_after(self._visit(root), root, to)
        return Pair(z.re, cast(z.imaginary, to.to_real()))

    def _visit(self, root: Expr) -> Expr | Pair:
        if id(root) not in self.done:
            self.types.update(infer((root,), self.arg_dtypes))
            for x in walk((root,)):
                if id(x) not in self.done:
                    self.done[id(x)] = self._node(x)
        return self.done[id(root)]

    def _operand_after(self, value: Expr | Pair, x: Expr, to: dtype) -> Pair:
        """Return a rewritten operand as a pair of the complex dtype `to`. A real operand stays real: no zero is added."""
        real = to.to_real()
        if x.op == "const":
            number = x.args[0]
            if not isinstance(number, complex):
                return Pair(cast(const(number), real), None)
            return Pair(cast(const(number.real), real), cast(const(number.imag), real))
        if isinstance(value, Expr):
            return Pair(value if self.types[id(x)] is real else cast(value, real), None)
        return value if self.types[id(x)] is to else converted(value, real)

    def _operand(self, x: Expr, to: dtype) -> Pair:
        return self._operand_after(self.done[id(x)], x, to)

    def _rebuild(self, x: Expr) -> Expr:
        """Return the node on rewritten real operands."""
        new = [self.done[id(o)] for o in x.operands]
        return rebuild(x, [o for o in new if isinstance(o, Expr)])

    def _node(self, x: Expr) -> Expr | Pair:
        kids = x.operands
        mine = self.types[id(x)]
        if x.op == "const":
            return x
        if x.op in _LEAVES:
            new = self._rebuild(x)
            return self.leaf(new) if mine.is_complex else self.replace(new)
        if x.op == "cast":
            return self._cast(x, mine)
        if not mine.is_complex and not any(self.types[id(k)].is_complex for k in kids):
            return self._rebuild(x)
        if x.op in ("call", "bitcast"):
            raise TypeError(f"'{x.op}' is not defined on complex numbers")
        if x.op == "complex":
            real = mine.to_real()
            parts = [self.real(k, real) if k.op != "const" else k for k in kids]
            return Pair(cast(parts[0], real), cast(parts[1], real))
        return self._apply(x, kids, mine)

    def _apply(self, x: Expr, kids: tuple[Expr, ...], mine: dtype) -> Expr | Pair:
        if x.op == "where":
            return self._where(x, mine)
        to = operand_dtype(x, self.types)
        real = to.to_real()
        if x.op in REAL:
            return REAL[x.op](*(self._operand(k, to) for k in kids), real)
        if x.op not in COMPLEX:
            raise TypeError(f"'{x.op}' is not defined on complex numbers")
        operands = [self._operand(k, to) for k in kids]
        if x.op == "pow" and kids[1].op == "const":
            special = power(operands[0], kids[1].args[0], real)
            if special is not None:
                return special
        return COMPLEX[x.op](*operands, real)

    def _where(self, x: Expr, mine: dtype) -> Expr | Pair:
        condition = self.real(x.args[0], dt.bool_)
        a, b = (self._operand(k, mine) for k in x.args[1:])
        if a.im is None and b.im is None:
            return Pair(where(condition, a.re, b.re), None)
        zero = cast(const(0.0), mine.to_real())
        ims = (zero if z.im is None else z.im for z in (a, b))
        return Pair(where(condition, a.re, b.re), where(condition, *ims))

    def _cast(self, x: Expr, mine: dtype) -> Expr | Pair:
        """Rewrite a cast. A cast to a complex dtype makes the zero explicit: 0 * inf is nan after a real number was made complex."""
        source = x.args[0]
        value = self.done[id(source)]
        if not mine.is_complex:
            return self._rebuild(x) if isinstance(value, Expr) else cast(_as_real(value, mine), x.args[1])
        z = self._operand(source, mine)
        return Pair(z.re, cast(const(0.0), mine.to_real()) if z.im is None else z.im)


def _as_real(z: Pair, to: dtype) -> Expr:
    """Convert a complex number: to bool, whether either part is not zero; to any other dtype, the real part."""
    return (z.re != 0) | (z.imaginary != 0) if to is dt.bool_ else z.re
