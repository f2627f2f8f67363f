"""Where memory runs out while a kernel is compiled, there is an error, and afterwards everything goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau
from flambeau.backends.cpu import jit
from flambeau.core.allocator import make_sure_of

_PROGRAM = """
import resource, sys
import flambeau
import numpy.random, numpy.linalg
flambeau.Tensor.sort  # Python has no way back where an import finds no memory
if sys.argv[2] == "warm":
    flambeau.ones(3, dtype=flambeau.float64).sin()  # LLVM is loaded

used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(float(sys.argv[1]) * 1e6), resource.RLIM_INFINITY))
held, problems = [], []
try:
    while True:
        held.append(flambeau.empty(250_000))
except RuntimeError as problem:
    assert "can't allocate memory" in str(problem)

x = held[0] if held else flambeau.empty(4)
for name in ("exp", "tanh", "lgamma", "digamma", "erfinv", "sort", "cumsum", "sum"):
    operator = getattr(x[:64], name)
    try:
        operator(0) if name == "cumsum" else operator()
    except (RuntimeError, MemoryError) as problem:
        problems.append(str(problem))
assert problems, "there was enough memory"
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
held.clear()
assert flambeau.ones(5).digamma().sum().isfinite()
print("fine")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of the address space is Linux's")
@pytest.mark.skipif(not jit.available(), reason="llvmlite is not installed")
@pytest.mark.parametrize(
    ("megabytes", "start"), [(10, "cold"), (120, "cold"), (200, "cold"), (5, "warm"), (40, "warm")]
)
def test_no_memory_for_the_compiler_is_an_error(tmp_path, megabytes, start):
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(megabytes), start],
        env={
            **os.environ, "PYTHONPATH": str(Path(flambeau.__file__).parents[1]), "FLAMBEAU_CACHE_DIR": str(tmp_path),
        },
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout == "fine\n", done.stdout + done.stderr


def test_more_than_there_is():
    make_sure_of(1 << 20, "for a test")
    with pytest.raises(RuntimeError, match=r"can't allocate memory: \d+ bytes for a test"):
        make_sure_of(1 << 60, "for a test")
