"""Small programs with func, autograd and amp in which one word of the library decides: PyTorch computes the same."""

from __future__ import annotations

import pytest
from answers.programs import check, short

SETUP = """
from functools import partial
U = L.func
x = exact(3, 4, dtype=L.float64)
e = lambda *s: exact(*s, dtype=L.float64)

def mapped(f, *shapes, dims=None, out=0):
    # vmap over each place of each argument, and over the first two one inside the other.
    found = []
    for d in dims or ([0] * len(shapes), [1] * len(shapes), [-1] * len(shapes), [0] + [None] * (len(shapes) - 1)):
        try:
            found.append(U.vmap(f, in_dims=tuple(d), out_dims=out)(*[e(*s) for s in shapes]))
        except Exception as problem:
            found.append(type(problem).__name__)
    return found
"""
LAYERS = {
    "F.layer_norm(t, t.shape[-1:], w, w, 0.2)": "(3, 3, 3), (3, 3)", "F.layer_norm(t, t.shape[-1:])": "(3, 3, 3),", "F.group_norm(t, 2, w, w, 0.3)": "(4, 4, 4, 4), (4, 4)", "F.batch_norm(t, None, None, w, w, True, 0.1, 0.2)": "(3, 3, 3), (3, 3)", "F.instance_norm(t, None, None, w, w, eps=0.2)": "(3, 3, 3, 3), (3, 3)", "F.rms_norm(t, t.shape[-1:], w, 0.3)": "(3, 3, 3), (3, 3)", "F.linear(t, w, w[0])": "(3, 3, 3), (3, 3, 3)",
    "F.conv1d(t, w, None, 2, 1)": "(3, 3, 3, 3), (3, 3, 3, 3)", "F.conv2d(t, w, w[:, 0, 0, 0], 1, 1, 1, 3)": "(3, 3, 3, 3, 3), (3, 3, 1, 2, 3)", "F.conv_transpose1d(t, w, None, 2, 1, 1)": "(3, 3, 3, 3), (3, 3, 3, 3)", "F.max_pool2d(t, 2, 1)": "(3, 3, 3, 3),", "F.avg_pool2d(t, 2, 1, 1, False, False)": "(3, 3, 3, 3),", "F.adaptive_avg_pool2d(t, 2)": "(3, 3, 3, 3),", "F.interpolate(t[None], 5, mode='linear')": "(3, 3, 3),", "F.pad(t, (1, 2), 'reflect')": "(3, 3, 3),", "F.embedding(L.tensor([2, 0]), t)": "(3, 3, 3),", "F.one_hot(t.abs().mul(2).long(), 5)": "(3, 3),", "F.unfold(t, 2)": "(3, 3, 3, 3),", "F.pixel_shuffle(t, 2)": "(4, 4, 4, 4),",
    "F.scaled_dot_product_attention(t, w, w, scale=0.4)": "(3, 3, 3), (3, 3, 3)", "F.cross_entropy(t, t.abs().mul(2).long()[0] % 3, label_smoothing=0.1)": "(3, 3, 3),", "F.huber_loss(t, w, delta=0.3)": "(3, 3, 3), (3, 3, 3)", "F.mse_loss(t, w, reduction='none')": "(3, 3, 3), (3, 3, 3)", "F.kl_div(t, w.softmax(0), reduction='batchmean')": "(3, 3, 3), (3, 3, 3)", "F.cosine_similarity(t, w, 0)": "(3, 3, 3), (3, 3, 3)", "F.binary_cross_entropy_with_logits(t, w.sigmoid(), pos_weight=w.abs())": "(3, 3), (3, 3)", "F.normalize(t, 3.0, 0)": "(3, 3, 3),", "F.glu(t, 0)": "(4, 4, 4),", "F.prelu(t, w)": "(3, 3, 3), (3, 3)", "F.gelu(t, approximate='tanh')": "(3, 3),",
    "t.gather(0, w.abs().mul(2).long())": "(3, 3, 3), (3, 3, 3)", "t.scatter(0, w.abs().mul(2).long() % 3, w)": "(3, 3, 3), (3, 3, 3)", "t.index_select(0, L.tensor([2, 0]))": "(3, 3, 3),", "t.index_add(0, L.tensor([2, 0]), w[:2], alpha=0.5)": "(3, 3, 3), (3, 3, 3)", "t.sort(0, True)": "(3, 3, 3),", "t.topk(2, 0)": "(3, 3, 3),", "t.cumsum(0)": "(3, 3, 3),", "t.std(0)": "(3, 3, 3),", "t.var((0, 1), correction=0)": "(3, 3, 3),", "t.logsumexp(0)": "(3, 3, 3),", "t.softmax(0)": "(3, 3, 3),", "t.flip(0)": "(3, 3, 3),", "t.roll(1, 0)": "(3, 3, 3),", "t.tril(1)": "(3, 3, 3),", "t.diagonal()": "(3, 3, 3),", "t.unfold(0, 2, 1)": "(3, 3, 3),", "t @ w": "(3, 3, 3), (3, 3, 3)", "t @ w[0]": "(3, 3, 3), (3, 3, 3)", "t.dot(w)": "(3, 3), (3, 3)", "L.einsum('ij,jk->ki', t, w)": "(3, 3, 3), (3, 3, 3)",
    "L.linalg.solve(t + 3 * L.eye(3, dtype=t.dtype), w)": "(3, 3, 3), (3, 3, 3)", "L.linalg.solve(t + 3 * L.eye(3, dtype=t.dtype), w[0, 0])": "(3, 3, 3), (3, 3, 3)", "L.linalg.solve(t + 3 * L.eye(3, dtype=t.dtype), w, left=False)": "(3, 3, 3), (2, 2, 3, 3)", "L.linalg.solve_ex(t + 3 * L.eye(3, dtype=t.dtype), w)[0]": "(2, 3, 3), (2, 2, 3, 3)", "L.linalg.solve_triangular(t + 3 * L.eye(3, dtype=t.dtype), w, upper=True)": "(2, 3, 3), (2, 2, 3, 3)", "t @ w ": "(2, 3, 3), (2, 2, 3, 3)", "w @ t ": "(2, 3, 3), (2, 2, 3, 3)", "L.linalg.inv(t + 3 * L.eye(3, dtype=t.dtype))": "(3, 3, 3),", "L.cdist(t, w)": "(3, 3, 3), (3, 3, 3)", "L.where(t > 0, t, w)": "(3, 3, 3), (3, 3, 3)", "L.cat([t, w], 1)": "(3, 3, 3), (3, 3, 3)", "L.stack([t, w], 1)": "(3, 3, 3), (3, 3, 3)", "t.split(2)[1]": "(3, 3, 3),", "t.reshape(-1)": "(3, 3, 3),", "t.unsqueeze(1).expand(-1, 2, -1)": "(3, 3, 3),", "t.repeat(2, 1)": "(3, 3, 3),", "t.movedim(0, 1)": "(3, 3, 3),", "t.norm(3, 0)": "(3, 3, 3),", "t.argmax(0)": "(3, 3, 3),", "t.max(0)[0]": "(3, 3, 3),", "t.clamp(-0.2, 0.3)": "(3, 3),", "t.masked_fill(t > 0, 0.3)": "(3, 3, 3),", "L.lerp(t, w, 0.3)": "(3, 3), (3, 3)", "t.new_zeros(2).add(t[0, 0])": "(3, 3, 3),", "L.searchsorted(t.sort(-1)[0], w)": "(3, 3, 3), (3, 3, 3)", "t[w.abs().mul(2).long()[0]]": "(3, 3, 3), (3, 3, 3)", "t.index_put((L.tensor([0, 2]),), w[:2], accumulate=True)": "(3, 3, 3), (3, 3, 3)",
}  # fmt: skip
PROGRAMS = [
    *(f"mapped(lambda t{', w' if shapes.count('(') > 1 else ''}: {call}, {shapes.rstrip(',')})" for call, shapes in LAYERS.items()),
    *(f"mapped(lambda t: U.grad(lambda t: ({call}).pow(2).sum())(t), {shapes})" for call, shapes in (("F.layer_norm(t, t.shape[-1:], None, None, 0.2)", "(3, 3, 3)"), ("F.group_norm(t[None], 1)", "(3, 3, 3)"), ("F.conv1d(t, t[:2] * 2, None, 1, 1)", "(3, 3, 3, 3)"), ("F.max_pool2d(t, 2)", "(4, 4, 4, 4)"), ("F.batch_norm(t, None, None, None, None, True)", "(3, 3, 3)"), ("F.embedding(L.tensor([0, 2, 0]), t)", "(3, 3, 3)"), ("t.softmax(0)", "(3, 3)"), ("t.logsumexp(0)", "(3, 3, 3)"), ("t.prod(0)", "(3, 3, 3)"), ("t.std(0)", "(3, 3, 3)"), ("t.sort(0)[0] * t", "(3, 3)"), ("t[[0, 0, 2]]", "(3, 3)"), ("L.linalg.inv(t + 3 * L.eye(3, dtype=t.dtype))", "(3, 3, 3)"), ("t.gather(0, L.tensor([[0, 0, 1]]))", "(3, 3, 3)"))),
    # derivatives of derivatives
    "f = lambda a, b: (a.sin() * b).sum(1).exp()\ny = e(3, 4) + 1\nU.jacrev(f)(x, y), U.jacfwd(f, (0, 1))(x, y), U.hessian(lambda a: (a ** 3).sum() * a[0, 0])(x[:2, :2]), U.jacrev(f, 1, chunk_size=2)(x, y), U.jacfwd(f, 1, randomness='same')(x, y)",
    "f = lambda a, b: ((a.sin() * b).sum(), {'n': a.mean()})\nU.grad(f, has_aux=True)(x, x + 1), U.grad_and_value(f, (0, 1), has_aux=True)(x, x + 1), U.vjp(lambda a: (a * a, a.sum()), x)[1]((x, e(1)[0])), U.vjp(lambda a: (a * a, {'k': a}), x, has_aux=True)[2], U.jvp(lambda a: (a * a, a.sum()), (x,), (x + 1,)), U.jvp(lambda a: (a * a, a.sum()), (x,), (x + 1,), has_aux=True), U.linearize(lambda a: a.sin() * a, x)[1](x)",
    "raised(lambda: U.grad(lambda a: a)(x)), raised(lambda: U.grad(lambda a: a.sum(), 1)(x)), raised(lambda: U.vmap(lambda a: a, 3)(x)), raised(lambda: U.vmap(lambda a, b: a)(x, e(2))), raised(lambda: U.vmap(lambda a: a, (None,))(x)), raised(lambda: U.vmap(lambda a: a.sum().item())(x)), raised(lambda: U.vmap(lambda a: a + L.rand(1))(x)), raised(lambda: U.jvp(lambda a: a, (x,), (x[0],))), raised(lambda: U.vmap(lambda a: a, out_dims=5)(x)), raised(lambda: U.vmap(lambda a: a, chunk_size=0)(x)), raised(lambda: U.jacrev(lambda a: a.sum(), chunk_size=0)(x))",
    "L.manual_seed(4)\n[U.vmap(lambda a: a + f(a), randomness=r)(x) if raised(lambda: U.vmap(lambda a: a + f(a), randomness=r)(x)) == 'none' else 0 for r in ('same', 'different') for f in (lambda a: L.rand(2, 4), L.randn_like, lambda a: L.nn.functional.dropout(a, 0.5), lambda a: L.bernoulli(a.abs()), lambda a: L.randint(5, (4,)), lambda a: L.randperm(4), lambda a: L.normal(a, 1.0), lambda a: L.multinomial(a.abs() + 1, 2).sum(), lambda a: L.empty(4).exponential_())]",
    "m = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).double()\nms = [m, nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).double()]\np, b = U.stack_module_state(ms)\nfm = lambda p, b, t: U.functional_call(m.eval(), (p, b), (t,))\n[[k, v.shape] for k, v in {**p, **b}.items()], U.vmap(fm, (0, 0, None))(p, b, e(4, 2)), U.functional_call(m, {'0.weight': L.ones(3, 2, dtype=L.float64)}, e(4, 2)), raised(lambda: U.functional_call(m, {'x': x}, e(4, 2), strict=True)), U.functional_call(m, {'0.bias': e(3)}, args=(e(4, 2),), kwargs={})",
    "A = L.autograd.functional\nf = lambda a: (a ** 3).sum(1)\ng = lambda a, b: (a * b).sin().sum()\nA.jacobian(f, x), A.jacobian(f, x, vectorize=True, strategy='forward-mode'), A.hessian(g, (x[0], x[1])), A.vjp(f, x, e(3)), A.jvp(f, x, x + 1), A.vhp(g, (x[0], x[1]), (x[1], x[2])), A.hvp(g, (x[0], x[1]), (x[1], x[2])), raised(lambda: A.vjp(f, x)), raised(lambda: A.vjp(f, x, e(2))), raised(lambda: A.jacobian(lambda a: e(2), x, strict=True)), raised(lambda: A.hessian(f, x)), raised(lambda: A.hvp(g, (x[0], x[1])))",
    # autograd
    "a, b = x.clone().requires_grad_(), (x + 1).requires_grad_()\ny = (a * b).sin()\nG = L.autograd.grad\nG(y.sum(), (a, b), retain_graph=True), G(y, a, x, create_graph=True)[0].grad_fn is not None, G(y.sum(), (a, L.ones(1, requires_grad=True)), allow_unused=True, retain_graph=True), G(y.sum(), (a, L.ones(1, requires_grad=True)), materialize_grads=True, retain_graph=True), raised(lambda: G(y, a)), raised(lambda: G(y.sum(), L.ones(1, requires_grad=True), retain_graph=True)), G(y, (a,), L.eye(3, 4, dtype=L.float64).expand(2, 3, 4), is_grads_batched=True), raised(lambda: (G(y.sum(), a), G(y.sum(), a))), raised(lambda: G(y, a, e(2)))",
    "a = x.clone().requires_grad_()\nseen = []\ny = a * 2\ny.register_hook(lambda g: g * 3), a.register_hook(lambda g: seen.append(g.sum())), a.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.mean())), y.retain_grad(), y.grad_fn.register_prehook(lambda g: (g[0] + 1,)), y.grad_fn.register_hook(lambda i, o: seen.append(o[0].sum()))\n(y * y).sum().backward(), (a * 3).sum().backward()\na.grad, y.grad, seen, y.grad_fn.name(), y.grad_fn.next_functions[0][1], y.is_leaf, a.is_leaf, y.output_nr",
    "a = x.clone().requires_grad_()\nb = a * 1\nb[0] = 3.0\nb[:, 1] *= 2\nc = b.view(-1)[2:7]\nc.mul_(a.reshape(-1)[:5])\nb.sum().backward()\nv = x.clone()\na.grad, b, v._version, v.add_(1)._version, v.view(-1)[0:1].zero_()._version, raised(lambda: a.add_(1)), raised(lambda: (lambda t: (t.exp_(), t.sum().backward()))((a * 1).exp())), raised(lambda: (lambda t, u: (t.mul_(2), u.sum().backward()))(*(lambda t: (t, t.exp()))(a * 1)))",
    """class Cube(L.autograd.Function):
    @staticmethod
    def forward(ctx, t, k, other=None):
        ctx.save_for_backward(t)
        ctx.k = k
        return t ** 3 * k, t.sign().detach()
    @staticmethod
    def backward(ctx, g, h):
        (t,) = ctx.saved_tensors
        return (3 * t * t * ctx.k * g if ctx.needs_input_grad[0] else None), None, None
    @staticmethod
    def jvp(ctx, t, k, other):
        return t, t
a = x.clone().requires_grad_()
y, s = Cube.apply(a, 2.0)
y.sum().backward()
a.grad, s.requires_grad, y.grad_fn.name(), L.autograd.gradcheck(lambda t: Cube.apply(t, 3.0)[0], (a,)), L.autograd.gradgradcheck(lambda t: Cube.apply(t, 3.0)[0], (a,)), raised(lambda: L.autograd.gradcheck(lambda t: t.detach() * t, (a,)))""",
    "with L.no_grad():\n    p = (L.is_grad_enabled(), (x.requires_grad_() * 2).requires_grad)\n    with L.enable_grad():\n        q = (x * 2).requires_grad\nwith L.inference_mode():\n    r = x * 2\nwith L.set_grad_enabled(False):\n    s = (x * 2).requires_grad\np, q, r.is_inference(), s, L.is_grad_enabled(), raised(lambda: (r * x).sum().backward()), raised(lambda: r.add_(1)), L.inference_mode(False)(lambda: (x * 2).requires_grad)(), L.no_grad()(lambda: (x * 2).requires_grad)()",
    "import math\nC = module('utils.checkpoint')\nL.manual_seed(0)\nm = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh(), nn.Linear(4, 2)).double()\ny = x.clone().requires_grad_()\nfound = []\nfor f in (lambda t: C.checkpoint(m, t, use_reentrant=False), lambda t: C.checkpoint(m, t, use_reentrant=True), lambda t: C.checkpoint_sequential(m, 2, t, use_reentrant=False), m, lambda t: C.checkpoint(m, t, use_reentrant=False, preserve_rng_state=False)):\n    L.manual_seed(1)\n    y.grad = None\n    f(y).pow(2).sum().backward()\n    found.append([y.grad, m[0].weight.grad.clone()])\n    m.zero_grad()\nfound[:4]",
    # amp
    *(f"a, b = exact(4, 4), exact(4, 4).to(L.{d})\nwith L.autocast('cpu', dtype=L.{d}):\n    found = [str(t.dtype) for t in (a @ a, a + b, a @ b, F.linear(a, b), a.sum(), a.softmax(1), F.layer_norm(a, (4,)), F.mse_loss(a, b), F.cross_entropy(b, L.tensor([0, 1, 2, 3])), L.cat([a, b]), L.stack([a, b]), a.exp(), b.exp(), b.pow(2), b.norm(), b.cumsum(0), F.conv1d(a[None], a[:, :, None]), F.gelu(b), L.bmm(a[None], b[None]), L.baddbmm(a[None], a[None], b[None]), a.double() @ a.double(), L.einsum('ij,jk', a, a), L.addcmul(a, a, a), F.binary_cross_entropy_with_logits(b, a), L.linalg.inv(a + 3 * L.eye(4)), F.scaled_dot_product_attention(a, a, a), a.mv(a[0]), b.prod(), L.cdist(b, b), F.max_pool1d(b, 2), F.interpolate(b[None], 3), L.where(a > 0, a, b), L.stft(a[0].repeat(4), 4, return_complex=True))]\n    with L.autocast('cpu', enabled=False):\n        found.append(str((a @ a).dtype))\nfound, L.is_autocast_enabled('cpu'), str(L.get_autocast_dtype('cpu'))" for d in ("bfloat16", "float16")),
    """w = nn.Parameter(e(3))
o = L.optim.SGD([w], 0.1)
S = L.amp.GradScaler
s = S('cpu', init_scale=8.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=2)
found = []
for k in range(7):
    o.zero_grad()
    s.scale((w * w).sum() * (float('inf') if k in (2, 5) else 1.0)).backward()
    if k == 4:
        s.unscale_(o)
    found.append([w.grad.clone(), s.step(o)])
    s.update(5.0 if k == 6 else None)
    found.append([s.get_scale(), s._growth_tracker, w.detach().clone(), s.state_dict()])
fresh = S('cpu')
fresh.load_state_dict(s.state_dict())
found, fresh.state_dict(), S('cpu').state_dict(), S('cpu', enabled=False).state_dict(), S('cpu', enabled=False).scale(w), raised(lambda: S('cpu', growth_factor=1.0)), raised(lambda: S('cpu', backoff_factor=1.0)), raised(lambda: S('cpu').update()), raised(lambda: (s.scale(w.sum()).backward(), s.unscale_(o), s.unscale_(o))), s.get_growth_factor(), s.get_backoff_factor(), s.get_growth_interval(), s.is_enabled()""",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)
