"""Checkpoints: round trips, sharing, safety, damage."""

from __future__ import annotations

import collections
import io
import os
import pickle
import zipfile

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.bool, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64,
]  # fmt: skip


def sample(lib):
    a = lib.arange(12.0).reshape(3, 4)
    return collections.OrderedDict(
        a=a, view=a.t()[1:], b=lib.arange(5), c=lib.tensor([True, False]), bf=lib.ones(3, dtype=lib.bfloat16),
        cx=lib.ones(2, dtype=lib.complex64), n=[1, 2.5, "x", None, (1, 2), {"k": b"bytes"}], dt=lib.float16, sz=a.shape,
        dev=lib.device("cpu"), p=lib.nn.Parameter(lib.ones(2)), rg=lib.ones(1).requires_grad_(), s={1, 2}, e=lib.zeros(0, 3),
    )  # fmt: skip


def plain(t):
    t = t.detach()
    return (t.float() if "bfloat16" in str(t.dtype) else t).numpy()


def assert_same(x, y):
    assert list(x) == list(y)
    for k in x:
        u, v = x[k], y[k]
        if not hasattr(u, "stride"):
            assert str(u) == str(v)
            continue
        assert tuple(u.shape) == tuple(v.shape) and tuple(u.stride()) == tuple(v.stride())
        assert str(u.dtype) == str(v.dtype) and u.requires_grad == v.requires_grad
        assert type(u).__name__ == type(v).__name__
        assert np.array_equal(plain(u), plain(v))
    assert x["a"].untyped_storage().data_ptr() == x["view"].untyped_storage().data_ptr()


@pytest.mark.parametrize("zipped", [True, False])
def test_round_trip(zipped):
    file = io.BytesIO()
    torch.save(sample(torch), file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    assert_same(torch.load(file), sample(torch))


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("direction", ["to torch", "from torch"])
def test_round_trip_with_pytorch(zipped, direction):
    real = pytest.importorskip("torch", reason="PyTorch is the oracle of this test")
    source, target = (torch, real) if direction == "to torch" else (real, torch)
    file = io.BytesIO()
    source.save(sample(source), file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    assert_same(target.load(file), sample(source))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype, tmp_path):
    t = torch.arange(6).to(dtype).reshape(2, 3).t()
    torch.save(t, tmp_path / "t.pt")
    again = torch.load(tmp_path / "t.pt")
    assert again.dtype is dtype and again.stride() == t.stride() and again.tolist() == t.tolist()


def test_whole_module_and_optimizer_state():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model, "optim": optimizer.state_dict(), "weights": model.state_dict()}, file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="Unsupported global"):
        torch.load(file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert repr(loaded["model"]) == repr(model)
    x = torch.ones(1, 3)
    assert torch.equal(loaded["model"](x), model(x))
    optimizer.load_state_dict(loaded["optim"])


def test_module_written_here_opens_in_pytorch():
    real = pytest.importorskip("torch", reason="PyTorch is the oracle of this test")
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    twin = real.load(file, weights_only=False)
    assert isinstance(twin, real.nn.Sequential)
    x = torch.ones(2, 1, 4, 4)
    assert np.allclose(twin.eval()(real.ones(2, 1, 4, 4)).detach().numpy(), model.eval()(x).detach().numpy(), atol=1e-6)


def test_mapped_file_and_locations(tmp_path):
    path = tmp_path / "big.pt"
    torch.save({"x": torch.arange(1000.0)}, path)
    mapped = torch.load(path, mmap=True)["x"]
    assert mapped.sum().item() == 499500.0
    mapped[0] = 5  # private: the file stays as it is
    assert torch.load(path)["x"][0].item() == 0.0
    assert torch.load(path, map_location="meta")["x"].device.type == "meta"
    assert torch.load(path, map_location=lambda storage, location: storage)["x"][1].item() == 1.0
    with pytest.raises(ValueError, match="file path"):
        torch.load(io.BytesIO(path.read_bytes()), mmap=True)


class Evil:
    def __reduce__(self):
        return (os.system, ("echo pwned",))


def test_no_code_runs_by_default():
    file = io.BytesIO()
    torch.save({"x": Evil()}, file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="system"):
        torch.load(file)


class Settings:
    def __init__(self, rate):
        self.rate = rate


def test_safe_globals():
    file = io.BytesIO()
    torch.save(Settings(0.1), file)
    file.seek(0)
    with torch.serialization.safe_globals([Settings]):
        assert torch.load(file).rate == 0.1
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(file)


def test_a_crash_while_saving_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.pt"
    torch.save(torch.ones(3), path)

    class Bomb:
        def __reduce__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        torch.save([torch.zeros(3), Bomb()], path)
    assert torch.load(path).tolist() == [1.0, 1.0, 1.0]
    assert os.listdir(tmp_path) == ["model.pt"]


def test_empty_and_unrelated_files(tmp_path):
    with pytest.raises(EOFError):
        torch.load(io.BytesIO(b""))
    with pytest.raises((RuntimeError, pickle.UnpicklingError)):
        torch.load(io.BytesIO(b"not a checkpoint at all"))
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "missing.pt")
    with pytest.raises(RuntimeError, match="does not exist"):
        torch.save(torch.ones(1), tmp_path / "nowhere" / "x.pt")


def test_no_room_is_made_for_what_the_file_cannot_hold():
    file = io.BytesIO()
    torch.save(torch.ones(7), file, _use_new_zipfile_serialization=False)
    small, huge = b"K\x07Nt", b"\x8a\x06" + (1 << 45).to_bytes(6, "little") + b"Nt"
    assert file.getvalue().count(small) == 1
    with pytest.raises(RuntimeError, match="more than the file"):
        torch.load(io.BytesIO(file.getvalue().replace(small, huge)))


def test_other_pickle_modules():
    class Counting(pickle._Pickler):
        dumps = 0

        def dump(self, obj):
            Counting.dumps += 1
            super().dump(obj)

    class Failing(pickle.Unpickler):
        def load(self):
            raise RuntimeError("this one")

    file = io.BytesIO()
    torch.save(sample(torch), file, pickle_module=type("other", (), {"Pickler": Counting}))
    assert Counting.dumps == 1
    file.seek(0)
    assert_same(torch.load(file, pickle_module=pickle, weights_only=False), sample(torch))
    file.seek(0)
    other = type("other", (), {"Pickler": pickle.Pickler, "Unpickler": pickle.Unpickler})
    assert_same(torch.load(file, pickle_module=other, weights_only=False), sample(torch))
    file.seek(0)
    with pytest.raises(RuntimeError, match="this one"):
        torch.load(file, pickle_module=type("other", (), {"Unpickler": Failing}), weights_only=False)
    with pytest.raises(NotImplementedError, match="PyTorch's names"):
        torch.save({}, io.BytesIO(), pickle_module=type("other", (), {"Pickler": io.BytesIO}))


def test_a_pickler_over_pickles_c_code_writes_the_same_file():
    class Doubling(pickle.Pickler):
        """Writes functions as cloudpickle does: by a method of its own that C code asks."""

        def __init__(self, file, protocol=None, *, doubled=2):
            super().__init__(file, protocol=protocol)
            self.doubled = doubled

        def reducer_override(self, obj):
            return (float, (str(obj.real * self.doubled),)) if isinstance(obj, complex) else NotImplemented

    files = io.BytesIO(), io.BytesIO()
    torch.save(sample(torch), files[0])
    torch.save(sample(torch), files[1], pickle_module=type("other", (), {"Pickler": Doubling}))
    assert files[0].getvalue() == files[1].getvalue()
    file = io.BytesIO()
    torch.save({"three": 3 + 3j, "kind": torch.float16}, file, pickle_module=type("other", (), {"Pickler": Doubling}))
    file.seek(0)
    assert torch.load(file, weights_only=False) == {"three": 6.0, "kind": torch.float16}


def test_environment_decides_about_unsafe_files(tmp_path, monkeypatch):
    path = tmp_path / "array.pt"
    torch.save(np.arange(3), path)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    assert torch.load(path).tolist() == [0, 1, 2]
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path, weights_only=True)
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(RuntimeError, match="both were set"):
        torch.load(path)
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path, weights_only=False)


class Preferences:
    pass


def test_refused_names_are_given_in_full_and_can_be_allowed():
    cases = [
        (slice(1, 2), "slice", slice),
        (range(3), "range", range),
        (Preferences(), f"{__name__}.Preferences", Preferences),
    ]
    for obj, name, kind in cases:
        data = io.BytesIO()
        torch.save(obj, data)
        data.seek(0)
        with pytest.raises(pickle.UnpicklingError, match=rf"GLOBAL {name} .*add_safe_globals\(\[{name}\]\)"):
            torch.load(data)
        data.seek(0)
        assert torch.serialization.get_unsafe_globals_in_checkpoint(data)[0] == name
        data.seek(0)
        with torch.serialization.safe_globals([kind]):
            assert type(torch.load(data)) is kind
            data.seek(0)
            assert torch.serialization.get_unsafe_globals_in_checkpoint(data) == []


@pytest.mark.parametrize("protocol", [2, 4])
def test_unsafe_names_of_a_file(protocol, tmp_path):
    torch.save([torch.nn.Linear(1, 1), {"a": Preferences()}], tmp_path / "a.pt", pickle_protocol=protocol)
    names = torch.serialization.get_unsafe_globals_in_checkpoint(tmp_path / "a.pt")
    assert names == sorted([f"{__name__}.Preferences", "torch.nn.modules.linear.Linear"])
    (tmp_path / "b.pt").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="Expected input to be a checkpoint"):
        torch.serialization.get_unsafe_globals_in_checkpoint(tmp_path / "b.pt")


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("direction", ["from", "to", "here"])
def test_storages_and_generators(direction, zipped):
    real = pytest.importorskip("torch", reason="PyTorch is the oracle of this test")
    writer = real if direction == "from" else torch
    reader = real if direction == "to" else torch
    generator = writer.Generator().manual_seed(5)
    writer.rand(3, generator=generator)
    data = io.BytesIO()
    storage = writer.arange(3.0).untyped_storage()
    saved = [storage, writer.TypedStorage([1, 2], dtype=writer.int16)]
    if zipped:  # the older format has the bytes of tensors last, too late for a generator
        saved.append(generator)
    writer.save(saved, data, _use_new_zipfile_serialization=zipped)
    data.seek(0)
    untyped, typed, *again = reader.load(data, weights_only=False)
    assert untyped.tolist() == storage.tolist() and typed.tolist() == [1, 2] and typed.dtype is reader.int16
    for loaded in again:
        assert reader.rand(4, generator=loaded).tolist() == writer.rand(4, generator=generator).tolist()


@pytest.mark.parametrize(
    ("file", "root"), [("model.pt", "model"), ("a.b.pth", "a.b"), ("plain", "plain"), ("é.pt", "archive")]
)
def test_the_folder_in_the_archive_is_named_after_the_file(file, root, tmp_path):
    torch.save({"a": torch.ones(2)}, tmp_path / file)
    with zipfile.ZipFile(tmp_path / file) as archive:
        assert {name.split("/")[0] for name in archive.namelist()} == {root}
    assert torch.load(tmp_path / file)["a"].tolist() == [1.0, 1.0]
    real = pytest.importorskip("torch", reason="PyTorch is the oracle of this test")
    assert real.load(tmp_path / file)["a"].tolist() == [1.0, 1.0]
