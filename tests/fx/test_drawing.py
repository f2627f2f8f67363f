"""Pictures of graphs: well-formed, complete, nothing over anything else; those in the documentation are up to date."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import flambeau as torch
from flambeau import fx, nn
from flambeau.fx import drawing
from flambeau.fx.drawing import draw_graph
from flambeau.fx.passes.shape_prop import ShapeProp

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


class Block(nn.Module):
    """The network of docs/graphs.md."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.conv(x)))
        return y + y.mean((2, 3), keepdim=True)


def elements(svg: str, name: str) -> list[Any]:
    return list(ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}" + name))


def boxes(svg: str) -> list[tuple[float, float, float, float]]:
    found = [r.attrib for r in elements(svg, "rect") if "rx" in r.attrib]
    return [(*(float(r[k]) for k in ("x", "y", "width", "height")),) for r in found]  # type: ignore[misc]


def test_a_box_for_each_node_and_an_arrow_for_each_reader() -> None:
    traced = fx.symbolic_trace(Block())
    ShapeProp(traced).propagate(torch.ones(2, 3, 8, 8))
    picture = draw_graph(traced)
    assert picture._repr_svg_() == picture
    assert len(boxes(picture)) == len(traced.graph.nodes)
    arrows = [p for p in elements(picture, "path") if "marker-end" in p.attrib]
    assert len(arrows) == sum(len(n.users) for n in traced.graph.nodes)
    words = [t.text for t in elements(picture, "text")]
    assert {"conv", "Conv2d (conv)", "float32[2, 8, 8, 8]", ".mean()", "torch.relu", "operator.add"} <= set(words)


def test_boxes_do_not_overlap_whatever_the_graph() -> None:
    chance = random.Random(0)
    for _ in range(10):
        graph = fx.Graph()
        nodes = [graph.placeholder("a<b>&'x'"), graph.placeholder("y")]
        for _ in range(chance.randrange(40)):
            nodes.append(graph.call_function(torch.add, (chance.choice(nodes), chance.choice(nodes[-5:]))))
        graph.output(tuple(chance.sample(nodes, 2)))
        found = boxes(draw_graph(graph))
        assert len(found) == len(graph.nodes)
        for i, (x, y, width, height) in enumerate(found):
            for left, top, wide, high in found[:i]:
                assert (
                    x + width <= left + 0.2
                    or left + wide <= x + 0.2
                    or y + height <= top + 0.2
                    or top + high <= y + 0.2
                )


def test_parameters_can_be_left_out() -> None:
    program = torch.export.export(Block().eval(), (torch.randn(2, 3, 8, 8),))
    assert len(boxes(draw_graph(program.graph_module, parameters=False))) == 7
    assert draw_graph(fx.Graph()).startswith("<svg")


def test_the_pictures_of_the_documentation_are_those_drawn_now() -> None:
    traced = fx.symbolic_trace(Block())
    ShapeProp(traced).propagate(torch.ones(2, 3, 8, 8))
    assert draw_graph(traced) == (PICTURES / "graph-fx.svg").read_text()
    program = torch.export.export(
        Block().eval(), (torch.randn(2, 3, 8, 8),), dynamic_shapes={"x": {0: torch.export.Dim("batch")}}
    )
    assert draw_graph(program.graph_module) == (PICTURES / "graph-export.svg").read_text()


def test_saved_pictures(tmp_path: Path) -> None:
    drawing.Drawing("<svg/>").save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == "<svg/>"
