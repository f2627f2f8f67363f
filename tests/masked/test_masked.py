"""Masked reductions and normalisations against PyTorch's, where the mask chooses."""

from __future__ import annotations

import warnings

import pytest
from answers import judge

import flambeau
import flambeau.masked

torch = judge("torch")
judge("torch.masked")

DATA = [[1.5, -2.0, 3.0, 0.5], [4.0, 5.5, -6.0, 2.0], [0.25, 1.0, 2.0, 8.0]]
MASKS = {
    "none": None,
    "some": [[True, False, True, True], [False, True, True, False], [True, True, True, True]],
    "row": [True, True, False, True],
    "empty row": [[True, False, True, True], [False, False, False, False], [True, True, True, True]],
}
CALLS = """
sum(x, mask=m)
sum(x, 1, mask=m)
sum(x, (0, 1), keepdim=True, mask=m)
sum(x.long(), 0, mask=m)
sum(x, 0, dtype=T.float64, mask=m)
prod(x, mask=m)
prod(x, 1, keepdim=True, mask=m)
amax(x, 1, mask=m)
amax(x.long(), 1, mask=m)
amin(x, mask=m)
amin(x, 0, keepdim=True, mask=m)
argmax(x, 1, mask=m)
argmax(x, mask=m)
argmin(x, 0, keepdim=True, mask=m)
mean(x, mask=m)
mean(x, 1, keepdim=True, mask=m)
mean(x.long(), 1, dtype=T.float32, mask=m)
median(x, 1, mask=m)
median(x, mask=m)
logsumexp(x, 1, mask=m)
norm(x, 2.0, 1, mask=m)
norm(x, 1, mask=m)
norm(x, float("inf"), 1, mask=m)
norm(x, float("-inf"), 1, mask=m)
var(x, 1, mask=m)
var(x, 1, unbiased=False, mask=m)
var(x, mask=m, correction=2)
std(x, mask=m, unbiased=False, keepdim=True)
std(x, 0, keepdim=True, mask=m)
"""
ROWS = """
softmax(x, 1, mask=m)
log_softmax(x, 1, mask=m)
softmin(x, 0, mask=m)
cumsum(x, 1, mask=m)
cumprod(x, 0, mask=m)
normalize(x, 2.0, 1, mask=m)
logaddexp(x, x + 1, input_mask=m, other_mask=m)
"""


def value(T, call, mask):
    chosen = None if MASKS[mask] is None else T.tensor(MASKS[mask])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(f"T.masked.{call}", {"T": T, "x": T.tensor(DATA), "m": chosen})


@pytest.mark.parametrize("call", CALLS.strip().splitlines())
@pytest.mark.parametrize("mask", MASKS)
def test_reductions(call, mask):
    if mask == "empty row" and ("argm" in call or "float(" in call):
        pytest.skip("there is no defined answer without elements")
    ours, theirs = value(flambeau, call, mask), value(torch, call, mask)
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1] and ours.shape == theirs.shape
    flambeau.testing.assert_close(ours, flambeau.tensor(theirs.tolist(), dtype=ours.dtype), equal_nan=True)


@pytest.mark.parametrize("call", ROWS.strip().splitlines())
@pytest.mark.parametrize("mask", MASKS)
def test_functions_of_rows(call, mask):
    ours, theirs = value(flambeau, call, mask), value(torch, call, mask)
    assert ours.dtype is flambeau.float32 and ours.shape == theirs.shape
    if MASKS[mask] is not None:
        keep = flambeau.tensor(MASKS[mask]).expand(ours.shape)
        ours = ours.masked_fill(~keep, 0)
        theirs = theirs.masked_fill(~torch.tensor(MASKS[mask]).expand(theirs.shape), 0)
    flambeau.testing.assert_close(ours, flambeau.tensor(theirs.tolist()), equal_nan=True)


def test_gradients_reach_only_what_was_chosen():
    x = flambeau.tensor(DATA[0], requires_grad=True)
    flambeau.masked.mean(x, mask=flambeau.tensor(MASKS["row"])).backward()
    flambeau.testing.assert_close(x.grad, flambeau.tensor([1.0, 1.0, 0.0, 1.0]) / 3)


@pytest.mark.parametrize("T", [flambeau, torch], ids=["flambeau", "torch"])
def test_arguments_must_fit(T):
    with pytest.raises(AssertionError, match="Only one of unbiased and correction"):
        T.masked.std(T.ones(2), unbiased=True, correction=1)
    with pytest.raises(IndexError, match="mask dimensionality higher"):
        T.masked.sum(T.ones(2), mask=T.ones(2, 2).bool())
    with pytest.raises((RuntimeError, ValueError)):
        T.masked.sum(T.ones(2, 3), mask=T.ones(2).bool())
