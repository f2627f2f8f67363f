"""Random tensors whose distribution depends on tensors: bernoulli, normal, multinomial, poisson, binomial, gamma."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core import random_algorithms as algorithms
from ...core import random_samplers as samplers
from ...core.device import cpu
from ...core.generator import Generator
from ...core.layout import broadcast_two
from ...core.promotion import get_default_dtype
from ...core.size import make_size
from ...core.tensor import Tensor, copy_of_array, empty, numel_of
from ...core.typenames import type_name
from ..creation.filled import finish, new, prepare_out
from ..machinery.arguments import as_int, as_ints, as_shape, need_tensors, read_options
from ..machinery.declare import composite, internal, primitive
from ..machinery.dtype_rules import type_word, unsupported
from ..machinery.inplace import check_writable, resize_out, write_out
from ..machinery.memory import dense
from ..machinery.plan import NATIVE
from ..machinery.primitive import unknown_derivative
from .fills import fill_bernoulli
from .gamma_gradient import dirichlet_gradient, gamma_gradient
from .random_fill import as_generator, fill
from .samplers import Bernoulli, Normal
from .varying_samplers import (
    binomial_samples,
    dirichlet_samples,
    gamma_samples,
    multinomial_samples,
    poisson_samples,
    winner_samples,
)


def _zeros(g: Tensor, like: Tensor) -> Tensor:
    return g.new_zeros(like.shape)  # type: ignore[attr-defined]


# -- bernoulli --------------------------------------------------------------------------------------------------------


@internal(grads={"input": lambda g, input: _zeros(g, input)}, label="BernoulliBackward0")
def _bernoulli_of(input: Tensor, generator: Generator) -> Tensor:
    return fill_bernoulli(empty(input.shape, input.dtype, input.device), input, generator)


@internal(grads={"input": lambda g, input: _zeros(g, input)}, label="BernoulliBackward0")
def _bernoulli_with(input: Tensor, p: float, generator: Generator) -> Tensor:
    return fill(empty(input.shape, input.dtype, input.device), generator, Bernoulli(p))


@composite(kind="random")
def bernoulli(input: Tensor, p: Any = None, *, generator: Any = None, out: Any = None) -> Tensor:
    """Zeros and ones: one with the probability in `input`, or with probability `p` whatever `input` holds."""
    need_tensors("bernoulli", input=input)
    source = as_generator(generator, "bernoulli")
    if p is not None and not isinstance(p, (int, float)):
        raise TypeError(f"bernoulli(): argument 'p' (position 2) must be float, not {type_name(p)}")
    if out is None:
        return _bernoulli_of(input, source) if p is None else _bernoulli_with(input, p, source)
    resize_out(out, input.shape)
    check_writable(out)
    if p is None:
        fill_bernoulli(out, input, source)
    else:
        fill(out, source, Bernoulli(p))
    out._bump("bernoulli")
    return out


# -- normal -----------------------------------------------------------------------------------------------------------


def _check_deviation(std: Any) -> None:
    if isinstance(std, Tensor):
        if std.dtype.is_complex:
            raise RuntimeError("normal expects standard deviation to be non-complex")
        if std.device is cpu and numel_of(std.shape) and not (std.min() >= 0).item():  # type: ignore[attr-defined]
            raise RuntimeError("normal expects all elements of std >= 0.0")
    elif not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")


def _fill_normal(t: Tensor, mean: Any, std: Any, generator: Generator) -> Tensor:
    """Noise, times std, plus mean, each step rounded: PyTorch's order of operations."""
    if not isinstance(std, Tensor):
        return fill(t, generator, Normal(0.0, std)).add_(mean)  # type: ignore[attr-defined]
    return fill(t, generator, Normal(0.0, 1.0)).mul_(std).add_(mean)  # type: ignore[attr-defined]


def _normal_like(mean: Any, std: Any, generator: Generator) -> Tensor:
    _check_deviation(std)
    shape = std.shape if not isinstance(mean, Tensor) else mean.shape
    if isinstance(mean, Tensor) and isinstance(std, Tensor):
        shape = broadcast_two(mean.shape, std.shape)
    source = mean if isinstance(mean, Tensor) else std
    return _fill_normal(empty(make_size(shape), source.dtype, source.device), mean, std, generator)


@internal(grads={"mean": lambda g, mean: _zeros(g, mean)}, label="NormalBackward1")
def _normal_of_mean(mean: Tensor, std: float, generator: Generator) -> Tensor:
    return _normal_like(mean, std, generator)


@internal(grads={"std": lambda g, std: _zeros(g, std)}, label="NormalBackward2")
def _normal_of_std(mean: float, std: Tensor, generator: Generator) -> Tensor:
    return _normal_like(mean, std, generator)


@internal(
    grads={"mean": lambda g, mean: _zeros(g, mean), "std": lambda g, std: _zeros(g, std)}, label="NormalBackward3"
)
def _normal_of_both(mean: Tensor, std: Tensor, generator: Generator) -> Tensor:
    return _normal_like(mean, std, generator)


@composite(kind="random", method=False)
def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, out: Any = None, **options: Any
) -> Tensor:
    """Normal samples: of one distribution, normal(mean, std, size), or of one per element of tensors mean and std.

    >>> manual_seed(0); normal(0.0, 1.0, (3,))
    tensor([ 1.5410, -0.2934, -2.1788])
    """
    for name, value in (("mean", mean), ("std", std)):
        if not isinstance(value, (Tensor, int, float, np.number)):
            raise TypeError(f"normal(): argument '{name}' must be Tensor or float, not {type_name(value)}")
    source = as_generator(generator, "normal")
    if size is not None:
        mean, std = (x.item() if isinstance(x, Tensor) and not x.shape else x for x in (mean, std))
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        return _normal_sized(mean, std, size, source, out, options)
    if size is not None or options:
        raise TypeError("normal() takes a size and options of new tensors only if mean and std are numbers")
    if out is not None:
        return _normal_into(mean, std, source, out)
    if not isinstance(mean, Tensor):
        return _normal_of_std(mean, std, source)
    return _normal_of_both(mean, std, source) if isinstance(std, Tensor) else _normal_of_mean(mean, std, source)


def _normal_sized(mean: Any, std: Any, size: Any, source: Generator, out: Any, options: dict[str, Any]) -> Tensor:
    if size is None:
        raise TypeError('normal() missing 1 required positional arguments: "size"')
    shape = as_shape((as_ints(size, "normal", "size", 3),), "normal")
    chosen = read_options("normal", options)
    t = new(shape, chosen, get_default_dtype()) if out is None else prepare_out("normal", out, shape, chosen)
    fill(t, source, Normal(mean, std))
    if out is None:
        return finish(t, chosen.requires_grad)
    t._bump("normal")
    return t


def _normal_into(mean: Any, std: Any, source: Generator, out: Any) -> Tensor:
    need_tensors("normal", out=out)
    _check_deviation(std)
    shape: Any = ()
    for operand in (mean, std):
        if isinstance(operand, Tensor):
            shape = broadcast_two(shape, operand.shape)
    resize_out(out, make_size(shape))
    return _fill_normal(out, mean, std, source)


# -- discrete ---------------------------------------------------------------------------------------------------------


@composite(kind="random")
def multinomial(
    input: Tensor, num_samples: Any, replacement: bool = False, *, generator: Any = None, out: Any = None
) -> Tensor:
    """Indices drawn with the weights in each row of `input`."""
    need_tensors("multinomial", input=input)
    if out is not None and out.dtype is not dt.int64:
        raise RuntimeError(f"multinomial expects Long tensor out, got: {type_word(out.dtype)}")
    drawn = _multinomial(input, num_samples, replacement, generator)
    return drawn if out is None else write_out("multinomial", out, drawn)


def _multinomial(input: Tensor, num_samples: Any, replacement: bool, generator: Any) -> Tensor:
    source = as_generator(generator, "multinomial")
    num_samples = as_int(num_samples, "multinomial", "num_samples", 2)
    if len(input.shape) not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {type_word(input.dtype)}")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > input.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if not input.shape[-1]:
        raise RuntimeError("cannot sample from no categories: the last dimension of prob_dist is empty")
    shape = make_size((*input.shape[:-1], num_samples))
    if input.device is not cpu:
        return empty(shape, dt.int64, input.device)
    if replacement and num_samples > 1 and NATIVE and numel_of(input.shape):
        return multinomial_samples(source, dense(input), num_samples, shape)
    if (
        num_samples == 1
        and NATIVE
        and input._contig
        and input.dtype in (dt.float32, dt.float64)
        and numel_of(input.shape)
    ):
        return winner_samples(source, input, shape)
    if input._contig or (replacement and num_samples > 1):
        weights = np.ascontiguousarray(input._array()).reshape(-1, input.shape[-1])
        drawn = samplers.multinomial(source, weights, input.dtype, num_samples, replacement)
    else:
        drawn = _race(source, input, num_samples)
    return copy_of_array(drawn.reshape(shape), dt.int64)


def _race(source: Generator, input: Tensor, num_samples: int) -> np.ndarray:
    """Sampling without replacement from weights that are not contiguous: the noise follows their memory order."""
    if num_samples > input.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    noise = algorithms.exponential(source, numel_of(input.shape), input.dtype)
    placed = algorithms.place(noise, input.shape, input._strides)
    rows = (-1, input.shape[-1])
    values = samplers.rm.widen(input._array(), input.dtype).reshape(rows)
    scores = samplers.race_scores(values, samplers.rm.widen(placed, input.dtype).reshape(rows), input.dtype)
    if num_samples == 1:
        return scores.argmax(-1, keepdims=True)
    return np.argsort(-scores, axis=-1, kind="stable")[:, :num_samples]


def _sampled(
    input: Tensor, source: Generator, native: Callable[..., Tensor], sample: Callable[..., np.ndarray]
) -> Tensor:
    """A contiguous tensor of `input`'s shape whose elements come from its own, row by row."""
    if input.device is not cpu or not numel_of(input.shape):
        return empty(input.shape, input.dtype, input.device)
    if NATIVE:
        return native(source, dense(input))
    flat = sample(source, np.ascontiguousarray(input._array()).reshape(-1), input.dtype)
    return copy_of_array(flat.reshape(input.shape), input.dtype)


@primitive(grads={"input": lambda g, input: _zeros(g, input)}, kind="random", method=False)
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Counts of Poisson distributions with the rates in `input`."""
    need_tensors("poisson", input=input)
    source = as_generator(generator, "poisson")
    if not input.dtype.is_floating_point:
        raise unsupported("poisson_cpu", input.dtype)
    return _sampled(input, source, poisson_samples, samplers.poisson)


@composite(kind="random", method=False)
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """How many of `count` trials succeed, each with probability `prob`."""
    need_tensors("binomial", count=count, prob=prob)
    source = as_generator(generator, "binomial")
    if not count.dtype.is_floating_point:
        raise ValueError(f"binomial only supports floating-point dtypes for count, got: {type_word(count.dtype)}")
    if not prob.dtype.is_floating_point:
        raise ValueError(f"binomial only supports floating-point dtypes for prob, got: {type_word(prob.dtype)}")
    if prob.dtype is not count.dtype:
        raise RuntimeError(f"Found dtype {type_word(prob.dtype)} but expected {type_word(count.dtype)}")
    shape = make_size(broadcast_two(count.shape, prob.shape))
    if count.device is not cpu:
        return empty(shape, count.dtype, count.device)
    if NATIVE and numel_of(shape) and count.dtype in (dt.float32, dt.float64):
        both = (dense(t.expand(shape)) for t in (count, prob))  # type: ignore[attr-defined]
        return binomial_samples(source, *both)
    trials, chances = (np.ascontiguousarray(np.broadcast_to(t._array(), shape)).reshape(-1) for t in (count, prob))
    drawn = samplers.binomial(source, trials, chances, count.dtype)
    return copy_of_array(drawn.reshape(shape), count.dtype)


# -- gamma ------------------------------------------------------------------------------------------------------------


@primitive(
    grads={("input", "output"): unknown_derivative("_standard_gamma_grad")}, name="_standard_gamma_grad", method=False
)
def standard_gamma_grad(input: Tensor, output: Tensor) -> Tensor:
    """How a sample of the gamma distribution moves with its parameter: d output / d input."""
    return copy_of_array(gamma_gradient(input._array(), output._array()), input.dtype)


@primitive(
    grads={"input": lambda g, input, out: g * standard_gamma_grad(input, out)},
    name="_standard_gamma",
    kind="random",
    method=False,
)
def standard_gamma(input: Tensor, generator: Any = None) -> Tensor:
    """Samples of gamma distributions with the shape parameters in `input` and scale 1."""
    source = as_generator(generator, "_standard_gamma")
    if input.dtype not in (dt.float32, dt.float64):
        raise unsupported("gamma_cpu", input.dtype)
    return _sampled(input, source, gamma_samples, samplers.standard_gamma)


@primitive(grads={("x", "alpha", "total"): unknown_derivative("_dirichlet_grad")}, name="_dirichlet_grad", method=False)
def dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """How component `x` of a Dirichlet sample moves with its own parameter `alpha`; `total` is the sum of all."""
    return copy_of_array(dirichlet_gradient(x._array(), alpha._array(), total._array()), x.dtype)


@primitive(name="_sample_dirichlet", kind="random", method=False)
def sample_dirichlet(input: Tensor, generator: Any = None) -> Tensor:
    """Samples of Dirichlet distributions, whose parameters lie along the last dimension of `input`."""
    source = as_generator(generator, "_sample_dirichlet")
    if input.dtype not in (dt.float32, dt.float64):
        raise unsupported("dirichlet", input.dtype)
    if input.device is not cpu or not numel_of(input.shape):
        return empty(input.shape, input.dtype, input.device)
    outcomes = input.shape[-1] if input.shape else 1
    if NATIVE:
        return dirichlet_samples(source, dense(input), outcomes)
    rows = np.ascontiguousarray(input._array()).reshape(-1, outcomes)
    return copy_of_array(samplers.dirichlet(source, rows, input.dtype).reshape(input.shape), input.dtype)
