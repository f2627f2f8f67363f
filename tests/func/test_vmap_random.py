"""Random numbers inside vmap: the same ones as PyTorch's from the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from answers import judge

import flambeau

torch = judge("torch")

# name -> function of the library, an element of shape (4, 5) and one of shape (5,)
DRAWS = {
    "normal of a size": lambda t, x, v: t.normal(0.5, 2.0, (2, 3)) + v[0],
    "normal around": lambda t, x, v: t.normal(x, 1.0),
    "normal as wide": lambda t, x, v: t.normal(0.0, x),
    "normal as wide as": lambda t, x, v: t.normal(v, x),
    "rand_like": lambda t, x, v: t.rand_like(x),
    "bernoulli": lambda t, x, v: t.bernoulli(x),
    "poisson": lambda t, x, v: t.poisson(x),
    "multinomial of a row": lambda t, x, v: t.multinomial(v, 3),
    "multinomial of rows": lambda t, x, v: t.multinomial(x, 7, True),
    "dropout": lambda t, x, v: t.nn.functional.dropout(x, 0.3),
    "alpha_dropout": lambda t, x, v: t.nn.functional.alpha_dropout(x, 0.3, True),
}


def drawn(library, name, in_dim, randomness, chunk_size=None):
    matrices = library.linspace(0.1, 0.9, 60).reshape(3, 4, 5).movedim(0, in_dim)
    vectors = library.linspace(0.1, 0.9, 15).reshape(3, 5)
    if in_dim:
        vectors = vectors.t().contiguous()
    if in_dim:
        matrices = matrices.contiguous()
    library.manual_seed(7)
    function = library.vmap(
        lambda x, v: DRAWS[name](library, x, v),
        (in_dim, -1 if in_dim else 0),
        randomness=randomness,
        chunk_size=chunk_size,
    )
    return function(matrices, vectors).numpy(), library.rand(1).item()


@pytest.mark.parametrize("in_dim", [0, 2])
@pytest.mark.parametrize("name", DRAWS)
def test_numbers_drawn_for_each_element(name, in_dim):
    ours, theirs = (drawn(library, name, in_dim, "different") for library in (flambeau, torch))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-6)
    assert ours[1] == theirs[1]


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "rand_like", "normal of a size"])
@pytest.mark.parametrize("chunk_size", [None, 2])
def test_numbers_drawn_once_for_all(name, chunk_size):
    ours, theirs = (drawn(library, name, 0, "same", chunk_size) for library in (flambeau, torch))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-6)
    assert ours[1] == theirs[1]


@pytest.mark.parametrize("library", [flambeau, torch], ids=["flambeau", "torch"])
def test_what_depends_on_the_element_is_not_drawn_once(library):
    with pytest.raises(RuntimeError, match="does not currently support same randomness with a batched tensor input"):
        drawn(library, "poisson", 0, "same")


@pytest.mark.parametrize("library", [flambeau, torch], ids=["flambeau", "torch"])
def test_a_state_that_is_set_returns_its_generator(library):
    generator = library.Generator().manual_seed(3)
    state = generator.get_state()
    before = library.rand(2, generator=generator)
    assert library.equal(library.rand(2, generator=generator.set_state(state)), before)


def test_shapes_of_batched_tensors_for_those_that_are_not():
    def both(library, x):
        plain = library.arange(6.0)
        return plain.view_as(x) + plain.reshape_as(x) + x

    for library in (flambeau, torch):
        result = library.vmap(lambda x, t=library: both(t, x))(library.ones(2, 2, 3))
        assert result.shape == (2, 2, 3) and result[1, 1, 2].item() == 11
