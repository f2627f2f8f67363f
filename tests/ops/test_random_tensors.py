"""Random tensors: PyTorch's bits for the same seed, whatever the size, dtype and memory layout; native fills and their
NumPy versions agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau.core import dtype as dt
from flambeau.core.generator import Generator
from flambeau.core.tensor import empty
from flambeau.ops.random import samplers

# -- without PyTorch --------------------------------------------------------------------------------------------------


def test_first_numbers_of_seed_zero():
    flambeau.manual_seed(0)
    assert flambeau.rand(3).tolist() == [0.49625658988952637, 0.7682217955589294, 0.08847743272781372]
    flambeau.manual_seed(0)
    assert flambeau.randn(3).tolist() == [1.5409960746765137, -0.293428897857666, -2.1787893772125244]
    flambeau.manual_seed(0)
    assert flambeau.randint(10, (5,)).tolist() == [4, 9, 3, 0, 3]
    assert flambeau.initial_seed() == 0


DISTRIBUTIONS = {
    "uniform": samplers.Uniform(),
    "uniform range": samplers.Uniform(0.1, 0.3),
    "normal": samplers.Normal(),
    "normal range": samplers.Normal(-2.0, 0.3),
    "exponential": samplers.Exponential(2.5),
    "bernoulli": samplers.Bernoulli(0.3),
    "dropout noise": samplers.Bernoulli(0.7, 1 / 0.7),
    "integers": samplers.Integers(-3, 14),
    "integers, power of two": samplers.Integers(3, 19),
    "permutation": samplers.Permutation(),
}
FLOATS = (dt.float32, dt.float64, dt.float16, dt.bfloat16)


@pytest.mark.parametrize("d", [*FLOATS, dt.int64, dt.uint8, dt.complex64], ids=str)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_native_fills_have_the_bits_of_their_numpy_versions(name: str, d: Any):
    sampler = DISTRIBUTIONS[name]
    for n in (1, 2, 15, 16, 17, 100, 623, 625, 40_000):
        for contiguous in (True, False):
            if name == "permutation" and n > 200 and d in (dt.uint8, dt.float16, dt.bfloat16):
                continue
            if name == "dropout noise" and not d.is_floating_point:
                continue
            first, second = (Generator().manual_seed(n) for _ in range(2))
            for g in (first, second):
                g.raw(7)
            out = empty((n,), d)
            try:
                filled = sampler.native(out, n, first, contiguous)
            except (NotImplementedError, RuntimeError) as refused:
                with pytest.raises(type(refused)):
                    sampler.flat(second, n, d, contiguous)
                continue
            if not filled:
                continue
            expected = sampler.flat(second, n, d, contiguous)
            np.testing.assert_array_equal(out._array().view(np.uint8), np.ascontiguousarray(expected).view(np.uint8))
            assert first.state_bytes() == second.state_bytes()


def test_states_and_forks():
    g = flambeau.Generator().manual_seed(5)
    state = g.get_state()
    assert state.dtype is flambeau.uint8 and state.shape == (5056,)
    first = flambeau.rand(4, generator=g)
    g.set_state(state)
    assert flambeau.rand(4, generator=g).tolist() == first.tolist()
    twin = g.clone_state()
    assert flambeau.randn(3, generator=g).tolist() == flambeau.randn(3, generator=twin).tolist()
    flambeau.manual_seed(1)
    with flambeau.random.fork_rng():
        inside = flambeau.rand(3).tolist()
    assert flambeau.rand(3).tolist() == inside
    with pytest.raises(TypeError):
        g.set_state(flambeau.zeros(5056))
    with pytest.raises(RuntimeError):
        g.set_state(flambeau.zeros(10, dtype=flambeau.uint8))


def test_samples_of_gamma_move_with_their_parameter():
    # Quantiles of the gamma distribution with parameter 3.3, and their derivatives, from SciPy.
    x = flambeau.tensor([0.5, 2.0, 5.0, 9.0], dtype=flambeau.float64)
    alpha = flambeau.full((4,), 3.3, dtype=flambeau.float64)
    expected = [0.35205344, 0.80962166, 1.28538846, 1.66458217]
    np.testing.assert_allclose(flambeau._standard_gamma_grad(alpha, x).tolist(), expected, rtol=1e-7)


# -- against PyTorch --------------------------------------------------------------------------------------------------

SEEDED = "torch.manual_seed(3)"

NUMBERS = """
[torch.rand(n).tolist() for n in (0, 1, 15, 16, 17, 100, 2000)]
[torch.randn(n).tolist() for n in (0, 1, 2, 15, 16, 17, 31, 32, 100, 2000)]
[torch.randn(n, dtype=torch.float64).tolist() for n in (1, 16, 33, 700)]
[torch.randn(n, dtype=torch.bfloat16).tolist() for n in (1, 16, 33, 700)]
[torch.rand(n, dtype=torch.float16).tolist() for n in (1, 33, 700)]
[torch.randn(3, dtype=torch.complex64).tolist(), torch.rand(9, dtype=torch.complex128).tolist()]
[torch.randn(2, 3).tolist(), torch.randn((2, 3)).tolist(), torch.randn(size=(2, 3)).tolist(), torch.randn([]).tolist()]
[torch.randint(10, (20,)).tolist(), torch.randint(-5, 5, (20,)).tolist(), torch.randint(low=0, high=9, size=(4,)).tolist()]
[torch.randint(2**40, (9,)).tolist(), torch.randint(-2**33, 2**33, (9,)).tolist(), torch.randint(2**28, (9,)).tolist()]
[torch.randint(0, 100, (20,), dtype=d).tolist() for d in (torch.int32, torch.uint8, torch.float32, torch.bfloat16)]
[torch.randint(2, (9,), dtype=torch.bool).tolist()]
[torch.randperm(n).tolist() for n in (0, 1, 2, 10, 1000)]
[torch.randperm(9, dtype=torch.int32).tolist(), torch.randperm(9, dtype=torch.float32).tolist()]
[torch.rand_like(torch.zeros(4, 9)).tolist(), torch.randn_like(torch.zeros(4, 9).t()).tolist()]
[torch.randint_like(torch.zeros(4, 9), 3, 17).tolist(), torch.randint_like(torch.zeros(5), 3).tolist()]
torch.zeros(6, 8).t().normal_().tolist()
torch.zeros(6, 8)[:, ::2].uniform_(-2, 3).tolist()
torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last).normal_().tolist()
torch.zeros(4, 5, 6).permute(2, 0, 1).exponential_(2.5).tolist()
torch.zeros(7, 3, dtype=torch.float64).t().bernoulli_(0.3).tolist()
torch.empty(30).bernoulli_(torch.linspace(0, 1, 30)).tolist()
torch.empty(3, 10).bernoulli_(torch.linspace(0, 1, 10)).tolist()
torch.bernoulli(torch.linspace(0, 1, 30).reshape(5, 6).t()).tolist()
[torch.empty(50).log_normal_().tolist(), torch.empty(50).cauchy_(1, 2).tolist(), torch.empty(50).geometric_(0.3).tolist()]
[torch.empty(50, dtype=torch.int64).geometric_(0.3).tolist(), torch.empty(50, dtype=torch.int64).random_().tolist()]
[torch.empty(20).random_(10).tolist(), torch.empty(20).random_(-3, 8).tolist(), torch.empty(9).random_().tolist()]
[torch.normal(0.0, 1.0, (5,)).tolist(), torch.normal(torch.arange(20.), torch.ones(20)).tolist()]
[torch.normal(torch.arange(20.), 0.5).tolist(), torch.normal(1.0, torch.arange(1., 21.)).tolist()]
torch.normal(torch.zeros(3, 1), torch.ones(7)).tolist()
[torch.multinomial(torch.arange(1., 9.), k).tolist() for k in (1, 3, 8)]
torch.multinomial(torch.arange(1., 9.), 20, replacement=True).tolist()
torch.multinomial(torch.rand(6, 4).t(), 3).tolist()
[torch.poisson(torch.arange(0., 40.)).tolist(), torch.binomial(torch.full((20,), 30.), torch.linspace(0, 1, 20)).tolist()]
[torch._standard_gamma(torch.linspace(0.1, 9, 20)).tolist(), torch._sample_dirichlet(torch.ones(3, 4)).tolist()]
[torch.nn.functional.dropout(torch.ones(n), 0.3).tolist() for n in (1, 50)]
torch.nn.functional.dropout(torch.ones(6, 5).t(), 0.3).tolist()
torch.nn.functional.dropout(torch.ones(50, dtype=torch.bfloat16), 0.3).tolist()
torch.nn.functional.dropout2d(torch.ones(2, 10, 3, 3), 0.4).tolist()
torch.nn.functional.dropout3d(torch.ones(10, 3, 3, 2), 0.4).tolist()
torch.nn.functional.alpha_dropout(torch.ones(50), 0.4, True).tolist()
torch.nn.functional.feature_alpha_dropout(torch.ones(4, 10, 3), 0.4, True).tolist()
[t.tolist() for t in torch.native_dropout(torch.ones(20), 0.4, True)]
torch.nn.functional.rrelu(torch.linspace(-2, 2, 30), training=True).tolist()
torch.nn.functional.gumbel_softmax(torch.zeros(3, 5))
[torch.randn(3).tolist(), torch.randn(3).tolist(), torch.rand(1).tolist(), torch.randn(20).tolist(), torch.randn(2).tolist()]
[torch.randn(3).tolist(), torch.get_rng_state().tolist()]
[torch.randperm(1).tolist(), torch.rand(0).tolist(), torch.get_rng_state().tolist()]
torch.rand(4, generator=torch.Generator().manual_seed(2**40)).tolist()
torch.manual_seed(-1).initial_seed()
torch.empty(3, dtype=torch.float64, requires_grad=False).uniform_(1, 1).tolist()
torch.rand(3, out=torch.empty(0)).tolist()
"""

MISTAKES = """
torch.rand(2, dtype=torch.int64)
torch.randn(2, dtype=torch.bool)
torch.rand(-1)
torch.rand(2, generator=3)
torch.rand(2, dtype=torch.float16, out=torch.empty(2))
torch.randint(5, 0, (3,))
torch.randint(5.5, (3,))
torch.randint(5, (3,), dtype=torch.bool)
torch.randint(0, 5, 3)
torch.randperm(-1)
torch.randperm(True)
torch.randperm(300, dtype=torch.uint8)
torch.bernoulli(torch.ones(3, dtype=torch.int64))
torch.bernoulli(torch.full((3,), 2.))
torch.empty(3).bernoulli_(2.5)
torch.empty(3).bernoulli_(torch.ones(4))
torch.empty(3).uniform_(1, 0)
torch.empty(3).normal_(0, -1)
torch.empty(3).exponential_(0)
torch.empty(3).cauchy_(0, 0)
torch.empty(3).log_normal_(0, 0)
torch.empty(3).geometric_(1)
torch.empty(3).random_(3, 2)
torch.empty(3).random_(2.5)
torch.empty(3, dtype=torch.int64).uniform_()
torch.normal(0.0, 1.0)
torch.normal(torch.zeros(3), -torch.ones(3))
torch.normal(torch.zeros(3), torch.ones(4))
torch.multinomial(torch.ones(2, 3, 4), 2)
torch.multinomial(torch.ones(3), 4)
torch.multinomial(torch.zeros(3), 1)
torch.multinomial(torch.ones(3), 2, out=torch.empty(2))
torch.poisson(-torch.ones(3))
torch.binomial(torch.ones(3), torch.ones(3, dtype=torch.float64))
torch.nn.functional.dropout(torch.ones(3), 1.5)
torch.nn.functional.dropout1d(torch.ones(3))
torch.nn.functional.rrelu(torch.ones(3), 0.5, 0.1)
torch.zeros(3).expand(2, 3).normal_()
torch.ones(3, requires_grad=True).normal_()
torch.Generator('nowhere')
"""


def lines(table: str) -> list[str]:
    return [line for line in table.strip().splitlines() if line]


@pytest.mark.parametrize("expression", lines(NUMBERS))
def test_numbers(agrees, expression: str):
    agrees(expression, SEEDED)


@pytest.mark.parametrize("expression", lines(MISTAKES))
def test_mistakes(agrees, expression: str):
    agrees(expression, SEEDED)


def test_random_fills_in_the_graph(same_outcome):
    def scenario(torch):
        x = torch.ones(4, requires_grad=True)
        y = x * 2
        y.normal_()
        y.sum().backward()
        return [y.grad_fn.name(), x.grad.tolist(), torch.dropout((x * 1), 0.5, True).grad_fn.name()]

    same_outcome(scenario)
