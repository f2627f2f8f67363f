"""The assignment half of the loop-kernel front end: names become variables of the kernel, and elements of buffers are stored."""

from __future__ import annotations

import ast
from typing import Any

from ..expr.node import Expr
from . import ir
from .loops_expressions import ExpressionLowering
from .loops_source import is_sum
from .loops_values import Local, Value, as_value, assignable, describe, is_number, storable

_EXTREMES = ("maximum", "minimum", "fmax", "fmin")


class Names:
    """Generator of unique names in one kernel."""

    def __init__(self, taken: list[str]):
        self._count: dict[str, int] = dict.fromkeys(taken, 0)

    def fresh(self, base: str) -> str:
        while True:
            count = self._count.get(base)
            self._count[base] = 0 if count is None else count + 1
            name = base if count is None else f"{base}_{count + 1}"
            if count is None or name not in self._count:
                self._count.setdefault(name, 0)
                return name


class AssignmentLowering(ExpressionLowering):
    """Lowering of assignments in a function body."""

    names: Names
    parallel: object  # the parallel loop around the current statement
    uncertain: int  # how many loops and run-time branches surround it
    stores: bool  # whether the function writes to a buffer that outlives it

    def do_Assign(self, node: ast.Assign) -> None:
        value = self.lower(node.value, statement=True)
        for target in node.targets:
            self.assign(target, value)

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            self.fail("a local gets its dtype from its first value, not from an annotation")
        self.assign(node.target, self.lower(node.value, statement=True))

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            before = self.lower(ast.copy_location(ast.Name(target.id, ast.Load()), target))
            if not isinstance(before, Value):
                before = as_value(before)
            after = as_value(self.arithmetic(node.op, before, self.lower(node.value)))
            self.assign_name(target, after, reassociate=is_sum(node.op) and after.dtype.category >= 2)
        elif isinstance(target, ast.Subscript):
            buffer, index = self.element(target)
            value = self.lower(node.value)
            after = as_value(self.arithmetic(node.op, self.read(buffer, index), value))
            self.store(buffer, index, after, reassociate=is_sum(node.op) and after.dtype.category >= 2)
        else:
            self.fail("only a name or an element can be updated")

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.assign_name(target, value)
        elif isinstance(target, ast.Subscript):
            buffer, index = self.element(target)
            self.store(buffer, index, as_value(value))
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._assign_tuple(target, value)
        else:
            self.fail("only names, elements and tuples of them can be assigned")

    def _assign_tuple(self, target: ast.Tuple | ast.List, value: Any) -> None:
        if isinstance(value, Value) or not isinstance(value, tuple) or len(value) != len(target.elts):
            self.fail(f"{len(target.elts)} values are needed here, not {describe(value)}")
        # All values are computed before any name changes: a, b = b, a.
        held = [self.hold(v) if isinstance(v, Value) else v for v in value]
        for part, v in zip(target.elts, held):
            self.assign(part, v)

    def assign_name(self, target: ast.Name, value: Any, reassociate: bool = False) -> None:
        name = target.id
        if isinstance(value, tuple) and not isinstance(value, Value):
            # Its parts keep the values they have now.
            value = tuple(self.hold(v) if isinstance(v, Value) else v for v in value)
        if not isinstance(value, Value) and not is_number(value):
            self._bind_known(name, value)
            return
        known = self.env.get(name)
        if not isinstance(value, Value) and known is None and self.assigned.get(name) == 1:
            self._bind_known(name, value)
            return
        new = as_value(value)
        if not isinstance(known, Local):
            known = self._new_local(name, known, new)
        elif known.private_to is not self.parallel:
            self.fail(f"'{name}' belongs to the code around this parallel loop, whose iterations cannot change it")
        expr = assignable(new, known.dtype, known.weak, name)
        if expr.op in _EXTREMES and known.dtype.category == 2:
            reassociate = any(a is known.value.expr for a in expr.args)
        self.block.append(ir.Assign(known.name, known.dtype, expr, reassociate))
        self.defined.add(name)

    def _bind_known(self, name: str, value: Any) -> None:
        before = self.env.get(name)
        if isinstance(before, Local):
            self.fail(f"'{name}' is a {before.dtype.name} variable and cannot become {describe(value)}")
        if before is not None and before is not value and self.uncertain:
            self.fail(f"'{name}' is {describe(before)} and cannot become {describe(value)} inside a loop or branch")
        self.env[name] = value
        self.defined.add(name)

    def _new_local(self, name: str, known: Any, new: Value) -> Local:
        if known is not None:
            self.fail(f"'{name}' is {describe(known)} and cannot become a number")
        local = Local(self.names.fresh(name), new.dtype, new.weak and new.dtype.category >= 2, self.parallel)
        self.env[name] = local
        return local

    def hold(self, value: Value, base: str = "held") -> Value:
        """Keep the value in a variable of its own (unless it is a constant)."""
        if value.expr.op == "const":
            return value
        name = self.names.fresh(base)
        self.block.append(ir.Assign(name, value.dtype, value.expr))
        return Value(ir.var(name, value.dtype), value.dtype, value.weak)

    def store(self, buffer: ir.Buffer, index: Expr, value: Value, reassociate: bool = False) -> None:
        self.stores = self.stores or not buffer.local_size
        self.block.append(ir.Store(buffer, index, storable(value, buffer), reassociate))
