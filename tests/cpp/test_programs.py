"""The C++ programs of the notes, as they are written: CMake, headers, and the text that real libtorch prints."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

import flambeau as torch
from flambeau.backends.cpu import jit
from flambeau.cpp import branches
from flambeau.export.__main__ import main as export_main
from tests.cpp.common import PROGRAMS, cmake, environment, made_once, needs_cmake, needs_compiler, run

pytestmark = [needs_compiler, needs_cmake]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    return made_once(tmp_path_factory, "programs", lambda folder: cmake(PROGRAMS, folder, prefix))


def test_programs_print_what_libtorch_prints(build: Path) -> None:
    names = ["blocks", "printt", "version", "prints", "train", "outs"]
    assert run(build / "notes") == "".join(f"== {n}\n{(PROGRAMS / f'{n}.out').read_text()}" for n in names)


class Gate(torch.nn.Module):
    def forward(self, x):  # type: ignore[no-untyped-def]
        return x if x.sum() > 0 else -x


class Cell(torch.nn.Module):
    def __init__(self, dg: torch.nn.Module) -> None:
        super().__init__()
        self.dg = dg
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, h):  # type: ignore[no-untyped-def]
        new_h = torch.tanh(self.dg(self.linear(x)) + h)
        return new_h, new_h


class Loop(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        x, h = torch.rand(3, 4), torch.rand(3, 4)
        self.cell = torch.jit.trace(Cell(torch.jit.script(Gate())), (x, h))

    def forward(self, xs):  # type: ignore[no-untyped-def]
        h, y = torch.zeros(3, 4), torch.zeros(3, 4)
        for i in range(xs.size(0)):
            y, h = self.cell(xs[i], h)
        return y, h


class Wrapped(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.loop = torch.jit.script(Loop())

    def forward(self, xs):  # type: ignore[no-untyped-def]
        y, h = self.loop(xs)
        return torch.relu(y)


# those of the archive that libtorch's output is of
WEIGHT = [-0.3612831235, -0.2577649951, 0.315468967, 0.2931606174, -0.2217475176, -0.0180411935, 0.3197803497, 0.4970665574,
          0.1984410882, 0.0675464272, 0.3352431655, -0.2944011688, 0.0931720138, -0.3876527548, -0.3465430737, -0.2582917809]  # fmt: skip
BIAS = [0.2262365222, 0.2010802031, -0.2961762547, 0.1510535479]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    model = torch.jit.trace(Wrapped(), torch.rand(10, 3, 4))
    with torch.no_grad():
        model.loop.cell.linear.weight.copy_(torch.tensor(WEIGHT).reshape(4, 4))
        model.loop.cell.linear.bias.copy_(torch.tensor(BIAS))
    model.save(str(tmp_path / "wrapped_rnn.pt"))
    return tmp_path / "wrapped_rnn.pt"


OUTPUT = (PROGRAMS / "example_app.out").read_text()


def test_a_scripted_model_runs_in_a_program(build: Path, archive: Path) -> None:
    assert run(build / "example-app", archive) == OUTPUT


@pytest.mark.skipif(not jit.available(), reason="libraries are made of compiled kernels: llvmlite is not installed")
def test_a_library_beside_the_archive_runs_without_python(build: Path, archive: Path) -> None:
    """Its path depends on values: both sides are computed. Python could not start here."""
    assert export_main([str(archive), "--library", "--input", "10x3x4", "--quiet"]) == 0
    assert run(build / "example-app", archive, PYTHONHOME="/nowhere") == OUTPUT


@pytest.mark.skipif(not jit.available(), reason="libraries are made of compiled kernels: llvmlite is not installed")
def test_a_library_of_another_archive_is_not_used(build: Path, archive: Path) -> None:
    assert export_main([str(archive), "--library", "--input", "10x3x4", "--quiet"]) == 0
    torch.jit.load(archive).save(str(archive), _extra_files={"note": b"the same model in another file"})
    done = subprocess.run([build / "example-app", archive], capture_output=True, text=True, env=environment())
    assert done.stdout == OUTPUT and "has no library for float32_10x3x4 (the archive has changed since)" in done.stderr


def test_modules_that_do_something_else_while_they_train() -> None:
    class Dropping(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = torch.nn.Dropout()

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.drop(x)

    assert branches.reads_training(torch.jit.script(Dropping()))
    assert not branches.reads_training(torch.jit.script(Gate()))


def test_branches_become_choices() -> None:
    class Uneven(torch.nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            if x.sum() > 0:
                x = x.sum()
            return x

    straight = branches.on_one_path(torch.jit.script(Gate()))
    for x in (torch.tensor([1.0, 2.0]), torch.tensor([1.0, -2.0])):
        assert straight(x).tolist() == [1, 2] if x.sum() > 0 else [-1, 2]
    with pytest.raises(RuntimeError, match=r"a branch gives torch.float32\[\] or torch.float32\[2\]"):
        branches.on_one_path(torch.jit.script(Uneven()))(torch.ones(2))


@pytest.fixture(scope="module")
def shop(build: Path) -> SimpleNamespace:
    torch.ops.load_library(build / "libshop.so")
    torch.ops.load_library(build / "libshop.so")  # a second time does nothing
    return torch.ops.shop


def test_operators_of_a_library(shop: SimpleNamespace) -> None:
    x = torch.tensor([1.0, -2.0, 3.0])
    assert (
        shop.twice(x).tolist() == [2, -4, 6]
        and shop.older(x).tolist() == [2, -4, 6]
        and shop.half(x).tolist() == [0.5, -1, 1.5]
    )
    assert shop.scaled_sum([x, x], 2.0, shift=3).tolist() == [7, -5, 15] and shop.scaled_sum([x]).tolist() == x.tolist()
    parts, number = shop.split(torch.arange(6.0), [2, 3], "abc", True)
    assert parts.shape == (2, 3) and number == 4
    assert str(shop.split.default._schema) == "shop::split(Tensor _0, int[] _1, str _2, bool _3) -> (Tensor, int)"


def test_kernels_by_device_and_gradients(shop: SimpleNamespace) -> None:
    x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    y = shop.my_relu(x)
    assert str(y) == "tensor([1., 0., 3.], grad_fn=<CppNode<Relu>>)"
    y.sum().backward()
    assert x.grad.tolist() == [1, 0, 1]
    assert shop.my_relu(torch.empty(5, device="meta")).shape == (5,)
    large = torch.randn(100_000, dtype=torch.float64)  # in threads
    assert torch.equal(shop.my_relu(large), large.relu())


def test_errors_of_cpp_are_errors_of_python(shop: SimpleNamespace) -> None:
    with pytest.raises(RuntimeError, match="^expected a vector, but got 2 dimensions$"):
        shop.twice(torch.ones(2, 2))
    with pytest.raises(NotImplementedError, match="\"my_relu\" not implemented for 'Int'"):
        shop.my_relu(torch.ones(2, dtype=torch.int32))
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        shop.scaled_sum([torch.ones(2), torch.ones(3)])


def test_classes_of_a_library(shop: SimpleNamespace) -> None:
    stack = torch.classes.shop.Stack(["a"])
    stack.push("b")
    twin = stack.clone()
    assert (stack.size(), stack.pop(), shop.stack_size(stack), twin.size()) == (2, "b", 1, 2)
    assert stack.pop() == "a"
    with pytest.raises(IndexError, match="the stack is empty"):
        stack.pop()
    assert twin.__getstate__() == ["a", "b"]
    with pytest.raises(RuntimeError, match="shop.Nothing"):
        torch.classes.shop.Nothing  # noqa: B018


def test_classes_in_compiled_programs(shop: SimpleNamespace) -> None:
    def reversed_words(words: list[str]) -> tuple[list[str], int]:
        stack = torch.classes.shop.Stack(words)
        twin = stack.clone()
        found: list[str] = []
        while stack.size() > 0:
            found.append(stack.pop())
        twin.push("more")
        return found, twin.size()

    class Holding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stack = torch.classes.shop.Stack(["a", "b"])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.stack.push("c")
            return x + self.stack.size()

    assert torch.jit.script(reversed_words)(["a", "b", "c"]) == (["c", "b", "a"], 4)
    scripted = torch.jit.script(Holding())
    assert scripted(torch.ones(1)).item() == 4 and scripted(torch.ones(1)).item() == 5
    stack = torch.classes.shop.Stack([])
    assert "__torch__.torch.classes.shop.Stack" in str(torch.jit.script(reversed_words).graph)
    with pytest.raises(RuntimeError, match="(?s)push.*expected|Expected a value of type 'str'"):
        torch.jit.script(Wrong())
    with pytest.raises(RuntimeError, match="Unable to cast|expected"):
        torch.jit.script(taking)(3)
    assert torch.jit.script(taking)(stack) == 0
    file = io.BytesIO()
    torch.jit.save(scripted, file)  # with what its __getstate__ says
    file.seek(0)
    assert torch.jit.load(file)(torch.ones(1)).item() == 6


def taking(stack: torch.classes.shop.Stack) -> int:
    return stack.size()


class Wrong(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stack = torch.classes.shop.Stack(["a"])
        stack.push(3)
        return x


def test_raw_memory_is_seen_by_recordings(shop: SimpleNamespace) -> None:
    """An operator that reads bytes by itself runs as it is inside a compiled function."""
    compiled = torch.compile(lambda x: shop.my_relu(x * 2) + 1)
    for _ in range(4):
        x = torch.randn(7)
        assert torch.equal(compiled(x), (x * 2).relu() + 1)


def test_a_missing_library() -> None:
    with pytest.raises(OSError, match="cannot open shared object file"):
        torch.ops.load_library("nowhere.so")
