"""Every operator with a formula, the reductions and the index operators on complex numbers, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from answers import judge

import flambeau
from flambeau.ops import OPS
from flambeau.ops.machinery.formula import Pointwise

torch = judge("torch")

FORMULAS = {
    name: op.impl
    for name, op in OPS.items()
    if isinstance(getattr(op, "impl", None), Pointwise) and "c" in op.impl.kinds and hasattr(torch, name)
}
KINDS = {"complex64": 4e-6, "complex128": 1e-13}
FLAT = {
    "eq",
    "ne",
    "isclose",
    "sgn",
}  # half of the elements are equal or of size one: nothing to compare in gradients of tests


def numbers(shape, kind, seed=0):
    r = np.random.default_rng(seed)
    return (r.standard_normal(shape) + 1j * r.standard_normal(shape)).astype(kind)


def layouts(kind, count):
    whole = [numbers((6, 10), kind, i) for i in range(count)]
    return [
        whole,
        [a[::2, ::-1].copy().T for a in whole],
        [whole[0], *(a[:1] for a in whole[1:])],
        [a[0, 0].reshape(()) for a in whole],
        [a[:0] for a in whole],
    ]


def outcome(library, name, arrays):
    try:
        result = getattr(library, name)(*(library.from_numpy(a) for a in arrays))
    except (RuntimeError, NotImplementedError, TypeError) as error:
        return error
    return result.resolve_conj() if library is torch else result


def assert_near(got, expected, tolerance):
    assert str(got.dtype) == str(expected.dtype) and tuple(got.shape) == tuple(expected.shape)
    got, expected = got.detach().numpy(), expected.detach().numpy()
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name, kind):
    for arrays in layouts(kind, FORMULAS[name].arity):
        expected, got = outcome(torch, name, arrays), outcome(flambeau, name, arrays)
        if isinstance(expected, Exception):
            assert isinstance(got, Exception), f"PyTorch raises {expected!r}"
        else:
            assert not isinstance(got, Exception), got
            assert_near(got, expected, KINDS[kind])


def test_formulas_are_compiled():
    t = flambeau.from_numpy(numbers((8,), "complex64"))
    assert (t * t + 1).shape == (8,)
    for name in ("add", "mul", "div", "exp", "abs", "eq"):
        impl = FORMULAS[name]
        plan = impl.plan_for((t,) * impl.arity, (), None, None)
        assert plan.native is not None


@pytest.mark.parametrize("name", [n for n, impl in FORMULAS.items() if impl.arity <= 2])
def test_gradients(name):
    arrays = [numbers((3, 4), "complex128", i) for i in range(FORMULAS[name].arity)]
    grads = []
    for library in (torch, flambeau):
        tensors = [library.from_numpy(a.copy()).requires_grad_() for a in arrays]
        try:
            result = getattr(library, name)(*tensors)
        except (RuntimeError, NotImplementedError, TypeError) as error:
            grads.append(error)
            continue
        if result.requires_grad:
            seed = (
                library.from_numpy(numbers((3, 4), "complex128", 9)).to(result.dtype) if result.is_complex() else None
            )
            result.backward(library.ones_like(result) if seed is None else seed)
        grads.append([t.grad for t in tensors])
    expected, got = grads
    if isinstance(expected, list):  # PyTorch has no gradient of nan_to_num here
        for g, e in zip(got, expected, strict=True):
            assert (g is None) == (e is None)
            if e is not None:
                assert_near(g, e.resolve_conj(), 1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name", ["sum", "mean", "prod", "cumsum", "cumprod", "var", "std", "any", "all", "count_nonzero"]
)
def test_reductions(name, kind):
    z = numbers((6, 70, 5), kind) / 2
    for view in (lambda t: t, lambda t: t[::2, 3:].transpose(0, 2), lambda t: t[:, :0]):
        for dim in (0, 1, 2):
            expected = getattr(torch, name)(view(torch.from_numpy(z)), dim)
            got = getattr(flambeau, name)(view(flambeau.from_numpy(z)), dim)
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=10 * KINDS[kind], atol=10 * KINDS[kind])


SCALARS = [2, 2.5, 1 - 2j]
CALLS = {
    "times a number": lambda t, z, i: [z * s for s in SCALARS],
    "number over": lambda t, z, i: [s / z for s in SCALARS],
    "powers": lambda t, z, i: [z**s for s in (0, 1, 2, 3, -1, 0.5, 2.5, 1 + 1j)],
    "real tensor and complex number": lambda t, z, i: [z.real * (1 - 2j), z.real + 1j, z.real.contiguous() - z],
    "in place": lambda t, z, i: [z.clone().mul_(2j).add_(1).sqrt_()],
    "casts": lambda t, z, i: [z.to(t.complex128), z.real.to(t.complex64), i.to(t.complex128), z.to(t.bool)],
    "fills": lambda t, z, i: [t.full((3, 4), 1 + 2j), z.clone().fill_(2), z.clone()[::2].fill_(1j), t.zeros_like(z)],
    "indices": lambda t, z, i: [z[i], z[:, i], z.gather(0, i[:, None]), z.index_select(1, i), z.take(i)],
    "scatter": lambda t, z, i: [
        z.scatter(0, i[:, None].expand(4, 5), z[:4, :5]), z.scatter(0, i[:, None], 1 + 2j),
        z.scatter_add(0, i[:, None].expand(4, 5), z[:4, :5]), z.index_add(0, i, z[:4]), z.index_fill(0, i, 1j),
        z.scatter(0, i[:, None].expand(4, 5), z[:4, :5], reduce="multiply"),
    ],
    "puts": lambda t, z, i: [z.index_put((i,), z[:4]), z.index_put((i,), z[:4], accumulate=True)],
    "masks": lambda t, z, i: [z.masked_fill(z.real > 0, 1j), t.where(z.real > 0, z, 0), z[z.real > 0]],
    "embedding": lambda t, z, i: [t.nn.functional.embedding(i, z)],
    "alpha": lambda t, z, i: [t.add(z, z, alpha=2j), t.addcmul(z, z, z, value=1 + 1j), t.sub(z, 1j, alpha=3)],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALLS)
def test_calls(name, kind):
    z, i = numbers((6, 10), kind), np.array([3, 0, 3, 5])
    expected = CALLS[name](torch, torch.from_numpy(z), torch.from_numpy(i))
    got = CALLS[name](flambeau, flambeau.from_numpy(z), flambeau.from_numpy(i))
    for g, e in zip(got, expected, strict=True):
        assert_near(g, e, KINDS[kind])


def test_special_numbers_of_products_quotients_and_magnitudes():
    values = [0.0, -0.0, 1.0, -2.0, 1e30, np.inf, -np.inf, np.nan]
    grid = np.array([complex(a, b) for a in values for b in values], np.complex64)
    a, b = np.repeat(grid, len(grid)), np.tile(grid, len(grid))
    for name in ("mul", "eq"):
        got, expected = (getattr(m, name)(m.from_numpy(a), m.from_numpy(b)).numpy() for m in (flambeau, torch))
        np.testing.assert_array_equal(got.real, expected.real)
        np.testing.assert_array_equal(got.imag, expected.imag)
    for name in ("abs", "angle", "sqrt", "log", "sgn"):
        got, expected = (getattr(m, name)(m.from_numpy(grid)).numpy() for m in (flambeau, torch))
        np.testing.assert_allclose(got.real, expected.real, rtol=1e-6)
        np.testing.assert_allclose(got.imag, expected.imag, rtol=1e-6)
    ones = np.full_like(grid, 1 + 1j)
    got, expected = (m.div(m.from_numpy(ones), m.from_numpy(grid)).numpy() for m in (flambeau, torch))
    np.testing.assert_allclose(got.real, expected.real, rtol=1e-6)
    np.testing.assert_allclose(got.imag, expected.imag, rtol=1e-6)
