"""Views and in-place changes under autograd: the same small programs on PyTorch and here."""

from __future__ import annotations

import pytest

import flambeau

SCENARIOS = []


def scenario(function):
    SCENARIOS.append(function)
    return function


def leaf(t):
    return t.arange(1.0, 7.0).reshape(2, 3).clone().requires_grad_()


@scenario
def inplace_base_view_follows(t):
    x = leaf(t)
    y = x * 2
    v = y[0]
    y.mul_(3)
    v.sum().backward()
    return (v, x.grad)


@scenario
def copy_into_slice(t):
    x = leaf(t)
    w = t.ones(3).requires_grad_()
    y = t.zeros(2, 3)
    y[0] = w * 2
    y[1] = x[0]
    y.sum().backward()
    return (y, w.grad, x.grad)


@scenario
def fill_slice(t):
    x = leaf(t)
    y = x * 1
    y[:, 1] = 5.0
    (y * y).sum().backward()
    return (y, x.grad)


@scenario
def copy_(t):
    x = leaf(t)
    w = leaf(t)
    y = x * 2
    y.copy_(w * 3)
    y.sum().backward()
    return (y, x.grad, w.grad)


@scenario
def copy_broadcast(t):
    w = t.ones(3).requires_grad_()
    y = t.zeros(2, 3)
    y.copy_(w)
    y.sum().backward()
    return (y, w.grad)


@scenario
def copy_dtype(t):
    w = t.ones(3).requires_grad_()
    y = t.zeros(2, 3, dtype=t.float64)
    y.copy_(w)
    y.sum().backward()
    return (y, w.grad)


@scenario
def zero_view(t):
    x = leaf(t)
    y = x * 2
    y[0].zero_()
    y.sum().backward()
    return (y, x.grad)


@scenario
def nested_views(t):
    x = leaf(t)
    y = x * 2
    v = y.t()[1:].reshape(-1)[::2] if False else y.t()[1:]
    v.add_(1)
    v.mul_(2)
    y.prod().backward()
    return (y, x.grad)


@scenario
def chain_inplace(t):
    x = leaf(t)
    y = x.clone()
    y.add_(1).mul_(2).sub_(3)
    y.sum().backward()
    return (y, x.grad)


@scenario
def saved_not_needed(t):
    x = leaf(t)
    y = x * 2
    z = y + 1
    y.add_(1)
    z.sum().backward()
    return x.grad


@scenario
def view_not_saved(t):
    x = leaf(t)
    y = x * 2
    v = y.view(3, 2)
    w = v * 1
    y.add_(1)
    w.sum().backward()
    return x.grad


@scenario
def detach_shares(t):
    x = leaf(t)
    y = x * 2
    d = y.detach()
    d.zero_()
    return (y, y._version, d._version)


@scenario
def data_own_version(t):
    x = leaf(t)
    y = x * 2
    z = y * y
    y.data.zero_()
    z.sum().backward()
    return (y, x.grad, y._version)


@scenario
def leaf_inplace_no_grad(t):
    x = leaf(t)
    with t.no_grad():
        x.add_(1)
        x[0].zero_()
    return (x, x._version)


@scenario
def split_backward(t):
    x = leaf(t)
    a, b, c = x.split(1, 1)
    (a * 2 + c).sum().backward()
    return x.grad


@scenario
def unbind_backward(t):
    x = leaf(t)
    a, b = x.unbind()
    (a * 2).sum().backward()
    return x.grad


@scenario
def chunk_cat(t):
    x = leaf(t)
    y = t.cat(x.chunk(3, 1)[::-1], 1)
    (y * t.arange(6.0).reshape(2, 3)).sum().backward()
    return (y, x.grad)


@scenario
def as_strided_overlap(t):
    x = leaf(t)
    y = x.as_strided((2, 2), (1, 1), 1)
    (y * t.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    return (y, x.grad)


@scenario
def as_strided_expanded_input(t):
    x = t.ones(1, 3).requires_grad_()
    e = x.expand(2, 3)
    y = e.as_strided((3,), (1,))
    y.sum().backward()
    return (y, x.grad)


@scenario
def unfold_grad(t):
    x = leaf(t)
    y = x.unfold(1, 2, 1)
    (y * y).sum().backward()
    return x.grad


@scenario
def diagonal_inplace(t):
    x = leaf(t)
    y = x * 1
    y.diagonal().zero_()
    (y * 2).sum().backward()
    return (y, x.grad)


@scenario
def real_inplace(t):
    z = t.tensor([1 + 2j, 3 - 1j]).requires_grad_()
    y = z * 1
    y.real.mul_(2)
    (y.real.sum() + (y.imag * 3).sum()).backward()
    return (y, z.grad)


@scenario
def view_as_complex_inplace(t):
    x = t.arange(4.0).reshape(2, 2).clone().requires_grad_()
    y = x * 1
    c = t.view_as_complex(y)
    c.mul_(2j)
    y.sum().backward()
    return (y, x.grad)


@scenario
def expand_grad(t):
    x = t.ones(3, 1).requires_grad_()
    (x.expand(2, 3, 4) * 2).sum().backward()
    return x.grad


@scenario
def retain(t):
    x = leaf(t)
    y = x * 2
    y.retain_grad()
    y[0].mul_(3)
    y.sum().backward()
    return (y.grad, x.grad)


@scenario
def t_inplace(t):
    x = leaf(t)
    y = x * 2
    y.t_()
    (y * t.arange(6.0).reshape(3, 2)).sum().backward()
    return (y, x.grad)


@scenario
def unsqueeze_inplace_view(t):
    x = leaf(t)
    y = x * 2
    v = y[0]
    v.unsqueeze_(0)
    v.mul_(2)
    y.sum().backward()
    return (y, v.shape, x.grad)


@scenario
def set_data(t):
    x = leaf(t)
    x.data = t.zeros(4)
    return (x, x.shape, x.requires_grad)


@scenario
def inplace_on_leaf_view_of_nograd(t):
    a = t.zeros(3)
    b = a.view(3)
    w = t.ones((), requires_grad=True)
    b.mul_(w)
    a.add_(1)
    b.sum().backward()
    return (a, b, w.grad)


@scenario
def double_backward_views(t):
    x = leaf(t)
    y = (x.t()[1:].reshape(-1) ** 3).sum()
    (g,) = t.autograd.grad(y, x, create_graph=True)
    (g * g).sum().backward()
    return (g, x.grad)


@scenario
def double_backward_cat(t):
    x = leaf(t)
    y = (t.cat([x, x.flip(0)], 1).roll(1, 0) ** 3).sum()
    (g,) = t.autograd.grad(y, x, create_graph=True)
    (g * g).sum().backward()
    return (g, x.grad)


@scenario
def double_backward_select(t):
    x = leaf(t)
    y = (x.select(1, 1) ** 3).sum() + (x.diagonal() ** 3).sum() + (x.unfold(1, 2, 1) ** 3).sum()
    (g,) = t.autograd.grad(y, x, create_graph=True)
    (g * g).sum().backward()
    return (g, x.grad)


@scenario
def no_grad_view_inplace(t):
    x = leaf(t)
    y = x * 2
    with t.no_grad():
        v = y[0]
    v.mul_(2)


@scenario
def multi_no_grad(t):
    x = t.zeros(2, 3)
    a, b = x.unbind()
    a.add_(1)
    return x


@scenario
def multi_grad_err(t):
    x = leaf(t) * 1
    a, b = x.split(1)
    a.add_(1)
    return x


@scenario
def subclass_mixed_err(t):

    class A(t.Tensor):
        pass

    class B(t.Tensor):
        pass

    return t.ones(2).as_subclass(A) + t.ones(2).as_subclass(B)


@scenario
def strided_out(t):
    o = t.zeros(3, 2).t()
    t.cat([t.ones(1, 3), t.zeros(1, 3)], out=o)
    return (o, o.stride())


@pytest.mark.parametrize("function", SCENARIOS, ids=lambda f: f.__name__)
def test_scenario(same_outcome, function):
    same_outcome(function)


def test_in_place_on_a_view_reaches_the_base():
    x = leaf(flambeau)
    y = x * 2
    y[0].mul_(3)
    y.sum().backward()
    assert x.grad.tolist() == [[6.0] * 3, [2.0] * 3]
    assert y.grad_fn.name().endswith("CopySlices")


def test_changed_saved_tensor_names_the_line():
    x = leaf(flambeau)
    y = x * 2
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*add_.*test_views_inplace"):
        z.sum().backward()


def test_views_do_not_keep_their_input_from_being_changed():
    x = leaf(flambeau)
    y = x * 2
    out = [y.view(3, 2), y.t(), y.unsqueeze(0), y[0], y[:, 1:], y.expand(2, 2, 3), y.flip(0), y.repeat(2, 1)]
    total = sum(v.sum() for v in out)
    y.zero_()
    total.backward()
    assert x.grad.shape == (2, 3)


def test_a_view_keeps_its_history_when_its_base_is_given_other_data():
    """Reading `grad_fn` made the view again, from memory of another size or dtype."""
    layer = flambeau.nn.Linear(4, 3)
    row = layer.weight[:1]
    with flambeau.no_grad():
        layer.weight.fill_(1)
    layer.double()
    with flambeau.no_grad():
        row[0, 0] = 5
    assert (row.dtype, row._base.dtype) == (flambeau.float32, flambeau.float64)
    assert row.grad_fn is not None
    assert row[0, 0] == 5
    assert layer.weight[0, 0] == 1
