"""Batch and instance normalisation."""

from __future__ import annotations

import math
from typing import Any

from ...core.caching import remember
from ...core.dtype import float32, opmath
from ...core.graph import grad_mode
from ...core.tensor import Tensor, empty, numel_of
from ...expr.functions import rsqrt
from ...expr.node import Expr, arg, cast
from ...kernels.library import batch_norm as kernels
from ..kinds import mkldnn_takes
from ..machinery.aten_form import aten_only, aten_parts
from ..machinery.declare import composite, internal
from ..machinery.dtype_rules import check_parameter_dtypes, unsupported
from ..machinery.inplace import raw_copy
from ..machinery.memory import bare, dense, is_last, layout_like, new_like, without_gaps
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, NewTensors
from ..machinery.together import Wanted, in_place_of, together, wanted_of

_ROWS = 512  # rows summed in one go where channels are adjacent: more would cost digits
_GAIN = 0.05  # milliseconds for a million bytes
_FUNCTIONAL = ("nn.functional",)


def _packed(t: Any) -> Any:
    """Return an optional parameter in the form kernels read."""
    return t if t is None or t._contig else bare(t)


# -- the recorded operator ------------------------------------------------------------------------------------------------


def _planes(x: Tensor) -> tuple[int, int, int]:
    return x.shape[0], x.shape[1], numel_of(x.shape[2:])


def _has_columns(x: Tensor) -> bool:
    """Return whether the channels of x are adjacent."""
    return is_last(x) or (x._contig and numel_of(x.shape[2:]) == 1)


def _columns(x: Tensor) -> tuple[int, int, int]:
    """Return rows, channels, and the number of chunks."""
    rows = x.shape[0] * numel_of(x.shape[2:])
    return rows, x.shape[1], chunks_of(rows)


def chunks_of(rows: int) -> int:
    """Return the number of parts in which the rows of channels are summed."""
    return -(-rows // _ROWS) if rows > _ROWS else min(rows, 2)


def _in_format(t: Tensor, like: Tensor) -> Tensor:
    """Return t with the strides of `like`."""
    if t._strides == like._strides:
        return t
    return new_like(like, t.shape, t.dtype).copy_(t._bare_alias())


def _backward(
    g: Tensor, input: Tensor, weight: Any, bias: Any, mean: Tensor, rstd: Tensor, training: bool, eps: float, needs: dict[str, bool]
) -> Any:  # fmt: skip
    mean = mean.to(rstd.dtype)  # running statistics may be narrower
    if grad_mode.enabled:
        return together(*_composed(g, input, weight, bias, mean, rstd, training, eps))
    wanted = (needs["input"], needs["weight"], needs["bias"])
    return in_place_of(wanted, batch_norm_grads(g, input, weight, mean, rstd, training, wanted))


def _channels_last_gain(input: Tensor, training: bool, **others: Any) -> float:
    """Return the time that training saves with channels last (see `Op.channels_last`; measured): it helps for small planes, not for few
    channels."""
    return _GAIN * ((numel_of(input.shape[2:]) <= 64) - (input.shape[1] < 16)) if training else 0.0


@internal(channels_last=_channels_last_gain, returns=tuple, sums=True, batching="each")
def batch_norm_grads(
    g: Tensor, input: Tensor, weight: Tensor | None, mean: Tensor, rstd: Tensor, training: bool, wanted: Wanted
) -> NewTensors:
    """The gradients of `normalised` with respect to input, weight and bias, as far as wanted."""
    channels, d = (input.shape[1],), input.dtype if weight is None else weight.dtype
    if g.shape != input.shape or any(t is not None and t.shape != channels for t in (weight, mean, rstd)):
        raise RuntimeError(f"gradient and statistics do not fit an input of sizes {list(input.shape)}")
    layouts = [layout_like(input)] if wanted[0] else []
    return layouts + [(channels, d, input.device) for flag in wanted[1:] if flag]


@batch_norm_grads.op.as_aten
def _(
    recorder: Any, g: Tensor, input: Tensor, weight: Any, mean: Tensor, rstd: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    given = g, input, weight, mean, recorder.unseen(rstd.pow, -2), mean, rstd, rest[0], 0.0, rest[1]
    return tuple(wanted_of(recorder.aten.native_batch_norm_backward.default(*given), rest[1]))


@batch_norm_grads.on("any")
def _(
    out: list[Tensor], g: Tensor, input: Tensor, weight: Any, mean: Tensor, rstd: Tensor, training: bool, wanted: Wanted
) -> None:
    input, kept, where = without_gaps(input), mean.dtype, mean.device
    channels = input.shape[1]
    dx, *results = in_place_of(wanted, out)
    # The kernel sums in a wide dtype.
    dw, db = (t if t is not None and t.dtype is kept else empty((channels,), kept, where) for t in results)
    if _has_columns(input):
        rows, _, chunks = _columns(input)
        partial, factors = empty((chunks, 2, channels), kept, where), empty((3, channels), kept, where)
        kernels.backward_columns(
            dx, dw, db, partial, factors, _in_format(g, input), input, mean, rstd, _packed(weight),
            rows, channels, chunks, training=training,
        )  # fmt: skip
    else:
        kernels.backward_planes(
            dx, dw, db, dense(g), dense(input), mean, rstd, _packed(weight), *_planes(input), training=training
        )
    for narrow, wide in zip(results, (dw, db)):
        if narrow is not None and narrow is not wide:
            raw_copy(narrow, wide)


def _composed(
    g: Tensor, input: Tensor, weight: Any, bias: Any, mean: Tensor, rstd: Tensor, training: bool, eps: float
) -> tuple[Any, ...]:
    """Return the gradients by differentiable operators, for second derivatives."""
    dims = [0, *range(2, len(input.shape))]
    view = [1, -1] + [1] * (len(input.shape) - 2)
    if training:
        centred = input - input.mean(dims, keepdim=True)
        r = ((centred * centred).mean(dims, keepdim=True) + eps).rsqrt()
    else:
        centred, r = input - mean.reshape(view), rstd.reshape(view)
    hat = centred * r
    scaled = g if weight is None else g * weight.reshape(view)
    if training:
        dx = r * (scaled - scaled.mean(dims, keepdim=True) - hat * (scaled * hat).mean(dims, keepdim=True))
    else:
        dx = scaled * r
    return dx, None if weight is None else (g * hat).sum(dims), None if bias is None else g.sum(dims)


def _by_channel(
    input: Any, weight: Any, bias: Any, mean: Any, rstd: Any, running_mean: Any, running_var: Any, training: bool,
    momentum: float, eps: float,
) -> tuple[list[Any], Expr, Expr, tuple[Any, ...]] | None:  # fmt: skip
    """Return factor and addend of each channel in evaluation: weight / sqrt(var + eps), and bias - mean * factor."""
    if training:
        return None
    operands, wide = [mean, running_var, eps], opmath(input.dtype)

    def further(operand: Any) -> Expr:
        operands.append(operand)
        return cast(arg(len(operands) - 1), wide)

    factor = rsqrt(cast(arg(1), wide) + cast(arg(2), wide))
    if weight is not None:
        factor = factor * further(weight)
    addend = -cast(arg(0), wide) * factor
    if bias is not None:
        addend = addend + further(bias)
    return operands, factor, addend, (rstd,)


@internal(
    affine=_by_channel,
    channels_last=_channels_last_gain,
    writes=("mean", "rstd", "running_mean", "running_var"),
    grads={("input", "weight", "bias"): _backward},
    quirks=Quirks(label="NativeBatchNormBackward0", saved_as_input=True),
    aten="native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]",
    batching="each",
)
def normalised(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> NewTensor:
    """The normalised input. In training its statistics are written into `mean` and `rstd`, and the running ones are updated; in evaluation
    `mean` is given."""
    return layout_like(input)


@normalised.on("any")
def _(
    out: Tensor, input: Tensor, weight: Any, bias: Any, mean: Tensor, rstd: Tensor, running_mean: Any, running_var: Any,
    training: bool, momentum: float, eps: float,
) -> None:  # fmt: skip
    input = without_gaps(input)
    if training:
        _train(out, mean, rstd, input, weight, bias, (running_mean, running_var), momentum, eps)
    else:
        _evaluate(out, mean, rstd, input, weight, bias, running_var, eps)


def _train(
    out: Tensor,
    mean: Tensor,
    rstd: Tensor,
    input: Tensor,
    weight: Any,
    bias: Any,
    running: tuple[Any, ...],
    momentum: float,
    eps: float,
) -> None:
    parameters = (_packed(weight), _packed(bias), *map(_packed, running))
    if _has_columns(input):
        rows, channels, chunks = _columns(input)
        partial, factors = (empty((*s, channels), mean.dtype, mean.device) for s in ((chunks, 2), (2,)))
        kernels.normalise_columns(
            out, mean, rstd, partial, factors, input, *parameters, rows, channels, chunks, momentum, eps
        )
    else:
        kernels.normalise_planes(out, mean, rstd, dense(input), *parameters, *_planes(input), momentum, eps)
    for statistics, written in zip(running, parameters[2:]):
        if statistics is not None:
            if written._storage is not statistics._storage:
                statistics._bare_alias().copy_(written)
            statistics._bump("batch_norm")


def _evaluate(
    out: Tensor, mean: Tensor, rstd: Tensor, input: Tensor, weight: Any, bias: Any, var: Tensor, eps: float
) -> None:
    if _has_columns(input):
        rows, channels, _ = _columns(input)
        factors = empty((2, channels), rstd.dtype, rstd.device)
        kernels.apply_columns(
            out, rstd, factors, input, mean, _packed(var), _packed(weight), _packed(bias), rows, channels, eps
        )
    else:
        kernels.apply_planes(
            out, rstd, dense(input), mean, _packed(var), _packed(weight), _packed(bias), *_planes(input), eps
        )


# -- public functions -----------------------------------------------------------------------------------------------------


def _check(input: Tensor, parameters: dict[str, Any], training: bool) -> None:
    if not input.dtype.is_floating_point:
        raise unsupported("batch_norm", input.dtype)
    if len(input.shape) < 2:
        if input.numel() == 0:
            return
        raise RuntimeError(f"Expected 2D or more input to batch_norm, got input of size {list(input.shape)}")
    channels = input.shape[1]
    for name, t in parameters.items():
        if t is not None and t.numel() != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {t.numel()}")
    if training:
        if channels and input.numel() == channels:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.shape}")
    elif parameters["running_mean"] is None or parameters["running_var"] is None:
        raise RuntimeError("Expected running_mean and running_var to be defined when training=False")


_known_calls: dict[tuple[Any, ...], bool] = {}  # that went well


def _batch_norm(
    input: Tensor,
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    training: Any,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Any, Any]:
    parameters = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    given = [None if t is None else (t.shape, t.dtype) for t in parameters.values()]
    key = (input.shape, input.dtype, bool(training), *given)
    if key not in _known_calls:
        _check(input, parameters, bool(training))
        if input.numel():
            check_parameter_dtypes(input, *parameters.values())
        remember(_known_calls, key, True)
    if len(input.shape) < 2:
        return input.clone(), None, None
    kept, shape = opmath(input.dtype), (input.shape[1],)
    rstd = empty(shape, kept, input.device)
    mean = empty(shape, kept, input.device) if training else _packed(running_mean.detach())
    if training and not input.numel():
        mean.zero_()
        rstd.fill_(eps**-0.5 if eps > 0 else math.inf)
    settings = running_mean, running_var, bool(training), float(momentum), float(eps)
    return normalised(input, weight, bias, mean, rstd, *settings), mean, rstd


@composite(
    method=False,
    namespaces=_FUNCTIONAL,
    aten="batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, False)",
)
def batch_norm(
    input: Tensor,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise every channel over batch and space: by the batch's statistics in training, else by the running ones."""
    if eps < 0 or (training and eps == 0):
        wanted = "positive during training" if training else "non-negative"
        raise ValueError(f"batch_norm eps must be {wanted}, but got {eps}")
    return _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)[0]


def _check_affine(bound: dict[str, Any]) -> None:
    if bound["weight"] is None or bound["bias"] is None:
        raise RuntimeError("mkldnn_batch_norm: currently mkldnn only support affine model")


mkldnn_takes("nn.functional.batch_norm", check=_check_affine)


def _by_statistics(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, eps: float, **others: Any
) -> tuple[Any, ...] | None:
    """Return the result of `_by_channel` for a call with running statistics; nothing else is written then."""
    if training or running_mean is None or running_var is None:
        return None
    found = _by_channel(input, weight, bias, running_mean, None, running_mean, running_var, False, 0.0, eps)
    return found and (*found[:3], ())


@composite(method=False, name="batch_norm", affine=_by_statistics)
def torch_batch_norm(
    input: Tensor,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """batch_norm with the argument order of torch.batch_norm."""
    return _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)[0]


@composite(
    method=False,
    aten_backward="native_batch_norm_backward(grad, input, weight, running_mean, running_var, result1, result2, training, eps,"
    " needs(input, weight, bias))",
)
def native_batch_norm(
    input: Tensor,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """Batch norm together with the mean and 1/std of the batch (empty in evaluation)."""
    out, mean, rstd = _batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    given = next((t for t in (weight, running_mean) if t is not None), input)
    if not training or mean is None:
        return out, input.new_empty(0, dtype=given.dtype), input.new_empty(0, dtype=given.dtype)
    return out, mean.to(given.dtype), rstd.to(given.dtype)


@aten_parts("native_batch_norm")
def _(
    aten: Any, input: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    """Compute batch norm with new running statistics as results instead of in-place updates."""
    if not training:
        return aten._native_batch_norm_legit_no_training.default(input, weight, bias, mean, var, momentum, eps)
    if mean is None:
        return aten._native_batch_norm_legit.no_stats(input, weight, bias, True, momentum, eps)
    given = (input, weight, bias, mean, var, True, momentum, eps)
    *found, new_mean, new_var = aten._native_batch_norm_legit_functional.default(*given)
    aten.copy_.default(mean, new_mean)
    aten.copy_.default(var, new_var)
    return tuple(found)


def _statistics(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the mean and the reciprocal standard deviation of each channel of a batch."""
    dims = [d for d in range(input.dim()) if d != 1]
    return input.mean(dims), (input.var(dims, correction=0) + eps).rsqrt()


@aten_only("_native_batch_norm_legit_no_training")
def _native_batch_norm_eval(
    input: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> tuple[Any, ...]:
    empty = input.new_empty(0)
    return batch_norm(input, mean, var, weight, bias, False, momentum, eps), empty, empty


@aten_only("_native_batch_norm_legit_functional")
def _native_batch_norm_functional(
    input: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    new_mean, new_var = mean.clone(), var.clone()
    out = batch_norm(input, new_mean, new_var, weight, bias, training, momentum, eps)
    return out, *_statistics(input, eps), new_mean, new_var


aten_only("_native_batch_norm_legit.default")(native_batch_norm)


@aten_only("_native_batch_norm_legit.no_stats")
def _native_batch_norm_alone(
    input: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, ...]:
    return batch_norm(input, None, None, weight, bias, True, momentum, eps), *_statistics(input, eps)


@aten_only("native_batch_norm_backward")
def _native_batch_norm_backward(
    grad: Tensor, input: Tensor, weight: Any, running_mean: Any, running_var: Any, mean: Any, rstd: Any, train: bool, eps: float, wanted: list[Any]
) -> tuple[Any, ...]:  # fmt: skip
    if not train:
        mean, rstd = running_mean, (running_var + eps).rsqrt()
    return tuple(in_place_of(tuple(wanted), batch_norm_grads(grad, input, weight, mean, rstd, train, tuple(wanted))))


def _repeated(running: Any, n: int, kept: Any) -> Any:
    """Return running statistics for n samples, in the dtype that belongs to the input; float32 also belongs to half-width ones."""
    if running is None:
        return None
    narrow = running.dtype is float32 and kept.itemsize < 4
    return running.detach().to(running.dtype if narrow else kept).repeat(n)


@composite(
    method=False,
    namespaces=_FUNCTIONAL,
    aten="instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, False)",
)
def instance_norm(
    input: Tensor,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise every channel of every sample separately."""
    if use_input_stats and (len(input.shape) < 2 or numel_of(input.shape[2:]) == 1):
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    n, channels = input.size(0), input.size(1)
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
    kept = input.dtype if weight is None else weight.dtype
    mean, variance = statistics = [_repeated(t, n, kept) for t in (running_mean, running_var)]
    w, b = (None if t is None else t.repeat(n) for t in (weight, bias))
    merged = input.reshape(1, n * channels, *input.shape[2:])
    out = _batch_norm(merged, mean, variance, w, b, use_input_stats, momentum, eps)[0]
    if use_input_stats:
        for running, repeated in zip((running_mean, running_var), statistics):
            if running is not None and repeated is not None:
                running._bare_alias().copy_(repeated.reshape(n, channels).mean(0))
                running._bump("instance_norm")
    return out.reshape(input.shape)


@composite(method=False, name="instance_norm")
def torch_instance_norm(
    input: Tensor,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """instance_norm with the argument order of torch.instance_norm."""
    return instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
