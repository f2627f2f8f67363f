"""Max pooling with sliding windows.

Small windows in two dimensions keep one byte per output for the backward pass (which element of the window was the
largest); all others keep the position of that element in its plane, which is also what return_indices gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.layout import channels_last, channels_last_strides
from ...core.size import make_size
from ...core.tensor import Tensor, empty, empty_strided, numel_of
from ...kernels.library import pool as kernels
from ..machinery.arguments import need_tensor
from ..machinery.declare import composite, internal
from ..machinery.memory import bare, is_computed, is_last, new_like, recording, without_gaps
from ..machinery.primitive import Saved
from .windows import Window, need_dtype, planes, pool_sizes, pooled_size, read_window, sliding, window_table

_FUNCTIONAL = ("nn.functional",)
_UNROLLED = 25  # elements of a window that is written out in the kernel
_MOST_CODES = 256


# -- windows from tables, and positions -----------------------------------------------------------------------------------


def pool_by_table(
    input: Tensor, sizes: tuple[int, ...], table: np.ndarray, steps: tuple[int, ...], with_indices: bool
) -> tuple[Tensor, Tensor | None]:
    """Maxima over the windows of a table (see kernels.max_pool_windows), and their positions."""
    dims = len(sizes)
    shape = (*input.shape[: len(input.shape) - dims], *sizes)
    out = empty(shape, input.dtype, input.device)
    indices = empty(shape, dt.int64, input.device) if with_indices else None
    if not is_computed(input) or not out.numel():
        return out, indices
    extent = (1,) * (3 - dims) + tuple(input.shape[len(input.shape) - dims :])
    target = (1,) * (3 - dims) + tuple(sizes)
    tables = table.shape[0] if table.ndim == 2 else 1
    kernels.max_pool_windows(
        out, indices, bare(input), table, planes(input, dims), tables, *extent, *target, *(1,) * (3 - dims), *steps
    )
    if tables == 1:
        _fill_empty_windows(out, table, target)
    return out, indices


def _fill_empty_windows(out: Tensor, table: np.ndarray, target: tuple[int, ...]) -> None:
    """Windows that lie in the padding: nothing is smaller than the maximum of nothing."""
    start = 0
    for dim, count in zip((-3, -2, -1), target):
        for place in np.flatnonzero(table[start + count : start + 2 * count] == 0):
            lowest = -float("inf") if out.dtype.is_floating_point else np.iinfo(out._array().dtype).min
            out.narrow(dim, int(place), 1).fill_(lowest)  # type: ignore[attr-defined]
        start += 2 * count


def in_format_of(x: Tensor, result: Tensor) -> Tensor:
    """A contiguous result, in the memory format of x."""
    if not is_last(x):
        return result
    fmt = channels_last if len(result.shape) == 4 else None
    if fmt is None:
        copy = empty_strided(result.shape, channels_last_strides(result.shape), result.dtype, result.device)
        return copy.copy_(result)
    return result.contiguous(memory_format=fmt)


def _report(error: np.ndarray, size: tuple[int, ...]) -> None:
    if error[0]:
        extent = "x".join(map(str, size))
        raise RuntimeError(f"Found an invalid max index: {error[1]} (output volumes are of size {extent})")


@internal(grads={"values": lambda g, indices, dims: take_positions(g, indices, dims)}, label="MaxPoolBackwardBackward0")
def add_at_positions(values: Tensor, indices: Tensor, shape: Any, dims: int) -> Tensor:
    """Zeros of `shape` plus values at their positions in each plane of the last `dims` dimensions."""
    return in_format_of(indices, place_values(values, indices, tuple(shape), dims, add=True))


def place_values(values: Tensor, indices: Tensor, shape: tuple[int, ...], dims: int, add: bool) -> Tensor:
    out = empty(make_size(shape), values.dtype, values.device)
    if not is_computed(values) or not numel_of(shape):
        return out
    size = shape[len(shape) - dims :]
    error = np.zeros(2, np.int64)
    count = numel_of(values.shape[len(values.shape) - dims :])
    kernels.place_in_planes(
        out, bare(values), bare(indices), error, numel_of(shape[: len(shape) - dims]), numel_of(size), count, add=add
    )
    _report(error, size)
    return out


@internal(
    grads={"input": lambda g, indices, input_shape, dims: add_at_positions(g, indices, input_shape, dims)},
    label="MaxPoolBackwardBackward0",
)
def take_positions(input: Tensor, indices: Tensor, dims: int) -> Tensor:
    """The elements of each plane of the last `dims` dimensions that stand at `indices`."""
    out = empty(indices.shape, input.dtype, input.device)
    if not is_computed(input) or not out.numel():
        return out
    size = input.shape[len(input.shape) - dims :]
    error = np.zeros(2, np.int64)
    count = numel_of(indices.shape[len(indices.shape) - dims :])
    kernels.take_from_planes(out, bare(input), bare(indices), error, planes(input, dims), numel_of(size), count)
    _report(error, size)
    return out


# -- small windows in two dimensions --------------------------------------------------------------------------------------


def _is_small(input: Tensor, window: Window) -> bool:
    area = window.kernel[0] * window.kernel[1]
    return window.dilation == (1, 1) and area <= (_MOST_CODES if is_last(input) else _UNROLLED)


def _geometry(shape: tuple[int, ...], sizes: tuple[int, ...], window: Window) -> tuple[int, ...]:
    """planes, h, w, oh, ow, ph, pw"""
    return numel_of(shape[:-2]), *shape[-2:], *sizes, *window.padding


def _constants(window: Window) -> dict[str, int]:
    (kh, kw), (sh, sw) = window.kernel, window.stride
    return {"kh": kh, "kw": kw, "sh": sh, "sw": sw}


def _channels_geometry(shape: tuple[int, ...], sizes: tuple[int, ...], window: Window) -> tuple[int, ...]:
    n, c, h, w = shape
    return (n, h, w, c, *sizes, *window.padding, *window.kernel, *window.stride)


def _pool_small(
    input: Tensor, window: Window, sizes: tuple[int, ...], with_codes: bool
) -> tuple[Tensor, Tensor | None]:
    shape = (*input.shape[:-2], *sizes)
    out = new_like(input, shape)
    codes = new_like(input, shape, dt.uint8) if with_codes else None
    if not is_computed(input) or not out.numel():
        return out, codes
    if is_last(input):
        kernels.max_pool_channels(out, codes, input, *_channels_geometry(input.shape, sizes, window))
    else:
        kernels.max_pool_rows(out, codes, bare(input), *_geometry(input.shape, sizes, window), **_constants(window))
    return out, codes


@internal(
    grads={"g": lambda g, codes, window: pick_by_codes(g, codes, window)}, label="MaxPool2DWithIndicesBackwardBackward0"
)
def max_pool2d_codes_backward(g: Tensor, codes: Tensor, shape: Any, window: Window) -> Tensor:
    """The gradient with respect to the input of `shape`, from the codes that pooling kept."""
    sizes = codes.shape[-2:]
    if is_last(codes):
        out = empty_strided(make_size(shape), channels_last_strides(tuple(shape)), g.dtype, g.device)
        if is_computed(g) and out.numel():
            grad = g._bare_alias().contiguous(memory_format=channels_last)
            kernels.max_pool_channels_backward(out, grad, codes, *_channels_geometry(tuple(shape), sizes, window))
        return out
    out = empty(make_size(shape), g.dtype, g.device)
    if is_computed(g) and out.numel():
        apart = window.kernel == window.stride and window.padding == (0, 0) and not window.ceil_mode
        kernels.max_pool_rows_backward(
            out, bare(g), codes, *_geometry(tuple(shape), sizes, window), **_constants(window), apart=apart
        )
    return out


def _positions(codes: Tensor, shape: tuple[int, ...], window: Window) -> Tensor:
    plain = bare(codes)
    indices = empty(codes.shape, dt.int64, codes.device)
    if is_computed(codes) and codes.numel():
        (_, kw), (sh, sw) = window.kernel, window.stride
        p, _, w, *rest = _geometry(shape, codes.shape[-2:], window)
        kernels.positions_of_codes(indices, plain, p, w, *rest, kw=kw, sh=sh, sw=sw)
    return indices


def pick_by_codes(g: Tensor, codes: Tensor, window: Window) -> Tensor:
    """What the codes of another input's pooling pick from g: the transpose of max_pool2d_codes_backward."""
    return take_positions(g, _positions(codes, g.shape, window), 2)


# -- the recorded operators -----------------------------------------------------------------------------------------------


def _table(input: Tensor, window: Window, sizes: tuple[int, ...]) -> np.ndarray:
    dims = len(sizes)
    full = [(np.zeros(1, np.int64), np.ones(1, np.int64))] * (3 - dims)
    return window_table([*full, *(sliding(*part) for part in zip(
        input.shape[len(input.shape) - dims :], sizes, window.kernel, window.stride, window.padding, window.dilation
    ))])  # fmt: skip


def _pool_with_indices(input: Tensor, window: Window, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    input = without_gaps(input)
    if len(sizes) == 2 and _is_small(input, window):
        out, codes = _pool_small(input, window, sizes, True)
        assert codes is not None
        return out, in_format_of(codes, _positions(codes, input.shape, window))
    out, indices = pool_by_table(input, sizes, _table(input, window, sizes), window.dilation, True)
    assert indices is not None
    return in_format_of(input, out), in_format_of(input, indices)


def _pool(input: Tensor, window: Window, sizes: tuple[int, ...]) -> Tensor:
    input = without_gaps(input)
    if len(sizes) == 2 and _is_small(input, window):
        return _pool_small(input, window, sizes, False)[0]
    return in_format_of(input, pool_by_table(input, sizes, _table(input, window, sizes), window.dilation, False)[0])


@internal(
    grads={"input": lambda g, codes, input_shape, window: max_pool2d_codes_backward(g, codes, input_shape, window)},
    label="MaxPool2DWithIndicesBackward0",
)
def max_pool2d_coded(input: Tensor, window: Window, sizes: tuple[int, ...]) -> Any:
    """Max pooling that keeps codes for its backward pass."""
    out, codes = _pool_small(without_gaps(input), window, sizes, True)
    return Saved(out, codes=codes)


def _indexed(dims: int) -> Any:
    def pool(input: Tensor, window: Window, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Maxima and their positions in each plane or volume."""
        return _pool_with_indices(input, window, sizes)

    return internal(
        pool,
        grads={"input": lambda g, out, input_shape: add_at_positions(g[0], out[1], input_shape, dims)},
        label=f"MaxPool{dims}DWithIndicesBackward0",
        name=f"max_pool{dims}d_indexed",
    )


_INDEXED = {dims: _indexed(dims) for dims in (2, 3)}


def _max_pool(name: str, input: Tensor, window: Window, with_indices: bool) -> Any:
    need_tensor(name, input)
    sizes = pool_sizes(name, input.shape, window)
    need_dtype(name, input, integers=True)
    if not with_indices and not recording(input):
        return _pool(input, window, sizes)
    if not with_indices and len(sizes) == 2 and _is_small(input, window):
        return max_pool2d_coded(input, window, sizes)
    result = _INDEXED[len(sizes)](input, window, sizes)
    return result if with_indices else result[0]


# -- one dimension --------------------------------------------------------------------------------------------------------


def _read_window1d(
    input: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, two_dimensional: bool
) -> Window:
    """The window along a signal. Signals pooled as images have the errors of images."""
    need_tensor("max_pool1d", input)
    if len(input.shape) not in (2, 3) or 0 in input.shape[-2:]:
        raise RuntimeError(
            "max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, but got:"
            f"{list(input.shape)}"
        )
    given = {"kernel_size": kernel_size, "stride": stride, "padding": padding, "dilation": dilation}
    for argument, value in given.items():
        if isinstance(value, (tuple, list)) and len(value) != 1 and not (argument == "stride" and not value):
            raise RuntimeError(
                f"max_pool1d() {argument} must be an int, list of ints or tuple of ints of size 1 but got size {len(value)}"
            )
    window = read_window("max_pool1d", 1, kernel_size, stride, padding, dilation, ceil_mode)
    if not two_dimensional:
        _check_signal_window(input.shape[-1], window)
    return window


def _check_signal_window(size: int, window: Window) -> None:
    (k,), (s,), (p,), (d,), ceil_mode = window
    for argument, number in (("kernel_size", k), ("stride", s), ("dilation", d)):
        if number <= 0:
            raise RuntimeError(f"max_pool1d() {argument} must be greater than zero, but got {number}")
    if p < 0:
        raise RuntimeError(f"max_pool1d() padding must be non-negative, but got {p}")
    if p > k // 2:
        raise RuntimeError(
            f"max_pool1d() padding should be at most half of kernel size, but got padding={p} and kernel_size={k}"
        )
    count = pooled_size(size, k, s, p, d, ceil_mode)
    if count <= 0:
        raise RuntimeError(f"max_pool1d() Invalid computed output size: {count}")


def _max_pool1d(
    input: Tensor, with_indices: bool, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    """As two dimensions of which the first has size 1."""
    recorded = with_indices or (isinstance(input, Tensor) and recording(input))
    window = _read_window1d(input, kernel_size, stride, padding, dilation, ceil_mode, recorded)
    flat = Window(
        (1, *window.kernel), (1, *window.stride), (0, *window.padding), (1, *window.dilation), window.ceil_mode
    )
    if input.dtype is dt.bool_ or input.dtype.is_complex:
        need_dtype("max_pool1d_impl", input, integers=True)
    result = _max_pool("max_pool1d", input.unsqueeze(-2), flat, with_indices)
    return tuple(t.squeeze(-2) for t in result) if with_indices else result.squeeze(-2)


# -- public functions -----------------------------------------------------------------------------------------------------

_OVER = {1: "a signal (N, C, L) or (C, L)", 2: "images (N, C, H, W)", 3: "volumes (N, C, D, H, W)"}


def _pooling(dims: int) -> Any:
    """Declare max_pool and its relatives over `dims` dimensions; returns nn.functional's."""
    name = f"max_pool{dims}d"

    def run(input: Tensor, with_indices: bool, *sizes: Any) -> Any:
        if dims == 1:
            return _max_pool1d(input, with_indices, *sizes)
        return _max_pool(name, input, read_window(name, dims, *sizes), with_indices)

    def twin(always: bool) -> Any:
        def pool(
            input: Tensor,
            kernel_size: Any,
            stride: Any = None,
            padding: Any = 0,
            dilation: Any = 1,
            ceil_mode: bool = False,
            return_indices: bool = False,
        ) -> Any:
            return run(input, always or return_indices, kernel_size, stride, padding, dilation, ceil_mode)

        return pool

    def torch_pool(
        input: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:
        return run(input, False, kernel_size, stride, padding, dilation, ceil_mode)

    pool, pool_with_indices = twin(False), twin(True)
    pool.__doc__ = torch_pool.__doc__ = f"The largest element of every window of {_OVER[dims]}."
    pool_with_indices.__doc__ = f"{name} together with the positions of the largest elements."
    composite(pool_with_indices, name=f"{name}_with_indices", method=False, namespaces=_FUNCTIONAL)
    composite(torch_pool, name=name, method=False)
    return composite(pool, name=name, method=False, namespaces=_FUNCTIONAL)


max_pool1d, max_pool2d, max_pool3d = map(_pooling, (1, 2, 3))


@composite(method=False, name="max_pool1d_with_indices")
def torch_max_pool1d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """The largest element of every window of a signal, and its position."""
    return _max_pool1d(input, True, kernel_size, stride, padding, dilation, ceil_mode)
