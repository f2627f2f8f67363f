"""SparseAdam: Adam that updates only the rows that a gradient lists."""

from __future__ import annotations

import math
from typing import Any

from ..core.tensor import Tensor
from ..ops.creation.filled import zeros_like
from .elementwise import check_betas, check_range
from .optimizer import EachParameter, ParamsT, check_one_element, number
from .sparse_gradient import entries


class SparseAdam(EachParameter):
    """Adam for embeddings: rows without a gradient keep their parameters and their running means.

    Gradients must be sparse: the rows are those they list."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        check_one_element("lr", lr)
        check_range("learning rate", lr, lr > 0)
        check_range("epsilon value", eps, eps > 0)
        check_betas(betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})
        places = [(i, j, p) for i, group in enumerate(self.param_groups) for j, p in enumerate(group["params"])]
        sparse = [[i, j] for i, j, p in places if p.is_sparse]
        if sparse:
            raise ValueError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")
        complex_ = [[i, j] for i, j, p in places if p.is_complex()]
        if complex_:
            raise ValueError(f"Complex params at indices {complex_}: SparseAdam does not support complex parameters")

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        if not grad.is_sparse:
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=zeros_like(p), exp_avg_sq=zeros_like(p))
        state["step"] += 1
        where, g = entries(grad)
        if g.numel() == 0:
            return
        if group.get("maximize", False):
            g = -g
        beta1, beta2 = group["betas"]
        exp_avg, exp_avg_sq = state["exp_avg"], state["exp_avg_sq"]
        mean = exp_avg[where].lerp_(g, 1 - beta1)
        square = exp_avg_sq[where].lerp_(g * g, 1 - beta2)
        exp_avg[where] = mean
        exp_avg_sq[where] = square
        size = number(group["lr"]) * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
        p[where] = p[where].addcdiv_(mean, square.sqrt().add_(group["eps"]), value=-size)
