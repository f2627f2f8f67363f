"""Activations that draw random numbers while training: rrelu and gumbel_softmax."""

from __future__ import annotations

import math
from typing import Any

from ...core.generator import Generator
from ...core.graph import unrecorded
from ...core.layout import contiguous_format
from ...core.random_samplers import rrelu_noise
from ...core.tensor import Tensor
from ...expr import functions as f
from ..creation.filled import empty_like
from ..machinery.arguments import need_tensors
from ..machinery.aten_form import aten_only
from ..machinery.declare import composite, internal
from ..machinery.dtype_rules import unsupported
from ..machinery.formula import Pointwise
from ..machinery.inplace import assign, check_writable
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
from ..random.random_fill import as_generator, store

_LABEL = "RreluWithNoiseBackward0"
_leaky = Pointwise("leaky_relu", lambda x, slope: f.where(x > 0, x, x * slope), quirks=Quirks(label=_LABEL))
_leaky_grad = Pointwise("leaky_relu_backward", lambda g, x, slope: f.where(x > 0, g, g * slope))


def _rrelu_grad(g: Tensor, input: Tensor, lower: float, upper: float, noise: Tensor) -> Tensor:
    if upper - lower > 1e-6:
        return g * noise
    # With equal bounds PyTorch takes the derivative of the fixed slope.
    return _leaky_grad.call((g, input, (lower + upper) / 2))


@internal(saves=("noise",), grads={"input": _rrelu_grad}, quirks=Quirks(label=_LABEL), draws=True, batching="each")
def random_slopes(input: Tensor, lower: float, upper: float, generator: Generator) -> NewTensor:
    """Negative elements times slopes that are random between the bounds, which are saved."""
    return [(input.shape, input.dtype, input.device)] * 2


@random_slopes.on("cpu")
def _draw_slopes(out: list[Tensor], input: Tensor, lower: float, upper: float, generator: Generator) -> None:
    values = input.contiguous()._array().reshape(-1)
    for t, made in zip(out, rrelu_noise(generator, values, input.dtype, lower, upper)):
        store(t, made)


def _sloped(input: Tensor, lower: float, upper: float, training: bool, generator: Generator) -> Tensor:
    """Negative elements times a slope: random between the bounds while training, else their mean."""
    if not training:
        if not input.dtype.is_floating_point:
            raise unsupported("leaky_relu_cpu", input.dtype)
        return _leaky.call((input, (lower + upper) / 2))
    if not input.dtype.is_floating_point or input.dtype.name == "float16":
        raise unsupported("rrelu_with_noise_out_cpu", input.dtype)
    return random_slopes(input, lower, upper, generator)


def _rrelu(name: str, input: Any, lower: float, upper: float, training: bool, generator: Any) -> Tensor:
    need_tensors(name, input=input)
    for bound, value in (("lower", lower), ("upper", upper)):
        if not math.isfinite(value):
            raise RuntimeError(f"rrelu: {bound} bound must be finite, got {value}")
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    return _sloped(input, float(lower), float(upper), training, as_generator(generator, name))


@composite(method=False, kind="random")
def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> Tensor:
    """A leaky relu whose slope is random while training."""
    return _rrelu("rrelu", input, lower, upper, training, generator)


@composite(method=False, kind="random", namespaces=("torch", "nn.functional"))
def rrelu_(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> Tensor:
    """`rrelu` in place."""
    check_writable(input)
    return assign(input, _rrelu("rrelu_", input, lower, upper, training, generator), "rrelu_")


@aten_only("rrelu_with_noise")
def _rrelu_with_noise(
    self: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Tensor:
    """Compute rrelu, and write the slopes into `noise` while training."""
    if not training:
        return _sloped(self, float(lower), float(upper), False, generator)
    slopes = empty_like(self.detach(), memory_format=contiguous_format)
    given = self.detach(), float(lower), float(upper), as_generator(generator, "rrelu_with_noise")
    _draw_slopes([empty_like(slopes), slopes], *given)
    return self * unrecorded(noise.copy_, slopes)


aten_only("rrelu_with_noise_")(lambda self, *rest: self.copy_(_rrelu_with_noise(self, *rest)))


@aten_only("rrelu_with_noise_functional")
def _rrelu_and_noise(self: Tensor, noise: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    drawn = noise.clone()
    return _rrelu_with_noise(self, drawn, *rest), drawn


@aten_only("rrelu_with_noise_backward")
def _(grad: Tensor, self: Tensor, noise: Tensor, lower: float, upper: float, training: bool, is_result: bool) -> Tensor:
    return (
        _rrelu_grad(grad, self, lower, upper, noise)
        if training
        else _leaky_grad.call((grad, self, (lower + upper) / 2))
    )


@composite(name="rrelu", namespaces=("nn.functional",), method=False, kind="random")
def _rrelu_functional(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """A leaky relu whose slope is random while training."""
    return (rrelu_ if inplace else rrelu)(input, lower, upper, training)


@composite(namespaces=("nn.functional",), method=False, kind="random")
def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample of the relaxed categorical distribution; `hard` makes it one-hot, with the soft one's derivative."""
    noise = empty_like(logits, memory_format=contiguous_format).exponential_().log()
    soft = ((logits - noise) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    one_hot = soft.detach().new_zeros(logits.shape).scatter_(dim, index, 1.0)
    return one_hot - soft.detach() + soft
