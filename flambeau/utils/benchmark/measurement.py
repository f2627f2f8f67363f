"""Results of timing: the task (`TaskSpec`), its times (`Measurement`), and how many digits of them are significant."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ...backends.cpu.threads import get_num_threads, set_num_threads

_MAX_FIGURES = 4
_SMALLEST_INTERVAL = 25e-9  # seconds; no timer is surer than this
_WARN_SPREAD, _GROSS_SPREAD = 0.1, 0.25  # interquartile range over median
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}
_ENGLISH = {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}


@dataclasses.dataclass(init=True, repr=False, eq=True, frozen=True)
class TaskSpec:
    """Description of a timed statement: its code, and its labels in tables."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement itself."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        if "\n" not in self.stmt:
            return self.stmt + (f": {self.sub_label}" if self.sub_label else "")
        return f"stmt:{f' ({self.sub_label})' if self.sub_label else ''}\n{textwrap.indent(self.stmt, '  ')}"

    def setup_str(self) -> str:
        """Return the setup as a report shows it."""
        if self.setup == "pass" or not self.setup:
            return ""
        return f"setup:\n{textwrap.indent(self.setup, '  ')}" if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self) -> str:
        """Return the title, description and setup as text."""
        parts = [self.title, self.description or "", self.setup_str()]
        if self.global_setup:
            parts.insert(2, f"global_setup:\n{textwrap.indent(self.global_setup, '  ')}")
        return "".join(part and f"{part}\n" for part in parts) + (
            "\n" if self.setup_str() and "\n" in self.setup else ""
        )


@dataclasses.dataclass(init=True, repr=False)
class Measurement:
    """Times of one task: `raw_times` are seconds of `number_per_run` executions each."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __post_init__(self) -> None:
        self._sorted = sorted(self.times)

    @property
    def times(self) -> list[float]:
        """Seconds of one execution, one for each measurement."""
        return [t / self.number_per_run for t in self.raw_times]

    def __getattr__(self, name: str) -> Any:
        if name != "task_spec" and hasattr(self.task_spec, name):
            return getattr(self.task_spec, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _require_times(self) -> None:
        if not self.raw_times:
            raise ValueError("Measurement has no times, so there is nothing to say about them")

    @property
    def median(self) -> float:
        self._require_times()
        return float(np.median(self._sorted))

    @property
    def mean(self) -> float:
        self._require_times()
        return float(np.mean(self.times))

    @property
    def _quartiles(self) -> tuple[float, float]:
        self._require_times()
        low, high = np.quantile(self._sorted, (0.25, 0.75))
        return float(low), float(high)

    @property
    def iqr(self) -> float:
        """The interquartile range."""
        low, high = self._quartiles
        return high - low

    @property
    def significant_figures(self) -> int:
        """The number of significant digits of the median, from the spread of the middle half of the times."""
        self._require_times()
        count = len(self._sorted)
        middle = self._sorted[count // 4 : math.ceil(3 * count / 4)]
        interval = max(1.645 * float(np.std(middle)) / math.sqrt(len(middle)), _SMALLEST_INTERVAL)
        return min(max(math.floor(math.log10(self.median / interval)), 1), _MAX_FIGURES)

    @property
    def has_warnings(self) -> bool:
        self._require_times()
        return not self.meets_confidence()

    def meets_confidence(self, threshold: float = _WARN_SPREAD) -> bool:
        """Return whether the interquartile range is within this share of the median."""
        return self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        return self.task_spec.title

    @property
    def env(self) -> str | None:
        return self.task_spec.env

    @property
    def as_row_name(self) -> str:
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __repr__(self) -> str:
        head = f"<torch.utils.benchmark.utils.common.Measurement object at {id(self):#x}>\n{self.task_spec.summarize()}"
        count = len(self.raw_times)
        unit, scale = select_unit(self.median)
        lines = [f"  {'Median: ' if count > 1 else ''}{self.median / scale:.2f} {unit}"]
        if count >= 4:
            low, high = self._quartiles
            lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low / scale:.2f} to {high / scale:.2f})")
        threads = f"{self.task_spec.num_threads} thread{'s' if self.task_spec.num_threads > 1 else ''}"
        lines.append(
            f"  {count} measurement{'s' if count > 1 else ''}, {self.number_per_run} runs"
            f" {'per measurement' if count > 1 else ''}, {threads}"
        )
        return head + "\n".join(lines + self._warning_lines())

    def _warning_lines(self) -> list[str]:
        if self.meets_confidence():
            return []
        gross = not self.meets_confidence(_GROSS_SPREAD)
        text = (
            "This suggests significant environmental influence." if gross else "This could indicate system fluctuation."
        )
        share = f"{self.iqr / self.median:.1%}"
        return [f"  WARNING: Interquartile range is {share} of the median measurement.", f"           {text}"]

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Merge the measurements of each task."""
        times: dict[TaskSpec, list[float]] = {}
        for m in measurements:
            times.setdefault(m.task_spec, []).extend(m.times)
        return [Measurement(1, found, task) for task, found in times.items()]


def select_unit(t: float) -> tuple[str, float]:
    """Return the best unit for a time, and its length in seconds: select_unit(3e-5) == ("us", 1e-6)."""
    unit = {-3: "ns", -2: "us", -1: "ms"}.get(int(math.log10(t) // 3) if t > 0 else 0, "s")
    return unit, _UNITS[unit]


def unit_to_english(u: str) -> str:
    """Return the full name of a unit: unit_to_english("us") == "microsecond"."""
    return _ENGLISH[u]


def trim_sigfig(x: float, n: int) -> float:
    """Round x to its first n digits: trim_sigfig(1234.5, 2) == 1200."""
    if n != int(n):
        raise ValueError("Number of significant figures must be an integer")
    magnitude = math.ceil(math.log10(abs(x)))
    scale = 10 ** (magnitude - n)
    return float(np.round(x / scale) * scale)


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """Return the elements without repetitions, in their order."""
    return list(dict.fromkeys(elements))


@contextlib.contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """Context manager: run operators on n threads."""
    before = get_num_threads()
    try:
        set_num_threads(n)
        yield
    finally:
        set_num_threads(before)
