"""Formats of boxes: corners, corner and size, centre and size, and rotated ones (angles in degrees, counter-clockwise on an image whose y
points down)."""

from __future__ import annotations

import flambeau
from flambeau import Tensor

_UPRIGHT = ("xyxy", "xywh", "cxcywh")
_ROTATED = ("xywhr", "cxcywhr", "xyxyxyxy")


def to_corners(boxes: Tensor, fmt: str) -> Tensor:
    """Convert unrotated boxes to xyxy."""
    if fmt == "xyxy":
        return boxes
    a, b, w, h = boxes.unbind(-1)
    if fmt == "cxcywh":
        a, b = a - 0.5 * w, b - 0.5 * h
    return flambeau.stack((a, b, a + w, b + h), dim=-1)


def _from_corners(boxes: Tensor, fmt: str) -> Tensor:
    x1, y1, x2, y2 = boxes.unbind(-1)
    w, h = x2 - x1, y2 - y1
    if fmt == "xywh":
        return flambeau.stack((x1, y1, w, h), dim=-1)
    return flambeau.stack(((x1 + x2) / 2, (y1 + y2) / 2, w, h), dim=-1)


def _sides(w: Tensor, h: Tensor, degrees: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the vectors along the width and along the height."""
    angle = degrees * (flambeau.pi / 180.0)
    cos, sin = flambeau.cos(angle), flambeau.sin(angle)
    return w * cos, -w * sin, h * sin, h * cos


def _to_rotated_corner(boxes: Tensor, fmt: str) -> Tensor:
    """Convert a rotated box to xywhr: first corner, size, angle."""
    if fmt == "xywhr":
        return boxes
    if fmt == "cxcywhr":
        cx, cy, w, h, r = boxes.unbind(-1)
        ax, ay, bx, by = _sides(w, h, r)
        return flambeau.stack((cx - (ax + bx) / 2, cy - (ay + by) / 2, w, h, r), dim=-1)
    x1, y1, x2, y2, x3, y3, _, _ = boxes.unbind(-1)
    r = flambeau.atan2(y1 - y2, x2 - x1) * (180.0 / flambeau.pi)
    w = ((x2 - x1) ** 2 + (y1 - y2) ** 2).sqrt()
    h = ((x3 - x2) ** 2 + (y3 - y2) ** 2).sqrt()
    return flambeau.stack((x1, y1, w, h, r), dim=-1)


def _from_rotated_corner(boxes: Tensor, fmt: str) -> Tensor:
    x, y, w, h, r = boxes.unbind(-1)
    ax, ay, bx, by = _sides(w, h, r)
    if fmt == "cxcywhr":
        return flambeau.stack((x + (ax + bx) / 2, y + (ay + by) / 2, w, h, r), dim=-1)
    corners = (x, y, x + ax, y + ay, x + ax + bx, y + ay + by, x + bx, y + by)
    return flambeau.stack(corners, dim=-1)


def box_convert(boxes: Tensor, in_fmt: str, out_fmt: str) -> Tensor:
    """Convert boxes between formats: among xyxy, xywh, cxcywh, or among the rotated xywhr, cxcywhr, xyxyxyxy.

    >>> import flambeau
    >>> box_convert(flambeau.tensor([[1.0, 2.0, 4.0, 6.0]]), "xyxy", "cxcywh")
    tensor([[2.5000, 4.0000, 3.0000, 4.0000]])
    """
    known = _UPRIGHT + _ROTATED
    refused = f"Unsupported Bounding Box Conversions for given in_fmt {in_fmt} and out_fmt {out_fmt}"
    if in_fmt not in known or out_fmt not in known:
        raise ValueError(refused)
    if in_fmt == out_fmt:
        return boxes.clone()
    if (in_fmt in _UPRIGHT) != (out_fmt in _UPRIGHT):
        raise NotImplementedError(refused)
    if in_fmt in _UPRIGHT:
        corners = to_corners(boxes, in_fmt)
        return corners if out_fmt == "xyxy" else _from_corners(corners, out_fmt)
    corner = _to_rotated_corner(boxes, in_fmt)
    return corner if out_fmt == "xywhr" else _from_rotated_corner(corner, out_fmt)
