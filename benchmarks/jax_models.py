"""The cases of compile.py in JAX: the same sizes, whole steps under `jax.jit` with optimizers of optax.

Parameters are random and of the same shapes; figures are about time, not about the values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

_DIMENSIONS = ("NCHW", "OIHW", "NCHW")


def _normal(*shape: int) -> Any:
    draw = np.random.default_rng(math.prod(shape)).standard_normal(shape, dtype=np.float32)
    return jnp.asarray(draw / math.sqrt(max(shape[-1], 1)))


def linear(inputs: int, outputs: int, bias: bool = True) -> dict[str, Any]:
    return {"weight": _normal(outputs, inputs), **({"bias": jnp.zeros(outputs)} if bias else {})}


def apply_linear(p: dict[str, Any], x: Any) -> Any:
    y = x @ p["weight"].T
    return y + p["bias"] if "bias" in p else y


def norm(width: int) -> dict[str, Any]:
    return {"scale": jnp.ones(width), "shift": jnp.zeros(width)}


def layer_norm(p: dict[str, Any], x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * p["scale"] + p["shift"]


def batch_norm(p: dict[str, Any], x: Any) -> Any:
    mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    wide = (None, slice(None), None, None)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["scale"][wide] + p["shift"][wide]


def conv(x: Any, weight: Any, stride: int = 1) -> Any:
    pad = weight.shape[-1] // 2
    return jax.lax.conv_general_dilated(x, weight, (stride, stride), [(pad, pad)] * 2, dimension_numbers=_DIMENSIONS)


def max_pool(x: Any) -> Any:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def cross_entropy(logits: Any, targets: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def whole_step(
    loss: Callable, parameters: Any, optimizer: Any, *arguments: Any, seeded: bool = False
) -> Callable[[], Any]:
    """A training step as one compiled function; the state goes round."""

    def step(parameters: Any, state: Any, key: Any, *arguments: Any) -> Any:
        given = (*arguments, jax.random.fold_in(key, state[1])) if seeded else arguments
        value, grads = jax.value_and_grad(loss)(parameters, *given)
        updates, inner = optimizer.update(grads, state[0], parameters)
        return optax.apply_updates(parameters, updates), (inner, state[1] + 1), value

    jitted = jax.jit(step, donate_argnums=(0, 1))
    held = [parameters, (optimizer.init(parameters), jnp.zeros((), jnp.int32))]
    key = jax.random.key(0)

    def run() -> Any:
        held[0], held[1], value = jitted(held[0], held[1], key, *arguments)
        return jax.block_until_ready((value, held[0]))[0]

    return run


def sgd() -> Any:
    return optax.chain(optax.add_decayed_weights(5e-4), optax.sgd(0.01, momentum=0.9))


def _images(*shape: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(0)
    return jnp.asarray(draw.standard_normal(shape, dtype=np.float32)), jnp.asarray(draw.integers(0, 10, shape[0]))


def chain(n: int) -> Callable[[], Any]:
    x = jnp.asarray(np.random.default_rng(0).standard_normal(n).astype(np.float32))

    @jax.jit
    def function(x: Any) -> Any:
        for k in range(5):
            x = jnp.abs(jnp.tanh(x * 1.01 + 0.1 * k) - 0.3)
        return x

    return lambda: function(x).block_until_ready()


def small_mlp() -> Callable[[], Any]:
    layers = [linear(16, 32), linear(32, 32), linear(32, 4)]
    x, y = jnp.ones((8, 16)), jnp.zeros((8, 4))

    def loss(layers: Any, x: Any, y: Any) -> Any:
        h = jnp.tanh(apply_linear(layers[1], jnp.tanh(apply_linear(layers[0], x))))
        return jnp.square(apply_linear(layers[2], h) - y).mean()

    function = jax.jit(jax.value_and_grad(loss))
    return lambda: jax.block_until_ready(function(layers, x, y))


def mlp() -> Callable[[], Any]:
    def loss(layers: Any, x: Any, y: Any) -> Any:
        for p in layers[:-1]:
            x = jax.nn.relu(apply_linear(p, x))
        return cross_entropy(apply_linear(layers[-1], x), y)

    layers = [linear(784, 256), linear(256, 128), linear(128, 10)]
    return whole_step(loss, layers, optax.adam(1e-3), *_images(64, 784))


def cnn() -> Callable[[], Any]:
    def loss(p: Any, x: Any, y: Any, key: Any) -> Any:
        for i in range(2):
            x = max_pool(
                jax.nn.relu(batch_norm(p["norms"][i], conv(x, p["convs"][i]) + p["biases"][i][None, :, None, None]))
            )
        x = x.reshape(x.shape[0], -1)
        x = jnp.where(jax.random.bernoulli(key, 0.75, x.shape), x / 0.75, 0.0)
        return cross_entropy(apply_linear(p["head"], x), y)

    p = {
        "convs": [_normal(16, 1, 3, 3), _normal(32, 16, 3, 3)], "biases": [jnp.zeros(16), jnp.zeros(32)],
        "norms": [norm(16), norm(32)], "head": linear(32 * 7 * 7, 10),
    }  # fmt: skip
    return whole_step(loss, p, sgd(), *_images(64, 1, 28, 28), seeded=True)


def resnet18() -> Callable[[], Any]:
    def block(inputs: int, outputs: int, stride: int) -> dict[str, Any]:
        p = {
            "a": _normal(outputs, inputs, 3, 3),
            "b": _normal(outputs, outputs, 3, 3),
            "na": norm(outputs),
            "nb": norm(outputs),
        }
        if stride != 1 or inputs != outputs:
            p |= {"c": _normal(outputs, inputs, 1, 1), "nc": norm(outputs)}
        return p

    def apply_block(p: Any, x: Any, stride: int) -> Any:
        out = jax.nn.relu(batch_norm(p["na"], conv(x, p["a"], stride)))
        short = batch_norm(p["nc"], conv(x, p["c"], stride)) if "c" in p else x
        return jax.nn.relu(batch_norm(p["nb"], conv(out, p["b"])) + short)

    widths = [
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    ]
    p = {"stem": _normal(64, 3, 3, 3), "norm": norm(64), "blocks": [block(*w) for w in widths], "head": linear(512, 10)}

    def loss(p: Any, x: Any, y: Any) -> Any:
        x = jax.nn.relu(batch_norm(p["norm"], conv(x, p["stem"])))
        for b, (_, _, stride) in zip(p["blocks"], widths):
            x = apply_block(b, x, stride)
        return cross_entropy(apply_linear(p["head"], x.mean((2, 3))), y)

    return whole_step(loss, p, sgd(), *_images(32, 3, 32, 32))


def _gpt_parameters(layers: int = 4, width: int = 128, context: int = 128, vocabulary: int = 65) -> dict[str, Any]:
    blocks = [
        {"n1": norm(width), "qkv": linear(width, 3 * width), "out": linear(width, width), "n2": norm(width),
         "up": linear(width, 4 * width), "down": linear(4 * width, width)} for _ in range(layers)
    ]  # fmt: skip
    return {
        "token": _normal(vocabulary, width), "place": _normal(context, width), "blocks": blocks, "norm": norm(width),
        "head": linear(width, vocabulary, False),
    }  # fmt: skip


def _gpt(p: Any, tokens: Any, heads: int = 4) -> Any:
    b, t = tokens.shape
    x = p["token"][tokens] + p["place"][:t]
    mask = jnp.tril(jnp.ones((t, t), bool))
    for block in p["blocks"]:
        q, k, v = (
            m.reshape(b, t, heads, -1).transpose(0, 2, 1, 3)
            for m in jnp.split(apply_linear(block["qkv"], layer_norm(block["n1"], x)), 3, axis=2)
        )
        scores = jnp.where(mask, q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1]), -jnp.inf)
        y = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(b, t, -1)
        x = x + apply_linear(block["out"], y)
        x = x + apply_linear(
            block["down"], jax.nn.gelu(apply_linear(block["up"], layer_norm(block["n2"], x)), approximate=False)
        )
    return apply_linear(p["head"], layer_norm(p["norm"], x))


def gpt() -> Callable[[], Any]:
    draw = np.random.default_rng(0)
    tokens, targets = jnp.asarray(draw.integers(0, 50, (12, 128))), jnp.asarray(draw.integers(0, 65, (12, 128)))
    return whole_step(
        lambda p, x, y: cross_entropy(_gpt(p, x), y), _gpt_parameters(), optax.adamw(3e-4), tokens, targets
    )


def gpt_inference() -> Callable[[], Any]:
    p, tokens = _gpt_parameters(), jnp.zeros((1, 32), jnp.int32)
    function = jax.jit(_gpt)
    return lambda: function(p, tokens).block_until_ready()


def lstm(width: int = 256, layers: int = 2, vocabulary: int = 1000) -> Callable[[], Any]:
    def layer(p: Any, x: Any) -> Any:
        inputs = x @ p["ih"].T + p["bi"] + p["bh"]

        def cell(state: Any, given: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(given + h @ p["hh"].T, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((x.shape[1], width))
        return jax.lax.scan(cell, (zeros, zeros), inputs)[1]

    def loss(p: Any, x: Any, y: Any) -> Any:
        x = p["embed"][x]
        for q in p["layers"]:
            x = layer(q, x)
        return cross_entropy(apply_linear(p["head"], x), y)

    def one() -> dict[str, Any]:
        return {
            "ih": _normal(4 * width, width),
            "hh": _normal(4 * width, width),
            "bi": jnp.zeros(4 * width),
            "bh": jnp.zeros(4 * width),
        }

    p = {
        "embed": _normal(vocabulary, width),
        "layers": [one() for _ in range(layers)],
        "head": linear(width, vocabulary),
    }
    draw = np.random.default_rng(0)
    tokens, targets = jnp.asarray(draw.integers(0, 50, (35, 20))), jnp.asarray(draw.integers(0, vocabulary, (35, 20)))
    return whole_step(loss, p, sgd(), tokens, targets)


def vae() -> Callable[[], Any]:
    def loss(p: Any, x: Any, key: Any) -> Any:
        hidden = jax.nn.relu(apply_linear(p["inner"], x))
        mean, log_variance = apply_linear(p["mean"], hidden), apply_linear(p["spread"], hidden)
        sample = mean + jax.random.normal(key, mean.shape) * jnp.exp(0.5 * log_variance)
        rebuilt = jax.nn.sigmoid(apply_linear(p["outer"], jax.nn.relu(apply_linear(p["first"], sample))))
        logs = [jnp.clip(jnp.log(rebuilt), -100), jnp.clip(jnp.log1p(-rebuilt), -100)]
        error = -(x * logs[0] + (1 - x) * logs[1]).sum()
        return (error - 0.5 * jnp.sum(1 + log_variance - mean**2 - jnp.exp(log_variance))) / x.shape[0]

    p = {
        "inner": linear(784, 128), "mean": linear(128, 16), "spread": linear(128, 16), "first": linear(16, 128), "outer": linear(128, 784),
    }  # fmt: skip
    x = jnp.asarray(np.random.default_rng(0).random((64, 784), dtype=np.float32))
    return whole_step(loss, p, optax.adam(1e-3), x, seeded=True)


CASES: dict[str, Callable[[], Callable[[], Any]]] = {
    "chain of 20, 1e3": lambda: chain(1000),
    "chain of 20, 1e6": lambda: chain(1000000),
    "small MLP": small_mlp,
    "GPT inference": gpt_inference,
    "VAE": vae,
    "MLP 784": mlp,
    "CNN": cnn,
    "ResNet-18": resnet18,
    "GPT, ": gpt,
    "LSTM": lstm,
}
