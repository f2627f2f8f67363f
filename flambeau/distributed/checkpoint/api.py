"""CheckpointException: the errors of some ranks, raised on all of them."""

from __future__ import annotations

import traceback as tb
from typing import Any

__all__ = ["CheckpointException"]

WRAPPED_EXCEPTION = tuple[BaseException, tb.StackSummary]


def _wrap_exception(exc: BaseException) -> WRAPPED_EXCEPTION:
    summary = tb.extract_tb(exc.__traceback__)
    for frame in summary:
        if hasattr(frame, "_code"):  # code objects cannot be pickled
            object.__setattr__(frame, "_code", None)
    return exc, summary


def _is_wrapped_exception(obj: Any) -> bool:
    return (
        isinstance(obj, tuple)
        and len(obj) == 2
        and isinstance(obj[0], BaseException)
        and isinstance(obj[1], tb.StackSummary)
    )


class CheckpointException(BaseException):
    """A checkpoint could not be saved or loaded because of `failures`: rank -> (error, stack)."""

    def __init__(self, msg: str, failures: dict[int, WRAPPED_EXCEPTION]) -> None:
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self) -> dict[int, WRAPPED_EXCEPTION]:
        return self._failures

    def __str__(self) -> str:
        parts = [f"CheckpointException ranks:{self._failures.keys()}\n"]
        for rank, (problem, where) in self._failures.items():
            parts.append(f"Traceback (most recent call last): (RANK {rank})\n")
            parts += tb.format_list(where) if where is not None else []
            parts += tb.format_exception_only(type(problem), value=problem)
        return "".join(parts)
