"""Convolutions, matrix products and contractions."""

from __future__ import annotations

from ..draw import Draw
from .family import family, with_grads
from .windows import sizes


@family
def convolution(draw: Draw) -> list[str]:
    n, groups = draw.number(1, 3), draw.among(1, 1, 2, 3)
    dtype = draw.among("float32", "float32", "float32", "float64", "bfloat16", "complex64", "float16")
    turned = draw.chance(0.4)
    inner, outer = groups * draw.number(1, 2), groups * draw.number(1, 2)
    window = [draw.number(1, 3) for _ in range(n)]
    weight = (inner, outer // groups, *window) if turned else (outer, inner // groups, *window)
    batch = [draw.number(0 if draw.chance(0.05) else 1, 2)] if draw.chance(0.8) else []
    a = draw.tensor((*batch, inner + draw.chance(0.02), *(draw.number(1, 6) for _ in range(n))), dtype, grad=True)
    lines = [
        f"a = {a}",
        f"b = {draw.tensor(weight, dtype, grad=True)}",
        f"c = {draw.tensor((outer,), dtype, grad=True)}",
    ]
    bias = draw.among("c", "c", "None")
    more = f", groups={groups}" + draw.options(stride=sizes(draw, n, 1, 3), dilation=sizes(draw, n, 1, 2))
    if turned:
        more += draw.options(padding=sizes(draw, n, 0, 2), output_padding=sizes(draw, n, 0, 1))
        call = f"F.conv_transpose{n}d(a, b, {bias}{more})"
    else:
        more += draw.options(padding=draw.among(sizes(draw, n, 0, 2), "'same'", "'valid'"))
        call = f"F.conv{n}d(a, b, {bias}{more})"
    return with_grads(draw, [*lines, f"result = {call}"], "a, b" if bias == "None" else "a, b, c")


@family
def products(draw: Draw) -> list[str]:
    dtype = draw.among("float32", "float32", "float64", "bfloat16", "complex64", "int64", "uint8", "float16", "bool")
    b, n, m, k = (draw.size(4) for _ in range(4))
    kind = draw.kind() if draw.chance(0.5) else "plain"

    def t(*shape: int) -> str:
        return draw.tensor(shape, dtype, kind, grad=True)

    scalars = draw.options(alpha=("2", "0", "-0.5", "nan"), beta=("2", "0", "0.5", "-1"))
    ways = {
        "torch.matmul(a, b)": (t(*draw.shape(0, 2), n, k), t(*draw.among((k,), (k, m), (b, k, m)))),
        "torch.bmm(a, b)": (t(b, n, k), t(b, k, m)),
        f"torch.addmm(c, a, b{scalars})": (t(n, k), t(k, m), t(*draw.broadcast((n, m)))),
        f"torch.baddbmm(c, a, b{scalars})": (t(b, n, k), t(b, k, m), t(*draw.broadcast((b, n, m)))),
        f"torch.addbmm(c, a, b{scalars})": (t(b, n, k), t(b, k, m), t(*draw.broadcast((n, m)))),
        f"torch.addmv(c, a, b{scalars})": (t(n, k), t(k), t(*draw.broadcast((n,)))),
        f"torch.addr(c, a, b{scalars})": (t(n), t(m), t(*draw.broadcast((n, m)))),
        "torch.dot(a, b)": (t(n), t(n)),
        "torch.vdot(a, b)": (t(n), t(n)),
        "torch.inner(a, b)": (t(n, k), t(*draw.among((k,), (m, k)))),
        "torch.kron(a, b)": (t(*draw.shape(0, 3, 3)), t(*draw.shape(0, 3, 3))),
        "torch.tensordot(a, b, 1)": (t(n, k), t(k, m, b)),
        "torch.tensordot(a, b, ([0, -1], [1, 0]))": (t(n, m, k), t(k, n)),
        "torch.einsum('...ij,...jk->...ik', a, b)": (t(*draw.shape(0, 2, 2), n, k), t(k, m)),
        "torch.einsum('bij,bkj', a, b)": (t(b, n, k), t(b, m, k)),
        "torch.einsum('ii,j->ij', a, b)": (t(n, n), t(m)),
        "torch.einsum('...ii->...', a)": (t(b, n, n),),
        "torch.einsum('ij,kj,i->k', a, b, c)": (t(n, k), t(m, k), t(n)),
        "torch.einsum(a, [0, 1], b, [1, ...], [..., 0])": (t(n, k), t(k, m, b)),
        "torch.chain_matmul(a, b, c)": (t(n, k), t(k, m), t(m, b)),
        "torch.linalg.multi_dot([a, b, c])": (t(n, k), t(k, m), t(m)),
        "torch.cross(a, b, dim=-1)": (t(n, 3), t(*draw.broadcast((n, 3)))),
        "F.linear(a, b, c)": (t(*draw.shape(0, 2), n, k), t(m, k), t(m)),
        "F.bilinear(a, b, c)": (t(n, k), t(n, m), t(b, k, m)),
        "torch.cdist(a, b, p=2.0)": (t(n, k), t(m, k)),
        f"torch.cdist(a, b, p={draw.among(0.0, 1.0, 3.0, 'inf', 0.5)})": (t(b, n, k), t(m, k)),
    }
    call = draw.among(*ways)
    inputs = dict(zip("abc", ways[call]))
    lines = [f"{name} = {text}" for name, text in inputs.items()]
    return with_grads(draw, [*lines, f"result = {call}"], ", ".join(inputs))
