"""Conversion of samples for `transforms.v2`: boxes, masks and videos become the tensors of `tv_tensors`."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import flambeau
from flambeau import Tensor

from .._categories import class_names
from ..ops import boxes as box_operators
from ..tv_tensors import BoundingBoxes, Mask, Video
from .annotated import Cityscapes, Kitti, SBDataset, WIDERFace
from .caltech import Caltech101, Caltech256
from .celeba import CelebA
from .cifar import CIFAR10
from .coco import CocoCaptions, CocoDetection
from .folder import DatasetFolder
from .imagenet import ImageNet
from .listed import GTSRB, Imagenette, OxfordIIITPet
from .mnist import MNIST
from .utils import optional_module
from .video import HMDB51, UCF101, Kinetics
from .vision import VisionDataset
from .voc import VOCDetection, VOCSegmentation

Maker = Callable[[dict[str, Any], Any], Any]  # of a new value, from all entries of the target and the image
_TRANSFORMS = ("transform", "target_transform", "transforms")


class _Rule(NamedTuple):
    """Conversion of the samples of a data set; an empty rule keeps them as they are."""

    makers: Mapping[str, Maker] = {}  # by key; other entries of the target are kept
    keys: str = ""  # of a target that is a dict, or a list of dicts, which becomes a dict of lists
    default: str = ""  # those of the keys that are usual, if not all are
    types: (
        str | tuple[str, ...]
    ) = ()  # keys for a target that is one item, or a tuple of items; or the data set's setting with them
    refused: tuple[str, ...] = ()  # a setting of the data set, and its values that no transform understands
    video: bool = False  # the sample begins with a video, not with an image


def _size(image: Any) -> tuple[int, ...]:
    return tuple(image.shape[-2:]) if isinstance(image, Tensor) else (image.height, image.width)


def _boxes(rows: Any, image: Any, format: str = "xyxy") -> BoundingBoxes:
    corners = box_operators.to_corners(flambeau.as_tensor(rows), format)
    return BoundingBoxes(corners, format="XYXY", canvas_size=_size(image))  # type: ignore[arg-type]


def _make_boxes(entries: dict[str, Any], image: Any) -> BoundingBoxes:
    return _boxes(entries["bbox"], image, "xywh")


def _numbers(dataset: str, names: Iterable[str]) -> Tensor:
    known = class_names(dataset)
    return flambeau.tensor([known.index(name) for name in names])


def _coco_masks(entries: dict[str, Any], image: Any) -> Mask:
    """Return the masks (N, H, W) of objects given as polygons or as run lengths."""
    tools = optional_module("pycocotools.mask", "CocoDetection with masks")
    masks = []
    for outline in entries["segmentation"]:
        if isinstance(outline, list):
            outline = tools.merge(tools.frPyObjects(outline, *_size(image)))
        elif not isinstance(outline, dict):
            raise ValueError(f"COCO segmentation expected to be a dict or a list, got {type(outline)}")
        elif not isinstance(outline["counts"], str):  # not encoded yet
            outline = tools.frPyObjects(outline, *_size(image))
        masks.append(flambeau.from_numpy(tools.decode(outline)))
    return Mask(flambeau.stack(masks))


def _voc_boxes(entries: dict[str, Any], image: Any) -> BoundingBoxes:
    found = [each["bndbox"] for each in entries["annotation"]["object"]]
    return _boxes([[int(box[side]) for side in ("xmin", "ymin", "xmax", "ymax")] for box in found], image)


def _instances(entries: dict[str, Any], image: Any) -> dict[str, Tensor]:
    """Return masks and labels of Cityscapes' objects, whose pixels are 1000 * class + number, or the class alone."""
    pixels = Mask(entries["instance"])
    values = pixels.unique()
    masks = flambeau.stack([pixels == value for value in values])
    return {"masks": Mask(masks), "labels": flambeau.where(values >= 1000, values // 1000, values)}


_SEGMENTATION = _Rule({"mask": lambda entries, image: Mask(entries["mask"])}, types=("mask",))
# By class; subclasses are treated as the nearest class that is here.
_RULES: dict[type, _Rule] = {
    **dict.fromkeys((Caltech256, CIFAR10, CocoCaptions, DatasetFolder, GTSRB, ImageNet, Imagenette, MNIST), _Rule()),
    **dict.fromkeys((HMDB51, Kinetics, UCF101), _Rule(video=True, refused=("video_clips.output_format", "THWC"))),
    Caltech101: _Rule(refused=("target_type", "annotation")),
    CelebA: _Rule({"bbox": _make_boxes}, types="target_type", refused=("target_type", "attr", "landmarks")),
    Cityscapes: _Rule(
        {"instance": _instances, "semantic": lambda entries, image: Mask(entries["semantic"])},
        types="target_type",
        refused=("target_type", "polygon", "color"),
    ),
    CocoDetection: _Rule(
        {
            "image_id": lambda entries, image: entries["image_id"][0],
            "boxes": _make_boxes,
            "masks": _coco_masks,
            "labels": lambda entries, image: flambeau.tensor(entries["category_id"]),
        },
        keys="image_id boxes masks labels segmentation area iscrowd bbox category_id",
        default="image_id boxes labels",
    ),
    Kitti: _Rule(
        {
            "boxes": lambda entries, image: _boxes(entries["bbox"], image),
            "labels": lambda entries, image: _numbers("kitti", entries["type"]),
        },
        keys="boxes labels type truncated occluded alpha bbox dimensions location rotation_y",
        default="boxes labels",
    ),
    OxfordIIITPet: _Rule({"segmentation": lambda entries, image: Mask(entries["segmentation"])}, types="_target_types"),
    SBDataset: _SEGMENTATION._replace(refused=("mode", "boundaries")),
    VOCDetection: _Rule(
        {
            "boxes": _voc_boxes,
            "labels": lambda entries, image: _numbers("voc", [o["name"] for o in entries["annotation"]["object"]]),
        },
        keys="annotation boxes labels",
        default="boxes labels",
    ),
    VOCSegmentation: _SEGMENTATION,
    WIDERFace: _Rule({"bbox": _make_boxes}, keys="bbox blur expression illumination occlusion pose invalid"),
}


class _WrappedDataset:
    """First base of the class of a wrapped data set; the second is the class of the data set itself."""

    def __init__(self, dataset: Any, target_keys: Collection[str] | None):
        name = type(dataset).__name__
        if not isinstance(dataset, VisionDataset):
            raise TypeError(f"Only subclasses of torchvision.datasets.VisionDataset can be wrapped, but got a {name!r}")
        rule = next((_RULES[kind] for kind in type(dataset).__mro__ if kind in _RULES), None)
        if rule is None:
            raise TypeError(f"No wrapper exists for dataset class {name}. Please wrap the output yourself.")
        usual = (rule.default or rule.keys).split()
        wanted = usual if target_keys is None else rule.keys.split() if target_keys == "all" else target_keys
        if not set(wanted) <= set(rule.keys.split()) or (target_keys is not None and not rule.keys):
            raise ValueError(f"target_keys of {name} can be among {rule.keys.split()}, but got {target_keys}")
        if rule.refused:
            setting, *values = rule.refused
            given = operator.attrgetter(setting)(dataset)
            if any(value in given for value in values):
                raise RuntimeError(f"{name} with {setting}={given!r} is not supported by this wrapper")
        self._dataset, self._target_keys, self._rule = dataset, target_keys, rule
        types = getattr(dataset, rule.types) if isinstance(rule.types, str) else rule.types
        self._keys = types if rule.types else wanted
        # The transforms are applied here, after the conversion; the data set itself has none from now on.
        for setting in _TRANSFORMS:
            setattr(self, setting, getattr(dataset, setting))
            setattr(dataset, setting, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def __getitem__(self, index: int) -> Any:
        sample = self._dataset[index]
        if self._rule.video:
            sample = (Video(sample[0]), *sample[1:])
        elif self._rule.makers and sample[1] is not None:  # test sets have no targets
            sample = sample[0], self._convert_sample(index, *sample)
        return sample if self.transforms is None else self.transforms(*sample)

    def _convert_sample(self, index: int, image: Any, target: Any) -> Any:
        def made(key: str, entries: dict[str, Any]) -> Any:
            return makers[key](entries, image) if key in makers else entries[key]

        makers = self._rule.makers
        if self._rule.types:
            items = target if isinstance(target, (tuple, list)) else [target]
            found = tuple(made(key, {key: item}) for key, item in zip(self._keys, items))
            return found[0] if len(found) == 1 else found
        if not target and "image_id" in makers:  # COCO has images without objects
            return {"image_id": self.ids[index]}
        if isinstance(target, list):
            columns: dict[str, list] = {}
            for key, value in (entry for each in target for entry in each.items()):
                columns.setdefault(key, []).append(value)
            target = columns
        return {key: made(key, target) for key in self._keys}

    def __len__(self) -> int:
        return len(self._dataset)

    def __reduce__(self) -> tuple:
        """Pickle as the data set with its transforms, to be wrapped again: the class is made at run time."""
        dataset = copy.copy(self._dataset)
        for setting in _TRANSFORMS:
            setattr(dataset, setting, getattr(self, setting))
        return wrap_dataset_for_transforms_v2, (dataset, self._target_keys)


def wrap_dataset_for_transforms_v2(dataset: Any, target_keys: Collection[str] | None = None) -> Any:
    """Wrap a data set of this package so that its samples fit `transforms.v2`; the result is still an instance of its class.

    Boxes become `BoundingBoxes` as XYXY, segmentations `Mask`, clips `Video`; lists of objects (CocoDetection, Kitti) become dicts of
    lists with "boxes" and "labels". Samples of classification data sets stay as they are. The data set's transforms move to
    the wrapper.

    `target_keys` chooses the entries of a dict target (CocoDetection, VOCDetection, Kitti, WIDERFace): names, "all", or None for the
    usual ones. Masks of CocoDetection need pycocotools.
    """
    names = isinstance(target_keys, Collection) and all(isinstance(key, str) for key in target_keys)
    if target_keys is not None and not names:
        raise ValueError(f"target_keys can be None, 'all', or a collection of strings, but got {target_keys}")
    wrapped = type(f"Wrapped{type(dataset).__name__}", (_WrappedDataset, type(dataset)), {})
    return wrapped(dataset, target_keys)
