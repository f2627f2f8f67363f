"""Zip archives of checkpoints: records stored uncompressed, each at an aligned offset."""

from __future__ import annotations

import os
import struct
import sys
import zipfile
import zlib
from typing import Any

import numpy as np

from ..core.device import cpu
from ..core.dtype import uint8
from ..core.size import Size
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor, new_tensor
from .options import LoadEndianness, load_options, save_options

_ZIP64 = 0xFFFFFFFF
_FLAGS = 0x0808  # names in UTF-8; checksum and sizes behind the data, so that nothing is ever rewritten
VERSION = b"3\n"


# -- writing --------------------------------------------------------------------------------------------------------------


class ArchiveWriter:
    """Writes records one after the other, into any object with `write`."""

    def __init__(self, file: Any, root: str = "archive"):
        self.file, self.root = file, root
        self.position = 0
        self.checksum = 0
        self.directory: list[tuple[bytes, int, int, int]] = []

    def write_record(self, name: str, data: Any, size: int | None = None) -> None:
        """Store bytes (or a string, or a storage) under a name."""
        if isinstance(data, str):
            data = data.encode()
        elif isinstance(data, UntypedStorage):
            data = data.cpu().numpy()
        contents = memoryview(data).cast("B")[: len(data) if size is None else size]
        crc = zlib.crc32(contents) if save_options.compute_crc32 else 0
        header = self._open(name, len(contents))
        self._write(contents)
        self._close(name, header, crc, len(contents))

    def write_record_metadata(self, name: str, size: int) -> None:
        """Reserve space for a record that is filled in later."""
        header = self._open(name, size)
        zeros = bytes(min(size, 1 << 20))
        for start in range(0, size, 1 << 20):
            self._write(memoryview(zeros)[: size - start])
        self._close(name, header, 0, size)

    def write_end_of_file(self) -> None:
        """Write the format's version, the serialization id and the directory."""
        self.write_record("version", VERSION)
        self.write_record(".data/serialization_id", f"{self.checksum:040d}".encode())
        start = self.position
        for name, crc, size, header in self.directory:
            self._write(_directory_entry(name, crc, size, header))
        count, length = len(self.directory), self.position - start
        end = self.position
        self._write(struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 0x031E, 45, 0, 0, count, count, length, start))
        self._write(struct.pack("<4sIQI", b"PK\6\7", 0, end, 1))
        short = min(count, 0xFFFF)
        self._write(
            struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, short, short, min(length, _ZIP64), min(start, _ZIP64), 0)
        )

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(self, kind: Any, *exc: Any) -> None:
        if kind is None:
            self.write_end_of_file()
            if hasattr(self.file, "flush"):
                self.file.flush()

    def _open(self, name: str, size: int) -> int:
        header, path = self.position, f"{self.root}/{name}".encode()
        large = struct.pack("<HHQQ", 1, 16, 0, 0) if size >= _ZIP64 else b""
        alignment = max(1, save_options.storage_alignment)
        padding = -(header + 30 + len(path) + len(large) + 4) % alignment
        extra = large + struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        sizes = _ZIP64 if large else 0
        fields = struct.pack("<4sHHHIIIIHH", b"PK\3\4", 0, _FLAGS, 0, 0, 0, sizes, sizes, len(path), len(extra))
        self._write(fields + path + extra)
        return header

    def _close(self, name: str, header: int, crc: int, size: int) -> None:
        form = "<4sIQQ" if size >= _ZIP64 else "<4sIII"
        self._write(struct.pack(form, b"PK\7\x08", crc, size, size))
        self.checksum = zlib.crc32(struct.pack("<I", crc), self.checksum)
        self.directory.append((f"{self.root}/{name}".encode(), crc, size, header))

    def _write(self, data: Any) -> None:
        write_all(self.file, data)
        self.position += len(data)


def write_all(file: Any, data: Any) -> None:
    """Write all bytes to an object whose `write` may accept only some of them at a time (a pipe, a socket)."""
    rest = memoryview(data)
    while len(rest):
        count = file.write(rest)
        if not isinstance(count, int) or count <= 0:  # a plain object, whose `write` says nothing
            return
        rest = rest[count:]


def _directory_entry(name: bytes, crc: int, size: int, header: int) -> bytes:
    large = b""
    if size >= _ZIP64:
        large += struct.pack("<QQ", size, size)
    if header >= _ZIP64:
        large += struct.pack("<Q", header)
    extra = struct.pack("<HH", 1, len(large)) + large if large else b""
    short = min(size, _ZIP64)
    fields = (0, 0, _FLAGS, 0, 0, crc, short, short, len(name), len(extra), 0, 0, 0, 0, min(header, _ZIP64))
    return struct.pack("<4sHHHHIIIIHHHHHII", b"PK\1\2", *fields) + name + extra


# -- reading --------------------------------------------------------------------------------------------------------------


class SeekableFile:
    """File interface of the zip library over an object with only read, seek and tell."""

    def __init__(self, file: Any):
        self.read, self.tell = file.read, file.tell
        self._seek = file.seek

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._seek(offset, whence)
        return self.tell()

    def seekable(self) -> bool:
        return True


class ArchiveReader:
    """The records of an archive, read or mapped."""

    def __init__(self, file: Any, mapping: Any = None):
        self.file, self.mapping = file, mapping
        self.archive = zipfile.ZipFile(SeekableFile(file))
        names = self.archive.namelist()
        if not names:
            raise RuntimeError("PytorchStreamReader failed reading zip archive: archive does not contain any files")
        self.root = names[0].split("/", 1)[0]
        self.left = _size_of(file)  # how many bytes the records not yet read can have at most: none is compressed

    def has_record(self, name: str) -> bool:
        return f"{self.root}/{name}" in self.archive.NameToInfo

    def get_all_records(self) -> list[str]:
        return [name.partition("/")[2] for name in self.archive.namelist()]

    def get_record(self, name: str) -> bytes:
        """Return the bytes of a record."""
        info = self._info(name)
        start = self._start(info)
        self.file.seek(start)
        data = self.file.read(info.file_size)
        self._check(info, data)
        return data

    def get_record_offset(self, name: str) -> int:
        """Return the offset in the file at which the bytes of a record begin."""
        return self._start(self._info(name))

    def get_record_size(self, name: str) -> int:
        return self._info(name).file_size

    def byte_order(self) -> str:
        """Return 'little' or 'big': the archive's byte order, or the default of `set_default_load_endianness`."""
        if self.has_record("byteorder"):
            order = self.get_record("byteorder").decode(errors="replace").strip()
            if order not in ("little", "big"):
                raise ValueError(f"Unknown endianness type: {order}")
            return order
        default = load_options.endianness
        if default is LoadEndianness.NATIVE:
            return sys.byteorder
        return "big" if default is LoadEndianness.BIG else "little"

    def storage(self, key: str, nbytes: int) -> UntypedStorage:
        """Return the bytes of data/`key`: mapped, or read into new memory."""
        info = self.checked(key, nbytes)
        start = self._start(info)
        self.left -= nbytes
        if self.left < 0:
            raise RuntimeError(f"corrupt checkpoint: record {info.filename} overlaps others")
        if self.mapping is not None and nbytes:
            if start + nbytes > len(self.mapping):
                raise RuntimeError(f"corrupt checkpoint: record {info.filename} ends after the file")
            view = np.frombuffer(self.mapping, np.uint8, nbytes, start)
            return UntypedStorage.borrow(view.ctypes.data, nbytes, view)
        storage = UntypedStorage(nbytes)
        self.file.seek(start)
        target = storage.numpy().data
        if read_into(self.file, target) != nbytes:
            raise RuntimeError(f"corrupt checkpoint: record {info.filename} ends after the file")
        self._check(info, target)
        return storage

    def checked(self, key: str, nbytes: int) -> zipfile.ZipInfo:
        """Return the entry data/`key`, whose size must agree with the pickle."""
        info = self._info(f"data/{key}")
        if info.file_size != nbytes:
            raise RuntimeError(
                f"corrupt checkpoint: record size ({info.file_size} bytes) does not match expected size ({nbytes} bytes) of"
                f" data/{key}"
            )
        return info

    def _info(self, name: str) -> zipfile.ZipInfo:
        info = self.archive.NameToInfo.get(f"{self.root}/{name}")
        if info is None:
            raise RuntimeError(f"PytorchStreamReader failed locating file {name}: file not found")
        if info.compress_type != zipfile.ZIP_STORED:
            raise RuntimeError(f"corrupt checkpoint: record {info.filename} is compressed, checkpoints never are")
        if info.compress_size != info.file_size:
            raise RuntimeError(f"corrupt checkpoint: record {info.filename} has two sizes")
        return info

    def _start(self, info: zipfile.ZipInfo) -> int:
        self.file.seek(info.header_offset)
        header = self.file.read(30)
        if len(header) < 30 or header[:4] != b"PK\3\4":
            raise RuntimeError(
                f"PytorchStreamReader failed reading file {info.filename}: invalid header or archive is corrupted: there is a"
                " high likelihood that your checkpoint file is corrupted"
            )
        name_length, extra_length = struct.unpack("<HH", header[26:30])
        return info.header_offset + 30 + name_length + extra_length

    def _check(self, info: zipfile.ZipInfo, data: Any) -> None:
        if len(data) != info.file_size:
            raise RuntimeError(f"corrupt checkpoint: record {info.filename} ends after the file")
        if info.CRC and zlib.crc32(data) != info.CRC:  # none is kept of records written without checksums
            raise RuntimeError(
                f"corrupt checkpoint: Bad CRC-32 for file {info.filename!r}. Where the file was changed on purpose, load(..., mmap=True)"
                " reads it as it is"
            )


def _size_of(file: Any) -> int:
    place = file.tell()
    file.seek(0, os.SEEK_END)
    end = file.tell()
    file.seek(place)
    return end


def read_into(file: Any, target: memoryview) -> int:
    """Fill `target` from the file; return the number of bytes read."""
    done = 0
    while done < len(target):
        if hasattr(file, "readinto"):
            count = file.readinto(target[done:])
        else:
            data = file.read(min(len(target) - done, 1 << 24))
            count = len(data)
            target[done : done + count] = data
        if not count:
            break
        done += count
    return done


class PyTorchFileReader(ArchiveReader):
    """The records of a checkpoint, given as the name of a file or as an open one: `torch.PyTorchFileReader`."""

    def __init__(self, name_or_buffer: Any):
        named = isinstance(name_or_buffer, (str, os.PathLike))
        super().__init__(open(name_or_buffer, "rb") if named else name_or_buffer)  # noqa: SIM115  open as long as the reader

    def get_storage_from_record(self, name: str, numel: int, dtype: Any) -> Tensor:
        """Return an empty byte tensor over the bytes of a record; `numel` is their number (of elements, if a dtype is given)."""
        nbytes = numel * getattr(dtype, "itemsize", 1)
        found = self.storage(name.removeprefix("data/"), nbytes)
        return new_tensor(found, Size((0,)), (1,), 0, uint8, cpu, True)
