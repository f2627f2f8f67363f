"""Update formulas run over whole lists of parameters.

An update is written once, as a function of one element:

    @update(scalars=("step",))
    def adam(param, grad, exp_avg, exp_avg_sq, step, *, lr, beta1, beta2, eps):
        step = step + 1
        exp_avg = lerp(exp_avg, grad, 1 - beta1)
        exp_avg_sq = lerp(exp_avg_sq, grad * grad, 1 - beta2)
        denominator = sqrt(exp_avg_sq / (1 - beta2**step)) + eps
        param = param - lr / (1 - beta1**step) * exp_avg / denominator
        return {"param": param, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "step": step}

Positional arguments are the parameter, its gradient and the optimizer's state; `scalars` names the state that is one
number per parameter. Keyword arguments are options: numbers (they may change with every step), or flags, strings and None,
which choose the formula. The result says what changes.

The formula is traced with symbols and cut in two. What depends on scalars and options only becomes a Python function,
evaluated once per step (once per distinct step count). The rest becomes one compiled kernel that reads and writes all
tensors of a parameter in one pass. `differentiable=True`, other devices and machines without a compiler call the same
formula with tensors.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from ..core import dtype as dt
from ..core import modes
from ..core.backend import backend_of
from ..core.device import cpu
from ..core.dtype import dtype, opmath
from ..core.layout import is_non_overlapping_and_dense
from ..core.sharded import SpreadTensor
from ..core.tensor import Tensor, numel_of
from ..core.wrapped import is_wrapper
from ..expr import Expr, arg, as_expr
from ..expr.node import PREDICATES, cast, children, rebuild, walk
from ..expr.simplify import simplify
from ..ops.machinery.inplace import check_writable
from ..ops.machinery.plan import NATIVE, Layout, compiles, kernel
from ..ops.machinery.record import Op
from ..ops.machinery.watched import PrivateCall
from ..ops.shape.complex_views import view_as_complex, view_as_real
from .driver import loop_over_parameters, scalar_function
from .on_device import DeviceForm

_NUMBER = object()  # stands for any number in the key of a variant
_MAX_PLANS = 4096


def update(scalars: tuple[str, ...] = ()) -> Callable[[Callable], Update]:
    """Declare an update formula."""
    return lambda formula: Update(formula, scalars)


class Owner(Protocol):
    """The parts of an optimizer that its update needs."""

    state: Any

    def _begin(self, group: dict[str, Any], state: dict[str, Any], p: Tensor, grad: Tensor) -> bool:
        """Fill the state of a parameter that is updated for the first time. True if that update is done, too."""
        ...

    def _sparse_gradient(self, group: dict[str, Any], p: Tensor, options: dict[str, Any]) -> None:
        """Update a parameter whose gradient is sparse."""


class Parts:
    """This rank's parts of the state of spread parameters, in the place of their optimizer."""

    def __init__(self, state: dict[Tensor, dict[str, Any]], found_inf: Tensor | None):
        self.state, self.found_inf = state, found_inf

    def _begin(self, group: dict[str, Any], state: dict[str, Any], p: Tensor, grad: Tensor) -> bool:
        return False  # the state is there

    def _sparse_gradient(self, group: dict[str, Any], p: Tensor, options: dict[str, Any]) -> None:
        raise RuntimeError("a parameter that is spread over ranks has a sparse gradient, which no optimizer can use")


class Update:
    """A formula and what has been compiled from it."""

    def __init__(self, formula: Callable, scalars: tuple[str, ...] = ()):
        self.formula = formula
        self.name = formula.__name__
        parameters = inspect.signature(formula).parameters.values()
        positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        self.positional = tuple(positional)
        self.options = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        self.elements = tuple(n for n in positional if n not in scalars)  # "param", "grad", state of the same shape
        self.scalars = scalars
        self.variants: dict[tuple, Variant] = {}

    def __call__(self, *args: Any, **options: Any) -> dict[str, Any]:
        return self.formula(*args, **options)

    def run(self, owner: Owner, group: dict[str, Any], params: Iterable[Tensor], options: dict[str, Any]) -> None:
        """Update every parameter that has a gradient."""
        params = list(params)
        if any(isinstance(p, SpreadTensor) for p in params):
            self.run_spread(owner, group, params, options)
            return
        recorded = bool(group.get("differentiable"))
        if recorded or not NATIVE or any(is_wrapper(p) for p in params):
            for p in params:
                if p.grad is not None:
                    self.run_tensors(owner, group, p, options)
            return
        if (modes.active and modes.deciding()) or (
            params and params[0].device is not cpu and compiles(params[0].device)
        ):
            self.run_together(owner, group, params, options)
            return
        numbers = [v.item() if isinstance(v, Tensor) else v for v in options.values() if _is_number(v)]
        run = self.variant(options).run
        given = (
            params,
            owner.state,
            partial(owner._begin, group),
            partial(self.run_one, owner, group, options),
            *numbers,
        )
        if not modes.active:
            run(*given)
            return
        with modes.named_range(f"aten::_fused_{self.name}_", modes.FUNCTION):
            run(*given)

    def run_spread(self, owner: Owner, group: dict[str, Any], params: list[Any], options: dict[str, Any]) -> None:
        """Update parameters of which some are spread over ranks: elements know nothing of each other, so each rank updates its own."""
        used = self.variant(options)
        kept = (*used.scalars, *used.states)
        plain, parts, states = [], [], {}
        for p in params:
            if not isinstance(p, SpreadTensor):
                plain.append(p)
            elif p.grad is not None:
                state = owner.state[p]
                if kept and kept[0] not in state and owner._begin(group, state, p, p.grad):
                    continue
                part = p._beside(p).detach()
                part.grad = p._beside(p.grad)
                spread = {name: p._beside(state[name]) for name in used.states}
                states[part] = {**{name: state[name] for name in used.scalars}, **spread}
                parts.append(part)
        self.run(owner, group, plain, options)
        self.run(Parts(states, getattr(owner, "found_inf", None)), group, parts, options)

    def variant(self, options: dict[str, Any]) -> Variant:
        """The compiled update for these flags."""
        key = tuple(_NUMBER if _is_number(v) else v for v in options.values())
        found = self.variants.get(key)
        if found is None:
            found = self.variants[key] = Variant(self, options)
        return found

    def run_one(self, owner: Owner, group: dict[str, Any], options: dict[str, Any], p: Tensor) -> None:
        """Update a parameter that the loop over tensors on the CPU cannot."""
        if p.grad is not None and p.grad.is_sparse:
            owner._sparse_gradient(group, p, options)
        elif compiles(p.device) and p.device is not cpu:
            self.run_together(owner, group, [p], options)
        else:
            self.run_tensors(owner, group, p, options)

    def run_together(
        self, owner: Owner, group: dict[str, Any], params: Iterable[Tensor], options: dict[str, Any]
    ) -> None:
        """The update as one operator over lists of tensors: what modes see, and what runs on other devices than the CPU."""
        used = self.variant(options)
        kept = (*used.scalars, *used.states)
        dense: list[Tensor] = []
        found = getattr(owner, "found_inf", None)
        fresh = bool(kept) and any(p.grad is not None and kept[0] not in owner.state[p] for p in params)
        if fresh and found is not None and found.item():  # a first update may be more than one launch
            return
        for p in params:
            if p.grad is None:
                continue
            if p.grad.is_sparse:
                owner._sparse_gradient(group, p, options)
            elif not kept or kept[0] in owner.state[p] or not _begin(owner, group, p):
                dense.append(p)
        if dense:
            states = [[owner.state[p][name] for p in dense] for name in kept]
            grads = [p.grad for p in dense]
            given = {} if found is None or found.device is cpu else {"found_inf": found}
            self.operator(dense, grads, *states, **options, **given)

    @functools.cached_property
    def operator(self) -> PrivateCall:
        """`operator(params, grads, *scalars, *states, **options)`: lists of tensors, changed in place."""
        op = Op(
            f"_fused_{self.name}",
            "primitive",
            self.update_lists,
            (),
            None,
            None,
            False,
            False,
            self,
            source=self.formula,
            aten=f"_fused_{self.name}_",
        )
        op.writes = ("param", *self.scalars, *self.elements[2:])
        op.function = PrivateCall(op, self.update_lists)
        return op.function

    def update_lists(
        self,
        params: list[Tensor],
        grads: list[Tensor],
        *states: list[Tensor],
        found_inf: Tensor | None = None,
        **options: Any,
    ) -> None:
        """Update every parameter of a list. `states` are lists too: of the scalars first, then of the tensors. Nothing happens if
        `found_inf` is not zero."""
        numbers = [v.item() if isinstance(v, Tensor) else v for v in options.values() if _is_number(v)]
        used = self.variant(options)
        count = len(used.scalars)
        if found_inf is not None or (count and states[0][0].device is not cpu):
            rows, cells = list(zip(params, grads, *states[count:])), list(zip(*states[:count]))
            if used.update_on_device(rows, cells, tuple(numbers), found_inf):
                return
            if found_inf is not None and found_inf.item():
                return
        known: tuple | None = None
        values: tuple = ()
        waiting: list[tuple[Tensor, ...]] = []  # parameters with the same scalars: one launch where the device can
        for p, grad, *state in zip(params, grads, *states):
            scalars = tuple(s.item() for s in state[:count])
            if scalars != known or not values:
                used.launch_all(waiting, values[count:])
                waiting = []
                known, values = scalars, used.prologue(*scalars, *numbers)
            waiting.append((p, grad, *state[count:]))
            for cell, value in zip(state, values[:count]):
                _store(cell, value)
        used.launch_all(waiting, values[count:])

    def run_tensors(self, owner: Owner, group: dict[str, Any], p: Tensor, options: dict[str, Any]) -> None:
        """Update by tensor operations, which autograd sees if the group is differentiable."""
        recorded = bool(group.get("differentiable"))
        used = self.variant(options)
        grad: Any = p.grad
        state: dict[str, Any] = {}
        kept = (*used.scalars, *used.states)
        if kept:
            state = owner.state[p]
            if kept[0] not in state and owner._begin(group, state, p, grad):
                return
        held = {"param": p, "grad": grad, **{n: state[n] for n in kept}}
        given: dict[str, Any] = {}
        for name, t in held.items():
            if name in self.scalars:
                given[name] = t.clone() if recorded and t.requires_grad else t.item()
            else:
                t = view_as_real(t) if t.dtype.is_complex else t
                # The tensors are overwritten below, and autograd may have saved what the formula read.
                given[name] = t.clone() if recorded and name != "grad" else t
        if not recorded:
            options = {n: v.item() if isinstance(v, Tensor) else v for n, v in options.items()}
        result = self.formula(*(given.get(n) for n in self.positional), **options)
        for name, value in result.items():
            target = held[name]
            if not isinstance(value, Tensor):
                target.fill_(value)
            else:
                target.copy_(view_as_complex(value) if target.dtype.is_complex else value)


_dense = functools.lru_cache(4096)(
    lambda shape, strides: 0 not in shape and is_non_overlapping_and_dense(shape, strides)
)
_FLOATS = {dt.float32: ctypes.c_float, dt.float64: ctypes.c_double}


def _begin(owner: Owner, group: dict[str, Any], p: Tensor) -> bool:
    """Fill the state of a parameter, which stays for as long as the optimizer does. Whether its first update is done, too."""
    grad: Any = p.grad
    with backend_of(p.device).lasting(p.device):
        return owner._begin(group, owner.state[p], p, grad)


def _store(cell: Tensor, value: float) -> None:
    """Set a number of the state. There is one for every parameter, so on the host that is one store."""
    kind = _FLOATS.get(cell.dtype)
    if cell.device is not cpu or kind is None or cell.shape:
        cell.fill_(value)
        return
    kind.from_address(cell._storage.ptr + cell._offset * cell.dtype.itemsize).value = value
    cell._bump("fill_")


def _is_number(value: Any) -> bool:
    return value is not None and type(value) not in (bool, str)


class Variant:
    """A formula with its flags decided: the Python function of the scalars and, by layout, compiled kernels."""

    def __init__(self, update: Update, options: dict[str, Any]):
        self.name = update.name
        numbers = [n for n, v in options.items() if _is_number(v)]
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
        self.typed: dict[tuple[dtype, ...], tuple[Expr, ...]] = {}
        self.plans: dict[tuple, tuple] = {}
        self.lists: dict[tuple, Any] = {}
        self.run = loop_over_parameters(self, numbers, len(hoisted))

    def make_plan(self, key: tuple, tensors: tuple[Tensor, ...]) -> tuple[Any, Any]:
        """A kernel for tensors of these layouts and its first argument; (None, None) for no elements."""
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
        if len(self.plans) >= _MAX_PLANS:
            self.plans.clear()
        self.plans[key] = plan
        return plan

    def formulas(self, tensors: Any) -> tuple[Expr, ...]:
        """Formulas of what is stored to each of `positions`, over tensors (or layouts) of these dtypes, then the prologue's
        numbers."""
        dtypes = tuple(t.dtype for t in tensors)
        if dtypes not in self.typed:
            self.typed[dtypes] = tuple(simplify(r, True) for r in self._typed(opmath(dtypes[0]), list(dtypes)))
        return self.typed[dtypes]

    def launch_all(self, rows: list[tuple[Tensor, ...]], numbers: tuple) -> None:
        """Run the kernel on many parameters with their gradients and states: at once those whose tensors are alike and dense."""
        groups: dict[tuple, list[tuple[Tensor, ...]]] = {}
        for tensors in rows:
            param = tensors[0]
            where, strides = param.device, param._strides
            shape = param.shape
            alike = where is not cpu and _dense(shape, strides)
            for t in tensors:
                if t._strides != strides or t.shape != shape or t.device is not where:
                    alike = False
            if alike:
                groups.setdefault((where, *[t.dtype for t in tensors]), []).append(tensors)
            else:
                self.launch(tensors, numbers)
        for key, members in groups.items():
            run = self._list_kernel(key, members[0])
            if run is None:
                for tensors in members:
                    self.launch(tensors, numbers)
                continue
            for tensors in members:
                for i in self.positions:
                    if tensors[i]._autograd is not None or tensors[i]._base is not None:
                        check_writable(tensors[i])
            run(
                [(*[t._storage.ptr + t._offset * t.dtype.itemsize for t in m], numel_of(m[0].shape)) for m in members],
                numbers,
            )
            for tensors in members:
                for i in self.positions:
                    tensors[i]._bump(self.name)

    def update_on_device(
        self, rows: list[tuple[Tensor, ...]], cells: list[tuple[Tensor, ...]], numbers: tuple, found_inf: Tensor | None
    ) -> bool:
        """Update parameters whose step counts are on their device, without the host; whether that could be done."""
        groups: dict[tuple, list[int]] = {}
        for i, tensors in enumerate(rows):
            param = tensors[0]
            where, own = param.device, cells[i] if cells else ()
            dense = all(t._strides == param._strides and t.shape == param.shape and t.device is where for t in tensors)
            if not dense or not _dense(param.shape, param._strides) or any(t.dtype.is_complex for t in tensors):
                return False
            if any(c.device is not where for c in own) or (found_inf is not None and found_inf.device is not where):
                return False
            key = (where, tuple(t.dtype for t in tensors), tuple(c.dtype for c in own))
            if key not in self.forms and self._list_kernel((where, *key[1]), tensors) is None:
                return False
            groups.setdefault(key, []).append(i)
        for key, members in groups.items():
            if key not in self.forms:
                self.forms[key] = DeviceForm(self, _replaced, *key)
            picked = [rows[i] for i in members]
            found = 0 if found_inf is None else found_inf.data_ptr()
            self.forms[key].run(picked, [cells[i] if cells else () for i in members], numbers, found)
            for i in members:
                for position in self.positions:
                    rows[i][position]._bump(self.name)
                for cell in cells[i] if cells else ():
                    cell._bump(self.name)
        return True

    def _list_kernel(self, key: tuple, tensors: tuple[Tensor, ...]) -> Any:
        """Return the kernel that runs the formulas over lists of such tensors; None where the device has none, or for complex numbers."""
        if key not in self.lists:
            where, *dtypes = key
            run = None
            if not any(d.is_complex for d in dtypes):
                roots = tuple(simplify(r, True) for r in self._typed(opmath(dtypes[0]), dtypes))
                numbers = tuple(dt.float64 for _ in self.predicates)
                run = backend_of(where).compile_lists(roots, tuple(dtypes), self.positions, numbers, where)
            self.lists[key] = run
        return self.lists[key]

    def launch(self, tensors: tuple[Tensor, ...], numbers: tuple) -> None:
        """Run the kernel on one parameter with its gradient and state, on whatever device they are."""
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

    def _typed(self, compute: dtype, dtypes: list[dtype]) -> list[Expr]:
        """The formulas with every operand in the dtype of the computation."""
        symbols: list[Expr] = [arg(i) if opmath(d) is compute else cast(arg(i), compute) for i, d in enumerate(dtypes)]
        for k, is_condition in enumerate(self.predicates, len(dtypes)):
            symbols.append(arg(k) != 0 if is_condition else cast(arg(k), compute))
        return [_replaced(root, {id(arg(i)): s for i, s in enumerate(symbols)}) for root in self.roots]


def _replaced(root: Expr, new: dict[int, Expr]) -> Expr:
    """`root` with nodes exchanged; the inside of an exchanged node is not looked at."""
    done: dict[int, Expr] = {}
    for x in walk((root,)):
        if id(x) in new:
            done[id(x)] = new[id(x)]
        else:
            kids = children(x)
            done[id(x)] = rebuild(x, [done[id(k)] for k in kids]) if kids else x
    return done[id(root)]


def _split(results: list[Expr], positions: dict[int, int], elements: int) -> tuple[tuple[Expr, ...], list[Expr]]:
    """Take out of per-element formulas what is the same for all elements. arg(i) of the formulas is operand
    positions[i]; after these come the values taken out."""
    of_element: set[int] = set()
    for x in walk(tuple(results)):
        if (x.op == "arg" and x.args[0] < elements) or any(id(c) in of_element for c in children(x)):
            of_element.add(id(x))
    hoisted: list[Expr] = []
    new: dict[int, Expr] = {id(arg(i)): arg(k) for i, k in positions.items()}
    for x in walk(tuple(results)):
        if id(x) in of_element:
            for c in children(x):
                if id(c) not in of_element and id(c) not in new and c.op != "const":
                    new[id(c)] = arg(len(positions) + len(hoisted))
                    hoisted.append(c)
    return tuple(_replaced(r, new) for r in results), hoisted


def _real_layout(t: Tensor) -> Layout:
    """Return the layout of a tensor's real numbers; a complex number is two."""
    layout = Layout.of(t)
    if t.dtype.is_complex:
        layout.set_layout((*t.shape, 2), (*(2 * s for s in t._strides), 1), t.dtype.to_real(), t.device)
    return layout


__all__ = ["Update", "Variant", "update"]
