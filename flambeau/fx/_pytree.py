"""Flattening of arguments by a known tree structure, as the code of graphs with nested arguments does."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

from ..utils._pytree import PyTree, TreeSpec, is_namedtuple_class

FlattenFuncSpec = Callable[[PyTree, TreeSpec], list]
FlattenFuncExactMatchSpec = Callable[[PyTree, TreeSpec], bool]
SUPPORTED_NODES: dict[type, FlattenFuncSpec] = {}
SUPPORTED_NODES_EXACT_MATCH: dict[type, FlattenFuncExactMatchSpec | None] = {}


def register_pytree_flatten_spec(
    cls: type, flatten_fn_spec: FlattenFuncSpec, flatten_fn_exact_match_spec: FlattenFuncExactMatchSpec | None = None
) -> None:
    """Register how an instance of `cls` is flattened where its structure is known."""
    SUPPORTED_NODES[cls] = flatten_fn_spec
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match_spec


def _children(spec: Any) -> list:
    return spec.children() if hasattr(spec, "children") else spec.children_specs


def tree_flatten_spec(pytree: PyTree, spec: TreeSpec) -> list:
    """Return the leaves of a tree with this structure."""
    if spec.is_leaf():
        return [pytree]
    if isinstance(pytree, dict) and "dict" in spec.type.__name__.lower() and not issubclass(type(pytree), spec.type):
        flatten: Any = _flatten_dict
    elif spec.type in SUPPORTED_NODES:
        flatten = SUPPORTED_NODES[spec.type]
    elif is_namedtuple_class(spec.context):
        flatten = _flatten_sequence
    else:
        raise RuntimeError(
            f"{type(pytree)} does not have a flatten_fn_spec associated with it. Please register one with"
            " torch.fx._pytree.register_pytree_flatten_spec.  If you have serialized your model, make"
            " sure that any custom pytrees have been registered before loading it."
        )
    children = flatten(pytree, spec)
    return [leaf for child, kind in zip(children, _children(spec)) for leaf in tree_flatten_spec(child, kind)]


def _flatten_dict(values: dict, spec: Any) -> list:
    return [values[key] for key in spec.context]


def _flatten_sequence(values: Any, spec: Any) -> list:
    return [values[index] for index in range(spec.num_children)]


register_pytree_flatten_spec(dict, _flatten_dict, lambda values, spec: list(values) == list(spec.context))
register_pytree_flatten_spec(OrderedDict, _flatten_dict, lambda values, spec: list(values) == list(spec.context))
for _kind in (list, tuple, namedtuple):
    register_pytree_flatten_spec(_kind, _flatten_sequence, lambda values, spec: len(values) == spec.num_children)  # type: ignore[arg-type]
