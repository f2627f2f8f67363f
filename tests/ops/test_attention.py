"""Attention in one pass agrees with attention made of products and a softmax, for every block shape and layout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau.ops.machinery.plan import NATIVE
from flambeau.ops.nn.attention import attention_probabilities, flash_attention

pytestmark = pytest.mark.skipif(not NATIVE, reason="the fused kernel needs a compiler")


def tensors(batch: int, heads: int, shared: int, rows: int, source: int, dim: int, value_dim: int, transposed: bool):
    rng = np.random.default_rng(rows + source)
    made = []
    for shape in ((batch, heads, rows, dim), (batch, shared, source, dim), (batch, shared, source, value_dim)):
        t = flambeau.tensor(rng.normal(size=shape), dtype=flambeau.float64)
        made.append(t.transpose(1, 2).contiguous().transpose(1, 2) if transposed else t)
    return [t.requires_grad_() for t in made]


def plain(q: Any, k: Any, v: Any, mask: Any, scale: float, causal: bool) -> Any:
    times = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(times, 1) for t in (k, v))
    return attention_probabilities(q, k, mask, scale, causal).matmul(v)


CASES = [
    # batch, heads, shared heads, rows, source, features, value features, transposed, causal, mask
    (2, 3, 3, 70, 70, 8, 8, False, True, None),
    (1, 2, 2, 65, 130, 4, 12, True, False, None),
    (1, 2, 2, 130, 67, 5, 3, False, True, None),
    (2, 4, 2, 20, 33, 8, 8, True, False, "bool"),
    (2, 2, 1, 7, 9, 16, 16, False, False, "added"),
    (1, 1, 1, 33, 40, 4, 4, False, True, "hides all"),
    (1, 1, 1, 1, 1, 1, 1, False, False, None),
]


def mask_of(kind: str | None, rows: int, source: int) -> Any:
    if kind is None:
        return None
    rng = np.random.default_rng(3)
    if kind == "added":
        return flambeau.tensor(rng.normal(size=(1, 1, rows, source)), dtype=flambeau.float64)
    seen = rng.random((rows, source)) > 0.3
    if kind == "hides all":
        seen[5:7] = False
    return flambeau.tensor(seen)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_pass_agrees_with_separate_steps(case: tuple):
    batch, heads, shared, rows, source, dim, value_dim, transposed, causal, kind = case
    mask = mask_of(kind, rows, source)
    results = []
    for attend in (flash_attention, plain):
        q, k, v = tensors(batch, heads, shared, rows, source, dim, value_dim, transposed)
        out = attend(q, k, v, mask, 1 / math.sqrt(dim), causal)
        share = flambeau.arange(out.numel(), dtype=flambeau.float64).reshape(out.shape).cos()
        grads = flambeau.autograd.grad((out * share).sum(), (q, k, v))
        results.append([out.tolist(), *(g.tolist() for g in grads)])
    for one, other in zip(*results):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_gradients_of_gradients():
    inputs = tensors(1, 2, 1, 5, 6, 4, 4, False)
    assert flambeau.autograd.gradgradcheck(lambda q, k, v: flash_attention(q, k, v, None, 0.5, True), inputs)


def test_results_lie_in_memory_as_queries_do():
    q, k, v = tensors(2, 3, 3, 5, 5, 4, 4, True)
    out = flambeau.nn.functional.scaled_dot_product_attention(q, k, v)
    assert out.transpose(1, 2).is_contiguous()
