"""`wrap_dataset_for_transforms_v2` and private helpers that programs import, beside torchvision's."""

from __future__ import annotations

import hashlib
import importlib
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from answers import judge, live, told

import flambeau
from flambeau import vision

from . import dataset_files
from .oracle import torchvision

Image = pytest.importorskip("PIL.Image")
PICTURE = Image.fromarray(dataset_files.pixels(6, 8, 3))
LABELS = Image.fromarray(np.array([[0, 7], [7, 26001], [26002, 26001]], np.int32))
PALETTE = Image.fromarray(dataset_files.pixels(6, 8) % 3).convert("P")
RUNS = {"counts": [5, 6, 37], "size": [6, 8]}
OBJECTS = [
    {"image_id": 40, "bbox": [1, 2, 3, 4], "category_id": 7, "area": 12.0, "iscrowd": 0, "segmentation": [[1, 1, 6, 1, 6, 5]]},
    {"image_id": 40, "bbox": [0, 1, 2.5, 4], "category_id": 90, "area": 10.0, "iscrowd": 1, "segmentation": RUNS},
]  # fmt: skip
CARS = [
    {"type": kind, "truncated": 0.5, "occluded": 1, "alpha": -1.6, "bbox": [1.0, 2.0, 3.5, 4.0]}
    for kind in ("Car", "Tram")
]
XML = {"folder": "VOC", "object": [{"name": "cat", "bndbox": {"xmin": "1", "ymin": "2", "xmax": "5", "ymax": "6"}}]}
FACES = {key: [[1, 2, 3, 4], [0, 1, 5, 2]] if key == "bbox" else [0, 1] for key in ["bbox", "blur", "pose", "invalid"]}
COCO_KEYS = ["boxes", "area", "bbox", "labels"]
# name of a case: class, settings, target, target_keys
CASES: dict[str, tuple[str, dict[str, Any], Any, Any]] = {
    "classes": ("CIFAR100", {}, 3, None),
    "captions": ("CocoCaptions", {}, ["a cat"], None),
    "coco": ("CocoDetection", {"ids": [40]}, OBJECTS, None),
    "coco, chosen": ("CocoDetection", {"ids": [40]}, OBJECTS, COCO_KEYS),
    "coco, nothing": ("CocoDetection", {"ids": [40]}, [], ["boxes"]),
    "coco, unknown": ("CocoDetection", {"ids": [40]}, OBJECTS, ["boxes", "box"]),
    "coco, wrong": ("CocoDetection", {"ids": [40]}, OBJECTS, 3),
    "voc": ("VOCDetection", {}, {"annotation": XML}, None),
    "voc, all": ("VOCDetection", {}, {"annotation": XML}, "all"),
    "segmentation": ("VOCSegmentation", {}, PALETTE, None),
    "segmentation with keys": ("VOCSegmentation", {}, PALETTE, ["mask"]),
    "segmentation with all": ("VOCSegmentation", {}, PALETTE, "all"),
    "boundaries": ("SBDataset", {"mode": "boundaries"}, None, None),
    "boundaries no more": ("SBDataset", {"mode": "segmentation"}, PALETTE, None),
    "outline": ("Caltech101", {"target_type": ["category", "annotation"]}, (1, 2), None),
    "no outline": ("Caltech101", {"target_type": ["category"]}, 1, None),
    "kitti": ("Kitti", {}, CARS, None),
    "kitti, chosen": ("Kitti", {}, CARS, {"type", "bbox", "boxes"}),
    "kitti's test": ("Kitti", {}, None, None),
    "pet": ("OxfordIIITPet", {"_target_types": ["category", "segmentation"]}, (4, PALETTE), None),
    "pet alone": ("OxfordIIITPet", {"_target_types": ["segmentation"]}, PALETTE, None),
    "cityscapes": ("Cityscapes", {"target_type": ["instance", "semantic"]}, (LABELS, PALETTE), None),
    "cityscapes' colours": ("Cityscapes", {"target_type": ["color"]}, PALETTE, None),
    "celeba": ("CelebA", {"target_type": ["identity", "bbox"]}, "identity and box", None),
    "celeba's attributes": ("CelebA", {"target_type": ["attr"]}, 0, None),
    "widerface": ("WIDERFace", {}, "faces", ["bbox", "pose"]),
    "video": ("UCF101", {"video_clips": SimpleNamespace(output_format="TCHW")}, 5, None),
    "video, channels last": ("Kinetics", {"video_clips": SimpleNamespace(output_format="THWC")}, 5, None),
    "no rule": ("Places365", {}, 3, None),
}  # fmt: skip


def plain(value: Any) -> Any:
    """A sample as text that compares across libraries: kinds of tensors with their canvas and format."""
    if hasattr(value, "detach"):
        details = [getattr(value, "canvas_size", None), getattr(getattr(value, "format", None), "name", None)]
        return [type(value).__name__, str(value.dtype).split(".")[-1], value.tolist(), *details]
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *map(plain, value)]
    return value if isinstance(value, (int, float, str, type(None))) else [value.mode, value.size]


def wrapped(torch: Any, module: Any, case: str) -> Any:
    """The plain sample of a wrapped data set of this class that holds this target, or the kind of error."""
    name, settings, target, keys = CASES[case]
    if case == "celeba":
        target = torch.tensor(7), torch.tensor([1, 2, 3, 4])
    elif case == "widerface":
        target = {key: torch.tensor(value) for key, value in FACES.items()}
    sample = (torch.zeros(2, 3, 4, 5), torch.ones(1, 0), target) if "video" in case else (PICTURE, target)

    def start(self: Any) -> None:
        module.datasets.VisionDataset.__init__(self, "")
        vars(self).update(settings)

    methods = {"__init__": start, "__getitem__": lambda self, index: sample, "__len__": lambda self: 1}
    try:
        data = module.datasets.wrap_dataset_for_transforms_v2(
            type(name, (getattr(module.datasets, name),), methods)(), keys
        )
        assert isinstance(data, getattr(module.datasets, name)) and len(data) == 1
        return plain(data[0])
    except (ValueError, TypeError, RuntimeError) as problem:
        return type(problem).__name__


@pytest.mark.parametrize("case", CASES)
def test_samples_are_torchvisions(case: str) -> None:
    expected = told(case, lambda: repr(wrapped(judge("torch"), torchvision(), case)))
    assert repr(wrapped(flambeau, vision, case)) == expected


def test_masks_of_coco(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pycocotools")
    monkeypatch.setitem(CASES, "masks", ("CocoDetection", {"ids": [40]}, OBJECTS, "all"))
    found = wrapped(flambeau, vision, "masks")
    assert sum(map(sum, found[2]["masks"][2][1])) == 6  # the second run
    assert not live() or found == wrapped(judge("torch"), torchvision(), "masks")


def half(image: Any) -> Any:
    return image.size[0] / 2


def test_transforms_move_to_the_wrapper(tmp_path: Path) -> None:
    dataset_files.image_folder(tmp_path)
    inner = vision.datasets.ImageFolder(str(tmp_path), transform=half)
    before = inner[1]
    data = vision.datasets.wrap_dataset_for_transforms_v2(inner)
    assert data[1] == before == (4.5, 0) and inner[1][0].size == (9, 7)
    assert data.classes == inner.classes and repr(data).startswith(
        "Dataset WrappedImageFolder\n    Number of datapoints: 6"
    )
    again = pickle.loads(pickle.dumps(data))
    assert again[1] == before and type(again).__name__ == "WrappedImageFolder" and isinstance(again, type(inner))
    with pytest.raises(TypeError, match="VisionDataset"):
        vision.datasets.wrap_dataset_for_transforms_v2(flambeau.utils.data.TensorDataset(flambeau.ones(3)))


PIL_CALLS: dict[str, tuple] = {
    "adjust_brightness": (1.5,), "adjust_contrast": (0.5,), "adjust_gamma": (1.5, 2.0), "adjust_hue": (0.25,),
    "adjust_saturation": (0.5,), "adjust_sharpness": (2.0,), "affine": ([1.0, 0.2, 0.5, 0.1, 0.9, 0.0], 2), "autocontrast": (),
    "crop": (1, 2, 3, 4), "equalize": (), "get_dimensions": (), "get_image_num_channels": (), "get_image_size": (), "hflip": (),
    "invert": (), "pad": ([1, 2], 5, "constant"), "perspective": ([1.0, 0.1, 0.0, 0.1, 1.0, 0.0, 0.01, 0.0],), "posterize": (3,),
    "resize": ([3, 5], 3), "rotate": (30.0, 2, True, None, [1, 2, 3]), "solarize": (100,), "to_grayscale": (3,), "vflip": (),
    "_is_pil_image": (), "_parse_fill": (),
}  # fmt: skip


@pytest.mark.parametrize("name", PIL_CALLS)
def test_private_functions_of_images(name: str) -> None:
    def answer(module: Any) -> Any:
        function = getattr(importlib.import_module(f"{module.__name__}.transforms._functional_pil"), name)
        found = function(3, PICTURE) if name == "_parse_fill" else function(PICTURE, *PIL_CALLS[name])
        return [found.mode, found.size, found.tobytes().hex()] if hasattr(found, "mode") else found

    assert answer(vision) == told(name, lambda: answer(torchvision()))


def test_private_helpers_of_boxes() -> None:
    rows = [[[0.0, 0, 4, 4], [1, 1, 3, 5]], [[2.0, 2, 6, 6]]]

    def answers(torch: Any, module: Any) -> Any:
        utils = importlib.import_module(f"{module.__name__}.ops._utils")
        boxes = [torch.tensor(each) for each in rows]
        layers = torch.nn.Sequential(
            torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Sequential(torch.nn.LayerNorm(3))
        )
        layers[0].bias.requires_grad_(False)
        dtypes = [torch.float16, torch.float64, torch.int8, torch.int64, torch.bool]
        found = [
            utils.convert_boxes_to_roi_format(boxes),
            utils.check_roi_boxes_shape(boxes),
            utils._cat(boxes[:1]) is boxes[0],
            utils._cat(boxes, 0),
            [[list(p.shape) for p in part] for part in utils.split_normalization_params(layers)],
            [[list(p.shape) for p in part] for part in utils.split_normalization_params(layers, [torch.nn.Linear])],
            [str(f(torch.zeros(1, dtype=d)).dtype).split(".")[-1] for d in dtypes for f in (utils._upcast, utils._upcast_non_float)],
            utils._loss_inter_union(boxes[0], boxes[1].expand(2, 4)),
        ]  # fmt: skip
        for wrong in ([boxes[0][:, :3]], boxes[0], "boxes"):
            with pytest.raises(AssertionError) as problem:
                utils.check_roi_boxes_shape(wrong)
            found.append(str(problem.value))
        return plain(found)

    assert repr(answers(flambeau, vision)) == told("boxes", lambda: repr(answers(judge("torch"), torchvision())))


def test_class_names() -> None:
    names = "IMAGENET_CATEGORIES COCO_CATEGORIES COCO_PERSON_CATEGORIES COCO_PERSON_KEYPOINT_NAMES VOC_CATEGORIES KINETICS400_CATEGORIES"

    def digest(module: Any) -> str:
        meta = importlib.import_module(f"{module.__name__}.models._meta")
        return hashlib.sha256(repr([getattr(meta, f"_{name}") for name in names.split()]).encode()).hexdigest()

    assert digest(vision) == told("class names", lambda: digest(torchvision()))
    meta = importlib.import_module("flambeau.vision.models._meta")
    assert vision.models.ResNet18_Weights.DEFAULT.meta["categories"] is meta._IMAGENET_CATEGORIES
