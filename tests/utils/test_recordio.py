"""RecordIO files. The expected bytes were checked against those that MXNet 1.9.1's own library writes."""

from __future__ import annotations

import io
import pickle
import random
import struct

import numpy as np
import pytest

import flambeau as torch
from flambeau.cli import main
from flambeau.utils import recordio
from flambeau.utils.data import DataLoader
from flambeau.utils.recordio import IRHeader, MXIndexedRecordIO, MXRecordIO, pack, pack_img, unpack, unpack_img

MAGIC = bytes.fromhex("0a23d7ce")


def written(tmp_path, *records):
    with MXRecordIO(tmp_path / "x.rec", "w") as file:
        for record in records:
            file.write(record)
    return (tmp_path / "x.rec").read_bytes()


def part(flag, data):
    return MAGIC + struct.pack("<I", flag << 29 | len(data)) + data + bytes(-len(data) % 4)


@pytest.mark.parametrize(
    "data, parts",
    [
        (b"", [(0, b"")]),
        (b"abcd", [(0, b"abcd")]),
        (b"abcdef", [(0, b"abcdef")]),
        (MAGIC, [(1, b""), (3, b"")]),
        (b"abcd" + MAGIC + b"xyz", [(1, b"abcd"), (3, b"xyz")]),
        (MAGIC + MAGIC + b"abcd" + MAGIC, [(1, b""), (2, b""), (2, b"abcd"), (3, b"")]),
        (b"a" + MAGIC + b"bcd", [(0, b"a" + MAGIC + b"bcd")]),  # not at a multiple of four: it needs no cut
    ],
)
def test_bytes_of_a_record(data, parts, tmp_path):
    assert written(tmp_path, data) == b"".join(part(*p) for p in parts)
    assert list(MXRecordIO(tmp_path / "x.rec", "r")) == [data]


def test_many_records_with_magic_numbers_inside(tmp_path):
    generator = random.Random(0)
    records = []
    for _ in range(200):
        data = generator.randbytes(generator.randint(0, 30))
        for _ in range(generator.randint(0, 3)):
            place = generator.randint(0, len(data))
            data = data[:place] + MAGIC + data[place:]
        records.append(data)
    with MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "w") as file:
        for number, data in enumerate(records):
            file.write_idx(number, data)
    with MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "r") as file:
        assert list(file) == records
        assert file.positions() == [file.idx[key] for key in file.keys]
        for number in generator.sample(range(200), 50):
            assert file.read_idx(number) == records[number]


def test_index_is_text(tmp_path):
    with MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "w") as file:
        assert file.tell() == 0
        for number in range(5):
            file.write_idx(number, f"record_{number}")
            assert file.tell() == 16 * (number + 1)
    assert (tmp_path / "x.idx").read_text() == "0\t0\n1\t16\n2\t32\n3\t48\n4\t64\n"
    with MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "r", key_type=str) as file:
        assert file.read_idx("3") == b"record_3"
        assert file.read() == b"record_4"
        assert file.read() is None
        file.reset()
        assert file.read() == b"record_0"


def test_misuse(tmp_path):
    with pytest.raises(ValueError, match="Invalid flag a"):
        MXRecordIO(tmp_path / "x.rec", "a")
    with pytest.raises(FileNotFoundError):
        MXRecordIO(tmp_path / "x.rec", "r")
    writer = MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "w")
    with pytest.raises(RuntimeError, match="open for writing only"):
        writer.read()
    with pytest.raises(RuntimeError, match="being written"):
        pickle.dumps(writer)
    writer.write_idx(1, b"one")
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"two")
    reader = MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "r")
    with pytest.raises(KeyError, match="no record 2"):
        reader.read_idx(2)
    with pytest.raises(RuntimeError, match="open for reading only"):
        reader.write(b"two")
    assert pickle.loads(pickle.dumps(reader)).read_idx(1) == b"one"


@pytest.mark.parametrize(
    "data",
    [
        b"abcdefgh", MAGIC, MAGIC + b"\0\0\0", part(0, b"abcd")[:-1], part(1, b"abcd"), part(2, b"abcd"), part(3, b"abcd"),
        part(1, b"abcd") + part(0, b"ab"), part(1, b"") + part(1, b""), MAGIC + struct.pack("<I", (1 << 29) - 1), part(5, b""),
    ],
)  # fmt: skip
def test_damaged_files(data, tmp_path):
    (tmp_path / "x.rec").write_bytes(data)
    file = MXRecordIO(tmp_path / "x.rec", "r")
    with pytest.raises(RuntimeError, match="Invalid RecordIO File"):
        file.read()
    file.reset()
    with pytest.raises(RuntimeError, match="Invalid RecordIO File"):
        file.positions()


@pytest.mark.parametrize("text", ["1", "1 2", "a\t0", "1\tb", "1\t-4"])
def test_damaged_index(text, tmp_path):
    written(tmp_path, b"abc")
    (tmp_path / "x.idx").write_text(f"0\t0\n{text}\n")
    with pytest.raises(RuntimeError, match="line 2"):
        MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "r")


def test_index_beyond_the_file(tmp_path):
    written(tmp_path, b"abc")
    (tmp_path / "x.idx").write_text(f"0\t0\n1\t{1 << 70}\n2\t12\n")
    file = MXIndexedRecordIO(tmp_path / "x.idx", tmp_path / "x.rec", "r")
    for key in (1, 2):
        with pytest.raises(RuntimeError, match="after the end"):
            file.read_idx(key)
    with pytest.raises(RuntimeError, match="after the end|end of the file"):
        recordio.RecordFileDataset(tmp_path / "x.rec")[1]


def test_pack_and_unpack():
    packed = pack(IRHeader(9, 4, 2574, 3), b"sample")
    assert packed == struct.pack("<IfQQ", 0, 4.0, 2574, 3) + b"sample"
    assert unpack(packed) == (IRHeader(0, 4.0, 2574, 3), b"sample")
    for labels in ([1, 2, 3], np.array([1.0, 2.0, 3.0]), torch.tensor([1, 2, 3])):
        packed = pack(IRHeader(0, labels, 1, 0), b"s")
        assert packed == struct.pack("<IfQQ3f", 3, 0, 1, 0, 1, 2, 3) + b"s"
    header, rest = unpack(packed)
    assert header.flag == 3 and header.label.tolist() == [1.0, 2.0, 3.0] and rest == b"s"
    assert repr(unpack(pack(IRHeader(0, 14, 20129312, 0), b""))[0]) == "HEADER(flag=0, label=14.0, id=20129312, id2=0)"
    with pytest.raises(RuntimeError, match="at least 24 bytes"):
        unpack(b"abc")
    with pytest.raises(RuntimeError, match="announces 3 labels"):
        unpack(struct.pack("<IfQQ", 3, 0, 1, 0) + b"abcd")


PIL = pytest.importorskip("PIL.Image", reason="reads and writes images: pip install pillow")


def picture(height=12, width=20, channels=3, seed=0):
    values = np.random.RandomState(seed).randint(0, 256, (height, width, channels), np.uint8)
    return values[..., 0] if channels == 1 else values


def test_images_in_records():
    bgr = picture()
    header, found = unpack_img(pack_img(IRHeader(0, 1, 2, 0), bgr, 9, ".png"), 1)
    assert np.array_equal(found, bgr) and header == IRHeader(0, 1.0, 2, 0)
    stored = unpack(pack_img(IRHeader(0, 1, 2, 0), bgr, 9, ".png"))[1]
    assert np.array_equal(np.asarray(PIL.open(io.BytesIO(stored))), bgr[..., ::-1])
    smooth = np.full((16, 16, 3), (200, 100, 50), np.uint8)
    found = unpack_img(pack_img(IRHeader(0, 1, 2, 0), smooth))[1]
    assert found.shape == (16, 16, 3) and abs(found.astype(int) - smooth).max() <= 3
    assert unpack_img(pack_img(IRHeader(0, 1, 2, 0), smooth), 0)[1].shape == (16, 16)
    for channels in (1, 4):
        image = picture(channels=channels)
        assert np.array_equal(unpack_img(pack_img(IRHeader(0, 1, 2, 0), image, 3, ".png"))[1], image)
    with pytest.raises(RuntimeError, match="cannot decode"):
        unpack_img(pack(IRHeader(0, 1, 2, 0), b"no image"))
    with pytest.raises(ValueError, match="expected an image"):
        pack_img(IRHeader(0, 1, 2, 0), bgr.astype(float))
    with pytest.raises(ValueError, match="img_fmt"):
        pack_img(IRHeader(0, 1, 2, 0), bgr, img_fmt=".bmp")


@pytest.fixture
def folder(tmp_path):
    for label, name in enumerate(["ants", "bees"]):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(5):
            image = np.full((20, 30 + number, 3), 40 * number + label, np.uint8)
            PIL.fromarray(image).save(tmp_path / "images" / name / f"{number}.png")
    (tmp_path / "images" / "ants" / "notes.txt").write_text("not an image")
    return tmp_path


def entries(path):
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_lists(folder, capsys):
    images, prefix = str(folder / "images"), str(folder / "all")
    assert main(["im2rec", prefix, images, "--list", "--recursive", "--no-shuffle"]) == 0
    assert capsys.readouterr().out == "ants 0\nbees 1\n"
    assert entries(folder / "all.lst") == [
        [str(5 * label + n), f"{label:f}", f"{name}/{n}.png"]
        for label, name in enumerate(["ants", "bees"])
        for n in range(5)
    ]
    assert main(["im2rec", prefix, images, "--list", "--recursive"]) == 0
    numbers = list(range(10))
    random.seed(100)
    random.shuffle(numbers)
    assert [int(e[0]) for e in entries(folder / "all.lst")] == numbers
    prefix = str(folder / "cut")
    assert main(["im2rec", prefix, images, "--list", "--recursive", "--train-ratio", "0.5", "--test-ratio", "0.2"]) == 0
    parts = [entries(folder / f"cut_{part}.lst") for part in ("test", "train", "val")]
    assert [len(p) for p in parts] == [2, 5, 3] and [int(e[0]) for p in parts for e in p] == numbers
    assert main(["im2rec", str(folder / "flat"), images, "--list"]) == 0
    assert entries(folder / "flat.lst") == []
    assert main(["im2rec", prefix, images, "--list", "--train-ratio", "0.9", "--test-ratio", "0.2"]) == 1
    assert main(["im2rec", prefix, str(folder / "absent"), "--list"]) == 1


@pytest.mark.parametrize("threads", ["1", "3"])
def test_records_of_images(threads, folder, capsys):
    images, prefix = str(folder / "images"), str(folder / "all")
    main(["im2rec", prefix, images, "--list", "--recursive"])
    assert main(["im2rec", prefix, images, "--encoding", ".png", "--quality", "3", "--num-thread", threads]) == 0
    captured = capsys.readouterr()
    assert "all.rec: 10 images" in captured.out and captured.err == ""
    data = recordio.ImageRecordDataset(folder / "all.rec", target_transform=int)
    order = [int(e[0]) for e in entries(folder / "all.lst")]
    assert len(data) == 10
    for (image, label), number in zip(data, order):
        assert label == number // 5 and image.size == (30 + number % 5, 20)
        assert image.getpixel((3, 3)) == (40 * (number % 5) + label,) * 3
    (folder / "all.idx").unlink()
    assert [label for _, label in recordio.ImageRecordDataset(folder / "all.rec", target_transform=int)] == [
        n // 5 for n in order
    ]


def test_resizing_grey_and_unchanged_files(folder):
    images, prefix = str(folder / "images"), str(folder / "all")
    main(["im2rec", prefix, images, "--list", "--recursive", "--no-shuffle"])
    main(["im2rec", prefix, images, "--resize", "10", "--color", "0"])
    data = recordio.ImageRecordDataset(folder / "all.rec", flag=-1)
    assert data[4][0].size == (17, 10) and data[4][0].mode == "L" and data[4][1] == 0.0
    main(["im2rec", prefix, images, "--center-crop", "--resize", "8"])
    assert recordio.ImageRecordDataset(folder / "all.rec")[4][0].size == (8, 8)
    main(["im2rec", prefix, images, "--pass-through"])
    record = recordio.RecordFileDataset(folder / "all.rec")[3]
    assert unpack(record)[1] == (folder / "images" / "ants" / "3.png").read_bytes()


def test_several_labels_and_bad_lines(folder, capsys):
    (folder / "boxes.lst").write_text(
        "0\t1.5\t2\t3\tants/0.png\nnonsense\n1\tx\tants/1.png\n2\t1\tabsent.png\n3\t1\tants/notes.txt\n4\t7\tbees/2.png\n"
    )
    assert main(["im2rec", str(folder / "boxes"), str(folder / "images"), "--pack-label"]) == 1
    captured = capsys.readouterr()
    assert "boxes.rec: 2 images, 2 left out" in captured.out
    for word in ("line 2", "line 3", "absent.png", "notes.txt"):
        assert word in captured.err
    data = recordio.ImageRecordDataset(folder / "boxes.rec")
    assert data[0][1].tolist() == [1.5, 2.0, 3.0] and data[1][1] == 7.0
    assert main(["im2rec", str(folder / "none"), str(folder / "images")]) == 1


def test_workers_open_the_file_themselves(folder):
    images, prefix = str(folder / "images"), str(folder / "all")
    main(["im2rec", prefix, images, "--list", "--recursive", "--no-shuffle"])
    main(["im2rec", prefix, images, "--encoding", ".png", "--quality", "1"])
    data = recordio.ImageRecordDataset(folder / "all.rec", transform=_corner, target_transform=int)
    assert data[0]  # the parent's file position must not matter
    found = [
        row for batch in DataLoader(data, batch_size=3, num_workers=2) for row in zip(*(b.tolist() for b in batch))
    ]
    assert found == [(40 * n + label, label) for label in range(2) for n in range(5)]


def _corner(image):
    return image.getpixel((0, 0))[0]
