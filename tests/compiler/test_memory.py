"""How much memory a compiled function needs: what shares a place, what goes earlier, what is computed again, what is not kept."""

from __future__ import annotations

import subprocess
import sys
import weakref

import flambeau
from flambeau import nn
from flambeau.compiler.passes import ordering, pipeline
from flambeau.compiler.runtime import first_run


def wide_step(bias=True):
    """A training step of two layers with GELU between: its memory is that of what lies between them."""
    flambeau.manual_seed(0)
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(32, 256, bias), nn.GELU(), nn.Linear(256, 32, bias)) for _ in range(3))
    )
    optimizer = flambeau.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, model


def recorded_step(bias=True, **options):
    """The recording of that step, and the losses of its first calls."""
    step, model = wide_step(bias)
    compiled = flambeau.compile(step, **options)
    generator = flambeau.Generator().manual_seed(1)
    losses = [compiled(flambeau.randn(128, 32, generator=generator)).item() for _ in range(6)]
    (recorded,) = compiled._compiled.recordings()
    assert recorded.calls == 3
    return recorded, losses, compiled, model


def eager_losses():
    step, _ = wide_step()
    generator = flambeau.Generator().manual_seed(1)
    return [step(flambeau.randn(128, 32, generator=generator)).item() for _ in range(6)]


def test_results_take_the_place_of_what_they_are_computed_from():
    recorded, losses, compiled, _ = recorded_step()
    program = recorded.program
    assert program.in_place
    for new, old in program.in_place.items():
        assert program.offsets[new] == program.offsets[old]
    flambeau.testing.assert_close(losses, eager_losses(), rtol=1e-5, atol=1e-6)
    assert "results are written over what they are computed from" in flambeau.compiler.show(compiled)


def test_what_is_read_once_more_keeps_its_place():
    weight = flambeau.randn(64, 64)

    @flambeau.compile
    def function(x):
        a = x.mm(weight)
        b = a.exp()  # a is needed later
        return b.mm(weight) + a

    for _ in range(5):
        x = flambeau.randn(64, 64)
        a = x.mm(weight)
        flambeau.testing.assert_close(function(x), a.exp().mm(weight) + a)


def test_steps_that_free_memory_come_earlier(monkeypatch):
    """Without a bias: then the gradient of a weight comes last, though it is the last to read an activation."""
    less = recorded_step(bias=False)[0].program.arena_size
    monkeypatch.setattr(pipeline, "free_earlier", lambda graph, results: None)
    assert less < recorded_step(bias=False)[0].program.arena_size


def test_formulas_are_computed_again_where_that_is_wanted():
    kept, plain, _, _ = recorded_step()
    again, losses, compiled, _ = recorded_step(options={"recompute": True})
    assert losses == plain  # the same formulas on the same values
    assert not kept.program.graph.recomputed
    assert [name for name, _ in again.program.graph.recomputed] == ["nn.functional.gelu"] * 2
    assert again.program.arena_size < kept.program.arena_size
    assert "computed again instead of kept: nn.functional.gelu (2 times), 262144 bytes" in flambeau.compiler.show(
        compiled
    )


def test_a_short_formula_is_computed_again_by_itself():
    weights = [flambeau.randn(64, 64) * 0.1 for _ in range(12)]

    def function(x):
        scaled = x * 2.0  # is needed first and last
        y = scaled
        for w in weights:
            y = (y @ w).tanh()
        return y.mm(y.T).mm(y) + scaled @ weights[1]

    compiled = flambeau.compile(function)
    for _ in range(5):
        x = flambeau.randn(600, 64)
        flambeau.testing.assert_close(compiled(x), function(x))
    (recorded,) = compiled._compiled.recordings()
    assert ordering.peak(recorded.program.graph, set(recorded.program.offsets)) <= recorded.program.arena_size
    assert [name for name, _ in recorded.program.graph.recomputed] == ["mul"]


def test_gradients_that_a_call_drops_are_not_kept():
    step, model = wide_step()
    compiled = flambeau.compile(step)
    x = flambeau.randn(8, 32)
    for _ in range(3):  # as it is, recorded, compared
        compiled(x)
        before = weakref.ref(model[0][0].weight.grad._storage)
        assert before() is not None
        compiled(x)
        if not any(r.calls for r in compiled._compiled.recordings()):
            assert before() is None


def test_gradients_stay_where_the_compared_call_has_put_them():
    step, model = wide_step()
    compiled = flambeau.compile(step)
    x = flambeau.randn(8, 32)
    for _ in range(3):
        compiled(x)
    place = model[0][0].weight.grad.data_ptr()
    compiled(x)
    assert model[0][0].weight.grad.data_ptr() == place
    held = model[0][0].weight.grad  # from now on somebody holds it
    values = held.clone()
    compiled(x)
    assert held.equal(values) and model[0][0].weight.grad is not held


def test_a_gradient_that_is_held_through_the_comparison_keeps_its_values():
    step, model = wide_step()
    compiled = flambeau.compile(step)
    x, kept = flambeau.randn(8, 32), []
    for _ in range(6):
        compiled(x)
        kept.append((model[2][2].bias.grad, model[2][2].bias.grad.clone()))
    assert all(grad.equal(values) for grad, values in kept)


def test_the_first_call_imports_nothing_that_records():
    code = """
import sys
import flambeau
double = flambeau.compile(lambda x: x * 2)
room = lambda: {n.rpartition(".")[2] for n in sys.modules if n.startswith("flambeau.compiler.")}
x = flambeau.ones(3)
assert double(x).tolist() == [2, 2, 2]
assert room() == {"arguments", "c_functions", "event_filter", "first_call", "frames", "observer", "origins", "state"}, room()
for _ in range(3):
    assert double(x).tolist() == [2, 2, 2]
assert double._compiled.recordings()[0].calls == 1, double.explain()
late = room() & {"splitting", "marking", "source", "counters", "differentiable", "convolutions"}
assert not late and "flambeau.backends.cpu.winograd" not in sys.modules, late
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_first_call_that_cannot_be_told_apart_is_followed_by_others():
    function = flambeau.compile(lambda x, what: x * len(what))
    for _ in range(4):
        assert function(flambeau.ones(2), {1, 2}).tolist() == [2, 2]


def test_loops_are_rehearsed_in_pieces(monkeypatch):
    """Of a large parameter and its state only some elements are copied at a time, and all of them are compared."""
    copies, pieces = [], []
    put_back = first_run.Rehearsal._restore_copies

    def watched(self, given):
        copies.append(sum(len(old) for _, old, _ in given))
        put_back(self, given)

    piece = first_run.Rehearsal.piece
    monkeypatch.setattr(first_run.Rehearsal, "_restore_copies", watched)
    monkeypatch.setattr(first_run.Rehearsal, "piece", lambda self, *a: (pieces.append(a[1:]), piece(self, *a))[1])

    def run(compile):
        weight = flambeau.linspace(-1, 1, 3 * first_run.PIECE + 5).requires_grad_()
        optimizer = flambeau.optim.Adam([weight], lr=0.1)

        @compile
        def step(x):
            optimizer.zero_grad()
            (weight * x).square().sum().backward()
            optimizer.step()

        for k in range(5):
            step(flambeau.full((1,), 1.0 + k))
        return weight.detach(), step

    (mine, step), (theirs, _) = run(flambeau.compile), run(lambda f: f)
    assert step._compiled.recordings()[0].calls == 2, step.explain()
    flambeau.testing.assert_close(mine, theirs)
    assert [p[0] for p in pieces] == [k * first_run.PIECE for k in range(4)] and pieces[-1][1] == 5
    assert 0 < max(copies) <= 3 * 4 * first_run.PIECE
