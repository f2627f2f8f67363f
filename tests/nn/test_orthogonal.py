"""nn.utils.parametrizations.orthogonal: PyTorch's numbers, names and errors for every map."""

from __future__ import annotations

import numpy as np
import pytest
from answers import judge

import flambeau

torch = judge("torch")

SHAPES = [(4, 4), (6, 3), (3, 6)]


def parametrized(library, shape, mapping, trivial):
    library.manual_seed(3)
    layer = library.nn.Linear(shape[1], shape[0], dtype=library.float64)
    return library.nn.utils.parametrizations.orthogonal(layer, orthogonal_map=mapping, use_trivialization=trivial)


@pytest.mark.parametrize("trivial", [True, False])
@pytest.mark.parametrize("mapping", [None, "matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", SHAPES)
def test_same_weights_state_and_training(shape, mapping, trivial):
    weights = []
    for library in (torch, flambeau):
        layer = parametrized(library, shape, mapping, trivial)
        state = layer.state_dict()
        optimizer = library.optim.SGD(layer.parameters(), lr=0.05)
        x = library.arange(2.0 * shape[1], dtype=library.float64).reshape(2, -1).cos()
        trace = [layer.weight.detach().numpy().copy()]
        for _ in range(3):
            optimizer.zero_grad()
            (layer(x) ** 3).sum().backward()
            optimizer.step()
            trace.append(layer.weight.detach().numpy().copy())
        weights.append((list(state), trace, [v.numpy() for v in layer.state_dict().values()]))
    theirs, ours = weights
    assert ours[0] == theirs[0]
    for mine, expected in zip(ours[1] + ours[2], theirs[1] + theirs[2], strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-9, atol=1e-10)


def test_weight_is_orthogonal_and_can_be_assigned():
    layer = parametrized(flambeau, (5, 3), "matrix_exp", True)
    q, _ = flambeau.linalg.qr(flambeau.randn(5, 3, dtype=flambeau.float64))
    layer.weight = q
    one = flambeau.eye(3, dtype=flambeau.float64)
    assert flambeau.allclose(layer.weight.T @ layer.weight, one)
    # The base has R's diagonal positive, so columns agree with q.
    assert flambeau.allclose(layer.weight, q)


def test_complex_weights_become_unitary():
    for library in (torch, flambeau):
        layer = library.nn.Linear(3, 3, bias=False, dtype=library.complex128)
        library.nn.utils.parametrizations.orthogonal(layer)
        product = layer.weight.detach().mH @ layer.weight.detach()
        np.testing.assert_allclose(product.numpy(), np.eye(3), atol=1e-12)


@pytest.mark.parametrize("library", [torch, flambeau], ids=["torch", "flambeau"])
def test_errors(library):
    orthogonal = library.nn.utils.parametrizations.orthogonal
    with pytest.raises(ValueError, match="has no parameter or buffer"):
        orthogonal(library.nn.Linear(3, 3), "nothing")
    with pytest.raises(ValueError, match="Expected a matrix or batch of matrices"):
        orthogonal(library.nn.Linear(3, 3), "bias")
    with pytest.raises(ValueError, match="has to be one of"):
        orthogonal(library.nn.Linear(3, 3), orthogonal_map="other")
    with pytest.raises(ValueError, match="does not support complex"):
        orthogonal(library.nn.Linear(3, 3, dtype=library.complex64), orthogonal_map="householder")
    with pytest.raises(NotImplementedError, match="not possible to assign"):
        orthogonal(library.nn.Linear(3, 3), orthogonal_map="cayley", use_trivialization=False).weight = library.eye(3)
