"""Rows of a table that are read several times, as embeddings of repeated words are, are multiplied once.

A layer that reads embeddings multiplies a matrix X of rows of a table. Equal rows give equal results, and in the gradients of the
layer's weight and of the table they only occur as sums over the rows that are equal. So with the rows that differ, X' of them, and the
sums of the gradient's rows, dY':

    Y = X W              Y' = X' W, and rows of Y' are copied to where they belong
    dW = dY^T X          dW = dY'^T X'
    dX = dY W^T          dX' = dY' W^T, which is added to the table's gradient as dX would be

How many rows there are is found out in each call: a product reads its sizes from a table of numbers, where they are written."""

from __future__ import annotations

import ctypes
from typing import Any

from ...backends.cpu import jit
from ...backends.cpu.onednn.direct import DirectProduct
from ...backends.cpu.onednn.gemm import as_direct
from ...core.dtype import float32, int64
from ...core.records import replace
from ...core.tensor import contiguous_strides, is_contiguous_layout, numel_of
from ...graph.conversions import Kernel
from ...graph.program import Call, Value
from ...kernels.library import repeated as kernels
from ..record.planning import Planner
from ..record.steps import Launch, Ref, StepGraph, Test, new_buffer, used

# Rows that are read, and columns of both matrices: below, copying takes as long as multiplying.
_FEWEST, _NARROWEST = 64, 64
_WORTH_IT = 0.75  # as many of the rows at most differ, in the recorded call
_PRODUCTS = 4  # whose sizes are written
_ROWS, _INNER, _LETTERS, _STEPS = 6, 8, slice(4, 6), slice(9, 12)  # where a product has its numbers


def multiply_once(graph: StepGraph, results: set[int]) -> None:
    """Compute products whose left operand consists of rows of a table, and their gradients, with the distinct rows only. Sums are rounded in
    another order."""
    for step in list(graph.steps):
        rows = _rows_of(step.call) if isinstance(step, Launch) and step.call is not None else None
        if rows is not None:
            reading = _Reading(graph, results, step, *rows)
            if reading.fits():
                reading.rewrite()
                graph.rounded_otherwise = True


def _rows_of(call: Call) -> tuple[Value, Value, Value] | None:
    """Return rows, table and index of a call that takes rows of a float32 table and tests their numbers, or None."""
    found = None if call.op.table_rows is None else call.op.table_rows(**call.op.bind(call.args, call.kwargs))
    if found is None or list(map(type, call.steps or ())) != [Launch, Test]:
        return None
    table, index = found
    plain = table.dtype is float32 and index.dtype is int64 and len(table.shape) == 2
    return (call.results, table, index) if plain else None


class _Reading:
    """A step that reads rows of a table, and the products that use them."""

    def __init__(self, graph: StepGraph, results: set[int], step: Launch, out: Value, table: Value, index: Value):
        self.graph, self.results, self.step = graph, results, step
        self.out, self.index = (Ref(v.buffer, v.start) for v in (out, index))
        self.count, (self.rows, self.dim) = numel_of(index.shape), table.shape
        self.users: dict[int, list[Any]] = {}
        for s in graph.steps:
            for b in used(s):
                self.users.setdefault(b, []).append(s)
        self.forward: list[tuple[Launch, DirectProduct]] = []
        self.weights: list[tuple[Launch, DirectProduct]] = []
        self.tables: list[tuple[Launch, DirectProduct, Launch]] = []  # with the step that adds to the table's gradient

    def fits(self) -> bool:
        if self.count < _FEWEST or self.dim < _NARROWEST or not self._whole(self.out, self.count * self.dim):
            return False
        after = self.graph.steps[self.graph.steps.index(self.step) + 1 :][:1]
        if not after or not isinstance(after[0], Test) or after[0].call is not self.step.call:
            return False  # after it all indices are valid
        if any(self._writes(s, self.index) for s in self.graph.steps) or not self._repeats():
            return False
        for user in self.users[self.out.buffer]:
            if user is self.step:
                continue
            product = as_direct(user.plan) if isinstance(user, Launch) and user.plan is not None else None
            if product is None or not self._sort(user, product):
                return False
        for user, _ in self.weights:
            self._find_tables(user.arguments[2])
        if any(self._changes(grad) for grad in {user.arguments[2] for user, _ in self.weights}):
            return False
        return bool(self.forward) and len([*self.forward, *self.weights, *self.tables]) <= _PRODUCTS

    def _whole(self, ref: Any, elements: int) -> bool:
        """Return whether a reference covers all of a buffer of the function's own."""
        if type(ref) is not Ref or ref.offset:
            return False
        buffer = self.graph.buffers[ref.buffer]
        return buffer.source == "new" and ref.buffer not in self.results and buffer.size >= 4 * elements

    @staticmethod
    def _writes(step: Any, ref: Ref) -> bool:
        if isinstance(step, Test):
            return False
        written = step.writes() if isinstance(step, Launch) else step.refs()
        return any(r.buffer == ref.buffer for r in written)

    def _changes(self, grad: Ref) -> bool:
        """Return whether a gradient is written to after its first use by one of the products."""
        steps = self.graph.steps
        users = [user for user, _ in self.weights] + [user for user, _, _ in self.tables]
        first = min(steps.index(user) for user in users if user.arguments[2] == grad)
        return any(self._writes(step, grad) for step in steps[first:])

    def _repeats(self) -> bool:
        """Return whether rows occurred several times in the recorded call, whose arguments still exist."""
        buffer = self.graph.buffers[self.index.buffer]
        held = buffer.storage
        if held is None or held.ptr != buffer.address or self.index.offset + 8 * self.count > held.size_bytes:
            return False
        read = (ctypes.c_int64 * self.count).from_address(buffer.address + self.index.offset)
        return len(set(read)) <= _WORTH_IT * self.count

    def _sort(self, user: Launch, product: DirectProduct) -> bool:
        """Add a product to those that use the rows in a known way; return whether it is one."""
        rows, columns, inner = product.table[_ROWS : _ROWS + 3]
        letters, steps = bytes(product.table[_LETTERS]), product.table[_STEPS]
        _, out, a, b = user.arguments[:4]
        if columns < _NARROWEST:
            return False
        if a == self.out != b and letters[:1] == b"N" and steps[0] == self.dim == inner and rows == self.count:
            self.forward.append((user, product))
            return steps[2] == columns and self._whole(out, rows * columns)
        if b == self.out != a and letters == b"TN" and steps[1] == self.dim == columns and inner == self.count:
            self.weights.append((user, product))
            return steps[0] == rows and type(a) is Ref
        return False

    def _find_tables(self, grad: Ref) -> None:
        """Find the products with the same gradient whose results are only added to the table's gradient."""
        for user in self.users[grad.buffer]:
            product = as_direct(user.plan) if isinstance(user, Launch) and user.plan is not None else None
            if product is None or user.arguments[2] != grad:
                continue
            rows, columns, inner = product.table[_ROWS : _ROWS + 3]
            out, steps = user.arguments[1], product.table[_STEPS]
            if product.table[4] != ord("N") or rows != self.count or inner != steps[0] or columns != steps[2]:
                continue
            others = [s for s in self.users[out.buffer] if s is not user]
            if len(others) == 1 and self._adds(others[0], out, columns) and self._whole(out, rows * columns):
                self.tables.append((user, product, others[0]))

    def _adds(self, step: Any, rows: Ref, columns: int) -> bool:
        """Return whether a step is the only one of a call that adds these rows to those of the table."""
        call = step.call if isinstance(step, Launch) else None
        if call is None or call.steps != [step] or call.fixed or call.op.row_sums is None:
            return False
        found = call.op.row_sums(**call.op.bind(call.args, call.kwargs))
        if found is None:
            return False
        places = [Ref(v.buffer, v.start) for v in found]
        same = places == [rows, self.index] and numel_of(found[1].shape) == self.count
        return same and found[0].shape[-1] == columns and is_contiguous_layout(found[0].shape, found[0].strides)

    # -- rewriting --------------------------------------------------------------------------------------------------
    def rewrite(self) -> None:
        graph = self.graph
        place, first, seen = (new_buffer(graph, 8 * n) for n in (self.count, self.count, self.rows))
        places = [
            *(ctypes.addressof(p.table) + 8 * _ROWS for _, p in self.forward),
            *(ctypes.addressof(p.table) + 8 * _ROWS for _, p, _ in self.tables),
            *(ctypes.addressof(p.table) + 8 * _INNER for _, p in self.weights),
        ]
        places += places[:1] * (_PRODUCTS - len(places))
        given = [place, first, seen, self.index, *places, self.count, self.rows]
        at = graph.steps.index(self.step) + 2  # after the test
        graph.steps[at:at] = [
            _launch("numbers of rows", kernels.number_rows, "q" * 8, 2, given),
            _launch("rows that differ", kernels.gather_first, "fq", 2, [self.out, place, self.count, self.dim]),
        ]
        for user, product in self.forward:
            columns = product.table[_ROWS + 1]
            spread = _launch(user.name, kernels.spread_rows, "fq", 2, [user.arguments[1], place, self.count, columns])
            self._replace(user, [_with(user, product), spread])
        summed: dict[Ref, Ref] = {}
        later = [(user, p, p.table[_INNER]) for user, p, _ in self.tables]
        later += [(user, p, p.table[_ROWS]) for user, p in self.weights]
        for user, product, columns in sorted(later, key=lambda each: graph.steps.index(each[0])):
            grad, steps = user.arguments[2], []
            if grad not in summed:
                summed[grad] = new_buffer(graph, 4 * self.count * columns)
                given = [summed[grad], grad, place, self.count, columns]
                steps = [_launch("sums of equal rows", kernels.add_rows, "ffq", 2, given)]
            self._replace(user, [*steps, _with(user, product, summed[grad])])
        for _, _, adding in self.tables:
            self._replace(adding, self._adding_at(adding.call, first))  # type: ignore[arg-type]

    def _adding_at(self, call: Call, index: Ref) -> list[Any]:
        """Return the steps of a call that adds rows, planned again with another index."""
        given = call.op.bind(call.args, call.kwargs)
        old = call.op.row_sums(**given)[1]
        new = replace(old, buffer=index.buffer, start=index.offset, strides=contiguous_strides(old.shape))
        args = tuple(new if v is old else v for v in given.values())
        kernel = Kernel(call.op, call.results.device, False)
        return Planner(self.graph).steps(
            Call(call.op, kernel, args, {}, [call.results], list(call.makes), parts=(call,))
        )

    def _replace(self, step: Launch, steps: list[Launch]) -> None:
        at = self.graph.steps.index(step)
        self.graph.steps[at : at + 1] = steps


def _launch(name: str, kernel: Any, letters: str, numbers: int, arguments: list[Any]) -> Launch:
    address = jit.address_of(kernel.native(*({"f": float32, "q": int64}[k] for k in letters), *[int] * numbers))
    return Launch(name, address, jit.signatures[address], arguments)


def _with(user: Launch, product: DirectProduct, left: Ref | None = None) -> Launch:
    """Return the product with another plan, and with the left operand `left` if that is given."""
    address = jit.address_of(product.runner)
    given = [product.address, user.arguments[1], left or user.arguments[2], *user.arguments[3:]]
    return Launch(user.name, address, jit.signatures[address], given, product, user.weight)
