"""Tests that import PyTorch's own helpers run."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import torch
from torch.testing._internal.common_utils import (
    TestCase, TemporaryFileName, freeze_rng_state, instantiate_parametrized_tests, make_tensor, parametrize, run_tests, set_default_dtype, subtest,
)

@instantiate_parametrized_tests
class TestSums(TestCase):
    @parametrize("n", [1, 2])
    @parametrize("kind", [torch.float32, subtest(torch.int64, name="whole")])
    def test_sum(self, n, kind):
        t = make_tensor((n, 3), dtype=kind, device="cpu", low=1, high=2)
        self.assertEqual(t.sum(), sum(t.flatten().tolist()), exact_dtype=False, rtol=1e-5, atol=1e-5)
        self.assertEqual(t, t.numpy())
        with self.assertRaises(AssertionError):
            self.assertEqual(t, t + 1)

    def test_states(self):
        with freeze_rng_state():
            first = torch.rand(2)
        self.assertEqual(first, torch.rand(2))
        with set_default_dtype(torch.float64), TemporaryFileName() as name:
            torch.save(torch.ones(1), name)
            self.assertEqual(torch.load(name).dtype, torch.float64)

if __name__ == "__main__":
    run_tests()
"""


def test_test_case_parametrize_and_make_tensor(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "flambeau", str(tmp_path / "program.py"), "-v"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Ran 5 tests" in done.stderr and "test_sum_n_1_kind_whole" in done.stderr or "whole" in done.stderr
