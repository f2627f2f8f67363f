"""Devices: where memory is allocated and kernels run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .uninterrupted import uninterrupted

# The names PyTorch knows, and those that backends add. Tensors live on "cpu", "meta" and where there is a backend.
_TYPES: tuple[str, ...] = (
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla", "lazy", "vulkan", "mps",
    "meta", "hpu", "mtia", "privateuseone",
)  # fmt: skip


class device:
    """Device of a tensor: `device("cuda:0")`, `device("cuda", 0)`; as a context manager it sets the default device."""

    __slots__ = ("type", "index", "memory", "_previous")

    type: str
    index: int | None
    memory: Any  # allocate(nbytes) -> address and release(address), where the backend has such an object for the device
    _previous: list[device | None]

    def __new__(cls, type: Any = None, index: int | None = None) -> device:
        if isinstance(type, device):
            return type
        text = type if index is None and type.__class__ is str else None
        if text in _TEXTS:
            return _TEXTS[text]
        if isinstance(type, int) and not isinstance(type, bool):
            type, index = "cuda", type
        if not isinstance(type, str):
            raise TypeError(f"device(): argument 'type' must be str, not {type.__class__.__name__}")
        kind, colon, number = type.partition(":")
        if colon:
            if index is not None:
                raise RuntimeError(
                    f"type (string) must not include an index because index was passed explicitly: {type}"
                )
            if not number.isdigit() or (len(number) > 1 and number[0] == "0"):
                raise RuntimeError(f"Invalid device string: '{type}'")
            index = int(number)
        if kind not in _TYPES:
            expected = ", ".join(_TYPES)
            raise RuntimeError(f"Expected one of {expected} device type at start of device string: {kind}")
        if index is not None:
            _check_index(index)
        self = _KNOWN.get((kind, index))
        if self is None:
            self = object.__new__(cls)
            self.type, self.index = kind, index
            self.memory = None
            self._previous = []
            _KNOWN[kind, index] = self
        if text is not None:
            _TEXTS[text] = self
        return self

    def __repr__(self) -> str:
        return (
            f"device(type='{self.type}')" if self.index is None else f"device(type='{self.type}', index={self.index})"
        )

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (device, (self.type,) if self.index is None else (self.type, self.index))

    def __copy__(self) -> device:
        return self

    def __deepcopy__(self, memo: dict[Any, Any]) -> device:
        return self

    def __enter__(self) -> device:
        self._previous.append(_default[0])
        _default[0] = self
        return self

    @uninterrupted
    def __exit__(self, *exc: Any) -> None:
        _default[0] = self._previous[-1]  # type: ignore[assignment]
        del self._previous[-1]


def _check_index(index: Any) -> None:
    if isinstance(index, bool) or not hasattr(index, "__index__"):
        raise TypeError(f"device(): argument 'index' (position 2) must be int, not {type(index).__name__}")
    if index < 0:
        raise RuntimeError(f"Device index must not be negative, got {index}")


def add_type(name: str) -> None:
    """Add a type of device."""
    global _TYPES
    if name not in _TYPES:
        _TYPES = (*_TYPES, name)


_KNOWN: dict[tuple[str, int | None], device] = {}
_TEXTS: dict[Any, device] = {}  # those that were asked for by one text
cpu = device("cpu")
meta = device("meta")
_default: list[device] = [cpu]


# Types of device of which there are several: how "cuda" becomes "cuda:0".
numbered: dict[str, Callable[[device], device]] = {}


def default_device() -> device:
    """Return the device on which new tensors are made."""
    found = _default[0]
    if found is cpu or found is meta:
        return found
    if found.type in ("cpu", "meta"):
        return device(found.type)
    if found.index is not None or found.type not in numbered:
        return found
    return numbered[found.type](found)


_Device = device  # for the function whose parameter is called `device`


def set_default_device(device: Any) -> None:
    """Choose the device on which new tensors are made; None for the CPU."""
    _default[0] = cpu if device is None else _Device(device)
