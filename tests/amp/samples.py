"""One call of every operator that autocast has a rule for, and of some that it leaves alone: (call, arrays of floats)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_random = np.random.default_rng(7)


def _r(*shape: int) -> np.ndarray:
    return _random.standard_normal(shape).astype(np.float32)


def _u(*shape: int) -> np.ndarray:
    """Between 0 and 1, away from both."""
    return (0.05 + 0.9 * _random.random(shape)).astype(np.float32)


_MATRIX, _SQUARE = _r(5, 4), _r(4, 4)
_DIAGONAL = (4 * np.eye(4) + 0.3 * _r(4, 4)).astype(np.float32)
_POSITIVE = (np.eye(4) + 0.1 * _SQUARE @ _SQUARE.T).astype(np.float32)
_SIGNS = np.sign(_r(5, 4)).astype(np.float32)
_LINE, _PLANE, _VOLUME = _r(2, 3, 8), _r(2, 3, 6, 6), _r(1, 2, 4, 4, 4)

Call = Callable[..., Any]
LOWER: dict[str, tuple[Call, list[np.ndarray]]] = {
    "addbmm": (lambda t, F, a, b, c: t.addbmm(a, b, c), [_r(3, 5), _r(2, 3, 4), _r(2, 4, 5)]),
    "addmm": (lambda t, F, a, b, c: a.addmm(b, c, beta=0.5, alpha=2), [_r(3, 5), _r(3, 4), _r(4, 5)]),
    "baddbmm": (lambda t, F, a, b, c: t.baddbmm(a, b, c), [_r(2, 3, 5), _r(2, 3, 4), _r(2, 4, 5)]),
    "bmm": (lambda t, F, a, b: a.bmm(b), [_r(2, 3, 4), _r(2, 4, 5)]),
    "conv1d": (lambda t, F, x, w, b: F.conv1d(x, w, b, padding=1), [_LINE, _r(4, 3, 3), _r(4)]),
    "conv2d": (lambda t, F, x, w, b: t.conv2d(x, w, b, 2, padding=1), [_PLANE, _r(4, 3, 3, 3), _r(4)]),
    "conv3d": (lambda t, F, x, w: F.conv3d(x, w, padding="same"), [_VOLUME, _r(3, 2, 3, 3, 3)]),
    "conv_tbc": (lambda t, F, x, w, b: F.conv_tbc(x, w, b, 1), [_r(5, 2, 3), _r(3, 3, 4), _r(4)]),
    "conv_transpose1d": (lambda t, F, x, w: F.conv_transpose1d(x, w, stride=2), [_LINE, _r(3, 4, 3)]),
    "conv_transpose2d": (lambda t, F, x, w, b: F.conv_transpose2d(x, w, b), [_PLANE, _r(3, 4, 3, 3), _r(4)]),
    "conv_transpose3d": (lambda t, F, x, w: F.conv_transpose3d(x, w), [_VOLUME, _r(2, 3, 2, 2, 2)]),
    "linalg_vecdot": (lambda t, F, a, b: t.linalg.vecdot(a, b), [_r(3, 4), _r(3, 4)]),
    "linear": (lambda t, F, x, w, b: F.linear(x, w, b), [_r(2, 3, 4), _r(5, 4), _r(5)]),
    "matmul": (lambda t, F, a, b: a @ b, [_r(2, 3, 4), _r(4, 5)]),
    "mm": (lambda t, F, a, b: t.mm(a, b), [_r(3, 4), _r(4, 5)]),
    "prelu": (lambda t, F, x, w: F.prelu(x, w), [_r(3, 4), _u(4)]),
    "scaled_dot_product_attention": (
        lambda t, F, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [_r(2, 2, 5, 8), _r(2, 2, 5, 8), _r(2, 2, 5, 8)],
    ),
}


def _classes(t: Any) -> Any:
    return t.tensor([0, 3, 1, 2, 0])


def _losses() -> dict[str, tuple[Call, list[np.ndarray]]]:
    pair = [_r(5, 4), _r(5, 4)]
    return {
        "binary_cross_entropy": (lambda t, F, x, y: F.binary_cross_entropy(x, y), [_u(5, 4), _u(5, 4)]),
        "binary_cross_entropy_with_logits": (
            lambda t, F, x, y: F.binary_cross_entropy_with_logits(x, y),
            [_r(5, 4), _u(5, 4)],
        ),
        "cosine_embedding_loss": (
            lambda t, F, x, y: F.cosine_embedding_loss(x, y, t.tensor([1, -1, 1, 1, -1])),
            pair,
        ),
        "ctc_loss": (
            lambda t, F, x: F.ctc_loss(x.log_softmax(2), t.tensor([[1, 2], [3, 1]]), (6, 6), (2, 2)),
            [_r(6, 2, 4)],
        ),
        "hinge_embedding_loss": (lambda t, F, x: F.hinge_embedding_loss(x, t.tensor(_SIGNS)), [_r(5, 4)]),
        "huber_loss": (lambda t, F, x, y: F.huber_loss(x, y), pair),
        "kl_div": (lambda t, F, x, y: F.kl_div(x, y, reduction="batchmean"), [_r(5, 4), _u(5, 4)]),
        "l1_loss": (lambda t, F, x, y: F.l1_loss(x, y), pair),
        "margin_ranking_loss": (lambda t, F, x, y: F.margin_ranking_loss(x, y, t.tensor(_SIGNS)), pair),
        "mse_loss": (lambda t, F, x, y: F.mse_loss(x, y, reduction="sum"), pair),
        "multi_margin_loss": (lambda t, F, x: F.multi_margin_loss(x, _classes(t)), [_r(5, 4)]),
        "multilabel_margin_loss": (
            lambda t, F, x: F.multilabel_margin_loss(x, t.tensor([[1, 3, -1, 0]] * 5)),
            [_r(5, 4)],
        ),
        "nll_loss": (lambda t, F, x: F.nll_loss(x, _classes(t)), [_r(5, 4)]),
        "poisson_nll_loss": (lambda t, F, x, y: F.poisson_nll_loss(x, y), [_r(5, 4), _u(5, 4)]),
        "smooth_l1_loss": (lambda t, F, x, y: F.smooth_l1_loss(x, y), pair),
        "soft_margin_loss": (lambda t, F, x: F.soft_margin_loss(x, t.tensor(_SIGNS)), [_r(5, 4)]),
        "triplet_margin_loss": (lambda t, F, x, y, z: F.triplet_margin_loss(x, y, z), [*pair, _r(5, 4)]),
    }


def _transforms() -> dict[str, tuple[Call, list[np.ndarray]]]:
    real = [
        "fft",
        "fft2",
        "fftn",
        "hfft",
        "ifft",
        "ifft2",
        "ifftn",
        "ihfft",
        "irfft",
        "irfft2",
        "irfftn",
        "rfft",
        "rfft2",
        "rfftn",
    ]
    table: dict[str, tuple[Call, list[np.ndarray]]] = {
        f"fft_{name}": (lambda t, F, x, name=name: t.view_as_real(t.fft.fft(getattr(t.fft, name)(x).real)), [_r(4, 6)])
        for name in real
    }
    table["stft"] = (
        lambda t, F, x: t.view_as_real(t.stft(x, 8, 4, window=t.ones(8), return_complex=True)),
        [_r(2, 32)],
    )
    return table


def _matrices() -> dict[str, tuple[Call, list[np.ndarray]]]:
    return {
        "cholesky": (lambda t, F, a: t.cholesky(a), [_POSITIVE]),
        "cholesky_inverse": (lambda t, F, a: t.cholesky_inverse(a), [_POSITIVE]),
        "cholesky_solve": (lambda t, F, b, a: t.cholesky_solve(b, a), [_r(4, 2), _POSITIVE]),
        "geqrf": (lambda t, F, a: t.geqrf(a.detach()), [_MATRIX]),
        "inverse": (lambda t, F, a: a.inverse(), [_DIAGONAL]),
        "linalg_cholesky": (lambda t, F, a: t.linalg.cholesky(a), [_POSITIVE]),
        "linalg_cholesky_ex": (lambda t, F, a: t.linalg.cholesky_ex(a)[0], [_POSITIVE]),
        "linalg_cond": (lambda t, F, a: t.linalg.cond(a), [_DIAGONAL]),
        "linalg_eig": (lambda t, F, a: t.linalg.eig(a)[0].real.sort()[0], [_POSITIVE]),
        "linalg_eigh": (lambda t, F, a: t.linalg.eigh(a)[0], [_POSITIVE]),
        "linalg_eigvals": (lambda t, F, a: t.linalg.eigvals(a).real.sort()[0], [_POSITIVE]),
        "linalg_eigvalsh": (lambda t, F, a: t.linalg.eigvalsh(a), [_POSITIVE]),
        "linalg_householder_product": (lambda t, F, a, b: t.linalg.householder_product(a, b), [_r(5, 4), _u(4)]),
        "linalg_inv": (lambda t, F, a: t.linalg.inv(a), [_DIAGONAL]),
        "linalg_inv_ex": (lambda t, F, a: t.linalg.inv_ex(a)[0], [_DIAGONAL]),
        "linalg_lstsq": (lambda t, F, a, b: t.linalg.lstsq(a, b)[0], [_MATRIX, _r(5, 2)]),
        "linalg_matrix_rank": (lambda t, F, a: t.linalg.matrix_rank(a), [_MATRIX]),
        "linalg_qr": (lambda t, F, a: t.linalg.qr(a), [_MATRIX]),
        "linalg_solve": (lambda t, F, a, b: t.linalg.solve(a, b), [_DIAGONAL, _r(4, 2)]),
        "linalg_svd": (lambda t, F, a: t.linalg.svd(a, full_matrices=False)[1], [_MATRIX]),
        "linalg_svdvals": (lambda t, F, a: t.linalg.svdvals(a), [_MATRIX]),
        "linalg_tensorinv": (lambda t, F, a: t.linalg.tensorinv(a.reshape(4, 2, 2), ind=1), [_DIAGONAL]),
        "linalg_tensorsolve": (lambda t, F, a, b: t.linalg.tensorsolve(a, b), [_DIAGONAL, _r(4)]),
        "lu": (lambda t, F, a: t.lu(a)[0], [_DIAGONAL]),
        "lu_solve": (lambda t, F, b, a: t.lu_solve(b, a, t.tensor([1, 2, 3, 4], dtype=t.int32)), [_r(4, 2), _DIAGONAL]),
        "orgqr": (lambda t, F, a, b: t.orgqr(a, b), [_r(5, 4), _u(4)]),
        "ormqr": (lambda t, F, a, b, c: t.ormqr(a, b, c), [_r(5, 4), _u(4), _r(5, 3)]),
        "pinverse": (lambda t, F, a: a.pinverse(), [_DIAGONAL]),
        "qr": (lambda t, F, a: t.qr(a), [_MATRIX]),
        "svd": (lambda t, F, a: t.svd(a)[1], [_MATRIX]),
        "triangular_solve": (lambda t, F, b, a: t.triangular_solve(b, a)[0], [_r(4, 2), _DIAGONAL]),
    }


def _places(t: Any, *shape: int) -> Any:
    count = int(np.prod(shape[2:]))
    return t.arange(count).reshape(1, 1, *shape[2:]).expand(shape).contiguous()


FLOAT32: dict[str, tuple[Call, list[np.ndarray]]] = {
    **_losses(),
    **_transforms(),
    **_matrices(),
    "adaptive_avg_pool3d": (lambda t, F, x: F.adaptive_avg_pool3d(x, 2), [_VOLUME]),
    "adaptive_max_pool3d": (lambda t, F, x: F.adaptive_max_pool3d(x, 2), [_VOLUME]),
    "adaptive_max_pool3d_with_indices": (lambda t, F, x: F.adaptive_max_pool3d(x, 2, return_indices=True), [_VOLUME]),
    "avg_pool3d": (lambda t, F, x: F.avg_pool3d(x, 2), [_VOLUME]),
    "cdist": (lambda t, F, a, b: t.cdist(a, b), [_r(5, 4), _r(3, 4)]),
    "fractional_max_pool2d": (
        lambda t, F, x: F.fractional_max_pool2d(x, 2, 3, _random_samples=t.full((2, 3, 2), 0.4)),
        [_PLANE],
    ),
    "fractional_max_pool2d_with_indices": (
        lambda t, F, x: F.fractional_max_pool2d(x, 2, 3, return_indices=True, _random_samples=t.full((2, 3, 2), 0.4)),
        [_PLANE],
    ),
    "fractional_max_pool3d": (
        lambda t, F, x: F.fractional_max_pool3d(x, 2, 2, _random_samples=t.full((1, 2, 3), 0.4)),
        [_VOLUME],
    ),
    "fractional_max_pool3d_with_indices": (
        lambda t, F, x: F.fractional_max_pool3d(x, 2, 2, return_indices=True, _random_samples=t.full((1, 2, 3), 0.4)),
        [_VOLUME],
    ),
    "grid_sample": (lambda t, F, x, g: F.grid_sample(x, g, align_corners=False), [_PLANE, _u(2, 3, 3, 2)]),
    "grid_sampler": (lambda t, F, x, g: t.grid_sampler(x, g, 0, 0, False), [_PLANE, _u(2, 3, 3, 2)]),
    "grid_sampler_2d": (lambda t, F, x, g: t.grid_sampler_2d(x, g, 0, 0, False), [_PLANE, _u(2, 3, 3, 2)]),
    "grid_sampler_3d": (lambda t, F, x, g: t.grid_sampler_3d(x, g, 0, 0, False), [_VOLUME, _u(1, 3, 3, 3, 3)]),
    "max_unpool1d": (lambda t, F, x: F.max_unpool1d(x, _places(t, 2, 3, 8), 2), [_LINE]),
    "max_unpool2d": (lambda t, F, x: F.max_unpool2d(x, _places(t, 2, 3, 6, 6), 2), [_PLANE]),
    "max_unpool3d": (lambda t, F, x: F.max_unpool3d(x, _places(t, 1, 2, 4, 4, 4), 2), [_VOLUME]),
    "nanquantile": (lambda t, F, x: t.nanquantile(x, 0.3, dim=1), [_r(5, 4)]),
    "polar": (lambda t, F, r, a: t.view_as_real(t.polar(r, a)), [_u(5, 4), _r(5, 4)]),
    "prod": (lambda t, F, x: x.prod(1), [_r(5, 4)]),
    "quantile": (lambda t, F, x: x.quantile(0.3, dim=1), [_r(5, 4)]),
    "trace": (lambda t, F, x: x.trace(), [_SQUARE]),
    "view_as_complex": (lambda t, F, x: t.view_as_real(t.view_as_complex(x) * 2), [_r(5, 2)]),
}

WIDEST: dict[str, tuple[Call, list[np.ndarray]]] = {
    "cat": (lambda t, F, a, b: t.cat([a, b]), [_r(3, 4), _r(2, 4)]),
    "index_copy": (lambda t, F, a, b: a.index_copy(0, t.tensor([2, 0]), b), [_r(3, 4), _r(2, 4)]),
    "stack": (lambda t, F, a, b: t.stack([a, b], 1), [_r(3, 4), _r(3, 4)]),
}


def _layer(make: Callable[[Any], Any], call: Call) -> Call:
    def run(t: Any, F: Any, *tensors: Any) -> Any:
        t.manual_seed(3)
        return call(make(t), *tensors)

    return run


SPECIAL: dict[str, tuple[Call, list[np.ndarray]]] = {
    "cross_entropy": (lambda t, F, x: F.cross_entropy(x, _classes(t)), [_r(5, 4)]),
    "cross_entropy of planes": (
        lambda t, F, x: F.cross_entropy(x, _classes(t).view(1, 5), reduction="sum"),
        [_r(1, 4, 5)],
    ),
    "cross_entropy smoothed": (
        lambda t, F, x: F.cross_entropy(x, _classes(t), t.arange(4.0) + 1, ignore_index=1, label_smoothing=0.1),
        [_r(5, 4)],
    ),
    "cross_entropy with probabilities": (lambda t, F, x, y: F.cross_entropy(x, y.softmax(1)), [_r(5, 4), _r(5, 4)]),
    "inner": (lambda t, F, a, b: t.inner(a, b), [_r(3, 4), _r(2, 4)]),
    "inner of vectors": (lambda t, F, a, b: t.inner(a, b), [_r(4), _r(4)]),
    "max_pool3d": (lambda t, F, x: F.max_pool3d(x, 2), [_VOLUME]),
    "max_pool3d with places": (lambda t, F, x: F.max_pool3d(x, 2, return_indices=True), [_VOLUME]),
    "linalg_pinv": (lambda t, F, a: t.linalg.pinv(a), [_DIAGONAL]),
    "pad reflect": (lambda t, F, x: F.pad(x, (1, 2), mode="reflect"), [_LINE]),
    "pad reflect 2d": (lambda t, F, x: F.pad(x, (1, 2, 1, 1), mode="reflect"), [_PLANE]),
    "pad reflect 3d": (lambda t, F, x: F.pad(x, (1,) * 6, mode="reflect"), [_VOLUME]),
    "pad replicate 3d": (lambda t, F, x: F.pad(x, (1,) * 6, mode="replicate"), [_VOLUME]),
    "pad circular": (lambda t, F, x: F.pad(x, (1, 2), mode="circular"), [_LINE]),
    "pad constant": (lambda t, F, x: F.pad(x, (1, 2)), [_LINE]),
    "tensordot": (lambda t, F, a, b: t.tensordot(a, b, 1), [_r(3, 4), _r(4, 2)]),
    "tensordot to a number": (lambda t, F, a, b: t.tensordot(a, b, 2), [_r(3, 4), _r(3, 4)]),
    "lstm": (_layer(lambda t: t.nn.LSTM(4, 3, 2, bidirectional=True), lambda m, x: (m(x)[0], *m(x)[1])), [_r(5, 2, 4)]),
    "lstm with projections": (
        _layer(lambda t: t.nn.LSTM(4, 3, proj_size=2), lambda m, x: (m(x)[0], *m(x)[1])),
        [_r(5, 2, 4)],
    ),
    "gru": (_layer(lambda t: t.nn.GRU(4, 3, 2, bidirectional=True), lambda m, x: m(x)), [_r(5, 2, 4)]),
    "rnn_tanh": (_layer(lambda t: t.nn.RNN(4, 3), lambda m, x: m(x)), [_r(5, 2, 4)]),
    "rnn_relu": (_layer(lambda t: t.nn.RNN(4, 3, nonlinearity="relu", bias=False), lambda m, x: m(x)), [_r(5, 2, 4)]),
    "lstm_cell": (_layer(lambda t: t.nn.LSTMCell(4, 3), lambda m, x: m(x)), [_r(5, 4)]),
    "gru_cell": (_layer(lambda t: t.nn.GRUCell(4, 3), lambda m, x, h: m(x, h)), [_r(5, 4), _r(5, 3)]),
    "rnn_tanh_cell": (_layer(lambda t: t.nn.RNNCell(4, 3), lambda m, x, h: m(x, h)), [_r(5, 4), _r(5, 3)]),
    "rnn_relu_cell": (_layer(lambda t: t.nn.RNNCell(4, 3, nonlinearity="relu"), lambda m, x: m(x)), [_r(5, 4)]),
}

# Left alone, or made of parts that choose.
OTHERS: dict[str, tuple[Call, list[np.ndarray]]] = {
    "add": (lambda t, F, a, b: a + b, [_r(3, 4), _r(3, 4)]),
    "mv": (lambda t, F, a, b: a.mv(b), [_r(3, 4), _r(4)]),
    "dot": (lambda t, F, a, b: a.dot(b), [_r(4), _r(4)]),
    "outer": (lambda t, F, a, b: t.outer(a, b), [_r(3), _r(4)]),
    "addmv": (lambda t, F, a, b, c: t.addmv(a, b, c), [_r(3), _r(3, 4), _r(4)]),
    "softmax": (lambda t, F, x: x.softmax(1), [_r(3, 4)]),
    "gelu": (lambda t, F, x: F.gelu(x), [_r(3, 4)]),
    "sum": (lambda t, F, x: x.sum(1), [_r(3, 4)]),
    "norm": (lambda t, F, x: x.norm(dim=1), [_r(3, 4)]),
    "layer_norm": (lambda t, F, x: F.layer_norm(x, (4,)), [_r(3, 4)]),
    "batch_norm": (lambda t, F, x: F.batch_norm(x, t.zeros(3), t.ones(3), training=True), [_r(6, 3)]),
    "max_pool2d": (lambda t, F, x: F.max_pool2d(x, 2), [_PLANE]),
    "avg_pool2d": (lambda t, F, x: F.avg_pool2d(x, 2), [_PLANE]),
    "matrix_exp": (lambda t, F, x: t.matrix_exp(x.float()), [_SQUARE]),
    "det": (lambda t, F, x: t.det(x.float()), [_DIAGONAL]),
    "einsum product": (lambda t, F, a, b: t.einsum("bij,bjk->bik", a, b), [_r(2, 3, 4), _r(2, 4, 5)]),
    "einsum outer": (lambda t, F, a, b: t.einsum("i,j->ij", a, b), [_r(3), _r(4)]),
    "einsum dot": (lambda t, F, a, b: t.einsum("i,i", a, b), [_r(4), _r(4)]),
    "chain_matmul": (lambda t, F, a, b: t.linalg.multi_dot([a, b, a]), [_r(4, 4), _r(4, 4)]),
    "matrix_power": (lambda t, F, a: t.linalg.matrix_power(a, 3), [_SQUARE]),
    "cov": (lambda t, F, a: t.cov(a), [_r(3, 6)]),
    "hstack": (lambda t, F, a, b: t.hstack([a, b]), [_r(3, 4), _r(3, 4)]),
    "area": (lambda t, F, x: F.interpolate(x, (2, 2, 2), mode="area"), [_VOLUME]),
    "attention": (
        _layer(
            lambda t: t.nn.MultiheadAttention(8, 2), lambda m, x: m(x, x, x, attn_mask=(x[:, 0] @ x[:, 0].T).detach())
        ),
        [_r(4, 2, 8)],
    ),
    "encoder layer": (
        _layer(lambda t: t.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), lambda m, x: m(x)),
        [_r(4, 2, 8)],
    ),
}
