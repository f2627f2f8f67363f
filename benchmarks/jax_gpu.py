"""Rows of gpu.py in JAX: the same sizes and arithmetic, a whole training step under `jax.jit`, with AdamW and clipping written out.

Parameters are random and of the same shapes; figures are about time and memory, not about the values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

RATE, DECAY, BETAS, EPS = 3e-4, 0.01, (0.9, 0.999), 1e-8


def drawn(*shape: int) -> Any:
    return 0.02 * jax.random.normal(jax.random.key(len(shape)), shape)


def linear(d: int, n: int) -> tuple:
    return drawn(d, n), jnp.zeros(n)


def narrow(x: Any) -> Any:
    """As autocast has it: products are computed in bfloat16."""
    return x.astype(jnp.bfloat16)


def product(x: Any, p: tuple) -> Any:
    return narrow(x) @ narrow(p[0]) + narrow(p[1])


def norm(x: Any, p: tuple) -> Any:
    x = x.astype(jnp.float32)
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * p[0] + p[1]


def loss(p: dict, tokens: Any, targets: Any, heads: int) -> Any:
    """Cross entropy of GPT-2, whose head is its table of tokens."""
    x = p["tokens"][tokens] + p["places"]
    for block in p["blocks"]:
        q, k, v = (
            part.reshape(*x.shape[:2], heads, -1)
            for part in jnp.split(product(norm(x, block["norm1"]), block["qkv"]), 3, axis=2)
        )
        kind = "cudnn" if jax.default_backend() == "gpu" else None
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=kind)
        x = x + product(y.reshape(x.shape), block["out"])
        x = x + product(jax.nn.gelu(product(norm(x, block["norm2"]), block["up"]), approximate=False), block["down"])
    logits = (narrow(norm(x, p["norm"])) @ narrow(p["tokens"]).T).astype(jnp.float32)
    picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - picked).mean()


def updated(p: Any, g: Any, m: Any, v: Any, count: Any) -> tuple:
    """AdamW behind clipping to a norm of one."""
    length = jnp.sqrt(sum(jnp.square(x).sum() for x in jax.tree.leaves(g)))
    g = jax.tree.map(lambda x: x * jnp.minimum(1.0, 1.0 / (length + 1e-6)), g)
    first, second = (1 - b**count for b in BETAS)
    m = jax.tree.map(lambda a, x: BETAS[0] * a + (1 - BETAS[0]) * x, m, g)
    v = jax.tree.map(lambda a, x: BETAS[1] * a + (1 - BETAS[1]) * x * x, v, g)
    move = lambda w, a, b: w * (1 - RATE * DECAY) - RATE * (a / first) / (jnp.sqrt(b / second) + EPS)  # noqa: E731
    return jax.tree.map(move, p, m, v), m, v, count + 1


def language(batch: int, length: int, layers: int, d: int, heads: int, vocabulary: int = 50304) -> Callable[[], Any]:
    """A training step of GPT-2; waits until it is done."""
    one = lambda: (jnp.ones(d), jnp.zeros(d))  # noqa: E731
    blocks = [
        {"norm1": one(), "norm2": one(), "qkv": linear(d, 3 * d), "out": linear(d, d), "up": linear(d, 4 * d),
         "down": linear(4 * d, d)} for _ in range(layers)
    ]  # fmt: skip
    p = {"tokens": drawn(vocabulary, d), "places": drawn(length, d), "blocks": blocks, "norm": one()}
    x = jax.random.randint(jax.random.key(0), (batch, length), 0, vocabulary)

    @lambda step: jax.jit(step, donate_argnums=0)
    def step(state: tuple, x: Any, y: Any) -> tuple:
        value, g = jax.value_and_grad(loss)(state[0], x, y, heads)
        return updated(state[0], g, *state[1:]), value

    held = [(p, *(jax.tree.map(jnp.zeros_like, p) for _ in "mv"), jnp.ones(()))]

    def run() -> Any:
        held[0], value = step(held[0], x, jnp.roll(x, -1, 1))
        return jax.block_until_ready(value)

    return run


def peak() -> int:
    """Return the most bytes that were in use on the first device."""
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)


ROWS: dict[str, Callable[[], Callable[[], Any]]] = {
    "gpt2-124m": lambda: language(16, 1024, 12, 768, 12),
    "gpt2-350m": lambda: language(8, 1024, 24, 1024, 16),
}
