"""Drawings of directed graphs: boxes in layers, sources above what reads them, few crossings; an arrow for each edge.

Edges that pass a layer get a bend in it, an invisible box, so that arrows go around boxes. Boxes of a layer are ordered by the centres of
their neighbours, and then placed as near to them as the widths allow."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ..core import svg

_TITLE, _DETAIL, _LETTER = 12, 10, 0.63  # sizes of letters, and their width in relation to it
_LINE, _PADDING = 15, 8  # the height of a line of text, the room around the text
_GAP, _LAYER_GAP, _MARGIN = 24, 38, 12
_SWEEPS = 8
_WEIGHT = 16.0  # of a box, where a bend weighs 1
_EDGE = "#718096"


class Box:
    """A box with a title and further lines, and a label below it; without a title, a bend of an edge."""

    def __init__(self, title: str = "", details: Sequence[str] = (), fill: str = "", stroke: str = "", label: str = ""):
        self.title, self.details, self.fill, self.stroke, self.label = title, list(details), fill, stroke, label
        longest = max([len(title) * _TITLE, *(len(line) * _DETAIL for line in details)])
        self.width = max(longest * _LETTER + 2 * _PADDING, 60.0) if title else 2.0
        self.height = (1 + len(self.details)) * _LINE + _PADDING if title else 0.0
        self.above: list[Box] = []
        self.below: list[Box] = []
        self.layer = self.place = 0
        self.x = self.y = 0.0  # of the middle, and of the upper edge


def picture(
    boxes: Sequence[Box], edges: Sequence[tuple[Box, Box]], title: str = "", font: str = "sans-serif"
) -> svg.Drawing:
    """Draw boxes in layers, and an arrow along each edge (source, target)."""
    given = set(edges)
    layers = _make_layers(boxes, edges)
    _order(layers)
    _place_layers(layers, _MARGIN + (24 if title else 0))
    every = [box for layer in layers for box in layer]
    width = max((b.x + max(b.width / 2, 14 + 6 * len(b.label)) for b in every), default=0.0) + _MARGIN
    height = max((b.y + b.height + (18 if b.label else 0) for b in every), default=0.0) + _MARGIN
    tip = svg.element("path", d="M0 0L8 4L0 8z", fill=_EDGE)
    marker = {
        "viewBox": "0 0 8 8",
        "refX": 7,
        "refY": 4,
        "markerWidth": 7,
        "markerHeight": 7,
        "orient": "auto-start-reverse",
    }
    parts = [svg.element("defs", svg.element("marker", tip, id="tip", **marker))]
    if title:
        parts.append(svg.text(_MARGIN, 24, title, font_size=15, font_weight="bold"))
    parts += [_edge_svg(box, end, given) for box in every if box.title for end in box.below]
    parts += [_box_svg(box) for box in every if box.title]
    return svg.document(max(width, len(title) * 9.5 + 2 * _MARGIN), height, parts, font=font, size=_TITLE)


# -- layers -----------------------------------------------------------------------------------------------------------------


def _make_layers(boxes: Sequence[Box], edges: Sequence[tuple[Box, Box]]) -> list[list[Box]]:
    """Return layers with every box below all its sources; in a cycle, the edges to the box that comes first point upwards."""
    readers: dict[Box, list[Box]] = {box: [] for box in boxes}
    sources: dict[Box, list[Box]] = {box: [] for box in boxes}
    for source, target in dict.fromkeys(edges):
        if source is not target:
            readers[source].append(target)
            sources[target].append(source)
    _assign_layers(boxes, readers, sources)
    for box in boxes:  # what has no source stands right above its first reader
        if not sources[box] and readers[box]:
            box.layer = min(reader.layer for reader in readers[box]) - 1
    layers: list[list[Box]] = [[] for _ in range(max((b.layer for b in boxes), default=0) + 1)]
    for box in boxes:
        layers[box.layer].append(box)
    for box in boxes:
        for reader in readers[box]:
            _connect(box, reader, layers)
    return layers


def _assign_layers(boxes: Sequence[Box], readers: dict[Box, list[Box]], sources: dict[Box, list[Box]]) -> None:
    """Assign a layer to each box, reversing edges of cycles."""
    missing = {box: len(sources[box]) for box in boxes}
    ready = deque(box for box in boxes if not missing[box])
    done: set[Box] = set()
    for candidate in boxes:
        if not ready and candidate not in done:  # all remaining boxes are on cycles, or below one
            for source in [s for s in sources[candidate] if s not in done]:
                readers[source].remove(candidate)
                sources[candidate].remove(source)
                if candidate not in sources[source]:
                    sources[source].append(candidate)
                    readers[candidate].append(source)
                    missing[source] += 1
            ready.append(candidate)
        while ready:
            box = ready.popleft()
            done.add(box)
            box.layer = max((source.layer + 1 for source in sources[box]), default=0)
            for reader in readers[box]:
                missing[reader] -= 1
                if not missing[reader]:
                    ready.append(reader)


def _connect(start: Box, end: Box, layers: list[list[Box]]) -> None:
    current = start
    for number in range(start.layer + 1, end.layer):
        bend = Box()
        bend.layer = number
        layers[number].append(bend)
        current.below.append(bend)
        bend.above.append(current)
        current = bend
    current.below.append(end)
    end.above.append(current)


def _order(layers: list[list[Box]]) -> None:
    """Sort each layer by the centres of connected boxes, down and up again, so that few edges cross."""
    for layer in layers:
        _number_boxes(layer)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            layer.sort(key=lambda box: _mean([b.place for b in (box.above if down else box.below)], box.place))
            _number_boxes(layer)


def _number_boxes(layer: list[Box]) -> None:
    for i, box in enumerate(layer):
        box.place = i


# -- coordinates --------------------------------------------------------------------------------------------------------------


def _place_layers(layers: list[list[Box]], y: float) -> None:
    for layer in layers:
        height = max((box.height for box in layer), default=0.0)
        for box in layer:
            box.height = box.height if box.title else height  # edges pass a layer upright: no corner of a box is cut
            box.y = y + (height - box.height) / 2
        y += height + _LAYER_GAP
        _spread(layer, [0.0] * len(layer))
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            _spread(layer, [_preferred_position(box, box.above if down else box.below) for box in layer])
    left = min((box.x - box.width / 2 for layer in layers for box in layer), default=0.0)
    for layer in layers:
        for box in layer:
            box.x += _MARGIN - left


def _preferred_position(box: Box, near: list[Box]) -> float:
    """Return the preferred position of a box: the centre of the boxes it is connected with, of bends only if there are no others."""
    return _mean([b.x for b in near if b.title] or [b.x for b in near], box.x)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _spread(layer: list[Box], wanted: list[float]) -> None:
    """Place boxes as near to their preferred positions as their order and the gaps allow: neighbours that collide move as one block, in
    which boxes weigh more than bends."""
    blocks: list[tuple[float, float, list[float]]] = []  # (sum of wishes, weight, offsets of the boxes from the first)
    for i, box in enumerate(layer):
        offset = 0.0 if i == 0 else (layer[i - 1].width + box.width) / 2 + _GAP
        weight = _WEIGHT if box.title else 1.0
        block = (wanted[i] * weight, weight, [0.0])
        while blocks:
            total, weight, offsets = blocks[-1]
            step = offsets[-1] + offset
            if total / weight + step <= block[0] / block[1]:
                break
            blocks.pop()
            block = (total + block[0] - step * block[1], weight + block[1], offsets + [step + o for o in block[2]])
            offset = 0.0 if len(blocks) == 0 else _distance(layer, i + 1 - len(block[2]))
        blocks.append(block)
    places = [total / weight + o for total, weight, offsets in blocks for o in offsets]
    for box, x in zip(layer, places):
        box.x = x


def _distance(layer: list[Box], index: int) -> float:
    """Return the minimal distance of the box at this index from the one before."""
    return (layer[index - 1].width + layer[index].width) / 2 + _GAP


# -- SVG ----------------------------------------------------------------------------------------------------------------------


def _edge_svg(start: Box, end: Box, edges: set[tuple[Box, Box]]) -> str:
    first, path = start, [f"M{start.x:.1f} {start.y + start.height:.1f}"]
    while True:
        y0, y1 = start.y + start.height, end.y
        middle = (y0 + y1) / 2
        path.append(f"C{start.x:.1f} {middle:.1f} {end.x:.1f} {middle:.1f} {end.x:.1f} {y1:.1f}")
        if end.title:
            break
        path.append(f"V{end.y + end.height:.1f}")
        start, end = end, end.below[0]
    ends = {"marker_start": (end, first), "marker_end": (first, end)}
    heads = {side: "url(#tip)" for side, edge in ends.items() if edge in edges}
    return svg.element("path", d="".join(path), fill="none", stroke=_EDGE, **heads)


def _box_svg(box: Box) -> str:
    parts = [
        svg.rect(box.x - box.width / 2, box.y, box.width, box.height, rx=5, fill=box.fill, stroke=box.stroke),
        svg.text(box.x, box.y + _PADDING / 2 + 0.75 * _LINE, box.title, text_anchor="middle", font_weight="bold"),
    ]
    for number, words in enumerate(box.details, 1):
        y = box.y + _PADDING / 2 + (number + 0.75) * _LINE
        parts.append(svg.text(box.x, y, words, text_anchor="middle", font_size=_DETAIL, fill="#4a5568"))
    if box.label:
        parts.append(svg.text(box.x + 8, box.y + box.height + 13, box.label, font_size=_DETAIL, fill="#666"))
    return "".join(parts)
