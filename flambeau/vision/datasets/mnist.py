"""Handwritten digits, clothes and letters in the idx format."""

from __future__ import annotations

import gzip
import os
import shutil
import string
import warnings
from typing import Any, ClassVar

import numpy as np

from ...core.tensor import Tensor, from_array
from ...serialization import load
from ...utils.pillow import pillow
from .utils import MISSING, check_integrity, download_and_extract_archive, extract_archive, verify_str_arg
from .vision import VisionDataset

_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_DIGITS = [f"{number} - {word}" for number, word in enumerate(_WORDS)]
_ELEMENTS = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: str, strict: bool = True) -> Tensor:
    """Read a tensor from an idx file: two zero bytes, a type, a number of dimensions, their sizes, the elements, all big-endian.

    If only `path` with the suffix .gz exists, that is read. Without `strict`, bytes after the elements are ignored."""
    compressed = not os.path.exists(path) and os.path.exists(f"{path}.gz")
    with gzip.open(f"{path}.gz") if compressed else open(path, "rb") as file:
        data = file.read()
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _ELEMENTS or not 1 <= data[3] <= 3:
        raise ValueError(f"{path} is not an idx file of 1 to 3 dimensions: it begins with {data[:4].hex(' ')}")
    kind, start = np.dtype(_ELEMENTS[data[2]]), 4 + 4 * data[3]
    shape = tuple(int(n) for n in np.frombuffer(data[4:start], ">u4"))
    count = int(np.prod(shape, dtype=object))
    held, rest = divmod(len(data) - start, kind.itemsize)
    if len(shape) != data[3] or held < count or (strict and (held > count or rest)):
        raise ValueError(f"{path} should hold {count} elements (size {shape}), but there is room for {max(held, 0)}")
    return from_array(np.frombuffer(data, kind, count, start).reshape(shape).astype(kind.newbyteorder("=")))


def _read_bytes(path: str, dimensions: int) -> Tensor:
    found = read_idx(path, strict=False)
    if found.dtype.name != "uint8":
        raise TypeError(f"x should be of dtype torch.uint8 instead of {found.dtype}")
    if found.ndim != dimensions:
        raise ValueError(f"x should have {dimensions} dimension instead of {found.ndim}")
    return found


def _is_downloaded(path: str) -> bool:
    return check_integrity(path) or check_integrity(f"{path}.gz")


class MNIST(VisionDataset):
    """Digits: 60,000 images of 28 x 28 to train with, 10,000 to test. The files are in `root/MNIST/raw`.

    >>> data = MNIST("data/", train=False, download=True, transform=ToTensor())
    """

    mirrors: ClassVar[list[str]] = [
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    ]
    resources: ClassVar[Any] = [
        ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ]
    training_file = "training.pt"
    test_file = "test.pt"
    classes: list[str] = _DIGITS

    def __init__(
        self, root: Any, train: bool = True, transform: Any = None, target_transform: Any = None, download: bool = False
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        if self._has_processed():
            self.data, self.targets = load(self._processed(self.training_file if train else self.test_file))
            return
        if download:
            self.download()
        if not self._check_exists():
            raise RuntimeError(MISSING)
        self.data, self.targets = self._load_data()

    # Files that old versions of torchvision wrote.
    def _processed(self, name: str) -> str:
        return os.path.join(self.processed_folder, name)

    def _has_processed(self) -> bool:
        return all(check_integrity(self._processed(name)) for name in (self.training_file, self.test_file))

    def _raw_path(self, name: str) -> str:
        return os.path.join(self.raw_folder, name)

    def _load_data(self) -> tuple[Tensor, Tensor]:
        part = "train" if self.train else "t10k"
        return (
            _read_bytes(self._raw_path(f"{part}-images-idx3-ubyte"), 3),
            _read_bytes(self._raw_path(f"{part}-labels-idx1-ubyte"), 1).long(),
        )

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = pillow().fromarray(self.data[index].numpy())
        return self._each_transformed(image, self._target(index))

    def _target(self, index: int) -> Any:
        return int(self.targets[index])

    def __len__(self) -> int:
        return len(self.data)

    @property
    def raw_folder(self) -> str:
        return os.path.join(self.root, type(self).__name__, "raw")

    @property
    def processed_folder(self) -> str:
        return os.path.join(self.root, type(self).__name__, "processed")

    @property
    def class_to_idx(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.classes)}

    def _check_exists(self) -> bool:
        return all(_is_downloaded(self._raw_path(os.path.splitext(name)[0])) for name, _ in self.resources)

    def download(self) -> None:
        """Download missing files, each from the first mirror that has it."""
        if self._check_exists():
            return
        for name, md5 in self.resources:
            problems = []
            for mirror in self.mirrors:
                try:
                    download_and_extract_archive(mirror + name, self.raw_folder, filename=name, md5=md5)
                    break
                except (RuntimeError, OSError) as problem:  # URLError is an OSError
                    problems.append(f"Tried {mirror}, got:\n{problem}\n")
            else:
                raise RuntimeError(f"Error downloading {name}:\n{''.join(problems)}")

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train is True else 'Test'}"

    def _rename_raw(self, old: str, new: str) -> Any:
        warnings.warn(f"{old} has been renamed {new}", stacklevel=3)
        return getattr(self, new)

    @property
    def train_labels(self) -> Tensor:
        return self._rename_raw("train_labels", "targets")

    @property
    def test_labels(self) -> Tensor:
        return self._rename_raw("test_labels", "targets")

    @property
    def train_data(self) -> Tensor:
        return self._rename_raw("train_data", "data")

    @property
    def test_data(self) -> Tensor:
        return self._rename_raw("test_data", "data")


class FashionMNIST(MNIST):
    """Articles of clothing, in MNIST's sizes."""

    mirrors: ClassVar[list[str]] = ["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"]
    resources: ClassVar[Any] = [
        ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ]
    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


class KMNIST(MNIST):
    """Characters of cursive Japanese, in MNIST's sizes."""

    mirrors: ClassVar[list[str]] = ["http://codh.rois.ac.jp/kmnist/dataset/kmnist/"]
    resources: ClassVar[Any] = [
        ("train-images-idx3-ubyte.gz", "bdb82020997e1d708af4cf47b453dcf7"),
        ("train-labels-idx1-ubyte.gz", "e144d726b3acfaa3e44228e80efcd344"),
        ("t10k-images-idx3-ubyte.gz", "5c965bf0a639b31b8f53240b1b52f4d7"),
        ("t10k-labels-idx1-ubyte.gz", "7320c461ea6c1c855c0b718fb2a4b134"),
    ]
    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]


_LIKE_CAPITALS = set("cijklmopsuvwxyz")
_CHARACTERS = set(string.digits + string.ascii_letters)


class EMNIST(MNIST):
    """Handwritten digits and letters; `split` selects one of six arrangements of the classes."""

    url = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
    md5 = "58c8d27c78d21e728a6bc7b3cc06412e"
    splits = ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")
    classes_split_dict: ClassVar[dict[str, list[str]]] = {
        "byclass": sorted(_CHARACTERS),
        "bymerge": sorted(_CHARACTERS - _LIKE_CAPITALS),
        "balanced": sorted(_CHARACTERS - _LIKE_CAPITALS),
        "letters": ["N/A", *string.ascii_lowercase],
        "digits": list(string.digits),
        "mnist": list(string.digits),
    }

    def __init__(self, root: Any, split: str, **options: Any):
        self.split = verify_str_arg(split, "split", self.splits)
        self.training_file, self.test_file = f"training_{split}.pt", f"test_{split}.pt"
        super().__init__(root, **options)
        self.classes = self.classes_split_dict[split]

    def _file(self, kind: str) -> str:
        return self._raw_path(f"emnist-{self.split}-{'train' if self.train else 'test'}-{kind}-ubyte")

    @property
    def images_file(self) -> str:
        return self._file("images-idx3")

    @property
    def labels_file(self) -> str:
        return self._file("labels-idx1")

    def _load_data(self) -> tuple[Tensor, Tensor]:
        return _read_bytes(self.images_file, 3), _read_bytes(self.labels_file, 1).long()

    def _check_exists(self) -> bool:
        return _is_downloaded(self.images_file) and _is_downloaded(self.labels_file)

    def download(self) -> None:
        if self._check_exists():
            return
        download_and_extract_archive(self.url, self.raw_folder, md5=self.md5)
        folder = self._raw_path("gzip")
        for name in os.listdir(folder):
            if name.endswith(".gz"):
                extract_archive(os.path.join(folder, name), self.raw_folder)
        shutil.rmtree(folder)


_QMNIST = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"


class QMNIST(MNIST):
    """MNIST with its lost test images and the writers' numbers; with `compat=False`, a target has all metadata of an image.

    `what` is "train", "test", "test10k" (MNIST's own), "test50k" (the others) or "nist" (all digits)."""

    subsets: ClassVar[dict[str, str]] = {
        "train": "train",
        "test": "test",
        "test10k": "test",
        "test50k": "test",
        "nist": "nist",
    }
    resources: ClassVar[Any] = {
        "train": [
            (_QMNIST + "qmnist-train-images-idx3-ubyte.gz", "ed72d4157d28c017586c42bc6afe6370"),
            (_QMNIST + "qmnist-train-labels-idx2-int.gz", "0058f8dd561b90ffdd0f734c6a30e5e4"),
        ],
        "test": [
            (_QMNIST + "qmnist-test-images-idx3-ubyte.gz", "1394631089c404de565df7b7aeaf9412"),
            (_QMNIST + "qmnist-test-labels-idx2-int.gz", "5b5b05890a5e13444e108efe57b788aa"),
        ],
        "nist": [
            (_QMNIST + "xnist-images-idx3-ubyte.xz", "7f124b3b8ab81486c9d8c2749c17f834"),
            (_QMNIST + "xnist-labels-idx2-int.xz", "5ed0e788978e45d4a8bd4b7caec3d79d"),
        ],
    }

    def __init__(self, root: Any, what: str | None = None, compat: bool = True, train: bool = True, **options: Any):
        what = ("train" if train else "test") if what is None else what
        self.what = verify_str_arg(what, "what", tuple(self.subsets))
        self.compat = compat
        self.data_file = self.training_file = self.test_file = f"{what}.pt"
        super().__init__(root, train, **options)

    def _file(self, which: int) -> str:
        url = self.resources[self.subsets[self.what]][which][0]
        return self._raw_path(os.path.splitext(os.path.basename(url))[0])

    @property
    def images_file(self) -> str:
        return self._file(0)

    @property
    def labels_file(self) -> str:
        return self._file(1)

    def _check_exists(self) -> bool:
        return _is_downloaded(self.images_file) and _is_downloaded(self.labels_file)

    def _load_data(self) -> tuple[Tensor, Tensor]:
        data, targets = _read_bytes(self.images_file, 3), read_idx(self.labels_file).long()
        if targets.ndim != 2:
            raise ValueError(f"targets should have 2 dimensions instead of {targets.ndim}")
        part = {"test10k": slice(0, 10000), "test50k": slice(10000, None)}.get(self.what)
        return (data, targets) if part is None else (data[part].clone(), targets[part].clone())

    def download(self) -> None:
        """Download the files of the chosen subset only."""
        if not self._check_exists():
            for url, md5 in self.resources[self.subsets[self.what]]:
                download_and_extract_archive(url, self.raw_folder, md5=md5)

    def _target(self, index: int) -> Any:
        target = self.targets[index]
        return int(target[0]) if self.compat else target

    def extra_repr(self) -> str:
        return f"Split: {self.what}"
