"""The observed call of a function on a GPU: how everything was before it, and whether it can be captured."""

from __future__ import annotations

from typing import Any

from ...core.device import cpu
from ...core.graph import GONE
from ...core.tensor import Tensor, tensors_in
from ..record import preparation
from ..record.recorder import NotRecordable
from ..record.recording import Recorded
from ..record.results import is_live
from ..state.guards import TensorItem, observe
from .capture import Observer


class Prepared(preparation.Prepared):
    """Everything as it is before the observed call."""

    recorder: Observer

    def __init__(self, recorded: Any, *given: Any):
        super().__init__(*given)
        self._recorded = recorded  # the class of recordings
        self.read: set[int] = set()  # leaves whose gradients it reads, or adds to
        self.of_arguments = [(t, _gradient(t)) for t in self.given.tensors if t.is_leaf]

    def _accept(self, t: Tensor) -> None:
        if t.is_sparse or t.device.type != "cuda":
            raise NotRecordable(f"an argument is on {t.device} with layout {t.layout}, and others are on a GPU")
        if t._autograd is not None and (t._autograd.hooks or t._autograd.post_hooks):
            raise NotRecordable("an argument has hooks")

    def finish(self, result: Any) -> Recorded:
        recorder = self.recorder
        if recorder.problems:
            raise NotRecordable(recorder.problems[0])
        if any(before is not None and _gradient(t) != before for t, before in self.of_arguments):
            raise NotRecordable("it changes the gradient that an argument has")
        self._settle_grads()
        self._unchanged()
        devices = {t.device for t in [*self.state, *self.given.tensors] if t.device is not cpu}
        if len(devices) != 1:
            raise NotRecordable(f"it works on several devices: {', '.join(sorted(map(str, devices)))}")
        self._guard_grads(recorder.graph)
        self.grads_before = {}
        recorded = self._recorded(self, devices.pop(), self._live_options(recorder.graph))
        self._note_changes(recorded)
        recorded.wanted = Wanted(result, self.given.tensors)
        tensors = self.given.tensors
        if recorded.argument_bumps and len({t._storage.ptr for t in tensors}) < len(tensors):
            raise NotRecordable("it changes an argument that shares memory with another one")
        return recorded

    def _guard_grads(self, graph: Any) -> None:
        """A gradient that the function reads or adds to must stay where it is."""
        extra: list[Any] = []
        for t in self.state:
            grad = self.grads_before[id(t)]
            if grad is None or grad is GONE or grad.is_sparse or not grad._storage.ptr:
                continue
            place = self.recorder.memory.find(grad._storage.ptr)
            if place is None or place.buffer in self.recorder.touched:
                extra += [TensorItem("a gradient", grad), preparation.GradItem(t, grad)]
                self.read.add(id(t))
        self.observed += observe(extra)


class Wanted:
    """Which results of an eager call are differentiated: `arrived` has the positions of those that a gradient comes for."""

    def __init__(self, result: Any, arguments: list[Tensor]):
        self.arrived: set[int] = set()
        inside = {id(t) for t in arguments}
        found = {id(t): t for t in tensors_in(result)}.values()
        self._hooks = [
            t.register_hook(lambda g, i=i: self.arrived.add(i))
            for i, t in enumerate(t for t in found if is_live(t, inside))
        ]

    def some(self) -> tuple[int, ...]:
        """Return the positions of those that are differentiated, where this is known and others are not; no longer look for more."""
        for hook in self._hooks:
            hook.remove()
        count, self._hooks = len(self._hooks), []
        return tuple(sorted(self.arrived)) if 0 < len(self.arrived) < count else ()


def _gradient(t: Tensor) -> tuple[int, int] | None:
    """Return which gradient an argument has, and how often it was changed."""
    grad = t.grad if t.is_leaf else None
    return None if grad is None else (id(grad), grad._version)


__all__ = ["Prepared"]
