"""Drawings of recordings (SVG): the steps after each pass side by side, and the addresses and lifetimes of the arena's buffers."""

from __future__ import annotations

from typing import Any

from ..core import svg
from .runtime.arena import lifetimes

_ROW, _CHAR, _WIDEST = 13, 5.5, 74  # height of a line, width of a character, characters of a column
_COLOURS = {"native": "#e8f0fe", "fused": "#d7f0dd", "call": "#fde2d8", "test": "#eeeeee"}
_PALETTE = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1", "#edc948", "#9c755f")


def draw(name: str, programs: list[tuple[str, Any, list[Any]]]) -> svg.Drawing:
    """Draw an SVG document with one band for each program (title, program, stages)."""
    bands, width, y = [], 400.0, 40.0
    for title, program, stages in programs:
        body, w, h = _band(title, program, stages)
        bands.append(svg.group(10, y, body))
        width, y = max(width, w + 20), y + h + 30
    head = _text(10, 24, f"{name}: what is recorded, after each pass, and its memory", 15, "bold")
    return svg.document(width, y, [head, *bands], "monospace")


def _band(title: str, program: Any, stages: list[Any]) -> tuple[list[str], float, float]:
    parts = [_text(0, 12, title, 12, "bold")]
    x, height = 0.0, 40.0
    columns = [stage.text.splitlines() for stage in stages]
    for i, (stage, lines) in enumerate(zip(stages, columns)):
        following = set(columns[i + 1]) if i + 1 < len(columns) else set(lines)
        before = set(columns[i - 1]) if i else set(lines)
        parts.append(_text(x, 30, f"after {stage.name}: {stage.steps} steps, {_bytes(stage.bytes)} moved", 11, "bold"))
        for k, line in enumerate(lines):
            y = 38 + _ROW * k
            kind = "call" if line.startswith("call ") else "test" if line.startswith("test ") else "native"
            kind = "fused" if line not in before and kind == "native" else kind
            gone = "#e15759" if line not in following else None
            parts += [
                svg.rect(x, y, _CHAR * _WIDEST, _ROW - 1, line, fill=_COLOURS[kind], stroke=gone),
                _text(x + 3, y + 9.5, _short(line), 9),
            ]
        height = max(height, 38.0 + _ROW * len(lines))
        x += _CHAR * _WIDEST + 16
    arena, w, h = _arena(program)
    parts.append(svg.group(x, 0, arena))
    return parts, x + w, max(height, h)


def _arena(program: Any) -> tuple[list[str], float, float]:
    """Draw the buffers of the arena: their lifetimes from left to right, their addresses from top to bottom."""
    lives = lifetimes(program.graph, set(program.offsets))
    steps, size = max(len(program.graph.steps), 1), max(program.arena_size, 1)
    wide, high = min(max(3.0 * steps, 160.0), 700.0), 240.0
    boxes = []
    for k, (index, (first, last)) in enumerate(sorted(lives.items())):
        held = program.graph.buffers[index].size
        x, w = wide * first / steps, wide * (last + 1 - first) / steps
        y, h = high * program.offsets[index] / size, max(high * held / size, 0.5)
        about = f"%{index}: {_bytes(held)}, steps {first} to {last}"
        boxes.append(svg.rect(x, y + 38, w, h, about, fill=_PALETTE[k % len(_PALETTE)], opacity=0.75))
    frame = svg.rect(0, 38, wide, high, fill="none", stroke="#888")
    title = _text(0, 30, f"arena: {_bytes(program.arena_size)}; steps from left to right", 11, "bold")
    return [title, *boxes, frame], max(wide, 330.0), high + 50


def _short(line: str) -> str:
    call = line.split("  # ")[0]
    return call if len(call) <= _WIDEST else call[: _WIDEST - 1] + "…"


def _bytes(count: int) -> str:
    value = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def _text(x: float, y: float, text: str, size: int, weight: str | None = None) -> str:
    return svg.text(x, y, text, font_size=size, font_weight=weight)
