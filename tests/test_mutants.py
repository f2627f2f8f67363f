"""Changes for mutation testing: which tests a map gives for a function, and which function a place belongs to."""

from __future__ import annotations

import ast
from types import CodeType

from tests import function_map, mutants


def test_a_function_of_the_library_is_known_by_file_and_first_line() -> None:
    code = mutants.changes.__wrapped__.__code__
    assert function_map.key_of(code) is None  # a test's own
    inside = compile("def f(): pass", str(function_map.ROOT / "flambeau" / "cli.py"), "exec").co_consts[0]
    assert function_map.key_of(inside) == "flambeau/cli.py:1"
    assert function_map.key_of(compile("0", "<string>", "exec")) is None


def test_a_place_belongs_to_the_innermost_function_and_its_decorators() -> None:
    text = "A = 1\n@d(2)\n@e\ndef f(x=3):\n    def g():\n        return 4\n    return 5\n"
    finder = mutants.Finder("flambeau/room/file.py", text)
    finder.visit(ast.parse(text))
    assert {change.before: change.first for change in finder.found} == {"1": 0, "2": 0, "3": 0, "4": 5, "5": 2}
    function = next(c for c in compile(text, "file", "exec").co_consts if isinstance(c, CodeType))
    assert function.co_firstlineno == 2  # so Python counts, too


def test_the_quickest_tests_come_first_within_the_budget() -> None:
    known = {"tests": {"k": ["slow", "quick", "middle"]}, "seconds": {"slow": 9.0, "quick": 0.1, "middle": 1.0}}
    assert function_map.quickest(known, "k") == ["quick", "middle", "slow"]
    assert function_map.quickest(known, "k", most=2) == ["quick", "middle"]
    assert function_map.quickest(known, "k", budget=0.05) == ["quick"]
    assert function_map.quickest(known, "other") == []
