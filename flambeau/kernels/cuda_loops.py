"""Loop kernels on NVIDIA GPUs: which launches a kernel is cut into, and for each whether a thread, a warp or a block runs one iteration of
its parallel loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import dtype as dt
from ..core.caching import remember
from . import complex_nests, ir
from .cuda_operands import Device
from .cuda_rows import DoesNotFit, RowFunction, StreamFunction, shapes
from .cuda_teams import BLOCK, TEAM_PRELUDE, NotForTeams, TeamFunction
from .cuda_values import PRELUDE
from .emit_cuda import Function, Launch, evaluate, launches, locate_parallel
from .nest_analysis import accesses, is_free, names_in, statements
from .nest_constants import bounding_names, specialised

ALONE = 1024  # threads that run what stands outside parallel loops
WORTH_A_TEXT = 1 << 16  # elements from which a length of rows gets a text of its own
LONG_ROW = 4096  # elements from which a row is read as vectors even if it does not fit into registers
MOST_TEXTS = 16  # of one launch
CACHE = 40 << 20  # bytes of rows that are worked on at a time
_WARP_FROM, _BLOCK_FROM = 24, 2048  # elements of an iteration that a warp, a block is worth


class LoopProgram:
    """The launches of one loop kernel."""

    def __init__(self, kernel: ir.Kernel):
        self.kernel = complex_nests.split(kernel)
        self.parts = [Part(launch, self.kernel) for launch in launches(self.kernel)]

    @property
    def source(self) -> str:
        """Return the CUDA text of every launch in its form for large sizes."""
        functions = [part.function(BLOCK) or part.function(1) for part in self.parts]
        return _assembled([f for f in functions if f is not None])

    def bind(self, device: Device) -> Callable[..., None]:
        params = self.kernel.params
        kinds = tuple("d" if isinstance(p, ir.Scalar) and p.dtype is dt.float64 else "q" for p in params)
        numbers = [k for k, p in enumerate(params) if isinstance(p, ir.Scalar)]
        names = [p.name for p in params if isinstance(p, ir.Scalar)]
        pointers = [k for k, p in enumerate(params) if isinstance(p, ir.Buffer)]
        plans: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        compiled: dict[int, Any] = {}

        def function(written: Function) -> Any:
            if id(written) not in compiled:
                compiled[id(written)] = device.load(_assembled([written])).function(written.name, kinds)
            return compiled[id(written)]

        def prepare(key: tuple[Any, ...]) -> list[tuple[Any, ...]]:
            scalars = dict(zip(names, key))
            plan = []
            for part in self.parts:
                chosen = part.choose(scalars, device.processors)
                if chosen is not None:
                    aligned = part.rows(scalars, chosen, device.processors)
                    written, grid, block = aligned or chosen
                    plan.append((function(written), grid, block, chosen if aligned else None))
            return remember(plans, key, plan, 4096)

        def run(*values: Any) -> None:
            key = tuple([values[k] for k in numbers])
            plan = plans.get(key)
            if plan is None:
                plan = prepare(key)
            for launch, grid, block, otherwise in plan:
                if otherwise is not None and any(values[k] & 15 for k in pointers):
                    written, grid, block = otherwise
                    launch = function(written)
                launch(grid, block, *values)

        return run


def _assembled(functions: list[Function]) -> str:
    helpers = {text: None for f in functions for text in f.helpers}
    teams = TEAM_PRELUDE if any(isinstance(f, TeamFunction) for f in functions) else ""
    return PRELUDE + teams + "\n".join([*helpers, *(f.source for f in functions)])


class Part:
    """Launch of a loop kernel, with its source texts by size of team."""

    def __init__(self, launch: Launch, kernel: ir.Kernel):
        self.launch, self.kernel = launch, kernel
        self.written: dict[int, Function | None] = {}
        self.row_functions: dict[tuple[Any, ...], RowFunction | None] = {}
        self.count: int | None = None
        self.cost: Any = None
        self._counting: set[str] | None = None

    def function(self, team: int) -> Function | None:
        """Return the kernel's CUDA text for teams of `team` threads; None if teams cannot run it."""
        if team not in self.written:
            self.written[team] = self._write(team)
        return self.written[team]

    def _write(self, team: int) -> Function | None:
        name, body = self.launch.name, self.launch.statements
        if team == 1:
            return Function(name, self.kernel).text(body)
        try:
            return TeamFunction(name, self.kernel).prepare(team, not self.launch.parallel).text(body)
        except NotForTeams:
            return None

    def choose(self, scalars: dict[str, Any], processors: int) -> tuple[Function, int, int] | None:
        """Return the function, blocks and threads for these parameters; None if there is nothing to do."""
        if not self.launch.parallel:
            together = self.function(ALONE)
            alone = self.function(1)
            assert alone is not None
            return (alone, 1, 1) if together is None else (together, 1, ALONE)
        self.count, self.cost = self._work(scalars)
        if self.count == 0:
            return None
        team = self._team(self.count, self.cost, processors)
        written = self.function(team)
        assert written is not None
        if team == 1:
            blocks = 32 * processors if self.count is None else min(-(-self.count // BLOCK), 64 * processors)
            return written, blocks, BLOCK
        block = BLOCK if team == 32 else team
        blocks = 16 * processors if self.count is None else min(-(-self.count // (block // team)), 1 << 20)
        return written, max(blocks, 1), block

    def _work(self, scalars: dict[str, Any]) -> tuple[int | None, Any]:
        """Return the number of iterations of the parallel loop and the cost of one; None for what only the device knows."""
        known = dict(scalars)
        loop = locate_parallel(self.launch.statements, known)
        if loop is None:
            return None, None
        start, stop, step = (evaluate(e, known) for e in (loop.start, loop.stop, loop.step))
        count = None if None in (start, stop, step) else len(range(start, stop, step))
        return count, None if loop.cost is None else evaluate(loop.cost, known)

    def rows(
        self, scalars: dict[str, Any], chosen: tuple[Function, int, int], processors: int
    ) -> tuple[Function, int, int] | None:
        """Return the chosen function with rows in registers, if they have one length and there is enough work to pay for compiling it."""
        if not isinstance(chosen[0], TeamFunction) or self.count is None or self.cost is None:
            return None
        if self.count * self.cost < WORTH_A_TEXT:
            return None
        whole = {n: v for n, v in scalars.items() if isinstance(v, int)}
        key = tuple((n, whole[n]) for n in sorted(bounding_names(self.launch.statements, set(whole)) - self.counting()))
        if key not in self.row_functions and len(self.row_functions) < MOST_TEXTS:
            self.row_functions[key] = self._write_rows(dict(key))
        written = self.row_functions.get(key)
        if written is None:
            return None
        per_block = written.threads() // written.team
        most = 1 << 20
        if isinstance(written, StreamFunction):  # few rows at a time: what is read again is still in the cache
            most = processors * max(1, min(2, CACHE // (written.row_bytes * processors)))
        return written, min(-(-self.count // per_block), most), written.threads()

    def counting(self) -> set[str]:
        """Return the parameters that only set the number of iterations, which changes often, and not the length of a row."""
        if self._counting is None:
            names = {p.name for p in self.kernel.params if isinstance(p, ir.Scalar)}
            loops = [s for s in statements(self.launch.statements) if isinstance(s, ir.For) and s.parallel]
            outside = bounding_names([ir.For("_", s.start, s.stop, s.step, []) for s in loops], names)
            lengths = {
                n
                for s in statements(self.launch.statements)
                if isinstance(s, ir.For) and not s.parallel and s.start.op == "const" and is_free(s, set()) is not None
                for n in names_in(s.stop)
            }
            self._counting = outside - lengths
        return self._counting

    def _write_rows(self, values: dict[str, int]) -> RowFunction | None:
        body = specialised(self.launch.statements, values)
        loops = [s for s in statements(body) if isinstance(s, ir.For) and not s.parallel]
        lengths = [s.stop.args[0] for s in loops if [e.op for e in (s.start, s.stop, s.step)] == ["const"] * 3]
        lengths = [n for n in lengths if n >= 16]
        if not lengths:
            return None
        length = max(set(lengths), key=lengths.count)
        rows = [s for s in loops if s.stop.op == "const" and s.stop.args[0] == length]
        touched = accesses(rows)
        widths = [b.dtype.itemsize for b in (*touched.reads, *touched.writes)]
        for team, vector in shapes(length, min(widths, default=4)):
            try:
                written = RowFunction(self.launch.name, self.kernel)
                written.prepare(team, False)
                written.hold(length, vector)
                written.text(body)
                return written
            except (DoesNotFit, NotForTeams):
                continue
        # Worth it for whole words, where every loop goes over the row (as measured; half-width rows do better in small blocks).
        streams = length > LONG_ROW and min(widths, default=0) >= 4 and len(rows) == len(loops)
        return self._write_stream(body, length, min(widths)) if streams else None

    def _write_stream(self, body: list[ir.Statement], length: int, itemsize: int) -> RowFunction | None:
        for vector in (8, 4, 2):
            if vector * itemsize <= 16 and length % vector == 0:
                try:
                    written = StreamFunction(self.launch.name, self.kernel)
                    written.prepare(ALONE, False)
                    written.hold(length, vector)
                    written.row_bytes = length * itemsize
                    written.text(body)
                    return written
                except (DoesNotFit, NotForTeams):
                    continue
        return None

    def _team(self, count: int | None, cost: Any, processors: int) -> int:
        """Return the number of threads that share an iteration: about as many as it has elements, if there are too few iterations to fill the
        device."""
        many = count is not None and count >= 2048 * processors
        work = 1 << 20 if cost is None else cost
        if work < _WARP_FROM and many:
            return 1
        if work >= _BLOCK_FROM or (count is not None and count < 4 * processors and work >= 256):
            large = self._large()
            return large if self.function(large) is not None else 1
        if work < 4:
            return 1
        return 32 if self.function(32) is not None else BLOCK if self.function(BLOCK) is not None else 1

    def _large(self) -> int:
        """Return the number of threads of a block that runs one iteration: as many as its arrays have elements."""
        arrays = [s.buffer.local_size for s in statements(self.launch.statements) if isinstance(s, ir.DeclareLocal)]
        return 64 if arrays and max(arrays) <= 64 else BLOCK
