"""Building blocks shared by several model families."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.nn.modules import Sequential
from flambeau.nn.modules.settings import extending

__all__ = ["Conv2dNormActivation", "Conv3dNormActivation", "FrozenBatchNorm2d", "MLP", "Permute", "SqueezeExcitation"]

Layer = Callable[..., nn.Module]


class FrozenBatchNorm2d(nn.Module):
    """Batch normalisation whose statistics and affine parameters never change: four buffers, nothing to train."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, num_features: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        for name, fill in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, flambeau.full((num_features,), fill))

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *rest: Any) -> None:
        state_dict.pop(prefix + "num_batches_tracked", None)  # ordinary batch normalisation counts, this one does not
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, x: Tensor) -> Tensor:
        w, b, mean, var = (t.reshape(1, -1, 1, 1) for t in self.buffers(recurse=False))
        scale = w * (var + self.eps).rsqrt()
        return x * scale + (b - mean * scale)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.weight.shape[0]}, eps={self.eps})"


class ConvNormActivation(Sequential):
    """A convolution, optionally followed by a normalisation and an activation; `padding=None` keeps the size at stride 1."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int] = 3,
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] | str | None = None,
        groups: int = 1,
        norm_layer: Layer | None = nn.BatchNorm2d,
        activation_layer: Layer | None = nn.ReLU,
        dilation: int | Sequence[int] = 1,
        inplace: bool | None = True,
        bias: bool | None = None,
        conv_layer: Layer = nn.Conv2d,
    ):
        if padding is None:
            padding = _same_padding(kernel_size, dilation)
        bias = norm_layer is None if bias is None else bias
        layers = [
            conv_layer(
                in_channels, out_channels, kernel_size, stride, padding, dilation=dilation, groups=groups, bias=bias
            )
        ]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer(**({} if inplace is None else {"inplace": inplace})))
        super().__init__(*layers)
        self.out_channels = out_channels


def _same_padding(kernel_size: int | Sequence[int], dilation: int | Sequence[int]) -> int | tuple[int, ...]:
    if isinstance(kernel_size, int) and isinstance(dilation, int):
        return (kernel_size - 1) // 2 * dilation
    kernels = repeat(kernel_size) if isinstance(kernel_size, int) else kernel_size
    dilations = repeat(dilation) if isinstance(dilation, int) else dilation
    return tuple((k - 1) // 2 * d for k, d in zip(kernels, dilations))


class Conv2dNormActivation(ConvNormActivation):
    """Conv2d, normalisation (BatchNorm2d), activation (ReLU)."""


class Conv3dNormActivation(ConvNormActivation):
    """Conv3d, normalisation (BatchNorm3d), activation (ReLU)."""

    @extending(ConvNormActivation, without=("conv_layer",), norm_layer=nn.BatchNorm3d)
    def __init__(self, **settings: Any) -> None:
        super().__init__(conv_layer=nn.Conv3d, **settings)


class SqueezeExcitation(nn.Module):
    """Scale each channel by a gate computed from the averages of all channels (Hu et al., 2018)."""

    def __init__(
        self,
        input_channels: int,
        squeeze_channels: int,
        activation: Layer = nn.ReLU,
        scale_activation: Layer = nn.Sigmoid,
    ):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
        self.activation = activation()
        self.scale_activation = scale_activation()

    def _scale(self, input: Tensor) -> Tensor:
        return self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(input)))))

    def forward(self, input: Tensor) -> Tensor:
        return self._scale(input) * input


class MLP(Sequential):
    """Linear layers of these widths; all but the last are followed by a normalisation (if given) and an activation."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: Sequence[int],
        norm_layer: Layer | None = None,
        activation_layer: Layer | None = nn.ReLU,
        inplace: bool | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ):
        options = {} if inplace is None else {"inplace": inplace}
        layers: list[nn.Module] = []
        for i, width in enumerate(hidden_channels):
            layers.append(nn.Linear(in_channels, width, bias=bias))
            if i < len(hidden_channels) - 1:
                if norm_layer is not None:
                    layers.append(norm_layer(width))
                if activation_layer is not None:
                    layers.append(activation_layer(**options))
            layers.append(nn.Dropout(dropout, **options))
            in_channels = width
        super().__init__(*layers)


class Permute(nn.Module):
    """A layer that permutes dimensions."""

    def __init__(self, dims: Sequence[int]):
        super().__init__()
        self.dims = list(dims)

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.dims)
