"""Tensors as HTML for notebooks: a small table, a line of statistics and a histogram.

Nothing here knows the tensor class: a tensor comes as a NumPy view of its elements. Colours are those of the page around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from . import svg
from .dtype import dtype
from .float8 import readable

_EDGE = 4  # rows and columns that are shown at each end of a cut dimension
_MOST_READ = 1 << 24  # elements that statistics read: more would keep the notebook waiting
_BINS = 24
_CELL = "padding:1px 6px;text-align:right;border:1px solid rgba(128,128,128,.25)"


def tensor_html(array: np.ndarray[Any, Any] | None, kind: dtype, shape: Sequence[int], facts: Sequence[str]) -> str:
    """Return a tensor as HTML.

    array: a NumPy view of the elements (bfloat16 as uint16 bits); None for a tensor without values. facts: texts after shape and dtype in the
    caption, such as the device.
    """
    size = " &times; ".join(map(str, shape)) if shape else "one number"
    caption = " &middot; ".join([f"<b>{size}</b>", escape(str(kind)), *map(escape, facts)])
    parts = [f"<div style='margin-bottom:4px'>{caption}</div>"]
    if array is not None and array.size:
        values = readable(array, kind)
        parts += [_table(values), _statistics(values)]
    return f"<div style='font-family:monospace;font-size:12px'>{''.join(parts)}</div>"


def _positions(size: int) -> list[int | None]:
    """Return the positions that are shown; None stands for those that are omitted."""
    if size <= 2 * _EDGE + 1:
        return list(range(size))
    return [*range(_EDGE), None, *range(size - _EDGE, size)]


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return escape(str(value)) if not isinstance(value, complex) else f"{value:.3g}"


def _table(values: np.ndarray[Any, Any]) -> str:
    """Return a table of the last two dimensions, at the first index of all others."""
    first = values[(0,) * max(values.ndim - 2, 0)]
    matrix = first.reshape(-1, first.shape[-1]) if first.ndim else first.reshape(1, 1)
    where = f"<div>[{', '.join('0' * (values.ndim - 2))}, :, :]</div>" if values.ndim > 2 else ""
    columns = _positions(matrix.shape[1])
    rows = []
    for row in _positions(matrix.shape[0]):
        cells = ["&hellip;" if row is None or c is None else _cell(matrix[row, c].item()) for c in columns]
        rows.append("<tr>" + "".join(f"<td style='{_CELL}'>{cell}</td>" for cell in cells) + "</tr>")
    return f"{where}<table style='border-collapse:collapse'>{''.join(rows)}</table>"


def _statistics(values: np.ndarray[Any, Any]) -> str:
    """Return minimum, maximum, mean, standard deviation and a histogram of real numbers; counts of non-finite ones."""
    if values.dtype.kind == "b":
        return f"<div>{int(values.sum())} of {values.size} true</div>"
    if values.dtype.kind not in "iuf" or values.size < 2 or values.size > _MOST_READ:
        return ""
    flat = values.reshape(-1).astype(np.float64)
    finite = flat[np.isfinite(flat)]
    odd = [f"{np.isnan(flat).sum()} nan", f"{np.isinf(flat).sum()} inf"] if finite.size < flat.size else []
    if not finite.size:
        return f"<div>{', '.join(odd)}</div>"
    told = [f"min {finite.min():.4g}", f"max {finite.max():.4g}", f"mean {finite.mean():.4g}"]
    told += [f"std {finite.std(ddof=1):.4g}"] if finite.size > 1 else []
    return f"<div>{', '.join([*told, *odd])}</div>{_histogram(finite)}"


def _histogram(values: np.ndarray[Any, Any]) -> str:
    low, high = float(values.min()), float(values.max())
    if not np.isfinite(high - low) or high <= low:
        return ""
    counts, edges = np.histogram(values, bins=_BINS, range=(low, high))
    heights = 40 * counts / counts.max()
    bars = [
        svg.rect(8 * i, 40 - h, 7, h, title=f"{edges[i]:.3g} to {edges[i + 1]:.3g}: {n}")
        for i, (n, h) in enumerate(zip(counts, heights.tolist(), strict=True))
    ]
    told = {"role": "img", "aria_label": "histogram of the values"}
    return svg.element("svg", "".join(bars), width=8 * _BINS, height=40, fill="#e8710a", **told)
