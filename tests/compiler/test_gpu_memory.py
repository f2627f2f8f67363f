"""How much of a GPU's memory compiled steps take: at most as much as eager ones."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import gc, sys
import flambeau as fl
from tests.backends.nvidia import hollow
fake = hollow.install()
sys.path.insert(0, "benchmarks")
import models, train
from flambeau.backends.nvidia import graphs
from flambeau.backends.nvidia.planned import Planned
from flambeau.compiler.gpu import values
values._ON_HOST = 1 << 24  # a GPU that computes nothing compares nothing

def gpt(lib):
    return models.sequence(lib, lambda lib: models.gpt(lib, layers=2, width=64, context=128), (4, 128), 65, models.adamw)

def taken(make, compiled):
    with fl.device("cuda"):
        step = make(fl)
    step = fl.compile(step) if compiled else step
    fl.cuda.reset_peak_memory_stats()
    for _ in range(5):
        step()
    if compiled:
        assert "one CUDA graph" in step.explain(), step.explain()
        (pool,) = [p for p in graphs._pools.values() if isinstance(p, Planned)]
        assert pool.next == len(pool.script) and len(pool.segments) <= 1, "the graph has its memory by plan"
        segments = fl.cuda.memory_snapshot()
        assert sum(s["total_size"] for s in segments) == fl.cuda.memory_reserved()
        assert sum(s["allocated_size"] for s in segments) == fl.cuda.memory_allocated()
        assert pool.bytes() == step._compiled.recordings()[0].program.capture.pool_bytes()
    return fl.cuda.max_memory_reserved(), fl.cuda.memory_reserved()

for make in (train.CASES["MLP 784-256-128-10, batch 64, Adam"], train.CASES["CNN, 2 conv + BN, 28x28, batch 64, SGD"], gpt):
    eager, _ = taken(make, False)
    gc.collect(); fl.cuda.empty_cache()
    most, later = taken(make, True)
    gc.collect(); fl.cuda.empty_cache()
    assert not graphs._pools, "nothing holds the graph of a function that is gone"
    print(eager, most, later)
    assert most <= eager and later <= eager

values._ON_HOST = 1 << 18
scores = fl.empty(1 << 14, 50304, device="cuda", dtype=fl.bfloat16)
fl.cuda.reset_peak_memory_stats()
before = fl.cuda.memory_allocated()
values.summary(scores)
assert fl.cuda.max_memory_allocated() - before < 1 << 28, "a large result is looked at in pieces"
del scores

x = fl.empty(8, 1024, 3 * 768, device="cuda", requires_grad=True)
q, k, v = (t.view(8, 1024, 12, 64).transpose(1, 2) for t in x.split(768, dim=2))
before = fl.cuda.memory_allocated()
y = fl.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
assert fl.cuda.memory_allocated() - before < y.numel() * 4 + (8 << 20), "weights of long sequences are kept"
y.backward(y)
print("done")
"""


def test_compiled_steps_take_no_more_than_eager_ones():
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip().endswith("done"), done.stdout + done.stderr[-3000:]
