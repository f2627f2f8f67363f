"""Max pooling with sliding windows.

Small windows in two dimensions keep one byte per output for the backward pass (which element of the window was the largest); all others keep
the position of that element in its plane, which return_indices returns, too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core import modes
from ...core.aliases import AnyFunction
from ...core.caching import remember
from ...core.layout import channels_last, channels_last_strides
from ...core.size import make_size
from ...core.tensor import Tensor, empty, empty_strided, numel_of
from ...kernels.library import pool as kernels
from ..creation.filled import fill_raw
from ..machinery.aten_form import aten_only
from ..machinery.declare import composite, internal
from ..machinery.inplace import raw_copy
from ..machinery.memory import Table, bare, is_last, layout_in_format_of, layout_like, recording, without_gaps
from ..machinery.quirks import Quirks
from ..machinery.record import Batched, NewTensor, NewTensors
from .positions import add_at_positions, take_positions
from .windows import Window, need_dtype, planes, pool_sizes, pooled_size, read_window, sliding, window_table

_FUNCTIONAL = ("nn.functional",)
_active = modes.active
_UNROLLED = 25  # elements of a window that is written out in the kernel
_MOST_CODES = 256
_GAIN = 0.05  # milliseconds for a million bytes that are channels last (measured)


# -- windows from tables, and positions -----------------------------------------------------------------------------------


def pool_by_table(
    out: Tensor, indices: Tensor | None, input: Tensor, table: np.ndarray | Tensor, steps: tuple[int, ...]
) -> None:
    """Compute maxima over the windows of a table (see kernels.max_pool_windows), and their positions."""
    dims, where = len(steps), out.device
    extent = (1,) * (3 - dims) + tuple(input.shape[len(input.shape) - dims :])
    target = (1,) * (3 - dims) + tuple(out.shape[len(out.shape) - dims :])
    tables = table.shape[0] if len(table.shape) == 2 else 1
    read = _kept(table.tobytes()).on(where) if tables == 1 and isinstance(table, np.ndarray) else table
    values = out if out._contig else empty(out.shape, out.dtype, where)
    places = indices if indices is None or indices._contig else empty(indices.shape, dt.int64, where)
    kernels.max_pool_windows(
        values, places, bare(input), read, planes(input, dims), tables, *extent, *target, *(1,) * (3 - dims), *steps
    )
    if tables == 1 and isinstance(table, np.ndarray):  # a table made on the device has windows inside the input only
        _fill_empty_windows(values, table, target)
    for filled, wanted in ((values, out), (places, indices)):
        if filled is not None and filled is not wanted:
            raw_copy(wanted, filled)


@lru_cache(256)
def _kept(table: bytes) -> Table:
    """Return a table of windows, cached on every device where it was read."""
    return Table(np.frombuffer(table, np.int64), dt.int64)


def _fill_empty_windows(out: Tensor, table: np.ndarray, target: tuple[int, ...]) -> None:
    """Write -inf (or the smallest number) for windows that are entirely in the padding."""
    start = 0
    for dim, count in zip((-3, -2, -1), target):
        for place in np.flatnonzero(table[start + count : start + 2 * count] == 0):
            lowest = -float("inf") if out.dtype.is_floating_point else np.iinfo(out.dtype.numpy).min
            fill_raw(out.narrow(dim, int(place), 1), lowest)
        start += 2 * count


def in_format_of(x: Tensor, result: Tensor) -> Tensor:
    """Return a contiguous result in the memory format of x."""
    if not is_last(x):
        return result
    fmt = channels_last if len(result.shape) == 4 else None
    if fmt is None:
        copy = empty_strided(result.shape, channels_last_strides(result.shape), result.dtype, result.device)
        return copy.copy_(result)
    return result.contiguous(memory_format=fmt)


def _derivative(dims: int, window: Window) -> tuple[Any, ...]:
    """Return PyTorch's name of the derivative of a pool that moves over planes, and its settings."""
    return f"max_pool{dims}d_with_indices_backward", *window


# -- small windows in two dimensions --------------------------------------------------------------------------------------


def _is_small(input: Tensor, window: Window) -> bool:
    area = window.kernel[0] * window.kernel[1]
    return window.dilation == (1, 1) and area <= (_MOST_CODES if is_last(input) else _UNROLLED)


def _geometry(shape: tuple[int, ...], sizes: tuple[int, ...], window: Window) -> tuple[int, ...]:
    """Return planes, height, width, output height and width, and the padding of both."""
    return numel_of(shape[:-2]), *shape[-2:], *sizes, *window.padding


def _constants(window: Window) -> dict[str, int]:
    (kh, kw), (sh, sw) = window.kernel, window.stride
    return {"kh": kh, "kw": kw, "sh": sh, "sw": sw}


def _channels_geometry(shape: tuple[int, ...], sizes: tuple[int, ...], window: Window) -> tuple[int, ...]:
    n, c, h, w = shape
    return (n, h, w, c, *sizes, *window.padding, *window.kernel, *window.stride)


def _pool_small(out: Tensor, codes: Tensor | None, input: Tensor, window: Window) -> None:
    sizes = out.shape[-2:]
    if is_last(input):
        kernels.max_pool_channels(out, codes, input, *_channels_geometry(input.shape, sizes, window))
    else:
        kernels.max_pool_rows(out, codes, bare(input), *_geometry(input.shape, sizes, window), **_constants(window))


@internal(
    channels_last=lambda **arguments: _GAIN,
    grads={"g": lambda g, codes, window: pick_by_codes(g, codes, window)},
    quirks=Quirks(label="MaxPool2DWithIndicesBackwardBackward0"),
    batching=Batched("folded", shape="shape"),
)
def max_pool2d_codes_backward(g: Tensor, codes: Tensor, shape: tuple[int, ...], window: Window) -> NewTensor:
    """The gradient with respect to the input of `shape`, from the codes that pooling saved."""
    return layout_in_format_of(codes, tuple(shape), g.dtype)


@max_pool2d_codes_backward.op.as_aten
def _(recorder: Any, g: Tensor, codes: Tensor, shape: tuple[int, ...], window: Window) -> Tensor:
    places = recorder.unseen(positions_of, codes, shape, window)
    return add_at_positions.op.aten_calls(recorder, g, places, shape, 2, _derivative(2, window))


@max_pool2d_codes_backward.on("any")
def _(out: Tensor, g: Tensor, codes: Tensor, shape: tuple[int, ...], window: Window) -> None:
    sizes = codes.shape[-2:]
    if is_last(codes):
        grad = g._bare_alias().contiguous(memory_format=channels_last)
        kernels.max_pool_channels_backward(out, grad, codes, *_channels_geometry(tuple(shape), sizes, window))
        return
    apart = window.kernel == window.stride and window.padding == (0, 0) and not window.ceil_mode
    kernels.max_pool_rows_backward(
        out, bare(g), codes, *_geometry(tuple(shape), sizes, window), **_constants(window), apart=apart
    )


@internal(batching="each")
def positions_of(codes: Tensor, shape: tuple[int, ...], window: Window) -> NewTensor:
    """Return the positions, in planes of an input of `shape`, of the elements that the codes name."""
    return layout_in_format_of(codes, codes.shape, dt.int64)


@positions_of.on("any")
def _put_positions(out: Tensor, codes: Tensor, shape: tuple[int, ...], window: Window) -> None:
    target = out if out._contig else empty(out.shape, dt.int64, out.device)
    (_, kw), (sh, sw) = window.kernel, window.stride
    p, _, w, *rest = _geometry(tuple(shape), codes.shape[-2:], window)
    kernels.positions_of_codes(target, bare(codes), p, w, *rest, kw=kw, sh=sh, sw=sw)
    if target is not out:
        raw_copy(out, target)


def pick_by_codes(g: Tensor, codes: Tensor, window: Window) -> Tensor:
    """Return the elements of `g` that the codes of another input's pooling name: the transpose of max_pool2d_codes_backward."""
    return take_positions(g, positions_of(codes, g.shape, window), 2)


# -- the recorded operators -----------------------------------------------------------------------------------------------


def _table(input: Tensor, window: Window, sizes: tuple[int, ...]) -> np.ndarray:
    dims = len(sizes)
    full = [(np.zeros(1, np.int64), np.ones(1, np.int64))] * (3 - dims)
    return window_table([*full, *(sliding(*part) for part in zip(
        input.shape[len(input.shape) - dims :], sizes, window.kernel, window.stride, window.padding, window.dilation
    ))])  # fmt: skip


def _pooled_layout(input: Tensor, window: Window, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    return layout_like(input, (*input.shape[: len(input.shape) - len(sizes)], *sizes))


_pool_plans: dict[tuple[Any, ...], tuple[Any, ...]] = {}


def _planned_layout(input: Tensor, window: Window, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    key = (input.shape, input._strides, input.dtype, input.device, window)
    found = _pool_plans.get(key)
    if found is None:
        shape, d, where, *strides = _pooled_layout(input, window, sizes)
        small = len(sizes) == 2 and _is_small(input, window) and not is_last(input) and input._contig
        plan = (_geometry(input.shape, sizes, window), _constants(window)) if small else None
        found = remember(_pool_plans, key, (make_size(shape), d, where, strides[0] if strides else None, plan))
    return found


def _channels_last_gain(input: Tensor, window: Window, sizes: tuple[int, ...]) -> float | None:
    """Return the time that small windows save with channels last (see `Op.channels_last`); None for others, which need planes."""
    area = window.kernel[0] * window.kernel[-1]
    return _GAIN if len(sizes) == 2 and window.dilation == (1, 1) and area <= _MOST_CODES else None


@internal(layout=_planned_layout, planned=True, channels_last=_channels_last_gain, batching="each")
def max_pooled(input: Tensor, window: Window, sizes: tuple[int, ...]) -> Tensor:
    """The largest element of every window."""


@max_pooled.on("any")
def _(out: Tensor, plan: Any, input: Tensor, window: Window, sizes: tuple[int, ...]) -> None:
    if plan is not None:  # small windows of contiguous images
        kernels.max_pool_rows(out, None, input, *plan[0], **plan[1])
        return
    input = without_gaps(input)
    if len(sizes) == 2 and _is_small(input, window):
        _pool_small(out, None, input, window)
    else:
        pool_by_table(out, None, input, _table(input, window, sizes), window.dilation)


@internal(
    channels_last=lambda **arguments: _GAIN,
    saves=("codes",),
    grads={"input": lambda g, codes, input_shape, window: max_pool2d_codes_backward(g, codes, input_shape, window)},
    quirks=Quirks(label="MaxPool2DWithIndicesBackward0"),
    aten="max_pool2d_with_indices",
    batching="folded",
)
def max_pool2d_coded(input: Tensor, window: Window, sizes: tuple[int, ...]) -> NewTensors:
    """Max pooling that saves codes for its backward pass."""
    shape, _, *place = values = _pooled_layout(input, window, sizes)
    return [values, (shape, dt.uint8, *place)]


@max_pool2d_coded.on("any")
def _(out: list[Tensor], input: Tensor, window: Window, sizes: tuple[int, ...]) -> None:
    _pool_small(out[0], out[1], without_gaps(input), window)


def indexed_layout(input: Tensor, sizes: tuple[int, ...]) -> list[Any]:
    """Return the layouts of maxima and their positions, in the memory format of the input."""
    shape, d, *place = layout_like(input, (*input.shape[: len(input.shape) - len(sizes)], *sizes))
    return [(shape, d, *place), (shape, dt.int64, *place)]


def _pool_with_indices(out: list[Tensor], input: Tensor, window: Window, sizes: tuple[int, ...]) -> None:
    values, indices = out
    input = without_gaps(input)
    if len(sizes) == 2 and _is_small(input, window):
        codes = empty_strided(values.shape, values._strides, dt.uint8, values.device)
        _pool_small(values, codes, input, window)
        _put_positions(indices, codes, input.shape, window)
    else:
        pool_by_table(values, indices, input, _table(input, window, sizes), window.dilation)


def _indexed(dims: int) -> Any:
    def pool(input: Tensor, window: Window, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Maxima and their positions in each plane or volume."""

    op = internal(
        pool,
        layout=lambda input, window, sizes: indexed_layout(input, sizes),
        grads={
            "input": lambda g, out, input_shape, window: add_at_positions(
                g[0], out[1], input_shape, dims, _derivative(dims, window)
            )
        },
        quirks=Quirks(label=f"MaxPool{dims}DWithIndicesBackward0"),
        name=f"max_pool{dims}d_indexed",
        batching="folded",
    )
    op.on("any")(_pool_with_indices)
    return op


_INDEXED = {dims: _indexed(dims) for dims in (2, 3)}


@max_pooled.op.as_aten
@max_pool2d_coded.op.as_aten
def _maxima_in_aten(recorder: Any, input: Tensor, window: Window, sizes: tuple[int, ...]) -> Tensor:
    return _with_indices_in_aten(recorder, input, window, sizes)[0]


def _with_indices_in_aten(recorder: Any, input: Tensor, window: Window, sizes: tuple[int, ...]) -> Any:
    pool = getattr(recorder.aten, f"max_pool{len(sizes)}d_with_indices").default
    return tuple(pool(input, *map(list, window[:4]), window.ceil_mode))


for operator in _INDEXED.values():
    operator.op.as_aten(_with_indices_in_aten)


def _max_pool(name: str, input: Tensor, window: Window, with_indices: bool) -> Any:
    sizes = pool_sizes(name, input.shape, window)
    need_dtype(name, input, integers=True)
    if not with_indices and not recording(input):
        return (max_pooled if _active else max_pooled.op.impl)(input, window, sizes)
    if not with_indices and len(sizes) == 2 and _is_small(input, window):
        return max_pool2d_coded(input, window, sizes)
    result = _INDEXED[len(sizes)](input, window, sizes)
    return result if with_indices else result[0]


# -- one dimension --------------------------------------------------------------------------------------------------------


def _read_window1d(
    input: Tensor, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, two_dimensional: bool
) -> Window:
    """Return the window along a signal. Signals pooled as images raise the errors of images."""
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
    """Pool one dimension as two of which the first has size 1."""
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


def _autocast_volumes(run: AnyFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, AnyFunction]:
    """Choose float32 under autocast, unless the positions of the maxima are requested, too: that is another operator in PyTorch."""
    indices = kwargs.get("return_indices", args[6] if len(args) > 6 else False)
    return ("" if indices else "float32"), run


def _pooling(dims: int) -> Any:
    """Declare max_pool and its relatives over `dims` dimensions; return nn.functional's."""
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
        ) -> Tensor | tuple[Tensor, Tensor]:
            return run(input, always or return_indices, kernel_size, stride, padding, dilation, ceil_mode)

        return pool

    def torch_pool(
        input: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Tensor:
        return run(input, False, kernel_size, stride, padding, dilation, ceil_mode)

    pool, pool_with_indices = twin(False), twin(True)
    pool.__doc__ = torch_pool.__doc__ = f"The largest element of every window of {_OVER[dims]}."
    pool_with_indices.__doc__ = f"{name} together with the positions of the largest elements."
    pool_with_indices.__annotations__["return"] = "tuple[Tensor, Tensor]"
    declared: dict[str, Any] = {"method": False, "batching": "pooled"}
    window = "input, kernel_size, stride, padding, dilation, ceil_mode"
    both = f"{name}_with_indices({window})"
    back = f"{name}_with_indices_backward(grad, self, kernel_size, stride, padding, dilation, ceil_mode, result1)"
    composite(
        pool_with_indices,
        name=f"{name}_with_indices",
        namespaces=_FUNCTIONAL,
        aten=both,
        aten_backward=back if dims > 1 else "",
        **declared,
    )
    if dims > 1:
        aten_only(f"{name}_with_indices_backward")(
            lambda grad, self, *rest: add_at_positions(grad, rest[-1], self.shape, dims)
        )
    declared["autocast"] = _autocast_volumes if dims == 3 else None
    composite(torch_pool, name=name, **declared)
    forms = (f"{name}({window})", f"{both[:-1]}, return_indices=True)")
    return composite(pool, name=name, namespaces=_FUNCTIONAL, aten=forms, **declared)


max_pool1d, max_pool2d, max_pool3d = map(_pooling, (1, 2, 3))


@composite(method=False, name="max_pool1d_with_indices", batching="pooled")
def torch_max_pool1d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """The largest element of every window of a signal, and its position."""
    return _max_pool1d(input, True, kernel_size, stride, padding, dilation, ceil_mode)
