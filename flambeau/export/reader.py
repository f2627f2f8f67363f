"""Reading of exported programs from JSON."""

from __future__ import annotations

import functools
import keyword
import operator
import re
from collections import OrderedDict
from typing import Any

import flambeau

from ..core.dtype import RECORDS
from ..core.layout import LAYOUTS, MEMORY_FORMATS
from ..fx.graph import Graph
from ..fx.graph_module import GraphModule
from ..fx.node import Node
from ..library.aten import OpOverload, aten
from ..library.higher_order import HigherOrderOperator, cond_op
from ..library.operator import OperatorFace
from ..nn import Module
from ..ops import OPS
from . import expressions, treespecs
from .exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature, ValueRange
from .graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from .symbols import Expression, Symbol
from .tensors import meta_tensor, of_number

_ARITHMETIC = {
    "add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "neg", "pos", "eq", "ne", "lt", "le", "gt", "ge",
    "getitem",
}  # fmt: skip


def _target(name: Any) -> Any:
    """Return the operator that a node of the file names; raises ValueError for anything else than an operator."""
    if not isinstance(name, str):
        raise ValueError(f"a node of the exported program calls {str(name)[:80]!r}, which is no name of an operator")
    if name.startswith("torch.ops.aten."):
        packet, _, overload = name[len("torch.ops.aten.") :].partition(".")
        found = getattr(getattr(aten, packet, None), overload, None)
        if isinstance(found, OpOverload):
            return found
    if name == "torch.ops.higher_order.cond":
        return cond_op
    if name.startswith("torch.ops.") and name.count(".") == 4:  # an operator of a user's, if it is declared
        found = OPS.get("::".join(name.split(".")[2:4]))
        if found is not None and isinstance(found.function, OperatorFace) and name.endswith(".default"):
            return found.function
    if name.startswith("_operator.") and name[len("_operator.") :] in _ARITHMETIC:
        return getattr(operator, name[len("_operator.") :])
    raise NotImplementedError(f"the exported program calls {name[:80]}, which is not in Flambeau")


def _check_choice(args: tuple, kwargs: dict[str, Any]) -> None:
    """Raise unless a conditional from a file has a tensor, two branches and operands, since nothing else may be called."""
    fetched = [isinstance(a, Node) and a.op == "get_attr" for a in args[1:3]]
    if (
        len(args) != 4
        or kwargs
        or fetched != [True, True]
        or not isinstance(args[0], Node)
        or not isinstance(args[3], list)
    ):
        raise ValueError("a choice in the exported program is damaged")


def _identifier(name: Any) -> str:
    """Return a name of the file if it is a valid identifier; otherwise raise, because it is put into generated code."""
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"{str(name)[:80]!r} is no name")
    return name


def _path(name: Any) -> str:
    """Return a parameter's path for generated code, in quotes if it is not a name."""
    if not isinstance(name, str) or not re.fullmatch(r"[\w\-]+(\.[\w\-]+)*", name):
        raise ValueError(f"{str(name)[:80]!r} is no path of a parameter")
    return name


class Reader:
    """Reads one program."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        major = data["schema_version"]["major"]
        if major != 8:
            raise ValueError(f"the file is written in version {major} of the format; 8 is known")
        self.module = data["graph_module"]
        self.written = self.module["graph"]
        self.graph = Graph()
        self.nodes: dict[str, Node] = {}
        self.symbols: dict[str, Symbol] = {}
        self.branches = Module()

    def program(self, weights: dict[str, Any], constants: dict[str, Any], example: Any) -> ExportedProgram:
        self._read_symbols()
        specs = self.module["signature"]["input_specs"]
        for entry, spec in zip(self.written["inputs"], specs):
            self._placeholder(entry, spec)
        for node in self.written["nodes"]:
            self._node(node)
        self.graph.output(tuple(self._value(v) for v in self.written["outputs"]))
        signature = ExportGraphSignature(
            [self._input_spec(s) for s in specs],
            [self._output_spec(s) for s in self.module["signature"]["output_specs"]],
        )
        ranges = {
            self._symbol(name): ValueRange(bounds["min_val"] or 0, bounds["max_val"])
            for name, bounds in self.data["range_constraints"].items()
        }
        entries = [self._call_entry(e) for e in self.module["module_call_graph"]]
        return ExportedProgram(
            self.branches,
            self.graph,
            signature,
            weights,
            ranges,
            entries,
            example,
            constants,
            verifiers=self.data["verifiers"],
        )

    def _symbol(self, name: str) -> Symbol:
        return self.symbols.setdefault(name, Symbol(name, 2))

    def _read_symbols(self) -> None:
        """Read the symbols and the sizes they had, from sizes that are a single symbol."""
        metas = [m for name, m in self.written["tensor_values"].items()]
        entries = [s for meta in metas for s in meta["sizes"]] + list(self.written["sym_int_values"].values())
        for entry in sorted((e["as_expr"] for e in entries if "as_expr" in e), key=lambda e: len(e["expr_str"])):
            expressions.read(entry["expr_str"], entry["hint"]["as_int"], self.symbols)

    def _size(self, entry: dict[str, Any]) -> Any:
        if "as_int" in entry:
            return entry["as_int"]
        found = expressions.read(entry["as_expr"]["expr_str"], entry["as_expr"]["hint"]["as_int"], self.symbols)
        return found if found is not None else entry["as_expr"]["hint"]["as_int"]

    # -- nodes --

    def _describe(self, node: Node) -> None:
        meta = self.written["tensor_values"].get(node.name)
        if meta is not None:
            node.meta["val"] = meta_tensor(meta)
            sizes = [self._size(s) for s in meta["sizes"]]
            if any(isinstance(s, Expression) for s in sizes):
                node.meta["sizes"] = sizes
                node.meta["strides"] = [self._size(s) for s in meta["strides"]]
        elif node.name in self.written["sym_int_values"]:
            value = self._size(self.written["sym_int_values"][node.name])
            node.meta["val"] = value.hint if isinstance(value, Expression) else value
            node.meta["symbolic"] = value if isinstance(value, Expression) else Expression(value)

    def _named(self, name: str, node: Node) -> Node:
        _identifier(name)
        if node.name != name:  # also where Python has a function of that name
            if name in self.nodes:
                raise ValueError(f"two values of the program are called {name}")
            node.name = name
            self.graph._graph_namespace._rename_object(node, name)
        self.nodes[name] = node
        self._describe(node)
        return node

    def _placeholder(self, entry: dict[str, Any], spec: dict[str, Any]) -> None:
        if "constant_input" in spec:
            name = _identifier(spec["constant_input"]["name"])
            node = self._named(name, self.graph.placeholder(name))
            node.meta["val"] = self._value(spec["constant_input"]["value"])
            return
        ((kind, value),) = entry.items()
        if kind == "as_tensor":
            name = value["name"]
        elif kind == "as_sym_int" and "as_name" in value:
            name = value["as_name"]
        else:
            name = f"arg_{len(self.nodes)}"
        self._named(name, self.graph.placeholder(_identifier(name)))

    def _node(self, entry: dict[str, Any]) -> None:
        target = _target(entry["target"])
        args = tuple(self._value(i["arg"]) for i in entry["inputs"] if i.get("kind", 1) != 2)
        kwargs = {_identifier(i["name"]): self._value(i["arg"]) for i in entry["inputs"] if i.get("kind", 1) == 2}
        node = self.graph.create_node("call_function", target, args, kwargs, entry.get("name"))
        self._metadata(node, entry["metadata"])
        outputs = entry["outputs"]
        several = isinstance(target, HigherOrderOperator)
        if several:
            _check_choice(args, kwargs)
        if len(outputs) == 1 and "as_tensors" not in outputs[0] and not several:
            ((kind, value),) = outputs[0].items()
            self._named(value["name"] if kind == "as_tensor" else value["as_name"], node)
            return
        grouped = len(outputs) == 1 and "as_tensors" in outputs[0]
        items = outputs[0]["as_tensors"] if grouped else [o.get("as_tensor") for o in outputs]
        values = []
        for position, item in enumerate(items):
            got = self.graph.call_function(operator.getitem, (node, position))
            got.meta.update(node.meta)
            if item is not None:
                self._named(item["name"], got)
            values.append(got.meta.get("val"))
        node.meta["val"] = values if outputs else None

    @staticmethod
    def _metadata(node: Node, data: dict[str, str]) -> None:
        if data.get("stack_trace"):
            node.meta["stack_trace"] = data["stack_trace"]
        if data.get("torch_fn"):
            node.meta["torch_fn"] = tuple(data["torch_fn"].split(";"))
        stack: OrderedDict[str, tuple[str, str]] = OrderedDict()
        for piece in (data.get("nn_module_stack") or "").split(";"):
            parts = piece.split(",")
            if len(parts) == 3 and not parts[0].startswith("_empty"):
                stack[parts[0]] = (parts[1], parts[2])
        if stack:
            node.meta["nn_module_stack"] = stack

    def _value(self, entry: dict[str, Any]) -> Any:
        ((kind, value),) = entry.items()
        if kind == "as_tensor":
            return self.nodes[value["name"]]
        if kind == "as_tensors":
            return [self.nodes[v["name"]] for v in value]
        if kind in ("as_sym_int", "as_sym_bool", "as_sym_float"):
            return self._symbolic(value)
        if kind in ("as_sym_ints", "as_sym_bools", "as_sym_floats"):
            return [self._symbolic(v) for v in value]
        if kind == "as_optional_tensors":
            return [self._value(v) for v in value]
        if kind == "as_optional_tensor":
            return self._value(value)
        if kind == "as_none":
            return None
        if kind == "as_graph":
            return self._branch(value)
        if kind in ("as_int", "as_float", "as_bool", "as_string", "as_ints", "as_floats", "as_bools", "as_strings"):
            return self._plain(value)
        if kind in _CONVERTERS:
            return _CONVERTERS[kind](value)
        raise NotImplementedError(f"the exported program has an argument of the kind {kind[:40]}")

    def _branch(self, value: dict[str, Any]) -> Node:
        """Make a nested graph a module, and return the node that reads it."""
        name, inner = _identifier(value["name"]), Reader(self.data)
        if hasattr(self.branches, name):
            raise ValueError(f"two branches of the program are called {name}")
        inner.written, inner.symbols = value["graph"], self.symbols
        inner._read_symbols()
        for entry in inner.written["inputs"]:
            inner._placeholder(entry, {})
        for node in inner.written["nodes"]:
            inner._node(node)
        inner.graph.output(tuple(inner._value(v) for v in inner.written["outputs"]))
        self.branches.add_module(name, GraphModule(inner.branches, inner.graph, "<lambda>"))
        fetched = self.graph.get_attr(name)
        self.nodes[name] = fetched
        return fetched

    @staticmethod
    def _plain(value: Any) -> Any:
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(v, (int, float, str)) for v in values):
            raise ValueError("an argument of a node is damaged")
        return value

    def _symbolic(self, value: dict[str, Any]) -> Any:
        return self.nodes[value["as_name"]] if "as_name" in value else self._plain(next(iter(value.values())))

    # -- signature --

    def _argument(self, entry: dict[str, Any]) -> Any:
        ((kind, value),) = entry.items()
        if kind == "as_tensor":
            return TensorArgument(value["name"])
        if kind == "as_sym_int" and "as_name" in value:
            return SymIntArgument(value["as_name"])
        return ConstantArgument("", self._value(entry))

    def _input_spec(self, entry: dict[str, Any]) -> InputSpec:
        ((kind, value),) = entry.items()
        if kind == "user_input":
            return InputSpec(InputKind.USER_INPUT, self._argument(value["arg"]), None)
        if kind == "constant_input":
            return InputSpec(InputKind.USER_INPUT, ConstantArgument(value["name"], self._value(value["value"])), None)
        argument = TensorArgument(value["arg"]["name"])
        if kind == "parameter":
            return InputSpec(InputKind.PARAMETER, argument, _path(value["parameter_name"]))
        if kind == "buffer":
            return InputSpec(InputKind.BUFFER, argument, _path(value["buffer_name"]), bool(value["persistent"]))
        if kind == "tensor_constant":
            return InputSpec(InputKind.CONSTANT_TENSOR, argument, _path(value["tensor_constant_name"]))
        raise NotImplementedError(f"the exported program has an input of the kind {kind[:40]}")

    def _output_spec(self, entry: dict[str, Any]) -> OutputSpec:
        ((kind, value),) = entry.items()
        if kind == "user_output":
            return OutputSpec(OutputKind.USER_OUTPUT, self._argument(value["arg"]), None)
        if kind == "buffer_mutation":
            return OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(value["arg"]["name"]), value["buffer_name"])
        if kind == "parameter_mutation":
            return OutputSpec(
                OutputKind.PARAMETER_MUTATION, TensorArgument(value["arg"]["name"]), value["parameter_name"]
            )
        if kind == "user_input_mutation":
            return OutputSpec(
                OutputKind.USER_INPUT_MUTATION, TensorArgument(value["arg"]["name"]), value["user_input_name"]
            )
        raise NotImplementedError(f"the exported program has an output of the kind {kind[:40]}")

    @staticmethod
    def _call_entry(entry: dict[str, Any]) -> ModuleCallEntry:
        signature = entry["signature"]
        if signature is None:
            return ModuleCallEntry(entry["fqn"])
        names = signature.get("forward_arg_names")
        in_spec = treespecs.loads(signature["in_spec"])
        if len(in_spec.children()) != 2 or in_spec.child(1).type is not dict:
            raise ValueError("the file's description of arguments is damaged")
        for name in (*(names or ()), *in_spec.child(1).context):
            _identifier(name)
        read = ModuleCallSignature([], [], in_spec, treespecs.loads(signature["out_spec"]), names)
        return ModuleCallEntry(entry["fqn"], read)


def _device(value: dict[str, Any]) -> Any:
    return (
        flambeau.device(value["type"], value["index"]) if value["index"] is not None else flambeau.device(value["type"])
    )


_CONVERTERS: dict[str, Any] = {
    "as_scalar_type": functools.partial(of_number, RECORDS),
    "as_layout": functools.partial(of_number, LAYOUTS),
    "as_memory_format": functools.partial(of_number, MEMORY_FORMATS),
    "as_device": _device,
}
