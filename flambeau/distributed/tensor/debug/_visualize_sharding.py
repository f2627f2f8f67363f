"""Printing of which rank has which part of a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils import part_at


def visualize_sharding(dtensor: Any, header: str = "", use_rich: bool = False) -> None:
    """Print which ranks have which part of a tensor of one or two dimensions, on the first rank of its mesh."""
    if dtensor.numel() == 0:
        return
    if len(dtensor.shape) >= 3:
        raise RuntimeError("visualize sharding supports only 1D or 2D DTensor")
    mesh = dtensor.device_mesh
    coordinate = mesh.get_coordinate()
    if coordinate is None or any(coordinate):
        return
    cells: dict[tuple, list[str]] = {}
    for place, rank in np.ndenumerate(mesh._array):
        shape, offset = part_at(dtensor.shape, mesh.shape, place, dtensor.placements)
        ranges = [f"{start}-{start + size - 1}" for size, start in zip(shape, offset)] + ["0-0"] * (2 - len(shape))
        cells.setdefault(tuple(ranges), []).append(f"{mesh.device_type}:{int(rank)}")
    rows, columns = (list(dict.fromkeys(r[i] for r in cells)) for i in (0, 1))
    table = [["", *(f"Col {c}" for c in columns)]]
    table += [[f"Row {r}", *(", ".join(cells.get((r, c), [])) for c in columns)] for r in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(columns) + 1)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip() for line in table]
    lines.insert(1, "  ".join("-" * width for width in widths))
    print("\n".join([header, *lines] if header else lines))
