"""Executable images: an object file linked to a flat block of bytes that loads with one copy.

Linking our own small objects keeps LLVM out of a warm start: a cached kernel is mapped, its table of external addresses
is filled in, and it is ready. Only ELF for x86-64 is linked here; other platforms load objects through LLVM.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from dataclasses import dataclass

_ALLOCATED, _NO_BITS, _RELA = 0x2, 8, 4
_PC32, _GOTPCREL, _PLT32, _GOTPCRELX, _REX_GOTPCRELX, _ABS64, _PC64 = (2, 9, 4, 41, 42, 1, 24)
_MACHINE_X86_64 = 62


class UnsupportedObject(Exception):
    """The object file needs a full linker."""


@dataclass
class Image:
    """`code` with the offset of its entry point; `slots` says where the address of each external symbol goes. An entry
    that is a name means an object file that was not linked."""

    code: bytes
    entry: int | str
    slots: list[tuple[int, str]]


@dataclass
class _Section:
    """A row of the section table; the numbers are ELF's."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


def link(object_file: bytes, entry: str) -> Image:
    """Lay out the sections of an object file and resolve every relocation between them."""
    if object_file[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", object_file, 18)[0] != _MACHINE_X86_64:
        raise UnsupportedObject("not an ELF object for x86-64")
    sections = _sections(object_file)
    places, size = _layout(sections)
    code = bytearray(size)
    for i, start in places.items():
        s = sections[i]
        if s.kind != _NO_BITS:
            code[start : start + s.size] = object_file[s.offset : s.offset + s.size]
    linker = _Linker(object_file, sections, places, code)
    for s in sections:
        if s.kind == _RELA and s.info in places:
            linker.relocate(s)
    return Image(bytes(linker.code), linker.address_of(entry), linker.slots)


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


def _layout(sections: list[_Section]) -> tuple[dict[int, int], int]:
    places: dict[int, int] = {}
    position = 0
    for i, s in enumerate(sections):
        if s.flags & _ALLOCATED and s.size and s.name != ".eh_frame":
            position = -(-position // s.align) * s.align
            places[i] = position
            position += s.size
    return places, position


class _Linker:
    def __init__(self, data: bytes, sections: list[_Section], places: dict[int, int], code: bytearray):
        self.data, self.sections, self.places, self.code = data, sections, places, code
        self.slots: list[tuple[int, str]] = []
        self._slot_of: dict[str, int] = {}
        self._jump_of: dict[str, int] = {}
        table = next(s for s in sections if s.kind == 2)
        strings = sections[table.link].offset
        self.symbols: list[tuple[str, int, int]] = []  # name, section, value
        for at in range(table.offset, table.offset + table.size, 24):
            name, _info, _other, section, value, _size = struct.unpack_from("<IBBHQQ", data, at)
            self.symbols.append((_text(data, strings + name), section, value))

    def address_of(self, name: str) -> int:
        for symbol, section, value in self.symbols:
            if symbol == name and section in self.places:
                return self.places[section] + value
        raise UnsupportedObject(f"no symbol {name}")

    def relocate(self, table: _Section) -> None:
        base = self.places[table.info]
        for at in range(table.offset, table.offset + table.size, 24):
            offset, info, addend = struct.unpack_from("<QQq", self.data, at)
            self._apply(base + offset, info & 0xFFFFFFFF, self.symbols[info >> 32], addend)

    def _apply(self, where: int, kind: int, symbol: tuple[str, int, int], addend: int) -> None:
        name, section, value = symbol
        defined = section in self.places
        target = self.places[section] + value if defined else 0
        if kind in (_GOTPCREL, _GOTPCRELX, _REX_GOTPCRELX) and not defined:
            target = self._slot(name)
        elif kind == _PLT32 and not defined:
            target = self._jump(name)
        elif kind in (_PC32, _PLT32, _PC64) and defined:
            pass
        else:
            raise UnsupportedObject(f"relocation {kind} against {name or 'a section'}")
        distance = target + addend - where
        struct.pack_into("<q" if kind == _PC64 else "<i", self.code, where, distance)

    def _slot(self, name: str) -> int:
        """The place of an 8-byte address that the loader fills in."""
        if name not in self._slot_of:
            self.code.extend(bytes(-len(self.code) % 8 + 8))
            self._slot_of[name] = len(self.code) - 8
            self.slots.append((len(self.code) - 8, name))
        return self._slot_of[name]

    def _jump(self, name: str) -> int:
        """A stub that jumps through the slot."""
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
