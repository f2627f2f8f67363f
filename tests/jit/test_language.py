"""What compiled programs compute, and what the compiler says about those it cannot compile."""

from __future__ import annotations

import enum
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union  # noqa: UP035

import pytest

import flambeau as torch
from flambeau import Tensor, nn

# ruff: noqa: UP006, UP007, UP045
# mypy: ignore-errors


class Point(NamedTuple):
    x: Tensor
    scale: float = 2.0


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Counter:
    def __init__(self, start: int):
        self.count = start

    def add(self, n: int) -> int:
        self.count += n
        return self.count

    def __len__(self) -> int:
        return self.count


@torch.jit.interface
class Maps(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


def search(xs: List[int], wanted: int) -> int:
    for place, x in enumerate(xs):
        if x == wanted:
            return place
    return -1


def collatz(n: int) -> Tuple[int, List[int]]:
    seen: List[int] = []
    while n != 1:
        seen.append(n)
        if n % 2 == 0:
            n = n // 2
            continue
        n = 3 * n + 1
        if len(seen) > 100:
            break
    return len(seen), seen


def words(text: str) -> Dict[str, int]:
    counts: Dict[str, int] = {}
    for word in text.split(" "):
        if word in counts:
            counts[word] += 1
        else:
            counts[word] = 1
    return counts


def named(x: Tensor) -> Tuple[Tensor, float]:
    p = Point(x)
    q = Point(p.x * p.scale, scale=3.0)
    return q.x, q.scale


def colour(c: Color) -> str:
    if c == Color.RED:
        return "red " + c.name
    return f"{c.value}"


def counted(n: int) -> Tuple[int, int]:
    c = Counter(n)
    c.add(2)
    return c.add(1), len(c)


def narrowed(x: Union[int, List[int]], y: Optional[int]) -> int:
    total = 0
    if isinstance(x, int):
        total = x
    else:
        for v in x:
            total += v
    return total if y is None else total + y


def forked(x: Tensor) -> Tensor:
    future = torch.jit.fork(named, x)
    return torch.jit.wait(future)[0] + 1


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (search, ([4, 5, 6], 5)), (search, ([4], 9)), (collatz, (7,)), (collatz, (1,)), (words, ("a b a",)), (colour, (Color.RED,)),
        (colour, (Color.GREEN,)), (counted, (3,)), (narrowed, (3, None)), (narrowed, ([1, 2], 5)),
    ],
)  # fmt: skip
def test_same_result_as_python(function: Any, arguments: tuple) -> None:
    assert torch.jit.script(function)(*arguments) == function(*arguments)


def test_tensors_and_named_tuples() -> None:
    x = torch.arange(3.0)
    assert torch.jit.script(named)(x)[0].tolist() == [0.0, 2.0, 4.0]
    assert torch.jit.script(forked)(x).tolist() == [1.0, 3.0, 5.0]


class Everything(nn.Module):
    table: Dict[str, int]

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
        self.table = {"a": 1, "b": 2}
        self.steps = 0
        self.limit: torch.jit.Final[int] = 5

    @torch.jit.export
    def reset(self, n: int) -> int:
        self.steps = n
        return self.limit

    @torch.jit.ignore
    def python(self, x: Tensor) -> Tensor:
        return x + 100

    @torch.jit.unused
    def never(self, x: Tensor) -> Tensor:
        import antigravity  # noqa: F401

        return x

    def forward(self, x: Tensor, flag: bool = False) -> Tensor:
        self.steps += 1
        for name, layer in self.layers.items():
            x = layer(x) * self.table[name]
        if flag:
            x = self.never(x)
        if torch.jit.is_scripting():
            return self.python(x)
        return x


def test_modules_keep_state_call_python_and_export() -> None:
    module = Everything()
    scripted = torch.jit.script(module)
    x = torch.ones(1, 2)
    assert torch.allclose(scripted(x), module(x) + 100)
    assert scripted.steps == 1 and module.steps == 1
    assert scripted.reset(7) == 5 and scripted.steps == 7
    with pytest.raises(torch.jit.Error, match="ignored and cannot be run"):
        scripted(x, True)


def test_gradients_flow_and_parameters_are_shared() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    scripted = torch.jit.script(module)
    scripted(torch.ones(2, 3)).sum().backward()
    assert all(p.grad is not None for p in module.parameters())
    assert [n for n, _ in scripted.named_parameters()] == [n for n, _ in module.named_parameters()]


def test_hooks_are_compiled() -> None:
    module = nn.Linear(2, 2)

    def before(self, input: Tuple[Tensor]) -> Tuple[Tensor]:
        return (input[0] * 2,)

    def after(self, input: Tuple[Tensor], output: Tensor) -> Tensor:
        return output + 1

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)
    x = torch.ones(1, 2)
    assert torch.allclose(torch.jit.script(module)(x), module(x))


def test_interfaces_accept_what_fulfils_them() -> None:
    class Uses(nn.Module):
        inner: Maps

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner.forward(x)

    assert torch.jit.script(Uses())(torch.ones(1, 2)).shape == (1, 3)


# -- errors -----------------------------------------------------------------------------------------------------------------


def undefined(x):
    return x + y  # noqa: F821


def mismatch(x: Tensor) -> str:
    return x


def with_try(x):
    try:
        return x
    except ValueError:
        return x


def half_defined(x, flag: bool):
    if flag:
        y = x
    return y


def wrong_argument(x):
    return torch.relu("a")


def retyped(x):
    for i in range(3):
        x = i
    return x


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (undefined, RuntimeError, "undefined value y"), (mismatch, RuntimeError, "annotated as having type str but is actually of type Tensor"),
        (with_try, torch.jit.frontend.UnsupportedNodeError, "try blocks aren't supported"),
        (half_defined, RuntimeError, "y is not defined in the false branch"),
        (wrong_argument, RuntimeError, "Expected a value of type 'Tensor' for argument 'self' but instead found type 'str'"),
        (retyped, RuntimeError, r"previously had type Tensor \(inferred\) but is now being assigned to a value of type int"),
    ],
)  # fmt: skip
def test_errors_show_the_line(function: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        torch.jit.script(function)
    assert "<--- HERE" in str(caught.value) and __file__ in str(caught.value)


def test_errors_at_run_time_show_the_line() -> None:
    def divide(a: int, b: int) -> int:
        return a // b

    def checked(x: Tensor) -> Tensor:
        if x.dim() != 2:
            raise ValueError(f"expected 2 dimensions, got {x.dim()}")
        return x

    with pytest.raises(RuntimeError, match=r"a // b\n.*~~~~~~ <--- HERE"):
        torch.jit.script(divide)(1, 0)
    with pytest.raises(torch.jit.Error, match="builtins.ValueError: expected 2 dimensions, got 1"):
        torch.jit.script(checked)(torch.ones(3))
    with pytest.raises(
        RuntimeError, match="Expected a value of type 'int' for argument 'a' but instead found type 'str'"
    ):
        torch.jit.script(divide)("x", 1)


def test_changes_of_views_in_containers_are_kept() -> None:
    def of_chunk(x):
        torch.chunk(x, 1)[0].add_(5)
        return x

    def of_loop(x):
        for part in [x[0]]:
            part.add_(5)
        return x

    def of_tuple(x):
        first, _ = (x[0], x[1])
        first.add_(5)
        return x

    for function in (of_chunk, of_loop, of_tuple):
        assert torch.jit.script(function)(torch.zeros(2)).equal(function(torch.zeros(2)))


def test_what_cannot_be_traced() -> None:
    with pytest.raises(RuntimeError, match=r"Type 'Tuple\[Tensor, int\]' cannot be traced"):
        torch.jit.trace(lambda x, n: x + n, (torch.ones(2), 3))


def test_ranges_of_the_profiler() -> None:
    def function(x):
        with torch.profiler.record_function("outer"):  # noqa: SIM117
            with torch.autograd.profiler.record_function("inner"):
                y = x + 1
        return y

    compiled = torch.jit.script(function)
    with torch.autograd.profiler.profile() as profile:
        compiled(torch.ones(2))
    assert [e.name for e in profile.function_events if e.name in ("outer", "inner")] == ["outer", "inner"]
