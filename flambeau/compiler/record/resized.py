"""Programs for many sizes: their numbers are functions of one size, and are rewritten when that changes.

Two recordings that differ in sizes only have the same form: kernels, which buffer is which argument of a step, dtypes, the structure of the
result. The numbers are counts, strides, offsets, sizes of memory, each with the place where a program stores it. Buffers have the same
offsets at all sizes, those of the largest, so that nothing has to be placed again."""

from __future__ import annotations

import math
import struct
from array import array
from typing import Any

import numpy as np

from ...backends.cpu.onednn import direct
from ...core.size import make_size
from ...core.tensor import Tensor
from ...graph.memory import Ref
from ..runtime import driver
from ..runtime.program import Program
from .polynomials import Function, Functions
from .recorder import NotRecordable
from .recording import Recorded
from .results import Header
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


class Resized:
    """A recording for all sizes from `first` to `last`, made at `last`. `functions` has one function for each number of its facts; equal ones
    are stored once."""

    def __init__(self, recorded: Recorded, facts: Facts, functions: list[Function], first: int, last: int):
        self.recorded, self.first, self.last = recorded, first, last
        self.size = last
        recorded.sizes = f"for sizes from {first} to {last}"
        self.places = facts.places
        steps = recorded.program.graph.steps
        single = [place[0] == "word" and steps[place[1]].signature[place[2]] == "f" for place in self.places]
        different = {key: i for i, key in enumerate(dict.fromkeys(zip(functions, single)))}
        self.which = [different[key] for key in zip(functions, single)]
        self.different = [f for f, _ in different]
        self.functions = Functions(self.different, [i for (_, narrow), i in different.items() if narrow])
        self._fits_below()
        self._own_products()
        words = np.zeros(len(different) + len(self.products), np.int64)
        self.values, self.setters, self.values_at = words[: len(different)], words[len(different) :], words.ctypes.data
        self._find_rows()
        self.headers = self._resized_headers()
        self.slots = [(place[1], u) for place, u in self._of("slot") if not self.different[u].constant]

    def _of(self, kind: str) -> list[tuple[tuple, int]]:
        return [(place, u) for place, u in zip(self.places, self.which) if place[0] == kind]

    def _resized_headers(self) -> list[tuple[Any, list[int], list[int], int]]:
        """Return the results whose header varies: its holder, and which values are its sizes, its strides and its offset."""
        found: dict[int, dict[str, list[int]]] = {}
        for (_, k, field, _), u in self._of("result"):
            found.setdefault(k, {"shape": [], "strides": [], "offset": []})[field].append(u)
        held: list[Any] = [*self.recorded.headers, *(g for g in self.recorded.grads if g.header is not None)]
        rows = [(held[k], one["shape"], one["strides"], one["offset"][0]) for k, one in found.items()]
        varies = [u for u, f in enumerate(self.different) if not f.constant]
        return [row for row in rows if not {*row[1], *row[2], row[3]}.isdisjoint(varies)]

    def _fits_below(self) -> None:
        """Check that no buffer is larger for a smaller size, and that nothing is divided by zero for one."""
        rows = sorted({u for _, u in self._of("buffer") if not self.different[u].constant})
        step = max((self.last - self.first) // 4096, 1)
        sizes = np.arange(self.first, self.last + 1, step, dtype=np.int64)
        monotonic = all(min(self.different[u].coefficients[1:]) >= 0 for u in rows)
        whole = self.functions.at(sizes)
        divisors = [u for u, f in enumerate(self.different) if f.numerator]
        if (whole[divisors] == 0).any() or (
            step > 1 and any(min(self.different[u].coefficients) < 0 for u in divisors)
        ):
            raise NotRecordable("it divides by zero for some sizes")
        at = whole[rows]
        most = np.array([self.different[u](self.last) for u in rows], np.int64)
        if (step > 1 and not monotonic) or (at > most[:, None]).any():
            raise NotRecordable("it needs more memory for smaller sizes")

    def _own_products(self) -> None:
        """Copy the tables of products, which are shared with eager calls, and rebuild the program over the copies."""
        self.products: list[Launch] = []
        limits: list[int] = []
        graph = self.recorded.program.graph
        for i, step in enumerate(graph.steps):
            if isinstance(step, Launch) and step.plan is not None:
                step.plan = direct.ResizedProduct(step.plan)
                step.arguments[0] = step.plan.address
                self.products.append(step)
                sizes = [u for place, u in self._of("product") if place[1] == i and place[2] in direct.SIZES]
                limits.append(self._first_shared(sizes))
        self.alone_below = np.array(limits, np.int64)
        before = self.recorded.program
        self.recorded.program = Program(graph, before.arguments, before.results)

    def _first_shared(self, sizes: list[int]) -> int:
        """Return the smallest size at which a product, whose sizes are these values, runs on several threads."""
        low, high = self.first, self.last + 1
        while low < high:
            middle = (low + high) // 2
            work = math.prod(int(self.different[u](middle)) for u in sizes)
            low, high = (middle + 1, high) if direct.ResizedProduct.setter(work) else (low, middle)
        return low

    def _find_rows(self) -> None:
        """Fill the table of words in memory that vary: the address of each, which value it gets, and what is added to that."""
        program = self.recorded.program
        self.starts = {id(s): at for s, (_, _, at) in zip(program.origins, program.instructions) if s is not None}
        self.patched = {word: 3 * row + 2 for row, (word, _, _) in enumerate(program._patches)}
        rows: list[int] = []
        for place, u in zip(self.places, self.which):
            if place[0] in ("word", "offset", "packed", "product") and not self.different[u].constant:
                address, base = self._place(*place)
                rows += [address, u, base]
        for k, step in enumerate(self.products):
            rows += [step.plan.address + 8 * direct.SETTER, len(self.different) + k, 0]
        self.rows = array("q", [*rows, 0])
        self.rows_at = self.rows.buffer_info()[0]
        self.row_count = len(rows) // 3
        self.write = driver.runner(True)

    def _place(self, kind: str, i: int, k: int, j: int = 0) -> tuple[int, int]:
        program = self.recorded.program
        step = program.graph.steps[i]
        block = program.block.buffer_info()[0]
        if kind == "product":
            return step.plan.address + 8 * k, 0
        word = self.starts[id(step)] + k
        if kind == "packed":
            return program.block[word] + 8 * j, 0
        if kind == "word":
            return block + 8 * word, 0
        ref = step.place if isinstance(step, Test) else step.arguments[k]
        if word in self.patched:
            return program.patches.buffer_info()[0] + 8 * self.patched[word], 0
        return block + 8 * word, program.address(Ref(ref.buffer, 0))

    # -- running ----------------------------------------------------------------------------------------------------
    def resize(self, t: int) -> Recorded:
        """Set the recording to size `t`, and return it."""
        recorded = self.recorded
        if t == self.size:
            return recorded
        self.functions.values(t, self.values)
        if self.products:
            self.setters[:] = np.where(self.alone_below > t, direct.ResizedProduct.setter(0), 0)
        self.write(0, 0, self.rows_at, self.row_count, self.values_at, recorded.program.status_at)
        values = self.values.tolist()
        for i, u in self.slots:
            recorded.slots[i].size = values[u]
        for held, shape, strides, offset in self.headers:
            h = held.header
            size, steps = make_size([values[u] for u in shape]), tuple([values[u] for u in strides])
            held.header = Header(h.slot, size, steps, values[offset], *h[4:])
        self.size = t
        return recorded

    def settle(self) -> Recorded:
        """Write the numbers of the current size into the graph, for the run that is compared."""
        graph, t = self.recorded.program.graph, self.size
        for place, u in zip(self.places, self.which):
            value = self.different[u](t)
            if place[0] == "buffer":
                graph.buffers[place[1]].size = int(value)
            elif place[0] in ("word", "offset", "packed"):
                self._settle_argument(graph.steps[place[1]], place, value)
        return self.recorded

    @staticmethod
    def _settle_argument(step: Any, place: tuple, value: float) -> None:
        kind, _, k, *rest = place
        if isinstance(step, Test):
            step.place = Ref(step.place.buffer, int(value))
        elif kind == "word":
            step.arguments[k] = value
        elif kind == "offset":
            step.arguments[k] = Ref(step.arguments[k].buffer, int(value))
        else:
            words = list(struct.unpack(f"{len(step.arguments[k]) // 8}q", step.arguments[k]))
            words[rest[0]] = int(value)
            step.arguments[k] = struct.pack(f"{len(words)}q", *words)
