"""Data sets that fit into memory, read from one or a few files: STL10, SVHN, USPS, SEMEION, FER2013, MovingMNIST."""

from __future__ import annotations

import bz2
import csv
import os
from typing import Any, ClassVar

import numpy as np

from ... import from_numpy
from ...utils.pillow import pillow
from .utils import MISSING, MISSING_OR_CORRUPTED, check_integrity, download_url, optional_module, verify_str_arg
from .vision import ArchivedDataset, Transform, VisionDataset


class _ImageArrays(VisionDataset):
    """Base of data sets with images as one array (number, channel, row, column), and their labels."""

    data: np.ndarray
    labels: np.ndarray
    split: str

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = pillow().fromarray(np.ascontiguousarray(self.data[index].transpose(1, 2, 0)))
        return self._each_transformed(image, int(self.labels[index]))

    def __len__(self) -> int:
        return len(self.data)

    def extra_repr(self) -> str:
        return f"Split: {self.split}"


class STL10(_ImageArrays, ArchivedDataset):
    """Images of 96 x 96 in ten classes, and many without a class (-1). They are in `root/stl10_binary`.

    `split` is "train", "test", "unlabeled" or "train+unlabeled"; `folds` (0 to 9) picks one of ten parts of the training set."""

    base_folder = "stl10_binary"
    url = "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz"
    filename = "stl10_binary.tar.gz"
    tgz_md5 = "91f7769df0f17e558f3565bffb0c7dfb"
    class_names_file = "class_names.txt"
    folds_list_file = "fold_indices.txt"
    train_list: ClassVar[Any] = [
        ["train_X.bin", "918c2871b30a85fa023e0c44e0bee87f"],
        ["train_y.bin", "5a34089d4802c674881badbb80307741"],
        ["unlabeled_X.bin", "5242ba1fed5e4be9e1e742405eb56ca4"],
    ]
    test_list: ClassVar[Any] = [
        ["test_X.bin", "7f263ba9f9e0b06b93213547f721ac82"],
        ["test_y.bin", "36f9794fa4beb8a2c72628de14fa638e"],
    ]
    splits = ("train", "train+unlabeled", "unlabeled", "test")

    def __init__(
        self,
        root: Any,
        split: str = "train",
        folds: int | None = None,
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.split = verify_str_arg(split, "split", self.splits)
        if folds is not None and not isinstance(folds, int):
            raise ValueError(f"Expected type None or int for argument folds, but got type {type(folds)}.")
        if folds is not None and folds not in range(10):
            raise ValueError(f"Value for argument folds should be in the range [0, 10), but got {folds}.")
        self.folds = folds
        if download:
            self.download()
        elif not self._check_integrity():
            raise RuntimeError(MISSING_OR_CORRUPTED)
        parts = [self._part(name) for name in split.split("+")]
        self.data = np.concatenate([images for images, _ in parts])
        self.labels = np.concatenate([labels for _, labels in parts])
        if os.path.isfile(self._path(self.class_names_file)):
            with open(self._path(self.class_names_file)) as file:
                self.classes = file.read().splitlines()

    def _part(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        # Columns are stored before rows.
        images = np.fromfile(self._path(f"{name}_X.bin"), np.uint8).reshape(-1, 3, 96, 96).transpose(0, 1, 3, 2)
        if name == "unlabeled":
            return images, np.full(len(images), -1)
        labels = np.fromfile(self._path(f"{name}_y.bin"), np.uint8) - 1
        if name == "train" and self.folds is not None:
            with open(self._path(self.folds_list_file)) as file:
                chosen = np.array(file.read().splitlines()[self.folds].split(), np.int64)
            return images[chosen], labels[chosen]
        return images, labels


class SVHN(_ImageArrays):
    """House numbers: digits of 32 x 32 in colour. Reading them needs SciPy."""

    split_list: ClassVar[Any] = {
        name: [f"http://ufldl.stanford.edu/housenumbers/{name}_32x32.mat", f"{name}_32x32.mat", md5]
        for name, md5 in (
            ("train", "e26dedcc434d2e4c54c9b2d4a06d8373"),
            ("test", "eb5a983be6a315427106f1b164d9cef3"),
            ("extra", "a93ce644f1a588dc4d68dda5feec44a7"),
        )
    }

    def __init__(
        self,
        root: Any,
        split: str = "train",
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.split = verify_str_arg(split, "split", tuple(self.split_list))
        self.url, self.filename, self.file_md5 = self.split_list[split]
        if download:
            self.download()
        if not self._check_integrity():
            raise RuntimeError(MISSING_OR_CORRUPTED)
        contents = optional_module("scipy.io", "SVHN").loadmat(os.path.join(self.root, self.filename))
        self.labels = contents["y"].astype(np.int64).squeeze()
        self.labels[self.labels == 10] = 0  # the files call the digit 0 ten
        self.data = contents["X"].transpose(3, 2, 0, 1)

    def _check_integrity(self) -> bool:
        return check_integrity(os.path.join(self.root, self.filename), self.file_md5)

    def download(self) -> None:
        download_url(self.url, self.root, self.filename, self.file_md5)


_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/"


class USPS(VisionDataset):
    """Digits from envelopes, 16 x 16, as LIBSVM's lines of text."""

    split_list: ClassVar[Any] = {
        "train": [_LIBSVM + "usps.bz2", "usps.bz2", "ec16c51db3855ca6c91edd34d0e9b197"],
        "test": [_LIBSVM + "usps.t.bz2", "usps.t.bz2", "8ea070ee2aca1ac39742fdd1ef5ed118"],
    }

    def __init__(
        self,
        root: Any,
        train: bool = True,
        transform: Transform = None,
        target_transform: Transform = None,
        download: bool = False,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        url, name, md5 = self.split_list["train" if train else "test"]
        path = os.path.join(self.root, name)
        if download and not os.path.exists(path):
            download_url(url, self.root, name, md5)
        with bz2.open(path, "rt") as file:
            rows = [line.split() for line in file]
        values = np.array([[pair.split(":")[-1] for pair in row[1:]] for row in rows], np.float32).reshape(-1, 16, 16)
        self.data = ((values + 1) / 2 * 255).astype(np.uint8)
        self.targets = [int(row[0]) - 1 for row in rows]

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._each_transformed(pillow().fromarray(self.data[index]), self.targets[index])

    def __len__(self) -> int:
        return len(self.data)


class SEMEION(VisionDataset):
    """Digits of 16 x 16, black and white."""

    url = "http://archive.ics.uci.edu/ml/machine-learning-databases/semeion/semeion.data"
    filename = "semeion.data"
    md5_checksum: str | None = "cb545d371d2ce14ec121470795a77432"

    def __init__(
        self, root: Any, transform: Transform = None, target_transform: Transform = None, download: bool = True
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        if download:
            self.download()
        if not self._check_integrity():
            raise RuntimeError(MISSING_OR_CORRUPTED)
        table = np.loadtxt(os.path.join(self.root, self.filename))
        self.data = (table[:, :256] * 255).astype(np.uint8).reshape(-1, 16, 16)
        self.labels = np.nonzero(table[:, 256:])[1]

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._each_transformed(pillow().fromarray(self.data[index]), int(self.labels[index]))

    def __len__(self) -> int:
        return len(self.data)

    def _check_integrity(self) -> bool:
        return check_integrity(os.path.join(self.root, self.filename), self.md5_checksum)

    def download(self) -> None:
        if not self._check_integrity():
            download_url(self.url, self.root, self.filename, self.md5_checksum)


class FER2013(VisionDataset):
    """Faces of 48 x 48 with one of seven expressions. The files in `root/fer2013` come from Kaggle."""

    # The first existing file has precedence: it also has the labels of the test images.
    _RESOURCES: ClassVar[Any] = {
        "fer": ("fer2013.csv", "f8428a1edbd21e88f42c73edd2a14f95"),
        "icml": ("icml_face_data.csv", "b114b9e04e6949e5fe8b6a98b3892b1d"),
        "train": ("train.csv", "3f0dfb3d3fd99c811a1299cb947e3131"),
        "test": ("test.csv", "b02c2298636a634e8c2faabbf3ea9a23"),
    }
    _USAGES: ClassVar[Any] = {"train": ("Training",), "test": ("PublicTest", "PrivateTest")}

    def __init__(
        self, root: Any, split: str = "train", transform: Transform = None, target_transform: Transform = None
    ):
        self._split = verify_str_arg(split, "split", ("train", "test"))
        super().__init__(root, transform=transform, target_transform=target_transform)
        folder = os.path.join(self.root, "fer2013")
        kinds = [k for k in ("fer", "icml") if os.path.exists(os.path.join(folder, self._RESOURCES[k][0]))]
        name, md5 = self._RESOURCES[kinds[0] if kinds else split]
        path = os.path.join(folder, name)
        if not check_integrity(path, md5):
            raise RuntimeError(
                f"{name} not found in {folder} or corrupted. You can download it from"
                " https://www.kaggle.com/c/challenges-in-representation-learning-facial-expression-recognition-challenge"
            )
        with open(path, newline="") as file:
            rows = [{k.strip(): v for k, v in row.items()} for row in csv.DictReader(file)]
        self._samples = [
            (
                np.array(row["pixels"].split(), np.uint8).reshape(48, 48),
                int(row["emotion"]) if "emotion" in row else None,
            )
            for row in rows
            if "Usage" not in row or row["Usage"] in self._USAGES[split]
        ]

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        pixels, target = self._samples[index]
        return self._each_transformed(pillow().fromarray(pixels), target)

    def extra_repr(self) -> str:
        return f"split={self._split}"


class MovingMNIST(VisionDataset):
    """Videos (20, 1, 64, 64) of two moving digits; "train" has their first `split_ratio` frames, "test" the others."""

    _URL = "http://www.cs.toronto.edu/~nitish/unsupervised_video/mnist_test_seq.npy"
    _MD5 = "be083ec986bfe91a449d63653c411eb2"

    def __init__(
        self,
        root: Any,
        split: str | None = None,
        split_ratio: int = 10,
        download: bool = False,
        transform: Transform = None,
    ):
        super().__init__(root, transform=transform)
        self.split = None if split is None else verify_str_arg(split, "split", ("train", "test"))
        if not isinstance(split_ratio, int):
            raise TypeError(f"`split_ratio` should be an integer, but got {type(split_ratio)}")
        if not 1 <= split_ratio <= 19:
            raise ValueError(f"`split_ratio` should be `1 <= split_ratio <= 19`, but got {split_ratio} instead.")
        self.split_ratio = split_ratio
        folder, name = os.path.join(self.root, type(self).__name__), os.path.basename(self._URL)
        if download and not os.path.exists(os.path.join(folder, name)):
            download_url(self._URL, folder, name, self._MD5)
        if not os.path.exists(os.path.join(folder, name)):
            raise RuntimeError(MISSING)
        frames = from_numpy(np.load(os.path.join(folder, name)))
        parts = {"train": frames[:split_ratio], "test": frames[split_ratio:]}
        self.data = parts.get(self.split or "", frames).transpose(0, 1).unsqueeze(2).contiguous()

    def __getitem__(self, index: int) -> Any:
        return self.data[index] if self.transform is None else self.transform(self.data[index])

    def __len__(self) -> int:
        return len(self.data)
