"""Reading and writing of image files as tensors, with torchvision's functions. Pillow does the decoding."""

from __future__ import annotations

import io
import os
import warnings
from enum import Enum
from typing import Any

import numpy as np

import flambeau
from flambeau import Tensor

from ..utils.pillow import decode, pillow

__all__ = [
    "ImageReadMode", "decode_avif", "decode_gif", "decode_heic", "decode_image", "decode_jpeg", "decode_png",
    "decode_webp", "encode_jpeg", "encode_png", "read_file", "read_image", "write_file", "write_jpeg", "write_png",
]  # fmt: skip


class ImageReadMode(Enum):
    """The form that an image is converted to when it is read. Functions accept the names as strings too."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4
    RGBA = RGB_ALPHA


_PIL_MODES = {"GRAY": "L", "GRAY_ALPHA": "LA", "RGB": "RGB", "RGB_ALPHA": "RGBA"}


# -- files ----------------------------------------------------------------------------------------------------------------


def read_file(path: Any) -> Tensor:
    """Return the bytes of a file as a tensor."""
    try:
        data = np.fromfile(os.fspath(path), np.uint8)
    except OSError as problem:
        raise RuntimeError(f"[Errno {problem.errno}] {problem.strerror}: '{path}'") from problem
    if not data.size:
        raise RuntimeError(f"Expected a non empty file, got '{path}'")
    return flambeau.from_numpy(data)


def write_file(filename: Any, data: Tensor) -> None:
    """Write bytes (a tensor of one dimension) to a file."""
    _check_bytes(data, "Input")
    if data.dim() != 1:
        raise RuntimeError(f"Input data should be a 1-dimensional tensor, got {data.dim()} dimensions")
    try:
        data.numpy().tofile(os.fspath(filename))
    except OSError as problem:
        raise RuntimeError(f"Error opening output file: {problem}") from problem


def _check_bytes(data: Any, what: str) -> None:
    if not isinstance(data, Tensor):
        raise TypeError(f"{what} should be a tensor, got {type(data).__name__}")
    if data.device.type != "cpu":
        raise RuntimeError(f"{what} tensor should be on CPU, got {data.device}")
    if data.dtype is not flambeau.uint8:
        raise RuntimeError(f"{what} tensor dtype should be uint8, got {data.dtype}")


# -- decoding -------------------------------------------------------------------------------------------------------------


def _file_bytes(input: Any) -> bytes:
    """Return the bytes of a file that was read into a tensor."""
    if not isinstance(input, Tensor):
        raise TypeError(f"Expected a tensor with the bytes of an image file, got {type(input).__name__}")
    if input.dtype is not flambeau.uint8:
        raise RuntimeError(f"Expected a torch.uint8 tensor, got {input.dtype}")
    if input.dim() != 1 or not input.numel():
        raise RuntimeError(f"Expected a non empty 1-dimensional tensor, got size {tuple(input.shape)}")
    if input.device.type != "cpu":
        raise ValueError("Input tensor must be a CPU tensor")
    return input.numpy().tobytes()


def _mode(mode: Any) -> ImageReadMode:
    return ImageReadMode[mode.upper()] if isinstance(mode, str) else ImageReadMode(mode)


def _to_tensor(image: Any) -> Tensor:
    """Convert a PIL image to a tensor (channels, height, width)."""
    array = np.array(image)
    return flambeau.from_numpy(array.reshape(*array.shape[:2], -1)).permute(2, 0, 1)


def _apply_orientation(image: Any, wanted: bool) -> Any:
    return pillow("ImageOps").exif_transpose(image) if wanted else image


def decode_jpeg(
    input: Any, mode: Any = ImageReadMode.UNCHANGED, device: Any = "cpu", apply_exif_orientation: bool = False
) -> Any:
    """Decode the bytes of a JPEG file to an image, or a list of them to a list of images."""
    if isinstance(input, list):
        if not input:
            raise ValueError("Input list must contain at least one element")
        if not all(isinstance(item, Tensor) for item in input):
            raise ValueError("All elements of the input list must be tensors.")
        return [decode_jpeg(item, mode, device, apply_exif_orientation) for item in input]
    kind = _mode(mode)
    if kind not in (ImageReadMode.UNCHANGED, ImageReadMode.GRAY, ImageReadMode.RGB):
        raise RuntimeError(f"The provided mode is not supported for JPEG files: {kind.name}")
    wanted = _PIL_MODES.get(kind.name)
    # The decoder returns the grey part directly, no sum of colours is needed.
    image = decode(_file_bytes(input), ("JPEG",), draft=wanted)
    image = _apply_orientation(image, apply_exif_orientation)
    return _to_tensor(image if wanted is None else image.convert(wanted)).to(device)


def decode_png(input: Tensor, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:
    """Decode the bytes of a PNG file. The values are uint8, or uint16 for a 16-bit grey image."""
    data = _file_bytes(input)
    kind = _mode(mode)
    image = decode(data, ("PNG",))
    if data[24] == 16 and data[25] != 0:  # depth and kind of colour, at the beginning of every PNG file
        raise RuntimeError("PNG files with 16 bits in several channels cannot be read: Pillow keeps only 8 of them")
    image = _apply_orientation(image, apply_exif_orientation)
    if image.mode == "1":
        image = image.convert("L")
    if kind is ImageReadMode.UNCHANGED:
        return _to_tensor(image)
    if image.mode.startswith("I"):
        return _expand_deep_grey(_to_tensor(image).to(flambeau.uint16), kind)
    if kind in (ImageReadMode.GRAY, ImageReadMode.GRAY_ALPHA):
        return _grey(image, kind is ImageReadMode.GRAY_ALPHA)
    return _to_tensor(image.convert(_PIL_MODES[kind.name]))


def _grey(image: Any, alpha: bool) -> Tensor:
    """Convert to grey as libpng does: with 15-bit weights, rounded."""
    if image.mode in ("L", "LA"):
        return _to_tensor(image.convert("LA" if alpha else "L"))
    red, green, blue, opacity = np.moveaxis(np.asarray(image.convert("RGBA")).astype(np.int64), -1, 0)
    grey = (9794 * red + 19235 * green + 3739 * blue + (1 << 14)) >> 15
    return flambeau.from_numpy(np.stack([grey, opacity] if alpha else [grey]).astype(np.uint8))


def _expand_deep_grey(grey: Tensor, kind: ImageReadMode) -> Tensor:
    """Convert a 16-bit grey image to the channels of `kind`; opaque is the largest value."""
    channels = {"GRAY": 1, "GRAY_ALPHA": 2, "RGB": 3, "RGB_ALPHA": 4}[kind.name]
    values = grey.numpy()
    color = np.repeat(values, channels if channels % 2 else channels - 1, axis=0)
    opaque = [] if channels % 2 else [np.full_like(values, 65535)]
    return flambeau.from_numpy(np.concatenate([color, *opaque]))


def decode_gif(input: Tensor) -> Tensor:
    """Decode the bytes of a GIF file to an image, or to (images, 3, height, width) if it has several."""
    image = decode(_file_bytes(input), ("GIF",))
    frames = [_to_tensor(frame.convert("RGB")) for frame in pillow("ImageSequence").Iterator(image)]
    return frames[0] if len(frames) == 1 else flambeau.stack(frames)


def _with_alpha_or_not(input: Tensor, mode: Any, file_format: str) -> Tensor:
    kind = _mode(mode)
    image = decode(_file_bytes(input), (file_format,))
    if kind in (ImageReadMode.GRAY, ImageReadMode.GRAY_ALPHA):
        warnings.warn(f"{file_format} images are read UNCHANGED, as RGB or RGBA; got {kind.name}, UNCHANGED is used")
        kind = ImageReadMode.UNCHANGED
    wanted = ("RGBA" if image.has_transparency_data else "RGB") if kind.value == 0 else _PIL_MODES[kind.name]
    return _to_tensor(image.convert(wanted))


def decode_webp(input: Tensor, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    """Decode the bytes of a WebP file to an image of 3 or 4 channels."""
    return _with_alpha_or_not(input, mode, "WEBP")


def decode_avif(input: Tensor, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    """Decode the bytes of an AVIF file to an image; needs a Pillow build with AVIF."""
    pillow()
    if "avif" not in pillow("features").get_supported_modules():
        raise RuntimeError("this build of Pillow cannot read AVIF images: pip install -U pillow")
    return _with_alpha_or_not(input, mode, "AVIF")


def decode_heic(input: Tensor, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    """Decode the bytes of a HEIC file; the package pillow-heif must be installed and registered."""
    if "HEIF" not in pillow().registered_extensions().values():
        raise RuntimeError(
            "HEIC images need pillow-heif: pip install pillow-heif, then pillow_heif.register_heif_opener()"
        )
    return _with_alpha_or_not(input, mode, "HEIF")


def decode_image(input: Any, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:
    """Decode an image file (JPEG, PNG, GIF, WebP, AVIF), given by its path or by its bytes.

    >>> image = decode_image("photo.jpg", mode="RGB")  # (3, H, W), uint8
    """
    tensor = input if isinstance(input, Tensor) else read_file(input)
    start = _file_bytes(tensor[:16] if tensor.dim() == 1 else tensor)
    if start.startswith(b"\xff\xd8\xff"):
        return decode_jpeg(tensor, mode, apply_exif_orientation=apply_exif_orientation)
    if start.startswith(b"\x89PNG"):
        return decode_png(tensor, mode, apply_exif_orientation)
    if start.startswith((b"GIF87a", b"GIF89a")):
        return decode_gif(tensor)
    if start.startswith(b"RIFF") and start[8:15] == b"WEBPVP8":
        return decode_webp(tensor, mode)
    if start[4:12] == b"ftypavif":
        return decode_avif(tensor, mode)
    if start[4:12] == b"ftypheic":
        return decode_heic(tensor, mode)
    raise RuntimeError("Unsupported image file. Only jpeg, png, gif, webp, avif and heic are supported.")


def read_image(path: Any, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:
    """Read and decode an image file, as `decode_image` does."""
    return decode_image(read_file(path), mode, apply_exif_orientation)


# -- encoding -------------------------------------------------------------------------------------------------------------


def _encode(input: Any, file_format: str, **options: Any) -> Tensor:
    _check_bytes(input, "Input")
    if input.dim() != 3:
        raise RuntimeError(f"Input data should be a 3-dimensional tensor, got {input.dim()} dimensions")
    if input.shape[0] not in (1, 3):
        raise RuntimeError(f"The number of channels should be 1 or 3, got: {input.shape[0]}")
    if not input.numel():
        raise RuntimeError(f"Input data should not be empty, got size {tuple(input.shape)}")
    pixels = input.permute(1, 2, 0).contiguous().numpy()
    target = io.BytesIO()
    pillow().fromarray(pixels[..., 0] if input.shape[0] == 1 else pixels).save(target, file_format, **options)
    return flambeau.from_numpy(np.frombuffer(target.getvalue(), np.uint8).copy())


def encode_png(input: Tensor, compression_level: int = 6) -> Tensor:
    """Encode an image (1 or 3 channels) as a PNG file; return its bytes."""
    if not 0 <= compression_level <= 9:
        raise RuntimeError(f"Compression level should be between 0 and 9, got {compression_level}")
    return _encode(input, "PNG", compress_level=compression_level)


def write_png(input: Tensor, filename: Any, compression_level: int = 6) -> None:
    """Write an image to a PNG file."""
    write_file(filename, encode_png(input, compression_level))


def encode_jpeg(input: Any, quality: int = 75) -> Any:
    """Encode an image (1 or 3 channels) as a JPEG file and return its bytes; a list of images as a list."""
    if not 1 <= quality <= 100:
        raise ValueError("Image quality should be a positive number between 1 and 100")
    if isinstance(input, list):
        if not input:
            raise ValueError("encode_jpeg requires at least one input tensor when a list is passed")
        return [_encode(image, "JPEG", quality=quality) for image in input]
    return _encode(input, "JPEG", quality=quality)


def write_jpeg(input: Tensor, filename: Any, quality: int = 75) -> None:
    """Write an image to a JPEG file."""
    write_file(filename, encode_jpeg(input, quality))
