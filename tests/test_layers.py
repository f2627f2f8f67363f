"""Imports point downwards only: a module may import its own layer and those below, never one above."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import flambeau

ROOT = Path(flambeau.__file__).parent
LAYERS = [
    "core",
    "expr",
    "kernels",
    "backends",
    "ops",
    "compat",
    "autograd",
    "graph",
    "masked",
    "library",
    "testing",
    "nn",
    "optim",
    "amp",
    "func",
    "distributions",
    "vision",
]  # lowest first


def imported_modules(path: Path) -> list[str]:
    """Full names of everything imported at the top of a module or inside its functions."""
    package = ("flambeau", *path.relative_to(ROOT).parent.parts)
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            start = [*base, *(node.module.split(".") if node.module else [])]
            found += [".".join([*start, alias.name]) for alias in node.names]
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_nothing_is_imported_from_above(layer: str) -> None:
    above = {f"flambeau.{name}" for name in LAYERS[LAYERS.index(layer) + 1 :]}
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted((ROOT / layer).rglob("*.py"))
        for name in imported_modules(path)
        if ".".join(name.split(".")[:2]) in above
    ]
    assert not wrong


# Every package, floor by floor. Rooms of one floor may import each other; the floors below may not know of those above.
FLOORS = [
    {"core"},
    {"expr"},
    {"kernels"},
    {"backends"},
    {"ops"},
    {"autograd"},
    {"graph"},
    {"compat", "multiprocessing"},
    {
        "amp", "distributed", "export", "fx", "library", "nn", "optim", "serialization", "utils",
    },  # may only shrink: rooms that belong on floors of their own
    {
        "_C", "_dynamo", "_higher_order_ops", "_inductor", "_library", "ao", "cpp", "cpu", "cuda", "distributions", "func", "horovod", "jit", "masked", "onnx",
        "profiler", "quantization", "serve", "signal", "sparse", "startup", "vision",
        "testing", "wholestep",
    },
]  # fmt: skip


def test_every_package_has_a_floor() -> None:
    packages = {p.name for p in ROOT.iterdir() if (p / "__init__.py").exists()}
    assert packages == set().union(*FLOORS)


@pytest.mark.parametrize("floor", range(len(FLOORS)))
def test_no_floor_knows_of_those_above(floor: int) -> None:
    above = {f"flambeau.{name}" for higher in FLOORS[floor + 1 :] for name in higher}
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for room in FLOORS[floor]
        for path in sorted((ROOT / room).rglob("*.py"))
        for name in imported_modules(path)
        if ".".join(name.split(".")[:2]) in above
    ]
    assert not wrong
