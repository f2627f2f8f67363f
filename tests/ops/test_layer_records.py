"""Records of layers: what their layout rules and kernels say agrees with what the public functions do."""

from __future__ import annotations

import pytest

import flambeau
from flambeau.ops import OPS
from flambeau.ops.machinery.door import kernel_for, new

F = flambeau.nn.functional


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_by_its_record(name: str) -> None:
    op, x = OPS[f"internal.{name}_along"], flambeau.randn(3, 4, 5)
    out = new(*op.layout(x, 1))
    kernel = kernel_for(op, x.device)
    assert kernel is not None
    kernel(out, x, 1)
    flambeau.testing.assert_close(out, getattr(flambeau, name)(x, 1), rtol=0, atol=0)


def test_native_dropout_has_a_gradient() -> None:
    x = flambeau.randn(50, requires_grad=True)
    out, mask = flambeau.native_dropout(x, 0.25, True)
    out.sum().backward()
    assert type(out.grad_fn).__name__ == "NativeDropoutBackward0"
    flambeau.testing.assert_close(x.grad, mask.to(flambeau.float32) / 0.75)


@pytest.mark.parametrize("kind", [flambeau.nn.RNN, flambeau.nn.GRU, flambeau.nn.LSTM])
def test_outputs_of_a_recurrent_layer_may_be_changed(kind: type) -> None:
    layer, x = kind(3, 4), flambeau.randn(5, 2, 3)
    grads = []
    for change in (False, True):
        layer.zero_grad()
        out = layer(x)[0]
        (out.mul_(2) if change else out * 2).sum().backward()
        grads.append(layer.weight_hh_l0.grad.clone())
    flambeau.testing.assert_close(*grads)


def test_gradients_without_second_derivatives_say_so() -> None:
    weight = flambeau.randn(5, 3, requires_grad=True)
    out = F.embedding_bag(flambeau.tensor([[0, 1], [2, 4]]), weight, mode="sum")
    (g,) = flambeau.autograd.grad((out * out).sum(), weight, create_graph=True)
    with pytest.raises(NotImplementedError, match="_embedding_bag_dense_backward"):
        g.sum().backward()
    scores = flambeau.randn(6, 2, 4, requires_grad=True)
    loss = F.ctc_loss(scores.log_softmax(2), flambeau.tensor([[1, 2], [3, 1]]), [6, 6], [2, 2])
    (g,) = flambeau.autograd.grad(loss, scores, create_graph=True)
    with pytest.raises(NotImplementedError, match="_ctc_loss_backward"):
        g.sum().backward()
