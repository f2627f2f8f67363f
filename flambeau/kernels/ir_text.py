"""Loop nests as text: a kernel printed as a Python-like program.

>>> print(show(kernel))
map(n: int64, out0: float32*, in0: float32*, in1: float32*):
  parallel for i in 0 .. n:
    result0: float32 = in0[i] + in1[i]
    out0[i] = result0
"""

from __future__ import annotations

from typing import Any

from ..expr.node import COMPARISONS, INFIX, Expr, is_const
from . import ir

_LOOSE = frozenset(("add", "sub", "and", "or", "xor", *COMPARISONS))  # shown in brackets inside other operators


def show(kernel: ir.Kernel) -> str:
    """Format a whole kernel as text."""
    parameters = [f"{p.name}: {p.dtype.name}{'*' if isinstance(p, ir.Buffer) else ''}" for p in kernel.params]
    note = "  # buffers may overlap" if kernel.may_alias else ""
    return "\n".join([f"{kernel.name}({', '.join(parameters)}):{note}", *_block(kernel.body, 1)])


def expression(x: Any, inside: bool = False) -> str:
    """Return an expression as text, in brackets if it is `inside` another and would be misread."""
    if not isinstance(x, Expr):
        return getattr(x, "name", None) or str(x)
    if x.op == "const":
        return repr(x.args[0])
    if x.op == "var":
        return str(x.args[0])
    if x.op == "load":
        return f"{x.args[0].name}[{expression(x.args[1])}]"
    if x.op in ("cast", "bitcast"):
        return f"{x.args[1].name}{'.bits' if x.op == 'bitcast' else ''}({expression(x.args[0])})"
    if x.op == "add" and is_const(x.args[0], 0):
        return expression(x.args[1], inside)
    if x.op in INFIX and len(x.args) == 2:
        text = f" {INFIX[x.op]} ".join(expression(a, True) for a in x.args)
        return f"({text})" if inside and x.op in _LOOSE else text
    name, rest = (x.args[0], x.args[1:]) if x.op == "call" else (x.op, x.args)
    return f"{getattr(name, '__name__', None) or getattr(name, 'name', name)}({', '.join(expression(a) for a in rest)})"


def _block(statements: list[ir.Statement], depth: int) -> list[str]:
    lines: list[str] = []
    for statement in statements:
        lines += _lines(statement, depth)
    return lines


def _lines(s: ir.Statement, depth: int) -> list[str]:
    margin = "  " * depth
    if isinstance(s, ir.Assign):
        return [
            f"{margin}{s.name}: {s.dtype.name} = {expression(s.value)}" + ("  # any order" if s.reassociate else "")
        ]
    if isinstance(s, ir.Store):
        return [f"{margin}{s.buffer.name}[{expression(s.index)}] = {expression(s.value)}"]
    if isinstance(s, ir.DeclareLocal):
        return [f"{margin}local {s.buffer.name}: {s.buffer.dtype.name}[{s.buffer.local_size}]"]
    if isinstance(s, ir.For):
        step = "" if expression(s.step) == "1" else f" by {expression(s.step)}"
        head = f"{margin}{'parallel ' if s.parallel else ''}for {s.name} in {expression(s.start)} .. {expression(s.stop)}{step}:"
        return [head, *_block(s.body, depth + 1)]
    if isinstance(s, ir.If):
        otherwise = [f"{margin}else:", *_block(s.otherwise, depth + 1)] if s.otherwise else []
        return [f"{margin}if {expression(s.condition)}:", *_block(s.then, depth + 1), *otherwise]
    if isinstance(s, ir.While):
        return [f"{margin}while {expression(s.condition)}:", *_block(s.body, depth + 1)]
    return [margin + type(s).__name__.lower()]
