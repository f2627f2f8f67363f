"""ao.pruning: the masks, levels and texts are PyTorch's."""

from __future__ import annotations

import copy
import warnings

import pytest
from answers.programs import check_function

import flambeau
from flambeau import nn
from flambeau.ao.pruning import FakeSparsity, LambdaSL, WeightNormSparsifier

SETTINGS = {
    "blocks of four": {},
    "single weights": {"sparse_block_shape": (1, 1), "sparsity_level": 0.7},
    "two of four": {"zeros_per_block": 2, "sparsity_level": 1.0},
    "squares": {"sparse_block_shape": (2, 2), "norm": 1},
}


def model(t):
    made = t.nn.Sequential(t.nn.Linear(12, 8), t.nn.ReLU(), t.nn.Linear(8, 4))
    with t.no_grad():
        for p in made.parameters():
            p.copy_(((t.arange(p.numel()) ** 2 * 37 % 1009 - 500) / 512).reshape(p.shape))
    return made


def masks(t, make, **schedule):
    made, sparsifier = model(t), make(t.ao.pruning)
    sparsifier.prepare(made, config=[{"tensor_fqn": "0.weight"}, {"tensor_fqn": "2.weight"}])
    scheduler = t.ao.pruning.CubicSL(sparsifier, total_t=4, delta_t=1, **schedule) if schedule else None
    found, levels = [], []
    for _ in range(4):
        sparsifier.step()
        if scheduler is not None:
            scheduler.step()
            levels.append(scheduler.get_last_sl())
        found.append([layer.parametrizations.weight[0].mask.float().tolist() for layer in (made[0], made[2])])
    text = repr(sparsifier)
    sparsifier.squash_mask(params_to_keep=("tensor_fqn",))
    return found, levels, text, made[0].weight.tolist(), made[0].sparse_params, list(made.state_dict())


def by_name(t, name, schedule):
    make = {"diagonal": lambda p: p.NearlyDiagonalSparsifier(3), "dense": lambda p: p.WeightNormSparsifier(0.9)}
    return masks(t, make.get(name, lambda p: p.WeightNormSparsifier(**SETTINGS[name])), **schedule)


@pytest.mark.parametrize("name", [*SETTINGS, "diagonal"])
def test_masks_are_pytorchs(name):
    check_function(by_name, name, {})


@pytest.mark.parametrize("schedule", [{"init_sl": 0.1, "init_t": 1}, {"init_sl": 0.3, "init_t": 0}])
def test_schedules_are_pytorchs(schedule):
    check_function(by_name, "dense", schedule)


def test_half_of_the_blocks_at_uneven_edges_are_zero():
    layer = nn.Sequential(nn.Linear(7, 5))
    sparsifier = WeightNormSparsifier(0.5, sparse_block_shape=(2, 3))
    sparsifier.prepare(layer, None)
    sparsifier.step()
    mask = layer[0].parametrizations.weight[0].mask
    blocks = [mask[i : i + 2, j : j + 3] for i in range(0, 5, 2) for j in range(0, 7, 3)]
    assert sum(not b.any() for b in blocks) == 4 and sum(bool(b.all()) for b in blocks) == 5


def test_masks_are_saved_with_the_sparsifier():
    first = model(flambeau)
    sparsifier = WeightNormSparsifier(0.5)
    sparsifier.prepare(first, None)
    sparsifier.step()
    saved = copy.deepcopy(sparsifier.state_dict())
    other, again = model(flambeau), WeightNormSparsifier(0.5)
    again.prepare(other, None)
    again.load_state_dict(saved)
    assert flambeau.equal(other[0].weight, first[0].weight)
    assert isinstance(other[0].parametrizations.weight[0], FakeSparsity)


def test_what_is_refused():
    with pytest.raises(NotImplementedError, match="L-3"):
        WeightNormSparsifier(norm=3)
    with pytest.raises(AssertionError, match="should be dicts"):
        WeightNormSparsifier().prepare(model(flambeau), [nn.Linear(2, 2)])
    with pytest.raises(TypeError, match="is not an instance of"):
        LambdaSL(type("Other", (), {"groups": []})(), lambda epoch: 1.0)
    sparsifier = WeightNormSparsifier()
    sparsifier.prepare(model(flambeau), None)
    scheduler = LambdaSL(sparsifier, lambda epoch: 1.0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        scheduler.step()
    assert "before `sparsifier.step()`" in str(seen[0].message)
