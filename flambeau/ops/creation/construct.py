"""Tensors from Python data and from the memory of other libraries: tensor, asarray, from_numpy, frombuffer, DLPack."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...core import dlpack, nested
from ...core.backend import backend_of
from ...core.device import cpu, default_device
from ...core.device import device as Device
from ...core.dtype import FROM_NUMPY, dtype, int64
from ...core.layout import dense_strides, preserve_format
from ...core.promotion import get_default_dtype
from ...core.size import make_size
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, contiguous_strides, copy_of_array, from_array, is_contiguous_layout
from ...core.tensor import empty as raw_empty
from ...core.tensor import empty_strided as raw_empty_strided
from ...core.tensor import new_tensor as header
from ...core.typed_storage import TypedStorage
from ...core.typenames import type_name
from ..machinery.arguments import Options, as_device, read_options
from ..machinery.declare import composite
from ..machinery.quirks import Quirks
from .convert import convert, on_host
from .filled import finish


def elements_of(value: Any) -> np.ndarray | None:
    """Return the elements of a tensor inside a list, None for anything else: the callback of `nested.infer`."""
    return on_host(value)._array() if isinstance(value, Tensor) else None


def from_data(data: Any, d: dtype | None, where: Device) -> Tensor:
    """Return a new tensor with the values of nested Python data."""
    shape, d, values = nested.infer(data, d, default_dtype=get_default_dtype(), tensor_to_numpy=elements_of)
    values = values.reshape(shape)
    if isinstance(data, np.ndarray) and not data.flags.c_contiguous:  # an array's copy keeps its dimension order
        strides = dense_strides(shape, tuple([s // data.itemsize for s in data.strides]))
        made = raw_empty_strided(make_size(shape), strides, d, cpu)
        made._array()[...] = values
    else:
        made = copy_of_array(values, d)
    return made if made.device is where else convert(made, d, where, preserve_format)


_COPY_WARNING = (
    "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or"
    " sourceTensor.detach().clone().requires_grad_(True), rather than {}(sourceTensor)."
)


def _copied(name: str, data: Tensor, options: Options, d: dtype | None, where: Device) -> Tensor:
    warnings.warn(_COPY_WARNING.format(name), UserWarning, stacklevel=4)
    copy = data.detach().to(dtype=options.dtype or d or data.dtype, device=where, copy=True)
    return finish(copy, options.requires_grad)


@composite(kind="creation", method=False, data="data", quirks=Quirks(unasked=True))
def tensor(data: Any, **options: Any) -> Tensor:
    """A tensor with a copy of `data`: a number, nested lists, a NumPy array.

    >>> tensor([[1, 2], [3, 4.5]])
    tensor([[1.0000, 2.0000],
            [3.0000, 4.5000]])
    """
    chosen = read_options("tensor", options)
    if isinstance(data, Tensor):
        return _copied("torch.tensor", data, chosen, None, chosen.device or data.device)
    if isinstance(data, _STORAGES):
        return finish(_from_storage(data, chosen.dtype, chosen.device), chosen.requires_grad)
    return finish(from_data(data, chosen.dtype, chosen.device or default_device()), chosen.requires_grad)


_STORAGES = (TypedStorage, UntypedStorage)


def _over_storage(data: TypedStorage | UntypedStorage, d: dtype | None) -> Tensor:
    """Return a tensor over a storage's memory; untyped bytes are read as the requested dtype, else as int64."""
    if isinstance(data, TypedStorage):
        if d is not None and data.dtype is not d:
            raise RuntimeError(
                f"Expected a Storage of type {d.scalar_type} or an UntypedStorage, but got {data.dtype.scalar_type}"
            )
        d = data.dtype
    memory = data.untyped()
    d = d or (int64 if memory.size_bytes else get_default_dtype())
    return header(memory, make_size((memory.size_bytes // d.itemsize,)), (1,), 0, d, memory.device, True)


def _from_storage(data: TypedStorage | UntypedStorage, d: dtype | None, where: Device | None) -> Tensor:
    """Return a copy of a storage's elements."""
    return _over_storage(data, d).to(where, copy=True)


@composite(kind="creation", function=False, data="data")
def new_tensor(self: Tensor, data: Any, **options: Any) -> Tensor:
    """A tensor of `data`, by default with this tensor's dtype and device."""
    chosen = read_options("new_tensor", options)
    if isinstance(data, Tensor):
        return _copied("tensor.new_tensor", data, chosen, self.dtype, chosen.device or self.device)
    make = _from_storage if isinstance(data, _STORAGES) else from_data
    return finish(make(data, chosen.dtype or self.dtype, chosen.device or self.device), chosen.requires_grad)


@composite(kind="creation", method=False, data="data", quirks=Quirks(unasked=True))
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor: shares memory with a tensor, storage or NumPy array if dtype and device allow."""
    chosen = read_options("as_tensor", {"dtype": dtype, "device": device})
    if isinstance(data, Tensor):
        return data.to(device=chosen.device or data.device, dtype=chosen.dtype or data.dtype)
    if hasattr(data, "__cuda_array_interface__"):
        shared = _from_cuda_interface(data)
        return shared.to(device=chosen.device or shared.device, dtype=chosen.dtype or shared.dtype)
    if isinstance(data, _STORAGES):
        shared = _over_storage(data, chosen.dtype)
        return shared if chosen.device is None else shared.to(chosen.device)
    if isinstance(data, np.ndarray):
        shared = from_numpy(data)
        if dtype is None and device is None and default_device() is shared.device:
            return shared
        return shared.to(device=chosen.device or default_device(), dtype=chosen.dtype or shared.dtype)
    return from_data(data, chosen.dtype, chosen.device or default_device())


def _shared(obj: Any, d: dtype | None) -> Tensor | None:
    """Return a tensor over the memory of `obj`, or None if it has none to share."""
    if isinstance(obj, Tensor):
        return obj
    if isinstance(obj, np.ndarray):
        return from_numpy(obj)
    if isinstance(obj, _STORAGES):
        return _over_storage(obj, d)
    if isinstance(obj, np.generic):
        return from_array(np.array(obj))
    if hasattr(obj, "__dlpack__") or type(obj).__name__ == "PyCapsule":
        return from_dlpack(obj)
    try:
        memoryview(obj)
    except TypeError:
        return None
    return _from_buffer("asarray", obj, d or get_default_dtype(), -1, 0)


@composite(kind="creation", method=False, data="obj", quirks=Quirks(unasked=True))
def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool | None = None
) -> Tensor:
    """`obj` as a tensor. copy=True always copies, False never (or raises), None only if it must."""
    chosen = read_options("asarray", {"dtype": dtype, "device": device})
    if copy is False and isinstance(obj, np.generic):
        raise RuntimeError("can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray.")
    if copy is False and isinstance(obj, _STORAGES):  # PyTorch's, though it would not copy
        raise ValueError(f"can't alias arbitrary sequence into a tensor: {type_name(obj)}")
    source = _shared(obj, chosen.dtype)
    if source is None:
        if copy is False:
            raise ValueError(f"can't alias arbitrary sequence into a tensor: {type_name(obj)}")
        return finish(from_data(obj, chosen.dtype, chosen.device or default_device()), bool(requires_grad))
    if requires_grad is None:
        requires_grad = source.requires_grad
        if requires_grad:
            warnings.warn(
                "torch.asarray: unspecified requires_grad now defaults to obj.requires_grad instead of False. Pass"
                " requires_grad=False explicitly to get the old behavior and silence this warning.",
                UserWarning,
                stacklevel=3,
            )
    d, where = chosen.dtype or source.dtype, chosen.device or source.device
    if copy is False and d is not source.dtype:
        raise ValueError(f"can't alias tensor with dtype '{source.dtype}' into dtype '{d}'.")
    if copy is False and where is not source.device:
        raise ValueError(f"can't alias tensor from device '{source.device}' to '{where}'.")
    result = source.to(device=where, dtype=d, copy=bool(copy))
    if requires_grad and not result.requires_grad:
        result = finish(result.detach(), True)
    elif not requires_grad and result.requires_grad:
        result = result.detach()
    return result


# -- shared memory -------------------------------------------------------------------------------------------------


@composite(method=False, quirks=Quirks(unasked=True))
def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor that shares memory with a NumPy array."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type_name(ndarray)})")
    d = nested.check_ndarray(ndarray)
    if not ndarray.flags.writeable:
        warnings.warn(
            "The given NumPy array is not writable, and PyTorch does not support non-writable tensors. This means"
            " writing to this tensor will result in undefined behavior. You may want to copy the array to protect its"
            " data or make it writable before converting it to a tensor.",
            UserWarning,
            stacklevel=3,
        )
    return from_array(ndarray, d)


@composite(kind="creation", method=False)
def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A one-dimensional tensor over the bytes of an object with the buffer protocol."""
    chosen = read_options("frombuffer", {"dtype": dtype})
    if chosen.dtype is None:
        raise TypeError("frombuffer(): argument 'dtype' must be torch.dtype, not NoneType")
    return finish(_from_buffer("frombuffer", buffer, chosen.dtype, count, offset), requires_grad)


def _from_buffer(name: str, buffer: Any, d: dtype, count: int, offset: int) -> Tensor:
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ValueError("object does not implement Python buffer protocol.") from None
    if not view.c_contiguous:
        raise RuntimeError("could not retrieve buffer from object: its memory is not contiguous")
    size, total = d.itemsize, view.nbytes
    if total == 0 and name == "asarray":
        return raw_empty((0,), d, cpu)
    if total <= 0 or count == 0:
        raise ValueError(f"both buffer length ({total}) and count ({count}) must not be 0")
    if not 0 <= offset < total:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({total} bytes) minus 1"
        )
    if count > 0 and offset + count * size > total:
        raise ValueError(
            f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must not be greater than"
            f" actual buffer length ({total} bytes)"
        )
    if count < 0:
        if (total - offset) % size:
            raise ValueError(
                f"buffer length ({total - offset} bytes) after offset ({offset} bytes) must be a multiple of element"
                f" size ({size})"
            )
        count = (total - offset) // size
    if view.readonly:
        warnings.warn(
            "The given buffer is not writable, and PyTorch does not support non-writable tensors. This means you can"
            " write to the underlying (supposedly non-writable) buffer using the tensor. You may want to copy the"
            " buffer to protect its data or make it writable before converting it to a tensor.",
            UserWarning,
            stacklevel=4,
        )
    raw = np.frombuffer(view, np.uint8)
    storage = UntypedStorage.borrow(raw.ctypes.data + offset, count * size, raw)
    return header(storage, make_size((count,)), (1,), 0, d, cpu, True)


@composite(method=False)
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of another library's array, on the CPU or a GPU."""
    if device is not None and not isinstance(device, (str, Device)):
        raise AssertionError(f"from_dlpack: unsupported device type: {type(device)}")
    if isinstance(ext_tensor, Tensor):
        result = ext_tensor.detach()
        return result.clone() if copy else result
    capsule = ext_tensor
    if hasattr(ext_tensor, "__dlpack__"):
        on_gpu = hasattr(ext_tensor, "__dlpack_device__") and ext_tensor.__dlpack_device__()[0] == dlpack.CUDA
        # the producer makes that stream wait for its work; 1 is the default one
        options = {"stream": backend_of(Device("cuda")).current_stream(Device("cuda", 0)) or 1} if on_gpu else {}
        try:
            capsule = ext_tensor.__dlpack__(max_version=(1, 0), **options)
        except TypeError:  # a producer older than DLPack 1.0
            capsule = ext_tensor.__dlpack__(**options)
    ptr, shape, strides, d, owner, place = dlpack.load(capsule)
    where = as_device(Device("cuda", place[1])) if place[0] == dlpack.CUDA else cpu
    if device is not None and as_device(device) is not where:
        raise BufferError(f"from_dlpack: memory of {where} cannot be had on device {device}")
    if any(s < 0 for s in strides):
        raise ValueError(f"from_dlpack: tensors with negative strides are not supported, got strides {list(strides)}")
    extent = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides))
    storage = UntypedStorage.borrow(ptr, extent * d.itemsize, owner, where)
    result = header(storage, make_size(shape), strides, 0, d, where, is_contiguous_layout(shape, strides))
    return result.clone() if copy else result


def _from_cuda_interface(obj: Any) -> Tensor:
    """Return a tensor over GPU memory of an object with `__cuda_array_interface__`."""
    facts = obj.__cuda_array_interface__
    d = FROM_NUMPY[np.dtype(facts["typestr"])]
    shape, steps = tuple(facts["shape"]), facts.get("strides")
    strides = contiguous_strides(shape) if steps is None else tuple(s // d.itemsize for s in steps)
    if any(s < 0 for s in strides):
        raise ValueError(f"tensors with negative strides are not supported, got strides {list(strides)}")
    where = as_device("cuda")
    extent = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides))
    storage = UntypedStorage.borrow(facts["data"][0], extent * d.itemsize, obj, where)
    return header(storage, make_size(shape), strides, 0, d, where, is_contiguous_layout(shape, strides))


def _as_aten(face: Any, detaches: bool) -> None:
    """Declare how a graph records Python data: as a copied constant; data that contains a tensor becomes calls on that."""

    @face.op.as_aten
    def _(recorder: Any, *args: Any, **options: Any) -> Tensor:
        if not detaches and isinstance(face.op.bind(args, options)[face.op.data], Tensor):
            return recorder.again(face, args, options)
        made = recorder.aten.lift_fresh_copy.default(recorder.unseen(lambda: face(*args, **options)))
        return recorder.aten.detach_.default(made) if detaches else made


for _face, _detaches in ((tensor, True), (new_tensor, True), (as_tensor, False), (asarray, False)):
    _as_aten(_face, _detaches)
