"""Average pooling: sliding, adaptive, and power-average."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.tensor import Tensor
from ..machinery.aten_form import aten_only
from ..machinery.declare import composite
from ..machinery.record import lookup
from .band import Band, Outline, outlined
from .max_pool import max_pool1d, max_pool2d, max_pool3d
from .resample import Outlines, resampling_op, sums
from .windows import (
    BroadcastingList1,
    BroadcastingList2,
    BroadcastingList3,
    Window,
    adaptive,
    need_dtype,
    pool_sizes,
    read_window,
    sliding,
    spread,
)

_FUNCTIONAL = ("nn.functional",)
_BOTH = ("nn.functional", "torch")


def _window_of(bands: Outlines) -> list[Any]:
    """Return the arguments of PyTorch's average pooling after the input."""
    kernel, stride, padding, ceil_mode, include_padding, divisors = zip(*(b.settings for b in bands))
    return [list(kernel), list(stride), list(padding), ceil_mode[0], include_padding[0], divisors[0]]


_averages = {dims: resampling_op(f"AvgPool{dims}DBackward0", _window_of, sized=False, resizes=False) for dims in (2, 3)}
_adaptive_averages = {
    dims: resampling_op(f"AdaptiveAvgPool{dims}DBackward0", lambda bands: [], resizes=False) for dims in (2, 3)
}


# -- sliding windows ------------------------------------------------------------------------------------------------------


@outlined(256)
def _average_band(
    size: int,
    count: int,
    kernel: int,
    stride: int,
    padding: int,
    ceil_mode: bool,  # decides the count
    include_padding: bool,
    divisor: int | None,
) -> Band:
    first, inside = sliding(size, count, kernel, stride, padding, 1)
    if divisor is not None:
        divisors = np.full(count, float(divisor))
    elif include_padding:
        start = np.arange(count) * stride - padding
        divisors = np.minimum(start + kernel, size + padding) - start
    else:
        divisors = inside
    return Band(size, first, inside, divisors=divisors.astype(np.float64))


def _average(name: str, input: Tensor, window: Window, include_padding: bool, divisor: Any) -> Tensor:
    dims = len(window.kernel)
    if divisor is not None and divisor == 0:
        raise RuntimeError("divisor must be not zero")
    sizes = pool_sizes(name, input.shape, window)
    if input.dtype is not dt.int64:
        need_dtype(name, input)
    bands: list[Outline] = []
    for n, count, kernel, stride, padding in zip(
        input.shape[-dims:], sizes, window.kernel, window.stride, window.padding
    ):
        # A given divisor is that of the whole window: the first dimension carries it.
        share = None if divisor is None else (1 if bands else int(divisor))
        bands.append(_average_band(n, count, kernel, stride, padding, window.ceil_mode, include_padding, share))
    if input.dtype is dt.int64:
        return _integer_average(input, tuple(bands))
    return _averages[dims](input, tuple(bands))


def _integer_average(input: Tensor, bands: Outlines) -> Tensor:
    """Average integers: sums, then a division that drops the remainder."""
    total: Any = sums(input, bands)
    divisors = np.ones((1,) * len(bands))
    for i, outline in enumerate(bands):
        counts: Any = outline.band.divisors
        divisors = divisors * counts.reshape(-1, *(1,) * (len(bands) - 1 - i))
    return total.div(input.new_tensor(divisors.astype(np.int64)), rounding_mode="trunc")


def check_signal(name: str, input: Tensor) -> None:
    if len(input.shape) not in (2, 3):
        raise RuntimeError(
            f"Expected 2 to 3 dimensions, but got {len(input.shape)}-dimensional tensor for argument #1 'self' (while checking"
            f" arguments for {name})"
        )


@composite(
    method=False, namespaces=_BOTH, aten="avg_pool1d(input, kernel_size, stride, padding, ceil_mode, count_include_pad)"
)
def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The average of every window of a signal (N, C, L) or (C, L)."""
    check_signal("avg_pool1d", input)
    (k,), (s,), (p,), _, ceil = read_window("avg_pool1d", 1, kernel_size, stride, padding, 1, ceil_mode)
    return avg_pool2d(input.unsqueeze(-2), (1, k), (1, s), (0, p), ceil, count_include_pad).squeeze(-2)


def _pooling(dims: int) -> Any:
    name = f"avg_pool{dims}d"

    def pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> Tensor:
        window = read_window(name, dims, kernel_size, stride, padding, 1, ceil_mode)
        return _average(name, input, window, count_include_pad, divisor_override)

    pool.__doc__ = (
        f"The average of every window of {'images (N, C, H, W)' if dims == 2 else 'volumes (N, C, D, H, W)'}."
    )
    return composite(
        pool, name=name, method=False, namespaces=_FUNCTIONAL, out="exact", autocast="float32" if dims == 3 else None,
        aten=f"{name}(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)",
        aten_backward=f"{name}_backward(grad, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)",
    )  # fmt: skip


avg_pool2d, avg_pool3d = map(_pooling, (2, 3))


# -- adaptive -------------------------------------------------------------------------------------------------------------


@outlined(256)
def _adaptive_band(size: int, count: int) -> Band:
    first, inside = adaptive(size, count)
    return Band(size, first, inside, divisors=inside.astype(np.float64))


def adaptive_size(name: str, input: Tensor, output_size: Any, dims: int) -> tuple[int, ...]:
    """Return the requested sizes; None keeps the input's."""
    if not isinstance(output_size, (tuple, list)):
        return spread(output_size, dims, name, "output_size", 2)
    if len(output_size) >= len(input.shape):
        raise ValueError(f"Input dimension should be at least {len(output_size) + 1}")
    sizes = input.shape[len(input.shape) - len(output_size) :]
    found = tuple(n if wanted is None else wanted for wanted, n in zip(output_size, sizes))
    if len(found) != dims:
        if dims == 1:
            raise RuntimeError(f"{name}() argument 'output_size' should contain one int (got {len(found)})")
        raise RuntimeError(f"{name}: output_size must be {dims}")
    return spread(found, dims, name, "output_size", 2)


def _adaptive_average(name: str, input: Tensor, output_size: Any, dims: int) -> Tensor:
    sizes = adaptive_size(name, input, output_size, dims)
    if sizes == (1,) * dims and len(input.shape) >= dims and not input.is_quantized:  # means of codes round otherwise
        return input.mean(list(range(-1, -dims - 1, -1)), keepdim=True)
    return _adaptive_windows(name, input, sizes, dims)


def _adaptive_windows(name: str, input: Tensor, sizes: tuple[int, ...], dims: int) -> Tensor:
    if min(sizes) < 0:
        raise RuntimeError(
            f"{name}: elements of output_size must be greater than or equal to 0 but received {{{', '.join(map(str, sizes))}}}"
        )
    if len(input.shape) not in (dims + 1, dims + 2):
        raise RuntimeError(f"{name}(): Expected {dims + 1}D or {dims + 2}D tensor, but got {list(input.shape)}")
    for i in range(1, dims + 1):
        if input.shape[-i] == 0:
            raise RuntimeError(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes"
                f" {list(input.shape)} with dimension {len(input.shape) - i} being empty"
            )
    need_dtype(name, input)
    return _adaptive_averages[dims](input, tuple(map(_adaptive_band, input.shape[-dims:], sizes)))


@composite(method=False, namespaces=_BOTH)
def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Averages over `output_size` windows that cover a signal evenly."""
    check_signal("adaptive_avg_pool1d", input)
    size = spread(output_size, 1, "adaptive_avg_pool1d", "output_size", 2)
    flat = input.unsqueeze(-2)
    return _adaptive_average("adaptive_avg_pool2d", flat, (1, *size), 2).squeeze(-2)


@composite(method=False, namespaces=_FUNCTIONAL, aten="adaptive_avg_pool2d(input, filled(output_size, input))")
def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Averages over windows that cover images evenly."""
    return _adaptive_average("adaptive_avg_pool2d", input, output_size, 2)


@composite(
    method=False,
    namespaces=_FUNCTIONAL,
    autocast="float32",
    aten="adaptive_avg_pool3d(input, filled(output_size, input))",
)
def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Averages over windows that cover volumes evenly."""
    return _adaptive_average("adaptive_avg_pool3d", input, output_size, 3)


def _declare_adaptive(dims: int) -> None:
    """Declare PyTorch's operator behind adaptive_avg_pool, and its derivative."""
    name = f"_adaptive_avg_pool{dims}d"
    backward = lookup(f"internal.resample_AdaptiveAvgPool{dims}D_backward").function

    @aten_only(name, backward=f"{name}_backward(grad, self)")
    def _(self: Tensor, output_size: list[int]) -> Tensor:
        return _adaptive_windows(name, self, adaptive_size(name, self, output_size, dims), dims)

    @aten_only(f"{name}_backward")
    def _(grad: Tensor, self: Tensor) -> Tensor:
        if len(self.shape) not in (dims + 1, dims + 2) or grad.shape[:-dims] != self.shape[:-dims]:
            raise RuntimeError(
                f"{name}_backward: Expected dimensions {len(self.shape)} for `grad_output` but got dimensions {len(grad.shape)}"
            )
        bands = map(_adaptive_band, self.shape[-dims:], grad.shape[-dims:])
        return backward(grad, tuple(b.transposed for b in bands))


for _dims in (2, 3):
    _declare_adaptive(_dims)


# -- power averages -------------------------------------------------------------------------------------------------------


def _rooted(average: Tensor, kernel_size: list[int], dims: int, norm_type: int | float) -> Tensor:
    """Return the p-norm of windows, from the averages of the powers of their elements."""
    count = 1
    for i in range(dims):
        if isinstance(kernel_size, int):
            count = count * kernel_size
        else:
            count = count * kernel_size[i if len(kernel_size) > 1 else 0]
    return (average.sign() * average.abs().relu() * count).pow(1.0 / norm_type)


@composite(method=False, namespaces=_FUNCTIONAL)
def lp_pool1d(
    input: Tensor,
    norm_type: int | float,
    kernel_size: BroadcastingList1[int],
    stride: BroadcastingList1[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of every window of a signal."""
    if stride is None:
        stride = kernel_size
    if abs(norm_type) == math.inf:  # the largest or the smallest
        sign = 1 if norm_type > 0 else -1
        return sign * max_pool1d(sign * input.abs(), kernel_size, stride, 0, 1, ceil_mode)
    return _rooted(avg_pool1d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode), kernel_size, 1, norm_type)


@composite(method=False, namespaces=_FUNCTIONAL)
def lp_pool2d(
    input: Tensor,
    norm_type: int | float,
    kernel_size: BroadcastingList2[int],
    stride: BroadcastingList2[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of every window of images."""
    if stride is None:
        stride = kernel_size
    if abs(norm_type) == math.inf:
        sign = 1 if norm_type > 0 else -1
        return sign * max_pool2d(sign * input.abs(), kernel_size, stride, 0, 1, ceil_mode)
    return _rooted(avg_pool2d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode), kernel_size, 2, norm_type)


@composite(method=False, namespaces=_FUNCTIONAL)
def lp_pool3d(
    input: Tensor,
    norm_type: int | float,
    kernel_size: BroadcastingList3[int],
    stride: BroadcastingList3[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of every window of volumes."""
    if stride is None:
        stride = kernel_size
    if abs(norm_type) == math.inf:
        sign = 1 if norm_type > 0 else -1
        return sign * max_pool3d(sign * input.abs(), kernel_size, stride, 0, 1, ceil_mode)
    return _rooted(avg_pool3d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode), kernel_size, 3, norm_type)
