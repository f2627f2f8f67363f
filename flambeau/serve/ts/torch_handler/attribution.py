"""Integrated gradients: the contribution of each input element to the difference between the outputs for it and for a blank input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau as torch


def integrated_gradients(forward: Callable[[Any], Any], inputs: Any, target: int, n_steps: int = 15) -> Any:
    """Return the integral of the gradient of output `target` along the straight line from zeros to the input, by Gauss-Legendre quadrature.
    The attributions of a request add up to the difference of the two outputs."""
    points, weights = np.polynomial.legendre.leggauss(n_steps)
    total = torch.zeros_like(inputs)
    with torch.enable_grad():
        for point, weight in zip((points + 1) / 2, weights / 2):
            at = (inputs.detach() * float(point)).requires_grad_(True)
            (gradient,) = torch.autograd.grad(forward(at)[:, target].sum(), at)
            total += gradient * float(weight)
    return total * inputs
