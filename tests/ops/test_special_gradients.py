"""Derivatives of functions of one number, of every one that has a name: by differences in double precision."""

from __future__ import annotations

import pytest

import flambeau
from flambeau.autograd import gradcheck

# name: where the function is asked, if not between 0.1 and 0.9
ELSEWHERE = {
    "acosh": (1.1, 3.0),
    "arccosh": (1.1, 3.0),
    "log_ndtr": (-3.0, 2.0),
    "ndtr": (-2.0, 2.0),
    "erfinv": (-0.9, 0.9),
    "lgamma": (0.5, 5.0),
}
UNARY = [
    "abs", "acos", "acosh", "arccosh", "arcsinh", "arctan", "arctanh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "deg2rad", "digamma",
    "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "lgamma", "log", "log10", "log1p", "log2", "logit", "neg", "rad2deg", "reciprocal", "rsqrt",
    "sigmoid", "sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh", "special.entr", "special.erfcx", "special.expit", "special.i0",
    "special.i0e", "special.i1", "special.i1e", "special.log_ndtr", "special.ndtr", "special.ndtri", "special.psi", "nn.functional.celu",
    "nn.functional.elu", "nn.functional.gelu", "nn.functional.hardswish", "nn.functional.logsigmoid", "nn.functional.mish", "nn.functional.selu",
    "nn.functional.silu", "nn.functional.softplus", "nn.functional.softsign", "nn.functional.tanhshrink",
]  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_first_and_second_derivatives(name: str) -> None:
    function = flambeau
    for part in name.split("."):
        function = getattr(function, part)
    low, high = ELSEWHERE.get(name.rpartition(".")[2], (0.1, 0.9))
    x = flambeau.linspace(low, high, 7, dtype=flambeau.float64).requires_grad_()
    assert gradcheck(function, (x,))

    def derivative(x: flambeau.Tensor) -> flambeau.Tensor:
        return flambeau.autograd.grad(function(x).sum(), x, create_graph=True)[0]

    if derivative(x).requires_grad:  # all but those that are straight lines
        assert gradcheck(derivative, (x,))
