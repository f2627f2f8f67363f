"""Transforms of samples with boxes and points."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import Tensor

from ....utils._pytree import tree_flatten, tree_unflatten
from ....utils.pillow import is_pil
from ...tv_tensors import BoundingBoxes, BoundingBoxFormat, Image, KeyPoints, Mask, Video
from ...tv_tensors._base import plain
from ...tv_tensors._boxes import check_clamping_mode
from . import functional as F
from ._transform import Transform, get_bounding_boxes, get_keypoints, has_all, has_any, parse_labels_getter, query_size

__all__ = [
    "ClampBoundingBoxes", "ClampKeyPoints", "ConvertBoundingBoxFormat", "RandomIoUCrop", "SanitizeBoundingBoxes",
    "SanitizeKeyPoints", "SetClampingMode",
]  # fmt: skip


class RandomIoUCrop(Transform):
    """Apply the crop of SSD training: a window that overlaps some box by a random minimum. Follow it with SanitizeBoundingBoxes."""

    def __init__(self, min_scale: float = 0.3, max_scale: float = 1.0, min_aspect_ratio: float = 0.5, max_aspect_ratio: float = 2.0, sampler_options: list[float] | None = None, trials: int = 40) -> None:  # fmt: skip
        super().__init__()
        self.min_scale = min_scale
        self.max_scale = max_scale
        self.min_aspect_ratio = min_aspect_ratio
        self.max_aspect_ratio = max_aspect_ratio
        self.options = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0] if sampler_options is None else sampler_options
        self.trials = trials

    def check_inputs(self, flat_inputs: list[Any]) -> None:
        if not (has_all(flat_inputs, BoundingBoxes) and has_any(flat_inputs, is_pil, Image, Video, F.is_pure_tensor)):
            raise TypeError(
                f"{type(self).__name__}() requires input sample to contain tensor or PIL images and bounding boxes. Sample can also contain masks."
            )

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        size = query_size(flat_inputs)
        boxes = F.convert_bounding_box_format(get_bounding_boxes(flat_inputs), new_format=BoundingBoxFormat.XYXY)
        boxes = plain(boxes)
        while True:
            overlap = self.options[int(flambeau.randint(low=0, high=len(self.options), size=(1,)))]
            if overlap >= 1.0:  # the whole image
                return {}
            for _ in range(self.trials):
                found = self._try(size, boxes, overlap)
                if found is not None:
                    return found

    def _try(self, size: tuple[int, int], boxes: Tensor, overlap: float) -> dict[str, Any] | None:
        height, width = size
        scale = self.min_scale + (self.max_scale - self.min_scale) * flambeau.rand(2)
        new_w, new_h = int(width * scale[0]), int(height * scale[1])
        if not self.min_aspect_ratio <= new_w / new_h <= self.max_aspect_ratio:
            return None
        place = flambeau.rand(2)
        left, top = int((width - new_w) * place[0]), int((height - new_h) * place[1])
        right, bottom = left + new_w, top + new_h
        if left == right or top == bottom:
            return None
        cx, cy = 0.5 * (boxes[..., 0] + boxes[..., 2]), 0.5 * (boxes[..., 1] + boxes[..., 3])
        within = (left < cx) & (cx < right) & (top < cy) & (cy < bottom)
        if not within.any():
            return None
        if _overlaps(boxes[within], [left, top, right, bottom]).max() < overlap:
            return None
        return {"top": top, "left": left, "height": new_h, "width": new_w, "within": within}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        if not params:
            return inpt
        window = {name: params[name] for name in ("top", "left", "height", "width")}
        output = self._call_kernel(F.crop, inpt, **window)
        if isinstance(output, BoundingBoxes):
            # Boxes whose centre is cut away become empty; sanitizing removes them.
            kept = plain(output).clone()
            kept[~params["within"]] = 0
            output = BoundingBoxes.wrap(kept, output)
        return output


def _overlaps(boxes: Tensor, window: list[int]) -> Tensor:
    """Return the intersection over union of every box (N, 4) with the window."""
    other = flambeau.tensor(window, dtype=boxes.dtype)
    low, high = flambeau.maximum(boxes[:, :2], other[:2]), flambeau.minimum(boxes[:, 2:], other[2:])
    shared = (high - low).clamp(min=0).prod(-1)
    return shared / ((boxes[:, 2:] - boxes[:, :2]).prod(-1) + (other[2:] - other[:2]).prod(-1) - shared)


class ConvertBoundingBoxFormat(Transform):
    """Convert boxes to another format."""

    _transformed_types = (BoundingBoxes,)

    def __init__(self, format: BoundingBoxFormat | str) -> None:
        super().__init__()
        self.format = format

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return F.convert_bounding_box_format(inpt, new_format=self.format)


class ClampBoundingBoxes(Transform):
    """Clamp boxes to their canvas."""

    _functional = staticmethod(F.clamp_bounding_boxes)
    _options = ("clamping_mode",)
    _transformed_types = (BoundingBoxes,)

    def __init__(self, clamping_mode: str | None = "auto") -> None:
        super().__init__()
        self.clamping_mode = clamping_mode


class ClampKeyPoints(Transform):
    """Move points outside of their canvas onto it."""

    _functional = staticmethod(F.clamp_keypoints)
    _transformed_types = (KeyPoints,)


class SetClampingMode(Transform):
    """Set what later transforms do to boxes that leave the canvas: "soft", "hard" or None."""

    _transformed_types = (BoundingBoxes,)

    def __init__(self, clamping_mode: str | None) -> None:
        super().__init__()
        check_clamping_mode(clamping_mode)
        self.clamping_mode = clamping_mode

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return BoundingBoxes.wrap(plain(inpt).clone(), inpt, clamping_mode=self.clamping_mode)


class _SanitizeBase(Transform):
    """Base of transforms that remove some of the boxes or points of a sample, with their labels."""

    def __init__(self, labels_getter: Any) -> None:
        super().__init__()
        self.labels_getter = labels_getter
        self._labels_getter = parse_labels_getter(labels_getter)

    def choose(self, flat: list[Any]) -> tuple[Tensor, Tensor]:
        """Return the boxes or points of the sample, and a mask of those to keep."""
        raise NotImplementedError

    def follows(self, inpt: Any, count: int) -> bool:
        """Return whether an input has one entry per box or point."""
        return False

    def forward(self, *inputs: Any) -> Any:
        sample = inputs if len(inputs) > 1 else inputs[0]
        labels = self._labels_getter(sample)
        tied: tuple = () if labels is None else (tuple(labels) if isinstance(labels, (tuple, list)) else (labels,))
        for label in tied:
            if label is not None and not isinstance(label, Tensor):
                raise ValueError(
                    f"The labels in the input to forward() must be a tensor or None, got {type(label)} instead."
                )
        flat, description = tree_flatten(sample)
        shapes, valid = self.choose(flat)
        for label in tied:
            if label is not None and len(shapes) != len(label):
                raise ValueError(
                    f"Number of boxes (shape={tuple(shapes.shape)}) and must match the number of labels.Found labels with shape={tuple(label.shape)})."
                )
        outputs = []
        for inpt in flat:
            chosen = inpt is shapes or any(inpt is label for label in tied) or self.follows(inpt, len(valid))
            outputs.append(_subset(inpt, valid) if chosen else inpt)
        return tree_unflatten(outputs, description)


def _subset(inpt: Tensor, valid: Tensor) -> Tensor:
    kept = plain(inpt)[valid]
    wrap = getattr(type(inpt), "wrap", None)
    return kept if wrap is None else wrap(kept, inpt)


class SanitizeBoundingBoxes(_SanitizeBase):
    """Remove boxes that are too small or outside, with their labels and masks."""

    def __init__(self, min_size: float = 1.0, min_area: float = 1.0, labels_getter: Any = "default") -> None:
        super().__init__(labels_getter)
        if min_size < 1:
            raise ValueError(f"min_size must be >= 1, got {min_size}.")
        if min_area < 1:
            raise ValueError(f"min_area must be >= 1, got {min_area}.")
        del self.labels_getter
        self.min_size = min_size
        self.min_area = min_area
        self.labels_getter = labels_getter

    def choose(self, flat: list[Any]) -> tuple[Tensor, Tensor]:
        boxes = get_bounding_boxes(flat)
        return boxes, F.sanitize_bounding_boxes(boxes, min_size=self.min_size, min_area=self.min_area)[1]

    def follows(self, inpt: Any, count: int) -> bool:
        return isinstance(inpt, Mask) and inpt.ndim > 2 and len(inpt) == count


class SanitizeKeyPoints(_SanitizeBase):
    """Remove points, or groups of points, that are outside, with their labels."""

    def __init__(self, labels_getter: Any = None) -> None:
        super().__init__(labels_getter)

    def choose(self, flat: list[Any]) -> tuple[Tensor, Tensor]:
        points = get_keypoints(flat)
        return points, F.sanitize_keypoints(points)[1]
