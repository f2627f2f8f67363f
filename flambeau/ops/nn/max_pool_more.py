"""Max pooling over adaptive and fractional windows, and its inverse (unpooling)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.size import make_size
from ...core.tensor import Tensor, numel_of
from ..machinery.aten_form import aten_only
from ..machinery.declare import composite, internal
from ..machinery.memory import layout_in_format_of, without_gaps
from ..machinery.quirks import Quirks
from ..machinery.record import Batched
from ..random.fills import rand
from .avg_pool import adaptive_size, check_signal
from .max_pool import indexed_layout, pool_by_table
from .positions import add_at_positions, place_values, take_positions
from .windows import adaptive, need_dtype, read_window, spread, window_table

_FUNCTIONAL = ("nn.functional",)


def _whole(dims: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the windows along the missing dimensions."""
    return [(np.zeros(1, np.int64), np.ones(1, np.int64))] * (3 - dims)


def _added(g: Any, places: Tensor, input_shape: Any, dims: int, *named: Any) -> Tensor:
    """Return the gradient of max pooling: each value is added to the element that was the maximum."""
    return add_at_positions(g[0], places, input_shape, dims, named)


# -- adaptive -------------------------------------------------------------------------------------------------------------


def _adaptive_max(out: list[Tensor], input: Tensor, sizes: tuple[int, ...]) -> None:
    dims = len(sizes)
    table = window_table([*_whole(dims), *map(adaptive, input.shape[-dims:], sizes)])
    pool_by_table(out[0], out[1], without_gaps(input), table, (1,) * dims)


def _adaptive_op(dims: int) -> Any:
    def pool(input: Tensor, sizes: tuple[int, ...]) -> Any:
        """Maxima over windows that cover images or volumes evenly, and their positions."""

    back_name = f"adaptive_max_pool{dims}d_backward"
    op = internal(
        pool,
        layout=indexed_layout,
        keeps={"places": 1},  # the maxima may be changed in place
        grads={"input": lambda g, places, input_shape: _added(g, places, input_shape, dims, back_name)},
        quirks=Quirks(label=f"AdaptiveMaxPool{dims}DBackward0"),
        name=f"adaptive_max{dims}d",
        batching="folded",
        aten=f"adaptive_max_pool{dims}d(input, list(sizes))",
    )
    op.on("any")(_adaptive_max)
    aten_only(back_name)(lambda grad, self, indices: add_at_positions(grad, indices, self.shape, dims))
    return op


_ADAPTIVE = {dims: _adaptive_op(dims) for dims in (2, 3)}


def _adaptive(name: str, input: Tensor, output_size: Any, dims: int) -> tuple[Tensor, Tensor]:
    sizes = adaptive_size(f"{name}(): internal error", input, output_size, dims)
    if len(input.shape) not in (dims + 1, dims + 2):
        raise RuntimeError(f"{name}(): Expected {dims + 1}D or {dims + 2}D tensor, but got: {list(input.shape)}")
    for i in range(1 if len(input.shape) == dims + 2 else 0, len(input.shape)):
        if input.shape[i] == 0:
            raise RuntimeError(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes"
                f" {list(input.shape)} with dimension {i} being empty"
            )
    need_dtype(name, input)
    return _ADAPTIVE[dims](input, sizes)


def _adaptive_signal(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    name = "adaptive_max_pool1d"
    check_signal(name, input)
    size = adaptive_size(name, input, output_size, 1)
    values, indices = _adaptive("adaptive_max_pool2d", input.unsqueeze(-2), (1, *size), 2)
    return values.squeeze(-2), indices.squeeze(-2)


def _adaptive_pooling(dims: int) -> Any:
    """Declare adaptive_max_pool and its relatives over `dims` dimensions; return nn.functional's."""
    name = f"adaptive_max_pool{dims}d"

    def run(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
        return _adaptive_signal(input, output_size) if dims == 1 else _adaptive(name, input, output_size, dims)

    def pool(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        result = run(input, output_size)
        return result if return_indices else result[0]

    def pool_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> tuple[Tensor, Tensor]:
        return run(input, output_size)

    pool.__doc__ = f"The maxima of windows that cover {_COVERED[dims]} evenly."
    pool_with_indices.__doc__ = f"{name} together with the positions of the maxima."
    declared: dict[str, Any] = {"method": False, "namespaces": _FUNCTIONAL, "batching": "pooled"}
    declared["autocast"] = "float32" if dims == 3 else None
    both = f"{name}(input, filled(output_size, input)"
    back = f"{name}_backward(grad, self, result1)" if dims > 1 else ""
    composite(pool_with_indices, name=f"{name}_with_indices", aten=f"{both})", aten_backward=back, **declared)
    return composite(pool, name=name, aten=(f"{both}, return_indices=True)", f"{both})[0]"), **declared)


_COVERED = {1: "a signal", 2: "images", 3: "volumes"}
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = map(_adaptive_pooling, (1, 2, 3))


@composite(method=False, name="adaptive_max_pool1d", batching="pooled")
def torch_adaptive_max_pool1d(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    """The maxima of windows that cover a signal evenly, and their positions."""
    return _adaptive_signal(input, output_size)


# -- fractional -----------------------------------------------------------------------------------------------------------


def _random_starts(sample: np.ndarray, size: int, count: int, kernel: int) -> np.ndarray:
    """Return where `count` windows start, for each random number in [0, 1): steps of two neighbouring lengths in random order,
    the last window ending at the border."""
    starts = np.full((len(sample), count), size - kernel, np.int64)
    if count > 1:
        pace = sample.dtype.type((size - kernel) / (count - 1))
        shifted = (np.arange(count - 1, dtype=sample.dtype) + sample[:, None]) * pace
        starts[:, :-1] = shifted.astype(np.int64) - (sample * pace).astype(np.int64)[:, None]
        if starts.min(initial=0) < 0 or starts.max(initial=0) > size - kernel:
            raise RuntimeError("Expect _random_samples to lie in [0, 1): these put windows outside the input")
    return starts


def _fractional_layout(input: Tensor, widths: tuple[int, ...], sizes: tuple[int, ...], samples: Tensor) -> list[Any]:
    shape = (*input.shape[: len(input.shape) - len(sizes)], *sizes)
    return [(shape, input.dtype, input.device), (shape, dt.int64, input.device)]


def _fractional(
    out: list[Tensor], input: Tensor, widths: tuple[int, ...], sizes: tuple[int, ...], samples: Tensor
) -> None:
    dims = len(sizes)
    wide = samples.to(dt.float32) if samples.dtype in (dt.float16, dt.bfloat16) else samples
    numbers = wide._array().reshape(-1, dims)
    if dims == 2:
        numbers = numbers[:, ::-1]  # for images the first number is that of the columns
    table = [np.broadcast_to(row, (len(numbers), 1)) for part in _whole(dims) for row in part]
    for d in range(dims):
        table.append(_random_starts(numbers[:, d], input.shape[len(input.shape) - dims + d], sizes[d], widths[d]))
        table.append(np.full((len(numbers), sizes[d]), widths[d]))
    pool_by_table(out[0], out[1], input, np.ascontiguousarray(np.concatenate(table, axis=1), np.int64), (1,) * dims)


def _fractional_op(dims: int) -> Any:
    def pool(input: Tensor, widths: tuple[int, ...], sizes: tuple[int, ...], samples: Tensor) -> Any:
        """Maxima over windows at random places in images or volumes, and their positions."""

    back_name = f"fractional_max_pool{dims}d_backward"
    op = internal(
        pool,
        layout=_fractional_layout,
        keeps={"places": 1},  # the maxima may be changed in place
        grads={
            "input": lambda g, places, input_shape, widths, sizes: _added(
                g, places, input_shape, dims, back_name, widths, sizes
            )
        },
        quirks=Quirks(label=f"FractionalMaxPool{dims}DBackward0"),
        name=f"fractional_max{dims}d",
        aten=f"fractional_max_pool{dims}d(input, list(widths), list(sizes), samples)",
        aten_backward=f"{back_name}(grad, self, kernel_size, output_size, result1)",
        batching="each",
    )
    aten_only(f"fractional_max_pool{dims}d")(
        lambda self, kernel_size, output_size, samples: _fractional_pool(
            self, kernel_size, output_size, None, samples, dims
        )
    )
    aten_only(back_name)(
        lambda grad, self, kernel_size, output_size, indices: add_at_positions(grad, indices, self.shape, dims)
    )
    op.on("cpu")(_fractional)
    return op


_FRACTIONAL = {dims: _fractional_op(dims) for dims in (2, 3)}
_SIDES = {2: ("height", "width"), 3: ("time", "height", "width")}


def _each(value: Any, dims: int, name: str, argument: str, position: int) -> tuple[int, ...]:
    """Return a number for each dimension, given as one int or as `dims` of them; a list of one is refused, unlike in `spread`."""
    if isinstance(value, (tuple, list)) and len(value) != dims:
        few = "" if dims == 2 else "three "
        raise RuntimeError(f"{name}: {argument} must either be a single Int or tuple of {few}Ints")
    return spread(value, dims, name, argument, position)


def _fractional_pool(
    input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any, dims: int
) -> tuple[Tensor, Tensor]:
    name = f"fractional_max_pool{dims}d"
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    if len(input.shape) not in (dims + 1, dims + 2):
        raise RuntimeError(f"{name}(): Expected {dims + 1}D or {dims + 2}D tensor, but got: {list(input.shape)}")
    kernel = _each(kernel_size, dims, name, "kernel_size", 2)
    if output_size is None:
        ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * dims
        if len(ratios) > dims:
            raise ValueError(f"{name} requires output_ratio to either be a single Int or tuple of Ints.")
        if len(ratios) != dims or not all(0 < r < 1 for r in ratios):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
        output_size = [int(n * r) for n, r in zip(input.shape[-dims:], ratios)]
    sizes = _each(output_size, dims, name, "output_size", 3)
    if 0 in input.shape[-dims - 1 :]:
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but got {list(input.shape)}"
        )
    for side, n, count, k in zip(_SIDES[dims], input.shape[-dims:], sizes, kernel):
        if count < 0 or k <= 0:
            raise RuntimeError(f"{name}(): kernel and output {side} must be positive, but got {k} and {count}")
        if count + k - 1 > n - (dims == 3):  # PyTorch leaves a plane over here
            raise RuntimeError(f"{name}(): pool {side} {k} too large relative to input {side} {n}")
    need_dtype(f"{name}_out_frame", input)
    return _FRACTIONAL[dims](input, kernel, sizes, _samples(input, samples, dims))


def _samples(input: Tensor, samples: Any, dims: int) -> Tensor:
    batch = input.shape[0] if len(input.shape) == dims + 2 else 1
    channels = input.shape[-dims - 1]
    if samples is None:
        return rand(batch, channels, dims, dtype=input.dtype, device=input.device)
    if samples.dtype is not input.dtype:
        raise RuntimeError("Expect _random_samples to have the same dtype as input")
    if len(samples.shape) != 3:
        raise RuntimeError(f"Expect _random_samples to have 3 dimensions, got {len(samples.shape)}")
    if samples.shape[0] < batch:
        raise RuntimeError("Expect _random_samples.size(0) no less then input batch size.")
    if samples.shape[1] != channels:
        raise RuntimeError("Expect _random_samples.size(1) equals to input channel size.")
    if samples.shape[2] != dims:
        raise RuntimeError(f"Expect _random_samples.size(2) equals to {dims}; got {samples.shape[2]}.")
    return samples[:batch].detach()


def _fractional_pooling(dims: int) -> Any:
    """Declare fractional_max_pool and its form with indices over `dims` dimensions; return the first."""
    name = f"fractional_max_pool{dims}d"

    def twin(always: bool) -> Any:
        def pool(
            input: Tensor,
            kernel_size: Any,
            output_size: Any = None,
            output_ratio: Any = None,
            return_indices: bool = False,
            _random_samples: Any = None,
        ) -> Tensor | tuple[Tensor, Tensor]:
            result = _fractional_pool(input, kernel_size, output_size, output_ratio, _random_samples, dims)
            return result if always or return_indices else result[0]

        return pool

    pool, pool_with_indices = twin(False), twin(True)
    pool.__doc__ = f"The maxima of windows that lie at random places in {_COVERED[dims]}."
    pool_with_indices.__doc__ = f"{name} together with the positions of the maxima."
    pool_with_indices.__annotations__["return"] = "tuple[Tensor, Tensor]"
    declared: dict[str, Any] = {"method": False, "namespaces": _FUNCTIONAL, "autocast": "float32"}
    composite(pool_with_indices, name=f"{name}_with_indices", **declared)
    return composite(pool, name=name, **declared)


fractional_max_pool2d, fractional_max_pool3d = map(_fractional_pooling, (2, 3))


# -- unpooling ------------------------------------------------------------------------------------------------------------


def _unpool_op(dims: int) -> Any:
    def unpool(input: Tensor, indices: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Zeros of `shape` with the elements of input at their positions in each plane or volume."""

    def layout(input: Tensor, indices: Tensor, shape: tuple[int, ...]) -> tuple[Any, ...]:
        return layout_in_format_of(input, shape) if dims == 2 else (shape, input.dtype, input.device)

    op = internal(
        unpool,
        layout=layout,
        grads={"input": lambda g, indices: take_positions(g, indices, dims)},
        quirks=Quirks(label=f"MaxUnpool{dims}DBackward0"),
        name=f"unpool{dims}d",
        batching=Batched("folded", shape="shape"),
    )
    further = ([1] * 3, [0] * 3) if dims == 3 else ()  # a window, which decides nothing

    @op.op.as_aten
    def _(recorder: Any, input: Tensor, indices: Tensor, shape: tuple[int, ...]) -> Tensor:
        return getattr(recorder.aten, f"max_unpool{dims}d").default(input, indices, list(shape[-dims:]), *further)

    op.on("any")(lambda out, input, indices, shape: place_values(out, input, indices, dims, False))
    return op


_UNPOOL = {dims: _unpool_op(dims) for dims in (2, 3)}


def _unpooled_size(
    input: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...], output_size: Any
) -> tuple[int, ...]:
    """Return the size that pooling may have come from; a given one must not differ from it by more than a stride."""
    dims = len(kernel)
    usual = tuple((n - 1) * s + k - 2 * p for n, s, k, p in zip(input.shape[-dims:], stride, kernel, padding))
    if output_size is None:
        return usual
    wanted = tuple(output_size)
    if len(wanted) == dims + 2:
        wanted = wanted[2:]
    if len(wanted) != dims:
        raise ValueError(
            f"output_size should be a sequence containing {dims} or {dims + 2} elements, but it has a length of"
            f" '{len(wanted)}'"
        )
    lowest = [n - s for n, s in zip(usual, stride)]
    highest = [n + s for n, s in zip(usual, stride)]
    if not all(low < n < high for low, n, high in zip(lowest, wanted, highest)):
        raise ValueError(f'invalid output_size "{list(wanted)}" (dim 0 must be between {lowest[0]} and {highest[0]})')
    return wanted


def _check_unpool(input: Tensor, indices: Tensor, dims: int) -> None:
    if not isinstance(indices, Tensor) or indices.dtype is not dt.int64:
        found = indices.dtype.scalar_type if isinstance(indices, Tensor) else type(indices).__name__
        raise RuntimeError(f"elements in indices should be type int64 but got: {found}")
    if len(input.shape) not in (dims + 1, dims + 2):
        raise RuntimeError(
            f"Input to max_unpooling{dims}d should be a {dims + 1}d or {dims + 2}d Tensor, but got a tensor with"
            f" {len(input.shape)} dimensions"
        )
    if input.shape != indices.shape:
        raise RuntimeError(
            f"Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) but got indices tensor"
            f" with shape: {list(indices.shape)}"
        )
    if numel_of(input.shape[1 if len(input.shape) == dims + 2 else 0 :]) == 0:
        raise RuntimeError(
            f"max_unpooling{dims}d(): Expected input to have non-zero size for non-batch dimensions, but got input with shape"
            f" {list(input.shape)}"
        )
    need_dtype(f"max_unpool{dims}d", input, integers=True)


def _unpool(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any, padding: Any, output_size: Any, dims: int
) -> Tensor:
    name = f"max_unpool{dims}d"
    kernel, steps, pads, _, _ = read_window(name, dims, kernel_size, stride, padding)
    if min(steps) <= 0 and dims == 3:
        raise RuntimeError(f"strides should be greater than zero, but got stride: {list(steps)}")
    sizes = _unpooled_size(input, kernel, steps, pads, output_size)
    if dims == 1:
        _check_unpool_ranks(input, indices)
        flat, where = input.unsqueeze(-1), indices.unsqueeze(-1)
        _check_unpool(flat, where, 2)
        shape = make_size((*input.shape[:-1], *sizes, 1))
        return _UNPOOL[2](flat, where, shape).squeeze(-1)
    _check_unpool(input, indices, dims)
    return _UNPOOL[dims](input, indices, make_size((*input.shape[:-dims], *sizes)))


def _check_unpool_ranks(input: Tensor, indices: Any) -> None:
    if len(input.shape) not in (2, 3) or not isinstance(indices, Tensor) or not indices.shape:
        raise RuntimeError(
            f"Input to max_unpooling1d should be a 2d or 3d Tensor, but got a tensor with {len(input.shape)} dimensions"
        )


def _unpooling(dims: int) -> Any:
    def unpool(
        input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> Tensor:
        return _unpool(input, indices, kernel_size, stride, padding, output_size, dims)

    unpool.__doc__ = f"Put the maxima that max_pool{dims}d found back where they came from, zeros elsewhere."
    made = composite(unpool, name=f"max_unpool{dims}d", method=False, namespaces=_FUNCTIONAL, autocast="float32")
    made.op.as_aten(lambda recorder, *args, **kwargs: recorder.again(made, args, kwargs))
    return made


max_unpool1d, max_unpool2d, max_unpool3d = map(_unpooling, (1, 2, 3))
