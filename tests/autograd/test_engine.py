"""The backward pass: order, accumulation, hooks, retained graphs, second derivatives."""

from __future__ import annotations

import gc
import weakref

import pytest

import flambeau as torch


def test_a_long_chain_does_not_overflow():
    x = torch.ones(3, requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y + 1.0
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    del y  # freeing the chain must not recurse either


def test_gradients_accumulate_over_calls_and_paths():
    x = torch.tensor([2.0], requires_grad=True)
    (x * x + 3 * x).backward()
    assert x.grad.item() == 7.0
    (x * x).backward()
    assert x.grad.item() == 11.0


def test_leaves_never_share_a_gradient():
    a = torch.ones(3, requires_grad=True)
    b = torch.ones(3, requires_grad=True)
    seed = torch.ones(3)
    (a + b).backward(seed)
    a.grad.mul_(5)
    assert b.grad.tolist() == [1.0, 1.0, 1.0]
    assert seed.tolist() == [1.0, 1.0, 1.0]


def test_second_backward_needs_retain_graph():
    x = torch.tensor([3.0], requires_grad=True)
    y = (x * x).exp()
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    assert torch.allclose(x.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_create_graph_gives_higher_derivatives():
    x = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    y = x**4
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x, create_graph=True)
    (third,) = torch.autograd.grad(second, x)
    assert (first.item(), second.item(), third.item()) == (32.0, 48.0, 48.0)


def test_grad_leaves_dot_grad_alone_and_reports_unused():
    x = torch.ones(2, requires_grad=True)
    z = torch.ones(2, requires_grad=True)
    (g,) = torch.autograd.grad((x * 2).sum(), x)
    assert g.tolist() == [2.0, 2.0] and x.grad is None
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad((x * 2).sum(), [x, z])
    g, unused = torch.autograd.grad((x * 2).sum(), [x, z], allow_unused=True)
    assert unused is None
    g, zeros = torch.autograd.grad((x * 2).sum(), [x, z], materialize_grads=True)
    assert zeros.tolist() == [0.0, 0.0]


def test_grad_of_an_intermediate():
    x = torch.tensor([2.0], requires_grad=True)
    y = x * 3
    z = y * y
    gy, gx = torch.autograd.grad(z, [y, x])
    assert gy.item() == 12.0 and gx.item() == 36.0


def test_backward_with_inputs_fills_only_those():
    x = torch.ones(2, requires_grad=True)
    w = torch.ones(2, requires_grad=True)
    (x * w).sum().backward(inputs=[w])
    assert x.grad is None and w.grad.tolist() == [1.0, 1.0]


def test_tensor_hooks_see_and_change_gradients():
    x = torch.ones(2, requires_grad=True)
    y = x * 3
    seen = []
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    x.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert seen == [[1.0, 1.0]] and x.grad.tolist() == [30.0, 30.0]
    handle.remove()
    y = x * 3
    y.sum().backward()
    assert len(seen) == 1


def test_node_hooks():
    x = torch.ones(2, requires_grad=True)
    y = x * 3
    log = []
    y.grad_fn.register_prehook(lambda grads: log.append("pre"))
    y.grad_fn.register_hook(lambda grad_inputs, grad_outputs: log.append("post"))
    y.sum().backward()
    assert log == ["pre", "post"]


def test_retain_grad_and_post_accumulate_hooks():
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    calls = []
    x.register_post_accumulate_grad_hook(lambda p: calls.append(p.grad.tolist()))
    (y * y).sum().backward()
    assert y.grad.tolist() == [4.0, 4.0] and calls == [[8.0, 8.0]]


def test_graph_is_freed_without_the_garbage_collector():
    gc.collect()
    gc.disable()
    try:
        x = torch.ones(3, requires_grad=True)
        y = (x.exp() * 2).tanh()
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("make", [lambda: torch.ones(3), lambda: torch.ones(3, dtype=torch.int64)])
def test_backward_needs_a_graph(make):
    with pytest.raises(RuntimeError, match="does not require grad"):
        make().sum().backward()


def test_only_scalars_have_an_implicit_gradient():
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        (torch.ones(3, requires_grad=True) * 2).backward()


def test_gradients_of_whatever_holds_the_parameters():
    model = torch.nn.Linear(2, 1)
    want = torch.autograd.grad(model(torch.ones(2)).sum(), list(model.parameters()))
    for inputs in (model.parameters(), dict(model.named_parameters()).values(), iter(model.parameters())):
        got = torch.autograd.grad(model(torch.ones(2)).sum(), inputs)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    model(torch.ones(2)).sum().backward(inputs=model.parameters())
    assert torch.equal(model.weight.grad, want[0])


def test_a_gradient_of_another_size_or_dtype_is_refused_and_none_removes_it():
    w = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"gradient of size '\[3\]' to a tensor of size '\[2\]'"):
        w.grad = torch.ones(3)
    with pytest.raises(RuntimeError, match="gradient with dtype 'double' to a tensor with grad_dtype 'Float'"):
        w.grad = torch.ones(2).double()
    with pytest.raises(RuntimeError, match="gradient with device type 'meta' to a tensor with device type 'cpu'"):
        w.grad = torch.ones(2, device="meta")
    w.grad = torch.ones(2)
    w.grad = None
    assert w.grad is None
