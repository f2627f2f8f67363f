"""Backends: the operations that a device must provide so that tensors can be stored and computed there.

A device is one small class. `register("name", MyBackend())` makes `flambeau.device("name")` a device: tensors are allocated there, copied
there and back, and everything that is a formula or a loop kernel is compiled for it. An operator that needs more raises an error that names
the missing kernel."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import threading
from collections.abc import Callable
from typing import Any

from . import device as devices
from .device import device


class _Fetched(threading.local):
    """Thread-local buffer for a few bytes of a device."""

    def __init__(self) -> None:
        self.buffer = ctypes.create_string_buffer(16)


_fetched = _Fetched()


class Backend:
    """Interface of a device. Addresses are plain integers, meaningful to this backend alone."""

    compiles = False  # whether `compile` makes kernels
    on_host = False  # whether host code may read and write its memory
    has_values = True  # whether tensors there have values at all
    hides_latency = False  # whether it works on other elements while one waits for a long function
    device_count = 1

    def computes(self, dtypes: tuple[Any, ...]) -> bool:
        """Return whether formulas over these dtypes become native code."""
        return self.compiles

    def allocate(self, nbytes: int, where: device) -> int:
        """Allocate a block of memory and return its address."""
        raise NotImplementedError(f"{type(self).__name__} cannot allocate memory")

    def release(self, address: int, nbytes: int, where: device) -> None:
        """Free a block of memory."""
        raise NotImplementedError(f"{type(self).__name__} cannot release memory")

    def lasting(self, where: device) -> contextlib.AbstractContextManager[Any]:
        """Context manager for allocations that will live long, which a backend may place elsewhere."""
        return contextlib.nullcontext()

    def read(self, host: int, address: int, nbytes: int, where: device) -> None:
        """Copy bytes from the device to host memory, and wait for them."""
        raise NotImplementedError(f"{type(self).__name__} cannot copy memory to the host")

    def write(self, address: int, host: int, nbytes: int, where: device) -> None:
        """Copy bytes from host memory to the device."""
        raise NotImplementedError(f"{type(self).__name__} cannot copy memory from the host")

    def fetch(self, address: int, nbytes: int, where: device) -> int:
        """Copy a few bytes of the device to the host; return the address of the copy, valid until this thread calls again."""
        held = _fetched.buffer
        self.read(ctypes.addressof(held), address, nbytes, where)
        return ctypes.addressof(held)

    def is_zero(self, address: int, nbytes: int, where: device, error: Exception) -> bool:
        """Return whether the number in which a kernel reports failures is zero; if not, the caller raises the error."""
        return not any(ctypes.string_at(self.fetch(address, nbytes, where), nbytes))

    def read_later(self, host: int, address: int, nbytes: int, where: device) -> None:
        """Start a `read` that may end after this returns: the caller synchronises."""
        self.read(host, address, nbytes, where)

    def write_later(self, address: int, host: int, nbytes: int, where: device) -> None:
        """Start a `write` that may read host memory after this returns, if that is locked for the device."""
        self.write(address, host, nbytes, where)

    def pinned(self, nbytes: int) -> Any:
        """Return a storage in page-locked host memory, for copies to the device."""
        raise NotImplementedError(f"{type(self).__name__} locks no host memory")

    def copy(self, destination: int, source: int, nbytes: int, where: device) -> None:
        """Copy bytes within the device."""
        raise NotImplementedError(f"{type(self).__name__} cannot copy memory")

    def fill(self, address: int, byte: int, nbytes: int, where: device) -> None:
        """Fill a block of memory with a byte."""
        raise NotImplementedError(f"{type(self).__name__} cannot fill memory")

    def compile(self, build: Callable[[], Any], key: str) -> Callable[..., Any]:
        """Return a kernel as a function of addresses, numbers and, for geometry, bytes: `build()` returns its loop nest (kernels.ir), `key`
        identifies it."""
        raise NotImplementedError(f"{type(self).__name__} cannot compile kernels")

    def compile_for(self, build: Callable[[], Any], key: str, where: device) -> Callable[..., Any]:
        """Compile a kernel for one of several devices of this type."""
        return self.compile(build, key)

    def compile_lists(
        self,
        roots: Any,
        dtypes: tuple[Any, ...],
        positions: tuple[Any, ...],
        numbers: tuple[Any, ...],
        where: device,
        singles: int = 0,
    ) -> Callable[..., Any] | None:
        """Return a function that applies formulas to many tensors at once, or None: run(rows, numbers, found=0), where a row has the
        addresses of tensors of these dtypes and their number of elements (the last `singles` have one), and roots[k] is stored to tensor
        positions[k] of each; nothing is done if a float32 number at the address `found` is not zero."""
        return None

    def compile_reductions(self, reduction: Any, where: device) -> Callable[..., Any] | None:
        """Return a function that reduces each of many dense tensors to one number, or None: run(rows), where a row has the addresses of a
        tensor and of its result and the number of elements. `reduction` is a kernels.reduction_parts.Reduction."""
        return None

    def indexed(self, where: device) -> device:
        """Return the device with its index, if there are several of this type."""
        return where

    def copy_across(self, destination: int, there: device, source: int, here: device, nbytes: int) -> None:
        """Copy bytes from one device of this type to another: through the host, unless overridden."""
        staging = ctypes.create_string_buffer(nbytes)
        self.read(ctypes.addressof(staging), source, nbytes, here)
        self.write(destination, ctypes.addressof(staging), nbytes, there)

    def generator(self, where: device) -> Any:
        """Return the device's default generator of random numbers."""
        raise NotImplementedError(f"{type(self).__name__} draws no random numbers")

    def new_generator(self, where: device) -> Any:
        """Return a new generator of random numbers for the device."""
        raise NotImplementedError(f"{type(self).__name__} draws no random numbers")

    def seed(self, seed: int) -> None:
        """Seed the default generators of all devices of this type."""

    def report_address(self, where: device, operator: str = "") -> int:
        """Return the address where the next kernel may report a bad index (two int64: 1, and the index), which the host reads when it next
        waits for the device; 0 if it has to be read after every kernel."""
        return 0

    def raise_later(self, address: int, nbytes: int, operator: str, error: Exception, where: device) -> bool:
        """Raise this error when the host next waits for the device, if the number at an address is not zero then; return False if that is not
        supported."""
        return False

    def share(self, storage: Any) -> tuple[Any, ...]:
        """Return a function, and its arguments, that gives another process a storage over the same memory."""
        raise RuntimeError(f"tensors on {storage.device} cannot be sent to another process")

    def synchronize(self, where: device) -> None:
        """Wait until everything that was started has finished; nothing to wait for if work runs synchronously."""

    def current_stream(self, where: device) -> Any:
        """Return the queue that work is put into; None if work runs synchronously."""
        return None

    def record_stream(self, address: int, stream: int, where: device) -> None:
        """Note that work on another stream uses a block; nothing to note if work runs synchronously."""

    def hand_over(self, where: device, stream: int | None) -> None:
        """Make another library's stream wait for the work that was started here, before it reads memory."""
        self.synchronize(where)

    def properties(self, where: device) -> dict[str, Any]:
        """Return the properties of a device."""
        return {"name": where.type}


class MetaBackend(Backend):
    """The meta device: tensors there have shapes but no values, so that nothing is ever computed."""

    has_values = False

    def allocate(self, nbytes: int, where: device) -> int:
        return 0

    def release(self, address: int, nbytes: int, where: device) -> None:
        """Do nothing: no memory was allocated."""

    def read(self, host: int, address: int, nbytes: int, where: device) -> None:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")

    def fetch(self, address: int, nbytes: int, where: device) -> int:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")

    def is_zero(self, address: int, nbytes: int, where: device, error: Exception) -> bool:
        return True

    def write(self, address: int, host: int, nbytes: int, where: device) -> None:
        """Do nothing: there is no memory to write to."""

    def copy(self, destination: int, source: int, nbytes: int, where: device) -> None:
        """Do nothing: there is no memory to copy."""

    def fill(self, address: int, byte: int, nbytes: int, where: device) -> None:
        """Do nothing: there is no memory to fill."""


# By type of device. The backend of an existing tensor is here; `backend_of` also starts those that were not used yet.
BACKENDS: dict[str, Backend] = {"meta": MetaBackend()}
# Types of device that come with the library, and are started when they are first used: what to import for the backend (its
# function `start`), and what declares its kernels.
_OPTIONAL = {"cuda": ("flambeau.backends.nvidia", "flambeau.backends.nvidia.operators")}
_absent: dict[str, str] = {}  # why one of them cannot be used here


def register(name: str, backend: Backend) -> None:
    """Make `name` a type of device whose tensors `backend` allocates and computes: `register("toy", ToyBackend())`."""
    if name in BACKENDS:
        raise ValueError(f"there is a device of type {name!r} already")
    if not name.isidentifier():
        raise ValueError(f"a type of device is named by a word, not {name!r}")
    if not isinstance(backend, Backend):
        raise TypeError(f"expected an instance of flambeau.backends.Backend, not {type(backend).__name__}")
    devices.add_type(name)
    BACKENDS[name] = backend


def has_backend(where: device) -> bool:
    """Return whether a device can hold tensors."""
    return where.type in BACKENDS or _start(where.type)


def backend_of(where: device) -> Backend:
    """Return the backend of a device, which is started at its first use."""
    try:
        return BACKENDS[where.type]
    except KeyError:
        if _start(where.type):
            return BACKENDS[where.type]
        raise RuntimeError(f"there is no device of type {where.type!r} here: {why_absent(where.type)}") from None


_seed_of_program: list[int] = []  # the last seed given to all devices: one that is started later begins with it


def seed_devices(seed: int) -> None:
    """Seed the default generators of every device, including those that are started later."""
    _seed_of_program[:] = [seed]
    for backend in BACKENDS.values():
        backend.seed(seed)


def indexed(where: device) -> device:
    """Return the device that a type of device alone means: the chosen one of several. There is only one "cpu" and one "meta", whatever the
    index."""
    if where.type in ("cpu", "meta"):
        return device(where.type)
    return backend_of(where).indexed(where)


devices.numbered.update(dict.fromkeys(_OPTIONAL, indexed))


def _start(kind: str) -> bool:
    """Start an optional backend at its first use; return whether it is available."""
    if kind not in _OPTIONAL or kind in _absent:
        return False
    module, kernels = _OPTIONAL[kind]
    try:
        backend = importlib.import_module(module).start()
    except RuntimeError as problem:
        _absent[kind] = str(problem)
        return False
    BACKENDS[kind] = backend
    for seed in _seed_of_program:
        backend.seed(seed)
    importlib.import_module(kernels)
    return True


def why_absent(kind: str) -> str:
    """Return the reason, as a sentence, why there is no such device here."""
    if kind == "cuda":
        problem = _absent.get(kind, "")
        return f"{problem}{'; ' if problem else ''}CUDA needs an NVIDIA GPU and `pip install flambeau[cuda]`"
    return "register a backend for it with flambeau.backends.register"
