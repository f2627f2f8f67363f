"""Loop nests to CUDA C++.

A parallel loop becomes a grid-stride loop: thread t runs iterations t, t + threads, ... Everything else is executed by every thread, so a
kernel is divided into one __global__ function per top-level statement that stores: `launches` returns these, with their numbers of
iterations.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..core import dtype as dt
from ..core.dtype import dtype, opmath
from ..expr.node import Expr, walk
from ..expr.typing import infer, operand_dtype
from . import complex_nests, cuda_values, ir
from .cuda_values import PRELUDE, constant, convert, memory_type, value_type
from .nest_analysis import assigned_in, exposed, expressions, statements

THREADS = 256


@dataclass
class Launch:
    """A __global__ function of a kernel; those of a kernel run in order."""

    name: str
    statements: list[ir.Statement]
    parallel: bool  # False: run it with one thread

    def iterations(self, scalars: dict[str, Any]) -> int | None:
        """Return the number of iterations of the parallel loop for these parameters; None if only the device can tell."""
        if not self.parallel:
            return 1
        known = dict(scalars)
        loop = locate_parallel(self.statements, known)
        ends = [] if loop is None else [evaluate(e, known) for e in (loop.start, loop.stop, loop.step)]
        return None if None in ends or not ends else len(range(*ends))


def emit(kernel: ir.Kernel) -> str:
    """Return the CUDA source of a kernel: one extern "C" function per launch, all with the kernel's parameters."""
    kernel = complex_nests.split(kernel)
    functions = [Function(launch.name, kernel).text(launch.statements) for launch in launches(kernel)]
    scalars = {text: None for f in functions for text in f.helpers}
    return PRELUDE + "\n".join([*scalars, *(f.source for f in functions)])


def launches(kernel: ir.Kernel) -> list[Launch]:
    """Divide a kernel where its threads would have to wait for each other: each parallel loop is a launch, and so are the statements between
    two of them. Values that need no memory written by the kernel are computed by every launch for itself."""
    kernel = complex_nests.split(kernel)
    name = re.sub(r"\W", "_", kernel.name)
    written = {s.buffer for s in statements(kernel.body) if isinstance(s, ir.Store) and not s.buffer.local_size}
    shared: list[ir.Statement] = []
    between: list[ir.Statement] = []
    lost: set[str] = set()  # variables that only one launch knows
    parts: list[Launch] = []

    def cut(body: list[ir.Statement], parallel: bool) -> None:
        missing = exposed(body)[0] & lost
        if missing:
            raise NotImplementedError(
                f"'{min(missing)}' is computed between two parallel loops and used after the second"
            )
        parts.append(Launch(f"{name}_{len(parts)}", body, parallel))

    def flush() -> None:
        nonlocal between
        if _stores(between):
            cut([*shared, *between], False)
        if between:
            lost.update(assigned_in(between) - assigned_in(shared))
            between = []

    for s in kernel.body:
        if any(isinstance(x, ir.For) and x.parallel for x in statements([s])):
            flush()
            _check_parallel([s], inside_loop=False)
            cut([*shared, s], True)
            lost |= assigned_in([s]) - assigned_in(shared)
        elif _stores([s]) or _reads([s], written) or exposed([s])[0] & (lost | assigned_in(between)):
            between.append(s)
        else:
            lost -= assigned_in([s])
            shared.append(s)
    flush()
    return parts


def _stores(block: list[ir.Statement]) -> bool:
    return any(isinstance(s, ir.Store) and not s.buffer.local_size for s in statements(block))


def _reads(block: list[ir.Statement], buffers: set[ir.Buffer]) -> bool:
    return any(x.op == "load" and x.args[0] in buffers for x in walk(tuple(expressions(block))))


def _check_parallel(block: list[ir.Statement], inside_loop: bool) -> None:
    for s in block:
        if isinstance(s, ir.If):
            _check_parallel([*s.then, *s.otherwise], inside_loop)
        elif isinstance(s, ir.For) and s.parallel and inside_loop:
            raise NotImplementedError("a parallel loop inside a sequential one needs a barrier across the grid")
        elif isinstance(s, (ir.For, ir.While)):
            _check_parallel(s.body, inside_loop=True)


# --- functions -----------------------------------------------------------------------------------------------------


@dataclass
class Function:
    """Writer of one function: declarations on top, then statements. Shared subexpressions become constants."""

    name: str
    kernel: ir.Kernel
    lines: list[str] = field(default_factory=list)
    helpers: dict[str, None] = field(default_factory=dict)
    symbols: dict[Any, str] = field(default_factory=dict)
    source: str = ""
    _depth: int = 1
    _temporaries: int = 0

    def text(self, body: list[ir.Statement]) -> Function:
        parameters = [self.parameter(p) for p in self.kernel.params]
        declarations = self.declare(body)
        self.block(body)
        header = f'extern "C" __global__ void __launch_bounds__({THREADS * 4}) {self.name}({", ".join(parameters)}) {{'
        self.source = "\n".join([header, *declarations, *self.lines, "}", ""])
        return self

    def parameter(self, p: ir.Buffer | ir.Scalar) -> str:
        self.symbols[p if isinstance(p, ir.Buffer) else p.name] = symbol = identifier(p.name)
        if isinstance(p, ir.Scalar):
            return f"{value_type(p.dtype)} {symbol}"
        alias = "" if self.kernel.may_alias else " __restrict__"
        return f"{memory_type(p.dtype)}*{alias} {symbol}"

    def declare(self, body: list[ir.Statement]) -> list[str]:
        lines = []
        for s in statements(body):
            if isinstance(s, ir.Assign) and s.name not in self.symbols:
                self.symbols[s.name] = identifier(s.name)
                lines.append(f"  {value_type(s.dtype)} {self.symbols[s.name]};")
            elif isinstance(s, ir.DeclareLocal) and s.buffer not in self.symbols:
                self.symbols[s.buffer] = symbol = identifier(s.buffer.name)
                lines.append(f"  {memory_type(s.buffer.dtype)} {symbol}[{s.buffer.local_size}];")
        return lines

    def line(self, text: str) -> None:
        self.lines.append("  " * self._depth + text)

    # --- statements

    def block(self, body: list[ir.Statement]) -> None:
        for s in body:
            self.statement(s)

    def nested(self, opening: str, body: list[ir.Statement]) -> None:
        self.line(opening + " {")
        self._depth += 1
        self.block(body)
        self._depth -= 1
        self.line("}")

    def statement(self, s: ir.Statement) -> None:
        if isinstance(s, ir.Assign):
            self.line(f"{self.symbols[s.name]} = {self.value(s.value, s.dtype)};")
        elif isinstance(s, ir.Store):
            value = self.value(s.value, opmath(s.buffer.dtype))
            index = self.value(s.index, dt.int64)
            self.line(f"{self.symbols[s.buffer]}[{index}] = {cuda_values.stored(value, s.buffer.dtype)};")
        elif isinstance(s, ir.For):
            self.loop(s)
        elif isinstance(s, ir.If):
            self.nested(f"if ({self.value(s.condition, dt.bool_)})", s.then)
            if s.otherwise:
                self.nested("else", s.otherwise)
        elif isinstance(s, ir.While):
            self.while_loop(s)
        elif isinstance(s, ir.Break):
            self.line("break;")
        elif isinstance(s, ir.Continue):
            self.line("continue;")
        elif not isinstance(s, ir.DeclareLocal):
            raise NotImplementedError(f"{type(s).__name__} has no CUDA text")

    def loop(self, s: ir.For) -> None:
        start, stop, step = (self.value(e, dt.int64) for e in (s.start, s.stop, s.step))
        i = self.symbols[s.name] = identifier(s.name)
        if s.parallel:
            first = f"{start} + (i64)(blockIdx.x * (i64)blockDim.x + threadIdx.x) * ({step})"
            step = f"(i64)gridDim.x * blockDim.x * ({step})"
        else:
            first = start
        down = s.step.op == "const" and s.step.args[0] < 0
        self.nested(f"for (i64 {i} = {first}; {i} {'>' if down else '<'} {stop}; {i} += {step})", s.body)

    def while_loop(self, s: ir.While) -> None:
        self.line("while (true) {")
        self._depth += 1
        self.line(f"if (!({self.value(s.condition, dt.bool_)})) break;")
        self.block(s.body)
        self._depth -= 1
        self.line("}")

    # --- expressions

    def value(self, root: Expr, target: dtype) -> str:
        """Return the text of an expression in dtype `target`; shared subexpressions are computed in lines before it."""
        types = infer((root,), ())
        texts: dict[int, str] = {}
        uses = _uses(root)
        for x in walk((root,)):
            text = self.node(x, types, texts)
            if uses.get(id(x), 0) > 1 and x.op not in ("const", "var"):
                name = f"t{self._temporaries}"
                self._temporaries += 1
                self.line(f"const {value_type(types[id(x)])} {name} = {text};")
                text = name
            texts[id(x)] = text
        return self.operand(root, target, types, texts)

    def operand(self, x: Expr, target: dtype, types: dict[int, dtype], texts: dict[int, str]) -> str:
        if x.op == "const":
            return convert(constant(x.args[0], opmath(target)), opmath(target), target)
        return convert(texts[id(x)], types[id(x)], target)

    def node(self, x: Expr, types: dict[int, dtype], texts: dict[int, str]) -> str:
        if x.op == "const":
            return ""  # written by its users, in the dtype they need
        if x.op == "var":
            return self.symbols[x.args[0]]
        if x.op == "load":
            index = self.operand(x.args[1], dt.int64, types, texts)
            return cuda_values.loaded(f"{self.symbols[x.args[0]]}[{index}]", x.args[0].dtype)
        if x.op == "cast":
            return self.operand(x.args[0], x.args[1], types, texts)
        if x.op == "bitcast":
            return cuda_values.bitcast(self.operand(x.args[0], types[id(x.args[0])], types, texts), x.args[1])
        if x.op == "call":
            return self.call(x, types, texts)
        d = operand_dtype(x, types)
        if x.op == "where":
            condition = self.operand(x.args[0], dt.bool_, types, texts)
            a, b = (self.operand(c, d, types, texts) for c in x.args[1:])
            return f"({condition} ? {a} : {b})"
        return cuda_values.apply(x.op, d, [self.operand(c, d, types, texts) for c in x.args])

    def call(self, x: Expr, types: dict[int, dtype], texts: dict[int, str]) -> str:
        function, operands, result = x.args[0], x.args[1:], types[id(x)]
        kinds = tuple(result if a.op == "const" else types[id(a)] for a in operands)
        symbol = f"call_{function.name}_{''.join(d.letter for d in (result, *kinds))}"
        self.helpers.update(scalar_function(symbol, function, kinds, result))
        arguments = [self.operand(a, d, types, texts) for a, d in zip(operands, kinds)]
        return f"{symbol}({', '.join(arguments)})"


def scalar_function(symbol: str, function: Any, kinds: tuple[dtype, ...], result: dtype) -> dict[str, None]:
    """Return the __device__ function for a `call` node, after those it calls itself."""
    names, body, value = function.inline(kinds)
    params = [ir.Scalar(n, d) for n, d in zip(names, kinds)]
    inner = Function(symbol, ir.Kernel(symbol, list(params), body))
    parameters = ", ".join(inner.parameter(p) for p in params)
    declarations = inner.declare(body)
    inner.block(body)
    returned = inner.value(value, result)
    header = f"static __device__ {value_type(result)} {symbol}({parameters}) {{"
    source = "\n".join([header, *declarations, *inner.lines, f"  return {returned};", "}"])
    return {**inner.helpers, source: None}


def identifier(name: str) -> str:
    """Return a C name that cannot clash with a CUDA name."""
    return "v_" + re.sub(r"\W", "_", name)


def _uses(root: Expr) -> dict[int, int]:
    counts: dict[int, int] = {}
    for x in walk((root,)):
        for a in x.args if x.op not in ("const", "arg") else ():
            if isinstance(a, Expr):
                counts[id(a)] = counts.get(id(a), 0) + 1
    return counts


# --- how many iterations -------------------------------------------------------------------------------------------

INTEGER_OPS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "minimum": min,
    "maximum": max,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "logical_not": lambda a: not a,
    "neg": lambda a: -a,
    "where": lambda c, a, b: a if c else b,
    "cast": lambda a: a,
}


def evaluate(root: Expr, known: dict[str, Any]) -> Any:
    values: dict[int, Any] = {}
    for x in walk((root,)):
        if x.op == "const":
            values[id(x)] = x.args[0]
        elif x.op == "var":
            values[id(x)] = known.get(x.args[0])
        else:
            operands = [values[id(a)] for a in x.args if isinstance(a, Expr)]
            operation = INTEGER_OPS.get(x.op)
            values[id(x)] = None if operation is None or None in operands else operation(*operands)
    return values[id(root)]


def locate_parallel(block: list[ir.Statement], known: dict[str, Any]) -> ir.For | None:
    """Find the parallel loop for known scalars, adding to `known` what is computed on the way; None if only the device can decide."""
    for s in block:
        if isinstance(s, ir.Assign):
            known[s.name] = evaluate(s.value, known)
        elif isinstance(s, ir.If):
            condition = evaluate(s.condition, known)
            if condition is None:
                if any(isinstance(x, ir.For) and x.parallel for x in statements([s])):
                    return None
                known.update(dict.fromkeys(assigned_in([s])))
                continue
            found = locate_parallel(s.then if condition else s.otherwise, known)
            if found is not None:
                return found
        elif isinstance(s, ir.For) and s.parallel:
            return s
        elif isinstance(s, (ir.For, ir.While)):
            known.update(dict.fromkeys(assigned_in([s])))
    return None
