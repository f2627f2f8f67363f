"""Learning curves: what they draw, and where they say nothing."""

from __future__ import annotations

import sys
import types
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

import flambeau
from flambeau.utils.curves import Curves


def test_picture_has_a_line_and_a_name_for_each_curve() -> None:
    curves = Curves("loss")
    for step in range(4):
        curves.add(train=1 / (step + 1), validation=flambeau.tensor(2.0))
    root = ElementTree.fromstring(curves._repr_svg_())
    texts = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    lines = [e.get("points", "").split() for e in root.iter("{http://www.w3.org/2000/svg}polyline")]
    assert {"loss", "train", "validation", "4"} <= set(texts)
    assert [len(points) for points in lines] == [4, 4]
    heights = [float(point.split(",")[1]) for point in lines[1]]
    assert heights == sorted(heights)  # a falling loss goes down in the picture


def test_names_stand_above_curves_that_rise_and_beside_each_other() -> None:
    curves = Curves("accuracy")
    for step in range(4):
        curves.add(train=step, validation=step / 2)
    root = ElementTree.fromstring(curves._repr_svg_())
    texts = {e.text: e for e in root.iter("{http://www.w3.org/2000/svg}text")}
    points = [p for e in root.iter("{http://www.w3.org/2000/svg}polyline") for p in e.get("points", "").split()]
    assert all(
        float(texts[name].get("y", "")) < min(float(p.split(",")[1]) for p in points)
        for name in ("train", "validation")
    )
    assert float(texts["train"].get("x", "")) < float(texts["validation"].get("x", "")) - 50


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 1.0], [float("nan"), 1.0], [float("inf")]])
def test_odd_curves_can_be_drawn(values: list[float]) -> None:
    curves = Curves()
    for value in values:
        curves.add(loss=value)
    drawn = curves.draw()
    ElementTree.fromstring(drawn)
    assert "nan" not in drawn and "inf" not in drawn


def test_quiet_in_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Curves().add(loss=1.0)
    assert capsys.readouterr() == ("", "")


def test_notebook_shows_one_picture_and_updates_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    updates: list[Any] = []

    def display(value: Any, display_id: bool) -> Any:
        shown.append(value)
        return types.SimpleNamespace(update=updates.append)

    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))  # type: ignore[arg-type]
    curves = Curves()
    for loss in (3.0, 2.0, 1.0):
        curves.add(loss=loss)
    assert shown == [curves] and updates == [curves, curves]
