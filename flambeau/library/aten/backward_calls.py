"""What runs for PyTorch's operators that are derivatives of others (`aten::convolution_backward`), or make what these need."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import flambeau

from ...core.tensor import Tensor
from ...ops import namespace
from ...ops.machinery.aten_form import ATEN_ONLY, REDUCTIONS, aten_only
from .overloads import OpOverload, aten

F: Any = SimpleNamespace(**namespace("nn.functional"))


def _pulled_back(
    function: Callable, inputs: Sequence[Any], grad: Tensor, mask: Sequence[bool] | None = None
) -> list[Any]:
    """The gradients of a function's inputs; None for those that `mask` leaves out and those that are no tensors."""
    wanted = [isinstance(t, Tensor) and (mask is None or mask[i]) for i, t in enumerate(inputs)]
    with flambeau.enable_grad():
        own = [t.detach().requires_grad_(w) if isinstance(t, Tensor) else t for t, w in zip(inputs, wanted)]
        found = iter(flambeau.autograd.grad(function(*own), [t for t, w in zip(own, wanted) if w], grad))
    return [next(found) if w else None for w in wanted]


@aten_only("convolution_backward")
def _convolution_backward(grad: Tensor, input: Tensor, weight: Tensor, sizes: Any, *window: Any) -> tuple:
    *shape, mask = window
    bias = None if sizes is None else grad.new_zeros(sizes)
    return tuple(_pulled_back(lambda x, w, b: _run(aten.convolution.default, x, w, b, *shape), (input, weight, bias), grad, mask))  # fmt: skip


def _run(overload: OpOverload, *args: Any) -> Any:
    return overload.run(args, {})


@aten_only("native_batch_norm", "_native_batch_norm_legit.default")
def _native_batch_norm(input: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float) -> tuple:  # fmt: skip
    dims = [d for d in range(input.dim()) if d != 1]
    saved = input.mean(dims) if training else input.new_empty(0)
    inverse = (input.var(dims, correction=0) + eps).rsqrt() if training else input.new_empty(0)
    return F.batch_norm(input, mean, var, weight, bias, training, momentum, eps), saved, inverse


@aten_only("native_batch_norm_backward")
def _native_batch_norm_backward(
    grad: Tensor, input: Tensor, weight: Any, mean: Any, var: Any, saved: Any, inverse: Any, train: bool, eps: float, mask: list
) -> tuple:  # fmt: skip
    bias = None if weight is None else flambeau.zeros_like(weight)
    stats = (None, None) if train else (mean, var)
    return tuple(_pulled_back(lambda x, w, b: F.batch_norm(x, *stats, w, b, train, 0.0, eps), (input, weight, bias), grad, mask))  # fmt: skip


def _normalized_backward(grad: Tensor, shown: Tensor, rstd: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The gradient of what was normalized, from that of the normalized values `shown`."""
    return rstd * (grad - grad.mean(dims, keepdim=True) - shown * (grad * shown).mean(dims, keepdim=True))


@aten_only("native_layer_norm_backward")
def _native_layer_norm_backward(grad: Tensor, input: Tensor, shape: list, mean: Tensor, rstd: Tensor, weight: Any, bias: Any, mask: list) -> tuple:  # fmt: skip
    dims, before = tuple(range(-len(shape), 0)), tuple(range(input.dim() - len(shape)))
    shown = (input - mean) * rstd
    scaled = grad if weight is None else grad * weight
    return (
        _normalized_backward(scaled, shown, rstd, dims) if mask[0] else None,
        (grad * shown).sum(before) if mask[1] and before else grad * shown if mask[1] else None,
        grad.sum(before) if mask[2] and before else grad if mask[2] else None,
    )


@aten_only("native_group_norm")
def _native_group_norm(input: Tensor, weight: Any, bias: Any, n: int, c: int, hw: int, groups: int, eps: float) -> tuple:  # fmt: skip
    rows = input.reshape(n, groups, c * hw // groups)
    return F.group_norm(input, groups, weight, bias, eps), rows.mean(-1), (rows.var(-1, correction=0) + eps).rsqrt()


@aten_only("native_group_norm_backward")
def _native_group_norm_backward(grad: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, weight: Any, n: int, c: int, hw: int, groups: int, mask: list) -> tuple:  # fmt: skip
    rows = (n, groups, -1)
    shown = (input.reshape(rows) - mean.unsqueeze(-1)) * rstd.unsqueeze(-1)
    channels = tuple(d for d in range(input.dim()) if d != 1)
    scaled = grad if weight is None else grad * weight.reshape(1, c, *[1] * (input.dim() - 2))
    inner = _normalized_backward(scaled.reshape(rows), shown, rstd.unsqueeze(-1), (-1,)).reshape(input.shape)
    return (
        inner if mask[0] else None,
        (grad * shown.reshape(input.shape)).sum(channels) if mask[1] else None,
        grad.sum(channels) if mask[2] else None,
    )


@aten_only("embedding_dense_backward")
def _embedding_dense_backward(grad: Tensor, indices: Tensor, count: int, padding: int, scale: bool) -> Tensor:
    weight = grad.new_zeros(count, grad.size(-1))
    given = None if padding == -1 else padding
    return _pulled_back(lambda w: F.embedding(indices, w, given, scale_grad_by_freq=scale), (weight,), grad)[0]


@aten_only("native_dropout_backward")
def _native_dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    return grad * mask * scale


@aten_only("_scaled_dot_product_flash_attention_for_cpu")
def _flash(query: Tensor, key: Tensor, value: Tensor, p: float = 0.0, causal: bool = False, *, attn_mask: Any = None, scale: Any = None) -> tuple:  # fmt: skip
    factor = scale if scale is not None else query.size(-1) ** -0.5
    scores = query @ key.transpose(-2, -1) * factor
    if causal:
        scores = scores.masked_fill(flambeau.ones(scores.shape[-2:], dtype=flambeau.bool).triu(1), -math.inf)
    if attn_mask is not None:
        scores = scores + attn_mask
    out = F.scaled_dot_product_attention(query, key, value, attn_mask, p, causal, scale=scale)
    return out, scores.logsumexp(-1)


@aten_only("_scaled_dot_product_flash_attention_for_cpu_backward")
def _flash_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, p: float, causal: bool, *, attn_mask: Any = None, scale: Any = None
) -> tuple:  # fmt: skip
    if p:
        raise NotImplementedError("the backward pass of attention with dropout in a graph")

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask, 0.0, causal, scale=scale)

    return tuple(_pulled_back(attention, (query, key, value), grad))


def _pool_backward(name: str) -> Callable:
    def run(grad: Tensor, self: Tensor, kernel: list, stride: list, padding: list, *rest: Any) -> Tensor:
        options = rest[:-1] if name.startswith("max") else rest  # the last are the places of the largest elements
        return _pulled_back(lambda x: getattr(F, name)(x, kernel, stride or None, padding, *options), (self,), grad)[0]

    return run


for _rank in (2, 3):
    aten_only(f"max_pool{_rank}d_with_indices_backward")(_pool_backward(f"max_pool{_rank}d"))
    aten_only(f"avg_pool{_rank}d_backward")(_pool_backward(f"avg_pool{_rank}d"))


def _adaptive_backward(rank: int) -> Callable:
    function = f"adaptive_avg_pool{rank}d"
    return lambda grad, self: _pulled_back(lambda x: getattr(F, function)(x, tuple(grad.shape[-rank:])), (self,), grad)[0]  # fmt: skip


for _rank in (2, 3):
    aten_only(f"_adaptive_avg_pool{_rank}d")(getattr(F, f"adaptive_avg_pool{_rank}d"))
    aten_only(f"_adaptive_avg_pool{_rank}d_backward")(_adaptive_backward(_rank))


def _resized_backward(name: str) -> Callable:
    return lambda grad, size, input_size, *rest: _pulled_back(
        lambda x: ATEN_ONLY[name](x, size, *rest), (grad.new_zeros(input_size),), grad
    )[0]


for _name in ("upsample_nearest2d", "upsample_bilinear2d"):
    aten_only(f"{_name}_backward")(_resized_backward(_name))


@aten_only("_softmax_backward_data")
def _softmax_backward(grad: Tensor, output: Tensor, dim: int, dtype: Any) -> Tensor:
    product = grad * output
    return product - output * product.sum(dim, keepdim=True)


@aten_only("_log_softmax_backward_data")
def _log_softmax_backward(grad: Tensor, output: Tensor, dim: int, dtype: Any) -> Tensor:
    return grad - output.exp() * grad.sum(dim, keepdim=True)


@aten_only("nll_loss_forward", "nll_loss2d_forward")
def _nll_forward(self: Tensor, target: Tensor, weight: Any, reduction: int, ignore: int) -> tuple:
    out = F.nll_loss(self, target, weight, ignore_index=ignore, reduction=REDUCTIONS[reduction])
    kept = target != ignore
    weights = flambeau.ones_like(target, dtype=self.dtype) if weight is None else weight[target * kept]
    return out, (weights * kept).sum() if reduction == 1 else self.new_zeros(())


@aten_only("nll_loss_backward", "nll_loss2d_backward")
def _nll_backward(grad: Tensor, self: Tensor, target: Tensor, weight: Any, reduction: int, ignore: int, total: Tensor) -> Tensor:  # fmt: skip
    options = {"ignore_index": ignore, "reduction": REDUCTIONS[reduction]}
    return _pulled_back(lambda x: F.nll_loss(x, target, weight, **options), (self,), grad)[0]


def _loss_backward(name: str, *options: str) -> Callable:
    def run(grad: Tensor, self: Tensor, target: Tensor, reduction: int, *more: Any) -> Tensor:
        given = {"reduction": REDUCTIONS[reduction], **dict(zip(options, more))}
        return _pulled_back(lambda x: getattr(F, name)(x, target, **given), (self,), grad)[0]

    return run


for _name, *_options in (("mse_loss",), ("smooth_l1_loss", "beta"), ("huber_loss", "delta")):
    aten_only(f"{_name}_backward")(_loss_backward(_name, *_options))


def _activation_backward(name: str) -> Callable:
    return lambda grad, self, *numbers: _pulled_back(lambda x: getattr(F, name)(x, *numbers), (self,), grad)[0]


for _name in ("silu", "mish", "hardswish", "hardsigmoid", "hardtanh", "softplus", "glu"):
    aten_only(f"{_name}_backward")(_activation_backward(_name))


@aten_only("gelu_backward")
def _gelu_backward(grad: Tensor, self: Tensor, *, approximate: str = "none") -> Tensor:
    return _pulled_back(lambda x: F.gelu(x, approximate=approximate), (self,), grad)[0]


@aten_only("threshold_backward")
def _threshold_backward(grad: Tensor, self: Tensor, threshold: Any) -> Tensor:
    return flambeau.where(self <= threshold, 0.0, grad)


@aten_only("tanh_backward")
def _tanh_backward(grad: Tensor, output: Tensor) -> Tensor:
    return grad * (1 - output * output)


@aten_only("sigmoid_backward")
def _sigmoid_backward(grad: Tensor, output: Tensor) -> Tensor:
    return grad * (1 - output) * output


@aten_only("leaky_relu_backward")
def _leaky_relu_backward(grad: Tensor, self: Tensor, slope: Any, is_result: bool) -> Tensor:
    return flambeau.where(self > 0, grad, grad * slope)


@aten_only("elu_backward")
def _elu_backward(grad: Tensor, alpha: Any, scale: Any, input_scale: Any, is_result: bool, value: Tensor) -> Tensor:
    below = value + alpha * scale if is_result else scale * alpha * (value * input_scale).exp()
    return flambeau.where(value <= 0, grad * input_scale * below, grad * scale)


@aten_only("select_backward")
def _select_backward(grad: Tensor, sizes: list, dim: int, index: int) -> Tensor:
    whole = grad.new_zeros(sizes)
    whole.select(dim, index).copy_(grad)
    return whole


@aten_only("slice_backward")
def _slice_backward(grad: Tensor, sizes: list, dim: int, start: int, end: int, step: int) -> Tensor:
    whole = grad.new_zeros(sizes)
    _run(aten.slice.Tensor, whole, dim, start, end, step).copy_(grad)
    return whole
