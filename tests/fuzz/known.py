"""Differences that are meant, or PyTorch's own slips: (pattern of the program, pattern of the difference, reason)."""

from __future__ import annotations

import re

from .judging import Difference

KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        "",
        r"instead of (NotImplemented|Runtime)Error.*torch: .*(not implemented for|must be implemented)",
        "Flambeau has a kernel for this dtype, too",
    ),
    (
        r"F\.pad\(.*circular",
        "value",
        "PyTorch leaves memory as it was where one side is cut and the other is wrapped around",
    ),
    (r"F\.interpolate\(.*antialias=True", "value", "PyTorch repeats the first row where the result is one column wide"),
)


def reason(lines: list[str], difference: Difference) -> str:
    """Why a difference is meant; "" if it is not."""
    program = "\n".join(lines)
    for about, text, why in KNOWN:
        if re.search(about, program) and re.search(text, f"{difference.kind}\n{difference.text}", re.DOTALL):
            return why
    return ""
