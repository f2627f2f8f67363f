"""Elements of SVG as text, the document around them, and the string that notebooks show as an image.

>>> document(40, 20, [rect(5, 5, 30, 10, fill="#cfe3f7"), text(8, 13, "a < b")])[:4]
'<svg'
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any


class Drawing(str):
    """Text of an SVG image, which notebooks show as a drawing."""

    def _repr_svg_(self) -> str:
        return str(self)

    def save(self, path: str | Path) -> None:
        """Write the image to a file."""
        Path(path).write_text(self, encoding="utf-8")


def _value(value: Any) -> str:
    """Return an attribute's value as text; numbers have two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else escape(str(value))


def element(name: str, content: str = "", **attributes: Any) -> str:
    """Return an element around content that is SVG already. `font_size` is written `font-size`; attributes that are None are omitted."""
    given = "".join(f' {n.replace("_", "-")}="{_value(v)}"' for n, v in attributes.items() if v is not None)
    return f"<{name}{given}>{content}</{name}>" if content else f"<{name}{given}/>"


def rect(x: float, y: float, width: float, height: float, title: str = "", **attributes: Any) -> str:
    """Return a rectangle; `title` is shown where the pointer rests on it."""
    told = element("title", escape(title)) if title else ""
    return element("rect", told, x=x, y=y, width=width, height=height, **attributes)


def text(x: float, y: float, words: str, **attributes: Any) -> str:
    """Return a line of text whose baseline begins at (x, y), or is centred there with `text_anchor="middle"`."""
    return element("text", escape(words), x=x, y=y, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, **attributes: Any) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)


def polygon(points: Iterable[tuple[float, float]], **attributes: Any) -> str:
    return element(
        "polygon", points=" ".join(f"{_value(float(x))},{_value(float(y))}" for x, y in points), **attributes
    )


def group(x: float, y: float, parts: Iterable[str]) -> str:
    """Wrap elements in a group moved by (x, y)."""
    return element("g", "\n".join(parts), transform=f"translate({_value(float(x))},{_value(float(y))})")


def document(
    width: float,
    height: float,
    parts: Iterable[str],
    font: str = "sans-serif",
    size: int = 11,
    background: str = "white",
) -> Drawing:
    """Return a complete SVG document of this size in pixels."""
    width, height = round(width), round(height)
    body = "\n".join(["", rect(0, 0, width, height, fill=background), *parts, ""])
    return Drawing(
        element(
            "svg", body, xmlns="http://www.w3.org/2000/svg", width=width, height=height, viewBox=f"0 0 {width} {height}",
            font_family=font, font_size=size,
        ) + "\n"
    )  # fmt: skip
