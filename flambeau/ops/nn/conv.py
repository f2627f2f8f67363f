"""Convolutions of one to three dimensions, and their transposes.

Three operations are enough, each the derivative of the others: the convolution itself, its gradient with respect to the input (which is also
the transposed convolution), and its gradient with respect to the weight. A fourth computes all gradients in one pass if they are not
differentiated again.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ...backends.cpu import heavy
from ...core import dtype as dt
from ...core.caching import remember
from ...core.graph import grad_mode
from ...core.layout import channels_last_strides, has_internal_overlap, suggests_channels_last
from ...core.tensor import Tensor, empty
from ...kernels.library.fold import block_rows
from ..creation.filled import fill_raw
from ..machinery import work
from ..machinery.declare import composite, internal
from ..machinery.inplace import raw_copy
from ..machinery.memory import dense, is_last
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, NewTensors
from ..machinery.together import in_place_of, together, wanted_of
from .conv_arguments import Window, as_sizes, call_key, check_channels, check_operands, known_windows, read_window

_LARGE_WEIGHT, _SMALL_MAP, _MOST_BLOCKS = 1 << 20, 49, 1 << 23  # elements


@lru_cache(1024)
def output_size(shape: tuple[int, ...], kernel: tuple[int, ...], window: Window) -> tuple[int, ...]:
    stride, padding, dilation, _ = window
    return tuple(
        (n + low + high - d * (k - 1) - 1) // s + 1
        for n, k, s, (low, high), d in zip(shape, kernel, stride, padding, dilation)
    )


def input_size(shape: tuple[int, ...], kernel: tuple[int, ...], window: Window) -> tuple[int, ...]:
    """Return the smallest sizes whose `output_size` is `shape`: those of a transposed convolution's result."""
    stride, padding, dilation, _ = window
    return tuple(
        (n - 1) * s - low - high + d * (k - 1) + 1
        for n, k, s, (low, high), d in zip(shape, kernel, stride, padding, dilation)
    )


@lru_cache(1024)
def _output_shape(shape: tuple[int, ...], weight: tuple[int, ...], window: Window) -> tuple[int, ...]:
    return (int(shape[0]), int(weight[0]), *output_size(shape[2:], weight[2:], window))


def _like(shape: tuple[int, ...], like: Tensor, weight: Tensor | None = None) -> tuple[Any, ...]:
    """Return the layout of a result in the memory format of `like`: channels last if the weight's are, too."""
    if suggests_channels_last(like.shape, like._strides) or (
        weight is not None and suggests_channels_last(weight.shape, weight._strides)
    ):
        return shape, like.dtype, like.device, channels_last_strides(shape)
    return shape, like.dtype, like.device


# -- the operations -------------------------------------------------------------------------------------------------------


def _conj(t: Any) -> Any:
    """Return the conjugate of a complex operand, which the gradients of complex convolutions need."""
    return t.conj().resolve_conj() if t.dtype.is_complex else t


def _conv_grads(
    g: Tensor, input: Tensor, weight: Tensor, bias: Any, window: Window, needs: dict[str, bool]
) -> tuple[Any, ...]:
    if grad_mode.enabled or input.dtype.is_complex:  # the gradients will be differentiated again, or need conjugates
        return together(
            conv_input_grad(g, _conj(weight), input.shape, window) if needs["input"] else None,
            conv_weight_grad(_conj(input), g, weight.shape, window) if needs["weight"] else None,
            _bias_grad(g) if needs["bias"] else None,
        )
    if 0 in g._strides and has_internal_overlap(g.shape, g._strides):
        g = g.contiguous()  # the gradient of a mean or a sum: the library needs every element at an address of its own
    # Of the library's own gradients, the bias's comes with the weight's; alone it is a sum.
    wants = (needs["input"], needs["weight"], needs["bias"] and needs["weight"])
    found = iter(conv_grads(g, input, weight, window, wants) if any(wants) else ())
    dx, dw, db = [next(found) if wanted else None for wanted in wants]
    return dx, dw, _bias_grad(g) if needs["bias"] and db is None else db


def _bias_grad(g: Tensor) -> Tensor:
    return g.sum([0, *range(2, len(g.shape))])


@internal(
    convolution=lambda input, weight, bias, window: ({"x": input, "w": weight, "bias": bias}, ("y",), window),
    grads={("input", "weight", "bias"): _conv_grads},
    quirks=Quirks(label="ConvolutionBackward0", saved_as_input=True),
    aten="convolution",
    flops=work.convolution,
    sharding="convolution",
)
def conv_forward(input: Tensor, weight: Tensor, bias: Tensor | None, window: Window) -> NewTensor:
    """The convolution of input with weight, plus bias."""
    return _like(_output_shape(input.shape, weight.shape, window), input, weight)


def _window_in_aten(window: Any) -> list[Any] | None:
    """Return a window in the form of PyTorch's operators; None if the two ends are padded differently, which they cannot express."""
    stride, padding, dilation, groups = window
    if any(low != high for low, high in padding):
        return None
    return [list(stride), [low for low, _ in padding], list(dilation), False, [0] * len(stride), groups]


@conv_forward.op.as_aten
def _(recorder: Any, input: Tensor, weight: Tensor, bias: Any, window: Any) -> Any:
    given = _window_in_aten(window)
    return NotImplemented if given is None else recorder.aten.convolution.default(input, weight, bias, *given)


@conv_forward.on("cpu")
def _(out: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None, window: Window) -> None:
    if 0 in input.shape or 0 in weight.shape:
        raw_copy(out, 0 if bias is None else bias.reshape(-1, *(1,) * (len(out.shape) - 2)))
    else:
        heavy.conv_forward(out, input, weight, bias if bias is None or bias._contig else bias.contiguous(), *window)


def _as_gradients(dy: Any, input: Any, weight: Any, window: Window, wants: tuple[bool, bool, bool]) -> tuple[Any, ...]:
    """Describe the gradients of a convolution by its parts (see `Op.convolution`)."""
    names = [name for name, wanted in zip(("dx", "dw", "db"), wants) if wanted]
    return {"dy": dy, "x": input, "w": weight}, names, window


@internal(
    convolution=_as_gradients,
    returns=tuple,
    sums=True,
    batching="each",
    aten="convolution_backward",
    flops=work.convolution_gradients,
)
def conv_grads(dy: Tensor, input: Tensor, weight: Tensor, window: Window, wants: tuple[bool, bool, bool]) -> NewTensors:
    """The gradients of a convolution with respect to input, weight and bias, as far as wanted, in one pass over dy."""
    every = (
        _like(input.shape, input, weight),
        _like(weight.shape, weight),
        ((weight.shape[0],), weight.dtype, weight.device),
    )
    return [layout for layout, wanted in zip(every, wants) if wanted]


@conv_grads.op.as_aten
def _(recorder: Any, dy: Tensor, input: Tensor, weight: Tensor, window: Any, wants: tuple[bool, bool, bool]) -> Any:
    given, sizes = _window_in_aten(window), [weight.shape[0]] if wants[2] else None
    if given is None:
        return NotImplemented
    found = recorder.aten.convolution_backward.default(dy, input, weight, sizes, *given, list(wants))
    return tuple(wanted_of(found, wants))


@conv_grads.on("cpu")
def _(
    out: list[Tensor], dy: Tensor, input: Tensor, weight: Tensor, window: Window, wants: tuple[bool, bool, bool]
) -> None:
    dx, dw, db = in_place_of(wants, out)
    by_product = dw is not None and _is_large_for_its_maps(dw, dy, input, window)
    if by_product:
        _weight_grad_by_product(dw, dy, input, window)
        if db is not None:
            raw_copy(db, _bias_grad(dy))
    if dx is not None or not by_product:
        left = (None, None) if by_product else (dw, db)
        heavy.conv_backward(dx, left[0], left[1], dy, input, weight, *window)


def _is_large_for_its_maps(dw: Tensor, dy: Tensor, input: Tensor, window: Window) -> bool:
    """Return whether the gradient of a weight is computed as a product of two matrices rather than by the library: it is too large for the
    caches, and the library would read it again for every row of small feature maps (measured: half the time for 512 channels of 4x4)."""
    return (
        len(dw.shape) == 4
        and dw.dtype is dt.float32
        and window[3] == 1
        and dw.shape[2] * dw.shape[3] > 1
        and dw.numel() >= _LARGE_WEIGHT
        and dw.is_contiguous()
        and all(t.is_contiguous() or is_last(t) for t in (input, dy))
        and dy.shape[2] * dy.shape[3] <= _SMALL_MAP
        and dy.numel() // dy.shape[1] * (dw.numel() // dw.shape[0]) <= _MOST_BLOCKS
        and heavy.onednn_enabled()
    )


def _weight_grad_by_product(dw: Tensor, dy: Tensor, input: Tensor, window: Window) -> None:
    """Compute dw = dy, a row for each channel, times the blocks of the input under the window, a row for each place."""
    (batch, channels, *size), (outputs, _, *kernel) = input.shape, dw.shape
    stride, padding, dilation, _ = window
    places = dy.shape[2:]
    rows = batch * places[0] * places[1]
    blocks = empty((rows, dw.numel() // outputs), dw.dtype, dw.device)
    before = [low for low, _ in padding]
    block_rows(blocks, dense(input), batch, channels, *size, *places, *kernel, *stride, *before, *dilation)
    grads = empty((outputs, batch, rows // batch), dw.dtype, dw.device)
    raw_copy(
        grads, dy._view((outputs, batch, rows // batch), (dy._strides[1], dy._strides[0], dy._strides[3]), dy._offset)
    )
    heavy.matmul(_as_matrix(dw, outputs), _as_matrix(grads, outputs), blocks)


def _as_matrix(t: Tensor, rows: int) -> Tensor:
    columns = t.numel() // rows
    return t._view((rows, columns), (columns, 1), t._offset)


@internal(
    grads={
        "dy": lambda g, weight, window: conv_forward(g, _conj(weight), None, window),
        "weight": lambda g, dy, weight_shape, window: conv_weight_grad(g, _conj(dy), weight_shape, window),
    },
    convolution=lambda dy, weight, shape, window: ({"dy": dy, "w": weight}, ("dx",), window),
    sums=True,
    quirks=Quirks(label="ConvolutionBackward0", saved_as_input=True),
    aten="convolution_backward",
    flops=work.convolution_input_gradient,
)
def conv_input_grad(dy: Tensor, weight: Tensor, shape: tuple[int, ...], window: Window) -> NewTensor:
    """The gradient of a convolution with respect to an input of `shape`: the transposed convolution of dy with the weight."""
    return _like(tuple(shape), dy)


@conv_input_grad.on("cpu")
def _(out: Tensor, dy: Tensor, weight: Tensor, shape: tuple[int, ...], window: Window) -> None:
    heavy.conv_backward_input(out, dy, weight, *window)


@internal(
    grads={
        "input": lambda g, input_shape, dy, window: conv_input_grad(_conj(dy), g, input_shape, window),
        "dy": lambda g, input, window: conv_forward(_conj(input), g, None, window),
    },
    convolution=lambda input, dy, shape, window: ({"x": input, "dy": dy}, ("dw",), window),
    sums=True,
    quirks=Quirks(label="ConvolutionBackward0", saved_as_input=True),
    aten="convolution_backward",
    flops=work.convolution_weight_gradient,
)
def conv_weight_grad(input: Tensor, dy: Tensor, shape: tuple[int, ...], window: Window) -> NewTensor:
    """The gradient of a convolution with respect to a weight of `shape`: input correlated with dy."""
    return tuple(shape), input.dtype, input.device


@conv_weight_grad.on("cpu")
def _(out: Tensor, input: Tensor, dy: Tensor, shape: tuple[int, ...], window: Window) -> None:
    heavy.conv_backward_weight(out, None, dy, input, *window)


def _transpose_grads(
    g: Tensor, input: Tensor, weight: Tensor, bias: Any, window: Window, needs: dict[str, bool]
) -> tuple[Any, ...]:
    wants = (needs["input"], needs["weight"], needs["bias"])
    parts = conv_transpose_grads(g, _conj(input), _conj(weight), window, wants)
    return together(*parts) if grad_mode.enabled else parts


@composite(function=False, method=False)
def conv_transpose_grads(
    dy: Tensor, input: Tensor, weight: Tensor, window: Window, wants: tuple[bool, bool, bool]
) -> tuple[Tensor | None, ...]:
    """The gradients of a transposed convolution with respect to input, weight and bias, None for those that are not wanted."""
    return (
        conv_forward(dy, weight, None, window) if wants[0] else None,
        conv_weight_grad(dy, input, weight.shape, window) if wants[1] else None,
        _bias_grad(dy) if wants[2] else None,
    )


@conv_transpose_grads.op.as_aten
def _(recorder: Any, dy: Tensor, input: Tensor, weight: Tensor, window: Any, wants: tuple[bool, bool, bool]) -> Any:
    sizes = [dy.shape[1]] if wants[2] else None
    backward = recorder.aten.convolution_backward.default
    return tuple(backward(dy, input, weight, sizes, *_transposed_in_aten(window), list(wants)))


def _transposed_in_aten(window: Any) -> list[Any]:
    """Return the window of a transposed convolution in the form of PyTorch's operators."""
    stride, padding, dilation, groups = window
    extra = [low - high for low, high in padding]  # what the result has more at its end
    return [list(stride), [low for low, _ in padding], list(dilation), True, extra, groups]


@internal(
    convolution=lambda input, weight, bias, shape, window: (
        ({"dy": input, "w": weight}, ("dx",), window) if bias is None else None
    ),
    grads={("input", "weight", "bias"): _transpose_grads},
    quirks=Quirks(label="ConvolutionBackward0", saved_as_input=True),
    aten="convolution",
    flops=work.transposed_convolution,
)
def conv_transpose_forward(
    input: Tensor, weight: Tensor, bias: Tensor | None, shape: tuple[int, ...], window: Window
) -> NewTensor:
    """The transposed convolution of input, with a result of `shape`."""
    return _like(tuple(shape), input)


@conv_transpose_forward.op.as_aten
def _(recorder: Any, input: Tensor, weight: Tensor, bias: Any, shape: tuple[int, ...], window: Any) -> Any:
    return recorder.aten.convolution.default(input, weight, bias, *_transposed_in_aten(window))


@conv_transpose_forward.on("cpu")
def _(out: Tensor, input: Tensor, weight: Tensor, bias: Tensor | None, shape: tuple[int, ...], window: Window) -> None:
    if 0 in input.shape or 0 in weight.shape:
        fill_raw(out, 0)
    else:
        heavy.conv_backward_input(out, input, weight, *window)
    if bias is not None:
        out.add_(bias.reshape(-1, *(1,) * (len(shape) - 2)))


def _convolve(
    name: str,
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    key = call_key(name, input, weight, bias, (stride, padding, dilation, groups))
    if key is not None and key in known_windows:
        return conv_forward(input, weight, bias, known_windows[key])
    check_operands(name, input, weight, bias, dims)
    window = read_window(dims, weight.shape[2:], stride, padding, dilation, groups)
    batched = check_channels(name, input, weight, bias, dims, groups, False)
    x = input if batched else input.unsqueeze(0)
    sizes = output_size(x.shape[2:], weight.shape[2:], window)
    if any(n <= 0 for n in sizes):
        padded = " x ".join(str(n + low + high) for n, (low, high) in zip(x.shape[2:], window[1]))
        effective = " x ".join(str(d * (k - 1) + 1) for k, d in zip(weight.shape[2:], window[2]))
        raise RuntimeError(
            f"Calculated padded input size per channel: ({padded}). Kernel size: ({effective}). Kernel size can't be greater than actual"
            " input size"
        )
    out: Any = conv_forward(x, weight, bias, window)
    if key is not None and batched and x.shape[1]:
        remember(known_windows, key, window)
    if not x.shape[1]:
        out = out.narrow(1, 0, 0)  # PyTorch makes no channels of none, whatever the weight says
    return out if batched else out.squeeze(0)


def _transpose(
    name: str,
    dims: int,
    input: Tensor,
    weight: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    check_operands(name, input, weight, bias, dims)
    stride, pads, dilation, _ = read_window(dims, weight.shape[2:], stride, padding, dilation, groups)
    batched = check_channels(name, input, weight, bias, dims, groups, True)
    extra = as_sizes(output_padding, dims, "output_padding")
    for p, s, d in zip(extra, stride, dilation):
        if p < 0:
            raise RuntimeError("negative output_padding is not supported")
        if p >= s and p >= d:
            raise RuntimeError(
                f"output padding must be smaller than either stride or dilation, but got output_padding: {list(extra)} stride: {list(stride)} dilation: {list(dilation)}"
            )
    x = input if batched else input.unsqueeze(0)
    window = (stride, tuple((low, high - e) for (low, high), e in zip(pads, extra)), dilation, groups)
    sizes = input_size(x.shape[2:], weight.shape[2:], window)
    if any(n <= 0 for n in sizes):
        raise RuntimeError(
            f"Given input size per channel: {list(x.shape[2:])}. Calculated output size per channel: {list(sizes)}. Output size is too small"
        )
    shape = (x.shape[0], weight.shape[1] * groups, *sizes)
    out = conv_transpose_forward(x, weight, bias, shape, window)
    return out if batched else out.squeeze(0)


# -- the public functions ---------------------------------------------------------------------------------------------------

_BOTH = ("nn.functional", "torch")


_SIZES = {1: "L", 2: "H, W", 3: "D, H, W"}


def _convolution(dims: int) -> Any:
    name = f"conv{dims}d"

    def convolve(
        input: Tensor,
        weight: Tensor,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        return _convolve(name, dims, input, weight, bias, stride, padding, dilation, groups)

    convolve.__doc__ = f"Convolution of input (N, C, {_SIZES[dims]}) with a weight (O, C / groups, kernel sizes)."
    return composite(convolve, name=name, method=False, namespaces=_BOTH, autocast="lower")


def _transposed_convolution(dims: int) -> Any:
    name = f"conv_transpose{dims}d"

    def convolve(
        input: Tensor,
        weight: Tensor,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor:
        return _transpose(name, dims, input, weight, bias, stride, padding, output_padding, groups, dilation)

    convolve.__doc__ = (
        f"The transpose of conv{dims}d: input (N, C, {_SIZES[dims]}), weight (C, O / groups, kernel sizes)."
    )
    return composite(convolve, name=name, method=False, namespaces=_BOTH, autocast="lower")


conv1d, conv2d, conv3d = map(_convolution, (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_transposed_convolution, (1, 2, 3))


def _check_tbc(input: Tensor, weight: Tensor, bias: Tensor) -> None:
    if len(input.shape) != 3:
        raise RuntimeError("Input must have 3 dims: time, batch, in_channel")
    if len(weight.shape) != 3:
        raise RuntimeError("Weight tensor must have 3 dims: kernel_width, in_channels, out_channels.")
    if len(bias.shape) != 1:
        raise RuntimeError("Bias must be 1-D")
    if input.shape[2] != weight.shape[1]:
        raise RuntimeError("Input dim 2 (input channels) is not == dim 1 in the weight tensor")
    if weight.shape[2] != bias.shape[0]:
        raise RuntimeError("Bias size must equal dim 2 in the weight tensor (output channels).")


@composite(namespaces=_BOTH, autocast="lower")
def conv_tbc(input: Any, weight: Any, bias: Any, pad: int = 0) -> Tensor:
    """conv1d of sequences with time first: input (T, N, C), weight (K, C, O)."""
    _check_tbc(input, weight, bias)
    out: Any = conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return out.permute(2, 0, 1).contiguous()


@composite(
    method=False,
    aten_backward="convolution_backward(grad, input, weight, length(bias), stride, padding, dilation, transposed, output_padding, groups,"
    " needs(input, weight, bias))",
)
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """A convolution, or its transpose, over as many dimensions as the weight has beyond two."""
    dims = len(weight.shape) - 2
    if not 1 <= dims <= 3:
        raise RuntimeError(f"convolution: expected a weight of 3 to 5 dimensions, but got {len(weight.shape)}")
    if transposed:
        return _transpose("convolution", dims, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _convolve("convolution", dims, input, weight, bias, stride, padding, dilation, groups)
