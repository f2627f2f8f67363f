"""RoIAlign over a feature pyramid: each box is pooled from the level that fits its size (Lin et al., 2017, equation 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau import Tensor, nn

from ._regions import rows_of
from .boxes import box_area
from .roi_align import roi_align


class LevelMapper:
    """Map boxes to levels (counted from k_min): canonical_level at canonical_scale, one more for twice the side."""

    def __init__(self, k_min: int, k_max: int, canonical_scale: int = 224, canonical_level: int = 4, eps: float = 1e-6):
        self.k_min, self.k_max, self.s0, self.lvl0, self.eps = k_min, k_max, canonical_scale, canonical_level, eps

    def __call__(self, boxlists: Sequence[Tensor]) -> Tensor:
        side = flambeau.sqrt(flambeau.cat([box_area(boxes) for boxes in boxlists]))
        level = flambeau.floor(self.lvl0 + flambeau.log2(side / self.s0) + flambeau.tensor(self.eps, dtype=side.dtype))
        return level.clamp(min=self.k_min, max=self.k_max).to(flambeau.int64) - self.k_min


class MultiScaleRoIAlign(nn.Module):
    """RoIAlign over several feature maps, whose scales are found from their sizes and the images'."""

    def __init__(
        self,
        featmap_names: Sequence[str],
        output_size: int | Sequence[int],
        sampling_ratio: int,
        *,
        canonical_scale: int = 224,
        canonical_level: int = 4,
    ):
        super().__init__()
        self.featmap_names = featmap_names
        self.sampling_ratio = sampling_ratio
        self.output_size = (output_size, output_size) if isinstance(output_size, int) else tuple(output_size)
        self.scales: list[float] | None = None
        self.map_levels: LevelMapper | None = None
        self.canonical_scale, self.canonical_level = canonical_scale, canonical_level

    def _set_scales(
        self, maps: list[Tensor], image_shapes: Sequence[tuple[int, int]]
    ) -> tuple[list[float], LevelMapper]:
        if not image_shapes:
            raise ValueError("images list should not be empty")
        largest = [max(shape[i] for shape in image_shapes) for i in (0, 1)]
        scales = []
        for x in maps:  # feature maps are powers of two smaller; rounding hides by how much exactly
            ratios = [2 ** round(math.log2(size / whole)) for size, whole in zip(x.shape[-2:], largest)]
            scales.append(float(ratios[0]))
        first, last = -math.log2(scales[0]), -math.log2(scales[-1])
        return scales, LevelMapper(int(first), int(last), self.canonical_scale, self.canonical_level)

    def forward(self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: Sequence[tuple[int, int]]) -> Tensor:
        maps = [value for name, value in x.items() if name in self.featmap_names]
        if self.scales is None or self.map_levels is None:
            self.scales, self.map_levels = self._set_scales(maps, image_shapes)
        rois = rows_of(boxes)
        options: dict[str, Any] = {"output_size": self.output_size, "sampling_ratio": self.sampling_ratio}
        if len(maps) == 1:
            return roi_align(maps[0], rois, spatial_scale=self.scales[0], **options)
        levels = self.map_levels(boxes)
        result = flambeau.zeros((rois.shape[0], maps[0].shape[1], *self.output_size), dtype=maps[0].dtype)
        for level, (features, scale) in enumerate(zip(maps, self.scales)):
            members = flambeau.where(levels == level)[0]
            pooled = roi_align(features, rois[members], spatial_scale=scale, **options)
            result[members] = pooled.to(result.dtype)
        return result

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(featmap_names={self.featmap_names}, output_size={self.output_size}, "
            f"sampling_ratio={self.sampling_ratio})"
        )
