"""Loop nests to LLVM IR text.

Scalars are in stack slots that the optimiser turns into registers. A parallel loop becomes a function over a range of iterations, called
directly when the work is small and by a team of threads (`backends/cpu/team.py`) otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol

from ..core import dtype as dt
from ..core.dtype import dtype, opmath
from ..expr.node import Expr, walk
from ..expr.typing import operand_dtype
from . import ir, llvm_operators, llvm_values
from .llvm_analysis import dependents, lower_all, only_forks, reads
from .llvm_operators import ATTRIBUTES
from .llvm_text import Function
from .llvm_values import constant, convert, memory_type, value_type

# Elements (of the cheapest kind) a thread must have before waking it pays: a fork and join costs some microseconds.
GRAIN = 32768
_FEW_TURNS = 16
_PLAIN = "noinline nounwind optnone"


class ScalarFunction(Protocol):
    """Protocol of the function in a "call" node: a function of scalars written as statements."""

    name: str

    def inline(self, dtypes: tuple[dtype, ...]) -> tuple[list[str], list[ir.Statement], Expr]:
        """Return parameter names, body and result for these argument dtypes."""


def emit(kernel: ir.Kernel) -> str:
    """Return the LLVM module of one kernel; the entry point is called `kernel.name`."""
    return emit_apart(kernel, "")[0]


def emit_apart(kernel: ir.Kernel, attributes: str = _PLAIN) -> list[str]:
    """Return the kernel as two modules, the second with the functions that only fork; as one if there are none."""
    module = _Module(kernel)
    # A function that only forks is compiled without optimisation: that is a third of the compile time of a kernel.
    plain = _PLAIN if only_forks(kernel.body) else ATTRIBUTES
    function = _Function(module, module.symbol, kernel.params, "void", plain)
    function.body(kernel.body)
    return function.w.modules(attributes, *module.metadata)


class _Module:
    """The state that the functions of one kernel share."""

    def __init__(self, kernel: ir.Kernel):
        self.kernel = kernel
        self.symbol = re.sub(r"\W", "_", kernel.name)
        self.metadata: list[str] = []
        self.shared: dict[str, str] = {}  # metadata nodes by their text
        self.scalar_functions: dict[tuple[Any, ...], Function] = {}
        self.count = 0  # of functions besides the kernel's own

    def new_symbol(self, hint: str) -> str:
        self.count += 1
        return f"{self.symbol}.{hint}{self.count}"

    def node(self, text: str) -> str:
        """Return a metadata node; `$` in the text is the node itself."""
        if not text.startswith("distinct"):
            if text in self.shared:
                return self.shared[text]
            self.shared[text] = f"!{len(self.metadata) + 1}"
        name = f"!{len(self.metadata) + 1}"
        self.metadata.append(f"{name} = {text.replace('$', name)}")
        return name

    def scalar_function(self, function: ScalarFunction, dtypes: tuple[dtype, ...], result: dtype) -> Function:
        key = (id(function), dtypes, result)
        if key not in self.scalar_functions:
            names, body, value = function.inline(dtypes)
            params = [ir.Scalar(n, d) for n, d in zip(names, dtypes, strict=True)]
            kind = value_type(result)
            inner = _Function(self, self.new_symbol("call"), params, f"internal {kind}")
            inner.body(body)
            inner.w.ret(kind, inner.expression(value, result))
            self.scalar_functions[key] = inner.w
        return self.scalar_functions[key]


class _Loop:
    """Loop being written: the targets of `break` and `continue`, and the access groups of memory accesses inside."""

    def __init__(self, exit_label: str, next_label: str):
        self.exit_label, self.next_label = exit_label, next_label


class _Function:
    """Emitter of one LLVM function: statements, expressions, control flow."""

    def __init__(
        self,
        module: _Module,
        symbol: str,
        params: Iterable[ir.Buffer | ir.Scalar],
        result: str,
        attributes: str = ATTRIBUTES,
    ):
        self.module = module
        self.slots: dict[str, tuple[str, dtype]] = {}  # variable -> stack slot
        self.pointers: dict[ir.Buffer, str] = {}
        self.loops: list[_Loop] = []
        self.groups: list[tuple[str, set[ir.Buffer]]] = []  # access group, buffers private to one iteration
        given = [(f"%p{i}", p) for i, p in enumerate(params)]
        self.kinds = [
            "ptr" if isinstance(p, ir.Buffer) else "i8" if p.dtype is dt.bool_ else value_type(p.dtype)
            for _, p in given
        ]
        signature = ", ".join(
            f"{kind}{self._alias(p)} {name}" for kind, (name, p) in zip(self.kinds, given, strict=True)
        )
        self.w = Function(f"define {result} @{symbol}({signature}) {attributes}")
        for name, p in given:
            self._bind(name, p)

    # ---- parameters and storage

    def _alias(self, p: ir.Buffer | ir.Scalar) -> str:
        alone = isinstance(p, ir.Buffer) and (p.local_size or not self.module.kernel.may_alias)
        return " noalias" if alone else ""

    def _bind(self, name: str, p: ir.Buffer | ir.Scalar) -> None:
        if isinstance(p, ir.Buffer):
            self.pointers[p] = name
            return
        value = self.w.compare("ne", "i8", name, 0) if p.dtype is dt.bool_ else name
        self.w.write(value_type(p.dtype), value, self._slot(p.name, p.dtype))

    def _slot(self, name: str, d: dtype) -> str:
        known = self.slots.get(name)
        if known is not None and known[1] is not opmath(d):
            raise TypeError(f"variable {name} is {known[1]} and cannot become {d}")
        if known is None:
            known = self.slots[name] = (self.w.slot(value_type(opmath(d)), 8), opmath(d))
        return known[0]

    # ---- statements

    def body(self, statements: Iterable[ir.Statement]) -> None:
        for s in statements:
            if isinstance(s, ir.Assign):
                value = self.expression(s.value, opmath(s.dtype), self._recurrence(s))
                self.w.write(value_type(opmath(s.dtype)), value, self._slot(s.name, s.dtype))
            elif isinstance(s, ir.Store):
                self._store(s)
            elif isinstance(s, ir.DeclareLocal):
                self._declare_local(s.buffer)
            elif isinstance(s, ir.For):
                self._parallel(s) if s.parallel else self._for(s)
            elif isinstance(s, ir.If):
                self._if(s)
            elif isinstance(s, ir.While):
                self._while(s)
            elif isinstance(s, (ir.Break, ir.Continue)):
                loop = self.loops[-1]
                self.w.go(loop.exit_label if isinstance(s, ir.Break) else loop.next_label)
                self.w.label(self.w.fresh("dead"))
            else:
                raise TypeError(f"cannot emit statement {type(s).__name__}")

    def _declare_local(self, buffer: ir.Buffer) -> None:
        if buffer not in self.pointers:
            self.pointers[buffer] = self.w.slot(f"[{buffer.local_size} x {memory_type(buffer.dtype)}]")
        for _, private in self.groups:
            private.add(buffer)

    def _choose(self, condition: Expr, yes: str, no: str) -> None:
        self.w.choose(self.expression(condition, dt.bool_), yes, no)

    def _if(self, s: ir.If) -> None:
        then, otherwise, after = (self.w.fresh(n) for n in ("then", "else", "endif"))
        self._choose(s.condition, then, otherwise)
        self.w.label(then)
        self.body(s.then)
        self.w.go(after)
        self.w.label(otherwise)
        self.body(s.otherwise)
        self.w.label(after)

    def _while(self, s: ir.While) -> None:
        head, inside, after = (self.w.fresh(n) for n in ("while", "do", "endwhile"))
        self.w.label(head)
        self._choose(s.condition, inside, after)
        self.w.label(inside)
        self.loops.append(_Loop(after, head))
        self.body(s.body)
        self.loops.pop()
        self.w.go(head)
        self.w.label(after)

    def _for(self, s: ir.For) -> None:
        start, stop, step = (self.expression(e, dt.int64) for e in (s.start, s.stop, s.step))
        self._counted(s, start, stop, step)

    def _counted(self, s: ir.For, start: str, stop: str, step: str) -> None:
        """Emit a loop from start to stop. The counter is not the user's variable, which the body may assign to."""
        w = self.w
        counter, slot = w.variable("i64", start), self._slot(s.name, dt.int64)
        head, inside, advance, after = (w.fresh(n) for n in ("for", "body", "next", "endfor"))
        w.label(head)
        now = w.read("i64", counter)
        w.choose(self._before(now, stop, step), inside, after)
        w.label(inside)
        w.write("i64", now, slot)
        metadata = self._enter(s)
        self.loops.append(_Loop(after, advance))
        self.body(s.body)
        self.loops.pop()
        self._leave(s)
        w.label(advance)
        w.write("i64", w.op("add nsw", "i64", now, step), counter)
        w.go(head, metadata)
        w.label(after)

    def _before(self, now: str, stop: str, step: str) -> str:
        w = self.w
        if not step.startswith("%"):
            return w.compare("slt" if int(step) > 0 else "sgt", "i64", now, stop)
        up, down = (w.compare("slt", "i64", now, stop), w.compare("sgt", "i64", now, stop))
        return w.select(w.compare("sgt", "i64", step, 0), "i1", up, down)

    def _enter(self, s: ir.For) -> str:
        """Return loop metadata: iterations that are known not to touch each other's memory need no run-time checks."""
        hints = []
        if s.independent or s.parallel:
            group = self.module.node("distinct !{}")
            self.groups.append((group, set()))
            hints.append(self.module.node(f'!{{!"llvm.loop.parallel_accesses", {group}}}'))
        if s.cold:
            hints.append(self.module.node('!{!"llvm.loop.vectorize.enable", i1 false}'))
            hints.append(self.module.node('!{!"llvm.loop.unroll.disable"}'))
        elif s.start.op == s.stop.op == "const":
            if s.independent and s.stop.args[0] - s.start.args[0] <= _FEW_TURNS:
                # Else LLVM writes them out one by one before it looks for loops to vectorise.
                hints.append(self.module.node('!{!"llvm.loop.unroll.disable"}'))
        else:
            # Copies of a body with an unknown number of turns cost compile time; vector loops are interleaved anyway.
            hints.append(self.module.node('!{!"llvm.loop.unroll.runtime.disable"}'))
        node = self.module.node("distinct !{" + ", ".join(["$", *hints]) + "}") if hints else ""
        return f", !llvm.loop {node}" if hints else ""

    def _leave(self, s: ir.For) -> None:
        if s.independent or s.parallel:
            self.groups.pop()

    def _access(self, buffer: ir.Buffer) -> str:
        groups = [group for group, private in self.groups if buffer not in private]
        if not groups:
            return ""
        group = groups[0] if len(groups) == 1 else self.module.node(f"!{{{', '.join(groups)}}}")
        return f", !llvm.access.group {group}"

    # ---- expressions

    def expression(self, root: Expr, target: dtype, recurrence: Expr | None = None) -> str:
        """Emit `root` converted to `target`. Shared subexpressions are computed once. `recurrence` is the running
        value of a reduction: the operators applied to it may be reassociated."""
        if root.op == "const":
            return self._converted(root, target, {}, {})
        if root.op == "var" and self.slots[root.args[0]][1] is target:
            return self.w.read(value_type(target), self.slots[root.args[0]][0])
        types: dict[int, dtype] = {}
        root = lower_all(root, types)
        values: dict[int, str] = {}
        running = dependents(root, recurrence)
        for x in walk((root,)):
            self.w.flags = "reassoc nsz contract " if id(x) in running else ""
            values[id(x)] = self._node(x, types, values)
        self.w.flags = ""
        return self._converted(root, target, types, values)

    def _converted(self, x: Expr, target: dtype, types: dict[int, dtype], values: dict[int, str]) -> str:
        if x.op == "const":
            rounded = constant(x.args[0], opmath(target))
            return rounded if opmath(target) is target else convert(self.w, rounded, dt.float32, target)
        return convert(self.w, values[id(x)], types[id(x)], target)

    def _node(self, x: Expr, types: dict[int, dtype], values: dict[int, str]) -> str:
        w = self.w
        if x.op == "const":
            return ""  # written by its users, in the dtype they need
        if x.op == "var":
            slot, d = self.slots[x.args[0]]
            return w.read(value_type(d), slot)
        if x.op == "load":
            buffer, index = x.args
            pointer = self._address(buffer, self._converted(index, dt.int64, types, values))
            return llvm_values.load(w, pointer, buffer.dtype, self._access(buffer))
        if x.op == "cast":
            return self._converted(x.args[0], x.args[1], types, values)
        if x.op == "bitcast":
            source = opmath(types[id(x.args[0])])
            return llvm_values.bitcast(w, self._converted(x.args[0], source, types, values), source, x.args[1])
        if x.op == "call":
            return self._call(x, types, values)
        d = operand_dtype(x, types)
        if x.op == "where":
            condition = self._converted(x.args[0], dt.bool_, types, values)
            a, b = (self._converted(c, d, types, values) for c in x.args[1:])
            return w.select(condition, value_type(d), a, b)
        return llvm_operators.apply(w, x.op, d, [self._converted(c, d, types, values) for c in x.args])

    def _call(self, x: Expr, types: dict[int, dtype], values: dict[int, str]) -> str:
        operands, result = x.args[1:], types[id(x)]
        weak = [result if a.op == "const" else types[id(a)] for a in operands]
        function = self.module.scalar_function(x.args[0], tuple(weak), result)
        parts = []
        for a, d in zip(operands, weak, strict=True):
            value = self._converted(a, d, types, values)
            if d is dt.bool_:
                value = self.w.convert("zext", "i1", value, "i8")
            parts.append(f"{'i8' if d is dt.bool_ else value_type(d)} {value}")
        return self.w.call(value_type(result), function, *parts)

    def _address(self, buffer: ir.Buffer, index: str) -> str:
        if index == "0":
            return self.pointers[buffer]
        return self.w.new(
            f"getelementptr inbounds {memory_type(buffer.dtype)}, ptr {self.pointers[buffer]}, i64 {index}"
        )

    def _store(self, s: ir.Store) -> None:
        value = self.expression(s.value, opmath(s.buffer.dtype), self._recurrence(s))
        pointer = self._address(s.buffer, self.expression(s.index, dt.int64))
        llvm_values.store(self.w, pointer, value, s.buffer.dtype, self._access(s.buffer))

    def _recurrence(self, s: ir.Assign | ir.Store) -> Expr | None:
        if not s.reassociate:
            return None
        return ir.var(s.name, s.dtype) if isinstance(s, ir.Assign) else ir.load(s.buffer, s.index)

    # ---- parallel loops

    def _parallel(self, s: ir.For) -> None:
        """Outline the loop as range(begin, end, captured...), then run it here or on a team of threads."""
        start, stop, step = (self.expression(e, dt.int64) for e in (s.start, s.stop, s.step))
        captured, arguments = self._capture(s)
        bounds = [ir.Scalar(n, dt.int64) for n in ("range begin", "range end", "range step")]
        symbol = self.module.new_symbol("range")
        inner = _Function(self.module, symbol, [*bounds, *captured], "internal void", f"noinline {ATTRIBUTES}")
        inner._counted(s, "%p0", "%p1", step if not step.startswith("%") else "%p2")
        count = self._iterations(start, stop, step)
        self._fork(inner, [start, step, count, *arguments], self._team_size(s, count), stop)

    def _fork(self, inner: _Function, values: list[str], team: str, stop: str) -> None:
        w, kinds = self.w, inner.kinds
        many, alone, after = w.fresh("fork"), w.fresh("alone"), w.fresh("joined")
        block = w.slot(f"[{len(values)} x i64]", 8)
        w.choose(w.compare("sgt", "i64", team, 1), many, alone)
        w.label(many)
        for i, (kind, value) in enumerate(zip(kinds, values, strict=True)):
            w.write(kind, value, w.place(block, i))
        part = w.bring(_part(inner.w, kinds[3:]))
        w.call("void", "@flambeau_parallel", f"ptr {part}", f"ptr {block}", f"i64 {team}")
        w.go(after)
        w.label(alone)
        rest = [f"{kind} {value}" for kind, value in zip(kinds[3:], values[3:], strict=True)]
        w.call("void", inner.w, f"i64 {values[0]}", f"i64 {stop}", f"i64 {values[1]}", *rest)
        w.label(after)

    def _capture(self, s: ir.For) -> tuple[list[ir.Buffer | ir.Scalar], list[str]]:
        """Return all values of this function that the loop body reads: parameters for the outlined function, and their values."""
        names, buffers = reads(s.body)
        params: list[ir.Buffer | ir.Scalar] = [b for b in self.pointers if b in buffers]
        arguments = [self.pointers[b] for b in self.pointers if b in buffers]
        for name, (slot, d) in list(self.slots.items()):
            if name in names and name != s.name:
                value = self.w.read(value_type(d), slot)
                params.append(ir.Scalar(name, d))
                arguments.append(self.w.convert("zext", "i1", value, "i8") if d is dt.bool_ else value)
        return params, arguments

    def _iterations(self, start: str, stop: str, step: str) -> str:
        w = self.w
        span = w.op("sub", "i64", stop, start)
        if step == "1":
            return w.intrinsic("smax", "i64", span, "0")
        towards = "-1" if not step.startswith("%") and int(step) > 0 else "1" if not step.startswith("%") else None
        if towards is None:
            towards = w.select(w.compare("sgt", "i64", step, "0"), "i64", "-1", "1")
        rounded = w.op("add", "i64", w.op("add", "i64", span, step), towards)
        safe = w.select(w.compare("eq", "i64", step, "0"), "i64", "1", step)
        return w.intrinsic("smax", "i64", w.op("sdiv", "i64", rounded, safe), "0")

    def _team_size(self, s: ir.For, count: str) -> str:
        w = self.w
        threads = w.read("i64", w.outside("flambeau_num_threads", "i64"))
        work = count if s.cost is None else w.op("mul", "i64", count, self.expression(s.cost, dt.int64))
        useful = w.op("sdiv", "i64", work, str(GRAIN))
        return w.intrinsic("smin", "i64", w.intrinsic("smin", "i64", threads, useful), count)


def _part(inner: Function, kinds: list[str]) -> Function:
    """Write the function that the threads run: part %rank of %size, a contiguous share of the iterations."""
    f = Function(f"define internal void {inner.symbol}.part(ptr %data, i64 %rank, i64 %size) {_PLAIN}")
    start, step, count = (f.item("%data", i) for i in range(3))
    rest = [f"{kind} {f.item('%data', i, kind)}" for i, kind in enumerate(kinds, 3)]
    even = f.op("sdiv", "i64", f.add(count, "%size", -1), "%size")
    # whole cache lines per part once there are enough iterations for it not to matter
    lines = f.op("and", "i64", f.add(even, 63), -64)
    chunk = f.select(f.compare("sgt", "i64", even, 1024), "i64", lines, even)
    begin = f.intrinsic("smin", "i64", f.mul("%rank", chunk), count)
    end = f.intrinsic("smin", "i64", f.add(begin, chunk), count)
    bounds = [f"i64 {f.add(start, f.mul(x, step))}" for x in (begin, end)]
    f.call("void", inner, *bounds, f"i64 {step}", *rest)
    return f
