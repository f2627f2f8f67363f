"""Loop nests for teams, with the rows they work on held in registers.

If the length of a row is known, each thread keeps its elements of it: they are read once, as vectors, however many loops visit the row, and
results are written once, after the last loop that changes them. So a softmax or a layer norm moves each element once in and once out, and
sums over many rows stay in registers until the last row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core import dtype as dt
from ..core.dtype import dtype
from ..expr.node import Expr, const
from . import ir
from .cuda_teams import Pending, TeamFunction, lane_key
from .cuda_values import loaded, memory_type, stored, value_type
from .nest_analysis import (
    Carried,
    accesses,
    assigned_in,
    definitions,
    loads_in,
    names_in,
    own_expressions,
    place_of,
    statements,
)
from .nest_constants import folded

MOST = 96  # registers a thread may keep rows in


class DoesNotFit(Exception):
    """Raised when rows do not fit into registers."""


@dataclass
class Held:
    """A row in registers: `count` elements of a buffer starting at `base`, its index without the loop's variable."""

    symbol: str
    buffer: ir.Buffer
    key: Any
    base: Expr  # the index of its first element
    dirty: bool = False

    def names(self) -> set[str]:
        return self.key[0].names() | self.key[2]


class RowFunction(TeamFunction):
    """A TeamFunction for loops over exactly `length` elements, `vector` of them at a time."""

    def hold(self, length: int, vector: int) -> None:
        self.length, self.vector = length, vector
        self.turns = -(-length // (self.team * vector))
        self.held: dict[Any, Held] = {}
        self.replaced: dict[tuple[int, int], Held] = {}
        self.row_lines: list[str] = []
        self.registers = 0
        self.rows_held = 0
        self.once: dict[str, Expr] = {}
        self.written: set[ir.Buffer] = set()
        self.row_bytes = 1

    def text(self, body: list[ir.Statement]) -> TeamFunction:
        counts: dict[str, int] = {}
        for s in statements(body):
            if isinstance(s, (ir.Assign, ir.For)):
                counts[s.name] = counts.get(s.name, 0) + 1
        for s in statements(body):
            if isinstance(s, ir.Assign) and counts[s.name] == 1 and not loads_in(s.value):
                self.once[s.name] = s.value
        if self.team < 32:
            self._check_together(body)
        super().text(body)
        if not self.rows_held:
            raise DoesNotFit("no loop goes over such rows")
        return self

    def _check_together(self, body: list[ir.Statement]) -> None:
        """Check that several teams of one warp can run in step: no branch separates them, and the last row may be written twice."""
        self.written = set(accesses(body).writes)
        inside = {
            id(x) for s in statements(body) if isinstance(s, ir.For) and self._is_row(s) for x in statements(s.body)
        }
        for s in statements(body):
            if id(s) not in inside and any(b in self.written for b, _ in loads_in(*own_expressions(s))):
                raise DoesNotFit("memory that is read and written")
            if id(s) in inside:
                continue
            if isinstance(s, (ir.If, ir.While)) or (isinstance(s, ir.For) and not s.parallel and not self._is_row(s)):
                raise DoesNotFit("teams of one warp would part")
            if isinstance(s, ir.For) and s.parallel and (s.step.op != "const" or s.step.args[0] != 1):
                raise DoesNotFit("rows that are not neighbours")

    def _loop(self, first: str, test: str, step: str, s: ir.For, live: set[str]) -> None:
        if self.team >= 32 or not s.parallel:
            self._plain_loop(first, test, step, s, live)
            return
        i, start, stop = self.symbols[s.name], self.value(s.start, dt.int64), self.value(s.stop, dt.int64)
        rows, block = 32 // self.team, self.threads() // self.team
        mine = f"(i64)blockIdx.x * {block} + (threadIdx.x / 32) * {rows}"
        self.line(f"for (i64 row_ = {start} + {mine}; row_ < {stop}; row_ += (i64)gridDim.x * {block}) {{")
        self._depth += 1
        self.line(f"i64 {i} = row_ + (threadIdx.x & 31) / {self.team};")
        self.line(f"if ({i} >= {stop}) {i} = {stop} - 1;")
        self.team_block(s.body, live)
        self._drop(list(self.held.values()))
        self._depth -= 1
        self.line("}")

    def frame(self) -> list[str]:
        return [*super().frame(), *self.row_lines]

    # --- rows in and out

    def _is_row(self, s: ir.For) -> bool:
        ends = [e.args[0] if e.op == "const" else None for e in (s.start, s.stop, s.step)]
        return ends == [0, self.length, 1] and not any(isinstance(x, (ir.For, ir.While)) for x in statements(s.body))

    def _row_key(self, s: ir.For, index: Expr, known: dict[str, Expr], changing: set[str]) -> Any:
        """Return a key that distinguishes rows; None if the elements are not adjacent."""
        place = place_of(index, {**self.once, **known})
        if place.coefficient(s.name) != 1:
            return None
        return lane_key(s, place, changing)

    def _aligned(self, index: Expr) -> bool:
        place = place_of(index, self.once)
        return place.constant % self.vector == 0 and all(f % self.vector == 0 for _, f in place.terms)

    def _take(self, buffer: ir.Buffer, key: Any, base: Expr, load: bool) -> Held:
        """Return the row in registers, after reading it from memory if it is not held yet."""
        found = self.held.get((buffer, key))
        if found is not None:
            return found
        if self.vector > 1 and not self._aligned(base):
            raise DoesNotFit("rows do not begin on whole vectors")
        self.registers += max(1, self.turns * self.vector * buffer.dtype.itemsize // 4)
        if self.registers > MOST:
            raise DoesNotFit("too many rows for the registers")
        symbol = f"row{len(self.row_lines)}"
        self.row_lines.append(f"  fb_vec<{memory_type(buffer.dtype)}, {self.vector}> {symbol}[{self.turns}];")
        self.held[buffer, key] = row = Held(symbol, buffer, key, base)
        if load and self.team < 32 and buffer in self.written:
            raise DoesNotFit("rows that are read and written")
        if load:
            self.touch([(buffer, key)], [], buffer)
            start = self.value(base, dt.int64)
            self._each_vector(
                f"{symbol}[k] = *(const {self._vector_type(buffer)}*)({self.symbols[buffer]} + ({start}) + j);"
            )
        return row

    def _vector_type(self, buffer: ir.Buffer) -> str:
        return f"fb_vec<{memory_type(buffer.dtype)}, {self.vector}>"

    def _each_vector(self, text: str) -> None:
        self.line("#pragma unroll")
        guard = "" if self.length % (self.team * self.vector) == 0 else f"if (j < {self.length}) "
        turn = f"for (int k = 0; k < {self.turns}; ++k) {{ const int j = (k * {self.team} + lane) * {self.vector};"
        self.line(f"{turn} {guard}{{ {text} }} }}")

    def _put(self, row: Held) -> None:
        """Emit the store of a changed row."""
        if row.dirty:
            self.touch([], [(row.buffer, row.key)], row.buffer)
            start = self.value(row.base, dt.int64)
            self._each_vector(
                f"*({self._vector_type(row.buffer)}*)({self.symbols[row.buffer]} + ({start}) + j) = {row.symbol}[k];"
            )
            row.dirty = False

    def _drop(self, rows: list[Held]) -> None:
        for row in rows:
            self._put(row)
            del self.held[row.buffer, row.key]

    def _give_up(self, touched: Any, keep: set[Any] = frozenset()) -> None:  # type: ignore[assignment]
        """Write rows back before memory is accessed directly, and forget them if they may change."""
        for buffer, key in list(self.held):
            if (buffer, key) in keep:
                continue
            if buffer in touched.writes:
                self._drop([self.held[buffer, key]])
            elif buffer in touched.reads:
                self._put(self.held[buffer, key])

    # --- statements of the team

    def team_statement(self, s: ir.Statement, live: set[str]) -> None:
        if isinstance(s, (ir.Assign, ir.Store)):
            self._give_up(accesses([s]))
            if isinstance(s, ir.Assign):
                self._drop([row for row in self.held.values() if s.name in row.names()])
        elif isinstance(s, ir.If):
            self._drop(list(self.held.values()))
        elif isinstance(s, ir.While):
            raise DoesNotFit("a loop without a count")
        super().team_statement(s, live)

    def _inside(self, body: list[ir.Statement], live: set[str]) -> None:
        super()._inside(body, live)
        self._drop(list(self.held.values()))

    def _plain_loop(self, first: str, test: str, step: str, s: ir.For, live: set[str]) -> None:
        self.line(f"for ({first}; {test}; {step}) {{")
        self._depth += 1
        kept = set(self.held)
        self.team_block(s.body, live)
        self._drop([row for place, row in self.held.items() if place not in kept])
        self._depth -= 1
        self.line("}")

    def _again(self, body: list[ir.Statement], live: set[str], own: list[Any], s: ir.Statement) -> None:
        self._keep_through(body, s)
        saved = {place: Held(**vars(row)) for place, row in self.held.items()}
        kept, lines, registers, rows = set(self.held), list(self.row_lines), self.registers, self.rows_held
        remembered = (self.lines, self._temporaries, self.pending.copy(), self.loops_shared_out, dict(self.symbols))
        self.lines = []
        self.team_block(body, live)
        self._drop([row for place, row in self.held.items() if place not in kept])
        left: Pending = self.pending
        self.lines, self._temporaries, self.pending, self.loops_shared_out, self.symbols = remembered
        self.held, self.row_lines, self.registers, self.rows_held = saved, lines, registers, rows
        left.forget(assigned_in(body) | ({s.name} if isinstance(s, ir.For) else set()))
        self.pending.add(left)

    def _keep_through(self, body: list[ir.Statement], s: ir.Statement) -> None:
        """Load the rows that stay in registers over all iterations of a loop: those that only its loops over rows touch."""
        changed = assigned_in(body) | ({s.name} if isinstance(s, ir.For) else set())
        touched = accesses(body)
        rows: set[Any] = set()
        inside: dict[ir.Buffer, int] = {}
        for loop in statements(body):
            if isinstance(loop, ir.For) and self._is_row(loop):
                for buffer, key, _, _ in self._row_accesses(loop):
                    rows.add((buffer, key))
                    inside[buffer] = inside.get(buffer, 0) + 1
        for row in list(self.held.values()):
            buffer = row.buffer
            here = len(touched.reads.get(buffer, ())) + len(touched.writes.get(buffer, ()))
            fits = all(p in self.held for p in rows if p[0] is buffer) and inside.get(buffer, 0) == here
            if here == 0:
                fits = True
            if row.names() & changed or not fits:
                self._drop([row])
            elif buffer in touched.writes:
                row.dirty = True

    def _row_accesses(self, s: ir.For) -> list[tuple[ir.Buffer, Any, Expr, bool]]:
        """Return (buffer, key, index, whether it is written) of every access in a loop over a row."""
        known = definitions(s.body)
        changing = assigned_in(s.body) - set(known)
        found = []
        for x in statements(s.body):
            for buffer, index in loads_in(*own_expressions(x)):
                found.append((buffer, self._row_key(s, index, known, changing), index, False))
            if isinstance(x, ir.Store):
                found.append((x.buffer, self._row_key(s, x.index, known, changing), x.index, True))
        return found

    # --- loops over rows

    def _share_out(self, s: ir.For, carried: list[Carried], start: str, stop: str, step: str) -> None:
        if not self._is_row(s):
            self._give_up(accesses(s.body))
            self._drop([row for row in self.held.values() if row.names() & assigned_in([s])])
            super()._share_out(s, carried, start, stop, step)
            return
        self.loops_shared_out += 1
        found = self._row_accesses(s)
        rows = {(buffer, key) for buffer, key, _, _ in found if key is not None}
        apart = all(self._distinct(a, b) for a in rows for b in rows if a != b and a[0] is b[0])
        written = {buffer for buffer, _, _, write in found if write}
        plain = {buffer for buffer, key, _, _ in found if key is None}
        usable = {r for r in rows if not (r[0] in written and (r[0] in plain or not apart))}
        direct = accesses([])
        for buffer, key, index, write in found:
            if (buffer, key) not in usable:
                (direct.writes if write else direct.reads).setdefault(buffer, []).append(index)
        if self.team < 32 and any(b in self.written for b in direct.reads):
            raise DoesNotFit("memory that is read and written")
        self._give_up(direct)
        for buffer, key in list(self.held):  # rows that may overlap one that is written here
            others = [u for u in usable if u[0] is buffer and u != (buffer, key)]
            if (
                (buffer in written or self.held[buffer, key].dirty)
                and others
                and not all(self._distinct((buffer, key), u) for u in others)
            ):
                self._drop([self.held[buffer, key]])
        self._load_rows(s, found, usable)
        self.touch([(b, None) for b in direct.reads], [(b, None) for b in direct.writes], s)
        self._write_loop(s, carried)

    def _distinct(self, a: Any, b: Any) -> bool:
        """Return whether two rows of a buffer have no element in common."""
        if a[1] is None or b[1] is None:
            return False
        x, y = a[1][0], b[1][0]
        return x.terms == y.terms and abs(x.constant - y.constant) >= self.length

    def _load_rows(self, s: ir.For, found: list[Any], usable: set[Any]) -> None:
        known = definitions(s.body)
        for buffer, key, index, write in found:
            if (buffer, key) not in usable:
                continue
            self.rows_held += 1
            base = _without(index, s.name, known)
            reads = any(b is buffer and k == key and not w for b, k, _, w in found)
            certain = any(isinstance(x, ir.Store) and x.index is index for x in s.body)
            row = self._take(buffer, key, base, load=reads or not certain)
            self.replaced[id(buffer), id(index)] = row
            if write:
                row.dirty = True

    def _write_loop(self, s: ir.For, carried: list[Carried]) -> None:
        i = self.symbols[s.name]
        self._begin(carried)
        self.line("#pragma unroll")
        self.line(f"for (int k = 0; k < {self.turns}; ++k) {{")
        self._depth += 1
        self.line("#pragma unroll")
        self.line(f"for (int v = 0; v < {self.vector}; ++v) {{")
        self._depth += 1
        self.line(f"const i64 {i} = (k * {self.team} + lane) * {self.vector} + v;")
        guarded = self.length % (self.team * self.vector) != 0
        if guarded:
            self.line(f"if ({i} < {self.length}) {{")
        self._depth += 1
        self.block(s.body)
        self._depth -= 1
        if guarded:
            self.line("}")
        self._depth -= 1
        self.line("}")
        self._depth -= 1
        self.line("}")
        self.replaced.clear()
        for c in carried:
            self._join(c)
        self.pending.forget(assigned_in(s.body))

    def element(self, row: Held) -> str:
        """Return the text of the current element of a row in the innermost loop."""
        return f"{row.symbol}[k].at[v]"

    def node(self, x: Expr, types: dict[int, dtype], texts: dict[int, str]) -> str:
        if x.op == "load" and (id(x.args[0]), id(x.args[1])) in self.replaced:
            row = self.replaced[id(x.args[0]), id(x.args[1])]
            return loaded(self.element(row), row.buffer.dtype)
        return super().node(x, types, texts)

    def statement(self, s: ir.Statement) -> None:
        if isinstance(s, ir.Store) and (id(s.buffer), id(s.index)) in self.replaced:
            row = self.replaced[id(s.buffer), id(s.index)]
            value = self.value(s.value, dt.float32 if value_type(s.buffer.dtype) == "float" else s.buffer.dtype)
            self.line(f"{self.element(row)} = {stored(value, s.buffer.dtype)};")
            return
        super().statement(s)


class StreamFunction(RowFunction):
    """Kernel text for rows too long for registers: every loop reads and writes them as vectors, and nothing is kept."""

    def _share_out(self, s: ir.For, carried: list[Carried], start: str, stop: str, step: str) -> None:
        if not self._is_row(s):
            super()._share_out(s, carried, start, stop, step)
            return
        self.loops_shared_out += 1
        found = self._row_accesses(s)
        written = {buffer for buffer, _, _, write in found if write}
        rows = {(buffer, key) for buffer, key, _, _ in found if key is not None}
        apart = all(self._distinct(a, b) for a in rows for b in rows if a != b and a[0] is b[0])
        plain = {buffer for buffer, key, _, _ in found if key is None}
        usable = {r for r in rows if not (r[0] in written and (r[0] in plain or not apart))}
        known = definitions(s.body)
        current: dict[Any, Held] = {}
        for buffer, key, index, _ in found:
            if (buffer, key) in usable:
                base = _without(index, s.name, known)
                if self.vector > 1 and not self._aligned(base):
                    raise DoesNotFit("rows do not begin on whole vectors")
                self.rows_held += 1
                row = current.setdefault((buffer, key), Held(f"now{len(current)}", buffer, key, base))
                self.replaced[id(buffer), id(index)] = row
        self.touch(
            [(b, k if (b, k) in usable else None) for b, k, _, write in found if not write],
            [(b, k if (b, k) in usable else None) for b, k, _, write in found if write],
            s,
        )
        self._stream(s, carried, current, found)

    def _stream(self, s: ir.For, carried: list[Carried], current: dict[Any, Any], found: list[Any]) -> None:
        places = {place: self.value(row.base, dt.int64) for place, row in current.items()}
        self._begin(carried)
        self.line("#pragma unroll 4")
        step = self.team * self.vector
        self.line(f"for (int j = lane * {self.vector}; j < {self.length}; j += {step}) {{")
        self._depth += 1
        for place, row in current.items():
            kind = self._vector_type(row.buffer)
            here = [f for f in found if f[0] is place[0] and f[1] == place[1]]
            certain = any(isinstance(x, ir.Store) and any(x.index is f[2] for f in here) for x in s.body)
            if any(not f[3] for f in here) or not certain:
                self.line(
                    f"{kind} {row.symbol} = *(const {kind}*)({self.symbols[row.buffer]} + ({places[place]}) + j);"
                )
            else:
                self.line(f"{kind} {row.symbol};")
        self.line("#pragma unroll")
        self.line(f"for (int v = 0; v < {self.vector}; ++v) {{")
        self._depth += 1
        self.line(f"const i64 {self.symbols[s.name]} = j + v;")
        self.block(s.body)
        self._depth -= 1
        self.line("}")
        for place, row in current.items():
            if any(f[3] for f in found if f[0] is place[0] and f[1] == place[1]):
                kind = self._vector_type(row.buffer)
                self.line(f"*({kind}*)({self.symbols[row.buffer]} + ({places[place]}) + j) = {row.symbol};")
        self._depth -= 1
        self.line("}")
        self.replaced.clear()
        for c in carried:
            self._join(c)
        self.pending.forget(assigned_in(s.body))

    def element(self, row: Held) -> str:
        return f"{row.symbol}.at[v]"


def _without(index: Expr, name: str, known: dict[str, Expr]) -> Expr:
    """Return the index of the first element, with 0 for the loop's variable."""
    for _ in range(8):
        if not names_in(index) & (set(known) | {name}):
            break
        index = folded(index, {**known, name: const(0)})
    return index


def shapes(length: int, itemsize: int) -> list[tuple[int, int]]:
    """Return (team, vector) pairs to try for rows of a length: about eight elements per thread, sixteen bytes at a time."""
    found = []
    for vector in (8, 4, 2, 1):
        if vector * itemsize > 16 or length % vector:
            continue
        if length <= 128:  # several rows share a warp
            for team in (8, 16):
                if length <= team * max(vector, 8):
                    found.append((team, vector))
                    break
        team = 32
        while team < 1024 and length > team * (max(vector, 8) if team < 256 else 16):
            team *= 2
        if length < 32 * vector and vector > 1 and length > 8:
            continue
        if -(-length // (team * vector)) * vector <= 16:
            found.append((team, vector))
    return found
