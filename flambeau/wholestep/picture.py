"""A recording as a picture (SVG): the steps after each pass side by side, and where buffers lie in the arena while they live."""

from __future__ import annotations

import html
from typing import Any

from .arena import lifetimes

_ROW, _CHAR, _WIDEST = 13, 5.5, 74  # height of a line, width of a character, characters of a column
_COLOURS = {"native": "#e8f0fe", "fused": "#d7f0dd", "call": "#fde2d8", "test": "#eeeeee"}
_PALETTE = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1", "#edc948", "#9c755f")


def draw(name: str, programs: list[tuple[str, Any, list[Any]]]) -> str:
    """An SVG document: for each program (title, program, stages) one band."""
    bands, width, y = [], 400.0, 40.0
    for title, program, stages in programs:
        body, w, h = _band(title, program, stages)
        bands.append(f'<g transform="translate(10,{y:.0f})">{body}</g>')
        width, y = max(width, w + 20), y + h + 30
    head = _text(10, 24, f"{name}: what is recorded, after each pass, and its memory", 15, "bold")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y:.0f}" font-family="monospace">'
        f'<rect width="100%" height="100%" fill="white"/>{head}{"".join(bands)}</svg>\n'
    )


def _band(title: str, program: Any, stages: list[Any]) -> tuple[str, float, float]:
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
            gone = ' stroke="#e15759"' if line not in following else ""
            parts.append(
                f'<rect x="{x:.0f}" y="{y}" width="{_CHAR * _WIDEST:.0f}" height="{_ROW - 1}" fill="{_COLOURS[kind]}"{gone}>'
                f"<title>{html.escape(line)}</title></rect>{_text(x + 3, y + 9.5, _short(line), 9)}"
            )
        height = max(height, 38.0 + _ROW * len(lines))
        x += _CHAR * _WIDEST + 16
    arena, w, h = _arena(program)
    parts.append(f'<g transform="translate({x:.0f},0)">{arena}</g>')
    return "".join(parts), x + w, max(height, h)


def _arena(program: Any) -> tuple[str, float, float]:
    """Buffers of the arena: when they live, from left to right, and where they lie, from top to bottom."""
    lives = lifetimes(program.graph, set(program.offsets))
    steps, size = max(len(program.graph.steps), 1), max(program.arena_size, 1)
    wide, high = min(max(3.0 * steps, 160.0), 700.0), 240.0
    boxes = []
    for k, (index, (first, last)) in enumerate(sorted(lives.items())):
        held = program.graph.buffers[index].size
        x, w = wide * first / steps, wide * (last + 1 - first) / steps
        y, h = high * program.offsets[index] / size, max(high * held / size, 0.5)
        about = f"%{index}: {_bytes(held)}, steps {first} to {last}"
        boxes.append(
            f'<rect x="{x:.1f}" y="{y + 38:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{_PALETTE[k % len(_PALETTE)]}" opacity="0.75">'
            f"<title>{about}</title></rect>"
        )
    frame = f'<rect x="0" y="38" width="{wide:.0f}" height="{high:.0f}" fill="none" stroke="#888"/>'
    title = _text(0, 30, f"arena: {_bytes(program.arena_size)}; steps from left to right", 11, "bold")
    return title + "".join(boxes) + frame, max(wide, 330.0), high + 50


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


def _text(x: float, y: float, text: str, size: int, weight: str = "normal") -> str:
    return f'<text x="{x:.0f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}">{html.escape(text)}</text>'


__all__ = ["draw"]
