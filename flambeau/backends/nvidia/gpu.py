"""The device "cuda": the backend of NVIDIA GPUs."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ...core import naming
from ...core.aliases import Values
from ...core.backend import Backend
from ...core.device import device
from ...core.storage import UntypedStorage
from ...core.watching import tell_converted, tell_looked
from ...kernels import cuda_lists
from . import driver, graphs, kernel_errors, pinned, sharing, threads
from .memory import DeviceMemory
from .modules import Bound, load_source
from .philox import CudaGenerator

# A number that is not zero means the error with this code.
_TELL = """
extern "C" __global__ void tell(const unsigned char* number, unsigned long long bytes, unsigned long long* note, unsigned long long code) {
  for (unsigned long long i = 0; i < bytes; ++i)
    if (number[i]) { atomicCAS(note, 0ull, code); return; }
}
"""


class _Held(threading.local):
    """Page-locked host memory for a few bytes, one for each thread."""

    def __init__(self) -> None:
        self.storage = pinned.storage(16)
        self.address = self.storage.ptr


class CudaBackend(Backend):
    """Memory, copies, kernels and random numbers on NVIDIA GPUs. All work goes to the thread's current stream."""

    compiles = True
    hides_latency = True

    def __init__(self) -> None:
        self.device_count = driver.device_count()
        self._held = _Held()
        self.memories = [DeviceMemory(i) for i in range(self.device_count)]
        self.devices = [device("cuda", index) for index in range(self.device_count)]
        for where, memory in zip(self.devices, self.memories):
            where.memory = memory
        self.generators: dict[int | None, Any] = {}
        self.first_seed: int | None = None
        self._scratch: dict[tuple[int, int], tuple[int, int]] = {}
        self._peers: set[tuple[int, int]] = set()
        self._tellers: dict[int, Callable[..., Any]] = {}
        self._programs: dict[tuple[str, int], Callable[..., Any]] = {}

    # -- devices ----------------------------------------------------------------------------------------------------

    def indexed(self, where: device) -> device:
        """Return a device with its index: "cuda" alone means the one this thread has chosen."""
        index = threads.mine.chosen if where.index is None else where.index
        if index >= self.device_count:
            raise driver.CudaError(
                f"CUDA error: invalid device ordinal: there is no cuda:{index}, the devices are numbered from 0 to"
                f" {self.device_count - 1}"
            )
        return self.devices[index] if where.index is None else where

    @contextlib.contextmanager
    def chosen(self, where: device) -> Iterator[None]:
        """Context manager: "cuda" means this device, in this thread."""
        before = threads.choose(where.index or 0)
        try:
            yield
        finally:
            threads.choose(before)

    def memory(self, where: device) -> DeviceMemory:
        return self.memories[where.index or 0]

    def current_stream(self, where: device) -> int:
        return threads.mine.streams[where.index or 0]

    def properties(self, where: device) -> dict[str, Any]:
        index = where.index or 0
        facts: dict[str, Any] = {name: driver.attribute(name, index) for name in driver.ATTRIBUTES}
        return {**facts, "name": driver.device_name(index), "total_memory": driver.total_memory(index)}

    # -- memory -----------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int, where: device) -> int:
        return self.memories[where.index or 0].allocate(nbytes)

    def release(self, address: int, nbytes: int, where: device) -> None:
        self.memories[where.index or 0].release(address)

    @contextlib.contextmanager
    def lasting(self, where: device) -> Iterator[None]:
        memory = self.memory(where)
        memory.lasting = True
        try:
            yield
        finally:
            memory.lasting = False

    def record_stream(self, address: int, stream: int, where: device) -> None:
        self.memory(where).record_stream(address, stream)

    def report_address(self, where: device, operator: str = "") -> int:
        return kernel_errors.error_flag(where, operator)

    def share(self, storage: Any) -> tuple[Any, ...]:
        return sharing.share(storage)

    def raise_later(self, address: int, nbytes: int, operator: str, error: Exception, where: device) -> bool:
        index = where.index or 0
        if index not in self._tellers:
            self._tellers[index] = load_source(_TELL, where).function("tell", ("q", "q", "q", "q"))
        self._tellers[index](
            1,
            1,
            address,
            nbytes,
            kernel_errors.error_flag(where),
            kernel_errors.error_code(operator, str(error), type(error)),
        )
        return True

    def scratch(self, nbytes: int, where: device) -> int:
        """Return the address of memory for the launches that follow on the current stream; the next call returns the same memory."""
        index = where.index or 0
        memory = self.memories[index]
        stream = threads.mine.streams[index]
        if memory.capturing is not None:  # a graph must keep it: nothing else may write there while it is replayed
            # The observer of the capture holds it while other streams might use it.
            return UntypedStorage(nbytes, where).ptr
        size, address = self._scratch.get((index, stream), (0, 0))
        if size < nbytes:
            if size:
                memory.release(address)
            size = max(nbytes, 1 << 20)
            address = memory.allocate(size)
            self._scratch[index, stream] = size, address
        return address

    def forget_scratch(self, where: device) -> None:
        """Free the current stream's scratch memory; the next launch that needs some gets other memory."""
        index = where.index or 0
        _, address = self._scratch.pop((index, threads.mine.streams[index]), (0, 0))
        if address:
            self.memories[index].release(address)

    # -- copies -----------------------------------------------------------------------------------------------------

    def read(self, host: int, address: int, nbytes: int, where: device) -> None:
        tell_looked()
        stream = threads.activate(where.index or 0)
        driver.call("cuMemcpyDtoHAsync_v2", host, address, nbytes, stream)
        self._wait(stream)

    def fetch(self, address: int, nbytes: int, where: device) -> int:
        tell_converted()
        held = self._held.address
        functions = driver.functions()
        stream = threads.activate(where.index or 0)
        status = functions.cuMemcpyDtoHAsync_v2(held, address, nbytes, stream) or functions.cuStreamSynchronize(stream)
        if status:
            raise driver.CudaError(status, "item")
        kernel_errors.look()
        return held

    def read_later(self, host: int, address: int, nbytes: int, where: device) -> None:
        tell_looked()
        stream = threads.activate(where.index or 0)
        driver.call("cuMemcpyDtoHAsync_v2", host, address, nbytes, stream)
        pinned.used(host, stream)

    def write(self, address: int, host: int, nbytes: int, where: device) -> None:
        stream = threads.activate(where.index or 0)
        if graphs.is_capturing(where.index or 0):  # a graph reads the bytes whenever it runs
            held = pinned.storage(nbytes)
            ctypes.memmove(held.ptr, host, nbytes)
            graphs.captured_on(where.index or 0).kept.append(held)  # type: ignore[union-attr]
            driver.call("cuMemcpyHtoDAsync_v2", address, held.ptr, nbytes, stream)
            return
        driver.call("cuMemcpyHtoDAsync_v2", address, host, nbytes, stream)
        if pinned.holds(host):  # from other memory, the driver has taken the bytes when it returns
            self._wait(stream)

    def write_later(self, address: int, host: int, nbytes: int, where: device) -> None:
        stream = threads.activate(where.index or 0)
        driver.call("cuMemcpyHtoDAsync_v2", address, host, nbytes, stream)
        pinned.used(host, stream)

    def pinned(self, nbytes: int) -> Any:
        return pinned.storage(nbytes)

    def copy(self, destination: int, source: int, nbytes: int, where: device) -> None:
        stream = threads.activate(where.index or 0)
        driver.call("cuMemcpyDtoDAsync_v2", destination, source, nbytes, stream)

    def copy_across(self, destination: int, there: device, source: int, here: device, nbytes: int) -> None:
        """Copy from one GPU to another, after the work on this one's stream and before later work on that one's."""
        a, b = here.index or 0, there.index or 0
        self._open_peers(a, b)
        stream = threads.activate(a)
        other = threads.mine.streams[b]
        arrived = self._mark(b, other)
        threads.activate(a)
        driver.call("cuStreamWaitEvent", stream, arrived, 0)
        driver.call("cuMemcpyPeerAsync", destination, driver.context(b), source, driver.context(a), nbytes, stream)
        done = self._mark(a, stream)
        threads.activate(b)
        driver.call("cuStreamWaitEvent", other, done, 0)
        for event in (arrived, done):
            driver.call("cuEventDestroy_v2", event)

    @staticmethod
    def _mark(index: int, stream: int) -> int:
        """Record an event after everything on a stream, and return it."""
        threads.activate(index)
        event = driver.number("cuEventCreate", 2)
        driver.call("cuEventRecord", event, stream)
        return event

    def _open_peers(self, a: int, b: int) -> None:
        """Enable access between two GPUs' memories if the machine supports it."""
        for one, other in ((a, b), (b, a)):
            if (one, other) in self._peers:
                continue
            self._peers.add((one, other))
            if driver.can_access_peer(one, other):
                threads.activate(one)
                status = driver.functions().cuCtxEnablePeerAccess(driver.context(other), 0)
                if status != driver.PEER_ACCESS_ALREADY_ENABLED:
                    driver.check(status, "cuCtxEnablePeerAccess")

    def hand_over(self, where: device, stream: int | None) -> None:
        if stream == -1:  # the other library takes care of the order
            return
        index = where.index or 0
        mine = threads.activate(index)
        theirs = 0 if stream in (None, 1) else stream
        if theirs != mine:
            event = self._mark(index, mine)
            driver.call("cuStreamWaitEvent", theirs, event, 0)
            driver.call("cuEventDestroy_v2", event)

    def fill(self, address: int, byte: int, nbytes: int, where: device) -> None:
        stream = threads.activate(where.index or 0)
        driver.call("cuMemsetD8Async", address, byte, nbytes, stream)

    # -- waiting ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _wait(stream: int) -> None:
        driver.call("cuStreamSynchronize", stream)
        kernel_errors.look()

    def synchronize(self, where: device) -> None:
        tell_looked()
        threads.activate(self.indexed(where).index or 0)
        driver.call("cuCtxSynchronize")
        kernel_errors.look()

    # -- kernels ----------------------------------------------------------------------------------------------------

    def compile_for(self, build: Callable[[], Any], key: str, where: device) -> Callable[..., Any]:
        index = where.index or 0
        found = self._programs.get((key, index))
        if found is None:
            program = naming.above("kernels.cuda_program").make(build())
            found = program.bind(Bound(where, lambda nbytes: self.scratch(nbytes, where)))
            self._programs[key, index] = found
        return found

    def compile_lists(
        self, roots: Any, dtypes: Values, positions: Values, numbers: Values, where: device, singles: int = 0
    ) -> Callable[..., Any] | None:
        program = cuda_lists.ListProgram(roots, dtypes, positions, numbers, singles)
        return program.bind(Bound(where, lambda nbytes: self.scratch(nbytes, where)))

    def compile_reductions(self, reduction: Any, where: device) -> Callable[..., Any] | None:
        return cuda_lists.ReduceListProgram(reduction).bind(Bound(where, lambda nbytes: self.scratch(nbytes, where)))

    def compile(self, build: Callable[[], Any], key: str) -> Callable[..., Any]:
        return self.compile_for(build, key, device("cuda", threads.mine.chosen))

    # -- random numbers ---------------------------------------------------------------------------------------------

    def generator(self, where: device) -> Any:
        found = self.generators.get(where.index)
        if found is not None:
            return found
        index = self.indexed(where).index or 0
        if index not in self.generators:
            made = self.generators[index] = CudaGenerator(device("cuda", index))
            made.manual_seed(self.first_seed) if self.first_seed is not None else made.seed()
        return self.generators[index]

    def new_generator(self, where: device) -> Any:
        return CudaGenerator(self.indexed(where))

    def seed(self, seed: int) -> None:
        self.first_seed = seed
        for index in range(self.device_count):
            self.generator(device("cuda", index)).manual_seed(seed)


def host_value(backend: CudaBackend, address: int, nbytes: int, where: device) -> bytes:
    """Return bytes of device memory, read after everything on the current stream."""
    place = ctypes.create_string_buffer(nbytes)
    backend.read(ctypes.addressof(place), address, nbytes, where)
    return place.raw
