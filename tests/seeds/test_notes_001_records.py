"""Programs of the second notes file: MXNet's record files. Its `mx.recordio` is `flambeau.utils.recordio`."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau.utils.recordio import IRHeader, MXIndexedRecordIO, MXRecordIO, pack, pack_img, unpack, unpack_img


@pytest.fixture(autouse=True)
def library():
    """These programs are MXNet's, not PyTorch's: they run once."""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_writing_and_reading_in_order():
    record = MXRecordIO("tmp.rec", "w")
    for i in range(3):
        record.write("record_%d" % i)  # noqa: UP031  as the notes have it
    record.close()
    record = MXRecordIO("tmp.rec", "r")
    assert [record.read() for _ in range(3)] == [b"record_0", b"record_1", b"record_2"]
    assert record.read() is None
    record.close()


def test_padding_between_records(folder):
    """Each record follows eight bytes of its own; the notes' lengths are padded to the places they list."""
    lengths = [5760, 6742, 6773]
    record = MXIndexedRecordIO("data.idx", "data.rec", "w")
    for i, length in enumerate(lengths, start=1):
        record.write_idx(i, bytes(length))
    record.write_idx(4, b"")
    record.close()
    assert (folder / "data.idx").read_text() == "1\t0\n2\t5768\n3\t12520\n4\t19304\n"
    record = MXRecordIO("data.rec", "r")
    assert [len(record.read()) for _ in range(3)] == lengths


def test_reading_any_record():
    record = MXIndexedRecordIO("tmp.idx", "tmp.rec", "w")
    for i in range(5):
        record.write_idx(i, "record_%d" % i)  # noqa: UP031  as the notes have it
    record.close()
    record = MXIndexedRecordIO("tmp.idx", "tmp.rec", "r")
    assert record.read_idx(3) == b"record_3"


def test_samples_with_headers():
    header = IRHeader(flag=0, label=4.0, id=2574, id2=0)
    assert unpack(pack(header, b"sample")) == (header, b"sample")
    pytest.importorskip("PIL", reason="packs images: pip install pillow")
    img = np.full((8, 10, 3), (250, 20, 30), np.uint8)  # (H, W, 3), blue first
    again, decoded = unpack_img(pack_img(header, img, quality=95, img_fmt=".jpg"), iscolor=-1)
    assert again == header and decoded.shape == (8, 10, 3)
    assert abs(decoded.astype(int) - img).max() <= 5
