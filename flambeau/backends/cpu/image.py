"""Executable images: an object file linked to a flat block of bytes that loads with one copy.

Linking small objects ourselves avoids loading LLVM in a warm start: a cached kernel is mapped, its table of external addresses is filled in,
and it is ready. Only ELF for x86-64 is linked here; other platforms load objects through LLVM.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass

_ALLOCATED, _NO_BITS, _RELA = 0x2, 8, 4
_PC32, _GOTPCREL, _PLT32, _GOTPCRELX, _REX_GOTPCRELX, _ABS64, _PC64 = (2, 9, 4, 41, 42, 1, 24)
_MACHINE_X86_64 = 62


class UnsupportedObject(Exception):
    """Raised for an object file that needs a full linker."""


@dataclass
class Image:
    """Machine code `code` with the offset of its entry point; `slots` are the places for the addresses of external symbols. An entry that is
    a name means an object file that was not linked."""

    code: bytes
    entry: int | str
    slots: list[tuple[int, str]]


@dataclass
class _Section:
    """A row of ELF's section table, with ELF's numbers."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


def link(object_files: Sequence[bytes], entry: str) -> Image:
    """Lay out the sections of object files and resolve every relocation between them."""
    code = bytearray()
    objects = [_Object(data, code) for data in object_files]
    linker = _Linker(code, {name: place for o in objects for name, place in o.symbols if name and place is not None})
    for o in objects:
        for s in o.sections:
            if s.kind == _RELA and s.info in o.places:
                linker.relocate(o, s)
    return Image(bytes(code), linker.address_of(entry), linker.slots)


def _sections(data: bytes) -> list[_Section]:
    table = struct.unpack_from("<Q", data, 40)[0]
    entry_size, count, names_index = struct.unpack_from("<HHH", data, 58)
    rows = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry_size) for i in range(count)]
    names = rows[names_index][4]
    return [
        _Section(_text(data, names + r[0]), r[1], r[2], r[4], r[5], r[6], r[7], max(1, r[8]))
        for r in rows
    ]  # fmt: skip


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


class _Object:
    """An object file whose contents are part of the code: the places of its sections, and its symbols (None: defined elsewhere)."""

    def __init__(self, data: bytes, code: bytearray):
        if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", data, 18)[0] != _MACHINE_X86_64:
            raise UnsupportedObject("not an ELF object for x86-64")
        self.data, self.sections = data, _sections(data)
        self.places: dict[int, int] = {}
        for i, s in enumerate(self.sections):
            if s.flags & _ALLOCATED and s.size and s.name != ".eh_frame":
                code.extend(bytes(-len(code) % s.align))
                self.places[i] = len(code)
                code.extend(bytes(s.size) if s.kind == _NO_BITS else data[s.offset : s.offset + s.size])
        table = next(s for s in self.sections if s.kind == 2)
        strings = self.sections[table.link].offset
        self.symbols: list[tuple[str, int | None]] = []
        for at in range(table.offset, table.offset + table.size, 24):
            name, _info, _other, section, value, _size = struct.unpack_from("<IBBHQQ", data, at)
            place = self.places[section] + value if section in self.places else None
            self.symbols.append((_text(data, strings + name), place))


class _Linker:
    def __init__(self, code: bytearray, places: dict[str, int]):
        self.code, self.places = code, places
        self.slots: list[tuple[int, str]] = []
        self._slot_of: dict[str, int] = {}
        self._jump_of: dict[str, int] = {}

    def address_of(self, name: str) -> int:
        if name not in self.places:
            raise UnsupportedObject(f"no symbol {name}")
        return self.places[name]

    def relocate(self, part: _Object, table: _Section) -> None:
        base = part.places[table.info]
        for at in range(table.offset, table.offset + table.size, 24):
            offset, info, addend = struct.unpack_from("<QQq", part.data, at)
            name, target = part.symbols[info >> 32]
            self._apply(base + offset, info & 0xFFFFFFFF, name, target, addend)

    def _apply(self, where: int, kind: int, name: str, target: int | None, addend: int) -> None:
        target = self.places.get(name) if target is None else target
        if target is None and kind in (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX):
            target = self._slot(name)
        elif target is None and kind == _PLT32:
            target = self._jump(name)
        elif target is None or kind not in (_PC32, _PLT32, _PC64):
            raise UnsupportedObject(f"relocation {kind} against {name or 'a section'}")
        distance = target + addend - where
        struct.pack_into("<q" if kind == _PC64 else "<i", self.code, where, distance)

    def _slot(self, name: str) -> int:
        """Return the place of an 8-byte address that the loader fills in."""
        if name not in self._slot_of:
            self.code.extend(bytes(-len(self.code) % 8 + 8))
            self._slot_of[name] = len(self.code) - 8
            self.slots.append((len(self.code) - 8, name))
        return self._slot_of[name]

    def _jump(self, name: str) -> int:
        """Return the place of a stub that jumps through the slot."""
        if name not in self._jump_of:
            slot = self._slot(name)
            self._jump_of[name] = len(self.code)
            self.code.extend(b"\xff\x25" + struct.pack("<i", slot - (len(self.code) + 6)) + b"\x90\x90")
        return self._jump_of[name]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_ARENA = 1 << 20
_arena: tuple[int, int] = (0, 0)  # next free address, end


def load(image: Image, addresses: dict[str, int]) -> int:
    """Map an image and return the address of its entry point. Pages are never writable and executable at once."""
    size = -(-len(image.code) // mmap.PAGESIZE) * mmap.PAGESIZE
    base = _reserve(size)
    code = bytearray(image.code)
    for offset, name in image.slots:
        struct.pack_into("<Q", code, offset, addresses[name])
    ctypes.memmove(base, bytes(code), len(code))
    if _libc.mprotect(base, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "cannot make compiled code executable")
    return base + int(image.entry)


def _reserve(size: int) -> int:
    """Return fresh writable pages, from large mappings, so that kernels are close together."""
    global _arena
    start, end = _arena
    if end - start < size:
        length = max(size, _ARENA)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        got = _libc.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if got is None or got == ctypes.c_void_p(-1).value:
            raise MemoryError("cannot map memory for compiled code")
        start, end = got, got + length
    _arena = (start + size, end)
    return start
