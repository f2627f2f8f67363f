"""CIFAR-10 and CIFAR-100: small images in pickled batches."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import numpy as np

from ...utils.pillow import pillow
from .utils import MISSING_OR_CORRUPTED, check_integrity
from .vision import ArchivedDataset

_ARRAY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy")
_ARRAY_NAMES = ("_reconstruct", "ndarray", "dtype", "scalar")


class _ArraysOnly(pickle.Unpickler):
    """Unpickler of dictionaries of arrays. Pickles can name any function to be called: here only NumPy's own are allowed."""

    def find_class(self, module: str, name: str) -> Any:
        if (module in _ARRAY_MODULES and name in _ARRAY_NAMES) or (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a batch of images has no business with {module}.{name}")


def _read(path: str) -> dict:
    with open(path, "rb") as file:
        return _ArraysOnly(file, encoding="latin1").load()


class CIFAR10(ArchivedDataset):
    """Images of 32 x 32 in ten classes: 50,000 to train with, 10,000 to test. They are in `root/cifar-10-batches-py`."""

    base_folder = "cifar-10-batches-py"
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    filename = "cifar-10-python.tar.gz"
    tgz_md5 = "c58f30108f718f92721af3b95e74349a"
    train_list: ClassVar[Any] = [
        ["data_batch_1", "c99cafc152244af753f735de768cd75f"],
        ["data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"],
        ["data_batch_3", "54ebc095f3ab1f0389bbae665268c751"],
        ["data_batch_4", "634d18415352ddfa80567beed471001a"],
        ["data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"],
    ]
    test_list: ClassVar[Any] = [["test_batch", "40351d587109b95175f43aff81a1287e"]]
    meta: ClassVar[Any] = {"filename": "batches.meta", "key": "label_names", "md5": "5ff9c542aee3614f3951f8cda6e48888"}

    def __init__(
        self, root: Any, train: bool = True, transform: Any = None, target_transform: Any = None, download: bool = False
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        if download:
            self.download()
        if not self._check_integrity():
            raise RuntimeError(MISSING_OR_CORRUPTED)
        batches = [_read(self._path(name)) for name, _ in (self.train_list if train else self.test_list)]
        self.data = np.vstack([b["data"] for b in batches]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        self.targets = [label for b in batches for label in b["labels" if "labels" in b else "fine_labels"]]
        self._load_meta()

    def _load_meta(self) -> None:
        path = self._path(self.meta["filename"])
        if not check_integrity(path, self.meta["md5"]):
            raise RuntimeError("Dataset metadata file not found or corrupted. You can use download=True to download it")
        self.classes = _read(path)[self.meta["key"]]
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._each_transformed(pillow().fromarray(self.data[index]), self.targets[index])

    def __len__(self) -> int:
        return len(self.data)

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train is True else 'Test'}"


class CIFAR100(CIFAR10):
    """CIFAR-100: 60,000 images of 32 x 32 pixels in a hundred classes."""

    base_folder = "cifar-100-python"
    url = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    filename = "cifar-100-python.tar.gz"
    tgz_md5 = "eb9058c3a382ffc7106e4002c42a8d85"
    train_list: ClassVar[Any] = [["train", "16019d7e3df5f24257cddd939b257f8d"]]
    test_list: ClassVar[Any] = [["test", "f0ef6b0ae62326f3e7ffdfab6717acfc"]]
    meta: ClassVar[Any] = {"filename": "meta", "key": "fine_label_names", "md5": "7973b15100ade9c7d40fb424638fde48"}
