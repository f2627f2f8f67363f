"""Anchors: reference boxes at every location of feature maps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import flambeau
from flambeau import Tensor, nn

from .image_list import ImageList


def _grid(height: int, width: int, down: float, right: float, middle: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return x and y of all locations of a feature map, row by row."""
    x, y = (flambeau.arange(0, n, dtype=flambeau.float32) + middle for n in (width, height))
    rows, columns = flambeau.meshgrid(y * down, x * right, indexing="ij")
    return columns.reshape(-1), rows.reshape(-1)


class AnchorGenerator(nn.Module):
    """Module that makes boxes of these sizes (in image pixels) and ratios (height over width) at every location of each feature map."""

    def __init__(
        self,
        sizes: Sequence[Sequence[int]] = ((128, 256, 512),),
        aspect_ratios: Sequence[Sequence[float]] = ((0.5, 1.0, 2.0),),
    ):
        super().__init__()
        if not isinstance(sizes[0], (list, tuple)):
            sizes = tuple((s,) for s in sizes)  # type: ignore[misc]
        if not isinstance(aspect_ratios[0], (list, tuple)):
            aspect_ratios = (aspect_ratios,) * len(sizes)  # type: ignore[assignment]
        self.sizes, self.aspect_ratios = sizes, aspect_ratios
        self.cell_anchors = [self.generate_anchors(s, a) for s, a in zip(sizes, aspect_ratios)]

    def generate_anchors(self, scales: Sequence[int], aspect_ratios: Sequence[float]) -> Tensor:
        """Return the anchor boxes around the origin."""
        scale = flambeau.tensor(list(scales), dtype=flambeau.float32, device="cpu")
        high = flambeau.tensor(list(aspect_ratios), dtype=flambeau.float32, device="cpu").sqrt()
        w, h = ((1 / high)[:, None] * scale).view(-1), (high[:, None] * scale).view(-1)
        return (flambeau.stack([-w, -h, w, h], dim=1) / 2).round()

    def num_anchors_per_location(self) -> list[int]:
        return [len(s) * len(a) for s, a in zip(self.sizes, self.aspect_ratios)]

    def grid_anchors(self, grid_sizes: Sequence[Sequence[int]], strides: Sequence[Sequence[int]]) -> list[Tensor]:
        if not len(grid_sizes) == len(strides) == len(self.cell_anchors):
            raise ValueError(
                "Anchors should be Tuple[Tuple[int]] because each feature map could potentially have different sizes and "
                "aspect ratios. There needs to be a match between the number of feature maps passed and the number of "
                f"sizes / aspect ratios specified: {len(grid_sizes)} maps, {len(self.cell_anchors)} sizes."
            )
        anchors = []
        for (height, width), (down, right), base in zip(grid_sizes, strides, self.cell_anchors):
            x, y = _grid(height, width, down, right)
            shifts = flambeau.stack((x, y, x, y), dim=1)
            anchors.append((shifts.view(-1, 1, 4) + base.view(1, -1, 4)).reshape(-1, 4))
        return anchors

    def forward(self, image_list: ImageList, feature_maps: list[Tensor]) -> list[Tensor]:
        grids = [tuple(x.shape[-2:]) for x in feature_maps]
        size = image_list.tensors.shape[-2:]
        anchors = flambeau.cat(self.grid_anchors(grids, [(size[0] // g[0], size[1] // g[1]) for g in grids]))
        return [anchors.to(feature_maps[0].dtype) for _ in image_list.image_sizes]


class DefaultBoxGenerator(nn.Module):
    """The default boxes of SSD: two squares and pairs of upright and wide boxes per location, sizes relative to the image."""

    def __init__(
        self,
        aspect_ratios: Sequence[Sequence[int]],
        min_ratio: float = 0.15,
        max_ratio: float = 0.9,
        scales: Sequence[float] | None = None,
        steps: Sequence[int] | None = None,
        clip: bool = True,
    ):
        super().__init__()
        if steps is not None and len(aspect_ratios) != len(steps):
            raise ValueError("aspect_ratios and steps should have the same length")
        self.aspect_ratios, self.steps, self.clip = aspect_ratios, steps, clip
        count = len(aspect_ratios)
        if scales is not None:
            self.scales = list(scales)
        elif count > 1:
            spread = max_ratio - min_ratio
            self.scales = [min_ratio + spread * k / (count - 1.0) for k in range(count)] + [1.0]
        else:
            self.scales = [min_ratio, max_ratio]
        self._wh_pairs = self._generate_wh_pairs(count)

    def _generate_wh_pairs(self, num_outputs: int) -> list[Tensor]:
        result = []
        for k in range(num_outputs):
            side, larger = self.scales[k], math.sqrt(self.scales[k] * self.scales[k + 1])
            pairs = [[side, side], [larger, larger]]
            for ratio in self.aspect_ratios[k]:
                w, h = side * math.sqrt(ratio), side / math.sqrt(ratio)
                pairs += [[w, h], [h, w]]
            result.append(flambeau.tensor(pairs, dtype=flambeau.float32, device="cpu"))
        return result

    def num_anchors_per_location(self) -> list[int]:
        return [2 + 2 * len(ratios) for ratios in self.aspect_ratios]

    def _grid_default_boxes(self, grid_sizes: Sequence[Sequence[int]], image_size: Sequence[int]) -> Tensor:
        boxes = []
        for k, (height, width) in enumerate(grid_sizes):
            down, right = float(height), float(width)
            if self.steps is not None:
                down, right = image_size[0] / self.steps[k], image_size[1] / self.steps[k]
            x, y = _grid(height, width, 1.0, 1.0, 0.5)
            pairs = self._wh_pairs[k].clamp(min=0, max=1) if self.clip else self._wh_pairs[k]
            centres = flambeau.stack((x / right, y / down), dim=-1).repeat_interleave(len(pairs), 0)
            boxes.append(flambeau.cat((centres, pairs.repeat(height * width, 1)), dim=1))
        return flambeau.cat(boxes, dim=0)

    def forward(self, image_list: ImageList, feature_maps: list[Tensor]) -> list[Tensor]:
        size = image_list.tensors.shape[-2:]
        relative = self._grid_default_boxes([tuple(x.shape[-2:]) for x in feature_maps], size).to(feature_maps[0].dtype)
        scale = flambeau.tensor([size[1], size[0]], dtype=relative.dtype)
        half = 0.5 * relative[:, 2:]
        boxes = flambeau.cat(((relative[:, :2] - half) * scale, (relative[:, :2] + half) * scale), dim=-1)
        return [boxes for _ in image_list.image_sizes]

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(aspect_ratios={self.aspect_ratios}, clip={self.clip}, scales={self.scales}, "
            f"steps={self.steps})"
        )
