"""Rotation, shear, projection and distortion of images, videos and masks. Kernels for boxes and points
are in `_shapes`."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor

from .....utils.pillow import is_pil
from ....tv_tensors import Mask
from ...arguments import affine_arguments, check_warp_fill, sampling_mode
from ...interpolation import InterpolationMode, interpolation_mode
from ...kernels import matrices, pil, warp
from ._dispatch import PIL, TENSORS, functional, kernel, mask_call, through_tensor

__all__ = [
    "affine", "affine_image", "affine_mask", "affine_video", "elastic", "elastic_image", "elastic_mask",
    "elastic_transform", "elastic_video", "perspective", "perspective_image", "perspective_mask", "perspective_video",
    "rotate", "rotate_image", "rotate_mask", "rotate_video",
]  # fmt: skip

_NEAREST = InterpolationMode.NEAREST


def _sampling(interpolation: Any, fill: Any, image: Tensor, *more: InterpolationMode) -> str:
    """Return grid_sample's name of the mode, after checking it and the fill."""
    mode = sampling_mode(interpolation_mode(interpolation), *more)
    check_warp_fill(fill, image.shape[-3])
    return mode


def center_point(center: Any) -> list[float] | None:
    """Check the centre of a rotation; return it as floats, or None."""
    if center is None:
        return None
    if not isinstance(center, (list, tuple)):
        raise TypeError("Argument center should be a sequence")
    if len(center) != 2:
        raise ValueError("Argument center should be a sequence of length 2")
    return [float(c) for c in center]


def affine_image(
    image: Any,
    angle: float,
    translate: list[float],
    scale: float,
    shear: list[float],
    interpolation: Any = _NEAREST,
    fill: Any = None,
    center: Any = None,
) -> Any:
    """Rotate, translate, scale and shear about the centre."""
    angle, translate, shear = affine_arguments(angle, translate, scale, shear)
    center = center_point(center)
    if is_pil(image):
        middle = [image.width * 0.5, image.height * 0.5] if center is None else center
        matrix = matrices.affine_matrix(middle, angle, translate, scale, shear)
        return pil.affine(image, matrix, interpolation, fill)
    middle = matrices.from_middle(center, *image.shape[-2:])
    matrix = matrices.affine_matrix(middle, angle, [float(t) for t in translate], scale, shear)
    return warp.affine(image, matrix, _sampling(interpolation, fill, image), fill)


affine = functional(affine_image, *TENSORS, PIL)


@kernel(affine, Mask)
def affine_mask(
    mask: Tensor,
    angle: float,
    translate: list[float],
    scale: float,
    shear: list[float],
    fill: Any = None,
    center: Any = None,
) -> Tensor:
    return mask_call(affine_image, mask, angle, translate, scale, shear, _NEAREST, fill, center)


def rotate_image(
    image: Any, angle: float, interpolation: Any = _NEAREST, expand: bool = False, center: Any = None, fill: Any = None
) -> Any:
    """Rotate counter-clockwise by `angle` degrees."""
    if is_pil(image):
        return pil.rotate(image, angle, interpolation_mode(interpolation), expand, center, fill)
    angle = angle % 360
    height, width = image.shape[-2:]
    middle = matrices.from_middle(center, height, width)
    matrix = matrices.affine_matrix(middle, -angle, [0.0, 0.0], 1.0, [0.0, 0.0])
    size = matrices.rotated_size(matrix, width, height) if expand else None
    return warp.affine(image, matrix, _sampling(interpolation, fill, image), fill, size)


rotate = functional(rotate_image, *TENSORS, PIL)


@kernel(rotate, Mask)
def rotate_mask(mask: Tensor, angle: float, expand: bool = False, center: Any = None, fill: Any = None) -> Tensor:
    return mask_call(rotate_image, mask, angle, _NEAREST, expand, center, fill)


def perspective_numbers(startpoints: Any, endpoints: Any, coefficients: Any) -> list[float]:
    """Return the coefficients of a projection, as given or computed from the points."""
    if coefficients is not None:
        if startpoints is not None and endpoints is not None:
            raise ValueError("The startpoints/endpoints and the coefficients shouldn't be defined concurrently.")
        if len(coefficients) != 8:
            raise ValueError("Argument coefficients should have 8 float values")
        return list(coefficients)
    if startpoints is None or endpoints is None:
        raise ValueError("Either the startpoints/endpoints or the coefficients must have non `None` values.")
    return matrices.perspective_coefficients(startpoints, endpoints)


def perspective_image(
    image: Any,
    startpoints: Any,
    endpoints: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    fill: Any = None,
    coefficients: Any = None,
) -> Any:
    """Project an image so that the four `startpoints` move to the `endpoints`; or by given coefficients."""
    projection = perspective_numbers(startpoints, endpoints, coefficients)
    if is_pil(image):
        return pil.perspective(image, projection, interpolation, fill)
    return warp.perspective(image, projection, _sampling(interpolation, fill, image), fill)


perspective = functional(perspective_image, *TENSORS, PIL)


@kernel(perspective, Mask)
def perspective_mask(
    mask: Tensor, startpoints: Any, endpoints: Any, fill: Any = None, coefficients: Any = None
) -> Tensor:
    return mask_call(perspective_image, mask, startpoints, endpoints, _NEAREST, fill, coefficients)


def elastic_image(
    image: Tensor, displacement: Tensor, interpolation: Any = InterpolationMode.BILINEAR, fill: Any = None
) -> Tensor:
    """Displace every pixel by its vector in `displacement`, of shape (1, H, W, 2)."""
    if not isinstance(displacement, Tensor):
        raise TypeError("Argument displacement should be a Tensor")
    expected = (1, *image.shape[-2:], 2)
    if tuple(displacement.shape) != expected:
        raise ValueError(f"Argument displacement shape should be {expected}, but given {displacement.shape}")
    return warp.elastic(image, displacement, _sampling(interpolation, fill, image, InterpolationMode.BICUBIC), fill)


elastic = functional(elastic_image)


@kernel(elastic, Mask)
def elastic_mask(mask: Tensor, displacement: Tensor, fill: Any = None) -> Tensor:
    return mask_call(elastic_image, mask, displacement, _NEAREST, fill)


kernel(elastic, PIL)(through_tensor(elastic_image))


affine_video, rotate_video = affine_image, rotate_image
perspective_video, elastic_video = perspective_image, elastic_image
elastic_transform = elastic
