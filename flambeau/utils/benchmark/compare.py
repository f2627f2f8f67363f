"""`Compare`: measurements side by side in a table, a row for each sub-label, a column for each description."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Sequence

from .measurement import Measurement, ordered_unique, select_unit, trim_sigfig, unit_to_english

_BEST, _GOOD, _BAD, _VERY_BAD = "\033[92m", "\033[34m", "\033[2m\033[91m", "\033[31m"
_BOLD, _END = "\033[1m", "\033[0m\033[0m"


class Colorize(enum.Enum):
    """Direction in which the colours of a table compare measurements: by column, by row, or none."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


class _Table:
    """The results of one label, in one unit of time."""

    def __init__(self, results: list[Measurement], colorize: Colorize, trim: bool, warn: bool) -> None:
        self.results, self.colorize, self.trim, self.warn = results, colorize, trim, warn
        self.label = results[0].label
        self.columns = ordered_unique(r.description for r in results)
        self.rows = ordered_unique((r.num_threads, r.task_spec.env, r.as_row_name) for r in results)
        self.rows.sort(key=lambda row: (row[0], row[1] or ""))
        groups: dict[tuple, list[Measurement]] = {}
        for r in results:
            key = (r.num_threads, r.task_spec.env, r.as_row_name), r.description
            groups.setdefault(key, []).append(r)
        self.cells = {key: _merge(found) for key, found in groups.items()}
        self.unit, self.scale = select_unit(min(m.median for m in self.cells.values()))

    def _decimals(self, column: str) -> int:
        if not self.trim:
            return 1
        found = [m for (_, description), m in self.cells.items() if description == column]
        return max(min(m.significant_figures - math.ceil(math.log10(m.median / self.scale)) for m in found), 0)

    def _text(self, row: tuple, column: str) -> str:
        m = self.cells.get((row, column))
        if m is None:
            return ""
        value = m.median / self.scale
        if self.trim:
            value = trim_sigfig(value, m.significant_figures)
        text = f"{value:.{self._decimals(column)}f}"
        return f"{text} (! {m.iqr / m.median * 100:.0f}%)" if self.warn and m.has_warnings else text

    def _column_texts(self, column: str) -> list[str]:
        texts = [self._text(row, column) for row in self.rows]
        marks = [text[text.index(" (!") :] if " (!" in text else "" for text in texts]
        numbers = [text.removesuffix(mark) for text, mark in zip(texts, marks)]
        width, mark_width = max(map(len, numbers)), max(map(len, marks))
        gap = " " * max(mark_width - 1, 0)
        return [number.rjust(width) + (mark.ljust(mark_width) if mark else gap) for number, mark in zip(numbers, marks)]

    def render(self) -> str:
        environments = ordered_unique(env for _, env, _ in self.rows)
        environments = environments if len(environments) > 1 else []
        env_width = max((len(env) for env in environments if env), default=0) + 2
        names = []
        for before, (threads, env, name) in zip([None, *self.rows], self.rows):
            told = env not in environments or (before is not None and before[:2] == (threads, env))
            names.append(f"  {'' if told else f'({env})':<{env_width}}  {name}")
        name_width = max(map(len, names))
        body = {column: self._column_texts(column) for column in self.columns}
        widths = {column: max(len(column), *map(len, texts)) for column, texts in body.items()}
        head = "  |  ".join([" " * name_width, *(column.center(widths[column]) for column in self.columns)])
        lines = [f"[{(' ' + self.label + ' ' if self.label else '').center(len(head) - 2, '-')}]", head]
        for i, row in enumerate(self.rows):
            if i == 0 or row[0] != self.rows[i - 1][0]:
                lines.append(f"{row[0]} threads: ".ljust(len(head), "-"))
            cells = [self._colour(row, column, body[column][i].center(widths[column])) for column in self.columns]
            lines.append("  |  ".join([names[i].ljust(name_width), *cells]))
        lines += ["", f"Times are in {unit_to_english(self.unit)}s ({self.unit})."]
        if self.warn and any(m.has_warnings for m in self.cells.values()):
            lines.append("(! XX%) Measurement has high variance, where XX is the IQR / median * 100.")
        return "\n".join([*lines, ""])

    def _colour(self, row: tuple, column: str, text: str) -> str:
        m = self.cells.get((row, column))
        if m is None or self.colorize is Colorize.NONE:
            return text
        if self.colorize is Colorize.COLUMNWISE:
            rivals = [x.median for (r, c), x in self.cells.items() if c == column and r[0] == row[0]]
        else:
            rivals = [x.median for (r, _), x in self.cells.items() if r == row]
        ratio = m.median / min(rivals)
        if ratio < 1.01:
            return f"{_BEST}{_BOLD}{text}{_END}"
        if ratio <= 1.1:
            return f"{_GOOD}{_BOLD}{text}{_END}"
        if ratio > 5:
            return f"{_VERY_BAD}{_BOLD}{text}{_END}"
        return f"{_BAD}{text}{_END}" if ratio > 2 else text


def _merge(found: Sequence[Measurement]) -> Measurement:
    """Merge all measurements of one cell."""
    times = list(itertools.chain.from_iterable(m.times for m in found))
    return Measurement(1, times, found[0].task_spec) if len(found) > 1 else found[0]


class Compare:
    """A table of measurements: `print()` it, or take its `str`."""

    def __init__(self, results: list[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trim, self._colorize, self._warn = False, Colorize.NONE, False

    def __str__(self) -> str:
        labels = ordered_unique(r.label for r in self._results)
        groups = [[r for r in self._results if r.label == label] for label in labels]
        return "\n".join(_Table(group, self._colorize, self._trim, self._warn).render() for group in groups)

    def extend_results(self, results: list[Measurement]) -> None:
        """Add measurements to the comparison."""
        for r in results:
            if not isinstance(r, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(r)} instead.")
        self._results.extend(results)

    def trim_significant_figures(self) -> None:
        """Show only significant digits."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colour the fast and the slow ones of each column, or of each row."""
        self._colorize = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Mark measurements that vary much."""
        self._warn = True

    def print(self) -> None:
        """Print the comparison as a table."""
        print(str(self))
