"""Modules whose forward is the generated code of a graph."""

from __future__ import annotations

import contextlib
import copy
import itertools
import linecache
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .. import nn
from ..core import naming
from ..core.tensor import Tensor
from ..nn import Module, Parameter
from ..serialization import save
from .codegen import PythonCode, _BoxedCodeGen, _custom_builtins
from .graph import Graph
from .node import Node
from .pytree_codegen import _PyTreeCodeGen
from .source_code import _format_import_block, _forward_from_src, _resolve_imports

__all__ = ["GraphModule", "reduce_graph_module", "reduce_package_graph_module"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_KEPT_BY_COPIES = (
    "_state_dict_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_replace_hooks", "_create_node_hooks",
    "_erase_node_hooks", "_deepcopy_hooks",
)  # fmt: skip


def reduce_graph_module(body: dict[str, Any], import_block: str) -> Module:
    """Rebuild a pickled GraphModule: execute its code to define its forward, then trace that."""
    source = body.get("_code") or body["code"]
    lines = (import_block + source).split("\n")
    last = max((i for i, line in enumerate(lines) if re.match(r"(import|from) |NoneType =", line)), default=-1)
    values = _resolve_imports("\n".join(lines[: last + 1]))
    return _deserialize_graph_module(_forward_from_src("\n".join(lines[last + 1 :]), values), body)


def reduce_package_graph_module(importer: Any, body: dict[str, Any], generated_module_name: str) -> Module:
    """Rebuild a GraphModule of a `torch.package` archive."""
    return _deserialize_graph_module(importer.import_module(generated_module_name).forward, body)


class _CodeOnlyModule(Module):
    """A module with given contents and, in subclasses, a given forward."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def _deserialize_graph_module(
    forward: Callable, body: dict[str, Any], graph_module_cls: type | None = None
) -> GraphModule:
    tracer_cls: Any = body.get("_tracer_cls") or naming.above("fx._symbolic_trace").Tracer

    class KeepModules(tracer_cls):
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    class WithForward(_CodeOnlyModule):
        pass

    WithForward.forward = forward
    module = WithForward(body)
    graph = KeepModules().trace(module, **body.get("_tracer_extras", {}))
    graph._tracer_cls = tracer_cls
    traces = body.pop("_graphmodule_graph_node_meta_stack_trace", None) or {}
    for node in graph.nodes:
        if traces.get(node.name) is not None:
            node.meta["stack_trace"] = traces[node.name]
    made = (graph_module_cls or GraphModule)(module, graph, body.get("_graphmodule_cls_name", "GraphModule"))
    for name, value in body.items():
        if not hasattr(made, name):
            setattr(made, name, value)
    return made


# -- attributes by path ---------------------------------------------------------------------------------------------------


def _install(owner: Module, name: str, value: Any) -> None:
    """Set an attribute; a plain tensor becomes a buffer."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        owner.register_buffer(name, value)
    else:
        setattr(owner, name, value)


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Copy the attribute at a path to the same path of another module, creating empty modules on the way."""
    *prefix, field = target.split(".")
    for item in prefix:
        source, present = getattr(from_module, item), getattr(to_module, item, None)
        if source is present:  # a parent is installed already, and with it all it has
            return
        if present is None:
            present = Module()
            setattr(to_module, item, present)
        from_module, to_module = source, present
    _install(to_module, field, getattr(from_module, field))


def _assign_attr(from_obj: Any, to_module: Module, target: str) -> None:
    """Install a value at a path, creating empty modules on the way."""
    *prefix, field = target.split(".")
    for item in prefix:
        present = getattr(to_module, item, None)
        if present is None:
            present = Module()
            setattr(to_module, item, present)
        to_module = present
    _install(to_module, field, from_obj)


def _get_attr(model: Module, attr_name: str) -> Any:
    """Return the attribute of a module at a dotted path."""
    value: Any = model
    for item in attr_name.split("."):
        value = getattr(value, item)
    return value


def _has_attr(model: Module, attr_name: str) -> bool:
    try:
        _get_attr(model, attr_name)
    except AttributeError:
        return False
    return True


# -- the module -----------------------------------------------------------------------------------------------------------


def _explain_frame(frame: traceback.FrameSummary) -> str:
    """Return the traceback of an error in generated code, with the lines around it."""
    lines = linecache.getlines(frame.filename)
    number = frame.lineno or 0
    return "\n".join(
        [
            traceback.format_exc(),
            f"Call using an FX-traced Module, line {number} of the traced Module's generated forward function:",
            "".join(lines[number - 2 : number]),
            "~" * len(frame.line or "") + "~~~ <--- HERE",
            "\n".join(lines[number : number + 2]),
        ]
    )


_PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class _WrappedCall:
    """Callable that runs a module and prints the generated code around an error in it."""

    def __init__(self, cls: type, cls_call: Callable | None) -> None:
        self.cls, self.cls_call = cls, cls_call

    def __call__(self, obj: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if self.cls_call is not None:
                return self.cls_call(obj, *args, **kwargs)
            return super(self.cls, obj).__call__(*args, **kwargs)  # type: ignore[arg-type]
        except Exception as problem:
            frames = traceback.StackSummary.extract(traceback.walk_tb(problem.__traceback__))
            innermost = [f for f in frames if not f.filename.startswith(_PACKAGE_FOLDER)][-1:]
            if not innermost or "eval_with_key" not in innermost[0].filename:
                raise
            print(_explain_frame(innermost[0]), file=sys.stderr)
            raise problem.with_traceback(None)  # noqa: B904


class GraphModule(Module):
    """A module that runs a graph.

    `root`, a module or a dict of values by path, has the attributes that the graph refers to. After changing `graph`, call `recompile()`.
    `code` is the generated Python."""

    _graph: Graph
    __jit_unused_properties__ = ["graph", "_boxed_call"]

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        # Each instance has its own forward, and therefore its own class.
        public = next(t for t in cls.__mro__ if t.__qualname__.split(".")[-1] != "GraphModuleImpl")

        class GraphModuleImpl(public):  # type: ignore[misc, valid-type]
            pass

        return super().__new__(GraphModuleImpl)

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        targets = [node.target for node in graph.nodes if node.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self._take_from_module(root, targets)
        elif isinstance(root, dict):
            self._take_from_dict(root, graph)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self._tracer_cls = None
        self.graph = graph
        if graph._tracer_cls and "<locals>" not in graph._tracer_cls.__qualname__:
            self._tracer_cls = graph._tracer_cls
        self._tracer_extras = graph._tracer_extras or {}
        self.meta: dict[str, Any] = {}
        self._replace_hooks: list[Callable] = []
        self._create_node_hooks: list[Callable] = []
        self._erase_node_hooks: list[Callable] = []
        self._deepcopy_hooks: list[Callable] = []
        self.shape_env = None

    def _take_from_module(self, root: Module, targets: list[str]) -> None:
        self.training = getattr(root, "training", self.training)
        if isinstance(root, _CodeOnlyModule):  # a copy of a GraphModule: nothing may be lost
            for name, _ in itertools.chain(root.named_children(), root.named_buffers(), root.named_parameters()):
                _copy_attr(root, self, name)
        for target in targets:
            _copy_attr(root, self, target)

    def _take_from_dict(self, root: dict[str, Any], graph: Graph) -> None:
        targets = []
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                if node.target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} but that target was not provided in ``root``!"
                    )
                targets.append(node.target)
        for target in sorted(targets, key=lambda t: t.count(".")):  # parents first: they would hide their children
            _assign_attr(root[target], self, target)

    @property
    def _boxed_call(self) -> bool:
        return isinstance(self._graph._codegen, _BoxedCodeGen)

    @property
    def graph(self) -> Graph:
        """The graph this module runs."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The Python source that was generated from the graph."""
        if not hasattr(self, "_code"):
            raise RuntimeError("the code has not been generated yet: call recompile()")
        return self._code

    def recompile(self) -> PythonCode:
        """Generate the code from the graph again; call it after changing the graph."""
        if isinstance(self._graph._codegen, _PyTreeCodeGen):
            info = self._graph._codegen.pytree_info
            self._in_spec, self._out_spec = info.in_spec, info.out_spec
        written = self._graph.python_code(root_module="self")
        self._code = written.src
        self._lineno_map, self._prologue_start = written._lineno_map, written._prologue_start
        cls: Any = type(self)
        cls.forward = _forward_from_src(self._code, written.globals, self._graph._co_fields)
        own_call = vars(cls).get("__call__")
        if "_wrapped_call" not in vars(cls):
            cls._wrapped_call = _WrappedCall(cls, own_call)
        for child in self.children():
            if isinstance(child, GraphModule):
                child.recompile()

        def call_wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            return self._wrapped_call(self, *args, **kwargs)

        cls.__call__ = call_wrapped
        return written

    # -- submodules --

    def add_submodule(self, target: str, m: Module) -> bool:
        """Install a module at a path, with empty modules for missing parents. Returns whether that was possible."""
        *prefix, field = target.split(".")
        owner: Module = self
        for item in prefix:
            found = getattr(owner, item, None)
            if found is None:
                found = Module()
                setattr(owner, item, found)
            if not isinstance(found, Module):
                return False
            owner = found
        owner.add_module(field, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Delete the module at a path. Returns whether there was one."""
        *prefix, field = target.split(".")
        owner: Any = self
        for item in prefix:
            owner = getattr(owner, item, None)
            if not isinstance(owner, Module):
                return False
        if not isinstance(getattr(owner, field, None), Module):
            return False
        delattr(owner, field)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Delete the modules that the graph does not use."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            used.update(itertools.accumulate(node.target.split("."), lambda x, y: f"{x}.{y}"))
            if node.op == "call_module" and _has_attr(self, node.target):
                inner = self.get_submodule(node.target).named_modules()
                used.update(f"{node.target}.{name}" for name, _ in inner if name)
        for name in [name for name, _ in self.named_modules() if name not in used]:
            self.delete_submodule(name)

    # -- copies and files --

    def __reduce__(self) -> tuple:
        body = dict(vars(self))
        written = self.recompile()
        body["_code"] = self._code
        del body["_graph"]
        return reduce_graph_module, (body, _format_import_block(written.globals))

    def _deepcopy_init(self) -> Callable[..., None]:
        return GraphModule.__init__

    def __deepcopy__(self, memo: dict) -> GraphModule:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        body = _CodeOnlyModule(copy.deepcopy(vars(self), memo))
        self._deepcopy_init()(copied, body, vars(body)["_graph"])
        for name in _KEPT_BY_COPIES:
            if name in vars(self):
                setattr(copied, name, copy.deepcopy(vars(self)[name], memo))
        copied.meta = copy.deepcopy(getattr(self, "meta", {}), memo)
        for name, value in copied.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {}).items():
            setattr(copied, name, value)
        for hook in getattr(self, "_deepcopy_hooks", ()):
            hook(copied)
        return copied

    def __copy__(self) -> GraphModule:
        copied = GraphModule(self, self.graph)
        copied.meta = getattr(self, "meta", {})
        return copied

    def _replicate_for_data_parallel(self) -> GraphModule:
        copied = self.__copy__()
        object.__setattr__(copied, "_is_replica", True)
        return copied

    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Write the module as a Python package: its code, and its parameters as files."""
        place = Path(folder)
        place.mkdir(exist_ok=True)
        save(self.state_dict(), place / "state_dict.pt")
        lines = ["", "import torch", *(b.import_str for b in _custom_builtins.values()), "", "from torch.nn import *"]
        lines += [f"class {module_name}(torch.nn.Module):", "    def __init__(self):", "        super().__init__()"]
        for name, child in self.named_children():
            lines.append(f"        setattr(self, '{name}', {self._child_expression(place, name, child)})")
        for name, buffer in self._buffers.items():
            if buffer is not None:
                empty = f"torch.empty({list(buffer.shape)}, dtype={buffer.dtype})"
                lines.append(f"        self.register_buffer('{name}', {empty})")
        for name, parameter in self._parameters.items():
            if parameter is not None:
                empty = f"torch.empty({list(parameter.shape)}, dtype={parameter.dtype})"
                lines.append(f"        setattr(self, '{name}', torch.nn.Parameter({empty}))")
        lines.append(f"        self.load_state_dict(torch.load(r'{place}/state_dict.pt'))")
        lines += ["    " + line for line in self.code.splitlines()]
        (place / "module.py").write_text("\n".join(lines) + "\n")
        (place / "__init__.py").write_text("from .module import *\n")

    @staticmethod
    def _child_expression(place: Path, name: str, child: Module) -> str:
        """Return an expression that creates the child; modules whose repr is no such expression are saved in a file."""
        if type(child) in (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
            return repr(child)
        file = place / f"{name}.pt"
        save(child, file)
        shown = " ".join(repr(child).split())
        return f"torch.load(r'{file}', weights_only=False)) # ({shown}"

    # -- text --

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        *,
        fast_sympy_print: bool = False,
        expanded_def: bool = False,
        additional_meta: list[str] | None = None,
    ) -> str:
        """Return, and by default print, the code of this module and its graph submodules, with known shapes and source locations."""
        options = {
            "include_stride": include_stride,
            "include_device": include_device,
            "colored": colored,
            "additional_meta": additional_meta,
        }
        text = _readable(self, self._get_name(), options, expanded_def)
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        reminder = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__str__(), self._code, reminder])

    # -- hooks --

    @contextlib.contextmanager
    def _set_replace_hook(self, f: Callable[[Node, str, Node], Any]) -> Iterator[None]:
        if not callable(f):
            raise AssertionError("Replace hook must be a callable.")
        self._register_replace_node_hook(f)
        try:
            yield
        finally:
            self._unregister_replace_node_hook(f)

    def _register_replace_node_hook(self, f: Callable) -> None:
        self._replace_hooks.append(_check_hook(f, "create_node"))

    def _unregister_replace_node_hook(self, f: Callable) -> None:
        self._replace_hooks.remove(_check_hook(f, "create_node"))

    def _register_create_node_hook(self, f: Callable) -> None:
        self._create_node_hooks.append(_check_hook(f, "create_node"))

    def _unregister_create_node_hook(self, f: Callable) -> None:
        self._create_node_hooks.remove(_check_hook(f, "create_node"))

    def _register_erase_node_hook(self, f: Callable) -> None:
        self._erase_node_hooks.append(_check_hook(f, "erase_node"))

    def _unregister_erase_node_hook(self, f: Callable) -> None:
        self._erase_node_hooks.remove(_check_hook(f, "erase_node"))

    def _register_deepcopy_hook(self, f: Callable) -> None:
        self._deepcopy_hooks.append(_check_hook(f, "deepcopy"))

    def _unregister_deepcopy_hook(self, f: Callable) -> None:
        self._deepcopy_hooks.remove(_check_hook(f, "deepcopy"))


def _check_hook(hook: Callable, kind: str) -> Callable:
    if not callable(hook):
        raise AssertionError(f"{kind} hook must be a callable.")
    return hook


def _indent(text: str, by: int) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * by + line if line.strip() else "" for line in rest)]) if rest else text


def _readable(module: GraphModule, name: str, options: dict[str, Any], expanded_def: bool = False) -> str:
    source = module.graph.python_code(root_module="self", verbose=True, expanded_def=expanded_def, **options).src
    code = _indent(f"class {name}(torch.nn.Module):\n" + source.lstrip("\n"), 4)
    children = [_readable(c, n, options) for n, c in module.named_children() if isinstance(c, GraphModule)]
    return code + _indent("\n".join(["", *children]), 4)
