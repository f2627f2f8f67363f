"""Benchmarks of small pieces of code: `Timer` measures, `Measurement` holds times and their spread, `Compare` makes a table.

>>> timer = Timer("x @ x", globals={"x": flambeau.ones(64, 64)})
>>> timer.blocked_autorange()
"""

from .compare import Colorize, Compare
from .measurement import (
    Measurement,
    TaskSpec,
    ordered_unique,
    select_unit,
    set_torch_threads,
    trim_sigfig,
    unit_to_english,
)
from .timer import Language, Timer, timer

__all__ = [
    "Colorize", "Compare", "Language", "Measurement", "TaskSpec", "Timer", "ordered_unique", "select_unit",
    "set_torch_threads", "timer", "trim_sigfig", "unit_to_english",
]  # fmt: skip
