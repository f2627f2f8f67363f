"""The observed call of a function on a GPU: a snapshot of the state before it, and whether it can be captured."""

from __future__ import annotations

from typing import Any

from ...backends.nvidia import graphs, threads
from ...backends.nvidia.memory import memories
from ...core.backend import backend_of
from ...core.device import cpu, device
from ...core.graph import GONE
from ...core.tensor import Tensor, tensors_in
from ..record import preparation
from ..record.differentiable import Boundary
from ..record.recorder import NotRecordable
from ..record.recording import Recorded
from ..record.results import live_in
from ..state.guards import AutogradItem, TensorItem, observe
from .capture import Observer


class Prepared(preparation.Prepared):
    """Snapshot of the state before the observed call."""

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
        kept = self._free_grads() and all(_gradient(t) == before for t, before in self.of_arguments)
        self.grads_before = {}
        recorded = self._recorded(self, devices.pop(), self._live_options(recorder.graph))
        self._note_changes(recorded)
        recorded.wanted = Wanted(result, self.given.tensors, self.state, self.outside)
        tensors = self.given.tensors
        if recorded.argument_bumps and len({t._storage.ptr for t in tensors}) < len(tensors):
            raise NotRecordable("it changes an argument that shares memory with another one")
        bumps, numbers = (recorded.bumps, recorded.argument_bumps), (recorded.counted, recorded.options)
        if kept and not any((*bumps, *numbers, recorded.switched, self.read)) and not recorded.wanted.count:
            recorded.makes_only_results()
        return recorded

    def _guard_grads(self, graph: Any) -> None:
        """Add guards that a gradient which the function reads or adds to keeps its memory."""
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

    def _free_grads(self) -> bool:
        """Drop the guards on gradients if the function neither uses nor sets any, and its code does not ask for them: one graph serves
        all passes over which gradients are summed. Return whether all gradients of its state are still the same tensors."""
        kept = all(self.grads_before[id(t)] is t.grad for t in self.state if t.is_leaf)
        if kept and not self.read and not self.reach.looks_at_gradients():
            for item, _ in self.observed:
                if isinstance(item, AutogradItem):
                    item.any_grad = True
        return kept


class Wanted:
    """Record of which results of an eager call are differentiated. The tensors that the caller gets instead (put into `outside`, by id)
    note when a gradient comes from outside; a result that another one is computed from gets gradients from inside, too."""

    def __init__(self, result: Any, arguments: list[Tensor], state: list[Tensor], outside: dict[int, Any]):
        inside = {id(t) for t in arguments}
        before = {id(t._storage) for t in (*arguments, *state)}
        live = live_in(result, inside, before)
        self.count = len(live)
        self._told: list[list[str]] = [[] for _ in live]
        own, mine = {id(t._storage) for t in live}, {id(t) for t in live}
        others = {id(t._storage) for t in tensors_in(result) if id(t) not in mine}
        alone = len(own) == len(live) and own.isdisjoint(others)  # a change of one is no part of another's history
        if len(live) > 1 and alone and not any(_is_marked(t) for t in live):
            outside.update({id(t): Boundary(t, told).leaf for t, told in zip(live, self._told)})

    def some(self) -> tuple[int, ...]:
        """Return the positions of the results that are differentiated; () if that is all of them, or not known."""
        found = tuple(i for i, told in enumerate(self._told) if told)
        return found if len(found) < len(self._told) else ()


def _is_marked(t: Tensor) -> bool:
    """Return whether a tensor has a subclass, attributes or a retained gradient, which a replacement would lack."""
    meta = t._autograd
    return type(t) is not Tensor or bool(t.__dict__) or (meta is not None and meta.retains_grad)


def _gradient(t: Tensor) -> tuple[int, int] | None:
    """Return the id of an argument's gradient and its version, or None."""
    grad = t.grad if t.is_leaf else None
    return None if grad is None else (id(grad), grad._version)


class Family:
    """Shared state of the recordings of a function without side effects, for several sizes: the tensors that they read, their guard,
    and the memory of their graphs. It holds none of any call's arguments."""

    read: frozenset[int] = frozenset()  # leaves whose gradients they read

    def __init__(self, prepared: Any, guard: Any, where: device):
        self.state, self.storages, self.reach = prepared.state, prepared.storages, prepared.reach
        self.guard, self._where, self._index = guard, where, where.index or 0
        self.pool = graphs.graph_pool_handle()
        self._stream: int | None = None  # in which a graph ran last

    def fits(self) -> bool:
        """Return whether all state that calls depend on is unchanged, and no code has run that might depend on more."""
        return not self.guard.difference() and not self.reach.unforeseen()

    def enter(self) -> None:
        """Wait until no graph of the family runs on another stream, before one runs on the current stream."""
        stream = threads.mine.streams[self._index]
        if self._stream not in (None, stream):
            backend_of(self._where).synchronize(self._where)
        self._stream = stream

    def in_use(self) -> int:
        """Return how many blocks of the graphs' memory are referenced from outside."""
        pool = graphs.shared_pool(self._index, self.pool)
        return sum(block.pool is pool for block in memories()[self._index].blocks.values()) if pool else 0
