"""Many hostile checkpoints: put together from what a file may name, mostly right, a few fields not.

As a program it loads many of them: `python -m tests.serialization.hostile_fuzz --rounds 20000`. Every storage lies directly before
(or behind) memory that cannot be touched, and every tensor that was loaded is used, so that one that reaches outside its storage ends
the process. `--keep FILE` has the file that was being loaded when that happened."""

from __future__ import annotations

import argparse
import collections
import ctypes
import faulthandler
import io
import mmap
import os
import pickle
import random
import resource
import signal
import struct
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.compat.legacy import TENSOR_TYPES
from flambeau.core import device as devices
from flambeau.core import dtype as dt
from flambeau.core.storage import UntypedStorage
from flambeau.serialization import archive, checked, names, reader, rebuild
from tests.serialization.hostile_files import (
    CLEAN,
    ORDERED,
    SLOTS,
    UNTYPED,
    UTILS,
    Built,
    Call,
    Name,
    Stored,
    a_tensor,
    assembled,
    fingerprint,
    legacy,
    stored,
    use,
    zipped,
)  # fmt: skip

SECONDS = 20  # of processor time
STORAGE_KINDS = [
    name for name, kind in names.STORAGE_NAMES.items() if kind.kind != "q"
]  # tensors of those have a function of their own

# -- guarded memory -----------------------------------------------------------------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)
_mprotect = _libc.mprotect
_mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
PAGE = mmap.PAGESIZE
MOST = 1 << 22


class Guarded:
    """Bytes with pages on both sides that nobody may touch; they lie against the one behind, or the one before."""

    def __init__(self, nbytes: int, behind: bool):
        inner = max(PAGE, -(-nbytes // PAGE) * PAGE)
        self.memory = mmap.mmap(-1, inner + 2 * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for page in (start, start + PAGE + inner):
            if _mprotect(page, PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self.ptr = start + PAGE + (inner - nbytes if behind else 0)


class GuardedStorages:
    """Stands for UntypedStorage in the modules that load files."""

    def __init__(self, generator: random.Random):
        self.generator, self.made = generator, 0

    def __call__(self, nbytes: int = 0, where: Any = devices.cpu) -> UntypedStorage:
        if where is not devices.cpu:
            return UntypedStorage(nbytes, where)
        assert nbytes <= MOST, f"a file of a few thousand bytes made room for {nbytes}"
        if not nbytes:
            return UntypedStorage(0)
        self.made += 1
        block = Guarded(nbytes, self.generator.random() < 0.7)
        return UntypedStorage.borrow(block.ptr, nbytes, block)

    borrow = staticmethod(UntypedStorage.borrow)

    def install(self) -> None:
        for module in (archive, reader, rebuild):
            module.UntypedStorage = self  # type: ignore[attr-defined]


# -- files ----------------------------------------------------------------------------------------------------------------

HUGE = [1 << 31, (1 << 31) - 1, 1 << 32, 1 << 40, 1 << 61, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 64, 1 << 200]
INTEGERS = [0, 1, 2, 3, 7, 64, 4096, -1, -2, -4096, *HUGE, *(-n for n in HUGE)]


CALLED = [key for key, known in names.SAFE.items() if id(known) in checked.constructors]
USUAL: dict[str, list[tuple]] = {
    "set": [(), ([1, 2],)], "frozenset": [([1, "a"],)], "bytearray": [(), ("ab", "latin-1")], "complex": [(0.5, 2.0)],
    "OrderedDict": [(), ([["a", 1]],)], "Counter": [({"a": 2},)], "defaultdict": [(None,)], "Size": [((1, 2),), ([],)],
    "device": [("cpu",), ("cuda", 0), ("meta",)], "Tensor": [()], "Parameter": [()], "Buffer": [()],
    "UninitializedParameter": [(True, None, None)], "UninitializedBuffer": [(False,)], "encode": [("ab", "latin1")],
    "_get_layout": [("torch.strided",), ("torch.sparse_coo",)], **{name: [()] for name in TENSOR_TYPES},
}  # fmt: skip


class Files:
    """Makes hostile files: mostly right, a few fields not."""

    def __init__(self, generator: random.Random):
        self.g = generator
        self.lies = generator.choice([0.004, 0.01, 0.03, 0.1])
        self.records: dict[str, tuple[str, int]] = {}  # key -> (kind, elements)
        self.made: list[Any] = []
        self.used: set[str] = set()
        self.nnz = generator.randrange(3)
        for key in range(generator.randint(1, 3)):
            numel = generator.choice([0, 3, 4, 12, 16, 16, 60, 100, 1030])
            self.records[str(key)] = (generator.choice(STORAGE_KINDS), numel)

    def may_lie(self, truth: Any, lie: Callable[[], Any] | None = None) -> Any:
        return (lie or self.anything)() if self.g.random() < self.lies else truth

    def integer(self) -> int:
        return self.g.choice(INTEGERS)

    def name(self) -> Name:
        return Name(*self.g.choice(list(names.SAFE)))

    def called_name(self) -> Name:
        return self.may_lie(Name(*self.g.choice(CALLED)), self.name)

    def anything(self, depth: int = 2) -> Any:
        g = self.g
        kind = g.randrange(16)
        if kind < 5:
            return self.integer()
        if kind == 5:
            return g.choice(["", "cpu", "cuda", "meta", "latin1", "0", "storage", *SLOTS])
        if kind == 6:
            return g.choice([None, True, False, 0.5, float("nan"), float("inf"), b"", b"storage", b"0"])
        if kind == 7:
            return self.name()
        if kind == 8 and self.made:
            return g.choice(self.made)
        if not depth:
            return self.integer()
        if kind == 9:
            return [self.anything(depth - 1) for _ in range(g.randrange(4))]
        if kind == 10:
            return {g.choice(SLOTS): self.anything(depth - 1) for _ in range(g.randrange(4))}
        if kind == 11:
            return self.called(depth - 1)
        if kind == 12:
            return self.item(depth - 1)
        return tuple(self.anything(depth - 1) for _ in range(g.randrange(5)))

    def called(self, depth: int) -> Any:
        how = self.g.choice([pickle.REDUCE, pickle.REDUCE, pickle.NEWOBJ, pickle.NEWOBJ_EX])
        name = self.called_name()
        usual = USUAL.get(name.name)
        if usual is not None and self.g.random() < 0.8:
            args = tuple(self.may_lie(part) for part in self.g.choice(usual))
        else:
            args = tuple(self.anything(depth) for _ in range(self.g.randrange(5)))
        return Call(name, how=self.may_lie(pickle.REDUCE, lambda: how), arguments=self.may_lie(args))

    def storage(self) -> tuple[Stored, str, int]:
        g = self.g
        key = g.choice(list(self.records))
        self.used.add(key)
        kind, numel = self.records[key]
        untyped = g.random() < 0.2
        size = names.STORAGE_NAMES[kind].itemsize
        named = UNTYPED if untyped else Name("torch", kind)
        count = numel * size if untyped else numel
        identity: Any = tuple(
            self.may_lie(part)
            for part in ("storage", named, key, g.choice(["cpu"] * 60 + ["meta"] * 4 + ["cpu:1", "cuda:0"]), count)
        )
        if g.random() < 0.1:
            identity += (self.may_lie(g.choice([None, ("v", 0, count), ("v", 1, max(0, count - 1))])),)
        return Stored(self.may_lie(identity)), kind, numel

    def header(self, numel: int) -> tuple[Any, Any, Any]:
        """Offset, size and stride that fit, or nearly: the last element is often the last of the storage."""
        g = self.g
        rank = g.randrange(4)
        size, step = [], 1
        for _ in range(rank):
            size.append(g.choice([n for n in (0, 1, 2, 3, 4) if step * n <= numel]))
            step *= size[-1] or 1
        stride = [1] * rank
        for i in reversed(range(rank - 1)):
            stride[i] = stride[i + 1] * max(1, size[i + 1])
        if rank and g.random() < 0.2:
            i = g.randrange(rank)
            stride[i], size[i] = 0, g.choice([5, 1 << 20, 1 << 40])
        if rank and g.random() < 0.2:
            order = g.sample(range(rank), rank)
            size, stride = [size[i] for i in order], [stride[i] for i in order]
        offset = max(0, numel - step) if g.random() < 0.7 else 0
        if not rank and not numel:
            size, stride = [0], [1]
        near = self.g.random() < self.lies  # one element too many
        for row in (size, stride):
            row[:] = [self.may_lie(n, self.integer) for n in row]
        sizes: Any = Call(Name("torch", "Size"), tuple(size)) if g.random() < 0.1 else tuple(size)
        return self.may_lie(offset + near, self.integer), self.may_lie(sizes), self.may_lie(tuple(stride))

    def tensor(self) -> Any:
        g = self.g
        storage, kind, numel = self.storage()
        name = g.choice(["_rebuild_tensor_v2"] * 4 + ["_rebuild_tensor_v3"] * 2 + ["_rebuild_tensor", "old", "meta"])
        held = names.STORAGE_NAMES[kind]
        own = (
            dt.BY_NAME[g.choice([n for n, d in dt.BY_NAME.items() if d.kind != "q"])]
            if name == "_rebuild_tensor_v3"
            else held
        )
        if isinstance(storage.identity, tuple) and storage.identity[1:] and storage.identity[1] is UNTYPED:
            own = own if name == "_rebuild_tensor_v3" else dt.uint8
        offset, size, stride = self.header(numel * held.itemsize // own.itemsize)
        marks = g.choice(
            [(), (), (), ({"conj": True},), ({"neg": own is not dt.bool_},), ({"conj": True, "neg": False},)]
        )
        grad = own.category >= 2 and g.random() < 0.2
        rest = (self.may_lie(grad), self.may_lie(Call(ORDERED)))
        dtype = self.may_lie(Name("torch", own.name))
        if name == "_rebuild_tensor_v2":
            return Call(Name(UTILS, name), storage, offset, size, stride, *rest, *map(self.may_lie, marks))
        if name == "_rebuild_tensor_v3":
            return Call(Name(UTILS, name), storage, offset, size, stride, *rest, dtype, *marks)
        if name == "_rebuild_tensor":
            return Call(Name(UTILS, name), storage, offset, size, stride)
        if name == "meta":
            return Call(Name(UTILS, "_rebuild_meta_tensor_no_storage"), dtype, size, stride, rest[0])
        old = kind.replace("Storage", "Tensor") if not held.is_complex else "Tensor"
        return Built(Call(Name("torch", old)), (storage, offset, size, stride))

    def sparse(self) -> Any:
        """Of parts that are tensors of this file; their numbers are indices now and then."""
        g = self.g
        kind = g.choice(["torch.sparse_coo", "torch.sparse_csr", "torch.sparse_csc"])
        layout = Call(Name("torch.serialization", "_get_layout"), self.may_lie(kind))
        nnz = self.nnz
        self.used |= {"i", "v"} if kind == "torch.sparse_coo" else {"i", "s", "v"}
        long = stored("LongStorage", "i", "cpu", 16)
        values = a_tensor(stored("FloatStorage", "v", "cpu", 4), 0, (self.may_lie(nnz),), (1,))

        def part(*size: int) -> Any:
            strides = tuple(self.may_lie(n, self.integer) for n in ((size[1], 1) if len(size) == 2 else (1,)))
            return a_tensor(
                long, self.may_lie(0, self.integer), tuple(self.may_lie(n, self.integer) for n in size), strides
            )

        shape = tuple(self.may_lie(n, self.integer) for n in (4, 4))
        if kind == "torch.sparse_coo":
            parts: tuple = (part(2, nnz), values, shape, self.may_lie(g.random() < 0.2))
        else:
            starts = a_tensor(stored("LongStorage", "s", "cpu", 5), 0, (5,), (1,))
            parts = (self.may_lie(starts), part(nnz), values, shape)
        made = Call(Name(UTILS, "_rebuild_sparse_tensor"), self.may_lie(layout), self.may_lie(parts))
        if g.random() < 0.3 and isinstance(parts[0], Call):  # the index is changed after it was looked at
            shift = (g.choice([0, 2, 8]), 1) if g.random() < 0.7 else (self.integer(), 1)
            return [made, Built(parts[0], (long, 4, (2, nnz), shift))]
        return made

    def slots(self, known: list[str] = SLOTS[:12]) -> dict:
        """Values for a few slots: half of them of the class, half of the values of a type that could be right."""
        g = self.g
        right: list[Callable[[], Any]] = [
            self.integer, lambda: (self.integer(),), lambda: self.storage()[0], self.tensor, lambda: g.choice(["cuda", "meta", "x"]),
        ]  # fmt: skip
        names_ = [g.choice(known if g.random() < 0.5 else SLOTS) for _ in range(g.randint(1, 3))]
        return {name: g.choice(right)() if g.random() < 0.5 else self.anything(1) for name in names_}

    def state(self) -> Any:
        g = self.g
        if g.random() < 0.8:
            usual = {g.choice(["note", "_is_hf_initialized", "tags"]): g.choice([1, "a", None, [1, 2]])}
            return g.choice([usual, usual, None, (usual, None)])
        slots = self.slots()
        return g.choice([slots, (None, slots), (slots, None), ({}, slots), self.anything(1)])

    def shared(self) -> Any:
        """Something that stands for all its equals, with a state of the file's."""
        g = self.g
        kind, obj = g.choice([
            (devices.device, Call(Name("torch", "device"), "cpu")), (dt.dtype, Name("torch", "float32")),
            (UntypedStorage, self.storage()[0]), (names.StorageType, Name("torch", "FloatStorage")), (dt.dtype, self.name()),
        ])  # fmt: skip
        known = list(getattr(kind, "__slots__", ["name", "dtype"]))
        return Built(obj, g.choice([self.slots(known), (None, self.slots(known))]))

    def with_state(self) -> Any:
        g, t = self.g, self.tensor()
        kind = g.randrange(5)
        grad = self.may_lie(g.random() < 0.5)
        if kind == 0:
            return Call(Name(UTILS, "_rebuild_parameter"), t, grad, Call(ORDERED))
        if kind == 1:
            return Call(Name(UTILS, "_rebuild_parameter_with_state"), t, grad, Call(ORDERED), self.state())
        if kind == 2 and isinstance(t, Call):
            name = self.may_lie(
                g.choice(["Tensor", "Parameter", "Parameter", "Buffer"]), lambda: "UninitializedParameter"
            )
            made = Name("torch" if name == "Tensor" else "torch.nn.parameter", name)
            return Call(
                Name("torch._tensor", "_rebuild_from_type_v2"),
                self.may_lie(t.function), self.may_lie(made), self.may_lie(t.args), self.state(),
            )  # fmt: skip
        if kind == 3:
            states = [
                self.state(),
                (self.storage()[0], 0, (1,), (1,)),
                (t, None, None, False, None),
                (False, None, None),
            ]
            return Built(g.choice([t, Call(Name("torch.nn.parameter", "Parameter"))]), self.may_lie(g.choice(states)))
        objects = [t, Call(ORDERED)] if g.random() < 0.9 else [self.called(1), *self.made[-3:]]
        return Built(g.choice(objects), self.state())

    def item(self, depth: int = 2) -> Any:
        kind = self.g.randrange(12)
        if kind < 5:
            made: Any = self.tensor()
        elif kind < 8:
            made = self.with_state()
        elif kind == 8:
            made = self.sparse()
        elif kind == 9:
            made = self.storage()[0]
        elif kind == 10:
            made = self.called(depth) if self.g.random() < 0.8 else self.shared()
        else:
            made = self.may_lie(self.g.choice([1, "a", None, 2.5, (1, 2)]), lambda: self.anything(depth))
        if isinstance(made, (Call, Built, Stored)):
            self.made.append(made)
        return made

    def body(self) -> bytes:
        g = self.g
        contents: Any = {
            self.may_lie(name, lambda: g.choice([1, "x", b"k"])): self.item()
            for name in ("weight", "bias", "a", "b")[: g.randint(1, 4)]
        }
        if g.random() < 0.3:
            contents = Built(Call(ORDERED, [list(pair) for pair in contents.items()]), {"_metadata": self.may_lie({})})
        return assembled(contents)

    def contents(self) -> tuple[bytes, dict[str, tuple[int, bytes]]]:
        """The pickle, and the bytes of its storages."""
        g = self.g
        body = self.body()
        records = {}
        for key, (kind, numel) in self.records.items():
            size = names.STORAGE_NAMES[kind].itemsize
            data = g.randbytes(numel * size) if g.random() < 0.5 else bytes(numel * size)
            records[key] = (self.may_lie(numel, self.integer), data)
            if kind == "BoolStorage" and g.random() < 0.5:
                records[key] = (numel, bytes(b & 1 for b in data))
        rows = [g.randrange(4) for _ in range(16)] if g.random() < 0.8 else [g.choice(INTEGERS[:10]) for _ in range(16)]
        records["i"] = (16, struct.pack("<16q", *rows))
        nnz = self.nnz
        records["v"] = (4, g.randbytes(16))
        starts = [0, *sorted(g.randint(0, nnz) for _ in range(3)), nnz] if g.random() < 0.8 else rows[:5]
        records["s"] = (5, struct.pack("<5q", *starts))
        return body, records

    def file(self) -> bytes:
        body, records = self.contents()
        g = self.g
        if g.random() < 0.3:
            clipped = {k: (n if -(1 << 63) <= n < 1 << 63 else 0, d) for k, (n, d) in records.items() if k in self.used}
            return legacy(
                body, clipped, self.may_lie(sorted(clipped), lambda: g.choice([[], list(records), ["0"] * 9]))
            )
        plain = {key: data for key, (_, data) in records.items()}
        for key in list(plain):
            if g.random() < self.lies:
                plain[key] = g.choice([b"", plain[key][:-1], plain[key] + b"x" * 8, plain[key] * 2])
        return zipped(body, plain, {"byteorder": b"big"} if g.random() < 0.1 else None)


# -- many of them ---------------------------------------------------------------------------------------------------------


def one_round(data: bytes, generator: random.Random, path: str) -> tuple[str, int]:
    """What came of a file ("loaded" or an exception's name) and how many tensors were used."""
    options: dict[str, Any] = {}
    kind = generator.randrange(12)
    if kind == 0:
        options["map_location"] = generator.choice(["cpu", "meta", torch.device("cpu"), {"cuda:0": "cpu"}])
    source: Any = io.BytesIO(data)
    if kind == 1 and data[:2] == b"PK":
        with open(path, "wb") as file:
            file.write(data)
        source, options["mmap"] = path, True
    try:
        value = torch.load(source, weights_only=True, **options)
    except CLEAN as error:
        return type(error).__name__, 0
    return "loaded", use(value, generator)


def _too_long(*_: Any) -> None:
    raise AssertionError("a hostile file is read for ever")


def run(rounds: int, seed: int, keep: str | None) -> collections.Counter:
    faulthandler.enable()
    signal.signal(signal.SIGPROF, _too_long)
    warnings.simplefilter("ignore")
    storages = GuardedStorages(random.Random(seed))
    storages.install()
    before = fingerprint()
    found: collections.Counter = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        held = None
        for number in range(rounds):
            generator = random.Random(f"{seed} {number}")
            data = Files(generator).file()
            if keep:
                with open(keep, "wb") as file:
                    file.write(data)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                outcome, used = one_round(data, generator, os.path.join(folder, "x.pt"))
                signal.setitimer(signal.ITIMER_PROF, 0)
                assert fingerprint() == before, "the file changed what all tensors share"
            except BaseException:
                print(f"round {number} of seed {seed}", file=sys.stderr)
                raise
            found[outcome] += 1
            found["tensors"] += used
            if number == min(rounds // 4, 2000):  # the kernels are there by now
                held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found["guarded storages"] = storages.made
        if held is not None:
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
            assert grown < 300_000, f"memory grew by {grown} kB"
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", help="where to write each file before it is loaded")
    chosen = parser.parse_args()
    outcomes = run(chosen.rounds, chosen.seed, chosen.keep)
    print(" ".join(f"{name.replace(' ', '_')}={count}" for name, count in sorted(outcomes.items())))
