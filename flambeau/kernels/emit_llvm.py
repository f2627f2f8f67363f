"""Loop nests to LLVM IR text.

Scalars live in stack slots that the optimiser turns into registers. A parallel loop becomes a function over a range of
iterations, called directly when the work is small and by a team of threads (`backends/cpu/team.py`) otherwise.
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
from .llvm_values import Writer, constant, convert, memory_type, value_type

# Elements (of the cheapest kind) a thread must have before waking it pays: a fork and join costs some microseconds.
GRAIN = 32768
_FEW_TURNS = 16


class ScalarFunction(Protocol):
    """Protocol of what a "call" node carries: a function of scalars written as statements."""

    name: str

    def inline(self, dtypes: tuple[dtype, ...]) -> tuple[list[str], list[ir.Statement], Expr]:
        """Parameter names, body and result for these argument dtypes."""


def emit(kernel: ir.Kernel) -> str:
    """The LLVM module of one kernel; the entry point is called `kernel.name`."""
    return _Module(kernel).text()


class _Module:
    def __init__(self, kernel: ir.Kernel):
        self.kernel = kernel
        self.symbol = re.sub(r"\W", "_", kernel.name)
        self.declarations: dict[str, None] = {}
        self.functions: list[str] = []
        self.metadata: list[str] = []
        self.shared: dict[str, str] = {}  # metadata nodes by their text
        self.support: dict[tuple[Any, ...], str] = {}

    def text(self) -> str:
        function = _Function(self, self.symbol, self.kernel.params)
        function.body(self.kernel.body)
        # A function that only forks is compiled without optimisation: that is a third of the compile time of a kernel.
        self.functions.append(function.finish("void", attributes="#4" if only_forks(self.kernel.body) else "#0"))
        attributes = [
            'attributes #0 = { nounwind "no-trapping-math"="true" "prefer-vector-width"="512" }',
            "attributes #1 = { nounwind willreturn memory(none) nonlazybind }",
            "attributes #2 = { nounwind nonlazybind }",
            'attributes #3 = { noinline nounwind "no-trapping-math"="true" "prefer-vector-width"="512" }',
            "attributes #4 = { noinline nounwind optnone }",
        ]
        flags = ["!llvm.module.flags = !{!0}", '!0 = !{i32 7, !"RtLibUseGOT", i32 1}']
        return "\n".join([*self.declarations, *self.functions, *attributes, *flags, *self.metadata, ""])

    def declare(self, text: str) -> None:
        self.declarations[text] = None

    def node(self, text: str) -> str:
        """A metadata node; `$` in the text is the node itself."""
        if not text.startswith("distinct"):
            if text in self.shared:
                return self.shared[text]
            self.shared[text] = f"!{len(self.metadata) + 1}"
        name = f"!{len(self.metadata) + 1}"
        self.metadata.append(f"{name} = {text.replace('$', name)}")
        return name

    def helper(self, kind: str, d: dtype) -> str:
        key = (kind, d)
        if key not in self.support:
            self.support[key] = f"@flambeau.{kind}.{d.name}"
            self.functions.append(llvm_operators.power_function(self.support[key], d))
        return self.support[key]

    def scalar_function(self, function: ScalarFunction, dtypes: tuple[dtype, ...], result: dtype) -> str:
        key = (id(function), dtypes, result)
        if key not in self.support:
            symbol = f"{self.symbol}.call{len(self.support)}"
            self.support[key] = "@" + symbol
            names, body, value = function.inline(dtypes)
            inner = _Function(self, symbol, [ir.Scalar(n, d) for n, d in zip(names, dtypes, strict=True)])
            inner.body(body)
            returned = inner.expression(value, result)
            inner.w.do(f"ret {value_type(result)} {returned}")
            self.functions.append(inner.finish(value_type(result), internal=True))
        return self.support[key]


class _Loop:
    """Loop being written: where `break` and `continue` go, and the access groups that memory accesses inside belong to."""

    def __init__(self, exit_label: str, next_label: str):
        self.exit_label, self.next_label = exit_label, next_label


class _Function:
    """Emits one LLVM function: statements, expressions, control flow."""

    def __init__(self, module: _Module, symbol: str, params: Iterable[ir.Buffer | ir.Scalar]):
        self.module, self.symbol = module, symbol
        self.w = Writer(module.declare, module.helper)
        self.params = list(params)
        self.slots: dict[str, tuple[str, dtype]] = {}  # variable -> stack slot
        self.pointers: dict[ir.Buffer, str] = {}
        self.entry: list[str] = []
        self.loops: list[_Loop] = []
        self.groups: list[tuple[str, set[ir.Buffer]]] = []  # access group, buffers private to one iteration
        self.signature: list[str] = []
        for p in self.params:
            self._bind(p)

    # ---- parameters and storage

    def _bind(self, p: ir.Buffer | ir.Scalar) -> None:
        name = f"%p{len(self.signature)}"
        if isinstance(p, ir.Buffer):
            self.pointers[p] = name
            alias = "" if self.module.kernel.may_alias and not p.local_size else "noalias "
            self.signature.append(f"ptr {alias}{name}")
            return
        # A bool arrives in a whole byte; C leaves the upper bits of narrower arguments unspecified.
        arrives = "i8" if p.dtype is dt.bool_ else value_type(p.dtype)
        self.signature.append(f"{arrives} {name}")
        value = name
        if p.dtype is dt.bool_:
            self.entry.append(f"  {name}.bit = icmp ne i8 {name}, 0")
            value = f"{name}.bit"
        slot = self._slot(p.name, p.dtype)
        self.entry.append(f"  store {value_type(p.dtype)} {value}, ptr {slot}")

    def _slot(self, name: str, d: dtype) -> str:
        known = self.slots.get(name)
        if known is not None and known[1] is not opmath(d):
            raise TypeError(f"variable {name} is {known[1]} and cannot become {d}")
        if known is None:
            slot = f"%s{len(self.slots)}.{re.sub(r'[^A-Za-z0-9_]', '_', name)}"
            self.entry.insert(0, f"  {slot} = alloca {value_type(opmath(d))}")
            known = self.slots[name] = (slot, opmath(d))
        return known[0]

    def finish(self, result: str, internal: bool = False, attributes: str = "#0") -> str:
        if result == "void":
            self.w.do("ret void")
        linkage = "internal " if internal else ""
        head = f"define {linkage}{result} @{self.symbol}({', '.join(self.signature)}) {attributes} {{\nentry:"
        return "\n".join([head, *self.entry, *self.w.lines, "}"])

    # ---- statements

    def body(self, statements: Iterable[ir.Statement]) -> None:
        for s in statements:
            if isinstance(s, ir.Assign):
                value = self.expression(s.value, opmath(s.dtype), self._recurrence(s))
                self.w.do(f"store {value_type(opmath(s.dtype))} {value}, ptr {self._slot(s.name, s.dtype)}")
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
                self.w.do(f"br label %{loop.exit_label if isinstance(s, ir.Break) else loop.next_label}")
                self._start(self.w.label("dead"))
            else:
                raise TypeError(f"cannot emit statement {type(s).__name__}")

    def _declare_local(self, buffer: ir.Buffer) -> None:
        if buffer not in self.pointers:
            name = f"%b{len(self.pointers)}.{re.sub(r'[^A-Za-z0-9_]', '_', buffer.name)}"
            self.entry.insert(0, f"  {name} = alloca [{buffer.local_size} x {memory_type(buffer.dtype)}], align 64")
            self.pointers[buffer] = name
        for _, private in self.groups:
            private.add(buffer)

    def _start(self, label: str) -> None:
        self.w.lines.append(f"{label}:")

    def _branch(self, condition: Expr, yes: str, no: str) -> None:
        self.w.do(f"br i1 {self.expression(condition, dt.bool_)}, label %{yes}, label %{no}")

    def _if(self, s: ir.If) -> None:
        then, otherwise, after = (self.w.label("then"), self.w.label("else"), self.w.label("endif"))
        self._branch(s.condition, then, otherwise)
        self._start(then)
        self.body(s.then)
        self.w.do(f"br label %{after}")
        self._start(otherwise)
        self.body(s.otherwise)
        self.w.do(f"br label %{after}")
        self._start(after)

    def _while(self, s: ir.While) -> None:
        head, inside, after = (self.w.label("while"), self.w.label("do"), self.w.label("endwhile"))
        self.w.do(f"br label %{head}")
        self._start(head)
        self._branch(s.condition, inside, after)
        self._start(inside)
        self.loops.append(_Loop(after, head))
        self.body(s.body)
        self.loops.pop()
        self.w.do(f"br label %{head}")
        self._start(after)

    def _for(self, s: ir.For) -> None:
        start, stop, step = (self.expression(e, dt.int64) for e in (s.start, s.stop, s.step))
        self._counted(s, start, stop, step)

    def _counted(self, s: ir.For, start: str, stop: str, step: str) -> None:
        """for name from start to stop. The counter is not the user's variable: the body may assign to that one."""
        w = self.w
        counter, slot = (self._slot(w.label("counter "), dt.int64), self._slot(s.name, dt.int64))
        w.do(f"store i64 {start}, ptr {counter}")
        head, inside, advance, after = (w.label(n) for n in ("for", "body", "next", "endfor"))
        w.do(f"br label %{head}")
        self._start(head)
        now = w.ins(f"load i64, ptr {counter}")
        w.do(f"br i1 {self._before(now, stop, step)}, label %{inside}, label %{after}")
        self._start(inside)
        w.do(f"store i64 {now}, ptr {slot}")
        metadata = self._enter(s)
        self.loops.append(_Loop(after, advance))
        self.body(s.body)
        self.loops.pop()
        self._leave(s)
        w.do(f"br label %{advance}")
        self._start(advance)
        w.do(f"store i64 {w.ins(f'add nsw i64 {now}, {step}')}, ptr {counter}")
        w.do(f"br label %{head}{metadata}")
        self._start(after)

    def _before(self, now: str, stop: str, step: str) -> str:
        w = self.w
        if not step.startswith("%"):
            return w.compare("slt" if int(step) > 0 else "sgt", "i64", now, stop)
        up, down = (w.compare("slt", "i64", now, stop), w.compare("sgt", "i64", now, stop))
        return w.select(w.compare("sgt", "i64", step, "0"), "i1", up, down)

    def _enter(self, s: ir.For) -> str:
        """Loop metadata: iterations that are known not to touch each other's memory need no run-time checks."""
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
            return self.w.ins(f"load {value_type(target)}, ptr {self.slots[root.args[0]][0]}")
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
            return w.ins(f"load {value_type(d)}, ptr {slot}")
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
        symbol = self.module.scalar_function(x.args[0], tuple(weak), result)
        parts = []
        for a, d in zip(operands, weak, strict=True):
            value = self._converted(a, d, types, values)
            if d is dt.bool_:
                value = self.w.ins(f"zext i1 {value} to i8")
            parts.append(f"{'i8' if d is dt.bool_ else value_type(d)} {value}")
        return self.w.ins(f"call {value_type(result)} {symbol}({', '.join(parts)})")

    def _address(self, buffer: ir.Buffer, index: str) -> str:
        if index == "0":
            return self.pointers[buffer]
        return self.w.ins(
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
        module = self.module
        start, stop, step = (self.expression(e, dt.int64) for e in (s.start, s.stop, s.step))
        captured, arguments = self._capture(s)
        symbol = f"{module.symbol}.range{len(module.functions)}"
        bounds = [ir.Scalar(n, dt.int64) for n in ("range begin", "range end", "range step")]
        inner = _Function(module, symbol, [*bounds, *captured])
        fixed_step = step if not step.startswith("%") else "%p2"
        inner._counted(s, "%p0", "%p1", fixed_step)
        types = [text.rsplit(" ", 1)[0].removesuffix(" noalias") for text in inner.signature]
        module.functions.append(inner.finish("void", internal=True, attributes="#3"))
        count = self._iterations(start, stop, step)
        team = self._team_size(s, count)
        values = [start, step, count, *arguments]
        record = "{ " + ", ".join(["i64", "i64", "i64", *types[3:]]) + " }"
        module.functions.append(_trampoline(symbol, record, types[3:]))
        self._fork(symbol, record, types[3:], values, team, stop)

    def _fork(self, symbol: str, record: str, types: list[str], values: list[str], team: str, stop: str) -> None:
        w = self.w
        many, alone, after = w.label("fork"), w.label("alone"), w.label("joined")
        block = f"%fork.{len(self.entry)}"
        self.entry.insert(0, f"  {block} = alloca {record}")
        w.do(f"br i1 {w.compare('sgt', 'i64', team, '1')}, label %{many}, label %{alone}")
        self._start(many)
        for i, (t, value) in enumerate(zip(["i64", "i64", "i64", *types], values, strict=True)):
            field = w.ins(f"getelementptr inbounds {record}, ptr {block}, i32 0, i32 {i}")
            w.do(f"store {t} {value}, ptr {field}")
        self.module.declare("declare void @flambeau_parallel(ptr, ptr, i64) #2")
        w.do(f"call void @flambeau_parallel(ptr @{symbol}.part, ptr {block}, i64 {team})")
        w.do(f"br label %{after}")
        self._start(alone)
        rest = "".join(f", {t} {v}" for t, v in zip(types, values[3:], strict=True))
        w.do(f"call void @{symbol}(i64 {values[0]}, i64 {stop}, i64 {values[1]}{rest})")
        w.do(f"br label %{after}")
        self._start(after)

    def _capture(self, s: ir.For) -> tuple[list[ir.Buffer | ir.Scalar], list[str]]:
        """Everything of this function that the loop body reads: parameters for the outlined one, and their values."""
        names, buffers = reads(s.body)
        params: list[ir.Buffer | ir.Scalar] = [b for b in self.pointers if b in buffers]
        arguments = [self.pointers[b] for b in self.pointers if b in buffers]
        for name, (slot, d) in list(self.slots.items()):
            if name in names and name != s.name:
                value = self.w.ins(f"load {value_type(d)}, ptr {slot}")
                params.append(ir.Scalar(name, d))
                arguments.append(self.w.ins(f"zext i1 {value} to i8") if d is dt.bool_ else value)
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
        self.module.declare("@flambeau_num_threads = external global i64")
        threads = w.ins("load i64, ptr @flambeau_num_threads")
        work = count if s.cost is None else w.op("mul", "i64", count, self.expression(s.cost, dt.int64))
        useful = w.op("sdiv", "i64", work, str(GRAIN))
        return w.intrinsic("smin", "i64", w.intrinsic("smin", "i64", threads, useful), count)


def _trampoline(symbol: str, record: str, types: list[str]) -> str:
    """Write the function that the threads run: part %rank of %size, a contiguous share of the iterations."""
    lines = [f"define internal void @{symbol}.part(ptr %data, i64 %rank, i64 %size) #4 {{"]
    fields = ["i64", "i64", "i64", *types]
    for i, t in enumerate(fields):
        lines.append(f"  %f{i} = getelementptr inbounds {record}, ptr %data, i32 0, i32 {i}")
        lines.append(f"  %a{i} = load {t}, ptr %f{i}")
    rest = "".join(f", {t} %a{i + 3}" for i, t in enumerate(types))
    lines += f"""  %more = add i64 %a2, %size
  %most = sub i64 %more, 1
  %even = sdiv i64 %most, %size
  ; whole cache lines per part once there are enough iterations for it not to matter
  %long = icmp sgt i64 %even, 1024
  %plus = add i64 %even, 63
  %line = and i64 %plus, -64
  %chunk = select i1 %long, i64 %line, i64 %even
  %first = mul i64 %rank, %chunk
  %begin = call i64 @llvm.smin.i64(i64 %first, i64 %a2)
  %last = add i64 %begin, %chunk
  %end = call i64 @llvm.smin.i64(i64 %last, i64 %a2)
  %from = mul i64 %begin, %a1
  %to = mul i64 %end, %a1
  %start = add i64 %a0, %from
  %stop = add i64 %a0, %to
  call void @{symbol}(i64 %start, i64 %stop, i64 %a1{rest})
  ret void
}}""".split("\n")
    return "\n".join(lines)


__all__ = ["ScalarFunction", "emit"]
