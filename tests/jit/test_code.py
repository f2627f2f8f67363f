"""What `.code` and `.graph` show, beside PyTorch's."""

from __future__ import annotations

import re
from typing import Any

import pytest
from answers import told

import flambeau

from .oracle import load_programs, quiet, real_torch

NAMES = [f.__name__ for f in load_programs(flambeau).FUNCTIONS]


def _scripted(library: Any, name: str) -> Any:
    thing = getattr(load_programs(library), name)
    return quiet(library.jit.script, thing() if isinstance(thing, type) else thing)


@pytest.mark.parametrize("name", NAMES)
def test_code_is_pytorchs(name: str) -> None:
    assert _scripted(flambeau, name).code == told(f"code of {name}", lambda: _scripted(real_torch(), name).code)


_CONSTANT = re.compile(r"^ +(%[\w.]+) : (\S+) = prim::Constant(\[.*\])?\(\)$")


def _renumbered(text: str) -> str:
    """A graph with constants in place, values numbered in order of appearance, class names without mangling, no files."""
    lines = [re.sub(r" # .*", "", line) for line in text.splitlines()]
    constants = {m[1]: f"<{m[2]} {m[3]}>" for m in map(_CONSTANT.match, lines) if m}
    seen: dict[str, str] = {}

    def number(match: re.Match) -> str:
        return constants.get(match[0]) or seen.setdefault(match[0], f"%v{len(seen)}")

    kept = "\n".join(line for line in lines if not _CONSTANT.match(line))
    return re.sub(r"___torch_mangle_\d+\.|programs_of_\w+\.", "", re.sub(r"%[\w.]+", number, kept))


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("nested_loops", "return_in_loop", "skipping")])
def test_graph_is_pytorchs_up_to_numbers(name: str) -> None:
    theirs = told(f"graph of {name}", lambda: _renumbered(str(_scripted(real_torch(), name).graph)))
    assert _renumbered(str(_scripted(flambeau, name).graph)) == theirs


def test_a_small_graph_exactly() -> None:
    graph = _scripted(flambeau, "addition").graph
    lines = [line.partition(" # ")[0] for line in str(graph).splitlines()]
    assert lines == [
        "graph(%x.1 : Tensor):",
        "  %2 : int = prim::Constant[value=1]()",
        "  %4 : Tensor = aten::add(%x.1, %2, %2)",
        "  return (%4)",
    ]


def test_inlined_graph_has_no_calls() -> None:
    module = _scripted(flambeau, "Scaled")
    assert "prim::CallMethod" in str(module.graph)
    assert "prim::Call" not in str(module.inlined_graph) and "aten::linear" in str(module.inlined_graph)
