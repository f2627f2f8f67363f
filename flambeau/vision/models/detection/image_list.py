"""Images of different sizes in one batch."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor


class ImageList:
    """A batch padded to one size, and the sizes (height, width) before padding."""

    def __init__(self, tensors: Tensor, image_sizes: list[tuple[int, int]]):
        self.tensors = tensors
        self.image_sizes = image_sizes

    def to(self, device: Any) -> ImageList:
        return ImageList(self.tensors.to(device), self.image_sizes)
