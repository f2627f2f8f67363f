"""Bounding boxes on plain tensors (..., K): formats, clamping, and moving with an image.

All functions that move boxes work on their corners (N, 4, 2), in the order top left, top right, bottom right, bottom left. An upright box
becomes the upright box around its moved corners; a rotated one the rectangle along its longer side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import flambeau
from flambeau import Tensor

from ...tv_tensors import BoundingBoxFormat as Format
from ...tv_tensors import is_rotated_bounding_format

Points = Callable[[Tensor], Tensor]  # (M, 2) to (M, 2)


def _halve(value: Tensor) -> Tensor:
    return value / 2 if value.is_floating_point() else value.div(2, rounding_mode="floor")


# -- formats ----------------------------------------------------------------------------------------------------------


def convert(boxes: Tensor, old: Format, new: Format) -> Tensor:
    if old == new:
        return boxes.clone()
    if is_rotated_bounding_format(old) != is_rotated_bounding_format(new):
        raise ValueError("Cannot convert between rotated and unrotated bounding boxes.")
    if is_rotated_bounding_format(old):
        if not boxes.is_floating_point():
            raise ValueError(f"Rotated bounding boxes should be floating point tensors, got {boxes.dtype}.")
        return _from_corner_angle(_to_corner_angle(boxes, old), new)
    return _from_xyxy(_to_xyxy(boxes, old), new)


def _to_xyxy(boxes: Tensor, old: Format) -> Tensor:
    if old == Format.XYXY:
        return boxes
    place, size = boxes[..., :2], boxes[..., 2:]
    if old == Format.XYWH:
        return flambeau.cat([place, place + size], -1)
    half = size / 2
    return flambeau.cat([place - half, place + half], -1).to(boxes.dtype)


def _from_xyxy(boxes: Tensor, new: Format) -> Tensor:
    if new == Format.XYXY:
        return boxes
    first, second = boxes[..., :2], boxes[..., 2:]
    if new == Format.XYWH:
        return flambeau.cat([first, second - first], -1)
    return flambeau.cat([_halve(first + second), second - first], -1)


def _side_vectors(size: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vectors along the width and along the height; angles are counter-clockwise, y points down."""
    radians = angle.deg2rad()
    cos, sin = radians.cos(), radians.sin()
    width, height = size[..., 0:1], size[..., 1:2]
    return flambeau.cat([width * cos, -width * sin], -1), flambeau.cat([height * sin, height * cos], -1)


def _to_corner_angle(boxes: Tensor, old: Format) -> Tensor:
    """Convert rotated boxes to XYWHR."""
    if old == Format.XYWHR:
        return boxes
    if old == Format.CXCYWHR:
        along, down = _side_vectors(boxes[..., 2:4], boxes[..., 4:5])
        return flambeau.cat([boxes[..., :2] - (along + down) / 2, boxes[..., 2:]], -1)
    first, second, third = boxes[..., 0:2], boxes[..., 2:4], boxes[..., 4:6]
    along, down = second - first, third - second
    angle = flambeau.atan2(-along[..., 1:2], along[..., 0:1]).rad2deg()
    lengths = [side.pow(2).sum(-1, keepdim=True).sqrt() for side in (along, down)]
    return flambeau.cat([first, *lengths, angle], -1)


def _from_corner_angle(boxes: Tensor, new: Format) -> Tensor:
    if new == Format.XYWHR:
        return boxes.clone()
    along, down = _side_vectors(boxes[..., 2:4], boxes[..., 4:5])
    first = boxes[..., :2]
    if new == Format.CXCYWHR:
        return flambeau.cat([first + (along + down) / 2, boxes[..., 2:]], -1)
    return flambeau.cat([first, first + along, first + along + down, first + down], -1)


# -- corners ----------------------------------------------------------------------------------------------------------


def as_floats(boxes: Tensor) -> Tensor:
    return boxes if boxes.is_floating_point() else boxes.float()


def corners(boxes: Tensor, format: Format) -> Tensor:
    """Return the corners of boxes, floats of shape (N, 4, 2)."""
    flat = boxes.reshape(-1, boxes.shape[-1])
    if is_rotated_bounding_format(format):
        return convert(flat, format, Format.XYXYXYXY).view(-1, 4, 2)
    xyxy = convert(flat, format, Format.XYXY)
    return as_floats(xyxy)[:, [0, 1, 2, 1, 2, 3, 0, 3]].view(-1, 4, 2)


def around(points: Tensor, format: Format, like: Tensor) -> Tensor:
    """Return the boxes in `format` and the shape of `like` around corners (N, 4, 2)."""
    if is_rotated_bounding_format(format):
        boxes = convert(points.reshape(-1, 8), Format.XYXYXYXY, format)
    else:
        boxes = convert(flambeau.cat([points.amin(1), points.amax(1)], -1), Format.XYXY, format)
    return boxes.to(like.dtype).reshape(like.shape)


def as_rectangles(points: Tensor) -> Tensor:
    """Return the rectangles around parallelograms, aligned with their longer sides."""
    first, second, third, fourth = points.unbind(1)
    center = (first + third) / 2
    along, down = second - first, fourth - first
    length, depth = along.pow(2).sum(-1, keepdim=True), down.pow(2).sum(-1, keepdim=True)
    wide = length >= depth
    longest = flambeau.where(wide, length, depth).sqrt().clamp(min=1e-12)
    cross = (along[:, 0:1] * down[:, 1:2] - along[:, 1:2] * down[:, 0:1]) / longest
    shared = (along * down).sum(-1, keepdim=True).abs() / longest
    unit = flambeau.where(wide, along, down) / longest
    normal = flambeau.cat([-unit[:, 1:2], unit[:, 0:1]], -1)
    extent = unit * (longest + shared)
    along = flambeau.where(wide, extent, -normal * cross)
    down = flambeau.where(wide, normal * cross, extent)
    first = center - (along + down) / 2
    return flambeau.stack([first, first + along, first + along + down, first + down], 1)


def moved(
    boxes: Tensor,
    format: Format,
    move: Points,
    canvas: Sequence[int],
    clamping_mode: str | None,
    whole_before: bool = False,
    whole_after: bool = False,
) -> Tensor:
    """Return boxes whose corners are moved, on a new canvas. Corners of integer boxes are integers where `whole_before` or `whole_after` the
    move says so; the boxes are truncated at the end."""
    points = corners(boxes if whole_before else as_floats(boxes), format)
    points = move(points.view(-1, 2)).view(-1, 4, 2)
    if is_rotated_bounding_format(format):
        points = as_rectangles(points)
        if clamping_mode is not None:
            points = _clamp_rotated(points, canvas, clamping_mode)
        return around(points, format, boxes)
    xyxy = flambeau.cat([points.amin(1), points.amax(1)], -1)
    if clamping_mode is not None:
        xyxy = _clamp_xyxy(xyxy, canvas)
    if whole_after:
        xyxy = xyxy.to(boxes.dtype)
    return _from_xyxy(xyxy, format).to(boxes.dtype).reshape(boxes.shape)


# -- clamping ---------------------------------------------------------------------------------------------------------


def clamp(boxes: Tensor, format: Format, canvas: Sequence[int], clamping_mode: str | None) -> Tensor:
    """Clamp boxes to the canvas."""
    if clamping_mode is None:
        return boxes.clone()
    if is_rotated_bounding_format(format):
        if not boxes.is_floating_point():
            raise ValueError(f"Rotated bounding boxes should be floating point tensors, got {boxes.dtype}.")
        points = corners(boxes, format)
        inside = _clamp_rotated(points, canvas, clamping_mode)
        # A box that was inside keeps its own numbers, free of rounding.
        kept = (inside == points).flatten(1).all(-1).view(*boxes.shape[:-1], 1)
        return flambeau.where(kept, boxes, around(inside, format, boxes))
    xyxy = _clamp_xyxy(convert(as_floats(boxes), format, Format.XYXY), canvas)
    return _from_xyxy(xyxy, format).to(boxes.dtype)


def _clamp_xyxy(boxes: Tensor, canvas: Sequence[int]) -> Tensor:
    height, width = canvas
    return flambeau.stack(
        [
            boxes[..., 0].clamp(0, width),
            boxes[..., 1].clamp(0, height),
            boxes[..., 2].clamp(0, width),
            boxes[..., 3].clamp(0, height),
        ],
        -1,
    )


def _clamp_rotated(points: Tensor, canvas: Sequence[int], clamping_mode: str) -> Tensor:
    """Clamp softly: move a side that is completely beyond a border inwards until it touches the border."""
    height, width = canvas
    borders = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (-1.0, 0.0, float(width)), (0.0, -1.0, float(height))]
    if clamping_mode == "hard":
        depth = flambeau.stack([points[..., 0] * a + points[..., 1] * b + c for a, b, c in borders])
        if (depth < -1e-4).any():
            raise NotImplementedError(
                "clamping_mode='hard' is not supported for rotated boxes that leave the canvas; use 'soft' or None"
            )
        return points
    gone = flambeau.zeros(len(points), 1, 1, dtype=flambeau.bool)
    for a, b, c in borders:
        for side in range(4):
            # Corners of the side, and the corners behind them on the opposite side.
            i, j, behind_i, behind_j = side, (side + 1) % 4, (side + 3) % 4, (side + 2) % 4
            depth = points[..., 0] * a + points[..., 1] * b + c
            outside = (depth[:, i] < 0) & (depth[:, j] < 0)
            inner = depth[:, i] >= depth[:, j]
            near = flambeau.where(inner, depth[:, i], depth[:, j])
            far = flambeau.where(inner, depth[:, behind_i], depth[:, behind_j])
            gone = gone | (outside & (far <= 0)).view(-1, 1, 1)
            step = flambeau.where(outside & (far > 0), -near / (far - near), 0.0).view(-1, 1)
            corner_list = list(points.unbind(1))
            corner_list[i] = corner_list[i] + (points[:, behind_i] - points[:, i]) * step
            corner_list[j] = corner_list[j] + (points[:, behind_j] - points[:, j]) * step
            points = flambeau.stack(corner_list, 1)
    nowhere = flambeau.tensor([0.0, float(height)], dtype=points.dtype).expand_as(points)
    return flambeau.where(_all_outside(points, canvas) | gone, nowhere, points)


def _all_outside(points: Tensor, canvas: Sequence[int]) -> Tensor:
    height, width = canvas
    x, y = points[..., 0], points[..., 1]
    beyond = [(x < 0).all(1), (y < 0).all(1), (x > width).all(1), (y > height).all(1)]
    return flambeau.stack(beyond).any(0).view(-1, 1, 1)


# -- sanitizing -------------------------------------------------------------------------------------------------------


def valid(boxes: Tensor, format: Format, canvas: Sequence[int], min_size: float, min_area: float) -> Tensor:
    """Return a mask of the boxes (N, K) that are large enough and completely inside."""
    height, width = canvas
    size = convert(boxes, format, Format.XYWHR if is_rotated_bounding_format(format) else Format.XYWH)[:, 2:4]
    points = corners(boxes, format)
    big = (size[:, 0] >= min_size) & (size[:, 1] >= min_size) & (size[:, 0] * size[:, 1] >= min_area)
    x, y = points[..., 0], points[..., 1]
    inside = (x >= 0) & (x <= width) & (y >= 0) & (y <= height)
    return big & inside.all(-1)


# -- maps of points ---------------------------------------------------------------------------------------------------


def affine_points(matrix: Sequence[float]) -> Points:
    """Return the map of points x' = a x + b y + c, y' = d x + e y + f."""

    def move(points: Tensor) -> Tensor:
        across, down, shift = points.new_tensor(list(matrix)).view(2, 3).unbind(1)
        return points[:, :1] * across + points[:, 1:] * down + shift

    return move


def projected_points(coefficients: Sequence[float]) -> Points:
    """Return the map of points by the inverse of the projection that the image is sampled with."""
    a, b, c, d, e, f, g, h = coefficients
    # The adjugate: the inverse up to a factor, which a projection does not see.
    top = [e - f * h, c * h - b, b * f - c * e, f * g - d, a - c * g, c * d - a * f]
    bottom = [d * h - e * g, b * g - a * h, a * e - b * d]
    scale = bottom[2]
    if scale == 0:
        raise RuntimeError(
            f"Provided perspective_coeffs {list(coefficients)} can not be inverted to transform bounding boxes. Denominator is zero, denom={scale}"
        )

    def move(points: Tensor) -> Tensor:
        above = affine_points([value / scale for value in top])(points)
        below = affine_points([value / scale for value in bottom] * 2)(points)
        return above / below

    return move


def displaced_points(inverse_grid: Tensor, canvas: Sequence[int], up: bool) -> Points:
    """Return the map of points against a displacement field, read at the pixel below (or with `up` above) each point."""
    height, width = canvas

    def move(points: Tensor) -> Tensor:
        places = (points.ceil() if up else points).long()
        x, y = places[:, 0].clamp(0, width - 1), places[:, 1].clamp(0, height - 1)
        size = flambeau.tensor([width, height], dtype=points.dtype)
        return (inverse_grid[0, y, x].to(points.dtype) + 1) * (0.5 * size) - 0.5

    return move


def shifted(x: float, y: float) -> Points:
    def move(points: Tensor) -> Tensor:
        return points + flambeau.tensor([x, y], dtype=points.dtype, device=points.device)

    return move


def scaled(x: float, y: float) -> Points:
    def move(points: Tensor) -> Tensor:
        return points * flambeau.tensor([x, y], dtype=points.dtype, device=points.device)

    return move


def mirrored(boxes: Tensor, format: Format, canvas: Sequence[int], axis: int) -> Tensor:
    """Flip boxes along x (axis 0) or y (axis 1); the corners keep their order around the box."""
    size = canvas[1 - axis]
    out = boxes.clone()
    if format == Format.CXCYWH:
        out[..., axis] = size - boxes[..., axis]
    elif format == Format.XYWH:
        out[..., axis] = size - boxes[..., axis] - boxes[..., axis + 2]
    elif format == Format.XYXY:
        out[..., axis] = size - boxes[..., axis + 2]
        out[..., axis + 2] = size - boxes[..., axis]
    elif format == Format.XYXYXYXY:
        points = boxes.reshape(*boxes.shape[:-1], 4, 2)[..., [1, 0, 3, 2], :].clone()
        points[..., axis] = size - points[..., axis]
        out = points.reshape(boxes.shape)
    else:
        centered = convert(boxes, format, Format.CXCYWHR)
        centered[..., axis] = size - centered[..., axis]
        # A vertical flip exchanges the long sides, so the box is also turned by half a turn.
        centered[..., 4] = -centered[..., 4] if axis == 0 else 180 - centered[..., 4]
        out = convert(centered, Format.CXCYWHR, format)
    return out
