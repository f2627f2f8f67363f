"""The CPU random engine: MT19937 with PyTorch's seeding, consumption order and saved-state layout.

The raw numbers come from NumPy's MT19937, which is the same engine; what is PyTorch's own is how a seed is taken,
that a 64-bit number is two 32-bit draws with the high half first, the normal sample kept back between calls, and the
5056 bytes of a saved state. How distributions are made of these numbers is in `random_algorithms`.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from threading import get_ident
from typing import Any

import numpy as np

from flambeau.core import watching
from flambeau.core.allocator import make_sure_of
from flambeau.core.backend import backend_of, has_backend, seed_devices
from flambeau.core.device import cpu
from flambeau.core.device import device as Device
from flambeau.core.dtype import uint8, uint32
from flambeau.core.locks import GENERATOR, new_lock
from flambeau.core.size import make_size
from flambeau.core.storage import UntypedStorage
from flambeau.core.tensor import Tensor, copy_of_array, empty, from_array, new_tensor

DEFAULT_SEED = 67280421310721
STATE_BYTES = 5056
SCRATCH_WORDS = 1 << 15  # words that native fills draw at a time

_NUMPY_BYTES = 24 << 20  # more than importing numpy.random takes
_WORDS = 624  # MT19937 regenerates this many words at a time
# seed, words left before regeneration (plus one), "seeded", position; 624 words widened to 64 bits follow.
_HEAD = struct.Struct("<QiiQ")
# two unused doubles around the kept double-precision normal sample, its flag; the kept float32 sample, its flag.
_TAIL = struct.Struct("<dddi4xf?3x")
_KEY_AT = _HEAD.size
_TAIL_AT = _KEY_AT + 8 * _WORDS


class Generator:
    """A source of random numbers that yields PyTorch's sequence for the same seed.

    >>> g = Generator().manual_seed(0)
    >>> [hex(word) for word in g.random32(2)]
    ['0x8c7f0aac', '0x97c4aa2f']
    """

    __slots__ = (
        "__weakref__", "_device", "_engine", "_kept_float", "_native", "_seed", "_seeder", "_untouched",
        "kept_normal", "lock", "user",
    )  # fmt: skip

    user: int  # the thread that has drawn last
    kept_normal: float | None  # second value of a Box-Muller pair, waiting for the next call

    def __new__(cls, device: Any = "cpu") -> Any:
        """Make a generator; those of other devices are made by the device's backend."""
        if (
            cls is Generator
            and device is not None
            and Device(device).type not in ("cpu", "meta")
            and has_backend(Device(device))
        ):
            return backend_of(Device(device)).new_generator(Device(device))
        return object.__new__(cls)

    def __init__(self, device: Any = "cpu") -> None:
        self._device = Device("cpu" if device is None else device)
        if self._device.type != "cpu":
            raise RuntimeError(f"Generator is implemented for device type cpu, but got {self._device}")
        self._device = Device("cpu")
        self._engine: np.random.MT19937 | None = None
        self.user = 0
        self._native: tuple[Tensor, Tensor, Tensor, np.ndarray[Any, Any]] | None = None
        # Guards sequences of draws that must not interleave; single bulk draws are atomic in NumPy.
        self.lock = new_lock(GENERATOR)
        self._reset(DEFAULT_SEED)

    @property
    def _bits(self) -> np.random.MT19937:
        """Return NumPy's engine, made at the first draw, since loading `numpy.random` is a few per cent of `import flambeau`."""
        if self._engine is None:
            with self.lock:
                if self._engine is None:
                    if "numpy.random" not in sys.modules:
                        make_sure_of(_NUMPY_BYTES, "to load the engine of random numbers")
                    engine = np.random.MT19937(0)
                    self._seeder = np.random.RandomState(engine)
                    self._seeder.seed(self._seed & 0xFFFFFFFF)
                    self._engine = engine
        return self._engine

    # -- seeds ------------------------------------------------------------------------------------------------------

    def _reset(self, seed: int) -> None:
        with self.lock:
            self._seed = seed
            if self._engine is not None:
                self._seeder.seed(seed & 0xFFFFFFFF)
            self._untouched = True
            self.kept_normal: float | None = None
            self._kept_float: float | None = None

    def manual_seed(self, seed: int) -> Generator:
        """Start the sequence of `seed`; a negative seed means `2**64 + seed`."""
        if isinstance(seed, np.integer):
            raise TypeError(f"manual_seed: an integer is required, but got {type(seed).__name__}")
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")  # noqa: TRY004 (PyTorch's)
        if not -(2**63) <= seed < 2**64:
            raise ValueError(f"Overflow when unpacking long long: seed must be in [-2**63, 2**64), but got {seed}")
        if watching.active:
            watching.tell_reseeded()
        self._reset(seed % 2**64)
        return self

    def seed(self) -> int:
        """Seed from the operating system's entropy and return the seed."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self._seed

    def initial_seed(self) -> int:
        """Return the seed that the sequence started from."""
        return self._seed

    @property
    def device(self) -> Device:
        return self._device

    def get_offset(self) -> int:
        raise RuntimeError("CPU Generator does not use offset")

    def set_offset(self, offset: int) -> None:
        raise RuntimeError("CPU Generator does not use offset")

    # -- draws ------------------------------------------------------------------------------------------------------

    def raw(self, n: int) -> np.ndarray[Any, Any]:
        """Return the next `n` 32-bit numbers, each in a uint64 (as the engine delivers them, without a copy)."""
        if n:
            self._untouched, self.user = False, get_ident()
        return self._bits.random_raw(n)

    def random32(self, n: int) -> np.ndarray[Any, Any]:
        """Return the next `n` 32-bit numbers as uint32."""
        return self.raw(n).astype(np.uint32)

    def random64(self, n: int) -> np.ndarray[Any, Any]:
        """Return the next `n` 64-bit numbers as uint64; each takes two draws, high half first."""
        halves = self.raw(2 * n).reshape(n, 2)
        words = halves[:, 0] << np.uint64(32)
        words |= halves[:, 1]
        return words

    def skip(self, n: int) -> None:
        """Skip `n` 32-bit numbers."""
        if n:
            self._untouched, self.user = False, get_ident()
            self._bits.random_raw(n, output=False)

    def native(self) -> tuple[Tensor, Tensor, Tensor, np.ndarray[Any, Any]]:
        """Return the arguments with which native code draws: the engine's memory (624 words and the position of the next), scratch memory,
        and two float64 for a kept normal sample, also as an array. To be used with `lock` held; marks the engine as used."""
        if self._native is None:
            place = self._bits.ctypes.state_address
            storage = UntypedStorage.borrow(place, 4 * (_WORDS + 1), self._bits)
            engine = new_tensor(storage, make_size((_WORDS + 1,)), (1,), 0, uint32, cpu, True)
            known = self._bits.state["state"]
            if engine._array().tolist() != [*known["key"].tolist(), known["pos"]]:
                raise RuntimeError(f"NumPy {np.__version__} keeps its MT19937 engine in an unknown layout")
            kept = np.zeros(2)
            self._native = engine, empty((SCRATCH_WORDS,), uint32), from_array(kept), kept
        self._untouched, self.user = False, get_ident()
        return self._native

    # -- state ------------------------------------------------------------------------------------------------------

    def position(self) -> Any:
        """Return an opaque bookmark for `rewind`; kept normal samples are not part of it."""
        return self._bits.state, self._untouched

    def rewind(self, bookmark: Any) -> None:
        self._bits.state, self._untouched = bookmark

    def state_bytes(self) -> bytes:
        """Return the complete state in the 5056-byte layout of PyTorch's `get_state()`."""
        with self.lock:
            if self._native is None:
                engine = self._bits.state["state"]
                key, position = engine["key"], engine["pos"]
            else:  # read where native code draws: NumPy's copy takes a hundred microseconds
                place = self._native[0]._storage
                words = np.frombuffer(ctypes.string_at(place.ptr, place.size_bytes), np.uint32)
                key, position = words[:_WORDS], words[_WORDS]
            # NumPy calls "about to regenerate" position 624; PyTorch calls it 0 until the first draw after seeding.
            taken = 0 if self._untouched else int(position)
            left = 1 if self._untouched else _WORDS + 1 - taken
            double, single = self.kept_normal, self._kept_float
            return b"".join(
                (
                    _HEAD.pack(self._seed, left, 1, taken),
                    key.astype("<u8").tobytes(),
                    _TAIL.pack(0.0, double or 0.0, 0.0, double is not None, single or 0.0, single is not None),
                )
            )

    def set_state_bytes(self, state: bytes) -> None:
        """Restore a state saved by `state_bytes` or by PyTorch's `get_state()`."""
        if len(state) != STATE_BYTES:
            raise RuntimeError(f"Expected a CPU generator state of {STATE_BYTES} bytes, but got {len(state)} bytes")
        seed, left, seeded, taken = _HEAD.unpack_from(state)
        fresh = left == 1 and taken == 0
        if not seeded or not 0 < left <= _WORDS or not (fresh or left + taken == _WORDS + 1):
            raise RuntimeError(f"Invalid mt19937 state: seeded={seeded}, left={left}, next={taken}")
        key = np.frombuffer(state, "<u8", _WORDS, _KEY_AT).astype(np.uint32)
        _, double, _, has_double, single, has_single = _TAIL.unpack_from(state, _TAIL_AT)
        with self.lock:
            self._bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": _WORDS if fresh else taken}}
            self._seed, self._untouched = seed, fresh
            self.kept_normal = double if has_double else None
            self._kept_float = single if has_single else None

    def go_back_to(self, state: bytes) -> None:
        """Restore a state on behalf of a program, whose recordings have to do it again."""
        if watching.active:
            watching.tell_reseeded()
        self.set_state_bytes(state)

    def get_state(self) -> Tensor:
        """Return the complete state as a ByteTensor that PyTorch understands, too."""
        return copy_of_array(np.frombuffer(self.state_bytes(), np.uint8), uint8)

    def set_state(self, new_state: Tensor) -> Generator:
        """Restore a state that `get_state` returned."""
        if not isinstance(new_state, Tensor):
            raise TypeError(f"expected a torch.ByteTensor, but got {type(new_state).__name__}")
        if new_state.dtype is not uint8 or new_state.device.type != "cpu":
            raise TypeError(f"RNG state must be a torch.ByteTensor, but got {new_state.dtype} on {new_state.device}")
        self.go_back_to(new_state._array().tobytes())
        return self

    def graphsafe_get_state(self) -> Generator:
        """Return this generator itself: a state that is shared, not copied."""
        return self

    def graphsafe_set_state(self, state: Generator) -> Generator:
        """Copy the state of another generator."""
        self.go_back_to(state.state_bytes())
        return self

    def clone_state(self) -> Generator:
        """Return a new generator that continues from the same point, independently."""
        twin = Generator(self._device)
        twin.set_state_bytes(self.state_bytes())
        return twin

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.set_state(state[2])

    def __reduce__(self) -> tuple[Any, ...]:
        return (Generator, (self._device,), (self._seed, None, self.get_state()))  # as PyTorch pickles it

    def __deepcopy__(self, memo: dict[Any, Any]) -> Generator:
        return self.clone_state()

    def __repr__(self) -> str:
        return f"<Generator device={self._device} initial_seed={self._seed}>"


default_generator = Generator()
default_generator.seed()  # an unseeded program gets different numbers each run, as with PyTorch


def manual_seed(seed: Any) -> Generator:
    """Seed the default generators of all devices with anything that `int()` accepts, and return the CPU's."""
    seed_devices(int(seed))
    return default_generator.manual_seed(int(seed))


def seed() -> int:
    """Seed the default generator from the operating system's entropy and return the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """Return the seed that the default generator started from."""
    return default_generator.initial_seed()
