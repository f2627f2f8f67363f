"""The rules of loop nests, checked before an emitter runs, so that a mistake in a schedule is reported here, not in machine code."""

from __future__ import annotations

from typing import NoReturn

from ..core.dtype import dtype, int64
from ..expr.node import Expr, walk
from . import ir
from .ir_text import expression


class InvalidKernel(Exception):
    """Raised for a loop nest that breaks a rule; the message shows the place."""


def verify(kernel: ir.Kernel) -> None:
    """Raise InvalidKernel unless names are set before they are read and keep one dtype, buffers are parameters or declared, indices
    are integers, at most one level of loops is parallel, and break and continue stand in loops."""
    _Verifier(kernel).run()


class _Verifier:
    def __init__(self, kernel: ir.Kernel):
        self.kernel = kernel
        names = [p.name for p in kernel.params]
        if len(set(names)) != len(names):
            self.fail(f"two parameters share a name: {names}")
        self.buffers = {p for p in kernel.params if isinstance(p, ir.Buffer)}
        self.known: dict[str, dtype] = {p.name: p.dtype for p in kernel.params if isinstance(p, ir.Scalar)}

    def fail(self, text: str) -> NoReturn:
        raise InvalidKernel(f"kernel '{self.kernel.name}': {text}")

    def run(self) -> None:
        self.block(self.kernel.body, dict(self.known), loops=0, parallel=False)

    def block(self, statements: list[ir.Statement], known: dict[str, dtype], loops: int, parallel: bool) -> None:
        for s in statements:
            self.statement(s, known, loops, parallel)

    def statement(self, s: ir.Statement, known: dict[str, dtype], loops: int, parallel: bool) -> None:
        if isinstance(s, ir.Assign):
            self.reads(s.value, known)
            if known.setdefault(s.name, s.dtype) is not s.dtype:
                self.fail(f"'{s.name}' is {known[s.name].name} and is assigned {s.dtype.name}")
        elif isinstance(s, ir.Store):
            self.reads(s.index, known)
            self.reads(s.value, known)
            self.buffer(s.buffer)
        elif isinstance(s, ir.DeclareLocal):
            if s.buffer.local_size <= 0:
                self.fail(f"the local buffer '{s.buffer.name}' has no size")
            self.buffers.add(s.buffer)
        elif isinstance(s, ir.For):
            self.loop(s, known, loops, parallel)
        elif isinstance(s, ir.If):
            self.reads(s.condition, known)
            then, otherwise = dict(known), dict(known)
            self.block(s.then, then, loops, parallel)
            self.block(s.otherwise, otherwise, loops, parallel)
            known.update({n: d for n, d in {**then, **otherwise}.items() if n not in known})
        elif isinstance(s, ir.While):
            self.reads(s.condition, known)
            self.block(s.body, known, loops + 1, parallel)
        elif isinstance(s, (ir.Break, ir.Continue)):
            if not loops:
                self.fail(f"{type(s).__name__.lower()} outside of a loop")
        else:
            self.fail(f"unknown statement {type(s).__name__}")

    def loop(self, s: ir.For, known: dict[str, dtype], loops: int, parallel: bool) -> None:
        if s.parallel and parallel:
            self.fail(f"the parallel loop over '{s.name}' is inside another one")
        for x in (s.start, s.stop, s.step, *(() if s.cost is None else (s.cost,))):
            self.reads(x, known)
        # What a loop's body sets may not be read after it on paper, but schedules do so where they know that it ran.
        known[s.name] = int64
        self.block(s.body, known, loops + 1, parallel or s.parallel)

    def buffer(self, buffer: ir.Buffer) -> None:
        if buffer not in self.buffers:
            self.fail(f"'{buffer.name}' is neither a parameter nor declared")

    def reads(self, root: Expr, known: dict[str, dtype]) -> None:
        for x in walk((root,)):
            if x.op == "arg":
                self.fail(f"an unbound operand in {expression(root)}")
            if x.op == "load":
                self.buffer(x.args[0])
            if x.op == "var":
                name, d = x.args
                if name not in known:
                    self.fail(f"'{name}' is read before it is set, in {expression(root)}")
                if known[name] is not d:
                    self.fail(f"'{name}' is {known[name].name} and is read as {d.name}, in {expression(root)}")
