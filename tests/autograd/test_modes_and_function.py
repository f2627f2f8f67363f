"""Grad modes, anomaly detection, and users' own functions."""

from __future__ import annotations

import pytest

import flambeau as torch


def test_no_grad_as_context_decorator_and_bare_decorator():
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert not (x * 2).requires_grad
        with torch.enable_grad():
            assert (x * 2).requires_grad
    assert (x * 2).requires_grad

    @torch.no_grad()
    def one():
        return x * 2

    @torch.no_grad
    def two():
        return x * 2

    assert not one().requires_grad and not two().requires_grad


def test_set_grad_enabled_as_function_and_context():
    x = torch.ones(2, requires_grad=True)
    with torch.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    assert torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    try:
        assert not (x * 2).requires_grad
    finally:
        torch.set_grad_enabled(True)


def test_generator_functions_receive_every_exception_of_the_consumer():
    @torch.no_grad()
    def listener():
        heard = []
        for _ in range(3):
            try:
                heard.append((yield torch.is_grad_enabled()))
            except ValueError as problem:
                heard.append(str(problem))
        return heard

    conversation = listener()
    assert next(conversation) is False
    assert conversation.throw(ValueError("first")) is False
    assert conversation.throw(ValueError("second")) is False
    with pytest.raises(StopIteration) as end:
        conversation.send("third")
    assert end.value.value == ["first", "second", "third"]


def test_generator_functions_keep_the_consumers_mode():
    @torch.no_grad()
    def numbers():
        for _ in range(2):
            yield torch.is_grad_enabled()

    seen = []
    for inside in numbers():
        seen.append((inside, torch.is_grad_enabled()))
    assert seen == [(False, True), (False, True)]


def test_inference_mode_tensors_stay_out_of_autograd():
    with torch.inference_mode():
        y = torch.ones(2) * 3
        assert torch.is_inference_mode_enabled()
    assert y.is_inference()
    with pytest.raises(RuntimeError):
        y.add_(1)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


def test_function_and_its_second_derivative():
    x = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    y = Square.apply(x)
    assert y.grad_fn.name() == "SquareBackward"
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    (gg,) = torch.autograd.grad(g, x)
    assert g.item() == 6.0 and gg.item() == 2.0
    assert torch.autograd.gradcheck(Square.apply, (x,))


def test_function_with_setup_context_and_several_outputs():
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(x, k):
            return x + k, x * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.k = inputs[1]

        @staticmethod
        def backward(ctx, g_sum, g_product):
            return g_sum + g_product * ctx.k, None

    x = torch.ones(2, requires_grad=True)
    a, b = Both.apply(x, 4.0)
    (a.sum() + b.sum()).backward()
    assert x.grad.tolist() == [5.0, 5.0]


def test_wrong_number_of_gradients():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a * b

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        Bad.apply(torch.ones(1, requires_grad=True), torch.ones(1)).backward()


def test_once_differentiable():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    x = torch.ones(1, requires_grad=True)
    seed = torch.ones(1, requires_grad=True)
    (g,) = torch.autograd.grad(Once.apply(x), x, seed, create_graph=True)
    assert g.item() == 2.0
    with pytest.raises(RuntimeError, match="once_differentiable"):
        (g * x).backward()


def test_anomaly_mode_names_the_forward_line():
    x = torch.tensor([-1.0], requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        y = x.sqrt()  # NaN gradient
        with (
            pytest.warns(UserWarning, match=r"(?s)SqrtBackward0.*x.sqrt\(\)  # NaN gradient"),
            pytest.raises(RuntimeError, match="returned nan values"),
        ):
            y.backward()


def test_gradcheck_finds_a_wrong_derivative():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    with pytest.raises(torch.autograd.GradcheckError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(Wrong.apply, (x,))
    assert not torch.autograd.gradcheck(Wrong.apply, (x,), raise_exception=False)


class _Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def test_a_view_made_by_a_function_is_closed_to_changes_in_place():
    x = torch.ones(3, requires_grad=True)
    y = _Same.apply(x)
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0] and y._base is x
    with pytest.raises(RuntimeError, match="Output 0 of _Same is a view and is being modified inplace"):
        y += 1
    base = x.clone()
    y = _Same.apply(base)
    base += 1
    with pytest.raises(RuntimeError, match="Output 0 of _Same is a view and its base or another view"):
        y.sum()
