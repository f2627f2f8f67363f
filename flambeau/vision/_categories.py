"""Class names of data sets, which are those of the outputs of models trained on them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parents[1] / "data"


@functools.cache
def class_names(dataset: str) -> list[str]:
    """Return the names by class number: of "imagenet", "kinetics400", "coco" (up to 90, where gaps are N/A), "voc", "kitti", "flowers102",
    "person", "keypoint" (the points of a person), or "cityscapes" (with more data for each class)."""
    return data_text(f"{dataset}_classes.txt").splitlines()


def categories(dataset: str | None) -> dict[str, Any]:
    """Return the entries of a model's `meta` that name its outputs."""
    found: dict[str, Any] = {"categories": None if dataset is None else class_names(dataset)}
    if dataset == "person":
        found["keypoint_names"] = class_names("keypoint")
    return found


def data_text(name: str) -> str:
    """Return the text of a file in flambeau/data."""
    return (_DATA / name).read_text(encoding="utf-8")
