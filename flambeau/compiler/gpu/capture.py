"""Capturing work on a GPU into a graph and running it: what is observed during the capture, and what is patched before each run."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from ...backends import nvidia
from ...backends.nvidia import graphs, modules, patches, streams, threads
from ...backends.nvidia.counters import Counters
from ...core import watching
from ...core.backend import backend_of
from ...core.casts import casts
from ...core.device import cpu, device
from ...core.raw_memory import first_address
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, new_tensor
from ...graph.replay import Replay
from ...optim.fused import Update as FusedUpdate
from ..function import recording
from ..record.recorder import StepRecorder
from ..record.recording import extent
from ..record.results import Slot
from ..record.steps import Ref, Update
from ..runtime.program import Program
from .second_stream import MOST, Beside

_MUCH = 1 << 26  # bytes of a result
_COPY = """
struct alignas(16) Quad { unsigned v[4]; };
extern "C" __global__ void copy_wide(long long to, long long from, long long count) {
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i < count) ((Quad*)to)[i] = ((const Quad*)from)[i];
}
"""
_LIST_ARGUMENTS = 4  # of the kernel over lists of parameters, before the numbers


class Observer(StepRecorder):
    """Recorder of a function that works on a GPU. With a `capture`, its work is being captured into that graph."""

    only_host = False

    def __init__(self, capture: graphs.CUDAGraph | None = None, prepare: Any = None, most: int = MOST):
        super().__init__()
        self.prepare = prepare
        self.capture = capture
        self.touched: set[int] = set()  # buffers that existed before and that operators were given
        self.patches: list[list[patches.KernelPatch]] = []  # of each update
        self.beside: Beside | None = None
        self.most = most  # pieces of work on a second stream

    @contextlib.contextmanager
    def recording(self) -> Iterator[StepRecorder]:
        self.beside = beside = None if self.capture is None else Beside(self.capture, self.most)
        with watching.watch(self), self:
            yield self
        self.beside = None
        if beside is not None:
            beside.end()

    def call(self, op: Any, function: Callable, run: Callable, args: tuple, kwargs: dict) -> Any:
        if op.sends:
            self.refuse(f"{op.name} sends what is on a GPU to other processes")
        if self.beside is not None and self.running is None:
            run = self.beside.placed(op, run, args, kwargs)
        return super().call(op, function, run, args, kwargs)

    # -- operators --------------------------------------------------------------------------------------------------
    def held(self, t: Tensor) -> Any:
        if t.is_sparse or not hasattr(t, "_storage"):
            self.refuse(f"a tensor with layout {t.layout}")
            return None
        if not t._storage.ptr and t.numel():
            self.refuse("it reads a gradient that it did not read in the call before")
        place = self.find(t._storage.ptr) if t._storage.ptr else None
        if place is not None and self.memory.buffers[place.buffer].source != "new":
            self.touched.add(place.buffer)
            if t.device is cpu:
                self.refuse("it works with a tensor on the CPU")
        elif t.device is cpu and t._storage.ptr and place is None:
            self.refuse("it works with a tensor on the CPU that existed before")
        return None

    def _know_generators(self, leaf: Any, args: tuple, kwargs: dict) -> None:
        """Do nothing: a graph knows which generators draw in it, and the CPU's is compared with its earlier state."""

    def _number(self, function: Callable, args: tuple) -> Any:
        self.refuse("item depends on values")
        return function(*args)

    def end(self, leaf: Any, result: Any) -> None:
        """Note that an operator has run and its work is in the graph."""

    def _update(self, update: FusedUpdate, args: tuple, options: dict) -> None:
        """Record an optimizer's update of a list of parameters: the numbers that its kernels get, and where its step counts are stored."""
        if self.beside is not None:
            self.beside.end()
        found = options.pop("found_inf", None)
        used = update.variant(options)
        count = len(used.scalars)
        if found is not None or any(c.device is not cpu for row in args[2 : 2 + count] for c in row):
            self.structure(args)
            update.update_lists(*args, found_inf=found, **options)  # numbers are guarded, the rest is on the device
            return
        names = tuple(n for n, v in options.items() if v is not None and type(v) not in (bool, str))
        rows = args[2 : 2 + count]
        if any(isinstance(options[n], Tensor) for n in names):
            self.refuse("options of an optimizer are tensors")
        if any(c.device is not cpu or c.dtype.name not in ("float32", "float64") for row in rows for c in row):
            self.refuse("step counts of an optimizer are not floats on the CPU")
        for t in (t for given in (args[0], args[1], *args[2 + count :]) for t in given):
            self.held(t)
        if self.problems:
            update.update_lists(*args, **options)
            return
        before = [] if self.capture is None else self.capture.nodes()
        with watching.without(self):  # step counts are read again in each call
            values = {tuple(s.item() for s in state) for state in zip(*rows)}
            update.update_lists(*args, **options)
        if len(values) > 1:
            self.refuse("parameters have different step counts")
            return
        scalars = tuple(tuple(self.memory.find(c._storage.ptr) or Ref(-1, 0) for c in row) for row in rows)
        if any(r.buffer < 0 for row in scalars for r in row):
            self.refuse("step counts of an optimizer are of unknown origin")
            return
        kinds = tuple(row[0].dtype for row in rows)
        parameters = frozenset(map(id, args[0]))
        self.graph.updates.append(Update(used.prologue, scalars, kinds, dict(options), names, parameters))
        if self.capture is not None:
            numbers = used.prologue(*(next(iter(values)) if count else ()), *(options[n] for n in names))[count:]
            new = sorted(set(self.capture.nodes()) - set(before))
            if new and not used.lists:
                self.refuse("parameters are not dense in memory")
                return
            self.patches.append([patches.KernelPatch(node, _LIST_ARGUMENTS, numbers) for node in new])

    # -- what is told -----------------------------------------------------------------------------------------------
    def made(self, new: UntypedStorage) -> None:
        if new.ptr:
            if self.beside is not None and new.device is not cpu:
                self.beside.made(new)
            self.memory.add(new.ptr, new.capacity or new.size_bytes, "new")

    def looked(self) -> None:
        name = "the program" if self.running is None else self.running.name
        self.refuse(f"{name} looks at values")

    def converted(self, address: int, nbytes: int) -> None:
        self.looked()

    def filled(self, address: int, value: int, size: int) -> None:
        """Ignore that bytes of host memory were set."""

    def loaded(self, address: int, size: int) -> None:
        """Ignore values written from Python: they depend only on guarded values."""

    def constant(self, t: Tensor) -> None:
        self.memory.add(t._storage.ptr, max(t._storage.size_bytes, 1), "new")

    def tested(self, address: int, size: int, error: Exception | None) -> None:
        self.looked()


class GraphProgram:
    """A captured graph, with what is patched before each run."""

    def __init__(self, capture: graphs.CUDAGraph, cells: Program, observer: Observer):
        self.capture, self.cells, self.updates = capture, cells, observer.patches
        self.graph = cells.graph
        self.inputs: list[tuple[int, patches.CopyPatch]] = []  # arguments by position
        self.outputs: list[tuple[int, patches.CopyPatch | patches.WideCopy]] = []  # results by slot
        self.changed: list[tuple[int, patches.CopyPatch]] = []  # arguments that the function changes
        self.after: GraphProgram | None = None  # the derivative
        self.calls = ""  # what became of the calls of operators

    def run(self, tensors: Any, made: list[UntypedStorage], options: list[dict[str, Any]]) -> None:
        """Launch the graph on the current stream, for these arguments, results in the storages `made`, and these optimizer options."""
        executable = self.capture.executable
        if self.updates:
            self.cells.run([], [], options)
            for position, nodes in enumerate(self.updates):
                for node in nodes:
                    node.set(executable, self.cells.numbers[position])
        for i, patch in self.inputs:
            t = tensors[i]
            patch.move(executable, first_address(t), patch.target)
        for slot, copied in self.outputs:
            copied.move(executable, copied.source, made[slot].ptr)
        for i, patch in self.changed:
            t = tensors[i]
            patch.move(executable, patch.source, first_address(t))
        self.capture.replay()

    def told(self) -> list[str]:
        """Describe the captured program as lines of text."""
        return [
            f"one CUDA graph of {self.capture.node_count()} kernels and copies, in {self.capture.pool_bytes()} bytes of memory",
            *([self.calls] if self.calls else []),
            f"patched in each call: {len(self.inputs)} arguments, {len(self.outputs)} results, the numbers of"
            f" {sum(map(len, self.updates))} updates",
            *(() if self.after is None else ["the derivative:", *(f"  {line}" for line in self.after.told())]),
        ]


@contextlib.contextmanager
def capturing(capture: graphs.CUDAGraph, where: device, pool: Any = None) -> Iterator[Callable[[], Any]]:
    """Context manager: capture work into a graph on a stream of its own. It yields a function that makes a context in which memory
    comes from the previous pool, for tensors that belong to the caller, not to the graph."""
    index = where.index or 0
    backend_of(where).generator(where).prepare_capture()
    outside = threads.mine.streams[index]

    @contextlib.contextmanager
    def callers() -> Iterator[None]:
        threads.set_stream(index, outside)
        try:
            yield
        finally:
            threads.set_stream(index, capture.stream)

    cache, casts.cache, recording.on = casts.cache, {}, True
    with streams.StreamContext(stream_of(index)):
        try:
            capture.capture_begin(pool, "relaxed")
            try:
                capture.counters = Counters(where)
                yield callers
            except BaseException:
                with contextlib.suppress(RuntimeError):  # the error that ended it tells more
                    capture.capture_end()
                raise
            capture.capture_end()
            capture.counters.clear_once(capture.graph)
        finally:
            capture.counters = None  # the memory is the graph's until its end, and may be another graph's then
            casts.cache, recording.on = cache, False
    capture.instantiate()


def static_copies(
    tensors: list[Tensor], observer: Observer, where: device
) -> tuple[list[tuple[int, patches.CopyPatch]], list[Tensor]]:
    """Return tensors in the graph's own memory that stand for these, and patches of the copies into them, the graph's first nodes."""
    inputs, statics = [], []
    for i, t in enumerate(tensors):
        size = extent(t)
        memory = UntypedStorage(size, where)
        statics.append(new_tensor(memory, t.shape, t._strides, 0, t.dtype, t.device, t._contig))
        observer.know_storage(memory, ("argument", i))
        if size:
            inputs.append((i, copied(observer.capture, memory.ptr, t.data_ptr(), size, where)))
    return inputs, statics


def address(observer: Observer, slot: Slot, replay: Replay | None = None) -> int:
    """Return the address of a result of a captured call: from the observer's buffers, or from the replay of the program that was captured."""
    return observer.memory.buffers[slot.buffer].address if replay is None else replay.at[slot.buffer].ptr


def copied(capture: Any, target: int, source: int, nbytes: int, where: device, out: bool = False) -> Any:
    """Add a copy to the graph and return its node's patch; `out` marks the copy of a result, which may run as a kernel of 16-byte words."""
    before, count = capture.nodes(), nbytes // 16
    wide = out and nbytes >= _MUCH and not (target | source | nbytes) % 16 and not modules.rehearsal.on
    if wide:
        kernel = nvidia.load_source(_COPY, where).function("copy_wide", ("q", "q", "q"))
        kernel((count + 255) // 256, 256, target, source, count)
    else:
        backend_of(where).copy(target, source, nbytes, where)
    (node,) = set(capture.nodes()) - set(before)
    return patches.WideCopy(node, target, source) if wide else patches.CopyPatch(node, where.index or 0)


@functools.cache
def stream_of(index: int) -> streams.Stream:
    """Return the stream on which calls are captured."""
    return streams.Stream(device("cuda", index))
