"""Small programs with layers in which one word of the library decides: PyTorch computes the same."""

from __future__ import annotations

import pytest
from answers.programs import check, short

PROGRAMS = [
    # masks of attention
    "B = module('nn.attention.bias')\n[[F.scaled_dot_product_attention(exact(1, 1, 3, 4), exact(1, 1, 5, 4) * 3, exact(1, 1, 5, 4), attn_mask=m(3, 5))] for m in (B.causal_upper_left, B.causal_lower_right)]",
    "B = module('nn.attention.bias')\n[int(v) for v in B.CausalVariant], raised(lambda: B.causal_upper_left(3)), raised(lambda: B.CausalBias(1, 2, 3))",
    "import itertools\n[F.scaled_dot_product_attention(exact(2, 3, 4), exact(2, 5, 4), exact(2, 5, 6), scale=s) for s in (None, 0.3)], F.scaled_dot_product_attention(exact(1, 4, 3, 2), exact(1, 2, 3, 2) * 2, exact(1, 2, 3, 2), enable_gqa=True)",
    "m = nn.MultiheadAttention(4, 2, batch_first=True)\n[m.merge_masks(a, k, exact(2, 3, 4)) for a in (None, exact(3, 3), exact(4, 3, 3)) for k in (None, exact(2, 3))]",
    """nn.init.zeros_(L.ones(1))
e = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 5, 0.0, batch_first=True, dtype=L.float64), 2, enable_nested_tensor=False)
causal = nn.Transformer.generate_square_subsequent_mask(3, dtype=L.float64)
x, rows = exact(2, 3, 4, dtype=L.float64), L.tensor([[False, False, True], [False, True, True]])
padding = L.zeros(2, 3, dtype=L.float64).masked_fill(rows, float('-inf'))
causal, [e(x, m, p)[:, :1] for m in (None, causal, causal == float('-inf')) for p in (None, rows, padding)], e.eval()(x, causal, is_causal=True), e(x[0], causal), e(x, exact(3, 3, dtype=L.float64))""",
    """d = nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 5, 0.0, 'gelu', 1e-3, True, True, dtype=L.float64), 1, nn.LayerNorm(4, dtype=L.float64))
x, memory = exact(2, 3, 4, dtype=L.float64), exact(2, 5, 4, dtype=L.float64)
causal, rows = nn.Transformer.generate_square_subsequent_mask(3, dtype=L.float64), L.tensor([[False, True, True]] * 2)
d(x, memory, causal, tgt_is_causal=True), d(x, memory, causal), d(x, memory, exact(3, 3, dtype=L.float64), exact(3, 5, dtype=L.float64), rows), d(x[0], memory[0]), raised(lambda: nn.TransformerDecoderLayer(4, 2, activation='tanh'))""",
    "from_blocks = module('nn.attention.flex_attention').BlockMask.from_kv_blocks\nm = from_blocks(L.tensor([[[1, 2]]], dtype=L.int32), L.tensor([[[[0, 1], [0, 1]]]], dtype=L.int32), BLOCK_SIZE=(4, 8))\nm.shape, m.sparsity(), m.to_dense(), m.numel(), m.seq_lengths, m.BLOCK_SIZE, m.q_num_blocks, m.q_indices, [t for t in m.as_tuple()[2:6]], m.to('cpu').q_indices",
    "X = module('nn.attention.flex_attention')\nq, k, v = exact(2, 4, 6, 8), exact(2, 2, 6, 8) * 2, exact(2, 2, 6, 8)\nX.flex_attention(q, k, v, enable_gqa=True), X.flex_attention(q[:, :2], k, v, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.1 * (h + 1), scale=0.2, return_lse=True)",
    "X = module('nn.attention.flex_attention')\nm = X.create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < 40), 1, 2, 96, 160, device='cpu', BLOCK_SIZE=32)\nm.to_dense(), m.sparsity(), m.kv_num_blocks, m.full_kv_num_blocks, X.create_mask(lambda b, h, i, j: i > j + h, 1, 2, 3, 4, device='cpu'), X.flex_attention(exact(1, 2, 96, 4), exact(1, 2, 160, 4), exact(1, 2, 160, 4), block_mask=m)[0, :, ::17]",
    "X = module('nn.attention.flex_attention')\nA, O = X.and_masks, X.or_masks\nf, g = (lambda b, h, i, j: i >= j), (lambda b, h, i, j: i - j < 2)\n[X.create_mask(w(f, g), 1, 1, 4, 4, device='cpu') for w in (A, O)]",
    "[[n, int(b)] for n, b in nn.attention.SDPBackend.__members__.items()]",
    # recurrent networks
    "[str(m) for m in (nn.RNN(3, 4), nn.RNN(3, 4, 2, 'relu', False, True, 0.5, True), nn.LSTM(3, 4, proj_size=2), nn.LSTM(3, 4, bias=False), nn.GRU(3, 4, bidirectional=True), nn.RNNCell(2, 3), nn.RNNCell(2, 3, False, 'relu'), nn.GRUCell(2, 3, bias=False), nn.LSTMCell(2, 3))]",
    *(f"m = nn.{k}(3, 4, 2, {o}).double()\nP = nn.utils.rnn\nx = P.pack_sequence([exact(n, 3, dtype=L.float64) for n in (2, 5, 3)], enforce_sorted=False)\nout, h = m(x)\nP.unpack_sequence(out), h, m(exact(5, 3, dtype=L.float64))"
      for k in ("RNN", "LSTM", "GRU") for o in ("bidirectional=True", "bias=False")),
    "m = nn.LSTM(3, 4, proj_size=2).double()\nP = nn.utils.rnn\nx = P.pack_padded_sequence(exact(4, 3, 3, dtype=L.float64), [4, 2, 1])\nh = (exact(1, 3, 2, dtype=L.float64), exact(1, 3, 4, dtype=L.float64))\nout, s = m(x, h)\nout.data, s, m(exact(4, 3, 3, dtype=L.float64))[1], m.permute_hidden(h, L.tensor([2, 0, 1]))",
    "P = nn.utils.rnn\nx = [exact(n, 2) for n in (2, 4, 1)]\n[P.pad_sequence(x, b, v, s) for b in (False, True) for v in (0.0, -1.5) for s in ('right', 'left')], P.unpad_sequence(P.pad_sequence(x), L.tensor([2, 4, 1])), list(P.pack_sequence(x, enforce_sorted=False)), raised(lambda: P.pack_sequence(x))",
    "P = nn.utils.rnn\nx = P.pack_padded_sequence(exact(3, 4, 2), L.tensor([1, 4, 3]), batch_first=True, enforce_sorted=False)\n[P.pad_packed_sequence(x, b, v, n) for b in (False, True) for v in (0.0, 2.0) for n in (None, 6)], [raised(lambda: P.pad_packed_sequence(x, total_length=n)) for n in (3, 0, -1)], x.is_cuda, x.double().data.dtype, list(x.to('cpu').unsorted_indices)",
    *(f"raised(lambda: {c})" for c in ("nn.GRU(2, 3, proj_size=1)", "nn.RNN(2, 3, proj_size=1)", "nn.LSTM(2, 3, proj_size=3)", "nn.LSTM(2, 3, dropout=1.1)", "nn.LSTM(2, 0)", "nn.LSTM(2, 3, 0)", "nn.RNN(2, 3, nonlinearity='abs')", "nn.LSTMCell(2, 3)(exact(1, 1, 2))", "nn.RNNCell(2, 3)(exact(2), exact(1, 1, 3))", "nn.RNNCell(2, 3)(exact(2, 3))", "nn.GRU(2, 3)(exact(2, 2, 3))", "nn.LSTM(2, 3)(exact(2, 2, 2), (exact(1, 2, 3), exact(1, 2, 2)))")),
    # containers
    "s = nn.Sequential(nn.ReLU(), nn.Tanh())\ns *= 3\nstr(s), str(s * 2), [k for k in dir(s) if k.isdigit()], [n for n in s._modules]",
    "p = nn.ParameterDict({'a': L.ones(2)})\np.setdefault('b', L.zeros(1)), 'a' in p, 'c' in p, p.get('a'), p.get('c', 3), p.setdefault('a', 4), list(p), list(reversed(p)), str(p), p.popitem()[0], [k for k in dir(p) if k == 'b']",
    "p = nn.ParameterList([L.ones(2), L.zeros(1, 3)])\np += [L.ones(1)]\nstr(p), len(p), [k for k in dir(p) if k.isdigit()], p[-1], p[:2][1].shape",
    "m = nn.ModuleList([nn.Linear(2, 3) for _ in range(3)] + [nn.ReLU()] * 2 + [nn.Linear(2, 2)])\nstr(m), [k for k in dir(m) if k.isdigit()]",
    "m = nn.ModuleDict({'a': nn.ReLU()})\nm.update([('b', nn.Tanh())])\nstr(m), raised(lambda: m.update([('b',)])), raised(lambda: m.update(3))",
    # parametrizations, pruning
    """class Double(nn.Module):
    def forward(self, x):
        return 2 * x
    def right_inverse(self, x):
        return x / 2
P = nn.utils.parametrize
a, b = nn.Linear(2, 3), nn.Linear(2, 3)
P.register_parametrization(a, 'weight', Double())
P.transfer_parametrizations_and_params(a, b)
before = P.type_before_parametrizations(b).__name__, P.type_before_parametrizations(nn.ReLU()).__name__, P.is_parametrized(b), P.is_parametrized(b, 'bias'), P.is_parametrized(a, 'weight')
c = nn.Linear(2, 3)
P.transfer_parametrizations_and_params(nn.Linear(2, 3), c)
with P.cached():
    same = b.weight is b.weight
(*before, same, b.weight is b.weight, (a.weight == b.weight).all(), b.parametrizations.weight.original, P.is_parametrized(c), str(b),
 P.remove_parametrizations(b, 'weight').weight, raised(lambda: P.remove_parametrizations(b, 'weight')), raised(lambda: P.register_parametrization(a, 'nothing', Double())))""",
    """class Two(nn.Module):
    def forward(self, x, y):
        return x + y
    def right_inverse(self, z):
        return z * 0.25, z * 0.75
P = nn.utils.parametrize
a, b = nn.Linear(2, 3), nn.Linear(2, 3)
P.register_parametrization(a, 'weight', Two())
P.transfer_parametrizations_and_params(a, b, 'weight')
a.weight = L.ones(3, 2)
a.weight, a.parametrizations.weight.original0, a.parametrizations.weight.original1, b.weight, b.parametrizations.weight.ntensors, [n for n, _ in b.named_parameters()]""",
    *(f"m = nn.Linear(4, 3)\nnn.init.uniform_(m.weight, -1, 1)\nP = module('nn.utils.prune')\nP.{c}\nm.weight, m.weight_mask, P.is_pruned(m), [n for n, _ in m.named_parameters()], P.remove(m, 'weight').weight"
      for c in ("l1_unstructured(m, 'weight', 0.4)", "l1_unstructured(m, 'weight', 5)", "random_unstructured(m, 'weight', 0.5)", "ln_structured(m, 'weight', 0.5, 2, 1)",
                "ln_structured(m, 'weight', 1, float('inf'), 0)", "ln_structured(m, 'weight', 2, 1, -1)", "random_structured(m, 'weight', 2, 0)", "custom_from_mask(m, 'weight', exact(3, 4) > 0)",
                "identity(m, 'weight')", "global_unstructured([(m, 'weight')], P.L1Unstructured, amount=0.3)", "l1_unstructured(m, 'weight', 0.5, importance_scores=exact(3, 4))")),
    "P = module('nn.utils.prune')\nt = exact(3, 4)\nP.L1Unstructured(0.5).prune(t), P.L1Unstructured(3).prune(t, importance_scores=-t * t + 1), P.LnStructured(1, 2, 0).prune(t), P.L1Unstructured(2).prune(t, default_mask=t > 0), raised(lambda: P.L1Unstructured(13).prune(t)), raised(lambda: P.L1Unstructured(-1)), raised(lambda: P.L1Unstructured(1.5)), raised(lambda: P.L1Unstructured(2).prune(t, importance_scores=t[0])), P.L1Unstructured(12).prune(t)",
    "P = module('nn.utils.prune')\nm = nn.Linear(4, 3)\nP.l1_unstructured(m, 'weight', 0.25), P.l1_unstructured(m, 'weight', 3), P.ln_structured(m, 'weight', 1, 2, 1)\nm.weight_mask, len(m._forward_pre_hooks), [type(h).__name__ for h in list(m._forward_pre_hooks.values())[0]]",
    "m = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))\nnn.utils.vector_to_parameters(exact(14), m.parameters()), nn.utils.parameters_to_vector(m.parameters()), m[1].bias, m[0].weight",
    *(f"ps = [exact(2, 3).requires_grad_(), exact(4).requires_grad_(), exact(1).requires_grad_()]\nfor p in ps[:2]: p.grad = exact(*p.shape) * 5\nn = nn.utils.{c}\nn, ps[0].grad, ps[1].grad, ps[2].grad" for c in (
        "clip_grad_norm_(ps, 2.0)", "clip_grad_norm_(ps, 100.0)", "clip_grad_norm_(ps, 1.5, 1)", "clip_grad_norm_(ps, 1.5, float('inf'))", "clip_grad_norm_(ps[0], 0.5, 0.5)", "clip_grad_value_(ps, 1.25)",
        "get_total_norm([p.grad for p in ps[:2]])", "get_total_norm([p.grad for p in ps[:2]], 3.0)", "clip_grads_with_norm_(ps, 3.0, L.tensor(7.0))", "clip_grad_norm_([], 1.0)")),
    "ps = [exact(3).requires_grad_()]\nps[0].grad = exact(3) / 0\n[raised(lambda: nn.utils.clip_grad_norm_(ps, 1.0, error_if_nonfinite=e)) for e in (False, True)], raised(lambda: nn.utils.get_total_norm([ps[0].grad], error_if_nonfinite=True))",
    "conv, bn = nn.Conv2d(3, 4, 2).double().eval(), nn.BatchNorm2d(4, eps=0.1).double().eval()\nbn.running_mean.copy_(exact(4)), bn.running_var.copy_(exact(4) ** 2 + 0.5)\nL.nn.init.uniform_(bn.weight), L.nn.init.uniform_(bn.bias)\nf = nn.utils.fuse_conv_bn_eval(conv, bn)\nf.weight, f.bias, nn.utils.fuse_linear_bn_eval(nn.Linear(3, 4).double().eval(), nn.BatchNorm1d(4, eps=0.2).double().eval()).weight",
    "m = nn.utils.weight_norm(nn.Linear(3, 2), dim=None)\nn = nn.utils.weight_norm(nn.Conv1d(2, 3, 2), 'weight', 1)\n[[k, v] for k, v in [*m.state_dict().items(), *n.state_dict().items()]], raised(lambda: nn.utils.weight_norm(m)), nn.utils.remove_weight_norm(m).weight, raised(lambda: nn.utils.remove_weight_norm(nn.ReLU()))",
    "m = nn.utils.spectral_norm(nn.Linear(3, 4), n_power_iterations=2, eps=1e-3)\nx = [m(exact(2, 3)) for _ in range(2)]\nx, m.weight_u, m.weight_v, m.eval()(exact(2, 3)), raised(lambda: nn.utils.spectral_norm(m)), raised(lambda: nn.utils.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)), nn.utils.remove_spectral_norm(m).weight",
    # initial values
    *(f"w = L.zeros(6, 4, 3)\nnn.init.{c}\nw, L.rand(1)" for c in (
        "uniform_(w)", "uniform_(w, -2, 0.5)", "normal_(w)", "normal_(w, 1, 0.1)", "trunc_normal_(w)", "trunc_normal_(w, 0.5, 2.0, -0.25, 1.0)", "constant_(w, 0.3)", "ones_(w)", "zeros_(w)", "xavier_uniform_(w)", "xavier_uniform_(w, 3.0)", "xavier_normal_(w)",
        "xavier_normal_(w, 0.5)", "kaiming_uniform_(w)", "kaiming_uniform_(w, 1.5, 'fan_out')", "kaiming_uniform_(w, nonlinearity='relu')", "kaiming_normal_(w)", "kaiming_normal_(w, 0.3, 'fan_out', 'tanh')", "kaiming_normal_(w, mode='fan_out', nonlinearity='selu')",
        "dirac_(w)", "dirac_(w, 2)", "orthogonal_(w, 0.7)", "sparse_(w[:, :, 0], 0.4)", "sparse_(w[:, :, 1].zero_(), 0.1, 2.0)", "eye_(w[:, :, 0])")),
    "[nn.init.calculate_gain(n) for n in ('linear', 'conv1d', 'conv2d', 'conv3d', 'conv_transpose1d', 'conv_transpose2d', 'conv_transpose3d', 'sigmoid', 'tanh', 'relu', 'leaky_relu', 'selu')], nn.init.calculate_gain('leaky_relu', 0.2), nn.init.calculate_gain('leaky_relu', 2), [raised(lambda: nn.init.calculate_gain(n, p)) for n, p in (('gelu', None), ('leaky_relu', True), ('leaky_relu', 'x'))]",
    *(f"raised(lambda: nn.init.{c})" for c in ("xavier_uniform_(L.ones(3))", "eye_(L.ones(3))", "dirac_(L.ones(2, 2))", "dirac_(L.ones(3, 2, 2), 2)", "orthogonal_(L.ones(3))", "sparse_(L.ones(3), 0.1)", "kaiming_uniform_(L.ones(2, 2), mode='fan')")),
    # state
    """m = nn.Linear(1, 2)
m.register_parameter('s', nn.Parameter(L.tensor(2.0)))
m.register_buffer('b', L.ones(2), persistent=False)
kept = m.state_dict(None, 'in.', True)
m.load_state_dict({'weight': L.ones(2, 1), 'bias': L.zeros(2), 's': L.tensor([5.0])})
list(kept), kept['in.weight'].requires_grad, m.s, raised(lambda: m.load_state_dict({'weight': L.ones(2, 2)}, strict=False)), m.load_state_dict({'s': L.tensor(1.0), 'x': 1}, strict=False)""",
    "P = nn.modules.utils\nP._list_with_default([None, 3], [1, 2, 4, 5]), P._list_with_default([None, None], [1, 2, 4]), P._list_with_default(4, [1]), raised(lambda: P._list_with_default([1, 2], [1, 2])), P._reverse_repeat_tuple((1, 2), 2), [P._pair(3), P._single((1,)), P._triple(2), P._quadruple([1, 2, 3, 4])]",
    "R = nn._reduction\n[R.get_enum(r) for r in ('none', 'mean', 'sum')], [R.legacy_get_string(a, b) for a in (None, True, False) for b in (None, True, False)], [R.legacy_get_enum(a, b) for a in (None, True, False) for b in (None, True, False)], raised(lambda: R.get_enum('x')), R.get_enum('elementwise_mean')",
    "from types import SimpleNamespace\n[sorted(nn.factory_kwargs(d).items()) for d in (None, {}, {'device': 'cpu', 'dtype': None}, {'factory_kwargs': {'dtype': 1}, 'device': 2})], [raised(lambda: nn.factory_kwargs(d)) for d in ({'x': 1}, {'device': 1, 'factory_kwargs': {'device': 2}})]",
    "A = nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3, 7], div_value=2.0, head_bias=True).double()\nx = exact(5, 6, dtype=L.float64)\nA(x, L.tensor([0, 11, 4, 2, 7])), A.log_prob(x), A.predict(x * 3), A(x[0], L.tensor(8)), [tuple(p.shape) for p in A.parameters()]",
    "A = nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2])\nx = exact(6, 4) * 9\nA.predict(x), A.log_prob(x).argmax(1), raised(lambda: A(x, L.tensor([6] * 6))), raised(lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 6, [])), raised(lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 6, [6])), raised(lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 6, [3, 2]))",
    # hooks
    """seen = []
M = nn.modules.module
handles = [M.register_module_forward_pre_hook(lambda m, a: seen.append(('pre', type(m).__name__))),
           M.register_module_forward_hook(lambda m, a, o: seen.append(('after', type(m).__name__)), always_call=True),
           M.register_module_forward_hook(lambda m, a, k, o: seen.append(('named', sorted(k))), with_kwargs=True),
           M.register_module_full_backward_pre_hook(lambda m, g: seen.append(('back pre', type(m).__name__))),
           M.register_module_full_backward_hook(lambda m, i, o: seen.append(('back', type(m).__name__, i[0] is None)))]
class Fails(nn.Module):
    def forward(self, x, twice=False):
        if twice:
            return x * 2
        raise ValueError
nn.Sequential(nn.Linear(2, 2), nn.ReLU())(exact(1, 2).requires_grad_()).sum().backward()
failed = raised(lambda: Fails()(exact(1)))
Fails()(exact(1), twice=True)
mixed = raised(lambda: M.register_module_backward_hook(lambda *a: None))
for h in handles: h.remove()
nn.ReLU()(exact(2))
seen, failed, mixed""",
    "m = nn.Linear(2, 2)\nseen = []\nm.register_full_backward_hook(lambda m, i, o: (i[0] * 3,))\nm.register_full_backward_pre_hook(lambda m, o: (o[0] * 2,))\nx = exact(1, 2).requires_grad_()\nm(x).sum().backward()\nx.grad, m.weight.grad, raised(lambda: m.register_backward_hook(lambda *a: None))",
    "m = nn.Linear(2, 2)\nm.register_backward_hook(lambda m, i, o: tuple(None if g is None else g * 2 for g in i))\nx = exact(3, 2).requires_grad_()\nm(x).pow(2).sum().backward()\nx.grad, m.weight.grad, m.bias.grad",
    """m = nn.Module()
m.a = nn.Linear(1, 1)
found = [raised(lambda: f(*a)) for f, a in ((m.register_parameter, ('a', None)), (m.register_parameter, ('x.y', None)), (m.register_parameter, ('', None)), (m.register_parameter, (3, None)), (m.register_parameter, ('forward', None)),
  (m.register_parameter, ('q', 3)), (m.register_buffer, ('a', None)), (m.register_buffer, ('b.c', None)), (m.register_buffer, ('', None)), (m.register_buffer, ('b', 3)), (m.add_module, ('forward', None)), (m.add_module, ('x.y', None)), (m.add_module, ('', None)), (m.add_module, ('z', 3)),
  (m.get_submodule, ('a.b',)), (m.get_parameter, ('a.nothing',)), (m.get_buffer, ('a.weight',)), (m.set_submodule, ('', nn.ReLU())), (m.get_extra_state, ()), (m.__setattr__, ('a', 3)), (m.register_parameter, ('r', L.ones(1, requires_grad=True) * 2)))]
m.set_submodule('a', nn.ReLU())
m.set_submodule('n', nn.Tanh())
found, str(m), m.get_submodule('').training""",
    "DP = nn.parallel\nm = nn.DataParallel(nn.Linear(2, 1))\nstr(m), m.state_dict().keys().__len__(), list(m.state_dict())",
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=short)
def test_program(program: str) -> None:
    check(program)
