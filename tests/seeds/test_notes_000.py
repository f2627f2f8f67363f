"""Programs of the first notes file: own functions with autograd, functional nets, attention and its parts."""

from __future__ import annotations

import math

import flambeau as torch
from flambeau.nn import functional as F


def test_my_add_as_an_autograd_function():
    class MyAddFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return 2 * a + b

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad, grad

    my_add = MyAddFunction.apply
    a = torch.tensor([1.0, 2.0], requires_grad=True)
    b = torch.tensor([10.0, 20.0], requires_grad=True)
    result = my_add(a, b)
    assert result.tolist() == [12.0, 24.0]
    result.sum().backward()
    assert a.grad.tolist() == [2.0, 2.0]
    assert b.grad.tolist() == [1.0, 1.0]


def test_net_made_of_functional_linear_layers():
    def net(params, x):
        x = F.linear(x, params[0], params[1])
        x = F.relu(x)

        x = F.linear(x, params[2], params[3])
        x = F.relu(x)

        x = F.linear(x, params[4], params[5])
        return x

    torch.manual_seed(0)
    sizes = [4, 8, 8, 2]
    params = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        params += [torch.randn(outputs, inputs, requires_grad=True), torch.zeros(outputs, requires_grad=True)]
    x = torch.randn(5, 4)
    y = net(params, x)
    w = [p.detach().numpy() for p in params]
    hidden = (x.numpy() @ w[0].T + w[1]).clip(0)
    hidden = (hidden @ w[2].T + w[3]).clip(0)
    assert torch.allclose(y.detach(), torch.from_numpy(hidden @ w[4].T + w[5]), rtol=1e-4, atol=1e-4)
    y.sum().backward()
    assert [p.grad.shape for p in params] == [p.shape for p in params]
    assert params[5].grad.tolist() == [5.0, 5.0]


def test_rnn_step_written_out():
    """H1 = x U + H1' W, O = H1 V: the same weights at every step."""
    torch.manual_seed(0)
    inputs, hidden, outputs = 3, 4, 2
    u, w, v = torch.randn(inputs, hidden), torch.randn(hidden, hidden), torch.randn(hidden, outputs)
    sequence = torch.randn(5, inputs)
    state = torch.zeros(hidden)
    for x in sequence:
        state = torch.tanh(x @ u + state @ w)
    assert (state @ v).shape == (outputs,)
    everything, last = torch.rnn_tanh(
        sequence[:, None], torch.zeros(1, 1, hidden), [u.t(), w.t()], False, 1, 0.0, False, False, False
    )
    assert torch.allclose(everything[-1, 0], state, atol=1e-6)
    assert torch.allclose(last[0, 0], state, atol=1e-6)


def test_attention_weights_are_a_softmax_of_scaled_products():
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 5, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 8)
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))
    weights = torch.softmax(scores, dim=-1)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 5))
    attended = weights @ v
    assert attended.shape == (2, 5, 8)
    assert torch.allclose(attended, F.scaled_dot_product_attention(q, k, v), atol=1e-5)


def test_hard_attention_takes_the_state_of_highest_weight():
    torch.manual_seed(0)
    h = torch.randn(6, 4)
    weights = torch.softmax(torch.randn(6), dim=0)
    context = h[weights.argmax()]
    assert torch.equal(context, h[int(weights.numpy().argmax())])
    drawn = torch.multinomial(weights, 1000, replacement=True)
    frequency = torch.bincount(drawn, minlength=6) / 1000
    assert torch.allclose(frequency, weights, atol=0.06)


def test_layer_norm_by_its_formula():
    torch.manual_seed(0)
    a = torch.randn(3, 6)
    gain, bias = torch.randn(6), torch.randn(6)
    mean = a.mean(-1, keepdim=True)
    deviation = ((a - mean) ** 2).mean(-1, keepdim=True).sqrt()
    assert torch.allclose(gain * (a - mean) / deviation + bias, F.layer_norm(a, (6,), gain, bias), atol=1e-4)
