"""A driver without a GPU: memory is the host's, everything runs at once, and kernels run on the CPU (tests.kernels.cuda_on_cpu).

It counts what is asked of it, so that tests see which calls a piece of code makes, and it can be made to have little memory."""

from __future__ import annotations

import collections
import ctypes
import mmap
import threading
from pathlib import Path
from typing import Any

from flambeau.backends.nvidia import driver
from flambeau.compiler.state import origins
from tests.kernels import cuda_on_cpu

origins.called_by_us += [
    str(Path(f).parent) + "/" for f in (__file__, cuda_on_cpu.__file__)
]  # it stands for a library in C
_ATTRIBUTES = {"max_threads_per_block": 1024, "warp_size": 32, "multi_processor_count": 4, "major": 9, "minor": 0,
               "max_threads_per_multi_processor": 2048, "shared_memory_per_block_optin": 232448}  # fmt: skip
_BY_NUMBER = {number: _ATTRIBUTES.get(name, 1) for name, number in driver.ATTRIBUTES.items()}


def _set(place: Any, value: int) -> None:
    place._obj.value = value


class FakeDriver:
    """Functions of the driver that do on the host what they say; each returns a status."""

    def __init__(self, devices: int = 1, memory: int = 1 << 26):
        self.devices, self.memory = devices, memory
        self.calls: collections.Counter[str] = collections.Counter()
        self.blocks: dict[int, Any] = {}
        self.managed: dict[int, Any] = {}
        self.events: dict[int, int] = {}
        self.pending: set[int] = set()  # events that have not passed yet
        self.handles = iter(range(1000, 1 << 40))
        self.capturing: dict[int, list[tuple]] = {}
        self.recorded: dict[int, list[tuple] | None] = {}  # by event, the capture that it was recorded in
        self.graphs: dict[int, list[tuple]] = {}
        self.captured: dict[int, int] = {}  # streams and the graphs that they are captured into
        self.lock = threading.Lock()
        self.refuse: dict[str, int] = {}  # status to return from a function instead of doing it

    def __getattr__(self, name: str) -> Any:
        plain = name.removesuffix("_v2")
        action = getattr(type(self), "_" + plain, None)

        def function(*arguments: Any) -> int:
            self.calls[plain] += 1
            if plain in self.refuse:
                return self.refuse[plain]
            return (action(self, *arguments) or 0) if action is not None else 0

        if not name.startswith("cu"):
            raise AttributeError(name)
        return function

    def used(self) -> int:
        return sum(len(b) for b in self.blocks.values())

    # -- devices
    def _cuDeviceGetCount(self, out: Any) -> None:
        _set(out, self.devices)

    def _cuDeviceGet(self, out: Any, index: int) -> None:
        _set(out, index)

    def _cuDeviceGetAttribute(self, out: Any, number: int, index: int) -> None:
        _set(out, _BY_NUMBER[number])

    def _cuDeviceGetName(self, text: Any, size: int, index: int) -> None:
        text.value = b"Fake GPU"

    def _cuDeviceTotalMem(self, out: Any, index: int) -> None:
        _set(out, self.memory)

    def _cuDevicePrimaryCtxRetain(self, out: Any, index: int) -> None:
        _set(out, 100 + index)

    def _cuDeviceCanAccessPeer(self, out: Any, a: int, b: int) -> None:
        _set(out, 1)

    def _cuDriverGetVersion(self, out: Any) -> None:
        _set(out, 13000)

    # -- memory
    def _cuMemGetInfo(self, free: Any, total: Any) -> None:
        _set(free, self.memory - self.used())
        _set(total, self.memory)

    def _cuMemAlloc(self, out: Any, size: int) -> int:
        if self.used() + size > self.memory:
            return driver.OUT_OF_MEMORY
        block = ctypes.create_string_buffer(size + 512)
        address = (ctypes.addressof(block) + 511) // 512 * 512
        self.blocks[address] = block
        _set(out, address)
        return 0

    def _cuMemAllocManaged(self, out: Any, size: int, flags: int) -> None:
        """Pages that are there when they are touched."""
        pages = mmap.mmap(-1, size)
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        self.managed[address] = pages
        _set(out, address)

    def _cuMemFree(self, address: int) -> None:
        del (self.managed if address in self.managed else self.blocks)[address]

    def _cuMemHostAlloc(self, out: Any, size: int, flags: int) -> None:
        block = ctypes.create_string_buffer(size)
        self.events[ctypes.addressof(block)] = 0
        self.__dict__.setdefault("host", []).append(block)
        _set(out, ctypes.addressof(block))

    def _cuMemHostGetDevicePointer(self, out: Any, host: int, flags: int) -> None:
        _set(out, host)

    def _move(self, stream: int, to: int, source: int, size: int) -> None:
        self._do(stream, (ctypes.memmove, to, source, size))

    def _do(self, stream: int, action: tuple) -> None:
        """Run an action, or record it where the stream is captured."""
        if stream in self.capturing:
            self.capturing[stream].append(action)
        else:
            with self.lock:  # emulated kernels share their registers
                action[0](*action[1:])

    def _cuMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: int) -> None:
        self._move(stream, to, source, size)

    _cuMemcpyDtoHAsync = _cuMemcpyDtoDAsync = _cuMemcpyHtoDAsync

    def _cuMemcpyPeerAsync(self, to: int, there: int, source: int, here: int, size: int, stream: int) -> None:
        self._move(stream, to, source, size)

    def _cuMemsetD8Async(self, address: int, byte: int, size: int, stream: int) -> None:
        self._do(stream, (ctypes.memset, address, byte, size))

    # -- streams, events, graphs
    def _cuStreamCreateWithPriority(self, out: Any, flags: int, priority: int) -> None:
        _set(out, next(self.handles))

    def _cuCtxGetStreamPriorityRange(self, lowest: Any, highest: Any) -> None:
        _set(lowest, 0)
        _set(highest, -5)

    def _cuEventCreate(self, out: Any, flags: int) -> None:
        _set(out, next(self.handles))

    def _cuEventQuery(self, event: int) -> int:
        return driver.NOT_READY if event in self.pending else 0

    def _cuEventElapsedTime(self, out: Any, a: int, b: int) -> None:
        out._obj.value = 1.5

    def _cuStreamBeginCapture(self, stream: int, mode: int) -> None:
        handle = next(self.handles)
        self.graphs[handle] = self.capturing[stream] = []
        self.captured[stream] = handle

    def _cuEventRecordWithFlags(self, event: int, stream: int, flags: int) -> None:
        self.recorded[event] = self.capturing.get(stream)

    def _cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        """A stream that waits for work that is captured is captured, too."""
        if self.recorded.get(event) is not None:
            self.capturing[stream] = self.recorded[event]

    def _cuStreamEndCapture(self, stream: int, out: Any) -> None:
        nodes = self.capturing[stream]
        self.capturing = {s: other for s, other in self.capturing.items() if other is not nodes}
        _set(out, self.captured.pop(stream))

    def _cuStreamIsCapturing(self, stream: int, status: Any) -> None:
        _set(status, int(stream in self.capturing))

    def _cuStreamGetCaptureInfo(self, stream: int, status: Any, number: Any, graph: Any, *_: Any) -> None:
        _set(graph, self.captured[stream])

    def _cuGraphGetNodes(self, graph: Any, nodes: Any, count: Any) -> None:
        """Nodes are numbered from 1."""
        size = len(self.graphs[getattr(graph, "value", graph)])
        if nodes is not None:
            assert size, "the driver does not accept a place for no nodes"
            nodes[:size] = range(1, size + 1)
        _set(count, size)
        self.last_graph = getattr(graph, "value", graph)

    def _cuGraphInstantiateWithFlags(self, out: Any, graph: int, flags: int) -> None:
        handle = next(self.handles)
        self.graphs[handle] = list(self.graphs[graph])
        _set(out, handle)

    def _cuGraphLaunch(self, graph: int, stream: int) -> None:
        for action, *arguments in self.graphs[graph]:
            action(*arguments)

    def _cuGraphMemcpyNodeGetParams(self, node: int, out: Any) -> None:
        action, to, source, size = self.graphs[self.last_graph][node - 1]
        assert action is ctypes.memmove
        out._obj.srcDevice, out._obj.dstDevice, out._obj.width = source, to, size

    def _cuGraphExecMemcpyNodeSetParams(self, executable: int, node: int, given: Any, context: Any) -> None:
        new = given._obj
        self.graphs[executable][node - 1] = (ctypes.memmove, new.dstDevice, new.srcDevice, new.width)

    def _cuGraphKernelNodeGetParams(self, node: int, out: Any) -> None:
        _, _, _, *values = self.graphs[self.last_graph][node - 1]
        out._obj.arguments = self.__dict__.setdefault("unread", (ctypes.c_void_p * 64)())

    def _cuGraphExecKernelNodeSetParams(self, executable: int, node: int, given: Any) -> None:
        """Arguments without an address stay; the others are doubles or integers of 64 bits, as they were."""
        kernel, grid, block, *values = self.graphs[executable][node - 1]
        for i, value in enumerate(values):
            if given._obj.arguments[i]:
                kind = ctypes.c_double if isinstance(value, float) else ctypes.c_int64
                values[i] = kind.from_address(given._obj.arguments[i]).value
        self.graphs[executable][node - 1] = (kernel, grid, block, *values)


# Functions of CUDA that the emulation does not have.
_MORE = """
#define __grid_constant__
static void __sincosf(float v, float* s, float* c) { *s = sinf(v); *c = cosf(v); }
static void sincospi(double v, double* s, double* c) { *s = sin(v * 3.14159265358979323846); *c = cos(v * 3.14159265358979323846); }
"""


class Module:
    """A source whose kernels run on the CPU, launched in the order of the thread's stream."""

    def __init__(self, fake: FakeDriver, source: str, folder: Path, index: int):
        self.fake, self.index = fake, index
        self.module = cuda_on_cpu.Module(_MORE + source, cuda_on_cpu.EmulatedDevice(folder))

    def function(self, name: str, kinds: tuple, shared: int = 0) -> Any:
        from flambeau.backends.nvidia import threads

        native = self.module.function(name, kinds, shared)

        def run(grid: int, block: int, *values: Any) -> None:
            self.fake.calls["cuLaunchKernel"] += 1
            # a graph's numbers are exchanged later: those that the kernel takes as doubles are floats from the start
            given = [
                float(v) if kind in ("d", "f") else 0 if v is None else v for v, kind in zip(values, kinds, strict=True)
            ]
            self.fake._do(threads.activate(self.index), (native, grid, block, *given))

        return run

    def fixed(self, name: str, kinds: tuple, grid: Any, block: Any, first: tuple, shared: int = 0) -> Any:
        run = self.function(name, kinds, shared)
        return lambda _, *values: run(grid, block, *first, *values)


def install(folder: Path, devices: int = 1, memory: int = 1 << 26) -> FakeDriver:
    """Make this process believe that it has such GPUs. Not to be undone: for processes of their own."""
    from flambeau.backends.nvidia import libraries, modules

    fake = FakeDriver(devices, memory)
    driver.use(fake)
    loaded: dict[tuple[str, int], Module] = {}

    def load(source: str, index: int, options: tuple = ()) -> Module:
        if (source, index) not in loaded:
            loaded[source, index] = Module(fake, source, folder, index)
        return loaded[source, index]

    modules._load = load
    libraries.library.cache_clear()
    import flambeau.backends.nvidia as nvidia

    nvidia.library = lambda name: None
    return fake
