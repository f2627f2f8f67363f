"""What the transforms refuse, with PyTorch's exceptions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from answers import judge

import flambeau
import flambeau.func

torch = judge("torch")

REFUSED: dict[str, Callable] = {
    "item": lambda t, f, x: f.vmap(lambda a: a.sum().item())(x),
    "bool": lambda t, f, x: f.vmap(lambda a: a if a.sum() > 0 else -a)(x),
    "float": lambda t, f, x: f.vmap(lambda a: float(a.sum()))(x),
    "numpy": lambda t, f, x: f.vmap(lambda a: a.numpy())(x),
    "tolist": lambda t, f, x: f.vmap(lambda a: a.tolist())(x),
    "data_ptr": lambda t, f, x: f.vmap(lambda a: a.data_ptr())(x),
    "nonzero": lambda t, f, x: f.vmap(lambda a: a.nonzero())(x),
    "unique": lambda t, f, x: f.vmap(lambda a: t.unique(a))(x),
    "mask": lambda t, f, x: f.vmap(lambda a: a[a > 0])(x),
    "equal": lambda t, f, x: f.vmap(lambda a: t.equal(a, a))(x),
    "allclose": lambda t, f, x: f.vmap(lambda a: t.allclose(a, a))(x),
    "in_place_on_unbatched": lambda t, f, x: f.vmap(lambda a: t.zeros(4).add_(a))(x),
    "copy_into_unbatched": lambda t, f, x: f.vmap(lambda a: t.zeros(4).copy_(a))(x),
    "out": lambda t, f, x: f.vmap(lambda a: t.add(a, a, out=t.zeros(4)))(x),
    "sizes": lambda t, f, x: f.vmap(lambda a, b: a)(x, x[:2]),
    "in_dim_too_large": lambda t, f, x: f.vmap(lambda a: a, in_dims=2)(x),
    "in_dims_none": lambda t, f, x: f.vmap(lambda a: a, in_dims=None)(x),
    "in_dims_all_none": lambda t, f, x: f.vmap(lambda a: a, in_dims=(None,))(x),
    "in_dims_structure": lambda t, f, x: f.vmap(lambda a: a, in_dims=(0, 0))(x),
    "in_dims_text": lambda t, f, x: f.vmap(lambda a: a, in_dims="x")(x),
    "in_dims_list": lambda t, f, x: f.vmap(lambda a: a, in_dims=[0])(x),
    "in_dims_of_dict": lambda t, f, x: f.vmap(lambda a: a["k"], in_dims=({"l": 0},))({"k": x}),
    "number_argument": lambda t, f, x: f.vmap(lambda a: a)(3),
    "no_argument": lambda t, f, x: f.vmap(lambda: x)(),
    "number_result": lambda t, f, x: f.vmap(lambda a: 3)(x),
    "out_dim_too_large": lambda t, f, x: f.vmap(lambda a: a, out_dims=5)(x),
    "out_dims_structure": lambda t, f, x: f.vmap(lambda a: a, out_dims=(0, 0))(x),
    "out_dims_none": lambda t, f, x: f.vmap(lambda a: a, out_dims=None)(x),
    "random": lambda t, f, x: f.vmap(lambda a: a + t.randn(4))(x),
    "dropout": lambda t, f, x: f.vmap(lambda a: t.nn.functional.dropout(a))(x),
    "randomness": lambda t, f, x: f.vmap(lambda a: a, randomness="some")(x),
    "chunk_size": lambda t, f, x: f.vmap(lambda a: a, chunk_size=0)(x),
    "shapes_inside": lambda t, f, x: f.vmap(lambda a: a + t.ones(3))(x),
    "matmul_inside": lambda t, f, x: f.vmap(lambda a: a @ t.ones(3))(x),
    "dim_inside": lambda t, f, x: f.vmap(lambda a: a.sum(1))(x),
    "view_inside": lambda t, f, x: f.vmap(lambda a: a.view(3))(x),
    "select_inside": lambda t, f, x: f.vmap(lambda a: a[4])(x),
    "backward_inside": lambda t, f, x: f.vmap(lambda a: a.sum().backward())(x),
    "grad_of_vector": lambda t, f, x: f.grad(lambda a: a)(x),
    "grad_of_integers": lambda t, f, x: f.grad(lambda a: a.sum())(x.long()),
    "grad_of_float": lambda t, f, x: f.grad(lambda a: a)(3.0),
    "grad_number": lambda t, f, x: f.grad(lambda a: 3.0)(x),
    "grad_tuple": lambda t, f, x: f.grad(lambda a: (a.sum(), a))(x),
    "grad_no_aux": lambda t, f, x: f.grad(lambda a: a.sum(), has_aux=True)(x),
    "argnums_large": lambda t, f, x: f.grad(lambda a: a.sum(), argnums=2)(x),
    "argnums_text": lambda t, f, x: f.grad(lambda a: a.sum(), argnums="a")(x),
    "argnums_empty": lambda t, f, x: f.grad(lambda a: a.sum(), argnums=())(x),
    "argnums_twice": lambda t, f, x: f.grad(lambda a: a.sum(), argnums=(0, 0))(x),
    "vjp_number": lambda t, f, x: f.vjp(lambda a: 3, x),
    "vjp_of_float": lambda t, f, x: f.vjp(lambda a: a, 3.0),
    "vjp_shape": lambda t, f, x: f.vjp(lambda a: a * 2, x)[1](t.ones(2)),
    "vjp_structure": lambda t, f, x: f.vjp(lambda a: a * 2, x)[1]((x, x)),
    "jvp_no_tuple": lambda t, f, x: f.jvp(lambda a: a, x, x),
    "jvp_shape": lambda t, f, x: f.jvp(lambda a: a, (x,), (t.ones(2),)),
    "jvp_structure": lambda t, f, x: f.jvp(lambda a: a, (x,), (x, x)),
    "jvp_number": lambda t, f, x: f.jvp(lambda a: 2, (x,), (x,)),
    "jacrev_number": lambda t, f, x: f.jacrev(lambda a: 2)(x),
    "jacrev_chunk_size": lambda t, f, x: f.jacrev(lambda a: a, chunk_size=0),
    "jacfwd_argnums": lambda t, f, x: f.jacfwd(lambda a: a, argnums=1)(x),
    "jacfwd_integers": lambda t, f, x: f.jacfwd(lambda a: a)(x.long()),
    "functionalize": lambda t, f, x: f.functionalize(lambda a: a, remove="all")(x),
    "stack_nothing": lambda t, f, x: f.stack_module_state([]),
    "stack_kinds": lambda t, f, x: f.stack_module_state([t.nn.Linear(2, 2), t.nn.ReLU()]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_same_exception_as_torch(name: str) -> None:
    def problem(t: Any) -> BaseException:
        with warnings.catch_warnings(), pytest.raises(Exception) as caught:  # noqa: PT011  compared below
            warnings.simplefilter("ignore")
            REFUSED[name](t, t.func, t.arange(12.0).reshape(3, 4))
        return caught.value

    wanted, found = problem(torch), problem(flambeau)
    assert isinstance(found, type(wanted)), f"torch: {wanted!r}, here: {found!r}"
    assert str(found)


def test_levels_end_after_an_error() -> None:
    with pytest.raises(RuntimeError):
        flambeau.vmap(lambda a: a.item())(flambeau.ones(3))
    with pytest.raises(ZeroDivisionError):
        flambeau.func.grad(lambda a: a / 0 * (1 // 0))(flambeau.ones(()))
    assert not flambeau.core.modes.own.stack or all(type(m).__name__ != "Level" for m in flambeau.core.modes.own.stack)
    assert flambeau.is_grad_enabled()


def test_slow_operators_say_so() -> None:
    with pytest.warns(
        UserWarning, match="performance drop because we have not yet implemented the batching rule for histc"
    ):
        flambeau.vmap(lambda a: flambeau.histc(a, 3))(flambeau.ones(2, 3))


def test_as_strided_stays_within_the_memory_of_one_element():
    x = flambeau.arange(8.0).reshape(2, 4)
    rows = flambeau.vmap(lambda t: t.as_strided((2, 2), (2, 1)))(x)
    assert rows.tolist() == x.reshape(2, 2, 2).tolist()
    with pytest.raises(RuntimeError, match="reaches beyond the memory of one element"):
        flambeau.vmap(lambda t: t.as_strided((2, 2), (3, 2)))(x)


def test_new_memory_with_strides_has_no_gap_between_elements():
    made = flambeau.vmap(lambda t: t.new_empty_strided((2, 3), (3, 1)))(flambeau.zeros(4))
    assert made.stride() == (6, 3, 1)
