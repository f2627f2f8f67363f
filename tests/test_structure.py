"""The counts of `python -m tests.structure` never grow, and its measures find what they look for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import import_graph, structure


def test_no_count_has_grown() -> None:
    allowed = structure.limits()
    assert set(allowed) == set(structure.MEASURES)
    assert not structure.grown(structure.counts(), allowed)


def test_a_count_above_its_value_is_named() -> None:
    assert not structure.grown({"lines": 9}, {"lines": 9})
    assert "lines: 10, at most 9" in structure.grown({"lines": 10}, {"lines": 9})[0]


def _forget() -> None:
    for cached in (import_graph.trees, import_graph.nodes, import_graph.imports, import_graph.rooms):
        cached.cache_clear()


@pytest.fixture
def one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Returns a function that makes a text the only file of the library."""

    def put(text: str) -> None:
        root = tmp_path / "flambeau"
        path = root / "room" / "file.py"
        path.parent.mkdir(parents=True)
        for name in "abc":
            path.with_stem(name).touch()
        for module in (import_graph, structure):
            monkeypatch.setattr(module, "ROOT", root)
            monkeypatch.setattr(module, "sources", lambda: {path: text})
        _forget()

    yield put
    _forget()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("imports inside functions", "import a\ndef f():\n    from . import b\n    import yaml\n", 1),
        ("own modules loaded by string", "x = load('flambeau.nn')\ny = import_module('onnx')\n", 1),
        ("imports for their effect or order", "from . import a, b\nfrom . import c\na.x()\n", 1),
        ("module-level containers to be filled", "A = {}\nB: list = []\nC = [1]\nD = defaultdict(list)\n", 3),
        ("functions written twice", "".join(f"def f{i}(x):\n" + "    x = g(x)\n" * 5 for i in range(3)), 2),
        ("files of more than 500 lines", "x = 1\n" * 501, 1),
        ("type: ignore", "x = 1  # type: ignore[assignment]\n", 1),
        (
            "docstrings that begin otherwise",
            '"""What it is."""\ndef f():\n    """Onepass."""\nclass C:\n    """The same."""\n',
            2,
        ),
        ("files that name tanh", "arctanh = 1\n", 0),
    ],
)
def test_a_measure_finds_what_it_looks_for(one_file, name: str, text: str, expected: int) -> None:
    one_file(text)
    assert structure.count(name) == expected


def test_cycles_are_found_through_several_rooms() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert import_graph.cycles(graph) == [["a", "b", "c"]]


def test_files_of_tests_outside_packages_have_names_of_their_own() -> None:
    """Python imports them by their names alone: two of one name cannot be collected together."""
    names: dict[str, Path] = {}
    for path in Path(__file__).parent.rglob("test_*.py"):
        if not (path.parent / "__init__.py").exists():
            assert names.setdefault(path.name, path) == path, f"{path} and {names[path.name]} have one name"
