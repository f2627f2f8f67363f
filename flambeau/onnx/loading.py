"""ONNX files as modules that can be run, trained and exported again."""

from __future__ import annotations

import copy
import os
import warnings
from typing import Any

import flambeau

from ..core.tensor import Tensor
from ..nn import Module, Parameter
from .checking import InvalidFile, check_model
from .dtypes import DTYPE, NUMBER, tensor_of
from .errors import OnnxExporterError
from .nodes import NODES, Call, reference
from .serialize import onnx_package

_DOMAINS = ("", "ai.onnx")
_SIZES = 64  # integers up to so many are arguments of nodes


class UnsupportedNode(OnnxExporterError):
    """Raised when a node of the file has no counterpart here."""


def load(f: Any, *, trainable: bool = True) -> OnnxModule:
    """Return a module that computes the graph of an ONNX file `f` (a path, an open file or a ModelProto). Floating-point initializers
    become parameters (buffers if not `trainable`), under their names in the file, so that state dicts fit.

    >>> program = flambeau.onnx.export(flambeau.nn.ReLU(), (flambeau.ones(2),), "relu.onnx", dynamo=True, verbose=False)
    >>> flambeau.onnx.load("relu.onnx")(flambeau.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """
    onnx = onnx_package()
    if isinstance(f, onnx.ModelProto):
        return OnnxModule(f, trainable=trainable)
    given = isinstance(f, (bytes, bytearray))
    what = "the text" if given else str(f)
    try:
        if given:
            model = onnx.load_model_from_string(bytes(f))
        else:
            model = onnx.load_model(f if hasattr(f, "read") else os.fspath(f))
    except OSError:
        raise
    except Exception as error:
        raise InvalidFile(f"{what} is not an ONNX file, or is damaged: {error}") from error
    return OnnxModule(model, trainable=trainable)


class _Container(Module):
    """Container module for one part of a parameter's dotted name."""


class OnnxModule(Module):
    """Module that runs the graph of an ONNX file node by node; made by `flambeau.onnx.load`."""

    def __init__(self, model: Any, *, trainable: bool = True) -> None:
        super().__init__()
        check_model(model)
        self.__dict__["opsets"] = {o.domain if o.domain != "ai.onnx" else "": o.version for o in model.opset_import}
        self.__dict__["graph"] = Subgraph(model.graph, self.opsets, {(f.domain, f.name): f for f in model.functions})
        self.__dict__["paths"] = {}
        self.__dict__["name"] = model.graph.name
        arguments = {name for n in model.graph.node if n.op_type in ("Resize", "Upsample") for name in n.input[1:]}
        for name, value in self.graph.constants.items():
            if name not in arguments:
                self._register(name, value, trainable)
        self.input_names = [i.name for i in model.graph.input if i.name not in self.graph.constants]
        self.output_names = [o.name for o in model.graph.output]
        missing = sorted(self.graph.unsupported())
        if missing:
            raise UnsupportedNode(f"the file uses operators that have no counterpart here: {', '.join(missing)}")

    def _register(self, name: str, value: Any, trainable: bool) -> None:
        if not isinstance(value, Tensor) or (value.numel() <= _SIZES and not value.is_floating_point()):
            return  # sizes, axes and places are no state
        *path, last = name.split(".") if all(name.split(".")) else [name.replace(".", "_")]
        owner: Module = self
        for part in path:
            owner = owner._modules.get(part) or self._step(owner, part)
        if last in owner.__dict__ or last in owner._modules or last in owner._parameters or hasattr(type(owner), last):
            owner, last = self, "initializer_" + name.replace(".", "_")
        if value.is_floating_point() and trainable:
            owner.register_parameter(last, Parameter(value))
        else:
            owner.register_buffer(last, value)
        self.paths[name] = (owner, last)

    def _step(self, owner: Module, part: str) -> Module:
        made = _Container()
        owner.add_module(part if not hasattr(type(owner), part) else f"{part}_", made)
        return made

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) > len(self.input_names):
            raise TypeError(
                f"the model takes {len(self.input_names)} inputs ({', '.join(self.input_names)}), not {len(args)}"
            )
        known: dict[str, Any] = {name: getattr(owner, last) for name, (owner, last) in self.paths.items()}
        known.update({n: v for n, v in self.graph.constants.items() if n not in known})
        known.update(zip(self.input_names, args))
        for name, value in kwargs.items():
            if name not in self.input_names:
                raise TypeError(f"the model has no input {name!r}; its inputs are {', '.join(self.input_names)}")
            known[name] = value
        absent = [n for n in self.input_names if n not in known]
        if absent:
            raise TypeError(f"the inputs {', '.join(absent)} are missing")
        results = self.graph.run(known)
        return results[0] if len(results) == 1 else tuple(results)

    def extra_repr(self) -> str:
        return f"{self.name}: {len(self.graph.nodes)} nodes, {', '.join(self.input_names)} -> {', '.join(self.output_names)}"

    def __deepcopy__(self, memo: dict) -> OnnxModule:
        made = type(self).__new__(type(self))
        Module.__init__(made)
        memo[id(self)] = made
        for key in (
            "training",
            "_parameters",
            "_buffers",
            "_modules",
            "_non_persistent_buffers_set",
            "input_names",
            "output_names",
            "name",
        ):
            made.__dict__[key] = copy.deepcopy(self.__dict__[key], memo)
        made.__dict__.update(
            opsets=self.opsets,
            graph=self.graph,
            paths={n: (memo.get(id(o), made), a) for n, (o, a) in self.paths.items()},
        )
        return made


class Subgraph:
    """A graph of the file, prepared to run: its nodes in order, and its constants."""

    def __init__(self, graph: Any, opsets: dict[str, int], functions: dict[tuple[str, str], Any]) -> None:
        onnx = onnx_package()
        self.opsets, self.functions = opsets, functions
        self.inputs = [i.name for i in graph.input]
        self.outputs = [o.name for o in graph.output]
        self.constants: dict[str, Any] = {t.name: tensor_value(t) for t in graph.initializer}
        for sparse in graph.sparse_initializer:
            self.constants[sparse.values.name] = _from_sparse(sparse, onnx)
        self.nodes = [self._node(n) for n in graph.node]

    def _node(self, node: Any) -> _Step:
        return _Step(node, self)

    def unsupported(self) -> set[str]:
        found: set[str] = set()
        for step in self.nodes:
            found |= step.unsupported()
        return found

    def run(self, known: dict[str, Any]) -> list[Any]:
        for step in self.nodes:
            step.run(known)
        return [known[name] for name in self.outputs]

    def call(self, outer: dict[str, Any], args: list[Any]) -> list[Any]:
        """Run as the body of a loop or a branch, with access to the values around it."""
        known = dict(outer)
        known.update(self.constants)
        known.update(zip(self.inputs, args))
        return self.run(known)


class _Step:
    """A node of an ONNX graph, prepared to run: its function and its arguments."""

    def __init__(self, node: Any, owner: Subgraph) -> None:
        self.proto, self.owner = node, owner
        self.inputs, self.outputs = list(node.input), list(node.output)
        domain = "" if node.domain in _DOMAINS else node.domain
        self.kind = node.op_type if not domain else f"{domain}::{node.op_type}"
        self.call = Call(node.op_type, owner.opsets.get(domain, 1), len(self.outputs), domain)
        self.attributes = {a.name: self._attribute(a) for a in node.attribute}
        self.function = NODES.get(self.kind) if (node.domain, node.op_type) not in owner.functions else None
        if self.function is None and not self._has_body():
            self.function = reference(node, owner.opsets)
        self.body: Any = None

    def _attribute(self, attribute: Any) -> Any:
        onnx = onnx_package()
        kind = attribute.type
        if kind == onnx.AttributeProto.GRAPH:
            return Subgraph(attribute.g, self.owner.opsets, self.owner.functions)
        if kind == onnx.AttributeProto.TENSOR:
            return tensor_value(attribute.t)
        if kind == onnx.AttributeProto.SPARSE_TENSOR:
            return _from_sparse(attribute.sparse_tensor, onnx)
        if kind == onnx.AttributeProto.TYPE_PROTO:
            return attribute.tp
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode("utf-8", "surrogateescape")
        if kind == onnx.AttributeProto.STRINGS:
            return [v.decode("utf-8", "surrogateescape") for v in value]
        return list(value) if not isinstance(value, (int, float, str)) else value

    def unsupported(self) -> set[str]:
        found: set[str] = set()
        for value in self.attributes.values():
            if isinstance(value, Subgraph):
                found |= value.unsupported()
        if self.function is None and not self._has_body():
            found.add(self.kind)
        return found

    def _has_body(self) -> bool:
        """Return whether a node is defined by other nodes: in a function of the file, or by ONNX."""
        if (self.proto.domain, self.proto.op_type) in self.owner.functions:
            return True
        schema = _schema_of(self.proto, self.owner.opsets)
        return schema is not None and (schema.has_function or schema.has_context_dependent_function)

    def run(self, known: dict[str, Any]) -> None:
        args = [known[name] if name else None for name in self.inputs]
        if self.function is not None:
            self.call.known = known
            results = self.function(self.call, *args, **self.attributes)
        else:
            results = self._run_definition(args)
        results = results if isinstance(results, tuple) else (results,)
        known.update({name: value for name, value in zip(self.outputs, results) if name})

    def _run_definition(self, args: list[Any]) -> tuple:
        """Run a node that is defined by other nodes: a function of the file, or a composed operator of ONNX."""
        function = self.owner.functions.get((self.proto.domain, self.proto.op_type))
        if function is None:
            function = self._definition(args)
        if self.body is None or self.body[0] is not function:
            self.body = (function, _FunctionBody(function, self.proto, self.owner))
        return self.body[1].run(args)

    def _definition(self, args: list[Any]) -> Any:
        onnx = onnx_package()
        schema = _schema_of(self.proto, self.owner.opsets)
        if schema.has_function:
            return schema.function_body
        types = []
        for value in args:
            kind = onnx.TypeProto()
            if isinstance(value, Tensor):
                kind = onnx.helper.make_tensor_type_proto(NUMBER[value.dtype], list(value.shape))
            types.append(kind.SerializeToString())
        text = schema.get_context_dependent_function(self.proto.SerializeToString(), types)
        return onnx.FunctionProto.FromString(text)


def _schema_of(node: Any, opsets: dict[str, int]) -> Any:
    """Return ONNX's declaration of a node's operator, or None."""
    onnx = onnx_package()
    domain = "" if node.domain in _DOMAINS else node.domain
    try:
        return onnx.defs.get_schema(node.op_type, opsets.get(domain, 1), domain)
    except onnx.defs.SchemaError:
        return None


class _FunctionBody:
    """The nodes of a function, with the attributes of the calling node filled in."""

    def __init__(self, function: Any, caller: Any, owner: Subgraph) -> None:
        onnx = onnx_package()
        given = {a.name: a for a in caller.attribute}
        schema = _schema_of(caller, owner.opsets)
        defaults = {a.name: a.default_value for a in schema.attributes.values()} if schema is not None else {}
        defaults = {name: value for name, value in defaults.items() if value.name}
        defaults.update((a.name, a) for a in function.attribute_proto)
        opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in function.opset_import} or owner.opsets
        self.inputs, self.outputs = list(function.input), list(function.output)
        holder = onnx.GraphProto()
        for node in function.node:
            copied = onnx.NodeProto()
            copied.CopyFrom(node)
            _fill(copied, {**defaults, **given})
            holder.node.append(copied)
        holder.output.extend(onnx.ValueInfoProto(name=o) for o in function.output)
        self.graph = Subgraph(holder, {**owner.opsets, **opsets}, owner.functions)

    def run(self, args: list[Any]) -> tuple:
        known: dict[str, Any] = dict.fromkeys(self.inputs)
        known.update(zip(self.inputs, args))
        for step in self.graph.nodes:
            step.run(known)
        return tuple(known.get(o) for o in self.outputs)


def _fill(node: Any, given: dict[str, Any]) -> None:
    """Replace attributes that refer to the function's attributes by their values."""
    kept = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name in given:
                value = type(attribute)()
                value.CopyFrom(given[attribute.ref_attr_name])
                value.name = attribute.name
                kept.append(value)
            continue
        for inner in attribute.g.node:
            _fill(inner, given)
        kept.append(attribute)
    del node.attribute[:]
    node.attribute.extend(kept)


def tensor_value(proto: Any) -> Any:
    """Return a tensor of a file; a NumPy array if it holds strings."""
    onnx = onnx_package()
    if proto.data_type == onnx.TensorProto.STRING:
        return _array(proto, onnx).astype(object)
    if proto.data_type not in DTYPE:
        raise UnsupportedNode(f"tensors of type {onnx.TensorProto.DataType.Name(proto.data_type)} are not supported")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tensor_of(_array(proto, onnx))


def _array(proto: Any, onnx: Any) -> Any:
    """Return the values of a tensor of a file as a NumPy array."""
    if proto.data_location == onnx.TensorProto.EXTERNAL and not proto.HasField("raw_data"):
        where = next(
            (entry.value for entry in proto.external_data if entry.key == "location"), "a file that is not named"
        )
        raise InvalidFile(
            f"the values of the tensor {proto.name!r} are in another file ({where}), which was not read: load the model by its path"
        )
    try:
        return onnx.numpy_helper.to_array(proto)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidFile(f"the tensor {proto.name!r} of size {list(proto.dims)} is damaged: {error}") from error


def _from_sparse(sparse: Any, onnx: Any) -> Tensor:
    values, places = (tensor_of(_array(sparse.values, onnx)), tensor_of(_array(sparse.indices, onnx)))
    dense = flambeau.zeros(list(sparse.dims), dtype=values.dtype)
    flat = dense.view(-1)
    if places.dim() == 1:
        flat[places] = values
    else:
        dense[tuple(places.t())] = values
    return dense
