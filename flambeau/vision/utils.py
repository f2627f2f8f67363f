"""Drawing tensors as images: grids, boxes, masks, keypoints and flows, with torchvision's functions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import flambeau
from flambeau import Tensor, no_grad

from ..utils.pillow import pillow

__all__ = [
    "draw_bounding_boxes", "draw_keypoints", "draw_segmentation_masks", "flow_to_image", "make_grid", "save_image",
]  # fmt: skip

Color = tuple[int, ...]


@no_grad()
def make_grid(
    tensor: Any,
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> Tensor:
    """Arrange images (a batch, or a list of images of one size) in one image, `nrow` in a row.

    >>> make_grid(flambeau.rand(10, 3, 32, 32), nrow=5).shape
    torch.Size([3, 70, 172])
    """
    images = _as_batch(tensor)
    if normalize:
        if value_range is not None and not isinstance(value_range, tuple):
            raise TypeError("value_range has to be a tuple (min, max) if specified. min and max are numbers")
        images = images.clone()
        for part in images if scale_each else [images]:
            low, high = value_range if value_range is not None else (float(part.min()), float(part.max()))
            part.clamp_(min=low, max=high).sub_(low).div_(max(high - low, 1e-5))
    count, channels = images.shape[:2]
    if count == 1:
        return images.squeeze(0)
    columns = min(nrow, count)
    height, width = images.shape[2] + padding, images.shape[3] + padding
    rows = math.ceil(count / columns)
    grid = images.new_full((channels, height * rows + padding, width * columns + padding), pad_value)
    for number, image in enumerate(images):
        top, left = (number // columns) * height + padding, (number % columns) * width + padding
        grid[:, top : top + height - padding, left : left + width - padding] = image
    return grid


def _as_batch(tensor: Any) -> Tensor:
    """Return images as (images, channels, height, width), with at least three channels."""
    if isinstance(tensor, list):
        for item in tensor:
            if not isinstance(item, Tensor):
                raise TypeError(f"tensor or list of tensors expected, got a list containing {type(item)}")
        tensor = flambeau.stack(tensor)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"tensor or list of tensors expected, got {type(tensor)}")
    if tensor.dim() == 2:
        tensor = tensor[None]
    if tensor.dim() == 3:
        tensor = tensor[None]
    if tensor.dim() != 4:
        raise ValueError(f"images of 2, 3 or 4 dimensions expected, got size {tuple(tensor.shape)}")
    return flambeau.cat([tensor] * 3, 1) if tensor.shape[1] == 1 else tensor


@no_grad()
def save_image(tensor: Any, fp: Any, format: str | None = None, **options: Any) -> None:
    """Write an image, or a grid of images (see `make_grid` for the options), with values from 0 to 1, to a file."""
    grid = make_grid(tensor, **options)
    pixels = grid.mul(255).add_(0.5).clamp_(0, 255).permute(1, 2, 0).to("cpu", flambeau.uint8)
    pillow().fromarray(pixels.contiguous().numpy()).save(fp, format=format)


# -- drawing --------------------------------------------------------------------------------------------------------------


def _check_image(image: Any, channels: tuple[int, ...], what: str, not_tensor: str) -> None:
    if not isinstance(image, Tensor):
        raise TypeError(not_tensor.format(type(image)))
    if not (image.dtype is flambeau.uint8 or image.is_floating_point()):
        raise ValueError(f"The image dtype must be uint8 or float, got {image.dtype}")
    if image.dim() != 3:
        raise ValueError("Pass individual images, not batches")
    if image.shape[0] not in channels:
        raise ValueError(what)


def _to_pil(image: Tensor) -> Any:
    """Convert to a PIL image; floats range from 0 to 1."""
    if image.is_floating_point():
        image = image.mul(256 - 1e-3).to(flambeau.uint8)
    return pillow().fromarray(image.permute(1, 2, 0).cpu().contiguous().numpy())


def _from_pil(canvas: Any, like: Tensor) -> Tensor:
    out = flambeau.from_numpy(np.array(canvas)).permute(2, 0, 1)
    return out.to(like.dtype).mul_(1.0 / 255) if like.is_floating_point() else out


def _palette(count: int) -> list[Color]:
    """Return a palette of distinct colours, the same for every image."""
    steps = ((1 << 25) - 1, (1 << 15) - 1, (1 << 21) - 1)
    return [(number * steps[0] % 255, number * steps[1] % 255, number * steps[2] % 255) for number in range(count)]


def _colors(colors: Any, count: int) -> list[Color]:
    if colors is None:
        return _palette(count)
    if isinstance(colors, list):
        if len(colors) < count:
            raise ValueError(
                f"Number of colors must be equal or larger than the number of objects, but got {len(colors)} < {count}."
            )
    elif not isinstance(colors, (tuple, str)):
        raise ValueError(f"colors must be a tuple or a string, or a list thereof, but got {colors}.")
    elif isinstance(colors, tuple) and len(colors) != 3:
        raise ValueError(f"If passed as tuple, colors should be an RGB triplet, but got {colors}.")
    else:
        colors = [colors] * count
    return [_color_by_name(color) if isinstance(color, str) else color for color in colors]


def _color_by_name(color: str) -> Color:
    pillow()  # complains if it is missing
    return pillow("ImageColor").getrgb(color)


def _font(font: str | None, size: int | None) -> Any:
    if font is not None:
        return pillow("ImageFont").truetype(font=font, size=size or 10)
    if size is not None:
        warnings.warn("Argument 'font_size' will be ignored since 'font' is not set.")
    return pillow("ImageFont").load_default()


@no_grad()
def draw_bounding_boxes(
    image: Tensor,
    boxes: Tensor,
    labels: list[str] | None = None,
    colors: Any = None,
    fill: bool | None = False,
    width: int = 1,
    font: str | None = None,
    font_size: int | None = None,
    label_colors: Any = None,
    label_background_colors: Any = None,
    fill_labels: bool = False,
) -> Tensor:
    """Draw boxes on an image: (left, top, right, bottom) each, or four corners, the first edge dashed."""
    _check_image(image, (1, 3), "Only grayscale and RGB images are supported", "Tensor expected, got {}")
    if boxes.shape[-1] == 4 and ((boxes[:, 0] > boxes[:, 2]).any() or (boxes[:, 1] > boxes[:, 3]).any()):
        raise ValueError(
            "Boxes need to be in (xmin, ymin, xmax, ymax) format. Use torchvision.ops.box_convert to convert them"
        )
    count = boxes.shape[0]
    if count == 0:
        warnings.warn("boxes doesn't contain any box. No box was drawn")
        return image
    if labels is not None and len(labels) != count:
        raise ValueError(
            f"Number of boxes ({count}) and labels ({len(labels)}) mismatch. Please specify labels for each box."
        )
    canvas = _to_pil(flambeau.cat([image] * 3) if image.shape[0] == 1 else image)
    draw = pillow("ImageDraw").Draw(canvas, "RGBA" if fill else None)
    outlines = _colors(colors, count)
    inks = _colors(label_colors or "black", count) if label_colors or fill_labels else outlines
    papers = _colors(label_background_colors, count) if fill_labels and label_background_colors else outlines
    letters = _font(font, font_size)
    for number, box in enumerate(boxes.to(flambeau.int64).tolist()):
        inside = (*outlines[number], 100) if fill else None
        if len(box) == 4:
            draw.rectangle(box, fill=inside, outline=outlines[number], width=width)
        else:
            _draw_corners(draw, box, inside, outlines[number], width)
        if labels is not None and labels[number] is not None:
            place = (box[0] + width + 1, box[1] + width + 1)
            if fill_labels:
                left, top, right, bottom = draw.textbbox(place, labels[number], font=letters)
                draw.rectangle((left - 1, top - 1, right + 1, bottom + 1), fill=papers[number])
            draw.text(place, labels[number], fill=inks[number], font=letters)
    return _from_pil(canvas, image)


def _draw_corners(draw: Any, corners: Sequence[float], inside: Any, outline: Any, width: int) -> None:
    points = list(zip(corners[::2], corners[1::2]))
    _draw_dashes(draw, points[0], points[1], outline, width)
    for start, end in zip(points[1:], [*points[2:], points[0]]):
        draw.line((start, end), width=width, fill=outline)
    draw.polygon(list(corners), fill=inside, outline=None, width=0)


def _draw_dashes(draw: Any, start: tuple, end: tuple, color: Any, width: int, length: float = 5) -> None:
    """Draw dashes with gaps of equal length; the last dash ends with the line."""
    rest = math.dist(start, end)
    angle = math.atan2(end[1] - start[1], end[0] - start[0])
    x, y = start
    visible = True
    while rest > 0:
        step = min(rest, length)
        to_x, to_y = x + math.cos(angle) * step, y + math.sin(angle) * step
        if visible:
            draw.line([(x, y), (to_x, to_y)], color, width)
        x, y, rest, visible = to_x, to_y, rest - step, not visible


@no_grad()
def draw_segmentation_masks(image: Tensor, masks: Tensor, alpha: float = 0.8, colors: Any = None) -> Tensor:
    """Draw coloured masks over an image with opacity `alpha` (0 to 1); overlapping masks are darker."""
    wrong = "Pass an RGB image. Other Image formats are not supported"
    _check_image(image, (3,), wrong, "The image must be a tensor, got {}")
    if masks.ndim == 2:
        masks = masks[None]
    if masks.ndim != 3:
        raise ValueError("masks must be of shape (H, W) or (batch_size, H, W)")
    if masks.dtype is not flambeau.bool:
        raise ValueError(f"The masks must be of dtype bool. Got {masks.dtype}")
    if masks.shape[-2:] != image.shape[-2:]:
        raise ValueError("The image and the masks must have the same height and width")
    if not len(masks):
        warnings.warn("masks doesn't contain any mask. No mask was drawn")
        return image
    painted = image.detach().clone()
    for mask, color in zip(masks, _colors(colors, len(masks))):
        values = [v / 255 for v in color] if image.is_floating_point() else list(color)
        painted[:, mask] = flambeau.tensor(values, dtype=image.dtype, device=image.device)[:, None]
    painted[:, masks.sum(dim=0) > 1] = 0
    return (image * (1 - alpha) + painted * alpha).to(image.dtype)


@no_grad()
def draw_keypoints(
    image: Tensor,
    keypoints: Tensor,
    connectivity: list[tuple[int, int]] | None = None,
    colors: Any = None,
    radius: int = 2,
    width: int = 3,
    visibility: Tensor | None = None,
) -> Tensor:
    """Draw points (instances, points, 2) on an image, and lines between the pairs in `connectivity`.

    Points that `visibility` (instances, points) marks as invisible are not drawn, nor lines to them."""
    wrong = "Pass an RGB image. Other Image formats are not supported"
    _check_image(image, (3,), wrong, "The image must be a tensor, got {}")
    if keypoints.ndim != 3:
        raise ValueError("keypoints must be of shape (num_instances, K, 2)")
    if visibility is None:
        visibility = flambeau.ones(keypoints.shape[:-1], dtype=flambeau.bool)
    if visibility.ndim == 3:
        visibility = visibility.squeeze(-1)
    if visibility.ndim != 2:
        raise ValueError(f"visibility must be of shape (num_instances, K). Got ndim={visibility.ndim}")
    if visibility.shape != keypoints.shape[:-1]:
        raise ValueError(
            "keypoints and visibility must have the same dimensionality for num_instances and K. Got"
            f" {visibility.shape=} and {keypoints.shape=}"
        )
    canvas = _to_pil(image)
    draw = pillow("ImageDraw").Draw(canvas)
    seen = visibility.cpu().bool().tolist()
    for points, shown in zip(keypoints.to(flambeau.int64).tolist(), seen):
        for (x, y), visible in zip(points, shown):
            if visible:
                draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=colors, outline=None, width=0)
        for first, second in connectivity or ():
            if shown[first] and shown[second]:
                draw.line((tuple(points[first]), tuple(points[second])), width=width)
    return _from_pil(canvas, image)


# -- flows ----------------------------------------------------------------------------------------------------------------


def _color_wheel() -> Tensor:
    """Return 55 colours around the circle, as in the Middlebury flow benchmark: in six arcs one channel rises or falls."""
    arcs = [(15, 0, 1, True), (6, 1, 0, False), (4, 1, 2, True), (11, 2, 1, False), (13, 2, 0, True), (6, 0, 2, False)]
    rows = []
    for steps, full, changing, rising in arcs:
        part = np.zeros((steps, 3), np.float32)
        ramp = np.floor(255 * np.arange(steps) / steps)
        part[:, full] = 255
        part[:, changing] = ramp if rising else 255 - ramp
        rows.append(part)
    return flambeau.from_numpy(np.concatenate(rows))


@no_grad()
def flow_to_image(flow: Tensor) -> Tensor:
    """Convert a flow, (2, H, W) or (N, 2, H, W), to colours: the hue is its direction, white is none."""
    if flow.dtype is not flambeau.float32:
        raise ValueError(f"Flow should be of dtype torch.float, got {flow.dtype}.")
    batch = flow[None] if flow.ndim == 3 else flow
    if batch.ndim != 4 or batch.shape[1] != 2:
        raise ValueError(f"Input flow should have shape (2, H, W) or (N, 2, H, W), got {flow.shape}.")
    longest = batch.pow(2).sum(dim=1).sqrt().max()
    batch = batch / (longest + flambeau.finfo(flow.dtype).eps)
    wheel = _color_wheel().to(flow.device)
    length = batch.pow(2).sum(dim=1).sqrt()  # (N, H, W)
    angle = flambeau.atan2(-batch[:, 1], -batch[:, 0]) / math.pi
    place = (angle + 1) / 2 * (len(wheel) - 1)
    first = place.floor().to(flambeau.int64)
    second = (first + 1) % len(wheel)
    share = (place - first)[..., None]
    color = (1 - share) * (wheel[first] / 255.0) + share * (wheel[second] / 255.0)  # (N, H, W, 3)
    color = 1 - length[..., None] * (1 - color)
    image = (255 * color).floor().to(flambeau.uint8).permute(0, 3, 1, 2).contiguous()
    return image[0] if flow.ndim == 3 else image
