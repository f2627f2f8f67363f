"""The bytes of files: PyTorch's layout, byte orders, marks that PyTorch keeps, options, what a hostile file may not do."""

from __future__ import annotations

import copy
import io
import mmap
import pickle
import struct
import warnings
import zipfile

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.serialization import LoadEndianness, places
from flambeau.serialization.writer import MAGIC, StoragePickler
from flambeau.utils.serialization import config


def saved(obj, lib=torch, **options):
    file = io.BytesIO()
    lib.save(obj, file, **options)
    return file.getvalue()


def loaded(data, lib=torch, **options):
    return lib.load(io.BytesIO(data), **options)


def rewritten(data, changes):
    """The archive with some records replaced (None: left out)."""
    fresh = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(fresh, "w") as new:
        for name in old.namelist():
            content = changes.get(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return fresh.getvalue()


def test_files_are_pytorchs_byte_for_byte():
    real = pytest.importorskip("torch", reason="PyTorch is the oracle of this test")
    objects = [lib.arange(100.0).reshape(10, 10) for lib in (torch, real)]
    mine, theirs = (
        saved({"weight": x, "row": x[1], "n": [1, "a", None]}, lib) for x, lib in zip(objects, (torch, real))
    )
    start = mine.index(b"archive/.data/serialization_id")  # a checksum of its own follows
    assert mine[:start] == theirs[:start] and len(mine) == len(theirs)


@pytest.mark.parametrize("kind", ["float32", "float64", "int16", "bool", "complex64", "bfloat16"])
def test_files_of_the_other_byte_order(kind):
    x = torch.arange(4).to(getattr(torch, kind))
    data = saved(x)
    width = x.dtype.itemsize // (2 if x.is_complex() else 1)
    raw = zipfile.ZipFile(io.BytesIO(data)).read("archive/data/0")
    turned = np.frombuffer(raw, f"u{width}").byteswap().tobytes()
    marked = rewritten(data, {"archive/data/0": turned, "archive/byteorder": b"big"})
    assert loaded(marked).tolist() == x.tolist()
    bare = rewritten(data, {"archive/data/0": turned, "archive/byteorder": None})
    torch.serialization.set_default_load_endianness(LoadEndianness.BIG)
    try:
        assert torch.serialization.get_default_load_endianness() is LoadEndianness.BIG
        assert loaded(bare).tolist() == x.tolist()
    finally:
        torch.serialization.set_default_load_endianness(None)
    assert loaded(rewritten(data, {"archive/byteorder": None})).tolist() == x.tolist()
    with pytest.raises(TypeError):
        torch.serialization.set_default_load_endianness("little")


def test_conjugates_and_negatives_of_pytorch_keep_their_values():
    real = pytest.importorskip("torch", reason="PyTorch is the oracle of this test")
    x = real.tensor([1 + 2j, 3 - 4j])
    for lazy in (x.conj(), x.conj().imag):
        for zipped in (True, False):
            data = saved(lazy, real, _use_new_zipfile_serialization=zipped)
            assert loaded(data).tolist() == lazy.tolist()


def test_whole_modules_in_the_older_format():
    real = pytest.importorskip("torch", reason="PyTorch is the oracle of this test")
    data = saved(real.nn.Sequential(real.nn.Linear(2, 3)), real, _use_new_zipfile_serialization=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(loaded(data, weights_only=False)[0], nn.Linear)
        again = saved(nn.Sequential(nn.Linear(2, 3)), _use_new_zipfile_serialization=False)
        assert isinstance(loaded(again, weights_only=False)[0], nn.Linear)
    with pytest.raises(pickle.UnpicklingError):
        loaded(data)


def test_parts_of_storages_in_the_older_format():
    def record(view):
        return ("storage", torch.serialization.StorageType("FloatStorage", torch.float32), "7", "cpu", 4, view)

    body = io.BytesIO()

    class Views(StoragePickler):
        def persistent_id(self, obj):
            return record(obj[1]) if isinstance(obj, tuple) and obj[:1] == ("part",) else None

    for header in (MAGIC, 1001, {"protocol_version": 1001, "little_endian": True}):
        pickle.dump(header, body, 2)
    Views(body, 2).dump([("part", ("v", 0, 1)), ("part", ("w", 1, 3))])
    pickle.dump(["7"], body, 2)
    body.write(struct.pack("<q4f", 4, 1, 2, 3, 4))
    first, second = loaded(body.getvalue())
    assert first.tolist() == [1.0] and second.tolist() == [2.0, 3.0, 4.0]
    assert first.data_ptr() + 4 == second.data_ptr()


def test_one_memory_under_two_dtypes_is_refused():
    x = torch.ones(3, dtype=torch.complex64)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        torch.save([x, torch.view_as_real(x)], io.BytesIO())


class Bare:
    """A file with nothing but the methods named."""

    def __init__(self, data=b"", into=False):
        self.file, self.used = io.BytesIO(data), set()
        for name in ("read", "readline", "seek", "tell", "write", "flush", *(["readinto"] if into else [])):
            setattr(self, name, self._counted(name))

    def _counted(self, name):
        def call(*args):
            self.used.add(name)
            return getattr(self.file, name)(*args)

        return call


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("into", [True, False])
def test_plain_objects_as_files(zipped, into):
    target = Bare()
    torch.save(torch.arange(1000.0), target, _use_new_zipfile_serialization=zipped)
    assert target.used <= {"write", "flush"}
    source = Bare(target.file.getvalue(), into)
    assert torch.equal(torch.load(source), torch.arange(1000.0))
    assert ("readinto" in source.used) is into


def test_options_of_writing(tmp_path):
    before = config.save.storage_alignment
    path = tmp_path / "x.pt"
    try:
        torch.serialization.set_crc32_options(False)
        config.save.storage_alignment = 4096
        torch.save(torch.arange(9.0), path)
    finally:
        torch.serialization.set_crc32_options(True)
        config.save.storage_alignment = before
    with pytest.raises(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        archive.read("x/data/0")
    assert torch.load(path).tolist() == list(range(9))
    assert torch.load(path, map_location="meta").untyped_storage()._checkpoint_offset % 4096 == 0


def test_damaged_bytes_are_found():
    data = bytearray(saved(torch.arange(100.0)))
    data[data.index(struct.pack("<2f", 50, 51))] ^= 1
    with pytest.raises(RuntimeError, match="CRC-32"):
        loaded(bytes(data))


def test_mapped_files_can_be_shared(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.zeros(4), path)
    with torch.serialization.set_default_mmap_options(mmap.MAP_SHARED):
        torch.load(path, mmap=True)[0] = 7
    assert torch.serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    assert torch.load(path, mmap=True).tolist() == [7, 0, 0, 0]
    with pytest.raises(ValueError, match="MAP_SHARED"):
        torch.serialization.set_default_mmap_options(77)


def test_skip_data():
    x = torch.ones(2, 3)
    with torch.serialization.skip_data():
        data = saved([x, x[1]])
    whole, row = loaded(data)
    assert whole.tolist() == [[0, 0, 0], [0, 0, 0]] and row.untyped_storage() is whole.untyped_storage()
    with torch.serialization.skip_data():
        assert loaded(saved(x)).shape == (2, 3)


def test_safetensors_by_their_name(tmp_path):
    pytest.importorskip("safetensors", reason="an optional package")
    torch.safetensors.save_file({"a": torch.arange(3)}, tmp_path / "x.safetensors")
    assert torch.load(tmp_path / "x.safetensors")["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "body, message",
    [
        (b"\x80\x02ctorch\nTensor\n)RK\x00K\x01s.", "Can only SETITEM for dict"),
        (b"\x80\x02ctorch\nTensor\n)R(K\x00K\x01u.", "Can only SETITEMS for dict"),
        (b"\x80\x02ctorch\nTensor\n)RK\x00a.", "Can only APPEND for list"),
        (b"\x80\x02K\x2a\x85Q.", "Only persistent_load of storage is allowed, but got <class 'int'>"),
        (b"\x80\x02cposix\nsystem\nX\x01\x00\x00\x00a\x85R.", "whose module posix is blocked"),
        (b"\x80\x02ccollections\nCounter\n)R}X\x01\x00\x00\x00ab.", "Can only build"),
        (b"\x80\x02(ctorch\nTensor\no.", "Unsupported operand"),
    ],
)
def test_what_a_file_of_weights_may_not_do(body, message):
    data = rewritten(saved(torch.ones(2)), {"archive/data.pkl": body})
    with pytest.raises(pickle.UnpicklingError, match=message):
        loaded(data)


class Wrapped(torch.Tensor):
    __slots__ = ["inner"]

    def __new__(cls, inner):
        t = torch.Tensor._make_subclass(cls, inner.to("meta"))
        t.inner = inner
        return t


class WithState(torch.Tensor):
    def __getstate__(self):
        return ("kept", self.note)

    def __setstate__(self, state):
        self.note = state[1] + "!"


def test_subclasses_keep_slots_and_states():
    x = Wrapped(torch.arange(3.0))
    x.note = "n"
    y = torch.ones(2).as_subclass(WithState)
    y.note = "a"
    with torch.serialization.safe_globals([Wrapped, WithState]):
        again, other = loaded(saved([x, y]))
    for twin in (again, copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(twin) is Wrapped and twin.note == "n" and twin.inner.tolist() == [0, 1, 2]
    for twin in (other, copy.deepcopy(y), pickle.loads(pickle.dumps(y))):
        assert type(twin) is WithState and twin.note == "a!" and twin.tolist() == [1, 1]


def test_uninitialized_parameters_stay_so():
    state = nn.LazyLinear(3).state_dict()
    weight = loaded(saved(state))["weight"]
    assert isinstance(weight, nn.UninitializedParameter)


def test_places_of_ones_own():
    tags = []
    before = list(places._packages)
    torch.serialization.register_package(1, lambda storage: tags.append(1) or "shelf", lambda storage, where: storage)
    try:
        data = saved(torch.ones(2))
        assert tags and loaded(data).tolist() == [1, 1]
    finally:
        places._packages[:] = before
    with pytest.raises(RuntimeError, match="tagged with shelf"):
        loaded(data)


def test_slices_of_storages_share_memory():
    storage = torch.arange(4, dtype=torch.uint8).untyped_storage()
    part = storage[1:3]
    part[0] = 9
    assert storage.tolist() == [0, 9, 2, 3] and part.data_ptr() == storage.data_ptr() + 1
    with pytest.raises(RuntimeError, match="step of 2"):
        storage[::2]
