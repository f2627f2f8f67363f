"""Graphs walked again, hooks in their order, inputs by name, and derivatives where a formula has none: all as in PyTorch."""

from __future__ import annotations

import warnings

import pytest

import flambeau

SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


@scenario
def a_graph_without_saved_tensors_can_be_walked_twice(torch):
    x = torch.ones(3, requires_grad=True)
    y = (x + 1 + x - 2).sum()
    y.backward()
    y.backward()
    return x.grad


@scenario
def a_graph_with_saved_tensors_cannot(torch):
    x = torch.ones(3, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    y.backward()


@scenario
def inputs_by_name(torch):
    x, y = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    z = x * x * y
    z.backward(inputs={"x": x}, retain_graph=True)
    return torch.autograd.grad(z, {"x": x, "y": y}), x.grad, y.grad


@scenario
def no_inputs_by_name(torch):
    return torch.autograd.grad(torch.ones(1, requires_grad=True) * 2, {})


@scenario
def a_gradient_edge_of_a_scalar_starts_with_one(torch):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    edge = torch.autograd.graph.get_gradient_edge((x * x).sum())
    return torch.autograd.grad(edge, x)


@scenario
def inputs_that_are_no_leaves_get_a_gradient(torch):
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    (y * y).sum().backward(inputs=[y])
    return y.grad, x.grad


@scenario
def hooks_of_tensors_come_before_hooks_of_nodes(torch):
    log = []
    a = torch.tensor(1.0, requires_grad=True)
    b = a.clone()
    b.grad_fn.register_prehook(lambda gs: log.append("node of b"))
    b.register_hook(lambda g: log.append("b"))
    accumulator = b.grad_fn.next_functions[0][0]
    accumulator.register_prehook(lambda gs: log.append("accumulator"))
    accumulator.register_hook(lambda ins, outs: log.append(("accumulated", len(ins), len(outs))))
    a.register_hook(lambda g: log.append("a"))
    b.sum().backward(retain_graph=True)
    torch.autograd.grad(b.sum(), a)
    return log


@scenario
def hooks_off_the_path_are_not_called(torch):
    a, b = torch.tensor(1.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    log = []
    a.register_hook(lambda g: log.append("a"))
    b.register_hook(lambda g: log.append("b"))
    (a * b).backward(inputs=[b])
    return log


@scenario
def a_hook_sees_that_there_is_no_gradient(torch):
    x = torch.randn(2, requires_grad=True)
    first, second = x.unbind()
    seen = []
    first.register_hook(seen.append)
    second.backward()
    return seen


@scenario
def the_angle_of_the_origin_has_no_slope(torch):
    x, y = torch.zeros(2, requires_grad=True), torch.tensor([0.0, 2.0], requires_grad=True)
    torch.atan2(x, y).sum().backward()
    return x.grad, y.grad


@scenario
def equal_medians_share_the_gradient(torch):
    grads = []
    for values in ([1.0, 0.0, 1.0, 0.0, 1.0, 0.0], [float("nan")] * 2):
        for function in (torch.median, torch.nanmedian):
            x = torch.tensor(values, requires_grad=True)
            function(x).backward()
            grads.append(x.grad)
    return grads


@scenario
def products_can_be_differentiated_by_their_vector(torch):
    x, v = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)
    results = []
    for name in ("jvp", "vjp"):
        product = getattr(torch.autograd.functional, name)(lambda t: t**3, x, v, create_graph=True)[1]
        results.append(torch.autograd.grad(product.sum(), (x, v)))
    for name in ("hvp", "vhp"):
        product = getattr(torch.autograd.functional, name)(lambda t: (t**3).sum(), x, v, create_graph=True)[1]
        results.append(torch.autograd.grad(product.sum(), (x, v)))
    return results


@scenario
def hooks_on_saved_tensors_do_not_lose_the_history(torch):
    x = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
        y = x.sin() * x.exp()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return torch.autograd.grad(g, x)


@pytest.mark.parametrize("name", SCENARIOS)
def test_as_in_pytorch(name, same_outcome):
    same_outcome(SCENARIOS[name])


def test_backward_with_create_graph_warns_of_the_cycle():
    import flambeau

    x = flambeau.ones(1, requires_grad=True)
    with pytest.warns(UserWarning, match="create_graph=True will create a reference cycle"):
        (x * x).backward(create_graph=True)
    x.grad = None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flambeau.autograd.grad(x * x, x, create_graph=True)


def test_gradgradcheck_does_not_vary_what_needs_no_gradient():
    import flambeau

    x = flambeau.randn(3, dtype=flambeau.float64, requires_grad=True)
    assert flambeau.autograd.gradgradcheck(
        lambda t: t * t, [x], [flambeau.randn(3)]
    )  # float32: no step is small enough


@pytest.mark.parametrize("change", ["sigmoid_", "tanh_", "exp_", "relu_"])
@pytest.mark.parametrize("view", [lambda y: y[1], lambda y: y.view(6), lambda y: y[:, ::2], lambda y: y.diagonal()])
def test_second_derivatives_of_a_view_changed_in_place(change, view):
    """What such a change saves of its result belongs to the view, whose history is that of its base."""

    def changed(x):
        y = x * 1.5
        part = view(y)
        getattr(part, change)()
        return (y**2).sum() + (part**3).sum()

    x = (flambeau.arange(6, dtype=flambeau.float64).reshape(2, 3) / 3 - 0.7).requires_grad_()
    (gradient,) = flambeau.autograd.grad(changed(x), x, create_graph=True)
    flambeau.autograd.grad(gradient.sum(), x)  # reads each saved tensor once, and frees it
    assert flambeau.autograd.gradgradcheck(changed, (x,))
