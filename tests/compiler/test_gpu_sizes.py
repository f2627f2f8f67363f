"""Sizes that change from call to call on an emulated GPU: each runs as it is, is observed, is compared, and is a graph launch from then on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.kernels.cuda_on_cpu import COMPILER

_HEAD = """
import gc, pathlib, sys, warnings
from tests.backends.nvidia import fake_driver
fake = fake_driver.install(pathlib.Path(sys.argv[1]))
import flambeau as fl
from flambeau import nn
from flambeau.backends.nvidia import graphs
from flambeau.compiler import sizes

warnings.simplefilter("error")
fl.manual_seed(0)

def launches(work):
    before = fake.calls["cuGraphLaunch"]
    result = work()
    return fake.calls["cuGraphLaunch"] - before, result

def near(a, b):
    fl.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)

def passes(compiled, plain, sizes, make, count=5):
    "Call with each of some sizes, some times over: how many graphs the last pass launched."
    for _ in range(count):
        def work():
            for n in sizes:
                x = make(n)
                a, b = plain(x), compiled(x)
                near(b, a)
        found = launches(work)[0]
    return found
"""

_GROWING = """
W = nn.Parameter(fl.randn(8, 8).cuda())

def one(x, cache):
    h = (x.unsqueeze(-1) * W).sum(-2).tanh()
    cache = fl.cat([cache, h])
    p = (cache * h).sum(-1).softmax(0)
    return (cache * p.unsqueeze(-1)).sum(0, keepdim=True), cache

def grow(f, n):
    x, cache, out = fl.ones(1, 8, device="cuda"), fl.ones(1, 8, device="cuda"), []
    for i in range(n):
        x, cache = f(x, cache)
        out.append(x)
    return fl.cat([*out, cache]).cpu()

with fl.no_grad():
    expected = grow(one, 24)
    compiled = fl.compile(one)
    for k in range(6):
        count, found = launches(lambda: grow(compiled, 24))
        near(found, expected)
    assert count == 24, count
    behind = compiled._compiled
    light = [r for r in behind.recordings() if r.light]
    assert len(light) >= 18 and not behind.reasons and "further graphs like it" in compiled.explain()
    (pool,) = {graphs.shared_pool(0, r.program.capture.pool()) for r in light}
    assert pool.bytes() == 2 << 20, "graphs of all sizes share their memory"
    count, _ = launches(lambda: near(grow(compiled, 40), grow(one, 40)))
    assert count == 24  # longer ones are new
    for k in range(3):
        count, _ = launches(lambda: near(grow(compiled, 40), grow(one, 40)))
    assert count == 40
    held = fl.cuda.memory_allocated()
    for k in range(3):
        grow(compiled, 40)
    assert fl.cuda.memory_allocated() == held

    # another stream: graphs that share memory do not run at the same time
    waits = fake.calls["cuStreamSynchronize"] + fake.calls["cuCtxSynchronize"]
    with fl.cuda.stream(fl.cuda.Stream()):
        near(grow(compiled, 24), expected)
    assert fake.calls["cuStreamSynchronize"] + fake.calls["cuCtxSynchronize"] > waits

    # state that changes: everything is recorded again
    W.data = W.data * 0.5
    other = grow(one, 24)
    assert not fl.allclose(other, expected)
    for k in range(4):
        count, found = launches(lambda: grow(compiled, 24))
        near(found, other)
    with fl.no_grad():
        W.mul_(2.0)
    near(grow(compiled, 24), expected)

    # the oldest sizes go, and their graphs with them
    sizes.MANY = 12
    compiled = fl.compile(one)
    for k in range(4):
        near(grow(compiled, 24), expected)
    assert len(compiled._compiled.recordings()) <= 14
del compiled, behind, light, pool
gc.collect()
print("done")
"""

_KINDS = """
SIZES = range(2, 14)

def branches(x):
    if x.shape[0] == 9:
        return x.exp()
    if x.shape[0] > 11:
        return x * float(x.shape[0])
    return (x * 2).sum(0)

make = lambda n: fl.arange(3.0 * n, device="cuda").view(n, 3) / 10
assert passes(fl.compile(branches), branches, SIZES, make) == len(SIZES)

# none and one
assert passes(fl.compile(branches), branches, range(14), make, 6) >= 12

# results that are arguments, or views of them
def aliases(x):
    return x, x[1:], x.t() * 2, x.view(-1)
compiled = fl.compile(aliases)
assert passes(compiled, aliases, SIZES, make) == len(SIZES)
x = make(7)
same, rest, _, flat = compiled(x)
assert same is x and rest._base is x and rest.data_ptr() == x.data_ptr() + 12 and flat.data_ptr() == x.data_ptr()

# random numbers go on as in eager calls
drop = lambda x: nn.functional.dropout(x, 0.5) + fl.rand(x.shape[0], 1, device="cuda")
compiled = fl.compile(drop)
for _ in range(5):
    for n in SIZES:
        x = make(n)
        mark = fl.cuda.get_rng_state()
        a = drop(x)
        after = fl.cuda.get_rng_state()
        fl.cuda.set_rng_state(mark)
        near(compiled(x), a)
        assert fl.cuda.get_rng_state().tolist() == after.tolist()
assert launches(lambda: compiled(make(8)))[0] == 1 and not compiled._compiled.reasons

# a size at which it looks at values: that size is not captured, the others are
def looks(x):
    if x.shape[0] == 10 and x.sum().item() > 1:
        return x - 1
    return x + 1
warnings.simplefilter("ignore")
compiled = fl.compile(looks)
passes(compiled, looks, SIZES, make)

# a size at which code runs that nothing was known of, and whose state changes later
class Table:
    factor = 2.0
def rare(x):
    return x * Table.factor
def often(x):
    return rare(x) if x.shape[0] == 8 else x + 1
compiled = fl.compile(often)
passes(compiled, often, SIZES, make)
Table.factor = 5.0
passes(compiled, often, SIZES, make)

# a size at which something is kept
KEPT = []
def keeps(x):
    y = x * 2
    if x.shape[0] == 6:
        KEPT.append(y)
    return y + 1
compiled = fl.compile(keeps)
passes(compiled, keeps, SIZES, make)
assert len(KEPT) == 10 and all(t.tolist() == (make(6) * 2).tolist() for t in KEPT)
warnings.simplefilter("error")

# statistics, arguments that change, and histories are recorded one by one
norm = nn.BatchNorm1d(3).cuda()
twin = nn.BatchNorm1d(3).cuda()
with fl.no_grad():
    assert passes(fl.compile(norm), twin, (4, 5, 6), make, 7) == 3
near(norm.running_mean, twin.running_mean)

def steps(f, n):
    x = make(n).requires_grad_()
    f(x).sum().backward()
    return x.grad
w = nn.Parameter(fl.ones(3, device="cuda"))
scaled = lambda x: (x * w).tanh()
compiled = fl.compile(scaled)
for _ in range(4):
    for n in (3, 4, 5, 6, 7, 8):
        w.grad = None
        a, mine = steps(scaled, n), w.grad
        w.grad = None
        near(steps(compiled, n), a)
        near(w.grad, mine)
assert not any(r.light for r in compiled._compiled.recordings())

# often enough for a recording with passes
from flambeau.compiler.gpu import resized
resized._OFTEN = 3
compiled = fl.compile(lambda x: (x * 2 + 1).exp() * 0.5)
passes(compiled, compiled._compiled.function, SIZES, make, 12)
kinds = [r.light for r in compiled._compiled.recordings()]
assert kinds.count(False) > 4 and launches(lambda: compiled(make(5)))[0] == 1
assert kinds.count(False) <= sizes.FREE
print("done")
"""

_LAST_BATCH = """
class Rows(nn.Linear):
    "A linear layer without a library call, which the emulated GPU does not have."
    def forward(self, x):
        return (x.unsqueeze(-1) * self.weight.T).sum(-2) + self.bias

def training():
    fl.manual_seed(1)
    model = nn.Sequential(Rows(8, 16), nn.ReLU(), nn.LayerNorm(16), Rows(16, 4)).cuda()
    optimizer = fl.optim.AdamW(model.parameters(), lr=1e-2)
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return model, step

(model, plain), (twin, other) = training(), training()
compiled = fl.compile(other)
batches = [(fl.randn(n, 8).cuda(), fl.randn(n, 4).cuda()) for n in (16, 16, 16, 5)]
counts = []
for epoch in range(4):
    for x, y in batches:
        expected = plain(x, y)
        count, loss = launches(lambda: compiled(x, y))
        near(loss, expected)
        counts.append(count)
assert counts[:4] == [0, 0, 1, 0] and counts[8:] == 8 * [1], counts  # the last batch is recorded in the second epoch, or compared
for a, b in zip(model.parameters(), twin.parameters()):
    near(b, a)
print("done")
"""


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler (g++) to run CUDA text on the CPU")
@pytest.mark.parametrize(
    "program", [_GROWING, _KINDS, _LAST_BATCH], ids=["a growing cache", "kinds of functions", "a smaller last batch"]
)
def test_many_sizes_on_an_emulated_gpu(tmp_path, program):
    done = subprocess.run(
        [sys.executable, "-c", _HEAD + program, str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == "done", done.stdout + done.stderr
