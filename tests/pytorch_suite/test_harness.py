"""The harness on a small file written here: what it counts, compares and reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

FILE = """
import os
import torch
from torch.nothing_such import gone
from torch.testing._internal.common_utils import TestCase, parametrize, run_tests, someNewDecorator, slowTest
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, onlyCUDA, ops
from torch.testing._internal.common_methods_invocations import op_db

class TestSmall(TestCase):
    @dtypes(torch.float32, torch.int64)
    @parametrize("n", [1, 2])
    def test_ones(self, device, dtype, n):
        self.assertEqual(torch.ones(n, dtype=dtype, device=device), [1] * n)

    @someNewDecorator
    def test_wrong(self, device):
        self.assertEqual(torch.ones(2), torch.zeros(2))

    def test_gone(self, device):
        gone()

    def test_killed(self, device):
        os.kill(os.getpid(), 9)

    def test_not_equal(self, device):
        self.assertNotEqual(torch.ones(2), torch.ones(2, dtype=torch.int64))
        with self.assertRaisesRegex(AssertionError, "not close"):
            self.assertEqual(1.0, 1.1)

    @onlyCUDA
    def test_cuda(self, device):
        raise AssertionError

    @ops(op_db)
    def test_ops(self, device, dtype, op):
        raise AssertionError

instantiate_device_type_tests(TestSmall, globals())
"""


def test_outcomes(tmp_path):
    (tmp_path / "test_small.py").write_text(FILE)
    command = [
        sys.executable,
        "-m",
        "tests.pytorch_suite",
        str(tmp_path / "test_small.py"),
        "--json",
        str(tmp_path / "out"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out").read_text())
    outcomes = {name.partition("_")[2]: test["outcome"] for name, test in results["tests"].items()}
    assert {name for name, outcome in outcomes.items() if outcome == "passed"} == {
        "ones_cpu_n_1_float32",
        "ones_cpu_n_2_float32",
        "ones_cpu_n_1_int64",
        "ones_cpu_n_2_int64",
        "not_equal_cpu",
    }
    assert {name for name, outcome in outcomes.items() if outcome == "failed"} == {
        "wrong_cpu",
        "gone_cpu",
        "killed_cpu",
    }
    assert {name for name, outcome in outcomes.items() if outcome == "skipped"} == {"cuda_cpu", "ops_cpu"}
    assert results["notes"]["missing in Flambeau"] == ["torch.nothing_such"]
    assert results["notes"]["guessed by the stand-ins"] == ["common_utils.someNewDecorator"]
    assert "NotThere: torch.nothing_such.gone is not there" in done.stdout
