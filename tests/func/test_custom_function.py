"""autograd.Function inside the transforms, compared with PyTorch; and random shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau
import flambeau.func

torch = judge("torch")


def make_function(t: Any, kind: str) -> Any:
    class Cube(t.autograd.Function):
        generate_vmap_rule = kind == "generated"

        @staticmethod
        def forward(x: Any) -> Any:
            return x * x * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3 * x * x

        if kind == "own":

            @staticmethod
            def vmap(info: Any, in_dims: Any, x: Any) -> Any:
                assert info.batch_size == x.shape[in_dims[0]]
                return Cube.apply(x), in_dims[0]

    return Cube.apply


@pytest.mark.parametrize("kind", ["generated", "own"])
def test_functions_take_part(kind: str) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    def compute(t: Any) -> list:
        cube, f = make_function(t, kind), t.func
        data = t.tensor(x)
        results = [
            f.vmap(cube, 1, 1)(data),
            f.grad(lambda a: cube(a).sum())(data),
            f.vmap(f.grad(lambda a: cube(a).sum()))(data),
            f.jacrev(cube)(data),
            f.jacrev(f.jacrev(lambda a: cube(a).sum()))(data),
        ]
        return [r.numpy() for r in results]

    for found, wanted in zip(compute(flambeau), compute(torch)):
        np.testing.assert_allclose(found, wanted)


def test_a_function_without_a_rule_is_refused() -> None:
    for t in (torch, flambeau):
        with pytest.raises(RuntimeError, match="does not have vmap support"):
            t.vmap(make_function(t, "none"))(t.ones(2, 3))


@pytest.mark.parametrize("seed", range(12))
def test_random_shapes_and_batch_dimensions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 5, rng.integers(1, 4)))
    dim = int(rng.integers(0, len(shape) + 1))
    reduced = int(rng.integers(0, len(shape)))
    array = rng.standard_normal(np.insert(shape, dim, 3)).astype(np.float32)

    def compute(t: Any) -> list:
        def function(x: Any) -> Any:
            y = (x - x.mean(reduced, keepdim=True)).tanh() * x.sum()
            return t.cat([y, y.flip(reduced)], reduced).cumsum(reduced).movedim(reduced, 0)

        f, x = t.func, t.tensor(array)
        return [
            f.vmap(function, dim, -1)(x),
            f.vmap(f.jacrev(function), dim)(x),
            f.grad(lambda a: f.vmap(function, dim)(a).square().sum())(x),
            f.vmap(f.jacfwd(lambda a: function(a).square().sum()), dim, -1)(x),
        ]

    for found, wanted in zip(compute(flambeau), compute(torch)):
        assert tuple(found.shape) == tuple(wanted.shape)
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=2e-4, atol=1e-4)
