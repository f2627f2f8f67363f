"""Learning curves: redrawn in a notebook's cell during training, silent in a terminal."""

from __future__ import annotations

import math
import sys
from typing import Any

from ..core import svg

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 420, 220, 52, 28, 24
_COLOURS = ("#c2410c", "#1d4ed8", "#15803d", "#7e22ce", "#a16207")


class Curves:
    """Values recorded during training, by name, drawn under a `title`.

    >>> curves = Curves("loss")
    >>> for epoch in range(3):
    ...     curves.add(train=1 / (epoch + 1), validation=1.2 / (epoch + 1))
    >>> curves.values["train"][-1]
    0.3333333333333333
    """

    def __init__(self, title: str = "") -> None:
        self.title = title
        self.values: dict[str, list[float]] = {}
        self._cell: Any = None  # the display that is updated, once something was drawn in a notebook

    def add(self, **values: Any) -> None:
        """Append a point to each named curve; numbers, or tensors with one element. A notebook's cell shows it at once."""
        for name, value in values.items():
            self.values.setdefault(name, []).append(float(value))
        display = _notebook_display()
        if display is None:
            return
        if self._cell is None:
            self._cell = display(self, display_id=True)
        else:
            self._cell.update(self)

    def draw(self) -> svg.Drawing:
        """Draw the curves as an SVG image."""
        finite = [v for values in self.values.values() for v in values if math.isfinite(v)] or [0.0]
        low, high = min(finite), max(finite)
        high = high if high > low else low + 1.0
        steps = max(map(len, self.values.values()), default=0)
        parts = [
            svg.text(_LEFT, 15, self.title, font_weight="bold"),
            svg.line(_LEFT, _TOP, _LEFT, _HEIGHT - _BOTTOM, stroke="#888"),
            svg.line(_LEFT, _HEIGHT - _BOTTOM, _WIDTH - 8, _HEIGHT - _BOTTOM, stroke="#888"),
            svg.text(_LEFT - 4, _TOP + 8, f"{high:.3g}", text_anchor="end"),
            svg.text(_LEFT - 4, _HEIGHT - _BOTTOM, f"{low:.3g}", text_anchor="end"),
            svg.text(_WIDTH - 8, _HEIGHT - _BOTTOM + 14, str(steps), text_anchor="end"),
        ]
        end = _WIDTH - 8
        for i, (name, values) in reversed(list(enumerate(self.values.items()))):
            colour = _COLOURS[i % len(_COLOURS)]
            parts.append(svg.text(end, 15, name, text_anchor="end", fill=colour))  # above the curves, which may rise
            parts.append(_curve(values, low, high, steps, colour))
            end -= 6 * len(name) + 12
        return svg.document(_WIDTH, _HEIGHT, parts)

    def __repr__(self) -> str:
        last = ", ".join(f"{name}={values[-1]:.4g}" for name, values in self.values.items())
        return f"Curves({self.title!r}: {last})"

    def _repr_svg_(self) -> str:
        return self.draw()


def _curve(values: list[float], low: float, high: float, steps: int, colour: str) -> str:
    across = (_WIDTH - 8 - _LEFT) / max(steps - 1, 1)
    down = (_HEIGHT - _BOTTOM - _TOP) / (high - low)
    points = [(_LEFT + i * across, _TOP + (high - v) * down) for i, v in enumerate(values) if math.isfinite(v)]
    if len(points) == 1:
        return svg.element("circle", cx=points[0][0], cy=points[0][1], r=2.5, fill=colour)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return svg.element("polyline", points=path, fill="none", stroke=colour, stroke_width=2)


def _notebook_display() -> Any:
    """Return IPython's `display` if a notebook runs the program, else None."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return sys.modules["IPython.display"].display if getattr(shell, "kernel", None) is not None else None
