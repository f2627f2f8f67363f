"""Operators whose kernels go other ways for large, odd or strided arguments, with sizes on both sides: values and gradients are PyTorch's.

A row is an expression of `T`, the library, and of makers of tensors: `x` numbers that tell all elements apart and have gradients, `n` whole
numbers below a bound, `p` positive numbers. What is kept of PyTorch's answer are sums with different weights."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import pytest
from answers import told

import flambeau
from tests.ops.operator_database import answer, differs

ROWS = """
F.max_pool2d(x(2, 3, 64, 65), 3, 2, 1)
F.max_pool2d(x(1, 2, 33, 40), (5, 2), (1, 3), (2, 1), (1, 2), True)
F.max_pool2d(x(2, 16, 17, 19).contiguous(memory_format=T.channels_last), 3, 2, 1)
F.max_pool2d(x(2, 20, 9, 11).contiguous(memory_format=T.channels_last), 2, 1, return_indices=True)
F.max_pool1d(x(3, 4, 131), 7, 3, 2)
F.max_pool3d(x(1, 2, 9, 10, 11), (2, 3, 2), 2, (1, 1, 0))
F.avg_pool2d(x(2, 3, 37, 21), (3, 2), 2, 1, True, False)
F.avg_pool2d(x(2, 3, 37, 21), 4, 3, 2, False, True, 7)
F.avg_pool3d(x(1, 2, 9, 10, 11), 3, 2, 1)
F.adaptive_avg_pool2d(x(2, 3, 31, 17), (7, 5))
F.adaptive_max_pool2d(x(2, 3, 31, 17), (7, 5), return_indices=True)
F.adaptive_avg_pool3d(x(1, 2, 7, 9, 8), (3, 4, 5))
F.lp_pool2d(p(2, 3, 15, 14), 3, 3, 2)
F.fractional_max_pool2d(x(1, 2, 12, 13), 3, (4, 5), _random_samples=T.full((1, 2, 2), 0.37))
F.interpolate(x(2, 3, 17, 23), size=(29, 11), mode="bilinear")
F.interpolate(x(2, 3, 17, 23), size=(29, 11), mode="bilinear", align_corners=True)
F.interpolate(x(2, 3, 17, 23), size=(9, 40), mode="bilinear", antialias=True)
F.interpolate(x(2, 3, 17, 23), size=(29, 11), mode="bicubic")
F.interpolate(x(2, 3, 17, 23), size=(8, 10), mode="bicubic", antialias=True)
F.interpolate(x(2, 3, 17, 23), size=(29, 11), mode="nearest")
F.interpolate(x(2, 3, 17, 23), size=(29, 11), mode="nearest-exact")
F.interpolate(x(2, 17, 9, 13).contiguous(memory_format=T.channels_last), scale_factor=2.3, mode="bilinear")
F.interpolate(x(2, 17, 9, 13).contiguous(memory_format=T.channels_last), scale_factor=2, mode="nearest")
F.interpolate(x(2, 3, 77), size=41, mode="linear")
F.interpolate(x(1, 2, 7, 9, 8), size=(5, 13, 11), mode="trilinear", align_corners=True)
F.interpolate(x(2, 3, 77), scale_factor=0.7, mode="linear", recompute_scale_factor=True)
F.grid_sample(x(2, 3, 13, 17), x(2, 9, 8, 2) * 1.4, "bilinear", "zeros", False)
F.grid_sample(x(2, 3, 13, 17), x(2, 9, 8, 2) * 1.4, "bilinear", "border", True)
F.grid_sample(x(2, 3, 13, 17), x(2, 9, 8, 2) * 2.4, "bilinear", "reflection", False)
F.grid_sample(x(2, 3, 13, 17), x(2, 9, 8, 2) * 2.4, "bicubic", "reflection", True)
F.grid_sample(x(2, 3, 13, 17), x(2, 9, 8, 2) * 1.4, "bicubic", "zeros", False)
F.grid_sample(x(2, 3, 13, 17), x(2, 9, 8, 2) * 1.4, "nearest", "border", False)
F.grid_sample(x(1, 2, 5, 6, 7), x(1, 4, 3, 5, 3) * 1.3, "bilinear", "zeros", True)
F.grid_sample(x(1, 2, 5, 6, 7), x(1, 4, 3, 5, 3) * 1.3, "nearest", "reflection", False)
F.batch_norm(x(5, 7, 13, 11), None, None, x(7), x(7), True, 0.2, 1e-3)
F.batch_norm(x(5, 7), None, None, x(7), x(7), True)
F.batch_norm(x(700, 33), None, None, x(33), x(33), True)
F.batch_norm(x(4, 9, 6, 5).contiguous(memory_format=T.channels_last), None, None, x(9), x(9), True)
F.batch_norm(x(5, 7, 13), x(7).detach(), p(7).detach(), x(7), x(7), False, 0.1, 1e-2)
F.batch_norm(x(4, 9, 6, 5).contiguous(memory_format=T.channels_last), x(9).detach(), p(9).detach(), x(9), x(9), False)
F.group_norm(x(3, 12, 7, 9), 4, x(12), x(12), 1e-3)
F.group_norm(x(3, 12, 70), 12, x(12), x(12))
F.group_norm(x(3, 12, 7, 9).contiguous(memory_format=T.channels_last), 3, x(12), x(12))
F.group_norm(x(17, 40), 5, x(40), x(40))
F.instance_norm(x(3, 5, 17, 9), weight=x(5), bias=x(5), eps=1e-3)
F.layer_norm(x(37, 129), (129,), x(129), x(129), 1e-3)
F.layer_norm(x(5, 6, 7), (6, 7), x(6, 7), x(6, 7))
F.layer_norm(x(300, 8), (8,), x(8))
F.rms_norm(x(37, 65), (65,), x(65), 1e-3)
F.local_response_norm(p(2, 9, 5, 4), 4, 1e-2, 0.6, 1.5)
F.softmax(x(33, 257) * 5, 1)
F.softmax(x(7, 33, 65) * 5, 1)
F.log_softmax(x(33, 257) * 5, 0)
F.log_softmax(x(3000, 5), 1)
F.softmin(x(9, 4100), -1)
F.softmax(x(4, 5, 6, 7), 2, dtype=T.float64)
F.cross_entropy(x(333, 17), n(17, 333), p(17).detach(), ignore_index=3, label_smoothing=0.2)
F.cross_entropy(x(50, 7, 4, 5), n(7, 50, 4, 5), p(7).detach(), reduction="sum")
F.cross_entropy(x(50, 7, 4, 5), n(7, 50, 4, 5), reduction="none", label_smoothing=0.1)
F.cross_entropy(x(33, 1025), n(1025, 33), ignore_index=5)
F.cross_entropy(x(20, 9), F.softmax(x(20, 9), 1).detach(), p(9), label_smoothing=0.3)
F.cross_entropy(x(6, 9, 5), F.softmax(x(6, 9, 5), 1).detach(), reduction="none")
F.nll_loss(x(333, 17), n(17, 333), p(17).detach(), ignore_index=3)
F.nll_loss(x(5, 7, 4, 5), n(7, 5, 4, 5), p(7).detach(), reduction="sum")
F.ctc_loss(F.log_softmax(x(50, 3, 20), 2), n(19, 3, 12) + 1, T.tensor([50, 45, 30]), T.tensor([12, 9, 1]), 0, "none")
F.ctc_loss(F.log_softmax(x(30, 2, 6), 2), T.tensor([1, 1, 2, 3, 3]), T.tensor([30, 20]), T.tensor([3, 2]), 5, "mean", True)
F.multi_margin_loss(x(40, 9), n(9, 40), 2, 1.5, p(9).detach())
F.multilabel_margin_loss(x(3, 6), T.tensor([[1, 3, -1, 0, 0, 0], [5, -1, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5]]))
F.embedding(n(50, 300), x(50, 9), padding_idx=3)
F.embedding(n(50, 300), x(50, 9), scale_grad_by_freq=True)
F.embedding_bag(n(50, 30, 7), x(50, 17), mode="mean", padding_idx=4)
T.sort(n(1000, 5000).to(T.int16), stable=True)
T.mode(n(9, 7, 300), 1)[0]
T.linalg.cholesky(9 * T.eye(9) + (lambda t: t + t.mT)(x(3, 9, 9)))
F.max_unpool2d(x(1, 2, 3, 4), T.arange(12).mul(3).view(1, 1, 3, 4).expand(1, 2, 3, 4), 2, 2, 0, (6, 8))
F.embedding_bag(n(50, 300), x(50, 17), T.tensor([0, 9, 9, 100, 250]), mode="sum", per_sample_weights=x(300))
F.embedding_bag(n(50, 300), x(50, 17), T.tensor([0, 9, 9, 100, 300]), mode="mean", include_last_offset=True)
F.embedding_bag(n(50, 30, 7), x(50, 17), mode="max")
F.unfold(x(2, 3, 15, 17), (3, 2), (1, 2), (2, 1), (2, 3))
F.fold(x(2, 12, 90), (11, 12), (2, 2), 1, (0, 0), (2, 1))
F.fold(x(2, 12, 30), (11, 12), 2, 1, 0, 2)
F.pad(x(2, 3, 9, 11), (3, 4, 2, 5), "reflect")
F.pad(x(2, 3, 9, 11), (3, -4, 2, 5), "replicate")
F.pad(x(2, 3, 9, 11), (3, 4, 2, 5), "circular")
F.pad(x(2, 3, 9, 11), (3, -4, -2, 5, 1, 0), "constant", 1.5)
F.pad(x(1, 2, 5, 6, 7), (1, 2, 2, 1, 3, 0), "reflect")
F.pad(x(2, 3, 40), (7, 9), "reflect")
F.scaled_dot_product_attention(x(2, 3, 130, 16), x(2, 3, 77, 16), x(2, 3, 77, 16))
F.scaled_dot_product_attention(x(2, 3, 130, 16), x(2, 3, 130, 16), x(2, 3, 130, 16), is_causal=True)
F.scaled_dot_product_attention(x(1, 2, 70, 24), x(1, 2, 65, 24), x(1, 2, 65, 40), x(70, 65).detach(), scale=0.2)
F.scaled_dot_product_attention(x(1, 2, 70, 24), x(1, 2, 65, 24), x(1, 2, 65, 24), x(1, 1, 70, 65).detach() > -0.9)
F.scaled_dot_product_attention(x(1, 8, 33, 16), x(1, 2, 35, 16), x(1, 2, 35, 16), enable_gqa=True)
F.scaled_dot_product_attention(x(2, 200, 64), x(2, 200, 64), x(2, 200, 64), is_causal=True)
F.pixel_shuffle(x(2, 18, 5, 7), 3)
F.pixel_unshuffle(x(2, 3, 8, 12), 4)
F.channel_shuffle(x(2, 12, 5, 3), 4)
F.pdist(x(40, 9), 1.5)
F.pdist(x(40, 9), 2)
F.pdist(x(40, 9), math.inf)
T.cdist(x(2, 31, 9), x(2, 37, 9), 1)
T.cdist(x(2, 31, 9), x(2, 37, 9), 2, "donot_use_mm_for_euclid_dist")
T.cdist(x(40, 30), x(50, 30), 2)
T.cdist(x(31, 9), x(37, 9), 3.5)
T.cdist(x(31, 9), x(37, 9), math.inf)
F.cosine_similarity(x(31, 9), x(31, 9), 1, 1e-3)
F.conv2d(x(2, 6, 17, 19), x(8, 3, 3, 2), x(8), (2, 1), (1, 2), (1, 2), 2)
F.conv2d(x(2, 8, 17, 19), x(16, 1, 3, 3), x(16), 1, 1, 1, 8)
F.conv1d(x(2, 6, 57), x(8, 3, 5), x(8), 3, "valid", 2, 2)
F.conv3d(x(1, 4, 7, 8, 9), x(6, 2, 3, 2, 3), x(6), 2, 1, 1, 2)
F.conv_transpose2d(x(2, 6, 9, 7), x(6, 4, 3, 2), x(8), (2, 1), 1, (1, 0), 2, (1, 2))
F.conv_transpose1d(x(2, 6, 19), x(6, 4, 3), x(4), 3, 1, 2)
F.conv_transpose3d(x(1, 4, 4, 5, 3), x(4, 3, 2, 3, 2), None, 2, 1, 1)
F.bilinear(x(7, 9), x(7, 11), x(5, 9, 11), x(5))
T.cumsum(x(7, 333), 1)
T.cumsum(x(333, 7), 0)
T.cumprod(x(7, 53) * 1.2, 1)
T.cumprod(T.where(x(5, 9) > 0.9, 0.0, x(5, 9)), 1)
T.cummax(x(7, 333), 1)
T.cummin(x(333, 7), 0)
T.logcumsumexp(x(7, 333) * 3, 1)
T.sort(x(5, 3001), 1)
T.sort(x(3001, 3), 0, True)
T.sort(n(7, 4, 2500), dim=1, stable=True)
T.argsort(n(5, 100), stable=True, descending=True)
T.sort(n(2, 300) > 0, stable=True)
T.topk(x(7, 1000), 13)
T.topk(x(7, 1000), 700, largest=False)
T.topk(x(1000, 7), 5, 0, False, True)
T.kthvalue(x(7, 1001), 77)
T.kthvalue(x(50, 7), 20, 0, True)
T.median(x(7, 1001), 1)
T.nanmedian(T.where(x(7, 101) > 0.8, math.nan, x(7, 101)), 1)
T.quantile(x(9, 101), T.tensor([0.1, 0.55, 0.99]), 1, interpolation="linear")
T.quantile(x(9, 101), 0.33, 0, True, interpolation="nearest")
T.nanquantile(T.where(x(9, 41) > 0.9, math.nan, x(9, 41)), 0.4, 1, interpolation="midpoint")
T.unique(n(40, 900), return_inverse=True, return_counts=True)
T.unique(n(3, 70, 2), dim=0, return_inverse=True, return_counts=True)
T.unique_consecutive(n(3, 400), return_inverse=True, return_counts=True)
T.searchsorted(x(5, 300).detach().sort(1)[0], x(5, 77).detach(), right=True)
T.searchsorted(x(300).detach().sort()[0], x(4, 77).detach(), out_int32=True)
T.bucketize(x(4, 77).detach(), T.linspace(-1, 1, 50), right=True)
T.bincount(n(30, 1000), p(1000).detach(), 40)
T.histc(x(1000).detach(), 37, -0.5, 0.75)
T.histogram(x(1000).detach(), 20, range=(-0.5, 1.0), weight=p(1000).detach(), density=True)
T.histogramdd(x(300, 2).detach(), [5, 7])
T.gather(x(40, 33), 0, n(40, 17, 33))
T.gather(x(40, 33), 1, n(33, 40, 50))
x(40, 33).scatter(1, n(33, 40, 9), x(40, 9))
x(40, 33).scatter_add(0, n(40, 90, 33), x(90, 33))
x(40, 33).scatter_reduce(1, n(33, 40, 80), x(40, 80), "prod", include_self=False)
x(40, 33).scatter_reduce(1, n(33, 40, 80), x(40, 80), "mean")
x(40, 33).scatter_reduce(0, n(40, 80, 33), x(80, 33), "amax")
x(40, 33).scatter_reduce(0, n(40, 80, 33), x(80, 33), "amin", include_self=False)
x(40, 33).index_add(1, n(33, 70), x(40, 70), alpha=1.5)
x(40, 33).index_copy(0, T.tensor([3, 1, 39]), x(3, 33))
x(40, 33).index_fill(1, T.tensor([3, 1, 32]), 2.5)
x(40, 33).index_select(0, n(40, 100))
x(40, 33, 3)[n(40, 55), :, n(3, 55)]
x(40, 33, 3)[:, n(33, 7, 5)]
x(40, 33)[x(40, 33).detach() > 0.3]
x(40, 33).masked_fill(x(40, 33).detach() > 0.3, 1.5)
x(40, 33).masked_scatter(x(40, 33).detach() > 0.3, x(40 * 33))
x(40, 33).index_put((n(40, 90), n(33, 90)), x(90), True)
T.take(x(40, 33), n(1320, 70))
T.take_along_dim(x(40, 33), n(33, 40, 4), 1)
T.nonzero(x(40, 33).detach() > 0.5)
T.masked_select(x(40, 33), x(33).detach() > 0)
F.one_hot(n(9, 300), 9)
T.tril(x(3, 40, 33), -2)
T.triu(x(3, 40, 33), 5)
T.tril_indices(7, 9, 1)
T.renorm(x(9, 33), 2, 0, 1.5)
x(33, 65).sum(0)
x(65, 33).sum(1)
x(9, 1000).mean(1, True)
x(7, 9, 11, 5).sum((0, 2))
x(1031).sum()
x(33, 65).prod(1)
x(33, 65).var(0, correction=0)
x(33, 650).std(1)
T.var_mean(x(7, 9, 11), (0, 2))
T.logsumexp(x(33, 650) * 9, 1)
T.logsumexp(x(650, 3) * 9, 0)
T.norm(x(33, 65), 3, 1)
T.linalg.vector_norm(x(33, 650), 1.5, 1)
T.linalg.vector_norm(x(33, 65), math.inf, 0)
T.linalg.vector_norm(x(33, 65), 0, 0)
x(33, 650).amax(1)
x(650, 33).amin(0)
x(33, 650).max(1)
x(650, 33).min(0)
x(33, 650).argmax(1)
x(650, 33).argmin(0)
T.aminmax(x(33, 65), dim=0)
T.count_nonzero(n(3, 33, 65), 1)
T.all(n(30, 33, 65) > 0, 1)
T.any(n(300, 33, 65) == 0, 0)
T.nansum(T.where(x(33, 65) > 0.9, math.nan, x(33, 65)), 1)
x(33, 65) @ x(65)
x(33, 65).t() @ x(33)
n(9, 33, 65) @ n(9, 65, 7)
n(9, 4, 33, 20) @ n(9, 20, 5)
T.bmm(x(5, 33, 17), x(5, 17, 9))
T.baddbmm(x(5, 33, 9), x(5, 33, 17), x(5, 17, 9), beta=0.3, alpha=1.7)
T.addmm(x(9), x(33, 17), x(17, 9), beta=0.3, alpha=1.7)
T.addmv(x(33), x(33, 17), x(17), beta=0.3, alpha=1.7)
T.addr(x(33, 9), x(33), x(9), beta=0.3, alpha=1.7)
T.addbmm(x(33, 9), x(5, 33, 17), x(5, 17, 9), beta=0.3, alpha=1.7)
T.einsum("bij,bjk,k->ik", x(3, 5, 7), x(3, 7, 9), x(9))
T.kron(x(5, 7), x(3, 4))
T.tensordot(x(3, 4, 5), x(5, 4, 6), ([1, 2], [1, 0]))
T.linalg.solve(x(3, 9, 9) + 4 * T.eye(9), x(3, 9, 4))
T.linalg.solve(x(40, 40) + 20 * T.eye(40), x(40), left=True)
T.linalg.inv(x(5, 7, 7) + 4 * T.eye(7))
T.linalg.det(x(5, 7, 7) + 2 * T.eye(7))
T.linalg.slogdet(x(5, 7, 7) - 2 * T.eye(7))
T.linalg.solve_triangular(x(3, 9, 9) + 4 * T.eye(9), x(3, 9, 4), upper=True, unitriangular=True)
T.cholesky_solve(x(9, 4), T.eye(9) * 2 + x(9, 9).tril())
T.linalg.matrix_exp(x(3, 7, 7))
T.linalg.matrix_power(x(3, 7, 7), 5)
T.linalg.lstsq(x(9, 4), x(9, 2)).solution
T.linalg.eigvalsh(x(3, 9, 9) + x(3, 9, 9).mT)
T.linalg.pinv(x(3, 9, 6))
T.linalg.matrix_rank(x(9, 4) @ x(4, 9))
T.nn.LSTM(5, 7, 2, bidirectional=True)
T.nn.LSTM(5, 7, 1, proj_size=3, batch_first=True)
T.nn.GRU(5, 7, 2, bias=False)
T.nn.RNN(5, 9, 2, "relu")
T.nn.RNN(5, 9, 1, bidirectional=True)
T.polygamma(2, p(33))
T.igamma(p(33).detach() * 9, p(33).detach() * 7)
T.igammac(p(33).detach() * 9, p(33).detach() * 7)
T.special.zeta(p(33).detach() + 1.5, p(33).detach() + 1)
T.special.ndtri(p(33) * 0.9)
T.erfinv(x(33) * 0.99)
T.lgamma(x(33) * 5)
T.digamma(x(33) * 5)
T.special.multigammaln(p(33) + 3, 4)
T.special.bessel_j0(x(65).detach() * 30)
T.special.bessel_j1(x(65).detach() * 30)
T.special.bessel_y0(p(65).detach() * 30)
T.special.bessel_y1(p(65).detach() * 30)
T.special.modified_bessel_k0(p(65).detach() * 9)
T.special.modified_bessel_k1(p(65).detach() * 9)
T.special.scaled_modified_bessel_k0(p(65).detach() * 30)
T.special.i0e(x(65) * 30)
T.special.i1(x(65) * 9)
T.special.i1e(x(65) * 30)
T.special.erfcx(x(65) * 20)
T.special.log_ndtr(x(65) * 20)
T.special.entr(p(65))
T.special.spherical_bessel_j0(x(65).detach() * 9)
T.special.airy_ai(x(65).detach() * 9)
T.special.chebyshev_polynomial_t(x(33).detach() * 1.5, n(9, 33))
T.special.hermite_polynomial_h(x(33).detach() * 1.5, n(9, 33))
T.special.laguerre_polynomial_l(x(33).detach() * 1.5, n(9, 33))
T.special.legendre_polynomial_p(x(33).detach(), n(9, 33))
T.special.shifted_chebyshev_polynomial_u(p(33).detach(), n(9, 33))
"""


def makers(T: Any) -> dict[str, Any]:
    """`x`, `n` and `p` of a library; each call of a row makes other numbers."""
    calls = iter(range(100))

    def wave(shape: tuple[int, ...]) -> np.ndarray:
        turn = 0.7 + 0.13 * next(calls)
        return np.sin(np.arange(1, int(np.prod(shape)) + 1) * turn).reshape(shape)

    def x(*shape: int) -> Any:
        return T.tensor(wave(shape), dtype=T.float32).requires_grad_()

    def p(*shape: int) -> Any:
        return T.tensor(np.abs(wave(shape)) + 0.05, dtype=T.float32).requires_grad_()

    def n(bound: int, *shape: int) -> Any:
        return T.tensor(np.floor((wave(shape) * 0.4999 + 0.5) * bound).astype(np.int64))

    return {"x": x, "p": p, "n": n}


def evaluated(row: str, T: Any) -> list:
    made: list = []

    def kept(maker: Any) -> Any:
        def make(*given: int) -> Any:
            made.append(maker(*given))
            return made[-1]

        return make

    names = {name: kept(maker) for name, maker in makers(T).items()}

    def call() -> Any:
        result = eval(row, {"T": T, "F": T.nn.functional, "math": math, **names})
        return run_network(T, result, names["x"], made) if isinstance(result, T.nn.Module) else result

    return answer(call, [], {}, T, made)


def run_network(T: Any, network: Any, x: Any, made: list) -> Any:
    """A recurrent network with given weights over given sequences."""
    with T.no_grad():
        for weight in network.parameters():
            weight.copy_(x(*weight.shape).detach() * 0.5)
    made.extend(network.parameters())
    out, state = network(x(6, 3, 5) if not network.batch_first else x(3, 6, 5))
    return [out, state]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS.strip().splitlines(), ids=lambda row: row[:90])  # long ones would be numbered
def test_rows(row: str) -> None:
    theirs = told(row, lambda: evaluated(row, importlib.import_module("torch")))
    difference = differs(evaluated(row, flambeau), theirs)
    assert not difference, difference
