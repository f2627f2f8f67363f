"""complex32: stored as pairs of halves, computed with by way of complex64."""

from __future__ import annotations

import io

import numpy as np
import pytest

import flambeau
from flambeau.kernels import numpy_values

SETUP = (
    "x = torch.tensor([1 + 2j, 3.5 - 4j, 0.1 + 0.3j], dtype=torch.complex64).to(torch.complex32)\n"
    "h = torch.arange(8, dtype=torch.half)\ntorch.manual_seed(0)"
)
EXPRESSIONS = (
    """
x; x.tolist(); x[0].item(); x + x; x * x; x * 2.5 + 1j; -x; x.conj().resolve_conj(); x == x; x.abs(); x.real; x.imag; x.chalf()
torch.view_as_real(x); torch.view_as_complex(h.reshape(4, 2)); torch.view_as_complex(h.reshape(2, 2, 2)).t().contiguous()
torch.tensor([1 + 2j, 3], dtype=torch.chalf); torch.tensor([[1e4 + 1j, 1e-3j]], dtype=torch.complex32); torch.tensor(7e4 + 1j).chalf()
torch.zeros(2, dtype=torch.complex32); torch.full((2,), 1 + 2j, dtype=torch.complex32); torch.randn(3, dtype=torch.complex32)
torch.cat([x, x]); x[torch.tensor([0, 2])]; x.clone().view(3, 1).t(); torch.complex(h, h); x.to(torch.complex128); x.to(torch.float64)
torch.where(x.real > 1, x, torch.zeros((), dtype=torch.complex32)); torch.zeros(3, dtype=torch.complex32).copy_(torch.arange(3.0))
torch.isreal(x); torch.isnan(x); torch.isfinite(x); torch.allclose(x, x); x.is_complex(); x.element_size(); x.type(); x.numpy()
torch.complex32.to_real(); torch.half.to_complex(); torch.ones(2, dtype=torch.complex32, device="meta").dtype; torch.finfo(x.dtype).eps
""".replace("\n", "; ")
    .strip("; ")
    .split("; ")
)
DTYPES = ["bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_in_pytorch(agrees, expression):
    agrees(expression, SETUP)


@pytest.mark.parametrize("dtype", DTYPES)
def test_promotion_and_conversion(agrees, dtype):
    setup = f"y = torch.tensor([0, 1, 2]).to(torch.{dtype})\nz = torch.tensor([0, 3 - 1j, 2], dtype=torch.complex32)"
    for expression in ("torch.promote_types(y.dtype, z.dtype)", "(y + z).dtype", "y.to(z.dtype)", "z.to(y.dtype)"):
        agrees(expression, setup)


def test_memory_and_values_round_as_float16_does():
    wide = np.array([1 + 2j, 65519 - 65520j, 1e-8 + 6e-8j, np.nan + np.inf * 1j], np.complex64)
    stored = numpy_values.to_memory(wide, flambeau.complex32)
    assert stored.dtype == flambeau.complex32.numpy
    back = numpy_values.from_memory(stored, flambeau.complex32)
    for part in ("real", "imag"):
        with np.errstate(over="ignore"):
            expected = getattr(wide, part).astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(getattr(back, part), expected)
    tensor = flambeau.from_numpy(wide).to(flambeau.complex32)
    np.testing.assert_array_equal(tensor.to(flambeau.complex64).numpy(), back)


def test_more_is_computed_than_pytorch_does():
    x = flambeau.tensor([1 + 2j, 3.5 - 4j], dtype=flambeau.complex32)
    wide = x.to(flambeau.complex64)
    for compute in (
        lambda z: z.sum(),
        lambda z: z / (z + 1),
        lambda z: z.exp(),
        lambda z: z[None] @ z[:, None],
        lambda z: z.mean(),
    ):
        assert compute(x).dtype is flambeau.complex32
        flambeau.testing.assert_close(compute(x), compute(wide).to(flambeau.complex32), rtol=2e-3, atol=1e-3)


def test_gradients_have_the_same_dtype():
    x = flambeau.tensor([1 + 2j, 3.5 - 4j], dtype=flambeau.complex32, requires_grad=True)
    (x * x.conj()).real.sum().backward()
    assert x.grad.dtype is flambeau.complex32 and x.grad.tolist() == [2 + 4j, 7 - 8j]


def test_compiled():
    x = flambeau.randn(4, dtype=flambeau.complex32)
    step = flambeau.compile(lambda z: z * z + z.conj())
    assert step(x).tolist() == step(x).tolist() == (x * x + x.conj()).tolist()


@pytest.mark.parametrize("zipped", [True, False])
def test_files(zipped):
    x = flambeau.randn(5, dtype=flambeau.complex32)
    file = io.BytesIO()
    flambeau.save(x, file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    assert flambeau.load(file).tolist() == x.tolist()


def test_onnx_refuses_it(tmp_path):
    pytest.importorskip("onnxscript")
    x = flambeau.ones(2, dtype=flambeau.complex32)
    with pytest.raises(TypeError, match=r"ONNX has no element type for torch\.complex32"):
        flambeau.onnx.export(flambeau.nn.Identity(), (x,), tmp_path / "x.onnx")
