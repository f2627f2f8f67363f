"""The settings of printed tensors: `set_printoptions` and its companions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class PrintOptions:
    """Settings of printed tensors; see `set_printoptions`."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


options = PrintOptions()

_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Choose how tensors print.

    precision: digits after the point.
    threshold: tensors with more elements than this are summarised.
    edgeitems: how many items a summary shows at each end of a dimension.
    linewidth: characters per line.
    profile: `default`, `short` or `full` sets the four above at once; the arguments given override it.
    sci_mode: True or False forces scientific notation on or off; None (also when left out) lets the values decide.
    """
    chosen = dict(_PROFILES.get(profile, {})) if profile is not None else {}
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    chosen.update({name: value for name, value in given.items() if value is not None})
    for name, value in chosen.items():
        setattr(options, name, value)
    options.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """Return the print settings in force, as keyword arguments for `set_printoptions`."""
    return asdict(options)


@contextmanager
def printoptions(**settings: Any) -> Iterator[None]:
    """Context manager: print tensors with other settings, restored on exit: `with printoptions(precision=2): print(t)`."""
    before = get_printoptions()
    set_printoptions(**settings)
    try:
        yield
    finally:
        set_printoptions(**before)
