"""RecordIO, MXNet's format for large sets of samples: records one after another in a .rec file, their places in a .idx file.

A record is the magic number, a word with a flag (3 bits) and a length (29 bits), and the data, padded with zeros to a
multiple of four bytes. Where the data hold the magic number at such a multiple, it is left out and the record is cut in
parts there (flag 1 the first part, 2 those between, 3 the last; 0 is a whole record): so a reader that starts anywhere in a
file finds the next record by looking for the number. The .idx file has one line `key<tab>position` per record.
"""

from __future__ import annotations

import io
import os
import struct
from collections import namedtuple
from collections.abc import Callable, Iterator
from numbers import Number
from typing import Any

import numpy as np

from ..core.dtype import float32
from ..core.tensor import Tensor, copy_of_array
from .data import Dataset
from .pillow import decode, pillow

__all__ = [
    "IRHeader", "ImageRecordDataset", "MXIndexedRecordIO", "MXRecordIO", "RecordFileDataset", "pack", "pack_img", "unpack",
    "unpack_img",
]  # fmt: skip

MAGIC = struct.pack("<I", 0xCED7230A)
LARGEST = (1 << 29) - 1
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_HEADER = struct.Struct("<IfQQ")


def _encode(data: bytes) -> bytes:
    """Encode a record as it is stored in a file."""
    if len(data) > LARGEST:
        raise ValueError(f"a record has less than 2^29 bytes, got {len(data)}")
    cuts = _aligned_magic(data)
    if not cuts:
        return _part(_WHOLE, data)
    starts, ends = [0, *(c + 4 for c in cuts)], [*cuts, len(data)]
    flags = [_FIRST] + [_MIDDLE] * (len(cuts) - 1) + [_LAST]
    return b"".join(_part(flag, data[a:b]) for flag, a, b in zip(flags, starts, ends))


def _aligned_magic(data: bytes) -> list[int]:
    found = []
    position = data.find(MAGIC)
    while position >= 0:
        aligned = position % 4 == 0
        if aligned:
            found.append(position)
        position = data.find(MAGIC, position + (4 if aligned else 1))
    return found


def _part(flag: int, data: bytes) -> bytes:
    return MAGIC + struct.pack("<I", flag << 29 | len(data)) + data + bytes(-len(data) % 4)


class MXRecordIO:
    """Record file `uri`, read (`flag` "r") or written ("w") from its beginning to its end.

    >>> record = MXRecordIO("tmp.rec", "w")
    >>> record.write(b"one")
    >>> record.close()
    >>> MXRecordIO("tmp.rec", "r").read()
    b'one'
    """

    def __init__(self, uri: Any, flag: str):
        if flag not in ("r", "w"):
            raise ValueError(f"Invalid flag {flag}: 'r' reads, 'w' writes")
        self.uri = os.fspath(uri)
        self.flag = flag
        self.writable = flag == "w"
        self.pid: int | None = None
        self.is_open = False
        self.open()

    def open(self) -> None:
        self.handle = open(self.uri, self.flag + "b")  # noqa: SIM115  closed by close
        self.pid = os.getpid()
        self.is_open = True

    def close(self) -> None:
        if self.is_open:
            self.handle.close()
            self.is_open = False
            self.pid = None

    def reset(self) -> None:
        """Return to the first record; a file being written becomes empty."""
        self.close()
        self.open()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *problem: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "is_open", False):
            self.close()

    def __getstate__(self) -> dict:
        state = dict(self.__dict__)
        if self.writable and self.is_open:
            raise RuntimeError(f"{self.uri} is being written: it cannot be handed to another process")
        state.pop("handle", None)
        return state

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        if state["is_open"]:
            self.open()

    def _check(self, writing: bool, fresh: bool = False) -> None:
        """Raise unless the file is open, for the right purpose, and by this process: two processes cannot share a file position."""
        if self.writable != writing:
            raise RuntimeError(f"{self.uri} is open for {'writing' if self.writable else 'reading'} only")
        if not self.is_open:
            raise ValueError(f"{self.uri} is closed")
        if self.pid != os.getpid():
            if not fresh:
                raise RuntimeError("Forbidden operation in multiple processes")
            self.reset()

    def write(self, buf: bytes | str) -> None:
        """Append a record; text is written as UTF-8."""
        self._check(writing=True)
        self.handle.write(_encode(buf.encode() if isinstance(buf, str) else bytes(buf)))

    def read(self) -> bytes | None:
        """Return the next record, or None at the end of the file."""
        self._check(writing=False)
        first = self._read_part((_WHOLE, _FIRST))
        if first is None or first[0] == _WHOLE:
            return first and first[1]
        parts = [first[1]]
        flag = _FIRST
        while flag != _LAST:
            following = self._read_part((_MIDDLE, _LAST))
            if following is None:
                raise RuntimeError(f"Invalid RecordIO File {self.uri}: it ends within a record")
            flag, data = following
            parts.append(data)
        return MAGIC.join(parts)

    def _read_part(self, allowed: tuple[int, int], skip: bool = False) -> tuple[int, bytes] | None:
        place = self.handle.tell()
        head = self.handle.read(8)
        if not head:
            return None
        if len(head) < 8 or head[:4] != MAGIC:
            raise RuntimeError(f"Invalid RecordIO File {self.uri}: no record at byte {place}")
        (word,) = struct.unpack("<I", head[4:])
        flag, length = word >> 29, word & LARGEST
        if flag not in allowed:
            raise RuntimeError(f"Invalid RecordIO File {self.uri}: the record at byte {place} has flag {flag}")
        padded = length + -length % 4
        if place + 8 + padded > os.fstat(self.handle.fileno()).st_size:  # before room for it is made
            raise RuntimeError(f"Invalid RecordIO File {self.uri}: the record at byte {place} ends after the file")
        if skip:
            self.handle.seek(padded, os.SEEK_CUR)
            return flag, b""
        return flag, self.handle.read(padded)[:length]

    def __iter__(self) -> Iterator[bytes]:
        while (data := self.read()) is not None:
            yield data

    def positions(self) -> list[int]:
        """Return the offset of each record, from the first to the last; reading continues at the first."""
        self._check(writing=False)
        self.handle.seek(0)
        found = []
        inside = False
        while True:
            place = self.handle.tell()
            part = self._read_part((_MIDDLE, _LAST) if inside else (_WHOLE, _FIRST), skip=True)
            if part is None:
                break
            if not inside:
                found.append(place)
            inside = part[0] in (_FIRST, _MIDDLE)
        if inside:
            raise RuntimeError(f"Invalid RecordIO File {self.uri}: it ends within a record")
        self.handle.seek(0)
        return found

    def read_at(self, place: int) -> bytes:
        """Return the record that starts at this byte of the file."""
        self._seek(place)
        data = self.read()
        assert data is not None  # _seek refuses places at the end
        return data

    def _seek(self, place: int) -> None:
        self._check(writing=False, fresh=True)
        if place > os.fstat(self.handle.fileno()).st_size - 8:
            raise RuntimeError(f"{self.uri}: a record is said to be at byte {place}, after the end of the file")
        self.handle.seek(place)


class MXIndexedRecordIO(MXRecordIO):
    """Record file `uri` with an index `idx_path`: any record can be read by its key, a `key_type`. `flag` is "r" or "w".

    >>> record = MXIndexedRecordIO("tmp.idx", "tmp.rec", "w")
    >>> record.write_idx(7, b"seven")
    >>> record.close()
    >>> MXIndexedRecordIO("tmp.idx", "tmp.rec", "r").read_idx(7)
    b'seven'
    """

    def __init__(self, idx_path: Any, uri: Any, flag: str, key_type: Callable[..., Any] = int):
        self.idx_path = os.fspath(idx_path)
        self.key_type = key_type
        self.idx: dict[Any, int] = {}
        self.keys: list = []
        self.fidx: Any = None
        super().__init__(uri, flag)

    def open(self) -> None:
        super().open()
        if self.writable:
            self.idx, self.keys = {}, []
            self.fidx = open(self.idx_path, "w")  # noqa: SIM115  closed by close
        elif not self.idx:
            self._read_index()

    def _read_index(self) -> None:
        with open(self.idx_path, encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                fields = line.strip().split("\t")
                if fields == [""]:
                    continue
                try:
                    key, place = self.key_type(fields[0]), int(fields[1])
                except (ValueError, IndexError):
                    place = -1
                if place < 0:
                    raise RuntimeError(
                        f"{self.idx_path}, line {number}: expected a key, a tab and a position, got {line[:80]!r}"
                    )
                self.idx[key] = place
                self.keys.append(key)

    def close(self) -> None:
        if self.is_open and self.fidx is not None:
            self.fidx.close()
            self.fidx = None
        super().close()

    def seek(self, idx: Any) -> None:
        """Move to the record with this key, which the next `read` returns."""
        if idx not in self.idx:
            raise KeyError(f"{self.idx_path} has no record {idx!r}")
        self._seek(self.idx[idx])

    def tell(self) -> int:
        """Return the offset at which the next record will be written."""
        self._check(writing=True)
        return self.handle.tell()

    def read_idx(self, idx: Any) -> bytes:
        self.seek(idx)
        data = self.read()
        assert data is not None  # seek refuses places at the end
        return data

    def write_idx(self, idx: Any, buf: bytes | str) -> None:
        key = self.key_type(idx)
        place = self.tell()
        self.write(buf)
        self.fidx.write(f"{key}\t{place}\n")
        self.idx[key] = place
        self.keys.append(key)


# -- samples in records ---------------------------------------------------------------------------------------------------

IRHeader = namedtuple("HEADER", ["flag", "label", "id", "id2"])  # type: ignore[name-match]  # MXNet prints it so
IRHeader.__doc__ = (
    """Header of a sample in its record: `label` is a number, or several, and then `flag` says how many."""
)


def pack(header: Any, s: bytes) -> bytes:
    """Return `header` and a sample's bytes `s` as one record.

    >>> unpack(pack(IRHeader(0, 4, 2574, 0), b"sample"))
    (HEADER(flag=0, label=4.0, id=2574, id2=0), b'sample')
    """
    flag, label, identity, second = header
    labels = b""
    if isinstance(label, Number):
        flag = 0
    else:
        values = np.asarray(label.detach().cpu().numpy() if isinstance(label, Tensor) else label, dtype="<f4")
        flag, label, labels = values.size, 0, values.tobytes()
    return _HEADER.pack(flag, label, identity, second) + labels + s


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """Split a record `s` made by `pack` into its header and its bytes.

    >>> unpack(pack(IRHeader(0, 1, 7, 0), b"sample"))[1]
    b'sample'
    """
    if len(s) < _HEADER.size:
        raise RuntimeError(f"a packed record has at least {_HEADER.size} bytes, got {len(s)}")
    header = IRHeader(*_HEADER.unpack_from(s))
    rest = s[_HEADER.size :]
    if header.flag > 0:
        if header.flag * 4 > len(rest):
            raise RuntimeError(f"the record's header announces {header.flag} labels, but {len(rest)} bytes follow")
        header = header._replace(label=np.frombuffer(rest, "<f4", header.flag))
        rest = rest[header.flag * 4 :]
    return header, rest


def pack_img(header: Any, img: np.ndarray, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """Return `header` and an image as one record. `img` is an array of height x width, or height x width x 3 with the channels blue,
    green, red; `quality` is JPEG's (1 to 100) or PNG's compression (0 to 9); `img_fmt` is ".jpg" or ".png".

    >>> import numpy as np
    >>> type(pack_img(IRHeader(0, 1, 7, 0), np.zeros((4, 6, 3), np.uint8), img_fmt=".png"))
    <class 'bytes'>
    """
    return pack(header, encode_image(from_bgr(img), quality, img_fmt))


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, np.ndarray]:
    """Split a record `s` into its header and its image: blue-green-red for `iscolor` 1, grey for 0, as stored for -1.

    >>> import numpy as np
    >>> unpack_img(pack_img(IRHeader(0, 1, 7, 0), np.zeros((4, 6, 3), np.uint8)))[1].shape
    (4, 6, 3)
    """
    header, data = unpack(s)
    return header, to_bgr(with_color(decode(data), iscolor))


def encode_image(image: Any, quality: int, img_fmt: str) -> bytes:
    """Return the bytes of a JPEG or PNG file of an image."""
    kind = {".JPG": "JPEG", ".JPEG": "JPEG", ".PNG": "PNG"}.get(img_fmt.upper())
    if kind is None:
        raise ValueError(f"img_fmt must be '.jpg', '.jpeg' or '.png', got {img_fmt!r}")
    target = io.BytesIO()
    if kind == "PNG":
        image.save(target, kind, compress_level=min(max(quality, 0), 9))
    else:
        (image if image.mode in ("L", "RGB") else image.convert("RGB")).save(target, kind, quality=quality)
    return target.getvalue()


def with_color(image: Any, color: int) -> Any:
    """Convert an image to colour (1), to grey (0), or leave its channels (-1). As in OpenCV, the EXIF orientation is applied unless the
    image is left as it is."""
    if color == 1:
        return pillow("ImageOps").exif_transpose(image).convert("RGB")
    if color == 0:
        return pillow("ImageOps").exif_transpose(image).convert("L")
    if color != -1:
        raise ValueError(f"the colour mode must be 1 (colour), 0 (grey) or -1 (as stored), got {color}")
    if image.mode in ("L", "RGB", "RGBA", "I;16"):
        return image
    return image.convert("RGBA" if "A" in image.getbands() or "transparency" in image.info else "RGB")


def from_bgr(img: Any) -> Any:
    """Return a PIL image of an array with OpenCV's order of channels (blue, green, red)."""
    array = np.asarray(img.detach().cpu().numpy() if isinstance(img, Tensor) else img)
    channels = 1 if array.ndim == 2 else array.shape[-1]
    if (
        array.ndim not in (2, 3)
        or channels not in (1, 3, 4)
        or array.dtype not in (np.uint8, np.uint16)
        or not array.size
    ):
        raise ValueError(
            "expected an image of shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) of type uint8 (or uint16, if grey), got"
            f" shape {array.shape} of type {array.dtype}"
        )
    if array.dtype == np.uint16 and channels != 1:
        raise ValueError("images of type uint16 must be grey")
    if channels == 1:
        return pillow().fromarray(array.reshape(array.shape[:2]))
    return pillow().fromarray(np.ascontiguousarray(array[..., [2, 1, 0, 3][:channels]]))


def to_bgr(image: Any) -> np.ndarray:
    """Return an image's pixels with blue first, as OpenCV has them."""
    array = np.asarray(image)
    return array.copy() if array.ndim == 2 else np.ascontiguousarray(array[..., [2, 1, 0, 3][: array.shape[-1]]])


# -- datasets -------------------------------------------------------------------------------------------------------------


class RecordFileDataset(Dataset):
    """Dataset of the records of the .rec file `filename`, as bytes. Without a .idx file beside it, one pass over the file finds them.

    >>> record = MXRecordIO("data.rec", "w")
    >>> record.write(b"one")
    >>> record.close()
    >>> RecordFileDataset("data.rec")[0]
    b'one'
    """

    def __init__(self, filename: Any):
        self.filename = os.fspath(filename)
        index = os.path.splitext(self.filename)[0] + ".idx"
        self._record: MXRecordIO
        if os.path.exists(index):
            self._record = MXIndexedRecordIO(index, self.filename, "r")
            self._places = [self._record.idx[key] for key in self._record.keys]
        else:
            self._record = MXRecordIO(self.filename, "r")
            self._places = self._record.positions()

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Any:
        return self._record.read_at(self._places[index])


class ImageRecordDataset(RecordFileDataset):
    """Dataset of (image, label) pairs from the file `filename`, made with `pack` or `flambeau im2rec`.

    Images are PIL images, in colour (`flag` 1), grey (0) or as stored (-1), on which `transform` is called; a label is a float,
    or a tensor of several, on which `target_transform` is called.

    >>> data = ImageRecordDataset("train.rec", transform=ToTensor(), target_transform=int)
    """

    def __init__(self, filename: Any, flag: int = 1, transform: Any = None, target_transform: Any = None):
        super().__init__(filename)
        self.flag, self.transform, self.target_transform = flag, transform, target_transform

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        header, data = unpack(self._record.read_at(self._places[index]))
        image = with_color(decode(data), self.flag)
        label = header.label if isinstance(header.label, float) else copy_of_array(header.label, float32)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return image, label
