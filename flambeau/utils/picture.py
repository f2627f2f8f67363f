"""Small pictures without an imaging library: grey arrays to PNG files, numbers as bitmaps."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

_GLYPHS = {  # 3x5 bitmaps, one octal digit per row
    "0": "75557", "1": "26227", "2": "71747", "3": "71717", "4": "55711",
    "5": "74717", "6": "74757", "7": "71111", "8": "75757", "9": "75717",
}  # fmt: skip


def glyph(digit: int) -> np.ndarray:
    """A digit as a 5x3 array of zeros and ones."""
    rows = [[int(bit) for bit in f"{int(row, 8):03b}"] for row in _GLYPHS[str(digit)]]
    return np.array(rows, np.uint8)


def write_png(path: str | Path, pixels: np.ndarray) -> None:
    """Write an (height, width, 3) or (height, width) uint8 array as a PNG file."""
    colour = 2 if pixels.ndim == 3 else 0
    height, width = pixels.shape[:2]
    rows = np.ascontiguousarray(pixels).reshape(height, -1)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    Path(path).write_bytes(data)
