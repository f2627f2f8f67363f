"""Functions that a checkpoint calls to rebuild tensors. They check everything: a file may be hostile."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..core import dtype as dt
from ..core import layout as layouts
from ..core.device import device
from ..core.dtype import dtype
from ..core.held import HeldTensor
from ..core.jagged import NestedTensor, new_jagged
from ..core.object_state import set_object_state
from ..core.quantized import (
    CODE_DTYPES,
    PER_BYTE,
    QuantizedTensor,
    Quantizer,
    from_bytes,
    per_channel_affine,
    per_channel_float,
    per_tensor_affine,
    qscheme,
    wrap,
)
from ..core.sharded import SpreadTensor
from ..core.size import Size, make_size
from ..core.sparse import SparseTensor, new_csr
from ..core.storage import UntypedStorage
from ..core.strided_nested import new_strided_nested, packed_places
from ..core.tensor import Tensor, empty, is_contiguous_layout, new_tensor
from ..core.typed_storage import TypedStorage
from ..nn.parameter import Parameter, UninitializedTensorMixin
from ..ops.kinds.jagged_rows import check_offsets
from ..ops.kinds.strided_rows import from_parts
from ..ops.sparse.compressed import check_compressed
from ..ops.sparse.coo import check_invariants_of, sparse_coo_tensor


class _Loading(threading.local):
    """State of the file that this thread is reading. The older format stores the data after the objects: steps that read data wait in
    `steps` until then. `turned` holds storages with the conjugate or negative of another storage's data."""

    steps: list[Callable[[], Any]] | None = None
    turned: dict[tuple, tuple[UntypedStorage, UntypedStorage]] | None = None


_loading = _Loading()


@contextlib.contextmanager
def one_file(numbers_come_later: bool) -> Iterator[None]:
    """Context manager for building the tensors of one file, over memory that is filled at the latest at its end."""
    before = _loading.steps, _loading.turned
    _loading.steps, _loading.turned = [] if numbers_come_later else None, {}
    try:
        yield
        for step in _loading.steps or ():
            step()
    finally:
        _loading.steps, _loading.turned = before


def _run_or_defer(step: Callable[[], Any]) -> None:
    if _loading.steps is None:
        step()
    else:
        _loading.steps.append(step)


_MAX_COUNT = 1 << 63  # kernels count bytes in 64 bits with a sign


def shown(value: Any, nested: bool = True) -> str:
    """Return a short text about a value of the file, for errors. Its repr might be endless: a short file can describe a huge list."""
    if value is None or type(value) in (bool, float):
        return repr(value)
    if type(value) is int:
        return repr(value) if value.bit_length() < 256 else f"<int of {value.bit_length()} bits>"
    if type(value) in (str, bytes):
        return repr(value[:80]) + ("..." if len(value) > 80 else "")
    if type(value) in (tuple, list, Size) and nested:
        items = [shown(item, False) for item in value[:8]] + ["..."] * (len(value) > 8)
        return f"({', '.join(items)})"
    return f"<{type(value).__name__}>"


def _integers(values: Any, what: str) -> tuple[int, ...]:
    if type(values) not in (tuple, list, Size) or not all(type(v) is int for v in values):
        raise RuntimeError(f"corrupt checkpoint: {what} should be a tuple of integers, got {shown(values)}")
    return tuple(values)


def _checked_header(kind: Any, offset: Any, size: Any, stride: Any) -> tuple[Size, tuple[int, ...], int]:
    """Return size, strides, and the number of bytes a storage must have so that every element is inside it. Python's integers do not
    overflow; accepted values fit the 64 bits of the kernels."""
    if not isinstance(kind, dtype):
        raise RuntimeError(f"corrupt checkpoint: expected a dtype, got {shown(kind)}")
    if kind.kind == "q":
        raise RuntimeError(f"corrupt checkpoint: a tensor of type {kind.name} without a scale")
    shape, strides = _integers(size, "a tensor's size"), _integers(stride, "a tensor's stride")
    if type(offset) is not int or offset < 0 or len(shape) != len(strides) or min((*shape, *strides), default=0) < 0:
        raise RuntimeError(
            f"corrupt checkpoint: size {shown(shape)}, stride {shown(strides)}, offset {shown(offset)} do not describe a tensor"
        )
    most = math.prod([n or 1 for n in shape])
    if max((most, offset, *strides)) * kind.itemsize >= _MAX_COUNT:
        raise RuntimeError(
            f"corrupt checkpoint: a tensor of size {shown(shape)} and stride {shown(strides)} has more elements than can be counted"
        )
    last = offset + (1 + sum([(n - 1) * s for n, s in zip(shape, strides)]) if 0 not in shape else 0)
    if last * kind.itemsize >= _MAX_COUNT:
        raise RuntimeError(
            f"corrupt checkpoint: a tensor of size {shown(shape)} and stride {shown(strides)} ends beyond any memory"
        )
    return make_size(shape), strides, last * kind.itemsize


def _build(storage: UntypedStorage, kind: Any, offset: Any, size: Any, stride: Any) -> Tensor:
    shape, strides, needed = _checked_header(kind, offset, size, stride)
    if needed > storage.size_bytes:
        raise RuntimeError(
            f"corrupt checkpoint: a tensor of size {shown(shape)} and stride {shown(strides)} needs {needed} bytes, its storage has"
            f" {storage.size_bytes}"
        )
    return new_tensor(storage, shape, strides, offset, kind, storage.device, is_contiguous_layout(shape, strides))


def _require_storage(storage: Any) -> TypedStorage:
    if not isinstance(storage, TypedStorage):
        raise RuntimeError(f"corrupt checkpoint: expected a storage, got {type(storage).__name__}")
    return storage


def tensor(storage: Any, storage_offset: Any, size: Any, stride: Any) -> Tensor:
    held = _require_storage(storage)
    return _build(held.untyped(), held.dtype, storage_offset, size, stride)


def tensor_v2(
    storage: Any, storage_offset: Any, size: Any, stride: Any, requires_grad: Any, backward_hooks: Any,
    metadata: Any = None,
) -> Tensor:  # fmt: skip
    held = _require_storage(storage)
    t = _build(_resolve_marks(held.untyped(), held.dtype, metadata), held.dtype, storage_offset, size, stride)
    return t.requires_grad_(bool(requires_grad))


def tensor_v3(
    storage: Any, storage_offset: Any, size: Any, stride: Any, requires_grad: Any, backward_hooks: Any, kind: Any,
    metadata: Any = None,
) -> Tensor:  # fmt: skip
    if not isinstance(kind, dtype):
        raise RuntimeError(f"corrupt checkpoint: expected a dtype, got {shown(kind)}")
    t = _build(_resolve_marks(_require_storage(storage).untyped(), kind, metadata), kind, storage_offset, size, stride)
    return t.requires_grad_(bool(requires_grad))


def _resolve_marks(storage: UntypedStorage, kind: dtype, metadata: Any) -> UntypedStorage:
    """Return the storage, or one with the conjugate or negative computed if the file marks it so, as PyTorch does instead of computing;
    tensors of the file with the same mark share it."""
    marks = metadata if isinstance(metadata, dict) else {}
    conj, neg = bool(marks.get("conj")), bool(marks.get("neg"))
    if not (conj or neg) or storage.device.type == "meta":
        return storage
    known = _loading.turned if _loading.turned is not None else {}
    key = id(storage), kind, conj, neg
    if key not in known:
        count = storage.size_bytes // kind.itemsize
        fresh = UntypedStorage(storage.size_bytes)
        source, target = (new_tensor(s, make_size((count,)), (1,), 0, kind, s.device, True) for s in (storage, fresh))

        def turn() -> None:
            turned = source.conj() if conj else source
            target.copy_(-turned if neg else turned)

        _run_or_defer(turn)
        known[key] = storage, fresh  # the first is kept so that its id stays taken
    return known[key][1]


def parameter(data: Any, requires_grad: Any, backward_hooks: Any) -> Parameter:
    if not isinstance(data, Tensor) or isinstance(data, UninitializedTensorMixin):
        raise RuntimeError(f"corrupt checkpoint: a parameter should hold a tensor, got {type(data).__name__}")
    return Parameter(data.detach(), bool(requires_grad))


def parameter_with_state(data: Any, requires_grad: Any, backward_hooks: Any, state: Any) -> Parameter:
    result = parameter(data, requires_grad, backward_hooks)
    return set_object_state(result, state)


def wrapper_subclass(kind: Any, *about: Any) -> Any:
    """Rebuild a tensor subclass that wraps other tensors, which are in its state."""
    if not isinstance(kind, type) or not issubclass(kind, SpreadTensor) or not hasattr(kind, "__setstate__"):
        raise RuntimeError(f"corrupt checkpoint: cannot rebuild a tensor that is made of others as {shown(kind)}")
    return kind.__new__(kind)


def from_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
    """Rebuild a tensor subclass: the tensor first, then its class and attributes."""
    known = (tensor_v2, tensor_v3, tensor, parameter, meta_tensor, sparse_tensor, quantized_tensor, wrapper_subclass,
             jagged_tensor)  # fmt: skip
    if not any(function is f for f in known) or not isinstance(kind, type) or not issubclass(kind, Tensor):
        raise RuntimeError(f"corrupt checkpoint: cannot rebuild a tensor with {shown(function)} as {shown(kind)}")
    if type(args) is not tuple:
        raise RuntimeError(f"corrupt checkpoint: a tensor is rebuilt from a tuple, got {shown(args)}")
    t = function(*args)
    if type(t) is not kind:
        if isinstance(t, HeldTensor) or issubclass(kind, HeldTensor):
            raise RuntimeError(f"corrupt checkpoint: a {type(t).__name__} cannot become a {kind.__name__}")
        t = Tensor._make_subclass(kind, t.detach(), t.requires_grad)
    return set_object_state(t, own_attributes(kind, state))


def own_attributes(kind: Any, state: Any) -> Any:
    """Return a file's attributes without those in which PyTorch's class stores the parts it is rebuilt from."""
    if kind is not NestedTensor or type(state) is not dict:
        return state
    return {name: value for name, value in state.items() if name not in _JAGGED_PARTS}


_JAGGED_PARTS = ("_values", "_offsets", "_lengths", "_ragged_idx", "_metadata_cache")


def set_state(t: Tensor, state: Any) -> None:
    """Set the state that PyTorch 0.x stored for tensors: (storage, offset, size, stride), (data, ..., requires_grad, ...) or
    (requires_grad, ...). Anything else is attributes."""
    if not isinstance(state, tuple) or len(state) == 2:
        set_object_state(t, state)
        return
    if len(state) not in (3, 4, 5) or isinstance(t, (SparseTensor, QuantizedTensor, UninitializedTensorMixin)):
        raise RuntimeError(f"corrupt checkpoint: a tuple of {len(state)} is no state of a {type(t).__name__}")
    if len(state) == 3:
        t.requires_grad = bool(state[0])
        return
    source = tensor(*state) if len(state) == 4 else state[0]
    if not isinstance(source, Tensor) or isinstance(source, (SparseTensor, QuantizedTensor, UninitializedTensorMixin)):
        raise RuntimeError(f"corrupt checkpoint: expected the data of a tensor, got {shown(source)}")
    requires_grad = t.requires_grad if len(state) == 4 else bool(state[3])
    t.requires_grad = False
    t._adopt(source)
    t.requires_grad = requires_grad


def meta_tensor(kind: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
    shape, strides, needed = _checked_header(kind, 0, size, stride)
    t = _build(UntypedStorage(needed, device("meta")), kind, 0, shape, strides)
    if requires_grad:
        t.requires_grad = True
    return t


def sparse_tensor(kind: Any, data: Any) -> Any:
    """Make a tensor of layout `kind` from its parts and size."""
    lines = (layouts.sparse_csr, layouts.sparse_csc, layouts.sparse_bsr, layouts.sparse_bsc)
    compressed = any(kind is each for each in lines)
    count = 3 if compressed else 2
    known = compressed or kind is layouts.sparse_coo
    if not known or type(data) is not tuple or len(data) not in (count + 1, count + 2):
        raise RuntimeError(f"corrupt checkpoint: cannot rebuild a sparse tensor of layout {shown(kind)}")
    shape = make_size(_integers(data[count], "a tensor's size"))
    if min(shape, default=0) < 0 or math.prod([n or 1 for n in shape]) >= _MAX_COUNT:
        raise RuntimeError(f"corrupt checkpoint: {shown(shape)} is no size of a sparse tensor")
    if not all(type(p) is Tensor for p in data[:count]):
        raise RuntimeError("corrupt checkpoint: the parts of a sparse tensor should be tensors")
    # Separate headers: the file may still change those of the tensors it names, after the check.
    parts: Any = tuple(p._bare_alias() for p in data[:count])
    _check_sparse_parts(parts, compressed)
    if compressed:
        compressed_part, plain, values = parts
        _run_or_defer(lambda: check_compressed(compressed_part, plain, values, shape, kind))
        return new_csr(compressed_part, plain, values, shape, kind)
    t: Any = sparse_coo_tensor(*parts, shape, check_invariants=False)
    t._is_coalesced = len(data) == 4 and bool(data[3])
    _run_or_defer(lambda: check_invariants_of(t))
    return t


def _check_sparse_parts(parts: tuple[Tensor, ...], compressed: bool) -> None:
    """Check dtypes and ranks, and that there are no more indices than memory holds: one repeated by a stride of zero would take forever."""
    *indices, values = parts
    for index in indices:
        if index.dtype is not dt.int64 and not (compressed and index.dtype is dt.int32):
            raise RuntimeError(f"corrupt checkpoint: the indices of a sparse tensor are integers, got {index.dtype}")
        if len(index.shape) != 2 and not (compressed and index.shape):
            raise RuntimeError(f"corrupt checkpoint: {shown(index.shape)} is no size of a sparse tensor's indices")
        held = index._storage.size_bytes // index.dtype.itemsize if index.numel() else 1 << 20
        if index.device != values.device or math.prod(index.shape if compressed else index.shape[-1:]) > held:
            raise RuntimeError("corrupt checkpoint: the indices of a sparse tensor are not in the file")


def nested_tensor(buffer: Any, sizes: Any, strides: Any, starts: Any) -> Any:
    """Make a nested tensor of the strided layout from a buffer, and sizes, strides and offsets of its rows."""
    _check_parts("nested", buffer, sizes, strides, starts)
    t = new_strided_nested(buffer._bare_alias(), packed_places(()))
    _run_or_defer(lambda: t._adopt(from_parts(t._value, sizes, strides, starts)))
    return t


def jagged_tensor(arguments: Any) -> Any:
    """Make a nested tensor of the jagged layout from the arguments of PyTorch's constructor."""
    given: Any = arguments if type(arguments) is dict else {}
    values, offsets, ragged, lengths = (given.get(name) for name in ("values", "offsets", "_ragged_idx", "lengths"))
    _check_parts("nested", values, offsets, *([] if lengths is None else [lengths]))
    if type(ragged) is not int or not 1 <= ragged <= values.dim() or offsets.dim() != 1 or not offsets.numel():
        raise RuntimeError(f"corrupt checkpoint: dimension {shown(ragged)} of a nested tensor is not ragged")
    _run_or_defer(lambda: check_offsets(offsets, values.shape[ragged - 1], lengths))
    cache = given.get("_metadata_cache")
    known = (
        {name: t.shape[0] for name, t in cache.items() if type(t) is Tensor and t.dim() == 2}
        if type(cache) is dict
        else {}
    )
    made = new_jagged(values._bare_alias(), offsets, ragged, lengths=lengths, metadata_cache=known)
    return made.requires_grad_(bool(given.get("requires_grad")))


class DimRange:
    """Bounds of a dynamic size, which PyTorch's compiler attaches to the values of nested tensors; not used here."""

    __slots__ = ("dim", "max", "min")

    def __setstate__(self, state: Any) -> None:
        if type(state) is not list or len(state) != 3 or not all(n is None or type(n) is int for n in state):
            raise RuntimeError(f"corrupt checkpoint: {shown(state)} are no bounds of a size")
        self.dim, self.min, self.max = state


def _check_parts(what: str, values: Any, *indices: Any) -> None:
    if not all(type(part) is Tensor for part in (values, *indices)) or any(i.dtype is not dt.int64 for i in indices):
        raise RuntimeError(
            f"corrupt checkpoint: the parts of a {what} tensor should be tensors, and integers but for the first"
        )


def quantized_tensor(
    storage: Any, storage_offset: Any, size: Any, stride: Any, parameters: Any, requires_grad: Any, backward_hooks: Any
) -> QuantizedTensor:
    """Make a quantized tensor over the integers in a storage. `parameters`: (scheme, scale, zero point), with tensors and the axis for
    per-channel quantization."""
    held = _require_storage(storage)
    if held.dtype not in CODE_DTYPES:
        raise RuntimeError(f"corrupt checkpoint: a quantized tensor has no elements of type {shown(held.dtype.name)}")
    if held.dtype in PER_BYTE:
        codes = _unpack_bits(held, _checked_header(dt.uint8, storage_offset, size, stride)[0])
    else:
        codes = _build(held.untyped(), CODE_DTYPES[held.dtype], storage_offset, size, stride)
    return wrap(codes, _quantizer(parameters, codes.shape), held.dtype)


def _unpack_bits(held: TypedStorage, shape: Size) -> Tensor:
    """Unpack integers of less than 8 bits, several of which share a byte in a file."""
    storage, per_byte = held.untyped(), PER_BYTE[held.dtype]
    if -(-math.prod(shape) // per_byte) > storage.size_bytes or storage.device.type != "cpu":
        raise RuntimeError(
            f"corrupt checkpoint: a storage of {storage.size_bytes} bytes does not hold codes of size {shown(shape)}"
        )
    codes = empty(shape, dt.uint8)

    def fill() -> None:
        if codes.numel():
            codes._array()[...] = from_bytes(storage.numpy(), (1, codes.numel()), per_byte).reshape(shape)

    _run_or_defer(fill)
    return codes


def _quantizer(parameters: Any, shape: Size) -> Quantizer:
    if type(parameters) is not tuple or not parameters or not isinstance(parameters[0], qscheme):
        raise RuntimeError(f"corrupt checkpoint: {shown(parameters)} does not say how a tensor is quantized")
    scheme, *rest = parameters
    if scheme is per_tensor_affine and len(rest) == 2 and type(rest[0]) is float and type(rest[1]) is int:
        return Quantizer(scheme, *rest)
    if scheme not in (per_channel_affine, per_channel_float) or len(rest) != 3 or type(rest[2]) is not int:
        raise RuntimeError(f"corrupt checkpoint: {shown(parameters)} does not say how a tensor is quantized")
    scales, zero_points, axis = rest
    wanted = (dt.float64, dt.int64) if scheme is per_channel_affine else (dt.float32, dt.float32)
    for part, kind in zip((scales, zero_points), wanted):
        if type(part) is not Tensor or part.dtype is not kind or not 0 <= axis < len(shape):
            raise RuntimeError(
                "corrupt checkpoint: a tensor quantized by channels has a tensor of scales and one of zero points"
            )
        if part.shape != (shape[axis],):
            raise RuntimeError(
                f"corrupt checkpoint: {shown(part.shape)} is no size of scales of {shape[axis]} channels"
            )
    return Quantizer(scheme, scales._bare_alias(), zero_points._bare_alias(), axis)


def layout(name: Any) -> Any:
    known = {repr(v): v for v in vars(layouts).values() if isinstance(v, layouts.layout)}
    if type(name) is not str or name not in known:
        raise RuntimeError(f"corrupt checkpoint: unknown layout {shown(name)}")
    return known[name]


def encode(text: Any, encoding: Any = "latin1") -> bytes:
    """Return bytes from the form in which pickle protocol 2 writes them."""
    if type(text) is not str or type(encoding) is not str or encoding not in ("latin1", "latin-1"):
        raise RuntimeError(f"corrupt checkpoint: cannot encode {type(text).__name__} as {shown(encoding)}")
    return text.encode("latin1")
