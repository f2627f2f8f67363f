"""The tensors that know what they show, against torchvision."""

from __future__ import annotations

import copy

import pytest

from .compare import check, libraries

CASES = [
    ("image", lambda L: L.TV.Image(L.torch.arange(12).reshape(3, 2, 2))),
    ("image 2d", lambda L: L.TV.Image(L.torch.zeros(2, 2))),
    ("image 1d", lambda L: L.TV.Image(L.torch.zeros(2))),
    ("image dtype", lambda L: L.TV.Image([[1, 2], [3, 4]], dtype=L.torch.float64)),
    ("video", lambda L: L.TV.Video(L.torch.zeros(2, 1, 2, 2))),
    ("video 3d", lambda L: L.TV.Video(L.torch.zeros(2, 2, 2))),
    ("mask", lambda L: L.TV.Mask(L.torch.zeros(2, 2, dtype=L.torch.uint8))),
    ("boxes", lambda L: L.TV.BoundingBoxes([[1, 2, 3, 4]], format="xyxy", canvas_size=(10, 11))),
    ("boxes 1d", lambda L: L.TV.BoundingBoxes([1, 2, 3, 4], format="XYWH", canvas_size=[10, 11])),
    ("boxes 3d", lambda L: L.TV.BoundingBoxes([[[1.0, 2, 3, 4]]], format="xyxy", canvas_size=(10, 11))),
    ("boxes format", lambda L: L.TV.BoundingBoxes([[1.0, 2, 3, 4]], format="foo", canvas_size=(10, 11))),
    (
        "boxes mode",
        lambda L: L.TV.BoundingBoxes([[1.0, 2, 3, 4]], format="xyxy", canvas_size=(10, 11), clamping_mode="x"),
    ),
    ("points", lambda L: L.TV.KeyPoints([[1.0, 2.0]], canvas_size=(3, 4))),
    ("points 1d", lambda L: L.TV.KeyPoints([1.0, 2.0], canvas_size=(3, 4))),
    ("points shape", lambda L: L.TV.KeyPoints(L.torch.zeros(2, 3), canvas_size=(2, 2))),
    ("add", lambda L: boxes(L) + 1),
    ("clone", lambda L: boxes(L).clone()),
    ("to", lambda L: boxes(L).to(L.torch.float64)),
    ("detach", lambda L: boxes(L).detach()),
    ("in place", lambda L: boxes(L).add_(1)),
    ("deepcopy", lambda L: copy.deepcopy(boxes(L))),
    ("index", lambda L: boxes(L)[0]),
    ("stack", lambda L: L.torch.stack([boxes(L), boxes(L)])),
    ("kept add", lambda L: kept(L, lambda: boxes(L) + 1)),
    ("kept unbind", lambda L: kept(L, lambda: boxes(L).unbind())),
    ("kept sum", lambda L: kept(L, lambda: L.TV.Image(L.torch.ones(1, 2, 2)).sum())),
    ("kept view", lambda L: kept(L, lambda: boxes(L).view(-1, 2))),
    ("kept mix", lambda L: kept(L, lambda: boxes(L) + L.TV.Image(L.torch.ones(1, 2, 2)))),
    ("return type", lambda L: L.TV.set_return_type("x")),
    ("wrap", lambda L: L.TV.wrap(L.torch.zeros(1, 4), like=boxes(L), format="XYWH")),
    ("rotated", lambda L: [L.TV.is_rotated_bounding_format(f) for f in ("xyxy", "XYWHR")]),
]


def boxes(L):
    return L.TV.BoundingBoxes([[1, 2, 3, 4]], format="XYXY", canvas_size=(10, 11))


def kept(L, make):
    with L.TV.set_return_type("TVTensor"):
        return make()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_behaviour(case):
    check(case[1])


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c[0] in ("image", "video", "mask", "boxes", "points", "wrap", "image dtype")],
    ids=lambda case: case[0],
)
def test_printed_form(case):
    ours, theirs = libraries()
    assert repr(case[1](ours)) == repr(case[1](theirs))
