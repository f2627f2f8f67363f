"""Data sets of images with boxes, masks or captions: streets, faces, outlines, described photographs."""

from __future__ import annotations

import csv
import glob
import json
import os
import shutil
from collections import defaultdict
from html.parser import HTMLParser
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ... import tensor
from ...utils import pillow
from .._categories import class_names
from .folder import default_loader
from .utils import (
    MISSING,
    MISSING_OR_CORRUPTED,
    check_integrity,
    download_and_extract_archive,
    download_file_from_google_drive,
    download_url,
    extract_archive,
    iterable_to_str,
    optional_module,
    verify_str_arg,
)
from .vision import Loader, Transform, VisionDataset


class Kitti(VisionDataset):
    """Streets with objects: a dict of each object's type, box, size, location and angle; None for the test images."""

    data_url = "https://s3.eu-central-1.amazonaws.com/avg-kitti/"
    resources: ClassVar[list[str]] = ["data_object_image_2.zip", "data_object_label_2.zip"]
    image_dir_name = "image_2"
    labels_dir_name = "label_2"

    def __init__(
        self,
        root: Any,
        train: bool = True,
        transform: Transform = None,
        target_transform: Transform = None,
        transforms: Transform = None,
        download: bool = False,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform, transforms=transforms)
        self.train = train
        self._location = "training" if train else "testing"
        if download:
            self.download()
        if not self._check_exists():
            raise RuntimeError(MISSING)
        folder = self._part(self.image_dir_name)
        self.images = [os.path.join(folder, file) for file in os.listdir(folder)]
        names = [os.path.basename(path).split(".")[0] for path in self.images] if train else []
        self.targets = [os.path.join(self._part(self.labels_dir_name), f"{name}.txt") for name in names]

    @property
    def _raw_folder(self) -> str:
        return os.path.join(self.root, type(self).__name__, "raw")

    def _part(self, name: str) -> str:
        return os.path.join(self._raw_folder, self._location, name)

    def _check_exists(self) -> bool:
        needed = [self.image_dir_name, *([self.labels_dir_name] if self.train else [])]
        return all(os.path.isdir(self._part(name)) for name in needed)

    def download(self) -> None:
        """Download images and labels unless they are present."""
        if not self._check_exists():
            os.makedirs(self._raw_folder, exist_ok=True)
            for name in self.resources:
                download_and_extract_archive(f"{self.data_url}{name}", self._raw_folder, filename=name)

    def _parse_target(self, index: int) -> list[dict[str, Any]]:
        with open(self.targets[index]) as file:
            return [
                {
                    "type": words[0],
                    "truncated": float(words[1]),
                    "occluded": int(words[2]),
                    "alpha": float(words[3]),
                    "bbox": [float(x) for x in words[4:8]],
                    "dimensions": [float(x) for x in words[8:11]],
                    "location": [float(x) for x in words[11:14]],
                    "rotation_y": float(words[14]),
                }
                for words in csv.reader(file, delimiter=" ")
            ]

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        target = self._parse_target(index) if self.train else None
        return self._both_transformed(pillow.pillow().open(self.images[index]), target)

    def __len__(self) -> int:
        return len(self.images)


class WIDERFace(VisionDataset):
    """Photographs with faces: a dict of tensors, boxes as (x, y, width, height) and properties; None for the test."""

    BASE_FOLDER = "widerface"
    FILE_LIST: ClassVar[Any] = [
        ("15hGDLhsx8bLgLcIRD5DhYt5iBxnjNF1M", "3fedf70df600953d25982bcd13d91ba2", "WIDER_train.zip"),
        ("1GUCogbp16PMGa39thoMMeWxp7Rp5oM8Q", "dfa7d7e790efa35df3788964cf0bbaea", "WIDER_val.zip"),
        ("1HIfDbVEWKmsYKJZm4lchTBDLW5N7dY5T", "e5d8f4248ed24c334bbd12f49c29dd40", "WIDER_test.zip"),
    ]
    ANNOTATIONS_FILE = (
        "http://shuoyang1213.me/WIDERFACE/support/bbx_annotation/wider_face_split.zip",
        "0e3767bcf0e326556d407bf5bff5d27c",
        "wider_face_split.zip",
    )
    _PROPERTIES = ("blur", "expression", "illumination", "occlusion", "pose", "invalid")

    def __init__(
        self,
        root: Any,
        split: str = "train",
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
    ):
        super().__init__(os.path.join(root, self.BASE_FOLDER), transform=transform, target_transform=target_transform)
        self.split = verify_str_arg(split, "split", ("train", "val", "test"))
        if download:
            self.download()
        if not self._check_integrity():
            raise RuntimeError("Dataset not found or corrupted. You can use download=True to download and prepare it")
        self.img_info: list[dict[str, Any]] = []
        self._parse()

    def _parse(self) -> None:
        name = "wider_face_test_filelist.txt" if self.split == "test" else f"wider_face_{self.split}_bbx_gt.txt"
        with open(os.path.join(self.root, "wider_face_split", name)) as file:
            lines = iter(file.read().splitlines())
        for line in lines:
            path = os.path.join(self.root, f"WIDER_{self.split}", "images", line.rstrip())
            info: dict[str, Any] = {"img_path": os.path.abspath(os.path.expanduser(path))}
            if self.split != "test":
                # An image without faces has one line of zeros.
                boxes = tensor([list(map(int, next(lines).split())) for _ in range(max(1, int(next(lines))))])
                info["annotations"] = {"bbox": boxes[:, 0:4].clone()} | {
                    name: boxes[:, 4 + i].clone() for i, name in enumerate(self._PROPERTIES)
                }
            self.img_info.append(info)

    def _check_integrity(self) -> bool:
        names = [name for _, _, name in (*self.FILE_LIST, self.ANNOTATIONS_FILE)]
        return all(os.path.exists(os.path.join(self.root, os.path.splitext(name)[0])) for name in names)

    def download(self) -> None:
        """Download images and boxes unless they are present."""
        if not self._check_integrity():
            for number, md5, name in self.FILE_LIST:
                download_file_from_google_drive(number, self.root, name, md5)
                extract_archive(os.path.join(self.root, name))
            download_and_extract_archive(self.ANNOTATIONS_FILE[0], self.root, md5=self.ANNOTATIONS_FILE[1])

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        info = self.img_info[index]
        return self._each_transformed(pillow.pillow().open(info["img_path"]), info.get("annotations"))

    def __len__(self) -> int:
        return len(self.img_info)

    def extra_repr(self) -> str:
        return f"Split: {self.split}"


class CityscapesClass(NamedTuple):
    """A class of Cityscapes: the meaning of a pixel value in its masks."""

    name: str
    id: int
    train_id: int
    category: str
    category_id: int
    has_instances: bool
    ignore_in_eval: bool
    color: tuple[int, int, int]


def _cityscapes_classes() -> list[CityscapesClass]:
    """Read the class table: name, number for training (255: none), category and its number, + with instances, - not evaluated, colour."""
    found = []
    for number, line in enumerate(class_names("cityscapes")):
        name, train, category, group, flags, color = line.rsplit(" ", 5)
        red, green, blue = map(int, color.split(","))
        own = -1 if train == "-1" else number
        found.append(
            CityscapesClass(name, own, int(train), category, int(group), "+" in flags, "-" in flags, (red, green, blue))
        )
    return found


class Cityscapes(VisionDataset):
    """Streets of German cities with masks ("instance", "semantic", "color") or polygons; several targets come as a tuple."""

    CityscapesClass = CityscapesClass
    classes: ClassVar[list[Any]] = _cityscapes_classes()
    _ENDS: ClassVar[dict[str, str]] = {
        "instance": "instanceIds.png", "semantic": "labelIds.png", "color": "color.png", "polygon": "polygons.json",
    }  # fmt: skip

    def __init__(
        self,
        root: Any,
        split: str = "train",
        mode: str = "fine",
        target_type: list[str] | str = "instance",
        transform: Transform = None,
        target_transform: Transform = None,
        transforms: Transform = None,
    ):
        super().__init__(root, transforms, transform, target_transform)
        verify_str_arg(mode, "mode", ("fine", "coarse"))
        splits = ("train", "test", "val") if mode == "fine" else ("train", "train_extra", "val")
        unknown = f"Unknown value '{split}' for argument split if mode is '{mode}'. Valid values are {{{iterable_to_str(splits)}}}."
        self.split = verify_str_arg(split, "split", splits, unknown)
        self.mode = "gtFine" if mode == "fine" else "gtCoarse"
        self.target_type = target_type if isinstance(target_type, list) else [target_type]
        for kind in self.target_type:
            verify_str_arg(kind, "target_type", ("instance", "semantic", "polygon", "color"))
        self.images_dir = os.path.join(self.root, "leftImg8bit", split)
        self.targets_dir = os.path.join(self.root, self.mode, split)
        if not (os.path.isdir(self.images_dir) and os.path.isdir(self.targets_dir)):
            self._unpack()
        self.images, self.targets = [], []
        for city in os.listdir(self.images_dir):
            for file in os.listdir(os.path.join(self.images_dir, city)):
                start = os.path.join(self.targets_dir, city, file.split("_leftImg8bit")[0])
                self.images.append(os.path.join(self.images_dir, city, file))
                self.targets.append([f"{start}_{self.mode}_{self._ENDS[kind]}" for kind in self.target_type])

    def _unpack(self) -> None:
        """Unpack the archives, which have to be downloaded manually."""
        images = f"leftImg8bit_{'trainextra' if self.split == 'train_extra' else 'trainvaltest'}.zip"
        targets = "gtFine_trainvaltest.zip" if self.mode == "gtFine" else "gtCoarse.zip"
        archives = [os.path.join(self.root, name) for name in (images, targets)]
        if not all(map(os.path.isfile, archives)):
            raise RuntimeError(
                "Dataset not found or incomplete. Please make sure all required folders for the"
                ' specified "split" and "mode" are inside the "root" directory'
            )
        for archive in archives:
            extract_archive(archive, self.root)

    def _read(self, path: str, kind: str) -> Any:
        if kind != "polygon":
            return pillow.pillow().open(path)
        with open(path) as file:
            return json.load(file)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = pillow.pillow().open(self.images[index]).convert("RGB")
        targets = tuple(self._read(path, kind) for path, kind in zip(self.targets[index], self.target_type))
        return self._both_transformed(image, targets if len(targets) > 1 else targets[0])

    def __len__(self) -> int:
        return len(self.images)

    def extra_repr(self) -> str:
        return f"Split: {self.split}\nMode: {self.mode}\nType: {self.target_type}"


class SBDataset(VisionDataset):
    """Photographs of VOC with outlines (20, H, W) or masks of their objects. Reading needs SciPy."""

    url = "https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/semantic_contours/benchmark.tgz"
    md5 = "82b4d87ceb2ed10f6038a1cba92111cb"
    filename = "benchmark.tgz"
    voc_train_url = "https://www.cs.cornell.edu/~bharathh/train_noval.txt"
    voc_split_filename = "train_noval.txt"
    voc_split_md5 = "79bff800c5f0b1ec6b21080a3c066722"
    num_classes = 20

    def __init__(
        self,
        root: Any,
        image_set: str = "train",
        mode: str = "boundaries",
        download: bool = False,
        transforms: Transform = None,
    ):
        self._loadmat = optional_module("scipy.io", "SBDataset").loadmat
        super().__init__(root, transforms)
        self.image_set = verify_str_arg(image_set, "image_set", ("train", "val", "train_noval"))
        self.mode = verify_str_arg(mode, "mode", ("segmentation", "boundaries"))
        if download:
            self._download()
        if not os.path.isdir(self.root):
            raise RuntimeError(MISSING_OR_CORRUPTED)
        with open(os.path.join(self.root, f"{image_set}.txt")) as file:
            names = [line.strip() for line in file]
        self.images = [os.path.join(self.root, "img", f"{name}.jpg") for name in names]
        self.masks = [os.path.join(self.root, "cls", f"{name}.mat") for name in names]

    def _download(self) -> None:
        download_and_extract_archive(self.url, self.root, filename=self.filename, md5=self.md5)
        for name in ("cls", "img", "inst", "train.txt", "val.txt"):
            shutil.move(os.path.join(self.root, "benchmark_RELEASE", "dataset", name), self.root)
        if self.image_set == "train_noval":
            download_url(self.voc_train_url, self.root, self.voc_split_filename, self.voc_split_md5)

    def _get_target(self, path: str) -> Any:
        found = self._loadmat(path)["GTcls"][0]
        if self.mode == "segmentation":
            return pillow.pillow().fromarray(found["Segmentation"][0])
        return np.stack([found["Boundaries"][0][i][0].toarray() for i in range(self.num_classes)])

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = pillow.pillow().open(self.images[index]).convert("RGB")
        return self._both_transformed(image, self._get_target(self.masks[index]))

    def __len__(self) -> int:
        return len(self.images)

    def extra_repr(self) -> str:
        return f"Image set: {self.image_set}\nMode: {self.mode}"


class _CaptionedImages(VisionDataset):
    """Base of data sets of photographs with a list of captions each: a subclass reads them from a file."""

    def __init__(
        self,
        root: Any,
        ann_file: str,
        transform: Transform = None,
        target_transform: Transform = None,
        loader: Loader = default_loader,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.ann_file, self.loader = os.path.expanduser(ann_file), loader
        with open(self.ann_file) as file:
            self.annotations = self._read(file.read())
        self.ids = sorted(self.annotations)

    def _read(self, text: str) -> dict[str, list[str]]:
        raise NotImplementedError

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        name = self.ids[index]
        return self._each_transformed(self.loader(os.path.join(self.root, name)), self.annotations[name])

    def __len__(self) -> int:
        return len(self.ids)


class Flickr8kParser(HTMLParser):
    """Parser that collects captions by image from Flickr8k's HTML page."""

    def __init__(self, root: Any):
        super().__init__()
        self.root = root
        self.annotations: dict[str, list[str]] = {}
        self.in_table = False
        self.current_tag: str | None = None
        self.current_img: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the open tag."""
        self.current_tag = tag
        self.in_table = self.in_table or tag == "table"

    def handle_endtag(self, tag: str) -> None:
        """Record that a tag is closed."""
        self.current_tag = None
        self.in_table = self.in_table and tag != "table"

    def handle_data(self, data: str) -> None:
        """Read the URL of an image, or a caption of the last one."""
        if not self.in_table:
            return
        if data == "Image Not Found":
            self.current_img = None
        elif self.current_tag == "a":
            number = data.split("/")[-2]
            self.current_img = glob.glob(os.path.join(self.root, number + "_*.jpg"))[0]
            self.annotations[self.current_img] = []
        elif self.current_tag == "li" and self.current_img:
            self.annotations[self.current_img].append(data.strip())


class Flickr8k(_CaptionedImages):
    """Eight thousand photographs with five captions each."""

    def _read(self, text: str) -> dict[str, list[str]]:
        parser = Flickr8kParser(self.root)
        parser.feed(text)
        return parser.annotations


class Flickr30k(_CaptionedImages):
    """Thirty thousand photographs with five captions each."""

    def _read(self, text: str) -> dict[str, list[str]]:
        found = defaultdict(list)
        for line in text.splitlines():
            name, caption = line.strip().split("\t")
            found[name[:-2]].append(caption)  # the name ends in #0 to #4
        return found


class SBU(VisionDataset):
    """A million photographs of Flickr with the captions of their owners; those that can no longer be fetched are left out."""

    url = "https://www.cs.rice.edu/~vo9/sbucaptions/SBUCaptionedPhotoDataset.tar.gz"
    filename = "SBUCaptionedPhotoDataset.tar.gz"
    md5_checksum = "9aec147b3488753cf758b4d493422285"

    def __init__(
        self,
        root: Any,
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = True,
        loader: Loader = default_loader,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.loader = loader
        if download:
            self.download()
        if not self._check_integrity():
            raise RuntimeError(MISSING_OR_CORRUPTED)
        pairs = zip(self._lines("urls"), self._lines("captions"))
        there = [
            (os.path.basename(url), text) for url, text in pairs if os.path.exists(self._path(os.path.basename(url)))
        ]
        self.photos, self.captions = [name for name, _ in there], [text for _, text in there]

    def _path(self, name: str) -> str:
        return os.path.join(self.root, "dataset", name)

    def _lines(self, what: str) -> list[str]:
        with open(self._path(f"SBU_captioned_photo_dataset_{what}.txt")) as file:
            return [line.rstrip() for line in file]

    def _check_integrity(self) -> bool:
        return check_integrity(os.path.join(self.root, self.filename), self.md5_checksum)

    def download(self) -> None:
        """Download the list and every photograph on it that is still available."""
        if self._check_integrity():
            return
        download_and_extract_archive(self.url, self.root, self.root, self.filename, self.md5_checksum)
        for url in self._lines("urls"):
            try:
                download_url(url, self._path(""))
            except OSError:  # its owner has removed it: skip it
                continue

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._each_transformed(self.loader(self._path(self.photos[index])), self.captions[index])

    def __len__(self) -> int:
        return len(self.photos)
