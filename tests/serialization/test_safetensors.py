"""safetensors files: both ways with the package's own PyTorch functions, every dtype, hostile headers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.core import dtype as dt

package = pytest.importorskip("safetensors", reason="reads and writes safetensors files: pip install safetensors")
files = torch.safetensors
ROOT = Path(torch.__file__).parents[1]

# What the format can hold; of types with fewer than eight bits there are only the names. The package itself writes pairs of four bits but
# cannot read them.
DTYPES = [
    d for d in dt.BY_NAME.values() if not re.fullmatch(r"complex(128|32)|qu?int.*|u?int[1-7]|float4.*|bits.*", d.name)
]


def sample(lib):
    return {
        "a": lib.arange(12.0).reshape(3, 4),
        "scalar": lib.tensor(3),
        "empty": lib.zeros(0, 3),
        "half": lib.arange(5.0).to(lib.bfloat16),
        "flags": lib.tensor([True, False, True]),
        "long name with ünïcode": lib.arange(3),
    }


def hostile(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_round_trips(dtype, tmp_path):
    bits = torch.arange(24).to(torch.uint8)
    tensor = bits.remainder(2).bool() if dtype is torch.bool else bits.view(dtype)
    files.save_file({"x": tensor}, tmp_path / "x.safetensors")
    for again in (
        files.load_file(tmp_path / "x.safetensors"),
        files.load_file(tmp_path / "x.safetensors", backend="pread"),
        files.load(files.save({"x": tensor})),
    ):
        assert again["x"].dtype is dtype and again["x"].shape == tensor.shape
        assert again["x"].view(torch.uint8).tolist() == tensor.view(torch.uint8).tolist()


def assert_same(ours, theirs):
    assert sorted(ours) == sorted(theirs)
    for name, value in theirs.items():
        assert str(ours[name].dtype) == str(value.dtype) and tuple(ours[name].shape) == tuple(value.shape)
        assert np.array_equal(ours[name].double().numpy(), value.double().numpy())


def test_both_ways_with_pytorch(tmp_path):
    real = pytest.importorskip("torch", reason="PyTorch is the oracle of this test")
    theirs = pytest.importorskip("safetensors.torch", reason="PyTorch is the oracle of this test")
    theirs.save_file(sample(real), tmp_path / "theirs.safetensors", metadata={"format": "pt"})
    files.save_file(sample(torch), tmp_path / "ours.safetensors", metadata={"format": "pt"})
    assert_same(files.load_file(tmp_path / "theirs.safetensors"), sample(real))
    assert_same(sample(torch), theirs.load_file(tmp_path / "ours.safetensors"))
    assert_same(files.load(theirs.save(sample(real))), sample(real))
    assert_same(sample(torch), theirs.load(files.save(sample(torch))))
    first, second = (tmp_path / n for n in ("theirs.safetensors", "ours.safetensors"))
    assert first.read_bytes() == second.read_bytes()


def test_the_shape_of_a_file():
    data = files.save({"x": torch.tensor([1.0, 2.0])}, {"who": "me"})
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert header["x"] == {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    assert header["__metadata__"] == {"who": "me"}
    assert data[8 + length :] == np.array([1, 2], np.float32).tobytes()


def test_open_reads_what_is_asked_for(tmp_path):
    path = tmp_path / "x.safetensors"
    files.save_file(sample(torch), path, {"note": "hello"})
    with files.safe_open(path, framework="pt", device="cpu") as file:
        assert file.keys() == sorted(sample(torch)) and set(file.offset_keys()) == set(file.keys())
        assert file.metadata() == {"note": "hello"}
        part = file.get_slice("a")
        assert part.get_shape() == [3, 4] and part.get_dtype() == "F32"
        assert part[1:, ::2].tolist() == [[4.0, 6.0], [8.0, 10.0]]
        with pytest.raises(files.SafetensorError, match="does not contain tensor b"):
            file.get_tensor("b")
    with pytest.raises(files.SafetensorError, match="closed"):
        file.get_tensor("a")
    with files.safe_open(path, framework="numpy") as file:
        assert isinstance(file.get_tensor("a"), np.ndarray)


def test_loaded_tensors_are_private(tmp_path):
    path = tmp_path / "x.safetensors"
    files.save_file({"x": torch.zeros(3)}, path)
    loaded = files.load_file(path)["x"]
    loaded += 1
    assert loaded.tolist() == [1.0, 1.0, 1.0]
    assert files.load_file(path)["x"].tolist() == [0.0, 0.0, 0.0]


def test_unaligned_data_is_copied():
    data = hostile(
        {
            "b": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
            "x": {"dtype": "F64", "shape": [2], "data_offsets": [1, 17]},
        },
        b"\7" + np.array([1.5, 2.5]).tobytes(),
    )
    found = files.load(data)
    assert found["x"].tolist() == [1.5, 2.5] and found["b"].tolist() == [7]
    assert (found["x"] * 2).tolist() == [3.0, 5.0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 7,
        b"\xff" * 8,
        hostile({}, length=1 << 62),
        hostile(b"not json"),
        hostile(b'{"x": ' + b"[" * 100000),
        hostile({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"\0" * 4),
        hostile({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}),
        hostile({"x": {"dtype": "F32", "shape": [1 << 62, 4], "data_offsets": [0, 0]}}),
        hostile({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"\0" * 4),
        hostile({"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"\0" * 8),
        hostile({"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, b"\0" * 8),
        hostile({"x": {"dtype": "Q99", "shape": [1], "data_offsets": [0, 4]}}, b"\0" * 4),
        hostile({"x": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}, b"\0"),
        hostile({"x": {"dtype": "F32", "shape": [0, (1 << 64) - 1], "data_offsets": [0, 0]}}),
        hostile({"__metadata__": {"a": 1}}),
    ],
)
def test_hostile_files(data, tmp_path):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises(files.SafetensorError):
        files.load_file(path)
    with pytest.raises(files.SafetensorError):
        files.load(data)


def test_what_cannot_be_saved(tmp_path):
    path = tmp_path / "x.safetensors"
    a = torch.ones(3, 4)
    for tensors, problem, message in [
        ({"x": a.t()}, ValueError, "non contiguous tensor: `x`"),
        ({"x": a, "y": a}, RuntimeError, "share memory"),
        ({"x": a, "y": a[1]}, RuntimeError, "share memory"),
        ({"x": 3}, ValueError, "expected torch.Tensor"),
        ([a], ValueError, "Expected a dict"),
        ({"x": a.to(torch.complex128)}, ValueError, "complex128"),
        ({"x": torch.empty(2, device="meta")}, RuntimeError, "meta"),
    ]:
        with pytest.raises(problem, match=message):
            files.save_file(tensors, path)
    assert os.listdir(tmp_path) == []
    files.save_file({"x": a[0], "y": a[1]}, path)  # parts that do not overlap
    with pytest.raises(RuntimeError, match="does not exist"):
        files.save_file({"x": a}, tmp_path / "nowhere" / "x.safetensors")
    with pytest.raises(TypeError):
        files.save_file({"x": a}, path, {"count": 3})
    assert sorted(files.load_file(path)) == ["x", "y"] and os.listdir(tmp_path) == ["x.safetensors"]
    with pytest.raises(FileNotFoundError):
        files.load_file(tmp_path / "absent.safetensors")


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight


def test_models_with_tied_weights(tmp_path):
    path = tmp_path / "m.safetensors"
    model, other = Tied(), Tied()
    with pytest.raises(RuntimeError, match="share memory"):
        files.save_file(model.state_dict(), path)
    files.save_model(model, path)
    assert "second.weight" not in files.load_file(path)
    assert files.load_model(other, path) == (set(), [])
    assert torch.equal(other.second.weight, model.first.weight) and other.second.weight is other.first.weight
    with pytest.raises(RuntimeError, match='Missing key.*"weight"'):
        files.load_model(nn.Linear(3, 3), path)
    missing, unexpected = files.load_model(nn.Linear(3, 3), path, strict=False)
    assert missing == {"weight", "bias"} and len(unexpected) == 3


def test_without_the_package(monkeypatch, tmp_path):
    monkeypatch.setattr("flambeau.serialization.safetensors._package", None)
    with pytest.raises(ImportError, match="pip install 'flambeau\\[safetensors\\]'"):
        files.load_file(tmp_path / "x.safetensors")


LARGE = """
import sys, time
import torch
from safetensors.torch import load_file
started = time.perf_counter()
loaded = load_file(sys.argv[1])
assert "flambeau" in torch.__file__
assert len(loaded) == 25 and loaded["7"].shape == (5, 1000, 1000) and loaded["7"].dtype is torch.float32
assert loaded["7"][0, 0, 0].item() == 0
print(time.perf_counter() - started)
"""


def test_the_packages_own_functions_share_memory(tmp_path):
    """500 MB that are a hole in the file: whoever reads each byte takes minutes, who maps them milliseconds."""
    each = 4 * 5_000_000
    header = {
        str(i): {"dtype": "F32", "shape": [5, 1000, 1000], "data_offsets": [i * each, (i + 1) * each]}
        for i in range(25)
    }
    path, program = tmp_path / "large.safetensors", tmp_path / "load.py"
    text = json.dumps(header).encode()
    path.write_bytes(hostile(text + b" " * (-len(text) % 8)))
    os.truncate(path, path.stat().st_size + 25 * each)
    program.write_text(LARGE)
    command = [sys.executable, "-m", "flambeau", str(program), str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 2
