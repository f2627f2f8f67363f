"""FileCheck: which texts pass which checks, as in PyTorch."""

from __future__ import annotations

import pytest
from answers.programs import check, refusals, short

SETUP = """
C = L.testing.FileCheck
text = "one two\\nthree four\\ntwo six\\n\\nseven [two] one"
def passes(*steps, text=text):
    made = C()
    for step in steps:
        name, *given = step if isinstance(step, tuple) else ("check", step)
        made = getattr(made, name)(*given)
    return raised(lambda: made.run(text))
def whole(lines, text=text):
    return raised(lambda: C().run(lines, text))
"""
# A program for each line: expressions, between semicolons.
CALLS = """
passes("one"); passes("eight"); passes("one", "two", "two"); passes("one", "two", "two", "two"); passes("one", "two", "two", "two", "two"); passes("two", "one"); passes("six", "three"); passes("ne tw"); passes("two\\nthree"); passes(""); passes("one", "one", "one"); passes("[two]"); passes("ONE"); passes(); passes("one", text="")
passes(("check_not", "eight")); passes(("check_not", "one")); passes("one", ("check_not", "three"), "six"); passes("one", ("check_not", "three"), "four"); passes("two", ("check_not", "one")); passes("seven", ("check_not", "one")); passes("seven", ("check_not", "six")); passes(("check_not", "two"), "one"); passes(("check_not", "one"), "two"); passes(("check_not", "one"), "one"); passes("three", ("check_not", "four"), ("check_not", "six"), "two"); passes("three", ("check_not", "eight"), ("check_not", "six"), "two"); passes("one", ("check_not", "four"), ("check_count", "two", 1))
passes(("check_next", "three")); passes("one", ("check_next", "three")); passes("one", ("check_next", "two")); passes("one", ("check_next", "six")); passes("six", ("check_next", "seven")); passes("three", ("check_next", "two"), ("check_next", "seven")); passes("one", ("check_next", "four")); passes(("check_same", "one")); passes("one", ("check_same", "two")); passes("one", ("check_same", "three")); passes("two", ("check_same", "one")); passes("seven", ("check_same", "one")); passes("one", ("check_same", "two"), ("check_next", "three"), ("check_same", "four"))
passes(("check_count", "two", 3)); passes(("check_count", "two", 2)); passes(("check_count", "two", 4)); passes(("check_count", "two", 2, True)); passes(("check_count", "two", 3, True)); passes(("check_count", "two", 1, True)); passes(("check_count", "two", 0)); passes(("check_count", "eight", 0, True)); passes(("check_count", "eight", 0)); passes("three", ("check_count", "two", 2, True)); passes("three", ("check_count", "two", 1, True)); passes(("check_count", "two", 2), "one"); passes(("check_count", "two", 3), "six"); passes(("check_count", "one", 1, True), ("check_not", "eight")); passes(("check_count", "two", -1))
passes(("check_dag", "six"), ("check_dag", "one")); passes(("check_dag", "six"), ("check_dag", "eight")); passes(("check_dag", "six"), ("check_dag", "one"), "seven"); passes(("check_dag", "seven"), ("check_dag", "one"), "six"); passes("three", ("check_dag", "six"), ("check_dag", "seven")); passes("three", ("check_dag", "six"), ("check_dag", "four")); passes("four", ("check_dag", "six"), ("check_dag", "three")); passes(("check_dag", "six"), ("check_not", "three"), ("check_dag", "seven")); passes(("check_dag", "one"), ("check_not", "three"), ("check_dag", "six"))
passes(("check_source_highlighted", "one")); passes(("check_source_highlighted", "two"), text="a two b\\n  ~~~ <--- HERE\\n"); passes(("check_source_highlighted", "two"), text="a two b\\n   ~~ <--- HERE\\n"); passes(("check_source_highlighted", "two"), text="a two b\\n"); passes(("check_source_highlighted", "two"), text="a two b\\n  ~~~~\\n"); passes(("check_regex", "t[hw]")); passes(("check_regex", "t[xy]")); passes("six", ("check_regex", "se.en")); passes("seven", ("check_regex", "six"))
whole("# CHECK: one\\n# CHECK-NEXT: three"); whole("# CHECK: one\\n# CHECK-NEXT: six"); whole("# CHECK-NOT: eight"); whole("# CHECK-NOT: one"); whole("# CHECK-COUNT-3: two"); whole("# CHECK-COUNT-4: two"); whole("# CHECK-COUNT-EXACTLY-3: two"); whole("# CHECK-COUNT-EXACTLY-2: two"); whole("# CHECK-DAG: six\\n# CHECK-DAG: one"); whole("# CHECK-SAME: one"); whole("#CHECK: one"); whole("# CHECK-OTHER: one"); whole("nothing"); whole("one\\n  # CHECK: two\\nthree"); whole("# CHECK one"); whole("# CHECK:one"); whole("# CHECK: eight"); whole("# CHECK-COUNT-2-EXACTLY: two"); whole("# CHECK-NEXT: three"); whole("# CHECK-SOURCE-HIGHLIGHTED: two", text="a two b\\n  ~~~\\n"); whole("# CHECK-SOURCE-HIGHLIGHTED: two"); whole("# CHECK: one\\n# CHECK one")
"""


@pytest.mark.parametrize("program", refusals(CALLS), ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)
