"""Backends: what a device must be able to do for tensors to live and be computed on it.

A device is one small class. `register("name", MyBackend())` makes `flambeau.device("name")` a device: tensors are allocated there,
copied there and back, and everything that is a formula or a loop kernel is compiled for it. An operator that needs more says
which kernel is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import device as devices
from .device import device


class Backend:
    """The interface. Addresses are plain integers, meaningful to this backend alone."""

    compiles = False  # whether `compile` makes kernels
    device_count = 1

    def allocate(self, nbytes: int, where: device) -> int:
        """The address of a new block."""
        raise NotImplementedError(f"{type(self).__name__} cannot allocate memory")

    def release(self, address: int, nbytes: int, where: device) -> None:
        """Give a block back."""
        raise NotImplementedError(f"{type(self).__name__} cannot release memory")

    def read(self, host: int, address: int, nbytes: int, where: device) -> None:
        """Copy bytes from the device to host memory; they are there when this returns."""
        raise NotImplementedError(f"{type(self).__name__} cannot copy memory to the host")

    def write(self, address: int, host: int, nbytes: int, where: device) -> None:
        """Copy bytes from host memory to the device."""
        raise NotImplementedError(f"{type(self).__name__} cannot copy memory from the host")

    def copy(self, destination: int, source: int, nbytes: int, where: device) -> None:
        """Copy bytes within the device."""
        raise NotImplementedError(f"{type(self).__name__} cannot copy memory")

    def fill(self, address: int, byte: int, nbytes: int, where: device) -> None:
        """Set bytes."""
        raise NotImplementedError(f"{type(self).__name__} cannot fill memory")

    def compile(self, build: Callable[[], Any], key: str) -> Callable:
        """A kernel as a function of addresses, numbers and, for geometry, bytes: `build()` is its loop nest (kernels.ir), `key`
        tells it from all others."""
        raise NotImplementedError(f"{type(self).__name__} cannot compile kernels")

    def generator(self, where: device) -> Any:
        """The device's default generator of random numbers."""
        raise NotImplementedError(f"{type(self).__name__} draws no random numbers")

    def synchronize(self, where: device) -> None:
        """Wait until everything that was started has finished. What runs at once has nothing to wait for."""

    def current_stream(self, where: device) -> Any:
        """The queue that work is put into; None where calls run at once."""
        return None

    def properties(self, where: device) -> dict[str, Any]:
        """What there is to know about a device."""
        return {"name": where.type}


_BACKENDS: dict[str, Backend] = {}


def register(name: str, backend: Backend) -> None:
    """Make `name` a type of device, whose tensors this backend looks after."""
    if name in ("cpu", "meta") or name in _BACKENDS:
        raise ValueError(f"there is a device of type {name!r} already")
    if not name.isidentifier():
        raise ValueError(f"a type of device is named by a word, not {name!r}")
    if not isinstance(backend, Backend):
        raise TypeError(f"expected an instance of flambeau.backends.Backend, not {type(backend).__name__}")
    devices.add_type(name)
    _BACKENDS[name] = backend


def has_backend(where: device) -> bool:
    """Whether a device other than the CPU and meta can hold tensors."""
    return where.type in _BACKENDS


def backend_of(where: device) -> Backend:
    """The backend of a device that is neither the CPU nor meta."""
    try:
        return _BACKENDS[where.type]
    except KeyError:
        raise RuntimeError(f"there is no device of type {where.type!r} here: {_why_absent(where.type)}") from None


def _why_absent(kind: str) -> str:
    if kind == "cuda":
        return "CUDA needs an NVIDIA GPU and `pip install flambeau[cuda]`"
    return "register a backend for it with flambeau.backends.register"
