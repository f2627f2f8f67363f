"""Results of collectives in a call that compares: the recording is given the stored ones, instead of sending a second time.

All ranks must exchange the same messages in the same order, and each decides independently whether it runs a function eagerly, records it,
compares a recording or runs one. So every call, whatever it does, sends exactly what the eager function would send. A call that compares runs
the function first and stores the result of each collective; then the recording runs, from the restored state, and its collectives are given
these results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...core import modes
from ...core.generator import default_generator
from ...core.graph import unrecorded
from ...core.tensor import Tensor
from ...graph.memory import instances
from ...graph.program import Value
from ...graph.recorder import written_arguments
from ..record.operator_call import tensor_at
from ..record.steps import Call
from .first_run import SetAside, to_the_end


class Answers(modes.Observer):
    """Observer of the operators that exchange messages while a function runs, which keeps their written arguments and results."""

    sees_messages = True

    def __init__(self) -> None:
        self.kept: list[tuple[Any, list[Tensor]]] = []
        self._inside = False  # whether such an operator runs: those that it is made of do not count
        self._former: modes.Observer | None = None

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        self._former = modes.observe(self)
        try:
            yield
        finally:
            modes.observe(self._former)

    def operator(self, op: Any, run: Callable, args: tuple, kwargs: dict) -> Any:
        if op.sends not in ("whole", "end") or self._inside:
            return self._call_former_observer(op, run, args, kwargs)
        self._inside = True
        try:
            result = self._call_former_observer(op, run, args, kwargs)
        finally:
            self._inside = False
        left = _values_left(op, args, kwargs, result, Tensor)
        self.kept.append((op, unrecorded(lambda: [t.detach().clone() for t in left])))
        return result

    def _call_former_observer(self, op: Any, run: Callable, args: tuple, kwargs: dict) -> Any:
        """Pass a call on to the observer before this one, and return that one's result."""
        return run(*args, **kwargs) if self._former is None else self._former.operator(op, run, args, kwargs)

    def begin(self, name: str, scope: int, sequence: int = -1) -> Any:
        return None if self._former is None else self._former.begin(name, scope, sequence)

    def end(self, event: Any) -> None:
        if self._former is not None:
            self._former.end(event)

    def give(self, program: Any, call: Call) -> None:
        """Store the result of the next collective where a step of a program would; nothing for a step that only starts one."""
        assert call.call is not None
        if call.call.op.sends == "start":
            return
        op, tensors = self.kept.pop(0) if self.kept else (None, [])
        places = _values_left(call.call.op, call.arguments, call.keywords, call.call.results, Value)
        if op is not call.call.op or [(t.shape, t.dtype) for t in tensors] != [(v.shape, v.dtype) for v in places]:
            raise RuntimeError(f"{call.name} comes in another order than when the function runs as it is")
        for t, v in zip(tensors, places):
            if v.buffer >= 0:
                unrecorded(tensor_at(program, v).copy_, t)


def _values_left(op: Any, args: tuple, kwargs: dict, result: Any, kind: type) -> list[Any]:
    """Return the arguments that an operator writes, and its results: tensors, or values that stand for them."""
    return instances((written_arguments(op, args, kwargs) if op.writes else (), result), kind)


class Copies(NamedTuple):
    """Saved bytes of storages, and states of generators."""

    memory: SetAside
    generators: list[tuple[Any, Any]]


class States:
    """State that existed before a call, saved before and after it, so that a recording can run from the earlier one."""

    def __init__(self, storages: list[Any], generators: list[Any]):
        self._storages = storages
        self._generators = list(dict.fromkeys([default_generator, *generators]))
        self.before, self._after = self._copy(), Copies(SetAside([]), [])

    def _copy(self) -> Copies:
        return Copies(SetAside(self._storages), [(g, g.state_bytes()) for g in self._generators])

    def back(self) -> None:
        """Restore the state before the call."""
        self._after = self._copy()
        to_the_end(lambda: self._put(self.before))

    def forth(self) -> None:
        """Restore the state after the call."""
        to_the_end(lambda: self._put(self._after))
        for copies in (self.before, self._after):
            copies.memory.close()

    @staticmethod
    def _put(held: Copies) -> None:
        held.memory.put_back()
        for generator, mark in held.generators:
            generator.set_state_bytes(mark)
