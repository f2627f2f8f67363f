"""Other people's libraries give under Flambeau what they give under PyTorch; where one is not installed, its cases are skipped."""

from __future__ import annotations

from typing import Any

import pytest

from . import harness

# Runs whose small differences grow: deep networks with batch statistics of few numbers, and training with a large rate.
LOOSE = {"timm": 2e-3, "ultralytics": 1e-3}


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    return harness.compared([case for case in harness.cases() if not harness.missing(case)])


@pytest.mark.parametrize("case", harness.cases())
def test_results_are_those_of_pytorch(case: str, request: pytest.FixtureRequest) -> None:
    if missing := harness.missing(case):
        pytest.skip(f"{missing} is not installed")
    found = request.getfixturevalue("results")[case]
    assert "error" not in found, found["error"]
    wrong = {name: d for name, d in found.items() if not d <= LOOSE.get(case, 2e-5)}
    assert not wrong


def test_there_are_enough_families() -> None:
    assert len(harness.families()) >= 25
