"""`import ts` in handlers written for TorchServe: the modules of `flambeau.serve.ts` under that name."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

from ...core import naming
from ..former_names import AliasLoader

_OWN = f"{naming.PACKAGE}.serve.ts"


class _Finder(importlib.abc.MetaPathFinder):
    """Finder that precedes all others; otherwise submodules would be found by their folder and loaded twice."""

    first = False  # whether to go before a package `ts` that is installed

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        head, _, rest = fullname.partition(".")
        if head != "ts" or not self._is_ours(rest):
            return None
        real_name = f"{_OWN}.{rest}" if rest else _OWN
        try:
            real = importlib.util.find_spec(real_name)
        except ModuleNotFoundError:
            return None
        if real is None:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, AliasLoader(real_name), origin=real.origin)
        spec.submodule_search_locations = real.submodule_search_locations
        return spec

    def _is_ours(self, rest: str) -> bool:
        if self.first or "ts" in sys.modules:
            return self.first or sys.modules["ts"] is sys.modules.get(_OWN)
        return not rest and importlib.machinery.PathFinder.find_spec("ts") is None


_FINDER = _Finder()


def install(first: bool) -> None:
    """Make `import ts` work. In a worker this comes `first`; elsewhere a program's own package `ts` has precedence."""
    _FINDER.first = _FINDER.first or first
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
