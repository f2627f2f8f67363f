"""A 0-dim tensor of integers where an operator takes an int: read, as in PyTorch."""

from __future__ import annotations

import pytest

import flambeau
from flambeau.nn import functional as F

X = flambeau.arange(24.0).reshape(4, 6)
ONE, TWO = flambeau.tensor([0, 1]), flambeau.ones(1, 4, 2)
CALLS = {
    "chunk": lambda n: X.chunk(n),
    "chunk a dimension": lambda n: flambeau.chunk(X, n, 1),
    "unfold": lambda n: X.unfold(0, n, 1),
    "unfold's step": lambda n: X.unfold(1, 2, n),
    "diag_embed": lambda n: flambeau.diag_embed(X[0], n),
    "diagflat": lambda n: flambeau.diagflat(X[0], n),
    "tril": lambda n: X.tril(n),
    "triu": lambda n: flambeau.triu(X, diagonal=n),
    "bincount": lambda n: flambeau.bincount(ONE, minlength=n),
    "histc": lambda n: flambeau.histc(X, n),
    "conv1d's stride": lambda n: F.conv1d(X[None], TWO, stride=n),
    "conv1d's padding": lambda n: F.conv1d(X[None], TWO, padding=n),
    "conv_transpose1d": lambda n: F.conv_transpose1d(X[None], TWO.transpose(0, 1), stride=n),
    "group_norm": lambda n: F.group_norm(X[None], n),
    "local_response_norm": lambda n: F.local_response_norm(X[None], n),
    "cross_entropy": lambda n: F.cross_entropy(X, flambeau.arange(4), ignore_index=n),
    "stft": lambda n: flambeau.stft(X.flatten(), 4, hop_length=n, window=flambeau.ones(4), return_complex=True),
    "polygamma": lambda n: flambeau.polygamma(n, X + 1),
    "fftfreq": lambda n: flambeau.fft.fftfreq(n),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [flambeau.int64, flambeau.int32])
def test_it_is_read(name, dtype):
    call = CALLS[name]
    wanted, found = call(2), call(flambeau.tensor(2, dtype=dtype))
    for a, b in zip(*((x if isinstance(x, (list, tuple)) else [x]) for x in (wanted, found))):
        assert a.shape == b.shape and all(type(n) is int for n in b.shape) and flambeau.equal(a, b)


@pytest.mark.parametrize("wrong", [flambeau.tensor(2.0), flambeau.tensor([2, 2]), "two"])
def test_others_are_refused(wrong):
    for call in (lambda: X.unfold(0, wrong, 1), lambda: X.chunk(wrong)):
        with pytest.raises((TypeError, RuntimeError)):
            call()
