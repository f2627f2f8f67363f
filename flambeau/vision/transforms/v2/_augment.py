"""Erasing, compression, and mixing of the samples of a batch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.nn.functional import one_hot

from ....utils._pytree import tree_flatten, tree_unflatten
from ....utils.pillow import is_pil
from ...tv_tensors import BoundingBoxes, Image, KeyPoints, Mask, TVTensor, Video
from ...tv_tensors._base import plain
from .. import draws
from ..photometric import check_erasing, erasing_value
from . import functional as F
from ._transform import RandomApplyTransform, Transform, has_any, parse_labels_getter, query_chw, query_size


class RandomErasing(RandomApplyTransform):
    """Erase a random box with probability p: fill it with a value, a colour or noise ("random")."""

    def __init__(self, p: float = 0.5, scale: Any = (0.02, 0.33), ratio: Any = (0.3, 3.3), value: Any = 0.0, inplace: bool = False) -> None:  # fmt: skip
        super().__init__(p=p)
        check_erasing(p, scale, ratio, value)
        self.scale = scale
        self.ratio = ratio
        self.value = erasing_value(value)
        self.inplace = inplace

    def _call_kernel(self, functional: Any, inpt: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(inpt, (BoundingBoxes, KeyPoints, Mask)):
            warnings.warn(
                f"{type(self).__name__}() is currently passing through inputs of type tv_tensors.{type(inpt).__name__}. This will likely change in the future.",
                stacklevel=2,
            )
        return super()._call_kernel(functional, inpt, *args, **kwargs)

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        size = query_chw(flat_inputs)
        if self.value is not None and len(self.value) not in (1, size[0]):
            raise ValueError(
                f"If value is a sequence, it should have either a single value or {size[0]} (number of inpt channels)"
            )
        return {"box": draws.erasing(size, self.scale, self.ratio, self.value)}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if params["box"] is None:
            return inpt
        return self._call_kernel(F.erase, inpt, *params["box"], inplace=self.inplace)


class JPEG(Transform):
    """Compress images as JPEG with random quality and decompress them."""

    _functional = staticmethod(F.jpeg)

    def __init__(self, quality: int | Sequence[int]) -> None:
        super().__init__()
        if isinstance(quality, int):
            quality = [quality, quality]
        elif not isinstance(quality, Sequence):
            raise TypeError(f"quality should be an integer or a sequence of integers. Got {type(quality)}")
        elif len(quality) != 2:
            raise ValueError(f"If quality is a sequence its length should be 2. Got {len(quality)}")
        if not (1 <= quality[0] <= quality[1] <= 100 and isinstance(quality[0], int) and isinstance(quality[1], int)):
            raise ValueError(f"quality must be an integer from 1 to 100, got {quality =}")
        self.quality = quality

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"quality": flambeau.randint(self.quality[0], self.quality[1] + 1, ()).item()}


class _BatchMixing(Transform):
    """Base of transforms that mix every sample of a batch with its neighbour, and the labels accordingly."""

    def __init__(self, *, alpha: float = 1.0, num_classes: int | None = None, labels_getter: Any = "default") -> None:
        super().__init__()
        self.alpha = float(alpha)
        if self.alpha <= 0:
            raise ValueError(f"Expected a positive alpha for the Beta distribution, got {alpha}")
        self.num_classes = num_classes
        self._labels_getter = parse_labels_getter(labels_getter)

    def _draw(self) -> float:
        """Draw the weight of a sample itself, from the Beta(alpha, alpha) distribution."""
        return float(flambeau._sample_dirichlet(flambeau.tensor([self.alpha, self.alpha]))[0])

    def forward(self, *inputs: Any) -> Any:
        sample = inputs if len(inputs) > 1 else inputs[0]
        flat, description = tree_flatten(sample)
        chosen = self._needs_transform_list(flat)
        if has_any(flat, is_pil, BoundingBoxes, Mask, KeyPoints):
            raise ValueError(
                f"{type(self).__name__}() does not support PIL images, bounding boxes, keypoints and masks."
            )
        labels = self._labels_getter(sample)
        self._check_labels(labels)
        params = {
            "labels": labels,
            "batch_size": labels.shape[0],
            **self.make_params([inpt for inpt, needed in zip(flat, chosen) if needed]),
        }
        # Labels are a plain tensor, which the choice above leaves out.
        chosen[next(i for i, inpt in enumerate(flat) if inpt is labels)] = True
        return tree_unflatten(
            [self.transform(x, params) if needed else x for x, needed in zip(flat, chosen)], description
        )

    def _check_labels(self, labels: Any) -> None:
        if not isinstance(labels, Tensor):
            raise ValueError(f"The labels must be a tensor, but got {type(labels)} instead.")
        if labels.ndim not in (1, 2):
            raise ValueError(
                f"labels should be index based with shape (batch_size,) or probability based with shape (batch_size, num_classes), but got a tensor of shape {labels.shape} instead."
            )
        if labels.ndim == 2 and self.num_classes is not None and labels.shape[-1] != self.num_classes:
            raise ValueError(
                f"When passing 2D labels, the number of elements in last dimension must match num_classes: {labels.shape[-1]} != {self.num_classes}. You can Leave num_classes to None."
            )
        if labels.ndim == 1 and self.num_classes is None:
            raise ValueError("num_classes must be passed if the labels are index-based (1D)")

    def _check_batch(self, inpt: Tensor, *, batch_size: int) -> None:
        expected = 5 if isinstance(inpt, Video) else 4
        if inpt.ndim != expected:
            raise ValueError(f"Expected a batched input with {expected} dims, but got {inpt.ndim} dimensions instead.")
        if inpt.shape[0] != batch_size:
            raise ValueError(
                f"The batch size of the image or video does not match the batch size of the labels: {inpt.shape[0]} != {batch_size}."
            )

    def _mix_labels(self, labels: Tensor, lam: float) -> Tensor:
        if labels.ndim == 1:
            labels = one_hot(labels, num_classes=self.num_classes or -1)
        if not labels.is_floating_point():
            labels = labels.float()
        return labels.roll(1, 0).mul_(1.0 - lam).add_(labels.mul(lam))

    def mix(self, inpt: Tensor, params: dict[str, Any]) -> Tensor:
        """Mix the images of a batch."""
        raise NotImplementedError

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if inpt is params["labels"]:
            return self._mix_labels(inpt, params["lam"])
        if not (isinstance(inpt, (Image, Video)) or F.is_pure_tensor(inpt)):
            return inpt
        self._check_batch(inpt, batch_size=params["batch_size"])
        output = self.mix(plain(inpt), params)
        return type(inpt).wrap(output, inpt) if isinstance(inpt, TVTensor) else output


class MixUp(_BatchMixing):
    """Mix each sample with its neighbour by a weighted sum (Zhang et al., 2018)."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"lam": self._draw()}

    def mix(self, inpt: Tensor, params: dict[str, Any]) -> Tensor:
        lam = params["lam"]
        return inpt.roll(1, 0).mul_(1.0 - lam).add_(inpt.mul(lam))


class CutMix(_BatchMixing):
    """Paste a box of the neighbouring sample into each sample (Yun et al., 2019)."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        lam = self._draw()
        height, width = query_size(flat_inputs)
        x, y = int(flambeau.randint(width, size=(1,))), int(flambeau.randint(height, size=(1,)))
        half = 0.5 * math.sqrt(1.0 - lam)
        half_w, half_h = int(half * width), int(half * height)
        x1, y1 = max(x - half_w, 0), max(y - half_h, 0)
        x2, y2 = min(x + half_w, width), min(y + half_h, height)
        # Labels follow the area that was really pasted.
        return {"box": (x1, y1, x2, y2), "lam": float(1.0 - (x2 - x1) * (y2 - y1) / (width * height))}

    def mix(self, inpt: Tensor, params: dict[str, Any]) -> Tensor:
        x1, y1, x2, y2 = params["box"]
        output = inpt.clone()
        output[..., y1:y2, x1:x2] = inpt.roll(1, 0)[..., y1:y2, x1:x2]
        return output
