"""The functions a checkpoint calls to put tensors together. They check everything: a file may be hostile."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..core import layout as layouts
from ..core.device import device
from ..core.dtype import dtype
from ..core.object_state import set_object_state
from ..core.size import make_size
from ..core.sparse import new_csr
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor, empty_strided, is_contiguous_layout, new_tensor, numel_of
from ..core.typed_storage import TypedStorage
from ..nn.parameter import Parameter
from ..ops.sparse.coo import check_invariants_of, sparse_coo_tensor
from ..ops.sparse.csr import check_compressed


class _Later(threading.local):
    """The older format keeps the numbers behind the objects: what looks at numbers waits there until they are read."""

    steps: list[Callable[[], Any]] | None = None


_later = _Later()


@contextlib.contextmanager
def numbers_come_later() -> Iterator[None]:
    """In this block tensors are built over memory that is filled before its end."""
    before, _later.steps = _later.steps, []
    try:
        yield
        for step in _later.steps:
            step()
    finally:
        _later.steps = before


def _with_numbers(step: Callable[[], Any]) -> None:
    if _later.steps is None:
        step()
    else:
        _later.steps.append(step)


def _integers(values: Any, what: str) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)) or not all(type(v) is int for v in values):
        raise RuntimeError(f"corrupt checkpoint: {what} should be a tuple of integers, got {values!r}")
    return tuple(values)


def _build(storage: UntypedStorage, kind: dtype, offset: Any, size: Any, stride: Any) -> Tensor:
    shape, strides = _integers(size, "a tensor's size"), _integers(stride, "a tensor's stride")
    if type(offset) is not int or offset < 0 or len(shape) != len(strides) or min((*shape, *strides), default=0) < 0:
        raise RuntimeError(
            f"corrupt checkpoint: size {shape}, stride {strides}, offset {offset} do not describe a tensor"
        )
    last = offset + (1 + sum((n - 1) * s for n, s in zip(shape, strides)) if numel_of(shape) else 0)
    if last * kind.itemsize > storage.size_bytes:
        raise RuntimeError(
            f"corrupt checkpoint: a tensor of size {shape} and stride {strides} needs {last * kind.itemsize} bytes, its storage has"
            f" {storage.size_bytes}"
        )
    return new_tensor(
        storage, make_size(shape), strides, offset, kind, storage.device, is_contiguous_layout(shape, strides)
    )


def _loaded(storage: Any) -> TypedStorage:
    if not isinstance(storage, TypedStorage):
        raise RuntimeError(f"corrupt checkpoint: expected a storage, got {type(storage).__name__}")
    return storage


def tensor(storage: Any, storage_offset: Any, size: Any, stride: Any) -> Tensor:
    held = _loaded(storage)
    return _build(held.untyped(), held.dtype, storage_offset, size, stride)


def tensor_v2(
    storage: Any,
    storage_offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    backward_hooks: Any,
    metadata: Any = None,
) -> Tensor:
    t = _turned(tensor(storage, storage_offset, size, stride), metadata)
    return t.requires_grad_(bool(requires_grad))


def _turned(t: Tensor, metadata: Any) -> Tensor:
    """PyTorch marks a conjugate or negative instead of computing it, and its files keep the mark."""
    marks = metadata if isinstance(metadata, dict) else {}
    if not marks.get("conj") and not marks.get("neg"):
        return t
    result = empty_strided(tuple(t.shape), tuple(t._strides), t.dtype, t.device)

    def turn() -> None:
        turned = t.conj() if marks.get("conj") else t
        result.detach().copy_(-turned if marks.get("neg") else turned)

    _with_numbers(turn)
    return result


def tensor_v3(
    storage: Any,
    storage_offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    backward_hooks: Any,
    kind: Any,
    metadata: Any = None,
) -> Tensor:
    if not isinstance(kind, dtype):
        raise RuntimeError(f"corrupt checkpoint: expected a dtype, got {kind!r}")
    t = _turned(_build(_loaded(storage).untyped(), kind, storage_offset, size, stride), metadata)
    return t.requires_grad_(bool(requires_grad))


def parameter(data: Any, requires_grad: Any, backward_hooks: Any) -> Parameter:
    if not isinstance(data, Tensor):
        raise RuntimeError(f"corrupt checkpoint: a parameter should hold a tensor, got {type(data).__name__}")
    return Parameter(data.detach(), bool(requires_grad))


def parameter_with_state(data: Any, requires_grad: Any, backward_hooks: Any, state: Any) -> Parameter:
    result = parameter(data, requires_grad, backward_hooks)
    return set_object_state(result, state)  # type: ignore[return-value]


def from_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
    """A tensor subclass: rebuild the tensor, then give it its class and attributes."""
    if (
        function not in (tensor_v2, tensor_v3, tensor, parameter, meta_tensor, sparse_tensor)
        or not isinstance(kind, type)
        or not issubclass(kind, Tensor)
    ):
        raise RuntimeError(f"corrupt checkpoint: cannot rebuild a tensor with {function!r} as {kind!r}")
    t = function(*args)
    if type(t) is not kind:
        t = Tensor._make_subclass(kind, t.detach(), t.requires_grad)
    return set_object_state(t, state)


def meta_tensor(kind: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
    t = empty_strided(_integers(size, "a tensor's size"), _integers(stride, "a tensor's stride"), kind, device("meta"))
    if requires_grad:
        t.requires_grad = True
    return t


def sparse_tensor(kind: Any, data: Any) -> Any:
    """A tensor of layout `kind` from its parts and size."""
    count = 2 if kind is layouts.sparse_coo else 3
    compressed = kind in (layouts.sparse_csr, layouts.sparse_csc)
    if not (compressed or count == 2) or not isinstance(data, tuple) or len(data) not in (count + 1, count + 2):
        raise RuntimeError(f"corrupt checkpoint: cannot rebuild a sparse tensor of layout {kind!r}")
    parts: Any = data[:count]
    shape = make_size(_integers(data[count], "a tensor's size"))
    if not all(type(p) is Tensor for p in parts):
        raise RuntimeError("corrupt checkpoint: the parts of a sparse tensor should be tensors")
    if compressed:
        compressed_part, plain, values = parts
        _with_numbers(lambda: check_compressed(compressed_part, plain, values, shape, kind))
        return new_csr(compressed_part, plain, values, shape, kind)
    t: Any = sparse_coo_tensor(*parts, shape, check_invariants=False)
    t._is_coalesced = len(data) == 4 and bool(data[3])
    _with_numbers(lambda: check_invariants_of(t))
    return t


def layout(name: str) -> Any:
    known = {repr(v): v for v in vars(layouts).values() if isinstance(v, layouts.layout)}
    if name not in known:
        raise RuntimeError(f"corrupt checkpoint: unknown layout {name!r}")
    return known[name]


def encode(text: Any, encoding: str = "latin1") -> bytes:
    """How pickle protocol 2 writes bytes."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise RuntimeError(f"corrupt checkpoint: cannot encode {type(text).__name__} as {encoding!r}")
    return text.encode("latin1")
