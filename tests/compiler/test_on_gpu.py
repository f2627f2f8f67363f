"""Compiled functions on an emulated GPU: one graph launch a call, and the numbers of the function as it is."""

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
from flambeau import nn

warnings.simplefilter("error")
SCALE = 1.0

def build(kind, accumulate=False):
    w = nn.Parameter(fl.tensor([0.5, -1.0, 2.0, 0.25]).cuda())
    b = nn.Parameter(fl.tensor([0.1, 0.2, 0.3, 0.4]).cuda())
    opt = kind([w, b], lr=0.1)
    def step(x, y):
        if not accumulate:
            opt.zero_grad()
        h = nn.functional.dropout(x * w + b, 0.25)
        loss = ((h - y) * (h - y)).mean() * SCALE
        loss.backward()
        opt.step()
        return loss
    return step, (w, b), opt

def twins(kind, accumulate=False):
    return [build(kind, accumulate) for _ in range(2)]

def call(pair, compiled, i, kept):
    (plain, theirs, _), (_, mine, _) = pair
    x, y = fl.arange(8.0).view(2, 4).cuda() * (i + 1), fl.ones(2, 4).cuda() * i
    state = fl.cuda.get_rng_state()
    a = plain(x, y)
    after = fl.cuda.get_rng_state()
    fl.cuda.set_rng_state(state)
    b = compiled(x, y)
    assert fl.cuda.get_rng_state().tolist() == after.tolist()
    assert (a.requires_grad, a.is_leaf, a._version) == (b.requires_grad, b.is_leaf, b._version)
    for p, q in zip(theirs, mine):
        assert p.tolist() == q.tolist() and p._version == q._version, (i, p, q)
        assert p.grad.tolist() == q.grad.tolist(), i
    kept.append((a, b, theirs[0].grad if i % 2 else a, mine[0].grad if i % 2 else b, a.tolist(), theirs[0].grad.tolist()))

def check(kept):
    for a, b, g, h, value, gradient in kept:
        assert a.tolist() == b.tolist() == value and g.tolist() == h.tolist()

fl.manual_seed(1)
pair = twins(fl.optim.Adam)
compiled, kept = fl.compile(pair[1][0]), []
for i in range(9):
    if i == 6:  # a number that changes is an input
        for _, _, opt in pair:
            opt.param_groups[0]["lr"] = 0.01
    if i == 5:
        launches = fake.calls["cuGraphLaunch"]
    call(pair, compiled, i, kept)
assert fake.calls["cuGraphLaunch"] - launches == 4
check(kept)
assert fake.calls["cuStreamWaitEvent"]  # sums for the gradients were captured beside the rest
SCALE = 2.0  # and this one means another recording
for i in range(5):
    call(pair, compiled, i, kept)
check(kept)
assert len(compiled._compiled.causes) == 1 and "SCALE" in compiled._compiled.causes[0], compiled.explain()
assert "one CUDA graph" in compiled.explain()

pair = twins(lambda parameters, lr: fl.optim.SGD(parameters, lr=lr, momentum=0.9))
compiled = fl.compile(pair[1][0])
for i in range(7):  # of three numbers, one that stays the same is an integer
    for _, _, opt in pair:
        opt.param_groups[0].update(lr=0.1 / (i + 1), momentum=0.9 / (i + 1))
    call(pair, compiled, i, [])
assert sum(r.calls for r in compiled._compiled.recordings()) == 4, compiled.explain()

from flambeau.backends.nvidia import graphs
from flambeau.compiler.gpu import values as device_values
device_values._ON_HOST = -1  # from now on as if everything were large
pair = twins(fl.optim.SGD, accumulate=True)  # gradients stay and are added to
compiled, kept = fl.compile(pair[1][0]), []
launches = fake.calls["cuGraphLaunch"]
for i in range(7):
    call(pair, compiled, i, [])
assert fake.calls["cuGraphLaunch"] > launches + 1, compiled.explain()
for step, params, opt in pair:
    params[0].grad = fl.ones(4).cuda()
for i in range(5):
    call(pair, compiled, i, [])

from flambeau.backends.nvidia.planned import Planned
for refused, scarce in ((801, False), (0, True)):  # there are no addresses to make a plan with; there is too little memory
    fake.refuse["cuMemAllocManaged"] = refused
    if not refused:
        del fake.refuse["cuMemAllocManaged"]
    made = Planned.make
    if scarce:
        Planned.make = lambda memory, sketch, outside, limit: made(memory, sketch, outside, -1 if limit < 1e30 else limit)
    pair = twins(fl.optim.SGD)
    compiled, kept = fl.compile(pair[1][0]), []
    for i in range(6):
        call(pair, compiled, i, kept)
    check(kept)
    assert "one CUDA graph" in compiled.explain()
    pool = graphs._pools[0, compiled._compiled.recordings()[0].program.capture.pool()]
    assert isinstance(pool, Planned) == scarce
    Planned.make = made

def changes(x):
    x += 1
    return x, x * 2
compiled = fl.compile(changes)
for i in range(6):
    x = fl.ones(4).cuda() * i
    version = x._version
    same, double = compiled(x)
    assert same is x and x.tolist() == [i + 1.0] * 4 and double.tolist() == [2 * i + 2.0] * 4 and x._version == version + 1
assert "one CUDA graph" in compiled.explain()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(fl.tensor([0.5, -1.0, 2.0, 0.25])), nn.Parameter(fl.zeros(4))
        self.register_buffer("count", fl.zeros(()))

    def forward(self, x):
        self.count += 1
        return nn.functional.dropout(x * self.w * self.w + self.b, 0.25)

nets = [Net().cuda() for _ in range(2)]
compiled = fl.compile(nets[1])
optimizers = [fl.optim.Adam(net.parameters(), lr=0.1) for net in nets]
kept = []
for i in range(9):
    x = fl.arange(8.0).view(2, 4).cuda() * (i + 1)
    state = fl.cuda.get_rng_state()
    seen = []
    for net, run, optimizer in zip(nets, (nets[0], compiled), optimizers):
        fl.cuda.set_rng_state(state)
        y = run(x)
        if i == 6:  # two forward passes before a backward pass
            y = y + run(x * 2)
        loss = (y * y).mean()
        if i == 7:
            loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append((y.detach(), *(p.detach().clone() for p in net.parameters()), net.count.clone()))
    for a, b in zip(*seen):  # gradients of two passes are added in another order
        fl.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    kept.append((seen[0][0], seen[1][0], seen[0][0].tolist(), seen[1][0].tolist()))
assert all(a.tolist() == c and b.tolist() == d for a, b, c, d in kept)
assert "the derivative:" in compiled.explain()
y = compiled(x)
loss = (y * y).sum()
with fl.no_grad():
    nets[1].w += 1
try:
    loss.backward()
    raise SystemExit("a changed parameter was not noticed")
except RuntimeError as error:
    assert "modified by an inplace operation" in str(error)
del y, loss

def normalised():
    norms = nn.LayerNorm(8).cuda(), nn.LayerNorm(8).cuda()
    parameters = [p for n in norms for p in n.parameters()]
    optimizer = fl.optim.SGD(parameters, lr=0.1)
    def step(x):
        optimizer.zero_grad()
        loss = (norms[1](norms[0](x) * x) * x).sum()
        loss.backward()
        optimizer.step()
        return loss
    return step, parameters
(plain, theirs), (step, mine) = normalised(), normalised()
compiled, x = fl.compile(step), fl.arange(16.0).sin().view(2, 8).cuda()
for i in range(6):
    assert plain(x * (i + 1)).tolist() == compiled(x * (i + 1)).tolist()
    for p, q in zip(theirs, mine):
        assert p.tolist() == q.tolist() and p.grad.tolist() == q.grad.tolist()

def reads(x):
    return x * 2 if x.sum().item() > 3 else x * 3
warnings.simplefilter("always")
compiled = fl.compile(reads)
with warnings.catch_warnings(record=True) as told:
    for i in range(5):
        assert compiled(fl.ones(4).cuda() * i).tolist() == reads(fl.ones(4).cuda() * i).tolist()
assert len(told) == 1, [str(t.message) for t in told]

# A gradient that is zero but for rounding becomes a full step of Adam: the graph may make another one. Where an outcome is well
# determined, a difference of some size is an error.
from flambeau.compiler.gpu.recording import GraphRecorded
of_graph = GraphRecorded._graph_outcome
def noisy():
    w, key = nn.Parameter(fl.arange(8.0).sin().cuda()), nn.Parameter(fl.zeros(()).cuda())
    optimizer = fl.optim.Adam([w, key], lr=0.1)
    def step(x):
        optimizer.zero_grad()
        loss = ((w * x + key).softmax(0) * x).sum()  # what is added to all scores changes nothing
        loss.backward()
        optimizer.step()
        return loss
    return step, w, key
warnings.simplefilter("ignore")
for number, accepted in ((8, False), (1, True)):  # how many elements the state has that comes out differently
    def altered(self, tensors, made, before):
        found = of_graph(self, tensors, made, before)
        for i, t in enumerate(before.tensors):
            if t.numel() == number and t.requires_grad:
                t.data.mul_(1.05).add_(1e-3)
                found.states[i] = device_values.sums(t)
        return found
    GraphRecorded._graph_outcome = altered
    step, w, key = noisy()
    compiled = fl.compile(step)
    for i in range(6):
        compiled(fl.arange(8.0).cos().mul(0.3 + 0.1 * i).cuda())
    assert ("one CUDA graph" in compiled.explain()) == accepted, (number, compiled.explain())
    assert accepted or "came out differently, by" in compiled.explain(), compiled.explain()
GraphRecorded._graph_outcome = of_graph

# a result of a class of its own: what computes it is captured, Python makes the object
pathlib.Path(sys.argv[1], "with_objects.py").write_text(
    "import dataclasses\\n\\n@dataclasses.dataclass\\nclass Result:\\n    value: object\\n\\n\\n"
    "def f(x):\\n    y = x * 2 + 1\\n    return Result(y)\\n"
)
sys.path.insert(0, sys.argv[1])
import with_objects
warnings.simplefilter("ignore")
compiled = fl.compile(with_objects.f)
for i in range(9):
    assert compiled(fl.ones(4).cuda() * i).value.tolist() == [2 * i + 1.0] * 4
(part,) = compiled._compiled.parts()
assert sum(r.calls for r in part.recordings()) > 0, compiled.explain()
print("done")
"""


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler (g++) to run CUDA text on the CPU")
def test_compiled_functions_on_an_emulated_gpu(tmp_path):
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=400)
    assert done.stdout.strip().endswith("done"), done.stderr[-3000:]


_ARGUMENTS = """
import pathlib, sys, warnings
from tests.backends.nvidia import fake_driver
fake = fake_driver.install(pathlib.Path(sys.argv[1]))
import flambeau as fl
from flambeau import nn

warnings.simplefilter("error")

def differentiates(x):
    y, z = (x * x).vsplit(2)
    (y.sin().sum() + z.sum()).backward()
    return y.detach()

def differentiates_both(x, y):
    (x * y).sum().backward()
    return x.grad * 2

def returns_argument(x):
    (x * x * float(x.shape[0])).sum().backward()
    return x

def leaf(i):
    return (fl.arange(4.0).view(2, 2) + i).cuda().requires_grad_()

for function, count in ((differentiates, 1), (differentiates_both, 2), (returns_argument, 1)):
    warnings.simplefilter("error")
    compiled, kept = fl.compile(function), []
    for i in range(7):
        ours, theirs = [leaf(i + k) for k in range(count)], [leaf(i + k) for k in range(count)]
        assert compiled(*ours).tolist() == function(*theirs).tolist()
        kept += zip(ours, theirs)
        for a, b in kept:  # those of earlier calls stay theirs
            assert a.grad is not None and a.grad.tolist() == b.grad.tolist(), (function, i)
    assert "one CUDA graph" in compiled.explain(), compiled.explain()
    warnings.simplefilter("ignore")  # it tells that such calls are not compiled
    ours, theirs = leaf(1), leaf(1)
    for i in range(6):  # the second call adds to the gradient that is there
        compiled(*[ours] * count), function(*[theirs] * count)
        assert ours.grad.tolist() == theirs.grad.tolist(), (function, i)

warnings.simplefilter("error")
compiled = fl.compile(differentiates)
for i in range(6):  # nothing is differentiated, too
    empty = fl.ones(2, 0).cuda().requires_grad_()
    compiled(empty)
    assert empty.grad.shape == (2, 0)
assert "one CUDA graph" in compiled.explain(), compiled.explain()

# gradients of a parameter and of an argument, in one graph
w, v = (nn.Parameter(fl.tensor([0.5, -1.0]).cuda()) for _ in range(2))
def both(p, x):
    p.grad = None
    loss = (x * p).sin().sum()
    loss.backward()
    return loss
compiled = fl.compile(lambda x: both(w, x))
for i in range(7):
    ours, theirs = leaf(i), leaf(i)
    assert compiled(ours).tolist() == both(v, theirs).tolist()
    assert ours.grad.tolist() == theirs.grad.tolist() and w.grad.tolist() == v.grad.tolist(), i
assert "one CUDA graph" in compiled.explain(), compiled.explain()

# an argument with a history: the function's graph ends there, and the gradient goes on
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(fl.tensor([0.5, 2.0]).cuda())
    def forward(self, x):
        return (x * self.weight).sin() + x
blocks = [Block() for _ in range(2)]
compiled = fl.compile(blocks[0])
seen = []
for i in range(7):
    results = []
    for block, run in ((blocks[0], compiled), (blocks[1], blocks[1])):
        block.weight.grad = None
        x = leaf(i)
        h = x * block.weight  # the same parameter comes in from outside, too
        h.register_hook(lambda g: seen.append(g.tolist()))
        y = run(h)
        (y * y).sum().backward()
        results.append((y.tolist(), x.grad.tolist(), block.weight.grad.tolist()))
    assert results[0] == results[1] and seen[-1] == seen[-2], i
assert "one CUDA graph" in compiled.explain(), compiled.explain()

# only some results are differentiated, as the loss of a model that returns scores, too: the others take no part in it
class Scored(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = (nn.Parameter(fl.tensor([0.5, k]).cuda()) for k in (2.0, 3.0))
    def forward(self, x):
        scores = (x * self.weight).exp()
        others = scores.detach() * self.bias
        return others, (scores * scores).sum(), scores  # the loss is computed from the last
def scored():
    models = [Scored() for _ in range(2)]
    compiled = fl.compile(models[0])
    for i, which in enumerate([1, 1, 1, 1, 1, 0, 1, 3, 1, 2, 1]):
        for model, run in ((models[0], compiled), (models[1], models[1])):
            results = run(leaf(i).detach() / 8)
            loss = results[which] if which < 3 else results[0].sum() + results[1]
            loss.sum().backward()
        assert fl.equal(models[0].weight.grad, models[1].weight.grad), i
        ours, theirs = (m.bias.grad for m in models)
        assert (ours is None and theirs is None) or fl.equal(ours, theirs), (i, ours, theirs)
    assert "one CUDA graph" in compiled.explain(), compiled.explain()
    return compiled(leaf(1).detach() / 8)[1].grad_fn.derivative
found = scored()
assert found.usual.which == (1,) and len(found.usual.leaves) < len(found.leaves)
assert len(found.usual.program_of_calls.calls) < len(found.program_of_calls.calls)
assert found.graph is None and found.forward and found.usual.graph  # what nobody asks for has no graph
from flambeau.compiler.gpu import recording
def refused(*given):
    raise recording.NotRecordable("it is not written down here")
written, recording.write_down = recording.write_down, refused
found = scored()
assert found.graph is not None and found.usual.graph and not found.forward
recording.write_down = written

# results that share memory stay what they are: a change of one is a part of the other's history
def sharing(x):
    y = x * x
    return y, y.view(-1)
compiled = fl.compile(sharing)
warnings.simplefilter("ignore")
for i in range(6):
    grads = []
    for f in (compiled, sharing):
        x = leaf(i)
        y, flat = f(x)
        y.mul_(3)
        flat.sum().backward()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1], (i, grads)

# a result that cannot be differentiated
class Refusing(fl.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2
    @staticmethod
    def backward(ctx, g):
        raise ValueError("not this way")
refusing = fl.compile(lambda x: Refusing.apply(x))
for i in range(6):
    assert refusing(leaf(i)).tolist() == (leaf(i) * 2).tolist()
warnings.simplefilter("error")

# gradients that are summed over passes are no reason for a second graph, unless the function asks for them
class Asking(Scored):
    def forward(self, x):
        return super().forward(x)[1] * (2 if self.weight.grad is None else 3)
for kind, count in ((Scored, 1), (Asking, 2)):
    models = [kind() for _ in range(2)]
    compiled = fl.compile(models[0])
    for i in range(12):
        for model, run in ((models[0], compiled), (models[1], models[1])):
            if i % 2 == 0:
                model.zero_grad()
            result = run(leaf(i).detach() / 8)
            (result[1] if kind is Scored else result).backward()
        assert fl.equal(models[0].weight.grad, models[1].weight.grad), (kind, i)
    assert compiled.explain().count("one CUDA graph of") == 2 * count, compiled.explain()  # forward and backward

# the probabilities of a loss are not kept for the backward pass, which reads the scores
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(fl.tensor([0.5, 2.0]).cuda())
    def forward(self, x, y):
        scores = (x * self.weight).bfloat16()
        return scores, nn.functional.cross_entropy(scores.float(), y)
class OfState(Classifier):
    def forward(self, x, y):
        scores = self.weight.expand(2, 2).contiguous() if x is None else self.weight.view(1, 2)
        return scores * 1, nn.functional.cross_entropy(scores, y)
for kind in (Classifier, OfState):
    models = [kind() for _ in range(2)]
    compiled = fl.compile(models[0])
    for i in range(7):
        for model, run in ((models[0], compiled), (models[1], models[1])):
            model.zero_grad()
            scores, loss = run(leaf(i).detach() / 8, fl.tensor([1, 0] if kind is Classifier else [1]).cuda())
            if kind is OfState and i == 6:
                model.weight.data.mul_(3)  # which the backward pass of the function as it is does not read
            elif kind is Classifier:
                scores.detach().zero_()  # neither does the caller's copy matter
            for again in range(i % 2, 2):  # what a derivative reads is there again
                loss.backward(retain_graph=not again)
        a, b = (m.weight.grad for m in models)
        assert fl.allclose(a, b, rtol=1e-5), (kind, i, a, b)
    assert "one CUDA graph" in compiled.explain(), compiled.explain()
    node = compiled(leaf(1).detach() / 8, fl.tensor([1, 0] if kind is Classifier else [1]).cuda())[1].grad_fn
    names = [call.name for d in node.derivative.all() for call in d.program_of_calls.calls]
    assert any("cross_entropy_gradient" in n for n in names) == (kind is Classifier), names

# a large result is copied out by a kernel
from flambeau.compiler.gpu import capture
capture._MUCH = 32
compiled = fl.compile(lambda x: x * 2)
kept = [(i, compiled(leaf(i).detach().repeat(4, 2))) for i in range(7)]
assert all(fl.equal(y, leaf(i).detach().repeat(4, 2) * 2) for i, y in kept)
assert {type(p).__name__ for r in compiled._compiled.recordings() for _, p in r.program.outputs} == {"WideCopy"}

# what the host knows goes into the graph's own memory, also on a second stream: a sum of no rows, as the gradient of a bias is
layer = nn.RMSNorm(2).cuda()
def no_rows(x):
    layer.weight.grad = None
    layer(x).sum().backward()
    return x.detach() * 1
compiled = fl.compile(no_rows)
for i in range(6):
    compiled(fl.ones(0, 2).cuda())
(recorded,) = compiled._compiled.recordings()
assert recorded.program.capture.kept, "the graph reads memory of the host that is not its own"

# a function that differentiates what its argument came from runs as it is; where its source is known, parts of it are compiled
def inward(x):
    (x * 3).sum().backward()
    return x.detach()
compiled = fl.compile(inward)
warnings.simplefilter("ignore")
for i in range(6):
    x = leaf(i)
    compiled(x * x)
    assert x.grad.tolist() == (6 * x.detach()).tolist()
assert "it differentiates an argument that has a history" in compiled.explain()
print("done")
"""


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler (g++) to run CUDA text on the CPU")
def test_arguments_with_gradients_or_histories_on_an_emulated_gpu(tmp_path):
    command = [sys.executable, "-c", _ARGUMENTS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.stdout.strip().endswith("done"), done.stderr[-3000:]
