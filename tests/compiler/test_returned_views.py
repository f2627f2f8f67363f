"""Compiled functions that return views of their arguments, or of tensors that they find: as eager's in all that can be seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau
from flambeau import nn
from flambeau.core.tensor import tensors_in

from .helpers import same

VIEWS: dict[str, Callable] = {
    "detach": lambda x: x.detach(),
    "shape": lambda x: x.view(4, 6).view(-1),
    "parts of parts": lambda x: x.transpose(0, 1)[1:].unsqueeze(0),
    "detached part": lambda x: x[:, 1].detach(),
    "several": lambda x: x.unbind(1),
    "pieces": lambda x: x.chunk(3, 2),
    "other dtype": lambda x: x.detach().view(flambeau.int32),
    "beside a result": lambda x: (x * 2, x[0]),
    "twice": lambda x: [x.t(), x.flatten(0, 1)] if x.dim() == 2 else [x[0].t(), x.flatten(0, 1)],
    "without history": lambda x: flambeau.no_grad()(lambda: x.mT)(),
}
ARGUMENTS: dict[str, Callable] = {
    "plain": lambda: flambeau.arange(24.0).view(2, 3, 4).clone(),
    "leaf": lambda: flambeau.arange(24.0).view(2, 3, 4).clone().requires_grad_(),
    "view": lambda: flambeau.arange(48.0).view(4, 3, 4)[1:3],
}


def natively(function: Callable, make: Callable[[], Any], calls: int = 6) -> tuple[Any, Any]:
    """Call a function compiled; returns the last argument and result, after making sure that a recording was replayed."""
    run = flambeau.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(calls):
            argument = make()
            result = run(argument)
            for t in tensors_in(result):
                if t.requires_grad and t._base is None:
                    t.sum().backward(retain_graph=True)  # a derivative that is known is a part of a recording
    assert sum(r.calls for r in run._compiled.recordings()) >= 2
    return argument, result


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ARGUMENTS)
def test_views_are_as_eager_ones(view: str, kind: str) -> None:
    ours = natively(VIEWS[view], ARGUMENTS[kind])
    argument = ARGUMENTS[kind]()
    theirs = argument, VIEWS[view](argument)
    same(ours[1], theirs[1])
    for a, b in zip(tensors_in(ours[1]), tensors_in(theirs[1])):
        assert (a.shape, a.stride(), a.storage_offset(), a.dtype) == (b.shape, b.stride(), b.storage_offset(), b.dtype)
        assert (a.requires_grad, a.is_leaf, a._base is None) == (b.requires_grad, b.is_leaf, b._base is None)
        assert (a._base is ours[0]) == (b._base is theirs[0])
        assert (a.data_ptr() - ours[0].data_ptr()) == (b.data_ptr() - theirs[0].data_ptr()) or view == "beside a result"
        if a._base is not None and a.grad_fn is not None:
            assert a.grad_fn.name() == b.grad_fn.name()  # made by the same operator, not by one node for all


@pytest.mark.parametrize("view", [v for v in VIEWS if v not in ("beside a result", "other dtype")])
def test_writes_through_a_result_are_seen_in_the_argument(view: str) -> None:
    argument, result = natively(VIEWS[view], ARGUMENTS["plain"])
    first, version = tensors_in(result)[0], argument._version
    first.fill_(-7)
    assert (argument == -7).sum() == first.numel() and argument._version == version + 1 == first._version


def test_gradients_flow_through_views_and_results_beside_them() -> None:
    argument, (double, part) = natively(VIEWS["beside a result"], ARGUMENTS["leaf"])
    argument.grad = None
    (double.sum() + (part * 3).sum()).backward()
    assert argument.grad.tolist() == [[[5.0] * 4] * 3, [[2.0] * 4] * 3]


def test_a_leaf_cannot_be_changed_through_a_view() -> None:
    _, part = natively(lambda x: x[0], ARGUMENTS["leaf"])
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        part.add_(1)


def test_one_of_several_views_is_refused_as_in_eager_calls() -> None:
    _, parts = natively(lambda x: (x * 1).unbind() if x.dim() < 3 else x.unbind(), ARGUMENTS["leaf"])
    with pytest.raises(RuntimeError):
        parts[0].add_(1)


def test_views_of_parameters() -> None:
    weight = flambeau.ones(3, 4, requires_grad=True)

    def part(x: flambeau.Tensor) -> Any:
        return x.sum(), weight[1:].t()

    _, (_, found) = natively(part, ARGUMENTS["plain"])
    found.sum().backward()
    assert found._base is weight and weight.grad.tolist() == [[0.0] * 4, [1.0] * 4, [1.0] * 4]


def test_views_after_a_change_in_place() -> None:
    def change(x: flambeau.Tensor) -> Any:
        y = x.detach()
        y.add_(1)
        return y.view(-1)

    argument, result = natively(change, ARGUMENTS["leaf"])
    assert result.tolist() == [k + 1.0 for k in range(24)] == argument.flatten().tolist() and argument._version == 1


def test_a_result_that_is_the_same_tensor_twice() -> None:
    def twice(x: flambeau.Tensor) -> Any:
        y = x.detach()
        return y, [y]

    _, (one, (other,)) = natively(twice, ARGUMENTS["leaf"])
    assert one is other


def test_histories_that_a_replay_would_not_give_run_as_they_are() -> None:
    def leaf(x: flambeau.Tensor) -> flambeau.Tensor:
        return x.detach().requires_grad_()

    def of_history(x: flambeau.Tensor) -> flambeau.Tensor:
        return x.view(-1)

    for function, make in ((leaf, ARGUMENTS["leaf"]), (of_history, lambda: ARGUMENTS["leaf"]() * 2)):
        run = flambeau.compile(function)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(6):
                argument = make()
                result = run(argument)
        assert result.requires_grad and result.is_leaf == (function is leaf)
        assert function is leaf or result._base is argument


@pytest.mark.parametrize("part", [slice(None), slice(1, 7)], ids=str)
def test_writes_through_a_view_of_an_argument_with_a_history_are_part_of_that(part: slice) -> None:
    def first(x: flambeau.Tensor) -> flambeau.Tensor:
        return x.view(2, -1)[0]

    run = flambeau.compile(first)
    for i in range(6):
        found = []
        for function in (first, run):
            leaf = (flambeau.arange(8.0) + i).requires_grad_()
            x = (leaf * 2)[part]
            view = function(x)
            view.mul_(3)
            (x * x).sum().backward()
            found.append((view._base is (x if x._base is None else x._base), leaf.grad))
        same(*found)


@pytest.mark.parametrize("kept", [False, True])
def test_a_returned_gradient_is_the_leafs_own(kept):
    layer, results, values = nn.Linear(3, 2), [], []

    @flambeau.compile
    def step(x):
        layer.zero_grad()
        layer(x).square().sum().backward()
        return layer.weight.grad, {"bias": layer.bias.grad}, layer.weight.grad

    for k in range(9):
        x = flambeau.full((1, 3), float(k))
        first, named, again = step(x)
        assert first is again is layer.weight.grad and named["bias"] is layer.bias.grad
        expected = 2 * layer(x).detach().t() @ x
        flambeau.testing.assert_close(first, expected)
        first.mul_(0.5)
        flambeau.testing.assert_close(layer.weight.grad, expected * 0.5)
        if kept:
            results.append(first)
            values.append(expected * 0.5)
    flambeau.testing.assert_close(results, values)
    assert sum(r.calls for r in step._compiled.recordings()) == 6, step.explain()
