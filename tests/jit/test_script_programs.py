"""Small programs in TorchScript's language, of quantized modules and of traced graphs: PyTorch gives the same results and texts."""

from __future__ import annotations

import pytest
from answers.programs import check, short

SETUP = """
def scripted(text, *given):
    # What functions of the language return; an error's kind where they do not compile or run.
    try:
        f = L.jit.CompilationUnit(text + chr(10)).f
        return f(*given)
    except Exception as problem:
        return type(problem).__name__
x = exact(3, 4)
Q = L.ao.nn.quantized
D = module('ao.nn.quantized.dynamic')
"""
FUNCTIONS = [
    "def f(x):\\n    x = x.clone()\\n    x[0] = 1.5\\n    x[1:, ::2] += 2\\n    x[:, 1] *= x[0, 0]\\n    x[x > 3] = 0\\n    return x",
    "def f(x):\\n    a = 0\\n    for i in range(7):\\n        if i == 5:\\n            break\\n        if i % 2 == 0:\\n            continue\\n        a += i\\n    while a < 20:\\n        a *= 2\\n    return a, [i * i for i in range(4)]",
    "def f(x):\\n    d = {'a': 1, 'b': 2}\\n    d['c'] = 3\\n    l = [3, 1, 2]\\n    l.sort()\\n    l.append(9)\\n    l.insert(1, 7)\\n    m = l.copy()\\n    m.reverse()\\n    return d, l, m, len(d), 'a' in d, 5 in l, l.index(9), l.count(1)",
    "def f(x):\\n    if bool(x.sum() > 0):\\n        y = x\\n    else:\\n        y = -x\\n    return y",
    "def g(x, k: int = 2):\\n    return x * k\\ndef f(x):\\n    return g(x), g(x, 3), g(x, k=4)",
    "def f(x):\\n    return x.nothing()", "def f(x):\\n    return undefined(x)", "def f(x):\\n    if x.dim() > 1:\\n        y = 1\\n    return y", "def f(x):\\n    l = [1, 2]\\n    return l[5]", "def f(x):\\n    return {'a': 1}['b']", "def f(x) -> int:\\n    return x", "def f(x):\\n    return 1 // 0",
]  # fmt: skip
WORDS = (
    "x[[2, 0]]", "x[1:, ::2]", "x[..., -1]", "x[None, 0]", "x[x > 0]", "x[x[:, 0] > 0]", "x[-1]", "x[[True, False, True]]", "x[:, [[True, False]]]", "x[[1.0, 0.0]]", "x[:, [0, 3]]", "x[0, 1:3]", "7 // 2, -7 // 2, -7 % 3, 7 / 2, 2 ** 5", "1 << 3, 9 >> 1, 6 & 3, 6 | 3, 6 ^ 3, ~5", "not True and False or True", "1 < 2 and 3 >= 3", "'aXb'.upper() + 'AB'.lower() * 2", "'aXb'[1], 'aXb'[-2:], 'aXb'.find('b'), 'aXb'.replace('X', '-')", "'a,b,c'.split(','), '-'.join(['p', 'q'])", "'ab'.startswith('a'), 'ab'.endswith('a'), ' x '.strip(), len('abc')",
    "'{} and {}'.format(1, 'z')", "int('3') + 1, float('2.5'), str(3), ord('a')", "'ab'.isalpha(), '3'.zfill(3), 'ab'.center(6, '*')", "int(2.9), float(3), bool(0), abs(-3)", "round(2.6)", "max(1, 2), min([3, 1]), sum([1, 2])", "sorted([3, 1, 2])", "[3, 1, 2][1:], [3, 1, 2][::-1], [1] + [2], [1, 2] * 2", "(1, 2.5, 'a')[1]", "(1, 2)[::-1]", "divmod(-7, 3)", "pow(2, 3)", "2 if x.dim() == 2 else 3", "x.size(), x.shape, x.dim(), x.numel(), len(x)", "x.max(1)", "x.sum(dim=[0], keepdim=True)", "x.transpose(0, 1) @ x", "-x ** 2 + 1 / (x + 3)", "x.to(6), x.float().dtype == 6", "[i for i in range(5)], [i * 2 for i in [1, 2]]", "list(range(2, 9, 3))", "isinstance(x, Tensor)", "1 is None, None is None", "hash('a') == hash('a')", "hex(255), bin(5), oct(8), chr(97)", "x.unbind(0)[1], x.chunk(2, 1)[0]", "bool(x[0, 0] > 0), int(x[0, 0]), float(x[0, 0])", "x + 2 > x * 2", "[x, x * 2][-1]", "{'a': x}['a']", "{1: 2, 3: 4}.keys(), {1: 2}.get(5, 9)", "1.5e3 + 2j.imag if False else 1.0",
)  # fmt: skip
PROGRAMS = [
    *(f"scripted('''{text}''', x)" for text in FUNCTIONS),
    *(f'scripted("""def f(x):\\n    return {word}""", x)' for word in WORDS),
    *(f"m = nn.{k}(4, 3, {o})\nq = D.{k}.from_float((setattr(m, 'qconfig', L.ao.quantization.default_dynamic_qconfig), m)[1])\nq(x, {h}), str(q), list(q.state_dict())" for k, o, h in (("LSTMCell", "bias=True", "(exact(3, 3), exact(3, 3) * 2)"), ("GRUCell", "bias=True", "exact(3, 3)"), ("RNNCell", "bias=True", "exact(3, 3)"), ("RNNCell", "nonlinearity='relu'", "exact(3, 3)"))),
    *(f"m = nn.{k}(4, 3, 2, {o})\nm.qconfig = L.ao.quantization.{c}\nq = D.{k}.from_float(m)\nq(exact(5, 2, 4)), str(q)" for k in ("LSTM", "GRU") for o, c in (("bidirectional=True", "default_dynamic_qconfig"), ("batch_first=True", "default_dynamic_qconfig"), ("bidirectional=True", "float16_dynamic_qconfig"))),
    "m = nn.Linear(4, 3)\nm.qconfig = L.ao.quantization.default_dynamic_qconfig\nq = D.Linear.from_float(m)\nq(x), str(q), q.weight().int_repr(), q.weight().q_scale(), q.bias(), [k for k in q.state_dict()]",
    *(f"m = {make}\nL.manual_seed(0)\nm.qconfig = L.ao.quantization.get_default_qconfig('fbgemm')\nm.activation_post_process = L.ao.quantization.MinMaxObserver()\nm.activation_post_process(exact(3, 4) * 3)\nq = {q}.from_float(m.eval())\nout = q(L.quantize_per_tensor({given}, 0.02, 64, L.quint8))\nout.int_repr(), out.q_scale(), out.q_zero_point(), q.weight().int_repr(), str(q)" for make, q, given in (
        ("nn.Linear(4, 3)", "Q.Linear", "x"), ("nn.Conv1d(2, 4, 3, 2, 1, 1, 2)", "Q.Conv1d", "exact(1, 2, 7)"), ("nn.Conv2d(2, 4, (3, 2), padding=1, dilation=(1, 2))", "Q.Conv2d", "exact(1, 2, 5, 6)"), ("nn.Conv2d(2, 4, 3, padding=1, padding_mode='reflect')", "Q.Conv2d", "exact(1, 2, 5, 6)"), ("nn.Conv3d(1, 2, 2)", "Q.Conv3d", "exact(1, 1, 3, 4, 3)"), ("nn.Embedding(5, 4)", "Q.Linear", "x"))[:5]),
    *(f"o = L.ao.quantization.{o}\nfor k in range(3):\n    o(exact(4, 6) * (k + 1) + 0.3 * k)\no.calculate_qparams(), [[n, b] for n, b in o.state_dict().items() if 'histogram' not in n], str(o)[:200]" for o in (
        "MinMaxObserver()", "MinMaxObserver(L.qint8, L.per_tensor_symmetric)", "MinMaxObserver(quant_min=0, quant_max=15, eps=0.3)", "MovingAverageMinMaxObserver(0.3)", "MovingAverageMinMaxObserver(dtype=L.qint8, qscheme=L.per_tensor_symmetric)", "PerChannelMinMaxObserver(1)", "PerChannelMinMaxObserver(0, L.qint8, L.per_channel_symmetric)", "MovingAveragePerChannelMinMaxObserver(0.2, 1)", "HistogramObserver(bins=64)", "HistogramObserver(bins=32, dtype=L.qint8, qscheme=L.per_tensor_symmetric)", "FixedQParamsObserver(0.1, 3)", "PlaceholderObserver(L.float16)", "NoopObserver()")[:11]),
    *(f"f = L.ao.quantization.{o}\nout = [f(exact(4, 6) * (k + 1)) for k in range(2)]\nf.disable_observer() or f.disable_fake_quant()\nout, f(exact(4, 6) * 9), f.scale, f.zero_point, f.calculate_qparams(), f.enable_fake_quant(), f(exact(4, 6) * 9)" for o in ("FakeQuantize()", "FakeQuantize(L.ao.quantization.MinMaxObserver, 0, 15)", "default_fake_quant()", "default_weight_fake_quant()", "default_per_channel_weight_fake_quant()", "default_fused_act_fake_quant()", "default_fixed_qparams_range_0to1_fake_quant()")),
    # graphs that fx writes
    *(f"g = L.fx.symbolic_trace({f})\ng.code, [[n.op, n.name, str(n.target)[:30]] for n in g.graph.nodes if n.op != 'call_function'], g(exact(2, 3))" for f in (
        "lambda x: (x + 1).relu() * 2 - x[0]", "lambda x: {'a': x.sum(1, keepdim=True), 'b': [x, (x.t(), 3)]}", "lambda x: L.cat([x, x * 2], dim=-1)[:, 1::2]", "lambda x, k=3, *, flag=True: x * k", "lambda x: -x ** 2 // 3 % 5", "lambda x: x.shape[0] + x.size(1) * x", "nn.Sequential(nn.Linear(3, 2), nn.ReLU())", "lambda x: getattr(x, 'T').contiguous()", "lambda x: 1 - x / 2 @ x.t().float()", "lambda x: L.add(x, x, alpha=2)")),
    "g = L.fx.symbolic_trace(lambda x: (x * 2).relu() + x.abs())\nP = module('fx.passes.shape_prop')\nP.ShapeProp(g).propagate(exact(2, 3))\nn = list(g.graph.nodes)\n[list(k.meta['tensor_meta'].shape) for k in n], [len(k.users) for k in n], [[str(a) for a in k.all_input_nodes] for k in n], [raised(lambda: g.graph.erase_node(n[1])), raised(lambda: n[0].replace_all_uses_with(3))], g.graph.eliminate_dead_code(), raised(lambda: L.fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x))",
    "g = L.fx.symbolic_trace(lambda x: (x + 1).relu() + (x * 3).relu())\nm = L.fx.replace_pattern(g, lambda a: a.relu(), lambda a: a.sigmoid() * 2)\nlen(m), g.code, g(exact(2, 3)), str(g.graph).splitlines()[1:4]",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)
