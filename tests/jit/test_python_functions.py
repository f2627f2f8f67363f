"""Functions of `torch.functional` in compiled code, where PyTorch compiles Python and not one operator."""

from __future__ import annotations

import pytest

import flambeau as torch


def default(a, b):
    return torch.tensordot(a, b)


def number(a, b):
    return torch.tensordot(a, b, dims=1)


def pair(a, b):
    return torch.tensordot(a, b, ([a.dim() - 1], [0]))


def lists(a, b):
    return torch.tensordot(a, b, [[1, 0], [0, 1]])


def tensor(a, b):
    return torch.tensordot(a, b, torch.tensor([[1], [0]]))


def centred(a, b):
    return torch.view_as_real(torch.stft(a.flatten(), 4, window=b[0], return_complex=True))


def not_centred(a, b):
    return torch.view_as_real(torch.stft(a.flatten(), 4, window=b[0], center=False, return_complex=True))


@pytest.mark.parametrize("function", [default, number, pair, lists, tensor, centred, not_centred])
def test_compiled_calls_compute_what_python_does(function):
    a = torch.arange(16.0).reshape(4, 4).sin()
    assert torch.jit.script(function)(a, a.cos()).equal(function(a, a.cos()))


def test_the_operator_behind_tensordot_takes_two_lists():
    a = torch.arange(6.0).reshape(2, 3)
    assert torch.ops.aten.tensordot(a, a, [1], [1]).equal(a @ a.T)
