"""Linear algebra next to PyTorch: values, gradients, second derivatives, layouts and errors, one table."""

from __future__ import annotations

import numpy as np
import pytest
from answers import judge

import flambeau

torch = judge("torch")

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


def product_of(svd):
    """Something of a decomposition that does not depend on signs and phases."""
    U, S, Vh = svd
    return (U * S.cos().unsqueeze(-2)) @ Vh


def squared_vectors(eigen):
    return eigen[0], (eigen[1] * eigen[1].conj()).real


def rebuilt(T, values, vectors):
    return (vectors * values.exp().unsqueeze(-2)) @ T.linalg.inv(vectors)


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
    "cholesky": (lambda T, a: T.linalg.cholesky(a @ a.mH), lambda d: [regular(d, 2, 3, 3)]),
    "cholesky upper": (lambda T, a: T.linalg.cholesky(a @ a.mH, upper=True), lambda d: [regular(d, 3, 3)]),
    "cholesky_solve": (lambda T, b, a: T.cholesky_solve(b, a), lambda d: [matrices(d, 4, 2), triangular(d, 4, 4)]),
    "cholesky_inverse": (lambda T, a: T.cholesky_inverse(T.linalg.cholesky(a @ a.mH)), lambda d: [regular(d, 4, 4)]),
    "svd values": (lambda T, a: T.linalg.svdvals(a), lambda d: [matrices(d, 2, 5, 3)]),
    "svd": (lambda T, a: product_of(T.linalg.svd(a, full_matrices=False)), lambda d: [matrices(d, 2, 3, 5)]),
    "eigh": (lambda T, a: squared_vectors(T.linalg.eigh(a + a.mH)), lambda d: [matrices(d, 2, 4, 4)]),
    "eigvalsh": (lambda T, a: T.linalg.eigvalsh(a + a.mH), lambda d: [matrices(d, 2, 4, 4)]),
    "eig": (lambda T, a: rebuilt(T, *T.linalg.eig(a)), lambda d: [matrices(d, 4, 4)]),
    "det": (lambda T, a: T.linalg.det(a), lambda d: [regular(d, 2, 3, 3)]),
    "det singular": (lambda T, a: T.linalg.det(a * T.tensor([1, 1, 0])), lambda d: [regular(d, 3, 3)]),
    "slogdet": (lambda T, a: T.linalg.slogdet(a), lambda d: [regular(d, 2, 3, 3)]),
    "logdet": (lambda T, a: T.logdet(a @ a.mH), lambda d: [regular(d, 3, 3)]),
    "lu": (lambda T, a: T.linalg.lu(a), lambda d: [matrices(d, 2, 4, 4)]),
    "lu tall": (lambda T, a: T.linalg.lu(a), lambda d: [matrices(d, 5, 3)]),
    "lu wide": (lambda T, a: T.linalg.lu(a), lambda d: [matrices(d, 3, 5)]),
    "lu_solve": (
        lambda T, a, b: T.linalg.lu_solve(*T.linalg.lu_factor(a), b), lambda d: [regular(d, 2, 4, 4), matrices(d, 4, 3)]
    ),
    "lu_solve adjoint right": (
        lambda T, a, b: T.linalg.lu_solve(*T.linalg.lu_factor(a), b, left=False, adjoint=True),
        lambda d: [regular(d, 4, 4), matrices(d, 3, 4)],
    ),
    "lstsq": (lambda T, a, b: T.linalg.lstsq(a, b)[0], lambda d: [matrices(d, 2, 5, 3), matrices(d, 2, 5, 2, seed=1)]),
    "lstsq wide": (lambda T, a, b: T.linalg.lstsq(a, b)[0], lambda d: [matrices(d, 3, 5), matrices(d, 3, 2, seed=1)]),
    "lstsq residuals": (
        lambda T, a, b: T.linalg.lstsq(a, b, driver="gelsd")[:2], lambda d: [matrices(d, 5, 3), matrices(d, 5, 2, seed=1)]
    ),
    "pinv tall": (lambda T, a: T.linalg.pinv(a), lambda d: [matrices(d, 2, 5, 3)]),
    "pinv wide": (lambda T, a: T.linalg.pinv(a), lambda d: [matrices(d, 3, 5)]),
    "pinv hermitian": (lambda T, a: T.linalg.pinv(a + a.mH, hermitian=True), lambda d: [regular(d, 3, 3)]),
    "cond": (lambda T, a: T.linalg.cond(a), lambda d: [regular(d, 2, 3, 3)]),
    "multi_dot": (
        lambda T, a, b, c: T.linalg.multi_dot([a, b, c]), lambda d: [matrices(d, 4), matrices(d, 4, 7), matrices(d, 7, 2)]
    ),
    "cross": (lambda T, a, b: T.linalg.cross(a, b), lambda d: [matrices(d, 2, 4, 3), matrices(d, 1, 4, 3, seed=1)]),
    "vander": (lambda T, a: T.linalg.vander(a, N=4), lambda d: [matrices(d, 2, 3)]),
    "vecdot": (lambda T, a, b: T.linalg.vecdot(a, b), lambda d: [matrices(d, 2, 3), matrices(d, 2, 3, seed=1)]),
    "kron": (lambda T, a, b: T.kron(a, b), lambda d: [matrices(d, 2, 3), matrices(d, 2, 2, 2, seed=1)]),
    "tensorinv": (lambda T, a: T.linalg.tensorinv(a), lambda d: [matrices(d, 2, 3, 6)]),
    "tensorsolve": (lambda T, a, b: T.linalg.tensorsolve(a, b), lambda d: [matrices(d, 2, 3, 6), matrices(d, 2, 3, seed=1)]),
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
    "not positive": (lambda T: T.linalg.cholesky(T.tensor([[1.0, 2.0], [2.0, 1.0]])), "leading minor of order 2"),
    "svd of nan": (lambda T: T.linalg.svd(T.full((3, 3), float("nan"))), "contained non-finite values"),
    "eigh of nan": (lambda T: T.linalg.eigh(T.full((3, 3), float("nan"))), "failed to converge"),
    "eig of nan": (lambda T: T.linalg.eig(T.full((3, 3), float("nan"))), "should not contain infs or NaNs"),
    "eigh triangle": (lambda T: T.linalg.eigh(T.eye(2), UPLO="x"), "Expected UPLO argument to be 'L' or 'U', but got x"),
    "lu_factor singular": (lambda T: T.linalg.lu_factor(T.zeros(2, 2)), r"U\[1,1\] is zero"),
    "lu without pivots": (lambda T: T.linalg.lu(T.eye(2), pivot=False), "LU without pivoting is not implemented"),
    "det": (lambda T: T.linalg.det(T.ones(2, 3)), "must be batches of square matrices"),
    "multi_dot": (lambda T: T.linalg.multi_dot([T.ones(2)]), "expected at least 2 tensors"),
    "cross": (lambda T: T.linalg.cross(T.ones(4), T.ones(4)), "must have length 3"),
    "bad pivots": (lambda T: T.lu_unpack(T.eye(2), T.tensor([7, 9], dtype=T.int32)), "between 1 and"),
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


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("hermitian", [False, True])
def test_ldl(dtype, hermitian):
    a = matrices(dtype, 3, 8, 8)
    a = a + np.swapaxes(a.conj() if hermitian else a, -2, -1)
    theirs = torch.linalg.ldl_factor(torch.tensor(a), hermitian=hermitian)
    ours = flambeau.linalg.ldl_factor(flambeau.tensor(a), hermitian=hermitian)
    assert ours.pivots.tolist() == theirs.pivots.tolist()
    assert (ours.pivots < 0).any()  # the case with blocks of two rows
    np.testing.assert_allclose(ours.LD.numpy(), theirs.LD.numpy(), rtol=1e-9, atol=1e-9)
    b = matrices(dtype, 3, 8, 2, seed=1)
    x = flambeau.linalg.ldl_solve(*ours, flambeau.tensor(b), hermitian=hermitian)
    np.testing.assert_allclose(a @ x.numpy(), b, rtol=1e-9, atol=1e-9)


def test_ldl_solve_refuses_foreign_pivots():
    for bad in ([0, 1], [-1, 1], [3, 1]):
        with pytest.raises(RuntimeError, match="[Pp]ivots"):
            pivots = flambeau.tensor(bad, dtype=flambeau.int32)
            flambeau.linalg.ldl_solve(flambeau.eye(2), pivots, flambeau.ones(2, 1))


def test_low_rank_svd_uses_the_same_random_numbers():
    a = matrices("float64", 20, 5) @ matrices("float64", 5, 30)
    for name, options in (("svd_lowrank", {"q": 5}), ("pca_lowrank", {"q": 4})):
        found = []
        for library in (torch, flambeau):
            library.manual_seed(1)
            U, S, V = getattr(library, name)(library.tensor(a), **options)
            found.append((S.numpy(), ((U * S) @ V.mH).numpy()))
        for mine, expected in zip(found[1], found[0]):
            np.testing.assert_allclose(mine, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("largest", [True, False])
def test_lobpcg(largest):
    a = matrices("float64", 2, 24, 24)
    a = a @ np.swapaxes(a, -2, -1) + np.diag(np.arange(24.0))
    found = []
    for library in (torch, flambeau):
        library.manual_seed(0)
        x = library.tensor(a, requires_grad=True)
        values, vectors = library.lobpcg(x, k=2, largest=largest)
        weights = library.arange(24, dtype=library.float64).sin().unsqueeze(-1)
        loss = values.sin().sum() + (vectors * vectors * weights).sum()
        (g,) = library.autograd.grad(loss, x)
        found.append([values.detach().numpy(), np.abs(vectors.detach().numpy()), g.numpy()])
    for mine, expected in zip(found[1], found[0]):
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-5)


def test_lobpcg_of_a_pair_of_matrices():
    a = matrices("float64", 24, 24)
    a, b = flambeau.tensor(a @ a.T), flambeau.diag(flambeau.arange(1, 25, dtype=flambeau.float64))
    values, x = flambeau.lobpcg(a, k=3, B=b)
    assert flambeau.allclose(a @ x, (b @ x) * values, atol=1e-6)
    with pytest.raises(ValueError, match="smaller than 3 x"):
        flambeau.lobpcg(flambeau.eye(4), k=2)


@pytest.mark.parametrize("name", ["solve", "lstsq", "eig", "symeig", "matrix_rank"])
def test_removed_names_say_so(name):
    with pytest.raises(RuntimeError, match="deprecated since version 1.9 and is now removed"):
        getattr(flambeau, name)(flambeau.eye(2), flambeau.eye(2))


def test_lu_of_a_large_matrix_takes_the_blocked_path():
    a = flambeau.tensor(matrices("float64", 2, 90, 120))
    P, L, U = flambeau.linalg.lu(a)
    assert flambeau.allclose(P @ L @ U, a)
    assert L.abs().max() <= 1
    theirs = torch.linalg.lu_factor(torch.tensor(a.numpy())).pivots
    assert flambeau.linalg.lu_factor(a).pivots.tolist() == theirs.tolist()


def test_ranks():
    a = flambeau.diag(flambeau.tensor([1.0, 1e-3, 0.0]))
    assert flambeau.linalg.matrix_rank(a).item() == 2
    assert flambeau.linalg.matrix_rank(a, atol=1e-2).item() == 1
    assert flambeau.linalg.matrix_rank(a, hermitian=True, rtol=0.5).item() == 1


def test_gradients_of_weight_and_bias_together(replace_kernel):
    """A device whose library gives both is asked for them where both are wanted and nobody differentiates them."""
    from flambeau.ops.linalg.linear import linear_grads

    asked = []

    def kernel(out, g, input):
        asked.append((g.shape, input.shape))
        for part, value in zip(out, (g._bare_alias().t() @ input._bare_alias(), g._bare_alias().sum(0))):
            part.copy_(value)

    def grads(weight, bias, create_graph=False):
        x = flambeau.arange(60.0).view(2, 5, 6).sin().requires_grad_()
        w, b = (flambeau.arange(float(n)).view(s).cos() for n, s in ((24, (4, 6)), (4, (4,))))
        wanted = [x, *(t.requires_grad_() for t, on in ((w, weight), (b, bias)) if on)]
        y = flambeau.nn.functional.linear(x, w, b)
        return [g.detach() for g in flambeau.autograd.grad(y.square().sum(), wanted, create_graph=create_graph)]

    kinds = [(True, True), (True, False), (False, True)]
    plain = [grads(*kind) for kind in kinds]
    replace_kernel(linear_grads.op, "cpu", kernel)
    for kind, before in zip(kinds, plain):
        for mine, theirs in zip(grads(*kind), before):
            flambeau.testing.assert_close(mine, theirs)
    assert asked == [((10, 4), (10, 6))]
    grads(True, True, create_graph=True)
    assert len(asked) == 1
