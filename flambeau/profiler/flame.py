"""Flame graphs in SVG."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from html import escape
from typing import Any

from ..core import svg

_WIDTH, _ROW, _MARGIN, _SMALLEST = 1200, 18, 24, 1.0
_COLOURS = {"backward": (205, 60), "user": (110, 45), "layer": (270, 40)}  # hue and how much it varies
_OPERATOR = (15, 35)


class Frame:
    """All calls with the same path: `Net > Linear > aten::addmm`."""

    def __init__(self, name: str, kind: str = ""):
        self.name, self.kind = name, kind
        self.total = 0.0
        self.count = 0
        self.parts: dict[str, Frame] = {}

    def add(self, event: Any) -> None:
        """Count a call and those made in it."""
        part = self.parts.get(event.name)
        if part is None:
            part = self.parts[event.name] = Frame(event.name, kind_of(event))
        part.total += event.cpu_time_total
        part.count += 1
        for child in event.cpu_children:
            part.add(child)

    @property
    def depth(self) -> int:
        return 1 + max((part.depth for part in self.parts.values()), default=0)


def kind_of(event: Any) -> str:
    if event.name.startswith("nn.Module: "):
        return "layer"
    if event.scope == 1:
        return "backward"
    return "user" if event.is_user_annotation else ""


def tree(events: Iterable[Any]) -> Frame:
    """Return the calls of a profile by their paths."""
    root = Frame("all")
    for event in events:
        if event.cpu_parent is None and not event.is_async and event.cpu_time_total > 0:
            root.add(event)
            root.total += event.cpu_time_total
            root.count += 1
    return root


def _colour(frame: Frame) -> str:
    """Return a frame's colour by its kind; operators of one name have one colour."""
    hue, spread = _COLOURS.get(frame.kind, _OPERATOR)
    variation = zlib.crc32(frame.name.encode())
    return f"hsl({hue + variation % spread - spread // 2},{60 + variation // 97 % 25}%,{68 + variation // 7 % 12}%)"


def _rows(frame: Frame, x: float, y: int, scale: float, whole: float) -> Iterable[str]:
    width = frame.total * scale
    if width < _SMALLEST:
        return
    share = 100 * frame.total / whole if whole else 0
    label = f"{frame.name}: {frame.total:.0f} us, {share:.1f}%, {frame.count} calls"
    room = int((width - 6) / 6.6)
    text = frame.name if len(frame.name) <= room else f"{frame.name[: room - 1]}…" if room > 3 else ""
    bar = svg.rect(x, y, max(width - 0.5, 0.5), _ROW - 1, rx=2, fill=_colour(frame))
    yield svg.element("g", svg.element("title", escape(label)) + bar + (svg.text(x + 4, y + 13, text) if text else ""))
    for part in sorted(frame.parts.values(), key=lambda p: -p.total):
        yield from _rows(part, x, y + _ROW, scale, whole)
        x += part.total * scale


def drawn(events: Iterable[Any]) -> svg.Drawing:
    """Draw the flame graph as SVG."""
    root = tree(events)
    height = _MARGIN + _ROW * root.depth + 12
    scale = (_WIDTH - 20) / root.total if root.total else 0
    title = f"{root.total / 1000:.3f} ms of CPU time; a call lies below the one it was made in"
    parts = [svg.text(10, 16, title, font_size=13), *_rows(root, 10.0, _MARGIN, scale, root.total)]
    return svg.document(_WIDTH, height, parts, "monospace", background="#fffdf8")


def save(path: str, events: Iterable[Any]) -> None:
    """Write the flame graph to a file."""
    drawn(events).save(path)
