"""unfold and fold: images as columns of sliding blocks, and back. Each is the derivative of the other."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.dtype import opmath
from ...core.tensor import Tensor, empty, numel_of
from ...kernels.library import fold as kernels
from ..machinery.arguments import as_ints, is_int
from ..machinery.declare import composite, internal
from ..machinery.dtype_rules import unsupported
from ..machinery.inplace import raw_copy
from ..machinery.memory import bare
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
from ..shape.complex_views import view_as_complex, view_as_real
from ..shape.joining import stack
from .conv import output_size
from .windows import Window

_FUNCTIONAL = ("nn.functional",)


def _pair(value: Any, name: str, argument: str, position: int) -> tuple[int, ...]:
    if is_int(value):
        return (int(value),) * 2
    values = as_ints(value, name, argument, position)
    if len(values) != 2:
        raise RuntimeError(f"It is expected {argument} equals to 2, but got size {len(values)}")
    return values


def _read(name: str, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Window:
    window = Window(
        _pair(kernel_size, name, "kernel_size", 2),
        _pair(stride, name, "stride", 5),
        _pair(padding, name, "padding", 4),
        _pair(dilation, name, "dilation", 3),
    )
    for values, word, sides in (
        (window.kernel, "kernel size", "kernel"),
        (window.dilation, "dilation", "dilation"),
        (window.stride, "stride", "stride"),
    ):
        if min(values) <= 0:
            shown = f"{sides}_height: {values[0]} {sides}_width: {values[1]}"
            raise RuntimeError(f"{word} should be greater than zero, but got {shown}")
    if min(window.padding) < 0:
        shown = f"pad_height: {window.padding[0]} pad_width: {window.padding[1]}"
        raise RuntimeError(f"padding should be non-negative, but got {shown}")
    return window


def _blocks(sizes: tuple[int, ...], window: Window) -> tuple[int, int]:
    """Return the number of blocks down and across."""
    pads = tuple((p, p) for p in window.padding)
    rows, columns = output_size(sizes, window.kernel, (window.stride, pads, window.dilation, 1))
    return rows, columns


def _geometry(sizes: tuple[int, ...], window: Window) -> tuple[int, ...]:
    return (*sizes, *_blocks(sizes, window), *window.kernel, *window.stride, *window.padding, *window.dilation)


@internal(
    grads={"input": lambda g, input_shape, window: columns_to_images(g, input_shape[-2:], window)},
    quirks=Quirks(label="Im2ColBackward0"),
    batching="folded",
)
def images_to_columns(input: Tensor, window: Window) -> NewTensor:
    """Every block of images (..., C, H, W) as a column (..., C * kh * kw, blocks)."""
    *lead, channels, h, w = input.shape
    rows, columns = _blocks((h, w), window)
    return (*lead, channels * window.kernel[0] * window.kernel[1], rows * columns), input.dtype, input.device


def _window_in_aten(window: Window) -> list[list[int]]:
    return [list(part) for part in (window.kernel, window.dilation, window.padding, window.stride)]


@images_to_columns.op.as_aten
def _(recorder: Any, input: Tensor, window: Window) -> Tensor:
    return recorder.aten.im2col.default(input, *_window_in_aten(window))


@images_to_columns.on("any")
def _(out: Tensor, input: Tensor, window: Window) -> None:
    kernels.unfold_planes(out, bare(input), numel_of(input.shape[:-2]), *_geometry(tuple(input.shape[-2:]), window))


@internal(
    grads={"input": lambda g, window: images_to_columns(g, window)},
    quirks=Quirks(label="Col2ImBackward0"),
    batching="folded",
)
def columns_to_images(input: Tensor, sizes: tuple[int, ...], window: Window) -> NewTensor:
    """The transpose of images_to_columns: images of `sizes` in which overlapping blocks are added."""
    *lead, rows, _ = input.shape
    channels = rows // (window.kernel[0] * window.kernel[1])
    return (*lead, channels, *sizes), input.dtype, input.device


@columns_to_images.op.as_aten
def _(recorder: Any, input: Tensor, sizes: tuple[int, ...], window: Window) -> Tensor:
    return recorder.aten.col2im.default(input, list(sizes), *_window_in_aten(window))


@columns_to_images.on("any")
def _(out: Tensor, input: Tensor, sizes: tuple[int, ...], window: Window) -> None:
    kept = dt.uint8 if out.dtype is dt.bool_ else opmath(out.dtype)
    target = out if kept is out.dtype else empty(out.shape, kept, out.device)
    kernels.fold_planes(target, bare(input), numel_of(out.shape[:-2]), *_geometry(tuple(sizes), window))
    if target is not out:
        raw_copy(out, target)


def _by_parts(operator: Any, input: Any, *rest: Any) -> Tensor:
    """Apply a linear operator to a complex tensor: to its real and imaginary parts."""
    parts = view_as_real(input.resolve_conj())
    return view_as_complex(stack([operator(parts.select(-1, i), *rest) for i in range(2)], -1))


def _need_dtype(kernel: str, input: Tensor) -> None:
    if input.dtype.category == 1:
        raise unsupported(f"{kernel}", input.dtype)


@composite(method=False, namespaces=_FUNCTIONAL, aten="im2col(input, kernel_size, dilation, padding, stride)")
def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Sliding blocks of images (N, C, H, W) as columns (N, C * kh * kw, blocks)."""
    if len(input.shape) < 3:
        raise IndexError(
            f"unfold: Expected 3D or 4D (batch mode) tensor for input, but got: {list(input.shape)} (dimension out of range)"
        )
    window = _read("im2col", kernel_size, dilation, padding, stride)
    if len(input.shape) > 4 or 0 in input.shape[-3:]:
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but"
            f" got: {list(input.shape)}"
        )
    sizes = tuple(input.shape[-2:])
    blocks = _blocks(sizes, window)
    if min(blocks) < 1:
        raise RuntimeError(
            f"Given input with spatial size {sizes}, kernel_size={window.kernel}, dilation={window.dilation},"
            f" padding={window.padding}, calculated shape of the array of sliding blocks as {blocks}, but its components must"
            " be at least one."
        )
    _need_dtype("im2col_out_cpu", input)
    if input.dtype.is_complex:
        return _by_parts(images_to_columns, input, window)
    return images_to_columns(input, window)


@composite(
    method=False, namespaces=_FUNCTIONAL, aten="col2im(input, output_size, kernel_size, dilation, padding, stride)"
)
def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Images (N, C, H, W) of `output_size` from columns of sliding blocks (N, C * kh * kw, blocks), overlaps added."""
    window = _read("col2im", kernel_size, dilation, padding, stride)
    sizes = _pair(output_size, "col2im", "output_size", 2)
    _check_columns(input, sizes, window)
    _need_dtype("col2im_out_cpu", input)
    if input.dtype.is_complex:
        return _by_parts(columns_to_images, input, sizes, window)
    return columns_to_images(input, sizes, window)


def _check_columns(input: Tensor, sizes: tuple[int, ...], window: Window) -> None:
    if len(input.shape) not in (2, 3) or 0 in input.shape[-2:]:
        raise RuntimeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for input, but"
            f" got: {list(input.shape)}"
        )
    d = len(input.shape) - 2
    rows, columns = input.shape[-2:]
    if rows % (window.kernel[0] * window.kernel[1]):
        raise RuntimeError(
            f"Expected size of input's dimension {d} to be divisible by the product of kernel_size, but got"
            f" input.size({d})={rows} and kernel_size={window.kernel}."
        )
    down, across = _blocks(sizes, window)
    if down * across != columns or min(down, across) < 1:
        raise RuntimeError(
            f"Given output_size={sizes}, kernel_size={window.kernel}, dilation={window.dilation}, padding={window.padding},"
            f" stride={window.stride}, expected size of input's dimension {d + 1} to match the calculated number of sliding"
            f" blocks {down} * {across} = {down * across}, but got input.size({d + 1})={columns}."
        )
