"""Formulas, compiled and by tensor operations: the same numbers for every layout."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau import nn, optim
from flambeau.optim import fused
from flambeau.optim.formula import detached, lerp, maximum, minimum, sqrt, where

OPTIMIZERS = {
    "SGD": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "Adam": {"amsgrad": True, "weight_decay": 0.1},
    "AdamW": {},
    "NAdam": {"weight_decay": 0.1},
    "RAdam": {"betas": (0.9, 0.8)},
    "Adamax": {"maximize": True},
    "Adagrad": {"lr_decay": 0.1},
    "Adadelta": {"weight_decay": 0.1},
    "RMSprop": {"centered": True, "momentum": 0.9},
    "Rprop": {},
    "ASGD": {"t0": 2, "lambd": 0.1},
}


def layouts() -> dict:
    """Parameters of the same values in different places of memory, each with its gradient."""
    values = np.random.RandomState(0).standard_normal((6, 4)).astype("float32")
    slopes = np.random.RandomState(1).standard_normal((6, 4)).astype("float32")

    def tensor(x):
        return flambeau.from_numpy(x.copy())

    wide = flambeau.zeros(8, 9)
    wide[1:7, 2:6] = tensor(values)
    return {
        "plain": (tensor(values), tensor(slopes)),
        "transposed": (tensor(values.T).t(), tensor(slopes.T).t()),
        "transposed gradient": (tensor(values), tensor(slopes.T).t()),
        "a part": (wide[1:7, 2:6], tensor(slopes)),
        "shifted": (flambeau.cat([flambeau.zeros(5), tensor(values).reshape(-1)])[5:].view(6, 4), tensor(slopes)),
    }


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_layout_and_tensor_operations_agree(name: str, monkeypatch) -> None:
    results = {}
    for way in ("native", "tensors"):
        if way == "tensors":
            monkeypatch.setattr(fused, "NATIVE", False)
        for layout, (p, g) in layouts().items():
            p.requires_grad_()
            optimizer = getattr(optim, name)([p], **OPTIMIZERS[name])
            for _ in range(6):
                p.grad = g
                optimizer.step()
            results[way, layout] = p.detach().contiguous().numpy(), optimizer.state[p]
    expected, state = results["native", "plain"]
    for found, other in results.values():
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert set(other) == set(state)
        for key in state:
            np.testing.assert_allclose(other[key].contiguous().numpy(), state[key].numpy(), rtol=1e-5, atol=1e-6)


def test_state_follows_the_layout_of_its_parameter() -> None:
    p = nn.Parameter(flambeau.randn(2, 3, 4, 4).to(memory_format=flambeau.channels_last))
    p.grad = flambeau.ones_like(p)
    optimizer = optim.Adam([p])
    optimizer.step()
    assert optimizer.state[p]["exp_avg"].stride() == p.stride()


def test_memory_around_a_part_is_left_alone() -> None:
    whole = flambeau.zeros(10)
    part = whole[2:5].requires_grad_()
    part.grad = flambeau.ones(3)
    optim.SGD([part], lr=1.0).step()
    assert whole.tolist() == [0, 0, -1, -1, -1, 0, 0, 0, 0, 0]


def test_parameters_may_move_between_steps() -> None:
    p = nn.Parameter(flambeau.ones(4))
    optimizer = optim.Adam([p], lr=0.5)
    p.grad = flambeau.ones(4)
    optimizer.step()
    p.data = flambeau.full((4,), 3.0)
    p.grad = flambeau.ones(4)
    optimizer.step()
    assert flambeau.allclose(p, flambeau.full((4,), 2.5))
    optimizer.state[p]["exp_avg"] = flambeau.zeros(4)
    optimizer.state[p]["step"] = flambeau.tensor(0.0)
    optimizer.step()
    assert optimizer.state[p]["step"].item() == 1.0


def test_state_of_another_shape_is_refused() -> None:
    p = nn.Parameter(flambeau.ones(4))
    p.grad = flambeau.ones(4)
    optimizer = optim.Adam([p])
    optimizer.step()
    optimizer.state[p]["exp_avg"] = flambeau.zeros(3)
    with pytest.raises(RuntimeError, match=r"'exp_avg' is .* of shape \[3\], but its parameter is .* of shape \[4\]"):
        optimizer.step()
    optimizer.state[p]["exp_avg"] = flambeau.zeros(4)
    optimizer.state[p]["step"] = flambeau.zeros(2)
    with pytest.raises(RuntimeError, match="expected one element"):
        optimizer.step()


def test_overlapping_parameters_are_refused() -> None:
    p = flambeau.ones(1).expand(4).requires_grad_()
    p.grad = flambeau.ones(4)
    with pytest.raises(RuntimeError, match="single memory location"):
        optim.SGD([p]).step()


def test_large_parameters_on_all_threads() -> None:
    p = nn.Parameter(flambeau.zeros(300_001))
    p.grad = flambeau.arange(300_001).float()
    optim.SGD([p], lr=0.5).step()
    np.testing.assert_array_equal(p.detach().numpy(), -0.5 * np.arange(300_001, dtype="float32"))


def test_own_formulas() -> None:
    @fused.update(scalars=("count",))
    def clipped(param, grad, seen, count, *, rate, limit, double):
        count = count + 1
        size = minimum(maximum(grad, -limit), limit)
        if double:
            size = 2 * size
        return {"param": param - rate / sqrt(count) * size, "seen": maximum(seen, abs(grad)), "count": count}

    class Owner:
        def __init__(self):
            self.state = {}

        def _begin(self, group, state, p, grad):
            state["seen"], state["count"] = flambeau.zeros_like(p), flambeau.tensor(3.0)

        def _sparse_gradient(self, group, p, options):
            raise AssertionError

    owner = Owner()
    p = flambeau.zeros(3, requires_grad=True)
    owner.state[p] = {}
    p.grad = flambeau.tensor([1.0, -5.0, 0.25])
    with flambeau.no_grad():
        clipped.run(owner, {}, [p], {"rate": 1.0, "limit": 2.0, "double": False})
        assert p.tolist() == [-0.5, 1.0, -0.125]
        clipped.run(owner, {}, [p], {"rate": 0.0, "limit": 2.0, "double": True})
    assert p.tolist() == [-0.5, 1.0, -0.125]
    assert owner.state[p]["seen"].tolist() == [1.0, 5.0, 0.25] and owner.state[p]["count"].item() == 5.0


def test_a_changed_number_compiles_nothing_new() -> None:
    p = nn.Parameter(flambeau.ones(5))
    p.grad = flambeau.ones(5)
    optimizer = optim.Adam([p])
    optimizer.step()
    update = type(optimizer).update
    plans = sum(len(v.plans) for v in update.variants.values())
    for lr in (0.1, 0.01):
        optimizer.param_groups[0].update(lr=lr, betas=(0.5, lr), eps=lr)
        optimizer.step()
    assert sum(len(v.plans) for v in update.variants.values()) == plans


def test_words_on_numbers_and_tensors() -> None:
    assert (sqrt(4.0), maximum(1, 2.0), minimum(1, 2.0), where(True, 1, 2), lerp(0.0, 4.0, 0.25)) == (2, 2, 1, 1, 1)
    assert np.isnan(sqrt(-1.0))
    x = flambeau.tensor([1.0, 4.0])
    assert sqrt(x).tolist() == [1, 2]
    assert maximum(x, 2).tolist() == maximum(2, x).tolist() == maximum(x, flambeau.tensor(2.0)).tolist() == [2, 4]
    assert minimum(x, 2).tolist() == minimum(2, x).tolist() == minimum(x, flambeau.tensor(2.0)).tolist() == [1, 2]
    assert where(x > 2, x, 0.0).tolist() == [0, 4]
    assert detached(3) == 3 and not detached(flambeau.ones(1, requires_grad=True)).requires_grad


def listed(rows: list) -> flambeau.Tensor:
    """A sparse gradient of a (4, 2) table: its rows 0 and 2, row 0 in two parts."""
    first, third = rows
    half = [first[0] / 2, first[1] / 2]
    return flambeau.sparse_coo_tensor([[0, 2, 0]], [half, third, half], (4, 2))


@pytest.mark.parametrize(
    ("name", "options"),
    [("SGD", {"lr": 0.5}), ("SGD", {"lr": 0.5, "momentum": 0.9}), ("Adagrad", {"lr": 0.5, "lr_decay": 0.1})],
)
def test_sparse_gradients_equal_dense_ones(name: str, options: dict) -> None:
    sparse, dense = (nn.Parameter(flambeau.ones(4, 2)) for _ in range(2))
    optimizers = [getattr(optim, name)([p], **options) for p in (sparse, dense)]
    for k in range(3):
        gradient = listed([[1.0 + k, 2.0], [-3.0, 0.5]])
        sparse.grad, dense.grad = gradient, gradient.to_dense()
        for optimizer in optimizers:
            optimizer.step()
    assert flambeau.allclose(sparse, dense)
    assert sparse[1].tolist() == [1.0, 1.0]


def test_sparse_gradients_are_refused_by_others() -> None:
    p = nn.Parameter(flambeau.ones(4, 2))
    p.grad = listed([[1.0, 2.0]] * 2)
    with pytest.raises(
        RuntimeError, match="Adam does not support sparse gradients, please consider SparseAdam instead"
    ):
        optim.Adam([p]).step()
    with pytest.raises(RuntimeError, match="RMSprop does not support sparse gradients"):
        optim.RMSprop([p]).step()
    with pytest.raises(RuntimeError, match="weight_decay option is not compatible"):
        optim.Adagrad([p], weight_decay=0.1).step()


def test_sparse_adam_leaves_other_rows_alone() -> None:
    sparse, plain = (nn.Parameter(flambeau.ones(4, 2)) for _ in range(2))
    a, b = optim.SparseAdam([sparse], lr=0.1), optim.Adam([plain], lr=0.1)
    for k in range(3):
        gradient = listed([[1.0 + k, 2.0], [-3.0, 0.5]])
        sparse.grad, plain.grad = gradient, gradient.to_dense()
        a.step()
        b.step()
    assert flambeau.allclose(sparse, plain)
    sparse.grad = flambeau.sparse_coo_tensor([[0]], [[1.0, 1.0]], (4, 2))
    before = sparse.detach().clone()
    a.step()
    assert flambeau.equal(sparse[1:], before[1:]) and not flambeau.equal(sparse[0], before[0])
    assert a.state[sparse]["step"] == 4
    sparse.grad = flambeau.ones(4, 2)
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients, please consider Adam instead"):
        a.step()
