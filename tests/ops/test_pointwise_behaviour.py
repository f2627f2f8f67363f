"""How pointwise operators behave apart from their numbers: plans, memory, what autograd keeps. Needs no PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl
from flambeau.core.graph import pop_saved_hooks, push_saved_hooks

F = fl.nn.functional


@pytest.mark.parametrize("other", ["text", None, [1, 2], object()])
def test_operators_leave_foreign_operands_to_python(other):
    x = fl.ones(2)
    with pytest.raises(TypeError) as caught:
        x + other
    assert caught.value.__context__ is None  # no look-up that failed on the way shows up in the message
    assert (x == other) is False
    assert (x != other) is True


def test_a_parameter_may_change_from_call_to_call():
    x = fl.tensor([1.0, -2.0])
    for slope in (0.1, 0.2, 0.01, 0.3):
        np.testing.assert_allclose(F.leaky_relu(x, slope)._array(), [1, -2 * slope], rtol=1e-6)
    for alpha in (1, 2, 1.5, -1):
        np.testing.assert_allclose(fl.add(x, x, alpha=alpha)._array(), (1 + alpha) * x._array(), rtol=1e-6)


def test_out_is_filled_resized_or_refused():
    a, b = fl.tensor([1.0, 2.0]), fl.tensor([3.0, 5.0])
    for _ in range(2):
        out = fl.empty(2)
        assert fl.add(a, b, out=out) is out
        assert out.tolist() == [4, 7]
    assert fl.mul(a, b, out=fl.empty(0)).tolist() == [3, 10]
    assert fl.add(a, b, out=fl.empty(2, dtype=fl.float64)).dtype is fl.float64
    assert fl.mul(a, b, out=a).tolist() == [3, 10]
    with pytest.raises(RuntimeError, match="can't be cast"):
        fl.add(a, b, out=fl.empty(2, dtype=fl.int64))
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        fl.add(a.clone().requires_grad_(), b, out=fl.empty(2))
    shifted = fl.arange(4.0)
    assert fl.add(shifted[1:], shifted[:-1], out=shifted[:-1].clone()).tolist() == [1, 3, 5]


def test_operands_that_would_change_while_they_are_read():
    """A shifted view of the same dense memory is refused; other overlaps are read before they are written."""
    for view in (lambda x: x.t(), lambda x: x[0]):
        x = fl.arange(9.0).reshape(3, 3)
        with pytest.raises(RuntimeError, match="single memory location"):
            x.add_(view(x))
    x = fl.arange(9.0).reshape(3, 3)
    expected = x._array()[:, :2] + x._array()[:, 1:]
    x[:, :2].add_(x[:, 1:])
    np.testing.assert_array_equal(x._array()[:, :2], expected)


def test_views_of_a_base_changed_in_place_take_part_in_autograd():
    base, weight = fl.zeros(4), fl.ones(4).requires_grad_()
    view = base[:2]
    base.add_(weight)
    (view * 3).sum().backward()
    assert weight.grad.tolist() == [3, 3, 0, 0]


def test_changed_operands_are_noticed():
    a, b = fl.ones(3).requires_grad_(), fl.ones(3)
    product = a * b
    b.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation.*version 1; expected version 0.*'add_'"):
        product.sum().backward()
    result = a.exp()
    result.mul_(2)
    with pytest.raises(RuntimeError, match="output 0 of Exp,"):
        fl.autograd.grad(result.detach() * 0 + a.exp().mul_(2), a, fl.ones(3))


def test_what_no_gradient_reads_may_change():
    a, b = fl.ones(3).requires_grad_(), fl.ones(3)
    total = a + b
    b.add_(1)
    total.sum().backward()
    assert a.grad.tolist() == [1, 1, 1]


def test_a_second_backward_pass_needs_the_saved_values():
    a = fl.ones(3).requires_grad_()
    y = (a * a).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()


def test_saved_values_pass_through_hooks():
    seen = []
    a, b = fl.tensor([1.0, 2.0]).requires_grad_(), fl.tensor([3.0, 4.0])
    push_saved_hooks(lambda t: seen.append("pack") or t.clone(), lambda t: seen.append("unpack") or t)
    try:
        y = (a * b).exp()
    finally:
        pop_saved_hooks()
    b.zero_()  # the packed copies are what backward reads
    y.sum().backward()
    assert seen == ["pack", "pack", "unpack", "unpack"]
    np.testing.assert_allclose(a.grad._array(), np.exp([3, 8]) * [3, 4], rtol=1e-6)


def test_gradients_of_several_operands_come_from_one_kernel():
    a, b = fl.ones(4).requires_grad_(), fl.ones(4).requires_grad_()
    node = (a * b).grad_fn
    with fl.no_grad():
        node.apply([fl.ones(4)])
    kernels = node.recipe.kernels.values()  # plans are shared: other tests may have asked for one gradient only
    assert any(len(backward.outputs) == 2 for backward in kernels)
    passing = (a + b).grad_fn
    with fl.no_grad():
        g = fl.ones(4)
        assert all(share is g for share in passing.apply([g]))  # a sum has nothing to compute


def test_like_calls_share_a_plan():
    impl = fl.mul.op.impl
    x = fl.ones(3, 7, 5)
    x * x
    x * 2.0
    before = len(impl.plans)
    for number in (3.0, 4.0, -1.5):
        x * number
        x * fl.ones(3, 7, 5)
    assert len(impl.plans) == before


def test_sums_of_halves_with_a_number_round_the_number() -> None:
    x = fl.tensor([0.1, 0.7, 1.3, -2.9]).half()
    rounded = fl.tensor(0.54).half().double()
    wanted = (x.double() + rounded).half()
    unrounded = (x.double() + 0.54).half()
    assert wanted.tolist() != unrounded.tolist()  # it makes a difference
    for found in (x + 0.54, 0.54 + x, x.clone().add_(0.54), x + fl.tensor(0.54)):
        assert found.tolist() == wanted.tolist()
