"""Class names for the outputs of published models, from the datasets they were trained on."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parents[2] / "data"

# COCO numbers its 80 classes up to 90; the gaps are N/A.
_COCO = """person bicycle car motorcycle airplane bus train truck boat traffic_light fire_hydrant N/A stop_sign parking_meter
bench bird cat dog horse sheep cow elephant bear zebra giraffe N/A backpack umbrella N/A N/A handbag tie suitcase frisbee skis
snowboard sports_ball kite baseball_bat baseball_glove skateboard surfboard tennis_racket bottle N/A wine_glass cup fork knife
spoon bowl banana apple sandwich orange broccoli carrot hot_dog pizza donut cake chair couch potted_plant bed N/A dining_table
N/A N/A toilet N/A tv laptop mouse remote keyboard cell_phone microwave oven toaster sink refrigerator N/A book clock vase
scissors teddy_bear hair_drier toothbrush"""
_VOC = """aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person pottedplant sheep sofa
train tvmonitor"""
_SIDES = "eye ear shoulder elbow wrist hip knee ankle"


@functools.cache
def _names(dataset: str) -> list[str]:
    if dataset in ("imagenet", "kinetics400"):
        return data_text(f"{dataset}_classes.txt").splitlines()
    if dataset == "person":
        return ["no person", "person"]
    words = (_COCO if dataset == "coco" else _VOC).split()
    return ["__background__", *(word.replace("_", " ") for word in words)]


def categories(dataset: str | None) -> dict[str, Any]:
    """The entries of a model's `meta` that name its outputs."""
    if dataset is None:
        return {"categories": None}
    found: dict[str, Any] = {"categories": _names(dataset)}
    if dataset == "person":
        parts = [f"{side}_{part}" for part in _SIDES.split() for side in ("left", "right")]
        found["keypoint_names"] = ["nose", *parts]
    return found


def data_text(name: str) -> str:
    """Return the text of a file in flambeau/data."""
    return (_DATA / name).read_text(encoding="utf-8")
