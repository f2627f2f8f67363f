"""What a program says of a function: calls, values over memory, effects; how it is printed and checked."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.compiler.record.recorder import StepRecorder
from flambeau.core.records import replace
from flambeau.fx.experimental.graph_recorder import GraphRecorder
from flambeau.graph.checker import check
from flambeau.graph.printer import text
from flambeau.graph.program import Program
from flambeau.graph.recorder import NotRecordable, record
from flambeau.graph.replay import Replay
from tests.graph.helpers import rewritten


def test_the_text_reads_like_the_function() -> None:
    def f(x, y):  # noqa: ANN001, ANN202
        z = fl.add(x, y, alpha=2)
        z.mul_(3)
        return z.t()

    lines = text(record(f, fl.ones(2, 3), fl.ones(3))).splitlines()
    assert lines[0] == "program(%0: f32[2, 3], %1: f32[3]):"
    assert [line.partition("  #")[0].strip() for line in lines[1:]] == [
        "%2: f32[2, 3] = add(%0, %1, alpha=2)",
        "%2 = mul_(%2, 3) !%2",
        "%3: f32[3, 2]:[1, 3] = t(%2)",
        "return %3",
    ]
    assert "test_recorder.py:" in lines[1]


def test_views_are_values_over_one_buffer() -> None:
    program = record(lambda x: x.t()[1:], fl.ones(2, 3))
    assert {v.buffer for call in program for v in call.returned()} == {program.inputs[0].buffer}
    assert program.outputs.start == 4


def test_composites_are_written_through_their_bodies_or_whole() -> None:
    x = fl.randn(2, 4)
    inside = [c.op.name for c in record(lambda x: nn.functional.cosine_similarity(x, x * 2), x)]
    assert "cosine_similarity" not in inside
    whole = [c.op.name for c in record(lambda x: nn.functional.cosine_similarity(x, x * 2), x, whole=lambda op: True)]
    assert "cosine_similarity" in whole


def test_backward_updates_and_random_numbers_are_calls() -> None:
    w = nn.Parameter(fl.ones(3))
    optimizer = fl.optim.SGD([w], lr=0.1)

    def step(x):  # noqa: ANN001, ANN202
        optimizer.zero_grad()
        nn.functional.dropout(x * w, 0.5).sum().backward()
        optimizer.step()

    names = [c.op.name for c in record(step, fl.ones(3), states=[w])]
    assert names[:2] == ["mul", "random_fill"] and "_fused_sgd" in names and "mul_backward" in names


def test_casts_of_autocast_are_calls() -> None:
    layer = nn.Linear(4, 4)

    def f(x):  # noqa: ANN001, ANN202
        with fl.autocast("cpu", dtype=fl.bfloat16):
            return layer(layer(x))

    recorded, _ = rewritten(f, fl.randn(2, 4), states=list(layer.parameters()))
    names = [c.op.name for c in recorded]
    assert names.count("convert") == 3  # the input, and weight and bias once for both calls


def test_what_only_the_derivative_reads_is_known() -> None:
    norm = nn.LayerNorm(4)

    def f(x):  # noqa: ANN001, ANN202
        y = norm(x)
        return fl.autograd.grad(y.sum() * 2, norm.weight)[0]

    rewritten(f, fl.randn(3, 4), states=list(norm.parameters()))


def test_a_look_at_values_cannot_be_written_down() -> None:
    with pytest.raises(NotRecordable):
        record(lambda x: x * 2 if x.sum() > 0 else x, fl.ones(2))
    with pytest.raises(NotRecordable):
        record(lambda x: x.nonzero(), fl.ones(2))


def test_a_tensor_nobody_told_of() -> None:
    hidden = fl.ones(2)
    with pytest.raises(NotRecordable, match="unknown origin"):
        record(lambda x: x + hidden, fl.ones(2))


def test_replay_on_other_inputs() -> None:
    program = record(lambda x, y: (x @ y).relu().sum(1), fl.randn(2, 3), fl.randn(3, 4))
    x, y = fl.randn(2, 3), fl.randn(3, 4)
    assert Replay(program).run([x, y]).tolist() == (x @ y).relu().sum(1).tolist()


def _program() -> Program:
    def f(x):  # noqa: ANN001, ANN202
        y = x.exp()
        return y.add_(1) * 2

    return record(f, fl.ones(3))


def test_the_checker_finds_a_read_before_a_write() -> None:
    program = _program()
    check(program)
    program.calls = program.calls[1:]
    with pytest.raises(ValueError, match="read before it is written"):
        check(program)


def test_the_checker_finds_a_wrong_layout() -> None:
    program = _program()
    first = program.calls[0]
    first.results = replace(first.results, dtype=fl.float64)
    with pytest.raises(ValueError, match="layout rule"):
        check(program)


def test_the_checker_finds_calls_in_the_wrong_order() -> None:
    def f(x):  # noqa: ANN001, ANN202
        y = x.exp()
        x.mul_(2)
        return y

    recorded = record(f, fl.ones(3))
    changed = replace(recorded, calls=recorded.calls[::-1])
    with pytest.raises(ValueError, match="came after"):
        check(changed, recorded)


def test_the_checker_finds_a_result_that_nobody_writes() -> None:
    program = _program()
    program.calls = program.calls[:-1]
    with pytest.raises(ValueError, match="nothing has written"):
        check(program)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.3),
        lambda x: nn.functional.bilinear(x[0, 0], x[0, 0], fl.ones(3, 4, 4)),
    ],
)
def test_calls_are_cast_once_where_autocast_is_on(function: Any) -> None:
    x = fl.randn(2, 2, 4, 4)
    with fl.autocast("cpu", fl.bfloat16):
        program = record(function, x)
        fl.manual_seed(1)
        expected = function(x)
        fl.manual_seed(1)
        assert fl.equal(Replay(program).run([x]), expected)


def _under_autocast(x: Any, w: Any) -> Any:
    with fl.autocast("cpu", fl.bfloat16):
        return nn.functional.cross_entropy(x @ w, fl.zeros(4, dtype=fl.int64)).exp()


def _changed_in_place(x: Any, w: Any) -> Any:
    y = x * w.requires_grad_()
    z = y.sigmoid()
    return z.mul_(w).clamp_(0.25).exp_().sum()


@pytest.mark.parametrize(
    "function", [_under_autocast, _changed_in_place, lambda x, w: nn.functional.gelu(x @ w, approximate="tanh")]
)
def test_compile_is_told_of_the_calls_that_are_written_down(function: Any) -> None:
    given = [fl.randn(4, 4), fl.randn(4, 4)]
    steps = StepRecorder()
    for i, t in enumerate(given):
        steps.know_storage(t._storage, ("argument", i))
    with steps.recording():
        function(*given)
    native = dict.fromkeys(step.call for step in steps.graph.steps)
    assert not steps.problems and None not in native
    wanted = [call for call in record(function, *given) if call.op.kind != "view" and not call.op.unfilled]
    assert [call.name for call in native] == [call.name for call in wanted]
    for a, b in zip(native, wanted):
        assert [(v.shape, v.dtype) for v in a.arguments()] == [(v.shape, v.dtype) for v in b.arguments()]
        assert [(v.shape, v.dtype) for v in a.returned()] == [(v.shape, v.dtype) for v in b.returned()]


def test_a_program_of_pytorchs_operators_tells_tensors_over_one_place_apart() -> None:
    x, recorder = fl.ones(2, 3), GraphRecorder()
    given = recorder.know(x)
    with recorder:
        y = x.detach()
        y.mul_(2)
    detached, changed = recorder.program.calls
    assert [str(call.op) for call in recorder.program] == ["aten.detach.default", "aten.mul_.Tensor"]
    assert detached.args[0] is given and detached.results == given and detached.results.number != given.number
    assert changed.args[0] is detached.results and recorder.held(y) is changed.results and recorder.held(x) is given
    lines = text(recorder.program).splitlines()
    assert lines[1:] == ["    %0 = aten.detach.default(%0)", "    %0 = aten.mul_.Tensor(%0, 2)", "    return None"]


def test_calls_that_are_taken_back_leave_nothing() -> None:
    x, recorder = fl.ones(2, 3), GraphRecorder()
    recorder.know(x)
    with recorder:
        mark = recorder.mark()
        y = x.exp()
        recorder.forget(mark)
        z = x.sin()
    assert [str(call.op) for call in recorder.program] == ["aten.sin.default"]
    assert id(y) not in recorder.known and recorder.held(z) is recorder.program.calls[0].results
