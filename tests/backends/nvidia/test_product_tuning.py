"""Which of cuBLASLt's algorithms a compiled function takes."""

from __future__ import annotations

import ctypes
from typing import Any

from flambeau.backends.nvidia import cublaslt, driver, product_tuning


class _Plan:
    def __init__(self, times: list[float]):
        self.where = self.spans = None
        self.candidates = [cublaslt._Heuristic(workspace=k) for k in range(len(times))]
        self.quickest = self.candidates[0]
        self.times, self.used = times, -1

    def use(self, algorithm: Any) -> None:
        self.used = algorithm.workspace


def _chosen(monkeypatch: Any, tmp_path: Any, times: list[float]) -> tuple[int, list[int]]:
    plan, measured = _Plan(times), []

    def time(plan: Any, algorithm: Any, given: tuple) -> float:
        measured.append(algorithm.workspace)
        return times[algorithm.workspace]

    class Memory:
        ptr = 1

    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    key = ((4, 8), (8, 4), *range(2, 14))
    monkeypatch.setattr(product_tuning, "_time", time)
    monkeypatch.setattr(product_tuning, "_random", lambda *given: Memory)
    monkeypatch.setattr(cublaslt, "plans", lambda where: [(key, plan)])
    monkeypatch.setattr(cublaslt, "version", lambda: 1)
    monkeypatch.setattr(driver, "device_name", lambda index: "a GPU")
    plan.spans, plan.bias = (1, 1, 1), -1
    product_tuning.tune(type("Device", (), {"index": 0}))
    assert plan.used in (-1, 0), "eager calls keep the algorithm that the library recommends"
    assert len(plan.candidates) == 1 and ctypes.sizeof(plan.quickest)
    return plan.quickest.workspace, measured


def test_the_quickest_algorithm_is_taken_and_found_again_on_disk(monkeypatch, tmp_path):
    assert _chosen(monkeypatch, tmp_path, [2.0, 1.5, 1.0]) == (2, [0, 1, 2])
    assert _chosen(monkeypatch, tmp_path, [2.0, 1.5, 1.0]) == (2, [])


def test_a_gain_within_the_noise_of_measuring_changes_nothing(monkeypatch, tmp_path):
    assert _chosen(monkeypatch, tmp_path, [1.0, 0.99, 1.2])[0] == 0


def test_an_algorithm_that_the_library_refuses_to_run_is_not_taken(monkeypatch, tmp_path):
    assert _chosen(monkeypatch, tmp_path, [1.0, float("inf"), 0.5])[0] == 2
