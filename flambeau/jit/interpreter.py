"""Interpretation of graphs: each node becomes a Python closure over numbered registers; arguments and results are checked by type."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..ops.machinery.matching import NoMatch, first_match
from . import operators
from .failures import Registers, Step, run_steps
from .instructions import SPECIAL
from .ir import Block, Graph, Node, Value
from .matching import Named, match_schema
from .schema import Schema, schemas_of
from .types import ListType

# -- programs ---------------------------------------------------------------------------------------------------------------


class Program:
    """A graph compiled to a list of closures, with a register for each value."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.slots: dict[Value, int] = {}
        self.template: Registers = []
        self.entered: int | None = None  # where the ways out of `with` statements are kept, if there are any
        for value in graph.inputs_:
            self.slot(value)
        self.steps = self.compile(graph)
        self.outputs = [self.slot(v) for v in graph.outputs_]

    def slot(self, value: Value) -> int:
        found = self.slots.get(value)
        if found is None:
            found = self.slots[value] = len(self.template)
            self.template.append(None)
        return found

    def run(self, arguments: Sequence[Any]) -> Any:
        registers = self.template.copy()
        registers[: len(arguments)] = arguments
        if self.entered is None:
            run_steps(self.steps, registers)
        else:
            self._run_with_contexts(registers, self.entered)
        outputs = self.outputs
        return registers[outputs[0]] if len(outputs) == 1 else tuple(registers[o] for o in outputs)

    def _run_with_contexts(self, registers: Registers, entered: int) -> None:
        """Run the steps; on any exit, leave the context managers that are still entered."""
        ways_out = registers[entered] = []
        try:
            run_steps(self.steps, registers)
        finally:
            while ways_out:
                ways_out.pop()(None, None, None)

    def contexts(self) -> int:
        """Return the slot that holds the stack of entered context managers."""
        if self.entered is None:
            self.entered = len(self.template)
            self.template.append(None)
        return self.entered

    def compile(self, block: Block) -> list[Step]:
        steps = []
        for node in block.nodes_:
            step = self.node(node)
            if step is not None:
                step.node = node  # type: ignore[attr-defined]
                steps.append(step)
        return steps

    def node(self, node: Node) -> Step | None:
        kind = node.kind_
        if kind == "prim::Constant":
            value = node.attributes.get("function", node.attributes.get("value"))
            self.template[self.slot(node.outputs_[0])] = value
            if isinstance(value, list):  # lists can be changed: every run gets its own
                place = self.slot(node.outputs_[0])
                return lambda r: r.__setitem__(place, list(value))
            return None
        ins = [self.slot(v) for v in node.inputs_]
        special = SPECIAL.get(kind)
        if special is not None:
            return special(self, node, ins)
        run = _operator(node)
        if len(node.outputs_) == 1:
            return _calling(run, ins, self.slot(node.outputs_[0]))
        outs = [self.slot(v) for v in node.outputs_]
        if not outs:

            def call(r: Registers) -> None:
                run(*[r[i] for i in ins])

            return call

        def call_several(r: Registers) -> None:
            for out, value in zip(outs, run(*[r[i] for i in ins])):
                r[out] = value

        return call_several


def _operator(node: Node) -> Callable:
    if node.schema_ is None:
        node.schema_ = _schema_of(node)
    schema = node.schema_
    run = None if schema is None else operators.find(schema.key) or operators.implementation(schema)
    if run is None:
        name = node.schema_.key if node.schema_ is not None else node.kind_

        def missing(*_: Any) -> Any:
            raise NotImplementedError(f"the operator {name} is not in Flambeau")

        return missing
    if node.outputs_ and isinstance(node.outputs_[0].type, ListType) and len(node.outputs_) == 1:
        inner = run
        return lambda *values: list(found) if isinstance(found := inner(*values), tuple) else found
    return run


def _schema_of(node: Node) -> Any:
    """Return the schema of the first overload that fits a node's inputs, preferably without conversions; None if there is none."""

    def fits(allow: bool, schema: Schema) -> Schema:
        if len(schema.arguments) != len(node.inputs_) and not schema.is_vararg:
            raise NoMatch
        named = [Named(v, None, a.name) for v, a in zip(node.inputs_, schema.arguments)]
        return match_schema(Graph(), None, [], named, None, allow, schema).schema

    overloads = schemas_of(node.kind_)
    return first_match(overloads, functools.partial(fits, False)) or first_match(
        overloads, functools.partial(fits, True)
    )


def _calling(run: Callable, ins: list[int], out: int) -> Step:
    if len(ins) == 1:
        (a,) = ins

        def one(r: Registers) -> None:
            r[out] = run(r[a])

        return one
    if len(ins) == 2:
        a, b = ins

        def two(r: Registers) -> None:
            r[out] = run(r[a], r[b])

        return two

    def many(r: Registers) -> None:
        r[out] = run(*[r[i] for i in ins])

    return many
