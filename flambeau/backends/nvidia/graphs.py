"""CUDA graphs: work of a program that is recorded once and launched again with one call.

While a graph is captured, nothing runs: kernels and copies become its nodes. Memory comes from a pool that belongs to the graph, so that
every replay finds its tensors at the same addresses. Random numbers continue: kernels read seed and offset from device memory that a replay
writes first."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any

from ...core.device import device
from . import driver, threads
from .counters import Counters
from .memory import DeviceMemory, Pool, memories
from .modules import load_source

_MODES = {"global": 0, "thread_local": 1, "relaxed": 2}
_AUTO_FREE = 1  # CU_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
_handles = itertools.count(1)
_pools: dict[tuple[int, tuple[int, int]], Pool] = {}  # by device and handle


def graph_pool_handle() -> tuple[int, int]:
    """Return a new token for memory that several graphs share."""
    return 0, next(_handles)


def handle_of(index: int, pool: Pool) -> tuple[int, int]:
    """Return a token for a pool that was made for graphs of one device."""
    handle = graph_pool_handle()
    _pools[index, handle] = pool
    _memory(index).of_graphs.append(pool)
    return handle


def shared_pool(index: int, handle: tuple[int, int]) -> Pool | None:
    """Return the pool of a token, or None if no graph has used it."""
    return _pools.get((index, handle))


class CUDAGraph:
    """Recorded work. Use `flambeau.cuda.graph` to record, and `replay` to run it."""

    def __init__(self, keep_graph: bool = False):
        self.keep_graph = keep_graph
        self.graph = self.executable = 0
        self.index = -1
        self.handle: tuple[int, int] | None = None
        self.generators: dict[Any, int] = {}  # generators that kernels of the graph draw from -> how far a replay goes
        self.stream = 0
        self.kept: list[Any] = []  # host memory that copies of the graph read
        self.counters: Counters | None = None  # of kernels of libraries, while it is captured

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Begin recording the work on the current stream."""
        if capture_error_mode not in _MODES:
            raise RuntimeError(
                f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {capture_error_mode}"
            )
        if self.executable:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance."
            )
        self.index = index = threads.mine.chosen
        stream = threads.activate(index)
        if not stream:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on the"
                " default stream.)"
            )
        self.stream = stream
        memory = _memory(index)
        if memory.capturing is not None:
            raise RuntimeError("another graph is captured on this device already")
        self.handle = graph_pool_handle() if pool is None else pool
        shared = _pools.get((index, self.handle))
        if shared is None:
            shared = _pools[index, self.handle] = Pool(stream, private=True)
            memory.of_graphs.append(shared)
        else:
            shared.graphs += 1
        memory.capturing, memory.capturing_streams = shared, frozenset((stream,))
        _capturing[index] = self
        try:
            driver.call("cuStreamBeginCapture_v2", stream, _MODES[capture_error_mode])
        except driver.CudaError:
            self._leave_memory(memory)
            raise

    def admit(self, stream: int) -> None:
        """Allow work on another stream, synchronised with this one in both directions, to use memory of the graph."""
        memory = _memory(self.index)
        memory.capturing_streams |= {stream}

    def capture_end(self) -> None:
        """Stop recording, and make the graph ready to run."""
        memory = _memory(self.index)
        threads.activate(self.index)
        graph = ctypes.c_uint64()
        status = driver.functions().cuStreamEndCapture(self.stream, ctypes.byref(graph))
        self._leave_memory(memory)
        driver.check(status, "cuStreamEndCapture")
        self.graph = graph.value
        if not self.graph:
            raise RuntimeError("nothing was captured: an operation that cannot be captured has ended the capture")
        if not self.keep_graph:
            self.instantiate()

    def _leave_memory(self, memory: DeviceMemory) -> None:
        memory.capturing = None
        _capturing.pop(self.index, None)

    def instantiate(self) -> None:
        """Make the recorded graph ready to run."""
        self.executable = driver.number("cuGraphInstantiateWithFlags", self.graph, _AUTO_FREE)
        if not self.keep_graph:
            driver.call("cuGraphDestroy", self.graph)
            self.graph = 0

    def replay(self) -> None:
        """Run the recorded work on the current stream."""
        if not self.executable:
            if not self.graph:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            self.instantiate()
        stream = threads.activate(self.index)
        for generator, distance in self.generators.items():
            generator.prepare_replay(distance, stream)
        status = driver.functions().cuGraphLaunch(self.executable, stream)
        if status:
            raise driver.CudaError(status, "cuGraphLaunch")

    def reset(self) -> None:
        """Drop the recorded work and free its memory."""
        if self.executable:
            driver.call("cuGraphExecDestroy", self.executable)
        if self.graph:
            driver.call("cuGraphDestroy", self.graph)
        self.executable = self.graph = 0
        if self.handle is not None and self.index >= 0:
            pool = _pools.get((self.index, self.handle))
            if pool is not None:
                _memory(self.index).leave(pool)
                if not pool.graphs:
                    del _pools[self.index, self.handle]
            self.handle = None

    def pool(self) -> tuple[int, int]:
        """Return the token of the graph's memory, to share it with another graph."""
        if self.handle is None:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self.handle

    def register_generator_state(self, generator: Any) -> None:
        """Register a generator whose numbers the graph's kernels draw; done automatically when they do."""
        self.generators.setdefault(generator, 0)

    def raw_cuda_graph(self) -> int:
        """Return the handle of the graph (with keep_graph=True)."""
        return self.graph

    def raw_cuda_graph_exec(self) -> int:
        """Return the handle of the executable graph."""
        return self.executable

    def node_count(self) -> int:
        """Return the number of kernels and copies recorded (with keep_graph=True)."""
        count = ctypes.c_size_t()
        driver.call("cuGraphGetNodes", self.graph, None, ctypes.byref(count))
        return count.value

    def pool_bytes(self) -> int:
        """Return the number of bytes in the graph's pool."""
        pool = None if self.handle is None else _pools.get((self.index, self.handle))
        return 0 if pool is None else pool.bytes()

    def nodes(self) -> list[int]:
        """Return the handles of the nodes recorded so far, during the capture."""
        status, number, graph, count = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t()
        driver.call(
            "cuStreamGetCaptureInfo_v2", self.stream, ctypes.byref(status), ctypes.byref(number), ctypes.byref(graph), None, None
        )  # fmt: skip
        driver.call("cuGraphGetNodes", graph, None, ctypes.byref(count))
        if not count.value:
            return []
        found = (ctypes.c_uint64 * count.value)()
        driver.call("cuGraphGetNodes", graph, found, ctypes.byref(count))
        return list(found[: count.value])

    def enable_debug_mode(self) -> None:
        """Keep the graph after it is instantiated, so that it can be inspected."""
        self.keep_graph = True

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None and driver.loaded() is not None:
            try:
                self.reset()
            except driver.CudaError:  # the device is lost, and with it the graph
                pass


_capturing: dict[int, CUDAGraph] = {}  # by device


def captured_on(index: int) -> CUDAGraph | None:
    """Return the graph that is being captured on a device, or None."""
    return _capturing.get(index)


def is_capturing(index: int) -> bool:
    """Return whether work on this thread's stream is being recorded."""
    graph, stream = _capturing.get(index), threads.mine.streams[index]
    return graph is not None and (graph.stream == stream or driver.is_recorded(stream))


def _memory(index: int) -> DeviceMemory:
    return memories()[index]


# Writing two numbers by a kernel keeps their values in the launch itself: no host memory has to stay unchanged until then.
_WRITE = """
extern "C" __global__ void set_pair(unsigned long long* out, unsigned long long a, unsigned long long b) { out[0] = a; out[1] = b; }
"""
_writers: dict[int, Any] = {}


def write_pair(index: int, address: int, first: int, second: int) -> None:
    """Write two 64-bit numbers to device memory, in the order of the current stream."""
    writer = _writers.get(index)
    if writer is None:
        writer = _writers[index] = load_source(_WRITE, device("cuda", index)).function("set_pair", ("q", "q", "q"))
    writer(1, 1, address, first, second)
