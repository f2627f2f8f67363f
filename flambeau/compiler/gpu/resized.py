"""Captures of further sizes: for a function without side effects another size of its arguments costs little.

The state that it depends on is known and guarded once for all sizes. The second call of a size is observed as usual, since it may run
other code than other sizes. The third runs the function, captures it, runs the graph and compares the results. All these graphs share
memory, because one runs after the other, and are captured as eager calls are: a size that is used often is worth a recording of its
own."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any

from ...core.backend import backend_of
from ...core.device import device
from ...core.tensor import Tensor
from ...graph.replay import modes_off
from ..record.recorder import NotRecordable
from ..record.results import same_results
from .capture import Observer
from .preparation import Family, Prepared
from .recording import GraphRecorded
from .values import alike

_OFTEN = 512  # calls of a size, after which it is worth seconds of compiling


class ResizedRecording(GraphRecorded):
    """A recording for another size of a function without side effects: captured without passes, in memory of the family."""

    def __init__(self, family: Family, prepared: Prepared, where: device, options: list[Any]):
        shares = prepared.reach is family.reach and not prepared.read
        super().__init__(prepared, where, options, family.guard if shares else None)
        self._mine, self.light, self.due = family, True, _OFTEN
        self._shares = shares

    def makes_only_results(self) -> None:
        """Share the family's state, and release the observed call's arguments until the size comes again."""
        super().makes_only_results()
        if self._shares:
            self.family = self._mine
        self.prepared = self.family

    def run(self, tensors: Any) -> Any:
        self._mine.enter()
        return super().run(tensors)

    def check(self, tensors: list[Tensor], run: Callable[..., Any]) -> tuple[str, Any]:
        if self.family is None:
            self.light = False
            return super().check(tensors, run)
        generator: Any = backend_of(self.where).generator(self.where)
        before = generator.state_bytes()
        result = run({})
        after = generator.state_bytes()
        generator.set_state_bytes(before)
        try:
            problem = self._compare_run(tensors, run, result)
            if generator.state_bytes() != after:
                problem = problem or "it does not draw as many random numbers in each call"
        except Exception as error:
            problem = str(error) if isinstance(error, NotRecordable) else f"{type(error).__name__}: {error}"
        if problem:
            self._drop_capture()
            generator.set_state_bytes(after)
        self.checked = not problem
        del self.prepared
        return problem, result

    def _compare_run(self, tensors: list[Tensor], run: Callable[..., Any], result: Any) -> str:
        """Capture the call, run the graph, and return why its results differ from the function's, or ""."""
        before = self._mine.in_use()
        self._mine.enter()
        made = self._capture(tensors, run, self._mine.pool, 0)
        if self.grads or self.backward is not None:
            return "it does not do the same in each call"
        for buffer in self.program.graph.buffers:
            if buffer.source != "state":
                buffer.storage = None  # where copies of the arguments were while it was captured
        if self._mine.in_use() != before:
            gc.collect()
        if self._mine.in_use() != before:
            return "a tensor that it makes outlives the call in a place that later calls would not update"
        self.program.calls = "captured as it is, for this size, in memory that graphs of other sizes share"
        self.program.capture.replay()
        with modes_off():
            same = same_results(self._result(tensors, made), result, alike)
        return "" if same else "a result came out differently for other sizes"


def observer(family: Family | None = None) -> Observer:
    """Return an observer for the call that is recorded: the second call of a function, or the first of another size."""
    kind: Any = GraphRecorded if family is None else functools.partial(ResizedRecording, family)
    return Observer(prepare=functools.partial(Prepared, kind))
