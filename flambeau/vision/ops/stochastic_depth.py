"""Stochastic depth (Huang et al., 2016): whole residual branches are dropped during training."""

from __future__ import annotations

from flambeau import Tensor, nn


def stochastic_depth(input: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    """Zero the whole batch (`mode="batch"`) or single rows of it (`"row"`) with probability p; rescale the rest."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"drop probability has to be between 0 and 1, but got {p}")
    if mode not in ("batch", "row"):
        raise ValueError(f"mode has to be either 'batch' or 'row', but got {mode}")
    if not training or p == 0.0:
        return input
    rows = input.shape[0] if mode == "row" else 1
    keep = input.new_empty([rows] + [1] * (input.dim() - 1)).bernoulli_(1.0 - p)
    return input * (keep.div_(1.0 - p) if p < 1.0 else keep)


class StochasticDepth(nn.Module):
    """A layer that applies `stochastic_depth`."""

    def __init__(self, p: float, mode: str):
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input: Tensor) -> Tensor:
        return stochastic_depth(input, self.p, self.mode, self.training)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p}, mode={self.mode})"
