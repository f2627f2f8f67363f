"""Pooling: the largest, the mean or a norm of the values in a sliding window, over one to three dimensions.

The function that a class names determines its number of dimensions; everything else is shared."""

from __future__ import annotations

from typing import Any, ClassVar

from ...core.tensor import Tensor
from .. import functional as F
from .module import Module
from .settings import Declared, settings
from .utils import _ntuple, _settings, _single

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
]  # fmt: skip


@settings
class _MaxPoolNd(Declared):
    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    dilation: Any = 1
    return_indices: bool = False
    ceil_mode: bool = False
    _function: ClassVar[str]

    def __post_init__(self) -> None:
        self.stride = self.kernel_size if self.stride is None else self.stride

    def forward(self, input: Tensor) -> Any:
        pool = getattr(F, self._function)
        return pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )

    def extra_repr(self) -> str:
        return _settings(self, "kernel_size", "stride", "padding", "dilation", "ceil_mode")


class MaxPool1d(_MaxPoolNd):
    """The largest value in a window that slides over (N, C, L); `return_indices` adds where it is, which MaxUnpool1d reads."""

    _function = "max_pool1d"


class MaxPool2d(_MaxPoolNd):
    """The largest value in a window that slides over (N, C, H, W); `return_indices` adds where it is, which MaxUnpool2d reads.

    >>> nn.MaxPool2d(2)(flambeau.randn(1, 3, 8, 8)).shape
    torch.Size([1, 3, 4, 4])
    """

    _function = "max_pool2d"


class MaxPool3d(_MaxPoolNd):
    """The largest value in a window that slides over (N, C, D, H, W); `return_indices` adds where it is, which MaxUnpool3d reads."""

    _function = "max_pool3d"


class _MaxUnpoolNd(Module):
    _spatial: int
    _function: str

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        entries = _ntuple(self._spatial)
        self.kernel_size = entries(kernel_size)
        self.stride = entries(stride if (stride is not None) else kernel_size)
        self.padding = entries(padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: list[int] | None = None) -> Tensor:
        unpool = getattr(F, self._function)
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return _settings(self, "kernel_size", "stride", "padding")


class MaxUnpool1d(_MaxUnpoolNd):
    """Puts the values of MaxPool1d back where they came from; zero elsewhere."""

    _spatial, _function = 1, "max_unpool1d"


class MaxUnpool2d(_MaxUnpoolNd):
    """Puts the values of MaxPool2d back where they came from; zero elsewhere."""

    _spatial, _function = 2, "max_unpool2d"


class MaxUnpool3d(_MaxUnpoolNd):
    """Puts the values of MaxPool3d back where they came from; zero elsewhere."""

    _spatial, _function = 3, "max_unpool3d"


class _AvgPoolNd(Declared):
    kernel_size: Any
    stride: Any

    def __post_init__(self) -> None:
        self.stride = self.kernel_size if self.stride is None else self.stride

    def extra_repr(self) -> str:
        return _settings(self, "kernel_size", "stride", "padding")


@settings
class AvgPool1d(_AvgPoolNd):
    """Average over a window that slides over (N, C, L); `stride` defaults to the window's length, so that windows do not overlap."""

    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    ceil_mode: bool = False
    count_include_pad: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("kernel_size", "stride", "padding"):
            setattr(self, name, _single(getattr(self, name)))

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


@settings
class _AvgPoolWithDivisor(_AvgPoolNd):
    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None
    _function: ClassVar[str]

    def forward(self, input: Tensor) -> Tensor:
        pool = getattr(F, self._function)
        return pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool2d(_AvgPoolWithDivisor):
    """Average over a window that slides over (N, C, H, W); `stride` defaults to the window's size, so that windows do not overlap."""

    _function = "avg_pool2d"


class AvgPool3d(_AvgPoolWithDivisor):
    """Average over a window that slides over (N, C, D, H, W); `stride` defaults to the window's size."""

    _function = "avg_pool3d"

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("padding", 0)
        self.__dict__.setdefault("ceil_mode", False)
        self.__dict__.setdefault("count_include_pad", True)


class _FractionalMaxPoolNd(Module):
    __constants__ = ["kernel_size", "return_indices", "output_size", "output_ratio"]
    _spatial: int
    _function: str

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        super().__init__()
        entries = _ntuple(self._spatial)
        self.kernel_size = entries(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = entries(output_size) if output_size is not None else None
        self.output_ratio = entries(output_ratio) if output_ratio is not None else None
        name = type(self).__name__
        if self._spatial == 3 and min(self.kernel_size) <= 0:
            raise ValueError(f"kernel_size must be greater than 0, but got {kernel_size}")
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        pool = getattr(F, self._function)
        return pool(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """Max pooling with window positions drawn at random, so that the size shrinks by a fraction."""

    _spatial, _function = 2, "fractional_max_pool2d"


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """Max pooling with window positions drawn at random, in three dimensions."""

    _spatial, _function = 3, "fractional_max_pool3d"


@settings
class _LPPoolNd(Declared):
    norm_type: float
    kernel_size: Any
    stride: Any = None
    ceil_mode: bool = False
    _function: ClassVar[str]

    def forward(self, input: Tensor) -> Tensor:
        pool = getattr(F, self._function)
        return pool(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool1d(_LPPoolNd):
    """The p-norm of a window that slides over (N, C, L)."""

    _function = "lp_pool1d"


class LPPool2d(_LPPoolNd):
    """The p-norm of a window that slides over (N, C, H, W)."""

    _function = "lp_pool2d"


class LPPool3d(_LPPoolNd):
    """The p-norm of a window that slides over (N, C, D, H, W)."""

    _function = "lp_pool3d"


@settings
class _AdaptiveMaxPoolNd(Declared):
    output_size: Any
    return_indices: bool = False
    _function: ClassVar[str]

    def forward(self, input: Tensor) -> Any:
        pool = getattr(F, self._function)
        return pool(input, self.output_size, return_indices=self.return_indices)

    def extra_repr(self) -> str:
        return _settings(self, "output_size")


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Max pooling to a given output length: the windows follow from the input's length; `return_indices` adds where the maxima are."""

    _function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Max pooling to a given output size: the windows follow from the input's size; `return_indices` adds where the maxima are."""

    _function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Max pooling to a given output size in three dimensions; `return_indices` adds where the maxima are."""

    _function = "adaptive_max_pool3d"


@settings
class _AdaptiveAvgPoolNd(Declared):
    output_size: Any
    _function: ClassVar[str]

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self._function)(input, self.output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Average pooling to a given output length: the windows follow from the input's length, so any length is accepted."""

    _function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Average pooling to a given output size: the windows follow from the input's size, so images of any size are accepted."""

    _function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Average pooling to a given output size in three dimensions: the windows follow from the input's size."""

    _function = "adaptive_avg_pool3d"
