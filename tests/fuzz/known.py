"""Differences that are meant, or PyTorch's own slips: (pattern of the program, pattern of the difference, reason)."""

from __future__ import annotations

import re

from .judging import Difference

# In this order: what Flambeau does on purpose, what PyTorch computes wrongly, what neither defines
KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        "",
        r"instead of (NotImplemented|Runtime)Error.*torch: .*(not implemented for|must be implemented)",
        "Flambeau has a kernel for this dtype, too",
    ),
    (r"\.conj\(\)|\.imag", "^memory", "conj computes its result at once, where PyTorch only marks a view"),
    (
        r"pickle_protocol=[01]|_use_new_zipfile",
        "raises nothing instead",
        "Flambeau reads what PyTorch writes and then refuses or reads wrongly",
    ),
    (
        r"VonMises|polygamma|digamma",
        r"^value.*double precision",
        "PyTorch's approximation is good to ten digits, Flambeau's to sixteen",
    ),
    (
        r"special\.(i1|i1e|bessel|modified_bessel)|polygamma",
        "value.*inf",
        "PyTorch's approximation has no limit at infinity and at poles",
    ),
    (
        r"F\.pad\(.*circular",
        "value",
        "PyTorch leaves memory as it was where one side is cut and the other is wrapped around",
    ),
    (r"F\.interpolate\(.*antialias=True", "value", "PyTorch repeats the first row where the result is one column wide"),
    (r"torch\.mode\(", "nan", "PyTorch's mode sorts numbers of which nan is one with an order that is none"),
    (r"torch\.unique\(", "nan", "nans are different numbers in no order"),
    (r"F\.grid_sample\(", "nan|inf", "PyTorch's vectorised and plain kernels differ at points that are not finite"),
    (
        r"\.set_\(",
        "version|derivative for set_",
        "versions are counted by storages, and set_ is recorded as a new tensor",
    ),
    (r"complex", "nan|inf", "products of complex infinities: each library of products has its own"),
    (
        r"matrix_norm\(.*nuc|median\(",
        "^value.*slopes|^value.*double precision",
        "among equal or zero singular values any derivative will do",
    ),
)


def reason(lines: list[str], difference: Difference) -> str:
    """Why a difference is meant; "" if it is not."""
    program = "\n".join(lines)
    for about, text, why in KNOWN:
        if re.search(about, program) and re.search(text, f"{difference.kind}\n{difference.text}", re.DOTALL):
            return why
    return ""
