"""Tree structures of arguments as JSON, in PyTorch's form."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict, deque
from typing import Any, NamedTuple

from ..utils._pytree import SUPPORTED_NODES, TreeSpec, treespec_leaf

_SEQUENCE_KINDS = {tuple: "builtins.tuple", list: "builtins.list"}
_KEYED_KINDS = {dict: "builtins.dict", OrderedDict: "collections.OrderedDict"}


def _plain(spec: TreeSpec) -> dict[str, Any]:
    children = [_plain(child) for child in spec.children()]
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    if spec.type in _SEQUENCE_KINDS:
        return {"type": _SEQUENCE_KINDS[spec.type], "context": "null", "children_spec": children}
    if spec.type in _KEYED_KINDS:
        return {"type": _KEYED_KINDS[spec.type], "context": json.dumps(list(spec.context)), "children_spec": children}
    if spec.type in (defaultdict, deque):
        raise NotImplementedError(f"writing the nesting of a {spec.type.__name__}")
    if spec.type is NamedTuple:  # the class is the context
        raise NotImplementedError(
            f"No registered serialization name for {spec.context} found. Please update your _register_pytree_node call with a"
            " `serialized_type_name` kwarg."
        )
    node = SUPPORTED_NODES[spec.type]
    name = getattr(node, "serialized_type_name", None) or f"{spec.type.__module__}.{spec.type.__qualname__}"
    return {"type": name, "context": json.dumps(spec.context), "children_spec": children}


def dumps(spec: TreeSpec) -> str:
    """Serialize a tree structure."""
    return json.dumps([1, _plain(spec)])


def _read(data: Any) -> TreeSpec:
    if not isinstance(data, dict) or not isinstance(data.get("children_spec"), list):
        raise ValueError("the file's description of arguments is damaged")
    children = [_read(child) for child in data["children_spec"]]
    name = data.get("type")
    if name is None:
        return treespec_leaf()
    for kind, written in _SEQUENCE_KINDS.items():
        if name == written:
            return TreeSpec(kind, None, children)
    for kind, written in _KEYED_KINDS.items():
        if name == written:
            return TreeSpec(kind, json.loads(data["context"]), children)
    for kind in SUPPORTED_NODES:
        if isinstance(kind, type) and name == f"{kind.__module__}.{kind.__qualname__}":
            return TreeSpec(kind, json.loads(data["context"]), children)
    raise ValueError(
        f"the program's arguments hold a {name}, which is not registered: call register_dataclass or register_pytree_node"
    )


def loads(text: str) -> TreeSpec:
    """Read a tree structure."""
    protocol, data = json.loads(text)
    if protocol != 1:
        raise ValueError(f"the nesting of arguments is written in protocol {protocol}; 1 is known")
    return _read(data)
