"""Writing of exported programs as JSON."""

from __future__ import annotations

import operator
from typing import Any

from ..core.device import device
from ..core.dtype import dtype
from ..core.layout import layout, memory_format
from ..core.tensor import Tensor
from ..fx.graph import Graph
from ..fx.node import Node
from ..library.aten.overloads import OpOverload
from ..library.higher_order import HigherOrderOperator
from ..library.operator import OperatorFace
from ..torch_version import TORCH_VERSION
from . import treespecs
from .exported_program import ExportedProgram
from .graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, OutputSpec
from .tensors import size_entry, tensor_meta

_SCHEMA_VERSION = {"major": 8, "minor": 20}
_ARITHMETIC = ("a", "b")


class Writer:
    """Writes one program."""

    def __init__(self, ep: ExportedProgram, opset_version: dict[str, int] | None = None) -> None:
        self.ep, self.opset = ep, opset_version or {"aten": 10}
        self.tensors: dict[str, Any] = {}
        self.sym_ints: dict[str, Any] = {}

    def program(self) -> dict[str, Any]:
        ep = self.ep
        return {
            "graph_module": self._graph_module(),
            "opset_version": self.opset,
            "range_constraints": {
                s.name: {"min_val": r.lower, "max_val": r.upper} for s, r in ep.range_constraints.items()
            },
            "schema_version": _SCHEMA_VERSION,
            "verifiers": [str(v) for v in ep.verifiers],
            "torch_version": TORCH_VERSION,
            "guards_code": [],
        }

    def _graph_module(self) -> dict[str, Any]:
        ep = self.ep
        constants = {s.arg.name: s.arg for s in ep.graph_signature.input_specs if isinstance(s.arg, ConstantArgument)}
        return {
            "graph": self._graph(ep.graph, constants),
            "signature": {
                "input_specs": [self._input_spec(s) for s in ep.graph_signature.input_specs],
                "output_specs": [self._output_spec(s) for s in ep.graph_signature.output_specs],
            },
            "module_call_graph": [self._call_entry(entry) for entry in ep.module_call_graph],
            "metadata": {},
            "treespec_namedtuple_fields": {},
        }

    def _call_entry(self, entry: Any) -> dict[str, Any]:
        signature = entry.signature
        if signature is None:
            return {"fqn": entry.fqn, "signature": None}
        return {
            "fqn": entry.fqn,
            "signature": {
                "inputs": [],
                "outputs": [],
                "in_spec": treespecs.dumps(signature.in_spec),
                "out_spec": treespecs.dumps(signature.out_spec),
                "forward_arg_names": signature.forward_arg_names,
            },
        }

    # -- nodes --

    def _graph(self, graph: Graph, constants: dict[str, ConstantArgument]) -> dict[str, Any]:
        nodes: list[dict[str, Any]] = []
        inputs: list[Any] = []
        outputs: list[Any] = []
        for node in graph.nodes:
            self._note_value(node)
            if node.op == "placeholder":
                inputs.append(self._value(constants[node.name].value) if node.name in constants else self._value(node))
            elif node.op == "output":
                outputs = [self._value(value) for value in node.args[0]]
            elif node.op != "get_attr" and (node.target is not operator.getitem or "symbolic" in node.meta):
                nodes.append(self._node(node))
        return {
            "inputs": inputs,
            "outputs": outputs,
            "nodes": nodes,
            "tensor_values": self.tensors,
            "sym_int_values": self.sym_ints,
            "sym_bool_values": {},
            "sym_float_values": {},
            "is_single_tensor_return": False,
            "custom_obj_values": {},
        }

    def _note_value(self, node: Node) -> None:
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            self.tensors[node.name] = tensor_meta(value, node.meta.get("sizes"), node.meta.get("strides"))
        elif "symbolic" in node.meta:
            self.sym_ints[node.name] = size_entry(node.meta["symbolic"])

    def _node(self, node: Node) -> dict[str, Any]:
        return {
            "target": self._target(node),
            "inputs": self._arguments(node),
            "outputs": self._results(node),
            "metadata": self._metadata(node),
            "is_hop_single_tensor_return": False if isinstance(node.target, HigherOrderOperator) else None,
            "name": node.name,
        }

    def _target(self, node: Node) -> str:
        if isinstance(node.target, OpOverload):
            return f"torch.ops.{node.target}"
        if isinstance(node.target, OperatorFace):
            return f"torch.ops.{node.target}.default"
        if isinstance(node.target, HigherOrderOperator):
            return f"torch.ops.higher_order.{node.target}"
        if getattr(node.target, "__module__", "") == "_operator":
            return f"_operator.{node.target.__name__}"
        raise NotImplementedError(f"a file of an exported program cannot hold a call of {node.target}")

    def _arguments(self, node: Node) -> list[dict[str, Any]]:
        if isinstance(node.target, HigherOrderOperator):
            return [{"name": "", "arg": self._value(a, "Tensor[]"), "kind": 1} for a in node.args]
        if not isinstance(node.target, (OpOverload, OperatorFace)):
            return [{"name": n, "arg": self._value(a), "kind": 1} for n, a in zip(_ARITHMETIC, node.args)]
        arguments = node.target._schema.arguments
        found = [
            {"name": a.name, "arg": self._value(value, a.type), "kind": 1} for a, value in zip(arguments, node.args)
        ]
        types = {a.name: a.type for a in arguments}
        return found + [{"name": k, "arg": self._value(v, types[k]), "kind": 2} for k, v in node.kwargs.items()]

    def _results(self, node: Node) -> list[dict[str, Any]]:
        if "symbolic" in node.meta:
            return [{"as_sym_int": {"as_name": node.name}}]
        if isinstance(node.target, HigherOrderOperator):
            return [{"as_tensor": {"name": name}} for name in self._items(node)]
        returns = node.target._schema.returns
        if len(returns) == 1 and "[]" not in returns[0].type:
            return [{"as_tensor": {"name": node.name}}]
        if not returns:
            return []
        items = self._items(node)
        if len(returns) == 1:
            return [{"as_tensors": [{"name": name} for name in items]}]
        return [{"as_tensor": {"name": name}} for name in items]

    def _items(self, node: Node) -> list[str]:
        """Return the names of a node's items; an unused item gets a new name."""
        values = node.meta["val"]
        names = [f"{node.name}_unused_{i}" for i in range(len(values))]
        for user in node.users:
            if user.target is operator.getitem:
                names[user.args[1]] = user.name
        for name, value in zip(names, values):
            if name not in self.tensors:
                self.tensors[name] = tensor_meta(value)
        return names

    def _metadata(self, node: Node) -> dict[str, str]:
        found: dict[str, str] = {}
        if node.stack_trace:
            found["stack_trace"] = node.stack_trace
        stack = node.meta.get("nn_module_stack")
        if stack:
            found["nn_module_stack"] = ";".join(f"{key},{path},{kind}" for key, (path, kind) in stack.items())
        if node.meta.get("torch_fn"):
            found["torch_fn"] = ";".join(node.meta["torch_fn"])
        return found

    # -- values --

    def _value(self, value: Any, kind: str = "") -> dict[str, Any]:
        if isinstance(value, Node):
            if value.op == "get_attr":
                return {"as_graph": {"name": value.target, "graph": self._branch(value)}}
            return (
                {"as_sym_int": {"as_name": value.name}}
                if "symbolic" in value.meta
                else {"as_tensor": {"name": value.name}}
            )
        if isinstance(value, (list, tuple)):
            return self._list(list(value), kind)
        for cls, key, convert in _SCALARS:
            if isinstance(value, cls):
                return {key: convert(value)}
        raise NotImplementedError(f"a file of an exported program cannot hold a {type(value).__name__}")

    def _branch(self, node: Node) -> dict[str, Any]:
        """Return the graph in an attribute of the program's module in the form of the file."""
        inner = Writer(self.ep)
        owner = node.graph.owning_module
        assert owner is not None
        return inner._graph(getattr(owner, str(node.target)).graph, {})

    def _list(self, values: list[Any], kind: str) -> dict[str, Any]:
        nodes = [v for v in values if isinstance(v, Node)]
        if nodes and "symbolic" in nodes[0].meta:
            return {"as_sym_ints": [{"as_name": v.name} if isinstance(v, Node) else {"as_int": v} for v in values]}
        if nodes or kind.startswith("Tensor"):
            if any(v is None for v in values):
                return {
                    "as_optional_tensors": [
                        {"as_none": True} if v is None else {"as_tensor": {"name": v.name}} for v in values
                    ]
                }
            return {"as_tensors": [{"name": v.name} for v in values]}
        for cls, key in ((bool, "as_bools"), (int, "as_ints"), (float, "as_floats"), (str, "as_strings")):
            if values and all(isinstance(v, cls) for v in values):
                return {key: values}
        if all(isinstance(v, (int, float)) for v in values) and values:
            return {"as_floats": [float(v) for v in values]}
        return {"as_floats" if kind.startswith("float") else "as_ints": values}

    def _input_spec(self, spec: InputSpec) -> dict[str, Any]:
        if spec.kind is InputKind.USER_INPUT:
            constant = isinstance(spec.arg, ConstantArgument)
            if constant:
                return {"constant_input": {"name": spec.arg.name, "value": self._value(spec.arg.value)}}
            return {"user_input": {"arg": {"as_tensor": {"name": spec.arg.name}}}}
        argument = {"name": spec.arg.name}
        if spec.kind is InputKind.PARAMETER:
            return {"parameter": {"arg": argument, "parameter_name": spec.target}}
        if spec.kind is InputKind.BUFFER:
            return {"buffer": {"arg": argument, "buffer_name": spec.target, "persistent": spec.persistent}}
        if spec.kind is InputKind.CONSTANT_TENSOR:
            return {"tensor_constant": {"arg": argument, "tensor_constant_name": spec.target}}
        raise NotImplementedError(f"a file of an exported program with an input of the kind {spec.kind.name}")

    def _output_spec(self, spec: OutputSpec) -> dict[str, Any]:
        if spec.kind is OutputKind.USER_OUTPUT:
            if isinstance(spec.arg, ConstantArgument):
                return {"user_output": {"arg": self._value(spec.arg.value)}}
            node = next(n for n in self.ep.graph.nodes if n.name == spec.arg.name)
            return {"user_output": {"arg": self._value(node)}}
        argument = {"name": spec.arg.name}
        if spec.kind is OutputKind.BUFFER_MUTATION:
            return {"buffer_mutation": {"arg": argument, "buffer_name": spec.target}}
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            return {"user_input_mutation": {"arg": argument, "user_input_name": spec.target}}
        raise NotImplementedError(f"a file of an exported program with an output of the kind {spec.kind.name}")


def _none(value: Any) -> bool:
    return True


def _same(value: Any) -> Any:
    return value


def _device(value: device) -> dict[str, Any]:
    return {"type": value.type, "index": value.index}


_PT2 = operator.attrgetter("pt2")
_SCALARS: tuple[tuple[Any, str, Any], ...] = (
    (type(None), "as_none", _none),
    (bool, "as_bool", _same),
    (int, "as_int", _same),
    (float, "as_float", _same),
    (str, "as_string", _same),
    (dtype, "as_scalar_type", _PT2),
    (device, "as_device", _device),
    (layout, "as_layout", _PT2),
    (memory_format, "as_memory_format", _PT2),
)
