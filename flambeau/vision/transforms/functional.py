"""The classic functional transforms of PIL images and tensors, with all parameters explicit.

Each function looks at its input once: a tensor goes to a tensor kernel, a PIL image to Pillow, anything else is a TypeError.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import flambeau
from flambeau import Tensor

from ...utils import pillow
from .arguments import (
    affine_arguments,
    blur_arguments,
    check_gamma,
    check_hue,
    check_not_negative,
    check_warp_fill,
    crop_size,
    sampling_mode,
)
from .interpolation import InterpolationMode, interpolation_mode
from .kernels import color, conversion, filters, geometry, matrices, pil, warp

__all__ = [
    "InterpolationMode", "adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue", "adjust_saturation",
    "adjust_sharpness", "affine", "autocontrast", "center_crop", "convert_image_dtype", "crop", "elastic_transform", "equalize",
    "erase", "five_crop", "gaussian_blur", "get_dimensions", "get_image_num_channels", "get_image_size", "hflip", "invert",
    "normalize", "pad", "perspective", "pil_to_tensor", "posterize", "resize", "resized_crop", "rgb_to_grayscale", "rotate",
    "solarize", "ten_crop", "to_grayscale", "to_pil_image", "to_tensor", "vflip",
]  # fmt: skip


# -- looking at the input ---------------------------------------------------------------------------------------------


def _is_tensor(image: Any) -> bool:
    """Return whether this is an image tensor; raises TypeError unless it is one or a PIL image."""
    if isinstance(image, Tensor):
        if image.ndim < 2:
            raise TypeError("Tensor is not a torch image.")
        return True
    pil.check_pil(image)
    return False


def _call_kernel(image: Any, on_tensor: Callable, on_pil: Callable, *args: Any, channels: tuple[int, ...] = ()) -> Any:
    if _is_tensor(image):
        if channels:
            color.check_channels(image, channels)
        return on_tensor(image, *args)
    return on_pil(image, *args)


def get_dimensions(img: Any) -> list[int]:
    """Return [channels, height, width] of an image."""
    if _is_tensor(img):
        return [1 if img.ndim == 2 else img.shape[-3], *img.shape[-2:]]
    return [pil.num_channels(img), img.height, img.width]


def get_image_size(img: Any) -> list[int]:
    """Return [width, height] of an image."""
    return get_dimensions(img)[:0:-1]


def get_image_num_channels(img: Any) -> int:
    return get_dimensions(img)[0]


# -- conversion -------------------------------------------------------------------------------------------------------


def to_tensor(pic: Any) -> Tensor:
    """Convert a PIL image or (H, W, C) array to a (C, H, W) tensor; bytes become floats from 0 to 1.

    >>> import numpy
    >>> to_tensor(numpy.full((1, 2, 1), 255, dtype=numpy.uint8))
    tensor([[[1., 1.]]])
    """
    return conversion.to_tensor(pic)


def pil_to_tensor(pic: Any) -> Tensor:
    """Convert a PIL image to a (C, H, W) tensor without scaling."""
    return conversion.pil_to_tensor(pic)


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """Convert a (C, H, W) tensor or (H, W, C) array to a PIL image."""
    return conversion.to_pil_image(pic, mode)


def convert_image_dtype(image: Tensor, dtype: Any = flambeau.float32) -> Tensor:
    """Convert an image to another dtype, its values scaled to the range of that dtype."""
    if not isinstance(image, Tensor):
        raise TypeError("Input img should be Tensor Image")
    return conversion.convert_dtype(image, dtype)


def normalize(tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Tensor:
    """Normalize a tensor channel by channel: (x - mean) / std."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(tensor)}")
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    if tensor.ndim < 3:
        raise ValueError(
            f"Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = {tensor.size()}"
        )
    return conversion.normalize(tensor, mean, std, inplace)


# -- size and place ---------------------------------------------------------------------------------------------------


def resize(
    img: Any,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Any:
    """Resize an image to (height, width), or with one number its shorter side to it."""
    mode = interpolation_mode(interpolation, names=False)
    is_tensor = _is_tensor(img)
    if isinstance(size, (list, tuple)):
        if len(size) not in (1, 2):
            raise ValueError(
                f"Size must be an int or a 1 or 2 element tuple/list, not a {len(size)} element tuple/list"
            )
        if max_size is not None and len(size) != 1:
            raise ValueError(
                "max_size should only be passed if size specifies the length of the smaller edge, i.e. size should be an int or a sequence of length 1 in torchscript mode."
            )
    _, height, width = get_dimensions(img)
    target = geometry.resized_size((height, width), [size] if isinstance(size, int) else list(size), max_size)
    if [height, width] == target:
        return img
    if not is_tensor:
        return pil.resize(img, target, mode)
    if mode == InterpolationMode.LANCZOS:
        raise ValueError("Lanczos mode is unsupported with Tensor input here; v2.functional.resize has it")
    return geometry.resize(img, target, mode, bool(antialias))


def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Any:
    """Pad an image by one number, (x, y) or (left, top, right, bottom); `padding_mode` is constant, edge, reflect or symmetric."""
    is_tensor = _is_tensor(img)
    if not isinstance(padding, (numbers.Number, tuple, list)):
        raise TypeError("Got inappropriate padding arg")
    if not isinstance(fill, numbers.Number if is_tensor else (numbers.Number, tuple, list)):
        raise TypeError("Got inappropriate fill arg")
    if not isinstance(padding_mode, str):
        raise TypeError("Got inappropriate padding_mode arg")
    if isinstance(padding, (tuple, list)) and len(padding) not in (1, 2, 4):
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(padding)} element tuple")
    if padding_mode not in geometry.PADDING_MODES:
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    return (geometry.pad if is_tensor else pil.pad)(img, padding, fill, padding_mode)


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """Crop the window of this size at (top, left); zero beyond the image."""
    return _call_kernel(img, geometry.crop, pil.crop, top, left, height, width)


def center_crop(img: Any, output_size: Any) -> Any:
    """Crop the centre of an image, padded with black where the image is smaller."""
    size = crop_size(output_size)
    _, height, width = get_dimensions(img)
    padding, top, left = geometry.center_window((height, width), size)
    if padding is not None:
        img = pad(img, padding, fill=0)
        if size == tuple(get_dimensions(img)[1:]):
            return img
    return crop(img, top, left, *size)


def resized_crop(
    img: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Any:
    """Crop a window and resize it."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def hflip(img: Any) -> Any:
    """Flip an image horizontally."""
    return _call_kernel(img, geometry.hflip, pil.hflip)


def vflip(img: Any) -> Any:
    """Flip an image vertically."""
    return _call_kernel(img, geometry.vflip, pil.vflip)


def five_crop(img: Any, size: Any) -> tuple:
    """Crop the four corners and the centre."""
    height, width = crop_size(size, exact=True)
    _, own_h, own_w = get_dimensions(img)
    if width > own_w or height > own_h:
        raise ValueError(f"Requested crop size {(height, width)} is bigger than input size {(own_h, own_w)}")
    corners = [(0, 0), (0, own_w - width), (own_h - height, 0), (own_h - height, own_w - width)]
    return (*(crop(img, top, left, height, width) for top, left in corners), center_crop(img, [height, width]))


def ten_crop(img: Any, size: Any, vertical_flip: bool = False) -> tuple:
    """Crop the four corners and the centre of the image and of its mirror image."""
    size = crop_size(size, exact=True)
    mirrored = vflip(img) if vertical_flip else hflip(img)
    return five_crop(img, size) + five_crop(mirrored, size)


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Tensor:
    """Set the window at (i, j) of size (h, w) to `v`."""
    if not isinstance(img, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(img)}")
    return geometry.erase(img, i, j, h, w, v, inplace)


# -- warps ------------------------------------------------------------------------------------------------------------


def rotate(
    img: Any,
    angle: float,
    interpolation: Any = InterpolationMode.NEAREST,
    expand: bool = False,
    center: Any = None,
    fill: Any = None,
) -> Any:
    """Rotate an image counter-clockwise by `angle` degrees."""
    mode = interpolation_mode(interpolation, names=False)
    if not isinstance(angle, (int, float)):
        raise TypeError("Argument angle should be int or float")
    if center is not None and not isinstance(center, (list, tuple)):
        raise TypeError("Argument center should be a sequence")
    if not _is_tensor(img):
        return pil.rotate(img, angle, mode, expand, center, fill)
    check_warp_fill(fill, get_dimensions(img)[0])
    _, height, width = get_dimensions(img)
    middle = matrices.from_middle(center, height, width)
    # The matrix counts angles with the clock, because y points down.
    matrix = matrices.affine_matrix(middle, -angle, [0.0, 0.0], 1.0, [0.0, 0.0])
    size = matrices.rotated_size(matrix, width, height) if expand else None
    return warp.affine(img, matrix, sampling_mode(mode), fill, size)


def affine(
    img: Any,
    angle: float,
    translate: Any,
    scale: float,
    shear: Any,
    interpolation: Any = InterpolationMode.NEAREST,
    fill: Any = None,
    center: Any = None,
) -> Any:
    """Rotate, translate, scale and shear an image about its centre."""
    mode = interpolation_mode(interpolation, names=False)
    angle, translate, shear = affine_arguments(angle, translate, scale, shear)
    if center is not None and not isinstance(center, (list, tuple)):
        raise TypeError("Argument center should be a sequence")
    is_tensor = _is_tensor(img)
    _, height, width = get_dimensions(img)
    if not is_tensor:
        middle = [width * 0.5, height * 0.5] if center is None else center
        return pil.affine(img, matrices.affine_matrix(middle, angle, translate, scale, shear), mode, fill)
    check_warp_fill(fill, get_dimensions(img)[0])
    middle = matrices.from_middle(center, height, width)
    matrix = matrices.affine_matrix(middle, angle, [1.0 * t for t in translate], scale, shear)
    return warp.affine(img, matrix, sampling_mode(mode), fill)


def perspective(
    img: Any,
    startpoints: Sequence[Sequence[int]],
    endpoints: Sequence[Sequence[int]],
    interpolation: Any = InterpolationMode.BILINEAR,
    fill: Any = None,
) -> Any:
    """Project the image so that the four `startpoints` move to the `endpoints`."""
    coefficients = matrices.perspective_coefficients(startpoints, endpoints)
    mode = interpolation_mode(interpolation, names=False)
    if not _is_tensor(img):
        return pil.perspective(img, coefficients, mode, fill)
    check_warp_fill(fill, get_dimensions(img)[0])
    return warp.perspective(img, coefficients, sampling_mode(mode), fill)


def elastic_transform(
    img: Any, displacement: Tensor, interpolation: Any = InterpolationMode.BILINEAR, fill: Any = None
) -> Any:
    """Displace every pixel by its vector in `displacement`, of shape (1, H, W, 2)."""
    mode = interpolation_mode(interpolation, names=False)
    if not isinstance(displacement, Tensor):
        raise TypeError("Argument displacement should be a Tensor")
    if not isinstance(img, Tensor):
        pil.check_pil(img)
        return to_pil_image(elastic_transform(pil_to_tensor(img), displacement, mode, fill), mode=img.mode)
    check_warp_fill(fill, get_dimensions(img)[0])
    _, height, width = get_dimensions(img)
    if tuple(displacement.shape) != (1, height, width, 2):
        raise ValueError(
            f"Argument displacement shape should be {(1, height, width, 2)}, but given {displacement.shape}"
        )
    return warp.elastic(img, displacement, sampling_mode(mode, InterpolationMode.BICUBIC), fill)


# -- colour -----------------------------------------------------------------------------------------------------------


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """Change the brightness: factor 0 gives black, 1 the image itself, 2 doubles it."""
    check_not_negative("brightness_factor", brightness_factor)
    return _call_kernel(img, color.adjust_brightness, pil.adjust_brightness, brightness_factor, channels=(1, 3))


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """Change the contrast: factor 0 gives the mean grey, 1 the image itself."""
    check_not_negative("contrast_factor", contrast_factor)
    return _call_kernel(img, color.adjust_contrast, pil.adjust_contrast, contrast_factor, channels=(1, 3))


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """Change the saturation: factor 0 gives grey, 1 the image itself."""
    check_not_negative("saturation_factor", saturation_factor)
    return _call_kernel(img, color.adjust_saturation, pil.adjust_saturation, saturation_factor, channels=(1, 3))


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Rotate the hue by `hue_factor` turns, from -0.5 to 0.5."""
    check_hue(hue_factor)
    return _call_kernel(img, color.adjust_hue, pil.adjust_hue, hue_factor, channels=(1, 3))


def adjust_gamma(img: Any, gamma: float, gain: float = 1) -> Any:
    """Correct gamma: white * gain * (value / white) ** gamma."""
    check_gamma(gamma)
    return _call_kernel(img, color.adjust_gamma, pil.adjust_gamma, gamma, gain, channels=(1, 3))


def adjust_sharpness(img: Any, sharpness_factor: float) -> Any:
    """Change the sharpness: factor 0 blurs, 1 gives the image itself, 2 sharpens."""
    check_not_negative("sharpness_factor", sharpness_factor)
    return _call_kernel(img, filters.adjust_sharpness, pil.adjust_sharpness, sharpness_factor, channels=(1, 3))


def to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """Convert a PIL image to greyscale with one or three bands."""
    if not pillow.is_pil(img):
        raise TypeError("Input should be PIL Image")
    return pil.to_grayscale(img, num_output_channels)


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """Convert an image to greyscale with one or three channels."""
    if not _is_tensor(img):
        return pil.to_grayscale(img, num_output_channels)
    if img.ndim < 3:
        raise TypeError(f"Input image tensor should have at least 3 dimensions, but found {img.ndim}")
    color.check_channels(img, (1, 3))
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    return img.clone() if img.shape[-3] == 1 else color.rgb_to_grayscale(img, num_output_channels)


def invert(img: Any) -> Any:
    """Invert the colours of an image."""
    return _call_kernel(
        img, color.invert, pil.invert, channels=() if not isinstance(img, Tensor) or img.ndim < 3 else (1, 3)
    )


def posterize(img: Any, bits: int) -> Any:
    """Keep the highest `bits` of every value."""
    if not 0 <= bits <= 8:
        raise ValueError(f"The number if bits should be between 0 and 8. Got {bits}")
    if isinstance(img, Tensor) and img.dtype != flambeau.uint8:
        raise TypeError(f"Only torch.uint8 image tensors are supported, but found {img.dtype}")
    return _call_kernel(img, color.posterize, pil.posterize, bits, channels=(1, 3))


def solarize(img: Any, threshold: float) -> Any:
    """Invert values that are at least the threshold."""
    if isinstance(img, Tensor) and threshold > conversion.max_value(img.dtype):
        raise TypeError("Threshold should be less than bound of img.")
    return _call_kernel(img, color.solarize, pil.solarize, threshold, channels=(1, 3))


def autocontrast(img: Any) -> Any:
    """Stretch every channel to the whole range."""
    return _call_kernel(img, color.autocontrast, pil.autocontrast, channels=(1, 3))


def equalize(img: Any) -> Any:
    """Equalize the histogram of every channel."""
    if isinstance(img, Tensor) and img.dtype != flambeau.uint8:
        raise TypeError(f"Only torch.uint8 image tensors are supported, but found {img.dtype}")
    return _call_kernel(img, color.equalize, pil.equalize, channels=(1, 3))


def gaussian_blur(img: Any, kernel_size: Any, sigma: Any = None) -> Any:
    """Blur an image with a Gaussian kernel."""
    sizes, sigmas = blur_arguments(kernel_size, sigma)
    if isinstance(img, Tensor):
        if img.ndim < 2:
            raise TypeError("Tensor is not a torch image.")
        return filters.gaussian_blur(img, sizes, sigmas)
    pil.check_pil(img)
    return to_pil_image(filters.gaussian_blur(pil_to_tensor(img), sizes, sigmas), mode=img.mode)
