"""A function of LLVM, written instruction by instruction. All native code on the CPU is written by it, kernels (`emit_llvm`) as well as the
code around them.

>>> f = Function("define i64 @total(ptr %numbers, i64 %count)")
>>> total = f.variable("i64", 0)
>>> with f.loop("%count") as i:
...     f.write("i64", f.add(f.read("i64", total), f.item("%numbers", i)), total)
>>> f.ret("i64", f.read("i64", total))
>>> f.module().startswith("define i64 @total")
True

A call adds its target to the caller's module: another `Function` with its body, anything else as a declaration.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

Value = str | int
_SUFFIXES = {"float": "f32", "double": "f64"}
_ALIGNED = {"i32": 4, "i64": 8, "ptr": 8}  # of what is read and written atomically
# Calls of the C library go through a table of addresses, which is all that `backends/cpu/image.py` fills in.
_FLAGS = ("!llvm.module.flags = !{!0}", '!0 = !{i32 7, !"RtLibUseGOT", i32 1}')


class Index(str):
    """The index of a loop's current iteration. The body may set the step that is added after it."""

    step: Value = 1


class Function:
    """Instructions of one function; methods that compute return the name of their value."""

    def __init__(self, head: str):
        self.head = head
        self.symbol = "@" + head.partition("@")[2].partition("(")[0]
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.needs: dict[str, str | Function] = {}  # what the module has besides, by symbol
        self.count = 0
        self.here = "start"  # the block that is being written; "" after a jump or a return
        self.flags = ""  # of the floating-point instructions that are written now

    def text(self) -> str:
        if self.here:
            self.ret()
        return "\n".join([self.head + " {", *self.slots, "  br label %start", "start:", *self.lines, "}", ""])

    def module(self, *more: str) -> str:
        """Return the text of a module: this function, those that it calls, declarations of everything else they use, `more`."""
        return self.modules("", *more)[0]

    def modules(self, attribute: str, *more: str) -> list[str]:
        """Return the function as two modules, the second with the functions that have an attribute; as one if all or none have it."""
        functions, waiting = {self.symbol: self}, [self]
        while waiting:
            for symbol, need in waiting.pop().needs.items():
                if isinstance(need, Function) and symbol not in functions:
                    functions[symbol] = need
                    waiting.append(need)
                elif isinstance(need, Function):
                    _same(functions[symbol], need)
        apart, rest = ([f for f in functions.values() if (attribute in f.head) is wanted] for wanted in (True, False))
        return [_module(own, others, more) for own, others in ((rest, apart), (apart, rest)) if own]

    # -- instructions -------------------------------------------------------------------------------------------------
    def do(self, text: str) -> None:
        self.lines.append("  " + text)

    def new(self, text: str) -> str:
        self.count += 1
        self.do(f"%v{self.count} = {text}")
        return f"%v{self.count}"

    def op(self, opcode: str, kind: str, *operands: Value) -> str:
        flags = self.flags if opcode[0] == "f" and opcode != "freeze" else ""
        return self.new(f"{opcode} {flags}{kind} {', '.join(map(str, operands))}")

    def add(self, *terms: Value) -> Value:
        total: Value = terms[0]
        for t in terms[1:]:
            if isinstance(total, int) and isinstance(t, int):
                total += t
            elif t != 0:
                total = t if total == 0 else self.op("add", "i64", total, t)
        return total

    def sub(self, a: Value, b: Value) -> str:
        return self.op("sub", "i64", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        return a if b == 1 else b if a == 1 else self.op("mul", "i64", a, b)

    def compare(self, how: str, kind: str, a: Value, b: Value) -> str:
        return self.new(f"{'fcmp' if re.search('float|double', kind) else 'icmp'} {how} {kind} {a}, {b}")

    def select(self, condition: str, kind: str, a: Value, b: Value) -> str:
        return self.new(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    def convert(self, how: str, kind: str, value: Value, to: str) -> str:
        """Convert by an instruction such as trunc, sext or bitcast."""
        return self.new(f"{how} {kind} {value} to {to}")

    # -- calls --------------------------------------------------------------------------------------------------------
    def call(self, kind: str, function: str | Function, *arguments: str, flags: str = "") -> str:
        """Call with arguments like "ptr %a"; return the result's name, unless `kind` is void. A symbol (@close) is declared as it is called;
        one with any number of arguments has them in its kind: i64 (i64, ...)."""
        if isinstance(function, Function):
            function = self.bring(function)
        elif function.startswith("@"):
            result, _, taken = kind.partition(" (")
            self.declare(function, result, taken.rstrip(")") or ", ".join(map(_kind, arguments)))
        text = f"call {flags}{kind} {function}({', '.join(arguments)})"
        if kind != "void":
            return self.new(text)
        self.do(text)
        return ""

    def bring(self, function: Function) -> str:
        """Add another function to the module; return its symbol."""
        known = self.needs.setdefault(function.symbol, function)
        _same(known, function)
        return function.symbol

    def declare(self, symbol: str, result: str, taken: str, attributes: str = "nounwind nonlazybind") -> None:
        end = "" if symbol.startswith("@llvm.") else f" {attributes}"
        self.needs.setdefault(symbol, f"declare {result} {symbol}({taken}){end}")

    def outside(self, name: str, kind: str = "i8") -> str:
        """Return the address of a variable that is defined elsewhere."""
        self.needs[f"@{name}"] = f"@{name} = external global {kind}"
        return f"@{name}"

    def letters(self, name: str, text: str) -> str:
        """Return the address of a text that ends with a zero."""
        self.needs[f"@{name}"] = f'@{name} = private constant [{len(text) + 1} x i8] c"{text}\\00"'
        return f"@{name}"

    def intrinsic(self, name: str, kind: str, *operands: Value, extra: str = "", flags: str = "") -> str:
        """Call llvm.<name>.<kind>; `extra` is a trailing immediate such as the i1 of llvm.abs."""
        suffix = re.sub(r"<(\d+) x (\w+)>", lambda m: f"v{m[1]}{_SUFFIXES.get(m[2], m[2])}", _SUFFIXES.get(kind, kind))
        arguments = [*(f"{kind} {x}" for x in operands), *([extra] if extra else ())]
        return self.call(
            kind, f"@llvm.{name}.{suffix}", *arguments, flags=self.flags or flags if suffix != kind else ""
        )

    def libm(self, name: str, kind: str, *operands: str) -> str:
        """Call the C library, one element at a time: right for every input, but not vectorised."""
        symbol = f"@{name}{'f' if kind == 'float' else ''}"
        pure = "nounwind willreturn memory(none) nonlazybind"
        self.declare(symbol, kind, ", ".join([kind] * len(operands)), pure)
        return self.call(kind, symbol, *(f"{kind} {x}" for x in operands))

    # -- memory -------------------------------------------------------------------------------------------------------
    def slot(self, kind: str, align: int = 64) -> str:
        """Allocate a stack slot and return its address."""
        self.count += 1
        self.slots.append(f"  %s{self.count} = alloca {kind}, align {align}")
        return f"%s{self.count}"

    def variable(self, kind: str, value: Value) -> str:
        """Return the address of a new slot that holds a value; the optimiser makes a register of it."""
        place = self.slot(kind, 8)
        self.write(kind, value, place)
        return place

    def place(self, pointer: str, index: Value, kind: str = "i64") -> str:
        """Return the address of an element."""
        return pointer if index == 0 else self.new(f"getelementptr {kind}, ptr {pointer}, i64 {index}")

    def read(self, kind: str, pointer: str, order: str = "") -> str:
        """Read from memory; atomically if an order such as acquire is given."""
        if order:
            return self.new(f"load atomic {kind}, ptr {pointer} {order}, align {_ALIGNED[kind]}")
        return self.new(f"load {kind}, ptr {pointer}")

    def write(self, kind: str, value: Value, pointer: str, order: str = "") -> None:
        if order:
            self.do(f"store atomic {kind} {value}, ptr {pointer} {order}, align {_ALIGNED[kind]}")
        else:
            self.do(f"store {kind} {value}, ptr {pointer}")

    def item(self, table: str, index: Value, kind: str = "i64") -> str:
        """Read the entry at an index of a table of 64-bit words."""
        return self.read(kind, self.place(table, index))

    def change(self, how: str, kind: str, pointer: str, value: Value, order: str) -> str:
        """Apply add, sub, or, min, ... to memory atomically; return the old value."""
        return self.new(f"atomicrmw {how} ptr {pointer}, {kind} {value} {order}")

    def swap(self, kind: str, pointer: str, expected: Value, value: Value, order: str) -> str:
        """Write a value atomically if memory has the expected one; return whether it had."""
        pair = self.new(f"cmpxchg ptr {pointer}, {kind} {expected}, {kind} {value} {order} monotonic")
        return self.new(f"extractvalue {{ {kind}, i1 }} {pair}, 1")

    # -- control ------------------------------------------------------------------------------------------------------
    def fresh(self, hint: str) -> str:
        """Return a label that no block has yet."""
        self.count += 1
        return f"{hint}{self.count}"

    def label(self, name: str) -> None:
        """Begin a block; the one before continues here, if it has no end yet."""
        self.go(name)
        self.lines.append(f"{name}:")
        self.here = name

    def go(self, label: str, metadata: str = "") -> None:
        if self.here:
            self.do(f"br label %{label}{metadata}")
        self.here = ""

    def choose(self, condition: str, yes: str, no: str) -> None:
        """Branch to one of two labels."""
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")
        self.here = ""

    def ret(self, kind: str = "void", value: Value = "") -> None:
        self.do(f"ret {kind} {value}".rstrip())
        self.here = ""

    @contextlib.contextmanager
    def loop(self, stop: Value, start: Value = 0, step: Value = 1) -> Iterator[Index]:
        """Run the body for each number from `start` to `stop`, if there is any."""
        self.count += 1
        n, before = self.count, self.here
        index = Index(f"%i{n}")
        index.step = step
        self.label(f"head{n}")
        self.do(f"%i{n} = phi i64 [ {start}, %{before} ], [ %n{n}, %latch{n} ]")
        self.choose(self.compare("slt", "i64", index, stop), f"body{n}", f"end{n}")
        self.label(f"body{n}")
        yield index
        self.label(f"latch{n}")
        self.do(f"%n{n} = add i64 %i{n}, {index.step}")
        self.go(f"head{n}")
        self.label(f"end{n}")

    @contextlib.contextmanager
    def forever(self) -> Iterator[str]:
        """Run the body repeatedly, until it branches to the label that is yielded, or returns."""
        again, end = self.fresh("again"), self.fresh("over")
        self.label(again)
        yield end
        self.go(again)
        self.label(end)

    @contextlib.contextmanager
    def when(self, condition: str) -> Iterator[None]:
        then, after = self.fresh("then"), self.fresh("after")
        self.choose(condition, then, after)
        self.label(then)
        yield
        self.label(after)


def _module(functions: list[Function], others: list[Function], more: tuple[str, ...]) -> str:
    """Return the text of a module; functions that `others`, of another module, call are linked by their symbols."""
    called, defined = {symbol for f in others for symbol in f.needs}, {f.symbol for f in functions}
    texts = [
        f.text().replace("define internal", "define hidden") if f.symbol in called else f.text() for f in functions
    ]
    elsewhere = {symbol: need for f in functions for symbol, need in f.needs.items() if symbol not in defined}
    heads = (
        need if isinstance(need, str) else need.head.partition(")")[0] + ") nounwind" for need in elsewhere.values()
    )
    declared = [head.replace("define internal", "declare hidden") for head in heads]
    return "\n".join([*texts, *declared, *_FLAGS, *(more if any("!" in t for t in texts) else ()), ""])


def _same(known: str | Function, other: Function) -> None:
    if known is not other and (isinstance(known, str) or known.text() != other.text()):
        raise ValueError(f"{other.symbol} is the name of two functions")


def _kind(argument: str) -> str:
    """Return the type in the text of an argument."""
    return argument[: argument.index(">") + 1] if argument[0] == "<" else argument.split(" ", 1)[0]
