"""A function of LLVM, written instruction by instruction: for native code that is no loop nest of the kernels' language.

>>> f = Function("define i64 @total(ptr %numbers, i64 %count)")
>>> total = f.slot("i64")
>>> f.write("i64", 0, total)
>>> with f.loop("%count") as i:
...     f.write("i64", f.add(f.read("i64", total), f.item("%numbers", i)), total)
>>> f.ret("i64", f.read("i64", total))
>>> f.text().startswith("define i64 @total")
True
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

Value = str | int


class Index(str):
    """The number of a loop's turn. The body may set what is added to it after this turn."""

    step: Value = 1


class Function:
    """Instructions of one function; methods that compute return the name of their value."""

    def __init__(self, head: str):
        self.head = head
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.count = 0
        self.here = "start"  # the block that is being written; "" after a return

    def text(self) -> str:
        if self.here:
            self.ret()
        return "\n".join([self.head + " {", *self.slots, "  br label %start", "start:", *self.lines, "}", ""])

    # -- instructions -------------------------------------------------------------------------------------------------
    def do(self, text: str) -> None:
        self.lines.append("  " + text)

    def new(self, text: str) -> str:
        self.count += 1
        self.do(f"%v{self.count} = {text}")
        return f"%v{self.count}"

    def slot(self, kind: str, align: int = 64) -> str:
        """Allocate a stack slot and return its address."""
        self.count += 1
        self.slots.append(f"  %s{self.count} = alloca {kind}, align {align}")
        return f"%s{self.count}"

    def add(self, *terms: Value) -> Value:
        total: Value = terms[0]
        for t in terms[1:]:
            if isinstance(total, int) and isinstance(t, int):
                total += t
            elif t != 0:
                total = t if total == 0 else self.new(f"add i64 {total}, {t}")
        return total

    def mul(self, a: Value, b: Value) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        return a if b == 1 else b if a == 1 else self.new(f"mul i64 {a}, {b}")

    def compare(self, how: str, kind: str, a: Value, b: Value) -> str:
        return self.new(f"icmp {how} {kind} {a}, {b}")

    def call(self, kind: str, function: str, *arguments: str) -> str:
        """Call with arguments like "ptr %a"; the result's name, unless `kind` is void."""
        text = f"call {kind} {function}({', '.join(arguments)})"
        if kind != "void":
            return self.new(text)
        self.do(text)
        return ""

    # -- memory -------------------------------------------------------------------------------------------------------
    def place(self, pointer: str, index: Value, kind: str = "i64") -> str:
        """Return the address of an element."""
        return pointer if index == 0 else self.new(f"getelementptr {kind}, ptr {pointer}, i64 {index}")

    def read(self, kind: str, pointer: str) -> str:
        return self.new(f"load {kind}, ptr {pointer}")

    def write(self, kind: str, value: Value, pointer: str) -> None:
        self.do(f"store {kind} {value}, ptr {pointer}")

    def item(self, table: str, index: Value, kind: str = "i64") -> str:
        """Read what a table of 64-bit words has at an index."""
        return self.read(kind, self.place(table, index))

    # -- control ------------------------------------------------------------------------------------------------------
    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.here = name

    def go(self, label: str) -> None:
        if self.here:
            self.do(f"br label %{label}")

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
        self.go(f"head{n}")
        self.label(f"head{n}")
        self.do(f"%i{n} = phi i64 [ {start}, %{before} ], [ %n{n}, %latch{n} ]")
        self.do(f"%m{n} = icmp slt i64 %i{n}, {stop}")
        self.do(f"br i1 %m{n}, label %body{n}, label %end{n}")
        self.label(f"body{n}")
        yield index
        self.go(f"latch{n}")
        self.label(f"latch{n}")
        self.do(f"%n{n} = add i64 %i{n}, {index.step}")
        self.go(f"head{n}")
        self.label(f"end{n}")

    @contextlib.contextmanager
    def when(self, condition: str) -> Iterator[None]:
        self.count += 1
        n = self.count
        self.do(f"br i1 {condition}, label %then{n}, label %after{n}")
        self.label(f"then{n}")
        yield
        self.go(f"after{n}")
        self.label(f"after{n}")


__all__ = ["Function", "Index", "Value"]
