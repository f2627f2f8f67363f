"""Compiled functions on an emulated GPU that return views of their arguments, or of tensors that they find: as eager's in all that can be seen."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.kernels.cuda_on_cpu import COMPILER

_PROGRAM = """
import pathlib, sys, warnings
from tests.backends.nvidia import fake_driver
fake = fake_driver.install(pathlib.Path(sys.argv[1]))
import flambeau as fl
from flambeau.core.tensor import tensors_in
from tests.compiler.test_returned_views import ARGUMENTS, VIEWS
warnings.simplefilter("error")

def seen(result, given):
    # all that a program can see of a result, and how it lies in what was given
    told = []
    for t in tensors_in(result):
        own = next((i for i, g in enumerate(given) if t._storage is g._storage), None)
        node = None if t.grad_fn is None or own is None else t.grad_fn.name()  # of new tensors one node is the history
        bases = [t._base is g for g in given]
        told.append((t.shape, t.stride(), t.storage_offset(), t.dtype, t.requires_grad, t.is_leaf, t._version, node, own, bases, t.tolist()))
    return told

def check(function, make, calls=7, native=2, after=None):
    run = fl.compile(function)
    for i in range(calls):
        mine, theirs = make(i), make(i)
        a, b = run(*mine), function(*theirs)
        assert seen(a, mine) == seen(b, theirs), (i, seen(a, mine), seen(b, theirs), run.explain())
        for result, given in ((a, mine), (b, theirs)):
            live = [t for t in tensors_in(result) if t.requires_grad]
            if live:
                sum((t.sum() * (k + 1) for k, t in enumerate(live)), fl.zeros((), device="cuda")).backward()
            elif after is not None:
                after(result)
        for p, q in zip(mine, theirs):
            assert p._version == q._version and p.tolist() == q.tolist(), i
            if p.is_leaf:
                assert (p.grad is None) == (q.grad is None) and (p.grad is None or p.grad.tolist() == q.grad.tolist()), i
    assert sum(r.calls for r in run._compiled.recordings()) >= native, run.explain()

def on_gpu(make, i):
    t = make()
    return ((t.detach() * (i + 1)).cuda().requires_grad_(t.requires_grad),)

for make in ARGUMENTS.values():
    for view in VIEWS.values():
        check(view, lambda i: on_gpu(make, i), after=lambda r: tensors_in(r)[0].view(-1)[:1].fill_(7) if tensors_in(r)[0].is_contiguous() else None)

# a place in memory, not in the argument; arguments begin elsewhere in theirs in each call
def part(i):
    return (fl.arange(40.0).cuda()[2 * i : 2 * i + 8].view(2, 4),)
check(lambda x: x.as_strided((2,), (1,), 3), part)
check(lambda x: (x[1:], x[0].as_strided((2,), (2,), 1)), part)
check(lambda x: (x[1].t(), (x * 2).view(-1)[1:]), part)

# arguments that share memory, that are returned themselves, that have a history
def shared(i):
    x = fl.arange(12.0).cuda() + i
    return x, x[4:]
check(lambda x, y: (y[1:], x[:2], x * 2, y), shared)
def grown(i):
    x = (fl.arange(6.0) + i).cuda().requires_grad_()
    return (x * 2,)
check(lambda x: (x.view(2, 3)[0], (x * x).view(3, 2), x), grown)

# what is changed in place
def changed(x):
    x[0].add_(1)
    return x[0], x.view(-1)[2:] * 1
check(changed, lambda i: (fl.ones(2, 3).cuda() * i,))
def through_a_view(x):
    with fl.no_grad():
        x.view(-1)[0] = 5.0
    return x.detach()[0]
check(through_a_view, lambda i: (fl.ones(2, 3).cuda().requires_grad_(),))

# views of parameters and of what the function finds; under autocast
weight, table = fl.ones(3, 4).cuda().requires_grad_(), fl.arange(6.0).cuda()
def found(x):
    with fl.autocast("cuda", dtype=fl.bfloat16):
        return (x * 2).sum(), weight[1:].t(), table.view(2, 3)[1], x.unflatten(0, (2, -1))
for i in range(7):
    weight.grad = None
    x = fl.arange(4.0).cuda() + i
    run = fl.compile(found) if i == 0 else run
    total, a, b, c = run(x)
    assert a._base is weight and b._storage is table._storage and c._storage is x._storage and b.tolist() == [3.0 + 0 * i, 4.0, 5.0]
    a.sum().backward()
    assert weight.grad.tolist() == [[0.0] * 4, [1.0] * 4, [1.0] * 4] and total.item() == 2 * (6 + 4 * i)
assert sum(r.calls for r in run._compiled.recordings()) >= 2, run.explain()
print("done")
"""


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler (g++) to run CUDA text on the CPU")
def test_views_on_an_emulated_gpu(tmp_path):
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=400)
    assert done.stdout.strip().endswith("done"), done.stderr[-3000:]
