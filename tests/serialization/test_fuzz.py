"""Ten thousand damaged files: each either still loads or raises a clean error; none crashes, hangs or asks for much memory."""

from __future__ import annotations

import collections
import io
import os
import pickle
import random
import resource
import signal
import struct
import zipfile

import pytest

import flambeau as torch
from flambeau.core.storage import UntypedStorage
from flambeau.serialization import reader, safetensors
from flambeau.utils.recordio import IRHeader, MXIndexedRecordIO, MXRecordIO, pack, unpack

PER_TEST = 500
SECONDS_PER_FILE = 5
MOST_BYTES = 1 << 20  # the files have a few thousand bytes
EXTREMES = [
    0,
    1,
    0x7F,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    (1 << 62) + 1,
    (1 << 63) - 1,
    (1 << 64) - 1,
]
CLEAN = {
    "checkpoint": (RuntimeError, pickle.UnpicklingError, EOFError),
    "safetensors": (safetensors.SafetensorError,),
    "records": (RuntimeError,),
}


def damage(data: bytes, generator: random.Random) -> bytes:
    """A few of: set, flip, cut, insert, repeat, swap, an extreme number over the bytes, the end cut off."""
    out = bytearray(data)
    for _ in range(generator.choice([1, 1, 1, 2, 3, 5])):
        if not out:
            break
        place = generator.randrange(len(out))
        length = generator.randint(1, 40)
        kind = generator.randrange(8)
        if kind == 0:
            out[place] = generator.randrange(256)
        elif kind == 1:
            out[place] ^= 1 << generator.randrange(8)
        elif kind == 2:
            del out[place : place + length]
        elif kind == 3:
            out[place:place] = generator.randbytes(length)
        elif kind == 4:
            out[place:place] = out[place : place + length]
        elif kind == 5:
            other = generator.randrange(len(out))
            out[place], out[other] = out[other], out[place]
        elif kind == 6:
            number = generator.choice(EXTREMES).to_bytes(8, "little")[: generator.choice([1, 2, 4, 8])]
            out[place : place + len(number)] = number
        else:
            del out[generator.randrange(len(out)) :]
    return bytes(out)


def checkpoint(zipped: bool) -> bytes:
    shared = torch.arange(6.0).reshape(2, 3)
    file = io.BytesIO()
    contents = {
        "w": shared, "t": shared.t(), "i": [1, "a", None, 2.5, b"raw", {3}], "o": collections.OrderedDict(k=torch.ones(2, dtype=torch.bfloat16)),
        "p": torch.nn.Parameter(torch.ones(2)), "u": torch.arange(3).to(torch.uint16), "e": torch.zeros(0, 2),
    }  # fmt: skip
    torch.save(contents, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


def repacked(data: bytes, generator: random.Random) -> bytes:
    """An archive with right checksums whose pickle or names are damaged: damage that gets past the zip format."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        records = [(info.filename, old.read(info)) for info in old.infolist()]
        victim = generator.choice([0, 0, 0, generator.randrange(len(records))])
        for number, (name, contents) in enumerate(records):
            new.writestr(name, damage(contents, generator) if number == victim else contents)
    return file.getvalue()


def use(value) -> None:
    """Read every tensor to its last byte: one that reaches outside its storage must not have been made."""
    if isinstance(value, torch.Tensor):
        value.detach().clone().double().sum().item()
    elif isinstance(value, dict):
        for item in value.values():
            use(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            use(item)


def careful_storage(nbytes=0, *where):
    assert nbytes <= MOST_BYTES, f"a damaged file of a few thousand bytes made room for {nbytes}"
    return UntypedStorage(nbytes, *where)


careful_storage.borrow = UntypedStorage.borrow


@pytest.fixture(autouse=True)
def watched(monkeypatch):
    """No file takes long, none makes room for much more than it holds."""

    def too_long(*_):
        raise AssertionError("a damaged file is read for ever")

    monkeypatch.setattr(reader, "UntypedStorage", careful_storage)
    before = signal.signal(signal.SIGALRM, too_long)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held < 300_000  # kB


def outcome(read, clean) -> str:
    signal.setitimer(signal.ITIMER_REAL, SECONDS_PER_FILE)
    try:
        use(read())
    except clean as problem:
        return type(problem).__name__
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "loaded"


def survey(outcomes: collections.Counter) -> None:
    """The damage must be real: most files fail, and some still load."""
    assert sum(outcomes.values()) == PER_TEST
    assert outcomes["loaded"] < PER_TEST * 0.8, outcomes


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["zip", "repacked zip", "legacy"])
def test_damaged_checkpoints(kind, seed):
    generator = random.Random(f"{kind} {seed}")
    whole = checkpoint(kind != "legacy")
    spoil = repacked if kind == "repacked zip" else damage
    found = collections.Counter()
    for _ in range(PER_TEST):
        data = spoil(whole, generator)
        found[outcome(lambda: torch.load(io.BytesIO(data)), CLEAN["checkpoint"])] += 1
    survey(found)


@pytest.mark.parametrize("seed", range(3))
def test_damaged_safetensors(seed, tmp_path):
    pytest.importorskip("safetensors", reason="reads safetensors files: pip install safetensors")
    generator = random.Random(seed)
    whole = torch.safetensors.save(
        {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.bfloat16), "e": torch.zeros(0, 2)},
        {"format": "pt"},
    )
    header = 8 + int.from_bytes(whole[:8], "little")
    path = tmp_path / "x.safetensors"
    found = collections.Counter()
    for number in range(PER_TEST):
        data = damage(whole[:header], generator) + whole[header:] if number % 4 else damage(whole, generator)
        path.write_bytes(data)
        found[outcome(lambda: torch.safetensors.load_file(path), CLEAN["safetensors"])] += 1
        found_in_memory = outcome(lambda: torch.safetensors.load(data), CLEAN["safetensors"])
        assert found_in_memory in ("loaded", "SafetensorError")
    survey(found)


def read_records(folder) -> list:
    with MXRecordIO(folder / "x.rec", "r") as file:
        for place in file.positions():
            unpack(file.read_at(place))
    with MXIndexedRecordIO(folder / "x.idx", folder / "x.rec", "r") as file:
        return [len(unpack(file.read_idx(key))[1]) for key in file.keys]


@pytest.mark.parametrize("seed", range(2))
def test_damaged_records(seed, tmp_path):
    generator = random.Random(seed)
    with MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "w") as file:
        for number in range(12):
            label = number if number % 2 else [number, 1.0, 2.0]
            data = struct.pack("<I", 0xCED7230A) * (number % 3) + os.urandom(number)
            file.write_idx(number, pack(IRHeader(0, label, number, 0), data))
    whole = {name: (tmp_path / name).read_bytes() for name in ("x.rec", "x.idx")}
    found = collections.Counter()
    for number in range(PER_TEST):
        name = "x.rec" if number % 4 else "x.idx"
        (tmp_path / name).write_bytes(damage(whole[name], generator))
        found[outcome(lambda: read_records(tmp_path), CLEAN["records"])] += 1
        (tmp_path / name).write_bytes(whole[name])
    survey(found)
