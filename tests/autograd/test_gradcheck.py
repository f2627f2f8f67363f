"""gradcheck: every check it offers finds what it is for, and passes what is right."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.autograd import gradcheck, gradgradcheck
from flambeau.autograd.gradcheck import GradcheckError


class Bent(torch.autograd.Function):
    """Twice its input, with the derivative that `bend` makes of the right one; a second output is three times the input."""

    bend = staticmethod(lambda g, h: 2 * g + 3 * h)

    @staticmethod
    def forward(ctx, a):
        ctx.set_materialize_grads(False)
        return a * 2, a * 3

    @staticmethod
    def backward(ctx, g, h):
        if g is None and h is None:
            return None
        zero = torch.zeros_like(h if g is None else g)
        return Bent.bend(zero if g is None else g, zero if h is None else h)


def real():
    return torch.tensor([[0.3, -1.2], [0.7, 2.0]], dtype=torch.float64, requires_grad=True)


def test_what_is_right_passes_every_check():
    x, z = real(), torch.tensor([1 + 2j, 0.5 - 1j], requires_grad=True, dtype=torch.complex128)
    every = {"check_forward_ad": True, "check_batched_grad": True, "check_grad_dtypes": True}
    assert gradcheck(lambda a, b: a.mm(b).sin(), (x, real()), **every)
    assert gradcheck(lambda a: (a * a.conj()).abs() + a, (z,), check_forward_ad=True)
    assert gradcheck(Bent.apply, (x,))
    assert gradgradcheck(lambda a: a.exp(), (x,), gen_non_contig_grad_outputs=True, check_batched_grad=True)


@pytest.mark.parametrize(
    ("bend", "options", "message"),
    [
        (lambda g, h: 2 * g + 4 * h, {}, "mismatch for output 1"),
        (lambda g, h: 2 * g + 3 * h + torch.rand(()) * 1e-8, {}, "not reentrant"),
        (lambda g, h: 2 * g + 3 * h + 1e-7, {"atol": 1e-3}, "not multiplied by grad_output"),
    ],
)
def test_what_is_wrong_is_found(monkeypatch, bend, options, message):
    monkeypatch.setattr(Bent, "bend", staticmethod(bend))
    with pytest.raises(RuntimeError, match=message):
        gradcheck(Bent.apply, (real(),), **options)
    if not options:
        assert not gradcheck(Bent.apply, (real(),), raise_exception=False)


def test_checks_that_do_not_exist_are_refused():
    with pytest.raises(AssertionError, match="at least one"):
        gradcheck(torch.sin, (real(),), check_backward_ad=False)
    with pytest.raises(NotImplementedError, match="check_batched_forward_grad"):
        gradcheck(torch.sin, (real(),), check_forward_ad=True, check_batched_forward_grad=True)
    with pytest.raises(NotImplementedError, match="check_fwd_over_rev"):
        gradgradcheck(torch.sin, (real(),), check_fwd_over_rev=True)


def test_tolerances_of_repeated_passes(monkeypatch):
    monkeypatch.setattr(Bent, "bend", staticmethod(lambda g, h: (2 * g + 3 * h) * (1 + torch.rand(()).double() * 1e-8)))
    with pytest.raises(GradcheckError, match="not reentrant"):
        gradcheck(Bent.apply, (real(),))
    assert gradcheck(Bent.apply, (real(),), nondet_tol=1e-6)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
@pytest.mark.parametrize("fast_mode", [True, False])
def test_sparse_inputs(layout, fast_mode):
    x = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]], dtype=torch.float64).to_sparse(layout=layout).requires_grad_()
    assert gradcheck(lambda a: a.to_dense().sin().mm(a.to_dense().T), (x,), masked=True, fast_mode=fast_mode)
    everywhere = {"masked": False, "fast_mode": fast_mode, "raise_exception": False}
    assert not gradcheck(lambda a: a.to_dense() * 2, (x,), **everywhere)
    assert gradcheck(lambda a: a.to_dense(masked_grad=False) * 2, (x,), **everywhere)


@pytest.mark.parametrize("fast_mode", [True, False])
def test_fast_mode_finds_what_is_wrong(monkeypatch, fast_mode):
    z = torch.tensor([1 + 2j, 0.5 - 1j], requires_grad=True, dtype=torch.complex128)
    options = {"fast_mode": fast_mode, "check_forward_ad": True}
    assert gradcheck(lambda a: (a * a.conj()).abs() + a.sin(), (z,), **options)
    assert gradcheck(lambda a, b: a.mm(b).sin(), (real(), real()), **options)
    monkeypatch.setattr(Bent, "bend", staticmethod(lambda g, h: 2 * g + 4 * h))
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 1 with respect to input 0"):
        gradcheck(Bent.apply, (real(),), fast_mode=fast_mode)


def test_inputs_that_cannot_be_checked():
    with pytest.warns(UserWarning, match="not a double precision"):
        gradcheck(lambda a: a * 1, (torch.ones(1, requires_grad=True),), atol=0.1)
    with pytest.raises(RuntimeError, match="stride 0"):
        gradcheck(lambda a: a, (torch.ones(1, dtype=torch.float64, requires_grad=True).expand(2),))
    x = torch.ones(2, dtype=torch.float64).to_sparse().requires_grad_()
    with pytest.raises(ValueError, match="Sparse output"):
        gradcheck(lambda a: a, (x,))
    with pytest.raises(AssertionError, match="same shape when inputs are perturbed"):
        one = torch.ones(1, dtype=torch.float64, requires_grad=True)
        gradcheck(lambda a: torch.cat([a, a]) if (a >= 1).all() else a, (one,))


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("fast", [False, True])
def test_every_sparse_layout(layout: str, masked: bool, fast: bool) -> None:
    whole = torch.arange(32.0, dtype=torch.float64).view(4, 8)
    whole[:, 2:4] = 0
    options = {"blocksize": (2, 2)} if "bs" in layout else {}
    x = whole.to_sparse(layout=getattr(torch, layout), **options).requires_grad_()

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.to_dense() * 2

        @staticmethod
        def backward(ctx, g):
            return (g * 3).to_sparse(layout=x.layout, **options)

    assert gradcheck(lambda t: t.to_dense(masked_grad=masked).square(), (x,), masked=masked, fast_mode=fast)
    with pytest.raises(GradcheckError, match="Jacobian mismatch|Gradients"):
        gradcheck(Wrong.apply, (x,), masked=masked, fast_mode=fast)
