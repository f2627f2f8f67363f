"""Proxies: placeholders for values during tracing. Operations on them become nodes of a graph."""

from __future__ import annotations

import copy
import dis
import enum
import operator
import os
import sys
import traceback
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..core import overrides
from ..core.tensor import Tensor
from ..library.operator import OperatorFace
from ..nn import Parameter
from ..utils._pytree import tree_leaves
from . import traceback as fx_traceback
from .codegen import magic_methods, reflectable_magic_methods
from .graph import Graph
from .names import function_name, home_of
from .node import Node, base_types, map_aggregate
from .operator_schemas import check_for_mutable_operation
from .spelling import spelled

__all__ = [
    "Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "Scope", "ScopeContextManager", "TraceError",
    "TracerBase", "assert_fn",
]  # fmt: skip

_COPY_META_FIELDS = [
    "nn_module_stack", "torch_fn", "source_fn_stack", "original_aten", "recompute", "ac_graph_id", "has_backward_hook",
    "from_node", "quantization_tag", "_numeric_debug_handle", "custom", "partitioner_tag",
]  # fmt: skip


class TraceError(ValueError):
    """Raised when the program uses a traced value in a way that a graph cannot express."""


class Scope:
    """The module whose forward is being traced."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path, self.module_type = module_path, module_type


class ScopeContextManager:
    """Context manager: set another scope, restored on exit."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._prev_scope = copy.copy(scope)
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type
        self._scope = scope

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *args: Any) -> None:
        self._scope.module_path = self._prev_scope.module_path
        self._scope.module_type = self._prev_scope.module_type


_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class TracerBase:
    """Records operations on proxies as nodes. Subclasses define what truth tests, iteration, ... of proxies do."""

    graph: Graph
    record_stack_traces = False
    _record_forward_stack_traces_only = False
    check_mutable_operations = False  # whether in-place operators are refused
    trace_asserts = False  # whether an assert about a proxy becomes a node
    proxy_buffer_attributes = False  # whether buffers are proxies, too
    traced_func_name = "forward"
    scope: Scope
    module_stack: OrderedDict[str, tuple[str, Any]]
    node_name_to_scope: dict[str, tuple[str, Any]]

    def create_node(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a node to the graph. Override it to check or change the recorded nodes."""
        if kind == "call_function" and self.check_mutable_operations:
            check_for_mutable_operation(target, args, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
        if fx_traceback.has_preserved_node_meta():
            self._take_over_notes(node)
        elif self.module_stack:
            node.meta["nn_module_stack"] = copy.copy(self.module_stack)
        if self.record_stack_traces and not node.stack_trace:
            frames = self._user_frames()
            if frames:
                node.stack_trace = "".join(traceback.StackSummary.from_list(frames).format()).strip()
        return node

    def _take_over_notes(self, node: Node) -> None:
        current = fx_traceback.get_current_meta()
        if current.get("stack_trace"):
            node.stack_trace = current["stack_trace"]
        for field in _COPY_META_FIELDS:
            if field in current:
                node.meta[field] = copy.copy(current[field])
        if current.get("in_grad_fn", 0) > 0:
            node.meta["seq_nr"] = current["grad_fn_seq_nr"][-1]
        elif "seq_nr" in current:
            node.meta["seq_nr"] = current["seq_nr"]

    def _user_frames(self) -> list[traceback.FrameSummary]:
        """Return the stack frames from the first `forward` on, without those of this package."""
        frames = list(traceback.extract_stack())
        first = next((i for i, frame in enumerate(frames) if frame.name == "forward"), len(frames))
        chosen = [f for f in frames[first:] if not f.filename.startswith(_OWN_FOLDER)]
        if self._record_forward_stack_traces_only:
            chosen = [f for f in chosen if f.name == "forward"]
        return chosen

    def proxy(self, node: Node) -> Proxy:
        """Return a proxy for a node. Override it to use another class of proxies."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Record a call and return the proxy for its result; the arguments may be or hold proxies."""
        node = self.create_node(kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr)
        return proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)

    def create_arg(self, a: Any) -> Any:
        """Convert a value to a node's argument: proxies become their nodes. Override it for further types."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            parts = [self.create_arg(x) for x in a]
            return type(a)(*parts) if hasattr(a, "_fields") else type(a)(parts)
        if isinstance(a, list):
            return [self.create_arg(x) for x in a]
        if isinstance(a, dict):
            return {self._create_key(key): self.create_arg(value) for key, value in a.items()}
        if isinstance(a, (slice, range)):
            return type(a)(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if (
            isinstance(a, (*base_types, enum.Enum, OperatorFace))
            or a is None
            or a is ...
            or type(a).__name__ == "OpOverload"
        ):
            return a
        if is_dataclass(a) and not isinstance(a, type):
            kwargs = {field.name: self.create_arg(getattr(a, field.name)) for field in fields(a)}
            return self.create_node("call_function", type(a), (), kwargs)
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _create_key(self, key: Any) -> Any:
        if isinstance(key, str):
            return key

        def refuse_nodes(value: Any) -> Any:
            if isinstance(value, Node):
                raise RuntimeError(f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {value}")
            return value

        return map_aggregate(self.create_arg(key), refuse_nodes)

    def to_bool(self, obj: Proxy) -> bool:
        """Handle a truth test of a proxy: an error, unless overridden."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Handle iteration over a proxy: an error, unless overridden."""
        raise TraceError(
            "Proxy object cannot be iterated. This can be "
            "attempted when the Proxy is used in a loop or"
            " as a *args or **kwargs function argument. "
            "See the torch.fx docs on pytorch.org for a "
            "more detailed explanation of what types of "
            "control flow can be traced, and check out the"
            " Proxy docstring for help troubleshooting "
            "Proxy iteration errors"
        )

    def keys(self, obj: Proxy) -> Any:
        """Return the keys of a proxy that is unpacked by `**proxy`."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """A tracer that adds to an existing graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.scope = Scope("", None)
        self.module_stack = OrderedDict()
        self.node_name_to_scope = {}


def assert_fn(x: Any) -> None:
    """Check a condition: the function that a traced `assert` is recorded as."""
    if not x:
        raise AssertionError("Assertion failed")


def _instruction(frame: FrameType) -> tuple[list[dis.Instruction], int]:
    """Return the instructions of a frame's code, and the index of the current one."""
    found = list(dis.get_instructions(frame.f_code))
    return found, bisect_left([instruction.offset for instruction in found], frame.f_lasti)


def _is_assert(instructions: list[dis.Instruction], position: int) -> bool:
    """Return whether the jump at `position` is that of an `assert`."""
    if "POP_JUMP" not in instructions[position].opname or "TRUE" not in instructions[position].opname:
        return False
    after = instructions[position + 1]
    return after.opname == "LOAD_ASSERTION_ERROR" or (
        after.opname == "LOAD_GLOBAL" and after.argval == "AssertionError"
    )


class Proxy:
    """Represents a value while a program is traced. Operators, functions of `torch`, methods and attributes all work on it,
    and add nodes to the graph; what depends on its value (`if`, `for`, `len`) does not."""

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        overrides.register(type(self))
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    if TYPE_CHECKING:  # made below, as all operators are

        def __getitem__(self, key: Any) -> Proxy: ...

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Attribute:
        return Attribute(self, k)

    def __getstate__(self) -> dict:
        return self.__dict__

    def __setstate__(self, d: dict) -> None:
        self.__dict__ = d

    def __deepcopy__(self, memo: dict) -> Proxy:
        copied = object.__new__(Proxy)
        for name, value in vars(self).items():
            try:
                vars(copied)[name] = copy.deepcopy(value, memo)
            except Exception:  # such as a tracer that holds modules of the standard library
                vars(copied)[name] = copy.copy(value)
        return copied

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator:
        caller = sys._getframe(1)
        instructions, position = _instruction(caller)
        if instructions[position].opname == "UNPACK_SEQUENCE":  # a, b = proxy
            return (self[i] for i in range(instructions[position].argval))
        return self.tracer.iter(self)

    def __abs__(self) -> Any:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _is_assert(*_instruction(sys._getframe(1))):
            self.tracer.create_proxy("call_function", assert_fn, (self,), {})
            return True
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want "
            "this call to be recorded, please call torch.fx.wrap('len') at "
            "module scope"
        )

    @classmethod
    def __torch_function__(cls, orig_method: Any, types: Any, args: Any = None, kwargs: Any = None) -> Any:
        args, kwargs = args or (), kwargs or {}
        tracers = {id(a.tracer): a.tracer for a in tree_leaves((args, kwargs)) if isinstance(a, cls)}
        if len(tracers) > 1:
            raise RuntimeError(
                f"Found multiple different tracers {list(tracers.values())} while trying to trace operations {orig_method}"
            )
        (tracer,) = tracers.values()
        method: str = orig_method.__name__
        if hasattr(orig_method, "owner") and hasattr(orig_method, "inlined_graph"):  # a method of a compiled module
            return tracer.create_proxy("call_method", method, (orig_method.owner, *args), kwargs)
        if home_of(orig_method) is None and getattr(Tensor, method, None) is orig_method:
            return tracer.create_proxy("call_method", method, args, kwargs)
        args, kwargs = spelled(orig_method, args, kwargs)
        name = tracer.graph._target_to_str(function_name(orig_method))
        return tracer.create_proxy("call_function", orig_method, args, kwargs, name=name)


class Attribute(Proxy):
    """The value of `proxy.name`: recorded as a call of `getattr` or, if it is called, as a method call."""

    def __init__(self, root: Proxy, attr: str) -> None:
        overrides.register(type(self))
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:  # only where it is no method
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A proxy of a parameter with a known shape."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Parameter) -> None:
        super().__init__(node, tracer)
        if not isinstance(param, Parameter):
            raise AssertionError(f"Expected Parameter, got {type(param)}")
        self.param, self.name = param, name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        return self.param.shape

    def size(self) -> Any:
        return self.param.size()

    def dim(self) -> int:
        return self.param.dim()

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def numel(self) -> int:
        return self.param.numel()

    def nelement(self) -> int:
        return self.param.nelement()


def _define_operator(name: str) -> None:
    target: Any = getattr(operator, name, None)
    if target is None:  # `div`, which Python 2 had
        return

    def method(self: Proxy, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (self, *args), kwargs)

    def reflected(self: Proxy, rhs: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (rhs, self), {})

    setattr(Proxy, f"__{name.strip('_')}__", method)
    if name in reflectable_magic_methods:
        setattr(Proxy, f"__r{name.strip('_')}__", reflected)


for _name in magic_methods:
    _define_operator(_name)
