"""Caltech 101 and 256: objects by category."""

from __future__ import annotations

import os
import shutil
from typing import Any

from ...utils.pillow import pillow
from .utils import MISSING_OR_CORRUPTED, download_and_extract_archive, extract_archive, optional_module, verify_str_arg
from .vision import Transform, VisionDataset

# Some outlines are in folders of other names than the images.
_OUTLINES = {
    "Faces": "Faces_2",
    "Faces_easy": "Faces_3",
    "Motorbikes": "Motorbikes_16",
    "airplanes": "Airplanes_Side_2",
}


class _CategoryFolders(VisionDataset):
    """Base of data sets of images in a folder for each category, numbered from 1."""

    _images: str

    def _number_images(self, counts: list[int]) -> None:
        """Fill `index` and `y` from the number of images in each category."""
        self.index = [number for count in counts for number in range(1, count + 1)]
        self.y = [category for category, count in enumerate(counts) for _ in range(count)]

    def __len__(self) -> int:
        return len(self.index)

    def _check_integrity(self) -> bool:
        return os.path.exists(self._images)


class Caltech101(_CategoryFolders):
    """Images in 101 categories: the target is the "category", the "annotation" (an outline; needs SciPy), or both."""

    def __init__(
        self,
        root: Any,
        target_type: Any = "category",
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
    ):
        super().__init__(os.path.join(root, "caltech101"), transform=transform, target_transform=target_transform)
        os.makedirs(self.root, exist_ok=True)
        wanted = [target_type] if isinstance(target_type, str) else target_type
        self.target_type = [verify_str_arg(kind, "target_type", ("category", "annotation")) for kind in wanted]
        self._images = os.path.join(self.root, "101_ObjectCategories")
        if download:
            self.download()
        if not self._check_integrity():
            raise RuntimeError(MISSING_OR_CORRUPTED)
        self.categories = sorted(os.listdir(self._images))
        self.categories.remove("BACKGROUND_Google")  # not a category
        self.annotation_categories = [_OUTLINES.get(name, name) for name in self.categories]
        counts = [len(os.listdir(os.path.join(self._images, name))) for name in self.categories]
        self._number_images(counts)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        category, number = self.y[index], self.index[index]
        image = pillow().open(os.path.join(self._images, self.categories[category], f"image_{number:04d}.jpg"))
        targets = tuple(category if k == "category" else self._outline_path(category, number) for k in self.target_type)
        return self._each_transformed(image, targets if len(targets) > 1 else targets[0])

    def _outline_path(self, category: int, number: int) -> Any:
        name = f"annotation_{number:04d}.mat"
        path = os.path.join(self.root, "Annotations", self.annotation_categories[category], name)
        return optional_module("scipy.io", "An outline of Caltech101").loadmat(path)["obj_contour"]

    def download(self) -> None:
        if self._check_integrity():
            return
        download_and_extract_archive(
            "https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip",
            self.root,
            filename="caltech-101.zip",
            md5="3138e1922a9193bfa496528edbbc45d0",
            remove_finished=True,
        )
        folder = os.path.join(self.root, "caltech-101")
        for name in os.listdir(folder):
            if name.endswith(".gz"):
                extract_archive(os.path.join(folder, name), self.root)
        shutil.rmtree(folder)

    def extra_repr(self) -> str:
        return f"Target type: {self.target_type}"


class Caltech256(_CategoryFolders):
    """Images in 256 categories."""

    def __init__(
        self, root: Any, transform: Transform = None, target_transform: Transform = None, download: bool = False
    ):
        super().__init__(os.path.join(root, "caltech256"), transform=transform, target_transform=target_transform)
        os.makedirs(self.root, exist_ok=True)
        self._images = os.path.join(self.root, "256_ObjectCategories")
        if download:
            self.download()
        if not self._check_integrity():
            raise RuntimeError(MISSING_OR_CORRUPTED)
        self.categories = sorted(os.listdir(self._images))
        folders = [os.listdir(os.path.join(self._images, name)) for name in self.categories]
        counts = [sum(name.endswith(".jpg") for name in names) for names in folders]
        self._number_images(counts)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        category = self.y[index]
        name = f"{category + 1:03d}_{self.index[index]:04d}.jpg"
        image = pillow().open(os.path.join(self._images, self.categories[category], name))
        return self._each_transformed(image, category)

    def download(self) -> None:
        if not self._check_integrity():
            download_and_extract_archive(
                "https://data.caltech.edu/records/nyy15-4j048/files/256_ObjectCategories.tar",
                self.root,
                filename="256_ObjectCategories.tar",
                md5="67b4f42ca05d46448c6bb8ecd2220f6d",
            )
