"""Nested tensors in the jagged layout: construction, operators by their records, gradients, and what is refused."""

from __future__ import annotations

import copy
import pickle

import pytest
from answers import judge

import flambeau

torch = judge("torch")

SETUP = """
F, nested = torch.nn.functional, torch.nested
a, b = torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(4, 3) - 5
t = nested.nested_tensor([a, b], layout=torch.jagged)
i = nested.nested_tensor([torch.tensor([0, 2]), torch.tensor([1])], layout=torch.jagged)
w, v = torch.arange(15.0).reshape(5, 3) / 8, torch.tensor([1.0, -1.0, 2.0])
h = nested.nested_tensor([torch.arange(16.0).reshape(2, 2, 4) / 9, torch.arange(24.0).reshape(3, 2, 4) / 7], layout=torch.jagged).transpose(1, 2)
"""
# What these print is the padded result, or the plain tensor that comes out.
NESTED = """
t; i; F.relu(t); -t; t + t; t * 2; 2 - t; t / 4; t ** 2; t.clamp(0, 3); t + v; t * torch.ones(2, 1, 3); t + torch.ones(2, 4, 3); torch.where(t > 0, t, t * 0)
t.masked_fill(t > 3, 7); (t > 1).to(torch.float32); t.double(); t.clone(); t.detach(); t.contiguous(); torch.zeros_like(t); torch.full_like(t, 2); F.dropout(t, 0.5, False)
F.linear(t, w); F.linear(t, w, torch.ones(5)); t @ w.t(); torch.bmm(t, torch.ones(2, 3, 2)); F.layer_norm(t, (3,)); F.layer_norm(t, (3,), v, v); F.embedding(i, w)
t.softmax(-1); t.softmax(1); F.log_softmax(t, 2); t.sum(2); t.sum(-1, keepdim=True); t.mean(-1); t.amax(2); t.unsqueeze(-1); t.unsqueeze(1); t.unsqueeze(-1).squeeze(-1)
t.transpose(1, 2); t.transpose(1, 2).transpose(1, 2); t.permute(0, 2, 1); t.view(2, -1, 3, 1); t.reshape(2, -1, 1, 3); t.select(-1, 0); t.narrow(-1, 1, 2); t[..., :2]
t.chunk(3, -1)[1]; t.split(1, -1)[2]; torch.cat([t, t], -1); t * t.sum(1, keepdim=True); t * t.sum(-1, keepdim=True); h; F.scaled_dot_product_attention(h, h, h)
t.clone().add_(1); t.clone().relu_(); t.clone().copy_(t * 2); t.clone().fill_(1); t.clone().zero_(); t.isnan(); nested.as_nested_tensor([a, b], layout=torch.jagged)
nested.as_nested_tensor(torch.ones(2, 3, 1), layout=torch.jagged); t.view(-1, -1, 3); t.unsqueeze(-1).flatten(-2, -1); t.unsqueeze(-1).expand(-1, -1, -1, 2); t.chunk(2, 0)[1]
t + nested.nested_tensor_from_jagged(t.values() * 2, t.offsets()); nested.nested_tensor([a.t(), b.t()], layout=torch.jagged); nested.nested_tensor_from_jagged(b.t(), torch.tensor([0, 1, 4]), jagged_dim=2)
F.scaled_dot_product_attention(h.transpose(1, 2), h.transpose(1, 2), h.transpose(1, 2)); t.clone().copy_(nested.nested_tensor([a, b], layout=torch.jagged))
nested.nested_tensor([[1.0, 2], [3]], layout=torch.jagged); nested.nested_tensor([a, b], layout=torch.jagged, dtype=torch.float64)
""".replace("\n", "; ").strip("; ").split("; ")  # fmt: skip
PLAIN = """
t.dim(); t.size(0); t.size(-1); t.numel(); len(t); t.is_nested; a.is_nested; t.layout; t.dtype; t.requires_grad; t.is_leaf; t.is_contiguous()
t.offsets(); t.values(); t.lengths(); t.unbind(); t[0]; t[1, 0]; t.select(0, 1); [r.shape for r in t]; t.to_padded_tensor(-1.0); nested.to_padded_tensor(t, 0.0, (2, 5, 3))
t.sum(); t.mean(); t.sum(1); t.mean(1); t.amax(1); t.amin(1); t.argmax(1); t.prod(1); (t > 3).any(1); (t > 3).all(1); t.max(1).indices; t.min(1).values; t.max(); t.sum(1, keepdim=True)
t.transpose(1, 2).is_contiguous(); t._max_seqlen; t._min_seqlen; t.chunk(3, -1)[0].is_contiguous(); torch.testing.assert_close(t, t)
copy.deepcopy(t).values(); t.is_same_size(t); nested.nested_tensor_from_jagged(b, torch.tensor([0, 1, 4])).unbind()
nested.nested_tensor_from_jagged(b, lengths=torch.tensor([3, 1])).unbind(); nested.masked_select(a, a > 1).unbind(); nested.masked_select(a, torch.tensor([[True], [False]])).offsets(); t.sum((0, 1)); t.sum((0, 1, 2), keepdim=True); t.sum((0, 1), keepdim=True)
t.permute(0, 1); t.permute(0, 1, 1); t.permute(1, 0, 2); t._is_view(); t._base; t.view(2, -1, 3, 1)._base
sorted(t._metadata_cache); sorted(nested.nested_tensor_from_jagged(b, torch.tensor([0, 1, 4]))._metadata_cache); nested.masked_select(a, a > 1).offsets()
""".replace("\n", "; ").strip("; ").split("; ")  # fmt: skip
REFUSED = """
t.sum(0); t.sum((1, 2)); t.numpy(); t.tolist(); t.item(); t.transpose(0, 1); t.unsqueeze(0); t.select(1, 0); t[:, 0]; torch.cat([t, t], 0); torch.cat([t, t], 1); torch.stack([t, t])
t @ t.transpose(1, 2); t + nested.nested_tensor([a, a], layout=torch.jagged); t + torch.ones(2, 7, 3); t.norm(); t.var(-1); t.topk(1, 1); t.sort(1); F.mse_loss(t, t); F.conv1d(t, torch.ones(1, 3, 1))
t.flatten(1, 2); t.squeeze(1); t * t.shape[1]; t.transpose(1, 2).softmax(2); t.softmax(0); F.layer_norm(t, t.shape); nested.nested_tensor([a, a.t()], layout=torch.jagged); t.view(6, 3); torch.ones(6, 3).add_(t); torch.add(t, t, out=torch.ones(6, 3)); F.layer_norm(t, (6, 3)); t[..., torch.ones(6, 3) > 0]; torch.ones(6, 3) + t; F.scaled_dot_product_attention(h, h, h, is_causal=True); torch.allclose(t, t); nested.nested_tensor_from_jagged(b); nested.nested_tensor([], layout=torch.jagged)
""".replace("\n", "; ").strip("; ").split("; ")  # fmt: skip


@pytest.mark.parametrize("expression", NESTED)
def test_results_that_are_nested(agrees, expression):
    agrees(f"({expression}).to_padded_tensor(-9)", SETUP)


@pytest.mark.parametrize("expression", PLAIN)
def test_results_that_are_not(agrees, expression):
    agrees(expression, SETUP)


@pytest.mark.parametrize("expression", REFUSED)
def test_what_pytorch_refuses_is_refused(expression):
    space = {"torch": flambeau}
    exec(SETUP, space)
    with pytest.raises((RuntimeError, TypeError)):
        eval(expression, space)


GRADIENTS = [
    "t * t", "t * v", "F.linear(t, w)", "t.softmax(-1)", "F.layer_norm(t, (3,), v, v)", "t * torch.ones(2, 1, 3)", "t @ w.t()",
    "t.view(2, -1, 3, 1)", "t.clone().mul_(3)", "t.sum()", "t.unsqueeze(-1)",
]  # fmt: skip


@pytest.mark.parametrize("expression", GRADIENTS)
def test_gradients(expression):
    def gradients(library):
        space = {"torch": library}
        exec(SETUP, space)
        leaves = [space[name].requires_grad_() for name in "tvw"]
        result = eval(expression, space)
        plain = result.to_padded_tensor(0.0) if result.is_nested else result
        (plain * library.arange(1.0, 1 + plain.numel()).reshape(plain.shape)).sum().backward()
        found = [leaf.grad for leaf in leaves]
        return [None if g is None else (g.values() if g.is_nested else g).tolist() for g in found]

    for ours, expected in zip(gradients(flambeau), gradients(torch)):
        assert (ours is None) == (expected is None)
        if ours is not None:
            flambeau.testing.assert_close(flambeau.tensor(ours), flambeau.tensor(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("nested", "of_a_row"),
    [
        ("t.softmax(1)", "t.softmax(0)"),  # PyTorch's gradient of this one is wrong, and it has none of the others
        ("t.sum(1)", "t.sum(0)"),
        ("t.mean(1)", "t.mean(0)"),
        ("t.amax(1)", "t.amax(0)"),
        ("t.max(1).values", "t.max(0).values"),
        ("t.cumsum(1)", "t.cumsum(0)"),
        ("t.transpose(1, 2) * 2", "t.transpose(0, 1) * 2"),
        ("t.select(-1, 1)", "t.select(-1, 1)"),
        ("t.sum(-1)", "t.sum(-1)"),
    ],
)
def test_values_and_gradients_are_those_of_each_row(nested, of_a_row):
    space = {"torch": flambeau}
    exec(SETUP, space)
    whole = space["t"].requires_grad_()
    result = eval(nested, space)
    for row, grad, found in zip(("a", "b"), flambeau.autograd.grad(_total(result), whole)[0].unbind(), result.unbind()):
        x = space[row].clone().requires_grad_()
        expected = eval(of_a_row, {"t": x})
        flambeau.testing.assert_close(found, expected)
        flambeau.testing.assert_close(grad, flambeau.autograd.grad(_total(expected), x)[0])


def _total(result):
    return (result * result).sum() + (result * 3).sum()


def test_gradients_reach_the_rows_that_it_was_made_of():
    rows = [flambeau.ones(2, 3, requires_grad=True), flambeau.ones(1, 3, requires_grad=True)]
    t = flambeau.nested.as_nested_tensor(rows, layout=flambeau.jagged)
    (t * t.sum(1, keepdim=True)).sum().backward()
    assert rows[0].grad.tolist() == [[4.0] * 3] * 2 and rows[1].grad.tolist() == [[2.0] * 3]


def test_attention_has_the_gradients_of_each_row():
    space = {"torch": flambeau}
    exec(SETUP, space)
    h = space["h"].detach().requires_grad_()
    flambeau.nn.functional.scaled_dot_product_attention(h, h, h).values().pow(2).sum().backward()
    for row, grad in zip(space["h"].unbind(), h.grad.unbind()):
        x = row.detach().clone().requires_grad_()
        flambeau.nn.functional.scaled_dot_product_attention(x, x, x).pow(2).sum().backward()
        flambeau.testing.assert_close(grad, x.grad)


def test_the_ragged_size_is_a_symbol_that_equals_itself():
    space = {"torch": flambeau}
    exec(SETUP, space)
    t, other = space["t"], space["i"]
    assert t.shape == (t * 2).shape == through_linear(t).shape and t.shape[1] != other.shape[1]
    assert str(t.shape) == f"torch.Size([2, {t.shape[1]}, 3])"
    size = t.shape[1]
    assert isinstance(size, flambeau.SymInt) and 2 * size == size * 2 > size >= 2 and t.stride() == (3 * size, 3, 1)
    normalized = flambeau.nn.functional.layer_norm(t, t.shape[1:])
    expected = [flambeau.nn.functional.layer_norm(row, row.shape) for row in t]
    flambeau.testing.assert_close(normalized.values(), flambeau.cat(expected))
    with pytest.raises(RuntimeError, match="no number"):
        t.shape[1] + 1
    for size in (2, other.shape[1]):
        with pytest.raises(ValueError, match="not known"):
            t.shape[1] > size  # noqa: B015


def through_linear(t):
    return flambeau.nn.functional.linear(t, flambeau.eye(3))


def test_the_printed_form():
    t = flambeau.nested.nested_tensor([[1.0, 2.0], [3.0]], layout=flambeau.jagged, requires_grad=True)
    size = t.shape[1]
    assert repr(t) == f"NestedTensor(size=(2, {size}), offsets=tensor([0, 2, 3]), requires_grad=True, contiguous=True)"
    assert "grad_fn=<MulBackward0 object at" in repr(t * 2)


def test_offsets_that_are_no_rows_are_refused():
    with pytest.raises(RuntimeError, match="rise from 0"):
        flambeau.nested.nested_tensor_from_jagged(flambeau.ones(3), flambeau.tensor([0, 5]))
    with pytest.raises(RuntimeError, match="not inside"):
        flambeau.nested.nested_tensor_from_jagged(flambeau.ones(3), flambeau.tensor([0, 2, 3]), flambeau.tensor([1, 2]))
    with pytest.raises(RuntimeError, match="exceed the size 3"):
        flambeau.nested.narrow(flambeau.ones(2, 3), 1, 1, flambeau.tensor([1, 3]), layout=flambeau.jagged)


GAPS = (
    SETUP
    + """
base = torch.arange(20.0).reshape(2, 5, 2)
g = nested.narrow(base, 1, torch.tensor([0, 1]), torch.tensor([2, 3]), layout=torch.jagged)
"""
)
WITH_GAPS = [
    "g.unbind()", "g.offsets()", "g.lengths()", "g.is_contiguous()", "g.contiguous().unbind()", "g.contiguous().lengths()", "(g * 2).unbind()", "g[1]",
    "(g + g).unbind()", "g.size(0)", "g.dim()",
    "nested.nested_tensor_from_jagged(b, torch.tensor([0, 2, 4]), torch.tensor([1, 2])).unbind()", "nested.narrow(base, 1, 1, 2, layout=torch.jagged).unbind()",
]  # fmt: skip


@pytest.mark.parametrize("expression", WITH_GAPS)
def test_rows_with_gaps_between_them(agrees, expression):
    agrees(expression, GAPS)


def test_rows_with_gaps_are_views_with_gradients():
    base = flambeau.zeros(2, 4, requires_grad=True)
    rows = flambeau.nested.narrow(base, 1, flambeau.tensor([0, 2]), flambeau.tensor([1, 2]), layout=flambeau.jagged)
    (rows * 3).sum().backward()  # and a product and a padded form, which PyTorch refuses
    assert rows.to_padded_tensor(1.0).tolist() == [[0, 1], [0, 0]]
    assert base.grad.tolist() == [[3, 0, 0, 0], [0, 0, 3, 3]]
    rows.detach().unbind()[1].fill_(5)
    assert base.tolist() == [[0, 0, 0, 0], [0, 0, 5, 5]]
    with pytest.raises(RuntimeError, match="gaps"):
        rows.detach().mul_(2)
    again = pickle.loads(pickle.dumps(rows.detach()))
    assert [row.tolist() for row in again] == [[0], [5, 5]]


def test_a_change_in_place_reaches_the_values_that_it_is_a_view_of():
    def gradients(library):
        x = library.arange(1.0, 7.0).reshape(3, 2).requires_grad_()
        values = x * 1
        rows = library.nested.nested_tensor_from_jagged(values, library.tensor([0, 1, 3]))
        rows.transpose(1, 2).mul_(2)
        (values * values).sum().backward()
        return x.grad.tolist(), rows.grad_fn is not None, values.tolist()

    assert gradients(flambeau) == gradients(torch)


def test_a_view_of_nested_values_changes_them_with_their_history():
    rows = [flambeau.ones(2, 3, requires_grad=True), flambeau.ones(1, 3, requires_grad=True)]
    whole = flambeau.nested.as_nested_tensor(rows, layout=flambeau.jagged).mul(1)
    whole.view(2, -1, 3, 1).mul_(4)
    whole.sum().backward()
    assert rows[0].grad.tolist() == [[4.0] * 3] * 2 and whole.values().tolist() == [[4.0] * 3] * 3
    values = flambeau.ones(3, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="view of a leaf"):
        flambeau.nested.nested_tensor_from_jagged(values, flambeau.tensor([0, 1, 3])).mul_(2)


def test_copies():
    t = flambeau.nested.nested_tensor([[1.0, 2.0], [3.0]], layout=flambeau.jagged, requires_grad=True)
    for again in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert (
            again.requires_grad and again.offsets().tolist() == [0, 2, 3] and again.values().tolist() == [1.0, 2.0, 3.0]
        )


def test_parts_have_pytorchs_names_and_vectors_are_no_batches():
    t = flambeau.nested.nested_tensor([flambeau.ones(2, 3), flambeau.zeros(1, 3)], layout=flambeau.jagged)
    assert t._values.shape == (3, 3) and t._offsets.tolist() == [0, 2, 3] and t._ragged_idx == 1
    assert t.transpose(1, 2)._ragged_idx == 2
    for layout in (flambeau.strided, flambeau.jagged):
        for flat in (flambeau.tensor(3.0), flambeau.ones(3)):
            with pytest.raises(RuntimeError, match="Expected tensor argument to have dim"):
                flambeau.nested.as_nested_tensor(flat, layout=layout)


def test_heads_are_split_and_merged_where_rows_differ_in_length():
    rows = [flambeau.arange(8.0).view(2, 4), flambeau.arange(12.0).view(3, 4)]
    nested = flambeau.nested.nested_tensor(rows, layout=flambeau.jagged, requires_grad=True)
    heads = nested.unflatten(-1, (2, 2))
    assert str(heads.shape).endswith(", 2, 2])") and [r.tolist() for r in heads.unbind()] == [
        r.view(-1, 2, 2).tolist() for r in rows
    ]
    merged = heads.transpose(1, 2).transpose(1, 2).flatten(-2)
    (merged * merged).sum().backward()
    assert [g.tolist() for g in nested.grad.unbind()] == [(2 * r).tolist() for r in rows]
