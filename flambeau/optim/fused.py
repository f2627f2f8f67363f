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

import functools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from ..core import modes
from ..core.backend import backend_of
from ..core.device import cpu
from ..core.sharded import SpreadTensor
from ..core.tensor import Tensor
from ..core.wrapped import is_wrapper
from ..ops.machinery.plan import NATIVE, compiles
from ..ops.machinery.record import Op
from ..ops.machinery.watched import PrivateCall
from ..ops.shape.complex_views import view_as_complex, view_as_real
from .variant import Formula, Variant, is_number, store_number

_NUMBER = object()  # stands for any number in the key of a variant


def update(scalars: tuple[str, ...] = ()) -> Callable[[Callable], Update]:
    """Return a decorator that declares an update formula."""
    return lambda formula: Update(formula, scalars)


class Owner(Protocol):
    """Protocol of the parts of an optimizer that its update uses."""

    state: Any

    def _begin(self, group: dict[str, Any], state: dict[str, Any], p: Tensor, grad: Tensor) -> bool:
        """Fill the state of a parameter that is updated for the first time; return whether that update is done, too."""
        ...

    def _sparse_gradient(self, group: dict[str, Any], p: Tensor, options: dict[str, Any]) -> None:
        """Update a parameter whose gradient is sparse."""


class Parts:
    """Optimizer state of this rank's parts of distributed parameters."""

    def __init__(self, state: dict[Tensor, dict[str, Any]], found_inf: Tensor | None):
        self.state, self.found_inf = state, found_inf

    def _begin(self, group: dict[str, Any], state: dict[str, Any], p: Tensor, grad: Tensor) -> bool:
        return False  # the state is there

    def _sparse_gradient(self, group: dict[str, Any], p: Tensor, options: dict[str, Any]) -> None:
        raise RuntimeError("a parameter that is spread over ranks has a sparse gradient, which no optimizer can use")


class Update(Formula):
    """A formula and its compiled variants."""

    def __init__(self, formula: Callable, scalars: tuple[str, ...] = ()):
        super().__init__(formula, scalars)
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
        numbers = [v.item() if isinstance(v, Tensor) else v for v in options.values() if is_number(v)]
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
        """Update parameters of which some are sharded over ranks: elements are independent, so each rank updates its own."""
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
        """Return the compiled update for these flags."""
        key = tuple(_NUMBER if is_number(v) else v for v in options.values())
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
        """Run the update as one operator over lists of tensors: the form that modes see, and that runs on devices other than the CPU."""
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
        """The operator `operator(params, grads, *scalars, *states, **options)` of lists of tensors, which it changes in place."""
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
        op.writes, op.updates = ("param", *self.scalars, *self.elements[2:]), True
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
        """Update every parameter of a list. `states` are lists too: of the scalars first, then of the tensors, then, if there is one
        more, of numbers by which gradients are multiplied first. Nothing happens if `found_inf` is not zero."""
        numbers = [v.item() if isinstance(v, Tensor) else v for v in options.values() if is_number(v)]
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
                store_number(cell, value)
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


def _begin(owner: Owner, group: dict[str, Any], p: Tensor) -> bool:
    """Fill the state of a new parameter; return whether its first update is done, too."""
    grad: Any = p.grad
    with backend_of(p.device).lasting(p.device):
        return owner._begin(group, owner.state[p], p, grad)
