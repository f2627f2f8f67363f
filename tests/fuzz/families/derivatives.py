"""The autograd engine, function transforms, and files of tensors."""

from __future__ import annotations

from ..draw import Draw
from .family import family

STEPS = ("t.sin()", "t * u", "t + u.sum()", "t @ t.mT if t.dim() > 1 else t * t", "t.exp() / 4", "t.reshape(-1).cumsum(0)", "t.tanh().reshape(-1)[:3]", "t.softmax(-1)", "t.relu()", "t.pow(3) / 8", "t.mT", "t.flip(0)", "t.sort(-1).values",
         "torch.cat([t, t], 0)", "t.logsumexp(-1, keepdim=True)", "t.var(-1)", "t.abs().sqrt() + 1", "t.amax(-1)", "torch.where(t > 0, t, t * 2)", "t.max(-1).values", "t.prod(-1)", "t.clamp(-0.5, 1)", "F.pad(t, (1, 0))", "t.roll(1, 0)", "t.diff(dim=-1)", "t.norm()", "t.index_select(0, torch.tensor([0, 0]))",
         "t.gather(-1, torch.zeros_like(t, dtype=torch.int64))", "t.unfold(-1, 1, 1).squeeze(-1)", "t.expand(2, *t.shape)", "t.double()", "t.std(unbiased=False)", "torch.einsum('...i,...i->...', t, t)", "t.tril() if t.dim() > 1 else t", "F.layer_norm(t, t.shape[-1:])", "t.detach() * t", "t[..., 0]", "t.masked_fill(t > 0.5, 2.0)", "t.argmax(-1) * t.sum()", "t.cumprod(-1)", "torch.linalg.vector_norm(t, 3, -1)", "t.clone().mul_(2)", "t.erf()", "t.sigmoid().log()", "t.std(-1, correction=0)", "torch.outer(t.flatten(), t.flatten())", "t.median(-1).values", "F.gelu(t)", "t.float().bfloat16().float()")  # fmt: skip


def _function(draw: Draw) -> list[str]:
    """A function f of one tensor, with another one u in its closure."""
    steps = [f"    t = {draw.among(*STEPS)}" for _ in range(draw.number(1, 4))]
    return ["def f(t):\n" + "\n".join(steps) + "\n    return t"]


@family
def transformed(draw: Draw) -> list[str]:
    """vmap, jvp, vjp, jacobians and Hessians of random functions, nested."""
    shape = draw.among((2, 3), (3,), (2, 2), (1, 3), (2, 1, 3))
    lines = [
        f"x = {draw.dense(shape, draw.among('float32', 'float64'))} + 0.1",
        f"u = {draw.dense(shape[-1:], 'float32')}",
        *_function(draw),
    ]
    T = "torch.func."
    call = draw.among(
        f"{T}vmap(f)(x)", f"{T}vmap(f, in_dims=-1, out_dims=-1)(x)", f"{T}vmap(f, chunk_size=1)(x)", f"{T}jvp(f, (x,), (x.cos(),))", f"{T}vjp(f, x)[1](f(x))", f"{T}jacrev(f)(x)", f"{T}jacfwd(f)(x)", f"{T}hessian(lambda v: f(v).sum())(x)",
        f"{T}grad(lambda v: f(v).sum())(x)", f"{T}vmap({T}grad(lambda v: f(v).sum()))(x)", f"{T}grad(lambda v: {T}vmap(f)(v).sum())(x)", f"{T}grad(lambda v: {T}grad(lambda w: f(w).sum())(v).sum())(x)", f"{T}vmap({T}jacrev(f))(x)", f"{T}jacfwd({T}jacrev(f))(x)", f"{T}vmap({T}vmap(f))(x)",
        f"{T}jvp({T}grad(lambda v: f(v).sum()), (x,), (x,))", f"{T}linearize(f, x)[1](x)", f"{T}functionalize(f)(x)", f"{T}grad_and_value(lambda v: f(v).sum())(x)", "torch.autograd.functional.jacobian(f, x)", "torch.autograd.functional.hessian(lambda v: f(v).sum(), x)", "torch.autograd.functional.hvp(lambda v: f(v).sum(), x, x)",
        "torch.autograd.functional.jvp(f, x, x)", "torch.autograd.functional.vjp(f, x, f(x))", "torch.autograd.functional.jacobian(f, x, vectorize=True)", f"{T}vmap(f, randomness='same')(x)", f"{T}vmap(lambda v: f(v) + torch.randn(2).sum(), randomness='different')(x)", f"{T}jacrev({T}vmap(f))(x)", f"{T}vmap({T}jvp, in_dims=(None, (0,), (0,)))(f, (x,), (x,))",
    )  # fmt: skip
    return [*lines, f"result = {call}"]


@family
def engine(draw: Draw) -> list[str]:
    """backward with hooks, retained graphs, changes in place and accumulation."""
    shape = draw.among((2, 3), (3,), (2, 2))
    lines = [
        "log = []",
        f"x = ({draw.dense(shape, 'float32')} + 0.1).requires_grad_()",
        f"u = {draw.dense(shape[-1:], draw.among('float32', 'float64'))}.requires_grad_()",
        *_function(draw),
    ]
    some = [
        "x.register_hook(lambda g: log.append(('x', g.sum().item())))", "x.register_hook(lambda g: g * 2)", "x.register_post_accumulate_grad_hook(lambda p: log.append(('p', p.grad.sum().item())))", "y.register_hook(lambda g: g + 1)", "y.retain_grad()", "y.grad_fn.register_prehook(lambda g: (g[0] * 3,))",
        "y.grad_fn.register_hook(lambda i, o: log.append((len(i), len(o))))", "z = y[..., :1]", "z = y.detach()", "y.mul_(2)", "y[0] = 1.5", "z.mul_(2)", "z.add_(1)", "x.data.mul_(2)", "with torch.no_grad(): x.mul_(0.5)", "with torch.no_grad(): y.zero_()", "y.sum().backward(retain_graph=True)", "y.sum().backward()", "(y * y).sum().backward(create_graph=True)",
        "g, = torch.autograd.grad(y.sum(), x, create_graph=True)", "g.sum().backward()", "x.grad = None", "x.grad.zero_()", "y = f(x) + y.sum()", "y = y * z", "z = y.view(-1)", "z = x.view(-1)", "z = y.t()", "x.requires_grad_(False)", "w = x.clone()", "w.copy_(y)", "w[0].mul_(y.sum())", "w.backward(torch.ones_like(w))", "z, y = y.sum(), y * 3",
        "a, b = y.split([1, y.shape[0] - 1]); a.mul_(2)", "torch.autograd.backward([y.sum(), y.sum()], inputs=[x])", "x.detach_()", "y.detach_()", "y = y.double().float()", "y.set_(x.detach())", "z.resize_(2)", "v = y._version", "n = y.grad_fn.name() if y.grad_fn else None", "with torch.inference_mode(): k = x * 2", "k.mul_(x)", "z = x.expand(2, *x.shape)", "z.squeeze_()", "y.unsqueeze_(0)", "y.transpose_(0, -1)", "z = torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)", "with torch.autograd.graph.save_on_cpu(): z = f(x)", "p = (y * y).sum(); p.backward(inputs=x)",
        "with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t): z = x * x", "z = x.clone().index_put_((torch.tensor([0]),), y.sum())", "z = x.clone().masked_fill_(x > 0, 1)", "z = (x + 0).clamp_(0, 1)", "z = x.unbind(0)[0]", "z.exp_()",
    ]  # fmt: skip
    lines.append("y = f(x)")
    lines += [draw.among(*some) for _ in range(draw.number(2, 6))]
    return [*lines, "y.sum().backward()", "first = x.grad", "second = u.grad"]


@family
def files(draw: Draw) -> list[str]:
    """save and load in one library: views, dtypes, layouts, the legacy format."""
    dtype = draw.among(
        "float32",
        "int64",
        "bool",
        "uint8",
        "uint16",
        "uint64",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2fnuz",
        "complex64",
        "complex32",
        "float16",
    )
    a = draw.tensor(draw.shape(0, 3), dtype, draw.kind(), grad=draw.chance(0.2))
    what = draw.among("a", "[a, a]", "{'a': a, 'b': a.detach()[..., :1] if a.dim() else a}", "(a.detach().mT if a.dim() > 1 else a, a.detach())", "nn.Parameter(a.detach(), requires_grad=False)", "a.detach().to_sparse()", "nn.Linear(2, 2).state_dict().keys()", "[1, 2.5, 'text', None, True, torch.float32, torch.Size([2])]", "a.detach().untyped_storage()", "a.detach().expand(2, *a.shape)", "{'t': torch.strided, 'd': torch.device('cpu')}", "torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])", "a.detach().conj()", "a.detach().imag", "a.detach().to_sparse_csr()")  # fmt: skip
    old = draw.options(_use_new_zipfile_serialization="False", pickle_protocol=("2", "4"))
    lines = [
        f"a = {a}",
        f"what = {what}",
        "file = io.BytesIO()",
        f"torch.save(what, file{old})",
        "end = file.seek(0)",
        f"result = torch.load(file{draw.options(weights_only=('True', 'False'), map_location=(repr('cpu'), repr('meta')))})",
    ]
    return [*lines, "file = None"]
