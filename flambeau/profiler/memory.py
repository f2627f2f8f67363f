"""Timeline of memory in use, by category."""

from __future__ import annotations

import gzip
import json
from enum import Enum
from pathlib import Path
from typing import Any

from ..core import modes, svg
from .recorder import MemoryNote
from .results import Results

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 960, 420, 80, 40, 60


class Category(Enum):
    """The use of a block of memory."""

    INPUT = 1
    TEMPORARY = 2
    ACTIVATION = 3
    GRADIENT = 4
    AUTOGRAD_DETAIL = 5
    PARAMETER = 6
    OPTIMIZER_STATE = 7


class Action(Enum):
    """An event in the life of a block of memory."""

    PREEXISTING = 1
    CREATE = 2
    INCREMENT_VERSION = 3
    DESTROY = 4


_COLOURS = {
    Category.PARAMETER: "#2f7d4f", Category.OPTIMIZER_STATE: "#c9a227", Category.INPUT: "#222222", Category.TEMPORARY: "#7b4fa3",
    Category.ACTIVATION: "#c0392b", Category.GRADIENT: "#2f6db5", Category.AUTOGRAD_DETAIL: "#5dade2", None: "#9a9a9a",
}  # fmt: skip


class Block:
    """An allocation: from `start` until `end` (None: longer than the profile)."""

    def __init__(self, made: MemoryNote):
        self.made, self.nbytes, self.start = made, made.nbytes, made.time
        self.end: int | None = None


class MemoryProfile:
    """Allocations of a profile, each with its category.

    The category follows from where each block was allocated and freed: what the optimizer keeps is its state; what a backward pass
    allocates is a gradient if it stays and autograd detail otherwise; what the forward pass allocates is an activation if it lives until a
    backward pass, else temporary; what a loader makes, or no operator, or what stays until the end, is an input."""

    def __init__(self, results: Results):
        self.results = results
        self.blocks: list[Block] = []
        self._read(results.recorder.memory_notes)
        self.backwards = self._backward_passes()
        self.parameters = self._parameters()

    def _read(self, notes: list[MemoryNote]) -> None:
        opened: dict[int, Block] = {}
        for note in notes:
            if note.nbytes > 0:
                opened[note.storage] = Block(note)
                self.blocks.append(opened[note.storage])
            elif note.storage in opened:
                opened[note.storage].end = note.time

    def _backward_passes(self) -> list[tuple[int, int]]:
        """Return the time intervals of backward passes: successive nodes are one pass."""
        found: list[tuple[int, int]] = []
        for note in self.results.notes:
            if note.scope == modes.BACKWARD and (note.parent is None or note.parent.scope != modes.BACKWARD):
                if found and note.start - found[-1][1] < 200_000:
                    found[-1] = (found[-1][0], note.end)
                else:
                    found.append((note.start, note.end))
        return found

    def _parameters(self) -> set[int]:
        """Return the storages of leaves that require gradients and that operators were called with."""
        found = set()
        for note in self.results.notes:
            args, kwargs = note.inputs or ((), {})
            found |= {v.storage for v in (*args, *kwargs.values()) if getattr(v, "requires_grad", False)}
        return found

    def category(self, block: Block) -> Category:
        """Return the use of a block of memory."""
        around, backward, names = block.made.note, False, []
        while around is not None:
            backward = backward or around.scope == modes.BACKWARD
            names.append(around.name)
            around = around.parent
        if any(name.startswith("FSDP::") for name in names):  # whole parameters, or what gradients are reduced into
            return Category.PARAMETER if names[0].startswith("FSDP::all_gather") else Category.GRADIENT
        if block.made.address in self.parameters and not backward:
            return Category.PARAMETER
        if any(name.startswith("Optimizer.step#") for name in names):
            return Category.OPTIMIZER_STATE if block.end is None else Category.TEMPORARY
        if backward:
            ends = [end for start, end in self.backwards if start <= block.start <= end]
            stays = block.end is None or (ends and block.end > ends[0])
            return Category.GRADIENT if stays else Category.AUTOGRAD_DETAIL
        if not names or any(name.startswith("enumerate(DataLoader)") for name in names):
            return Category.INPUT
        if block.end is None:
            return Category.INPUT
        lives = any(block.start < start <= block.end for start, _ in self.backwards)
        return Category.ACTIVATION if lives else Category.TEMPORARY

    @property
    def timeline(self) -> list[tuple[int, Action, Category, int, Any]]:
        """(time, action, category, bytes, device), by time."""
        found = []
        for block in self.blocks:
            kind = self.category(block)
            found.append((block.start, Action.CREATE, kind, block.nbytes, block.made.device))
            if block.end is not None:
                found.append((block.end, Action.DESTROY, kind, block.nbytes, block.made.device))
        return sorted(found, key=lambda entry: entry[0])

    def sizes(self, device: str) -> tuple[list[int], list[list[int]]]:
        """Return times, and the bytes in use at each by category; the first column is for blocks without one."""
        times, sizes, now = [], [], [0] * (len(Category) + 1)
        for moment, action, kind, nbytes, where in self.timeline:
            if not _is_on(where, device):
                continue
            now = list(now)
            now[kind.value] += nbytes if action is Action.CREATE else -nbytes
            times.append(moment - self.results.recorder.began)
            sizes.append(now)
        return times, sizes

    # -- files ------------------------------------------------------------------------------------------------------
    def save(self, path: str, device: str) -> None:
        """Write the timeline in the format that the file's suffix names: .svg, .html, .json, .json.gz or .raw.json.gz."""
        if path.endswith(".svg"):
            self.drawn(device).save(path)
        elif path.endswith(".html"):
            page = f"<!doctype html><html><head><meta charset='utf-8'><title>Memory timeline</title></head><body>{self.drawn(device)}"
            Path(path).write_text(f"{page}</body></html>\n", encoding="utf-8")
        elif path.endswith(".gz"):
            raw = path.endswith("raw.json.gz")
            with gzip.open(path, "wt") as file:
                json.dump(self._raw(device) if raw else self.sizes(device), file)
        else:
            Path(path).write_text(json.dumps(self.sizes(device)))

    def _raw(self, device: str) -> list[tuple]:
        return [(t, a.value, n, k.value) for t, a, k, n, where in self.timeline if _is_on(where, device)]

    def drawn(self, device: str) -> svg.Drawing:
        """Return a diagram of the bytes in use over time, in SVG; categories are stacked."""
        return drawn(*self.sizes(device), device)


def drawn(times: list[int], sizes: list[list[int]], device: str, most: int = 0) -> svg.Drawing:
    """Draw bytes by category at some times; `most` is the height of the image, if it is larger than the largest sum."""
    highest = max((sum(row) for row in sizes), default=0) or 1
    most = max(most, highest)
    length = (times[-1] if times else 0) or 1
    unit, word = next(
        (u, w) for u, w in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"), (1, "B")) if most >= u or u == 1
    )
    across, up = _WIDTH - _LEFT - 20, _HEIGHT - _TOP - _BOTTOM

    def place(moment: int, nbytes: float) -> tuple[float, float]:
        return _LEFT + across * moment / length, _TOP + up - up * nbytes / most

    title = f"Memory in use on {device}; at most {highest / unit:.2f} {word}"
    parts = [svg.text(_LEFT, 22, title, font_size=14)]
    floor = [0] * len(times)
    kinds = [k for k in (Category.PARAMETER, Category.OPTIMIZER_STATE, Category.INPUT, Category.ACTIVATION, Category.GRADIENT,
                         Category.AUTOGRAD_DETAIL, Category.TEMPORARY) if any(row[k.value] for row in sizes)]  # fmt: skip
    for kind in kinds:
        top = [low + row[kind.value] for low, row in zip(floor, sizes)]
        upper = [place(t, v) for i, t in enumerate(times) for v in ((top[i - 1] if i else 0), top[i])]
        lower = [place(t, v) for i, t in enumerate(times) for v in ((floor[i - 1] if i else 0), floor[i])]
        parts.append(svg.polygon([*upper, *reversed(lower)], fill=_COLOURS[kind], fill_opacity=0.85))
        floor = top
    for i in range(5):
        x, y = _LEFT + across * i / 4, _TOP + up - up * i / 4
        parts += [
            svg.line(_LEFT, y, _LEFT + across, y, stroke="#ccc", stroke_width=0.5),
            svg.text(_LEFT - 6, y + 4, f"{most * i / 4 / unit:.2f} {word}", text_anchor="end"),
            svg.text(
                x, _HEIGHT - _BOTTOM + 18, f"{length * i / 4 / 1e6:.2f} ms", text_anchor="end" if i == 4 else "middle"
            ),
        ]
    x = _LEFT
    for kind in kinds:
        label = kind.name.lower().replace("_", " ")
        parts += [svg.rect(x, _HEIGHT - 26, 12, 12, fill=_COLOURS[kind]), svg.text(x + 17, _HEIGHT - 16, label)]
        x += 40 + 7 * len(label)
    return svg.document(_WIDTH, _HEIGHT, parts)


def _is_on(where: Any, device: str) -> bool:
    kind, _, index = device.partition(":")
    return where.type == kind and (kind == "cpu" or (where.index or 0) == int(index or 0))
