"""A captured program as C: one function that creates the model (memory, oneDNN's primitives), one that runs it, and their header."""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
from collections.abc import Iterator
from typing import Any

from ..backends.cpu import jit, signals, team
from ..backends.cpu.onednn import library as dnnl
from ..backends.cpu.onednn.direct import DirectProduct
from ..backends.cpu.onednn.plan import PrimitivePlan
from ..backends.cpu.onednn.sequence import HIDES
from ..compiler.record.recording import extent
from ..compiler.record.steps import MEMCPY, MEMSET, Launch, Ref, Test
from . import c_templates as templates
from .capture import Captured, NotExportable
from .native_model import DESCRIPTION
from .onednn_log import Made, needed

_C_TYPES = {
    "p": "void *", "l": "int64_t", "L": "uint64_t", "i": "int32_t", "I": "uint32_t", "s": "int16_t", "S": "uint16_t", "c": "int8_t",
    "B": "uint8_t", "b": "uint8_t", "d": "double", "f": "float",
}  # fmt: skip
_ALIGNMENT = 64
_EXTERN = re.compile(r"extern ([\w ]+?\*?)\s*(dnnl_\w+)\((.*)\);")


class CProgram:
    """The parts of the C file, collected step by step."""

    def __init__(self, captured: Captured, name: str, threads: int) -> None:
        self.captured, self.name, self.threads = captured, name, threads
        self.kernels: dict[int, str] = {}  # names of compiled kernels by address
        self.signatures: dict[str, str] = {}
        self.constants: list[str] = []
        self.weights: dict[int, int] = {}  # place of each buffer of the model's in the file of weights
        self.weight_bytes = bytearray()
        self.workspace = 0
        self.plans: list[PrimitivePlan] = []
        self.uses_onednn = False
        self._wanted: list[Made] = []  # oneDNN's objects that steps name
        self._objects: list[Made] = []  # and those they are made of, numbered
        self._arrays: dict[int, int] = {}  # numbers of the arrays of arguments of primitives, by address
        self._argument_counts: list[int] = []
        self._filling: list[str] = []
        self.direct_results: dict[int, int] = {}  # buffers that are written straight into the caller's memory
        self.own_results: dict[int, int] = {}  # and those that are copied: their places after the arena
        self.arena = captured.program.arena_size
        self._place_results()
        self.body = [self._step(step) for step in captured.graph.steps]

    # -- memory -----------------------------------------------------------------------------------------------------
    def _place_results(self) -> None:
        buffers = self.captured.graph.buffers
        for i, output in enumerate(self.captured.outputs):
            alone = sum(o.buffer == output.buffer for o in self.captured.outputs) == 1
            if alone and output.offset == 0 and buffers[output.buffer].size - _bytes(output) < _ALIGNMENT:
                self.direct_results[output.buffer] = i
        for index in self.captured.program.results:
            if index not in self.direct_results:
                self.own_results[index] = self._reserve(buffers[index].size)

    def _reserve(self, size: int) -> int:
        start = -(-self.arena // _ALIGNMENT) * _ALIGNMENT
        self.arena = start + max(size, 1)
        return start

    def _place(self, ref: Ref) -> str:
        program, buffer = self.captured.program, self.captured.graph.buffers[ref.buffer]
        if ref.buffer in program.offsets:
            return f"arena + {program.offsets[ref.buffer] + ref.offset}"
        if ref.buffer in program.arguments:
            position, shift = program.arguments[ref.buffer]
            return f"(char *)in[{position}] + {ref.offset - shift}"
        if ref.buffer in self.own_results:
            return f"arena + {self.own_results[ref.buffer] + ref.offset}"
        if ref.buffer in self.direct_results:
            return f"(char *)out[{self.direct_results[ref.buffer]}] + {ref.offset}"
        if buffer.source == "state":
            return f"weights + {self._weight(ref.buffer) + ref.offset}"
        if buffer.source == "workspace":
            self.workspace = max(self.workspace, buffer.size)
            return f"workspace + {ref.offset}"
        raise NotExportable(f"a step uses memory that only Python has: {buffer.source}")

    def _weight(self, index: int) -> int:
        if index not in self.weights:
            buffer = self.captured.graph.buffers[index]
            self.weight_bytes += bytes(-len(self.weight_bytes) % _ALIGNMENT)
            self.weights[index] = len(self.weight_bytes)
            size = buffer.size if buffer.storage is None else min(buffer.size, buffer.storage.size_bytes)
            self.weight_bytes += ctypes.string_at(buffer.address, size)
            self.weight_bytes += bytes(buffer.size - size)
        return self.weights[index]

    # -- steps ------------------------------------------------------------------------------------------------------
    def _step(self, step: Any) -> str:
        if isinstance(step, Test):
            kind = {1: "int8_t", 4: "int32_t", 8: "int64_t"}[step.size]
            place = f"*({kind} *)({self._place(step.place)})"
            text = str(step.error) if step.error is not None else f"{step.name}: an index is out of range"
            return f"if ({place}) {{ {place} = 0; return fail(m, {_string(text)}); }}"
        assert isinstance(step, Launch)
        if isinstance(step.plan, DirectProduct):
            return self._product(step)
        if step.plan is not None:
            return self._primitives(step)
        given = [self._value(letter, a) for letter, a in zip(step.signature, step.arguments)]
        return f"{self._function(step)}({', '.join(given)});"

    def _function(self, step: Launch) -> str:
        if step.address in (MEMSET, MEMCPY):
            return "memset" if step.address == MEMSET else "memcpy"
        if step.address not in jit.sources:
            raise NotExportable(f"{step.name} calls a library that cannot be linked")
        if step.address not in self.kernels:
            self.kernels[step.address] = f"{self.name}_k{len(self.kernels)}"
            self.signatures[self.kernels[step.address]] = step.signature
        return self.kernels[step.address]

    def _value(self, letter: str, value: Any) -> str:
        if type(value) is Ref:
            return self._place(value)
        if value is None:
            return "0"
        if isinstance(value, bytes):
            return self._constant(value)
        if letter in "df":
            return _number(float(value))
        if int(value) == -(1 << 63):
            return "INT64_MIN"
        return f"{int(value)}{ {'L': 'ull', 'l': 'll'}.get(letter, '') }"

    def _constant(self, data: bytes) -> str:
        name = f"c{len(self.constants)}"
        words = ", ".join(map(str, data)) or "0"
        self.constants.append(f"static const unsigned char {name}[] __attribute__((aligned(64))) = {{{words}}};")
        return f"(void *){name}"

    def _product(self, step: Launch) -> str:
        self.uses_onednn = True
        table = step.plan.table
        pointers = [self._value("p", a) for a in step.arguments[1:5]]
        letters = f"'{chr(table[4])}', '{chr(table[5])}'"
        numbers = ", ".join(f"{table[i]}ll" for i in range(6, 12))
        return f"if (multiply(m, {letters}, {numbers}, {table[12]}, {int(bool(table[1]))}, {', '.join(pointers)})) return 1;"

    def _primitives(self, step: Launch) -> str:
        self.uses_onednn = True
        plan = step.plan
        if plan not in self.plans:
            self.plans.append(plan)
            self.workspace = max(self.workspace, plan.scratch_size)
        pointers = [self._value("p", a) for a in step.arguments[1 : 1 + len(plan.user_memories)]]
        lines = [f"if (bind(m, {self._object(a)}, {p})) return 1;" for a, p in zip(plan.user_memories, pointers)]
        for primitive, _, array in plan.steps:
            number = self._arguments(plan, array)
            lines.append(
                f"if (execute(m, {self._object(primitive)}, m->a{number}, {self._argument_counts[number]}, {plan.table[HIDES]})) return 1;"
            )
        return "\n    ".join(lines)

    # -- oneDNN's objects -------------------------------------------------------------------------------------------
    def _created_object(self, address: int) -> Made:
        assert self.captured.log is not None
        return self.captured.log.at[address]

    def _object(self, address: int) -> str:
        made = self._created_object(address)
        if made not in self._wanted:
            self._wanted.append(made)
        return f"m->o[@{id(made)}@]"  # numbered when all are known

    def _arguments(self, plan: PrimitivePlan, array: int) -> int:
        if array not in self._arrays:
            words = next(a for a in plan._parts.arrays if ctypes.addressof(a) == array)
            number = self._arrays[array] = len(self._argument_counts)
            self._argument_counts.append(len(words) // 2)
            for k in range(0, len(words), 2):
                self._filling.append(
                    f"m->a{number}[{k // 2}].arg = {words[k]}; m->a{number}[{k // 2}].memory = {self._object(words[k + 1])};"
                )
        return self._arrays[array]

    def _insert_numbers(self, text: str) -> str:
        table = {str(id(one)): str(one.number) for one in self._objects}
        return re.sub(r"@(\d+)@", lambda found: table[found[1]], text)

    def _creation_code(self) -> list[str]:
        """Return the calls that create oneDNN's objects."""
        lines, alone = [], None
        for one in self._objects:
            given = ", ".join(self._given(a) for a in one.arguments)
            target = f"m->o[{one.number}]"
            if one.alone != alone and one.function != "query":
                alone = one.alone
                lines.append(f"omp_set_num_threads({1 if alone else 'm->threads'});")
            if one.function == "query":
                lines.append(f"{target} = (void *)dnnl_primitive_desc_query_md({given});")
            else:
                lines.append(f"CHECK(dnnl_{one.function}(&{target}, {given}));")
            lines += [f"CHECK(dnnl_primitive_desc_next_impl({target}));"] * one.skipped
        return lines

    @staticmethod
    def _loading_code() -> str:
        """Return code that looks up oneDNN's functions when the first model is created."""
        path = dnnl.library().path
        text = templates.ONEDNN_LOADING.replace("FILE", os.path.basename(path)).replace("PATH", path)
        names = [name for _, name, _ in _EXTERN.findall(templates.template("onednn.h"))]
        return "\n  ".join([text, *(f'FIND({name}, libdnnl, "{name}")' for name in names)])

    def _destruction_code(self) -> str:
        """Return code that destroys oneDNN's objects in reverse order; results of queries belong to the queried object."""
        lines = []
        for one in reversed(self._objects):
            kind = next((k for k in ("memory_desc", "primitive_desc", "memory", "primitive") if k in one.function), "")
            if one.function != "query":
                lines.append(f"  if (m->o[{one.number}]) dnnl_{kind}_destroy(m->o[{one.number}]);")
        return "\n".join([*lines, *(templates.ONEDNN_END if self.uses_onednn else ())])

    def _given(self, value: Any) -> str:
        if isinstance(value, Made):
            known = {"engine": "m->engine", "stream": "m->stream", "attributes": "m->attributes"}
            return known.get(value.function) or f"m->o[{value.number}]"
        if isinstance(value, list):
            return f"(int64_t[12]){{{', '.join(map(str, value))}}}"
        return "0" if value is None else str(value)

    # -- text -------------------------------------------------------------------------------------------------------
    def objects(self) -> Iterator[tuple[str, bytes]]:
        """Yield object files: one for each kernel, and one that runs their loops in threads."""
        for address, name in self.kernels.items():
            text, entry = jit.kernel_text(address)
            text = re.sub(rf"@{re.escape(entry)}\b", f"@{name}", text)
            yield name, jit.object_code(self._own_names(text))
        yield f"{self.name}_threads", jit.object_code(self._own_names(team.parallel().module()))

    def _own_names(self, text: str) -> str:
        """Make symbol names unique, so that two libraries can be linked into one program."""
        own = re.sub(r"@flambeau_(parallel|num_threads|team)\b", rf"@{self.name}_\1", text)
        return re.sub(r"@(GOMP_parallel|omp_get_num_threads|omp_get_thread_num)\b", rf"@{self.name}_\1", own)

    def source(self, weights: str | None) -> str:
        """Return the C file. `weights` is the file to embed, or None if they are read from a file next to the library."""
        declarations = [
            f"extern void {n}({', '.join(_C_TYPES[c] for c in s) or 'void'});" for n, s in self.signatures.items()
        ]
        fields = [f"  dnnl_exec_arg_t a{i}[{n}];" for i, n in enumerate(self._argument_counts)]
        scratch = [
            f"if (bind(m, {self._object(a)}, m->workspace + {at})) return 1;" for p in self.plans for a, at in p.scratch
        ]
        self._objects = needed(self._wanted)
        made = [*self._creation_code(), *self._filling, *scratch]
        copies = [
            f"memcpy(out[{i}], arena + {self.own_results[o.buffer] + o.offset}, {_bytes(o)});"
            for i, o in enumerate(self.captured.outputs)
            if o.buffer in self.own_results
        ]
        values = {
            "name": self.name,
            "team_key": team.KEY,
            "NAME": self.name.upper(),
            "constants": "\n".join(self.constants),
            "kernels": "\n".join(declarations),
            "fields": "\n".join(fields),
            "objects": max(len(self._objects), 1),
            "arena": max(self.arena, 1),
            "workspace": max(self.workspace, 1),
            "weight_bytes": len(self.weight_bytes),
            "weights": templates.BESIDE
            if weights is None
            else templates.EMBEDDED.replace("FILE", weights).replace("NAME", self.name),
            "embedded": int(weights is not None),
            "onednn_types": _EXTERN.sub(r"static \1(*\2)(\3);", templates.template("onednn.h"))
            if self.uses_onednn
            else "",
            "loading": self._loading_code() if self.uses_onednn else "",
            "onednn_calls": self._call_functions() if self.uses_onednn else "",
            "create": "(void)m;"
            if not self.uses_onednn
            else templates.ONEDNN_START + "  " + self._insert_numbers("\n  ".join(made)),
            "destroy": self._destruction_code(),
            "threads": self.threads,
            "body": self._insert_numbers("\n    ".join([*self.body, *copies])),
        }
        return re.sub(r"\$\{(\w+)\}", lambda found: str(values[found[1]]), templates.template("model.c"))

    def _call_functions(self) -> str:
        """Return C functions that run oneDNN's primitives and matrix products."""
        text = templates.template("onednn_calls.c").replace("${name}", self.name)
        return text.replace("${longest_on_stack}", str(signals.LONGEST_ON_STACK))

    def description(self) -> str:
        """Return C text that describes inputs and outputs, for programs that load the library at run time."""
        sides = ([[list(t.shape), t.dtype.name] for t in ts] for ts in (self.captured.inputs, self.captured.outputs))
        told = json.dumps(dict(zip(("name", "inputs", "outputs"), (self.name, *sides), strict=True)))
        return f"\nconst char {DESCRIPTION}[] = {json.dumps(told)};\n"

    def header(self) -> str:
        """Return the C header, with the sizes of inputs and outputs."""
        upper, lines = self.name.upper(), []
        sides: list[tuple[str, list]] = [("INPUT", [(t.shape, t.dtype, extent(t)) for t in self.captured.inputs])]
        sides.append(("OUTPUT", [(o.shape, o.dtype, _bytes(o)) for o in self.captured.outputs]))
        for side, tensors in sides:
            lines.append(f"#define {upper}_{side}S {len(tensors)}")
            for i, (shape, dtype, size) in enumerate(tensors):
                lines.append(f"#define {upper}_{side}_{i}_SHAPE {{{', '.join(map(str, shape)) or '1'}}}")
                lines.append(f"#define {upper}_{side}_{i}_DIMS {len(shape)}")
                lines.append(f"#define {upper}_{side}_{i}_TYPE {dtype.c_type} /* {dtype.name} */")
                lines.append(f"#define {upper}_{side}_{i}_BYTES {size}")
        lines.append(f"#define {upper}_THREADS {self.threads} /* used where 0 is given to {self.name}_create */")
        lines.append(
            f"#define {upper}_WORKSPACE_BYTES {self.arena + self.workspace} /* memory of each model besides its weights */"
        )
        lines.append(f"#define {upper}_WEIGHTS_BYTES {len(self.weight_bytes)}")
        return (
            templates.template("model.h")
            .replace("${facts}", "\n".join(lines))
            .replace("${name}", self.name)
            .replace("${NAME}", upper)
        )

    def wrapper(self) -> str:
        """Return the C++ header: a class that holds the model."""
        upper = self.name.upper()
        inputs = [f"const {t.dtype.c_type} *input{i}" for i, t in enumerate(self.captured.inputs)]
        outputs = [f"{o.dtype.c_type} *output{i}" for i, o in enumerate(self.captured.outputs)]
        text = templates.template("model.hpp").replace("${parameters}", ", ".join([*inputs, *outputs]))
        text = text.replace("${inputs}", ", ".join(f"input{i}" for i in range(len(inputs))) or "nullptr")
        text = text.replace("${outputs}", ", ".join(f"output{i}" for i in range(len(outputs))) or "nullptr")
        return text.replace("${name}", self.name).replace("${NAME}", upper)


def _bytes(output: Any) -> int:
    count = output.dtype.itemsize
    for n in output.shape:
        count *= n
    return count


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _number(value: float) -> str:
    """Write a number as a C literal, exactly."""
    if math.isnan(value):
        return "NAN"
    return value.hex() if math.isfinite(value) else "INFINITY" if value > 0 else "-INFINITY"
