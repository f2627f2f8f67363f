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
        (lambda g, h: 2 * g + 3 * h + 1e-7, {"atol": 1e-3}, "undefined or zero"),
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
        gradcheck(torch.sin, (real(),), check_batched_forward_grad=True)
    with pytest.raises(NotImplementedError, match="check_fwd_over_rev"):
        gradgradcheck(torch.sin, (real(),), check_fwd_over_rev=True)


def test_tolerances_of_repeated_passes(monkeypatch):
    monkeypatch.setattr(Bent, "bend", staticmethod(lambda g, h: (2 * g + 3 * h) * (1 + torch.rand(()).double() * 1e-8)))
    with pytest.raises(GradcheckError, match="not reentrant"):
        gradcheck(Bent.apply, (real(),))
    assert gradcheck(Bent.apply, (real(),), nondet_tol=1e-6)
