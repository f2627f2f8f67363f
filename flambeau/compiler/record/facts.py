"""A recording as a form and numbers: two recordings of one form differ in sizes only, and each number is a function of these.

The form is everything that must be equal at all sizes: kernels, which buffer is which argument of a step, dtypes, the structure of the
result. The numbers are counts, strides, offsets, sizes of memory, each with the place where a program stores it."""

from __future__ import annotations

import struct
from typing import Any

from ...backends.cpu.onednn import direct
from ...core.tensor import Tensor
from ...graph.memory import Ref
from .recorder import NotRecordable
from .recording import Recorded
from .steps import Launch, Number, Test


class Facts:
    """The form of a recording, its numbers, and the place of each: a tuple that begins with the kind of place."""

    def __init__(self, recorded: Recorded, tensors: list[Tensor]):
        self.form: list[Any] = []
        self.numbers: list[int | float] = []
        self.places: list[tuple] = []
        for i, t in enumerate(tensors):
            self.form.append((t.dtype, t._contig, t.requires_grad))
            self._header("argument", i, t.shape, t._strides)
        self._program(recorded)
        self._effects(recorded)

    def kept(self, other: Facts) -> Facts:
        """Return these facts after sharing the form and the places of others of the same form, to save memory."""
        self.form, self.places = other.form, other.places
        return self

    def _number(self, value: float, *place: Any) -> None:
        self.form.append(type(value))
        self.numbers.append(value)
        self.places.append(place)

    def _header(self, kind: str, holder: Any, shape: Any, strides: tuple[int, ...]) -> None:
        self.form.append((kind, len(shape)))
        for d, (size, stride) in enumerate(zip(shape, strides)):
            self._number(size, kind, holder, "shape", d)
            self._number(stride, kind, holder, "strides", d)

    def _program(self, recorded: Recorded) -> None:
        program = recorded.program
        graph = program.graph
        self.form.append((program.results, sorted(program.in_place.items()), len(program.segments)))
        self.form.append(([id(g) for g in graph.generators], [id(g) for g in graph.draws]))
        self.form.append([(u.scalars, u.names) for u in graph.updates])
        for b, (i, shift) in program.arguments.items():
            self.form.append((b, i))
            if shift:
                raise NotRecordable("an argument does not begin where its memory does")
        used: dict[int, None] = {}
        for i, step in enumerate(graph.steps):
            if isinstance(step, Launch):
                self._launch(i, step)
            elif isinstance(step, Test):
                self._test(i, step)
            else:
                raise NotRecordable(f"{step.name} is called through Python")
            used.update(dict.fromkeys(ref.buffer for ref in step.refs()))
        for b in used:
            buffer = graph.buffers[b]
            self.form.append((b, buffer.source, buffer.address if buffer.source == "state" else 0))
            if buffer.source == "new":
                self._number(buffer.size, "buffer", b)
            elif buffer.source == "workspace":
                raise NotRecordable("a step shares the workspace of oneDNN's plans")

    def _launch(self, i: int, step: Launch) -> None:
        if step.other is not None or step.lane is not None:
            raise NotRecordable(f"{step.name} is made for its sizes")
        product = step.plan is not None
        if product and type(step.plan) is not direct.DirectProduct:
            raise NotRecordable(f"{step.name} runs code that oneDNN makes for its sizes")
        self.form.append((step.name, "product" if product else step.address, step.signature, len(step.arguments)))
        if product:
            table = step.plan.table
            self.form.append([table[k] for k in direct.KIND])
            for k in (*direct.SIZES, *direct.STEPS):
                self._number(table[k], "product", i, k)
        for k, value in enumerate(step.arguments):
            if not (product and k == 0):
                self._argument(i, k, step.signature[k], value)

    def _argument(self, i: int, k: int, letter: str, value: Any) -> None:
        if type(value) is Ref:
            self.form.append(("place", value.buffer))
            self._number(value.offset, "offset", i, k)
        elif type(value) is Number or value is None or (letter == "p" and type(value) is int):
            self.form.append(value)  # an int is an address that never changes
        elif type(value) is bytes and len(value) % 8 == 0:
            for j, word in enumerate(struct.unpack(f"{len(value) // 8}q", value)):
                self._number(word, "packed", i, k, j)
        elif type(value) in (int, float, bool):
            self._number(float(value) if letter in "df" else int(value), "word", i, k)
        else:
            self.form.append(value)

    def _test(self, i: int, step: Test) -> None:
        self.form.append(("test", step.name, step.size, step.place.buffer, str(step.error)))
        self._number(step.place.offset, "offset", i, 0)

    def _effects(self, recorded: Recorded) -> None:
        """Add the side effects of the call other than values in memory; raise NotRecordable for those that depend on more."""
        if recorded.derivative is not None or recorded.inputs or recorded.counted or recorded.switched:
            raise NotRecordable("it has side effects other than values in memory")
        self.form.append(([(id(s), n) for s, n in recorded.bumps], recorded.argument_bumps))
        for i, slot in enumerate(recorded.slots):
            self.form.append(slot.buffer if slot.buffer >= 0 else -1)
            self._number(slot.size, "slot", i)
        self.form.append(recorded.returned)
        makers: list[Any] = [*recorded.headers, *(g for g in recorded.grads if g.header is not None)]
        self.form.append([g.holder if type(g.holder) is int else id(g.holder) for g in recorded.grads])
        for k, made in enumerate(makers):
            header = made.header
            self.form.append((header.slot, header.dtype, header.contiguous, header.requires_grad))
            self._header("result", k, header.shape, header.strides)
            self._number(header.offset, "result", k, "offset", 0)
