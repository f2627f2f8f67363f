"""ONNX files of one call of each operator, run by onnxruntime: they give PyTorch's results, or the operator is refused by its name."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau
from flambeau.library.aten.translation import DataDependent
from flambeau.onnx.dtypes import array_of
from flambeau.onnx.errors import UnsupportedOperatorError
from tests.ops.database_calls import call, names

pytest.importorskip("onnx", reason="ONNX files need the package onnx")
pytest.importorskip("onnxscript", reason="operators are translated by onnxscript's functions")
onnxruntime = pytest.importorskip("onnxruntime", reason="exported models are run by onnxruntime")

# Operators that ONNX and onnxscript's torchlib have no form of: the error names them.
REFUSED = (
    "cov", "nanquantile",  # by steps whose sizes depend on values
    "cholesky", "view_as_complex", "cov", "diagonal_scatter", "frexp", "geqrf", "logspace.tensor_overload", "lu_unpack", "matrix_exp",
    "nanquantile", "_softmax_backward_data", "nn.functional.multilabel_margin_loss",
    "igammac", "mvlgamma.mvlgamma_p_3", "narrow", "ormqr",
    "triangular_solve", "polar", "pinverse", "index_reduce.mean", "index_reduce.amax", "histogramdd", "renorm", "fft.fft", "fft.hfft",
    "fft.rfft", "fft.ifft", "fft.ihfft", "fft.irfft", "linalg.cholesky_ex", "linalg.eig", "linalg.eigvalsh", "linalg.ldl_factor_ex",
    "linalg.lstsq.grad_oriented", "linalg.qr", "linalg.lu", "linalg.inv_ex", "linalg.solve_triangular", "linalg.pinv", "linalg.svdvals",
    "special.i1e", "special.zeta", "special.log_ndtr", "special.chebyshev_polynomial_v", "special.hermite_polynomial_he",
    "special.shifted_chebyshev_polynomial_t", "special.shifted_chebyshev_polynomial_w",
)  # fmt: skip


def runs(model: Any) -> Any:
    """A function of tensors that onnxruntime computes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    needed = {i.name for i in session.get_inputs()}
    order = [i.name for i in model.graph.input]

    def run(*tensors: Any) -> tuple:
        given = {name: array_of(t) for name, t in zip(order, tensors) if name in needed}
        return tuple(flambeau.from_numpy(found) for found in session.run(None, given))

    return run


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", names()[::3])
def test_files(name: str) -> None:
    made = call(name)
    try:
        program = flambeau.onnx.export(made, made.tensors, opset_version=20, verbose=False)
    except (UnsupportedOperatorError, DataDependent, NotImplementedError) as error:
        assert name in REFUSED, error
        return
    assert name not in REFUSED
    assert not (problem := made.differs(runs(program.model_proto))), problem
