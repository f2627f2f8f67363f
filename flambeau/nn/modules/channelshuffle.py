"""Mixing the channels of groups."""

from __future__ import annotations

from ...core.tensor import Tensor
from .. import functional as F
from .settings import Declared, settings

__all__ = ["ChannelShuffle"]


@settings
class ChannelShuffle(Declared):
    """Interleave the channels of all groups, so that following group convolutions see every group."""

    groups: int

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)
