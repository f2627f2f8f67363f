"""Patterns of module names: `shop.**` for a package and everything below it, `shop.*` for its direct submodules."""

from __future__ import annotations

import re
from collections.abc import Iterable


class GlobGroup:
    """Names that match one of the patterns `include` and none of `exclude`.

    >>> GlobGroup("shop.**", exclude="shop.tests.**").matches("shop.models.net")
    True
    """

    def __init__(self, include: str | Iterable[str], *, exclude: str | Iterable[str] = (), separator: str = "."):
        self.separator = separator
        self._texts = f"GlobGroup(include={include}, exclude={exclude})"
        self.include, self.exclude = ([self._compile(p) for p in _as_list(given)] for given in (include, exclude))

    def __repr__(self) -> str:
        return self._texts

    def matches(self, candidate: str) -> bool:
        """Return whether a name is in the group."""
        text = self.separator + candidate
        return any(p.fullmatch(text) for p in self.include) and not any(p.fullmatch(text) for p in self.exclude)

    def _compile(self, pattern: str) -> re.Pattern[str]:
        between, inside = re.escape(self.separator), f"[^{re.escape(self.separator)}]"
        parts = []
        for part in pattern.split(self.separator):
            if "**" in part and part != "**":
                raise ValueError("** can only appear as an entire path segment")
            words = f"{inside}*".join(map(re.escape, part.split("*")))
            parts.append(f"({between}{inside}+)*" if part == "**" else between + words)
        return re.compile("".join(parts))


def _as_list(given: str | Iterable[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)
