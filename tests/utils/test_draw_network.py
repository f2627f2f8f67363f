"""Pictures of networks."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import flambeau
from flambeau import nn
from flambeau.utils import draw


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return self.second(flambeau.relu(self.first(x))) + x


def texts(drawing):
    return [node.text for node in ElementTree.fromstring(str(drawing)).iter("{http://www.w3.org/2000/svg}text")]


def test_layers_steps_shapes_and_arrows(tmp_path):
    made = draw(Residual(), flambeau.ones(2, 4), path=tmp_path / "net.svg")
    found = texts(made)
    assert [t for t in found if t in ("input", "Linear", "relu", "add", "output")] == [
        "input",
        "Linear",
        "relu",
        "Linear",
        "add",
        "output",
    ]
    assert "first · 20 parameters" in found and found.count("2×4") == 5
    assert len(re.findall("marker-end", str(made))) == 6
    assert (tmp_path / "net.svg").read_text() == str(made) == made._repr_svg_()


def test_a_layer_is_drawn_for_every_call_and_attention_as_one():
    layer = nn.Linear(3, 3)
    assert texts(draw(nn.Sequential(layer, layer), flambeau.ones(1, 3))).count("Linear") == 2
    found = texts(draw(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), flambeau.ones(1, 5, 8)))
    assert found.count("MultiheadAttention") == 1 and found.count("add") == 2 and "view" not in found
    two = texts(draw(nn.Bilinear(2, 3, 4), flambeau.ones(1, 2), flambeau.ones(1, 3)))
    assert "input 0" in two and "input 1" in two
