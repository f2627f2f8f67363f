"""CelebA: faces with attributes, identities, boxes and landmarks."""

from __future__ import annotations

import os
from collections import namedtuple
from typing import Any, ClassVar

import numpy as np

from ...core.tensor import from_array
from ...utils.pillow import pillow
from .utils import (
    MISSING_OR_CORRUPTED,
    check_integrity,
    download_file_from_google_drive,
    extract_archive,
    verify_str_arg,
)
from .vision import Transform, VisionDataset

CSV = namedtuple("CSV", ["header", "index", "data"])


class CelebA(VisionDataset):
    """202,599 faces. The target is "attr" (40 of 0 or 1), "identity", "bbox", "landmarks", or a list of these.

    The boxes belong to the images as they were before they were cropped and aligned."""

    base_folder = "celeba"
    file_list: ClassVar[Any] = [
        # Google Drive's name, checksum, file
        ("0B7EVK8r0v71pZjFTYXZWM3FlRnM", "00d2c5bc6d35e252742224ab0c1e8fcb", "img_align_celeba.zip"),
        ("0B7EVK8r0v71pblRyaVFSWGxPY0U", "75e246fa4810816ffd6ee81facbd244c", "list_attr_celeba.txt"),
        ("1_ee_0u7vcNLOfNLegJRHmolfH5ICW-XS", "32bd1bd63d3c78cd57e08160ec5ed1e2", "identity_CelebA.txt"),
        ("0B7EVK8r0v71pbThiMVRxWXZ4dU0", "00566efa6fedff7a56946cd1c10f1c16", "list_bbox_celeba.txt"),
        ("0B7EVK8r0v71pd0FJY3Blby1HUTQ", "cc24ecafdb5b50baae59b03474781f8c", "list_landmarks_align_celeba.txt"),
        ("0B7EVK8r0v71pY0NSMzRuSXJEVkk", "d32c9cbf5e040fd4025c592c306e6668", "list_eval_partition.txt"),
    ]

    def __init__(
        self,
        root: Any,
        split: str = "train",
        target_type: Any = "attr",
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.split = split
        self.target_type = target_type if isinstance(target_type, list) else [target_type]
        if not self.target_type and target_transform is not None:
            raise RuntimeError("target_transform is specified but target_type is empty")
        if download:
            self.download()
        if not self._check_integrity():
            raise RuntimeError(MISSING_OR_CORRUPTED)
        names = ("train", "valid", "test", "all")
        part = names.index(verify_str_arg(split.lower() if isinstance(split, str) else split, "split", names))
        parts = self._table("list_eval_partition.txt")
        chosen = np.flatnonzero((parts.data[:, 0] == part) | (names[part] == "all"))
        self.filename = [parts.index[i] for i in chosen]
        attributes = self._table("list_attr_celeba.txt", header=1)
        self.attr_names = attributes.header
        self.attr = from_array((attributes.data[chosen] + 1) // 2)  # -1 and 1 become 0 and 1
        self.identity = from_array(self._table("identity_CelebA.txt").data[chosen])
        self.bbox = from_array(self._table("list_bbox_celeba.txt", header=1).data[chosen])
        self.landmarks_align = from_array(self._table("list_landmarks_align_celeba.txt", header=1).data[chosen])

    def _path(self, name: str) -> str:
        return os.path.join(self.root, self.base_folder, name)

    def _table(self, name: str, header: int | None = None) -> CSV:
        """Read lines of a name and integers; `header` is the number of the line with the columns' names."""
        with open(self._path(name)) as file:
            lines = [line.split() for line in file.read().splitlines()]
        names = lines[header] if header is not None else []
        rows = lines if header is None else lines[header + 1 :]
        return CSV(names, [row[0] for row in rows], np.array([row[1:] for row in rows], np.int64))

    def _check_integrity(self) -> bool:
        texts = [(name, md5) for _, md5, name in self.file_list if not name.endswith(".zip")]
        return all(check_integrity(self._path(name), md5) for name, md5 in texts) and os.path.isdir(
            self._path("img_align_celeba")
        )

    def download(self) -> None:
        if self._check_integrity():
            return
        for identity, md5, name in self.file_list:
            download_file_from_google_drive(identity, os.path.join(self.root, self.base_folder), name, md5)
        extract_archive(self._path("img_align_celeba.zip"))

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = pillow().open(os.path.join(self._path("img_align_celeba"), self.filename[index]))
        targets = tuple(self._target(kind, index) for kind in self.target_type)
        if self.transform is not None:
            image = self.transform(image)
        if not targets:
            return image, None
        target = targets if len(targets) > 1 else targets[0]
        return image, target if self.target_transform is None else self.target_transform(target)

    def _target(self, kind: str, index: int) -> Any:
        if kind == "attr":
            return self.attr[index]
        if kind == "identity":
            return self.identity[index, 0]
        if kind == "bbox":
            return self.bbox[index]
        if kind == "landmarks":
            return self.landmarks_align[index]
        raise ValueError(f'Target type "{kind}" is not recognized.')

    def __len__(self) -> int:
        return len(self.attr)

    def extra_repr(self) -> str:
        return f"Target type: {self.target_type}\nSplit: {self.split}"
