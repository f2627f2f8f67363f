"""Common part of CUDA schedules: the text of formulas on loaded values, operands as parameters, layouts passed by value, and how a
position becomes an offset without dividing."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..core.dtype import dtype, opmath
from ..expr.complex_functions import Pair
from ..expr.complex_parts import Parts, is_complex
from ..expr.node import Expr, substitute
from . import ir
from .cuda_values import loaded, memory_type, stored, value_type
from .elementwise import PASSED
from .emit_cuda import Function

BLOCK = 256
_LIMIT = 1 << 31


class Device(Protocol):
    """Protocol of a GPU with what a program needs of it."""

    processors: int

    def load(self, source: str) -> Any:
        """Return a compiled module; `module.function(name, kinds)` is f(grid, block, *values), which launches. A kind is "q" (an address or a
        64-bit integer), "d" (a double), "i" (a 32-bit integer) or the number of bytes of a struct passed by value."""

    def scratch(self, nbytes: int) -> int:
        """Return the address of scratch memory for the launches that follow at once."""


def device_function(name: str, roots: tuple[Expr, ...], in_dtypes: tuple[dtype, ...], outs: tuple[dtype, ...]) -> str:
    """Return the text of `void name(a0, a1, ..., &r0, &r1, ...)`: the formulas on values that are already loaded."""
    if any(is_complex(r, in_dtypes) for r in roots) or any(d.is_complex for d in (*in_dtypes, *outs)):
        return _complex_function(name, roots, in_dtypes, outs)
    writer = Function(name, ir.Kernel(name, [], []))

    def named(x: Expr) -> Expr | None:
        return ir.var(f"a{x.args[0]}", opmath(in_dtypes[x.args[0]])) if x.op == "arg" else None

    arguments = [f"{value_type(d)} a{i}" for i, d in enumerate(in_dtypes)]
    writer.symbols.update({f"a{i}": f"a{i}" for i in range(len(in_dtypes))})
    results = []
    for k, (root, out) in enumerate(zip(substitute(roots, named), outs, strict=True)):
        arguments.append(f"{value_type(out)}& r{k}")
        results.append(f"  r{k} = {writer.value(root, opmath(out))};")
    return _finished(name, writer, arguments, results)


def _complex_function(name: str, roots: tuple[Expr, ...], in_dtypes: tuple[dtype, ...], outs: tuple[dtype, ...]) -> str:
    writer = Function(name, ir.Kernel(name, [], []))
    for i in range(len(in_dtypes)):
        writer.symbols.update({f"a{i}{part}": f"a{i}{part}" for part in ("", ".re", ".im")})

    def leaf(x: Expr) -> Pair:
        real, i = in_dtypes[x.args[0]].to_real(), x.args[0]
        return Pair(ir.var(f"a{i}.re", real), ir.var(f"a{i}.im", real))

    parts = Parts(leaf, lambda x: ir.var(f"a{x.args[0]}", opmath(in_dtypes[x.args[0]])), in_dtypes)
    arguments = [f"{value_type(d)} a{i}" for i, d in enumerate(in_dtypes)]
    results = []
    for k, (root, out) in enumerate(zip(roots, outs, strict=True)):
        arguments.append(f"{value_type(out)}& r{k}")
        if out.is_complex:
            z, real = parts.pair(root, out), out.to_real()
            results += [f"  r{k}.re = {writer.value(z.re, real)};", f"  r{k}.im = {writer.value(z.imaginary, real)};"]
        else:
            results.append(f"  r{k} = {writer.value(parts.real(root, opmath(out)), opmath(out))};")
    return _finished(name, writer, arguments, results)


def _finished(name: str, writer: Function, arguments: list[str], results: list[str]) -> str:
    header = f"static __device__ __forceinline__ void {name}({', '.join(arguments)}) {{"
    return "\n".join([*writer.helpers, header, *writer.lines, *results, "}", ""])


@dataclass
class Operands:
    """Names and text of the operands of a schedule: out0, out1, ..., in0, in1, ..."""

    in_dtypes: tuple[dtype, ...]
    out_dtypes: tuple[dtype, ...]
    in_kinds: str

    def __post_init__(self) -> None:
        self.inputs = [i for i, kind in enumerate(self.in_kinds) if kind not in PASSED]
        self.pointers = [f"out{k}" for k in range(len(self.out_dtypes))] + [f"in{i}" for i in self.inputs]
        self.dtypes = {f"out{k}": d for k, d in enumerate(self.out_dtypes)}
        self.dtypes |= {f"in{i}": d for i, d in enumerate(self.in_dtypes)}

    def parameters(self) -> list[str]:
        texts = [f"{memory_type(d)}* out{k}" for k, d in enumerate(self.out_dtypes)]
        for i, (kind, d) in enumerate(zip(self.in_kinds, self.in_dtypes, strict=True)):
            if kind == "z":
                texts += [f"double in{i}_re", f"double in{i}_im"]
            elif kind in PASSED:
                texts.append(f"{'double' if kind == 'd' else 'i64'} in{i}")
            else:
                texts.append(f"const {memory_type(d)}* in{i}")
        return texts

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds in which the parameters are passed."""
        passed = {"d": ("d",), "l": ("q",), "z": ("d", "d")}
        return ("q",) * len(self.out_dtypes) + tuple(k for kind in self.in_kinds for k in passed.get(kind, ("q",)))

    def passed(self, i: int) -> str:
        """Return the text of a number passed by value, in the dtype of its operand."""
        t = value_type(self.in_dtypes[i])
        if self.in_kinds[i] == "z":
            return f"{t}(in{i}_re, in{i}_im)"
        return f"({t})in{i}"

    def load(self, i: int, text: str) -> str:
        return loaded(text, self.in_dtypes[i])

    def store(self, k: int, text: str) -> str:
        return stored(text, self.out_dtypes[k])


# --- layouts --------------------------------------------------------------------------------------------------------


def fast_divisor(d: int) -> tuple[int, int]:
    """Return numbers m and s with x // d == (high half of x * m + x) >> s for every 0 <= x < 2**31."""
    shift = (d - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - d)) // d + 1, shift


def fits(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> bool:
    """Return whether positions and every operand's offsets fit into 31 bits."""
    count = 1
    for n in sizes:
        count *= n
    return count < _LIMIT and all(sum((n - 1) * abs(s) for n, s in zip(sizes, each)) < _LIMIT for each in strides)


class Layout:
    """The struct with sizes and strides of one set of dimensions, and the text that reads it. Narrow layouts have 32-bit numbers."""

    def __init__(self, prefix: str, names: Sequence[str], rank: int, narrow: bool):
        self.prefix, self.names, self.rank, self.narrow = prefix, list(names), rank, narrow
        self.offset = "int" if narrow else "i64"
        self.index = "unsigned" if narrow else "unsigned long long"

    def fields(self) -> str:
        if not self.rank:
            return ""
        fields = [f"{self.index} {self.prefix}_size[{self.rank}];"]
        if self.narrow:
            fields += [f"unsigned {self.prefix}_magic[{self.rank}], {self.prefix}_shift[{self.rank}];"]
        fields += [f"{self.offset} {self.prefix}_{n}[{self.rank}];" for n in self.names]
        return " ".join(fields)

    def pack(self, sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> bytes:
        if not self.narrow:
            return struct.pack(f"<{self.rank * (1 + len(strides))}q", *sizes, *(s for each in strides for s in each))
        divisors = [fast_divisor(max(n, 1)) for n in sizes]
        numbers = [*sizes, *(m for m, _ in divisors), *(s for _, s in divisors)]
        flat = [s for each in strides for s in each]
        return struct.pack(f"<{len(numbers)}I{len(flat)}i", *numbers, *flat)

    def locate(self, position: str, names: Sequence[str] | None = None, start: dict[str, str] | None = None) -> str:
        """Return text that declares the offset `<name>_at` of a position for each operand; offsets begin at `start`."""
        wanted = self.names if names is None else list(names)
        p, begin = self.prefix, start or {}
        lines = [f"{self.offset} {n}_at = {begin.get(n, '0')};" for n in wanted]
        if not self.rank:
            return " ".join(lines)
        lines.append(f"{self.index} {p}_left = ({self.index})({position});")
        for d in reversed(range(1, self.rank)):
            if self.narrow:
                quotient = f"(__umulhi({p}_left, g.{p}_magic[{d}]) + {p}_left) >> g.{p}_shift[{d}]"
            else:
                quotient = f"{p}_left / g.{p}_size[{d}]"
            lines.append(f"const {self.index} {p}_q{d} = {quotient};")
            lines.append(f"const {self.offset} {p}_c{d} = ({self.offset})({p}_left - {p}_q{d} * g.{p}_size[{d}]);")
            lines.append(f"{p}_left = {p}_q{d};")
            lines += [f"{n}_at += {p}_c{d} * g.{p}_{n}[{d}];" for n in wanted]
        lines += [f"{n}_at += ({self.offset}){p}_left * g.{p}_{n}[0];" for n in wanted]
        return " ".join(lines)
