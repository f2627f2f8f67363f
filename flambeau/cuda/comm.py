"""Copies and sums between the GPUs of one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.backend import backend_of
from ..core.device import device as Device
from ..core.tensor import Tensor
from ..ops.shape.joining import cat
from . import _require_backend, current_device

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]


def _device_of(where: Any) -> Device:
    found = Device("cuda", where) if isinstance(where, int) else Device(where)
    return backend_of(found).indexed(found) if found.type == "cuda" else found


def _check_destination(devices: Any, out: Any, what: str) -> None:
    if (devices is None) == (out is None):
        given = "none" if out is None else f"devices={devices} and out={out}"
        raise RuntimeError(f"Exactly one of 'devices' and 'out' must be specified for {what}, but got {given}")


def broadcast(tensor: Tensor, devices: Any = None, *, out: Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
    """Copy a tensor to each of the devices (itself where it already is), or into the tensors `out`."""
    _require_backend("comm.broadcast", RuntimeError)
    _check_destination(devices, out, "broadcast")
    if out is not None:
        return tuple(target.copy_(tensor) for target in out)
    return tuple(tensor.to(_device_of(d)) for d in devices)


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Any, buffer_size: int = 10485760
) -> list[tuple[Tensor, ...]]:
    """Copy several tensors to each of the devices; returns one list for each. Copies are not joined, so `buffer_size` has no effect."""
    _require_backend("comm.broadcast_coalesced", RuntimeError)
    return [tuple(t.to(_device_of(d)) for t in tensors) for d in devices]


def reduce_add(inputs: Sequence[Tensor], destination: Any = None) -> Tensor:
    """Return the sum of tensors of one shape on different GPUs, on one of them."""
    _require_backend("comm.reduce_add", RuntimeError)
    where = _device_of(current_device() if destination is None else destination)
    for number, tensor in enumerate(inputs):
        if tensor.device.type != "cuda":
            raise AssertionError("reduce_add expects all inputs to be on GPUs")
        if tensor.shape != inputs[0].shape:
            got = "x".join(map(str, tensor.shape))
            wanted = "x".join(map(str, inputs[0].shape))
            raise ValueError(f"input {number} has invalid size: got {got}, but expected {wanted}")
    if where not in [t.device for t in inputs]:
        raise RuntimeError("reduce_add expects destination to be on the same GPU with one of the tensors")
    first, *others = sorted(inputs, key=lambda t: t.device != where)
    total = first.clone()
    for tensor in others:
        total += tensor.to(where)
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]], destination: Any = None, buffer_size: int = 10485760
) -> tuple:
    """Return the sums of several tensors of each GPU; `buffer_size` has no effect."""
    return tuple(reduce_add(parts, destination) for parts in zip(*inputs))


def scatter(
    tensor: Tensor,
    devices: Any = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Any = None,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Split a tensor along `dim` (equally, or into `chunk_sizes`), one part on each device or in each tensor of `out`."""
    _require_backend("comm.scatter", RuntimeError)
    if out is not None:
        if devices is not None or chunk_sizes is not None:
            raise RuntimeError("'devices' and 'chunk_sizes' must not be specified when 'out' is specified")
        parts = tensor.split([t.shape[dim] for t in out], dim)
        return tuple(target.copy_(part) for target, part in zip(out, parts))
    cut = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return tuple(part.to(_device_of(d)) for part, d in zip(cut, devices))


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Concatenate tensors of several GPUs along `dim` on one of them ("cpu" is a destination too), or in `out`."""
    _require_backend("comm.gather", RuntimeError)
    if out is not None and destination is not None:
        raise RuntimeError(
            f"'destination' must not be specified when 'out' is specified, but got destination={destination}"
        )
    where = _device_of(current_device() if destination is None else destination) if out is None else out.device
    joined = cat([t.to(where) for t in tensors], dim)
    return joined if out is None else out.copy_(joined)
