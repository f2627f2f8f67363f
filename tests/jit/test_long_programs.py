"""Programs of thousands of lines: loading them takes time in proportion to their length."""

from __future__ import annotations

import ast
import gc
import importlib.util
import time
from pathlib import Path

import flambeau as torch

SOME = "x = x + self.weight\nif n > {0}:\n    x = x * {0}\nx = torch.cat([x[:3], x], 0)[:3]\n"
PROGRAM = """
import flambeau as torch

class Long(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x, n: int):
"""


def saved(folder: Path, lines: int) -> Path:
    """A saved module whose forward has so many lines, with attributes, branches and lists in them."""
    body = "".join(SOME.format(i) for i in range(lines // 4)) + "return x"
    path = folder / f"long_{lines}.py"
    path.write_text(PROGRAM + "".join(f"        {line}\n" for line in body.splitlines()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.jit.script(module.Long()).save(path.with_suffix(".pt"))
    return path.with_suffix(".pt")


def load_seconds(path: Path) -> float:
    """Of the processor, without Python's collector, whose share depends on what else is in memory."""
    best = 1e9
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            started = time.process_time()
            torch.jit.load(path)
            best = min(best, time.process_time() - started)
    finally:
        gc.enable()
    return best


def test_loading_takes_time_in_proportion_to_length(tmp_path: Path) -> None:
    short, long = load_seconds(saved(tmp_path, 500)), load_seconds(saved(tmp_path, 2000))
    assert long < 8 * short, f"4 times the lines took {long / short:.0f} times as long"


def test_a_loaded_program_keeps_no_syntax_trees(tmp_path: Path) -> None:
    path = saved(tmp_path, 400)
    gc.collect()
    before = sum(isinstance(o, ast.stmt) for o in gc.get_objects())
    loaded = torch.jit.load(path)
    assert loaded.code and sum(isinstance(o, ast.stmt) for o in gc.get_objects()) - before < 10


def test_results_of_a_long_program(tmp_path: Path) -> None:
    loaded = torch.jit.load(saved(tmp_path, 400))
    assert loaded(torch.zeros(3), -1).tolist() == [100.0, 100.0, 100.0]
