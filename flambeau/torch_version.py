"""Version of this package and of the PyTorch interface it follows, and version strings that compare as versions."""

from __future__ import annotations

import re
from typing import Any

OWN_VERSION = "0.2.0"  # the only place that says it: pyproject.toml reads this line
TORCH_VERSION = "2.13.0"
TORCHVISION_VERSION = "0.28.0"

_PATTERN = re.compile(
    r"v?(?P<release>\d+(?:\.\d+)*)[._-]?(?:(?P<stage>a|b|rc|alpha|beta|c|dev|post)[._-]?(?P<number>\d*))?"
    r"(?:[._-]?dev\d*)?(?:\+(?P<local>[a-z0-9.]+))?$",
    re.IGNORECASE,
)
_STAGES = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "rc": -1, "post": 1}


def _key(version: Any) -> tuple:
    """Return a key that orders like Python's version numbers (PEP 440, without epochs)."""
    text = ".".join(str(part) for part in version) if isinstance(version, (tuple, list)) else str(version)
    found = _PATTERN.match(text.strip())
    if found is None:
        raise ValueError(f"Invalid version: {text!r}")
    release = [int(part) for part in found["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    stage = (_STAGES[found["stage"].lower()], int(found["number"] or 0)) if found["stage"] else (0, 0)
    local = tuple((1, int(p), "") if p.isdigit() else (0, 0, p) for p in (found["local"] or "").split(".") if p)
    return tuple(release), stage, local


class TorchVersion(str):
    """A version number: a str that compares with "2.1", (2, 1) and other versions by their meaning.

    >>> TorchVersion("2.13.0+flambeau") >= (2, 9)
    True
    """

    def __lt__(self, other: Any) -> bool:
        return _key(self) < _key(other)

    def __le__(self, other: Any) -> bool:
        return _key(self) <= _key(other)

    def __gt__(self, other: Any) -> bool:
        return _key(self) > _key(other)

    def __ge__(self, other: Any) -> bool:
        return _key(self) >= _key(other)

    def __eq__(self, other: object) -> bool:
        try:
            return _key(self) == _key(other)
        except ValueError:
            return False

    __hash__ = str.__hash__
