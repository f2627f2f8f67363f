"""Small images without an imaging library: a canvas with images, text and curves, written as PNG."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

Colour = tuple[int, int, int]
BLACK, GREY, WHITE = (0, 0, 0), (200, 200, 200), (255, 255, 255)

_GLYPHS = {  # 3x5 bitmaps, one octal digit per row
    "0": "75557", "1": "26227", "2": "71747", "3": "71717", "4": "55711",
    "5": "74717", "6": "74757", "7": "71111", "8": "75757", "9": "75717",
    "a": "25755", "b": "65656", "c": "34443", "d": "65556", "e": "74647", "f": "74644", "g": "34553", "h": "55755",
    "i": "72227", "j": "11152", "k": "55655", "l": "44447", "m": "57755", "n": "65555", "o": "25552", "p": "65644",
    "q": "25563", "r": "65655", "s": "34216", "t": "72222", "u": "55557", "v": "55552", "w": "55775", "x": "55255",
    "y": "55222", "z": "71247", ".": "00002", "%": "51245", "-": "00700", "+": "02720", ":": "02020", " ": "00000",
}  # fmt: skip


def glyph(character: str) -> np.ndarray:
    """Return a character as a 5x3 array of zeros and ones; letters have one case."""
    rows = _GLYPHS.get(character.lower())
    if rows is None:
        raise ValueError(f"there is no glyph for {character!r}; there are: {''.join(_GLYPHS)}")
    return np.array([[int(bit) for bit in f"{int(row, 8):03b}"] for row in rows], np.uint8)


class Canvas:
    """White image to draw lines, text and shapes on; (0, 0) is the upper left corner."""

    def __init__(self, width: int, height: int):
        self.width, self.height = width, height
        self.pixels = np.full((height, width, 3), 255, np.uint8)

    def image(self, x: int, y: int, grey: np.ndarray, scale: int = 1) -> None:
        """Draw a grey image, each pixel as a square of `scale` pixels."""
        block = np.kron(grey, np.ones((scale, scale), np.uint8))
        self.pixels[y : y + block.shape[0], x : x + block.shape[1]] = block[:, :, None]

    def text(self, x: int, y: int, text: str, colour: Colour = BLACK, scale: int = 2) -> None:
        for character in text:
            mark = np.kron(glyph(character), np.ones((scale, scale), np.uint8)).astype(bool)
            area = self.pixels[y : y + 5 * scale, x : x + 3 * scale]
            area[mark[: area.shape[0], : area.shape[1]]] = colour
            x += 4 * scale

    def line(self, x0: float, y0: float, x1: float, y1: float, colour: Colour, thick: int = 1) -> None:
        steps = int(max(abs(x1 - x0), abs(y1 - y0))) + 1
        for x, y in zip(np.linspace(x0, x1, steps).round().astype(int), np.linspace(y0, y1, steps).round().astype(int)):
            self.pixels[max(y, 0) : y + thick, max(x, 0) : x + thick] = colour

    def plot(
        self, box: tuple[int, int, int, int], values: Sequence[float], colour: Colour, title: str,
        low: float | None = None, high: float | None = None,
    ) -> None:  # fmt: skip
        """Draw a curve of `values` in the box (left, top, right, bottom), labelled with its range."""
        left, top, right, bottom = box
        finite = [v for v in values if np.isfinite(v)] or [0.0]
        low = min(finite) if low is None else low
        high = max(finite) if high is None else high
        span = (high - low) or 1.0
        for k in range(5):
            y = bottom - k * (bottom - top) / 4
            self.line(left, y, right, y, GREY if k else BLACK)
            label = f"{low + k * span / 4:.3g}"[:5]
            self.text(max(0, left - 4 - 8 * len(label)), int(y) - 4, label, scale=2)
        self.line(left, top, left, bottom, BLACK)
        self.text(left + 6, max(0, top - 14), title, scale=2)
        self.text(right - 8 * len(str(len(values))), bottom + 6, str(len(values)), scale=2)
        xs = np.linspace(left, right, len(values)) if len(values) > 1 else np.array([left])
        ys = [bottom - (v - low) / span * (bottom - top) for v in values]
        for (x0, y0), (x1, y1) in zip(zip(xs, ys), zip(xs[1:], ys[1:])):
            if np.isfinite(y0) and np.isfinite(y1):
                self.line(x0, y0, x1, y1, colour, thick=2)

    def write(self, path: str | Path) -> None:
        write_png(path, self.pixels)


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
