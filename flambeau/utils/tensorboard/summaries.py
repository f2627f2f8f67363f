"""TensorBoard summaries: scalars, histograms, images, text."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_DOUBLE, DT_FLOAT, DT_STRING

from ...core.tensor import Tensor


def as_numpy(value: Any) -> np.ndarray:
    """Convert tensors, numbers and lists to arrays."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return (value.float() if str(value.dtype).endswith("bfloat16") else value).numpy()
    if isinstance(value, str):
        raise NotImplementedError("expected a tensor, an array or a number, but got a name: Caffe2's blobs are no more")
    return np.asarray(value)


def scalar(tag: str, value: Any, new_style: bool = False, double_precision: bool = False) -> Summary:
    number = as_numpy(value).squeeze()
    if number.ndim != 0:
        raise AssertionError(
            f"Tensor should contain one element (0 dimensions). Was given size: {number.size} and {number.ndim} dimensions."
        )
    if not new_style:
        return Summary(value=[Summary.Value(tag=tag, simple_value=float(number))])
    plugin = SummaryMetadata.PluginData(plugin_name="scalars")
    tensor = (
        TensorProto(double_val=[float(number)], dtype=DT_DOUBLE)
        if double_precision
        else TensorProto(float_val=[float(number)], dtype=DT_FLOAT)
    )
    return Summary(value=[Summary.Value(tag=tag, tensor=tensor, metadata=SummaryMetadata(plugin_data=plugin))])


def _geometric_bins() -> list[float]:
    """Return TensorFlow's bins: each a tenth wider than the one before, from 1e-12 to 1e20, on both sides of zero."""
    edges = []
    edge = 1e-12
    while edge < 1e20:
        edges.append(edge)
        edge *= 1.1
    return [-e for e in reversed(edges)] + [0] + edges


GEOMETRIC_BINS = _geometric_bins()


def histogram(tag: str, values: Any, bins: Any = "tensorflow", max_bins: int | None = None) -> Summary:
    flat = as_numpy(values).astype(float).reshape(-1)
    if flat.size == 0:
        raise ValueError("The input has no element.")
    counts, limits = np.histogram(flat, bins=GEOMETRIC_BINS if isinstance(bins, str) and bins == "tensorflow" else bins)
    if max_bins is not None and len(counts) > max_bins:
        counts, limits = _merge_bins(counts, limits, max_bins)
    filled = np.flatnonzero(counts)
    if filled.size == 0:
        raise ValueError("The histogram is empty, please file a bug report.")
    first, last = int(filled[0]), int(filled[-1])
    # One empty bucket to the left, whose limit is where the first one begins.
    kept = counts[first - 1 : last + 1] if first else np.concatenate([[0], counts[: last + 1]])
    proto = HistogramProto(
        min=flat.min(), max=flat.max(), num=len(flat), sum=flat.sum(), sum_squares=flat.dot(flat),
        bucket_limit=limits[first : last + 2].tolist(), bucket=kept.tolist(),
    )  # fmt: skip
    return Summary(value=[Summary.Value(tag=tag, histo=proto)])


def _merge_bins(counts: np.ndarray, limits: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Merge neighbouring bins until there are about `most`."""
    step = len(counts) // most
    missing = -len(counts) % step
    joined = np.pad(counts, (0, missing)).reshape(-1, step).sum(axis=1)
    edges = limits[:-1][::step]
    return joined, np.append(edges, limits[-1])


def picture(tag: str, image: Any, dataformats: str) -> Summary:
    pixels = height_width_channels(as_numpy(image), dataformats)
    scale = 1 if pixels.dtype == np.uint8 else 255
    levels = (pixels.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)
    height, width, channels = levels.shape
    buffer = io.BytesIO()
    Image.fromarray(levels if channels > 1 else levels[..., 0]).save(buffer, format="PNG")
    encoded = Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=buffer.getvalue())
    return Summary(value=[Summary.Value(tag=tag, image=encoded)])


def height_width_channels(image: np.ndarray, dataformats: str) -> np.ndarray:
    letters = dataformats.upper()
    if len(letters) != image.ndim or len(set(letters)) != len(letters):
        raise AssertionError(
            f"size of input tensor and input format are different. tensor shape: {image.shape}, input_format: {dataformats}"
        )
    if "N" in letters:
        image, letters = grid(image.transpose([letters.index(c) for c in "NCHW"])), "HWC"
    if "C" in letters:
        image = image.transpose([letters.index(c) for c in "HWC"])
    else:
        image = image.transpose([letters.index(c) for c in "HW"])[..., None]
    return np.concatenate([image] * 3, axis=2) if image.shape[2] == 1 else image


def grid(images: np.ndarray, columns: int = 8) -> np.ndarray:
    """Arrange a batch (N, C, H, W) side by side, at most eight in a row."""
    count, channels, height, width = images.shape
    columns = min(count, columns)
    rows = -(-count // columns)
    images = np.concatenate([images] * 3, axis=1) if channels == 1 else images
    canvas = np.zeros((images.shape[1], height * rows, width * columns), dtype=images.dtype)
    for i, image in enumerate(images):
        y, x = divmod(i, columns)
        canvas[:, y * height : (y + 1) * height, x * width : (x + 1) * width] = image
    return canvas.transpose(1, 2, 0)


def text(tag: str, words: str) -> Summary:
    plugin = SummaryMetadata.PluginData(plugin_name="text", content=b"")
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype=DT_STRING, string_val=[words.encode("utf8")], tensor_shape=shape)
    value = Summary.Value(tag=f"{tag}/text_summary", metadata=SummaryMetadata(plugin_data=plugin), tensor=tensor)
    return Summary(value=[value])
