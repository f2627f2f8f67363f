"""Compiled functions whose results will be differentiated by the caller: `compile(model)` in an ordinary training loop.

The function is one graph and its derivative another, which is recorded at the first backward pass. One node of the autograd graph connects
the function's results with the leaves that it read. It holds what eager's nodes would hold: the memory that the derivative reads, and its
versions."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from ...amp.autocast_mode import autocast
from ...autograd.engine import run_backward
from ...autograd.function import FunctionNode as UsersNode
from ...autograd.grad_mode import no_grad
from ...core.casts import casts
from ...core.dtype import float32, uint8
from ...core.graph import RETRY_MESSAGE, AutogradState, Node, grad_mode, gradient_edge
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, empty_strided
from ...ops.reduce.agreement import equal
from ..passes import pipeline
from ..passes.pipeline import Stage
from ..runtime.first_run import Rehearsal, to_the_end
from ..runtime.messages import Answers
from ..runtime.program import Program
from ..runtime.stepwise import run_stepwise
from ..state.guards import Guard, observe
from ..state.observer import Observer
from ..state.reach import Reach, Unreachable
from .comparison import TensorPrint
from .recorder import NotRecordable, StepRecorder
from .results import Results, leaves_of, nodes_of, unpacks

HISTORY = "it differentiates an argument that has a history"
_PATIENCE = 2  # calls whose results may stay undifferentiated before the derivative is found without
OTHER_CASTS = (
    "a backward pass of a compiled function runs under another autocast than its earlier ones, which it was compiled for:"
    " from now on the function runs uncompiled, call it again; or call backward() under the same autocast each time"
)
OTHER_STATE = (
    "what the backward pass of a compiled function reads has changed since the forward pass ({}): from now on the function runs"
    " uncompiled, call it again; or change it before the forward pass"
)
EXCHANGED = (
    "a tensor that the backward pass of a compiled function reads was given other data since the forward pass (by an assignment to"
    " `.data`, for example): change its values in place, or before the forward pass"
)
SETS_GRADIENTS = "its backward pass sets gradients by itself, as that of a reentrant checkpoint does"
DOUBLE = "torch.compile with aot_autograd does not currently support double backward"


class Whole:
    """A storage in the form of a tensor, as a program expects its arguments."""

    __slots__ = ("_storage", "shape")
    _offset, _strides = 0, (1,)
    dtype = uint8

    def __init__(self, storage: UntypedStorage):
        self._storage, self.shape = storage, (storage.size_bytes,)


class Boundary(Node):
    """Node at which an argument with a history enters a function, so that graphs of the function end here. A gradient that reaches
    it goes on to the argument and is noted in `told`, because a function that differentiates its arguments cannot be recorded."""

    def __init__(self, t: Tensor, told: list[str]):
        super().__init__("CompiledArgumentBackward", (gradient_edge(t),))
        self.output_info = ((t.shape, t.dtype, t.device),)
        self.told = told
        self.leaf = t._bare_alias()  # is the argument, inside
        self.leaf._autograd = AutogradState()
        self.leaf._autograd.grad_fn = self

    def apply(self, grads: list) -> tuple:
        self.told.append(HISTORY)
        return (grads[0],)


@contextlib.contextmanager
def cut_off(leaves: list[Tensor]) -> Iterator[None]:
    """Context manager: end graphs at those of these tensors that stand for arguments with a history. Hooks that leaves have got since
    the call are not called: the gradients go on to the leaves, where they are called once."""
    ends = [(t.grad_fn, t.grad_fn.edges) for t in leaves if isinstance(t.grad_fn, Boundary)]
    found = [
        t._autograd.accumulator() for t in leaves if t._autograd is not None and t._autograd.accumulator is not None
    ]
    hooked = [(node, node.prehooks) for node in found if node is not None and node.prehooks]
    for end, _ in ends:
        end.edges = ()
    for node, _ in hooked:
        node.prehooks = None
    try:
        yield
    finally:
        for end, edges in ends:
            end.edges = edges
        for node, hooks in hooked:
            node.prehooks = hooks


class Gradients:
    """Snapshot of the gradients of some tensors, to see whether they change."""

    def __init__(self, tensors: Iterable[Tensor]):
        self.tensors = [*tensors]
        self.before = self._now()

    def _now(self) -> list[tuple[Any, int]]:
        grads = [None if t._autograd is None else t._autograd.grad for t in self.tensors]
        return [(g, 0 if g is None else g._version) for g in grads]

    def changed(self) -> bool:
        """Return whether a tensor has another gradient than before, or one that was written to."""
        return any(a is not b or v != w for (a, v), (b, w) in zip(self.before, self._now()))


class Derivative:
    """The backward half of a recording. `leaves` are tensors of the state, or positions of arguments; `layouts` are those of the results for
    which gradients arrive, `state` the tensors whose gradients a user's code in the backward pass may set."""

    def __init__(
        self, leaves: list[Any], live: list[Tensor], storages: dict[int, UntypedStorage], saved: int, state: Any = ()
    ):
        self.leaves, self.storages, self.saved = leaves, storages, saved
        self.state = [*state]
        self.layouts = [(t.shape, t._strides, t.dtype, t.device) for t in live]
        self.reaches: list[set[int]] = []  # which leaves each result's gradient arrives at
        self.program: Program | None = None
        self.make: Any = None
        self.slots: list[Any] = []
        self.reads: set[int] = set()  # which of the gradients, arguments and saved storages its steps use
        self.watched: list[UntypedStorage] = []  # of the state
        self.bases: list[tuple[Tensor, Tensor]] = []  # tensors of the state that are stored there, and aliases of them
        self.problem = ""
        self.around = casts.enabled  # what autocast cast to in the function's call
        # And in backward passes that give what the recorded one gives: that one first.
        self.casts: list[dict[str, Any]] = []
        self.checked = False
        self.guard: Guard | None = None  # of what users' code in its backward pass reads, if there is such code
        self.undifferentiated = 0  # calls since the recording for which no backward pass came
        self.trail: list[Stage] = []

    def try_out(self, results: list[Tensor]) -> None:
        """Record the derivative with synthetic gradients if results seem never to be differentiated, so that the function can be one native
        call nevertheless. Do nothing if a backward pass would run user code."""
        self.undifferentiated += 1
        if self.undifferentiated <= _PATIENCE or self.problem or casts.enabled:
            return  # where autocast is on, nobody knows whether it will be in a backward pass
        node = next((t.grad_fn for t in results if isinstance(t.grad_fn, FunctionNode)), None)
        if node is None or node.live is None or node.derivative is not self or not node.is_quiet():
            self.undifferentiated = -sys.maxsize
            return
        grads = [_varied_gradient(*layout) for layout in self.layouts]
        try:
            with no_grad():
                node.found(list(grads))
        except RuntimeError:  # saved values were changed in place: the results cannot be differentiated
            self.undifferentiated = -sys.maxsize

    def gradients(self, grads: list) -> list[Tensor]:
        """Return incoming gradients in the form that the program expects: laid out like the results, zeros for missing ones."""
        found = []
        for g, (shape, strides, d, where) in zip(grads, self.layouts):
            if g is None:
                g = empty_strided(shape, strides, d, where).zero_()
            elif g._strides != strides or g.dtype is not d or g.is_sparse:
                g = empty_strided(shape, strides, d, where).copy_(g.to_dense() if g.is_sparse else g)
            found.append(g)
        return found

    def record(self, node: FunctionNode, grads: list[Tensor]) -> list:
        """Run the derivative eagerly and record it."""
        recorder, self.casts = StepRecorder(), [casts.enabled]
        for storage in self.storages.values():
            recorder.know_storage(storage, "state")
        tensors: list[Any] = [*grads, *node.arguments, *map(Whole, node.saved)]
        arguments: dict[int, tuple[int, int]] = {}
        for i, t in enumerate(tensors):
            if t._storage.ptr:
                buffer = recorder.know_storage(t._storage, ("argument", i))
                if buffer is not None and buffer.source != "state" and buffer.index not in arguments:
                    arguments[buffer.index] = (i, t._offset * t.dtype.itemsize)
        quiet, observer = node.is_quiet(), Observer()
        with recorder.recording(), contextlib.nullcontext() if quiet else observer.watching(recorder.refuse):
            found = self.eager(node, grads)
        try:
            self._finish(recorder, arguments, grads, found)
            if not quiet:
                reach = Reach(observer).explore([])
                self.guard = Guard(observe(reach.items))
                self.state += [t for _, t in reach.tensors.values()]
        except (NotRecordable, Unreachable) as problem:
            self.problem = str(problem)
        return found

    def eager(self, node: FunctionNode, grads: list[Tensor]) -> list:
        """Run the backward pass eagerly. Only its own results are made again in a replay, so it must not set gradients of the state."""
        gradients = Gradients(self.state)
        found = node.eager(grads)
        if gradients.changed():
            self.problem = self.problem or SETS_GRADIENTS
        return found

    def _finish(
        self, recorder: StepRecorder, arguments: dict[int, tuple[int, int]], grads: list[Tensor], found: list
    ) -> None:
        if recorder.problems or recorder.under_way:
            raise NotRecordable((*recorder.problems, "it starts messages that it does not wait for")[0])
        results = Results(recorder.memory, grads, {})
        self.make = results.maker(list(found))
        if results.live:
            raise NotRecordable("a gradient has a history")
        graph = recorder.graph
        self.slots = results.slots
        used = {r.buffer for s in graph.steps for r in s.refs()}
        self.watched = [
            b.storage for b in graph.buffers if b.source == "state" and b.index in used and b.storage is not None
        ]
        watched = set(map(id, self.watched))
        self.bases = [(t, t._bare_alias()) for t in self.state if id(t._storage) in watched]
        self.trail = pipeline.run(graph, {s.buffer for s in results.slots})
        used = {r.buffer for s in graph.steps for r in s.refs()}
        self.reads = {i for buffer, (i, _) in arguments.items() if buffer in used}
        self.program = Program(graph, arguments, [s.buffer for s in results.slots])

    def run(self, node: FunctionNode, grads: list[Tensor], made: list[UntypedStorage] | None = None) -> list:
        assert self.program is not None
        if made is None:
            made = [UntypedStorage(slot.size) for slot in self.slots]
        tensors = [*grads, *node.arguments, *map(Whole, node.saved)]
        self.program.run(tensors, made, [u.options for u in self.program.graph.updates])
        return self.make(grads, made, None)

    def exchanged(self, node: FunctionNode) -> bool:
        """Return whether a leaf or a tensor of the state that the program reads has other memory now, and other values."""
        first = len(self.layouts)
        own = [
            (t, node.arguments[i])
            for t, i in zip(node.leaves, self.leaves)
            if type(i) is int and first + i in self.reads
        ]
        return any(t._storage is not a._storage and not equal(t, a) for t, a in (*self.bases, *own))

    def arrived(self, found: list, grads: list) -> tuple:
        """Return the gradients of the leaves, with None for leaves that no incoming gradient reaches."""
        if all(g is not None for g in grads):
            return tuple(found)
        reached = set().union(*(to for to, g in zip(self.reaches, grads) if g is not None))
        return tuple(g if i in reached else None for i, g in enumerate(found))

    def rehearse(self, node: FunctionNode, grads: list[Tensor], answers: Any = None) -> list:
        """Run the program on memory full of garbage, with these `answers` of other processes, and return fingerprints of its results."""
        assert self.program is not None
        made = [UntypedStorage(slot.size) for slot in self.slots]
        tensors: list[Any] = [*grads, *node.arguments, *map(Whole, node.saved)]
        rehearsal = Rehearsal(self.program, tensors, made)
        rehearsal.answers = answers
        self.program.rehearsal = functools.partial(run_stepwise, rehearsal=rehearsal)
        try:
            found = [None if g is None else TensorPrint(g) for g in self.run(node, grads, made)]
        finally:
            self.program.rehearsal = None
            to_the_end(rehearsal.undo)
        self.program.rest()
        return found

    def compare(self, ours: list, theirs: list) -> None:
        """Compare a recorded derivative's values with eager ones: it is used only after they were equal."""
        for a, b in zip(ours, theirs):
            if (a is None) != (b is None) or (a is not None and not a.matches(b)):
                self.problem = "a gradient came out differently"
        if self.guard is not None and not self.problem and (why := self.guard.difference()):
            self.problem = f"its backward pass changes Python's state: {why}"
        self.checked = not self.problem

    def try_other_casts(self, node: FunctionNode, grads: list[Tensor], ours: list) -> None:
        """Find out whether the gradients are the same with and without the autocast that the function was called under."""
        for other in (self.around, {}):
            if other not in self.casts and node.is_quiet():
                with autocast("cpu", other.get("cpu"), "cpu" in other):
                    theirs = node.eager(grads)
                same = [a is b if a is None or b is None else a.matches(b) for a, b in zip(ours, theirs)]
                self.casts += [other] if all(same) else []


def _varied_gradient(shape: tuple, strides: tuple, d: Any, where: Any) -> Tensor:
    """Return a gradient of varied values, in which nothing cancels."""
    n = math.prod(shape)
    values = empty_strided((n,), (1,), float32, where).fill_(1).cumsum(0).cos()
    return empty_strided(shape, strides, d, where).copy_(values.reshape(shape))


class CompiledNode(Node):
    """Graph node from the results of a compiled function to the leaves that it read; `memory` must not change before its backward pass."""

    def __init__(self, derivative: Derivative, tensors: Any, memory: list[UntypedStorage]):
        self.derivative = derivative
        self.leaves = [tensors[leaf] if type(leaf) is int else leaf for leaf in derivative.leaves]
        super().__init__("CompiledFunctionBackward", tuple(gradient_edge(leaf) for leaf in self.leaves))
        self.output_count = len(derivative.layouts)
        self.output_info = tuple((shape, d, where) for shape, _, d, where in derivative.layouts)
        self.versions = [(s, s.version) for s in memory]
        self.done = False

    def apply(self, grads: list) -> tuple:
        if self.done:
            raise RuntimeError(RETRY_MESSAGE)
        if grad_mode.enabled:
            raise RuntimeError(DOUBLE)
        for storage, version in self.needed():
            if storage.version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: it is at"
                    f" version {storage.version}; expected version {version} instead (in a compiled function)."
                )
        return self.found(grads)

    def needed(self) -> list[tuple[UntypedStorage, int]]:
        """Return the memory that the derivative reads, with the versions it had."""
        return self.versions

    def found(self, came: list) -> tuple:
        """Compute the gradients of the leaves from the incoming ones."""
        raise NotImplementedError

    def release(self) -> None:
        self.done = True


class FunctionNode(CompiledNode):
    """The node of a function on the CPU, which holds the memory that the derivative reads."""

    def __init__(
        self,
        derivative: Derivative,
        tensors: list[Tensor],
        saved: list[UntypedStorage],
        live: list[Tensor] | None = None,
    ):
        super().__init__(derivative, tensors, [*saved, *(t._storage for t in tensors), *derivative.watched])
        self.arguments = [t._bare_alias() for t in tensors]
        self.saved = saved
        self.live = live  # results with their own graph, if the function ran eagerly
        self.inner: list[Tensor] = []  # the leaves of that graph
        self.ends: list[Any] = []  # where gradients of these arrive, also if they have been frozen since

    def needed(self) -> list[tuple[UntypedStorage, int]]:
        """Return the storages, with their versions, that the recorded backward steps read; none if the function ran eagerly."""
        if self.live is not None or self.derivative.program is None:
            return []
        read, saved = self.derivative.reads, len(self.saved)
        first = len(self.derivative.layouts)  # gradients come first, then arguments, then what was saved
        places = [first + len(self.arguments) + i for i in range(saved)]
        places += [first + i for i in range(len(self.arguments))]
        return [v for v, place in zip(self.versions, places) if place in read] + self.versions[len(places) :]

    def wrap(self, t: Tensor, position: int) -> Tensor:
        """Return an alias of a result with this node as its history."""
        result = t._bare_alias()
        result._autograd = AutogradState()
        result._autograd.grad_fn, result._autograd.output_nr = self, position
        return result

    def found(self, came: list) -> tuple:
        derivative = self.derivative
        grads = derivative.gradients(came)
        if self.live is None and casts.enabled not in derivative.casts:
            derivative.problem = OTHER_CASTS
            raise RuntimeError(OTHER_CASTS)
        if self.live is None and derivative.guard is not None and (why := derivative.guard.difference()):
            derivative.problem = OTHER_STATE.format(why)
            raise RuntimeError(derivative.problem)
        if self.live is None:
            if derivative.exchanged(self):
                raise RuntimeError(EXCHANGED)
            return derivative.arrived(derivative.run(self, grads), came)
        if not derivative.reaches:
            ends = {id(t): i for i, t in enumerate(self.inner)}
            derivative.reaches = [{ends[id(t)] for t in leaves_of([t]) if id(t) in ends} for t in self.live]
        if derivative.program is None and not derivative.problem:
            return derivative.arrived(derivative.record(self, grads), came)
        program = derivative.program
        if program is None or derivative.checked or derivative.problem:
            return derivative.arrived(self.eager(grads), came)
        if program.sends:  # nothing may be sent a second time
            answers = Answers()
            with answers.observing():
                found = derivative.eager(self, grads)
            try:
                ours = derivative.rehearse(self, grads, answers)
            except RuntimeError as problem:  # messages come in another order
                derivative.problem = str(problem)
                return derivative.arrived(found, came)
        else:
            ours = derivative.rehearse(self, grads)
            found = derivative.eager(self, grads)
            derivative.try_other_casts(self, grads, ours)
        derivative.compare(ours, found)
        return derivative.arrived(found, came)

    def is_quiet(self) -> bool:
        """Return whether a backward pass through the function's own graph runs no code of the user (nodes, hooks)."""
        nodes = [node for t in self.live or () for node in nodes_of(t.grad_fn)]
        return not any(isinstance(n, UsersNode) or n.hooks or n.prehooks or n.retain or unpacks(n) for n in nodes)

    def eager(self, grads: list[Tensor]) -> list:
        """Compute the gradients of the leaves by the function's own graph, which ends at its arguments."""
        assert self.live is not None
        with cut_off(self.inner):
            return run_backward(self.live, grads, True, False, self.ends, False)

    def release(self) -> None:
        super().release()
        self.saved, self.live, self.arguments = [], None, []
