"""Conversions between arrays, PIL images and tensors, and between the ranges of dtypes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

import flambeau
from flambeau import Tensor
from flambeau.core.tensor import empty, from_array
from flambeau.kernels.library.pixels import planes_of_pixels

from ....utils.pillow import is_pil, pil_array, pillow
from . import formulas


def max_value(dtype: Any) -> int:
    """Return the value of white: 1 for floats, the largest value of an integer dtype."""
    if dtype.is_floating_point or dtype == flambeau.bool:
        return 1
    return flambeau.iinfo(dtype).max


def convert_dtype(image: Tensor, dtype: Any) -> Tensor:
    """Convert an image to another dtype, with its values scaled to that range. Raises if the range cannot hold them."""
    if image.dtype == dtype:
        return image
    if image.is_floating_point():
        return image.to(dtype) if dtype.is_floating_point else _floats_to_integers(image, dtype)
    if dtype.is_floating_point:
        if image.dtype == flambeau.uint8 and dtype == flambeau.float32:
            return formulas.unit_from_bytes(image)
        return image.to(dtype).div_(max_value(image.dtype))
    return _integers_to_integers(image, dtype)


def _floats_to_integers(image: Tensor, dtype: Any) -> Tensor:
    if (image.dtype == flambeau.float32 and dtype in (flambeau.int32, flambeau.int64)) or (
        image.dtype == flambeau.float64 and dtype == flambeau.int64
    ):
        raise RuntimeError(f"The conversion from {image.dtype} to {dtype} cannot be performed safely.")
    # Just below one more than the maximum: then every integer has an equally wide interval, and 1.0 still fits.
    return image.mul(max_value(dtype) + 1.0 - 1e-3).to(dtype)


def _integers_to_integers(image: Tensor, dtype: Any) -> Tensor:
    bits_in, bits_out = max_value(image.dtype).bit_length(), max_value(dtype).bit_length()
    if bits_in > bits_out:
        return image.bitwise_right_shift(bits_in - bits_out).to(dtype)
    return image.to(dtype).bitwise_left_shift_(bits_out - bits_in)


def normalize(image: Tensor, mean: Any, std: Any, inplace: bool = False) -> Tensor:
    """Return (image - mean) / std per channel."""
    mean_, std_ = _channel_values(mean, image), _channel_values(std, image, divides=True)
    if inplace:
        return image.sub_(mean_).div_(std_)
    return formulas.normalized(image, mean_, std_)


def _channel_values(values: Any, image: Tensor, divides: bool = False) -> Tensor:
    if isinstance(values, (tuple, list)):
        return _cached_values(tuple(values), image.dtype, image.device, divides)
    found = flambeau.as_tensor(values, dtype=image.dtype, device=image.device)
    return _check_values(found, divides)


@lru_cache(64)
def _cached_values(values: tuple[float, ...], dtype: Any, device: Any, divides: bool) -> Tensor:
    """Return cached values: a data loader asks for the same ones for every image."""
    return _check_values(flambeau.tensor(values, dtype=dtype, device=device), divides)


def _check_values(found: Tensor, divides: bool) -> Tensor:
    if divides and (found == 0).any():
        raise ValueError(f"std evaluated to zero after conversion to {found.dtype}, leading to division by zero.")
    return found.view(-1, 1, 1) if found.ndim == 1 else found


# -- to tensors -------------------------------------------------------------------------------------------------------


def array_to_tensor(array: np.ndarray) -> Tensor:
    """Convert (H, W) or (H, W, C) to (C, H, W), sharing memory if possible."""
    if array.ndim == 2:
        array = array[:, :, None]
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return flambeau.from_numpy(array).permute(2, 0, 1)


def to_tensor(pic: Any) -> Tensor:
    """Convert a PIL image or array to a (C, H, W) tensor; bytes become floats from 0 to 1."""
    if isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        return _bytes_to_unit(pic) if pic.dtype == np.uint8 else array_to_tensor(pic).contiguous()
    if not is_pil(pic):
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    if pic.mode == "1":
        return array_to_tensor(np.asarray(pic, dtype=np.uint8)).float()
    if pic.mode in ("I", "I;16", "F"):
        kind = {"I": np.int32, "I;16": np.int16, "F": np.float32}[pic.mode]
        return array_to_tensor(np.array(pic, kind, copy=True)).contiguous()
    return _bytes_to_unit(np.asarray(pic))


def _bytes_to_unit(array: np.ndarray) -> Tensor:
    """Convert (H, W) or (H, W, C) bytes to (C, H, W) floats from 0 to 1, in one pass."""
    height, width, channels = array.shape if array.ndim == 3 else (*array.shape, 1)
    dtype = flambeau.get_default_dtype()
    out = empty((channels, height, width), dtype)
    if array.size == 0:
        return out
    pixels = from_array(array if array.flags.c_contiguous else np.ascontiguousarray(array))
    if channels <= 4 and dtype in (flambeau.float32, flambeau.float64):
        planes_of_pixels(out, pixels, height, width, width * channels, 255.0, channels=channels)
        return out
    return pixels.view(height, width, channels).permute(2, 0, 1).to(dtype).div_(255).contiguous()


def as_planes(image: Tensor) -> Tensor:
    """Convert an image of bytes (C, H, W) with interleaved channels, as files and PIL have them, to one plane per channel; others are
    returned unchanged. All later steps run along rows."""
    channels, height, width = image.shape[-3:] if image.ndim == 3 else (0, 0, 0)
    if image.dtype != flambeau.uint8 or not 1 < channels <= 4 or not image.is_cpu or image.numel() == 0:
        return image
    across, down, along = image.stride()
    if (across, along) != (1, channels) or down < width * channels:
        return image
    out = empty((channels, height, width), flambeau.uint8)
    planes_of_pixels(out, image, height, width, down, None, channels=channels)
    return out


def pil_to_tensor(pic: Any) -> Tensor:
    """Return a PIL image as a (C, H, W) tensor of its values, unscaled."""
    if not is_pil(pic):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    return flambeau.from_numpy(pil_array(pic)).permute(2, 0, 1)


# -- to PIL images ----------------------------------------------------------------------------------------------------

_DTYPE_MODES = {np.dtype(np.uint8): "L", np.dtype(np.int16): "I;16", np.dtype(np.int32): "I", np.dtype(np.float32): "F"}
_CHANNEL_MODES = {2: ("LA",), 4: ("RGBA", "CMYK", "RGBX"), 3: ("RGB", "YCbCr", "HSV")}


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """Convert a (C, H, W) tensor or (H, W, C) array to a PIL image; floats from 0 to 1 become bytes."""
    if isinstance(pic, Tensor):
        array = _pixels(pic, mode)
    elif isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        array = pic[:, :, None] if pic.ndim == 2 else pic
        if array.shape[-1] > 4:
            raise ValueError(f"pic should not have > 4 channels. Got {array.shape[-1]} channels.")
        if np.issubdtype(array.dtype, np.floating) and mode != "F":
            array = (array * 255).astype(np.uint8)
    else:
        raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    return _pil_image(array, mode)


def _pixels(pic: Tensor, mode: str | None) -> np.ndarray:
    if pic.ndim not in (2, 3):
        raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
    if pic.ndim == 2:
        pic = pic.unsqueeze(0)
    if pic.shape[-3] > 4:
        raise ValueError(f"pic should not have > 4 channels. Got {pic.shape[-3]} channels.")
    if pic.is_floating_point() and mode != "F":
        pic = pic.mul(255).to(flambeau.uint8)
    return pic.permute(1, 2, 0).contiguous().cpu().detach().numpy()


def _pil_image(array: np.ndarray, mode: str | None) -> Any:
    channels = array.shape[2]
    if channels == 1:
        array = array[:, :, 0]
        expected = _DTYPE_MODES.get(array.dtype)
        if mode is not None and mode != expected:
            raise ValueError(f"Incorrect mode ({mode}) supplied for input type {array.dtype}. Should be {expected}")
        mode = expected
    elif channels in _CHANNEL_MODES:
        permitted = _CHANNEL_MODES[channels]
        if mode is not None and mode not in permitted:
            raise ValueError(f"Only modes {list(permitted)} are supported for {channels}D inputs")
        if array.dtype == np.uint8:
            mode = mode or permitted[0]
        else:
            mode = None
    if mode is None:
        raise TypeError(f"Input type {array.dtype} is not supported")
    return pillow().fromarray(array) if channels == 1 and mode == "L" else _from_array(array, mode)


def _from_array(array: np.ndarray, mode: str) -> Any:
    image_module = pillow()
    height, width = array.shape[:2]
    if mode in ("I", "I;16", "F"):
        return image_module.fromarray(array if mode != "I;16" else array.astype(np.uint16))
    return image_module.frombuffer(mode, (width, height), np.ascontiguousarray(array).tobytes(), "raw", mode, 0, 1)
