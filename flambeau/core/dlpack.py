"""DLPack, the C structure array libraries exchange memory with, read and written through ctypes.

An exported capsule keeps the storage alive until its consumer calls the deleter; an imported one is released when the storage over it is
freed."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

from . import dtype as dt
from .dtype import dtype
from .uninterrupted import at_once, uninterrupted

CPU, CUDA, CUDA_HOST = 1, 2, 3  # numbers of devices
_BY_CODE = {(d.dlpack, d.itemsize * 8): d for d in dt.ALL_DTYPES}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_api = ctypes.pythonapi
_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR)(
    ("PyCapsule_New", _api)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_is_valid_raw = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_pointer_raw = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))

# Capsule names must outlive their capsules; these do, with the module.
_NAMES = {False: (b"dltensor", b"used_dltensor"), True: (b"dltensor_versioned", b"used_dltensor_versioned")}
_exported: dict[int, tuple[Any, ...]] = {}  # address of the structure -> everything it points to


_forget = _DELETER(_exported.pop)  # called when a consumer is done: in C all the way, so that no Ctrl-C is lost in it


@_DESTRUCTOR
def _drop_unused(capsule: int) -> None:
    """Release the structure of a capsule that was not consumed. (The capsule is being freed: no Python reference to it may be made.)"""
    for name, _ in _NAMES.values():
        if _is_valid_raw(capsule, name):
            _exported.pop(_pointer_raw(capsule, name), None)


def export(
    ptr: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    d: dtype,
    owner: Any,
    versioned: bool = False,
    place: tuple[int, int] = (CPU, 0),
) -> Any:
    """Return a capsule over memory that `owner` keeps alive; `place` is the device and its number."""
    if d in dt.FLOAT8:
        raise BufferError(f"{d} tensors cannot be handed over through DLPack")
    rank = len(shape)
    sizes, steps = (ctypes.c_int64 * max(rank, 1))(*shape), (ctypes.c_int64 * max(rank, 1))(*strides)
    managed: Any = _Versioned() if versioned else _Managed()
    t = managed.tensor
    t.data, t.ndim = ptr or None, rank
    t.device_type, t.device_id = place
    t.code = d.dlpack
    t.bits, t.lanes, t.byte_offset = d.itemsize * 8, 1, 0
    t.shape = ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64))
    t.strides = ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = ctypes.cast(_forget, ctypes.c_void_p)
    if versioned:
        managed.major, managed.minor = 1, 0
    address = ctypes.addressof(managed)
    _exported[address] = (managed, sizes, steps, owner)
    return _new_capsule(address, _NAMES[versioned][0], _drop_unused)


class Imported(NamedTuple):
    ptr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: dtype
    owner: Any
    place: tuple[int, int]


class _ForeignMemory:
    """Holder of a foreign structure, whose deleter runs when this object is freed."""

    def __init__(self, address: int, deleter: int | None):
        self.address, self.deleter = address, _deleter_call(deleter) if deleter else None

    @uninterrupted
    def __del__(self) -> None:
        try:
            if self.deleter is not None:
                self.deleter[self.address]
        except AttributeError:  # construction was interrupted
            pass


@functools.cache
def _deleter_call(deleter: int) -> Any:
    return at_once(_DELETER(deleter))


def load(capsule: Any) -> Imported:
    """Consume a capsule: return the address of its memory and its contents."""
    versioned = bool(_is_valid(capsule, _NAMES[True][0]))
    name, used = _NAMES[versioned]
    if not _is_valid(capsule, name):
        raise RuntimeError(
            "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so you"
            " might have already constructed a tensor from it once."
        )
    address = _pointer(capsule, name)
    managed: Any = (_Versioned if versioned else _Managed).from_address(address)
    t = managed.tensor
    if t.device_type not in (CPU, CUDA, CUDA_HOST):
        raise BufferError(
            f"from_dlpack: only memory of the CPU and of CUDA can be shared, got DLPack device type {t.device_type}"
        )
    place = t.device_type, t.device_id
    d = _BY_CODE.get((t.code, t.bits))
    if d is None or t.lanes != 1:
        raise BufferError(f"from_dlpack: unsupported element type (code {t.code}, {t.bits} bits, {t.lanes} lanes)")
    shape = tuple(t.shape[i] for i in range(t.ndim))
    strides = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else None
    if strides is None:
        steps, step = [], 1
        for n in reversed(shape):
            steps.append(step)
            step *= n
        strides = tuple(reversed(steps))
    ptr = (t.data or 0) + t.byte_offset
    lease = _ForeignMemory(address, managed.deleter)
    _rename(capsule, used)
    return Imported(ptr, shape, strides, d, lease, place)
