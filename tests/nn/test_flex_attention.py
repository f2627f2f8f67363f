"""Attention with functions for scores and masks: PyTorch's numbers, masks and texts; gradients of plain attention."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau
from flambeau.nn.attention import flex_attention as ours

torch = judge("torch")
theirs = judge("torch.nn.attention.flex_attention")


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def window(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q - k).abs() <= 40 + 8 * h


def shifted(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score + (q - k) * 0.01 * (h + 1) - b * 0.1


def tensors(library: Any, heads: int = 4, kv_heads: int = 4, length: int = 100) -> list[Any]:
    r = np.random.default_rng(0)
    shapes = [(2, heads, length, 8), (2, kv_heads, length, 8), (2, kv_heads, length, 6)]
    return [library.tensor(r.standard_normal(s).astype("float32")) for s in shapes]


def both(run: Any) -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        debug, theirs._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = theirs._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG, True
        try:
            return run(flambeau, ours), run(torch, theirs)
        finally:
            theirs._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = debug


@pytest.mark.parametrize("mask", [None, causal, window])
@pytest.mark.parametrize("score", [None, shifted])
def test_results_are_those_of_pytorch(mask, score):
    def run(library: Any, module: Any) -> Any:
        blocks = None if mask is None else module.create_block_mask(mask, 2, 4, 100, 100, device="cpu", BLOCK_SIZE=32)
        out, aux = module.flex_attention(
            *tensors(library), score_mod=score, block_mask=blocks, return_aux=module.AuxRequest(lse=True)
        )
        return out.numpy(), aux.lse.numpy()

    mine, real = both(run)
    for a, b in zip(mine, real):
        np.testing.assert_allclose(a, b, atol=2e-6, rtol=2e-5)


def test_a_row_that_is_hidden_gives_zeros():
    def run(library: Any, module: Any) -> Any:
        blocks = module.create_block_mask(lambda b, h, q, k: (q >= k) & (q != 0), None, None, 5, 5, device="cpu")
        return module.flex_attention(*tensors(library, length=5), block_mask=blocks, scale=0.3).numpy()

    mine, real = both(run)
    assert not mine[:, :, 0].any()
    np.testing.assert_allclose(mine, real, atol=2e-6)


def test_grouped_heads_and_gradients_are_those_of_plain_attention():
    q, k, v = (t.requires_grad_() for t in tensors(flambeau, heads=4, kv_heads=2, length=12))
    blocks = ours.create_block_mask(causal, None, None, 12, 12, device="cpu")
    out = ours.flex_attention(q, k, v, block_mask=blocks, enable_gqa=True)
    out.square().sum().backward()
    found = [t.grad.numpy() for t in (q, k, v)]
    for t in (q, k, v):
        t.grad = None
    plain = flambeau.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    plain.square().sum().backward()
    np.testing.assert_allclose(out.detach().numpy(), plain.detach().numpy(), atol=2e-6)
    for a, t in zip(found, (q, k, v)):
        np.testing.assert_allclose(a, t.grad.numpy(), atol=2e-5)


@pytest.mark.parametrize("separate", [True, False])
def test_block_masks_are_those_of_pytorch(separate):
    def run(library: Any, module: Any) -> Any:
        made = module.create_block_mask(
            window, None, 2, 300, 260, device="cpu", BLOCK_SIZE=(64, 32), separate_full_blocks=separate
        )
        names = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices",
                 "full_q_num_blocks", "full_q_indices")  # fmt: skip
        found = []
        for mask in (made, made[0], made[0, 1]):
            parts = [getattr(mask, name) for name in names]
            found.append([None if t is None else t.numpy().tolist() for t in parts])
        for mask in (made, made[0], made._adjust(130, 90)):
            found.append((mask.shape, round(mask.sparsity(), 6), mask.to_dense().numpy().tolist()))
        return found, str(made), repr(made), made.to_string(limit=1), len(made.as_tuple())

    mine, real = both(run)
    assert mine[:4] == real[:4]


def test_masks_join_and_become_tensors():
    def run(library: Any, module: Any) -> Any:
        either, all_of = module.or_masks(causal, window), module.and_masks(causal, window, module.noop_mask)
        masks = [module.create_mask(f, 1, 2, 50, 60, device="cpu").numpy().tolist() for f in (either, all_of)]
        return masks, module.create_mask(
            lambda s, b, h, q, k: library.where(q >= k, s, -math.inf), None, None, 4, 4, "cpu"
        ).tolist()

    mine, real = both(run)
    assert mine == real


@pytest.mark.parametrize(
    "call",
    [
        lambda m, q, k, v, f: m.flex_attention(q[0], k, v),
        lambda m, q, k, v, f: m.flex_attention(q, k[:, :2], v[:, :2]),
        lambda m, q, k, v, f: m.flex_attention(q, k[:, :3], v[:, :3], enable_gqa=True),
        lambda m, q, k, v, f: m.flex_attention(
            q, k, v, block_mask=m.create_block_mask(causal, 1, 1, 50, 50, device="cpu")
        ),
        lambda m, q, k, v, f: m.flex_attention(
            q, k, v, block_mask=m.create_block_mask(causal, 1, 1, 100, 100, device="cpu")[0]
        ),
        lambda m, q, k, v, f: m.flex_attention(q, k, v, return_aux=m.AuxRequest(max_scores=True)),
        lambda m, q, k, v, f: m.or_masks(1),
    ],
)
def test_errors_are_those_of_pytorch(call):
    def run(library: Any, module: Any) -> Any:
        with pytest.raises(Exception) as found:
            call(module, *tensors(library), None)
        return type(found.value).__name__, str(found.value)

    mine, real = both(run)
    assert mine == real
