"""Bounding boxes and their formats."""

from __future__ import annotations

from enum import Enum
from typing import Any

from ._base import TVTensor


class BoundingBoxFormat(Enum):
    """The meaning of the numbers of a box: corners, corner and size, centre and size; with an angle R in degrees; or all corners."""

    XYXY = "XYXY"
    XYWH = "XYWH"
    CXCYWH = "CXCYWH"
    XYWHR = "XYWHR"
    CXCYWHR = "CXCYWHR"
    XYXYXYXY = "XYXYXYXY"


_ROTATED = (BoundingBoxFormat.XYWHR, BoundingBoxFormat.CXCYWHR, BoundingBoxFormat.XYXYXYXY)


def box_format(value: BoundingBoxFormat | str) -> BoundingBoxFormat:
    """Return a format given as itself or by its name in any case."""
    return value if isinstance(value, BoundingBoxFormat) else BoundingBoxFormat[value.upper()]


def is_rotated_bounding_format(format: BoundingBoxFormat | str) -> bool:
    """Return whether boxes in this format have a rotation angle."""
    if isinstance(format, BoundingBoxFormat):
        return format in _ROTATED
    if isinstance(format, str):
        return format.upper() in {kind.value for kind in _ROTATED}
    raise ValueError(f"format should be str or BoundingBoxFormat, got {type(format)}")


def check_clamping_mode(mode: Any, *more: str) -> None:
    """Check the clamping mode of boxes beyond the canvas: None (unchanged), "soft" or "hard"."""
    if mode is not None and mode not in ("hard", "soft", *more):
        raise ValueError(f"clamping_mode must be None, hard or soft, got {mode}.")


class BoundingBoxes(TVTensor):
    """Boxes (N, K) in `format`, on a canvas of height and width `canvas_size`.

    >>> flambeau.vision.tv_tensors.BoundingBoxes([[1, 2, 3, 4]], format="XYXY", canvas_size=(10, 11))
    BoundingBoxes([[1, 2, 3, 4]], format=BoundingBoxFormat.XYXY, canvas_size=(10, 11), clamping_mode=soft)
    """

    format: BoundingBoxFormat
    canvas_size: tuple[int, int]
    clamping_mode: str | None

    def __new__(
        cls,
        data: Any,
        *,
        format: BoundingBoxFormat | str,
        canvas_size: tuple[int, int],
        clamping_mode: str | None = "soft",
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool | None = None,
    ) -> BoundingBoxes:
        tensor = cls._to_tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)
        if tensor.ndim == 1:
            tensor = tensor.unsqueeze(0)
        elif tensor.ndim != 2:
            raise ValueError(f"Expected a 1D or 2D tensor, got {tensor.ndim}D")
        check_clamping_mode(clamping_mode)
        return cls._of(tensor, format=box_format(format), canvas_size=canvas_size, clamping_mode=clamping_mode)

    @classmethod
    def _detail_names(cls) -> tuple[str, ...]:
        return ("format", "canvas_size", "clamping_mode")

    @classmethod
    def wrap(cls, tensor: Any, like: Any, **details: Any) -> BoundingBoxes:
        """Return `tensor` as boxes, with the details of `like` unless `details` overrides them."""
        if "format" in details:
            details["format"] = box_format(details["format"])
        return super().wrap(tensor, like, **details)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return self._make_repr(format=self.format, canvas_size=self.canvas_size, clamping_mode=self.clamping_mode)
