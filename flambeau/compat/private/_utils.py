"""Names under which PyTorch pickles tensors: a plain pickle written by it is read through them."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from ... import cuda
from ...core import naming
from ...core.device import device as Device
from ...core.dtype import dtype, uint8
from ...core.storage import UntypedStorage
from ...core.typed_storage import TypedStorage
from ...ops import namespace
from ...serialization import rebuild
from ...serialization.rebuild import meta_tensor as _rebuild_meta_tensor_no_storage
from ...serialization.rebuild import parameter as _rebuild_parameter
from ...serialization.rebuild import parameter_with_state as _rebuild_parameter_with_state
from ...serialization.rebuild import wrapper_subclass as _rebuild_wrapper_subclass
from ...utils.data._utils.failure import Failure

__all__ = [
    "ExceptionWrapper",
    "_element_size", "_rebuild_meta_tensor_no_storage", "_rebuild_parameter", "_rebuild_parameter_with_state", "_rebuild_tensor",
    "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_wrapper_subclass",
]  # fmt: skip


def _element_size(dtype: dtype) -> int:
    """Return the number of bytes of one element of a dtype."""
    return dtype.itemsize


def _as_typed(storage: Any) -> Any:
    return TypedStorage(storage, uint8) if isinstance(storage, UntypedStorage) else storage


def _rebuild_tensor(storage: Any, *args: Any) -> Any:
    return rebuild.tensor(_as_typed(storage), *args)


def _rebuild_tensor_v2(storage: Any, *args: Any) -> Any:
    return rebuild.tensor_v2(_as_typed(storage), *args)


def _rebuild_tensor_v3(storage: Any, *args: Any) -> Any:
    return rebuild.tensor_v3(_as_typed(storage), *args)


class ExceptionWrapper:
    """An exception to be raised again in another thread or process, with the original traceback in its message."""

    def __init__(self, exc_info: Any = None, where: str = "in background"):
        problem = (sys.exc_info() if exc_info is None else exc_info)[1]
        if problem is None:
            raise ValueError("ExceptionWrapper: no exception is being handled, and none was given")
        self._failure = Failure.of(problem, where)
        self.exc_type, self.exc_msg, self.where = type(problem), self._failure.text, where

    def reraise(self) -> NoReturn:
        """Re-raise the exception with its original type."""
        self._failure.reraise()


def _flatten_dense_tensors(tensors: Any) -> Any:
    """Return tensors of one dtype as one vector, one after the other."""
    return namespace("torch")["cat"]([t.contiguous().view(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Any, tensors: Any) -> tuple:
    """Split a vector into tensors with the shapes of these; they share its memory."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple(part.view(t.shape) for part, t in zip(parts, tensors))


def _take_tensors(tensors: Any, size_limit: int) -> Any:
    """Yield groups of tensors of one type, in order of the type's first tensor, each of at most `size_limit` bytes or of one tensor."""
    open_groups: dict[str, list[Any]] = {}
    for t in tensors:
        group = open_groups.setdefault(t.type(), [])
        if group and sum(x.numel() * x.element_size() for x in (*group, t)) > size_limit:
            yield group
            group = open_groups[t.type()] = []
        group.append(t)
    yield from filter(None, open_groups.values())


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Return the index of a device; that of the current one if none is given and `optional`, -1 for the CPU if that is allowed."""
    where = Device(device) if isinstance(device, str) else device
    if isinstance(where, int):
        return where
    if isinstance(where, Device) and where.type == "cpu":
        if not allow_cpu:
            raise ValueError(f"Expected a non cpu device, but got: {where}")
        return -1
    if where is not None and where.index is not None:
        return where.index
    if not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{where}")
    return cuda.current_device()


def _get_device_module(device_type: str) -> Any:
    """Return the module of a type of device: `flambeau.cpu` for "cpu"."""
    found = getattr(sys.modules[naming.PACKAGE], device_type, None)
    if found is None:
        raise RuntimeError(
            f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'."
        )
    return found


def _get_available_device_type() -> str | None:
    """Return the type of the available accelerator; None without one."""
    return "cuda" if cuda.is_available() else None
