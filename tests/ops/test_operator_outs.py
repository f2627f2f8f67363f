"""`out=` of operators: a tensor of the result's dtype gets PyTorch's result; one of another dtype gets it converted, or is refused as there."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from answers import told

import flambeau
from tests.ops.database_calls import _calls, _row
from tests.ops.operator_database import answer, built, differs, function_of

# Not among them: stacks, diagonals, reductions and transforms that refuse fewer dtypes than PyTorch's, or by another kind of error, and
# what is computed in single precision with other last digits, which a result in double precision shows.
OPERATORS = (
    "abs", "acos", "acosh", "add", "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "alias_copy", "amax", "amin", "angle",
    "arange", "as_strided_copy", "asin", "atan", "atan2", "atanh", "baddbmm", "bmm", "cat", "ceil", "cholesky", "cholesky_inverse",
    "cholesky_solve", "clamp", "clamp_max", "clamp_min", "conj_physical", "copysign", "cos", "cosh", "cross", "cumprod", "cumsum",
    "deg2rad", "diag", "diff", "digamma", "div.no_rounding_mode", "dot", "erf", "erfc", "erfinv", "exp", "exp2", "expand_copy", "expm1",
    "eye", "floor", "floor_divide", "fmax", "fmin", "fmod", "frac", "full", "gather", "heaviside", "histc", "hypot", "i0", "igamma",
    "igammac", "index_add", "index_copy", "index_reduce.mean", "index_select", "kron", "ldexp", "lgamma", "linalg.cholesky",
    "linalg.cross", "linalg.det", "linalg.eigvalsh", "linalg.householder_product", "linalg.inv", "linalg.ldl_solve", "linalg.lu_solve",
    "linalg.matrix_norm", "linalg.matrix_power", "linalg.multi_dot", "linalg.norm", "linalg.pinv", "linalg.solve",
    "linalg.solve_triangular", "linalg.svdvals", "linalg.tensorinv", "linalg.vecdot", "linalg.vector_norm", "linspace", "log", "log10",
    "log1p", "log2", "log_softmax", "logaddexp", "logaddexp2", "logcumsumexp", "logit", "logspace", "logsumexp", "lu_solve",
    "masked_select", "matmul", "max.reduction_no_dim", "maximum", "mean", "min.reduction_no_dim", "minimum", "mm", "msort", "mul", "mv",
    "mvlgamma.mvlgamma_p_1", "nan_to_num", "nanquantile", "narrow_copy", "neg", "nextafter", "nn.functional.avg_pool2d",
    "nn.functional.avg_pool3d", "nn.functional.gelu", "nn.functional.hardshrink", "nn.functional.linear", "nn.functional.logsigmoid",
    "nn.functional.softplus", "nn.functional.softshrink", "norm", "ones", "ormqr", "outer", "permute_copy", "pow", "prod", "quantile",
    "rad2deg", "reciprocal", "remainder", "renorm", "round", "rsqrt", "scatter", "scatter_add", "scatter_reduce.sum", "sigmoid", "sign",
    "sin", "sinc", "softmax", "special.airy_ai", "special.bessel_j0", "special.bessel_j1", "special.bessel_y0", "special.bessel_y1",
    "special.chebyshev_polynomial_t", "special.chebyshev_polynomial_u", "special.chebyshev_polynomial_v",
    "special.chebyshev_polynomial_w", "special.entr", "special.erfcx", "special.i0e", "special.i1", "special.i1e",
    "special.laguerre_polynomial_l", "special.legendre_polynomial_p", "special.log_ndtr", "special.modified_bessel_i0",
    "special.modified_bessel_i1", "special.modified_bessel_k0", "special.modified_bessel_k1", "special.ndtr", "special.ndtri",
    "special.scaled_modified_bessel_k0", "special.scaled_modified_bessel_k1", "special.shifted_chebyshev_polynomial_t",
    "special.shifted_chebyshev_polynomial_w", "special.spherical_bessel_j0", "special.xlog1py", "sqrt", "square", "squeeze_copy", "sub",
    "sum", "t_copy", "take", "take_along_dim", "tan", "tanh", "tensordot", "transpose_copy", "tril", "triu", "true_divide", "trunc",
    "unfold_copy", "unsqueeze_copy", "vdot", "view_copy", "zeros",
)  # fmt: skip
DTYPES = ("float32", "float64", "int8", "complex64")


def _given(name: str, library: Any) -> tuple[list, dict]:
    (args, kwargs), _ = _row(name)
    args, kwargs = built(args, library), built(kwargs, library)
    return [_detached(a) for a in args], {k: _detached(v) for k, v in kwargs.items()}


def _detached(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_detached, value))
    return value.detach() if hasattr(value, "detach") else value


def _with_out(name: str, library: Any, dtype: str) -> Any:
    function = function_of(_calls()[name][0], library)

    def call(*args: Any, **kwargs: Any) -> Any:
        out = library.empty(0, dtype=getattr(library, dtype))
        returned = function(*args, **kwargs, out=out)
        return [out, bool(returned is out)]

    return call


def outcomes(name: str, library: Any) -> list:
    found = [answer(_with_out(name, library, dtype), *_given(name, library), library) for dtype in DTYPES]
    return [one if isinstance(one[0], list) else one[:1] for one in found]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPERATORS)
def test_outs(name: str) -> None:
    theirs = told(f"out of {name}", lambda: outcomes(name, importlib.import_module("torch")))
    for dtype, ours, wanted in zip(DTYPES, outcomes(name, flambeau), theirs):
        assert not (problem := differs(ours, wanted)), f"{dtype}: {problem}"
