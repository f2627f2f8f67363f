"""Traversal of nested state dicts, and access to the value at a path in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from ...core.tensor import Tensor
from ..tensor import DTensor

__all__ = ["get_element", "print_tensor", "set_element", "traverse_state_dict"]

PATH_ITEM = str | int
OBJ_PATH = tuple[PATH_ITEM, ...]
STATE_DICT_ITEM = object


def _keep_visiting_tensors(value: Any) -> bool:
    return isinstance(value, Tensor) or hasattr(value, "__get_tensor_shard__")


def _is_leaf(value: Any, keep_traversing: Callable, enters_mappings: bool) -> bool:
    """Return whether a value is visited as a whole: a list without tensors and dictionaries, or before 2.4 also a dictionary."""
    if isinstance(value, Mapping):
        if enters_mappings:
            return False
        entries: Any = value.values()
    elif isinstance(value, list):
        entries = value
    else:
        return True
    return all(
        (not isinstance(entry, (Mapping, list)) or _is_leaf(entry, keep_traversing, enters_mappings))
        and not (keep_traversing is not None and keep_traversing(entry))
        for entry in entries
    )


def _walk(path: OBJ_PATH, value: Any, visitor: Callable, keep_traversing: Callable, enters_mappings: bool) -> None:
    if _is_leaf(value, keep_traversing, enters_mappings):
        visitor(path, value)
        return
    items = [(str(k), v) for k, v in value.items()] if isinstance(value, Mapping) else enumerate(value)
    for key, entry in items:
        _walk((*path, key), entry, visitor, keep_traversing, enters_mappings)


def traverse_state_dict(
    state_dict: Mapping, visitor: Callable[[OBJ_PATH, Any], None], keep_traversing: Callable = _keep_visiting_tensors
) -> None:
    """Call visitor(path, value) for every value in dictionaries, and in lists that hold tensors or dictionaries."""
    for key, value in state_dict.items():
        _walk((str(key),), value, visitor, keep_traversing, True)


def traverse_state_dict_v_2_3(
    state_dict: Mapping, visitor: Callable[[OBJ_PATH, Any], None], keep_traversing: Callable = _keep_visiting_tensors
) -> None:
    """Visit the values of a state dict as PyTorch did until 2.3: dictionaries without tensors are visited as a whole."""
    for key, value in state_dict.items():
        _walk((str(key),), value, visitor, keep_traversing, False)


def set_element(root_dict: Any, path: OBJ_PATH, value: Any) -> None:
    """Set the value at a path; missing dictionaries and lists are created."""
    container: Any = root_dict
    for key, following in zip(path, path[1:]):
        fresh: Any = {} if isinstance(following, str) else []
        if isinstance(container, MutableMapping):
            container = container.setdefault(key, fresh)
        else:
            _extend(container, key)
            if container[key] is None:
                container[key] = fresh
            container = container[key]
    if isinstance(path[-1], int):
        _extend(container, path[-1])
    container[path[-1]] = value


def _extend(items: list, index: Any) -> None:
    items.extend([None] * (index + 1 - len(items)))


def get_element(root_dict: Any, path: OBJ_PATH, default_value: Any = None) -> Any:
    """Return the value at a path, or the default."""
    found = root_dict
    for key in path:
        if isinstance(key, int):
            if not isinstance(found, list) or len(found) <= key:
                return default_value
        elif not isinstance(found, Mapping) or key not in found:
            return default_value
        found = found[key]
    return found


def print_tensor(path: OBJ_PATH, value: Any, print_fun: Callable[[str], None] = print) -> None:
    """Print a visited value, for use as a visitor."""
    if isinstance(value, DTensor):
        print_fun(f"{path} DistributedTensor size: {value.size()}")
        value = value.to_local()
        path = ()
    if isinstance(value, Tensor):
        print_fun(f"{path or ''} Tensor size: {value.size()}")
    else:
        print_fun(f"{path} Type: {type(value)}")
