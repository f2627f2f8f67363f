"""Linear algebra next to PyTorch: values, gradients, second derivatives, layouts and errors, one table."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch", reason="compares with the real PyTorch")

DTYPES = {"float32": 3e-4, "float64": 1e-9, "complex64": 3e-4, "complex128": 1e-9}


def matrices(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(shape)
    if dtype.startswith("complex"):
        values = values + 1j * generator.standard_normal(shape)
    return values.astype(dtype)


def regular(dtype, *shape):
    """Well-conditioned square matrices."""
    return matrices(dtype, *shape) + 3 * np.eye(shape[-1], dtype=dtype)


def triangular(dtype, *shape):
    return np.tril(regular(dtype, *shape))


# name: (call, arrays from a dtype)
CASES = {
    "qr tall": (lambda T, a: T.linalg.qr(a), lambda d: [matrices(d, 2, 5, 3)]),
    "qr wide": (lambda T, a: T.linalg.qr(a), lambda d: [matrices(d, 3, 5)]),
    "qr complete": (lambda T, a: T.linalg.qr(a, "complete"), lambda d: [matrices(d, 3, 3)]),
    "torch.qr": (lambda T, a: T.qr(a), lambda d: [matrices(d, 4, 3)]),
    "solve": (lambda T, a, b: T.linalg.solve(a, b), lambda d: [regular(d, 2, 4, 4), matrices(d, 2, 4, 3)]),
    "solve vector": (lambda T, a, b: T.linalg.solve(a, b), lambda d: [regular(d, 4, 4), matrices(d, 4)]),
    "solve vectors": (lambda T, a, b: T.linalg.solve(a, b), lambda d: [regular(d, 2, 4, 4), matrices(d, 2, 4)]),
    "solve broadcast": (lambda T, a, b: T.linalg.solve(a, b), lambda d: [regular(d, 4, 4), matrices(d, 2, 4, 3)]),
    "solve right": (
        lambda T, a, b: T.linalg.solve(a, b, left=False), lambda d: [regular(d, 2, 4, 4), matrices(d, 2, 3, 4)]
    ),
    "inv": (lambda T, a: T.linalg.inv(a), lambda d: [regular(d, 2, 3, 3)]),
    "matrix_exp": (lambda T, a: T.linalg.matrix_exp(a), lambda d: [matrices(d, 2, 3, 3)]),
    "matrix_power": (lambda T, a: T.linalg.matrix_power(a, 5), lambda d: [matrices(d, 3, 3)]),
    "matrix_power inverse": (lambda T, a: T.linalg.matrix_power(a, -3), lambda d: [regular(d, 3, 3)]),
    "householder": (lambda T, a, t: T.linalg.householder_product(a, t), lambda d: [matrices(d, 2, 5, 3), matrices(d, 2, 3)]),
    "ormqr": (lambda T, a, t, c: T.ormqr(a, t, c), lambda d: [matrices(d, 4, 2), matrices(d, 2), matrices(d, 4, 3)]),
    "ormqr right": (
        lambda T, a, t, c: T.ormqr(a, t, c, left=False, transpose=True),
        lambda d: [matrices(d, 4, 2), matrices(d, 2), matrices(d, 3, 4)],
    ),
    "solve_triangular": (
        lambda T, a, b: T.linalg.solve_triangular(a, b, upper=False), lambda d: [triangular(d, 2, 4, 4), matrices(d, 4, 3)]
    ),
    "solve_triangular right": (
        lambda T, a, b: T.linalg.solve_triangular(a.mH, b, upper=True, left=False),
        lambda d: [triangular(d, 4, 4), matrices(d, 2, 3, 4)],
    ),
    "solve_triangular unit": (
        lambda T, a, b: T.linalg.solve_triangular(a, b, upper=False, unitriangular=True),
        lambda d: [triangular(d, 4, 4) / 4, matrices(d, 4, 3)],
    ),
}  # fmt: skip


def outcome(library, call, arrays, second):
    tensors = [library.tensor(a, requires_grad=True) for a in arrays]
    result = call(library, *tensors)
    outputs = [o for o in (result if isinstance(result, tuple) else (result,)) if o.requires_grad]
    found = [np.array(o.detach().resolve_conj().numpy()) for o in outputs]
    loss = sum((o * (o * o.conj()).real).real.sum() + o.abs().cos().sum() for o in outputs)
    grads = library.autograd.grad(loss, tensors, create_graph=second, allow_unused=True)
    found += [g.detach().resolve_conj().numpy() for g in grads if g is not None]
    if second:
        total = sum((g * g.conj()).real.sum() for g in grads if g is not None)
        found += [
            g.detach().resolve_conj().numpy()
            for g in library.autograd.grad(total, tensors, allow_unused=True)
            if g is not None
        ]
    return found, [tuple(o.shape) for o in outputs]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name, dtype):
    call, arrays = CASES[name]
    second = dtype in ("float64", "complex128")
    theirs, shapes = outcome(torch, call, arrays(dtype), second)
    ours, our_shapes = outcome(flambeau, call, arrays(dtype), second)
    assert our_shapes == shapes
    assert len(ours) == len(theirs)
    for mine, expected in zip(ours, theirs):
        assert mine.dtype == expected.dtype
        scale = max(1.0, float(np.abs(expected).max()))
        np.testing.assert_allclose(mine, expected, rtol=DTYPES[dtype], atol=DTYPES[dtype] * scale)


# name: (call, part of the message)
ERRORS = {
    "singular inv": (lambda T: T.linalg.inv(T.zeros(3, 3)), "The diagonal element 1 is zero"),
    "singular inv in a batch": (lambda T: T.linalg.inv(T.stack([T.eye(2), T.ones(2, 2)])), r"\(Batch element 1\): The diagonal element 2"),
    "singular solve": (lambda T: T.linalg.solve(T.ones(2, 2), T.ones(2)), "The solver failed because the input matrix is singular"),
    "inverse": (lambda T: T.inverse(T.ones(2, 3)), "must be batches of square matrices, but they are 2 by 3 matrices"),
    "inv of ints": (lambda T: T.linalg.inv(T.ones(2, 2, dtype=T.int64)), "Expected a floating point or complex tensor as input. Got Long"),
    "inv of half": (lambda T: T.linalg.inv(T.ones(2, 2, dtype=T.float16)), "Low precision dtypes not supported. Got Half"),
    "inv of a vector": (lambda T: T.linalg.inv(T.ones(2)), "must have at least 2 dimensions"),
    "solve dtypes": (lambda T: T.linalg.solve(T.eye(2), T.eye(2).double()), "same dtype"),
    "solve shapes": (lambda T: T.linalg.solve(T.eye(3), T.ones(4)), r"AX = B \(3x3 and 4x1\)"),
    "qr mode": (lambda T: T.linalg.qr(T.eye(2), "other"), "unrecognized mode 'other'"),
    "qr of half": (lambda T: T.linalg.qr(T.eye(2).half()), "\"geqrf_cpu\" not implemented for 'Half'"),
    "householder": (lambda T: T.linalg.householder_product(T.eye(3), T.ones(4)), "greater than or equal to tau.shape"),
    "matrix_exp": (lambda T: T.linalg.matrix_exp(T.ones(2, 3)), "must be batches of square matrices"),
    "triangular shapes": (lambda T: T.linalg.solve_triangular(T.eye(3), T.ones(4, 2), upper=True), r"AX = B \(3x3 and 4x2\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, message = ERRORS[name]
    with pytest.raises(RuntimeError, match=message) as theirs:
        call(torch)
    with pytest.raises(type(theirs.value).__mro__[1], match=message) as ours:
        call(flambeau)
    assert isinstance(theirs.value, torch.linalg.LinAlgError) == isinstance(ours.value, flambeau.linalg.LinAlgError)


def test_singular_matrices_are_reported_by_the_ex_forms():
    batch = flambeau.stack([flambeau.eye(3), flambeau.zeros(3, 3), flambeau.ones(3, 3)])
    assert flambeau.linalg.inv_ex(batch).info.tolist() == [0, 1, 2]
    assert flambeau.linalg.solve_ex(batch, flambeau.ones(3, 1)).info.tolist() == [0, 1, 2]


def test_large_systems_take_the_blocked_path():
    a = flambeau.tensor(triangular("float64", 150, 150))
    b = flambeau.tensor(matrices("float64", 150, 4))
    for upper in (False, True):
        x = flambeau.linalg.solve_triangular(a.mT if upper else a, b, upper=upper)
        assert flambeau.allclose((a.mT if upper else a) @ x, b)


def test_out_and_named_results():
    a = flambeau.tensor(matrices("float64", 4, 3))
    q, r = flambeau.empty(0, dtype=a.dtype), flambeau.empty(0, dtype=a.dtype)
    result = flambeau.linalg.qr(a, out=(q, r))
    assert result.Q is q and flambeau.allclose(q @ r, a)
    assert type(flambeau.linalg.qr(a)).__name__ == "linalg_qr"


def test_matrix_exp_of_extremes():
    big = np.array([[0.0, 40.0], [-40.0, 0.0]])
    found = flambeau.linalg.matrix_exp(flambeau.tensor(big)).numpy()
    expected = np.array([[np.cos(40), np.sin(40)], [-np.sin(40), np.cos(40)]])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert flambeau.linalg.matrix_exp(flambeau.full((2, 2), float("inf"))).isnan().all()
    assert flambeau.linalg.matrix_exp(flambeau.zeros(0, 0)).shape == (0, 0)
