"""autograd.Function: forward mode, vjp, lists of gradients, what forward may change; against PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from answers import judge

import flambeau
import flambeau.autograd.forward_ad

torch = judge("torch")


def both(program: Any) -> tuple[Any, Any]:
    return program(torch), program(flambeau)


def scaled(t: Any, **methods: Any) -> Any:
    """A Function that doubles its first argument, with other methods where given."""

    def forward(ctx: Any, x: Any, factor: float = 2.0) -> Any:
        ctx.factor = factor
        return x * factor

    everything = {"forward": forward, "backward": lambda ctx, g: (g * ctx.factor, None), **methods}
    members = {name: staticmethod(f) if callable(f) else f for name, f in everything.items() if f is not None}
    return type("Scaled", (t.autograd.Function,), members)


def test_jvp_gives_the_tangent() -> None:
    def program(t: Any) -> list:
        fw = t.autograd.forward_ad
        function = scaled(t, jvp=lambda ctx, tangent, factor: tangent * ctx.factor)
        with fw.dual_level():
            out = function.apply(fw.make_dual(t.tensor([1.0, 2.0]), t.tensor([3.0, 4.0])), 5.0)
            return [part.tolist() for part in fw.unpack_dual(out)]

    assert program(torch) == program(flambeau) == [[5.0, 10.0], [15.0, 20.0]]


def change(ctx: Any, x: Any) -> Any:
    ctx.mark_dirty(x)
    return x.mul_(2)


REFUSED_JVP = {
    "none": {},
    "too many": {"jvp": lambda ctx, tangent: (tangent, tangent)},
    "not in place": {"forward": change, "jvp": lambda ctx, tangent: tangent * 2},
    "not a view": {"forward": lambda ctx, x: x[:1], "jvp": lambda ctx, tangent: tangent[:1] * 1},
}


@pytest.mark.parametrize("name", REFUSED_JVP)
def test_wrong_jvp(name: str) -> None:
    problems = []
    for t in (torch, flambeau):
        fw = t.autograd.forward_ad
        with fw.dual_level(), pytest.raises((RuntimeError, NotImplementedError)) as caught:
            scaled(t, **REFUSED_JVP[name]).apply(fw.make_dual(t.ones(2), t.ones(2)))
        problems.append(caught.value)
    assert type(problems[0]) is type(problems[1])
    if name != "too many":
        assert str(problems[0])[:90] == str(problems[1])[:90]


def test_vjp_is_another_name_of_backward() -> None:
    def program(t: Any) -> list:
        x = t.ones(2, requires_grad=True)
        scaled(t, backward=None, vjp=lambda ctx, g: (g * 7, None)).apply(x, 2.0).sum().backward()
        return x.grad.tolist()

    assert program(torch) == program(flambeau) == [7.0, 7.0]
    twice = scaled(flambeau, vjp=lambda ctx, g: (g, None))
    with pytest.raises(RuntimeError, match="both 'backward' and 'vjp'"):
        twice.apply(flambeau.ones(2, requires_grad=True), 2.0).sum().backward()


def test_gradients_in_a_list() -> None:
    def backward(ctx: Any, gradients: list) -> Any:
        assert isinstance(gradients, list)
        return gradients.pop() * 3, None

    function = scaled(flambeau, backward=backward, boxed_grads_call=True)
    x = flambeau.ones(2, requires_grad=True)
    function.apply(x, 2.0).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_forward_with_defaults_and_setup_context() -> None:
    def program(t: Any) -> tuple:
        seen = []
        function = scaled(
            t,
            forward=lambda x, factor=4.0: x * factor,
            setup_context=lambda ctx, inputs, output: (seen.append(inputs[1]), setattr(ctx, "factor", inputs[1])),
        )
        x = t.ones(2, requires_grad=True)
        function.apply(x).sum().backward()
        return seen, x.grad.tolist()

    assert program(torch) == program(flambeau)


DIRTY = {
    "not returned": lambda ctx, x: (ctx.mark_dirty(x), x.mul_(2), x.clone())[2],
    "a view of something else": lambda ctx, x: (lambda out: (ctx.mark_dirty(out), out)[1])(x.clone().view_as(x)),
    "a view among several": lambda ctx, x: (ctx.mark_dirty(x), x.mul_(2), (x, x + 1))[2],
}


@pytest.mark.parametrize("name", DIRTY)
def test_wrong_use_of_mark_dirty(name: str) -> None:
    messages = []
    for t in (torch, flambeau):
        with pytest.raises(RuntimeError) as caught:
            x = t.ones(2, requires_grad=True).clone()
            scaled(t, forward=DIRTY[name]).apply(x[:1] if "among" in name else x)
        messages.append(str(caught.value))
    if "else" not in name:
        assert messages[0][:100] == messages[1][:100]


def test_a_view_made_by_a_function_is_closed() -> None:
    for t in (torch, flambeau):
        view = scaled(t, forward=lambda ctx, x: x.view_as(x)).apply(t.ones(1, 2))
        with pytest.raises(RuntimeError, match="inside a custom Function"):
            view += t.ones(1, requires_grad=True)


def test_functions_are_classes() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        instance = scaled(flambeau)()
    assert caught[0].category is DeprecationWarning
    with pytest.raises(RuntimeError, match="non-static forward"):
        instance(flambeau.ones(2))


def test_wrong_keywords() -> None:
    for t in (torch, flambeau):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            scaled(t).apply(t.ones(2), wrong=1)
        with pytest.raises(TypeError, match="multiple values for argument"):
            scaled(t).apply(t.ones(2), 2.0, factor=1)


def test_a_gradient_that_nobody_asked_for_may_have_any_shape():
    class Scaled(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx, x, times):
            return x * times.sum()

        @staticmethod
        def backward(ctx, grad):
            return grad * 6.0, flambeau.ones(2)

    x = flambeau.ones(2, requires_grad=True)
    Scaled.apply(x, flambeau.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [6.0, 6.0]
    with pytest.raises(RuntimeError, match=r"invalid gradient at index 1 - got \[2\]"):
        Scaled.apply(x, flambeau.tensor([1.0, 2.0, 3.0], requires_grad=True)).sum().backward()
