"""Sizes that may change: rounded down by pooling, restricted by the program; slices as the program wrote them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from answers import judge, told

import flambeau

SLICES = [
    "x[:2]", "x[0:2]", "x[:, :2]", "x[..., :2]", "x[1:]", "x[:-1]", "x[-2:]", "x[:10]", "x[::2]", "x[:3]", "x[:, 1:3]", "x[-10:]",
    "x[5:]", "x[2:1]", "x[:2, 1:]", "x[0, :2]", "x.narrow(0, 0, 2)", "x[1:3][:1]", "x[:]", "x[0:]", "x[:, None, :2]",
]  # fmt: skip


def _module(torch: Any, function: Callable, **buffers: Any) -> Any:
    class Module(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return function(torch, self, x)

    made = Module()
    for name, tensor in buffers.items():
        made.register_buffer(name, tensor)
    return made


def _exported(torch: Any, function: Callable, shape: tuple[int, ...], dynamic: Any = None, **buffers: Any) -> Any:
    x = torch.arange(torch.ones(shape).numel()).view(shape) / 7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(_module(torch, function, **buffers), (x,), dynamic_shapes=dynamic)


def _slices(torch: Any, expression: str) -> list[str]:
    program = _exported(torch, lambda torch, self, x: eval(expression), (3, 4))
    return [str((n.target, n.args[1:])) for n in program.graph.nodes if n.op == "call_function"]


@pytest.mark.parametrize("expression", SLICES)
def test_slices_are_written_as_in_the_program(expression: str) -> None:
    assert _slices(flambeau, expression) == told(expression, lambda: _slices(judge("torch"), expression))


PROGRAMS: dict[str, Callable] = {
    "pooled and resized": lambda torch, self, x: torch.nn.functional.interpolate(torch.nn.functional.max_pool2d(x, 2), x.shape[-2:]),
    "pooled and flattened": lambda torch, self, x: torch.nn.functional.avg_pool2d(x, 3, 2, 1).flatten(2).transpose(1, 2),
    "strided convolution": lambda torch, self, x: torch.conv2d(x, torch.ones(2, 1, 3, 3), stride=2, padding=1).reshape(x.size(0), -1),
    "twice": lambda torch, self, x: torch.nn.functional.max_pool2d(torch.nn.functional.max_pool2d(x, 2), 2).sum((2, 3)) * x.size(2),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_rounded_down(name: str) -> None:
    auto = flambeau.export.Dim.AUTO
    program = _exported(flambeau, PROGRAMS[name], (1, 1, 8, 8), ({0: None, 2: auto, 3: auto},))
    x = flambeau.randn(1, 1, 21, 14)
    assert flambeau.equal(program.module()(x), PROGRAMS[name](flambeau, None, x))


@pytest.mark.parametrize("kind", ["AUTO", "DYNAMIC"])
def test_hints_are_restricted_to_what_the_program_accepts(kind: str) -> None:
    table = flambeau.arange(40.0).view(10, 4)
    hint = getattr(flambeau.export.Dim, kind)
    program = _exported(
        flambeau, lambda torch, self, x: x + self.table[: x.size(1)], (2, 3, 4), ({1: hint},), table=table
    )
    ((bounds,),) = [program.range_constraints.values()]
    assert (bounds.lower, bounds.upper) == (2, 10)
    x = flambeau.randn(2, 7, 4)
    assert flambeau.equal(program.module()(x), x + table[:7])
    with pytest.raises((AssertionError, RuntimeError)):
        program.module()(flambeau.randn(2, 11, 4))


def test_hints_become_equal_or_constant() -> None:
    auto, dynamic = flambeau.export.Dim.AUTO, flambeau.export.Dim.DYNAMIC
    program = _exported(flambeau, lambda torch, self, x: x @ x, (3, 3), ({0: auto, 1: auto},))
    assert len(program.range_constraints) == 1
    x = flambeau.randn(5, 5)
    assert flambeau.equal(program.module()(x), x @ x)
    program = _exported(flambeau, lambda torch, self, x: x @ torch.ones(4, 2), (3, 4), ({0: auto, 1: auto},))
    assert len(program.range_constraints) == 1
    assert program.module()(flambeau.ones(7, 4)).shape == (7, 2)
    with pytest.raises(RuntimeError, match=r"specialized it to be a constant \(4\)"):
        _exported(flambeau, lambda torch, self, x: x @ torch.ones(4, 2), (3, 4), ({1: dynamic},))


BOUNDED: dict[str, Callable] = {
    "min": lambda torch, self, x: torch.zeros(min(x.size(1), 5)) + x.sum(),
    "max": lambda torch, self, x: torch.zeros(max(x.size(1), 5)) + x.sum(),
    "branch": lambda torch, self, x: x * 2 if x.size(1) > 4 else x,
    "slice": lambda torch, self, x: x[:, : max(1, x.size(1) - 2)],
}


@pytest.mark.parametrize("columns", [3, 5, 8])
@pytest.mark.parametrize("what", BOUNDED)
def test_no_size_gives_a_wrong_result(what: str, columns: int) -> None:
    """Smaller sizes than the example's, which make the program do something else, are refused: in the export or in the call."""
    try:
        program = _exported(flambeau, BOUNDED[what], (2, columns), ({1: flambeau.export.Dim.AUTO},))
    except RuntimeError as problem:
        assert "depends on the sizes" in str(problem)
        return
    ran = 0
    for size in range(2, 40):
        x = flambeau.arange(2.0 * size).view(2, size)
        try:
            found = program.module()(x)
        except AssertionError:
            continue
        ran += 1
        assert flambeau.equal(found, BOUNDED[what](flambeau, None, x))
    assert ran > 1


def test_a_named_size_that_is_restricted_is_refused_with_the_guard() -> None:
    with pytest.raises(
        RuntimeError, match=r"guard 5 <= L\['x'\].size\(\)\[1\]\nSuggested fixes:\n  l = Dim\('l', min=5\)"
    ):
        _exported(flambeau, BOUNDED["branch"], (2, 12), ({1: flambeau.export.Dim("l")},))
