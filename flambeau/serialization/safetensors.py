"""Tensors in the safetensors format: names, shapes and raw bytes, nothing that can run.

The `safetensors` package parses and checks the header of a file and writes files; the bytes of the tensors are mapped here,
because the package itself knows no array type for bfloat16 and the 8-bit floats.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..core import dtype as dt
from ..core import layout as layouts
from ..core.device import device as Device
from ..core.dtype import dtype
from ..core.size import make_size
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor, contiguous_strides, empty, new_tensor, numel_of
from ..nn.modules.module import Module
from .destination import written_path

try:
    import safetensors as _package
    from safetensors import SafetensorError
except ImportError:
    _package = None  # type: ignore[assignment]

    class SafetensorError(Exception):  # type: ignore[no-redef]
        """Raised for a damaged or impossible safetensors file."""


# The format's names of element types.
_CODES = {d.safetensors: d for d in dt.RECORDS if d.safetensors}
_FRAMEWORKS = {"pt": False, "torch": False, "pytorch": False, "flambeau": False, "numpy": True, "np": True}


def _require_package() -> Any:
    if _package is None:
        raise ImportError("safetensors files need the package 'safetensors': pip install 'flambeau[safetensors]'")
    if sys.byteorder != "little":
        raise RuntimeError("safetensors files are little-endian and this machine is big-endian: not supported")
    return _package


def _dtype_of(code: str, name: str) -> dtype:
    kind = _CODES.get(code)
    if kind is None:
        known = ", ".join(_CODES)
        raise SafetensorError(f"tensor {name!r} has elements of type {code}, which is not one of {known}")
    return kind


def _tensor_over(memory: np.ndarray, shape: Iterable[int], kind: dtype) -> Tensor:
    """Return a contiguous tensor over bytes of a mapped file or a buffer; copied only if an element would straddle its alignment."""
    sizes = make_size(shape)
    if max(sizes, default=0) >= 1 << 63:
        raise SafetensorError(f"a tensor of size {tuple(sizes)} cannot exist")
    nbytes = numel_of(sizes) * kind.itemsize
    if memory.nbytes != nbytes:
        raise SafetensorError(
            f"a tensor of size {tuple(sizes)} and type {kind} needs {nbytes} bytes, got {memory.nbytes}"
        )
    if nbytes == 0:
        return empty(tuple(sizes), kind)
    if memory.ctypes.data % kind.itemsize:
        storage = UntypedStorage(nbytes)
        storage.numpy()[:] = memory
    else:
        storage = UntypedStorage.borrow(memory.ctypes.data, nbytes, memory)
    return new_tensor(storage, sizes, contiguous_strides(sizes), 0, kind, storage.device, True)


# -- reading --------------------------------------------------------------------------------------------------------------


class _Slice:
    """A tensor of an open file, of which any part can be read by indexing."""

    def __init__(self, file: safe_open, name: str):
        self._file, self._name = file, name
        self._code, self._shape, _, _ = file._find(name)

    def get_shape(self) -> list[int]:
        return list(self._shape)

    def get_dtype(self) -> str:
        return self._code

    def __getitem__(self, index: Any) -> Any:
        return self._file.get_tensor(self._name)[index]


class safe_open:
    """Open a safetensors file; tensors are read on access.

    >>> with safe_open("model.safetensors", framework="pt") as file:
    ...     weight = file.get_tensor("weight")
    """

    def __init__(self, filename: Any, framework: str = "pt", device: Any = "cpu", *, backend: str = "mmap"):
        if framework not in _FRAMEWORKS:
            raise SafetensorError(f"framework {framework!r} is not one of {', '.join(_FRAMEWORKS)}")
        if backend not in ("mmap", "pread"):
            raise SafetensorError(f"backend {backend!r} is not one of mmap, pread")
        self._as_numpy, self._device = _FRAMEWORKS[framework], Device(device)
        path = os.fspath(filename)
        if os.path.isdir(path):
            raise IsADirectoryError(f"{path} is a folder, not a safetensors file")
        opened = _require_package().safe_open(path, framework="numpy")
        with opened as header:
            self._metadata = header.metadata()
            self._entries = _entries(header)
        self._bytes: np.ndarray | None = _file_bytes(path, backend == "mmap")
        (length,) = self._bytes[:8].view("<u8")
        self._start = 8 + int(length)

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *problem: Any) -> None:
        self._bytes = None  # tensors that were handed out keep the mapping alive

    def _find(self, name: str) -> tuple[str, tuple[int, ...], int, int]:
        if name not in self._entries:
            raise SafetensorError(f"File does not contain tensor {name}")
        return self._entries[name]

    def keys(self) -> list[str]:
        return sorted(self._entries)

    def offset_keys(self) -> list[str]:
        return list(self._entries)

    def metadata(self) -> dict[str, str] | None:
        return self._metadata

    def get_tensor(self, name: str) -> Any:
        code, shape, first, last = self._find(name)
        if self._bytes is None:
            raise SafetensorError("File is closed")
        tensor = _tensor_over(self._bytes[self._start + first : self._start + last], shape, _dtype_of(code, name))
        return tensor.numpy() if self._as_numpy else tensor.to(self._device)

    def get_tensors(self) -> dict[str, Any]:
        return {name: self.get_tensor(name) for name in self._entries}

    def get_slice(self, name: str) -> _Slice:
        return _Slice(self, name)


def _entries(header: Any) -> dict[str, tuple[str, tuple[int, ...], int, int]]:
    """Return name -> (type code, shape, first byte, last byte). The package has checked that tensors follow one another without gaps, so
    their offsets follow from their order."""
    found = {}
    position = 0
    for name in header.offset_keys():
        view = header.get_slice(name)
        code, shape = view.get_dtype(), tuple(view.get_shape())
        end = position + numel_of(shape) * _dtype_of(code, name).itemsize
        found[name] = (code, shape, position, end)
        position = end
    return found


def _file_bytes(path: str, mapped: bool) -> np.ndarray:
    if not mapped:
        return np.fromfile(path, np.uint8)
    with open(path, "rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)


def load_file(filename: Any, device: Any = "cpu", *, backend: str = "mmap") -> dict[str, Tensor]:
    """Return all tensors of the safetensors file `filename` by name, on `device`. With the only `backend`, "mmap", they are private
    mappings of the file: changing one does not change the file.

    >>> save_file({"weight": flambeau.zeros(2)}, "model.safetensors")
    >>> load_file("model.safetensors")
    {'weight': tensor([0., 0.])}
    """
    with safe_open(filename, "pt", device, backend=backend) as file:
        return file.get_tensors()


def load(data: Any) -> dict[str, Tensor]:
    """Return all tensors of a safetensors file whose contents are `data` (bytes), by name.

    >>> load(save({"weight": flambeau.zeros(2)}))
    {'weight': tensor([0., 0.])}
    """
    parts = _require_package().deserialize(bytes(data))
    return {
        name: _tensor_over(np.frombuffer(part["data"], np.uint8), part["shape"], _dtype_of(part["dtype"], name))
        for name, part in parts
    }


# -- writing --------------------------------------------------------------------------------------------------------------


def _check(tensors: Any) -> None:
    if not isinstance(tensors, Mapping):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}")
        if not isinstance(name, str):
            raise ValueError(f"names of tensors must be strings, got {name!r}")
        if tensor.layout is not layouts.strided:
            raise ValueError(
                f"`{name}` is a sparse tensor, which the format cannot hold: save `.to_dense()` of it, if the file may be large"
            )
        if tensor.dtype.safetensors is None:
            raise ValueError(f"`{name}` has dtype {tensor.dtype}, which the format cannot hold")
        if not tensor.is_contiguous():
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. If it is part of another tensor"
                " that is saved too, save only the whole; otherwise call `.contiguous()` on it first."
            )
    shared = [names for names in shared_groups(tensors) if len(names) > 1]
    if shared:
        raise RuntimeError(
            f"Some tensors share memory, so the file would hold it twice and they would part on loading: {shared}. `save_model`"
            " keeps one of each."
        )


def _specifications(tensors: Mapping[str, Tensor], kept: list) -> dict[str, Any]:
    """Return the specification of each tensor for the package; `kept` holds the memory until it is written."""
    specification = _require_package().TensorSpec
    found = {}
    for name, tensor in tensors.items():
        if tensor.device.type == "meta":
            raise RuntimeError(f"`{name}` is on the meta device: it has no data to save")
        local = tensor.detach().to("cpu")
        kept.append(local)
        found[name] = specification(
            dtype=local.dtype.name,
            shape=list(local.shape),
            data_ptr=local.data_ptr() or 1,  # an empty tensor has no memory, and the package takes no null pointer
            data_len=local.numel() * local.dtype.itemsize,
        )
    return found


def save(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """Return the contents of a safetensors file with these `tensors` and a `metadata` dictionary of texts.

    >>> len(save({"weight": flambeau.zeros(2)}))
    80
    """
    _check(tensors)
    kept: list = []
    return bytes(_require_package().serialize(_specifications(tensors, kept), metadata=metadata))


def save_file(tensors: Mapping[str, Tensor], filename: Any, metadata: dict[str, str] | None = None) -> None:
    """Write `tensors`, by name, and a `metadata` dictionary of texts to the safetensors file `filename`, which appears only when it is
    complete.

    >>> save_file({"weight": flambeau.zeros(2, 3)}, "model.safetensors")
    """
    _check(tensors)
    kept: list = []
    parts = _specifications(tensors, kept)
    with written_path(filename) as temporary:
        _require_package().serialize_file(parts, temporary, metadata=metadata)


# -- modules --------------------------------------------------------------------------------------------------------------


def shared_groups(tensors: Mapping[str, Tensor]) -> list[list[str]]:
    """Return names in groups: the tensors of a group overlap in memory, tensors of different groups do not."""
    spans: dict[tuple[str, int], list[tuple[int, int, str]]] = {}
    groups = []
    for name, tensor in tensors.items():
        if tensor.device.type == "meta" or not tensor.numel():
            groups.append([name])
            continue
        base, size = tensor.untyped_storage().data_ptr(), tensor.dtype.itemsize
        first = tensor.data_ptr()
        last = first + size * (1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())))
        spans.setdefault((str(tensor.device), base), []).append((first, last, name))
    for areas in spans.values():
        end = -1
        for first, last, name in sorted(areas):
            if first >= end:
                groups.append([name])
            else:
                groups[-1].append(name)
            end = max(end, last)
    return groups


def duplicate_names(tensors: Mapping[str, Tensor], preferred: Iterable[str] = ()) -> dict[str, str]:
    """Return {name to omit: name kept in its stead} for tensors that share memory (tied weights)."""
    wanted = set(preferred)
    left_out = {}
    for names in shared_groups(tensors):
        if len(names) < 2:
            continue
        whole = sorted(
            n for n in names if tensors[n].numel() * tensors[n].dtype.itemsize == tensors[n].untyped_storage().nbytes()
        )
        if not whole:
            raise RuntimeError(
                f"None of {sorted(names)}, which share memory, covers the whole of it, so none can stand for the others. Save"
                " clones of them."
            )
        kept = next((n for n in whole if n in wanted), whole[0])
        left_out.update({n: kept for n in names if n != kept})
    return left_out


def save_model(
    model: Module, filename: Any, metadata: dict[str, str] | None = None, force_contiguous: bool = True
) -> None:
    """Write the state of `model` to the file `filename`, with `metadata`. Of tensors that share memory one is written, and the metadata
    name it for the others; `force_contiguous` copies tensors that are not contiguous instead of refusing them.

    >>> save_model(flambeau.nn.Linear(2, 2), "model.safetensors")
    """
    state = model.state_dict()
    notes = dict(metadata or {})
    for name, kept in duplicate_names(state).items():
        notes.setdefault(name, kept)
        del state[name]
    if force_contiguous:
        state = {name: tensor.contiguous() for name, tensor in state.items()}
    save_file(state, filename, notes or None)


def load_model(
    model: Module, filename: Any, strict: bool = True, device: Any = "cpu", *, backend: str = "mmap"
) -> tuple[set[str], list[str]]:
    """Load the file `filename` that `save_model` wrote into `model`, through `device` and with `backend` as in `load_file`. Returns the
    names that were missing and those that were not expected; with `strict` either is an error.

    >>> layer = flambeau.nn.Linear(2, 2)
    >>> save_model(layer, "model.safetensors")
    >>> load_model(layer, "model.safetensors")
    (set(), [])
    """
    state = load_file(filename, device, backend=backend)
    tied = duplicate_names(model.state_dict(), preferred=state)
    outcome = model.load_state_dict(state, strict=False)
    missing, unexpected = set(outcome.missing_keys), list(outcome.unexpected_keys)
    unexpected += [name for name in tied if name not in missing]
    missing -= set(tied)  # another name fills their memory
    if strict:
        refuse_mismatch(model, missing, unexpected)
    return missing, unexpected


def refuse_mismatch(model: Module, missing: Iterable[str], unexpected: Iterable[str]) -> None:
    message = f"Error(s) in loading state_dict for {type(model).__name__}:"
    for kind, names in (("Missing", sorted(missing)), ("Unexpected", sorted(unexpected))):
        if names:
            message += f"\n    {kind} key(s) in state_dict: " + ", ".join(f'"{n}"' for n in names)
    if "\n" in message:
        raise RuntimeError(message)
