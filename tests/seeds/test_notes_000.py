"""Programs of the first notes file: own functions with autograd, functional nets, printing and saving, attention and its parts."""

from __future__ import annotations

import math

import flambeau as torch
from flambeau import nn
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


def test_my_add_as_a_module():
    class MyAddFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return 2 * a + b

    my_add = MyAddFunction.apply

    class MyAdd(torch.nn.Module):
        def __init__(self):
            super().__init__()

        def forward(self, a, b):
            return my_add(a, b)

    assert MyAdd()(torch.ones(2), torch.ones(2)).tolist() == [3.0, 3.0]


def small_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))


def test_model_structure_is_printed():
    assert str(small_model()) == (
        "Sequential(\n"
        "  (0): Linear(in_features=4, out_features=3, bias=True)\n"
        "  (1): BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)\n"
        "  (2): ReLU()\n"
        "  (3): Linear(in_features=3, out_features=2, bias=True)\n"
        ")"
    )


def test_named_parameters_are_the_learnable_ones_and_state_dict_has_all():
    model = small_model()
    learnable = ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"]
    assert [name for name, _ in model.named_parameters()] == learnable
    assert [tuple(p.shape) for p in model.parameters()] == [(3, 4), (3,), (3,), (3,), (2, 3), (2,)]
    buffers = ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    assert list(model.state_dict()) == learnable[:4] + buffers + learnable[4:]


def test_parameters_saved_and_loaded(tmp_path):
    model, other = small_model(), small_model()
    with torch.no_grad():
        for p in other.parameters():
            p.add_(1)
    path = tmp_path / "model_path.pth"
    torch.save(model.state_dict(), path)
    assert isinstance(torch.load(path), dict)
    assert str(other.load_state_dict(torch.load(path))) == "<All keys matched successfully>"
    x = torch.randn(5, 4)
    assert torch.equal(model.eval()(x), other.eval()(x))


def test_sharded_parameters_are_loaded_part_by_part(tmp_path):
    model, other = small_model(), small_model()
    state = model.state_dict()
    for i, names in enumerate((list(state)[:3], list(state)[3:])):
        torch.save({name: state[name] for name in names}, tmp_path / f"pytorch_model-0000{i + 1}-of-00002.bin")
    merged = {}
    for i in (1, 2):
        merged.update(torch.load(tmp_path / f"pytorch_model-0000{i}-of-00002.bin"))
    other.load_state_dict(merged)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values()))


def test_whole_model_saved_and_loaded(tmp_path):
    model = small_model().eval()
    torch.save(model, tmp_path / "model.pth")
    loaded = torch.load(tmp_path / "model.pth", weights_only=False)
    x = torch.randn(5, 4)
    assert torch.equal(loaded(x), model(x))
    assert list(loaded.state_dict()) == list(model.state_dict())


def test_rnn_module_takes_the_same_steps():
    torch.manual_seed(0)
    rnn = nn.RNN(3, 4)
    sequence = torch.randn(5, 1, 3)
    everything, last = rnn(sequence)
    state = torch.zeros(1, 4)
    for x in sequence:
        state = torch.tanh(x @ rnn.weight_ih_l0.t() + rnn.bias_ih_l0 + state @ rnn.weight_hh_l0.t() + rnn.bias_hh_l0)
    assert torch.allclose(last[0], state, atol=1e-5)
    assert torch.equal(everything[-1], last[0])


def test_multi_head_attention_and_encoder_keep_the_shape_of_their_input():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 8)
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    attended, weights = attention(x, x, x)
    assert attended.shape == x.shape
    assert torch.allclose(weights.sum(-1), torch.ones(2, 5), atol=1e-5)
    encoder = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True).eval()
    assert encoder(x).shape == x.shape
