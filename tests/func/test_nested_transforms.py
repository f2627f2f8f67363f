"""Derivatives of functions and vmap, alone and nested, compared with torch.func."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau
import flambeau.func

torch = judge("torch")

LIBRARIES = (torch, flambeau)


def leaves(result: Any) -> list:
    if isinstance(result, dict):
        return [leaf for key in sorted(result) for leaf in leaves(result[key])]
    return [leaf for part in result for leaf in leaves(part)] if isinstance(result, (tuple, list)) else [result]


def agree(program: Callable, *shapes: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Run `program(library, library.func, *tensors)` with both libraries: same structure, shapes, dtypes and values."""
    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal(s).astype(np.float32) if isinstance(s, tuple) else s for s in shapes]
    wanted, found = (leaves(program(t, t.func, *(t.tensor(a) for a in arrays))) for t in LIBRARIES)
    assert len(wanted) == len(found)
    for w, f in zip(wanted, found):
        assert tuple(w.shape) == tuple(f.shape)
        assert str(w.dtype) == str(f.dtype)
        assert w.requires_grad == f.requires_grad
        np.testing.assert_allclose(f.detach().numpy(), w.detach().numpy(force=True), rtol=rtol, atol=atol)


def loss(t: Any, x: Any) -> Any:
    return (t.sin(x) * x.sum()).square().mean()


PROGRAMS: dict[str, tuple] = {
    "grad": (lambda t, f, x: f.grad(lambda u: loss(t, u))(x), (3,)),
    "grad_grad": (lambda t, f, x: f.grad(lambda u: f.grad(lambda v: loss(t, v))(u).sum())(x), (3,)),
    "grad_grad_grad": (lambda t, f, x: f.grad(f.grad(f.grad(lambda v: t.exp(v) * v)))(x), ()),
    "grad_argnums": (lambda t, f, x, y: f.grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, y), (3,), (3,)),
    "grad_argnums_negative": (lambda t, f, x, y: f.grad(lambda a, b: (a * b**2).sum(), argnums=-1)(x, y), (3,), (3,)),
    "grad_aux": (lambda t, f, x: f.grad(lambda a: (a.sum(), {"twice": a * 2}), has_aux=True)(x), (3,)),
    "grad_and_value": (lambda t, f, x: f.grad_and_value(lambda a: loss(t, a))(x), (3,)),
    "grad_and_value_aux": (lambda t, f, x: f.grad_and_value(lambda a: (loss(t, a), a * 3), has_aux=True)(x), (3,)),
    "grad_of_dict": (lambda t, f, x, y: f.grad(lambda p: (p["a"] * p["b"]).sum())({"a": x, "b": y}), (3,), (3,)),
    "grad_unused": (lambda t, f, x, y: f.grad(lambda a, b: a.sum(), argnums=(0, 1))(x, y), (3,), (2,)),
    "grad_kwargs": (lambda t, f, x, y: f.grad(lambda a, scale: (a * scale).sum())(x, scale=y), (3,), (3,)),
    "grad_inside_no_grad": (lambda t, f, x: _without_grad(t, lambda: f.grad(lambda u: loss(t, u))(x)), (3,)),
    "no_grad_inside_grad": (lambda t, f, x: f.grad(lambda u: (_without_grad(t, lambda: u * 2) * u).sum())(x), (3,)),
    "grad_with_captured_parameter": (lambda t, f, x, w: (lambda v: f.grad(lambda u: (u**2 * v).sum())(x))(w.requires_grad_()), (3,), (3,)),
    "grad_of_tensor_that_requires_grad": (lambda t, f, x: f.grad(lambda u: loss(t, u))(x.requires_grad_()), (3,)),
    "backward_through_grad": (lambda t, f, x: _backward_through(t, f, x), (3,)),
    "vjp": (lambda t, f, x, v: (lambda out, fn: (out, fn(v)))(*f.vjp(lambda u: t.sin(u) * u.sum(), x)), (3,), (3,)),
    "vjp_of_tree": (lambda t, f, x, y: f.vjp(lambda a, b: {"s": a * b, "d": a - b}, x, y)[1]({"s": x, "d": y}), (3,), (3,)),
    "vjp_aux": (lambda t, f, x: f.vjp(lambda u: (u * 2, u + 1), x, has_aux=True)[2], (3,)),
    "vjp_twice": (lambda t, f, x: (lambda out, fn: (fn(out), fn(out * 2)))(*f.vjp(t.tanh, x)), (3,)),
    "vmap_of_vjp_fn": (lambda t, f, x, v: f.vmap(f.vjp(lambda u: u @ u.T, x)[1])(v), (3, 2), (5, 3, 3)),
    "jvp": (lambda t, f, x, v: f.jvp(lambda u: t.sin(u) * u.sum(), (x,), (v,)), (3,), (3,)),
    "jvp_two": (lambda t, f, x, y: f.jvp(lambda a, b: (a * b, a.sum()), (x, y), (y, x)), (3,), (3,)),
    "jvp_aux": (lambda t, f, x: f.jvp(lambda u: (u**2, u + 1), (x,), (x,), has_aux=True), (3,)),
    "jvp_constant": (lambda t, f, x: f.jvp(lambda u: t.ones(2), (x,), (x,))[1], (3,)),
    "jvp_jvp": (lambda t, f, x, v: f.jvp(lambda u: f.jvp(t.sin, (u,), (v,))[1], (x,), (v,)), (3,), (3,)),
    "jvp_of_grad": (lambda t, f, x, v: f.jvp(f.grad(lambda u: loss(t, u)), (x,), (v,))[1], (3,), (3,)),
    "grad_of_jvp": (lambda t, f, x, v: f.grad(lambda u: f.jvp(t.sin, (u,), (v,))[1].sum())(x), (3,), (3,)),
    "vmap_of_jvp": (lambda t, f, x, v: f.vmap(lambda w: f.jvp(lambda u: u**3, (x,), (w,))[1])(v), (3,), (5, 3)),
    "linearize": (lambda t, f, x, v: (lambda out, fn: (out, fn(v), fn(v * 2)))(*f.linearize(lambda u: u * u.sum(), x)), (3,), (3,)),
    "jacrev": (lambda t, f, x: f.jacrev(lambda u: t.sin(u) * u.sum())(x), (2, 3)),
    "jacrev_chunks": (lambda t, f, x: f.jacrev(lambda u: t.sin(u) * u.sum(), chunk_size=2)(x), (5,)),
    "jacrev_tree": (lambda t, f, x, y: f.jacrev(lambda a, b: {"s": a * b, "n": a.sum()}, argnums=(0, 1))(x, y), (3,), (3,)),
    "jacrev_aux": (lambda t, f, x: f.jacrev(lambda u: (u**2, u.sum()), has_aux=True)(x), (3,)),
    "jacfwd": (lambda t, f, x: f.jacfwd(lambda u: t.sin(u) * u.sum())(x), (2, 3)),
    "jacfwd_tree": (lambda t, f, x, y: f.jacfwd(lambda a, b: {"s": a * b, "n": a.sum()}, argnums=(0, 1))(x, y), (3,), (3,)),
    "jacfwd_aux": (lambda t, f, x: f.jacfwd(lambda u: (u**2, u.sum()), has_aux=True)(x), (3,)),
    "hessian": (lambda t, f, x: f.hessian(lambda u: loss(t, u))(x), (4,)),
    "hessian_argnums": (lambda t, f, x, y: f.hessian(lambda a, b: (a**2 * b).sum(), argnums=(0, 1))(x, y), (3,), (3,)),
    "jacrev_jacrev": (lambda t, f, x: f.jacrev(f.jacrev(lambda u: loss(t, u)))(x), (4,)),
    "jacrev_jacfwd": (lambda t, f, x: f.jacrev(f.jacfwd(lambda u: t.sin(u) * u.sum()))(x), (3,)),
    "jacfwd_jacfwd": (lambda t, f, x: f.jacfwd(f.jacfwd(lambda u: loss(t, u)))(x), (3,)),
    "vmap_grad": (lambda t, f, x: f.vmap(f.grad(lambda u: loss(t, u)))(x), (5, 3)),
    "vmap_grad_unbatched": (lambda t, f, w, x: f.vmap(f.grad(lambda p, u: loss(t, p @ u)), (None, 0))(w, x), (2, 3), (5, 3)),
    "vmap_vmap_grad": (lambda t, f, w, x: f.vmap(f.vmap(f.grad(lambda p, u: loss(t, p @ u)), (None, 0)), (0, None))(w, x), (4, 2, 3), (5, 3)),
    "grad_vmap": (lambda t, f, x: f.grad(lambda u: f.vmap(lambda r: loss(t, r))(u).sum())(x), (5, 3)),
    "grad_vmap_grad": (lambda t, f, x: f.grad(lambda u: f.vmap(f.grad(lambda r: loss(t, r)))(u).square().sum())(x), (5, 3)),
    "vmap_hessian": (lambda t, f, x: f.vmap(f.hessian(lambda u: loss(t, u)))(x), (5, 3)),
    "vmap_jacfwd": (lambda t, f, x: f.vmap(f.jacfwd(lambda u: t.sin(u) * u.sum()))(x), (5, 3)),
    "vmap_jacrev_last": (lambda t, f, x: f.vmap(f.jacrev(lambda u: t.sin(u) * u.sum()), -1, -1)(x), (3, 5)),
    "jacrev_vmap": (lambda t, f, x: f.jacrev(f.vmap(lambda r: t.softmax(r, 0)))(x), (2, 3)),
    "vmap_nested_dims": (lambda t, f, x, y: f.vmap(f.vmap(lambda a, b: a * b + 1, (None, 0)), (1, None), 2)(x, y), (3, 4), (5, 3)),
    "vmap_out_dims": (lambda t, f, x: f.vmap(lambda a: (a, a.sum()), out_dims=(1, 0))(x), (5, 3)),
    "vmap_in_tree": (lambda t, f, x, y: f.vmap(lambda d, k: d["a"] * k + d["b"][0], ({"a": 0, "b": [None]}, 1))({"a": x, "b": [y]}, x.T), (5, 3), (3,)),
    "vmap_negative": (lambda t, f, x: f.vmap(lambda a: a.cumsum(0), -1, -1)(x), (3, 5)),
    "vmap_chunks": (lambda t, f, x: f.vmap(lambda a: (a * 2, a.sum()), chunk_size=2, out_dims=(1, 0))(x), (5, 3)),
    "vmap_constant": (lambda t, f, x: f.vmap(lambda a: t.ones(2))(x), (5, 3)),
    "vmap_empty_batch": (lambda t, f, x: f.vmap(lambda a: t.sin(a) @ t.ones(3))(x), (0, 3)),
    "vmap_kwargs": (lambda t, f, x, y: f.vmap(lambda a, b: a + b.sum(0))(x, b=y), (5, 3), (5, 3)),
    "vmap_python_branch_on_shape": (lambda t, f, x: f.vmap(lambda a: a.T if a.dim() == 2 else a)(x), (5, 3, 2)),
    "vmap_number_promotion": (lambda t, f, x: f.vmap(lambda a: t.ones(2) * a.double().sum())(x), (5, 3)),
    "torch_vmap": (lambda t, f, x: t.vmap(t.sin)(x), (5, 3)),
    "functionalize": (lambda t, f, x: f.functionalize(lambda a: a.clone().add_(1))(x), (3,)),
    "in_place_in_grad": (lambda t, f, x: f.grad(lambda a: _doubled_in_place(a).square().sum())(x), (3,)),
    "in_place_in_jacrev": (lambda t, f, x: f.jacrev(lambda a: _doubled_in_place(a).square())(x), (3,)),
    "in_place_part_in_vmap_grad": (lambda t, f, x: f.vmap(f.grad(lambda a: _part_in_place(a).square().sum()))(x), (5, 3)),
}  # fmt: skip


def _without_grad(t: Any, function: Callable) -> Any:
    with t.no_grad():
        return function()


def _backward_through(t: Any, f: Any, x: Any) -> Any:
    x.requires_grad_()
    f.grad(lambda u: loss(t, u))(x).sum().backward()
    return x.grad


def _doubled_in_place(a: Any) -> Any:
    b = a.clone()
    b.mul_(a)
    b[0] = 3 * a[1]
    return b


def _part_in_place(a: Any) -> Any:
    b = a * 1
    b[1:].mul_(a[0])
    return b


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_torch_func(name: str) -> None:
    program, *shapes = PROGRAMS[name]
    agree(program, *shapes)


# -- programs of the tutorials, in small ------------------------------------------------------------------------------


def _network(t: Any, seed: int = 0) -> Any:
    t.manual_seed(seed)
    return t.nn.Sequential(
        t.nn.Conv2d(1, 2, 3, padding=1), t.nn.ReLU(), t.nn.MaxPool2d(2), t.nn.Flatten(), t.nn.Linear(18, 4), t.nn.LayerNorm(4),
        t.nn.GELU(), t.nn.Linear(4, 3),
    )  # fmt: skip


def test_per_sample_gradients() -> None:
    def program(t: Any, f: Any, x: Any) -> Any:
        model, labels = _network(t), t.tensor([0, 2, 1, 1])
        parameters = {k: v.detach() for k, v in model.named_parameters()}

        def sample_loss(p: Any, image: Any, label: Any) -> Any:
            out = f.functional_call(model, p, (image.unsqueeze(0),))
            return t.nn.functional.cross_entropy(out, label.unsqueeze(0))

        return f.vmap(f.grad(sample_loss), (None, 0, 0))(parameters, x, labels)

    agree(program, (4, 1, 6, 6))


def test_ensembles() -> None:
    def program(t: Any, f: Any, x: Any) -> Any:
        models = [_network(t, seed) for seed in range(3)]
        parameters, buffers = f.stack_module_state(models)
        run = lambda p, b, data: f.functional_call(models[0], (p, b), (data,))  # noqa: E731
        same = f.vmap(run, (0, 0, None))(parameters, buffers, x)
        own = f.vmap(run, (0, 0, 0))(parameters, buffers, t.stack([x, x * 2, x * 3]))
        return same, own

    agree(program, (4, 1, 6, 6))


def test_neural_tangent_kernel() -> None:
    def program(t: Any, f: Any, x1: Any, x2: Any) -> Any:
        model = _network(t)
        parameters = {k: v.detach() for k, v in model.named_parameters()}
        single = lambda p, x: f.functional_call(model, p, (x.unsqueeze(0),)).squeeze(0)  # noqa: E731
        jac1 = f.vmap(f.jacrev(single), (None, 0))(parameters, x1)
        jac2 = f.vmap(f.jacrev(single), (None, 0))(parameters, x2)
        parts = [t.einsum("Naf,Mbf->NMab", jac1[k].flatten(2), jac2[k].flatten(2)) for k in jac1]
        return sum(parts)

    agree(program, (3, 1, 6, 6), (2, 1, 6, 6), rtol=1e-3, atol=1e-4)


def test_batch_norm_without_running_statistics() -> None:
    def program(t: Any, f: Any, x: Any) -> Any:
        t.manual_seed(0)
        model = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4))
        with pytest.raises(RuntimeError, match="running_mean"):
            f.vmap(model)(x)
        f.replace_all_batch_norm_modules_(model)
        return f.vmap(model)(x)

    agree(program, (2, 5, 3))


# -- random numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_random_numbers_are_those_of_torch(randomness: str) -> None:
    def program(t: Any, f: Any, x: Any) -> Any:
        t.manual_seed(3)
        mapped = f.vmap(lambda a: (t.rand(2) + a[:2], t.randn(20), t.randint(0, 9, (4,))), randomness=randomness)
        return mapped(x)

    agree(program, (3, 5))


def test_dropout_under_vmap() -> None:
    x = flambeau.ones(4, 1000)
    drop = lambda a: flambeau.nn.functional.dropout(a, 0.5)  # noqa: E731
    same = flambeau.vmap(drop, randomness="same")(x)
    different = flambeau.vmap(drop, randomness="different")(x)
    assert (same[0] == same[1]).all()
    assert not (different[0] == different[1]).all()
    assert set(np.unique(different.numpy())) == {0.0, 2.0}
    assert (flambeau.vmap(lambda a: flambeau.nn.functional.dropout(a, 0.5, training=False))(x) == x).all()


def test_hidden_randomness_is_found() -> None:
    q = flambeau.ones(3, 2, 4, 4)
    attend = lambda a: flambeau.nn.functional.scaled_dot_product_attention(a, a, a, dropout_p=0.5)  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for randomness in ("error", "same"):
            with pytest.raises(RuntimeError, match="random"):
                flambeau.vmap(attend, randomness=randomness)(q)
        assert flambeau.vmap(attend, randomness="different")(q).shape == q.shape


def test_running_statistics_of_each_element() -> None:
    def program(t: Any, f: Any, x: Any, mean: Any) -> Any:
        variance = mean.square() + 1
        norm = lambda a, m, v: t.nn.functional.batch_norm(a, m, v, training=True)  # noqa: E731
        return f.vmap(norm, (0, 1, 0))(x, mean.T.contiguous(), variance), mean, variance

    agree(program, (3, 5, 4), (3, 4))


def test_forward_mode_never_takes_a_missing_second_derivative_for_zero() -> None:
    bag = lambda w: flambeau.nn.functional.embedding_bag(  # noqa: E731
        flambeau.tensor([1, 2, 1]), w, flambeau.tensor([0, 2]), mode="sum", per_sample_weights=flambeau.ones(3)
    )
    with pytest.raises(NotImplementedError, match="_embedding_bag_dense_backward"):
        flambeau.func.jacfwd(bag)(flambeau.ones(4, 2))
    assert flambeau.func.jacrev(bag)(flambeau.ones(4, 2)).sum() == 6


def test_forward_mode_of_integer_results() -> None:
    agree(lambda t, f, x: f.jvp(lambda a: (a * 2, a.long(), t.logcumsumexp(a, 0)), (x,), (x,)), (3,))
