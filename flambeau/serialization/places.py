"""Locations of storages: their tags in files, and restoring them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.backend import backend_of, has_backend
from ..core.device import device
from ..core.storage import UntypedStorage
from ..core.typed_storage import TypedStorage

_packages: list[tuple[int, Callable[[Any], str | None], Callable[[Any, str], Any]]] = []


def register_package(
    priority: int, tagger: Callable[[Any], str | None], deserializer: Callable[[Any, str], Any]
) -> None:
    """Register two functions, called in order of priority (lowest first): one returns the tag of a storage's location, the other moves a
    storage to a tag's location; None passes on to the next."""
    _packages.append((priority, tagger, deserializer))
    _packages.sort(key=lambda package: package[0])


def location_tag(storage: Any) -> str:
    """Return the tag of a storage's location in a file: 'cpu', 'cuda:0', 'meta'."""
    for _, tagger, _ in _packages:
        tag = tagger(storage)
        if tag:
            return tag
    raise RuntimeError(f"don't know how to determine data location of {type(storage).__name__}")


def default_restore_location(storage: Any, location: str) -> Any:
    """Move a storage to the location that a file names."""
    for _, _, deserializer in _packages:
        placed = deserializer(storage, location)
        if placed is not None:
            return placed
    raise RuntimeError(
        f"don't know how to restore data location of {type(storage).__module__.replace('flambeau', 'torch')}"
        f".{type(storage).__name__} (tagged with {location})"
    )


def _on_cpu(storage: Any, location: str) -> Any:
    return storage if location.partition(":")[0] == "cpu" else None


def _on_meta(storage: Any, location: str) -> Any:
    return UntypedStorage(storage.nbytes(), device("meta")) if location.partition(":")[0] == "meta" else None


def validate_cuda_device(location: str) -> int:
    """Return the index of the CUDA device that a tag names."""
    where = device(location)
    if has_backend(where):
        count = backend_of(where).device_count
        if (where.index or 0) < count:
            return backend_of(where).indexed(where).index or 0
        raise RuntimeError(
            f"Attempting to deserialize object on CUDA device {where.index} but torch.cuda.device_count() is {count}. Please use"
            " torch.load with map_location to map your storages to an existing device."
        )
    raise RuntimeError(
        "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running on a"
        " CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU."
    )


def _on_cuda(storage: Any, location: str) -> Any:
    if location.partition(":")[0] == "cuda":
        return UntypedStorage(storage.nbytes(), device("cuda", validate_cuda_device(location))).copy_(storage)
    return None


register_package(10, lambda storage: "cpu" if storage.device.type == "cpu" else None, _on_cpu)
register_package(20, lambda storage: str(storage.device) if storage.device.type == "cuda" else None, _on_cuda)
register_package(22, lambda storage: "meta" if storage.device.type == "meta" else None, _on_meta)


def restore(storage: UntypedStorage, location: str, map_location: Any) -> UntypedStorage:
    """Move a newly read storage to the location that the caller of `load` chooses."""
    if callable(map_location):
        placed = map_location(storage, location)
        if placed is None:
            placed = default_restore_location(storage, location)
    elif isinstance(map_location, dict):
        placed = default_restore_location(storage, str(map_location.get(location, location)))
    elif map_location is None:
        placed = default_restore_location(storage, location)
    else:
        placed = default_restore_location(storage, str(device(map_location)))
    return placed.untyped() if isinstance(placed, TypedStorage) else placed
