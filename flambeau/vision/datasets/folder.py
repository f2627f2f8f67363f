"""Samples in folders, one folder per class."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ...utils.pillow import pillow
from .vision import Loader, Transform, VisionDataset

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def has_file_allowed_extension(filename: str, extensions: str | tuple[str, ...]) -> bool:
    return filename.lower().endswith(extensions if isinstance(extensions, str) else tuple(extensions))


def is_image_file(filename: str) -> bool:
    return has_file_allowed_extension(filename, IMG_EXTENSIONS)


def pil_loader(path: Any) -> Any:
    """Load an image file as RGB."""
    with open(path, "rb") as file:
        return pillow().open(file).convert("RGB")


default_loader = pil_loader


def find_classes(directory: Any) -> tuple[list[str], dict[str, int]]:
    """Return the names of the subfolders of a folder, sorted, and their numbers."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: number for number, name in enumerate(classes)}


def make_dataset(
    directory: Any,
    class_to_idx: dict[str, int] | None = None,
    extensions: str | tuple[str, ...] | None = None,
    is_valid_file: Callable[[str], bool] | None = None,
    allow_empty: bool = False,
) -> list[tuple[str, int]]:
    """List (path, class index) of every file below the class folders that has one of the extensions or passes `is_valid_file`."""
    directory = os.path.expanduser(directory)
    if class_to_idx is None:
        class_to_idx = find_classes(directory)[1]
    elif not class_to_idx:
        raise ValueError("'class_to_index' must have at least one entry to collect any samples.")
    if (extensions is None) == (is_valid_file is None):
        raise ValueError("Both extensions and is_valid_file cannot be None or not None at the same time")
    samples = []
    empty = []
    for name in sorted(class_to_idx):
        paths = [
            path
            for folder, _, files in sorted(os.walk(os.path.join(directory, name), followlinks=True))
            for path in (os.path.join(folder, file) for file in sorted(files))
            if (has_file_allowed_extension(path, extensions) if extensions is not None else is_valid_file(path))  # type: ignore[misc]
        ]
        samples += [(path, class_to_idx[name]) for path in paths]
        if not paths:
            empty.append(name)
    if empty and not allow_empty:
        message = f"Found no valid file for the classes {', '.join(empty)}. "
        if extensions is not None:
            message += (
                f"Supported extensions are: {extensions if isinstance(extensions, str) else ', '.join(extensions)}"
            )
        raise FileNotFoundError(message)
    return samples


class DatasetFolder(VisionDataset):
    """Samples of any kind: `root/class_x/xxx.ext`, read by `loader`.

    Files are selected by `extensions` or by the function `is_valid_file`. `classes`, `class_to_idx`, `samples` and `targets` hold the result; override `find_classes` for other arrangements."""

    def __init__(
        self,
        root: Any,
        loader: Loader,
        extensions: tuple[str, ...] | None = None,
        transform: Transform = None,
        target_transform: Transform = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ):
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.classes: list
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = self.make_dataset(
            self.root,
            class_to_idx=self.class_to_idx,
            extensions=extensions,
            is_valid_file=is_valid_file,
            allow_empty=allow_empty,
        )
        self.loader, self.extensions = loader, extensions
        self.targets = [target for _, target in self.samples]

    @staticmethod
    def make_dataset(
        directory: Any,
        class_to_idx: dict[str, int],
        extensions: tuple[str, ...] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> list[tuple[str, int]]:
        if class_to_idx is None:
            raise ValueError("The class_to_idx parameter cannot be None.")
        return make_dataset(directory, class_to_idx, extensions, is_valid_file, allow_empty)

    def find_classes(self, directory: Any) -> tuple[list[str], dict[str, int]]:
        return find_classes(directory)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self._each_transformed(self.loader(path), target)

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """Images in folders, one per class: `root/dog/xxx.png`, `root/cat/123.png`.

    >>> data = ImageFolder("images/", transform=ToTensor())
    """

    def __init__(
        self,
        root: Any,
        transform: Transform = None,
        target_transform: Transform = None,
        loader: Loader = default_loader,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ):
        super().__init__(
            root,
            loader,
            IMG_EXTENSIONS if is_valid_file is None else None,
            transform=transform,
            target_transform=target_transform,
            is_valid_file=is_valid_file,
            allow_empty=allow_empty,
        )
        self.imgs = self.samples
