"""Loop nests for teams: a warp or a block runs one iteration of the parallel loop together.

Every thread of a team executes the iteration. Loops with independent iterations are shared out, one iteration per thread at a time; the
reductions of such a loop (a sum, a maximum) are combined across the team. Everything else is done by all threads alike, except that only one
of them stores. Where a thread may read or overwrite what another one has written or has yet to read, a barrier separates them; arrays of the
iteration are in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..core import dtype as dt
from ..core.dtype import dtype
from . import ir
from .cuda_values import constant, memory_type, value_type
from .emit_cuda import Function, identifier
from .nest_analysis import (
    Carried,
    Place,
    accesses,
    assigned_in,
    definitions,
    exposed,
    is_free,
    loads_in,
    names_in,
    own_expressions,
    place_of,
    statements,
)  # fmt: skip

BLOCK = 256
SHARED = 40 << 10  # bytes of shared memory that arrays of a block may take

TEAM_PRELUDE = r"""
template <int W = 32, class T, class F> __device__ __forceinline__ T fb_warp_join(T v, F join) {
  _Pragma("unroll") for (int d = W / 2; d > 0; d /= 2) v = join(v, fb_from_other(v, d));
  return v;
}
template <class T, class F> __device__ __forceinline__ T fb_block_join(T v, T start, F join, void* exchange) {
  T* shared = (T*)exchange;
  v = fb_warp_join(v, join);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  if (lane == 0) shared[warp] = v;
  __syncthreads();
  v = fb_warp_join(lane < warps ? shared[lane] : start, join);
  __syncthreads();
  return v;
}
"""
_JOIN = {
    "add": "a + b",
    "mul": "a * b",
    "maximum": "fb_max(a, b)",
    "minimum": "fb_min(a, b)",
    "fmax": "fb_max(a, b)",
    "fmin": "fb_min(a, b)",
    "and": "a & b",
    "or": "a | b",
    "xor": "a ^ b",
}


def _identity(op: str, d: dtype) -> str:
    if op in ("maximum", "fmax", "minimum", "fmin"):
        highest = op in ("minimum", "fmin")
        if d.is_floating_point:
            return constant(float("inf") if highest else float("-inf"), d)
        if d is dt.bool_:
            return "true" if highest else "false"
        bits = 8 * d.itemsize
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if d.is_signed else (0, (1 << bits) - 1)
        return constant(high if highest else low, d)
    return constant({"mul": 1, "and": -1 if d is not dt.bool_ else True}.get(op, 0), d)


class NotForTeams(Exception):
    """Raised for a nest that one thread per iteration serves better."""


@dataclass
class Pending:
    """Accesses of the team since its last barrier: by buffer, the place (None: anywhere) and the statement."""

    reads: dict[ir.Buffer, set[tuple[Any, int]]] = field(default_factory=dict)
    writes: dict[ir.Buffer, set[tuple[Any, int]]] = field(default_factory=dict)

    def copy(self) -> Pending:
        return Pending({b: set(s) for b, s in self.reads.items()}, {b: set(s) for b, s in self.writes.items()})

    def add(self, other: Pending) -> None:
        for mine, theirs in ((self.reads, other.reads), (self.writes, other.writes)):
            for buffer, found in theirs.items():
                mine.setdefault(buffer, set()).update(found)

    def forget(self, names: set[str]) -> None:
        """Forget places that depend on variables that change: they are no longer comparable."""
        for mine in (self.reads, self.writes):
            for buffer, found in mine.items():
                mine[buffer] = {
                    (None if key is not None and (key[0].names() | key[2]) & names else key, at) for key, at in found
                }

    def clear(self) -> None:
        self.reads, self.writes = {}, {}

    def clashes(self, other: Pending) -> bool:
        """Return whether the accesses `other`, which come next, need a barrier."""
        for buffer, places in other.reads.items():
            if any(_differ(a, b) for a in self.writes.get(buffer, ()) for b in places):
                return True
        for buffer, places in other.writes.items():
            if any(_differ(a, b) for a in self.reads.get(buffer, ()) for b in places):
                return True
            if any(_differ(a, b) and a[1] != b[1] for a in self.writes.get(buffer, ()) for b in places):
                return True
        return False


def _differ(a: tuple[Any, int], b: tuple[Any, int]) -> bool:
    return a[0] is None or b[0] is None or a[0] != b[0]


class TeamFunction(Function):
    """Writer of a function for teams of `team` threads: 32, or the whole block."""

    team: int = BLOCK
    alone: bool = False  # one team for everything: there is no parallel loop

    def prepare(self, team: int, alone: bool) -> TeamFunction:
        self.team, self.alone = team, alone
        self.pending = Pending()
        self.shared_lines: list[str] = []
        self.shared_bytes = 0
        self.within: list[ir.For] = []  # loops that are shared out, around what is being written
        self.uses_exchange = False
        self.loops_shared_out = 0
        return self

    # --- frame

    def text(self, body: list[ir.Statement]) -> Function:
        parameters = [self.parameter(p) for p in self.kernel.params]
        self.owned = self._arrays(body)
        declarations = self.declare(body)
        self.team_block(body, set())
        if not self.loops_shared_out:
            raise NotForTeams("no loop can be shared out")
        header = (
            f'extern "C" __global__ void __launch_bounds__({self.threads()}) {self.name}({", ".join(parameters)}) {{'
        )
        self.source = "\n".join([header, *self.frame(), *declarations, *self.lines, "}", ""])
        return self

    def frame(self) -> list[str]:
        lines = [f"  const int lane = threadIdx.x{f' & {self.team - 1}' if self.team <= 32 else ''};"]
        if self.uses_exchange:
            lines.append("  __shared__ double exchange[32];")
        return [*lines, *self.shared_lines]

    def threads(self) -> int:
        return max(BLOCK, self.team) if self.team <= 32 else self.team

    def _arrays(self, body: list[ir.Statement]) -> set[ir.Buffer]:
        """Return the local arrays that belong to the whole team; the others are declared inside a loop that is shared out."""
        return {s.buffer for s in statements(body) if isinstance(s, ir.DeclareLocal)}

    def declare(self, body: list[ir.Statement]) -> list[str]:
        lines = []
        for s in statements(body):
            if isinstance(s, ir.Assign) and s.name not in self.symbols:
                self.symbols[s.name] = name = identifier(s.name)
                lines.append(f"  {value_type(s.dtype)} {name}, {name}_before;")
            elif isinstance(s, ir.DeclareLocal) and s.buffer not in self.symbols:
                self._share(s.buffer)
        return lines

    def _share(self, buffer: ir.Buffer) -> None:
        teams = self.threads() // self.team
        self.shared_bytes += buffer.local_size * buffer.dtype.itemsize * teams
        if self.shared_bytes > SHARED:
            raise NotForTeams("too much shared memory")
        self.symbols[buffer] = symbol = identifier(buffer.name)
        t = memory_type(buffer.dtype)
        if teams == 1:
            self.shared_lines.append(f"  __shared__ {t} {symbol}[{buffer.local_size}];")
        else:
            self.shared_lines.append(f"  __shared__ {t} {symbol}_all[{buffer.local_size * teams}];")
            self.shared_lines.append(
                f"  {t}* {symbol} = {symbol}_all + (threadIdx.x / {self.team}) * {buffer.local_size};"
            )

    # --- what the team does together

    def team_block(self, body: list[ir.Statement], live: set[str]) -> None:
        for at, s in enumerate(body):
            rest = exposed(body[at + 1 :])[0]
            self.team_statement(s, rest | live)

    def wait(self) -> None:
        self.line("__syncwarp();" if self.team <= 32 else "__syncthreads();")
        self.pending.clear()

    def touch(self, reads: list[Any], writes: list[Any], statement: Any) -> None:
        """Note accesses, after a barrier if they clash with earlier ones."""
        new = Pending()
        for buffer, key in reads:
            new.reads.setdefault(buffer, set()).add((key, id(statement)))
        for buffer, key in writes:
            new.writes.setdefault(buffer, set()).add((key, id(statement)))
        if self.pending.clashes(new):
            self.wait()
        self.pending.add(new)

    def team_statement(self, s: ir.Statement, live: set[str]) -> None:
        own = [(buffer, None) for buffer, _ in loads_in(*own_expressions(s))]
        if isinstance(s, ir.Assign):
            self.touch(own, [], s)
            self.statement(s)
            self.pending.forget({s.name})
        elif isinstance(s, ir.Store):
            self.touch(own, [(s.buffer, None)], s)
            self.line("if (lane == 0) {")
            self._depth += 1
            self.statement(s)
            self._depth -= 1
            self.line("}")
        elif isinstance(s, ir.If):
            self.touch(own, [], s)
            self._branches(s, live)
        elif isinstance(s, ir.For):
            self.touch(own, [], s)
            self._for(s, live)
        elif isinstance(s, ir.While):
            self._again(s.body, {*exposed(s.body)[0], *live}, own, s)
            self.line("while (true) {")
            self._depth += 1
            self.touch(own, [], s)
            self.line(f"if (!({self.value(s.condition, dt.bool_)})) break;")
            self.team_block(s.body, exposed(s.body)[0] | live)
            self._depth -= 1
            self.line("}")
        else:
            self.statement(s)

    def _branches(self, s: ir.If, live: set[str]) -> None:
        condition, before = self.value(s.condition, dt.bool_), self.pending.copy()
        self._branch(f"if ({condition}) {{", s.then, live)
        after, self.pending = self.pending, before
        if s.otherwise:
            self._branch("else {", s.otherwise, live)
        self.pending.add(after)

    def _branch(self, start: str, body: list[ir.Statement], live: set[str]) -> None:
        self.line(start)
        self._depth += 1
        self._inside(body, live)
        self._depth -= 1
        self.line("}")

    def _inside(self, body: list[ir.Statement], live: set[str]) -> None:
        """Write the statements of a branch."""
        self.team_block(body, live)

    def _again(self, body: list[ir.Statement], live: set[str], own: list[Any], s: ir.Statement) -> None:
        """Add the accesses that an earlier iteration leaves pending, before a loop is written."""
        kept = (self.lines, self._temporaries, self.pending.copy(), self.loops_shared_out, dict(self.symbols))
        self.lines = []
        self.team_block(body, live)
        left = self.pending
        self.lines, self._temporaries, self.pending, self.loops_shared_out, self.symbols = kept
        left.forget(assigned_in(body) | ({s.name} if isinstance(s, ir.For) else set()))
        self.pending.add(left)

    def _for(self, s: ir.For, live: set[str]) -> None:
        start, stop, step = (self.value(e, dt.int64) for e in (s.start, s.stop, s.step))
        i = self.symbols[s.name] = identifier(s.name)
        if s.parallel:
            body_live = exposed(s.body)[0]
            self._again(s.body, body_live, [], s)
            teams = f"(i64)gridDim.x * {self.threads() // self.team}"
            mine = f"((i64)blockIdx.x * {self.threads() // self.team} + (threadIdx.x / {self.team}))"
            self._loop(
                f"i64 {i} = {start} + {mine} * ({step})", f"{i} < {stop}", f"{i} += {teams} * ({step})", s, body_live
            )
            return
        carried = is_free(s, live)
        if carried is not None:
            self._share_out(s, carried, start, stop, step)
            return
        if _serial(s):
            raise NotForTeams("a loop in which every step waits for the one before")
        body_live = exposed(s.body)[0] | live
        self._again(s.body, body_live, [], s)
        down = s.step.op == "const" and s.step.args[0] < 0
        self._loop(f"i64 {i} = {start}", f"{i} {'>' if down else '<'} {stop}", f"{i} += {step}", s, body_live)

    def _loop(self, first: str, test: str, step: str, s: ir.For, live: set[str]) -> None:
        self.line(f"for ({first}; {test}; {step}) {{")
        self._depth += 1
        self.team_block(s.body, live)
        self._depth -= 1
        self.line("}")

    def _share_out(self, s: ir.For, carried: list[Carried], start: str, stop: str, step: str) -> None:
        self.loops_shared_out += 1
        known, i = definitions(s.body), self.symbols[s.name]
        changing = assigned_in(s.body) - set(known)
        inner = {x.buffer for x in statements(s.body) if isinstance(x, ir.DeclareLocal)}
        if inner & self.owned:
            raise NotForTeams("an array of one thread")

        def key(index: Any) -> Any:
            return lane_key(s, place_of(index, known), changing)

        found = accesses(s.body)
        self.touch(
            [(b, key(i)) for b, all_of in found.reads.items() for i in all_of],
            [(b, key(i)) for b, all_of in found.writes.items() for i in all_of],
            s,
        )
        self._begin(carried)
        down = s.step.op == "const" and s.step.args[0] < 0
        if not any(isinstance(x, (ir.For, ir.While)) for x in statements(s.body)):
            self.line("#pragma unroll 4")
        first = f"i64 {i} = {start} + (i64)lane * ({step})"
        self.line(f"for ({first}; {i} {'>' if down else '<'} {stop}; {i} += (i64){self.team} * ({step})) {{")
        self._depth += 1
        self.block(s.body)
        self._depth -= 1
        self.line("}")
        for c in carried:
            self._join(c)
        self.pending.forget(assigned_in(s.body))

    def _begin(self, carried: list[Carried]) -> None:
        for c in carried:
            name = self.symbols[c.name]
            self.line(f"{name}_before = {name};")
            if c.op != "pick":
                self.line(f"{name} = {_identity(c.op, c.dtype)};")

    def _join(self, c: Carried) -> None:
        name, t = self.symbols[c.name], value_type(c.dtype)
        if c.op == "pick":
            changed = f"{name} != {name}_before"
            vote = f"__any_sync(0xffffffffu, {changed})" if self.team <= 32 else f"__syncthreads_or({changed})"
            self.line(f"{name} = {vote} ? {constant(c.value, c.dtype)} : {name}_before;")
        else:
            join = f"[]({t} a, {t} b) -> {t} {{ return {_JOIN[c.op]}; }}"
            if self.team <= 32:
                joined = f"fb_warp_join<{self.team}>({name}, {join})"
            else:
                self.uses_exchange = True
                joined = f"fb_block_join({name}, ({t}){_identity(c.op, c.dtype)}, {join}, exchange)"
            self.line(f"{name} = {joined};")
            self.line(f"{name} = ({join})({name}_before, {name});")
        if self.team > 32:
            self.pending.clear()


class _LaneMark:
    """Placeholder of the index of a loop that a team shares, whatever its name."""


_Lane: Any = _LaneMark()


@dataclass(frozen=True)
class _Key:
    terms: frozenset[Any]
    constant: int

    def names(self) -> set[str]:
        return {n for t, _ in self.terms if t is not _Lane for n in names_in(t)}


def lane_key(s: ir.For, place: Place, changing: set[str]) -> Any:
    """Return a key that is equal for two shared-out loops which give an element to the same thread: the place without the name of the loop's
    variable, the loop's start, and the variables that must not change in between. None if that is not known."""
    if not place.grows_evenly(s.name) or place.names() & changing:
        return None
    own = ir.var(s.name, dt.int64)
    renamed = [(_Lane if t is own else t, f) for t, f in place.terms]
    if any(s.name in names_in(t) for t, _ in renamed if t is not _Lane):
        return None  # a product with the variable: not comparable with other loops
    return _Key(frozenset(renamed), place.constant), (id(s.start), id(s.step)), frozenset(names_in(s.start, s.step))


def _serial(s: ir.For) -> bool:
    """Return whether a loop stores something and has no loop in it that could be shared out."""
    stores = any(isinstance(x, ir.Store) for x in statements(s.body))
    loops = [x for x in statements(s.body) if isinstance(x, ir.For)]
    return stores and not any(is_free(x, set()) is not None for x in loops)
