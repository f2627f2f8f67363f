"""Compiled functions on a GPU: the work of a call is captured into one CUDA graph, and later calls run the graph.

The first call runs as it is. The second is observed: what cannot be captured (a look at values, work on the CPU, changes of Python's
state) is a reason to leave the function as it is. The third is captured, the graph runs, everything is put back, the function runs as
it is, and both are compared. What is new in each call (where arguments and results lie, the numbers of optimizers) is patched into
the graph; gradients stay where they are, in the graph's memory."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..backends.nvidia import graphs, patches, streams, threads
from ..core import storage as storages
from ..core.backend import backend_of
from ..core.casts import casts
from ..core.device import cpu, device
from ..core.dtype import float32
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor, new_tensor
from ..optim.fused import Update as FusedUpdate
from . import preparing
from .comparing import modes_off
from .function import recording
from .graph import Graph, Ref, Update
from .guards import Guard, TensorItem, observe
from .program import Program, Stale
from .recorded import GradSlot, Recorded, extent, tensors_in
from .recorder import Memory, NotRecordable, Recorder
from .results import Results, Slot, is_live

_LIST_ARGUMENTS = 4  # of the kernel over lists of parameters, before the numbers
_NOISE = 1e-2  # by how much the changes of one step may differ: sums of atomic additions have no fixed order
_LARGE_POOL = 1 << 26


class Observer(Recorder):
    """Watches a function that works on a GPU. With a `capture`, its work is being recorded into that graph."""

    def __init__(self, capture: graphs.CUDAGraph | None = None):
        self.graph, self.memory = Graph(), Memory()
        self.graph.buffers = self.memory.buffers
        self.leaf = None
        self.problems = []
        self.thread = threading.get_ident()
        self.codes = frozenset()
        self.numbers = []
        self.prepare = Prepared
        self.capture = capture
        self.touched: set[int] = set()  # buffers that existed before and that operators were given
        self.patches: list[list[patches.KernelPatch]] = []  # of each update

    def know(self, held: UntypedStorage, source: Any) -> Any:
        if not held.ptr:
            return None
        found = self.memory.find(held.ptr)
        if found is not None and found.offset == 0:
            return self.memory.buffers[found.buffer]
        return self.memory.add(held.ptr, max(held.size_bytes, held.capacity), source, held)

    @contextlib.contextmanager
    def recording(self) -> Iterator[Recorder]:
        with storages.watch(self), self:
            yield self

    # -- operators --------------------------------------------------------------------------------------------------
    def _held(self, t: Tensor) -> Any:
        if t.is_sparse or not hasattr(t, "_storage"):
            self._problem(f"a tensor with layout {t.layout}")
            return None
        place = self.memory.find(t._storage.ptr) if t._storage.ptr else None
        if place is not None and self.memory.buffers[place.buffer].source != "new":
            self.touched.add(place.buffer)
            if t.device is cpu:
                self._problem("it works with a tensor on the CPU")
        elif t.device is cpu and t._storage.ptr and place is None:
            self._problem("it works with a tensor on the CPU that existed before")
        return None

    def _know_generators(self, leaf: Any, args: tuple, kwargs: dict) -> None:
        """A graph knows who draws in it; the CPU's generator is compared with what it was."""

    def _number(self, function: Callable, args: tuple) -> Any:
        self._problem("item depends on values")
        return function(*args)

    def _finish(self, leaf: Any, op: Any, given: Any) -> None:
        """What an operator did is in the graph."""

    def _update(self, update: FusedUpdate, args: tuple, options: dict) -> None:
        """The update of a list of parameters: which numbers its kernels get, and where its step counts are."""
        found = options.pop("found_inf", None)
        used = update.variant(options)
        count = len(used.scalars)
        if found is not None or any(c.device is not cpu for row in args[2 : 2 + count] for c in row):
            self._described(args, {})
            update.update_lists(*args, found_inf=found, **options)  # numbers are guarded, the rest is on the device
            return
        names = tuple(n for n, v in options.items() if v is not None and type(v) not in (bool, str))
        rows = args[2 : 2 + count]
        if any(isinstance(options[n], Tensor) for n in names):
            self._problem("options of an optimizer are tensors")
        if any(c.device is not cpu or c.dtype.name not in ("float32", "float64") for row in rows for c in row):
            self._problem("step counts of an optimizer are not floats on the CPU")
        for t in (t for given in (args[0], args[1], *args[2 + count :]) for t in given):
            self._held(t)
        if self.problems:
            update.update_lists(*args, **options)
            return
        watchers, storages.watchers[:] = list(storages.watchers), []  # step counts are read again in each call
        before = [] if self.capture is None else self.capture.nodes()
        try:
            values = {tuple(s.item() for s in state) for state in zip(*rows)}
            update.update_lists(*args, **options)
        finally:
            storages.watchers[:] = watchers
        if len(values) > 1:
            self._problem("parameters have different step counts")
            return
        scalars = tuple(tuple(self.memory.find(c._storage.ptr) or Ref(-1, 0) for c in row) for row in rows)
        if any(r.buffer < 0 for row in scalars for r in row):
            self._problem("step counts of an optimizer are of unknown origin")
            return
        kinds = tuple(row[0].dtype for row in rows)
        parameters = frozenset(map(id, args[0]))
        self.graph.updates.append(Update(used.prologue, scalars, kinds, dict(options), names, parameters))
        if self.capture is not None:
            numbers = used.prologue(*(next(iter(values)) if count else ()), *(options[n] for n in names))[count:]
            new = sorted(set(self.capture.nodes()) - set(before))
            if new and not used.lists:
                self._problem("parameters do not lie densely in memory")
                return
            self.patches.append([patches.KernelPatch(node, _LIST_ARGUMENTS, numbers) for node in new])

    # -- what is told -----------------------------------------------------------------------------------------------
    def made(self, new: UntypedStorage) -> None:
        if threading.get_ident() == self.thread and new.ptr:
            self.memory.add(new.ptr, new.capacity or new.size_bytes, "new")

    def looked(self) -> None:
        if threading.get_ident() == self.thread:
            name = "the program" if self.leaf is None else self.leaf.name
            self._problem(f"{name} looks at values")

    def filled(self, address: int, value: int, size: int) -> None:
        """Bytes of the host."""

    def loaded(self, address: int, size: int) -> None:
        """Values that Python had: they depend on nothing but guarded values."""

    def constant(self, t: Tensor) -> None:
        if threading.get_ident() == self.thread:
            self.memory.add(t._storage.ptr, max(t._storage.size_bytes, 1), "new")

    def tested(self, address: int, size: int, error: Exception | None) -> None:
        self.looked()


class Prepared(preparing.Prepared):
    """Everything as it is before the observed call."""

    recorder: Observer

    def _argument(self, i: int, t: Tensor, own: set[int]) -> None:
        if t.is_sparse or t.device.type != "cuda":
            raise NotRecordable(f"an argument is on {t.device} with layout {t.layout}, and others are on a GPU")
        if t._storage.ptr in own:
            raise NotRecordable("an argument shares memory with a parameter or a buffer")
        if t.requires_grad:
            raise NotRecordable("an argument on a GPU requires a gradient")
        buffer = self.recorder.know(t._storage, ("argument", i))
        if buffer is not None and buffer.index not in self.arguments:
            self.arguments[buffer.index] = (i, t._offset * t.dtype.itemsize)

    def finish(self, result: Any) -> Recorded:
        recorder = self.recorder
        if recorder.problems:
            raise NotRecordable(recorder.problems[0])
        self._unchanged()
        if any(is_live(t, {id(a) for a in self.given.tensors}) for t in tensors_in(result)):
            raise NotRecordable("its results are differentiated later, which is not captured on a GPU")
        devices = {t.device for t in [*self.state, *self.given.tensors] if t.device is not cpu}
        if len(devices) != 1:
            raise NotRecordable(f"it works on several devices: {', '.join(sorted(map(str, devices)))}")
        self._guard_grads(recorder.graph)
        recorded = GraphRecorded(self, devices.pop(), self._live_options(recorder.graph))
        recorded.bumps = [(s, s.version - v) for s, v in self.versions if s.version != v]
        tensors = self.given.tensors
        recorded.argument_bumps = [
            (i, t._storage.version - old)
            for i, (t, old) in enumerate(zip(tensors, self.argument_versions))
            if t._storage.version != old and self._first(i)
        ]
        if recorded.argument_bumps and len({t._storage.ptr for t in tensors}) < len(tensors):
            raise NotRecordable("it changes an argument that shares memory with another one")
        recorded.state_addresses = frozenset(s.ptr for s in self.storages.values() if s.ptr)
        recorded.state_ranges = [(s.ptr, s.ptr + s.size_bytes) for s in self.storages.values() if s.ptr]
        return recorded

    def _guard_grads(self, graph: Any) -> None:
        """A gradient that the function reads or adds to must stay where it is."""
        extra: list[Any] = []
        for t in self.state:
            grad = self.grads_before[id(t)]
            if grad is None or grad.is_sparse or not grad._storage.ptr:
                continue
            place = self.recorder.memory.find(grad._storage.ptr)
            if place is None or place.buffer in self.recorder.touched or t.grad is grad:
                extra += [TensorItem("a gradient", grad), preparing.GradItem(t, grad)]
        self.observed += observe(extra)


class GraphProgram:
    """A captured graph, with what is patched before each run."""

    def __init__(self, capture: graphs.CUDAGraph, cells: Program, observer: Observer):
        self.capture, self.cells, self.updates = capture, cells, observer.patches
        self.graph = cells.graph
        self.inputs: list[tuple[int, patches.CopyPatch]] = []  # arguments by position
        self.outputs: list[tuple[int, patches.CopyPatch]] = []  # results by slot
        self.changed: list[tuple[int, patches.CopyPatch]] = []  # arguments that the function changes

    def run(self, tensors: Any, made: list[UntypedStorage], options: list[dict[str, Any]]) -> None:
        """Put the graph into the current stream: for these arguments, into these storages, with these options of optimizers."""
        executable = self.capture.executable
        if self.updates:
            self.cells.run([], [], options)
            for position, nodes in enumerate(self.updates):
                for node in nodes:
                    node.set(executable, self.cells.numbers[position])
        for i, patch in self.inputs:
            t = tensors[i]
            patch.move(executable, t._storage.ptr + t._offset * t.dtype.itemsize, patch.target)
        for slot, patch in self.outputs:
            patch.move(executable, patch.source, made[slot].ptr)
        for i, patch in self.changed:
            t = tensors[i]
            patch.move(executable, patch.source, t._storage.ptr + t._offset * t.dtype.itemsize)
        self.capture.replay()

    def told(self) -> list[str]:
        """What it is, for people."""
        return [
            f"one CUDA graph of {self.capture.node_count()} kernels and copies, in {self.capture.pool_bytes()} bytes of memory",
            f"patched in each call: {len(self.inputs)} arguments, {len(self.outputs)} results, the numbers of"
            f" {sum(map(len, self.updates))} updates",
        ]


class GraphRecorded(Recorded):
    """A recording on a GPU. It is captured when it is first checked."""

    program: GraphProgram  # type: ignore[assignment]

    def __init__(self, prepared: Prepared, where: device, options: list[Any]):
        super().__init__(None, Guard(prepared.observed), Results(Memory(), [], {}), None, [])  # type: ignore[arg-type]
        self.prepared, self.where, self.options = prepared, where, options

    # -- running ----------------------------------------------------------------------------------------------------
    def _storages(self) -> tuple[list[UntypedStorage], bool]:
        """Memory for the results. Gradients are where the graph puts them; whoever still holds the last ones gets a copy of these."""
        if self.kept and self.exclusive.unchanged():
            made = self.kept.copy()
            for i in self.others:
                made[i] = UntypedStorage(self.slots[i].size, self.where)
            return made, True
        self.kept = []
        made, reused = [None] * len(self.slots), True
        for slot in self.grads:
            if slot.header is not None:
                made[slot.header.slot] = self._gradient_memory(slot)
                reused = reused and slot.tensor is not None
        for i, one in enumerate(self.slots):
            if made[i] is None:
                made[i] = UntypedStorage(one.size, self.where)
        return made, reused

    def _gradient_memory(self, slot: GradSlot) -> UntypedStorage:
        """The storage over a gradient's place in the graph's memory, which nobody else holds from now on."""
        held: Any = slot.tensor
        memory = held._storage
        in_use = slot.holder.grad is held and held._autograd is None
        alone = sys.getrefcount(held) == 3 + (slot.holder.grad is held) and sys.getrefcount(memory) == 3
        if not in_use or not alone:
            slot.tensor = None
        if alone and not getattr(memory, "aliases", None):
            return memory
        if getattr(memory, "fixed", False):
            raise Stale("somebody outside holds the address of a gradient")
        copy = UntypedStorage(memory.size_bytes, self.where)
        backend_of(self.where).copy(copy.ptr, memory.ptr, memory.size_bytes, self.where)
        place = memory.ptr
        memory._move(copy.ptr, memory.size_bytes)
        copy.ptr = place
        slot.tensor = None
        return copy

    # -- the first run ----------------------------------------------------------------------------------------------
    def check(self, tensors: list[Tensor], run: Callable[..., Any]) -> tuple[str, Any]:
        """Capture and run the graph, undo it, run the function, and compare: why they differ (or nothing), and the function's result."""
        before = _Before(self)
        problem, made, after = "", [], []
        arguments = [_copy(t) for t in tensors]
        try:
            made = self._capture(tensors, run)
            before.put_grads_back()
            self.program.capture.replay()
            after = [_copy(t) for t in before.tensors]
            changed = [_copy(tensors[i]) for i, _ in self.argument_bumps]
        except NotRecordable as error:
            problem = str(error)
        except Exception as error:
            problem = f"it cannot be captured: {type(error).__name__}: {error}"
        before.restore()
        with modes_off():
            for t, old in zip(tensors, arguments):
                _raw_copy(t, old)
        result = run({})
        if not problem:
            theirs = [tensors[i] for i, _ in self.argument_bumps]
            problem = self._differs(tensors, made, after, before, result, list(zip(changed, theirs)))
        self.checked = not problem
        del self.prepared  # and the arguments of the first calls
        if self.checked and self.program.capture.pool_bytes() > _LARGE_POOL:
            backend_of(self.where).memory(self.where).empty_cache()  # type: ignore[attr-defined]
        return problem, result

    def _capture(self, tensors: list[Tensor], run: Callable[..., Any]) -> list[UntypedStorage]:
        """Capture a call. Nothing has run yet when this returns storages for its results."""
        prepared, where = self.prepared, self.where
        index = where.index or 0
        backend: Any = backend_of(where)
        capture = graphs.CUDAGraph(keep_graph=True)
        observer = Observer(capture)
        for known in prepared.storages.values():
            observer.know(known, "state")
        grads_before = {id(t): t.grad if t.is_leaf else None for t in prepared.state}
        backend.generator(where).prepare_capture()
        outside = threads.mine.streams[index]
        cache, casts.cache, recording.on = casts.cache, {}, True
        with streams.StreamContext(_stream(index)):
            capture.capture_begin(None, "relaxed")
            try:
                inputs, statics = self._statics(tensors, observer)
                with observer.recording():
                    result = run({id(t): s for t, s in zip(tensors, statics)})
                if observer.problems:
                    raise NotRecordable(observer.problems[0])
                results = Results(
                    observer.memory, statics, {**{id(t): t for t in prepared.state}, **prepared.reach.seen}
                )
                self.grads = _new_grads(prepared.state, grads_before, results)
                self.make = results.maker(result)
                if results.live:
                    raise NotRecordable("its results are differentiated later, which is not captured on a GPU")
                self.slots = results.slots
                self.drops_grads = any(s.header is None for s in self.grads)
                threads.set_stream(index, outside)  # results belong to the caller, not to the graph
                mine = {s.header.slot: s for s in self.grads if s.header is not None}
                made = [
                    mine[i].tensor._storage if i in mine else UntypedStorage(one.size, where)  # type: ignore[union-attr]
                    for i, one in enumerate(self.slots)
                ]
                threads.set_stream(index, capture.stream)
                outputs = []
                for i, one in enumerate(self.slots):
                    if i not in mine and one.size:
                        outputs.append((i, _copied(capture, made[i].ptr, _address(observer, one), one.size, where)))
                changed = []
                for i, _ in self.argument_bumps:
                    t = tensors[i]
                    changed.append((i, _copied(capture, t.data_ptr(), statics[i].data_ptr(), extent(t), where)))
            finally:
                casts.cache, recording.on = cache, False
                threads.set_stream(index, capture.stream)
                capture.capture_end()
        capture.instantiate()
        self.program = GraphProgram(capture, Program(observer.graph, {}, []), observer)
        self.program.inputs, self.program.outputs, self.program.changed = inputs, outputs, changed
        if len(self.program.updates) != len(self.options):
            raise NotRecordable("it does not do the same in each call")
        return made

    def _statics(self, tensors: list[Tensor], observer: Observer) -> tuple[list, list[Tensor]]:
        """Tensors of the graph's own that stand for the arguments; copies into them are the first thing that it does."""
        inputs, statics = [], []
        for i, t in enumerate(tensors):
            size = extent(t)
            memory = UntypedStorage(size, self.where)
            statics.append(new_tensor(memory, t.shape, t._strides, 0, t.dtype, t.device, t._contig))
            observer.know(memory, ("argument", i))
            if size:
                inputs.append((i, _copied(observer.capture, memory.ptr, t.data_ptr(), size, self.where)))
        return inputs, statics

    def _differs(
        self,
        tensors: list[Tensor],
        made: list,
        after: list,
        before: _Before,
        result: Any,
        changed: list[tuple[Tensor, Tensor]],
    ) -> str:
        with modes_off():
            for new, t, old in zip(after, before.tensors, before.copies):
                if not alike(new, t, old):
                    return f"a state of shape {list(t.shape)} came out differently"
            for a, b in changed:
                if not alike(a, b):
                    return f"an argument of shape {list(b.shape)} came out differently"
            ours = tensors_in(self.make(tensors, made, None))
            for a, b in zip(ours, tensors_in(result)):
                if not alike(a, b):
                    return f"a result of shape {list(b.shape)} came out differently"
            for slot in self.grads:
                held = slot.holder.grad
                if slot.header is not None and (held is None or not alike(slot.header.make(made), held)):
                    return f"a gradient of shape {list(slot.header.shape)} came out differently"
        return ""


class _Before:
    """The state before a capture, to be put back."""

    def __init__(self, recorded: GraphRecorded):
        prepared = recorded.prepared
        self.tensors = [t for t in prepared.state if t.device is not cpu and t._storage.ptr]
        held = {id(t._storage) for t in self.tensors}
        grads = [t.grad for t in prepared.state if t.is_leaf and t.grad is not None and not t.grad.is_sparse]
        self.tensors += [g for g in grads if g.device is not cpu and g._storage.ptr and id(g._storage) not in held]
        self.copies = [_copy(t) for t in self.tensors]
        self.leaves = [t for t in prepared.state if t.is_leaf]
        self.grads = [t.grad for t in self.leaves]
        memory = [s for s in prepared.storages.values() if s.device is cpu and s.ptr]
        self.bytes = [(s.ptr, ctypes.string_at(s.ptr, s.size_bytes)) for s in memory]
        self.versions = [(s, s.version) for s in prepared.storages.values()]
        self.generator: Any = backend_of(recorded.where).generator(recorded.where)
        self.mark = self.generator.state_bytes()

    def put_grads_back(self) -> None:
        for t, grad in zip(self.leaves, self.grads):
            if t.grad is not grad:
                t.grad = grad

    def restore(self) -> None:
        self.put_grads_back()
        with modes_off():
            for t, copy in zip(self.tensors, self.copies):
                _raw_copy(t, copy)
        for address, old in self.bytes:
            ctypes.memmove(address, old, len(old))
        for storage, version in self.versions:
            storage.version = version
        self.generator.set_state_bytes(self.mark)


def _new_grads(state: list[Tensor], before: dict[int, Any], results: Results) -> list[GradSlot]:
    """Which gradients the captured call has set, with the tensors that it made."""
    found = []
    for t in state:
        if not t.is_leaf or t.grad is before[id(t)]:
            continue
        if t.grad is None:
            found.append(GradSlot(t, None))
            continue
        if t.grad.is_sparse or t.grad.requires_grad or type(t.grad) is not Tensor:
            raise NotRecordable("it makes a gradient that is sparse or has a history")
        header = results.header(t.grad)
        if header is None:
            raise NotRecordable("a gradient shares memory with something that existed before")
        found.append(GradSlot(t, header))
        found[-1].tensor = t.grad
    slots = [s.header.slot for s in found if s.header is not None]
    if len(set(slots)) != len(slots):
        raise NotRecordable("two gradients share memory")
    return found


def _address(observer: Observer, slot: Slot) -> int:
    return observer.memory.buffers[slot.buffer].address


def _copied(capture: Any, target: int, source: int, nbytes: int, where: device) -> patches.CopyPatch:
    """A copy that becomes a node of the graph."""
    before = capture.nodes()
    backend_of(where).copy(target, source, nbytes, where)
    (node,) = set(capture.nodes()) - set(before)
    return patches.CopyPatch(node, where.index or 0)


def _copy(t: Tensor) -> Tensor:
    """A tensor over a copy of the bytes between the first and the last element."""
    size = extent(t)
    memory = UntypedStorage(size, t.device)
    if size:
        backend_of(t.device).copy(memory.ptr, t.data_ptr(), size, t.device)
    return new_tensor(memory, t.shape, t._strides, 0, t.dtype, t.device, t._contig)


def _raw_copy(t: Tensor, source: Tensor) -> None:
    """Put bytes back, without a trace."""
    size = extent(t)
    if size:
        backend_of(t.device).copy(t.data_ptr(), source.data_ptr(), size, t.device)


def alike(a: Any, b: Any, old: Any = None) -> bool:
    """Whether two tensors are equal, or as near as two runs of one step that started from `old` (or from zero) may be."""
    if b is None or a.shape != b.shape or a.dtype is not b.dtype:
        return False
    a, b = a.detach(), b.detach()
    if not a.numel() or bool((a == b).all()):
        return True
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        return False
    wide = a.dtype if a.dtype.itemsize >= 4 else float32
    x, y = a.to(wide), b.to(wide)
    missing = x.isnan()
    if not bool((missing == y.isnan()).all()):
        return False
    start = 0 if old is None else old.detach().to(wide)
    far = ((x - y).abs().nan_to_num(0.0, 0.0, 0.0)).mean()
    change = ((y - start).abs().nan_to_num(0.0, 0.0, 0.0)).mean()
    tiny = 1e-6 if a.dtype.itemsize >= 4 else 1e-3
    return bool(far <= _NOISE * change + tiny * y.abs().nan_to_num(0.0, 0.0, 0.0).mean())


_streams: dict[int, streams.Stream] = {}


def _stream(index: int) -> streams.Stream:
    """Where calls are captured."""
    if index not in _streams:
        _streams[index] = streams.Stream(device("cuda", index))
    return _streams[index]


__all__ = ["GraphProgram", "GraphRecorded", "Observer", "Prepared"]
