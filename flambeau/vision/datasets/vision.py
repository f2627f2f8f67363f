"""Base of all datasets of images."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

from ...utils.data import Dataset
from .utils import check_integrity, download_and_extract_archive

Transform = Callable[..., Any] | None
Loader = Callable[[Any], Any]


class VisionDataset(Dataset):
    """Base of image data sets: `transforms` takes image and target together, `transform` and `target_transform` one each."""

    _repr_indent = 4

    def __init__(
        self,
        root: Any = None,
        transforms: Transform = None,
        transform: Transform = None,
        target_transform: Transform = None,
    ):
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        apart = transform is not None or target_transform is not None
        if transforms is not None and apart:
            raise ValueError("Only transforms or transform/target_transform can be passed as argument")
        self.transform, self.target_transform = transform, target_transform
        self.transforms = StandardTransform(transform, target_transform) if apart else transforms

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def _each_transformed(self, image: Any, target: Any) -> tuple[Any, Any]:
        """Apply the current `transform` and `target_transform`, which users may reassign after construction."""
        return StandardTransform(self.transform, self.target_transform)(image, target)

    def _both_transformed(self, image: Any, target: Any) -> tuple[Any, Any]:
        return (image, target) if self.transforms is None else self.transforms(image, target)

    def extra_repr(self) -> str:
        return ""

    def __repr__(self) -> str:
        body = [f"Number of datapoints: {len(self)}"]
        if self.root is not None:
            body.append(f"Root location: {self.root}")
        body += self.extra_repr().splitlines()
        if getattr(self, "transforms", None) is not None:
            body.append(repr(self.transforms))
        return "\n".join([f"Dataset {type(self).__name__}", *(" " * self._repr_indent + line for line in body)])


class StandardTransform:
    """A transform of the image and a transform of the target, applied together."""

    def __init__(self, transform: Transform = None, target_transform: Transform = None):
        self.transform, self.target_transform = transform, target_transform

    def __call__(self, input: Any, target: Any) -> tuple[Any, Any]:
        if self.transform is not None:
            input = self.transform(input)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return input, target

    def __repr__(self) -> str:
        body = [type(self).__name__]
        for head, transform in (("Transform: ", self.transform), ("Target transform: ", self.target_transform)):
            if transform is not None:
                first, *others = repr(transform).splitlines()
                body += [head + first, *(" " * len(head) + line for line in others)]
        return "\n".join(body)


class ArchivedDataset(VisionDataset):
    """Base of data sets that are one archive: a subclass names the archive, the folder it unpacks to, and the files in it as [name, MD5]."""

    base_folder: str
    url: str
    filename: str
    tgz_md5: str
    train_list: ClassVar[Any]
    test_list: ClassVar[Any]

    def _path(self, name: str) -> str:
        return os.path.join(self.root, self.base_folder, name)

    def _check_integrity(self) -> bool:
        return all(check_integrity(self._path(name), md5) for name, md5 in [*self.train_list, *self.test_list])

    def download(self) -> None:
        if not self._check_integrity():
            download_and_extract_archive(self.url, self.root, filename=self.filename, md5=self.tgz_md5)
