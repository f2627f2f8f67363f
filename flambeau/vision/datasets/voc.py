"""Pascal VOC: images with segmentations or with boxes."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any
from xml.etree import ElementTree

from ...utils.pillow import pillow
from .utils import MISSING_OR_CORRUPTED, download_and_extract_archive, verify_str_arg
from .vision import Transform, VisionDataset

_SERVER = "https://thor.robots.ox.ac.uk/pascal/VOC/"
# set -> date in the archive's name, checksum
_ARCHIVES = {
    "2012": ("11-May-2012", "6cd6e144f989b92b3379bac3b3de84fd"),
    "2011": ("25-May-2011", "6c3384ef61512963050cb5d687e5bf1e"),
    "2010": ("03-May-2010", "da459979d0c395079b5c75ee67908abb"),
    "2009": ("11-May-2009", "a3e00b113cfcfebf17e343f59da3caa1"),
    "2008": ("14-Jul-2008", "2629fa636546599198acfcfbfcf1904a"),
    "2007": ("06-Nov-2007", "c52e279531787c972589f7e41ab4ae64"),
    "2007-test": ("06-Nov-2007", "b6e924de25625d8de591ea690078ad9f"),
}


class _VOC(VisionDataset):
    _lists: str
    _target_folder: str
    _target_ending: str

    def __init__(
        self,
        root: Any,
        year: str = "2012",
        image_set: str = "train",
        download: bool = False,
        transform: Transform = None,
        target_transform: Transform = None,
        transforms: Transform = None,
    ):
        super().__init__(root, transforms, transform, target_transform)
        self.year = verify_str_arg(year, "year", [str(y) for y in range(2007, 2013)])
        sets = ["train", "trainval", "val"] + (["test"] if year == "2007" else [])
        self.image_set = verify_str_arg(image_set, "image_set", sets)
        date, self.md5 = _ARCHIVES["2007-test" if image_set == "test" else year]
        name = f"VOC{'test' if image_set == 'test' else 'trainval'}_{date}.tar"
        self.url = f"{_SERVER}voc{year}/{name}"
        self.filename = "VOCtrainval_11-May-2012.tar" if year == "2008" else name  # as in torchvision
        if download:
            download_and_extract_archive(self.url, self.root, filename=self.filename, md5=self.md5)
        base = os.path.join(self.root, "TrainVal" if year == "2011" else "", "VOCdevkit", f"VOC{year}")
        if not os.path.isdir(base):
            raise RuntimeError(MISSING_OR_CORRUPTED)
        with open(os.path.join(base, "ImageSets", self._lists, f"{image_set}.txt")) as file:
            names = [line.strip() for line in file]
        self.images = [os.path.join(base, "JPEGImages", f"{name}.jpg") for name in names]
        self.targets = [os.path.join(base, self._target_folder, name + self._target_ending) for name in names]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = pillow().open(self.images[index]).convert("RGB")
        return self._both_transformed(image, self._target(self.targets[index]))

    def _target(self, path: str) -> Any:
        raise NotImplementedError


class VOCSegmentation(_VOC):
    """Pascal VOC images with segmentation masks whose colours are classes."""

    _lists, _target_folder, _target_ending = "Segmentation", "SegmentationClass", ".png"

    @property
    def masks(self) -> list[str]:
        return self.targets

    def _target(self, path: str) -> Any:
        return pillow().open(path)


class VOCDetection(_VOC):
    """Pascal VOC images with their XML annotations as dictionaries."""

    _lists, _target_folder, _target_ending = "Main", "Annotations", ".xml"

    @property
    def annotations(self) -> list[str]:
        return self.targets

    def _target(self, path: str) -> Any:
        return self.parse_voc_xml(ElementTree.parse(path).getroot())

    @staticmethod
    def parse_voc_xml(node: Any) -> dict[str, Any]:
        """Return {tag: text}, or {tag: {...}} for an element with children; "object" is always a list."""
        if not len(node):
            return {node.tag: node.text.strip()} if node.text else {}
        found: dict[str, list] = defaultdict(list)
        for child in node:
            for tag, value in VOCDetection.parse_voc_xml(child).items():
                found[tag].append(value)
        if node.tag == "annotation":
            found["object"] = [found["object"]]
        return {node.tag: {tag: values[0] if len(values) == 1 else values for tag, values in found.items()}}
