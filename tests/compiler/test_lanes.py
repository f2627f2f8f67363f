"""Recurrent layers of compiled steps: rows of the batch go through time on threads of their own."""

import pytest

import flambeau
from flambeau import nn
from flambeau.backends.cpu import team, threads

needs_threads = pytest.mark.skipif(threads.library() is None, reason="libgomp is not installed")


@pytest.fixture(autouse=True)
def two_threads():
    before = flambeau.get_num_threads()
    flambeau.set_num_threads(2)
    yield
    flambeau.set_num_threads(before)


def training_step(model):
    optimizer = flambeau.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        out, state = model(x)
        loss = (out * out).mean() + sum(s.sum() for s in (state if isinstance(state, tuple) else (state,)))
        loss.backward()
        optimizer.step()
        return loss, out

    return step


def lanes(compiled):
    """How many steps of recurrent layers are in each lane, by group."""
    (recorded,) = compiled._compiled.recordings()
    steps = recorded.program.graph.steps
    found = [s.lane for s in steps if getattr(s, "lane", None) is not None and not s.is_loop]
    groups = {g: sorted({lane for other, lane in found if other == g}) for g, _ in found}
    return [[found.count((group, lane)) for lane in its] for group, its in groups.items()]


@needs_threads
@pytest.mark.parametrize("batch", [8, 11, 3])
@pytest.mark.parametrize(
    ("kind", "options", "groups"),
    [
        (nn.LSTM, {"num_layers": 2}, 4),
        (nn.LSTM, {"bidirectional": True}, 4),
        (nn.GRU, {}, 1),  # its gradients have a loop between the steps that is not split
        (nn.RNN, {"nonlinearity": "relu"}, 2),
    ],
)
def test_rows_go_through_time_on_threads_of_their_own(kind, options, groups, batch):
    flambeau.manual_seed(3)  # one in twenty initialisations of the RNN diverges
    model, other = kind(24, 64, **options), kind(24, 64, **options)
    other.load_state_dict(model.state_dict())
    eager, compiled = training_step(model), flambeau.compile(training_step(other))
    for call in range(6):
        team.assume_crowded(10 if call == 5 else 0)  # then parts of a loop are claimed one by one
        x = flambeau.randn(9, batch, 24)
        flambeau.testing.assert_close(compiled(x), eager(x))
    team.assume_crowded(0)
    for p, q in zip(model.parameters(), other.parameters()):
        flambeau.testing.assert_close(q.grad, p.grad)
        flambeau.testing.assert_close(q, p)
    found = lanes(compiled)
    assert len(found) == (0 if batch < 8 else groups) and all(a == b >= 8 for a, b in found)


@needs_threads
@pytest.mark.parametrize(("batch", "expected"), [(13, 3), (11, 0)])
def test_there_are_as_many_lanes_as_threads_if_rows_are_enough(batch, expected):
    flambeau.set_num_threads(3)
    model, other = nn.LSTM(24, 64), nn.LSTM(24, 64)
    other.load_state_dict(model.state_dict())
    eager, compiled = training_step(model), flambeau.compile(training_step(other))
    for _ in range(5):
        x = flambeau.randn(9, batch, 24)
        flambeau.testing.assert_close(compiled(x), eager(x))
    assert all(len(each) == expected for each in lanes(compiled)) and bool(lanes(compiled)) == bool(expected)


@needs_threads
def test_a_single_thread_takes_all_rows():
    flambeau.set_num_threads(1)
    model = nn.LSTM(24, 64)
    compiled = flambeau.compile(training_step(model))
    for _ in range(4):
        compiled(flambeau.randn(9, 8, 24))
    assert lanes(compiled) == []


@needs_threads
def test_memory_of_steps_side_by_side_is_not_shared():
    model = nn.LSTM(24, 64, num_layers=2)
    compiled = flambeau.compile(training_step(model))
    for _ in range(4):
        compiled(flambeau.randn(9, 8, 24))
    (recorded,) = compiled._compiled.recordings()
    program = recorded.program
    for group in dict.fromkeys(s.lane[0] for s in program.graph.steps if getattr(s, "lane", None)):
        steps = [s for s in program.graph.steps if getattr(s, "lane", None) and s.lane[0] == group]
        used = {r.buffer for s in steps for r in s.refs() if r.buffer in program.offsets}
        spans = sorted((program.offsets[b], program.offsets[b] + program.graph.buffers[b].size) for b in used)
        assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:]))
