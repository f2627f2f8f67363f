"""Random tensors whose distribution depends on tensors: bernoulli, normal, multinomial, poisson, binomial, gamma."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core import random_algorithms as algorithms
from ...core import random_samplers as samplers
from ...core.generator import Generator
from ...core.layout import broadcast_two
from ...core.promotion import get_default_dtype
from ...core.size import make_size
from ...core.tensor import Tensor, numel_of
from ...core.typenames import type_name
from ..creation.filled import finish, new, prepare_out
from ..machinery.arguments import as_int, as_ints, as_shape, need_tensors, read_options
from ..machinery.declare import composite, internal, primitive
from ..machinery.dtype_rules import unsupported
from ..machinery.inplace import check_writable
from ..machinery.memory import dense, like_first, raise_if_set
from ..machinery.out import resize_out, write_out
from ..machinery.plan import NATIVE
from ..machinery.primitive import unknown_derivative
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
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
    return g.new_zeros(like.shape)


# -- bernoulli --------------------------------------------------------------------------------------------------------


@internal(
    layout=like_first,
    draws=True,
    grads={"input": lambda g, input: _zeros(g, input)},
    quirks=Quirks(label="BernoulliBackward0"),
    runs_empty=True,
    batching="each",
)
def _bernoulli_of(input: Tensor, generator: Generator) -> Tensor:
    """Ones with the probabilities in `input`, else zeros."""


@_bernoulli_of.on("any")
def _(out: Tensor, input: Tensor, generator: Generator) -> None:
    fill_bernoulli(out, input, generator)


@internal(
    layout=like_first,
    draws=True,
    grads={"input": lambda g, input: _zeros(g, input)},
    quirks=Quirks(label="BernoulliBackward0"),
    batching="each",
)
def _bernoulli_with(input: Tensor, p: float, generator: Generator) -> Tensor:
    """Ones with probability p, else zeros."""


@_bernoulli_with.on("any")
def _(out: Tensor, input: Tensor, p: float, generator: Generator) -> None:
    fill(out, generator, Bernoulli(p))


@composite(kind="random")
def bernoulli(input: Tensor, p: Any = None, *, generator: Any = None, out: Any = None) -> Tensor:
    """Zeros and ones: one with the probability in `input`, or with probability `p` regardless of `input`."""
    source = as_generator(generator, "bernoulli")
    p = float(p) if isinstance(p, Tensor) and not p.shape else p
    if p is not None and (out is not None or not isinstance(p, (int, float))):
        raise TypeError(f"bernoulli(): argument 'p' (position 2) must be float, and without out=, not {type_name(p)}")
    if out is None:
        return _bernoulli_of(input, source) if p is None else _bernoulli_with(input, p, source)
    resize_out(out, input.shape)
    check_writable(out)
    fill_bernoulli(out, input, source)
    out._bump("bernoulli")
    return out


# -- normal -----------------------------------------------------------------------------------------------------------


def _check_deviation(std: Any) -> None:
    if isinstance(std, Tensor):
        if std.dtype.is_complex:
            raise RuntimeError("normal expects standard deviation to be non-complex")
        raise_if_set((std >= 0).logical_not().any(), RuntimeError("normal expects all elements of std >= 0.0"))
    elif not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")


def _fill_normal(t: Tensor, mean: Any, std: Any, generator: Generator) -> Tensor:
    """Write noise, times std, plus mean, each step rounded: PyTorch's order of operations."""
    if not isinstance(std, Tensor):
        return fill(t, generator, Normal(0.0, std)).add_(mean)
    return fill(t, generator, Normal(0.0, 1.0)).mul_(std).add_(mean)


def _normal_layout(mean: Any, std: Any, generator: Generator) -> tuple[Any, ...]:
    source = mean if isinstance(mean, Tensor) else std
    shape = source.shape
    if isinstance(mean, Tensor) and isinstance(std, Tensor):
        shape = broadcast_two(mean.shape, std.shape)
    return shape, source.dtype, source.device


def _normal_op(overload: str, label: str, *differentiable: str) -> Any:
    def normal(mean: Any, std: Any, generator: Generator) -> Tensor:
        """Normal samples, one for each element of mean and std."""

    rules = {"mean": lambda g, mean: _zeros(g, mean), "std": lambda g, std: _zeros(g, std)}
    grads = {name: rules[name] for name in differentiable}
    op = internal(
        normal, layout=_normal_layout, draws=True, grads=grads, quirks=Quirks(label=label), batching="each",
        overload=overload,
    )  # fmt: skip
    op.on("any")(_fill_normal)
    return op


_normal_of_mean = _normal_op("Tensor_float", "NormalBackward1", "mean")
_normal_of_std = _normal_op("float_Tensor", "NormalBackward2", "std")
_normal_of_both = _normal_op("Tensor_Tensor", "NormalBackward3", "mean", "std")


@composite(kind="random", method=False, batching="new")
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
    _check_deviation(std)
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


@composite(kind="random", batching="rows")
def multinomial(
    input: Tensor, num_samples: Any, replacement: bool = False, *, generator: Any = None, out: Any = None
) -> Tensor:
    """Indices drawn with the weights in each row of `input`."""
    if out is not None and out.dtype is not dt.int64:
        raise RuntimeError(f"multinomial expects Long tensor out, got: {out.dtype.scalar_type}")
    drawn = _multinomial(input, num_samples, replacement, generator)
    return drawn if out is None else write_out("multinomial", out, drawn)


def _multinomial(input: Tensor, num_samples: Any, replacement: bool, generator: Any) -> Tensor:
    source = as_generator(generator, "multinomial")
    num_samples = as_int(num_samples, "multinomial", "num_samples", 2)
    if len(input.shape) not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {input.dtype.scalar_type}")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > input.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if not input.shape[-1]:
        raise RuntimeError("cannot sample from no categories: the last dimension of prob_dist is empty")
    return _drawn(input, num_samples, bool(replacement), source)


@internal(draws=True, batching="each")
def _drawn(input: Tensor, num_samples: int, replacement: bool, generator: Generator) -> NewTensor:
    """Indices drawn with the weights in each row of `input`."""
    return (*input.shape[:-1], num_samples), dt.int64, input.device


@_drawn.on("cpu")
def _(out: Tensor, input: Tensor, num_samples: int, replacement: bool, generator: Generator) -> None:
    if replacement and num_samples > 1 and NATIVE:
        multinomial_samples(out, generator, dense(input), num_samples)
    elif num_samples == 1 and NATIVE and input._contig and input.dtype in (dt.float32, dt.float64):
        winner_samples(out, generator, input)
    elif input._contig or (replacement and num_samples > 1):
        weights = np.ascontiguousarray(input._array()).reshape(-1, input.shape[-1])
        drawn = samplers.multinomial(generator, weights, input.dtype, num_samples, replacement)
        out._array()[...] = drawn.reshape(out.shape)
    else:
        out._array()[...] = _race(generator, input, num_samples).reshape(out.shape)


def _race(source: Generator, input: Tensor, num_samples: int) -> np.ndarray:
    """Sample without replacement from weights that are not contiguous: the noise follows their memory order."""
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


def _sampling_op(fn: Any, native: Callable[..., None], sample: Callable[..., np.ndarray], **options: Any) -> Any:
    """Declare an operator whose samples depend on the elements of its input, row by row."""
    op = internal(fn, layout=like_first, draws=True, batching="each", **options)

    @op.on("cpu")
    def _(out: Tensor, input: Tensor, generator: Generator) -> None:
        if NATIVE:
            native(out, generator, dense(input))
        else:
            flat = sample(generator, np.ascontiguousarray(input._array()).reshape(-1), input.dtype)
            out._array()[...] = flat.reshape(out.shape)

    return op


def _counts(input: Tensor, generator: Generator) -> Tensor:
    """Counts of Poisson distributions with the rates in `input`."""


_poisson = _sampling_op(
    _counts,
    poisson_samples,
    samplers.poisson,
    grads={"input": lambda g, input: _zeros(g, input)},
    quirks=Quirks(label="PoissonBackward0"),
)


@composite(kind="random", method=False)
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Counts of Poisson distributions with the rates in `input`."""
    source = as_generator(generator, "poisson")
    if not input.dtype.is_floating_point:
        raise unsupported("poisson_cpu", input.dtype)
    return _poisson(input, source)


@composite(kind="random", method=False)
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """The number of successes among `count` trials, each with probability `prob`."""
    source = as_generator(generator, "binomial")
    if not count.dtype.is_floating_point:
        raise ValueError(f"binomial only supports floating-point dtypes for count, got: {count.dtype.scalar_type}")
    if not prob.dtype.is_floating_point:
        raise ValueError(f"binomial only supports floating-point dtypes for prob, got: {prob.dtype.scalar_type}")
    if prob.dtype is not count.dtype:
        raise RuntimeError(f"Found dtype {prob.dtype.scalar_type} but expected {count.dtype.scalar_type}")
    return _binomial(count, prob, source)


@internal(draws=True, batching="each")
def _binomial(count: Tensor, prob: Tensor, generator: Generator) -> NewTensor:
    """Draw the number of successes among `count` trials, each with probability `prob`."""
    return broadcast_two(count.shape, prob.shape), count.dtype, count.device


@_binomial.on("cpu")
def _(out: Tensor, count: Tensor, prob: Tensor, generator: Generator) -> None:
    if NATIVE and count.dtype in (dt.float32, dt.float64):
        binomial_samples(out, generator, *(dense(t.expand(out.shape)) for t in (count, prob)))
        return
    trials, chances = (np.ascontiguousarray(np.broadcast_to(t._array(), out.shape)).reshape(-1) for t in (count, prob))
    out._array()[...] = samplers.binomial(generator, trials, chances, count.dtype).reshape(out.shape)


# -- gamma ------------------------------------------------------------------------------------------------------------


@primitive(
    grads={("input", "output"): unknown_derivative("_standard_gamma_grad")},
    name="_standard_gamma_grad",
    method=False,
    batching="each",
)
def standard_gamma_grad(input: Tensor, output: Tensor) -> NewTensor:
    """The derivative of a sample of the gamma distribution by its parameter: d output / d input."""
    return broadcast_two(input.shape, output.shape), input.dtype, input.device


@standard_gamma_grad.on("cpu")
def _(out: Tensor, input: Tensor, output: Tensor) -> None:
    out._array()[...] = gamma_gradient(input._array(), output._array())


def _gammas(input: Tensor, generator: Generator) -> Tensor:
    """Samples of gamma distributions with the shape parameters in `input` and scale 1."""


_gamma = _sampling_op(
    _gammas,
    gamma_samples,
    samplers.standard_gamma,
    grads={"input": lambda g, input, out: g * standard_gamma_grad(input, out)},
    quirks=Quirks(label="StandardGammaBackward0"),
)


@composite(name="_standard_gamma", kind="random", method=False)
def standard_gamma(input: Tensor, generator: Any = None) -> Tensor:
    """Samples of gamma distributions with the shape parameters in `input` and scale 1."""
    source = as_generator(generator, "_standard_gamma")
    if input.dtype not in (dt.float32, dt.float64):
        raise unsupported("gamma_cpu", input.dtype)
    return _gamma(input, source)


@primitive(
    grads={("x", "alpha", "total"): unknown_derivative("_dirichlet_grad")},
    name="_dirichlet_grad",
    method=False,
    batching="each",
)
def dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> NewTensor:
    """The derivative of component `x` of a Dirichlet sample by its own parameter `alpha`; `total` is the sum of all."""
    return broadcast_two(broadcast_two(x.shape, alpha.shape), total.shape), x.dtype, x.device


@dirichlet_grad.on("cpu")
def _(out: Tensor, x: Tensor, alpha: Tensor, total: Tensor) -> None:
    out._array()[...] = dirichlet_gradient(x._array(), alpha._array(), total._array())


@internal(layout=like_first, draws=True, batching="each")
def _dirichlet(input: Tensor, generator: Generator) -> Tensor:
    """Samples of Dirichlet distributions, whose parameters are along the last dimension of `input`."""


@_dirichlet.on("cpu")
def _(out: Tensor, input: Tensor, generator: Generator) -> None:
    outcomes = input.shape[-1] if input.shape else 1
    if NATIVE:
        dirichlet_samples(out, generator, dense(input), outcomes)
    else:
        rows = np.ascontiguousarray(input._array()).reshape(-1, outcomes)
        out._array()[...] = samplers.dirichlet(generator, rows, input.dtype).reshape(out.shape)


@composite(name="_sample_dirichlet", kind="random", method=False)
def sample_dirichlet(input: Tensor, generator: Any = None) -> Tensor:
    """Samples of Dirichlet distributions, whose parameters are along the last dimension of `input`."""
    source = as_generator(generator, "_sample_dirichlet")
    if input.dtype not in (dt.float32, dt.float64):
        raise unsupported("dirichlet", input.dtype)
    return _dirichlet(input, source)
