"""Conversion of nested state dicts to flat ones and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import _version
from ._traverse import OBJ_PATH, set_element, traverse_state_dict, traverse_state_dict_v_2_3

FLATTEN_MAPPING = dict[str, OBJ_PATH]


def flatten_state_dict(state_dict: Mapping) -> tuple[dict[str, Any], FLATTEN_MAPPING]:
    """Return {"a": {"b": x}} as {"a.b": x}, and the path of each key."""
    flat: dict[str, Any] = {}
    paths: FLATTEN_MAPPING = {}

    def note(path: OBJ_PATH, value: Any) -> None:
        key = ".".join(map(str, path))
        if key in flat:
            raise ValueError(f"duplicated flatten key {key}")
        flat[key], paths[key] = value, path

    walk = traverse_state_dict_v_2_3 if _version._derived_version == "2_3" else traverse_state_dict
    walk(state_dict, note)
    return flat, paths


def unflatten_state_dict(state_dict: Mapping, mapping: FLATTEN_MAPPING) -> dict[str, Any]:
    """Rebuild the nested state dict from a flat one."""
    nested: dict[str, Any] = {}
    for key, value in state_dict.items():
        set_element(nested, mapping[key], value)
    return nested
