"""Changes for mutation testing: which places may change, which function a place belongs to, which tests a map gives for a line."""

from __future__ import annotations

import ast
from array import array
from pathlib import Path

from tests import equivalent_mutants, line_map, mutants


def found(text: str) -> list[mutants.Change]:
    finder = mutants.Finder("flambeau/room/file.py", text)
    finder.visit(ast.parse(text))
    return finder.found


def test_a_place_belongs_to_the_innermost_function_and_its_decorators() -> None:
    text = "A = 1\n@d(2)\n@e\ndef f(x=3):\n    def g():\n        return 4\n    return 5\n"
    spans = {"1": (1, 1), "2": (2, 7), "3": (2, 7), "4": (5, 6), "5": (2, 7)}
    assert {change.before: change.span for change in found(text)} == spans
    assert {change.before: change.owner for change in found(text)} == {
        "1": "A",
        "2": "f",
        "3": "f",
        "4": "f.g",
        "5": "f",
    }


def test_what_cannot_change_a_result_is_no_place() -> None:
    text = """
x: Literal[1]
if TYPE_CHECKING:
    y = 2
@functools.lru_cache(maxsize=3)
@dataclass(slots=True, frozen=False)
class K: pass
def f(a: Literal[4]) -> Literal[5]:
    "6"
    warnings.warn("7" % 8, stacklevel=9)
    if a:
        raise ValueError(10 + 11)
    return f"{a + 12}" + call(13, stacklevel=14)
"""
    assert [change.before for change in found(text)] == ["+", "13"]


def test_a_map_gives_one_test_of_each_function_first_quick_ones_before_slow_ones(tmp_path: Path) -> None:
    known = line_map.LineMap()
    for name, seconds in (("slow", 9.0), ("t[a]", 0.2), ("t[b]", 0.1), ("middle", 1.0)):
        known.add(name, seconds, ["k"])
    assert known.chosen(["k"]) == ["t[b]", "middle", "slow", "t[a]"]
    assert known.chosen(["k"], most=2) == ["t[b]", "middle"]
    assert known.chosen(["k"], budget=0.05) == ["t[b]"]
    assert known.chosen(["other"]) == []
    known.merge(line_map.LineMap(["other"], [0.5], {"k": array("I", [0])}, {"k": 1}))
    assert known.chosen(["k"], most=2) == ["t[b]", "other"]
    known.save(tmp_path / "map")
    assert line_map.LineMap.load(tmp_path / "map") == known


def test_a_line_remembers_few_tests_of_one_table() -> None:
    known = line_map.LineMap()
    for row in range(50):
        known.add(f"t[{row}]", 0.0, ["k"])
    known.add("u", 0.0, ["k"])
    assert len(known.lines["k"]) == line_map.ALIKE + 1
    assert known.seen["k"] == 51


def test_tables_of_tests_run_whole_within_a_time() -> None:
    known = line_map.LineMap()
    for name, seconds in (("t[a]", 1.0), ("t[b]", 1.0), ("u[a]", 9.0), ("single", 0.1), ("other[a]", 0.1)):
        known.add(name, seconds, ["k"] if name in ("t[a]", "u[a]", "single") else ["m"])
    assert known.tables(["k"]) == ["t", "u"]
    assert known.tables(["k"], 5.0) == ["t"]


def test_defaults_are_those_of_parameters_and_of_fields() -> None:
    text = "a: int = 1\nclass K:\n    b: int = 2\n    c = 3\n    def f(self, d=4):\n        e: int = 5\n"
    assert [change.before for change in found(text) if change.is_default] == ["2", "4"]


def test_a_table_of_a_module_is_known_by_the_lines_that_name_it() -> None:
    file = "flambeau/distributions/kl.py"
    text = mutants.source(file).splitlines()
    change = next(c for c in mutants.changes(file) if c.owner == "_MEAN_DECAY")
    assert change.outside
    known = line_map.LineMap()
    known.add("imports", 0.1, [f"{file}:{change.line}"])
    used = next(i for i, line in enumerate(text, 1) if "_MEAN_DECAY" in line and " = {" not in line)
    known.add("uses", 0.1, [f"{file}:{used}"])
    assert next(mutants.mapped(change, known)) == ["uses"]


def test_a_line_is_known_by_its_file_and_number() -> None:
    assert line_map.key_of(line_map.LIBRARY + "optim/adam.py", 7) == "flambeau/optim/adam.py:7"


def test_every_equivalent_change_names_a_line_that_exists() -> None:
    for (file, line, before, _), why in equivalent_mutants.EQUIVALENT.items():
        lines = [text.strip() for text in mutants.source(f"flambeau/{file}").splitlines()]
        assert line in lines and before.strip() in line and why, (file, line)


def test_without_a_map_of_its_room_a_change_meets_all_tests_of_the_room() -> None:
    change = mutants.Change("flambeau/onnx/forms/recurrent.py", 0, "0", "1", 30, "_layer", (20, 40))
    known = line_map.LineMap()
    chosen = [test for selection in mutants.mapped(change, known) for test in selection]
    assert {str(f.relative_to(mutants.ROOT)) for f in (mutants.ROOT / "tests/onnx_files").glob("test_*.py")} <= set(
        chosen
    )
    known.add("tests/onnx_files/test_load.py::test", 0.1, ["flambeau/onnx/forms/recurrent.py:3"])
    assert len([*mutants.mapped(change, known)]) == 2  # by its words, and the smoke selection
