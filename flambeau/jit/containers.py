"""`script([1, 2])`, `script({"a": 1})`: lists and dictionaries that compiled code changes in place, with elements of one type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .objects import to_script
from .types import STRING, TENSOR, DictType, ListType
from .value_types import inferred


class ScriptList(list):
    """A list whose elements have one type. Compiled functions get the list itself, not a copy."""

    def __init__(self, items: list):
        kind = inferred(items)
        self.script_kind = kind if isinstance(kind, ListType) else ListType(TENSOR)
        super().__init__(to_script(items, self.script_kind))

    def _check_item(self, item: Any) -> Any:
        return to_script(item, self.script_kind.element)

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(
            index, list(map(self._check_item, value)) if isinstance(index, slice) else self._check_item(value)
        )

    def __contains__(self, item: Any) -> bool:
        return super().__contains__(self._check_item(item))

    def count(self, item: Any) -> int:
        return super().count(self._check_item(item))

    def remove(self, item: Any) -> None:
        super().remove(self._check_item(item))

    def append(self, item: Any) -> None:
        super().append(self._check_item(item))

    def insert(self, index: Any, item: Any) -> None:
        super().insert(index, self._check_item(item))

    def extend(self, items: Iterable[Any]) -> None:
        super().extend([self._check_item(item) for item in items])


class ScriptDict(dict):
    """A dictionary whose keys have one type and values one type. Compiled functions get the dictionary itself, not a copy."""

    def __init__(self, items: dict):
        kind = inferred(items)
        self.script_kind = kind if isinstance(kind, DictType) else DictType(STRING, TENSOR)
        super().__init__(to_script(items, self.script_kind))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(to_script(key, self.script_kind.key), to_script(value, self.script_kind.value))

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(to_script(key, self.script_kind.key))

    def __contains__(self, key: Any) -> bool:
        try:
            return super().__contains__(to_script(key, self.script_kind.key))
        except TypeError:
            raise KeyError(key) from None
