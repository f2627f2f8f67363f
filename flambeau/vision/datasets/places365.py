"""Places365: photographs of 365 kinds of places."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from .folder import default_loader
from .utils import check_integrity, download_and_extract_archive, verify_str_arg
from .vision import Loader, Transform, VisionDataset


class Places365(VisionDataset):
    """Photographs of places, of 256 pixels (`small`) or large; targets are None in the split "test"."""

    _SPLITS = ("train-standard", "train-challenge", "val", "test")
    _BASE_URL = "http://data.csail.mit.edu/places/places365/"
    _DEVKIT_META: ClassVar[dict[str, tuple[str, str]]] = {
        "standard": ("filelist_places365-standard.tar", "35a0585fee1fa656440f3ab298f8479c"),
        "challenge": ("filelist_places365-challenge.tar", "70a8307e459c3de41690a7c76c931734"),
    }
    _CATEGORIES_META = ("categories_places365.txt", "06c963b85866bd0649f97cb43dd16673")
    _FILE_LIST_META: ClassVar[dict[str, tuple[str, str]]] = {
        "train-standard": ("places365_train_standard.txt", "30f37515461640559006b8329efbed1a"),
        "train-challenge": ("places365_train_challenge.txt", "b2931dc997b8c33c27e7329c073a6b57"),
        "val": ("places365_val.txt", "e9f2fd57bfd9d07630173f4e8708e4b1"),
        "test": ("places365_test.txt", "2fce8233fe493576d724142e45d93653"),
    }
    _IMAGES_META: ClassVar[dict[tuple[str, bool], tuple[str, str]]] = {
        ("train-standard", False): ("train_large_places365standard.tar", "67e186b496a84c929568076ed01a8aa1"),
        ("train-challenge", False): ("train_large_places365challenge.tar", "605f18e68e510c82b958664ea134545f"),
        ("val", False): ("val_large.tar", "9b71c4993ad89d2d8bcbdc4aef38042f"),
        ("test", False): ("test_large.tar", "41a4b6b724b1d2cd862fb3871ed59913"),
        ("train-standard", True): ("train_256_places365standard.tar", "53ca1c756c3d1e7809517cc47c5561c5"),
        ("train-challenge", True): ("train_256_places365challenge.tar", "741915038a5e3471ec7332404dfb64ef"),
        ("val", True): ("val_256.tar", "e27b17d8d44f4af9a78502beb927f808"),
        ("test", True): ("test_256.tar", "f532f6ad7b582262a2ec8009075e186b"),
    }

    def __init__(
        self, root: Any, split: str = "train-standard", small: bool = False, download: bool = False,
        transform: Transform = None, target_transform: Transform = None, loader: Loader = default_loader,
    ):  # fmt: skip
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.split, self.small, self.loader = verify_str_arg(split, "split", self._SPLITS), small, loader
        self.classes, self.class_to_idx = self.load_categories(download)
        self.imgs, self.targets = self.load_file_list(download)
        if download:
            self.download_images()

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.imgs[index]
        return self._both_transformed(self.loader(path), target)

    def __len__(self) -> int:
        return len(self.imgs)

    @property
    def variant(self) -> str:
        return "challenge" if "challenge" in self.split else "standard"

    @property
    def images_dir(self) -> str:
        size = "256" if self.small else "large"
        train = self.split.startswith("train")
        return os.path.join(self.root, f"data_{size}_{self.variant}" if train else f"{self.split}_{size}")

    def load_categories(self, download: bool = True) -> tuple[list[str], dict[str, int]]:
        """Return the classes, sorted, and their numbers."""
        pairs = [line.split() for line in self._lines(self._CATEGORIES_META, download)]
        numbers = {name: int(number) for name, number in pairs}
        return sorted(numbers), numbers

    def load_file_list(self, download: bool = True) -> tuple[list[tuple[str, int | None]], list[int | None]]:
        """Return the paths of the split's images with their classes, and the classes alone."""
        images: list[tuple[str, int | None]] = []
        for line in self._lines(self._FILE_LIST_META[self.split], download):
            name, *number = line.split()
            path = os.path.join(self.images_dir, name.lstrip("/").replace("/", os.sep))
            images.append((path, int(number[0]) if number else None))
        return images, [target for _, target in images]

    def _lines(self, meta: tuple[str, str], download: bool) -> list[str]:
        """Return the lines of a list file, which is downloaded if it is missing."""
        path = os.path.join(self.root, meta[0])
        if not check_integrity(path, md5=meta[1]):
            if not download:
                raise RuntimeError(
                    f"The file {path} does not exist or is corrupted. You can set download=True to download it."
                )
            self.download_devkit()
        with open(path) as file:
            return file.readlines()

    def download_devkit(self) -> None:
        """Download the lists of classes and of files."""
        name, md5 = self._DEVKIT_META[self.variant]
        download_and_extract_archive(self._BASE_URL + name, self.root, md5=md5)

    def download_images(self) -> None:
        """Download the images of the split unless they are present."""
        if os.path.exists(self.images_dir):
            return
        name, md5 = self._IMAGES_META[self.split, self.small]
        download_and_extract_archive(self._BASE_URL + name, self.root, md5=md5)
        if self.split.startswith("train"):
            os.rename(self.images_dir.rsplit("_", 1)[0], self.images_dir)

    def extra_repr(self) -> str:
        return f"Split: {self.split}\nSmall: {self.small}"
