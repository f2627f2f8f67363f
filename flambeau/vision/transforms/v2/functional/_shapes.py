"""Geometric transforms of boxes and points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import Tensor

from ....tv_tensors import BoundingBoxes, BoundingBoxFormat, KeyPoints, is_rotated_bounding_format
from ...arguments import affine_arguments, crop_size
from ...kernels import boxes as box_kernels
from ...kernels import matrices, warp
from . import _geometry as G
from . import _warps as W
from ._dispatch import kernel

__all__ = [
    "affine_bounding_boxes", "affine_keypoints", "center_crop_bounding_boxes", "center_crop_keypoints",
    "crop_bounding_boxes", "crop_keypoints", "elastic_bounding_boxes", "elastic_keypoints",
    "horizontal_flip_bounding_boxes", "horizontal_flip_keypoints", "pad_bounding_boxes", "pad_keypoints",
    "perspective_bounding_boxes", "perspective_keypoints", "resize_bounding_boxes", "resize_keypoints",
    "resized_crop_bounding_boxes", "resized_crop_keypoints", "rotate_bounding_boxes", "rotate_keypoints",
    "vertical_flip_bounding_boxes", "vertical_flip_keypoints",
]  # fmt: skip

Canvas = Sequence[int]


def _move_points(points: Tensor, move: box_kernels.Points) -> Tensor:
    return move(box_kernels.as_floats(points).reshape(-1, 2)).reshape(points.shape).to(points.dtype)


# -- flips ------------------------------------------------------------------------------------------------------------


@kernel(G.horizontal_flip, BoundingBoxes)
def horizontal_flip_bounding_boxes(bounding_boxes: Tensor, format: BoundingBoxFormat, canvas_size: Canvas) -> Tensor:
    return box_kernels.mirrored(bounding_boxes, format, canvas_size, 0)


@kernel(G.vertical_flip, BoundingBoxes)
def vertical_flip_bounding_boxes(bounding_boxes: Tensor, format: BoundingBoxFormat, canvas_size: Canvas) -> Tensor:
    return box_kernels.mirrored(bounding_boxes, format, canvas_size, 1)


def _flip_points(points: Tensor, size: int, axis: int) -> Tensor:
    flipped = points.clone()
    flipped[..., axis] = size - 1 - points[..., axis]
    return flipped


@kernel(G.horizontal_flip, KeyPoints)
def horizontal_flip_keypoints(keypoints: Tensor, canvas_size: Canvas) -> Tensor:
    return _flip_points(keypoints, canvas_size[1], 0)


@kernel(G.vertical_flip, KeyPoints)
def vertical_flip_keypoints(keypoints: Tensor, canvas_size: Canvas) -> Tensor:
    return _flip_points(keypoints, canvas_size[0], 1)


# -- size and place ---------------------------------------------------------------------------------------------------


@kernel(G.resize, BoundingBoxes)
def resize_bounding_boxes(
    bounding_boxes: Tensor,
    canvas_size: Canvas,
    size: Any,
    max_size: int | None = None,
    format: BoundingBoxFormat = BoundingBoxFormat.XYXY,
    clamping_mode: str | None = "soft",
) -> tuple[Tensor, list[int]]:
    target = G.resized_size(canvas_size, size, max_size)
    across, down = target[1] / canvas_size[1], target[0] / canvas_size[0]
    if list(canvas_size) == target:
        return bounding_boxes, target
    if is_rotated_bounding_format(format):
        moved = box_kernels.moved(bounding_boxes, format, box_kernels.scaled(across, down), target, clamping_mode)
        return moved, target
    factors = bounding_boxes.new_tensor([across, down, across, down], dtype=_float_dtype(bounding_boxes))
    return (bounding_boxes * factors).to(bounding_boxes.dtype), target


def _float_dtype(tensor: Tensor) -> Any:
    return tensor.dtype if tensor.is_floating_point() else tensor.float().dtype


@kernel(G.resize, KeyPoints)
def resize_keypoints(
    keypoints: Tensor, size: Any, canvas_size: Canvas, max_size: int | None = None
) -> tuple[Tensor, list[int]]:
    target = G.resized_size(canvas_size, size, max_size)
    scale = box_kernels.scaled(target[1] / canvas_size[1], target[0] / canvas_size[0])
    return _move_points(keypoints, scale), target


@kernel(G.crop, BoundingBoxes)
def crop_bounding_boxes(
    bounding_boxes: Tensor,
    format: BoundingBoxFormat,
    top: int,
    left: int,
    height: int,
    width: int,
    clamping_mode: str | None = "soft",
) -> tuple[Tensor, tuple[int, int]]:
    shift = box_kernels.shifted(-left, -top)
    if is_rotated_bounding_format(format):
        return box_kernels.moved(bounding_boxes, format, shift, (height, width), clamping_mode), (height, width)
    moved = _shift_boxes(bounding_boxes, format, -left, -top)
    return box_kernels.clamp(moved, format, (height, width), clamping_mode), (height, width)


def _shift_boxes(boxes: Tensor, format: BoundingBoxFormat, x: int, y: int) -> Tensor:
    steps = {
        BoundingBoxFormat.XYXY: [x, y, x, y],
        BoundingBoxFormat.XYXYXYXY: [x, y] * 4,
        BoundingBoxFormat.XYWH: [x, y, 0, 0],
        BoundingBoxFormat.CXCYWH: [x, y, 0, 0],
    }.get(format, [x, y, 0, 0, 0])
    return boxes + boxes.new_tensor(steps)


@kernel(G.crop, KeyPoints)
def crop_keypoints(keypoints: Tensor, top: int, left: int, height: int, width: int) -> tuple[Tensor, tuple[int, int]]:
    return keypoints - keypoints.new_tensor([left, top]), (height, width)


def _padded_canvas(canvas_size: Canvas, border: list[int]) -> tuple[int, int]:
    left, right, top, bottom = border
    return canvas_size[0] + top + bottom, canvas_size[1] + left + right


def _check_constant(padding_mode: str, what: str) -> None:
    if padding_mode != "constant":
        raise ValueError(f"Padding mode '{padding_mode}' is not supported with {what}")


@kernel(G.pad, BoundingBoxes)
def pad_bounding_boxes(
    bounding_boxes: Tensor,
    format: BoundingBoxFormat,
    canvas_size: Canvas,
    padding: Any,
    padding_mode: str = "constant",
    clamping_mode: str | None = "soft",
) -> tuple[Tensor, tuple[int, int]]:
    _check_constant(padding_mode, "bounding boxes")
    border = G.parse_padding(padding)
    canvas = _padded_canvas(canvas_size, border)
    moved = _shift_boxes(bounding_boxes, format, border[0], border[2])
    return box_kernels.clamp(moved, format, canvas, clamping_mode), canvas


@kernel(G.pad, KeyPoints)
def pad_keypoints(
    keypoints: Tensor, canvas_size: Canvas, padding: Any, padding_mode: str = "constant"
) -> tuple[Tensor, tuple[int, int]]:
    _check_constant(padding_mode, "keypoints")
    border = G.parse_padding(padding)
    return keypoints + keypoints.new_tensor([border[0], border[2]]), _padded_canvas(canvas_size, border)


@kernel(G.center_crop, BoundingBoxes)
def center_crop_bounding_boxes(
    bounding_boxes: Tensor,
    format: BoundingBoxFormat,
    canvas_size: Canvas,
    output_size: Any,
    clamping_mode: str | None = "soft",
) -> tuple[Tensor, tuple[int, int]]:
    height, width = crop_size(output_size)
    top, left = (int(round((own - new) / 2.0)) for own, new in zip(canvas_size, (height, width)))
    return crop_bounding_boxes(bounding_boxes, format, top, left, height, width, clamping_mode)


@kernel(G.center_crop, KeyPoints)
def center_crop_keypoints(inpt: Tensor, canvas_size: Canvas, output_size: Any) -> tuple[Tensor, tuple[int, int]]:
    height, width = crop_size(output_size)
    top, left = (int(round((own - new) / 2.0)) for own, new in zip(canvas_size, (height, width)))
    return crop_keypoints(inpt, top, left, height, width)


@kernel(G.resized_crop, BoundingBoxes)
def resized_crop_bounding_boxes(
    bounding_boxes: Tensor,
    format: BoundingBoxFormat,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    clamping_mode: str | None = "soft",
) -> tuple[Tensor, list[int]]:
    cut, canvas = crop_bounding_boxes(bounding_boxes, format, top, left, height, width, clamping_mode)
    return resize_bounding_boxes(cut, canvas, size, format=format, clamping_mode=clamping_mode)


@kernel(G.resized_crop, KeyPoints)
def resized_crop_keypoints(
    keypoints: Tensor, top: int, left: int, height: int, width: int, size: Any
) -> tuple[Tensor, list[int]]:
    cut, canvas = crop_keypoints(keypoints, top, left, height, width)
    return resize_keypoints(cut, size, canvas)


# -- warps ------------------------------------------------------------------------------------------------------------


def _affine_move(
    canvas_size: Canvas, angle: float, translate: Any, scale: float, shear: Any, center: Any
) -> box_kernels.Points:
    angle, translate, shear = affine_arguments(angle, translate, scale, shear)
    center = W.center_point(center)
    middle = [canvas_size[1] * 0.5, canvas_size[0] * 0.5] if center is None else center
    matrix = matrices.affine_matrix(middle, angle, [float(t) for t in translate], scale, shear, inverted=False)
    return box_kernels.affine_points(matrix)


@kernel(W.affine, BoundingBoxes)
def affine_bounding_boxes(
    bounding_boxes: Tensor,
    format: BoundingBoxFormat,
    canvas_size: Canvas,
    angle: float,
    translate: list[float],
    scale: float,
    shear: list[float],
    center: Any = None,
    clamping_mode: str | None = "soft",
) -> Tensor:
    move = _affine_move(canvas_size, angle, translate, scale, shear, center)
    return box_kernels.moved(bounding_boxes, format, move, canvas_size, clamping_mode)


@kernel(W.affine, KeyPoints)
def affine_keypoints(
    keypoints: Tensor,
    canvas_size: Canvas,
    angle: float,
    translate: list[float],
    scale: float,
    shear: list[float],
    center: Any = None,
) -> Tensor:
    return _move_points(keypoints, _affine_move(canvas_size, angle, translate, scale, shear, center))


def _rotation(
    canvas_size: Canvas, angle: float, expand: bool, center: Any
) -> tuple[box_kernels.Points, tuple[int, int]]:
    """Return the map of points of a rotation, and the new canvas size."""
    height, width = canvas_size
    middle = [width * 0.5, height * 0.5] if center is None else [float(c) for c in center]
    matrix = matrices.affine_matrix(middle, -angle, [0.0, 0.0], 1.0, [0.0, 0.0], inverted=False)
    if not expand:
        return box_kernels.affine_points(matrix), (height, width)
    pivot = matrices.from_middle(center, height, width)
    inverse = matrices.affine_matrix(pivot, -angle, [0.0, 0.0], 1.0, [0.0, 0.0])
    new_w, new_h = matrices.rotated_size(inverse, width, height)
    corners = [(0.0, 0.0), (0.0, float(height)), (float(width), float(height)), (float(width), 0.0)]
    # The image's own corners decide where the new canvas begins.
    matrix[2] -= min(matrix[0] * x + matrix[1] * y + matrix[2] for x, y in corners)
    matrix[5] -= min(matrix[3] * x + matrix[4] * y + matrix[5] for x, y in corners)
    return box_kernels.affine_points(matrix), (new_h, new_w)


@kernel(W.rotate, BoundingBoxes)
def rotate_bounding_boxes(
    bounding_boxes: Tensor,
    format: BoundingBoxFormat,
    canvas_size: Canvas,
    angle: float,
    expand: bool = False,
    center: Any = None,
    clamping_mode: str | None = "soft",
) -> tuple[Tensor, tuple[int, int]]:
    move, canvas = _rotation(canvas_size, angle, expand, center)
    return box_kernels.moved(bounding_boxes, format, move, canvas, clamping_mode), canvas


@kernel(W.rotate, KeyPoints)
def rotate_keypoints(
    keypoints: Tensor, canvas_size: Canvas, angle: float, expand: bool = False, center: Any = None
) -> tuple[Tensor, tuple[int, int]]:
    move, canvas = _rotation(canvas_size, angle, expand, center)
    return _move_points(keypoints, move), canvas


@kernel(W.perspective, BoundingBoxes)
def perspective_bounding_boxes(
    bounding_boxes: Tensor,
    format: BoundingBoxFormat,
    canvas_size: Canvas,
    startpoints: Any,
    endpoints: Any,
    coefficients: Any = None,
    clamping_mode: str | None = "soft",
) -> Tensor:
    move = box_kernels.projected_points(W.perspective_numbers(startpoints, endpoints, coefficients))
    return box_kernels.moved(bounding_boxes, format, move, canvas_size, clamping_mode, whole_before=True)


@kernel(W.perspective, KeyPoints)
def perspective_keypoints(
    keypoints: Tensor, canvas_size: Canvas, startpoints: Any, endpoints: Any, coefficients: Any = None
) -> Tensor:
    move = box_kernels.projected_points(W.perspective_numbers(startpoints, endpoints, coefficients))
    return _move_points(keypoints, move)


def _elastic_move(displacement: Tensor, canvas_size: Canvas, up: bool = False) -> box_kernels.Points:
    height, width = canvas_size
    if tuple(displacement.shape) != (1, height, width, 2):
        raise ValueError(
            f"Argument displacement shape should be {(1, height, width, 2)}, but given {displacement.shape}"
        )
    # To first order the inverse of reading at p + d is moving p to p - d.
    inverse = warp.identity_grid(height, width, displacement.dtype) - displacement
    return box_kernels.displaced_points(inverse, canvas_size, up)


@kernel(W.elastic, BoundingBoxes)
def elastic_bounding_boxes(
    bounding_boxes: Tensor,
    format: BoundingBoxFormat,
    canvas_size: Canvas,
    displacement: Tensor,
    clamping_mode: str | None = "soft",
) -> Tensor:
    move = _elastic_move(displacement, canvas_size, up=True)
    if not is_rotated_bounding_format(format):
        return box_kernels.moved(bounding_boxes, format, move, canvas_size, clamping_mode, True, True)
    # Only the centre of a rotated box moves.
    centered = box_kernels.convert(bounding_boxes, format, BoundingBoxFormat.CXCYWHR)
    centered[..., :2] = _move_points(centered[..., :2], move)
    moved = box_kernels.convert(centered, BoundingBoxFormat.CXCYWHR, format)
    return box_kernels.clamp(moved, format, canvas_size, clamping_mode)


@kernel(W.elastic, KeyPoints)
def elastic_keypoints(keypoints: Tensor, canvas_size: Canvas, displacement: Tensor) -> Tensor:
    return _move_points(keypoints, _elastic_move(displacement, canvas_size))
