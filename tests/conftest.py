"""What tests against the real PyTorch have in common."""

from __future__ import annotations

import copy
import functools
import gc
import os
import pickle
import random
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answers import judge
from answers.plugin import (  # noqa: F401  hooks
    add_options,
    configure,
    pytest_fixture_setup,
    pytest_make_collect_report,
    pytest_runtest_makereport,
    pytest_runtest_protocol,
    pytest_runtest_teardown,
    pytest_sessionfinish,
)

import flambeau

# Files with single tests of five seconds of CPU time and more: they run first, so that no process is left alone with one at the end.
LONG = (
    "backends/nvidia/test_emulated_kernels.py", "typed/test_typed.py", "docs/test_blocks.py", "compiler/test_on_gpu.py", "cpp/test_programs.py",
    "test_layers.py", "distributed/test_compiled.py", "cpp/test_extension.py", "distributed/test_dtensor.py", "docs/test_reference.py",
    "backends/nvidia/test_emulated.py", "distributed/test_dtensor_layouts.py", "test_first_use.py", "test_structure.py",
)  # fmt: skip
UNTOUCHED: list[str] = []  # tests that passed and asked PyTorch nothing, of all processes


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)
    parser.addoption("--shuffle", metavar="SEED", help="run files of tests in a random order: a number, or 'anew'")
    parser.addoption(
        "--untouched", metavar="FILE", help="write the names of tests that pass without a question to PyTorch"
    )
    parser.addoption("--leave-out", metavar="FILE", help="leave out the tests that such a file names")


def pytest_configure(config: pytest.Config) -> None:
    configure(config)
    if sys.dont_write_bytecode and config.getoption("numprocesses", None):
        _share_bytecode(config)
    if config.getoption("--shuffle") == "anew":
        drawn = getattr(config, "workerinput", {}).get("shuffle") or str(random.randrange(1_000_000))
        config.option.shuffle = drawn


def _share_bytecode(config: pytest.Config) -> None:
    """Keep compiled modules for the processes of this run, in a folder that goes with it, where Python is told to leave none in the tree:
    tests start hundreds of processes, and compiling this library takes longer than importing it."""
    folder = tempfile.TemporaryDirectory(prefix="bytecode-", ignore_cleanup_errors=True)
    config.add_cleanup(folder.cleanup)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = folder.name
    sys.dont_write_bytecode = False


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker process the seed: workers parse the command line again, and would draw one each."""
    node.workerinput["shuffle"] = node.config.getoption("--shuffle")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    untouched = report.when == "call" and report.passed and not getattr(report, "asked_pytorch", True)
    if untouched and not _looks_for_pytorch(Path(__file__).parents[1] / report.nodeid.partition("::")[0]):
        UNTOUCHED.append(report.nodeid)


@functools.cache
def _looks_for_pytorch(file: Path) -> bool:
    """Whether a test's file, or one beside it that it names, finds out by itself if PyTorch is installed: it may do more then."""
    pattern = r'find_spec\("torch|importorskip\(\s*"torch|^ *(?:import|from) torch\b|import_module\("torch'
    text = file.read_text(encoding="utf-8")
    beside = [other for other in file.parent.glob("*.py") if not other.name.startswith("test_")]
    used = [other.read_text(encoding="utf-8") for other in beside if re.search(rf"\b{other.stem}\b", text)]
    return any(re.search(pattern, part, re.MULTILINE) for part in (text, *used))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    seed = config.getoption("--shuffle")
    if seed is not None:  # the header is not printed with -q
        terminalreporter.write_line(f"files ran in random order: --shuffle={seed}")
    if config.getoption("--untouched"):
        Path(config.getoption("--untouched")).write_text("\n".join(UNTOUCHED))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put long files first; with --shuffle, exchange the order of files. Tests of a file share fixtures and stay together."""
    if config.getoption("--leave-out"):
        known = set(Path(config.getoption("--leave-out")).read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in known])
        items[:] = [item for item in items if item.nodeid not in known]
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    order = sorted(files)
    seed = config.getoption("--shuffle")
    if seed is not None:
        random.Random(seed).shuffle(order)
    order.sort(key=lambda path: not path.as_posix().endswith(tuple(f"tests/{name}" for name in LONG)))
    items[:] = [item for path in order for item in files[path]]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while 33,000 tests are made, which all stay: a third of the time that it takes. They are two million objects,
    which neither a collection nor a search for what refers to an object has to look through later: each took up to a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m smoke`, leave out files without such tests: importing them all takes longer than running those."""
    if config.getoption("markexpr") != "smoke" or not collection_path.name.startswith("test_"):
        return None
    is_test = collection_path.suffix == ".py" and "mark.smoke" in collection_path.read_text(encoding="utf-8")
    return None if is_test else True


@pytest.fixture(autouse=True)
def distributions_check_their_arguments() -> None:
    """PyTorch switches these checks off for good when its compiler is imported, which another test may have done."""
    theirs = sys.modules.get("torch.distributions")
    if theirs is not None:
        theirs.Distribution.set_default_validate_args(True)


# Generators of modules of tests, with the states that they have when these are imported. Several modules may share one.
_GENERATORS: dict[Any, list[np.random.Generator]] = {}
_FIRST_STATES: dict[int, Any] = {}


@pytest.fixture(autouse=True)
def generators_start_anew(request: pytest.FixtureRequest) -> None:
    """What a test draws from its module's NumPy generator hangs on no other test: answers are recorded for these numbers."""
    module = request.module
    if module not in _GENERATORS:
        _GENERATORS[module] = [x for x in vars(module).values() if isinstance(x, np.random.Generator)]
        for generator in _GENERATORS[module]:
            _FIRST_STATES.setdefault(id(generator), generator.bit_generator.state)
    for generator in _GENERATORS[module]:
        generator.bit_generator.state = _FIRST_STATES[id(generator)]


@pytest.fixture
def replace_kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any, str, Callable], None]]:
    """`replace_kernel(op, device type, kernel)`: the kernel computes an operator in this test. What the door chose is forgotten with it."""
    replaced: list[Any] = []

    def replace(op: Any, device: str, kernel: Callable) -> None:
        monkeypatch.setitem(op.kernels, device, kernel)
        op.chosen.clear()
        replaced.append(op)

    yield replace
    for op in replaced:
        op.chosen.clear()


def _shown(value: Any) -> str:
    return re.sub(r"\bflambeau(\.core\.\w+)?\.", "torch.", repr(value))


def _outcome(library: Any, expression: str, setup: str) -> tuple[str, str]:
    """("value", printed value) or ("error", name of the exception) of an expression over `torch`, whatever that is."""
    names = {"torch": library, "np": np, "copy": copy, "pickle": pickle}
    exec(setup, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "value", _shown(eval(expression, names))
        except Exception as problem:
            return "error", type(problem).__name__


# A tensor of each kind, for expressions to be about.
TENSORS = """
x = torch.arange(6.).reshape(2, 3)
i = torch.arange(6).reshape(2, 3)
b = torch.tensor([True, False])
z = torch.tensor([1+2j, 3-1j])
r = torch.arange(6.).reshape(2, 3).requires_grad_()
s = torch.tensor(2.5)
n = torch.tensor(3)
h = torch.arange(3).to(torch.bfloat16)
"""


@pytest.fixture
def agrees() -> Callable[[str, str], None]:
    """agrees(expression, setup): PyTorch and Flambeau print the same value, or raise the same exception. Without a setup
    the expression can use the tensors x, i, b, z, r, s, n, h above."""
    torch = judge("torch")

    def check(expression: str, setup: str = TENSORS) -> None:
        expected = _outcome(torch, expression, setup)
        assert _outcome(flambeau, expression, setup) == expected, expression

    return check


@pytest.fixture
def same_outcome() -> Callable[[Callable], None]:
    """same_outcome(scenario): scenario(torch) and scenario(flambeau) return or raise the same."""
    torch = judge("torch")

    def run(library: Any, scenario: Callable) -> tuple[str, str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return "value", _shown(scenario(library))
            except Exception as problem:
                return "error", type(problem).__name__

    def check(scenario: Callable) -> None:
        assert run(flambeau, scenario) == run(torch, scenario)

    return check
