"""Edges of layers whose answer is known without a judge: refusals, inputs without a batch, kinds of tensors."""

from __future__ import annotations

import pytest

import flambeau
from flambeau import nn
from flambeau.nn import functional as F


@pytest.mark.parametrize("dropout", [F.dropout1d, F.dropout2d, F.dropout3d], ids=lambda f: f.__name__)
@pytest.mark.parametrize("p", [-0.1, 1.2])
def test_dropout_of_channels_refuses_what_is_no_probability(dropout, p):
    with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1"):
        dropout(flambeau.ones(2, 3, 4, 4, 4)[:, :, 0, 0] if dropout is F.dropout1d else flambeau.ones(2, 3, 4, 4, 4), p)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_a_cell_without_a_batch_gives_the_row_of_a_batch_of_one(kind):
    flambeau.manual_seed(0)
    cell, x = kind(3, 4), flambeau.randn(3)
    alone, batched = cell(x), cell(x[None])
    for one, row in zip(alone, batched) if kind is nn.LSTMCell else [(alone, batched)]:
        assert one.shape == (4,)
        assert flambeau.equal(one, row[0])


def test_buffers_are_known_by_their_mark_and_parameters_are_none():
    class MarkedTensor(nn.Buffer):
        pass

    assert isinstance(nn.Buffer(flambeau.ones(2)), nn.Buffer)
    assert not isinstance(flambeau.ones(2), nn.Buffer)
    assert not isinstance(nn.Parameter(flambeau.ones(2)), nn.Buffer)
    assert not isinstance(nn.Buffer(flambeau.ones(2)), MarkedTensor)


def test_a_gradient_of_another_dtype_is_converted_to_that_of_its_leaf():
    class Doubled(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.double()

        @staticmethod
        def backward(ctx, g):
            return g * 2

    leaf = flambeau.ones(3, requires_grad=True)
    Doubled.apply(leaf).sum().backward()
    assert leaf.grad.dtype is flambeau.float32
    assert leaf.grad.tolist() == [2, 2, 2]


def test_statistics_of_old_checkpoints_are_refused_by_instance_norm_in_words_of_their_own():
    kept = flambeau.nn.InstanceNorm2d(2, track_running_stats=True).state_dict()
    for version, message in (
        ({}, 'Unexpected running stats buffer\\(s\\) "running_mean" and "running_var" for InstanceNorm2d'),
        ({"version": 2}, 'Unexpected key\\(s\\) in state_dict: "running_mean", "running_var", "num_batches_tracked"'),
    ):
        kept._metadata[""] = version
        with pytest.raises(RuntimeError, match=message):
            flambeau.nn.InstanceNorm2d(2).load_state_dict(kept)
