"""Sizes of inputs; formats, clamping and sanitizing of boxes and points."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import Tensor

from ....tv_tensors import BoundingBoxes, BoundingBoxFormat, KeyPoints, Mask, Video
from ....tv_tensors._base import plain
from ....tv_tensors._boxes import box_format
from ...kernels import boxes as box_kernels
from ...kernels import pil
from ._dispatch import PIL, TENSORS, functional, is_pure_tensor, kernel

__all__ = [
    "clamp_bounding_boxes", "clamp_keypoints", "convert_bounding_box_format", "get_dimensions", "get_dimensions_image",
    "get_dimensions_video", "get_image_num_channels", "get_image_size", "get_num_channels", "get_num_channels_image",
    "get_num_channels_video", "get_num_frames", "get_num_frames_video", "get_size", "get_size_bounding_boxes",
    "get_size_image", "get_size_keypoints", "get_size_mask", "get_size_video", "sanitize_bounding_boxes",
    "sanitize_keypoints",
]  # fmt: skip

# -- sizes ------------------------------------------------------------------------------------------------------------


def get_dimensions_image(image: Tensor) -> list[int]:
    """Return [channels, height, width] of an image."""
    if image.ndim < 2:
        raise TypeError(f"Input tensor should have at least two dimensions, but got {image.ndim}")
    return [1 if image.ndim == 2 else image.shape[-3], *image.shape[-2:]]


get_dimensions = functional(get_dimensions_image)


get_dimensions_video = get_dimensions_image


@kernel(get_dimensions, PIL)
def _get_dimensions_pil(image: Any) -> list[int]:
    return [pil.num_channels(image), image.height, image.width]


def get_num_channels_image(image: Tensor) -> int:
    """Return the number of channels."""
    return get_dimensions_image(image)[0]


get_num_channels = functional(get_num_channels_image)


get_num_channels_video = get_num_channels_image
kernel(get_num_channels, PIL)(pil.num_channels)
get_image_num_channels = get_num_channels


def get_size_image(image: Tensor) -> list[int]:
    """Return [height, width] of an image, or of the canvas for boxes and points."""
    return get_dimensions_image(image)[1:]


get_size = functional(get_size_image, *TENSORS, Mask)


get_size_video = get_size_mask = get_size_image


@kernel(get_size, PIL)
def _get_size_pil(image: Any) -> list[int]:
    return [image.height, image.width]


def get_size_bounding_boxes(bounding_box: BoundingBoxes) -> list[int]:
    return list(bounding_box.canvas_size)


def get_size_keypoints(keypoints: KeyPoints) -> list[int]:
    return list(keypoints.canvas_size)


get_size.kernels[BoundingBoxes] = get_size_bounding_boxes
get_size.kernels[KeyPoints] = get_size_keypoints


def get_num_frames_video(video: Tensor) -> int:
    """Return the number of frames of a video."""
    return video.shape[-4]


get_num_frames = functional(get_num_frames_video, Tensor, Video)


def get_image_size(inpt: Any) -> list[int]:
    """Return [width, height] of an image."""
    return get_size(inpt)[::-1]


# -- boxes ------------------------------------------------------------------------------------------------------------


def convert_bounding_box_format(
    inpt: Tensor, old_format: Any = None, new_format: Any = None, inplace: bool = False
) -> Tensor:
    """Convert boxes to another format. Plain tensors need `old_format`."""
    if new_format is None:
        raise TypeError("convert_bounding_box_format() missing 1 required argument: 'new_format'")
    new = box_format(new_format)
    if is_pure_tensor(inpt):
        if old_format is None:
            raise ValueError("For pure tensor inputs, `old_format` has to be passed.")
        return _convert(inpt, box_format(old_format), new, inplace)
    if not isinstance(inpt, BoundingBoxes):
        raise TypeError(
            f"Input can either be a plain tensor or a bounding box tv_tensor, but got {type(inpt)} instead."
        )
    if old_format is not None:
        raise ValueError("For bounding box tv_tensor inputs, `old_format` must not be passed.")
    return BoundingBoxes.wrap(_convert(plain(inpt), inpt.format, new, inplace), inpt, format=new)


def _convert(boxes: Tensor, old: BoundingBoxFormat, new: BoundingBoxFormat, inplace: bool) -> Tensor:
    if old == new:
        return boxes
    result = box_kernels.convert(boxes, old, new)
    return boxes.copy_(result) if inplace and result.shape == boxes.shape else result


def clamp_bounding_boxes(
    inpt: Tensor, format: Any = None, canvas_size: Any = None, clamping_mode: Any = "auto"
) -> Tensor:
    """Clamp boxes to their canvas."""
    if clamping_mode is not None and clamping_mode not in ("soft", "hard", "auto"):
        raise ValueError(f"clamping_mode must be soft, hard, auto or None, got {clamping_mode}")
    if is_pure_tensor(inpt):
        if format is None or canvas_size is None or clamping_mode == "auto":
            raise ValueError("For pure tensor inputs, `format`, `canvas_size` and `clamping_mode` have to be passed.")
        return box_kernels.clamp(inpt, box_format(format), canvas_size, clamping_mode)
    if not isinstance(inpt, BoundingBoxes):
        raise TypeError(
            f"Input can either be a plain tensor or a bounding box tv_tensor, but got {type(inpt)} instead."
        )
    if format is not None or canvas_size is not None:
        raise ValueError("For bounding box tv_tensor inputs, `format` and `canvas_size` must not be passed.")
    mode = inpt.clamping_mode if clamping_mode == "auto" else clamping_mode
    return BoundingBoxes.wrap(box_kernels.clamp(plain(inpt), inpt.format, inpt.canvas_size, mode), inpt)


def sanitize_bounding_boxes(
    bounding_boxes: Tensor, format: Any = None, canvas_size: Any = None, min_size: float = 1.0, min_area: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return the boxes that are inside and large enough, and the mask that selects them."""
    if is_pure_tensor(bounding_boxes):
        if format is None or canvas_size is None:
            raise ValueError(
                f"format and canvas_size cannot be None if bounding_boxes is a pure tensor. Got format={format} and canvas_size={canvas_size}. "
                "Set those to appropriate values or pass bounding_boxes as a tv_tensors.BoundingBoxes object."
            )
        valid = box_kernels.valid(bounding_boxes, box_format(format), canvas_size, min_size, min_area)
        return bounding_boxes[valid], valid
    if not isinstance(bounding_boxes, BoundingBoxes):
        raise ValueError("bounding_boxes must be a tv_tensors.BoundingBoxes instance or a pure tensor.")
    if format is not None or canvas_size is not None:
        raise ValueError(
            "format and canvas_size must be None when bounding_boxes is a tv_tensors.BoundingBoxes instance. "
            f"Got format={format} and canvas_size={canvas_size}."
        )
    boxes = plain(bounding_boxes)
    valid = box_kernels.valid(boxes, bounding_boxes.format, bounding_boxes.canvas_size, min_size, min_area)
    return BoundingBoxes.wrap(boxes[valid], bounding_boxes), valid


# -- points -----------------------------------------------------------------------------------------------------------


def _points(inpt: Tensor, canvas_size: Any) -> tuple[Tensor, Any]:
    if is_pure_tensor(inpt):
        if canvas_size is None:
            raise ValueError("For pure tensor inputs, `canvas_size` has to be passed.")
        return inpt, canvas_size
    if not isinstance(inpt, KeyPoints):
        raise TypeError(f"Input can either be a plain tensor or a keypoints tv_tensor, but got {type(inpt)} instead.")
    if canvas_size is not None:
        raise ValueError("For keypoints tv_tensor inputs, `canvas_size` must not be passed.")
    return plain(inpt), inpt.canvas_size


def clamp_keypoints(inpt: Tensor, canvas_size: Any = None) -> Tensor:
    """Move points to the nearest pixel of their canvas."""
    points, (height, width) = _points(inpt, canvas_size)
    clamped = flambeau.stack([points[..., 0].clamp(0, width - 1), points[..., 1].clamp(0, height - 1)], -1)
    return KeyPoints.wrap(clamped, inpt) if isinstance(inpt, KeyPoints) else clamped


def sanitize_keypoints(key_points: Tensor, canvas_size: Any = None) -> tuple[Tensor, Tensor]:
    """Return the points, or groups of points, that are inside, and the mask that selects them."""
    points, (height, width) = _points(key_points, canvas_size)
    x, y = points[..., 0], points[..., 1]
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    valid = inside.flatten(1).all(-1) if inside.ndim > 1 else inside
    kept = points[valid]
    return (KeyPoints.wrap(kept, key_points) if isinstance(key_points, KeyPoints) else kept), valid
