"""Averaged models beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
from answers import judge

import flambeau
from flambeau import nn, optim
from flambeau.optim import swa_utils

torch = judge("torch")


def model(lib):
    """The same small network in both libraries."""
    net = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.BatchNorm1d(4), lib.nn.Linear(4, 2))
    rng = np.random.RandomState(0)
    with lib.no_grad():
        for p in net.parameters():
            p.copy_(lib.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32")))
    return net


def change(lib, net, step: int) -> None:
    rng = np.random.RandomState(step + 1)
    with lib.no_grad():
        for p in net.parameters():
            p.add_(lib.from_numpy(rng.standard_normal(tuple(p.shape)).astype("float32")))
        net[1].running_mean.add_(step)
        net[1].num_batches_tracked.add_(3)


CASES = {
    "equal": lambda u: {},
    "ema": lambda u: {"avg_fn": u.get_ema_avg_fn(0.9)},
    "ema of lists": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9)},
    "ema with buffers": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9), "use_buffers": True},
    "swa": lambda u: {"avg_fn": u.get_swa_avg_fn()},
    "swa of lists": lambda u: {"multi_avg_fn": u.get_swa_multi_avg_fn()},
    "own": lambda u: {"avg_fn": lambda average, current, n: 0.5 * average + 0.5 * current},
}


@pytest.mark.parametrize("case", CASES)
def test_averages(case: str) -> None:
    found = []
    for lib in (torch, flambeau):
        net = model(lib)
        averaged = lib.optim.swa_utils.AveragedModel(net, **CASES[case](lib.optim.swa_utils))
        for step in range(4):
            change(lib, net, step)
            averaged.update_parameters(net)
        found.append({k: v.numpy() for k, v in averaged.state_dict().items()})
    theirs, ours = found
    assert list(ours) == list(theirs)
    for key in theirs:
        np.testing.assert_allclose(ours[key], theirs[key], rtol=1e-5, atol=1e-6)
        assert ours[key].dtype == theirs[key].dtype


def test_forward_and_update_bn() -> None:
    data = np.random.RandomState(5).standard_normal((5, 8, 3)).astype("float32")
    found = []
    for lib in (torch, flambeau):
        net = model(lib)
        averaged = lib.optim.swa_utils.AveragedModel(net)
        averaged.update_parameters(net)
        averaged.eval()
        lib.optim.swa_utils.update_bn([(lib.from_numpy(x), None) for x in data], averaged)
        assert not averaged.training and averaged.module[1].momentum == 0.1
        found.append([averaged(lib.from_numpy(data[0])).detach().numpy(), averaged.module[1].running_var.numpy()])
    for theirs, ours in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_model_without_batch_norm_is_not_run() -> None:
    class Never(nn.Module):
        def forward(self, x):
            raise AssertionError

    swa_utils.update_bn([1, 2], Never())


@pytest.mark.parametrize("make", [swa_utils.get_ema_avg_fn, swa_utils.get_ema_multi_avg_fn])
def test_decay_is_a_part(make) -> None:
    with pytest.raises(ValueError, match="Invalid decay value 1.5"):
        make(1.5)


def test_one_way_of_averaging() -> None:
    with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn"):
        swa_utils.AveragedModel(
            nn.Linear(1, 1), avg_fn=swa_utils.get_swa_avg_fn(), multi_avg_fn=swa_utils.get_swa_multi_avg_fn()
        )


def test_the_original_is_left_alone() -> None:
    net = nn.Linear(2, 1)
    averaged = swa_utils.AveragedModel(net)
    optimizer = optim.SGD(net.parameters(), lr=1.0)
    before = averaged.module.weight.tolist()
    net(flambeau.ones(1, 2)).sum().backward()
    optimizer.step()
    assert averaged.module.weight.tolist() == before and net.weight.tolist() != before
