"""`Timer`: the time of a statement, on a given number of threads, repeated until the result is stable."""

from __future__ import annotations

import enum
import sys
import textwrap
import timeit
from collections.abc import Callable
from typing import Any

from .measurement import Measurement, TaskSpec, set_torch_threads

timer = timeit.default_timer


class Language(enum.Enum):
    """The language of the statement."""

    PYTHON = 0
    CPP = 1


class Timer:
    """Times a Python statement, as `timeit.Timer` does, on `num_threads` threads and with results that describe themselves."""

    _timer_cls = timeit.Timer

    def __init__(
        self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None, label: str | None = None, sub_label: str | None = None,
        description: str | None = None, env: str | None = None, num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:  # fmt: skip
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if language not in (Language.PYTHON, "py", "python"):
            raise ValueError(f"expected a Python statement (language=Language.PYTHON), but got language={language}")
        if global_setup:
            raise ValueError(
                f"global_setup is C++ only, got `{global_setup}`. Most likely this code can simply be moved to `setup`."
            )
        known = {"torch": sys.modules[__name__.split(".")[0]], **(globals or {})}
        stmt, setup = (textwrap.dedent(text).strip("\n").rstrip() for text in (stmt, setup))
        self._timer = self._timer_cls(stmt=stmt, setup=setup, timer=timer, globals=known)
        self._task_spec = TaskSpec(stmt, setup, "", label, sub_label, description, env, num_threads)

    def _timeit(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def _make_measurement(self, number: int, times: list[float]) -> Measurement:
        return Measurement(number, times, self._task_spec)

    def timeit(self, number: int = 1000000) -> Measurement:
        """Run the statement `number` times as one measurement, after a hundredth of that as a warm-up."""
        with set_torch_threads(self._task_spec.num_threads):
            self._timeit(max(int(number // 100), 2))
            return self._make_measurement(number, [self._timeit(number)])

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        """Raise NotImplementedError; use `blocked_autorange`."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Callable[[int, float], Any] | None = None) -> None:
        """Raise NotImplementedError; use `blocked_autorange`."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Measure until `min_run_time` seconds have passed, in blocks so long that the clock's overhead does not matter."""
        number = self._block_size(min_run_time)

        def enough(times: list[float]) -> bool:
            return sum(times) >= min_run_time

        return self._measure_until(enough, number, callback)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Measure until the interquartile range is within `threshold` of the median."""
        number = self._block_size(min_run_time)

        def enough(times: list[float]) -> bool:
            if sum(times) >= max_run_time:
                return True
            return (
                len(times) > 3
                and sum(times) >= min_run_time
                and self._make_measurement(number, times).meets_confidence(threshold)
            )

        return self._measure_until(enough, number, callback)

    def _measure_until(
        self, enough: Callable[[list[float]], bool], number: int, callback: Callable[[int, float], Any] | None
    ) -> Measurement:
        times: list[float] = []
        with set_torch_threads(self._task_spec.num_threads):
            while not enough(times):
                times.append(self._timeit(number))
                if callback is not None:
                    callback(number, times[-1])
        return self._make_measurement(number, times)

    def _block_size(self, min_run_time: float) -> int:
        """Return the number of executions per measurement: a thousandth of the given time, and long compared with the clock's overhead."""
        with set_torch_threads(self._task_spec.num_threads):
            overhead = sorted(self._timeit(0) for _ in range(5))[2]
            number = 1
            while True:
                taken = self._timeit(number)
                steady = overhead / taken <= 1e-4 and taken >= min_run_time / 1000
                if steady or taken > min_run_time or number >= 10**9:
                    return number
                number *= 10
