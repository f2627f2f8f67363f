"""The examples of the reference print the same in PyTorch. Apart from the tests of the reference, which need not run where this runs."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest
from vision.oracle import torchvision

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_tools"))
import snippets  # noqa: E402


@pytest.mark.parametrize("name", snippets.snippets() if importlib.util.find_spec("torch") else ["all"])
def test_example_prints_the_same_in_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch", reason="asks PyTorch")
    others = {}
    if name.startswith("torchvision."):
        torchvision()  # or the test is skipped
        importlib.import_module("torchvision.transforms.v2")
        others["torchvision"] = sys.modules["torchvision"]
    reason = snippets.why_not(name, torch)
    if reason:
        pytest.skip(reason)
    if not others and not hasattr(snippets.home(name, torch), name.rpartition(".")[2]):
        pytest.skip("PyTorch does not have it")
    assert snippets.printed(name, torch, **others) == [answer for _, answer in snippets.snippets()[name]]
