"""The derivatives of PyTorch's operators as calls of PyTorch's own operators for them (`aten::convolution_backward`...).

While a program is recorded whose gradients are wanted, an operator with a rule here is called through it: the rule makes the calls of
the forward pass and returns the function that makes those of the backward pass. The values are computed by this library's derivatives
of the same functions (`backward_calls`). Operators without a rule are differentiated as always, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...autograd.function import Function
from ...autograd.grad_mode import grad_mode
from ...core.tensor import Tensor
from .overloads import OpOverload, aten

Backward = Callable[[Tensor], Sequence[Any]]


def rule(*overloads: OpOverload, own_backward: bool = False) -> Callable[[Callable], Callable]:
    """The decorated function takes which tensors need gradients (by position) and an operator's arguments, and returns its
    result and a function from the result's gradient to those of the arguments, in order. `own_backward`: PyTorch has an operator for
    the derivative, though the operator is made of others."""

    def note(function: Callable) -> Callable:
        for overload in overloads:
            overload.gradient, overload.own_backward = function, own_backward
        return function

    return note


def recorded(recorder: Any, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Make a call through its rule; NotImplemented where there is none, or nothing asks for gradients."""
    if not grad_mode.enabled:
        return NotImplemented
    found = overload.gradient
    if found is None or not any(isinstance(a, Tensor) and a.requires_grad for a in (*args, *kwargs.values())):
        return NotImplemented
    names = [a.name for a in overload._schema.arguments]
    given = [*args, *(kwargs[n] for n in names[len(args) :] if n in kwargs)] if kwargs else list(args)
    if kwargs:  # by position, with the defaults between
        values = dict(zip(names, args)) | kwargs
        last = max(names.index(n) for n in values)
        given = [values.get(a.name, a.default_value) for a in overload._schema.arguments[: last + 1]]
    inner: list[Any] = []  # what the rule returned: autograd gives the program other tensors over the same memory
    result = _Ruled.apply(_keeping(found, inner), len(given), *given)
    recorder.returned(inner[0], result)
    return result


def _keeping(found: Callable, inner: list[Any]) -> Callable:
    def call(*args: Any) -> Any:
        result, backward = found(*args)
        inner.append(result)
        return result, backward

    return call


class _Ruled(Function):
    """A call through a rule, in the graph of gradients."""

    @staticmethod
    def forward(ctx: Any, found: Callable, count: int, *args: Any) -> Any:
        needs = [bool(n) for n in ctx.needs_input_grad[2:]]
        result, ctx.backward_calls = found(needs, *args)
        ctx.count = count
        if isinstance(result, tuple):  # values with their places, which have no gradient
            ctx.mark_non_differentiable(*result[1:])
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *places: Any) -> Any:
        if grad_mode.enabled:
            raise NotImplementedError(
                "a graph of second derivatives of operators whose derivatives are operators of their own"
            )
        found = list(ctx.backward_calls(grad))
        return (None, None, *found, *[None] * (ctx.count - len(found)))


def _expanded(value: Any, rank: int) -> list:
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    return given * rank if len(given) == 1 else given


# -- layers -----------------------------------------------------------------------------------------------------------------


def _convolution(transposed: bool, rank: int) -> Callable:
    def conv(
        needs: list, input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, a: Any = None, b: Any = None, c: Any = None
    ) -> tuple[Any, Backward]:  # fmt: skip
        if transposed:
            output_padding, groups, dilation = (0 if a is None else a), (b or 1), (1 if c is None else c)
        else:
            dilation, groups, output_padding = (1 if a is None else a), (b or 1), 0
        if isinstance(padding, str):
            raise NotImplementedError(f"a graph of the gradients of a convolution with padding={padding!r}")
        window: list[Any] = [_expanded(v, rank) for v in (stride, padding, dilation)]
        window += [transposed, _expanded(output_padding, rank), groups]
        mask = [*needs[:2], bias is not None and needs[2]]
        sizes = None if bias is None else [bias.size(0)]
        out = aten.convolution.default(input, weight, bias, *window)
        return out, lambda g: aten.convolution_backward.default(g, input, weight, sizes, *window, mask)

    return conv


for _rank, _plain, _transposed in (
    (1, aten.conv1d.default, aten.conv_transpose1d.default),
    (2, aten.conv2d.default, aten.conv_transpose2d.input),
    (3, aten.conv3d.default, aten.conv_transpose3d.input),
):
    rule(_plain, own_backward=True)(_convolution(False, _rank))
    rule(_transposed, own_backward=True)(_convolution(True, _rank))


@rule(aten.linear.default)
def _linear(needs: list, input: Tensor, weight: Tensor, bias: Any = None) -> tuple[Any, Backward]:
    shape = list(input.shape)
    flat = input if input.dim() == 2 else aten.view.default(input, [math.prod(shape[:-1]), shape[-1]])
    turned = aten.t.default(weight)
    out = aten.mm.default(flat, turned) if bias is None else aten.addmm.default(bias, flat, turned)
    if input.dim() != 2:
        out = aten.view.default(out, [*shape[:-1], weight.size(0)])

    def backward(g: Tensor) -> Sequence[Any]:
        rows = g if g.dim() == 2 else aten.view.default(g, [math.prod(shape[:-1]), weight.size(0)])
        grads: list[Any] = [None, None, None]
        if needs[0]:
            product = aten.mm.default(rows, aten.t.default(turned))
            grads[0] = product if len(shape) == 2 else aten.view.default(product, shape)
        if needs[1]:
            grads[1] = aten.t.default(aten.t.default(aten.mm.default(aten.t.default(rows), flat)))
        if bias is not None and needs[2]:
            grads[2] = aten.view.default(aten.sum.dim_IntList(rows, [0], True), [weight.size(0)])
        return grads

    return out, backward


@rule(aten.mm.default)
def _mm(needs: list, self: Tensor, mat2: Tensor) -> tuple[Any, Backward]:
    def backward(g: Tensor) -> Sequence[Any]:
        second = aten.mm.default(aten.t.default(self), g) if needs[1] else None
        return (aten.mm.default(g, aten.t.default(mat2)) if needs[0] else None), second

    return aten.mm.default(self, mat2), backward


@rule(aten.bmm.default)
def _bmm(needs: list, self: Tensor, mat2: Tensor) -> tuple[Any, Backward]:
    def backward(g: Tensor) -> Sequence[Any]:
        second = aten.bmm.default(aten.transpose.int(self, 1, 2), g) if needs[1] else None
        return (aten.bmm.default(g, aten.transpose.int(mat2, 1, 2)) if needs[0] else None), second

    return aten.bmm.default(self, mat2), backward


@rule(aten.matmul.default)
def _matmul(needs: list, self: Tensor, other: Tensor) -> tuple[Any, Backward]:
    if self.dim() == 2 and other.dim() == 2:
        return _mm(needs, self, other)
    if self.dim() == 3 and other.dim() == 3 and self.size(0) == other.size(0):
        return _bmm(needs, self, other)
    out = aten.matmul.default(self, other)

    def backward(g: Tensor) -> Sequence[Any]:
        grads: list[Any] = [None, None]
        left = self if self.dim() > 1 else aten.unsqueeze.default(self, 0)
        right = other if other.dim() > 1 else aten.unsqueeze.default(other, 1)
        wide = g if self.dim() > 1 else aten.unsqueeze.default(g, -1 if other.dim() == 1 else -2)
        wide = wide if other.dim() > 1 else aten.unsqueeze.default(wide, -1)
        if needs[0]:
            grads[0] = _reduced(aten.matmul.default(wide, aten.transpose.int(right, -2, -1)), self)
        if needs[1]:
            grads[1] = _reduced(aten.matmul.default(aten.transpose.int(left, -2, -1), wide), other)
        return grads

    return out, backward


def _reduced(grad: Tensor, like: Tensor) -> Tensor:
    """A gradient summed over what was broadcast."""
    extra = grad.dim() - like.dim()
    dims = [d for d in range(grad.dim()) if d < extra or (like.size(d - extra) == 1 and grad.size(d) != 1)]
    if dims:
        grad = aten.sum.dim_IntList(grad, dims, True)
    return grad if grad.shape == like.shape else aten.view.default(grad, list(like.shape))


@rule(aten.batch_norm.default, own_backward=True)
def _batch_norm(
    needs: list, input: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float, cudnn: bool
) -> tuple[Any, Backward]:  # fmt: skip
    out, saved_mean, saved_inverse = aten.native_batch_norm.default(
        input, weight, bias, mean, var, training, momentum, eps
    )
    mask = [needs[0], weight is not None and needs[1], bias is not None and needs[2]]
    saved = (saved_mean, saved_inverse)
    return out, lambda g: aten.native_batch_norm_backward.default(
        g, input, weight, mean, var, *saved, training, eps, mask
    )


@rule(aten.layer_norm.default, own_backward=True)
def _layer_norm(
    needs: list, input: Tensor, shape: list, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> tuple[Any, Backward]:
    out, mean, rstd = aten.native_layer_norm.default(input, shape, weight, bias, eps)
    mask = [needs[0], weight is not None and needs[2], bias is not None and needs[3]]

    def backward(g: Tensor) -> Sequence[Any]:
        found = aten.native_layer_norm_backward.default(g, input, shape, mean, rstd, weight, bias, mask)
        return found[0], None, found[1], found[2]

    return out, backward


@rule(aten.group_norm.default)
def _group_norm(
    needs: list, input: Tensor, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> tuple[Any, Backward]:
    sizes = (input.size(0), input.size(1), math.prod(input.shape[2:]), groups)
    out, mean, rstd = aten.native_group_norm.default(input, weight, bias, *sizes, eps)
    mask = [needs[0], weight is not None and needs[2], bias is not None and needs[3]]

    def backward(g: Tensor) -> Sequence[Any]:
        found = aten.native_group_norm_backward.default(g, input, mean, rstd, weight, *sizes, mask)
        return found[0], None, found[1], found[2]

    return out, backward


@rule(aten.embedding.default)
def _embedding(
    needs: list, weight: Tensor, indices: Tensor, padding: int = -1, scale: bool = False, sparse: bool = False
) -> tuple[Any, Backward]:
    if sparse:
        raise NotImplementedError("a graph of the gradients of an embedding with sparse=True")
    out = aten.embedding.default(weight, indices, padding, scale, sparse)
    return out, lambda g: (aten.embedding_dense_backward.default(g, indices, weight.size(0), padding, scale),)


@rule(aten.dropout.default)
def _dropout(needs: list, input: Tensor, p: float, train: bool) -> tuple[Any, Backward]:
    if not train or p == 0:
        return aten.clone.default(input), lambda g: (g,)
    out, mask = aten.native_dropout.default(input, p, train)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return out, lambda g: (aten.native_dropout_backward.default(g, mask, scale),)


@rule(aten.scaled_dot_product_attention.default)
def _attention(
    needs: list, query: Tensor, key: Tensor, value: Tensor, mask: Any = None, p: float = 0.0, causal: bool = False, scale: Any = None, gqa: bool = False
) -> tuple[Any, Backward]:  # fmt: skip
    if gqa:
        raise NotImplementedError("a graph of the gradients of attention with enable_gqa=True")
    options = {"attn_mask": mask, "scale": scale}
    out, logsumexp = aten._scaled_dot_product_flash_attention_for_cpu.default(query, key, value, p, causal, **options)
    return out, lambda g: aten._scaled_dot_product_flash_attention_for_cpu_backward.default(
        g, query, key, value, out, logsumexp, p, causal, **options
    )


# -- pooling and resizing ----------------------------------------------------------------------------------------------------


def _max_pool(rank: int) -> Callable:
    def pool(needs: list, input: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> tuple[Any, Backward]:  # fmt: skip
        if rank == 1:
            wide = aten.unsqueeze.default(input, -2)
            window: list[Any] = [[1, *_expanded(v, 1)] for v in (kernel, stride or kernel)]
            window += [[0, *_expanded(padding, 1)], [1, *_expanded(dilation, 1)], ceil_mode]
            out, indices = aten.max_pool2d_with_indices.default(wide, *window)
            return aten.squeeze.dim(out, -2), lambda g: (
                aten.squeeze.dim(
                    aten.max_pool2d_with_indices_backward.default(
                        aten.unsqueeze.default(g, -2), wide, *window, indices
                    ),
                    -2,
                ),
            )
        window = [*(_expanded(v, rank) for v in (kernel, stride or kernel, padding, dilation)), ceil_mode]
        out, indices = getattr(aten, f"max_pool{rank}d_with_indices").default(input, *window)
        back = getattr(aten, f"max_pool{rank}d_with_indices_backward").default
        return out, lambda g: (back(g, input, *window, indices),)

    return pool


def _avg_pool(rank: int) -> Callable:
    def pool(
        needs: list, input: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False, pad: bool = True, divisor: Any = None
    ) -> tuple[Any, Backward]:  # fmt: skip
        window = [*(_expanded(v, rank) for v in (kernel, stride or kernel, padding)), ceil_mode, pad, divisor]
        out = getattr(aten, f"avg_pool{rank}d").default(input, *window)
        return out, lambda g: (getattr(aten, f"avg_pool{rank}d_backward").default(g, input, *window),)

    return pool


for _rank, _max in ((1, aten.max_pool1d), (2, aten.max_pool2d), (3, aten.max_pool3d)):
    rule(_max.default, own_backward=_rank == 2)(_max_pool(_rank))  # the others have kernels of their own
for _rank, _average in ((2, aten.avg_pool2d), (3, aten.avg_pool3d)):
    rule(_average.default)(_avg_pool(_rank))


def _adaptive(rank: int) -> Callable:
    def pool(needs: list, input: Tensor, size: list) -> tuple[Any, Backward]:
        if list(size) == [1] * rank:
            dims, shape = list(range(-1, -rank - 1, -1)), list(input.shape)
            out = aten.mean.dim(input, dims, True)
            count = math.prod(shape[-rank:])
            return out, lambda g: (aten.div.Scalar(aten.expand.default(g, shape), count),)
        out = getattr(aten, f"_adaptive_avg_pool{rank}d").default(input, size)
        return out, lambda g: (getattr(aten, f"_adaptive_avg_pool{rank}d_backward").default(g, input),)

    return pool


rule(aten.adaptive_avg_pool2d.default, own_backward=True)(_adaptive(2))
rule(aten.adaptive_avg_pool3d.default)(_adaptive(3))


def _resize(name: str, aligned: bool) -> Callable:
    def resize(needs: list, input: Tensor, size: Any, *rest: Any) -> tuple[Any, Backward]:
        corners = [rest[0]] if aligned else []
        given: Any = rest[1] if aligned and len(rest) > 1 else rest[0] if rest and not aligned else None
        sizes = list(size) if size is not None else [int(n * s) for n, s in zip(input.shape[2:], given)]
        scales = [None, None] if given is None else list(given)
        out = getattr(aten, name).default(input, sizes, *corners, *scales)
        back = getattr(aten, f"{name}_backward").default
        return out, lambda g: (back(g, sizes, list(input.shape), *corners, *scales),)

    return resize


rule(aten.upsample_nearest2d.vec)(_resize("upsample_nearest2d", False))
rule(aten.upsample_bilinear2d.vec)(_resize("upsample_bilinear2d", True))


# -- losses and softmax --------------------------------------------------------------------------------------------------------


def _soft(name: str) -> Callable:
    def soft(needs: list, self: Tensor, dim: int, dtype: Any = None) -> tuple[Any, Backward]:
        given = self if dtype in (None, self.dtype) else aten._to_copy.default(self, dtype=dtype)
        out = getattr(aten, f"_{name}").default(given, dim, False)

        def backward(g: Tensor) -> Sequence[Any]:
            found = getattr(aten, f"_{name}_backward_data").default(g, out, dim, given.dtype)
            return (found if given is self else aten._to_copy.default(found, dtype=self.dtype),)

        return out, backward

    return soft


rule(aten.softmax.int)(_soft("softmax"))
rule(aten.log_softmax.int)(_soft("log_softmax"))


@rule(aten.nll_loss_nd.default, aten.nll_loss.default)
def _nll(needs: list, self: Tensor, target: Tensor, weight: Any = None, reduction: int = 1, ignore: int = -100) -> tuple[Any, Backward]:  # fmt: skip
    name = "nll_loss2d" if self.dim() == 4 else "nll_loss"
    out, total = getattr(aten, f"{name}_forward").default(self, target, weight, reduction, ignore)
    back = getattr(aten, f"{name}_backward").default
    return out, lambda g: (back(g, self, target, weight, reduction, ignore, total),)


@rule(aten.cross_entropy_loss.default)
def _cross_entropy(
    needs: list, self: Tensor, target: Tensor, weight: Any = None, reduction: int = 1, ignore: int = -100, smoothing: float = 0.0
) -> tuple[Any, Backward]:  # fmt: skip
    if smoothing or target.is_floating_point() or self.dim() not in (1, 2, 4):
        raise NotImplementedError("a graph of the gradients of this form of cross entropy")
    logs, back_logs = aten.log_softmax.int.gradient(needs, self, 0 if self.dim() == 1 else 1)
    out, back_loss = _nll(needs, logs, target, weight, reduction, ignore)
    return out, lambda g: back_logs(back_loss(g)[0])


def _pair_loss(name: str) -> Callable:
    """A loss of two tensors of one shape, each of which may need its gradient."""

    def loss(needs: list, self: Tensor, target: Tensor, reduction: int = 1, *more: Any) -> tuple[Any, Backward]:
        extra = more or ((1.0,) if name in ("smooth_l1_loss", "huber_loss") else ())
        back = getattr(aten, f"{name}_backward").default

        def backward(g: Tensor) -> Sequence[Any]:
            first = back(g, self, target, reduction, *extra) if needs[0] else None
            return first, back(g, target, self, reduction, *extra) if needs[1] else None

        return getattr(aten, name).default(self, target, reduction, *more), backward

    return loss


for _name in ("mse_loss", "smooth_l1_loss", "huber_loss"):
    rule(getattr(aten, _name).default)(_pair_loss(_name))


# -- activations ------------------------------------------------------------------------------------------------------------------


def _of_input(name: str, *defaults: Any) -> Callable:
    """An activation whose derivative is an operator of the gradient, the input and its numbers."""

    def activation(needs: list, self: Tensor, *numbers: Any) -> tuple[Any, Backward]:
        given = [*numbers, *defaults[len(numbers) :]]
        back = getattr(aten, f"{name}_backward").default
        return getattr(aten, name).default(self, *numbers), lambda g: (back(g, self, *given),)

    return activation


for _name, _defaults in (("silu", ()), ("mish", ()), ("hardswish", ()), ("hardsigmoid", ()), ("hardtanh", (-1, 1)), ("softplus", (1, 20)), ("glu", (-1,))):  # fmt: skip
    rule(getattr(aten, _name).default)(_of_input(_name, *_defaults))


@rule(aten.relu.default)
def _relu(needs: list, self: Tensor) -> tuple[Any, Backward]:
    out = aten.relu.default(self)
    return out, lambda g: (aten.threshold_backward.default(g, out, 0),)


@rule(aten.tanh.default)
def _tanh(needs: list, self: Tensor) -> tuple[Any, Backward]:
    out = aten.tanh.default(self)
    return out, lambda g: (aten.tanh_backward.default(g, out),)


@rule(aten.sigmoid.default)
def _sigmoid(needs: list, self: Tensor) -> tuple[Any, Backward]:
    out = aten.sigmoid.default(self)
    return out, lambda g: (aten.sigmoid_backward.default(g, out),)


@rule(aten.gelu.default)
def _gelu(needs: list, self: Tensor, approximate: str = "none") -> tuple[Any, Backward]:
    out = aten.gelu.default(self, approximate=approximate)
    return out, lambda g: (aten.gelu_backward.default(g, self, approximate=approximate),)


@rule(aten.leaky_relu.default)
def _leaky_relu(needs: list, self: Tensor, slope: Any = 0.01) -> tuple[Any, Backward]:
    out = aten.leaky_relu.default(self, slope)
    return out, lambda g: (aten.leaky_relu_backward.default(g, self, slope, False),)


@rule(aten.elu.default)
def _elu(needs: list, self: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> tuple[Any, Backward]:
    out = aten.elu.default(self, alpha, scale, input_scale)
    return out, lambda g: (aten.elu_backward.default(g, alpha, scale, input_scale, False, self),)


# -- views and sums ----------------------------------------------------------------------------------------------------------------


@rule(aten.sum.default)
def _sum(needs: list, self: Tensor, dtype: Any = None) -> tuple[Any, Backward]:
    shape = list(self.shape)
    return aten.sum.default(self, dtype=dtype), lambda g: (aten.expand.default(g, shape),)


@rule(aten.select.int)
def _select(needs: list, self: Tensor, dim: int, index: int) -> tuple[Any, Backward]:
    shape = list(self.shape)
    return aten.select.int(self, dim, index), lambda g: (aten.select_backward.default(g, shape, dim, index),)


@rule(aten.cumsum.default)
def _cumsum(needs: list, self: Tensor, dim: int, dtype: Any = None) -> tuple[Any, Backward]:
    out = aten.cumsum.default(self, dim, dtype=dtype)
    return out, lambda g: (aten.flip.default(aten.cumsum.default(aten.flip.default(g, [dim]), dim), [dim]),)


@rule(aten.roll.default)
def _roll(needs: list, self: Tensor, shifts: list, dims: Any = ()) -> tuple[Any, Backward]:
    turned = [-s for s in reversed(shifts)]
    out = aten.roll.default(self, shifts, dims)
    return out, lambda g: (aten.roll.default(g, turned, list(reversed(dims))),)


def _picked(name: str) -> Callable:
    """`max(dim)`, `min(dim)`, `sort`: values with their places. The gradient goes to the places."""

    def pick(needs: list, self: Tensor, dim: int = -1, flag: bool = False) -> tuple[Any, Backward]:
        packet = getattr(aten, name)
        values, indices = (packet.default if name == "sort" else packet.dim)(self, dim, flag)
        shape, whole = list(self.shape), name == "sort" or flag

        def backward(g: Tensor) -> Sequence[Any]:
            wide, where = (g, indices) if whole else (aten.unsqueeze.default(v, dim) for v in (g, indices))
            return (aten.scatter.src(aten.new_zeros.default(wide, shape, pin_memory=False), dim, where, wide),)

        return (values, indices), backward

    return pick


for _name, _picking in (("max", aten.max.dim), ("min", aten.min.dim), ("sort", aten.sort.default)):
    rule(_picking)(_picked(_name))


def _extreme(name: str) -> Callable:
    """`amax`, `amin`: the gradient is shared by all elements that are the largest."""

    def pick(needs: list, self: Tensor, dim: Any = (), keepdim: bool = False) -> tuple[Any, Backward]:
        out = getattr(aten, name).default(self, dim, keepdim)
        dims = [d % (self.dim() or 1) for d in dim] or list(range(self.dim()))
        shape = [1 if d in dims else n for d, n in enumerate(self.shape)]

        def backward(g: Tensor) -> Sequence[Any]:
            wide, largest = (v if keepdim else aten.view.default(v, shape) for v in (g, out))
            mask = aten.eq.Tensor(self, largest)
            shared = aten.div.Tensor(wide, aten.sum.dim_IntList(mask, dims, True))
            return (aten.mul.Tensor(shared, mask),)

        return out, backward

    return pick


rule(aten.amax.default)(_extreme("amax"))
rule(aten.amin.default)(_extreme("amin"))


@rule(aten.im2col.default)
def _im2col(needs: list, self: Tensor, *window: Any) -> tuple[Any, Backward]:
    size, given = list(self.shape[-2:]), [_expanded(v, 2) for v in window]
    return aten.im2col.default(self, *given), lambda g: (aten.col2im.default(g, size, *given),)


@rule(aten.slice.Tensor)
def _slice(needs: list, self: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> tuple[Any, Backward]:  # fmt: skip
    shape = list(self.shape)
    bounds = (0 if start is None else start, 9223372036854775807 if end is None else end, step)
    out = aten.slice.Tensor(self, dim, start, end, step)
    return out, lambda g: (aten.slice_backward.default(g, shape, dim, *bounds),)
