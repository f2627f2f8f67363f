"""The search of a family for differences, and what it finds."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from .draw import Draw
from .execution import run
from .families import FAMILIES
from .judging import Difference, compared
from .known import reason
from .shrinking import shrunk
from .workers import ends, reports

Tell = Callable[[Any], None]


class Found:
    """A difference with the smallest program that shows it."""

    def __init__(self, number: int, lines: list[str], difference: Difference) -> None:
        self.number, self.lines, self.difference = number, lines, difference


class Search:
    """Programs of a family by number; each kind of difference is reported once."""

    def __init__(
        self, family: str, seed: int, ours: Any, theirs: Any, seconds: float, kinds: str = "", shrinking: float = 8.0
    ) -> None:
        self.family, self.seed, self.ours, self.theirs = family, seed, ours, theirs
        self.end, self.kinds, self.shrinking = time.monotonic() + seconds, kinds, shrinking
        self.seen: Counter[str] = Counter()
        self.known: Counter[str] = Counter()
        self.ran = 0

    def lines(self, number: int) -> list[str]:
        return FAMILIES[self.family].program(Draw(hash_of(f"{self.family} {self.seed} {number}")))

    def __iter__(self) -> Iterator[Found]:
        number, lines = -1, []
        while time.monotonic() < self.end:
            for report in reports(lambda tell: self._work(number + 1, tell)):  # noqa: B023  forked at once
                if report[0] == "trying":
                    number, lines = report[1:]
                    self.ran += 1
                elif report[0] == "known":
                    self.known[report[1]] += 1
                elif report[0] == "seen":
                    self.seen[report[1]] += 1
                elif report[0] == "found":
                    yield Found(number, report[1], Difference(*report[2]))
                elif report[1] == 1:
                    raise RuntimeError(
                        f"the tool itself failed after program {number} of {self.family}, seed {self.seed}"
                    )
                elif report[1] != 0:
                    yield from self._ended(number, lines, str(report[1]))

    def _work(self, number: int, tell: Tell) -> None:
        while time.monotonic() < self.end:
            lines = self.lines(number)
            tell(("trying", number, lines))
            difference = self._compared(lines)
            if difference is not None and re.search(self.kinds, difference.kind):
                self._report(lines, difference, tell)
            number += 1

    def _compared(self, lines: list[str]) -> Difference | None:
        return compared(lines, self.ours, self.theirs, FAMILIES[self.family].exact)

    def _report(self, lines: list[str], difference: Difference, tell: Tell) -> None:
        if reason(lines, difference):
            return tell(("known", reason(lines, difference)))
        sign = signature(lines, difference)
        self.seen[sign] += 1
        tell(("seen", sign))
        if self.seen[sign] > 1:
            return None

        def shows(candidate: list[str]) -> bool:
            found = self._compared(candidate)
            return found is not None and found.kind == difference.kind and not reason(candidate, found)

        small = shrunk(lines, shows, self.shrinking)
        found = self._compared(small) or difference  # a result of chance may not come again
        return tell(("found", small, (found.kind, found.text)))

    def _ended(self, number: int, lines: list[str], how: str) -> Iterator[Found]:
        """A program that ended its process: Flambeau's doing, unless PyTorch alone ends so, too."""

        def shows(candidate: list[str]) -> bool:
            return ends(lambda: run(candidate, self.ours) and None) not in (0, 1)

        sign = signature(lines, Difference(how, ""))
        self.seen[sign] += 1
        if self.seen[sign] == 1 and ends(lambda: run(lines, self.theirs) and None) == 0:
            small = shrunk(lines, shows, self.shrinking) if shows(lines) else lines
            yield Found(number, small, Difference(how, f"the process ended: {how}"))


def hash_of(text: str) -> int:
    """A number that hangs on the text alone: `hash` of a string differs in each process."""
    return int.from_bytes(text.encode(), "little")


def signature(lines: list[str], difference: Difference) -> str:
    """Differences with the same signature most likely have one cause: what is called, beside the inputs (names of one letter)."""
    called = [
        name for line in lines if not re.match(r"\w =", line) for name in re.findall(r"([A-Za-z_][\w.]*)\(", line)
    ]
    return f"{difference.kind}: {' '.join(sorted(set(called)))}"
