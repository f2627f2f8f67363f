"""Metadata that tracing copies from the program to the nodes of its graph."""

from __future__ import annotations

import contextlib
import copy
import functools
import traceback
from collections.abc import Callable, Iterator
from enum import Enum
from types import SimpleNamespace
from typing import Any

from .graph import Graph
from .node import Node

__all__ = [
    "NodeSource", "NodeSourceAction", "annotate", "annotate_fn", "format_stack", "get_current_meta",
    "get_graph_provenance_json", "has_preserved_node_meta", "preserve_node_meta", "reset_grad_fn_seq_nr",
    "set_current_meta", "set_current_replay_node", "get_current_replay_node", "set_grad_fn_seq_nr",
    "set_stack_trace",
]  # fmt: skip

GRADIENT_ACC_SPECIAL_STACK = "Gradient addition node due to multiple use of tensor around:"


class _State:
    meta: dict[str, Any] = {}
    preserve = False
    replay: Node | None = None


class NodeSourceAction(Enum):
    """Action by which a pass made one node from another: create or replace."""

    CREATE = "create"
    REPLACE = "replace"


class NodeSource:
    """Provenance of a node: the node it was made from, by which pass, and that node's own provenance."""

    def __init__(self, node: Node | None, pass_name: str = "", action: Any = None) -> None:
        actions = [] if action is None else list(action) if isinstance(action, (list, tuple)) else [action]
        if any(not isinstance(a, NodeSourceAction) for a in actions):
            raise AssertionError(f"Expected NodeSourceAction, got {actions}")
        self.pass_name = pass_name
        self.action = actions
        self.name = node.name if node else ""
        self.target = str(node.target) if node else ""
        self.graph_id = id(node.graph) if node else -1
        self.from_node = copy.deepcopy(node.meta.get("from_node", [])) if node else []

    @property
    def node_info(self) -> SimpleNamespace | None:
        if not self.name:
            return None
        return SimpleNamespace(name=self.name, target=self.target, graph_id=self.graph_id)

    def _get_action_string(self) -> str:
        return "+".join(a.name.lower() for a in self.action)

    def print_readable(self, indent: int = 0) -> str:
        """Return the chain of node sources as text, one per line."""
        if indent > 9:
            return ""
        line = (
            " " * (indent * 4)
            + f"(name={self.name}, pass_name={self.pass_name}, action={self._get_action_string()}, graph_id={self.graph_id})\n"
        )
        return line + "".join(source.print_readable(indent + 1) for source in self.from_node)

    def __repr__(self) -> str:
        return self.print_readable()

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "target": self.target,
            "graph_id": self.graph_id,
            "pass_name": self.pass_name,
            "action": self._get_action_string(),
            "from_node": [source.to_dict() for source in self.from_node],
        }

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, NodeSource) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.name, self.target, self.graph_id, self.pass_name, self._get_action_string()))


@contextlib.contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Context manager: new nodes of a tracer inherit the current metadata (`annotate`, the node an Interpreter runs)."""
    saved = _State.preserve, _State.meta
    _State.preserve, _State.meta = enable, dict(_State.meta)
    try:
        yield
    finally:
        _State.preserve, _State.meta = saved


def has_preserved_node_meta() -> bool:
    """Return whether new nodes inherit the current metadata."""
    return _State.preserve


def set_stack_trace(stack: list[str]) -> None:
    """Set the stack trace recorded in new nodes."""
    if _State.preserve and stack:
        _State.meta["stack_trace"] = "".join(stack)


@contextlib.contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """Context manager: add these entries to `meta["custom"]` of new nodes."""
    saved = _State.meta
    _State.meta = {**saved, "custom": {**saved.get("custom", {}), **annotation_dict}}
    try:
        yield
    finally:
        _State.meta = saved


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[Callable], Callable]:
    """Return a decorator that annotates the nodes traced inside a function."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def annotated(*args: Any, **kwargs: Any) -> Any:
            with annotate(annotation_dict):
                return function(*args, **kwargs)

        return annotated

    return decorate


def set_grad_fn_seq_nr(seq_nr: int) -> None:
    """Set the sequence number of the autograd node whose backward is running."""
    if _State.preserve:
        _State.meta = {
            **_State.meta,
            "grad_fn_seq_nr": [*_State.meta.get("grad_fn_seq_nr", []), seq_nr],
            "in_grad_fn": _State.meta.get("in_grad_fn", 0) + 1,
        }


def reset_grad_fn_seq_nr() -> None:
    """Undo the last `set_grad_fn_seq_nr`."""
    if _State.preserve:
        meta = dict(_State.meta)
        level, numbers = meta.pop("in_grad_fn", 0) - 1, meta.pop("grad_fn_seq_nr", [])[:-1]
        if level < 0:
            raise AssertionError("reset_grad_fn_seq_nr without set_grad_fn_seq_nr")
        _State.meta = {**meta, "grad_fn_seq_nr": numbers, "in_grad_fn": level} if level else meta


def format_stack() -> list[str]:
    """Return the current stack as formatted lines."""
    if _State.preserve:
        return [_State.meta.get("stack_trace", "")]
    return traceback.format_list(traceback.extract_stack()[:-1])


@contextlib.contextmanager
def set_current_meta(node: Node, pass_name: str = "") -> Iterator[None]:
    """Context manager: new nodes inherit the `meta` of this node."""
    if not (_State.preserve and node.meta):
        yield
        return
    saved = _State.meta
    _State.meta = node.meta.copy()
    if pass_name:
        _State.meta["from_node"] = [NodeSource(node, pass_name, NodeSourceAction.CREATE)]
    try:
        yield
    finally:
        _State.meta = saved


def get_current_meta() -> dict[str, Any]:
    """Return the metadata that new nodes inherit."""
    return _State.meta


@contextlib.contextmanager
def set_current_replay_node(node: Node | None) -> Iterator[None]:
    """Context manager: mark new nodes as recomputations of this one."""
    saved = _State.replay
    _State.replay = node
    try:
        yield
    finally:
        _State.replay = saved


def get_current_replay_node() -> Node | None:
    return _State.replay


def get_graph_provenance_json(graph: Graph) -> dict[str, Any]:
    """Return, for each function call, the nodes it was made from, as far as they were recorded."""
    calls = [node for node in graph.nodes if node.op == "call_function"]
    return {node.name: [source.to_dict() for source in node.meta.get("from_node", [])] for node in calls}
