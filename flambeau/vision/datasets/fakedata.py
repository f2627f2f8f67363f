"""Random images with random labels, for trying out programs."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau

from ...utils.pillow import pillow
from .vision import Transform, VisionDataset


class FakeData(VisionDataset):
    """A data set of `size` random images. Image `index` is drawn with the seed `index + random_offset`, so it is reproducible."""

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Transform = None,
        target_transform: Transform = None,
        random_offset: int = 0,
    ):
        super().__init__(transform=transform, target_transform=target_transform)
        self.size, self.image_size, self.num_classes = size, image_size, num_classes
        self.random_offset = random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index >= len(self):
            raise IndexError(f"{type(self).__name__} index out of range")
        kept = flambeau.get_rng_state()
        flambeau.manual_seed(index + self.random_offset)
        values = flambeau.randn(*self.image_size)
        target = flambeau.randint(0, self.num_classes, size=(1,))[0]
        flambeau.set_rng_state(kept)
        with np.errstate(invalid="ignore"):  # most values are outside 0 to 1, and wrap around
            pixels = (values.numpy() * np.float32(255)).astype(np.uint8).transpose(1, 2, 0)
        image = pillow().fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels))
        image, target = self._each_transformed(image, target)
        return image, target.item()

    def __len__(self) -> int:
        return self.size
