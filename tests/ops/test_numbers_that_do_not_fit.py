"""Numbers that PyTorch refuses are refused, and those that it accepts are accepted, with its results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau


def calls(torch: Any) -> dict[str, Any]:
    """Calls with numbers at the edge of what a function takes."""
    f, bytes_, x = torch.nn.functional, torch.tensor([1, 2, 3], dtype=torch.uint8), torch.arange(6.0).view(2, 3) - 2
    image, classes, square = torch.ones(1, 3, 4, 4), torch.tensor([0, 1]), torch.ones(2, 2)
    return {
        "a power beyond uint8": lambda: torch.pow(bytes_, 300),
        "a power beyond int8": lambda: torch.pow(bytes_.to(torch.int8), 200),
        "a power in place": lambda: bytes_.clone().pow_(300),
        "the largest power": lambda: torch.pow(bytes_, 255),
        "a border below zero": lambda: f.pad(bytes_, [1, 1], value=-1),
        "a border of zero": lambda: f.pad(bytes_, [1, 1], value=0),
        "addmm, alpha": lambda: torch.addmm(square, x, x.t(), alpha=1e39),
        "addmm, beta": lambda: torch.addmm(square, x, x.t(), beta=1e39),
        "addmm, inf": lambda: torch.addmm(square, x, x.t(), beta=float("inf")),
        "addmm of integers": lambda: torch.addmm(square.long(), x.long(), x.t().long(), alpha=2.7),
        "baddbmm": lambda: torch.baddbmm(square[None], x[None], x.t()[None], alpha=1e39),
        "addmv": lambda: torch.addmv(torch.ones(2), x, x[0], alpha=1e39),
        "no neighbours": lambda: f.local_response_norm(image, 0),
        "no neighbours of signals": lambda: f.local_response_norm(image[0], 0),
        "a negative eps": lambda: f.cosine_similarity(x, x, eps=-1.0),
        "softplus, beta=0": lambda: f.softplus(x, beta=0),
        "softplus, beta=3": lambda: f.softplus(x, beta=3),
        "a negative smoothing": lambda: f.cross_entropy(x, classes, label_smoothing=-1.0),
        "a negative smoothing of probabilities": lambda: f.cross_entropy(x, x.softmax(1), label_smoothing=-1.0),
        "too much smoothing": lambda: f.cross_entropy(x, classes, label_smoothing=2.0),
    }


@pytest.mark.parametrize("name", calls(flambeau))
def test_as_pytorch(name: str) -> None:
    expected = calls(judge("torch"))[name]
    try:
        wanted = expected()
    except RuntimeError as problem:
        with pytest.raises(RuntimeError) as found:
            calls(flambeau)[name]()
        assert str(found.value).splitlines()[0] == str(problem).splitlines()[0]
    else:
        np.testing.assert_allclose(calls(flambeau)[name]().numpy(), wanted.numpy(), rtol=1e-6)
