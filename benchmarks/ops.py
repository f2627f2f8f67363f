"""Flambeau against PyTorch over the everyday operators, in one interleaved run.

    python benchmarks/ops.py                       # needs torch==2.13.0 beside flambeau; a few minutes
    python benchmarks/ops.py --only 'norm|pool'    # the cases whose family or name matches

Each row is the ratio of medians, PyTorch's time over Flambeau's: larger is better for Flambeau. A case is an expression over
named operands, evaluated as a user would write it; with `grad=True` the backward pass is timed too.
"""

from __future__ import annotations

import argparse
import importlib
import re
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from eager import Case, duration, measure

Operand = Callable[[Any], Any]


def numbers(*shape: int, dtype: str = "float32") -> Operand:
    """Normally distributed numbers."""
    values = np.random.default_rng(len(shape)).standard_normal(shape, dtype=np.float32)
    return lambda lib: lib.from_numpy(values.copy()).to(getattr(lib, dtype))


def integers(high: int, *shape: int) -> Operand:
    values = np.random.default_rng(0).integers(0, high, shape)
    return lambda lib: lib.from_numpy(values.copy())


def mask(*shape: int) -> Operand:
    values = np.random.default_rng(0).random(shape) < 0.5
    return lambda lib: lib.from_numpy(values.copy())


def positive(*shape: int) -> Operand:
    """Symmetric positive definite matrices."""

    def make(lib: Any) -> Any:
        factor = numbers(*shape)(lib)
        return factor @ factor.mT / shape[-1] + lib.eye(shape[-1])

    return make


def probabilities(*shape: int) -> Operand:
    return lambda lib: lib.softmax(numbers(*shape)(lib), -1)


def channels_last(*shape: int) -> Operand:
    return lambda lib: numbers(*shape)(lib).contiguous(memory_format=lib.channels_last)


def transposed(*shape: int) -> Operand:
    return lambda lib: numbers(*shape)(lib).mT


def module(make: Callable[[Any], Any]) -> Operand:
    """A module of the library, made by `make(lib.nn)`."""
    return lambda lib: make(lib.nn)


def parameters(optimizer: str, **options: Any) -> Operand:
    """An optimizer over 100 parameters that have gradients."""

    def make(lib: Any) -> Any:
        params = [lib.nn.Parameter(t) for t in lib.ones(100, 64, 64).unbind()]
        for p in params:
            p.grad = lib.ones_like(p)
        return getattr(lib.optim, optimizer)(params, **options)

    return make


def deep_chain(lib: Any) -> Any:
    """100 small operations, to be followed by their backward pass."""

    def run(x: Any) -> Any:
        for _ in range(50):
            x = (x * 1.01).tanh()
        return x

    return run


def case(expression: str, grad: bool = False, **operands: Operand) -> Case:
    """Times `expression`, in which F is nn.functional and lib the library, and with `grad` the backward pass to all floats."""

    def make(lib: Any) -> Callable[[], Any]:
        values = {name: operand(lib) for name, operand in operands.items()}
        scope = values | {"lib": lib, "F": lib.nn.functional}
        run = eval("lambda: " + expression, scope)
        return with_backward(lib, run, list(values.values())) if grad else run

    return make


def with_backward(lib: Any, run: Callable[[], Any], values: list[Any]) -> Callable[[], Any]:
    leaves = [v.requires_grad_() for v in values if isinstance(v, lib.Tensor) and v.is_floating_point()]
    leaves += [p for v in values if isinstance(v, lib.nn.Module) for p in v.parameters()]
    seed = lib.ones_like(run())

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        run().backward(seed)

    return step


image = numbers(16, 64, 28, 28)
image_last = channels_last(16, 64, 28, 28)
tokens = numbers(8, 256, 256)
heads = numbers(4, 8, 256, 64)

FAMILIES: dict[str, dict[str, Case]] = {
    "pointwise": {
        "add 1000x1000": case("a + b", a=numbers(1000, 1000), b=numbers(1000, 1000)),
        "add 100x100": case("a + b", a=numbers(100, 100), b=numbers(100, 100)),
        "mul bfloat16": case("a * b", a=numbers(1000, 1000, dtype="bfloat16"), b=numbers(1000, 1000, dtype="bfloat16")),
        "add int64": case("a + b", a=integers(99, 1000, 1000), b=integers(99, 1000, 1000)),
        "floor divide int64": case("a // 7", a=integers(99, 1000, 1000)),
        "remainder int64": case("a % 7", a=integers(99, 1000, 1000)),
        "add row": case("a + b", a=numbers(1000, 1000), b=numbers(1000)),
        "add column": case("a + b", a=numbers(1000, 1000), b=numbers(1000, 1)),
        "outer product": case("a * b", a=numbers(1000, 1), b=numbers(1, 1000)),
        "add transposed": case("a + b", a=numbers(1000, 1000), b=transposed(1000, 1000)),
        "contiguous of transposed": case("a.contiguous()", a=transposed(1000, 1000)),
        "contiguous of permuted": case("a.permute(0, 2, 1, 3).contiguous()", a=numbers(8, 128, 8, 64)),
        "0-dim add": case("a + b", a=numbers(), b=numbers()),
        "0-dim times tensor": case("a * b", a=numbers(1000, 1000), b=numbers()),
        "compare": case("a > 0", a=numbers(1000, 1000)),
        "where": case("lib.where(m, a, 0.0)", m=mask(1000, 1000), a=numbers(1000, 1000)),
        "logical and": case("a & b", a=mask(1000, 1000), b=mask(1000, 1000)),
        "isnan": case("lib.isnan(a)", a=numbers(1000, 1000)),
        "clamp": case("a.clamp(-1, 1)", a=numbers(1000, 1000)),
        "exp": case("a.exp()", a=numbers(1000, 1000)),
        "log": case("(a * a).log()", a=numbers(1000, 1000)),
        "sin": case("a.sin()", a=numbers(1000, 1000)),
        "pow 2": case("a ** 2", a=numbers(1000, 1000)),
        "pow 2.5": case("a.abs() ** 2.5", a=numbers(300, 1000)),
        "rsqrt": case("(a * a).rsqrt()", a=numbers(1000, 1000)),
        "erf": case("a.erf()", a=numbers(1000, 1000)),
        "exp float64": case("a.exp()", a=numbers(300, 1000, dtype="float64")),
        "exp bfloat16": case("a.exp()", a=numbers(1000, 1000, dtype="bfloat16")),
        "to bfloat16": case("a.to(lib.bfloat16)", a=numbers(1000, 1000)),
        "int64 to float": case("a.float()", a=integers(99, 1000, 1000)),
        "add_ alpha": case("a.add_(b, alpha=1e-9)", a=numbers(1000, 1000), b=numbers(1000, 1000)),
        "lerp_": case("a.lerp_(b, 0.1)", a=numbers(1000, 1000), b=numbers(1000, 1000)),
        "addcmul": case("lib.addcmul(a, a, b)", a=numbers(1000, 1000), b=numbers(1000, 1000)),
        "clone": case("a.clone()", a=numbers(1000, 1000)),
    },
    "reductions": {
        "sum 0": case("a.sum(0)", a=numbers(1000, 1000)),
        "sum middle": case("a.sum(1)", a=numbers(32, 100, 200)),
        "sum (0, 2, 3)": case("a.sum((0, 2, 3))", a=image),
        "mean (2, 3)": case("a.mean((2, 3))", a=image),
        "mean -1": case("a.mean(-1)", a=tokens),
        "sum bfloat16": case("a.sum(-1)", a=numbers(1000, 1000, dtype="bfloat16")),
        "sum int64": case("a.sum()", a=integers(9, 1000, 1000)),
        "sum mask": case("a.sum()", a=mask(1000, 1000)),
        "max": case("a.max()", a=numbers(1000, 1000)),
        "max 1": case("a.max(1)", a=numbers(1000, 1000)),
        "max 0": case("a.max(0)", a=numbers(1000, 1000)),
        "argmax 1": case("a.argmax(1)", a=numbers(1000, 1000)),
        "argmax all": case("a.argmax()", a=numbers(1000, 1000)),
        "amax 1": case("a.amax(1)", a=numbers(1000, 1000)),
        "min int64": case("a.min()", a=integers(9, 1000, 1000)),
        "var 1": case("a.var(1)", a=numbers(1000, 1000)),
        "std": case("a.std()", a=numbers(1000, 1000)),
        "var_mean (0, 2, 3)": case("lib.var_mean(a, (0, 2, 3))", a=image),
        "norm": case("a.norm()", a=numbers(1000, 1000)),
        "vector_norm 1": case("lib.linalg.vector_norm(a, dim=1)", a=numbers(1000, 1000)),
        "logsumexp 1": case("a.logsumexp(1)", a=numbers(1000, 1000)),
        "prod 1": case("a.prod(1)", a=numbers(1000, 1000)),
        "any": case("a.any()", a=mask(1000, 1000)),
        "all 1": case("a.all(1)", a=mask(1000, 1000)),
        "count_nonzero": case("lib.count_nonzero(a)", a=numbers(1000, 1000)),
        "median 1": case("a.median(1)", a=numbers(1000, 100)),
        "quantile": case("a.quantile(0.9)", a=numbers(100_000)),
        "allclose": case("lib.allclose(a, a)", a=numbers(1000, 1000)),
    },
    "indexing": {
        "a[rows]": case("a[i]", a=numbers(10_000, 64), i=integers(10_000, 5000)),
        "a[rows, columns]": case("a[i, j]", a=numbers(1000, 1000), i=integers(1000, 9000), j=integers(1000, 9000)),
        "a[:, columns]": case("a[:, i]", a=numbers(1000, 500), i=integers(500, 300)),
        "a[rows] backward": case("a[i]", grad=True, a=numbers(10_000, 64), i=integers(10_000, 5000)),
        "a[rows] = b": case("a.__setitem__(i, b)", a=numbers(10_000, 64), i=integers(10_000, 5000), b=numbers(5000, 64)),
        "a[rows, columns] = 0": case("a.__setitem__((i, i), 0)", a=numbers(1000, 1000), i=integers(1000, 1000)),
        "a[1:-1, ::2] = b": case("a.__setitem__((slice(1, -1), slice(None, None, 2)), b)", a=numbers(1000, 1000), b=numbers(998, 500)),
        "index_put_ accumulate": case(
            "a.index_put_((i,), b, accumulate=True)", a=numbers(10_000, 64), i=integers(10_000, 5000), b=numbers(5000, 64)
        ),
        "a[mask]": case("a[m]", a=numbers(1000, 1000), m=mask(1000, 1000)),
        "a[mask] rows": case("a[m]", a=numbers(10_000, 64), m=mask(10_000)),
        "a[mask] = 0": case("a.__setitem__(m, 0)", a=numbers(1000, 1000), m=mask(1000, 1000)),
        "masked_fill": case("a.masked_fill(m, 0)", a=numbers(1000, 1000), m=mask(1000, 1000)),
        "masked_select": case("a.masked_select(m)", a=numbers(1000, 1000), m=mask(1000, 1000)),
        "nonzero": case("m.nonzero()", m=mask(500, 500)),
        "gather 1": case("a.gather(1, i)", a=numbers(1000, 1000), i=integers(1000, 1000, 100)),
        "scatter_ 1": case("a.scatter_(1, i, 1.0)", a=numbers(1000, 1000), i=integers(1000, 1000, 10)),
        "scatter_add_ 0": case("a.scatter_add_(0, i, b)", a=numbers(1000, 64), i=integers(1000, 5000, 64), b=numbers(5000, 64)),
        "index_add_": case("a.index_add_(0, i, b)", a=numbers(1000, 64), i=integers(1000, 5000), b=numbers(5000, 64)),
        "index_select 1": case("a.index_select(1, i)", a=numbers(1000, 500), i=integers(500, 300)),
        "take_along_dim": case("a.take_along_dim(i, 1)", a=numbers(1000, 1000), i=integers(1000, 1000, 10)),
        "one_hot": case("F.one_hot(i, 100)", i=integers(100, 1000)),
        "embedding": case("F.embedding(i, w)", i=integers(10_000, 32, 128), w=numbers(10_000, 128)),
        "embedding backward": case("F.embedding(i, w)", grad=True, i=integers(1000, 32, 128), w=numbers(1000, 128)),
    },
    "shapes": {
        "cat 0": case("lib.cat((a, b))", a=numbers(500, 1000), b=numbers(500, 1000)),
        "cat 1": case("lib.cat((a, b), 1)", a=image, b=image),
        "cat 1 backward": case("lib.cat((a, b), 1)", grad=True, a=image, b=image),
        "stack": case("lib.stack((a, a, a, a))", a=numbers(3, 224, 224)),
        "stack -1": case("lib.stack((a, a), -1)", a=numbers(500, 1000)),
        "split and cat": case("lib.cat(a.split(100, 1), 0)", a=numbers(1000, 300)),
        "chunk backward": case("lib.cat(a.chunk(3, -1), 0)", grad=True, a=numbers(256, 768)),
        "pad": case("F.pad(a, (1, 1, 1, 1))", a=image),
        "pad reflect": case("F.pad(a, (1, 1, 1, 1), mode='reflect')", a=image),
        "roll": case("a.roll((3, 3), (2, 3))", a=image),
        "flip": case("a.flip(-1)", a=image),
        "repeat": case("a.repeat(4, 1)", a=numbers(200, 1000)),
        "repeat_interleave": case("a.repeat_interleave(4, 0)", a=numbers(200, 1000)),
        "tril": case("a.tril()", a=numbers(1000, 1000)),
        "expand and add": case("a.expand(64, 64, 64) + 1", a=numbers(64, 1, 64)),
        "rot90": case("a.rot90(1, (2, 3))", a=image),
        "unfold": case("F.unfold(a, 3, padding=1)", a=numbers(4, 16, 28, 28)),
        "meshgrid": case("lib.stack(lib.meshgrid(a, b, indexing='ij'))", a=numbers(300), b=numbers(300)),
        "arange": case("lib.arange(100_000)"),
        "zeros": case("lib.zeros(1000, 1000)"),
        "full like": case("lib.full_like(a, 2.0)", a=numbers(1000, 1000)),
        "tensor of list": case("lib.tensor([[1.0, 2.0, 3.0]] * 100)"),
        "tolist": case("a.tolist()", a=numbers(100, 100)),
    },
    "ordering": {
        "sort rows": case("a.sort(1)", a=numbers(1000, 100)),
        "sort 100000": case("a.sort()", a=numbers(100_000)),
        "argsort int64": case("a.argsort()", a=integers(1000, 100_000)),
        "topk rows": case("a.topk(5, 1)", a=numbers(256, 1000)),
        "topk 50 of 50000": case("a.topk(50)", a=numbers(50_000)),
        "kthvalue": case("a.kthvalue(5, 1)", a=numbers(256, 1000)),
        "unique": case("a.unique()", a=integers(1000, 100_000)),
        "unique inverse": case("a.unique(return_inverse=True, return_counts=True)", a=integers(1000, 20_000)),
        "unique_consecutive": case("a.unique_consecutive()", a=integers(3, 100_000)),
        "searchsorted": case("lib.searchsorted(a.sort()[0], b)", a=numbers(1000), b=numbers(100_000)),
        "bucketize": case("lib.bucketize(b, a)", a=lambda lib: lib.linspace(-2, 2, 100), b=numbers(100_000)),
        "bincount": case("a.bincount()", a=integers(1000, 100_000)),
        "histc": case("a.histc(100)", a=numbers(100_000)),
        "cumsum 1": case("a.cumsum(1)", a=numbers(1000, 1000)),
        "cumsum 0": case("a.cumsum(0)", a=numbers(1000, 1000)),
        "cumprod": case("a.cumprod(1)", a=numbers(1000, 100)),
        "isin": case("lib.isin(a, b)", a=integers(1000, 20_000), b=integers(1000, 50)),
    },
    "norms": {
        "batch_norm train": case("m(x)", grad=True, m=module(lambda nn: nn.BatchNorm2d(64)), x=image),
        "batch_norm train channels_last": case("m(x)", grad=True, m=module(lambda nn: nn.BatchNorm2d(64)), x=image_last),
        "batch_norm eval": case("m(x)", m=module(lambda nn: nn.BatchNorm2d(64).eval()), x=image),
        "batch_norm 1d": case("m(x)", grad=True, m=module(lambda nn: nn.BatchNorm1d(256)), x=numbers(128, 256)),
        "group_norm": case("m(x)", grad=True, m=module(lambda nn: nn.GroupNorm(8, 64)), x=image),
        "group_norm channels_last": case("m(x)", grad=True, m=module(lambda nn: nn.GroupNorm(8, 64)), x=image_last),
        "instance_norm": case("F.instance_norm(x)", grad=True, x=image),
        "layer_norm": case("m(x)", grad=True, m=module(lambda nn: nn.LayerNorm(256)), x=tokens),
        "layer_norm bfloat16": case(
            "m(x)", grad=True, m=module(lambda nn: nn.LayerNorm(256).bfloat16()), x=numbers(8, 256, 256, dtype="bfloat16")
        ),
        "rms_norm": case("m(x)", grad=True, m=module(lambda nn: nn.RMSNorm(256)), x=tokens),
        "local_response_norm": case("F.local_response_norm(x, 5)", x=image),
        "normalize": case("F.normalize(x, dim=-1)", grad=True, x=tokens),
    },
    "activations": {
        name: case(expression, grad=True, x=tokens)
        for name, expression in {
            "relu": "F.relu(x)",
            "gelu": "F.gelu(x)",
            "gelu tanh": "F.gelu(x, approximate='tanh')",
            "silu": "F.silu(x)",
            "leaky_relu": "F.leaky_relu(x, 0.1)",
            "elu": "F.elu(x)",
            "hardswish": "F.hardswish(x)",
            "mish": "F.mish(x)",
            "softplus": "F.softplus(x)",
            "sigmoid": "x.sigmoid()",
            "tanh": "x.tanh()",
            "glu": "F.glu(x)",
            "softmax": "x.softmax(-1)",
            "softmax 1": "x.softmax(1)",
            "log_softmax": "x.log_softmax(-1)",
            "logsigmoid": "F.logsigmoid(x)",
        }.items()
    },
    "losses": {
        "cross_entropy": case("F.cross_entropy(x, t)", grad=True, x=numbers(256, 1000), t=integers(1000, 256)),
        "cross_entropy smoothing": case(
            "F.cross_entropy(x, t, label_smoothing=0.1)", grad=True, x=numbers(256, 1000), t=integers(1000, 256)
        ),
        "cross_entropy pixels": case("F.cross_entropy(x, t)", grad=True, x=numbers(4, 21, 64, 64), t=integers(21, 4, 64, 64)),
        "cross_entropy small": case("F.cross_entropy(x, t)", grad=True, x=numbers(64, 10), t=integers(10, 64)),
        "nll_loss": case("F.nll_loss(x, t)", grad=True, x=numbers(256, 1000), t=integers(1000, 256)),
        "bce_with_logits": case(
            "F.binary_cross_entropy_with_logits(x, t)", grad=True, x=numbers(256, 1000), t=probabilities(256, 1000)
        ),
        "bce": case("F.binary_cross_entropy(x.sigmoid(), t.detach())", grad=True, x=numbers(256, 1000), t=probabilities(256, 1000)),
        "mse_loss": case("F.mse_loss(x, t)", grad=True, x=numbers(256, 1000), t=numbers(256, 1000)),
        "l1_loss": case("F.l1_loss(x, t)", grad=True, x=numbers(256, 1000), t=numbers(256, 1000)),
        "smooth_l1_loss": case("F.smooth_l1_loss(x, t)", grad=True, x=numbers(256, 1000), t=numbers(256, 1000)),
        "huber_loss": case("F.huber_loss(x, t)", grad=True, x=numbers(256, 1000), t=numbers(256, 1000)),
        "kl_div": case(
            "F.kl_div(x, t, reduction='batchmean')", grad=True, x=numbers(256, 1000), t=probabilities(256, 1000)
        ),
        "cosine_similarity": case("F.cosine_similarity(x, t)", grad=True, x=numbers(256, 1000), t=numbers(256, 1000)),
        "triplet_margin_loss": case("F.triplet_margin_loss(x, y, z)", grad=True, x=numbers(256, 128), y=numbers(256, 128), z=numbers(256, 128)),
        "ctc_loss": case(
            "F.ctc_loss(x.log_softmax(-1), t, n, k)",
            grad=True,
            x=numbers(50, 16, 20),
            t=lambda lib: integers(19, 16, 15)(lib) + 1,
            n=lambda lib: lib.full((16,), 50, dtype=lib.long),
            k=lambda lib: lib.full((16,), 15, dtype=lib.long),
        ),
    },
    "convolutions": {
        "conv1d": case("F.conv1d(x, w, padding=1)", grad=True, x=numbers(16, 64, 256), w=numbers(64, 64, 3)),
        "1x1": case("F.conv2d(x, w)", grad=True, x=image, w=numbers(128, 64, 1, 1)),
        "1x1 channels_last": case("F.conv2d(x, w)", grad=True, x=image_last, w=numbers(128, 64, 1, 1)),
        "3x3": case("F.conv2d(x, w, b, padding=1)", x=image, w=numbers(64, 64, 3, 3), b=numbers(64)),
        "3x3 channels_last": case("F.conv2d(x, w, b, padding=1)", grad=True, x=image_last, w=channels_last(64, 64, 3, 3), b=numbers(64)),
        "3x3 stride 2": case("F.conv2d(x, w, stride=2, padding=1)", grad=True, x=image, w=numbers(64, 64, 3, 3)),
        "7x7 stem": case("F.conv2d(x, w, stride=2, padding=3)", grad=True, x=numbers(4, 3, 112, 112), w=numbers(64, 3, 7, 7)),
        "depthwise": case("F.conv2d(x, w, padding=1, groups=64)", grad=True, x=image, w=numbers(64, 1, 3, 3)),
        "depthwise 7x7": case("F.conv2d(x, w, padding=3, groups=64)", x=image, w=numbers(64, 1, 7, 7)),
        "groups": case("F.conv2d(x, w, padding=1, groups=4)", grad=True, x=image, w=numbers(64, 16, 3, 3)),
        "dilated": case("F.conv2d(x, w, padding=2, dilation=2)", x=image, w=numbers(64, 64, 3, 3)),
        "small": case("F.conv2d(x, w, b)", grad=True, x=numbers(8, 1, 28, 28), w=numbers(6, 1, 5, 5), b=numbers(6)),
        "transposed": case("F.conv_transpose2d(x, w, stride=2)", grad=True, x=image, w=numbers(64, 32, 2, 2)),
        "conv3d": case("F.conv3d(x, w, padding=1)", grad=True, x=numbers(2, 16, 8, 28, 28), w=numbers(32, 16, 3, 3, 3)),
    },
    "pooling and sampling": {
        "max_pool2d": case("F.max_pool2d(x, 2)", grad=True, x=image),
        "max_pool2d 3 stride 2": case("F.max_pool2d(x, 3, 2, 1)", grad=True, x=image),
        "max_pool2d channels_last": case("F.max_pool2d(x, 2)", grad=True, x=image_last),
        "avg_pool2d": case("F.avg_pool2d(x, 2)", grad=True, x=image),
        "avg_pool2d channels_last": case("F.avg_pool2d(x, 2)", grad=True, x=image_last),
        "adaptive_avg_pool2d 1": case("F.adaptive_avg_pool2d(x, 1)", grad=True, x=image),
        "adaptive_avg_pool2d 7": case("F.adaptive_avg_pool2d(x, 7)", grad=True, x=image),
        "adaptive_max_pool2d 1": case("F.adaptive_max_pool2d(x, 1)", grad=True, x=image),
        "max_pool1d": case("F.max_pool1d(x, 2)", grad=True, x=tokens),
        "max_pool3d": case("F.max_pool3d(x, 2)", grad=True, x=numbers(2, 16, 8, 28, 28)),
        "nearest": case("F.interpolate(x, scale_factor=2)", grad=True, x=image),
        "bilinear": case("F.interpolate(x, scale_factor=2, mode='bilinear')", grad=True, x=image),
        "bilinear channels_last": case("F.interpolate(x, scale_factor=2, mode='bilinear')", grad=True, x=image_last),
        "bicubic": case("F.interpolate(x, size=(40, 40), mode='bicubic')", grad=True, x=image),
        "bilinear antialias": case("F.interpolate(x, size=14, mode='bilinear', antialias=True)", grad=True, x=image),
        "grid_sample": case("F.grid_sample(x, g, align_corners=False)", grad=True, x=image, g=numbers(16, 28, 28, 2)),
        "pixel_shuffle": case("F.pixel_shuffle(x, 2)", grad=True, x=image),
    },
    "products": {
        "linear 64": case("F.linear(x, w, b)", x=numbers(8, 64), w=numbers(64, 64), b=numbers(64)),
        "linear 64 backward": case("F.linear(x, w, b)", grad=True, x=numbers(8, 64), w=numbers(64, 64), b=numbers(64)),
        "linear 1024": case("F.linear(x, w, b)", grad=True, x=numbers(256, 1024), w=numbers(1024, 1024), b=numbers(1024)),
        "linear 3d": case("F.linear(x, w, b)", grad=True, x=tokens, w=numbers(768, 256), b=numbers(768)),
        "linear one row": case("F.linear(x, w, b)", x=numbers(1, 1024), w=numbers(1024, 1024), b=numbers(1024)),
        "linear bfloat16": case(
            "F.linear(x, w)", x=numbers(256, 512, dtype="bfloat16"), w=numbers(512, 512, dtype="bfloat16")
        ),
        "mv": case("a @ b", a=numbers(1000, 1000), b=numbers(1000)),
        "dot": case("a @ b", a=numbers(100_000), b=numbers(100_000)),
        "mm int64": case("a @ b", a=integers(9, 128, 128), b=integers(9, 128, 128)),
        "mm float64": case("a @ b", a=numbers(256, 256, dtype="float64"), b=numbers(256, 256, dtype="float64")),
        "bmm": case("a @ b", grad=True, a=numbers(64, 64, 64), b=numbers(64, 64, 64)),
        "bmm small": case("a @ b", a=numbers(256, 4, 4), b=numbers(256, 4, 4)),
        "baddbmm": case("lib.baddbmm(c, a, b)", a=numbers(64, 64, 64), b=numbers(64, 64, 64), c=numbers(64, 64, 64)),
        "matmul transposed": case("a @ b", a=transposed(512, 512), b=numbers(512, 512)),
        "einsum bij,bjk": case("lib.einsum('bij,bjk->bik', a, b)", a=numbers(64, 64, 64), b=numbers(64, 64, 64)),
        "einsum heads": case("lib.einsum('bqhd,bkhd->bhqk', a, a)", a=numbers(4, 128, 8, 64)),
        "cdist": case("lib.cdist(a, a)", a=numbers(500, 64)),
        "sdpa": case("F.scaled_dot_product_attention(q, k, v)", grad=True, q=heads, k=heads, v=heads),
        "sdpa causal": case("F.scaled_dot_product_attention(q, k, v, is_causal=True)", grad=True, q=heads, k=heads, v=heads),
        "sdpa mask": case(
            "F.scaled_dot_product_attention(q, k, v, attn_mask=m)", grad=True, q=heads, k=heads, v=heads, m=mask(256, 256)
        ),
        "multi-head attention": case(
            "m(x, x, x)[0]", grad=True, m=module(lambda nn: nn.MultiheadAttention(256, 8, batch_first=True)), x=tokens
        ),
        "lstm": case("m(x)[0]", grad=True, m=module(lambda nn: nn.LSTM(64, 128)), x=numbers(32, 16, 64)),
        "gru": case("m(x)[0]", grad=True, m=module(lambda nn: nn.GRU(64, 128)), x=numbers(32, 16, 64)),
        "lstm no grad": case("m(x.detach())[0]", m=module(lambda nn: nn.LSTM(64, 128)), x=numbers(32, 16, 64)),
        "fft": case("lib.fft.fft(a)", a=numbers(100, 1024)),
        "rfft2": case("lib.fft.rfft2(a)", a=numbers(16, 128, 128)),
    },
    "linalg": {
        name: case(expression, a=positive(*shape), b=numbers(*shape))
        for name, expression, shape in [
            ("solve 64", "lib.linalg.solve(a, b)", (64, 64)),
            ("solve 512", "lib.linalg.solve(a, b)", (512, 512)),
            ("solve 100 of 8", "lib.linalg.solve(a, b)", (100, 8, 8)),
            ("cholesky 64", "lib.linalg.cholesky(a)", (64, 64)),
            ("cholesky 512", "lib.linalg.cholesky(a)", (512, 512)),
            ("cholesky 100 of 8", "lib.linalg.cholesky(a)", (100, 8, 8)),
            ("inv 64", "lib.linalg.inv(a)", (64, 64)),
            ("inv 512", "lib.linalg.inv(a)", (512, 512)),
            ("inv 100 of 4", "lib.linalg.inv(a)", (100, 4, 4)),
            ("svd 64", "lib.linalg.svd(b)", (64, 64)),
            ("svd 256", "lib.linalg.svd(b)", (256, 256)),
            ("svdvals 256", "lib.linalg.svdvals(b)", (256, 256)),
            ("eigh 64", "lib.linalg.eigh(a)", (64, 64)),
            ("eigh 256", "lib.linalg.eigh(a)", (256, 256)),
            ("eig 64", "lib.linalg.eig(b)", (64, 64)),
            ("qr 64", "lib.linalg.qr(b)", (64, 64)),
            ("qr 512", "lib.linalg.qr(b)", (512, 512)),
            ("det 64", "lib.linalg.det(a)", (64, 64)),
            ("slogdet 100 of 8", "lib.linalg.slogdet(a)", (100, 8, 8)),
            ("lu_factor 512", "lib.linalg.lu_factor(a)", (512, 512)),
            ("pinv 128", "lib.linalg.pinv(b)", (128, 128)),
            ("lstsq 128", "lib.linalg.lstsq(a, b)", (128, 128)),
            ("solve_triangular 512", "lib.linalg.solve_triangular(a, b, upper=True)", (512, 512)),
            ("matrix_exp 64", "lib.linalg.matrix_exp(a)", (64, 64)),
        ]
    },
    "random": {
        "rand": case("lib.rand(1000, 1000)"),
        "randn": case("lib.randn(1000, 1000)"),
        "randn 10": case("lib.randn(10)"),
        "randint": case("lib.randint(0, 100, (1000, 1000))"),
        "randperm": case("lib.randperm(10_000)"),
        "normal_": case("a.normal_(0, 0.02)", a=numbers(1000, 1000)),
        "uniform_": case("a.uniform_(-1, 1)", a=numbers(1000, 1000)),
        "bernoulli": case("lib.bernoulli(a)", a=probabilities(1000, 1000)),
        "exponential_": case("a.exponential_()", a=numbers(1000, 1000)),
        "multinomial": case("lib.multinomial(a, 1)", a=probabilities(64, 1000)),
        "multinomial replacement": case("lib.multinomial(a, 100, replacement=True)", a=probabilities(64, 1000)),
        "poisson": case("lib.poisson(a)", a=lambda lib: lib.full((100_000,), 4.0)),
        "dropout": case("F.dropout(x, 0.1)", grad=True, x=tokens),
        "trunc_normal_": case("lib.nn.init.trunc_normal_(a, std=0.02)", a=numbers(300, 1000)),
        "kaiming_uniform_": case("lib.nn.init.kaiming_uniform_(a)", a=numbers(300, 1000)),
    },
    "training": {
        "SGD": case("o.step()", o=parameters("SGD", lr=1e-6)),
        "SGD momentum": case("o.step()", o=parameters("SGD", lr=1e-6, momentum=0.9)),
        "Adam": case("o.step()", o=parameters("Adam", lr=1e-6)),
        "AdamW": case("o.step()", o=parameters("AdamW", lr=1e-6)),
        "RMSprop": case("o.step()", o=parameters("RMSprop", lr=1e-6)),
        "clip_grad_norm_": case(
            "lib.nn.utils.clip_grad_norm_(o.param_groups[0]['params'], 1.0)", o=parameters("SGD", lr=1e-6)
        ),
        "zero_grad": case("o.zero_grad()", o=parameters("SGD", lr=1e-6)),
        "100 small operations": case("run(x)", grad=True, run=deep_chain, x=numbers(16)),
        "small MLP": case(
            "m(x)", grad=True, m=module(lambda nn: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))), x=numbers(8, 16)
        ),
    },
    "small calls": {
        expression: case(expression, x=numbers(4, 8), y=numbers(4, 8), i=integers(4, 3), m=mask(4, 8))
        for expression in (
            "x + y", "x * 2", "x.add_(0.0)", "x @ y.T", "x.view(8, 4)", "x.reshape(-1)", "x.permute(1, 0)", "x.t()",
            "x.unsqueeze(0)", "x.flatten()", "x[0]", "x[:, 1:3]", "x[..., None]", "x[i]", "x[m]", "x[0, 0].item()",
            "x.to(lib.float64)", "x.to('cpu')", "x.float()", "x.clone()", "x.detach()", "x.contiguous()", "x.sum()",
            "x.mean(-1, keepdim=True)", "x.max(1)", "x.argmax(-1)", "x.softmax(-1)", "x.expand(2, 4, 8)",
            "x.split(2)", "x.chunk(2, 1)", "lib.cat((x, y))", "lib.stack((x, y))", "x.tolist()", "x.zero_()",
            "x.copy_(y)", "x.size(0)", "x.shape", "lib.zeros(4, 8)", "lib.ones_like(x)", "lib.arange(8)",
            "lib.tensor([1.0, 2.0])", "lib.tensor(3)", "x == y", "(x == y).all()", "lib.equal(x, y)",
            "x.masked_fill(m, 0.0)", "x.transpose(0, 1)", "x.numpy()", "F.relu(x)", "x.pow(2)",
        )
    },
}  # fmt: skip


def report(results: dict[str, list[float]]) -> str:
    """All cases, slowest against PyTorch first, then a geometric mean per family."""
    ratios = {name: theirs / ours for name, (theirs, ours) in results.items()}
    lines = ["| operation | PyTorch | Flambeau | ratio |", "| --- | --: | --: | --: |"]
    for name in sorted(ratios, key=lambda n: ratios[n]):
        theirs, ours = results[name]
        lines.append(f"| {name} | {duration(theirs)} | {duration(ours)} | {ratios[name]:.2f} |")
    lines += ["", "| family | cases | geometric mean | under 0.8 |", "| --- | --: | --: | --: |"]
    groups = {family: [r for n, r in ratios.items() if n.startswith(family + ": ")] for family in FAMILIES}
    for family, found in (groups | {"all": list(ratios.values())}).items():
        if found:
            mean, low = statistics.geometric_mean(found), sum(r < 0.8 for r in found)
            lines.append(f"| {family} | {len(found)} | {mean:.2f} | {low} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression over 'family: name'")
    parser.add_argument("--seconds", type=float, default=0.5, help="time per case")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    libraries = [importlib.import_module(name) for name in ("torch", "flambeau")]
    for lib in libraries:
        lib.set_num_threads(options.threads)
    named = {f"{family}: {name}": run for family, cases in FAMILIES.items() for name, run in cases.items()}
    print(
        report(measure(libraries, {n: run for n, run in named.items() if re.search(options.only, n)}, options.seconds))
    )


if __name__ == "__main__":
    main()
