"""Reductions and normalisations of the elements that a mask selects.

>>> import flambeau
>>> x, mask = flambeau.tensor([1.0, 2.0, 3.0]), flambeau.tensor([True, False, True])
>>> sum(x, mask=mask), mean(x, mask=mask)
(tensor(4.), tensor(2.))
"""

from .normalizations import cumprod, cumsum, log_softmax, logaddexp, normalize, softmax, softmin
from .reductions import amax, amin, argmax, argmin, logsumexp, mean, median, norm, prod, std, sum, var

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean",
    "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip
