"""The pickles inside archives: objects, tensors and typed containers, written and read. Reading builds data and nothing else."""

from __future__ import annotations

import enum
import io
import pickle
import struct
from collections.abc import Callable
from typing import Any, ClassVar

import flambeau as torch

from ..core.storage import UntypedStorage
from ..core.tensor import Tensor
from ..serialization.names import STORAGE_OF
from ..serialization.unpickler import RestrictedUnpickler
from . import types as T
from .classes import enum_type
from .objects import ScriptObject
from .operators import is_numbered
from .value_types import inferred

_BUILDERS = {
    "int": "build_intlist",
    "Tensor": "build_tensorlist",
    "float": "build_doublelist",
    "bool": "build_boollist",
}


class Writer:
    """Writes values with PyTorch's opcodes; collects their storages in the order of appearance."""

    def __init__(self, mention: Callable[[Any], None], storages: list[tuple[Any, int]] | None = None):
        self.out = io.BytesIO()
        self.mention = mention  # called with every class that the pickle names
        self.storages = [] if storages is None else storages  # (storage, element size)
        self.memo: dict[int, int] = {}
        self.alive: list[Any] = []

    def dump(self, value: Any, kind: T.Type) -> bytes:
        self.out.write(b"\x80\x02")
        self.value(value, kind)
        self.out.write(b".")
        return self.out.getvalue()

    # -- small parts -----------------------------------------------------------------------------------------------------
    def name(self, module: str, name: str) -> None:
        self.out.write(b"c" + module.encode() + b"\n" + name.encode() + b"\n")

    def text(self, text: str) -> None:
        data = text.encode("utf-8", "surrogateescape")
        self.out.write(b"X" + struct.pack("<I", len(data)) + data)

    def number(self, value: int) -> None:
        if 0 <= value < 256:
            self.out.write(b"K" + bytes([value]))
        elif 0 <= value < 65536:
            self.out.write(b"M" + struct.pack("<H", value))
        elif -(2**31) <= value < 2**31:
            self.out.write(b"J" + struct.pack("<i", value))
        else:
            self.out.write(b"\x8a\x08" + struct.pack("<q", value))

    def call(self, module: str, name: str, *arguments: Callable[[], None]) -> None:
        self.name(module, name)
        self.out.write(b"(")
        for argument in arguments:
            argument()
        self.out.write(b"tR")

    def remember(self, value: Any) -> None:
        index = len(self.memo)
        self.memo[id(value)] = index
        self.alive.append(value)
        self.out.write(b"r" + struct.pack("<I", index))

    # -- values ----------------------------------------------------------------------------------------------------------
    def value(self, value: Any, kind: T.Type) -> None:
        if id(value) in self.memo and not isinstance(value, (int, str, float, tuple)):
            self.out.write(b"j" + struct.pack("<I", self.memo[id(value)]))
        elif value is None:
            self.out.write(b"N")
        elif isinstance(value, bool):
            self.out.write(b"\x88" if value else b"\x89")
        elif isinstance(value, enum.Enum):
            self._enum(value, kind)
        elif isinstance(value, int):
            self.number(value)
        elif isinstance(value, float):
            self.out.write(b"G" + struct.pack(">d", value))
        elif isinstance(value, str):
            self.text(value)
        elif isinstance(value, Tensor):
            self.tensor(value)
        elif isinstance(value, tuple):
            self._tuple(value, kind)
        elif isinstance(value, list):
            self._list(value, kind)
        elif isinstance(value, dict):
            self._dict(value, kind)
        elif isinstance(value, complex):
            self.call(
                "builtins", "complex", lambda: self.value(value.real, T.FLOAT), lambda: self.value(value.imag, T.FLOAT)
            )
        elif isinstance(value, torch.device):
            self.call("torch", "device", lambda: self.text(str(value)))
        elif is_numbered(value):
            self.number(value.number)
        elif hasattr(value, "script_type"):
            self.object(value)
        else:
            raise RuntimeError(f"Could not serialize a value of type {type(value).__name__}")

    def _inner(self, kind: T.Type, wanted: type) -> Any:
        if isinstance(kind, T.OptionalType):
            return self._inner(kind.element, wanted)
        if isinstance(kind, T.UnionType):
            return next((m for m in kind.members if isinstance(m, wanted)), None)
        return kind if isinstance(kind, wanted) else None

    def _tuple(self, value: tuple, kind: T.Type) -> None:
        inner = self._inner(kind, T.TupleType)
        kinds = inner.elements if inner is not None else [T.ANY] * len(value)
        self.out.write(b"(")
        for item, t in zip(value, kinds):
            self.value(item, t)
        self.out.write(b"t")

    def _list(self, value: list, kind: T.Type) -> None:
        inner = self._inner(kind, T.ListType)
        element = inner.element if inner is not None else _guess(value)

        def items() -> None:
            self.out.write(b"](")
            for item in value:
                self.value(item, element)
            self.out.write(b"e")

        builder = _BUILDERS.get(str(element) if not isinstance(element, T.TensorType) else "Tensor")
        if builder is not None:
            self.call("torch.jit._pickle", builder, items)
        else:
            self.call("torch.jit._pickle", "restore_type_tag", items, lambda: self.text(f"List[{element.code}]"))
        self.remember(value)

    def _dict(self, value: dict, kind: T.Type) -> None:
        inner = self._inner(kind, T.DictType) or T.DictType(_guess(list(value)), _guess(list(value.values())))

        def items() -> None:
            self.out.write(b"}(")
            for key, item in value.items():
                self.value(key, inner.key)
                self.value(item, inner.value)
            self.out.write(b"u")

        self.call("torch.jit._pickle", "restore_type_tag", items, lambda: self.text(inner.code))
        self.remember(value)

    def _enum(self, value: enum.Enum, kind: T.Type) -> None:
        inner = self._inner(kind, T.EnumType)
        if inner is None:
            inner = enum_type(type(value))
        self.mention(inner)
        module, _, name = inner.enum_name.rpartition(".")
        self.name(module, name)
        self.value(value.value, inner.value)  # bare, not in a tuple: so PyTorch writes and reads it
        self.out.write(b"R")

    def object(self, value: Any) -> None:
        kind: T.ClassType = value.script_type
        self.mention(kind)
        module, _, name = kind.name.rpartition(".")
        self.name(module, name)
        self.out.write(b")\x81")
        self.remember(value)
        state = (
            kind.find_method("__getstate__")
            if isinstance(value, ScriptObject) or "__getstate__" in kind.methods
            else None
        )
        if state is not None:
            self.value(state.run([value]), T.result_type(state.schema))
        else:
            self.out.write(b"}(")
            for label, t in kind.attributes.items():
                self.text(label)
                held = value.slots.get(label) if isinstance(value, ScriptObject) else value._slot(label)
                self.value(held, t)
            self.out.write(b"u")
        self.out.write(b"b")

    def tensor(self, value: Tensor) -> None:
        if value.layout is not torch.strided:
            raise RuntimeError("sparse tensors cannot be saved in TorchScript archives here")
        storage = value.storage().untyped() if value.is_quantized else value.untyped_storage()
        key = self._key(storage, value.dtype.itemsize)
        count = storage.nbytes() // value.dtype.itemsize

        def place() -> None:
            self.out.write(b"(")
            self.text("storage")
            self.name("torch", STORAGE_OF[value.dtype])
            self.text(key)
            self.text(str(value.device) if value.device.type != "cpu" else "cpu")
            self.number(count)
            self.out.write(b"tQ")

        def numbers(items: Any) -> Callable[[], None]:
            def put() -> None:
                self.out.write(b"(")
                for item in items:
                    self.number(int(item))
                self.out.write(b"t")

            return put

        scales = [lambda: self._quantizer(value)] if value.is_quantized else []
        self.call(
            "torch._utils",
            "_rebuild_qtensor" if scales else "_rebuild_tensor_v2",
            place,
            lambda: self.number(value.storage_offset()),
            numbers(value.shape),
            numbers(value.stride()),
            *scales,
            lambda: self.value(bool(value.requires_grad), T.BOOL),
            lambda: self.call("collections", "OrderedDict"),
        )
        self.remember(value)

    def _quantizer(self, value: Tensor) -> None:
        """Write the quantization parameters of a tensor: scheme, scales, zero points, axis."""
        self.out.write(b"(")
        self.name("torch", str(value.qscheme()).rpartition(".")[2])
        if value.qscheme() is torch.per_tensor_affine:
            self.value(value.q_scale(), T.FLOAT)
            self.number(value.q_zero_point())
        else:
            self.tensor(value.q_per_channel_scales())
            self.tensor(value.q_per_channel_zero_points())
            self.number(value.q_per_channel_axis())
        self.out.write(b"t")

    def _key(self, storage: UntypedStorage, size: int) -> str:
        for index, (known, _) in enumerate(self.storages):
            if known.data_ptr() == storage.data_ptr() and known.nbytes() == storage.nbytes() and storage.nbytes():
                return str(index)
        self.storages.append((storage, size))
        return str(len(self.storages) - 1)


def _guess(values: list) -> T.Type:
    found = inferred(values) if values else None
    return found.element if isinstance(found, T.ListType) else T.ANY


# -- reading ----------------------------------------------------------------------------------------------------------------


class Pickled:
    """An object read from a pickle: the name of its class and its state, or the arguments of an enum member."""

    qualified = ""

    def __init__(self, *arguments: Any):
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Tagged:
    """Container with the type that the pickle declares for it."""

    def __init__(self, value: Any, tag: Any):
        if not isinstance(value, (list, dict)) or not isinstance(tag, str):
            raise pickle.UnpicklingError("corrupt archive: a type for something that is no container")
        self.value, self.tag = value, tag


def _restore_list(value: Any) -> list:
    if not isinstance(value, list):
        raise pickle.UnpicklingError("corrupt archive: a list was expected")
    return value


_ALLOWED: dict[tuple[str, str], Any] = {
    ("torch.jit._pickle", "restore_type_tag"): Tagged,
    **{("torch.jit._pickle", name): _restore_list for name in _BUILDERS.values()},
    ("builtins", "complex"): complex,
}
_CALLED = (Tagged, _restore_list, complex)


class Reader(RestrictedUnpickler):
    """Reads an archive's pickle; classes of the archive become `Pickled`."""

    dispatch: ClassVar[Any] = dict(RestrictedUnpickler.dispatch)

    def __init__(self, data: bytes, load_storage: Callable[..., Any]):
        super().__init__(io.BytesIO(data), load_storage)
        self.kinds: dict[str, type] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "__torch__":
            full = f"{module}.{name}"
            if full not in self.kinds:
                self.kinds[full] = type("Pickled", (Pickled,), {"qualified": full})
            return self.kinds[full]
        if (module, name) in _ALLOWED:
            return _ALLOWED[(module, name)]
        return super().find_class(module, name)

    def _constructor(self, function: Any, args: Any) -> Any:
        if any(function is known for known in _CALLED) or _is_pickled(function):
            return None  # called directly: it only stores its arguments
        return super()._constructor(function, args)

    def load_build(self) -> None:
        if isinstance(self.stack[-2], Pickled):
            state = self.stack.pop()
            self.stack[-1].__setstate__(state)
            return
        super().load_build()

    def load_reduce(self) -> None:
        stack = self.stack
        if _is_pickled(stack[-2]):  # an enum: its value stands bare
            value = stack.pop()
            stack[-1] = stack[-1](*value) if isinstance(value, tuple) else stack[-1](value)
            return
        super().load_reduce()

    def load_newobj(self) -> None:
        if _is_pickled(self.stack[-2]):
            self.load_reduce()
        else:
            super().load_newobj()

    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.NEWOBJ[0]] = load_newobj


def _is_pickled(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Pickled)
