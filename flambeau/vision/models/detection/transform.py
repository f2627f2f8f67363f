"""Batching of a list of images for detectors, and mapping of detections back to the images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F

from .image_list import ImageList
from .roi_masks import paste_masks_in_image

Target = dict[str, Tensor]


def _ratios(old: Sequence[int], new: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the ratios of the new height and width to the old ones, in single precision."""
    ratio = flambeau.tensor(list(new), dtype=flambeau.float32) / flambeau.tensor(list(old), dtype=flambeau.float32)
    return ratio[0], ratio[1]


def resize_boxes(boxes: Tensor, original_size: Sequence[int], new_size: Sequence[int]) -> Tensor:
    """Scale boxes for the resizing of their image from one (height, width) to another."""
    down, right = _ratios(original_size, new_size)
    x1, y1, x2, y2 = boxes.unbind(1)
    return flambeau.stack((x1 * right, y1 * down, x2 * right, y2 * down), dim=1)


def resize_keypoints(keypoints: Tensor, original_size: Sequence[int], new_size: Sequence[int]) -> Tensor:
    """Scale keypoints (..., x y visibility) for the resizing of their image."""
    down, right = _ratios(original_size, new_size)
    resized = keypoints.clone()
    resized[..., 0] *= right
    resized[..., 1] *= down
    return resized


class GeneralizedRCNNTransform(nn.Module):
    """Normalise (None: with ImageNet's mean and deviation), resize (the shorter side to `min_size`, but the longer one to at
    most `max_size`) and pad into a batch."""

    def __init__(
        self,
        min_size: int | Sequence[int],
        max_size: int,
        image_mean: Sequence[float] | None,
        image_std: Sequence[float] | None,
        size_divisible: int = 32,
        fixed_size: tuple[int, int] | None = None,
        **kwargs: Any,
    ):
        super().__init__()
        self.min_size = min_size if isinstance(min_size, (list, tuple)) else (min_size,)
        self.image_mean, self.image_std = image_mean or [0.485, 0.456, 0.406], image_std or [0.229, 0.224, 0.225]
        self.max_size = max_size
        self.size_divisible, self.fixed_size = size_divisible, fixed_size
        self._skip_resize = kwargs.pop("_skip_resize", False)

    def forward(
        self, images: list[Tensor], targets: list[Target] | None = None
    ) -> tuple[ImageList, list[Target] | None]:
        done: list[Tensor] = []
        changed: list[Target] = []
        for i, image in enumerate(images):
            if image.dim() != 3:
                raise ValueError(f"images is expected to be a list of 3d tensors of shape [C, H, W], got {image.shape}")
            new, target = self.resize(self.normalize(image), None if targets is None else dict(targets[i]))
            done.append(new)
            if target is not None:
                changed.append(target)
        sizes = [(x.shape[-2], x.shape[-1]) for x in done]
        return ImageList(self.batch_images(done, self.size_divisible), sizes), None if targets is None else changed

    def normalize(self, image: Tensor) -> Tensor:
        if not image.is_floating_point():
            raise TypeError(
                f"Expected input images to be of floating type (in range [0, 1]), but found type {image.dtype} instead"
            )
        mean, std = (
            flambeau.tensor(list(v), dtype=image.dtype)[:, None, None] for v in (self.image_mean, self.image_std)
        )
        return (image - mean) / std

    def torch_choice(self, k: Sequence[int]) -> int:
        """Return one of k values, drawn at random."""
        return k[int(flambeau.empty(1).uniform_(0.0, float(len(k))).item())]

    def resize(self, image: Tensor, target: Target | None = None) -> tuple[Tensor, Target | None]:
        height, width = image.shape[-2:]
        if self.training:
            if self._skip_resize:
                return image, target
            shorter = self.torch_choice(self.min_size)
        else:
            shorter = self.min_size[-1]
        if self.fixed_size is not None:
            how: dict[str, Any] = {"size": [self.fixed_size[1], self.fixed_size[0]]}
        else:
            scale = min(shorter / min(height, width), self.max_size / max(height, width))
            how = {"scale_factor": scale, "recompute_scale_factor": True}
        image = F.interpolate(image[None], mode="bilinear", align_corners=False, **how)[0]
        if target is None:
            return image, None
        new = image.shape[-2:]
        if "masks" in target:
            target["masks"] = F.interpolate(target["masks"][:, None].float(), **how)[:, 0].byte()
        target["boxes"] = resize_boxes(target["boxes"], (height, width), new)
        if "keypoints" in target:
            target["keypoints"] = resize_keypoints(target["keypoints"], (height, width), new)
        return image, target

    def batch_images(self, images: list[Tensor], size_divisible: int = 32) -> Tensor:
        step = size_divisible
        size = [max(image.shape[i] for image in images) for i in range(3)]
        size[1:] = [int(math.ceil(float(n) / step) * step) for n in size[1:]]
        batch = images[0].new_full((len(images), *size), 0)
        for place, image in zip(batch, images):
            place[: image.shape[0], : image.shape[1], : image.shape[2]].copy_(image)
        return batch

    def postprocess(
        self,
        result: list[Target],
        image_shapes: Sequence[tuple[int, int]],
        original_image_sizes: Sequence[tuple[int, int]],
    ) -> list[Target]:
        if self.training:
            return result
        for found, size, original in zip(result, image_shapes, original_image_sizes):
            found["boxes"] = resize_boxes(found["boxes"], size, original)
            if "masks" in found:
                found["masks"] = paste_masks_in_image(found["masks"], found["boxes"], original)
            if "keypoints" in found:
                found["keypoints"] = resize_keypoints(found["keypoints"], size, original)
        return result

    def __repr__(self) -> str:
        text = f"{type(self).__name__}(\n    Normalize(mean={self.image_mean}, std={self.image_std})"
        return text + f"\n    Resize(min_size={self.min_size}, max_size={self.max_size}, mode='bilinear')\n)"
