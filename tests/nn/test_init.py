"""nn.init against PyTorch's numbers from the same seed."""

import math
import warnings

import numpy as np
import pytest

import flambeau
import flambeau.nn

from .helpers import numbers
from .scenarios import Scenarios, torch

BIT_IDENTICAL = [
    ("uniform_", (5, 7), {}),
    ("uniform_", (3,), {"a": -2.0, "b": 3.0}),
    ("normal_", (3, 3), {}),
    ("normal_", (5, 7), {"mean": 1.0, "std": 0.5}),
    ("constant_", (3,), {"val": 3.0}),
    ("ones_", (3,), {}),
    ("zeros_", (3,), {}),
    ("eye_", (3, 4), {}),
    ("dirac_", (6, 3, 5), {}),
    ("dirac_", (6, 3, 3, 4), {"groups": 2}),
    ("dirac_", (2, 3, 3, 4, 5), {}),
    ("xavier_uniform_", (3, 4, 5), {"gain": 2.0}),
    ("xavier_normal_", (30, 4, 5), {}),
    ("kaiming_uniform_", (4, 5, 3), {"a": math.sqrt(5)}),
    ("kaiming_uniform_", (4, 5), {"mode": "fan_out", "nonlinearity": "tanh"}),
    ("kaiming_normal_", (4, 5, 3), {"mode": "fan_out", "nonlinearity": "relu"}),
    ("kaiming_normal_", (0, 5), {}),
    ("sparse_", (10, 4), {"sparsity": 0.3}),
    ("trunc_normal_", (50, 30), {}),
    ("trunc_normal_", (500, 3), {"std": 0.02}),
    ("trunc_normal_", (500, 3), {"mean": 1.0, "std": 0.5, "a": 0.0, "b": 1.7}),
    ("trunc_normal_", (40, 3), {"mean": 3.0, "std": 1.0, "a": -1.0, "b": 2.0}),
    ("trunc_normal_", (40,), {"std": 10.0, "a": -0.5, "b": 0.5}),
]
# QR decompositions of two libraries differ in the last place.
CLOSE = [
    ("orthogonal_", (5, 3), {}),
    ("orthogonal_", (3, 5, 2), {"gain": 2.0}),
]


def both(name, shape, settings, dtype):
    results = []
    for library in (torch, flambeau):
        library.manual_seed(3)
        tensor = library.empty(shape, dtype=getattr(library, dtype), requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = getattr(library.nn.init, name)(tensor, **settings)
        assert result is tensor and result.requires_grad and result.is_leaf
        results.append(numbers(result))
    assert torch.rand(1).item() == flambeau.rand(1).item(), "another count of random numbers was drawn"
    return results


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize(("name", "shape", "settings"), BIT_IDENTICAL)
def test_same_bits(name, shape, settings, dtype):
    expected, actual = both(name, shape, settings, dtype)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "shape", "settings"), CLOSE)
def test_close(name, shape, settings, dtype):
    expected, actual = both(name, shape, settings, dtype)
    tolerance = 1e-6 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(actual, expected, rtol=4 * tolerance, atol=tolerance)


def test_generator_is_used():
    generator = flambeau.Generator().manual_seed(11)
    flambeau.manual_seed(11)
    a = flambeau.nn.init.kaiming_normal_(flambeau.empty(4, 5), generator=generator)
    b = flambeau.nn.init.kaiming_normal_(flambeau.empty(4, 5))
    assert flambeau.equal(a, b)


scenario = Scenarios()


@scenario
def gains(T, nn):
    names = ["linear", "conv1d", "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"]
    return [nn.init.calculate_gain(n) for n in names] + [nn.init.calculate_gain("leaky_relu", 2)]


@scenario
def gain_unknown(T, nn):
    nn.init.calculate_gain("foo")


@scenario
def gain_bad_slope(T, nn):
    nn.init.calculate_gain("leaky_relu", True)


@scenario
def eye_of_vector(T, nn):
    nn.init.eye_(T.empty(3))


@scenario
def dirac_of_matrix(T, nn):
    nn.init.dirac_(T.empty(3, 3))


@scenario
def dirac_groups(T, nn):
    nn.init.dirac_(T.empty(3, 3, 2), 2)


@scenario
def fan_of_vector(T, nn):
    nn.init.xavier_uniform_(T.empty(3))


@scenario
def fan_mode(T, nn):
    nn.init.kaiming_normal_(T.empty(3, 3), mode="x")


@scenario
def orthogonal_of_vector(T, nn):
    nn.init.orthogonal_(T.empty(3))


@scenario
def sparse_of_volume(T, nn):
    nn.init.sparse_(T.empty(3, 2, 2), 0.1)


@scenario
def fans(T, nn):
    return nn.init._calculate_fan_in_and_fan_out(T.empty(2, 3, 4, 5))


@scenario
def old_names(T, nn):
    return [nn.init.uniform(T.empty(3)), nn.init.kaiming_normal(T.empty(3, 3)), nn.init.constant(T.empty(2), 1.5)]


test_same_in_both_libraries = scenario.as_test()


def test_old_names_warn():
    with pytest.warns(
        FutureWarning, match="`nn.init.xavier_normal` is now deprecated in favor of `nn.init.xavier_normal_`"
    ):
        flambeau.nn.init.xavier_normal(flambeau.empty(2, 2))
