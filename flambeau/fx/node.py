"""Node of a graph: one call (or input, attribute, output) with its arguments and users."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, Union

import flambeau

from ..core.device import device
from ..core.dtype import dtype
from ..core.layout import layout, memory_format
from ..core.return_types import NamedResult
from ..core.tensor import Tensor
from ..overrides import resolve_name
from ..profiler import range_operators
from .immutable_collections import immutable_dict, immutable_list
from .names import qualified_name, type_repr
from .operator_schemas import normalize_function, normalize_module

__all__ = ["Argument", "ArgumentT", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

BaseArgumentTypes = Any
base_types = (
    str, int, float, bool, complex, dtype, Tensor, device, memory_format, layout, flambeau.SymInt, flambeau.SymBool,
    flambeau.SymFloat,
)  # fmt: skip
Target = Union[Callable[..., Any], str]
Argument = Any
ArgumentT = Any

LEGAL_OPS = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root")

_side_effectful_functions: set[Callable] = {
    flambeau._assert,
    operator.setitem,
    range_operators._record_function_enter,
    range_operators._record_function_exit,
}


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function (decorator): its calls are never removed as dead code."""
    _side_effectful_functions.add(fn)
    return fn


def _draws_random_numbers(target: Any) -> bool:
    """Return whether an operator draws random numbers: its calls cannot be merged, and each advances the generator."""
    record = getattr(getattr(target, "_overloadpacket", target), "op", None)
    return getattr(record, "kind", "") == "random"


def shape_text(shape: Iterable[Any]) -> str:
    """Format a shape as printed graphs have it."""
    return f"[{', '.join(str(size) for size in shape)}]"


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """Apply fn to everything in nested lists, tuples, dicts and slices; the containers come back immutable.

    >>> map_aggregate([1, (2, 3)], lambda x: x + 1)
    [2, (3, 4)]
    """
    if isinstance(a, tuple):
        parts = tuple([map_aggregate(x, fn) for x in a])
        return type(a)(*parts) if hasattr(a, "_fields") and not isinstance(a, NamedResult) else parts
    if isinstance(a, list):
        return immutable_list([map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return immutable_dict((key, map_aggregate(value, fn)) for key, value in a.items())
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """Apply fn to every Node in nested lists, tuples, dicts and slices."""
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def _format_arg(arg: Any, max_list_len: float = float("inf")) -> str:
    """Return an argument as `print(graph)` shows it: nodes with a percent sign."""
    if hasattr(arg, "_custom_fx_repr_fn"):
        return arg._custom_fx_repr_fn()
    if isinstance(arg, (list, tuple)):
        shown = [_format_arg(a) for position, a in enumerate(arg) if position < max_list_len]
        rest = "" if len(arg) < max_list_len + 1 else f", ...[total_len={len(arg)}]"
        if isinstance(arg, list):
            return f"[{', '.join(shown)}{rest}]"
        comma = "," if len(arg) == 1 else ""
        return f"({', '.join(shown)}{comma}{rest})"
    if isinstance(arg, dict):
        return f"{{{', '.join(f'{key}: {_format_arg(value)}' for key, value in arg.items())}}}"
    return f"%{arg}" if isinstance(arg, Node) else str(arg)


def _type_repr(obj: Any) -> str:
    return type_repr(obj)


def _get_qualified_name(func: Callable) -> str:
    return qualified_name(func)


def _find_module_of_method(orig_method: Callable) -> str:
    return qualified_name(orig_method).rpartition(".")[0]


class Node:
    """A step of a graph.

    `op` is its kind: "placeholder" (an input), "get_attr" (a parameter or buffer by its path), "call_function", "call_method",
    "call_module", "output". `target` is what is called or fetched, `args` and `kwargs` are the arguments: nodes and constants. `users` are
    the nodes that read this one. `meta` is a dict for data of passes."""

    def __init__(
        self, graph: Any, name: str, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[Any, Any],
        return_type: Any = None,
    ) -> None:  # fmt: skip
        if op == "call_function":
            fits, wanted = callable(target), "a Callable"
        else:
            if op not in LEGAL_OPS:
                raise AssertionError(f"op '{op}' is not in _legal_ops")
            fits, wanted = isinstance(target, str), "a str"
        if not fits:
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {flambeau.typename(target)} "
                f"but {wanted} is expected"
            )
        set_field = object.__setattr__
        set_field(self, "graph", graph)
        set_field(self, "name", name)
        set_field(self, "op", op)
        set_field(self, "target", target)
        set_field(self, "type", return_type)
        self._erased = False
        self._prev: Node = self
        self._next: Node = self
        self._order = 0
        self._args: tuple = ()
        self._kwargs: dict = {}
        self._input_nodes: dict[Node, None] = {}
        self.users: dict[Node, None] = {}
        self._repr_fn: Callable[[Node], str] | None = None
        self.meta: dict[str, Any] = {}
        self._update_args_kwargs(args, kwargs)

    graph: Any
    name: str
    op: str
    target: Any
    type: Any

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _INDEXED:
            self._change(name, value)
        else:
            object.__setattr__(self, name, value)

    def _change(self, name: str, value: Any) -> None:
        """Set an attribute and notify the graph's index and the module's hooks."""
        if "graph" not in vars(self):  # being unpickled
            object.__setattr__(self, name, value)
            return
        if name == "name":
            for hook in getattr(self.graph.owning_module, "_replace_hooks", None) or ():
                for user in self.users:
                    hook(old=self, new=value, user=user)
        index = vars(self.graph).get("_index")
        known = index is not None and self in index
        if known:
            index.remove(self)
        object.__setattr__(self, name, value)
        if known:
            index.insert(self)

    # -- the list of nodes --

    @property
    def next(self) -> Node:
        """The node after this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move x, a node of this graph, before this one."""
        if x.graph is not self.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if x is self:
            return
        x._remove_from_list()
        before = self._prev
        before._next = x
        x._prev, x._next = before, self
        self._prev = x
        self.graph._renumber_inserted(x)

    _prepend = prepend

    def append(self, x: Node) -> None:
        """Move x, a node of this graph, after this one."""
        if x is not self:
            self._next.prepend(x)

    def _remove_from_list(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    @property
    def _sort_key(self) -> tuple[int, ...]:
        self.graph._number_nodes()
        return (self._order,)

    def __lt__(self, other: Node) -> bool:
        return self._sort_key < other._sort_key

    def __gt__(self, other: Node) -> bool:
        return self._sort_key > other._sort_key

    def __le__(self, other: Node) -> bool:
        return self is other or self < other

    def __ge__(self, other: Node) -> bool:
        return self is other or self > other

    # -- arguments --

    @property
    def args(self) -> tuple:
        """The positional arguments. Assign to change them; the `users` of all nodes are updated."""
        return self._args

    @args.setter
    def args(self, a: tuple) -> None:
        self._update_args_kwargs(a, self._kwargs)

    @property
    def kwargs(self) -> dict:
        """The keyword arguments. Assign to change them; the `users` of all nodes are updated."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict) -> None:
        self._update_args_kwargs(self._args, k)

    def _update_args_kwargs(self, new_args: tuple, new_kwargs: dict) -> None:
        for old in self._input_nodes:
            old.users.pop(self)
        inputs: dict[Node, None] = {}

        def note(value: Any) -> Any:
            if isinstance(value, Node):
                inputs.setdefault(value)
                value.users.setdefault(self)
            return value

        object.__setattr__(self, "_input_nodes", inputs)
        self._args = map_aggregate(new_args, note)
        self._kwargs = map_aggregate(new_kwargs, note)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, in order, each once."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Any) -> None:
        """Replace the positional argument at `idx`."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Insert a positional argument before the one at `idx`."""
        if not 0 <= idx <= len(self.args):
            raise AssertionError(f"insert_args index must be between 0 and len(self.args), got {idx}")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Set the keyword argument `key`."""
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Replace `old_input` by `new_input` in the node's arguments."""
        for hook in getattr(self.graph.owning_module, "_replace_hooks", None) or ():
            hook(old=old_input, new=new_input.name, user=self)
        self._replace_input_with(old_input, new_input)

    def _replace_input_with(self, old: Node, new: Node) -> None:
        def swap(node: Node) -> Node:
            return new if node is old else node

        self._update_args_kwargs(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] | None = None, *, propagate_meta: bool = False
    ) -> list[Node]:
        """Make all users of this node use `replace_with`, except those for which `delete_user_cb` returns False. Returns the
        nodes that were changed."""
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), "
                    "but replace_with already has .meta keys"
                )
            replace_with.meta.update(self.meta)
        changed = [user for user in list(self.users) if delete_user_cb is None or delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    # -- questions --

    @property
    def stack_trace(self) -> str | None:
        """The location in the program where the call was made, if the tracer recorded it."""
        return self.meta.get("stack_trace", None)

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Return whether the node has effects besides its value, so that it must not be removed."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_module":
            if self.graph.owning_module is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            target = self.graph.owning_module.get_submodule(self.target)
            return getattr(target, "_is_impure", False)
        return self.op == "call_function" and self._function_is_impure(impure_random)

    def _function_is_impure(self, impure_random: bool) -> bool:
        if self.target in _side_effectful_functions:
            return True
        schema = getattr(self.target, "_schema", None)
        if schema is not None:
            if schema.is_mutable or not schema.returns:
                return True
            return impure_random and _draws_random_numbers(self.target)
        if resolve_name(self.target) is None:
            return False
        if self.kwargs.get("out") is not None:
            return True
        return impure_random and _draws_random_numbers(self.target)

    def normalized_arguments(
        self,
        root: Any,
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> Any:
        """Return the arguments matched to the target's parameters, with defaults filled in; None if that is not possible."""
        if self.op == "call_function":
            return normalize_function(
                self.target, self.args, self.kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs
            )
        if self.op == "call_module":
            return normalize_module(root, self.target, self.args, self.kwargs, normalize_to_only_use_kwargs)
        return None

    def _rename(self, candidate: str) -> None:
        """Rename the node, uniquely in the graph."""
        if candidate == self.name:
            return
        space = self.graph._graph_namespace
        self.name = space.create_name(candidate, None)
        space._rename_object(self, self.name)

    # -- text --

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn else self.name

    @staticmethod
    def _pretty_print_target(target: Any) -> str:
        """Return the name of a target: `operator.add`, `builtins.getattr`, `torch.relu`."""
        if isinstance(target, str):
            return target
        module = getattr(target, "__module__", None)
        if module in ("builtins", "_operator") and hasattr(target, "__name__"):
            return f"{module.lstrip('_')}.{target.__name__}"
        return qualified_name(target)

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """Return the node as one line of `print(graph)`."""
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {type_repr(self.type)}"
            return f"return {self.args[0]}"
        if self.op == "placeholder" and placeholder_names:
            placeholder_names.append(self.target + (f": {type_repr(self.type)}" if self.type else ""))
            return None
        kind = self._tensor_text() if include_tensor_metadata else ""
        if not kind and self.type is not None:
            kind = f"{type_repr(self.type)} "
        text = f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}"
        text += f"[target={self._pretty_print_target(self.target)}]"
        if self.op == "placeholder":
            return text + (f"(default={self.args[0]})" if self.args else "")
        if self.op == "get_attr":
            return text
        return f"{text}(args = {_format_arg(self.args)}, kwargs = {_format_arg(self.kwargs)})"

    def _tensor_text(self) -> str:
        value = self.meta.get("val", self.meta.get("tensor_meta", self.meta.get("example_value")))
        if (
            self.op in ("placeholder", "get_attr")
            or not isinstance(value, Tensor)
            or value.layout is not flambeau.strided
        ):
            return ""
        shape = f"{value.dtype.short}{shape_text(value.shape)}"
        return f'Tensor "{shape}{shape_text(value.stride())}{value.device}"'


_INDEXED = frozenset(["name", "op", "target"])
