"""Random tensors: rand, randn, randint, randperm, their `_like` forms, and in-place fills such as `normal_`.

The numbers are PyTorch's for the same seed; the algorithms are in `core.random_algorithms` and `core.random_integers`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core import random_algorithms as algorithms
from ...core.aliases import Values
from ...core.device import default_device
from ...core.dtype import dtype
from ...core.generator import Generator, default_generator
from ...core.promotion import get_default_dtype
from ...core.size import Size, make_size
from ...core.tensor import Tensor, empty
from ...core.typenames import type_name
from ..creation.filled import empty_as, finish, new, prepare_out
from ..machinery.arguments import Options, as_int, as_ints, as_shape, is_int, need_tensor, read_options
from ..machinery.declare import composite, effect
from ..machinery.dtype_rules import unsupported
from ..machinery.plan import NATIVE
from .random_fill import as_generator, fill, fill_inplace
from .samplers import (
    Bernoulli,
    Cauchy,
    Exponential,
    FullIntegers,
    Geometric,
    Integers,
    LogNormal,
    Normal,
    Permutation,
    Sampler,
    Uniform,
)
from .varying_samplers import bernoulli_samples

_FLOATS = (dt.float32, dt.float64)
_UNIT, _STANDARD, _PERMUTATION = Uniform(), Normal(), Permutation()


# -- new tensors ------------------------------------------------------------------------------------------------------


def _new_random(
    name: str, shape: Size, sample: Sampler, generator: Any, out: Any, options: Options, d: dtype
) -> Tensor:
    source = as_generator(generator, name)
    if out is not None:
        t = fill(prepare_out(name, out, shape, options), source, sample)
        t._bump(name)
        return t
    return finish(fill(new(shape, options, d), source, sample), options.requires_grad)


def _shape(name: str, size: Values, options: dict[str, Any]) -> Size:
    return as_shape((options.pop("size"),) if not size and "size" in options else size, name)


def _drawn(name: str, sample: Sampler, size: Values, generator: Any, out: Any, options: dict[str, Any]) -> Tensor:
    """Return random numbers, by default of the default dtype."""
    if generator is None and out is None and not options:
        return fill(empty(as_shape(size, name), get_default_dtype(), default_device()), default_generator, sample)
    shape = _shape(name, size, options)
    return _new_random(name, shape, sample, generator, out, read_options(name, options), get_default_dtype())


@composite(kind="random", method=False, batching="new")
def rand(*size: Any, generator: Any = None, out: Any = None, **options: Any) -> Tensor:
    """Uniform random numbers on [0, 1).

    >>> manual_seed(0); rand(3)
    tensor([0.4963, 0.7682, 0.0885])
    """
    return _drawn("rand", _UNIT, size, generator, out, options)


@composite(kind="random", method=False, batching="new")
def randn(*size: Any, generator: Any = None, out: Any = None, **options: Any) -> Tensor:
    """Normally distributed random numbers with mean 0 and variance 1.

    >>> manual_seed(0); randn(3)
    tensor([ 1.5410, -0.2934, -2.1788])
    """
    return _drawn("randn", _STANDARD, size, generator, out, options)


def _bounds(name: str, args: Values, kwargs: dict[str, Any], rest: int) -> tuple[int, int, tuple[Any, ...]]:
    """Return `low`, `high` and the arguments after them: (high, ...) or (low, high, ...), by position or by name."""
    names = ("high",) if len(args) + ("high" in kwargs) + ("low" in kwargs) - rest < 2 else ("low", "high")
    values, left = {}, list(args)
    for argument in names:
        if argument in kwargs:
            values[argument] = kwargs.pop(argument)
        elif left:
            values[argument] = left.pop(0)
        elif argument == "high":
            raise TypeError(f'{name}() missing 1 required positional arguments: "high"')
    for position, (argument, value) in enumerate(values.items(), 1):
        values[argument] = as_int(value, name, argument, position)
    return values.get("low", 0), values["high"], tuple(left)


@composite(kind="random", method=False, batching="new")
def randint(*args: Any, generator: Any = None, out: Any = None, **options: Any) -> Tensor:
    """randint(low, high=None, size=None, *, generator=None, out=None, **options): random integers from low to high - 1. With two
    arguments, `randint(high, size)`, low is 0.

    >>> manual_seed(0); randint(10, (3,))
    tensor([4, 9, 3])
    """
    low, high, left = _bounds("randint", args, options, 0 if "size" in options else 1)
    if len(left) + ("size" in options) != 1:
        raise TypeError(
            "randint() takes (int high, tuple of ints size) or (int low, int high, tuple of ints size), but got "
            f"({', '.join(type_name(a) for a in args)})"
        )
    shape = as_shape((as_ints(left[0] if left else options.pop("size"), "randint", "size", 1 + len(args)),), "randint")
    sample = Integers(low, high)
    return _new_random("randint", shape, sample, generator, out, read_options("randint", options), dt.int64)


@composite(kind="random", method=False, batching="each")
def randperm(n: Any, *, generator: Any = None, out: Any = None, **options: Any) -> Tensor:
    """A random permutation of 0 ... n - 1.

    >>> manual_seed(0); randperm(5)
    tensor([2, 0, 1, 3, 4])
    """
    shape = make_size((as_int(n, "randperm", "n", 1),))
    chosen = read_options("randperm", options)
    source = as_generator(generator, "randperm")
    t = new(shape, chosen, dt.int64) if out is None else prepare_out("randperm", out, shape, chosen)
    fill(t, source, _PERMUTATION)
    if out is None:
        return finish(t, chosen.requires_grad)
    t._bump("randperm")
    return t


def _like(name: str, input: Any, sample: Sampler, generator: Any, options: dict[str, Any]) -> Tensor:
    need_tensor(name, input)
    chosen = read_options(name, options, takes_format=True)
    t = empty_as(input, chosen.dtype, chosen.device, chosen.format)
    return finish(fill(t, as_generator(generator, name), sample), chosen.requires_grad)


@composite(kind="random", method=False, batching="like")
def rand_like(input: Tensor, *, generator: Any = None, **options: Any) -> Tensor:
    """Uniform random numbers on [0, 1) in the shape of another tensor."""
    return _like("rand_like", input, _UNIT, generator, options)


@composite(kind="random", method=False, batching="like")
def randn_like(input: Tensor, *, generator: Any = None, **options: Any) -> Tensor:
    """Standard normal random numbers in the shape of another tensor."""
    return _like("randn_like", input, _STANDARD, generator, options)


def _number(value: Any) -> Any:
    """Return a bound, which may be given as a tensor of one element."""
    if isinstance(value, Tensor) and not is_int(value):
        return int(value.item())
    return value


@composite(kind="random", method=False, batching="like")
def randint_like(input: Tensor, *args: Any, generator: Any = None, **options: Any) -> Tensor:
    """randint_like(input, low, high=None, *, generator=None, **options): random integers from low to high - 1 in the shape of
    another tensor. `randint_like(input, high)`: low is 0."""
    low, high, left = _bounds("randint_like", tuple(_number(a) for a in args), options, 0)
    if left:
        raise TypeError(f"randint_like() takes 2 or 3 positional arguments, but {1 + len(args)} were given")
    return _like("randint_like", input, Integers(low, high), generator, options)


# -- in place ---------------------------------------------------------------------------------------------------------


def _fill_(self: Tensor, name: str, label: str, sample: Sampler, generator: Any) -> Tensor:
    source = as_generator(generator, name)
    return fill_inplace(self, name, label, lambda: fill(self, source, sample))


def _reals(name: str, **given: Any) -> list[float]:
    """Return number arguments as Python numbers."""
    found = []
    for argument, value in given.items():
        if isinstance(value, (Tensor, np.generic)):
            value = value.item()
        if not isinstance(value, (int, float)):
            raise TypeError(f"{name}(): argument '{argument}' must be float, not {type_name(value)}")
        found.append(value)
    return found


@composite(kind="random", function=False)
def uniform_(self: Tensor, *args: Any, generator: Any = None, **kwargs: Any) -> Tensor:
    """Make every element uniform on [from, to): `uniform_(from=0, to=1)`. (`from` is a Python keyword: pass it by position
    or as **{"from": ...}.)"""
    if not args and not kwargs:
        return _fill_(self, "uniform_", "UniformBackward0", _UNIT, generator)
    bounds = dict(zip(("from", "to"), args))
    if len(args) > 2 or set(kwargs) - {"from", "to"} or set(bounds) & set(kwargs):
        raise TypeError(f"uniform_() takes from, to and generator, but got {len(args)} arguments and {sorted(kwargs)}")
    low, high = _reals("uniform_", **{"from": 0.0, "to": 1.0, **bounds, **kwargs})
    return _fill_(self, "uniform_", "UniformBackward0", Uniform(low, high), generator)


@composite(kind="random", function=False)
def normal_(self: Tensor, mean: Any = 0.0, std: Any = 1.0, *, generator: Any = None) -> Tensor:
    """Fill the tensor with samples of the normal distribution."""
    mean, std = _reals("normal_", mean=mean, std=std)
    return _fill_(self, "normal_", "NormalBackward0", Normal(mean, std), generator)


@composite(kind="random", function=False)
def log_normal_(self: Tensor, mean: Any = 1.0, std: Any = 2.0, *, generator: Any = None) -> Tensor:
    """Fill the tensor with exp of normal samples of this mean and standard deviation."""
    mean, std = _reals("log_normal_", mean=mean, std=std)
    sample = LogNormal(mean, std)
    return _fill_(self, "log_normal_", "LogNormalBackward0", sample, generator)


@composite(kind="random", function=False)
def exponential_(self: Tensor, lambd: Any = 1.0, *, generator: Any = None) -> Tensor:
    """Fill the tensor with samples of the exponential distribution with rate `lambd`."""
    (rate,) = _reals("exponential_", lambd=lambd)
    return _fill_(self, "exponential_", "ExponentialBackward0", Exponential(rate), generator)


@composite(kind="random", function=False)
def cauchy_(self: Tensor, median: Any = 0.0, sigma: Any = 1.0, *, generator: Any = None) -> Tensor:
    """Fill the tensor with samples of the Cauchy distribution."""
    median, sigma = _reals("cauchy_", median=median, sigma=sigma)
    sample = Cauchy(median, sigma)
    return _fill_(self, "cauchy_", "CauchyBackward0", sample, generator)


@composite(kind="random", function=False)
def geometric_(self: Tensor, p: Any, *, generator: Any = None) -> Tensor:
    """Fill the tensor with numbers of trials up to the first success of probability `p`."""
    (chance,) = _reals("geometric_", p=p)
    sample = Geometric(chance)
    return _fill_(self, "geometric_", "GeometricBackward0", sample, generator)


@composite(kind="random", function=False)
def random_(self: Tensor, *args: Any, generator: Any = None, **kwargs: Any) -> Tensor:
    """Fill with random integers. `random_()`: any non-negative integer of the dtype; random_(to): 0 ... to - 1; random_(from, to): from ... to - 1."""
    given = dict(zip(("from", "to") if len(args) > 1 else ("to",), args))
    if len(args) > 2 or set(kwargs) - {"from", "to"} or set(given) & set(kwargs):
        raise TypeError(f"random_() takes from, to and generator, but got {len(args)} arguments and {sorted(kwargs)}")
    given.update(kwargs)
    if not given:
        return _fill_(self, "random_", "RandomBackward2", FullIntegers(), generator)
    label = "RandomBackward0" if "from" in given else "RandomBackward1"
    low = as_int(given.get("from", 0), "random_", "from", 1)
    high = given.get("to")
    sample = Integers(low, None if high is None else as_int(high, "random_", "to", 2))
    return _fill_(self, "random_", label, sample, generator)


@composite(kind="random", function=False)
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Set every element to 1 with probability `p` (a number, or a tensor of one per element), else to 0."""
    if not isinstance(p, Tensor):
        (chance,) = _reals("bernoulli_", p=p)
        return _fill_(self, "bernoulli_", "BernoulliBackward2", Bernoulli(chance), generator)
    source = as_generator(generator, "bernoulli_")
    return fill_inplace(self, "bernoulli_", "BernoulliBackward1", lambda: fill_bernoulli(self, p, source))


def fill_bernoulli(t: Tensor, p: Tensor, generator: Generator) -> Tensor:
    """Set each element of `t` to 1 with the probability in `p`. No autograd, no version bump."""
    if not p.dtype.is_floating_point:
        raise unsupported("bernoulli_tensor_cpu_p_", p.dtype)
    return _bernoulli_fill(t, p.detach().expand(t.shape), generator)


@effect(name="bernoulli_fill", draws=True, batching="each")
def _bernoulli_fill(t: Tensor, p: Tensor, generator: Generator) -> Tensor:
    """Set each element of `t` to 1 with the probability in `p`, which has its shape."""


@_bernoulli_fill.on("cpu")
def _(t: Tensor, p: Tensor, generator: Generator) -> None:
    if NATIVE and t._contig and t.dtype in _FLOATS:
        bernoulli_samples(generator, t, p if p._contig else p.contiguous())
        return
    chances = algorithms.visited(p._array(), t.shape, t._strides, p._strides)
    flat = algorithms.bernoulli_tensor(generator, chances, p.dtype, t.dtype)
    t._array()[...] = algorithms.place(flat, t.shape, t._strides, p._strides)
