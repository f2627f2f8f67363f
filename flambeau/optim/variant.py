"""Variants of an update formula: flags fixed, scalars hoisted out of the loops, kernels compiled for layouts."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable
from typing import Any

from ..core import dtype as dt
from ..core.backend import backend_of
from ..core.caching import remember
from ..core.device import cpu
from ..core.dtype import dtype, opmath
from ..core.tensor import Tensor, numel_of
from ..expr import Expr, arg, as_expr
from ..expr.node import PREDICATES, cast, rebuild, walk
from ..expr.simplify import simplify
from ..ops.machinery.inplace import bump_all, check_writable
from ..ops.machinery.plan import Layout, kernel
from ..ops.reduce.of_lists import is_one_piece
from .driver import loop_over_parameters, scalar_function
from .on_device import DeviceForm

_MAX_PLANS = 4096


def is_number(value: Any) -> bool:
    return value is not None and type(value) not in (bool, str)


class Formula:
    """Function that computes one element of the new parameter and state, with the names of its arguments: elements, scalars, options."""

    def __init__(self, formula: Callable, scalars: tuple[str, ...] = ()):
        self.formula = formula
        self.name = formula.__name__
        parameters = inspect.signature(formula).parameters.values()
        positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        self.positional = tuple(positional)
        self.options = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        self.elements = tuple(n for n in positional if n not in scalars)  # "param", "grad", state of the same shape
        self.scalars = scalars


class Variant:
    """A formula with its flags fixed: the Python function of the scalars and, by layout, compiled kernels."""

    def __init__(self, update: Formula, options: dict[str, Any]):
        self.name = update.name
        numbers = [n for n, v in options.items() if is_number(v)]
        elements = update.elements
        symbols = {n: arg(i) for i, n in enumerate((*elements, *update.scalars, *numbers))}
        given = {n: symbols[n] if n in numbers else options[n] for n in options}
        traced = update.formula(*(symbols[n] for n in update.positional), **given)
        results = {name: as_expr(value) for name, value in traced.items()}
        # State that the flags have made superfluous is not asked for.
        read = {x.args[0] for x in walk(tuple(results.values())) if x.op == "arg"}
        used = [i for i, n in enumerate(elements) if i < 2 or i in read or n in results]
        self.states = tuple(elements[i] for i in used[2:])
        self.scalars = tuple(n for i, n in enumerate(update.scalars, len(elements)) if i in read or n in results)
        self.outputs = tuple(n for n in elements if n in results)
        self.positions = tuple(("param", "grad", *self.states).index(n) for n in self.outputs)
        self.roots, hoisted = _split(
            [results[n] for n in self.outputs], {i: k for k, i in enumerate(used)}, len(elements)
        )
        self.predicates = tuple(x.op in PREDICATES for x in hoisted)
        scalar_results = [results.get(n, symbols[n]) for n in self.scalars]
        inputs = {id(symbols[n]): n for n in (*self.scalars, *numbers)}
        self.prologue = scalar_function([*scalar_results, *hoisted], inputs, [*self.scalars, *numbers])
        self.hoisted, self.scalar_results = hoisted, scalar_results
        self.symbols = [symbols[n] for n in (*self.scalars, *numbers)]
        self.forms: dict[tuple, DeviceForm] = {}
        self.alike: dict[tuple, tuple] = {}  # keys of those by layouts of parameters with all that belongs to them
        self.typed: dict[tuple[dtype, ...], tuple[Expr, ...]] = {}
        self.plans: dict[tuple, tuple] = {}
        self.lists: dict[tuple, Any] = {}
        self.run = loop_over_parameters(self, numbers, len(hoisted))

    def make_plan(self, key: tuple, tensors: tuple[Tensor, ...]) -> tuple[Any, Any]:
        """Return a kernel for tensors of these layouts and its first argument; (None, None) for no elements."""
        param = tensors[0]
        for name, t in zip(("param", "grad", *self.states), tensors):
            if t.shape != param.shape or t.dtype.is_complex != param.dtype.is_complex:
                raise RuntimeError(
                    f"{self.name}: '{name}' is {t.dtype} of shape {list(t.shape)}, but its parameter is {param.dtype} of"
                    f" shape {list(param.shape)}"
                )
        for position in self.positions:
            check_writable(tensors[position])
        layouts = [_real_layout(t) for t in tensors]
        roots = self.formulas(layouts)
        plan: tuple[Any, Any] = (None, None)
        if layouts[0].nbytes:
            inputs: list[tuple[dtype, tuple[int, ...] | None]] = [(layout.dtype, layout.strides) for layout in layouts]
            inputs += [(dt.float64, None) for _ in self.predicates]
            plan = kernel(roots, [layouts[i] for i in self.positions], inputs)
        return remember(self.plans, key, plan, _MAX_PLANS)

    def formulas(self, tensors: Any) -> tuple[Expr, ...]:
        """Return the formulas of what is stored to each of `positions`, over tensors (or layouts) of these dtypes, then the prologue's
        numbers."""
        dtypes = tuple(t.dtype for t in tensors)
        if dtypes not in self.typed:
            self.typed[dtypes] = tuple(simplify(r, True) for r in self._cast_operands(opmath(dtypes[0]), list(dtypes)))
        return self.typed[dtypes]

    def launch_all(self, rows: list[tuple[Tensor, ...]], numbers: tuple) -> None:
        """Run the kernel on many parameters with their gradients and states: together those whose tensors are alike and dense."""
        groups: dict[tuple, list[tuple[Tensor, ...]]] = {}
        for tensors in rows:
            key = self._form_key(tensors, ())
            if key:
                groups.setdefault(key, []).append(tensors)
            else:
                self.launch(tensors, numbers)
        for (where, dtypes, _), members in groups.items():
            run = self._list_kernel((where, *dtypes), members[0])
            for tensors in members:
                for i in self.positions:
                    if tensors[i]._autograd is not None or tensors[i]._base is not None:
                        check_writable(tensors[i])
            run(
                [(*[t._storage.ptr + t._offset * t.dtype.itemsize for t in m], numel_of(m[0].shape)) for m in members],
                numbers,
            )
            bump_all([tensors[i] for tensors in members for i in self.positions], self.name)

    def update_on_device(
        self, rows: list[tuple[Tensor, ...]], cells: list[tuple[Tensor, ...]], numbers: tuple, found_inf: Tensor | None
    ) -> bool:
        """Update parameters whose step counts are on their device, without the host; return whether that was possible."""
        groups: dict[tuple, list[int]] = {}
        for i, tensors in enumerate(rows):
            key = self._form_key(tensors, cells[i] if cells else ())
            if not key or (found_inf is not None and found_inf.device is not key[0]):
                return False
            groups.setdefault(key, []).append(i)
        for key, members in groups.items():
            if key not in self.forms:
                self.forms[key] = DeviceForm(self, _replace_nodes, *key)
            picked = [rows[i] for i in members]
            found = 0 if found_inf is None else found_inf.data_ptr()
            self.forms[key].run(picked, [cells[i] if cells else () for i in members], numbers, found)
            bump_all([rows[i][position] for i in members for position in self.positions], self.name)
            bump_all([cell for i in members for cell in (cells[i] if cells else ())], self.name)
        return True

    def _form_key(self, tensors: tuple[Tensor, ...], own: tuple[Tensor, ...]) -> tuple:
        """Return device and dtypes of a parameter with its gradient, states and step counts; empty if no kernel over lists takes them."""
        layouts = (*[(t.shape, t._strides, t.dtype, t.device) for t in tensors], *[(c.dtype, c.device) for c in own])
        known = self.alike.get(layouts)
        if known is not None:
            return known
        where, shape, strides = tensors[0].device, tensors[0].shape, tensors[0]._strides
        dense = where is not cpu and is_one_piece(shape, strides) and all(c.device is where for c in own)
        rows = tensors[: 2 + len(self.states)]
        dense = dense and all(t._strides == strides and t.shape == shape and t.device is where for t in rows)
        key = (where, tuple(t.dtype for t in tensors), tuple(c.dtype for c in own))
        taken = dense and self._list_kernel((where, *key[1]), tensors) is not None
        return remember(self.alike, layouts, key if taken else ())

    def _list_kernel(self, key: tuple, tensors: tuple[Tensor, ...]) -> Any:
        """Return the kernel that runs the formulas over lists of such tensors; None if the device has none, or for complex numbers."""
        if key not in self.lists:
            where, *dtypes = key
            run = None
            if not any(d.is_complex for d in dtypes):
                roots = tuple(simplify(r, True) for r in self._cast_operands(opmath(dtypes[0]), dtypes))
                numbers = tuple(dt.float64 for _ in self.predicates)
                single = int(self._scaled(dtypes))
                run = backend_of(where).compile_lists(roots, tuple(dtypes), self.positions, numbers, where, single)
            self.lists[key] = run
        return self.lists[key]

    def launch(self, tensors: tuple[Tensor, ...], numbers: tuple) -> None:
        """Run the kernel on one parameter with its gradient and state, on whatever device they are."""
        if self._scaled(tensors):
            param, grad, *states, factor = tensors
            tensors = param, grad.to(factor.dtype) * factor, *states
        where = tensors[0].device
        for t in tensors:
            if t.device is not where:
                raise RuntimeError(f"{self.name}: a parameter is on {where}, but its gradient or state on {t.device}")
        key = (where, *(part for t in tensors for part in (t.shape, t._strides, t.dtype)))
        plan = self.plans.get(key)
        kernel, first = self.make_plan(key, tensors) if plan is None else plan
        if kernel is not None:
            addresses = [t._storage.ptr + t._offset * t.dtype.itemsize for t in tensors]
            kernel(first, *(addresses[i] for i in self.positions), *addresses, *numbers)
            for i in self.positions:
                tensors[i]._bump(self.name)

    def _scaled(self, operands: Any) -> bool:
        """Return whether behind a parameter, its gradient and its state there is a number by which the gradient is multiplied."""
        return len(operands) > 2 + len(self.states)

    def _cast_operands(self, compute: dtype, dtypes: list[dtype]) -> list[Expr]:
        """Return the formulas with every operand in the dtype of the computation."""
        symbols: list[Expr] = [arg(i) if opmath(d) is compute else cast(arg(i), compute) for i, d in enumerate(dtypes)]
        if self._scaled(dtypes):
            symbols[1] = symbols[1] * symbols.pop()
        for k, is_condition in enumerate(self.predicates, len(dtypes)):
            symbols.append(arg(k) != 0 if is_condition else cast(arg(k), compute))
        return [_replace_nodes(root, {id(arg(i)): s for i, s in enumerate(symbols)}) for root in self.roots]


def _replace_nodes(root: Expr, new: dict[int, Expr]) -> Expr:
    """Return `root` with nodes replaced; the inside of a replaced node is not visited."""
    done: dict[int, Expr] = {}
    for x in walk((root,)):
        if id(x) in new:
            done[id(x)] = new[id(x)]
        else:
            done[id(x)] = rebuild(x, [done[id(o)] for o in x.operands])
    return done[id(root)]


def _split(results: list[Expr], positions: dict[int, int], elements: int) -> tuple[tuple[Expr, ...], list[Expr]]:
    """Separate from per-element formulas the values that are the same for all elements. arg(i) of the formulas is operand positions[i]; the
    separated values follow."""
    of_element: set[int] = set()
    for x in walk(tuple(results)):
        if (x.op == "arg" and x.args[0] < elements) or any(id(c) in of_element for c in x.operands):
            of_element.add(id(x))
    hoisted: list[Expr] = []
    new: dict[int, Expr] = {id(arg(i)): arg(k) for i, k in positions.items()}
    for x in walk(tuple(results)):
        if id(x) in of_element:
            for c in x.operands:
                if id(c) not in of_element and id(c) not in new and c.op != "const":
                    new[id(c)] = arg(len(positions) + len(hoisted))
                    hoisted.append(c)
    return tuple(_replace_nodes(r, new) for r in results), hoisted


def _real_layout(t: Tensor) -> Layout:
    """Return the layout of a tensor's real numbers; a complex number is two."""
    layout = Layout.of(t)
    if t.dtype.is_complex:
        layout.set_layout((*t.shape, 2), (*(2 * s for s in t._strides), 1), t.dtype.to_real(), t.device)
    return layout


_FLOATS = {dt.float32: ctypes.c_float, dt.float64: ctypes.c_double}


def store_number(cell: Tensor, value: float) -> None:
    """Set a number of the state; on the host this is a single store, since there is one for every parameter."""
    kind = _FLOATS.get(cell.dtype)
    if cell.device is not cpu or kind is None or cell.shape:
        cell.fill_(value)
        return
    kind.from_address(cell._storage.ptr + cell._offset * cell.dtype.itemsize).value = value
    cell._bump("fill_")
