"""Large scores of a loss are kept without a copy, and their gradient is stored over them: on an emulated GPU, eager and compiled."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.kernels.cuda_on_cpu import COMPILER

_HEAD = """
import gc, pathlib, sys, warnings
from tests.backends.nvidia import fake_driver
fake_driver.install(pathlib.Path(sys.argv[1]))
import flambeau as fl
from flambeau import nn
from flambeau.backends.nvidia import cublaslt
from flambeau.compiler.gpu.derivative import CapturedNode
from flambeau.compiler.gpu.recording import GraphRecorded
from flambeau.graph.replay import modes_off
from flambeau.nn import functional as F
from flambeau.ops.machinery.inplace import raw_copy
from flambeau.ops.nn import cross_entropy, kept_scores

def matmul(out, a, b, bias=None, epilogue="", alpha=1, beta=0, scales=None):
    "cuBLASLt's product, which the emulated GPU does not have."
    with modes_off():
        found = (a._bare_alias().float().unsqueeze(-1) * b._bare_alias().float().unsqueeze(-3)).sum(-2).mul(alpha)
        raw_copy(out, (found + beta * out._bare_alias().float() if beta else found).to(out.dtype))

cublaslt.matmul, cublaslt.known_plan = matmul, lambda *given: None
warnings.simplefilter("error")
V = 24

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(V, 8), nn.Linear(8, V, bias=False)
    def forward(self, x, y):
        scores = self.head(self.embedding(x).tanh())
        return scores, F.cross_entropy(scores.view(-1, V), y.view(-1))

def batch():
    return fl.randint(V, (3, 4)).cuda(), fl.randint(V, (3, 4)).cuda()

def refused(work, error, text):
    try:
        work()
    except error as problem:
        assert text in str(problem), problem
    else:
        raise AssertionError("nothing was raised")
"""

_EAGER = """
count = {"over": 0, "again": 0}
over, again = cross_entropy.cross_entropy_gradient_over, kept_scores.product_again
def counted_over(*given):
    count["over"] += 1
    return over(*given)
def counted_again(node, compute=True):
    count["again"] += compute
    return again(node, compute)
cross_entropy.cross_entropy_gradient_over, kept_scores.product_again = counted_over, counted_again

def run(change=None, way="", large=1):
    kept_scores._LARGE = large
    fl.manual_seed(0)
    model = Model().cuda()
    with fl.autocast("cuda", fl.bfloat16):
        scores, loss = model(*batch())
    if change is not None:
        change(scores)
    del scores
    if way == "second derivative":
        g, = fl.autograd.grad(loss, [model.embedding.weight], create_graph=True)
        g.float().pow(2).sum().backward()
    else:
        if way == "twice":
            loss.backward(retain_graph=True)
        loss.backward()
        refused(loss.backward, RuntimeError, "a second time")
    return [loss.detach(), *(p.grad for p in model.parameters())]

def same(a, b, rtol=0, atol=0):
    for x, y in zip(a, b):
        fl.testing.assert_close(x, y, rtol=rtol, atol=atol)

expected = run(large=1 << 60)
assert count == {"over": 0, "again": 0}
same(run(), expected)
assert count == {"over": 1, "again": 0}

# the caller changes the scores before the backward pass: PyTorch's gradients do not notice
def in_place(t):
    with fl.no_grad():
        t.mul_(0.0)
def part(t):
    with fl.no_grad():
        t[0] = 3.0
changes = [
    in_place, part, lambda t: t.detach().fill_(7.0), lambda t: t.data.zero_(), lambda t: t.untyped_storage().fill_(1),
    lambda t: t.detach().resize_(4096).zero_(), lambda t: fl.rand(3, 4, V, out=t.detach().float()),
]
for change in changes[:-1]:
    before = count["again"]
    same(run(change), expected)
    assert count["again"] == before + 1, change
same(run(changes[-1]), expected)  # a copy

same(run(way="twice"), run(way="twice", large=1 << 60))
same(run(way="second derivative"), run(way="second derivative", large=1 << 60), 1e-2, 1e-3)

# scores that somebody holds, that another node has saved, or that another stream reads are not stored over
held = []
for keep in (held.append, lambda t: held.append(t.detach()), lambda t: held.append(t[0]), lambda t: held.append(t * t),
             lambda t: t.record_stream(fl.cuda.Stream())):
    before, copy = count["over"], []
    same(run(lambda t: (keep(t), copy.append(t.detach().clone()))), expected)
    assert count["over"] == before, keep
    assert not held or held[-1].shape != copy[0].shape or held[-1].grad_fn or fl.equal(held[-1], copy[0])

# the layer's operands changed, too: the same error as in PyTorch
fl.manual_seed(0)
model = Model().cuda()
with fl.autocast("cuda", fl.bfloat16):
    scores, loss = model(*batch())
loss.grad_fn.next_functions[0][0].next_functions[0][0].saved["input"].tensor.detach().zero_()
scores.detach().zero_()
refused(loss.backward, RuntimeError, "modified by an inplace operation")
print("done")
"""

_COMPILED = """
def steps(compiled, retained=(), interrupted=()):
    fl.manual_seed(0)
    model = Model().cuda()
    run, optimizer, found = fl.compile(model) if compiled else model, fl.optim.SGD(model.parameters(), lr=0.1), []
    for i in range(8):
        given = batch()
        for _ in range(2):
            with fl.autocast("cuda", fl.bfloat16):
                scores, loss = run(*given)
            kept, loss = scores.detach().clone(), loss / 2
            if i in retained:
                loss.backward(retain_graph=True)
                loss.backward()
                refused(loss.backward, RuntimeError, "a second time")
            elif i in interrupted:
                node = loss.grad_fn.next_functions[0][0]
                hook = node.register_hook(lambda *given: 1 / 0)
                refused(loss.backward, ZeroDivisionError, "")
                hook.remove()
                if isinstance(node, CapturedNode):
                    assert node.spent
                    refused(loss.backward, RuntimeError, "a second time")
            else:
                loss.backward()
            assert fl.equal(kept, scores), "the caller's scores are its own"
        found.append([loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
        optimizer.step()
        optimizer.zero_grad()
    return found, run

for retained in ((), (2, 5, 6)):
    theirs, (ours, run) = steps(False, retained)[0], steps(True, retained)
    for a, b in zip(theirs, ours):
        for x, y in zip(a, b):
            fl.testing.assert_close(x, y, rtol=2e-2, atol=2e-3)
    assert "one CUDA graph" in run.explain()
    recorded = [o for o in gc.get_objects() if isinstance(o, GraphRecorded) and o.backward is not None]
    assert recorded and recorded[-1].backward.usual.overwrites
steps(True, interrupted=(6,))
print("done")
"""


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler (g++) to run CUDA text on the CPU")
@pytest.mark.parametrize("program", [_EAGER, _COMPILED], ids=["eager", "compiled"])
def test_scores_exist_once(tmp_path, program):
    done = subprocess.run(
        [sys.executable, "-c", _HEAD + program, str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip().endswith("done"), done.stdout + done.stderr[-3000:]
