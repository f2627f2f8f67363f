"""Exported programs (torch.export) as ONNX graphs."""

from __future__ import annotations

import operator
import re
from itertools import zip_longest
from typing import Any

import flambeau

from ..core.tensor import Tensor
from ..fx.node import Node, map_arg
from ..library.aten import OpOverload
from ..library.aten.translation import DataDependent
from ..utils import _pytree as pytree
from ..utils.progress import Progress
from . import functions
from .builder import Builder, Value
from .converter import Converter, Described, Slot, unknown
from .recorded import HOUSE, OneCall, Recorded, RecordedParts
from .registry import form_of
from .serialize import as_output

_PROGRESS_INTERVAL = 500  # nodes: models with more show how far they are
_NUMBERS = ("SymInt", "Scalar")  # types of results that are no tensors
_SIZES = {
    operator.add: "Add", operator.sub: "Sub", operator.mul: "Mul", operator.floordiv: "Div", operator.mod: "Mod",
    min: "Min", max: "Max",
}  # fmt: skip


def operator_of(target: Any) -> Any:
    """Return the operator whose overload a node calls."""
    return getattr(target, "overloadpacket", target)


class ProgramReader:
    """Converter of an exported program's nodes to ONNX."""

    def __init__(
        self, program: Any, builder: Builder, table: dict[Any, Any] | None = None, words: dict[str, str] | None = None
    ) -> None:
        self.program, self.g, self.words = program, builder, words or {}
        self.converter = Converter(builder, table)
        self.known: dict[Node, Any] = {}
        self.apart = False  # whether operators that nothing translates are still to be taken apart

    def run(self) -> None:
        self.walk()
        self.converter.finish()

    def walk(self) -> None:
        signature = self.program.graph_signature
        self.kinds = {spec.arg.name: spec for spec in signature.input_specs}
        nodes = list(self.program.graph.nodes)
        for node in Progress(nodes, "writing ONNX nodes") if len(nodes) > _PROGRESS_INTERVAL else nodes:
            getattr(self, node.op)(node)

    def placeholder(self, node: Node) -> None:
        spec: Any = self.kinds.get(node.name)
        kind = spec.kind.name if spec is not None else "USER_INPUT"
        about = self.described(node.meta)
        if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            target = spec.target
            tensor = self.program.state_dict.get(target)
            tensor = self.program.constants[target] if tensor is None else tensor
            value = Value(target, tensor.dtype, tuple(tensor.shape))
            self.g.graph.parameters[target] = (value, tensor)
            self.known[node] = Slot(value)
        elif about is None:  # a number that the program was exported with
            self.known[node] = node.meta.get("val", getattr(spec.arg, "value", None))
        else:
            value = Value(self.input_name(node), about.dtype, about.shape)
            self.g.graph.inputs.append(value)
            self.known[node] = Slot(value)

    def described(self, meta: dict[str, Any]) -> Any:
        """Return the dtype and shape that the export recorded for a node's result (a list for several results), or None."""
        value = meta.get("val")
        if isinstance(value, Tensor):
            return Described(value.dtype, tuple(map(self._size, meta.get("sizes") or value.shape)))
        if isinstance(value, (list, tuple)):
            return [Described(v.dtype, None) if isinstance(v, Tensor) else None for v in value]
        return None

    def _size(self, size: Any) -> Any:
        """Return an int, or the text of a size's expression, in which symbols have the user's names."""
        known = size is None or isinstance(size, int)
        return size if known else re.sub(r"s\d+", lambda found: self.words.get(found[0], found[0]), str(size))

    def input_name(self, node: Node) -> str:
        return node.name

    def output_name(self, node: Any, number: int) -> str:
        return node.name if isinstance(node, Node) else f"output_{number}"

    def _convert_argument(self, thing: Any) -> Any:
        if isinstance(thing, Node):
            return self.known[thing]
        if isinstance(thing, (list, tuple)):
            return [self._convert_argument(t) for t in thing]
        return thing

    def get_attr(self, node: Node) -> None:
        found: Any = self.program.graph_module
        for part in node.target.split("."):
            found = getattr(found, part)
        self.known[node] = Slot(self.g.value(found)) if isinstance(found, Tensor) else found

    def call_function(self, node: Node) -> None:
        target, args = node.target, self._convert_argument(node.args)
        with self.g.inside(_scope(node)):
            if target is operator.getitem:
                many = args[0] if isinstance(args[0], list) else None  # none where the call has no form
                self.known[node] = Slot(unknown(self.described(node.meta))) if many is None else many[args[1]]
                if isinstance(self.known[node], Slot):
                    self.converter._describe(self.known[node].value, self.described(node.meta))
            elif target in _SIZES:
                a, b = (self.converter.plain(x) for x in args)
                self.known[node] = self.g.arithmetic(_SIZES[target], a, b)
            elif str(target).startswith("aten._assert"):  # what the program promises; there is no such node
                self.known[node] = None
            elif hasattr(target, "_schema"):
                self.known[node] = self._operator(
                    node, target, args, {k: self._convert_argument(v) for k, v in node.kwargs.items()}
                )
                self._name(node)
            else:
                self.converter.missing.setdefault((str(target), ""), _place(node))

    def _name(self, node: Node) -> None:
        """Name a node's value, and the ONNX node that produces it, after the node of the exported graph."""
        made = self.known[node]
        producer = made.value.producer if isinstance(made, Slot) else None
        if producer is not None and not producer.name and producer.op_type != "Constant":
            producer.name = f"node_{node.name}"
            made.value.label = node.name

    def _operator(self, node: Node, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        schema = target._schema
        arguments: dict[str, Any] = {}
        form = form_of(schema.name)
        for i, argument in enumerate(schema.arguments):
            if i < len(args):
                arguments[argument.name] = args[i]
            elif argument.name in kwargs:
                arguments[argument.name] = kwargs[argument.name]
            elif form is None or argument.name in form.wanted:
                default = getattr(argument, "default_value", None)
                if default is not None:
                    arguments[argument.name] = default
        result = in_parts(self, target, arguments, self._examples(node, arguments)) if self.apart else NotImplemented
        if result is NotImplemented:
            result = self.converter.call(schema, arguments, self.described(node.meta), _place(node), target)
        number = len(schema.returns) == 1 and str(schema.returns[0].type) in _NUMBERS
        return result.value if number and isinstance(result, Slot) else result

    def _examples(self, node: Node, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a node's call with example tensors of the recorded shapes and dtypes."""
        given = map_arg((node.args, node.kwargs), lambda n: _example(n.meta.get("val")))
        names = [a.name for a in node.target._schema.arguments]
        return {**arguments, **dict(zip(names, given[0])), **given[1]}

    def output(self, node: Node) -> None:
        for number, thing in enumerate(pytree.tree_leaves(node.args[0])):
            taken = self._convert_argument(thing)
            if taken is None:
                continue
            value = self.converter.current(taken) if isinstance(taken, Slot) else self.g.value(taken)
            as_output(self.g, value, self.output_name(thing, number))


def _example(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_example(v) for v in value]
    return flambeau.ones(value.shape, dtype=value.dtype) if isinstance(value, Tensor) else value


def in_parts(reader: Any, overload: Any, arguments: dict[str, Any], examples: dict[str, Any]) -> Any:
    """Write a call without a translation as the calls it consists of; return NotImplemented if that is not possible, or if numbers that the
    program computes would become constants."""
    if not isinstance(overload, OpOverload) or functions.parts(overload) is None:
        return NotImplemented
    slots, (leaves, spec) = pytree.tree_leaves(arguments), pytree.tree_flatten(examples)
    if any(isinstance(s, Slot) != isinstance(e, Tensor) or isinstance(s, Value) for s, e in zip_longest(slots, leaves)):
        return NotImplemented
    given = [slot for slot in slots if isinstance(slot, Slot)]
    try:
        recorded = RecordedParts(OneCall(overload, leaves, spec), tuple(e for e in leaves if isinstance(e, Tensor)), {})
    except (NotImplementedError, DataDependent):
        return NotImplemented
    return PartsReader(recorded, reader, given).results()


class PartsReader(ProgramReader):
    """Converts the recorded parts of one call into the graph of another reader."""

    def __init__(self, recorded: Recorded, outer: Any, given: list[Slot]) -> None:
        super().__init__(recorded, outer.g)
        self.converter, self.given = outer.converter, iter(given)
        known = all(isinstance(n, int) for slot in given for n in slot.value.shape or (None,))
        for node in () if known else recorded.graph.nodes:  # of the example's sizes, none is known to stay
            if isinstance(node.meta.get("val"), Tensor):
                node.meta["sizes"] = [None] * node.meta["val"].dim()

    def placeholder(self, node: Node) -> None:
        constant = self.program.constants.get(self.kinds[node.name].target)
        self.known[node] = next(self.given) if constant is None else Slot(self.g.value(constant))

    def output(self, node: Node) -> None:
        self.returned = self._convert_argument(node.args[0])

    def results(self) -> Any:
        self.walk()
        found = pytree.tree_unflatten(self.returned, self.program.out_spec)
        return list(found) if isinstance(found, tuple) else found

    def _name(self, node: Node) -> None:
        """Do nothing: parts have no names of their own; the last one is named after the call."""


def _scope(node: Node) -> str:
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    return list(stack.values())[-1][0]


def _place(node: Node) -> str:
    """Return the user's line that makes the call: the innermost one outside of this library."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    frames = [" ".join(lines[i : i + 2]) for i, line in enumerate(lines) if line.startswith("File ")]
    own = [frame for frame in frames if not frame.startswith(f'File "{HOUSE}')]
    return (own or frames or [""])[-1]
