"""Running a function as it is, as a program, and as a program that passes have rewritten, from the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.graph.checker import check
from flambeau.graph.memory import mapped
from flambeau.graph.passes import PASSES
from flambeau.graph.program import Program
from flambeau.graph.recorder import record
from flambeau.graph.replay import Replay


class State:
    """Tensors that a function changes, and the generator it draws from, to be put back."""

    def __init__(self, tensors: list[Any]):
        self.tensors = tensors
        self.values = self.now()
        self.random = fl.get_rng_state()

    def now(self) -> list[Any]:
        return [t.detach().clone() for t in self.tensors]

    def put_back(self) -> None:
        with fl.no_grad():
            for t, old in zip(self.tensors, self.values):
                t.copy_(old)
        fl.set_rng_state(self.random)


def flat(result: Any) -> list[Any]:
    found: list[Any] = []
    mapped(
        tuple(result) if isinstance(result, tuple) else result, fl.Tensor, lambda t: found.append(t.detach().clone())
    )
    return found


def same_bits(a: Any, b: Any) -> bool:
    if a.shape != b.shape or a.dtype is not b.dtype:
        return False
    return (
        a.contiguous().numpy().tobytes() == b.contiguous().numpy().tobytes()
        if a.dtype is not fl.bfloat16
        else bool((a.contiguous().view(fl.int16) == b.contiguous().view(fl.int16)).all())
    )


def rewritten(function: Callable, *args: Any, states: Any = (), near: float = 0.0) -> tuple[Program, Program]:
    """What a function does, as recorded and after the passes; both give the bits of the function itself, or, the rewritten program,
    numbers as `near` as that."""
    tensors: list[Any] = []
    mapped(args, fl.Tensor, tensors.append)
    state = State([*states, *tensors])
    expected, after = flat(function(*args)), state.now()
    state.put_back()
    recorded = record(function, *args, states=states)
    check(recorded)
    state.put_back()
    program = Program(
        recorded.buffers, list(recorded.calls), recorded.inputs, recorded.states, recorded.outputs, recorded.kept
    )
    for which in (recorded, program):
        if which is program:
            for work in PASSES:
                work(program)
                check(program, recorded)
        found = flat(Replay(which).run(tensors))
        assert len(found) == len(expected)
        for a, b in zip([*found, *state.now()], [*expected, *after]):
            if near and which is program:
                fl.testing.assert_close(a, b, rtol=near, atol=near, equal_nan=True)
            else:
                assert same_bits(a, b), (a, b)
        state.put_back()
    return recorded, program


def launches(program: Program) -> list[str]:
    """The calls that do something."""
    return [c.op.name for c in program.calls if c.makes or c.changes]
