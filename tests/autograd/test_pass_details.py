"""Details of backward passes: callbacks, strict derivatives, anomaly reports, closed views; against PyTorch."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from answers import judge

import flambeau
import flambeau.utils.checkpoint

torch = judge("torch")


def test_callbacks_run_when_the_pass_is_over() -> None:
    def program(t: Any) -> list:
        engine, order = t.autograd.Variable._execution_engine, []

        def last() -> None:
            order.append("last")

        def first() -> None:
            order.append(("first", x.grad is not None))
            engine.queue_callback(last)

        x = t.ones(2, requires_grad=True)
        y = x * 2
        y.register_hook(lambda g: engine.queue_callback(first))
        y.sum().backward()
        with pytest.raises(RuntimeError, match="during backward pass"):
            engine.queue_callback(last)
        return order

    assert program(torch) == program(flambeau) == [("first", True), "last"]


STRICT: dict[str, Callable] = {
    "vjp": lambda t, f, x: t.autograd.functional.vjp(f, x, t.ones(2), create_graph=True, strict=True),
    "jvp": lambda t, f, x: t.autograd.functional.jvp(f, x, t.ones(2), create_graph=True, strict=True),
    "jacobian": lambda t, f, x: t.autograd.functional.jacobian(f, x, create_graph=True, strict=True),
    "hessian": lambda t, f, x: t.autograd.functional.hessian(lambda v: f(v).sum(), x, strict=True),
    "vhp": lambda t, f, x: t.autograd.functional.vhp(lambda v: f(v).sum(), x, t.ones(2), strict=True),
    "hvp": lambda t, f, x: t.autograd.functional.hvp(lambda v: f(v).sum(), x, t.ones(2), strict=True),
}
INDEPENDENT: dict[str, Callable] = {
    "constant": lambda x: x.detach(),
    "unconnected": lambda x: x.detach().clone().requires_grad_().clone(),
    "linear": lambda x: x * 3,
}


@pytest.mark.parametrize("derivative", STRICT)
@pytest.mark.parametrize("kind", INDEPENDENT)
def test_strict_complaints(derivative: str, kind: str) -> None:
    messages = []
    for t in (torch, flambeau):
        with pytest.raises(RuntimeError) as caught:
            STRICT[derivative](t, INDEPENDENT[kind], t.ones(2, requires_grad=True))
        messages.append(str(caught.value)[:75])
    assert messages[0] == messages[1]


def test_warnings_that_are_errors_do_not_hide_the_real_one(capsys: Any) -> None:
    for t in (torch, flambeau):
        with warnings.catch_warnings(), t.autograd.set_detect_anomaly(True):
            warnings.simplefilter("error")
            x = t.ones(2, requires_grad=True)
            y = x + 1
            out = y**2
            y += 1
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                out.sum().backward()
        assert "Error detected in PowBackward0" in capsys.readouterr().err


def test_anomaly_names_the_calls_that_led_to_a_second_derivative() -> None:
    def program(t: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as caught, t.autograd.set_detect_anomaly(True):
            warnings.simplefilter("always")
            x = t.zeros(2, requires_grad=True)
            (g,) = t.autograd.grad((x**1.5).sum(), x, create_graph=True)
            with pytest.raises(RuntimeError, match="nan values"):
                (g * 0 / g).sum().backward()
        return [str(w.message).split(".")[0] for w in caught]

    assert program(torch)[0] == program(flambeau)[0]


def test_views_of_inference_mode_are_closed() -> None:
    messages = []
    for t in (torch, flambeau):
        base = t.ones(2, requires_grad=True) * 1
        with t.inference_mode():
            view = base[:1]
        with pytest.raises(RuntimeError) as caught:
            view.add_(1)
        messages.append(str(caught.value)[:100])
    assert messages[0] == messages[1]


def test_views_of_inference_tensors_do_not_require_grad() -> None:
    for t in (torch, flambeau):
        with t.inference_mode():
            x = t.ones(2, requires_grad=True)
            assert not x[:1].requires_grad
        assert not x[:1].requires_grad


def test_switches() -> None:
    for t in (torch, flambeau):
        with t.autograd.set_multithreading_enabled(False):
            assert not t.autograd.is_multithreading_enabled()
        assert t.autograd.is_multithreading_enabled()
        with pytest.warns(FutureWarning, match="Decorating classes"):
            t.no_grad()(type("Plain", (), {}))


def test_resizing_to_the_same_shape_changes_nothing() -> None:
    for t in (torch, flambeau):
        x = t.ones(3)
        x.resize_((3,))
        assert x._version == 0
        x.resize_((1, 2))
        assert x._version == 1


def test_a_context_must_not_hide_an_error_of_a_checkpointed_function() -> None:
    def fail(x: Any) -> Any:
        raise ValueError("from inside")

    for t in (torch, flambeau):
        contexts = (contextlib.suppress(ValueError), contextlib.nullcontext())
        with pytest.raises(Exception) as caught:
            t.utils.checkpoint.checkpoint(
                fail, t.ones(2, requires_grad=True), use_reentrant=False, context_fn=lambda contexts=contexts: contexts
            )
        assert not isinstance(caught.value, ValueError)
    assert isinstance(caught.value, RuntimeError)


def test_a_view_without_history_prints() -> None:
    for t in (torch, flambeau):
        x = t.ones(1, requires_grad=True)
        with t.no_grad():
            view = x[:]
            view *= 2
        assert repr(view) == "tensor([2.], grad_fn=<Invalid>)"


def test_gradients_get_the_dtype_of_the_output() -> None:
    for t in (torch, flambeau):
        x = t.ones(3, dtype=t.float64, requires_grad=True)
        (g,) = t.autograd.grad(x.view(3), x, t.ones(3))
        assert g.dtype is t.float64


REFUSED: dict[str, Callable] = {
    "no inputs": lambda t, x: t.autograd.grad(x.sum(), []),
    "hook with a result": lambda t, x: (x.register_post_accumulate_grad_hook(lambda p: p.grad), x.sum().backward()),
    "too many gradients": lambda t, x: (x * 2).grad_fn(x.detach(), x.detach()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_calls(name: str) -> None:
    kinds = []
    for t in (torch, flambeau):
        with pytest.raises((RuntimeError, TypeError)) as caught:
            REFUSED[name](t, t.ones(2, requires_grad=True))
        kinds.append(type(caught.value))
    assert kinds[0] is kinds[1]


def test_materialized_gradients_can_be_differentiated() -> None:
    for t in (torch, flambeau):
        x, a = t.tensor(0.5, requires_grad=True), t.tensor(1.0, requires_grad=True)
        first = t.autograd.grad(x * a, x, create_graph=True)
        second = t.autograd.grad(first, x, create_graph=True, materialize_grads=True)
        assert t.autograd.grad(second, x, materialize_grads=True)[0].item() == 0


def test_a_pass_to_one_input_computes_no_other_gradients():
    """A weight's gradient is half of the work of a layer."""
    asked = []

    x, weight = flambeau.randn(3, 4, requires_grad=True), flambeau.randn(5, 4, requires_grad=True)
    out = flambeau.nn.functional.linear(x, weight)
    node = out.grad_fn
    original = type(node).apply_some

    def watched(self, grads, wanted):
        result = original(self, grads, wanted)
        asked.append((wanted, [g is not None for g in result]))
        return result

    type(node).apply_some = watched
    try:
        (only_x,) = flambeau.autograd.grad(out.sum(), x, retain_graph=True)
        (only_weight,) = flambeau.autograd.grad(out.sum(), weight, retain_graph=True)
        both = flambeau.autograd.grad(out.sum(), (x, weight))
    finally:
        type(node).apply_some = original
    assert [sum(found) for _, found in asked] == [1, 1, 2]
    assert only_x.equal(both[0]) and only_weight.equal(both[1])
