"""Loop kernels on NVIDIA GPUs: which launches a kernel is cut into, and for each whether a thread, a warp or a block runs one iteration of
its parallel loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import dtype as dt
from . import complex_nests, ir
from .cuda_operands import Device
from .cuda_teams import BLOCK, TEAM_PRELUDE, NotForTeams, TeamFunction
from .cuda_values import PRELUDE
from .emit_cuda import Function, Launch, evaluate, launches, locate_parallel
from .nest_analysis import statements

ALONE = 1024  # threads that run what stands outside parallel loops
_WARP_FROM, _BLOCK_FROM = 24, 2048  # elements of an iteration that a warp, a block is worth


class LoopProgram:
    """The launches of one loop kernel."""

    def __init__(self, kernel: ir.Kernel):
        self.kernel = complex_nests.split(kernel)
        self.parts = [Part(launch, self.kernel) for launch in launches(kernel)]

    @property
    def source(self) -> str:
        """Every launch in the form it takes for much work."""
        functions = [part.function(BLOCK) or part.function(1) for part in self.parts]
        return _assembled([f for f in functions if f is not None])

    def bind(self, device: Device) -> Callable[..., None]:
        params = self.kernel.params
        kinds = tuple("d" if isinstance(p, ir.Scalar) and p.dtype is dt.float64 else "q" for p in params)
        numbers = [k for k, p in enumerate(params) if isinstance(p, ir.Scalar)]
        names = [p.name for p in params if isinstance(p, ir.Scalar)]
        plans: dict[tuple, list[tuple]] = {}
        compiled: dict[tuple[int, int], Any] = {}

        def function(k: int, team: int) -> Any:
            if (k, team) not in compiled:
                written = self.parts[k].function(team)
                assert written is not None
                compiled[k, team] = device.load(_assembled([written])).function(written.name, kinds)
            return compiled[k, team]

        def prepare(key: tuple) -> list[tuple]:
            scalars = dict(zip(names, key))
            plan = []
            for k, part in enumerate(self.parts):
                chosen = part.choose(scalars, device.processors)
                if chosen is not None:
                    team, grid, block = chosen
                    plan.append((function(k, team), grid, block))
            if len(plans) > 4096:
                plans.clear()
            plans[key] = plan
            return plan

        def run(*values: Any) -> None:
            key = tuple([values[k] for k in numbers])
            plan = plans.get(key)
            if plan is None:
                plan = prepare(key)
            for launch, grid, block in plan:
                launch(grid, block, *values)

        return run


def _assembled(functions: list[Function]) -> str:
    helpers = {text: None for f in functions for text in f.helpers}
    teams = TEAM_PRELUDE if any(isinstance(f, TeamFunction) for f in functions) else ""
    return PRELUDE + teams + "\n".join([*helpers, *(f.source for f in functions)])


class Part:
    """One launch, and its texts by size of team."""

    def __init__(self, launch: Launch, kernel: ir.Kernel):
        self.launch, self.kernel = launch, kernel
        self.written: dict[int, Function | None] = {}
        self.loop = next((s for s in statements(launch.statements) if isinstance(s, ir.For) and s.parallel), None)

    def function(self, team: int) -> Function | None:
        """The text for teams of so many threads; None if they do not help."""
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

    def choose(self, scalars: dict[str, Any], processors: int) -> tuple[int, int, int] | None:
        """Team, blocks and threads for these parameters; None if there is nothing to do."""
        if not self.launch.parallel:
            team = ALONE if self.function(ALONE) is not None else 1
            return team, 1, team
        known = dict(scalars)
        loop = locate_parallel(self.launch.statements, known)
        count = cost = None
        if loop is not None:
            start, stop, step = (evaluate(e, known) for e in (loop.start, loop.stop, loop.step))
            count = None if None in (start, stop, step) else len(range(start, stop, step))
            cost = None if loop.cost is None else evaluate(loop.cost, known)
        if count == 0:
            return None
        team = self._team(count, cost, processors)
        if team == 1:
            blocks = 32 * processors if count is None else min(-(-count // BLOCK), 64 * processors)
            return 1, blocks, BLOCK
        per_block = BLOCK // team
        blocks = 16 * processors if count is None else min(-(-count // per_block), 1 << 20)
        return team, max(blocks, 1), BLOCK

    def _team(self, count: int | None, cost: Any, processors: int) -> int:
        """How many threads share an iteration: about as many as it has elements, if there are not enough iterations to go round."""
        many = count is not None and count >= 2048 * processors
        work = 1 << 20 if cost is None else cost
        if work < _WARP_FROM and many:
            return 1
        if work >= _BLOCK_FROM or (count is not None and count < 4 * processors and work >= 256):
            return BLOCK if self.function(BLOCK) is not None else 1
        if work < 4:
            return 1
        return 32 if self.function(32) is not None else BLOCK if self.function(BLOCK) is not None else 1


__all__ = ["LoopProgram"]
