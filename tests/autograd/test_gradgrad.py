"""First and second derivatives of every family of operators against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch
from flambeau.autograd import gradcheck, gradgradcheck
from flambeau.nn import functional as F
from flambeau.ops import OPS
from flambeau.ops.machinery.formula import Pointwise
from flambeau.ops.machinery.primitive import Primitive
from flambeau.ops.machinery.reduction import Reduction


def real(*shape, low=-1.5, high=1.5, seed=0):
    """Values that keep clear of each other, so that no kink or tie is near."""
    count = int(np.prod(shape))
    values = np.linspace(low, high, count + 2)[1:-1]
    values = values + (high - low) / (count + 1) / 7
    return torch.tensor(np.random.RandomState(seed).permutation(values).reshape(shape), requires_grad=True)


def many(*shapes, low=-1.5, high=1.5):
    return tuple(real(*shape, low=low, high=high, seed=i) for i, shape in enumerate(shapes))


def complex_(*shape, seed=0):
    random = np.random.RandomState(seed)
    return torch.tensor(random.randn(*shape) + 1j * random.randn(*shape), requires_grad=True)


def index(*values):
    return torch.tensor(values)


POSITIVE, UNIT, LARGE = {"low": 0.3, "high": 2.5}, {"low": 0.05, "high": 0.95}, {"low": 1.1, "high": 3.0}
SYMMETRIC = {"low": -0.9, "high": 0.9}

# functions of one tensor by the range in which they are smooth
ANYWHERE = [
    "neg", "exp", "exp2", "expm1", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh", "sigmoid", "erf", "erfc", "square",
    "sinc", "i0", "abs", "sgn",
]  # fmt: skip
BETWEEN_INTEGERS = [
    "deg2rad", "rad2deg", "floor", "ceil", "trunc", "round", "frac", "sign", "nan_to_num", "angle", "positive", "logit",
]  # fmt: skip
ABOVE_ZERO = ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma"]
UNARY = {
    **dict.fromkeys(ANYWHERE, {}),
    **dict.fromkeys(BETWEEN_INTEGERS, UNIT),
    **dict.fromkeys(ABOVE_ZERO, POSITIVE),
    **dict.fromkeys(["asin", "acos", "atanh", "erfinv"], SYMMETRIC),
    "acosh": LARGE,
}
SPECIAL = {
    **dict.fromkeys(["ndtr", "erfcx", "log_ndtr", "i0e", "i1", "i1e"], {}),
    **dict.fromkeys(["ndtri", "entr"], UNIT),
}
ACTIVATIONS = [
    "relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "softplus", "softsign", "logsigmoid", "hardtanh",
    "hardsigmoid", "hardswish", "tanhshrink", "softmin", "glu",
]  # fmt: skip
BINARY = [
    "add", "sub", "mul", "div", "rsub", "atan2", "hypot", "maximum", "minimum", "fmax", "fmin", "logaddexp", "logaddexp2", "pow",
    "xlogy", "remainder", "fmod", "copysign", "float_power",
]  # fmt: skip

CASES = {
    **{name: (getattr(torch, name), (real(2, 3, **where),)) for name, where in UNARY.items()},
    **{f"special.{name}": (getattr(torch.special, name), (real(2, 3, **where),)) for name, where in SPECIAL.items()},
    **{f"F.{name}": (getattr(F, name), (real(2, 4),)) for name in ACTIVATIONS},
    **{name: (getattr(torch, name), many((2, 3), (3,), **POSITIVE)) for name in BINARY},
    "nested": (
        lambda x: torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 2, 5])).sin().values(),
        (real(5, 2),),
    ),
    "number - tensor": (lambda x: 2 - x, (real(3),)),
    "number / tensor": (lambda x: 2 / x, (real(3, **POSITIVE),)),
    "number ** tensor": (lambda x: 2**x, (real(3),)),
    "tensor ** number": (lambda x: x**3, (real(3),)),
    "addcmul": (lambda a, b, c: torch.addcmul(a, b, c, value=0.5), many((2, 3), (3,), (2, 1))),
    "addcdiv": (lambda a, b, c: torch.addcdiv(a, b, c, value=0.5), many((2, 3), (3,), (2, 1), **POSITIVE)),
    "lerp": (torch.lerp, many((3,), (3,), (3,))),
    "lerp by a number": (lambda a, b: torch.lerp(a, b, 0.3), many((3,), (3,))),
    "ldexp": (lambda x: torch.ldexp(x, torch.tensor([1, 2, 3])), (real(3),)),
    "clamp": (lambda x: x.clamp(-0.5, 0.7), (real(7),)),
    "clamp by tensors": (lambda x, a, b: x.clamp(a - 2, b + 2), many((3,), (3,), (3,))),
    "clamp_min": (lambda x: x.clamp_min(0.1), (real(5),)),
    "clamp_max": (lambda x: x.clamp_max(0.1), (real(5),)),
    "where": (lambda a, b: torch.where(torch.tensor([True, False, True]), a, b), many((3,), (2, 3))),
    "masked_fill": (lambda x, v: x.masked_fill(torch.tensor([True, False, True]), v), (real(2, 3), real())),
    "threshold": (lambda x: F.threshold(x, 0.1, 20), (real(5),)),
    "hardshrink": (F.hardshrink, (real(6),)),
    "softshrink": (F.softshrink, (real(6),)),
    "prelu": (F.prelu, (real(2, 3), real(3, **POSITIVE))),
    "rrelu in evaluation": (lambda x: F.rrelu(x, training=False), (real(5),)),
    "polygamma": (lambda x: torch.polygamma(2, x), (real(3, **POSITIVE),)),
    "mvlgamma": (lambda x: torch.mvlgamma(x, 2), (real(3, low=2, high=4),)),
    "zeta": (lambda q: torch.special.zeta(torch.tensor(2.5, dtype=torch.float64), q), (real(3, **LARGE),)),
    "xlog1py": (torch.special.xlog1py, many((3,), (3,), **POSITIVE)),
    "igamma": (lambda x: torch.igamma(torch.tensor(1.5, dtype=torch.float64), x), (real(3, **POSITIVE),)),
    "igammac": (lambda x: torch.igammac(torch.tensor(1.5, dtype=torch.float64), x), (real(3, **POSITIVE),)),
    "complex product": (lambda a, b: (a * b).real, (complex_(3), complex_(3, seed=1))),
    "complex quotient": (lambda a, b: (a / b).imag, (complex_(3), complex_(3, seed=1))),
    "complex abs": (lambda a: a.abs(), (complex_(3),)),
    "complex angle": (lambda a: a.angle(), (complex_(3),)),
    "complex exp": (lambda a: a.exp().real, (complex_(3),)),
    "conj": (lambda a: a.conj().imag, (complex_(3),)),
    "view_as_real": (torch.view_as_real, (complex_(3),)),
    "view_as_complex": (lambda x: torch.view_as_complex(x).abs(), (real(3, 2),)),
    "complex from parts": (lambda a, b: torch.complex(a, b).abs(), many((3,), (3,), **POSITIVE)),
    "polar": (lambda a, b: torch.polar(a, b).real, many((3,), (3,), **POSITIVE)),
    # reductions
    "sum": (lambda x: x.sum((0, 2)), (real(2, 3, 2),)),
    "mean": (lambda x: x.mean(1, keepdim=True), (real(2, 3),)),
    "prod": (lambda x: x.prod(1), (real(2, 3),)),
    "prod with a zero": (lambda x: (x * torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)).prod(), (real(3),)),
    "nansum": (lambda x: x.nansum(0), (real(2, 3),)),
    "amax": (lambda x: x.amax(1), (real(2, 3),)),
    "amin": (lambda x: x.amin((0, 1)), (real(2, 3),)),
    "max": (lambda x: x.max(1).values, (real(2, 3),)),
    "min": (lambda x: (x.min(), x.min(1).values), (real(2, 3),)),
    "aminmax": (lambda x: tuple(torch.aminmax(x, dim=1)), (real(2, 3),)),
    "logsumexp": (lambda x: x.logsumexp(1), (real(2, 3),)),
    "var": (lambda x: x.var(1), (real(2, 3),)),
    "std": (lambda x: x.std(0, correction=0), (real(3, 2),)),
    "var_mean": (lambda x: torch.var_mean(x, 1), (real(2, 3),)),
    "std_mean": (lambda x: torch.std_mean(x, 1), (real(2, 3),)),
    "norm": (lambda x: torch.stack([x.norm(p) for p in (1, 2, 3, float("inf"))]), (real(2, 3),)),
    "dist": (lambda a, b: torch.dist(a, b, 3), many((3,), (3,))),
    "renorm": (lambda x: torch.renorm(x, 2, 0, 1.0), (real(2, 3),)),
    "median": (lambda x: (x.median(1).values, x.median(), x.nanmedian(1).values, x.nanmedian()), (real(2, 3),)),
    "kthvalue": (lambda x: x.kthvalue(2, 1).values, (real(2, 3),)),
    "mode": (lambda x: x.mode(1).values, (real(2, 3),)),
    "quantile": (lambda x: x.quantile(0.3, 1), (real(2, 4),)),
    "cov": (torch.cov, (real(2, 4),)),
    "corrcoef": (torch.corrcoef, (real(2, 4),)),
    "trace": (torch.trace, (real(3, 3),)),
    # running totals and order
    "segment_reduce": (lambda x: torch.segment_reduce(x, "sum", lengths=torch.tensor([2, 1])), (real(3),)),
    "cumsum": (lambda x: x.cumsum(1), (real(2, 3),)),
    "cumprod": (lambda x: x.cumprod(1), (real(2, 3),)),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), (real(2, 3),)),
    "cummax": (lambda x: x.cummax(1).values, (real(2, 4),)),
    "cummin": (lambda x: x.cummin(1).values, (real(2, 4),)),
    "diff": (lambda x: x.diff(dim=1), (real(2, 4),)),
    "gradient": (lambda x: torch.gradient(x)[0], (real(5),)),
    "trapezoid": (lambda x: torch.trapezoid(x, dx=0.5), (real(2, 4),)),
    "sort": (lambda x: x.sort(1, descending=True).values, (real(2, 4),)),
    "stable sort": (lambda x: x.sort(dim=1, stable=True).values, (real(2, 4),)),
    "topk": (lambda x: x.topk(2, 1).values, (real(2, 4),)),
    "softmax": (lambda x: x.softmax(1), (real(2, 3),)),
    "log_softmax": (lambda x: x.log_softmax(1), (real(2, 3),)),
    # shapes
    "transpose, permute, t": (lambda x: x.transpose(0, 1).permute(2, 0, 1)[0].t(), (real(2, 3, 2),)),
    "reshape": (lambda x: x.t().reshape(3, 2), (real(2, 3),)),
    "view": (lambda x: x.view(3, 2), (real(2, 3),)),
    "expand": (lambda x: x.expand(2, 3, 2), (real(3, 1),)),
    "squeeze": (lambda x: x.squeeze() * x.squeeze(1).unsqueeze(0)[0] + x.squeeze((1, 2)), (real(3, 1, 1),)),
    "select, slice, narrow": (lambda x: x.select(0, 1) * x[0, 1:3].narrow(0, 1, 1), (real(2, 4),)),
    "unbind": (lambda x: x.unbind(1), (real(2, 3),)),
    "split": (lambda x: (*x.split(2, 1), *x.split([1, 2], 1), *x.chunk(2, 1)), (real(2, 3),)),
    "unsafe_split": (lambda x: (*x.unsafe_split(2, 1), *torch.unsafe_split_with_sizes(x, [1, 2], 1)), (real(2, 3),)),
    "copies of views": (lambda x: (*torch.split_copy(x, 2, 1), *torch.split_with_sizes_copy(x, [1, 2], 1)), (real(2, 3),)),
    "narrow_copy": (lambda x: (torch.narrow_copy(x, 1, 0, 2), *torch.unbind_copy(x, 1), torch.diagonal_copy(x)), (real(2, 3),)),
    "as_strided": (lambda x: x.as_strided((2, 2), (1, 2), 1), (real(6),)),
    "unfold": (lambda x: x.unfold(0, 3, 1), (real(5),)),
    "diagonal": (lambda x: x.diagonal(1), (real(3, 4),)),
    "diag_embed": (torch.diag_embed, (real(2, 3),)),
    "diag": (torch.diag, (real(3),)),
    "cat": (lambda a, b: torch.cat([a, b, a], 1), many((2, 3), (2, 1))),
    "stack": (lambda a, b: torch.stack([a, b], 1), many((2, 3), (2, 3))),
    "block_diag": (lambda a, b: torch.block_diag(a, b), many((2, 3), (1, 1))),
    "repeat": (lambda x: x.repeat(2, 2), (real(3),)),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 0), (real(3),)),
    "flip": (lambda x: x.flip(0), (real(3),)),
    "roll": (lambda x: x.roll(1, 0) + x.roll(1), (real(2, 3),)),
    "rot90": (torch.rot90, (real(2, 3),)),
    "tril, triu": (lambda x: x.tril() * 2 + x.triu(1), (real(3, 3),)),
    "meshgrid": (lambda a, b: torch.meshgrid(a, b, indexing="ij"), many((2,), (3,))),
    "movedim, swapaxes": (lambda x: x.movedim(0, 2).swapaxes(0, 1), (real(2, 3, 2),)),
    "to another dtype and back": (lambda x: x.to(torch.complex128).real, (real(3),)),
    "clone": (torch.clone, (real(3),)),
    "contiguous": (lambda x: x.t().contiguous(), (real(2, 3),)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (real(1, 4, 1, 2),)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (real(1, 1, 2, 4),)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), (real(1, 4, 1, 1),)),
    **{f"pad {mode}": (lambda x, mode=mode: F.pad(x, (1, 1), mode), (real(1, 1, 4),)) for mode in ("constant", "reflect", "replicate", "circular")},
    **{f"pad 2d {mode}": (lambda x, mode=mode: F.pad(x, (1, 1, 1, 0), mode), (real(1, 1, 2, 3),)) for mode in ("reflect", "replicate", "circular")},
    **{f"pad 3d {mode}": (lambda x, mode=mode: F.pad(x, (1, 0, 0, 1, 1, 0), mode), (real(1, 1, 2, 2, 2),)) for mode in ("reflect", "replicate", "circular")},
    # indexing
    "index": (lambda x: x[index(0, 1, 1), :, index(0, 1, 0)], (real(2, 2, 2),)),
    "mask": (lambda x: x[torch.tensor([True, False, True])], (real(3),)),
    "index_put": (lambda x, v: torch.index_put(x, (index(0, 0),), v, accumulate=True), many((2, 3), (2, 3))),
    "index_put without accumulation": (lambda x, v: torch.index_put(x, (index(1, 0),), v), many((2, 3), (2, 3))),
    "native_dropout_backward": (
        lambda g: torch.ops.aten.native_dropout_backward(g, torch.tensor([True, False, True]), 2.0),
        (real(2, 3),),
    ),
    "gather": (lambda x: x.gather(1, torch.tensor([[0, 0], [2, 1]])), (real(2, 3),)),
    "take_along_dim": (lambda x: torch.take_along_dim(x, torch.tensor([[0], [2]]), 1), (real(2, 3),)),
    "scatter": (lambda x, s: x.scatter(1, torch.tensor([[0, 2], [1, 0]]), s), many((2, 3), (2, 2))),
    "scatter a number": (lambda x: x.scatter(1, torch.tensor([[0], [1]]), 2.0), (real(2, 3),)),
    "scatter_add": (lambda x, s: x.scatter_add(1, torch.tensor([[0, 0], [1, 0]]), s), many((2, 3), (2, 2))),
    **{
        f"scatter_reduce {how}": (
            lambda x, s, how=how: x.scatter_reduce(1, torch.tensor([[0, 0], [1, 0]]), s, how),
            many((2, 3), (2, 2), **POSITIVE),
        )
        for how in ("sum", "prod", "mean", "amax", "amin")
    },
    "index_select": (lambda x: x.index_select(1, index(2, 0, 2)), (real(2, 3),)),
    "index_add": (lambda x, s: x.index_add(1, index(2, 0), s, alpha=2), many((2, 3), (2, 2))),
    "index_copy": (lambda x, s: x.index_copy(1, index(2, 0), s), many((2, 3), (2, 2))),
    "index_fill": (lambda x: x.index_fill(1, index(2), 1.5), (real(2, 3),)),
    "index_reduce": (lambda x, s: torch.index_reduce(x, 1, index(2, 0), s, "prod"), many((2, 3), (2, 2), **POSITIVE)),
    "masked_select": (lambda x: x.masked_select(x > 0), (real(2, 3),)),
    "masked_scatter": (lambda x, s: x.masked_scatter(torch.tensor([True, False, True]), s), many((3,), (2,))),
    "take": (lambda x: x.take(index(0, 5, 5)), (real(2, 3),)),
    "put": (lambda x, s: x.put(index(0, 5), s), many((2, 3), (2,))),
    "select_scatter": (lambda x, s: torch.select_scatter(x, s, 0, 1), many((2, 3), (3,))),
    "slice_scatter": (lambda x, s: torch.slice_scatter(x, s, 1, 1, 3), many((2, 3), (2, 2))),
    "diagonal_scatter": (torch.diagonal_scatter, many((2, 3), (2,))),
    "as_strided_scatter": (lambda x, s: torch.as_strided_scatter(x, s, (2,), (2,), 1), many((5,), (2,))),
    "embedding": (lambda w: F.embedding(torch.tensor([[0, 2], [2, 1]]), w), (real(3, 2),)),
    "fill and zero": (lambda x, v: _refilled(x, v), (real(3, 2), real())),
    "headers changed in place": (lambda x: _turned(x), (real(2, 1, 3),)),
    "assignment by slice": (lambda x, v: _assigned(x, v, slice(0, 2)), many((3, 2), (2, 2))),
    "assignment by index": (lambda x, v: _assigned(x, v, index(2, 0)), many((3, 2), (2, 2))),
    # products
    "mm": (torch.mm, many((2, 3), (3, 2))),
    "bmm": (torch.bmm, many((2, 1, 3), (2, 3, 2))),
    "mv, dot": (lambda a, b: (a.mv(b), b.dot(b * 2)), many((2, 3), (3,))),
    "matmul broadcast": (torch.matmul, many((2, 1, 2, 2), (3, 2, 1))),
    "inv": (torch.linalg.inv, many((2, 2))),
    "fft": (torch.fft.fft, (complex_(3),)),
    "rfft, irfft": (lambda x: torch.fft.irfft(torch.fft.rfft(x) ** 2, 4), many((4,))),
    "solve": (torch.linalg.solve, many((2, 2), (2, 1))),
    "solve_triangular": (lambda a, b: torch.linalg.solve_triangular(a, b, upper=True), many((2, 2), (2, 1))),
    "cholesky": (lambda a: torch.linalg.cholesky(a @ a.mT + torch.eye(2, dtype=a.dtype)), many((2, 2))),
    "det": (torch.linalg.det, many((3, 3))),
    "slogdet": (lambda a: torch.linalg.slogdet(a)[1], many((2, 2))),
    "matrix_exp": (torch.linalg.matrix_exp, many((2, 2))),
    "pinv": (torch.linalg.pinv, many((3, 2))),
    "lstsq": (lambda a, b: torch.linalg.lstsq(a, b)[0], many((3, 2), (3, 1))),
    "lu": (lambda a: torch.linalg.lu(a)[1:], many((2, 2))),
    "qr": (torch.linalg.qr, many((3, 2))),
    "svdvals": (torch.linalg.svdvals, many((2, 3))),
    "eigvalsh": (lambda a: torch.linalg.eigvalsh(a + a.mT), many((2, 2))),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), many((2,), (2, 3), (3, 2))),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5), many((2, 1, 2), (2, 1, 3), (2, 3, 2))),
    "addr, outer": (lambda c, a, b: torch.addr(c, a, b) + torch.outer(a, b), many((2, 3), (2,), (3,))),
    "einsum": (lambda a, b: torch.einsum("ij,jk->ki", a, b), many((2, 3), (3, 2))),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 1), many((2, 3), (3, 2))),
    "linear": (F.linear, many((2, 3), (2, 3), (2,))),
    "bilinear": (F.bilinear, many((2, 2), (2, 3), (1, 2, 3), (1,))),
    "complex mm": (lambda a, b: (a @ b).real, (complex_(2, 2), complex_(2, 1, seed=1))),
    "cosine_similarity": (F.cosine_similarity, many((2, 3), (2, 3))),
    "pairwise_distance": (F.pairwise_distance, many((2, 3), (2, 3))),
    "normalize": (F.normalize, (real(2, 3),)),
    # layers
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), many((1, 2, 4), (2, 2, 3), (2,))),
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1, dilation=2), many((1, 1, 4, 4), (1, 1, 2, 2))),
    "conv2d in groups": (lambda x, w: F.conv2d(x, w, groups=2), many((1, 2, 3, 3), (2, 1, 2, 2))),
    "conv3d": (F.conv3d, many((1, 1, 2, 2, 2), (1, 1, 1, 2, 2))),
    "conv_transpose1d": (lambda x, w: F.conv_transpose1d(x, w, stride=2), many((1, 2, 2), (2, 1, 2))),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w), many((1, 1, 2, 2), (1, 1, 2, 2))),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), (real(1, 1, 6),)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (real(1, 1, 4, 4),)),
    "max_pool2d with indices": (lambda x: F.max_pool2d(x, 2, return_indices=True)[0], (real(1, 1, 4, 4),)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), (real(1, 1, 2, 2, 4),)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 2), (real(1, 1, 6),)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2, padding=1), (real(1, 1, 3, 3),)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), (real(1, 1, 2, 2, 4),)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 2), (real(1, 1, 3, 3),)),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (1, 2, 1)), (real(1, 1, 2, 3, 2),)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 2), (real(1, 1, 3, 3),)),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, (1, 2, 1)), (real(1, 1, 2, 3, 2),)),
    "fractional_max_pool2d": (
        lambda x: F.fractional_max_pool2d(x, 2, output_size=2, _random_samples=torch.full((1, 1, 2), 0.5, dtype=torch.float64)),
        (real(1, 1, 4, 4),),
    ),
    "fractional_max_pool3d": (
        lambda x: F.fractional_max_pool3d(x, 2, output_size=2, _random_samples=torch.full((1, 1, 3), 0.5, dtype=torch.float64)),
        (real(1, 1, 4, 4, 4),),
    ),
    "max_unpool2d": (lambda x: F.max_unpool2d(x, torch.tensor([[[[0, 3], [8, 15]]]]), 2), (real(1, 1, 2, 2),)),
    "max_unpool3d": (lambda x: F.max_unpool3d(x, torch.tensor([[[[[5]]]]]), 2), (real(1, 1, 1, 1, 1),)),
    "lp_pool2d": (lambda x: F.lp_pool2d(x, 2, 2), (real(1, 1, 2, 4, **POSITIVE),)),
    "unfold and fold": (lambda x: F.fold(F.unfold(x, 2) * 2, (3, 3), 2), (real(1, 1, 3, 3),)),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), many((4, 2), (2,), (2,))),
    "batch_norm in evaluation": (
        lambda x, w, b: F.batch_norm(x, torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64), w, b),
        many((3, 2), (2,), (2,)),
    ),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), many((2, 4), (4,), (4,))),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), many((1, 4, 2), (4,), (4,))),
    "instance_norm": (F.instance_norm, (real(1, 2, 4),)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (4,), w), many((2, 4), (4,))),
    "local_response_norm": (lambda x: F.local_response_norm(x, 2), (real(1, 3, 2),)),
    "attention": (F.scaled_dot_product_attention, many((1, 2, 3), (1, 2, 3), (1, 2, 3))),
    "attention with a mask": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        many((1, 2, 3), (1, 2, 3), (1, 2, 3), (2, 2)),
    ),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=True), (real(1, 1, 3, 3), real(1, 2, 2, 2, low=-0.8, high=0.8))),
    "grid_sample 3d": (
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        (real(1, 1, 2, 2, 2), real(1, 1, 1, 2, 3, low=-0.4, high=0.4)),
    ),
    "affine_grid": (lambda t: F.affine_grid(t, (1, 1, 2, 2), align_corners=False), (real(1, 2, 3),)),
    **{
        f"interpolate {len(size)}d {mode}": (lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode), (real(1, 1, *size),))
        for mode, size in (
            ("nearest", (3,)), ("linear", (3,)), ("bilinear", (2, 2)), ("bicubic", (2, 2)), ("trilinear", (1, 2, 2)),
            ("nearest-exact", (2, 2)), ("area", (2, 2)), ("nearest", (2, 2)), ("nearest", (1, 2, 2)), ("nearest-exact", (3,)),
            ("nearest-exact", (1, 2, 2)),
        )
    },  # fmt: skip
    **{
        f"interpolate {mode} smoothly": (
            lambda x, mode=mode: F.interpolate(x, size=(2, 2), mode=mode, antialias=True),
            (real(1, 1, 3, 3),),
        )
        for mode in ("bilinear", "bicubic")
    },
    "rnn": (
        lambda x, h, wi, wh: torch.rnn_tanh(x, h, [wi, wh], False, 1, 0.0, False, False, False)[0],
        many((2, 1, 2), (1, 1, 2), (2, 2), (2, 2)),
    ),
    "lstm": (
        lambda x, h, c, wi, wh: torch.lstm(x, (h, c), [wi, wh], False, 1, 0.0, False, False, False)[0],
        many((2, 1, 2), (1, 1, 1), (1, 1, 1), (4, 2), (4, 1)),
    ),
    "gru": (
        lambda x, h, wi, wh: torch.gru(x, h, [wi, wh], False, 1, 0.0, False, False, False)[0],
        many((2, 1, 2), (1, 1, 1), (3, 2), (3, 1)),
    ),
    # losses
    **{
        f"{name} {reduction}": (
            lambda x, y, name=name, reduction=reduction: getattr(F, name)(x, y, reduction=reduction),
            many((2, 2), (2, 2), **UNIT),
        )
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "kl_div", "poisson_nll_loss")
        for reduction in ("mean", "none")
    },
    "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, (real(3), real(3, **UNIT))),
    "cross_entropy": (lambda x: F.cross_entropy(x, index(2, 0), label_smoothing=0.1), (real(2, 3),)),
    "cross_entropy without smoothing": (lambda x: F.cross_entropy(x, index(2, 0)), (real(2, 3),)),
    "cross_entropy of probabilities": (lambda x, y: F.cross_entropy(x, y.softmax(1)), many((2, 3), (2, 3))),
    "nll_loss": (lambda x: F.nll_loss(x, index(2, 0)), (real(2, 3),)),
    "nll_loss of planes": (lambda x: F.nll_loss(x, torch.tensor([[[0, 1]]])), (real(1, 2, 1, 2),)),
    "gaussian_nll_loss": (F.gaussian_nll_loss, many((3,), (3,), (3,), **POSITIVE)),
    "hinge_embedding_loss": (lambda x: F.hinge_embedding_loss(x, torch.tensor([1.0, -1.0, 1.0])), (real(3),)),
    "margin_ranking_loss": (lambda a, b: F.margin_ranking_loss(a, b, torch.tensor([1.0, -1.0, 1.0])), many((3,), (3,))),
    "soft_margin_loss": (lambda x: F.soft_margin_loss(x, torch.tensor([1.0, -1.0, 1.0])), (real(3),)),
    "cosine_embedding_loss": (lambda a, b: F.cosine_embedding_loss(a, b, torch.tensor([1.0, -1.0])), many((2, 3), (2, 3), **POSITIVE)),
    "triplet_margin_loss": (F.triplet_margin_loss, many((2, 3), (2, 3), (2, 3))),
    "multi_margin_loss": (lambda x: F.multi_margin_loss(x, index(1, 0)), (real(2, 3),)),
    "multilabel_soft_margin_loss": (lambda x: F.multilabel_soft_margin_loss(x, torch.ones(2, 3, dtype=torch.float64)), (real(2, 3),)),
}  # fmt: skip

# PyTorch has no second derivative of these either
FIRST_ONLY = {
    **{
        f"cdist {p}": (lambda a, b, p=p: torch.cdist(a, b, p), (real(2, 2), real(3, 2, low=3, high=5)))
        for p in (1.0, 2.0, 3.0, float("inf"))
    },
    "lobpcg": (
        lambda a: torch.lobpcg(a + a.mT, k=1, X=torch.ones(4, 1, dtype=a.dtype), niter=100, tol=1e-12)[0],
        (real(4, 4),),
    ),
    "pdist": (F.pdist, (real(3, 2),)),
    "ctc_loss": (
        lambda x: F.ctc_loss(x.log_softmax(2), torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2])),
        (real(4, 1, 3),),
    ),
    "embedding_bag": (lambda w: F.embedding_bag(index(0, 2, 1), w, index(0, 2), mode="mean"), (real(3, 2),)),
    "embedding_bag weighted": (
        lambda w, s: F.embedding_bag(index(0, 2, 1), w, index(0, 2), mode="sum", per_sample_weights=s),
        many((3, 2), (3,)),
    ),
}


def _refilled(x, value):
    y = x * 1
    y[0].fill_(value)
    y[1].zero_()
    return y


def _turned(x):
    y = x * 1
    return y.squeeze_(1).transpose_(0, 1).unsqueeze_(0).squeeze_().t_()


def _assigned(x, value, where):
    y = x * 1
    y[where] = value * 2
    return y


@pytest.mark.parametrize("name", CASES)
def test_first_and_second_derivative(name):
    function, inputs = CASES[name]
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs, atol=1e-4)


@pytest.mark.parametrize("name", FIRST_ONLY)
def test_first_derivative(name):
    function, inputs = FIRST_ONLY[name]
    assert gradcheck(function, inputs)


@pytest.mark.parametrize("name", [n for n in FIRST_ONLY if "dist" in n])
def test_a_missing_second_derivative_is_an_error_and_not_zero(name):
    function, inputs = FIRST_ONLY[name]
    first = torch.autograd.grad(function(*inputs).sum(), inputs, create_graph=True)
    with pytest.raises(NotImplementedError, match="derivative"):
        first[0].sum().backward()


@pytest.mark.parametrize("name", ["add", "mul", "div", "exp", "sum", "mm", "softmax", "index"])
def test_derivatives_on_strided_inputs(name):
    """The same functions on transposed inputs: derivatives do not depend on the layout."""
    function, inputs = CASES[name]
    turned = tuple(x.detach().transpose(0, -1).contiguous().transpose(0, -1).requires_grad_() for x in inputs)
    assert gradcheck(function, turned)
    assert gradgradcheck(function, turned)


WITHOUT = {
    "flambeau.ops.nn.fake_quantize": "the derivative is not that of the steps; compared with PyTorch's in tests/quantization",
    "flambeau.ops.index.unique": "unique elements have no derivative: asking for it is an error",
    "flambeau.ops.random.sampling": "a random result cannot be compared with that of another call",
    "flambeau.ops.kinds.mkldnn": "gradients in oneDNN's layout are compared with PyTorch's in tests/ops/test_mkldnn.py",
    "flambeau.ops.sparse.conversion": "gradients of compressed tensors are compared with PyTorch's in tests/ops/test_compressed.py",
}


def families():
    """The modules of operators that have derivatives, with the names those derivatives have in a graph."""
    found = {}
    for op in OPS.values():
        impl = op.impl
        if isinstance(impl, Primitive) and impl.rules and op.kind != "random":
            module, labels = impl.fn.__module__, (impl.label,)
        elif isinstance(impl, Pointwise) and op.differentiable:
            module, labels = impl.formula.__module__, (impl.label,)
        elif isinstance(impl, Reduction) and op.differentiable:
            module, labels = impl.formula.__module__, impl.labels
        else:
            continue
        found.setdefault(module, set()).update(label for label in labels if isinstance(label, str))
    return found


def labels_of(result):
    """The names of all nodes behind a result."""
    names, known = set(), {}
    nodes = [x.grad_fn for x in (result if isinstance(result, tuple) else (result,))]
    while nodes:
        node = nodes.pop()
        if node is not None and id(node) not in known:
            known[id(node)] = node
            names.add(node.name())
            nodes += [following for following, _ in node.next_functions]
    return names


def test_every_family_of_operators_is_in_the_table():
    covered = set()
    for function, inputs in CASES.values():
        result = function(*inputs)
        outputs = tuple(x for x in (result if isinstance(result, tuple) else (result,)) if x.requires_grad)
        seeds = [torch.ones_like(x).requires_grad_() for x in outputs]
        gradients = torch.autograd.grad(outputs, inputs, seeds, create_graph=True, allow_unused=True)
        covered |= labels_of(outputs) | labels_of(tuple(g for g in gradients if g is not None))
    for function, inputs in FIRST_ONLY.values():
        covered |= labels_of(function(*inputs))
    missing = [module for module, labels in families().items() if module not in WITHOUT and not labels & covered]
    assert not missing, f"no derivative of these is checked; please add a case: {missing}"
