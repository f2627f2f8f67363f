"""Loop nests over complex numbers rewritten as loop nests over their real and imaginary parts, for the native emitters.

A buffer of complex numbers is a buffer of twice as many real ones, a complex variable is two real ones, and a complex parameter passed by
value arrives as two. The NumPy reference runs the original nests.
"""

from __future__ import annotations

from ..core import dtype as dt
from ..core.dtype import opmath
from ..expr.complex_functions import Pair
from ..expr.complex_parts import Parts
from ..expr.node import Expr, walk
from . import ir
from .llvm_analysis import expressions

_SAVED = (".re.new", ".im.new")


def split(kernel: ir.Kernel) -> ir.Kernel:
    """Return the kernel on real numbers; the kernel itself if it has no complex numbers."""
    if not _has_complex(kernel):
        return kernel
    nest = _Split()
    params: list[ir.Buffer | ir.Scalar] = []
    for p in kernel.params:
        params += nest.parameter(p)
    return ir.Kernel(kernel.name, params, nest.block(kernel.body), kernel.may_alias)


def _has_complex(kernel: ir.Kernel) -> bool:
    if any(p.dtype.is_complex for p in kernel.params):
        return True
    for x in walk(tuple(expressions(kernel.body))):
        if x.op == "complex" or (x.op == "cast" and x.args[1].is_complex):
            return True
        if x.op == "const" and isinstance(x.args[0], complex):
            return True
    return False


class _Split:
    def __init__(self) -> None:
        self.buffers: dict[ir.Buffer, ir.Buffer] = {}
        self.parts = Parts(self._complex_leaf, self._real_leaf)

    # ---- leaves

    def buffer(self, b: ir.Buffer) -> ir.Buffer:
        if not b.dtype.is_complex:
            return b
        if b not in self.buffers:
            self.buffers[b] = ir.Buffer(b.name, b.dtype.to_real(), 2 * b.local_size)
        return self.buffers[b]

    def parameter(self, p: ir.Buffer | ir.Scalar) -> list[ir.Buffer | ir.Scalar]:
        if isinstance(p, ir.Buffer):
            return [self.buffer(p)]
        if not p.dtype.is_complex:
            return [p]
        return [ir.Scalar(p.name + part, p.dtype.to_real()) for part in (".re", ".im")]

    def _complex_leaf(self, x: Expr) -> Pair:
        if x.op == "var":
            real = x.args[1].to_real()
            return Pair(ir.var(x.args[0] + ".re", real), ir.var(x.args[0] + ".im", real))
        buffer, index = self.buffer(x.args[0]), x.args[1]
        return Pair(ir.load(buffer, index * 2), ir.load(buffer, index * 2 + 1))

    def _real_leaf(self, x: Expr) -> Expr:
        return x

    # ---- statements

    def block(self, body: list[ir.Statement]) -> list[ir.Statement]:
        result: list[ir.Statement] = []
        for s in body:
            result += self.statement(s)
        return result

    def statement(self, s: ir.Statement) -> list[ir.Statement]:
        real = self.parts.real
        if isinstance(s, ir.Assign):
            return self._assign(s)
        if isinstance(s, ir.Store):
            return self._store(s)
        if isinstance(s, ir.DeclareLocal):
            return [ir.DeclareLocal(self.buffer(s.buffer))]
        if isinstance(s, ir.For):
            start, stop, step = (real(e, dt.int64) for e in (s.start, s.stop, s.step))
            cost = None if s.cost is None else real(s.cost, dt.int64)
            body = self.block(s.body)
            return [ir.For(s.name, start, stop, step, body, s.parallel, cost, s.independent, s.cold)]
        if isinstance(s, ir.If):
            return [ir.If(real(s.condition, dt.bool_), self.block(s.then), self.block(s.otherwise))]
        if isinstance(s, ir.While):
            return [ir.While(real(s.condition, dt.bool_), self.block(s.body))]
        return [s]

    def _assign(self, s: ir.Assign) -> list[ir.Statement]:
        if not s.dtype.is_complex:
            return [ir.Assign(s.name, s.dtype, self.parts.real(s.value, opmath(s.dtype)), s.reassociate)]
        z, real = self.parts.pair(s.value, s.dtype), s.dtype.to_real()
        names = (s.name + ".re", s.name + ".im")
        if _reads(z.imaginary, names[0]):
            # Both parts are computed from the old ones: a running product, for example.
            fresh = [s.name + suffix for suffix in _SAVED]
            first = [ir.Assign(n, real, part) for n, part in zip(fresh, (z.re, z.imaginary))]
            return [*first, *(ir.Assign(n, real, ir.var(f, real)) for n, f in zip(names, fresh))]
        # A running sum has two independent parts, each of which may be reassociated.
        free = s.reassociate and not _reads(z.re, names[1])
        return [ir.Assign(n, real, part, free) for n, part in zip(names, (z.re, z.imaginary))]

    def _store(self, s: ir.Store) -> list[ir.Statement]:
        index = self.parts.real(s.index, dt.int64)
        buffer = self.buffer(s.buffer)
        if not s.buffer.dtype.is_complex:
            return [ir.Store(buffer, index, self.parts.real(s.value, opmath(s.buffer.dtype)), s.reassociate)]
        z, real = self.parts.pair(s.value, s.buffer.dtype), buffer.dtype
        places = (index * 2, index * 2 + 1)
        if not any(x.op == "load" for x in walk((z.re, z.imaginary))):
            return [ir.Store(buffer, i, part) for i, part in zip(places, (z.re, z.imaginary))]
        if s.reassociate:  # parts that only read themselves
            own = [ir.load(buffer, i) for i in places]
            if not _mentions(z.re, own[1]) and not _mentions(z.imaginary, own[0]):
                return [ir.Store(buffer, i, part, True) for i, part in zip(places, (z.re, z.imaginary))]
        fresh = [f"{buffer.name}{suffix}" for suffix in _SAVED]
        first: list[ir.Statement] = [ir.Assign(n, real, part) for n, part in zip(fresh, (z.re, z.imaginary))]
        return [*first, *(ir.Store(buffer, i, ir.var(n, real)) for i, n in zip(places, fresh))]


def _reads(x: Expr, name: str) -> bool:
    return any(n.op == "var" and n.args[0] == name for n in walk((x,)))


def _mentions(x: Expr, leaf: Expr) -> bool:
    return any(n is leaf for n in walk((x,)))
