"""The random engine of CUDA devices: Philox4x32-10, a function of a seed, a counter per thread, and an offset.

A launch draws at the present offset and advances it by the numbers that each of its threads draws, as in PyTorch; the kernels decide which
thread draws for which element (operators/random.py)."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ...core.device import device as Device
from ...core.dtype import uint8
from ...core.generator import DEFAULT_SEED, Generator
from ...core.locks import GENERATOR, new_lock
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, copy_of_array
from . import graphs, threads

_STATE = struct.Struct("<QQ")


class CudaGenerator(Generator):
    """A source of random numbers on a GPU, with PyTorch's sequence for the same seed."""

    __slots__ = ("offset", "place")

    def __init__(self, device: Any = "cuda"):
        where = Device(device)
        self._device = Device("cuda", threads.mine.chosen if where.index is None else where.index)
        self._engine = self._native = None
        self.lock = new_lock(GENERATOR)
        self.offset = 0
        self.place: Any = None  # device memory with seed and offset, for graphs
        self._reset(DEFAULT_SEED)

    def _reset(self, seed: int) -> None:
        graph = graphs.captured_on(self._device.index or 0)
        if graph is not None and self in graph.generators:
            raise RuntimeError("cannot seed a CUDA generator while a graph that draws from it is captured")
        self._seed, self.offset = seed, 0

    def take(self, count: int) -> tuple[int, int, int]:
        """Return (seed, offset, address) for a launch whose threads draw up to `count` numbers each. With an address other than 0, seed and
        offset are read from there, and the offset given here is added."""
        count = (count + 3) // 4 * 4
        index = self._device.index or 0
        if graphs.is_capturing(index):
            return self._take_in_graph(count, index)
        with self.lock:
            at, self.offset = self.offset, self.offset + count
        return self._seed, at, 0

    def _take_in_graph(self, count: int, index: int) -> tuple[int, int, int]:
        graph = graphs.captured_on(index)
        assert graph is not None
        if self.place is None:
            raise RuntimeError(
                "a CUDA generator is used for the first time while a graph is captured: draw from it once before, for example by"
                " running the work that is to be captured"
            )
        at = graph.generators.get(self, 0)
        graph.generators[self] = at + count
        return 0, at, self.place.ptr

    def prepare_capture(self) -> None:
        """Allocate the memory from which graphs read seed and offset."""
        if self.place is None:
            self.place = UntypedStorage(16, self._device)

    def prepare_replay(self, distance: int, stream: int) -> None:
        """Set the generator's offset for a graph about to run that draws `distance` numbers."""
        graphs.write_pair(self._device.index or 0, self.place.ptr, self._seed, self.offset)
        self.offset += distance

    # -- state ------------------------------------------------------------------------------------------------------

    def get_offset(self) -> int:
        return self.offset

    def set_offset(self, offset: int) -> None:
        if offset % 4:
            raise RuntimeError(f"offset must be a multiple of 4, but got {offset}")
        self.go_back_to(_STATE.pack(self._seed, offset))

    def state_bytes(self) -> bytes:
        graph = graphs.captured_on(self._device.index or 0)
        drawn = 0 if graph is None else graph.generators.get(self, 0)  # since the capture began
        return _STATE.pack(self._seed, self.offset + drawn)

    def set_state_bytes(self, state: bytes) -> None:
        if len(state) not in (8, 16):
            raise RuntimeError(f"RNG state is wrong size: a CUDA generator has 16 bytes, not {len(state)}")
        self._seed, self.offset = _STATE.unpack(state.ljust(16, b"\0"))

    def get_state(self) -> Tensor:
        return copy_of_array(np.frombuffer(self.state_bytes(), np.uint8), uint8)

    def clone_state(self) -> Generator:
        twin = CudaGenerator(self._device)
        twin.set_state_bytes(self.state_bytes())
        return twin

    def raw(self, n: int) -> Any:
        raise RuntimeError(
            "a CUDA generator draws on its device only: its numbers cannot be taken one by one on the host"
        )

    native = position = random32 = random64 = skip = raw  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return (Generator, (self._device,), (self._seed, self.offset, self.get_state()))

    def __hash__(self) -> int:
        return id(self)
