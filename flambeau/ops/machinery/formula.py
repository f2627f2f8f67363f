"""Pointwise operators: from a scalar formula to a function on tensors.

A call looks up a *plan* by the operands' dtypes, shapes and strides: the output's layout and a compiled kernel. A plan
is made once; afterwards a call is one dictionary lookup, one allocation and one native call.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core import modes
from ...core.aliases import AnyFunction, Values
from ...core.backend import backend_of
from ...core.caching import remember
from ...core.device import device
from ...core.dtype import dtype, opmath
from ...core.graph import public_name
from ...core.layout import broadcast_two, expand_strides
from ...core.promotion import depends_on_default_dtype
from ...core.sharded import ShardedOperand
from ...core.tensor import Tensor, copy_of_array, numel_of
from ...expr import Expr, arg, arguments, as_expr, const, pullback, substitute
from ...expr.functions import real
from ...expr.node import cast
from ...expr.simplify import simplify
from ...kernels.elementwise import passing
from .dtype_rules import gradient_rule, number_dtype, promote, select, unsupported
from .gradient import run_plan
from .parameters import NO_DEFAULT, parameter_names, parameters, positional_count
from .plan import Form, Layout, PointwisePlan, broadcast, common_device, compiles, is_by_value, kernel, result_strides
from .quirks import NO_QUIRKS, Quirks
from .record import Op
from .watched import PrivateCall

_active, _intercept, _watching = modes.active, modes.intercept, modes.watching
_NUMBERS = (bool, int, float, complex)
_RUNTIME = (int, float, complex)  # parameters of these types are arguments of the kernel
_MAX_PLANS = 4096
_LARGEST = 2**63 - 1  # of the whole numbers that kernels take by value


# The default of an operand that may be left out.
OPTIONAL: Any = type("OPTIONAL", (), {"__repr__": lambda self: "None"})()


def as_operand(x: Any, op_name: str, position: int) -> Any:
    """Return a tensor or a Python number unchanged and a NumPy scalar as a number; raise a TypeError for anything else."""
    if isinstance(x, np.generic):
        return x.item()  # before the next test: np.float64 is a float too
    if type(x) is int and _LARGEST < x <= 2 * _LARGEST + 1:
        return copy_of_array(np.array(x, np.uint64), dt.uint64)
    if isinstance(x, (Tensor, *_NUMBERS)) or x is None:
        return x
    raise TypeError(f"{op_name}(): argument {position + 1} must be Tensor or Number, not {type(x).__name__}")


class Pointwise:
    """An elementwise operator.

    Formula parameters without a default are operands: tensors or numbers (or None, with default OPTIONAL). Parameters with a
    default are numbers (arguments of the kernel at run time) or choices (a string, bool or None selects the formula).
    `constants` names numbers that are part of the formula instead: every value of a parameter, or the listed values of
    an operand. A parameter called `compute`, of the formula or of `grad`, is the dtype the formula is evaluated in.

    `rule` gives the dtypes (ops.dtype_rules); `kinds` says which the kernel takes: b(ool), i(nteger), f(loat), c(omplex),
    and `kernel` is its name in messages. `numbers` are the operands that may be Python numbers (default: all but the
    first). `check(op, operands[, params])` runs once per plan, so it may depend on the
    types of numbers only. Before every call, the function of the values that `guard(compute, operands)` returns is called, unless that is
    None, and the numbers in `fits` must be in the range of the dtype of the computation.
    `grad(g, *operands, *params, out)` replaces the automatic derivative; exceptions from the rules are `quirks`."""

    unrecorded = False  # whether autograd ignores the in-place form, even for leaves
    adapt: AnyFunction | None = None  # changes the operands before a plan is made for them
    exact_out = False  # whether out= must have the result's dtype

    def __init__(
        self,
        name: str,
        formula: AnyFunction,
        rule: AnyFunction = promote,
        grad: AnyFunction | None = None,
        quirks: Quirks = NO_QUIRKS,
        differentiable: bool = True,
        check: AnyFunction | None = None,
        kinds: str = "bifc",
        kernel: str | None = None,
        numbers: tuple[str, ...] | None = None,
        constants: dict[str, frozenset[Any] | None] | None = None,
        guard: AnyFunction | None = None,
        fits: tuple[str, ...] = (),
    ):
        self.name = name
        self.formula = formula
        self.rule = rule
        self.grad = grad
        self.quirks = quirks
        self.label = quirks.label or camel(name) + "Backward0"
        self.former = quirks.former
        self.differentiable = differentiable
        self.check = check
        self.kinds, self.kernel, self.guard, self.fits = kinds, kernel or name + "_cpu", guard, fits
        every = parameters(formula)
        self.sees_dtype = any(p.name == "compute" for p in every)
        self.signature = [p for p in every if p.name != "compute"]
        is_operand = [p.default is NO_DEFAULT or p.default is OPTIONAL for p in self.signature]
        self.operand_names = tuple(p.name for p, yes in zip(self.signature, is_operand) if yes)
        self.parameters = tuple((p.name, p.default) for p, yes in zip(self.signature, is_operand) if not yes)
        self.defaults = tuple(d for _, d in self.parameters)
        self.arity = len(self.operand_names)
        self.alphabetical = sorted(
            range(self.arity), key=lambda i: public_name(self.operand_names[i])
        )  # as PyTorch differentiates
        self.numbers = self.operand_names[1:] if numbers is None else numbers  # operands that may be Python numbers
        fixed = constants or {}
        self.constant_operands = {i: fixed[n] for i, n in enumerate(self.operand_names) if n in fixed}
        self.constant_params = tuple(n in fixed for n, _ in self.parameters)
        self.fixed_params = any(self.constant_params)
        self.grad_sees_dtype = grad is not None and "compute" in parameter_names(grad)
        self.reads_condition = rule is select  # operand 0 is a truth value
        self.rule_reads_params = positional_count(rule) > 2
        self.check_reads_params = check is not None and positional_count(check) > 2
        self.plans: dict[tuple[Any, ...], PointwisePlan] = {}
        self.forms: dict[tuple[Any, ...], Form] = {}  # what plans share that differ in sizes only
        self.calls: dict[tuple[Any, ...], PointwisePlan] = {}  # the same plans by the keys of calls: calls.call_key
        self.inplace_plans: dict[tuple[Any, ...], PointwisePlan] = {}
        self.shares: dict[tuple[Any, ...], Any] = {}
        self.gradients: dict[int, tuple[Any, ...]] = {}
        # For a gradient: its formula, the operand, the values read (numbered as in `share`), the formula's parameters.
        self.derivative_of: tuple[Pointwise, int, tuple[int, ...], tuple[Any, ...]] | None = None
        depends_on_default_dtype(self)

    # -- calling ----------------------------------------------------------------------------------------------------
    def call(self, operands: Values, params: Values = (), out_dtype: dtype | None = None) -> Tensor:
        """Compute the operator for another one: any mix of tensors and numbers, parameters, a forced output dtype."""
        if _active and _watching():
            options = {"params": params, "out_dtype": out_dtype}
            return _intercept(self.op, self.private, operands, {k: v for k, v in options.items() if v})
        try:
            plan = self.plan_for(operands, params, out_dtype, None)
        except ShardedOperand as problem:
            options = {"params": params, "out_dtype": out_dtype}
            instead = problem.instead(self.private, operands, {k: v for k, v in options.items() if v})
        else:
            return run_plan(plan, operands, self.runtime_params(params) if params else ())
        return instead()

    def _compute(self, *operands: Any, params: Values = (), out_dtype: dtype | None = None) -> Tensor:
        plan = self.plan_for(operands, params, out_dtype, None)
        return run_plan(plan, operands, self.runtime_params(params) if params else ())

    @functools.cached_property
    def op(self) -> Op:
        """Return the operator's record: that of its declaration, or one for a formula that is only a part of operators."""
        op = Op(
            self.name, "pointwise", self._compute, (), None, None, False, self.differentiable, self, source=self.formula
        )
        op.function = PrivateCall(op, self._compute)
        return op

    @functools.cached_property
    def private(self) -> PrivateCall:
        """Return `call` as modes see it: `private(*operands, params=, out_dtype=)`."""
        return PrivateCall(self.op, self._compute)

    def into(self, out: Tensor, operands: Values, params: Values = ()) -> PointwisePlan:
        """Compute into existing memory (the caller has checked shape, dtype and overlap). Records nothing."""
        plan = self.plan_for(operands, params, out.dtype, (out.shape, out._strides, out.device))
        plan.run(out, operands + self.runtime_params(params))
        return plan

    def runtime_params(self, params: Values) -> tuple[Any, ...]:
        return tuple(v for v, fixed in zip(params, self.constant_params) if type(v) in _RUNTIME and not fixed)

    def runtime_flags(self, params: Values) -> list[bool]:
        """Return for each parameter whether its value is passed in every call; the others are part of the plan."""
        flags = [type(v) in _RUNTIME and not fixed for v, fixed in zip(params, self.constant_params)]
        return flags or [False] * len(self.parameters)

    def params_key(self, params: Values) -> tuple[Any, ...]:
        """Return the part of a plan's key that parameters contribute: values of those that are constants of the formula, types of others."""
        return tuple(
            type(v) if type(v) in _RUNTIME and not fixed else (v, type(v))
            for v, fixed in zip(params, self.constant_params)
        )

    def plan_for(self, operands: Values, params: Values, out_dtype: dtype | None, out: Values | None) -> PointwisePlan:
        key: list[Any] = []
        for i, x in enumerate(operands):
            if isinstance(x, Tensor):
                key += (x.dtype, x.device, x.shape, x._strides)
            elif self.is_constant(i, x):
                key.append((type(x), x))
            else:
                key.append(type(x))
        if params or out_dtype is not None:
            key += (self.params_key(params), out_dtype, out)
        frozen = tuple(key)
        plan = self.plans.get(frozen)
        if plan is None:
            plan = self.make_plan(frozen, operands, params, out_dtype, out)
        return plan

    def remember_call(self, key: Values, plan: PointwisePlan) -> None:
        remember(self.calls, key, plan, _MAX_PLANS)

    def is_constant(self, index: int, value: Any) -> bool:
        """Return whether the number `value` of operand `index` is part of the formula."""
        if index not in self.constant_operands or isinstance(value, Tensor) or value is None:
            return False
        chosen = self.constant_operands[index]
        return chosen is None or value in chosen

    # -- planning ---------------------------------------------------------------------------------------------------
    def make_plan(
        self, key: Values, operands: Values, params: Values, out_dtype: dtype | None, out: Values | None
    ) -> PointwisePlan:
        present = tuple(x for x in operands if x is not None)
        shape = broadcast(present)
        if out is not None and broadcast_two(shape, out[0]) != out[0]:
            raise RuntimeError(f"output with shape {list(out[0])} doesn't match the broadcast shape {list(shape)}")
        if self.check is not None:
            self.check(self, operands, params or self.defaults) if self.check_reads_params else self.check(
                self, operands
            )
        form = self._form(operands, present, params, out_dtype, None if out is None else out[2])
        plan = PointwisePlan()
        plan.op, plan.params = self, params
        plan.take(form)
        plan.guard = None if self.guard is None else self.guard(form.compute, operands)
        limits = plan.limits_of_numbers(operands) if self.fits else {}
        if out is not None:
            plan.set_layout(out[0], out[1], form.dtype, form.device)
        else:
            apart = self.quirks.numbers_apart
            wrap = not apart or (apart == "first" and isinstance(operands[0], Tensor))
            strides = result_strides(shape, present, form.compute, int(self.reads_condition), wrap)
            plan.set_layout(shape, strides, form.dtype, form.device)
        plan.operands = tuple([Layout.of(x) if isinstance(x, Tensor) else None for x in operands])
        plan.recipes = {}
        plan.fn = plan.native = plan.first = None
        if form.is_native and plan.nbytes:
            plan.native, plan.first = kernel(plan.roots, [plan], self._inputs(plan, operands))
            direct = plan.guard is None and "z" not in plan.passing
            plan.fn = plan.native if direct and not any(is_by_value(x, form.device) for x in operands) else None
        if limits:
            plan.refuse_beyond(limits)
        if len(self.plans) >= _MAX_PLANS:
            self.forget_plans()
        self.plans[key] = plan
        return plan

    def forget_plans(self) -> None:
        self.plans.clear()
        self.calls.clear()
        self.inplace_plans.clear()
        self.forms.clear()

    def _form(
        self, operands: Values, present: Values, params: Values, out_dtype: dtype | None, where: device | None
    ) -> Form:
        """Return the part of a plan that does not depend on sizes, cached for operands like these. `where` is the device of an out=."""
        key: list[Any] = [self.params_key(params), out_dtype, where]
        for i, x in enumerate(operands):
            if isinstance(x, Tensor):
                key += (x.dtype, x.device, x.shape if self._is_single(x) else None)
            else:
                key.append((type(x), x) if self.is_constant(i, x) else type(x))
        frozen = tuple(key)
        form = self.forms.get(frozen)
        if form is None:
            form = self._make_form(operands, present, params, out_dtype, where)
            remember(self.forms, frozen, form, _MAX_PLANS)
        return form

    def _make_form(
        self, operands: Values, present: Values, params: Values, out_dtype: dtype | None, where: device | None
    ) -> Form:
        """Find the dtypes and trace the formula."""
        form = Form()
        form.device = common_device(present) if where is None else common_device(present, where)
        form.compute, form.natural = (
            self.rule(self, present, params or self.defaults) if self.rule_reads_params else self.rule(self, present)
        )
        compute, natural = form.compute, form.natural
        if ("i" if compute.kind == "u" else compute.kind) not in self.kinds:
            raise unsupported(f"{self.kernel}", compute)
        form.dtype = out_dtype or natural
        form.constants = {i: x for i, x in enumerate(operands) if x is None or self.is_constant(i, x)}
        form.records = self.differentiable and (natural.is_floating_point or natural.is_complex)
        math_type = opmath(compute)
        host = backend_of(form.device).on_host and params in ((), self.defaults)
        inputs: list[dtype] = []
        symbols: list[Any] = []
        for i, x in enumerate(operands):
            if i in form.constants:
                symbols.append(None if x is None else const(x))
                continue
            if is_by_value(x, form.device):
                symbol = self._value_symbol(i, x, math_type, inputs)
            else:
                symbol = self._symbol(i, x, math_type, inputs)
            symbols.append(cast(cast(symbol, compute), math_type) if self._rounds(i, x, compute, host) else symbol)
        symbols += self._parameter_symbols(params, math_type, inputs)
        form.in_dtypes = tuple(inputs)
        form.passing = self._passing(form, operands)
        root = self.evaluate(symbols, self._step_dtype(operands, compute))
        if compute.is_complex and natural.is_complex and form.dtype is dt.bool_:
            root = root != 0  # an imaginary number is true, too
        elif compute.is_complex and not form.dtype.is_complex and natural.is_complex:
            root = real(root)  # the gradient of a real operand in a complex product
        if form.dtype is not natural and opmath(natural) is not natural:
            root = cast(root, natural)  # a wider out= receives the rounded result
        is_real = not any(d.is_complex for d in (*inputs, form.dtype, compute))
        form.roots = (simplify(root, is_real),)
        form.is_native = compiles(form.device, *inputs, form.dtype)
        return form

    @staticmethod
    def _inputs(plan: PointwisePlan, operands: Values) -> list[tuple[dtype, tuple[int, ...] | None]]:
        """Return dtype and expanded strides of everything the kernel reads; None for numbers that are passed by value."""
        strides = [
            expand_strides(x.shape, x._strides, plan.shape)
            if isinstance(x, Tensor) and not is_by_value(x, plan.device)
            else None
            for i, x in enumerate(operands)
            if i not in plan.constants
        ]
        strides += [None] * (len(plan.in_dtypes) - len(strides))
        return list(zip(plan.in_dtypes, strides))

    def evaluate(self, symbols: list[Any], compute: dtype | None) -> Expr:
        """Return the formula of these operands and parameters as an expression."""
        named = {n: v for (n, _), v in zip(self.parameters, symbols[self.arity :])}
        if self.sees_dtype:
            named["compute"] = compute
        return as_expr(self.formula(*symbols[: self.arity], **named))

    def _step_dtype(self, operands: Values, compute: dtype) -> dtype:
        """Return the dtype that a formula rounds its steps to; with the quirk `exact_with_number` a number as second operand, or a tensor of
        one element, prevents rounding."""
        exact = self.quirks.exact_with_number and self._is_single(operands[1])
        return opmath(compute) if exact else compute

    def _is_single(self, x: Any) -> bool:
        """Return whether an operand counts as a number when steps are rounded."""
        return not isinstance(x, Tensor) or not x.shape or (self.quirks.exact_with_number and numel_of(x.shape) == 1)

    def _rounds(self, i: int, x: Any, compute: dtype, host: bool) -> bool:
        """Return whether operand i loses precision before the computation; `host`: on the CPU, with no parameters given."""
        if opmath(compute) is compute or not compute.is_floating_point:
            return False
        if i in self.quirks.unrounded and not (host and self.quirks.rounds_on_host):
            return False
        if self.rule is gradient_rule or (self.reads_condition and i == 0):
            return False
        return not isinstance(x, Tensor) or (opmath(x.dtype) is x.dtype and not x.shape)

    def _symbol(self, i: int, x: Any, math_type: dtype, inputs: list[dtype]) -> Expr:
        """Return the expression for operand i, cast to the dtype of the computation; its own dtype is added to the inputs."""
        position = len(inputs)
        if isinstance(x, Tensor):
            inputs.append(x.dtype)
            if self.reads_condition and i == 0:
                return arg(position) if x.dtype is dt.bool_ else arg(position) != 0
            return arg(position) if opmath(x.dtype) is math_type else cast(arg(position), math_type)
        return self._number_symbol(x, math_type, inputs)

    def _value_symbol(self, i: int, x: Tensor, math_type: dtype, inputs: list[dtype]) -> Expr:
        """Return the expression for a 0-dim tensor of the host, whose value is passed to another device with the call."""
        d = dt.complex128 if x.dtype.is_complex else dt.float64 if x.dtype.is_floating_point else dt.int64
        inputs.append(d)
        symbol = arg(len(inputs) - 1)
        if self.reads_condition and i == 0:
            return symbol != 0
        symbol = symbol if d is opmath(x.dtype) else cast(symbol, opmath(x.dtype))
        return symbol if opmath(x.dtype) is math_type else cast(symbol, math_type)

    @staticmethod
    def _number_symbol(x: Any, math_type: dtype, inputs: list[dtype]) -> Expr:
        """Return the expression for a number passed by value: as a float if the computation is in floats, so that 2 and 2.0 share code."""
        d = number_dtype(x)
        if math_type.is_floating_point and not d.is_complex:
            d = dt.float64
        inputs.append(d)
        symbol = arg(len(inputs) - 1)
        return symbol if d is math_type else cast(symbol, math_type)

    def _parameter_symbols(self, params: Values, math_type: dtype, inputs: list[dtype]) -> list[Any]:
        symbols: list[Any] = []
        for v, fixed in zip(params or self.defaults, self.constant_params):
            if type(v) not in _RUNTIME:
                symbols.append(v)
            elif fixed or not params:
                symbols.append(v if fixed else const(v))
            else:
                # a real parameter of a complex formula (a tolerance, a scale) stays real
                kind = math_type if isinstance(v, complex) else math_type.to_real()
                symbols.append(self._number_symbol(v, kind, inputs))
        return symbols

    @staticmethod
    def _passing(form: Form, operands: Values) -> str:
        rest = iter(form.in_dtypes)
        letters = ""
        for i, x in enumerate(operands):
            if i in form.constants:
                letters += "-"
            else:
                d = next(rest)
                letters += "p" if isinstance(x, Tensor) and not is_by_value(x, form.device) else passing(d)
        return letters + "".join(map(passing, rest))

    # -- derivative -------------------------------------------------------------------------------------------------
    def share(self, index: int, plan: PointwisePlan) -> Expr | None | Exception:
        """Return the gradient of operand `index` as an expression. arg(0) is the incoming gradient, then come the operands, the run-time
        parameters and the output."""
        key = (
            index,
            tuple((i, type(v), v) for i, v in plan.constants.items()),
            self.params_key(plan.params),
            tuple(layout is None for layout in plan.operands),
            plan.compute.is_complex,
        )
        if key not in self.shares:
            self.shares[key] = self._derive(index, plan)
        return self.shares[key]

    def _derive(self, index: int, plan: PointwisePlan) -> Expr | None | Exception:
        if callable(self.label) and positional_count(self.label) == 1 and self.label(plan.operands) == "NotImplemented":
            return RuntimeError(f"derivative for aten::{self.name} is not implemented")
        symbols: list[Any] = [arg(i + 1) for i in range(self.arity)]
        for i, x in plan.constants.items():
            symbols[i] = None if x is None else const(x)
        position = self.arity + 1
        for v, fixed in zip(plan.params or self.defaults, self.constant_params):
            if type(v) not in _RUNTIME:
                symbols.append(v)
            elif fixed or not plan.params:
                symbols.append(v if fixed else const(v))
            else:
                symbols.append(arg(position))
                position += 1
        if self.grad is not None:
            named = {"compute": plan.compute} if self.grad_sees_dtype else {}
            result = self.grad(arg(0), *symbols, out=arg(position), **named)
            share = result[index] if isinstance(result, tuple) else result
            if isinstance(share, Exception):
                return share
        else:
            in_complex = plan.compute.is_complex
            root = simplify(self.evaluate(symbols, opmath(plan.compute)), not in_complex)
            (share,) = pullback(root, arg(0), (symbols[index],), in_complex)
            if share is None and self.rule is gradient_rule:
                return const(0)  # the second derivative of relu and the like is zero, not missing
        return None if share is None else simplify(as_expr(share), not plan.compute.is_complex)

    def gradient_of(self, index: int, plan: PointwisePlan) -> tuple[Pointwise | None, tuple[int, ...]]:
        """Return an operator that computes the gradient of operand `index`, and the values that it reads (numbered as in `share`)."""
        share = self.share(index, plan)
        if isinstance(share, Exception):
            raise share
        if share is None:
            return None, ()
        found = self.gradients.get(id(share))  # expressions are interned
        if found is None:
            used = tuple(sorted(arguments((share,))))
            place = {a: i for i, a in enumerate(used)}
            (compact,) = substitute((share,), lambda e: arg(place[e.args[0]]) if e.op == "arg" else None)
            made = derived(f"{self.name}_backward", compact, len(used))
            made.derivative_of = (self, index, used, plan.params)
            found = self.gradients[id(share)] = (made, used)
        return found


def derived(name: str, root: Expr, count: int) -> Pointwise:
    """Make a pointwise operator from an expression over arg(0..count-1)."""

    def formula(*symbols: Expr) -> Expr:
        (result,) = substitute((root,), lambda e: symbols[e.args[0]] if e.op == "arg" else None)
        return result

    names = [inspect.Parameter(f"x{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(count)]
    formula.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    return Pointwise(name, formula, gradient_rule)


def camel(name: str) -> str:
    """Return a name in the style of autograd nodes: add -> Add, log_softmax -> LogSoftmax."""
    return "".join(part[:1].upper() + part[1:] for part in name.strip("_").split("_"))
