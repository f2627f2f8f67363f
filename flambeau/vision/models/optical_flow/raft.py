"""RAFT (Teed and Deng, 2020): optical flow, refined iteratively from correlations of all pairs of pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn import functional as F

from ...ops.misc import Conv2dNormActivation
from .._api import load_weights, model_builder, weights_enums
from ._utils import grid_sample, make_coords_grid, upsample_flow

__all__ = ("RAFT", "Raft_Large_Weights", "Raft_Small_Weights", "raft_large", "raft_small")

Layer = Callable[..., nn.Module]
_SQUASH = nn.Tanh()


def _shortcut(in_channels: int, out_channels: int, norm_layer: Layer | None, stride: int) -> nn.Module:
    return Conv2dNormActivation(
        in_channels, out_channels, kernel_size=1, stride=stride, norm_layer=norm_layer, activation_layer=None, bias=True
    )


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut; convolutions have biases, because norms may be frozen during training."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        norm_layer: Layer | None,
        stride: int = 1,
        always_project: bool = False,
    ):
        super().__init__()
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, bias=True)
        self.convnormrelu1 = conv(in_channels, out_channels, kernel_size=3, stride=stride)
        self.convnormrelu2 = conv(out_channels, out_channels, kernel_size=3)
        same = stride == 1 and not always_project
        self.downsample = nn.Identity() if same else _shortcut(in_channels, out_channels, norm_layer, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.convnormrelu2(self.convnormrelu1(x))
        return self.relu(self.downsample(x) + y)


class BottleneckBlock(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with biases and a shortcut."""

    def __init__(self, in_channels: int, out_channels: int, *, norm_layer: Layer | None, stride: int = 1):
        super().__init__()
        conv, width = partial(Conv2dNormActivation, norm_layer=norm_layer, bias=True), out_channels // 4
        self.convnormrelu1 = conv(in_channels, width, kernel_size=1)
        self.convnormrelu2 = conv(width, width, kernel_size=3, stride=stride)
        self.convnormrelu3 = conv(width, out_channels, kernel_size=1)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Identity() if stride == 1 else _shortcut(in_channels, out_channels, norm_layer, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.convnormrelu3(self.convnormrelu2(self.convnormrelu1(x)))
        return self.relu(self.downsample(x) + y)


class FeatureEncoder(nn.Module):
    """Features of an image at an eighth of its size."""

    def __init__(
        self,
        *,
        block: Layer = ResidualBlock,
        layers: Sequence[int] = (64, 64, 96, 128, 256),
        strides: Sequence[int] = (2, 1, 2, 2),
        norm_layer: Layer | None = nn.BatchNorm2d,
    ):
        super().__init__()
        if len(layers) != 5:
            raise ValueError(f"The expected number of layers is 5, instead got {len(layers)}")

        def pair(inside: int, outside: int, stride: int) -> nn.Module:
            first = block(inside, outside, norm_layer=norm_layer, stride=stride)
            return nn.Sequential(first, block(outside, outside, norm_layer=norm_layer, stride=1))

        self.convnormrelu = Conv2dNormActivation(
            3, layers[0], kernel_size=7, stride=strides[0], norm_layer=norm_layer, bias=True
        )
        self.layer1 = pair(layers[0], layers[1], strides[1])
        self.layer2 = pair(layers[1], layers[2], strides[2])
        self.layer3 = pair(layers[2], layers[3], strides[3])
        self.conv = nn.Conv2d(layers[3], layers[4], kernel_size=1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, (nn.BatchNorm2d, nn.InstanceNorm2d)) and module.weight is not None:
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
        self.output_dim = layers[-1]
        self.downsample_factor = 2 ** sum(stride == 2 for stride in strides)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.layer3(self.layer2(self.layer1(self.convnormrelu(x)))))


class MotionEncoder(nn.Module):
    """Features of the current flow and its correlations; the flow itself is appended."""

    def __init__(
        self,
        *,
        in_channels_corr: int,
        corr_layers: Sequence[int] = (256, 192),
        flow_layers: Sequence[int] = (128, 64),
        out_channels: int = 128,
    ):
        super().__init__()
        if len(flow_layers) != 2:
            raise ValueError(f"The expected number of flow_layers is 2, instead got {len(flow_layers)}")
        if len(corr_layers) not in (1, 2):
            raise ValueError(f"The number of corr_layers should be 1 or 2, instead got {len(corr_layers)}")
        conv = partial(Conv2dNormActivation, norm_layer=None)
        self.convcorr1 = conv(in_channels_corr, corr_layers[0], kernel_size=1)
        self.convcorr2 = conv(corr_layers[0], corr_layers[1], kernel_size=3) if len(corr_layers) == 2 else nn.Identity()
        self.convflow1 = conv(2, flow_layers[0], kernel_size=7)
        self.convflow2 = conv(flow_layers[0], flow_layers[1], kernel_size=3)
        self.conv = conv(corr_layers[-1] + flow_layers[-1], out_channels - 2, kernel_size=3)
        self.out_channels = out_channels

    def forward(self, flow: Tensor, corr_features: Tensor) -> Tensor:
        corr = self.convcorr2(self.convcorr1(corr_features))
        both = flambeau.cat([corr, self.convflow2(self.convflow1(flow))], dim=1)
        return flambeau.cat([self.conv(both), flow], dim=1)


class ConvGRU(nn.Module):
    """Gated recurrent unit whose products are convolutions."""

    def __init__(self, *, input_size: int, hidden_size: int, kernel_size: Any, padding: Any):
        super().__init__()
        inside = hidden_size + input_size
        self.convz = nn.Conv2d(inside, hidden_size, kernel_size=kernel_size, padding=padding)
        self.convr = nn.Conv2d(inside, hidden_size, kernel_size=kernel_size, padding=padding)
        self.convq = nn.Conv2d(inside, hidden_size, kernel_size=kernel_size, padding=padding)

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        both = flambeau.cat([h, x], dim=1)
        update, reset = flambeau.sigmoid(self.convz(both)), flambeau.sigmoid(self.convr(both))
        new = _SQUASH(self.convq(flambeau.cat([reset * h, x], dim=1)))
        return (1 - update) * h + update * new


def _pass_through_h(h: Tensor, _: Tensor) -> Tensor:
    """Return the hidden state unchanged, in place of a second recurrent unit."""
    return h


class RecurrentBlock(nn.Module):
    """Block of one or two recurrent units, the first over the rows, the second over the columns."""

    def __init__(
        self,
        *,
        input_size: int,
        hidden_size: int,
        kernel_size: Sequence[Any] = ((1, 5), (5, 1)),
        padding: Sequence[Any] = ((0, 2), (2, 0)),
    ):
        super().__init__()
        if len(kernel_size) != len(padding):
            raise ValueError(
                f"got {len(kernel_size)} kernel sizes and {len(padding)} paddings, expected as many of both"
            )
        if len(kernel_size) not in (1, 2):
            raise ValueError(f"kernel_size should either 1 or 2, instead got {len(kernel_size)}")
        self.convgru1 = ConvGRU(
            input_size=input_size, hidden_size=hidden_size, kernel_size=kernel_size[0], padding=padding[0]
        )
        self.convgru2: Any = _pass_through_h
        if len(kernel_size) == 2:
            self.convgru2 = ConvGRU(
                input_size=input_size, hidden_size=hidden_size, kernel_size=kernel_size[1], padding=padding[1]
            )
        self.hidden_size = hidden_size

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        return self.convgru2(self.convgru1(h, x), x)


class FlowHead(nn.Module):
    """Head that predicts the change of the flow from the hidden state."""

    def __init__(self, *, in_channels: int, hidden_size: int):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, hidden_size, 3, padding=1)
        self.conv2 = nn.Conv2d(hidden_size, 2, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(self.relu(self.conv1(x)))


class UpdateBlock(nn.Module):
    """Refine the flow once: the motion's features, the recurrent units, the change of the flow."""

    def __init__(self, *, motion_encoder: nn.Module, recurrent_block: RecurrentBlock, flow_head: nn.Module):
        super().__init__()
        self.motion_encoder, self.recurrent_block, self.flow_head = motion_encoder, recurrent_block, flow_head
        self.hidden_state_size = recurrent_block.hidden_size

    def forward(
        self, hidden_state: Tensor, context: Tensor, corr_features: Tensor, flow: Tensor
    ) -> tuple[Tensor, Tensor]:
        motion = self.motion_encoder(flow, corr_features)
        hidden_state = self.recurrent_block(hidden_state, flambeau.cat([context, motion], dim=1))
        return hidden_state, self.flow_head(hidden_state)


class MaskPredictor(nn.Module):
    """Head that predicts the weights of the nine neighbours, for each of the 8x8 fine pixels, from the hidden state."""

    def __init__(self, *, in_channels: int, hidden_size: int, multiplier: float = 0.25):
        super().__init__()
        self.convrelu = Conv2dNormActivation(in_channels, hidden_size, norm_layer=None, kernel_size=3)
        self.conv = nn.Conv2d(hidden_size, 8 * 8 * 9, 1, padding=0)
        self.multiplier = multiplier  # makes this branch's gradients smaller, as in the authors' training

    def forward(self, x: Tensor) -> Tensor:
        return self.multiplier * self.conv(self.convrelu(x))


class CorrBlock(nn.Module):
    """Correlations of all pairs of pixels at several resolutions, looked up around given coordinates."""

    def __init__(self, *, num_levels: int = 4, radius: int = 4):
        super().__init__()
        self.num_levels, self.radius = num_levels, radius
        self.corr_pyramid: list[Tensor] = [flambeau.tensor(0)]
        self.out_channels = num_levels * (2 * radius + 1) ** 2

    def build_pyramid(self, fmap1: Tensor, fmap2: Tensor) -> None:
        """Correlate two feature maps and pool the second one's dimensions, `num_levels` - 1 times."""
        if fmap1.shape != fmap2.shape:
            raise ValueError(f"expected feature maps of one shape, got {fmap1.shape} and {fmap2.shape}")
        batch, channels, h, w = fmap1.shape
        least = 2 * (2 ** (self.num_levels - 1))  # the last level needs two values to interpolate between
        if h < least or w < least:
            raise ValueError(
                f"Feature maps are too small to be down-sampled by the correlation pyramid: H and W should be at least {least}, "
                f"got {fmap1.shape[-2:]}. Images are eight times as large: at least {8 * least}."
            )
        corr = flambeau.matmul(fmap1.view(batch, channels, h * w).transpose(1, 2), fmap2.view(batch, channels, h * w))
        corr = corr.view(batch * h * w, 1, h, w) / math.sqrt(channels)
        self.corr_pyramid = [corr]
        for _ in range(self.num_levels - 1):
            corr = F.avg_pool2d(corr, kernel_size=2, stride=2)
            self.corr_pyramid.append(corr)

    def index_pyramid(self, centroids_coords: Tensor) -> Tensor:
        """Return the correlations within `radius` of the coordinates (B, 2, H, W): (B, levels * side * side, H, W)."""
        side = 2 * self.radius + 1
        steps = flambeau.linspace(-self.radius, self.radius, side)
        around = flambeau.stack(flambeau.meshgrid(steps, steps, indexing="ij"), dim=-1).to(centroids_coords.device)
        around = around.view(1, side, side, 2)
        batch, _, h, w = centroids_coords.shape
        centre = centroids_coords.permute(0, 2, 3, 1).reshape(batch * h * w, 1, 1, 2)
        levels = []
        for corr in self.corr_pyramid:
            level = grid_sample(corr, centre + around, align_corners=True, mode="bilinear")
            levels.append(level.view(batch, h, w, -1))
            centre = centre / 2
        return flambeau.cat(levels, dim=-1).permute(0, 3, 1, 2).contiguous()


class RAFT(nn.Module):
    """Recurrent refinement of the flow from `image1` to `image2`: one prediction (B, 2, H, W) for each update."""

    def __init__(
        self,
        *,
        feature_encoder: nn.Module,
        context_encoder: nn.Module,
        corr_block: Any,
        update_block: Any,
        mask_predictor: nn.Module | None = None,
    ):
        super().__init__()
        self.feature_encoder, self.context_encoder = feature_encoder, context_encoder
        self.corr_block, self.update_block = corr_block, update_block
        self.mask_predictor = mask_predictor
        if not hasattr(self.update_block, "hidden_state_size"):
            raise ValueError("The update_block parameter should expose a 'hidden_state_size' attribute.")

    def forward(self, image1: Tensor, image2: Tensor, num_flow_updates: int = 12) -> list[Tensor]:
        batch, _, h, w = image1.shape
        if (h, w) != image2.shape[-2:]:
            raise ValueError(f"expected images of one size, got ({h}, {w}) and {image2.shape[-2:]}")
        if h % 8 != 0 or w % 8 != 0:
            raise ValueError(f"input image H and W should be divisible by 8, instead got {h} (h) and {w} (w)")
        fmap1, fmap2 = flambeau.chunk(self.feature_encoder(flambeau.cat([image1, image2], dim=0)), chunks=2, dim=0)
        if fmap1.shape[-2:] != (h // 8, w // 8):
            raise ValueError("The feature encoder should downsample H and W by 8")
        self.corr_block.build_pyramid(fmap1, fmap2)
        found = self.context_encoder(image1)
        if found.shape[-2:] != (h // 8, w // 8):
            raise ValueError("The context encoder should downsample H and W by 8")
        hidden_size = self.update_block.hidden_state_size
        rest = found.shape[1] - hidden_size
        if rest <= 0:
            raise ValueError(
                f"The context encoder outputs {found.shape[1]} channels, expected more than the hidden state's {hidden_size}"
            )
        hidden, context = flambeau.split(found, [hidden_size, rest], dim=1)
        hidden, context = _SQUASH(hidden), F.relu(context)
        start = make_coords_grid(batch, h // 8, w // 8).to(fmap1.device)
        coords = start
        flows = []
        for _ in range(num_flow_updates):
            coords = coords.detach()  # gradients do not flow from one update to the last one's coordinates
            correlations = self.corr_block.index_pyramid(centroids_coords=coords)
            hidden, change = self.update_block(hidden, context, correlations, coords - start)
            coords = coords + change
            mask = None if self.mask_predictor is None else self.mask_predictor(hidden)
            flows.append(upsample_flow(flow=(coords - start), up_mask=mask))
        return flows


def _raft(
    weights: Any,
    progress: bool,
    *,
    block: Layer,
    features: Sequence[int],
    context: Sequence[int],
    context_norm: Layer | None,
    radius: int,
    motion: dict[str, Any],
    hidden: int,
    recurrent: dict[str, Any],
    head: int,
    masked: bool,
    **given: Any,
) -> RAFT:
    """Build a RAFT model from these parts, any of which may be overridden by keyword."""
    parts = (
        dict.fromkeys(("feature_encoder", "context_encoder", "corr_block", "update_block", "mask_predictor"), None)
        | given
    )
    feature_encoder = parts.pop("feature_encoder") or FeatureEncoder(
        block=block, layers=features, norm_layer=nn.InstanceNorm2d
    )
    context_encoder = parts.pop("context_encoder") or FeatureEncoder(
        block=block, layers=context, norm_layer=context_norm
    )
    corr_block: Any = parts.pop("corr_block") or CorrBlock(num_levels=4, radius=radius)
    update_block = parts.pop("update_block")
    if update_block is None:
        encoder = MotionEncoder(in_channels_corr=corr_block.out_channels, **motion)
        inside = encoder.out_channels + context[-1] - hidden
        block_of_units = RecurrentBlock(input_size=inside, hidden_size=hidden, **recurrent)
        flow_head = FlowHead(in_channels=hidden, hidden_size=head)
        update_block = UpdateBlock(motion_encoder=encoder, recurrent_block=block_of_units, flow_head=flow_head)
    mask_predictor = parts.pop("mask_predictor")
    if mask_predictor is None and masked:
        mask_predictor = MaskPredictor(in_channels=hidden, hidden_size=256)
    model = RAFT(
        feature_encoder=feature_encoder,
        context_encoder=context_encoder,
        corr_block=corr_block,
        update_block=update_block,
        mask_predictor=mask_predictor,
        **parts,
    )
    return load_weights(model, weights, progress)


Raft_Large_Weights, Raft_Small_Weights = weights_enums("Raft_Large", "Raft_Small")


@model_builder(Raft_Large_Weights, legacy="C_T_SKHT_V2")
def raft_large(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> RAFT:
    """RAFT with convex upsampling. `weights` is None (random), a member of `Raft_Large_Weights` or its name."""
    return _raft(
        weights,
        progress,
        block=ResidualBlock,
        features=(64, 64, 96, 128, 256),
        context=(64, 64, 96, 128, 256),
        context_norm=nn.BatchNorm2d,
        radius=4,
        motion={"corr_layers": (256, 192), "flow_layers": (128, 64), "out_channels": 128},
        hidden=128,
        recurrent={"kernel_size": ((1, 5), (5, 1)), "padding": ((0, 2), (2, 0))},
        head=256,
        masked=True,
        **kwargs,
    )


@model_builder(Raft_Small_Weights, legacy="C_T_V2")
def raft_small(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> RAFT:
    """RAFT with bottlenecks and interpolation. `weights` is None (random), a member of `Raft_Small_Weights` or its name."""
    return _raft(
        weights,
        progress,
        block=BottleneckBlock,
        features=(32, 32, 64, 96, 128),
        context=(32, 32, 64, 96, 160),
        context_norm=None,
        radius=3,
        motion={"corr_layers": (96,), "flow_layers": (64, 32), "out_channels": 82},
        hidden=96,
        recurrent={"kernel_size": (3,), "padding": (1,)},
        head=128,
        masked=False,
        **kwargs,
    )
