"""Sparsity level that grows quickly at first and slowly at the end."""

from __future__ import annotations

from typing import Any

from .base_scheduler import BaseScheduler

__all__ = ["CubicSL"]


class CubicSL(BaseScheduler):
    """Scheduler from `init_sl` at epoch `init_t` to the level a group was made with, along the cubic curve of Zhu and Gupta (2017).

    It takes `total_t` times `delta_t` epochs. Before it begins the level is `init_sl`, or 0 with `initially_zero`. Each setting is one
    value or a list with one for each group."""

    def __init__(
        self,
        sparsifier: Any,
        init_sl: Any = 0.0,
        init_t: Any = 0,
        delta_t: Any = 10,
        total_t: Any = 100,
        initially_zero: Any = False,
        last_epoch: int = -1,
        verbose: bool = False,
    ) -> None:
        self.sparsifier = sparsifier
        self.init_sl = self._make_sure_a_list(init_sl)
        self.init_t = self._make_sure_a_list(init_t)
        self.delta_t = self._make_sure_a_list(delta_t)
        self.total_t = self._make_sure_a_list(total_t)
        self.initially_zero = self._make_sure_a_list(initially_zero)
        super().__init__(sparsifier, last_epoch, verbose)

    @staticmethod
    def sparsity_compute_fn(
        s_0: float, s_f: float, t: int, t_0: int, dt: int, n: int, initially_zero: bool = False
    ) -> float:
        """Return the level at epoch `t`: s_f + (s_0 - s_f) (1 - (t - t_0) / (n dt))^3, between s_0 and s_f."""
        if initially_zero and t < t_0:
            return 0
        level = s_f + (s_0 - s_f) * (1.0 - (t - t_0) / (dt * n)) ** 3
        return max(s_0, min(s_f, level))

    def get_sl(self) -> list[float]:
        self._warn_outside_step()
        settings = zip(self.init_sl, self.base_sl, self.init_t, self.delta_t, self.total_t, self.initially_zero)
        return [self.sparsity_compute_fn(s, f, self.last_epoch, t, d, n, z) for s, f, t, d, n, z in settings]
