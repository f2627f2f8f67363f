"""TorchDispatchMode sees programs as PyTorch's operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau
from flambeau import nn
from flambeau.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode,
    is_traceable_wrapper_subclass,
)


class Log(TorchDispatchMode):
    def __init__(self):
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_layers_are_seen_as_what_pytorch_makes_of_them():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3))
    x = flambeau.ones(1, 1, 8, 8)
    expected = model(x)
    with Log() as log:
        assert _get_current_dispatch_mode() is log
        found = model(x)
        with _disable_current_modes():
            flambeau.zeros(1)
    assert _get_current_dispatch_mode() is None
    assert log.seen == [
        "aten.convolution.default", "aten.relu.default", "aten.max_pool2d_with_indices.default", "aten.view.default",
        "aten.t.default", "aten.addmm.default",
    ]  # fmt: skip
    flambeau.testing.assert_close(found, expected)


def test_gradients_are_seen_and_right():
    model = nn.Linear(3, 2)
    x = flambeau.randn(4, 3)
    model(x).sum().backward()
    expected, model.weight.grad = model.weight.grad, None
    with Log() as log:
        model(x).sum().backward()
    assert "aten.mm.default" in log.seen
    flambeau.testing.assert_close(model.weight.grad, expected)


def test_results_can_be_changed_and_modes_nest():
    class Double(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return result * 2 if func is flambeau.ops.aten.exp.default else result

    with Log() as outer, Double():
        y = flambeau.zeros(2).exp()
    assert y.tolist() == [2, 2]
    assert outer.seen == ["aten.zeros.default", "aten.exp.default", "aten.mul.Tensor"]
    assert not is_traceable_wrapper_subclass(y)


F = nn.functional
_IMAGE, _ROWS = (2, 4, 6, 6), (3, 4)
BACKWARD = {  # the call, shapes of its arguments, and PyTorch 2.13's operator for the gradient
    "convolution_backward": (lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1, groups=2), (_IMAGE, (2, 2, 3, 3), (2,))),
    "threshold_backward": (F.relu, (_ROWS,)), "tanh_backward": (flambeau.tanh, (_ROWS,)),
    "sigmoid_backward": (flambeau.sigmoid, (_ROWS,)), "gelu_backward": (F.gelu, (_ROWS,)), "silu_backward": (F.silu, (_ROWS,)),
    "leaky_relu_backward": (lambda x: F.leaky_relu(x, 0.3), (_ROWS,)), "elu_backward": (lambda x: F.elu(x, 0.7), (_ROWS,)),
    "hardswish_backward": (F.hardswish, (_ROWS,)), "softplus_backward": (lambda x: F.softplus(x, 2.0), (_ROWS,)),
}  # fmt: skip


@pytest.mark.parametrize("seen_forward", [False, True])
@pytest.mark.parametrize("name", BACKWARD)
def test_gradients_have_pytorchs_names(name, seen_forward):
    function, shapes = BACKWARD[name]
    generator = flambeau.Generator().manual_seed(1)
    given = [flambeau.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    weights = flambeau.randn(function(*given).shape, generator=generator)
    expected = flambeau.autograd.grad(function(*given), given, weights)
    with Log() as log:
        result = function(*given) if seen_forward else log.unseen(function, *given)
        found = flambeau.autograd.grad(result, given, weights)
    assert f"aten.{name}.default" in log.seen
    assert not [seen for seen in log.seen if not seen.startswith("aten.")]
    flambeau.testing.assert_close(found, expected)


def programs(torch: Any) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """One program of each family whose gradients PyTorch 2.13 computes by operators of their own, and its arguments."""
    f = torch.nn.functional

    def r(*shape: int) -> Any:
        return torch.from_numpy(
            np.sin(1.7 * np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
        ).requires_grad_()

    classes, pixels, mask = torch.tensor([0, 2, 1]), torch.zeros(2, 6, 6, dtype=torch.int64), torch.zeros(5, 5)
    starts = torch.tensor([0, 2, 3])
    signs, shares = r(3, 4).detach().sign(), r(3, 4).detach().sigmoid()
    image, row, volume, attended = (
        r(2, 4, 6, 6),
        r(2, 4, 6),
        r(2, 4, 4, 4, 4),
        (r(2, 2, 5, 8), r(2, 2, 5, 8), r(2, 2, 5, 8)),
    )
    pairs, channels = (r(3, 4), r(3, 4).detach().cos().requires_grad_()), (r(4), r(4))
    return {
        "layer_norm": (lambda x, w, b: f.layer_norm(x, [4], w, b), (r(3, 4), *channels)),
        "layer_norm without weights": (lambda x: f.layer_norm(x, [4]), (r(3, 4),)),
        "batch_norm": (lambda x, w, b: f.batch_norm(x, None, None, w, b, training=True), (image, *channels)),
        "instance_norm": (lambda x: f.instance_norm(x), (image,)),
        "group_norm": (lambda x, w, b: f.group_norm(x, 2, w, b), (image, *channels)),
        "attention": (f.scaled_dot_product_attention, attended),
        "causal attention": (lambda *t: f.scaled_dot_product_attention(*t, is_causal=True), attended),
        "masked attention": (lambda *t: f.scaled_dot_product_attention(*t, attn_mask=mask), attended),
        "max_pool2d": (lambda x: f.max_pool2d(x, 2), (image,)),
        "max_pool3d": (lambda x: f.max_pool3d(x, 2), (volume,)),
        "avg_pool2d": (lambda x: f.avg_pool2d(x, 3, 2, 1), (image,)),
        "avg_pool3d": (lambda x: f.avg_pool3d(x, 2), (volume,)),
        "adaptive_avg_pool2d": (lambda x: f.adaptive_avg_pool2d(x, 4), (image,)),
        "adaptive_avg_pool3d": (lambda x: f.adaptive_avg_pool3d(x, 3), (volume,)),
        "adaptive_max_pool2d": (lambda x: f.adaptive_max_pool2d(x, 4), (image,)),
        "adaptive_max_pool3d": (lambda x: f.adaptive_max_pool3d(x, 3), (volume,)),
        "mse_loss": (f.mse_loss, pairs),
        "mse_loss of elements": (lambda x, y: f.mse_loss(x, y, reduction="none"), pairs),
        "smooth_l1_loss": (lambda x, y: f.smooth_l1_loss(x, y, beta=0.5), pairs),
        "huber_loss": (lambda x, y: f.huber_loss(x, y, reduction="sum"), pairs),
        "binary_cross_entropy": (lambda x: f.binary_cross_entropy(x.sigmoid(), shares), (r(3, 4),)),
        "soft_margin_loss": (lambda x: f.soft_margin_loss(x, signs), (r(3, 4),)),
        "nll_loss": (lambda x: f.nll_loss(x, classes), (r(3, 4),)),
        "nll_loss of pixels": (lambda x: f.nll_loss(x, pixels), (image,)),
        "cross_entropy": (lambda x: f.cross_entropy(x, classes), (r(3, 4),)),
        "softmax": (lambda x: f.softmax(x, 1), (r(3, 4),)),
        "log_softmax": (lambda x: f.log_softmax(x, 1), (r(3, 4),)),
        "embedding": (lambda w: f.embedding(classes, w), (r(5, 4),)),
        "embedding_bag of maxima": (lambda w: f.embedding_bag(classes, w, starts, mode="max", padding_idx=-1), (r(3, 4),)),
        "embedding_bag with weights": (
            lambda w, s: f.embedding_bag(classes, w, starts, mode="sum", per_sample_weights=s, include_last_offset=True), (r(3, 4), r(3)),
        ),
        **{
            f"interpolate {mode}": (lambda x, m=mode: f.interpolate(x, size=9, mode=m), (image,))
            for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")
        },
        "interpolate linear": (lambda x: f.interpolate(x, size=9, mode="linear"), (row,)),
        "interpolate trilinear": (lambda x: f.interpolate(x, scale_factor=2.0, mode="trilinear"), (volume,)),
        "interpolate antialias": (lambda x: f.interpolate(x, size=4, mode="bilinear", antialias=True), (image,)),
        "grid_sample": (lambda x, g: f.grid_sample(x, g, align_corners=False), (image, r(2, 3, 3, 2))),
        "reflection": (lambda x: f.pad(x, [1, 1, 1, 1], mode="reflect"), (image,)),
        "replication": (lambda x: f.pad(x, [1, 1, 1, 1], mode="replicate"), (image,)),
        "glu": (lambda x: f.glu(x), (r(3, 4),)),
        "slice": (lambda x: x[1:, ::2], (r(3, 4),)),
        "select": (lambda x: x[:, -1], (r(3, 4),)),
        "diagonal": (lambda x: x.diagonal(), (r(3, 4),)),
        **{name: (getattr(torch, name), (r(3, 4),)) for name in ("abs", "atan", "deg2rad", "log1p", "expm1")},
        "ceil": (lambda x: torch.ceil(x) * x, (r(3, 4),)),
        "where": (lambda x, y: torch.where(signs > 0, x, y), pairs),
        "lerp": (lambda x, y: torch.lerp(x, y, 0.25), pairs),
        "overwritten": (lambda x: torch.fill(x, 2.0) + x, (r(3, 4),)),
    }  # fmt: skip


def seen_by(torch: Any, mode: Any, name: str) -> tuple[list[str], list[Any]]:
    """Return the operators that a mode sees while a program and its gradients are computed, and the gradients."""
    seen: list[str] = []

    class Seen(mode):
        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    function, given = programs(torch)[name]
    slope = torch.ones_like(function(*given)).cumsum(-1) if function(*given).dim() else torch.tensor(2.0)
    with Seen():
        found = torch.autograd.grad(function(*given), given, slope)
    # which tensors are detached for the backward pass, or made for it beforehand, is PyTorch's own affair
    return [s for s in seen if s not in ("aten.detach.default", "aten.empty.memory_format")], [
        g.tolist() for g in found
    ]


@pytest.mark.parametrize("name", programs(flambeau))
def test_forward_and_backward_are_pytorchs_operators(name):
    torch, theirs = judge("torch"), judge("torch.utils._python_dispatch").TorchDispatchMode
    (names, gradients), (expected, wanted) = seen_by(flambeau, TorchDispatchMode, name), seen_by(torch, theirs, name)
    assert names == expected
    for found, right in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    "name", [n for n in programs(flambeau) if "embedding_bag" not in n]
)  # whose gradient has no derivative
def test_second_derivatives_are_those_without_a_mode(name):
    function, given = programs(flambeau)[name]

    def second():
        gradients = flambeau.autograd.grad(function(*given).sin().sum(), given, create_graph=True)
        return flambeau.autograd.grad(sum(g.cos().sum() for g in gradients), given)

    expected = second()
    with Log():
        flambeau.testing.assert_close(second(), expected, rtol=1e-4, atol=1e-5)


def recorded_outside(torch: Any) -> dict[str, tuple[Any, Any]]:
    """Programs whose gradients have operators of their own, each with its arguments."""
    f = torch.nn.functional

    def r(*shape: int) -> Any:
        values = torch.from_numpy(np.sin(1.7 * np.arange(np.prod(shape), dtype=np.float64).reshape(shape) + 0.3))
        return values.requires_grad_()

    labels = torch.tensor([1, 0, 2, 3])
    bags, starts = torch.tensor([1, 0, 2, 2, 4, 1, 0]), torch.tensor([0, 2, 5])
    grid, image, volume = torch.tanh(r(2, 3, 4, 2).detach()).requires_grad_(), r(2, 4, 5, 6), r(1, 2, 4, 3, 5)
    programs = {
        **{f"avg_pool2d {k}": (lambda x, k=k: f.avg_pool2d(x, *k), image) for k in ((2,), (3, 2, 1, True, False), ((2, 3), 2, 0, True, True, 5))},
        "avg_pool3d": (lambda x: f.avg_pool3d(x, 2, 1, 1, divisor_override=3), volume),
        "adaptive_avg_pool1d": (lambda x: f.adaptive_avg_pool1d(x, 3), r(2, 3, 7)),
        "adaptive_avg_pool3d": (lambda x: f.adaptive_avg_pool3d(x, (2, 3, 2)), volume),
        **{f"max_pool2d {k}": (lambda x, k=k: f.max_pool2d(x, *k), image) for k in ((2,), (3, 2, 1, 2, True), ((2, 3), 1))},
        "max_pool1d": (lambda x: f.max_pool1d(x, 3, 2, 1), r(2, 3, 7)),
        "max_pool3d": (lambda x: f.max_pool3d(x, 2), volume),
        "adaptive_max_pool2d": (lambda x: f.adaptive_max_pool2d(x, (2, 3)), image),
        "fractional_max_pool2d": (lambda x: f.fractional_max_pool2d(x, 2, (2, 3), _random_samples=torch.full((2, 4, 2), 0.3, dtype=torch.float64)), image),
        "max_unpool2d": (lambda x: f.max_unpool2d(x, torch.tensor([[[0, 3], [5, 14]]]), 2), r(1, 2, 2)),
        **{f"{mode} pad": (lambda x, m=mode: f.pad(x, (1, 2, 2, 1), m), image) for mode in ("reflect", "replicate", "circular")},
        "circular pad of less": (lambda x: f.pad(x, (-1, 2, 1, -2), "circular"), image),
        **{f"{mode} {size}": (lambda x, m=mode, s=size: f.interpolate(x, s, None if s else 1.7, m), x) for size in ((3,), None) for mode, x in (("nearest", r(2, 3, 7)), ("nearest-exact", r(2, 3, 7)), ("linear", r(2, 3, 7)))},
        **{f"{mode} {corners}": (lambda x, m=mode, c=corners: f.interpolate(x, scale_factor=(1.5, 0.8), mode=m, align_corners=c), image) for mode in ("bilinear", "bicubic") for corners in (False, True)},
        **{f"{mode} antialias": (lambda x, m=mode: f.interpolate(x, (3, 4), mode=m, antialias=True), image) for mode in ("bilinear", "bicubic")},
        "trilinear": (lambda x: f.interpolate(x, (3, 4, 2), mode="trilinear"), volume),
        "conv_transpose2d": (lambda x, w, b: f.conv_transpose2d(x, w, b, 2, 1, 1, 2), image, r(4, 3, 3, 3), r(6)),
        "conv_transpose1d of a weight": (lambda w: f.conv_transpose1d(r(1, 2, 5).detach(), w, stride=3, dilation=2), r(2, 3, 2)),
        "batch_norm": (lambda x, w, b: f.batch_norm(x, None, None, w, b, True), image, r(4), r(4)),
        "batch_norm in evaluation": (lambda x, w: f.batch_norm(x, torch.ones(4, dtype=torch.float64), torch.full((4,), 0.5, dtype=torch.float64), w), image, r(4)),
        "group_norm": (lambda x, w, b: f.group_norm(x, 2, w, b), image, r(4), r(4)),
        **{f"grid_sample {m}": (lambda x, g, m=m: f.grid_sample(x, g, m, "border", False), image, grid) for m in ("bilinear", "nearest", "bicubic")},
        **{f"cross_entropy {list(k)}": (lambda x, k=k: f.cross_entropy(x, labels, **k), r(4, 5)) for k in ({}, {"reduction": "sum", "ignore_index": 2}, {"reduction": "none", "weight": r(5).detach() + 2}, {"label_smoothing": 0.2, "ignore_index": 0})},
        "cross_entropy of planes": (lambda x: f.cross_entropy(x, labels.reshape(2, 2), label_smoothing=0.1, reduction="none"), r(2, 5, 2)),
        "nll_loss of rows of planes": (lambda x: f.nll_loss(x, labels.reshape(2, 2), reduction="none"), r(2, 5, 2)),
        **{f"embedding_bag {k}": (lambda w, k=k: f.embedding_bag(bags, w, starts, mode=k), r(5, 3)) for k in ("sum", "mean", "max")},
        "embedding_bag with weights": (lambda w, s: f.embedding_bag(bags, w, starts, mode="sum", per_sample_weights=s, scale_grad_by_freq=True), r(5, 3), r(7)),
        "attention": (lambda q, k, v: f.scaled_dot_product_attention(q, k, v, scale=0.7), r(2, 3, 4), r(2, 5, 4), r(2, 5, 3)),
    }  # fmt: skip
    return {name: (function, given) for name, (function, *given) in programs.items()}


@pytest.mark.parametrize("name", recorded_outside(flambeau))
def test_gradients_recorded_outside_a_mode_are_pytorchs_operators(name):
    function, given = recorded_outside(flambeau)[name]
    expected = flambeau.autograd.grad(function(*given).sin().sum(), given)
    before = function(*given).sin().sum()
    with Log() as log:
        found = flambeau.autograd.grad(before, given)
    assert [n for n in log.seen if not n.startswith("aten.")] == []
    flambeau.testing.assert_close(found, expected)


def parts(torch: Any) -> dict[str, tuple[Any, Any]]:
    """Programs whose parts are operators of PyTorch, each with its argument; the order of steps in gradients may be another."""
    f, linalg, fft = torch.nn.functional, torch.linalg, torch.fft

    def r(*shape: int) -> Any:
        return torch.from_numpy(np.sin(1.7 * np.arange(np.prod(shape), dtype=np.float64).reshape(shape) + 0.3))

    square, signal = r(3, 3) + 3 * torch.eye(3, dtype=torch.float64), r(4, 6)
    symmetric = square @ square.T
    scores, several = r(3, 4), torch.tensor([[1, 2, -1, 0], [0, -1, 1, 1], [3, 2, 1, 0]])
    return {
        **{name: (lambda x, n=name: getattr(fft, n)(x).abs(), signal) for name in ("fft", "ifft", "fftn", "rfft", "rfft2", "ihfft")},
        **{name: (lambda x, n=name: getattr(fft, n)(x, norm="ortho").abs(), signal) for name in ("irfft", "hfft", "irfft2", "hfft2")},
        **{name: (getattr(linalg, name), square) for name in ("det", "inv", "svdvals", "pinv")},
        **{name: (getattr(linalg, name), symmetric) for name in ("cholesky", "eigvalsh", "slogdet", "lu_factor")},
        "solve": (lambda x: linalg.solve(x, square), symmetric),
        "lu": (lambda x: linalg.lu(x)[1:], square),
        "svd": (lambda x: linalg.svd(x).S, square),
        "eigh": (lambda x: linalg.eigh(x).eigenvectors.abs(), symmetric),
        "eigvals": (lambda x: linalg.eigvals(x).abs(), square),
        "cumprod": (lambda x: x.cumprod(0), signal),
        "logcumsumexp": (lambda x: x.logcumsumexp(1), signal),
        "prod": (lambda x: x.prod(1), signal),
        "var_mean": (lambda x: torch.var_mean(x, 1), signal),
        "quantile": (lambda x: x.quantile(0.3, 1), signal),
        "largest": (lambda x: x.norm(float("inf")), signal),
        "cdist": (lambda x: torch.cdist(x, x.cos()), signal),
        "pdist": (f.pdist, signal),
        "no samples": (lambda x: f.adaptive_avg_pool1d(x[:0, None], 2), signal),
        "circular": (lambda x: f.pad(x[None], [2, 1], mode="circular"), signal),
        "multilabel_margin_loss": (lambda x: f.multilabel_margin_loss(x, several), scores),
        "fractional_max_pool2d": (
            lambda x: f.fractional_max_pool2d(x[None], 2, 2, _random_samples=torch.full((1, 1, 2), 0.4, dtype=x.dtype)), signal,
        ),
        "ctc_loss": (lambda x: f.ctc_loss(x.reshape(6, 1, 4).log_softmax(2), torch.tensor([[1, 2]]), [6], [2]), signal),
        **{name: (getattr(torch.special, name), signal.abs() * 0.5 + 0.1) for name in ("i0", "i0e", "i1", "i1e", "ndtri", "log_ndtr", "erfcx", "digamma")},
        "polygamma": (lambda x: torch.polygamma(2, x), signal.abs() + 0.5),
    }  # fmt: skip


def gradient_of(torch: Any, function: Any, given: Any) -> tuple[list[Any], Any]:
    """Return a program's results, and the gradient of the sum of their sines."""
    given = given.detach().clone().requires_grad_()
    results = function(given)
    results = [t for t in (results if isinstance(results, tuple) else (results,)) if t.requires_grad]
    return results, torch.autograd.grad(sum(t.sin().sum() for t in results), given)[0]


@pytest.mark.parametrize("name", parts(flambeau))
def test_parts_are_pytorchs_operators(name):
    torch = judge("torch")
    with Log() as log:
        found, gradient = gradient_of(flambeau, *parts(flambeau)[name])
    right, expected = gradient_of(torch, *parts(torch)[name])
    assert [seen for seen in log.seen if not seen.startswith("aten.")] == []
    for a, b in zip([*found, gradient], [*right, expected], strict=True):
        np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-7, atol=1e-9)


def test_nodes_have_pytorchs_names_and_notice_changes():
    x = flambeau.arange(12.0).view(3, 4).requires_grad_()
    with Log():
        normed, squared = F.layer_norm(x, [4]), F.mse_loss(y := x * 1, flambeau.zeros(3, 4))
    assert normed.grad_fn.name() == "NativeLayerNormBackward0" and squared.grad_fn.name() == "MseLossBackward0"
    y.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squared.backward()


def test_running_statistics_move_once():
    norm, x = nn.BatchNorm1d(2), flambeau.arange(8.0).view(4, 2).requires_grad_()
    with Log():
        (g,) = flambeau.autograd.grad(norm(x).pow(3).sum(), x, create_graph=True)
        g.sum().backward()
    flambeau.testing.assert_close(norm.running_mean, flambeau.tensor([0.3, 0.4]))


def test_calls_mean_under_a_mode_what_they_mean_without():
    """`F.max_unpool2d` takes a window where PyTorch's operator takes a size; `stft` pads, where the operator of its name does not."""
    x, signal = flambeau.randn(1, 2, 4, 4), flambeau.randn(2, 16)
    pooled = F.max_pool2d(x, 2, return_indices=True)
    expected = F.max_unpool2d(*pooled, 2), flambeau.stft(signal, 4, window=flambeau.ones(4), return_complex=True)
    with Log():
        found = F.max_unpool2d(*pooled, 2), flambeau.stft(signal, 4, window=flambeau.ones(4), return_complex=True)
    assert all(a.equal(b) for a, b in zip(found, expected))


@pytest.mark.parametrize(
    "function", [flambeau.digamma, flambeau.i0, flambeau.nan_to_num, lambda x: flambeau.fft.rfft(x).abs()]
)
def test_gradients_without_a_counterpart_are_computed_all_the_same(function):
    x = flambeau.rand(3, 4).add(0.5).requires_grad_()
    (expected,) = flambeau.autograd.grad(function(x).sum(), x)
    with Log():
        flambeau.testing.assert_close(flambeau.autograd.grad(function(x).sum(), x)[0], expected)
