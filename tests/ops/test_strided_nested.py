"""Nested tensors in the strided layout: construction, operators by their records, views, gradients, and what is refused."""

from __future__ import annotations

import copy
import pickle

import pytest
from answers import judge

import flambeau
from flambeau.ops.kinds.strided_nested import from_parts

torch = judge("torch")

SETUP = """
F, nested = torch.nn.functional, torch.nested
a, b = torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(4, 3) - 5
t = nested.nested_tensor([a, b])
u = nested.nested_tensor([torch.arange(8.0).reshape(2, 4), torch.arange(4.0).reshape(1, 4)])
c = nested.nested_tensor([torch.arange(12.0).reshape(2, 2, 3), torch.arange(24.0).reshape(2, 4, 3)])
i = nested.nested_tensor([torch.tensor([0, 2]), torch.tensor([1])])
w, v = torch.arange(15.0).reshape(5, 3) / 8, torch.tensor([1.0, -1.0, 2.0])
q = nested.nested_tensor([torch.arange(24.0).reshape(2, 3, 4) / 9, torch.arange(8.0).reshape(2, 1, 4) / 7])
"""
SHOWN = """
t; t.requires_grad_(); t.requires_grad_() * 2; c; i; nested.nested_tensor([]); nested.nested_tensor([1, 2]); nested.nested_tensor([[1.0, 2], [3]])
nested.nested_tensor([a, b], dtype=torch.float64); nested.nested_tensor([torch.ones(2), torch.ones(2).int()]); nested.as_nested_tensor(torch.ones(2, 3)); nested.as_nested_tensor([a, b])
F.relu(t); -t; t + t; t * 2; t - 1; t / 4; t * torch.tensor(2.0); t.abs(); t.sin(); t.cos(); t.sqrt(); torch.tanh(t); F.silu(t); t.sgn(); t.isnan(); t > 1; t == 1; t >= 1; (t > 1).logical_not()
t.masked_fill(t > 3, 7); t.double(); t.to(torch.int64); t.clone(); t.detach(); t.contiguous(); t.cpu(); torch.zeros_like(t); torch.ones_like(t); F.dropout(t, 0.5, False)
F.linear(t, w); F.linear(t, w, torch.ones(5)); t @ t.transpose(1, 2); torch.bmm(t, torch.ones(2, 3, 2)); c @ c.transpose(-1, -2); F.layer_norm(t, (3,), v, v); F.embedding(i, w)
t.softmax(-1); t.softmax(1); t.sum(-1, keepdim=True); t.unsqueeze(-1); t.unsqueeze(1); t.unsqueeze(1).squeeze(1); t.transpose(1, 2); t.mT; t.view(2, -1, 3, 1); t.reshape(2, -1, 1, 3); t.transpose(1, 2).reshape(2, 3, -1); t.reshape_as(t)
t.select(2, 0); t.select(1, 0); t[..., 0]; t.narrow(0, 1, 1); u.chunk(2, -1); u.split([1, 3], -1); torch.cat([t, t], 0); torch.cat([t, t], -1); F.scaled_dot_product_attention(q, q, q)
t.clone().add_(1); t.clone().relu_(); t.clone().copy_(t * 2); t.clone().fill_(1); t.clone().zero_(); t.transpose(1, 2) + 1; t.transpose(1, 2) * t.transpose(1, 2); t.transpose(1, 2).contiguous(); torch._nested_tensor_from_mask(torch.ones(2, 3, 2), torch.arange(3) < torch.tensor([[1], [3]])); torch._nested_tensor_from_mask(torch.ones(2, 3, 2), torch.ones(2, 3))
torch._nested_from_padded(torch.arange(8.0).reshape(2, 2, 2), torch.tensor([[1, 2], [2, 1]])); torch._nested_from_padded_and_nested_example(torch.ones(2, 4, 3), t); nested.narrow(torch.ones(3, 2), 0, 1, 2)
""".replace("\n", "; ").strip("; ").split("; ")  # fmt: skip
PLAIN = """
t.dim(); t.size(0); t.size(-1); t.numel(); t.is_nested; t.layout; t.dtype; t.requires_grad; t.is_leaf; t.is_contiguous(); t.transpose(1, 2).is_contiguous(); u.chunk(2, -1)[0].is_contiguous()
t.values(); t.transpose(1, 2).values(); t.unbind(); t[0]; t[1, 0]; t[1, 0, 2]; t.select(0, 1); t.to_padded_tensor(-1.0); nested.to_padded_tensor(t, 0.0, (2, 5, 4)); c.to_padded_tensor(0)
t._nested_tensor_size(); t._nested_tensor_strides(); t._nested_tensor_storage_offsets(); t.transpose(1, 2)._nested_tensor_strides(); u.chunk(2, -1)[1]._nested_tensor_storage_offsets()
t.is_same_size(t); t.is_same_size(u); t.element_size(); t.storage_offset(); pickle.loads(pickle.dumps(t)).unbind()
""".replace("\n", "; ").strip("; ").split("; ")  # fmt: skip
REFUSED = """
t.size(1); t.stride(); t.numpy(); t.tolist(); t.sum(-1); t.sum(0, keepdim=True); t.softmax(0); t.transpose(0, 1); t.unsqueeze(0); t.squeeze(0); t.unbind(1); t.narrow(1, 0, 1); t.view(2, 6); t.view(3, -1, 3); t.flatten()
t + u; t + v; v * t; t @ w.t(); t + torch.ones(2, 4, 3); t[:, 0]; t[:1]; torch.stack([t, t]); t.expand(2, 3, 3); F.conv1d(t, torch.ones(1, 3, 1)); torch.ones(6, 3).add_(t); t.item()
nested.to_padded_tensor(t, 0.0, (2, 1, 3)); nested.nested_tensor([torch.ones(2), torch.ones(2, 3)]); nested.nested_tensor(torch.ones(2, 2)); nested.as_nested_tensor(t, layout=torch.jagged)
t.transpose(1, 2).sin(); t.size(); t.view(()); t.view(2, -1, -1, 1); nested.nested_tensor([]).view(0, 1); F.linear(i.float(), w); t.transpose(1, 2).to_padded_tensor(0.0); torch.bmm(i.float(), t); t.transpose(1, 2).narrow(0, 0, 1)
nested.narrow(torch.ones(2, 5), 1, 0, torch.tensor([2, 3])); F.scaled_dot_product_attention(q, q, q, is_causal=True); t.requires_grad_().mul_(2); nested.nested_tensor([a], layout=torch.sparse_coo)
""".replace("\n", "; ").strip("; ").split("; ")  # fmt: skip


@pytest.mark.parametrize("expression", SHOWN)
def test_printed_results(agrees, expression):
    agrees(f"repr({expression})", SETUP)


@pytest.mark.parametrize("expression", PLAIN)
def test_results_that_are_not_nested(agrees, expression):
    agrees(expression, f"import pickle{SETUP}")


@pytest.mark.parametrize("expression", REFUSED)
def test_what_pytorch_refuses_is_refused(expression):
    space = {"torch": flambeau}
    exec(SETUP, space)
    with pytest.raises((RuntimeError, TypeError)):
        eval(expression, space)


GRADIENTS = [
    "t * t", "t @ t.transpose(1, 2)", "F.linear(t, w)", "t.softmax(-1)", "t[1]", "t.view(2, -1, 3, 1)", "t.transpose(1, 2).contiguous()", "F.relu(t - 1)",
    "t.sum(-1, keepdim=True)", "t.unbind()[0] * 3", "F.gelu(t)", "t.unsqueeze(1)", "t.double()", "torch.bmm(t, torch.ones(2, 3, 2))",
]  # fmt: skip


@pytest.mark.parametrize("expression", GRADIENTS)
def test_gradients(expression):
    def gradients(library):
        space = {"torch": library}
        exec(SETUP, space)
        leaves = [space[name].requires_grad_() for name in "tw"]
        result = eval(expression, space)
        plain = result.to_padded_tensor(0.0) if result.is_nested else result
        (plain * library.arange(1.0, 1 + plain.numel()).reshape(plain.shape)).sum().backward()
        found = [leaf.grad for leaf in leaves]
        return [None if g is None else [x.reshape(-1).tolist() for x in g.unbind()] for g in found]

    for ours, expected in zip(gradients(flambeau), gradients(torch)):
        assert (ours is None) == (expected is None)
        if ours is not None:
            for row, other in zip(ours, expected):
                assert row == pytest.approx(other, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    ("nested", "of_a_row"),
    [
        ("t.transpose(1, 2) * 2", "t.transpose(0, 1) * 2"),  # PyTorch has no padded form, and so no gradient, of these
        ("t.chunk(3, -1)[1]", "t.chunk(3, -1)[1]"),
        ("t.select(2, 1)", "t.select(1, 1)"),
        ("torch.cat([t, t], 1)", "torch.cat([t, t], 0)"),
        ("t.permute(0, 2, 1).cumsum(1)", "t.permute(1, 0).cumsum(0)"),
    ],
)
def test_values_and_gradients_are_those_of_each_row(nested, of_a_row):
    space = {"torch": flambeau}
    exec(SETUP, space)
    whole = space["t"].requires_grad_()
    result = eval(nested, space)
    for row, grad, found in zip(("a", "b"), flambeau.autograd.grad(_total(result), whole)[0].unbind(), result.unbind()):
        x = space[row].clone().requires_grad_()
        expected = eval(of_a_row, {"t": x, "torch": flambeau})
        flambeau.testing.assert_close(found, expected)
        flambeau.testing.assert_close(grad, flambeau.autograd.grad(_total(expected), x)[0])


def _total(result):
    return (result * result).sum() + (result * 3).sum()


def test_a_gradient_in_another_order_reaches_the_rows():
    t = flambeau.nested.nested_tensor([flambeau.ones(2, 3), flambeau.ones(1, 3)], requires_grad=True)
    rows = [flambeau.arange(6.0).reshape(3, 2), flambeau.arange(3.0).reshape(3, 1)]
    t.transpose(1, 2).backward(flambeau.nested.nested_tensor(rows))
    assert [g.tolist() for g in t.grad.unbind()] == [row.t().tolist() for row in rows]


def test_views_share_memory():
    t = flambeau.nested.nested_tensor([flambeau.zeros(2, 4), flambeau.zeros(1, 4)])
    t[0][1, 1] = 5
    t.chunk(2, -1)[1].unbind()[1].fill_(7)
    t.transpose(1, 2).unbind()[0][0] = 3
    assert [row.tolist() for row in t] == [[[3, 0, 0, 0], [3, 5, 0, 0]], [[0, 0, 7, 7]]]


def test_the_size_of_a_dimension_in_which_rows_differ_is_no_number():
    t = flambeau.nested.nested_tensor([flambeau.ones(2, 3), flambeau.ones(4, 3)])
    assert t.shape == (t * 2).shape and str(t.shape) == "torch.Size([2, {2, 4}, 3])"
    with pytest.raises(RuntimeError, match="no number"):
        t.shape[1] + 1


def test_modules_train():
    def trained(library):
        library.manual_seed(0)
        net = library.nn.Sequential(
            library.nn.Linear(3, 8), library.nn.ReLU(), library.nn.LayerNorm(8), library.nn.Linear(8, 2)
        )
        optimizer = library.optim.SGD(net.parameters(), lr=0.1)
        x = library.nested.nested_tensor([library.ones(2, 3), library.arange(12.0).reshape(4, 3) / 9])
        for _ in range(3):
            optimizer.zero_grad()
            loss = net(x).to_padded_tensor(0.0).pow(2).sum()
            loss.backward()
            optimizer.step()
        return float(loss.detach())

    assert trained(flambeau) == pytest.approx(trained(torch), rel=1e-4)


def test_copies():
    t = flambeau.nested.nested_tensor([[1.0, 2.0], [3.0]], requires_grad=True)
    for again in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert again.requires_grad and [row.tolist() for row in again.unbind()] == [[1.0, 2.0], [3.0]]


def test_rows_outside_the_buffer_are_refused():
    buffer, sizes, strides = flambeau.arange(5), flambeau.tensor([[2], [3]]), flambeau.tensor([[1], [1]])
    made = from_parts(buffer, sizes, strides, flambeau.tensor([0, 2]))
    assert [row.tolist() for row in made] == [[0, 1], [2, 3, 4]]
    for starts in ([0, 3], [-1, 2], [0]):
        with pytest.raises(RuntimeError, match="nested tensor needs|not inside"):
            from_parts(buffer, sizes, strides, flambeau.tensor(starts))


@pytest.mark.parametrize("layout", ["strided", "jagged"])
def test_compiled_functions_that_make_or_take_them_give_the_same(layout):
    chosen = getattr(flambeau, layout)

    def made_inside(rows):
        return flambeau.nested.as_nested_tensor(rows, layout=chosen).mul(2).to_padded_tensor(0.0)

    def taken(x):
        return (x * 2).to_padded_tensor(0.0)

    inside, outside = flambeau.compile(made_inside), flambeau.compile(taken)
    for k in (1, 2, 3, 1, 2, 3):
        rows = [flambeau.ones(k, 2) * k, flambeau.ones(2, 2)]
        nested = flambeau.nested.nested_tensor(rows, layout=chosen)
        assert inside(rows).tolist() == outside(nested).tolist() == made_inside(rows).tolist()


ATTENTION = """
import warnings
warnings.simplefilter("ignore")
nt = torch.nested.nested_tensor([torch.arange(48.0).reshape(3, 16) / 30, torch.arange(80.0).reshape(5, 16).cos()])
torch.manual_seed(3)
mha = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
late = torch.nn.MultiheadAttention(16, 4).eval()
encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2).eval()
for p in (*mha.parameters(), *late.parameters(), *encoder.parameters()):
    p.requires_grad_(False)
"""


@pytest.mark.parametrize(
    "question",
    [
        "[row.mul(1e4).round() for row in mha(nt, nt, nt, need_weights=False)[0].unbind()]",
        "mha(nt, nt, nt)[1].mul(1e4).round()",
        "mha(nt, nt, nt, average_attn_weights=False)[1].shape",
        "[row.mul(40).round() for row in encoder.layers[0](nt).unbind()]",
        "[row.mul(40).round() for row in encoder(nt).unbind()]",
        "late(nt, nt, nt)",
        "mha(nt, nt, nt, attn_mask=torch.zeros(5, 5))",
    ],
)
def test_attention_of_modules_stays_within_rows(agrees, question):
    agrees(question, ATTENTION)


def test_jagged_rows_go_through_an_encoder_with_gradients():
    layer = flambeau.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    rows = [flambeau.arange(16.0).reshape(2, 8).sin(), flambeau.arange(24.0).reshape(3, 8).cos()]
    nested = flambeau.nested.nested_tensor(rows, layout=flambeau.jagged, requires_grad=True)
    out = layer(nested)
    for mine, row in zip(out.unbind(), rows):
        assert flambeau.allclose(mine, layer(row[None])[0], atol=1e-5)
    out.values().sum().backward()
    assert nested.grad.unbind()[1].shape == (3, 8)
