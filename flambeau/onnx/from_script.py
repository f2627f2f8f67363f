"""Compiled programs (TorchScript) as ONNX graphs, with their branches and loops.

Each value of the program is followed twice: as its value in the ONNX graph, and as its result for the example inputs. The example provides
dtypes and ranks, which TorchScript does not know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import flambeau

from ..core.tensor import Tensor
from ..jit import operators
from ..jit.interpreter import _schema_of
from ..jit.ir import Block, Node
from ..jit.ir import Value as ScriptValue
from ..jit.ir_values import constant_of
from ..jit.types import ClassType, FunctionType
from .builder import Builder, Value
from .converter import Converter, Described, Slot
from .errors import OnnxExporterError
from .from_export import in_parts
from .registry import operator_named

_NONE = object()  # what a branch that was not taken would have given


class Pair:
    """A value of the program: its value in the graph, and its result for the example inputs."""

    __slots__ = ("example", "name", "thing")

    def __init__(self, thing: Any, example: Any, name: str = "") -> None:
        self.thing, self.example, self.name = thing, example, name


class Raises(Exception):
    """Raised when a block of the program ends by raising: such a block has no ONNX form and is not taken."""


def _shadow(example: Any) -> Any:
    if isinstance(example, Tensor):
        return Described(example.dtype, (None,) * example.dim() if example.dim() else ())
    if isinstance(example, (list, tuple)):
        return [_shadow(e) for e in example]
    return None


class ScriptReader:
    """Converts a compiled program's nodes to ONNX."""

    def __init__(self, builder: Builder) -> None:
        self.g = builder
        self.converter = Converter(builder)

    def run(
        self, graph: Any, module: Any, inputs: list[Any], defaults: list[Any], axes: list[dict[int, str]]
    ) -> list[Any]:
        """Write the graph's nodes, and return its results: for example inputs, and the defaults of the parameters after them. `axes` are the
        names of sizes that may change, for each leaf of the inputs."""
        words = iter(axes)
        known: dict[ScriptValue, Pair] = {}
        values = list(graph.inputs_)
        if module is not None:
            known[values.pop(0)] = Pair(("", module), module)
        for value, example in zip(values, inputs):
            known[value] = Pair(self._input(value.name, example, words), example)
        known.update((value, Pair(given, given)) for value, given in zip(values[len(inputs) :], defaults))
        self.block(graph, known)
        self.converter.finish()
        return [Pair(known[v].thing, None, v.name if v.has_name() else "") for v in graph.outputs_]

    def _input(self, name: str, example: Any, words: Iterator[dict[int, str]]) -> Any:
        if isinstance(example, (list, tuple)):
            return [self._input(f"{name}.{i}", e, words) for i, e in enumerate(example)]
        changing = next(words)
        shape: tuple[Any, ...] = ()
        if isinstance(example, bool):
            dtype = flambeau.bool
        elif isinstance(example, int):
            dtype = flambeau.int64
        elif isinstance(example, float):
            dtype = flambeau.float32
        elif isinstance(example, Tensor):
            dtype, shape = example.dtype, tuple(changing.get(i, n) for i, n in enumerate(example.shape))
        else:
            return example
        value = Value(name, dtype, shape)
        self.g.graph.inputs.append(value)
        return Slot(value)

    # -- blocks ----------------------------------------------------------------------------------------------------------------------
    def block(self, block: Block, known: dict[ScriptValue, Pair]) -> None:
        for node in block.nodes_:
            self.node(node, known)

    def node(self, node: Node, known: dict[ScriptValue, Pair]) -> None:
        kind = node.kind_.replace("::", "_")
        pairs = [known[v] for v in node.inputs_]
        special = getattr(self, kind, None)
        results = (
            special(node, pairs, known) if special is not None else self._results(node, self.operator(node, pairs))
        )
        known.update(zip(node.outputs_, results))

    def _results(self, node: Node, made: Pair) -> list[Pair]:
        """Return the results of an operator, of which there may be several."""
        return [made] if len(node.outputs_) == 1 else [Pair(t, e) for t, e in zip(made.thing, made.example)]

    def prim_Constant(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:  # noqa: N802
        value = constant_of(node.outputs_[0])[1]
        return [Pair(Slot(self.g.value(value)) if isinstance(value, Tensor) else value, value)]

    def prim_GetAttr(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:  # noqa: N802
        path, owner = pairs[0].thing
        name = node.attributes["name"]
        found = getattr(owner, name) if hasattr(owner, name) else owner._slot(name)
        full = f"{path}.{name}" if path else name
        if isinstance(found, Tensor):
            parameters = self.g.graph.parameters
            if full not in parameters:
                parameters[full] = (Value(full, found.dtype, tuple(found.shape)), found)
            return [Pair(Slot(parameters[full][0]), found)]
        if isinstance(found, flambeau.nn.Module):
            return [Pair((full, found), found)]
        return [Pair(found, found)]

    def prim_CallMethod(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:  # noqa: N802
        kind = node.inputs_[0].type
        method = kind.find_method(node.attributes["name"]) if isinstance(kind, ClassType) else None
        if method is None:
            raise OnnxExporterError(f"the call of {node.attributes['name']} cannot be exported")
        with self.g.inside(pairs[0].thing[0]):
            return self._inline_call(method.graph, pairs)

    def prim_CallFunction(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:  # noqa: N802
        kind = node.inputs_[0].type
        assert isinstance(kind, FunctionType)
        return self._inline_call(kind.function.graph, pairs[1:])

    def _inline_call(self, graph: Any, pairs: list[Pair]) -> list[Pair]:
        inner = dict(zip(graph.inputs_, pairs))
        self.block(graph, inner)
        return [inner[v] for v in graph.outputs_]

    # -- containers ---------------------------------------------------------------------------------------------------------------------
    def prim_ListConstruct(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:  # noqa: N802
        return [Pair([p.thing for p in pairs], [p.example for p in pairs])]

    def prim_TupleConstruct(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:  # noqa: N802
        return [Pair(tuple(p.thing for p in pairs), tuple(p.example for p in pairs))]

    def prim_ListUnpack(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:  # noqa: N802
        return [Pair(t, e) for t, e in zip(pairs[0].thing, pairs[0].example)]

    prim_TupleUnpack = prim_ListUnpack  # noqa: N815

    def prim_TupleIndex(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:  # noqa: N802
        at = pairs[1].example
        return [Pair(pairs[0].thing[at], pairs[0].example[at])]

    def aten___getitem__(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:
        if isinstance(pairs[1].thing, Slot):
            raise OnnxExporterError("a list or dict indexed by a number that the program computes cannot be exported")
        return self.prim_TupleIndex(node, pairs, known)

    def prim_DictConstruct(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:  # noqa: N802
        things = {k.example: v.thing for k, v in zip(pairs[0::2], pairs[1::2])}
        return [Pair(things, {k.example: v.example for k, v in zip(pairs[0::2], pairs[1::2])})]

    def aten_append(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:
        pairs[0].thing.append(pairs[1].thing)
        pairs[0].example.append(pairs[1].example)
        return [pairs[0]]

    def aten_add_(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:
        if not isinstance(pairs[0].thing, list):
            return [self.operator(node, pairs)]
        pairs[0].thing.extend(pairs[1].thing)
        pairs[0].example.extend(pairs[1].example)
        return [pairs[0]]

    def aten_len(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:
        if isinstance(pairs[0].thing, Slot):
            value = self.g.size(self.converter.current(pairs[0].thing), 0)
            return [Pair(Slot(value) if isinstance(value, Value) else value, len(pairs[0].example))]
        return [Pair(len(pairs[0].thing), len(pairs[0].example))]

    def aten___is__(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:
        same = pairs[0].example is pairs[1].example
        return [Pair(same, same)]

    def aten___isnot__(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:
        other = pairs[0].example is not pairs[1].example
        return [Pair(other, other)]

    # -- the same value -------------------------------------------------------------------------------------------------------------------
    def _pass_through(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:
        return [pairs[0]]

    prim_unchecked_cast = prim_unchecked_unwrap_optional = aten__unwrap_optional = prim_data = _pass_through  # noqa: N815
    prim_NumToTensor = prim_profile = prim_AnnotateType = _pass_through  # noqa: N815

    def prim_Uninitialized(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:  # noqa: N802
        return [Pair(None, None)]

    def prim_RaiseException(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:  # noqa: N802
        raise Raises

    def prim_Print(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:  # noqa: N802
        return []

    # -- branches and loops ------------------------------------------------------------------------------------------------------------------
    def prim_If(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:  # noqa: N802
        condition = pairs[0]
        if not isinstance(condition.thing, Slot):
            return self._branch(node.blocks_[0 if condition.thing else 1], known)
        taken = 0 if condition.example else 1
        branches: list[tuple[Builder, list[Pair]] | None] = [None, None]
        for i in (taken, 1 - taken):
            inner = self.g.inner("then_branch" if i == 0 else "else_branch")
            try:
                branches[i] = (inner, self._inside(inner, lambda b=node.blocks_[i]: self._branch(b, known)))
            except Raises:
                continue
        if branches[0] is None or branches[1] is None:  # an assertion: the branch that does not raise continues
            return self._branch(node.blocks_[1 if branches[0] is None else 0], known)
        for inner, results in branches:  # type: ignore[misc]
            self._add_outputs(inner, results)
        graphs = {f"{word}_branch": b[0].graph for word, b in zip(("then", "else"), branches) if b is not None}
        made = self.g.op("If", self.converter.current(condition.thing), outputs=max(len(node.outputs_), 1), **graphs)
        values = [made] if len(node.outputs_) == 1 else list(made)
        found = branches[taken][1]  # type: ignore[index]
        return [self._as_pair(value, pair) for value, pair in zip(values, found)]

    def _branch(self, block: Block, known: dict[ScriptValue, Pair]) -> list[Pair]:
        inner = dict(known)
        self.block(block, inner)
        return [inner[v] for v in block.outputs_]

    def _inside(self, inner: Builder, run: Any) -> list[Pair]:
        """Run `run` with its nodes written into an inner graph."""
        outer, changes = self.g, len(self.converter.changed)
        self.g = self.converter.g = inner
        try:
            found = run()
        finally:
            self.g = self.converter.g = outer
        if len(self.converter.changed) != changes:
            raise OnnxExporterError(
                "a branch or loop that changes a tensor in place cannot be exported: write x = x + 1, not x += 1"
            )
        return found

    def _add_outputs(self, inner: Builder, pairs: list[Pair]) -> None:
        for pair in pairs:
            value = self._value(inner, pair)
            inner.graph.outputs.append(inner.op("Identity", value).known(value.dtype, value.shape))

    def _value(self, g: Builder, pair: Pair) -> Value:
        if isinstance(pair.thing, Slot):
            return self.converter.current(pair.thing)
        if isinstance(pair.thing, (bool, int, float)):
            return g.value(pair.thing)
        raise OnnxExporterError(
            f"a branch or loop that gives {type(pair.example).__name__} cannot be exported: only tensors and numbers can"
        )

    def _as_pair(self, value: Value, pair: Pair) -> Pair:
        example = pair.example
        if isinstance(example, Tensor):
            value.known(example.dtype, (None,) * example.dim())
        else:
            value.known(_number_dtype(example), ())
        return Pair(Slot(value), example)

    def prim_Loop(self, node: Node, pairs: list[Pair], known: dict) -> list[Pair]:  # noqa: N802
        count, condition, carried = pairs[0], pairs[1], pairs[2:]
        body = node.blocks_[0]
        endless = not isinstance(count.thing, Slot) and count.thing >= 2**31 - 1
        if not isinstance(count.thing, Slot) and not isinstance(condition.thing, Slot) and not endless:
            simple = all(isinstance(p.thing, Slot) for p in carried)
            if not simple or not carried or _uses_lists(body, known):
                return self._unroll_loop(body, count.thing, condition, carried, known)
        if _uses_lists(body, known) or any(isinstance(p.thing, (list, dict)) for p in carried):
            raise OnnxExporterError(
                "a loop over a list, or one that fills it, as often as a tensor says cannot be exported"
            )
        inner = self.g.inner("body")
        step, going = Value("", flambeau.int64, ()), Value("", flambeau.bool, ())
        starts = [self._as_pair(Value(), p) for p in carried]
        inner.graph.inputs = [step, going, *(p.thing.value for p in starts)]

        def run() -> list[Pair]:
            inside = dict(known)
            inside.update(zip(body.inputs_, [Pair(Slot(step), 0), *starts]))
            self.block(body, inside)
            return [inside[v] for v in body.outputs_]

        results = self._inside(inner, run)
        self._add_outputs(inner, results)
        trips = None if endless else self._value(self.g, count)
        made = self.g.op(
            "Loop", trips, self._value(self.g, condition), *(self._value(self.g, p) for p in carried), body=inner.graph,
            outputs=max(len(carried), 1),
        )  # fmt: skip
        values = [made] if len(carried) == 1 else list(made)
        return [self._as_pair(value, pair) for value, pair in zip(values, results[1:])]

    def _unroll_loop(self, body: Block, count: int, condition: Pair, carried: list[Pair], known: dict) -> list[Pair]:
        for i in range(count):
            if not condition.thing:
                break
            inside = dict(known)
            inside.update(zip(body.inputs_, [Pair(i, i), *carried]))
            self.block(body, inside)
            condition, *carried = [inside[v] for v in body.outputs_]
            if isinstance(condition.thing, Slot):
                raise OnnxExporterError("a loop over Python values that ends by a tensor's value cannot be exported")
        return carried

    # -- operators ---------------------------------------------------------------------------------------------------------------------------
    def operator(self, node: Node, pairs: list[Pair]) -> Pair:
        schema = node.schema_ or _schema_of(node)
        example = self._example(schema, pairs)
        if not any(holds_slots(p.thing) for p in pairs):
            if example is _NONE:
                raise OnnxExporterError(f"{node.kind_} cannot be computed while exporting")
            return Pair(example if not isinstance(example, Tensor) else Slot(self.g.value(example)), example)
        if node.kind_.startswith("prim::") and not isinstance(example, Tensor):
            if node.kind_ in ("prim::min", "prim::max") and len(pairs) == 2:
                return Pair(Slot(self._number(node.kind_[6:], pairs)), example)
            return Pair(example, example)  # device, dtype, is_cuda, ...
        arguments = self._arguments(schema, pairs)
        if "b" in arguments and "a" in arguments:  # operators of numbers
            return Pair(self._of_numbers(node, arguments, example), example)
        if schema.overload_name == "Scalar" and any(
            isinstance(p.thing, Slot) and a.type.kind() == "NumberType" for a, p in zip(schema.arguments, pairs)
        ):
            schema = operator_named(schema.name).Tensor._schema  # a number that the program computes is a tensor here
        place = node.range.highlight().strip() if node.range is not None else ""
        overload = getattr(operator_named(schema.name), schema.overload_name or "default", None)
        examples = {n: p.example if holds_slots(p.thing) else arguments[n] for n, p in zip(arguments, pairs)}
        made = in_parts(self, overload, arguments, examples)
        if made is NotImplemented:
            made = self.converter.call(schema, arguments, _shadow(example), place)
        return Pair(Slot(made) if isinstance(made, Value) else made, example)

    def _arguments(self, schema: Any, pairs: list[Pair]) -> dict[str, Any]:
        arguments = {}
        for argument, pair in zip(schema.arguments, pairs):
            convert = operators._converter(argument.type)
            plain = convert is not None and not isinstance(pair.thing, Slot)
            arguments[argument.name] = convert(pair.thing) if plain else pair.thing  # type: ignore[misc]
        return arguments

    def _of_numbers(self, node: Node, arguments: dict[str, Any], example: Any) -> Any:
        """Convert an operator on numbers that the program computes to the tensor operator of that name; lists are concatenated."""
        if isinstance(arguments["a"], list):
            return arguments["a"] + arguments["b"]
        packet = operator_named({"aten::floordiv": "aten::floor_divide"}.get(node.kind_, node.kind_))
        schema = getattr(packet, "Tensor", packet.default)._schema
        given = {"self": arguments["a"], "other": arguments["b"]}
        return self.converter.call(schema, given, Described(_number_dtype(example), ()))

    def _number(self, word: str, pairs: list[Pair]) -> Value:
        a, b = (self._value(self.g, p) for p in pairs)
        first = self.g.op("Less" if word == "min" else "Greater", a, b).known(flambeau.bool, ())
        return self.g.op("Where", first, a, b).known(a.dtype, ())

    def _example(self, schema: Any, pairs: list[Pair]) -> Any:
        """Return the operator's result for the example inputs."""
        run: Any = operators.find(schema.key) or operators.implementation(schema)
        examples = [
            p.example.clone() if isinstance(p.example, Tensor) and schema.is_mutable else p.example for p in pairs
        ]
        with flambeau.no_grad():
            return run(*examples)


def _number_dtype(example: Any) -> Any:
    return {bool: flambeau.bool, int: flambeau.int64}.get(type(example), flambeau.float32)


def holds_slots(thing: Any) -> bool:
    if isinstance(thing, (list, tuple)):
        return any(holds_slots(t) for t in thing)
    if isinstance(thing, dict):
        return any(holds_slots(t) for t in thing.values())
    return isinstance(thing, (Slot, Value))


_OF_LISTS = ("aten::append", "aten::__getitem__", "aten::add_")


def _uses_lists(block: Block, known: dict[ScriptValue, Pair]) -> bool:
    """Return whether a loop reads or fills a list or dict from outside."""
    return any(
        n.kind_ in _OF_LISTS and n.inputs_[0] in known and isinstance(known[n.inputs_[0]].thing, (list, dict))
        or any(_uses_lists(b, known) for b in n.blocks_)
        for n in block.nodes_
    )  # fmt: skip


def has_control_flow(block: Block) -> bool:
    """Return whether a compiled program has branches or loops."""
    return any(
        n.kind_ in ("prim::If", "prim::Loop") or any(has_control_flow(b) for b in n.blocks_) for n in block.nodes_
    )
