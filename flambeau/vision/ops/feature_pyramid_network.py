"""Feature pyramids (Lin et al., 2017): feature maps of several sizes, brought to one width and enriched from the top down."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from flambeau import Tensor, nn
from flambeau.nn import functional as F

from .misc import Conv2dNormActivation, Layer


class ExtraFPNBlock(nn.Module):
    """Base of blocks that add maps to a pyramid: called with its maps, the maps it was made from, and the names."""

    def forward(self, results: list[Tensor], x: list[Tensor], names: list[str]) -> tuple[list[Tensor], list[str]]:
        raise NotImplementedError(f"{type(self).__name__} defines no forward()")


class LastLevelMaxPool(ExtraFPNBlock):
    """Add a map: every second element of the smallest."""

    def forward(self, results: list[Tensor], x: list[Tensor], names: list[str]) -> tuple[list[Tensor], list[str]]:
        return [*results, F.max_pool2d(results[-1], kernel_size=1, stride=2, padding=0)], [*names, "pool"]


class LastLevelP6P7(ExtraFPNBlock):
    """Add two maps, each by a convolution of stride 2."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.p6 = nn.Conv2d(in_channels, out_channels, 3, 2, 1)
        self.p7 = nn.Conv2d(out_channels, out_channels, 3, 2, 1)
        for conv in (self.p6, self.p7):
            nn.init.kaiming_uniform_(conv.weight, a=1)
            nn.init.constant_(conv.bias, 0)
        self.use_P5 = in_channels == out_channels

    def forward(self, results: list[Tensor], x: list[Tensor], names: list[str]) -> tuple[list[Tensor], list[str]]:
        p6 = self.p6(results[-1] if self.use_P5 else x[-1])
        p7 = self.p7(F.relu(p6))
        return [*results, p6, p7], [*names, "p6", "p7"]


class FeaturePyramidNetwork(nn.Module):
    """Feature pyramid over an ordered dict of feature maps, largest first; returns a dict with the same keys and those of the extra blocks."""

    _version = 2

    def __init__(
        self,
        in_channels_list: list[int],
        out_channels: int,
        extra_blocks: ExtraFPNBlock | None = None,
        norm_layer: Layer | None = None,
    ):
        super().__init__()
        self.inner_blocks = nn.ModuleList()
        self.layer_blocks = nn.ModuleList()
        for width in in_channels_list:
            if width == 0:
                raise ValueError("in_channels=0 is currently not supported")
            for blocks, source, kernel in ((self.inner_blocks, width, 1), (self.layer_blocks, out_channels, 3)):
                blocks.append(
                    Conv2dNormActivation(
                        source, out_channels, kernel_size=kernel, norm_layer=norm_layer, activation_layer=None
                    )
                )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, a=1)
                if module.bias is not None:
                    nn.init.constant_(module.bias, 0)
        if extra_blocks is not None and not isinstance(extra_blocks, ExtraFPNBlock):
            raise TypeError(f"extra_blocks should be of type ExtraFPNBlock not {type(extra_blocks)}")
        self.extra_blocks = extra_blocks

    def _load_from_state_dict(self, state_dict: dict, prefix: str, local_metadata: dict, *rest: Any) -> None:
        if local_metadata.get("version", 1) < 2:  # a block used to be a bare convolution
            for blocks in ("inner_blocks", "layer_blocks"):
                for i in range(len(self.inner_blocks)):
                    for kind in ("weight", "bias"):
                        old = f"{prefix}{blocks}.{i}.{kind}"
                        if old in state_dict:
                            state_dict[f"{prefix}{blocks}.{i}.0.{kind}"] = state_dict.pop(old)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def forward(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        names, maps = list(x), list(x.values())
        above = self.inner_blocks[-1](maps[-1])
        results = [self.layer_blocks[-1](above)]
        for i in reversed(range(len(maps) - 1)):
            beside = self.inner_blocks[i](maps[i])
            above = beside + F.interpolate(above, size=beside.shape[-2:], mode="nearest")
            results.insert(0, self.layer_blocks[i](above))
        if self.extra_blocks is not None:
            results, names = self.extra_blocks(results, maps, names)
        return OrderedDict(zip(names, results))
