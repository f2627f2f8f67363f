"""Checkpoints by hand: pickles put together instruction by instruction, and a look at what came of them.

Nothing here believes what it writes: names, arguments, states and storages are whatever the test wants a hostile file to have."""

from __future__ import annotations

import io
import itertools
import pickle
import random
import struct
import warnings
import zipfile
from typing import Any

import flambeau as torch
from flambeau.core import device as devices
from flambeau.core import dtype as dt
from flambeau.core.layout import layout
from flambeau.core.size import Size
from flambeau.core.sparse import SparseCoo, SparseCsr
from flambeau.core.storage import UntypedStorage
from flambeau.core.tensor import Tensor, is_contiguous_layout
from flambeau.core.typed_storage import TypedStorage
from flambeau.nn.parameter import Parameter, UninitializedTensorMixin
from flambeau.serialization import names
from flambeau.serialization.writer import MAGIC

CLEAN = (RuntimeError, pickle.UnpicklingError, EOFError)

# -- pickles by hand --------------------------------------------------------------------------------------------------------


class Name:
    """What a file calls module.name."""

    def __init__(self, module: str, name: str):
        self.module, self.name = module, name


class Call:
    """function(*args), by one of the three instructions that call."""

    def __init__(self, function: Any, *args: Any, how: bytes = pickle.REDUCE, arguments: Any = None):
        self.function, self.how = function, how
        self.args = args if arguments is None else arguments


class Built:
    """An object and the state it is given."""

    def __init__(self, obj: Any, *states: Any):
        self.obj, self.states = obj, states


class Stored:
    """A persistent id: mostly of a storage."""

    def __init__(self, identity: Any):
        self.identity = identity


class Raw:
    """Instructions as they are."""

    def __init__(self, code: bytes):
        self.code = code


class Assembler:
    """Writes values as pickle does, but believes everything. An object met again is written again, or named by the memo."""

    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")
        self.memo: dict[int, int] = {}

    def write(self, value: Any) -> None:
        if id(value) in self.memo:
            self.out += b"j" + struct.pack("<I", self.memo[id(value)])
            return
        self.plain(value)
        if isinstance(value, (Call, Built, Stored)):
            self.memo[id(value)] = 1000 + len(self.memo)  # strings have the lower numbers
            self.out += b"r" + struct.pack("<I", self.memo[id(value)])

    def plain(self, value: Any) -> None:
        out = self.out
        if isinstance(value, Name):
            out += f"c{value.module}\n{value.name}\n".encode()
        elif isinstance(value, Call):
            self.write(value.function)
            self.write(value.args)
            if value.how == pickle.NEWOBJ_EX:
                out += b"}"
            out += value.how
        elif isinstance(value, Built):
            self.write(value.obj)
            for state in value.states:
                self.write(state)
                out += b"b"
        elif isinstance(value, Stored):
            self.write(value.identity)
            out += b"Q"
        elif isinstance(value, Raw):
            out += value.code
        elif type(value) is tuple:
            out += b"("
            for item in value:
                self.write(item)
            out += b"t"
        elif type(value) is list:
            out += b"](" + b"".join(self.part(item) for item in value) + b"e"
        elif type(value) is dict:
            out += b"}(" + b"".join(self.part(item) for pair in value.items() for item in pair) + b"u"
        else:
            out += pickle.dumps(value, 2)[2:-1]

    def part(self, value: Any) -> bytes:
        """The instructions for one value; the memo stays shared."""
        before, self.out = self.out, bytearray()
        self.write(value)
        before, self.out = self.out, before
        return bytes(before)


def assembled(value: Any) -> bytes:
    assembler = Assembler()
    assembler.write(value)
    return bytes(assembler.out + b".")


def zipped(body: bytes, records: dict[str, bytes] | None = None, extra: dict[str, bytes] | None = None) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as new, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that come twice
        new.writestr("archive/data.pkl", body)
        for key, data in (records or {}).items():
            new.writestr(f"archive/data/{key}", data)
        for name, data in {"version": b"3\n", "byteorder": b"little", **(extra or {})}.items():
            new.writestr(f"archive/{name}", data)
    return file.getvalue()


def legacy(body: bytes, records: dict[str, tuple[int, bytes]], keys: Any = None) -> bytes:
    """The older format: `records` has the number of elements and the bytes of each storage."""
    header = b"".join(pickle.dumps(part, 2) for part in (MAGIC, 1001, {"little_endian": True}))
    tail = pickle.dumps(sorted(records) if keys is None else keys, 2)
    for key in sorted(records):
        count, data = records[key]
        tail += struct.pack("<q", count) + data
    return header + body + tail


def load(data: bytes, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.load(io.BytesIO(data), weights_only=True, **options)


UTILS = "torch._utils"
ORDERED = Name("collections", "OrderedDict")
UNTYPED = Name("torch.storage", "UntypedStorage")


def stored(kind: str = "FloatStorage", key: Any = "0", location: Any = "cpu", numel: Any = 4, *more: Any) -> Stored:
    return Stored(("storage", Name("torch", kind), key, location, numel, *more))


def a_tensor(
    storage: Any, offset: Any = 0, size: Any = (4,), stride: Any = (1,), requires_grad: Any = False, *more: Any
) -> Call:
    return Call(Name(UTILS, "_rebuild_tensor_v2"), storage, offset, size, stride, requires_grad, Call(ORDERED), *more)


SLOTS = [
    "_storage", "shape", "_strides", "_offset", "dtype", "device", "_contig", "_autograd", "_base", "__dict__", "__weakref__", "ptr",
    "size_bytes", "capacity", "owner", "version", "watched", "last_write", "aliases", "fixed", "origin", "type", "index", "_hash",
    "_previous", "name", "itemsize", "kind", "numpy", "_untyped", "_values_part", "_index_part", "_compressed_part", "_plain_part",
    "_is_coalesced", "_in_bounds", "layout", "__class__", "data", "grad", "requires_grad", "_grad", "_tangent", "_backward_hooks", "_array",
    "detach", "clone", "data_ptr", "numel", "contiguous", "_adopt", "_bare_alias", "_is_param", "note", "cls_to_become", "items",
    "__reduce_ex__", "__setstate__", "_metadata", "T", "is_leaf", "persistent", "_is_buffer",
]  # fmt: skip


# -- what nothing in a file may change ----------------------------------------------------------------------------------------


def fingerprint() -> Any:
    """Devices, dtypes and the rest of what all tensors share, as comparable values."""
    kinds = [
        (d.name, d.number, d.itemsize, d.kind, d.numpy, d.category, d.letter, d.scalar_type)
        for d in dt.BY_NAME.values()
    ]
    classes = (Tensor, Parameter, Size, UntypedStorage, TypedStorage, devices.device, dt.dtype, layout)
    shared = [names.SAFE[key] for key in names.SAFE]
    return (
        [(d.type, d.index, d.memory, list(d._previous)) for d in (devices.cpu, devices.meta)],
        [key for key, d in devices._KNOWN.items() if key != (d.type, d.index) or d._previous],
        kinds,
        [sorted(vars(c)) for c in classes],
        [vars(s).copy() for s in shared if isinstance(s, names.StorageType)],
        [dict(f.__dict__) for f in shared if hasattr(f, "__code__")],
        torch.get_default_dtype(),
        devices.default_device(),
        len(names.SAFE),
    )


# -- looking at what was loaded -----------------------------------------------------------------------------------------------


def check_header(t: Tensor) -> None:
    """Every slot has the type it must have, and every element lies inside the storage."""
    assert type(t.dtype) is dt.dtype and dt.BY_NAME[t.dtype.name] is t.dtype
    assert type(t.device) is devices.device and devices._KNOWN[t.device.type, t.device.index] is t.device
    if isinstance(t, (SparseCoo, SparseCsr)):
        for part in t._parts():
            check_header(part)
        assert all(type(n) is int and n >= 0 for n in t.shape)
        return
    shape = t.size()
    assert type(shape) is Size and type(t._strides) is tuple and type(t._offset) is int and type(t._contig) is bool
    assert len(shape) == len(t._strides) and all(type(n) is int for n in (*shape, *t._strides))
    assert t._offset >= 0 and min((*shape, *t._strides), default=0) >= 0
    assert type(t._storage) is UntypedStorage and type(t._storage.size_bytes) is int
    last = t._offset + (1 + sum((n - 1) * s for n, s in zip(shape, t._strides)) if 0 not in shape else 0)
    assert last * t.dtype.itemsize <= t._storage.size_bytes or isinstance(t, UninitializedTensorMixin)
    assert not t._contig or is_contiguous_layout(shape, t._strides)


def touch(t: Tensor, write: bool) -> None:
    """Read every element (and write every one): kernels, not only NumPy."""
    check_header(t)
    if isinstance(t, UninitializedTensorMixin) or t.device.type == "meta":
        return
    bare = t._bare_alias()
    if isinstance(t, (SparseCoo, SparseCsr)):
        if t.numel() <= 10_000:
            bare.to_dense().sum()
        for part in bare._parts():
            touch(part, False)
        return
    if Tensor.numel(bare) > 10_000:  # one number repeated: its corners will do
        bare[tuple(n - 1 for n in bare.shape)].clone()
        bare[tuple(0 for n in bare.shape)].clone()
        return
    bare.clone()
    bare.contiguous().view(-1)
    if bare.dtype not in dt.FLOAT8:
        bare.to(torch.complex128 if bare.dtype.is_complex else torch.float64).sum().item()
    if bare.dtype is dt.bool_:
        torch.arange(bare.numel())[bare.reshape(-1)]
    if write:
        bare.zero_()


USE_ERRORS = (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError)


def tensors_in(value: Any, most: int = 500) -> list[Tensor]:
    """The tensors that a loaded value leads to, attributes of tensors too."""
    found: dict[int, Tensor] = {}
    seen: dict[int, Any] = {}
    waiting = [value]
    while waiting and len(seen) < most:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen[id(item)] = item
        if isinstance(item, Tensor):
            found[id(item)] = item
            waiting.extend(item.__dict__.values())
        elif isinstance(item, dict):
            waiting.extend(itertools.chain(item.keys(), item.values()))
            waiting.extend(vars(item).values() if hasattr(item, "__dict__") else ())
        elif isinstance(item, (list, tuple, set, frozenset)):
            waiting.extend(item)
        elif isinstance(item, TypedStorage):
            assert type(item._untyped) is UntypedStorage and type(item.dtype) is dt.dtype
            if item._untyped.device is devices.cpu:
                item._untyped.tolist()
    return list(found.values())


def use(value: Any, generator: random.Random) -> int:
    found = tensors_in(value)
    for t in found:
        check_header(t)
    for t in found:
        try:
            touch(t, generator.random() < 0.3)
        except USE_ERRORS:  # what a float8 or a storage seen twice cannot do
            continue
    if isinstance(value, dict):
        module = torch.nn.Linear(2, 2)
        try:
            module.load_state_dict(value, strict=False)
        except (*USE_ERRORS, AttributeError, KeyError):
            pass
    return len(found)
