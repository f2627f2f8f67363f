"""PhotoTour: patches of 64 x 64 pixels of photographs of three places, and which of them show the same point."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np

from ...core.tensor import Tensor, from_array
from ...serialization import load, save
from ...utils.pillow import pillow
from .utils import download_and_extract_archive, list_files
from .vision import Transform, VisionDataset

_HARRIS = "http://matthewalunbrown.com/patchdata/"
_EXTENSION_URL = "http://icvl.ee.ic.ac.uk/vbalnt/"


class PhotoTour(VisionDataset):
    """Patches for training; else pairs of patches with 1 if both show one point and 0 if not."""

    urls: ClassVar[dict[str, list[str]]] = {
        name: [f"{_HARRIS if 'harris' in name else _EXTENSION_URL}{name}.zip", f"{name}.zip", md5]
        for name, md5 in {
            "notredame_harris": "69f8c90f78e171349abdf0307afefe4d", "yosemite_harris": "a73253d1c6fbd3ba2613c45065c00d46",
            "liberty_harris": "c731fcfb3abb4091110d0ae8c7ba182c", "notredame": "509eda8535847b8c0a90bbb210c83484",
            "yosemite": "533b2e8eb7ede31be40abc317b2fd4f0", "liberty": "fdd9152f138ea5ef2091746689176414",
        }.items()
    }  # fmt: skip
    means: ClassVar[dict[str, float]] = {"notredame": 0.4854, "yosemite": 0.4844, "liberty": 0.4437, "notredame_harris": 0.4854, "yosemite_harris": 0.4844, "liberty_harris": 0.4437}  # fmt: skip
    stds: ClassVar[dict[str, float]] = {"notredame": 0.1864, "yosemite": 0.1818, "liberty": 0.2019, "notredame_harris": 0.1864, "yosemite_harris": 0.1818, "liberty_harris": 0.2019}  # fmt: skip
    lens: ClassVar[dict[str, int]] = {"notredame": 468159, "yosemite": 633587, "liberty": 450092, "liberty_harris": 379587, "yosemite_harris": 450912, "notredame_harris": 325295}  # fmt: skip
    image_ext = "bmp"
    info_file = "info.txt"
    matches_files = "m50_100000_100000_0.txt"

    def __init__(
        self, root: Any, name: str, train: bool = True, transform: Transform = None, download: bool = False,
    ):  # fmt: skip
        super().__init__(root, transform=transform)
        self.name, self.train = name, train
        self.mean, self.std = self.means[name], self.stds[name]
        self.data_dir, self.data_down, self.data_file = (
            os.path.join(self.root, name + end) for end in ("", ".zip", ".pt")
        )
        if download:
            self.download()
        if not os.path.exists(self.data_file):
            self.cache()
        self.data, self.labels, self.matches = load(self.data_file, weights_only=True)

    def __getitem__(self, index: int) -> Any:
        shown = (lambda patch: patch) if self.transform is None else self.transform
        if self.train:
            return shown(self.data[index])
        first, second, same = self.matches[index]
        return shown(self.data[first]), shown(self.data[second]), same

    def __len__(self) -> int:
        return len(self.data if self.train else self.matches)

    def download(self) -> None:
        """Download and unpack the archive unless its files are present."""
        if os.path.exists(self.data_file) or os.path.exists(self.data_dir):
            return
        url, name, md5 = self.urls[self.name]
        download_and_extract_archive(url, self.root, self.data_dir, name, md5, remove_finished=True)

    def cache(self) -> None:
        """Read images and lists once, and write them as one file of tensors."""
        patches = read_image_file(self.data_dir, self.image_ext, self.lens[self.name])
        lists = (read_info_file(self.data_dir, self.info_file), read_matches_files(self.data_dir, self.matches_files))
        save((patches, *lists), self.data_file)

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"


def read_image_file(data_dir: str, image_ext: str, n: int) -> Tensor:
    """Read the first `n` patches (n, 64, 64) of all images in a folder, row by row."""
    found = []
    for path in sorted(list_files(data_dir, image_ext, prefix=True)):
        image = np.asarray(pillow().open(path).convert("L"))
        down, across = image.shape[0] // 64, image.shape[1] // 64
        tiles = image[: down * 64, : across * 64].reshape(down, 64, across, 64)
        found.append(tiles.swapaxes(1, 2).reshape(-1, 64, 64))
    return from_array(np.concatenate(found)[:n])


def read_info_file(data_dir: str, info_file: str) -> Tensor:
    """Read the number of the point that each patch shows."""
    with open(os.path.join(data_dir, info_file)) as file:
        return from_array(np.array([int(line.split()[0]) for line in file], np.int64))


def read_matches_files(data_dir: str, matches_file: str) -> Tensor:
    """Read the pairs (first patch, second patch, 1 if both show one point)."""
    with open(os.path.join(data_dir, matches_file)) as file:
        rows = [line.split() for line in file]
    return from_array(np.array([[int(r[0]), int(r[3]), int(r[1] == r[4])] for r in rows], np.int64))
