"""The writer of SVG, and the layout of graphs: well-formed, nothing over anything else, cycles included."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from flambeau.core import svg
from flambeau.utils.layered import Box, picture

SPACE = "{http://www.w3.org/2000/svg}"


def test_text_and_attributes_are_escaped_and_numbers_short(tmp_path: Path) -> None:
    made = svg.document(
        10.4,
        20,
        [
            svg.rect(1, 2.0, 3.25, 4.123456, 'a<b>&"c"', fill="none", stroke=None),
            svg.text(0, 1, "x < y & z", font_size=9),
        ],
    )
    made.save(tmp_path / "a.svg")
    root = ElementTree.fromstring((tmp_path / "a.svg").read_text())
    _, rect, text = root
    assert (root.get("width"), root.get("viewBox")) == ("10", "0 0 10 20")
    assert rect.attrib == {"x": "1", "y": "2", "width": "3.25", "height": "4.12", "fill": "none"}
    assert rect[0].text == 'a<b>&"c"' and text.text == "x < y & z" and text.get("font-size") == "9"
    assert made._repr_svg_() == made


def test_groups_and_polygons() -> None:
    made = svg.document(
        9, 9, [svg.group(1, 2.5, [svg.polygon([(0, 0), (1.23456, 2)], fill="red"), svg.line(0, 0, 1, 1)])]
    )
    group = ElementTree.fromstring(made)[1]
    assert group.get("transform") == "translate(1,2.5)"
    assert group[0].get("points") == "0,0 1.23,2"
    assert group[1].attrib == {"x1": "0", "y1": "0", "x2": "1", "y2": "1"}


def _rectangles(made: str) -> list[tuple[float, ...]]:
    found = [r.attrib for r in ElementTree.fromstring(made).iter(SPACE + "rect") if "rx" in r.attrib]
    return [tuple(float(r[k]) for k in ("x", "y", "width", "height")) for r in found]


def _arrows(made: str) -> list[Any]:
    return [
        p for p in ElementTree.fromstring(made).iter(SPACE + "path") if {"marker-start", "marker-end"} & set(p.attrib)
    ]


def test_cycles_are_drawn_with_arrows_that_point_upwards() -> None:
    a, b, c = (Box(name, fill="white", stroke="black") for name in "abc")
    made = picture([a, b, c], [(a, b), (b, c), (c, a), (a, a)], "Cycle")
    assert (a.layer, b.layer, c.layer) == (0, 1, 2)
    assert len(_rectangles(made)) == 3
    assert sum("marker-start" in p.attrib for p in _arrows(made)) == 1 and len(_arrows(made)) == 3


def test_whatever_the_graph_boxes_do_not_overlap_and_all_edges_are_there() -> None:
    chance = random.Random(0)
    for _ in range(20):
        boxes = [Box(f"box {i}", ["x" * chance.randrange(30)], label="1×2") for i in range(chance.randrange(1, 25))]
        edges = {(chance.choice(boxes), chance.choice(boxes)) for _ in range(chance.randrange(50))}
        made = picture(boxes, sorted(edges, key=lambda e: (boxes.index(e[0]), boxes.index(e[1]))))
        found = _rectangles(made)
        assert len(found) == len(boxes)
        heads = sum(m in p.attrib for p in _arrows(made) for m in ("marker-start", "marker-end"))
        assert heads == sum(source is not target for source, target in edges)
        for i, (x, y, width, height) in enumerate(found):
            for left, top, wide, high in found[:i]:
                beside = x + width <= left + 0.2 or left + wide <= x + 0.2
                assert beside or y + height <= top + 0.2 or top + high <= y + 0.2
