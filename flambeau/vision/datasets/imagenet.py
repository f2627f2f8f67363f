"""ImageNet (ILSVRC 2012), from its archives or from folders made from them."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

from ...serialization import load, save
from .folder import ImageFolder
from .utils import check_integrity, extract_archive, optional_module, verify_str_arg

ARCHIVE_META = {
    "train": ("ILSVRC2012_img_train.tar", "1d675b47d978889d74fa0da5fadfb00e"),
    "val": ("ILSVRC2012_img_val.tar", "29b22e2961454d5413ddabcf34fc5622"),
    "devkit": ("ILSVRC2012_devkit_t12.tar.gz", "fa75699e90414af021442c21a62c3abf"),
}
META_FILE = "meta.bin"


class ImageNet(ImageFolder):
    """ImageNet, with a thousand classes. `root` has either the three archives, which are unpacked on first use (needs SciPy), or the
    folders `train` and `val` with one folder per class, and the file meta.bin."""

    def __init__(self, root: Any, split: str = "train", **options: Any):
        self.root = os.path.expanduser(root)
        self.split = verify_str_arg(split, "split", ("train", "val"))
        self.parse_archives()
        names = load_meta_file(self.root)[0]
        super().__init__(self.split_folder, **options)
        self.root = os.path.expanduser(root)
        self.wnids, self.wnid_to_idx = self.classes, self.class_to_idx
        self.classes = [names[wnid] for wnid in self.wnids]
        self.class_to_idx = {name: number for number, synonyms in enumerate(self.classes) for name in synonyms}

    def parse_archives(self) -> None:
        if not check_integrity(os.path.join(self.root, META_FILE)):
            parse_devkit_archive(self.root)
        if not os.path.isdir(self.split_folder):
            (parse_train_archive if self.split == "train" else parse_val_archive)(self.root)

    @property
    def split_folder(self) -> str:
        return os.path.join(self.root, self.split)

    def extra_repr(self) -> str:
        return f"Split: {self.split}"


def load_meta_file(root: Any, file: str | None = None) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return ({class: its names}, classes of the validation images)."""
    path = os.path.join(root, file or META_FILE)
    if not check_integrity(path):
        raise RuntimeError(
            f"The meta file {path} is not present in the root directory or is corrupted. This file is automatically created by"
            " the ImageNet dataset."
        )
    return load(path)


def _archive(root: Any, which: str, file: str | None) -> str:
    name, md5 = ARCHIVE_META[which]
    path = os.path.join(root, file or name)
    if not check_integrity(path, md5):
        raise RuntimeError(
            f"The archive {file or name} is not present in the root directory or is corrupted. You need to download it"
            f" externally and place it in {root}."
        )
    return path


def parse_devkit_archive(root: Any, file: str | None = None) -> None:
    """Write meta.bin from the development kit."""
    path = _archive(root, "devkit", file)
    with tempfile.TemporaryDirectory() as folder:
        extract_archive(path, folder)
        data = os.path.join(folder, "ILSVRC2012_devkit_t12", "data")
        table = optional_module("scipy.io", "ImageNet's archive").loadmat(
            os.path.join(data, "meta.mat"), squeeze_me=True
        )
        # number, WordNet's name, names, explanation, number of children; inner nodes of the tree are no classes
        leaves = [row for row in table["synsets"] if row[4] == 0]
        names = {str(row[1]): tuple(str(row[2]).split(", ")) for row in leaves}
        by_number = {int(row[0]): str(row[1]) for row in leaves}
        with open(os.path.join(data, "ILSVRC2012_validation_ground_truth.txt")) as lines:
            classes = [by_number[int(line)] for line in lines]
    save((names, classes), os.path.join(root, META_FILE))


def parse_train_archive(root: Any, file: str | None = None, folder: str = "train") -> None:
    """Unpack the training images: an archive of archives, one per class."""
    target = os.path.join(root, folder)
    extract_archive(_archive(root, "train", file), target)
    for name in os.listdir(target):
        path = os.path.join(target, name)
        extract_archive(path, os.path.splitext(path)[0], remove_finished=True)


def parse_val_archive(root: Any, file: str | None = None, wnids: list[str] | None = None, folder: str = "val") -> None:
    """Unpack the validation images and move each to its class's folder."""
    classes = load_meta_file(root)[1] if wnids is None else wnids
    target = os.path.join(root, folder)
    extract_archive(_archive(root, "val", file), target)
    images = sorted(os.listdir(target))
    for name in set(classes):
        os.mkdir(os.path.join(target, name))
    for name, image in zip(classes, images):
        shutil.move(os.path.join(target, image), os.path.join(target, name, image))
