"""FileCheck: checks that a text contains given parts in order, like LLVM's tool of that name."""

from __future__ import annotations

import itertools
import operator
import re
from typing import Any


class FileCheck:
    """Checks that are made one after another on a text.

    >>> FileCheck().check("one").check_not("two").check("three").run("one and three")
    """

    def __init__(self) -> None:
        self.checks: list[tuple[str, str, Any]] = []

    def _add(self, kind: str, text: str, more: Any = None) -> FileCheck:
        self.checks.append((kind, text, more))
        return self

    def check(self, text: str) -> FileCheck:
        """Require the text somewhere after the last match."""
        return self._add("check", text)

    def check_not(self, text: str) -> FileCheck:
        """Require that the text does not occur between the matches around this check."""
        return self._add("not", text)

    def check_same(self, text: str) -> FileCheck:
        """Require the text in the line of the last match."""
        return self._add("same", text)

    def check_next(self, text: str) -> FileCheck:
        """Require the text in the line after the last match."""
        return self._add("next", text)

    def check_count(self, str: str, count: int, exactly: bool = False) -> FileCheck:
        """Require the text `count` times in a row; with `exactly`, not once more."""
        if count < 0 or (count == 0 and not exactly):
            raise (TypeError if count < 0 else RuntimeError)(f"check_count: count is {count}")
        return self._add("count", str, (count, exactly))

    def check_dag(self, text: str) -> FileCheck:
        """Require the text behind the last match, in any order among adjacent checks of this kind."""
        return self._add("dag", text)

    def check_regex(self, text: str) -> FileCheck:
        return self._add("regex", text)

    def check_source_highlighted(self, text: str) -> FileCheck:
        """Require the text to be underlined in an error message."""
        return self._add("highlighted", text)

    def run(self, text: Any, *more: Any) -> None:
        """Run the checks; raises RuntimeError for the first that fails. With two arguments the first holds the checks as comments."""
        if more:
            self._read(str(text))
            text = more[0]
        if not self.checks:
            raise RuntimeError("no checks have been added to this FileCheck")
        _Run(str(text)).all(self.checks)

    def _read(self, text: str) -> None:
        """Read the `# CHECK: ...` lines."""
        words = {None: "check", "SOURCE-HIGHLIGHTED": "highlighted"}
        for line in filter(re.compile(r"#\s*CHECK").search, text.splitlines()):
            found = re.search(
                r"#\s*CHECK(?:-(NOT|SAME|NEXT|DAG|COUNT-(EXACTLY-)?(\d+)[^:]*|SOURCE-HIGHLIGHTED))?: (.*)", line
            )
            if found is None:
                raise RuntimeError(f"Could not parse check: {line}")
            kind, exactly, count, rest = found.groups()
            if count is not None:
                self.check_count(rest.strip(), int(count), exactly is not None)
            else:
                self._add(words.get(kind) or kind.lower(), rest.strip())


class _Run:
    def __init__(self, text: str):
        self.text, self.place, self.start = text, 0, 0

    def all(self, checks: list[tuple[str, str, Any]]) -> None:
        absent: list[str] = []
        for kind, group in itertools.groupby(checks, operator.itemgetter(0)):
            steps: list[tuple[Any, Any]] = [(text, more) for _, text, more in group]
            if kind == "not":
                absent += [text for text, _ in steps]
                continue
            if kind == "dag":  # one step, in any order
                steps = [([text for text, _ in steps], None)]
            for wanted, more in steps:
                before = self.place
                getattr(self, f"_{kind}")(wanted, more)
                self._check_absent(absent, before, self.start)
                absent = []
        self._check_absent(absent, self.place, len(self.text))

    def _check_absent(self, absent: list[str], start: int, stop: int) -> None:
        for wanted in absent:
            if wanted in self.text[start:stop]:
                raise RuntimeError(f"Expected to not find {wanted!r} but found it\n{self.text[start:stop]}")

    def _find(self, wanted: str, start: int, stop: int | None = None) -> int:
        found = self.text.find(wanted, start, len(self.text) if stop is None else stop)
        if found < 0:
            raise RuntimeError(
                f'Expected to find "{wanted}" but did not find it\nSearched string:\n{self.text[start:stop]}\n'
            )
        return found

    def _match(self, start: int, length: int) -> None:
        self.start, self.place = start, start + length

    def _check(self, wanted: str, more: Any) -> None:
        self._match(self._find(wanted, self.place), len(wanted))

    def _regex(self, wanted: str, more: Any) -> None:
        found = re.compile(wanted).search(self.text, self.place)
        if found is None:
            raise RuntimeError(
                f'Expected to find regex "{wanted}" but did not find it\nSearched string:\n{self.text[self.place :]}\n'
            )
        self._match(found.start(), len(found[0]))

    def _line_end(self, start: int) -> int:
        end = self.text.find("\n", start)
        return len(self.text) if end < 0 else end

    def _same(self, wanted: str, more: Any) -> None:
        self._match(self._find(wanted, self.place, self._line_end(self.place)), len(wanted))

    def _next(self, wanted: str, more: Any) -> None:
        start = self._line_end(self.place) + 1
        self._match(self._find(wanted, start, self._line_end(start)), len(wanted))

    def _count(self, wanted: str, more: Any) -> None:
        count, exactly = more
        first = None
        for _ in range(count):
            self._check(wanted, None)
            first = self.start if first is None else first
        if exactly and wanted in self.text[self.place :]:
            raise RuntimeError(f"Expected to not find {wanted!r} but found it")
        self.start = self.place if first is None else first

    def _dag(self, group: list[str], more: Any) -> None:
        matches = [(self._find(wanted, self.place), len(wanted)) for wanted in group]
        self.start = min(start for start, _ in matches)
        self.place = max(start + length for start, length in matches)

    def _highlighted(self, wanted: str, more: Any) -> None:
        """Check that the text is underlined by a line of tildes."""
        start = self.place
        while True:
            found = self._find(wanted, start)
            end = self._line_end(found)
            begin = self.text.rfind("\n", 0, found) + 1
            marks = self.text[end + 1 : self._line_end(end + 1)]
            column = found - begin
            if (
                marks[column : column + len(wanted) + 1].rstrip() == "~" * len(wanted)
                and marks[:column].strip("~ ") == ""
            ):
                self._match(found, len(wanted))
                return
            start = found + 1
