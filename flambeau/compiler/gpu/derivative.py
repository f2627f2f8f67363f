"""The derivative of a captured function: a second graph over the memory of the first, which reads the values saved there.

Results that are differentiated later have one node as their history. Between the forward and the backward pass nothing else may run the
first graph, so the function runs eagerly for as long as such a node is alive and its backward pass has not run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ...autograd.engine import run_backward
from ...autograd.function import FunctionNode as UsersNode
from ...backends.nvidia import graphs
from ...core import watching
from ...core.backend import backend_of
from ...core.device import device
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, empty_strided
from ...graph.recorder import Recorder
from ...graph.replay import Replay
from ..record.differentiable import SETS_GRADIENTS, CompiledNode, Derivative, Gradients
from ..record.preparation import Prepared
from ..record.recorder import NotRecordable
from ..record.results import Results, leaves_of, nodes_of, saved_storages
from ..runtime.program import Program
from ..state.observer import Observer as CodeObserver
from ..state.origins import is_put_there
from .capture import GraphProgram, Observer, address, capturing, copied, static_copies


class CapturedDerivative(Derivative):
    """The derivative of a captured call. `live` are results of the call with their graph, `statics` stand for its arguments, `state`
    are the other tensors that it read."""

    def __init__(self, live: list[Tensor], statics: list[Tensor], state: dict[int, Tensor], where: device):
        positions = {id(t): i for i, t in enumerate(statics)}
        inside = leaves_of(live)
        if any(id(leaf) not in positions and id(leaf) not in state for leaf in inside):
            raise NotRecordable("it makes leaves of its own")
        super().__init__([positions.get(id(leaf), leaf) for leaf in inside], live, {}, 0)
        known = {id(t._storage) for t in state.values()}
        self.watched = [s for s in saved_storages(live) if id(s) in known]
        self.where, self._live, self._inside = where, live, inside
        self.which = tuple(range(len(live)))  # of the results are differentiated
        self.usual: CapturedDerivative | None = None  # that of some results, where only these are differentiated
        self.program_of_calls: Any = None  # the backward pass as a program, where it was written down
        self.graph: Any = None
        self.forward: dict[int, UntypedStorage] = {}  # buffers of the forward pass, where it has no graph

    @classmethod
    def of(
        cls, live: list[Tensor], statics: list[Tensor], state: dict[int, Tensor], where: device, some: tuple[int, ...]
    ) -> CapturedDerivative:
        """Return the derivative of all results; `usual` is that of the results `some`, if callers differentiate only these."""
        found = cls(live, statics, state, where)
        if some and some[-1] < len(live):
            found.usual = cls([live[i] for i in some], statics, state, where)
            found.usual.which = some
        return found

    def all(self) -> list[CapturedDerivative]:
        """Return this derivative, preceded by that of some results if there is one."""
        return [self] if self.usual is None else [self.usual, self]

    def captured(self) -> list[CapturedDerivative]:
        """Return the derivatives that become graphs: only that of some results if that of all can be computed by making calls."""
        return (
            [self] if self.usual is None else [self.usual] if self.program_of_calls is not None else [self.usual, self]
        )

    def sample_grads(self) -> list[Tensor]:
        """Return gradients of ones for the results, to capture and to compare with."""
        return [empty_strided(shape, strides, d, where).fill_(1.0) for shape, strides, d, where in self.layouts]

    def sample(self) -> dict[int, Any]:
        """Return the derivatives for the gradients of `sample_grads`, by the positions of arguments or the ids of other leaves."""
        return dict(zip(map(_number, self.leaves), self.found(self.sample_grads())))

    def write_down(self, recorder: Recorder) -> None:
        """Record the backward pass, for synthetic gradients, as a program of its own over the same buffers."""
        grads = [empty_strided(shape, strides, d, where) for shape, strides, d, where in self.layouts]
        program = self.program_of_calls = recorder.new_program()
        for i, g in enumerate(grads):  # they may reuse memory of the forward pass
            recorder.memory.add(g._storage.ptr, g._storage.size_bytes, ("argument", i))
        program.inputs = [recorder.held(g) for g in grads]
        with recorder.recording():
            found = run_backward(self._live, grads, True, False, self._inside, False)
        results = Results(recorder.memory, grads, {})
        self._take(results, found)
        program.kept = {slot.buffer for slot in self.slots if slot.buffer >= 0}
        self._live = self._inside = []

    def _take(self, results: Results, found: Any) -> None:
        self.make, self.slots = results.maker(list(found)), results.slots
        if results.live:
            raise NotRecordable("a gradient has a history")

    def capture(self, pool: Any, storages: list[UntypedStorage], most: int, forward: Replay | None = None) -> None:
        """Capture the backward pass; that of a program after its forward pass."""
        graph, grads = graphs.CUDAGraph(keep_graph=True), self.sample_grads()
        observer = Observer(graph, most=most)
        for known in storages:
            observer.know_storage(known, "state")
        with capturing(graph, self.where, pool) as callers:
            inputs, statics = static_copies(grads, observer, self.where)
            replay = None if forward is None else Replay(self.program_of_calls)
            with observer.recording():
                if replay is None or forward is None:
                    found = run_backward(self._live, statics, True, False, self._inside, False)
                else:
                    replay.at.update(forward.at)
                    replay.hold |= forward.at.keys()  # it may run again
                    replay.run(statics)
            if observer.problems:
                raise NotRecordable(observer.problems[0])
            if replay is None:
                self._take(Results(observer.memory, statics, {}), found)
            with callers():
                made = self.storages_for()
            outputs = [
                (i, copied(graph, made[i].ptr, address(observer, slot, replay), slot.size, self.where, True))
                for i, slot in enumerate(self.slots)
                if slot.size
            ]
        self.graph = GraphProgram(graph, Program(observer.graph, {}, []), observer)
        self.graph.inputs, self.graph.outputs = inputs, outputs
        self._live = self._inside = []

    def leave(self, forward: Replay) -> None:
        """Leave the backward pass uncaptured, but keep the graph's memory in which the forward pass leaves the values that it reads."""
        for b in {b for call in self.program_of_calls.calls for b in call.touches()} & forward.at.keys():
            known = forward.at[b]
            self.forward[b] = found = UntypedStorage(0, self.where)
            found.ptr, found.size_bytes = known.ptr, known.size_bytes

    def storages_for(self) -> list[UntypedStorage]:
        return [UntypedStorage(slot.size, self.where) for slot in self.slots]

    def found(self, grads: list[Tensor]) -> list:
        """Return the gradients of the leaves."""
        made = self.storages_for()
        if self.graph is None:
            self._call(grads, made)
        else:
            self.graph.run(grads, made, [])
        return self.make(grads, made, None)

    def _call(self, grads: list[Tensor], made: list[UntypedStorage]) -> None:
        """Make the calls of the backward pass, one by one."""
        replay = Replay(self.program_of_calls)
        replay.at.update(self.forward)
        replay.hold |= self.forward.keys()
        replay.run(grads)
        for storage, slot in zip(made, self.slots):
            if slot.size:
                backend_of(self.where).copy(storage.ptr, replay.at[slot.buffer].ptr, slot.size, self.where)


class CapturedNode(CompiledNode):
    """Graph node from the results of a captured function to the leaves that it read."""

    derivative: CapturedDerivative

    def __init__(self, derivative: CapturedDerivative, tensors: Any):
        super().__init__(derivative, tensors, derivative.watched)

    def found(self, came: list) -> tuple:
        usual, every = self.derivative.usual, self.derivative
        if usual is None or tuple(i for i, g in enumerate(came) if g is not None) != usual.which:
            return tuple(every.found(every.gradients(came)))
        found = usual.found(usual.gradients([came[i] for i in usual.which]))
        of = dict(zip(map(_number, usual.leaves), found))
        return tuple(of.get(_number(leaf)) for leaf in every.leaves)


def users_part(live: list[Tensor]) -> str:
    """Return why the backward pass of these results must not run before the caller's, or "": a user's code in it may read or change anything."""
    for node in (node for t in live for node in nodes_of(t.grad_fn)):
        if isinstance(node, UsersNode) and any(is_put_there(getattr(node.cls, name)) for name in ("backward", "vjp")):
            return f"its backward pass runs code of its own: {node.cls.__name__}.backward"
        if node.hooks or node.prehooks:
            return "its backward pass calls hooks"
    return ""


class _SeedWatcher(watching.Watcher):
    """Watcher for the state of a random generator being set: the graph of a backward pass does not know that of the forward pass."""

    def __init__(self, told: list[str]):
        self.told = told

    def reseeded(self) -> None:
        self.told.append("its backward pass sets the state of a random generator")


@contextlib.contextmanager
def watched(prepared: Prepared, told: list[str]) -> Iterator[None]:
    """Context manager: note in `told` why the backward pass inside cannot become a graph. Code that the function has run is known, and what it
    reads is guarded: a checkpoint runs it again. The gradients of the results' leaves must be all that the pass computes."""
    observer, gradients = CodeObserver(), Gradients(prepared.state)
    with watching.watch(_SeedWatcher(told)), observer.watching(told.append):
        yield
    known = prepared.reach.observer.ran
    told += [
        f"its backward pass runs code of its own: {r.code.co_name}" for i, r in observer.ran.items() if i not in known
    ]
    told += [SETS_GRADIENTS] if gradients.changed() else []


def _number(leaf: Any) -> int:
    """Return the position of an argument, or the id of another leaf."""
    return leaf if type(leaf) is int else id(leaf)
