"""Derivatives as calls of PyTorch's operators, declared as `aten_backward` by records and `aten_only`.

    aten_backward="native_layer_norm_backward(grad, input, normalized_shape, result1, result2, weight, bias, needs(input, weight, bias))"

names the operator and says for each argument of its schema what it is: `grad`, an argument of the forward operator by the name in
PyTorch's schema, one of its results (`result`, `result1`), a constant, `needs(...)`: which of these gradients are wanted (it returns
them all), or a fact about a tensor (`shape(self)`). Gradients of several tensors are named behind an arrow. Of several texts each is the gradient of one tensor, in order.

The same text is read backwards when PyTorch's operator for the derivative is called and is no operator here: it is the derivative of the
formula, or that of the forward operator, found by autograd."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...autograd.api import grad as autograd_grad
from ...autograd.function import Function
from ...autograd.grad_mode import enable_grad, grad_mode
from ...core.tensor import Tensor
from ...expr import arg, as_expr, const
from ...ops import OPS
from ...ops.aten_only import ATEN_BACKWARD
from ...ops.machinery.aten_form import AtenForm
from ...ops.machinery.formula import Pointwise, derived
from ...ops.machinery.matching import bound
from .overloads import OpOverload, aten

# Facts about arguments: from the argument to the operand of PyTorch's operator, and from that and the gradient back to an argument.
_FACTS: dict[str, tuple[Callable, Callable]] = {
    "shape": (lambda t: list(t.shape), lambda shape, grad: grad.new_zeros(shape)),
    "length": (
        lambda t: None if t is None else [t.size(0)],
        lambda size, grad: None if size is None else grad.new_zeros(size),
    ),
    "begin": (lambda start: 0 if start is None else start, lambda start, grad: start),
    "end": (lambda stop: _NO_END if stop is None else stop, lambda stop, grad: stop),
}
_NO_END = 2**63 - 1  # how PyTorch writes a slice without an end


class Derivative:
    """The derivative of one overload; `texts` are the declarations."""

    def __init__(self, forward: str, texts: Sequence[str]) -> None:
        name, _, overload = forward.partition(".")
        self.name, self.overload = name, overload or "default"
        parts = [text.partition(" -> ") for text in texts]
        self.forms = [AtenForm(text) for text, _, _ in parts]
        self._given = [given.split(", ") if given else [] for *_, given in parts]

    @functools.cached_property
    def gives(self) -> list[list[str]]:
        """Return the names of the arguments whose gradients each text computes."""
        tensors = [a.name for a in self.forward._schema.arguments if a.base == "Tensor"]
        return [given or _needed(form) or [tensor] for given, form, tensor in zip(self._given, self.forms, tensors)]

    def covers(self, values: Sequence[Any]) -> bool:
        """Return whether the derivative computes all gradients that a call with these arguments needs."""
        asked = [
            a.name for a, v in zip(self.forward._schema.arguments, values) if isinstance(v, Tensor) and v.requires_grad
        ]
        return all(any(name in names for names in self.gives) for name in asked)

    @property
    def forward(self) -> OpOverload:
        return getattr(getattr(aten, self.name), self.overload)

    # -- from the forward call to the backward one ---------------------------------------------------------------------------
    def gradients(self, own: dict[str, Any], wanted: dict[str, bool]) -> dict[str, Any]:
        """Return the gradients of arguments by name, from `own`: arguments, results and `grad`."""
        found: dict[str, Any] = {}
        for form, names in zip(self.forms, self.gives):
            if any(wanted[name] for name in names):
                result = self._called(form, own, wanted)
                found.update(zip(names, result if isinstance(result, (list, tuple)) else [result]))
        return found

    def _called(self, form: AtenForm, own: dict[str, Any], wanted: dict[str, bool]) -> Any:
        schema = form.schema()
        positional, named = schema.as_call([_value(part, own, wanted) for part in form.parts or ()])
        return getattr(getattr(aten, form.name), schema.overload_name or "default")(*positional, **named)

    # -- and back ---------------------------------------------------------------------------------------------------------
    def means(self, place: int, values: Sequence[Any]) -> bool:
        """Return whether the constants in the text at this place equal these arguments of its operator."""
        constants = [
            (p, v) for p, v in zip(self.forms[place].parts or (), values) if not isinstance(p, (ast.Name, ast.Call))
        ]
        return all(ast.literal_eval(part) == value for part, value in constants)

    def run(self, place: int, values: Sequence[Any]) -> Any:
        """Compute the operator of the text at this place, from the values of its arguments."""
        form = self.forms[place]
        own: dict[str, Any] = {}
        for part, value in zip(form.parts or (), values):
            if isinstance(part, ast.Name):
                own[part.id] = value
            elif _is_needs(part):
                own["needs"] = list(value)
            elif isinstance(part, ast.Call):
                fact, about = _read_fact(part)
                own[about] = fact[1](value, own["grad"])
        formula = _formula_of(self.name)
        if formula is not None:
            return _by_formula(formula, own)
        names = self.gives[place]
        flags = own.get("needs", [True] * len(names))
        wanted = [name for name, flag in zip(names, flags) if flag and own.get(name) is not None]
        found = iter(_pulled_back(self.forward, own, wanted))
        every = [next(found) if name in wanted else None for name in names]
        return tuple(every) if "needs" in own or len(every) > 1 else every[0]


def _needed(form: AtenForm) -> list[str]:
    return next(([a.id for a in part.args] for part in form.parts or () if _is_needs(part)), [])


def _read_fact(part: Any) -> tuple[Any, str]:
    """Return (the fact, the name of its argument) of `fact(argument)`."""
    return _FACTS[part.func.id], part.args[0].id


def _is_needs(part: Any) -> bool:
    return isinstance(part, ast.Call) and getattr(part.func, "id", None) == "needs"


def _value(part: Any, own: dict[str, Any], wanted: dict[str, bool]) -> Any:
    if isinstance(part, ast.Name):
        return own[part.id]
    if _is_needs(part):
        return [wanted[a.id] and own[a.id] is not None for a in part.args]
    if isinstance(part, ast.Call):
        fact, about = _read_fact(part)
        return fact[0](own[about])
    return ast.literal_eval(part)


def _pulled_back(overload: OpOverload, own: dict[str, Any], wanted: list[str]) -> Sequence[Any]:
    """Return the gradients of a forward operator's arguments, by autograd."""
    values = []
    for argument in overload._schema.arguments:
        value = own.get(argument.name, argument.default_value)
        values.append(value.detach().requires_grad_(argument.name in wanted) if isinstance(value, Tensor) else value)
    given = [v for v, a in zip(values, overload._schema.arguments) if a.name in wanted]
    positional, named = overload._schema.as_call(values)
    with enable_grad():
        result = overload.run(positional, named)
        return autograd_grad(result[0] if isinstance(result, (list, tuple)) else result, given, own["grad"])


# -- formulas -----------------------------------------------------------------------------------------------------------------


def _formula_of(name: str) -> Pointwise | None:
    op = next((OPS[key] for key in (name, f"internal.{name}", f"nn.functional.{name}") if key in OPS), None)
    return op.impl if op is not None and op.kind == "pointwise" else None


def _by_formula(formula: Pointwise, own: dict[str, Any]) -> Tensor:
    """Return the derivative of a formula with respect to its first operand, from the known operands or the result."""
    names = ("grad", *("self" if n == "input" else n for n in formula.operand_names), "result")
    given = [n for n in names if isinstance(own.get(n), Tensor)]
    known = tuple(None if n in given or n not in own else const(own[n]) for n in names)
    numbers = tuple(own.get(name, default) for name, default in formula.parameters)
    return _derived(formula, names, known, tuple(given), numbers).call(tuple(own[n] for n in given))


@functools.lru_cache(1024)
def _derived(formula: Pointwise, names: tuple, known: tuple, given: tuple[str, ...], numbers: tuple) -> Pointwise:
    symbols = [arg(given.index(n)) if n in given else k for n, k in zip(names, known)]
    assert formula.grad is not None, f"the derivative of {formula.name} is to be declared"
    share = formula.grad(symbols[0], *symbols[1:-1], *numbers, out=symbols[-1])
    root = as_expr(share[0] if isinstance(share, tuple) else share)
    return derived(f"{formula.name}_backward", root, len(given))


# -- where they are declared --------------------------------------------------------------------------------------------------


@functools.cache
def declared() -> dict[str, Derivative]:
    """Return the derivatives by the forward operator's name, with the overload if it is not the default."""
    texts: dict[str, Any] = dict(ATEN_BACKWARD)
    for op in list(OPS.values()):
        if isinstance(op.aten_backward, dict):
            texts.update((f"{op.aten_name}.{overload}", text) for overload, text in op.aten_backward.items())
        elif op.aten_backward:
            texts[op.aten_name] = op.aten_backward
    return {name: Derivative(name, (text,) if isinstance(text, str) else text) for name, text in texts.items()}


@functools.cache
def _backwards() -> dict[str, list[tuple[Derivative, int]]]:
    """Return the declared derivatives by the name of the operator that computes them, each with its place among the texts."""
    found: dict[str, list[tuple[Derivative, int]]] = {}
    for derivative in declared().values():
        for place, form in enumerate(derivative.forms):
            found.setdefault(form.name, []).append((derivative, place))
    return found


def derivative_of(overload: OpOverload) -> Derivative | None:
    """Return the derivative declared for an overload, or None."""
    known = overload._overloadname
    return declared().get(overload._overloadpacket.__name__ + ("" if known == "default" else f".{known}"))


def function_of(name: str, overload: str) -> Callable | None:
    """Return the function that runs for an operator that is the derivative of another; None for other operators."""
    found = _backwards().get(name)
    if found is None or overload != "default":
        return None
    schema = getattr(getattr(aten, name), overload)._schema

    def run(*args: Any, **kwargs: Any) -> Any:
        values = bound(schema, args, kwargs)
        for derivative, place in found:
            if derivative.means(place, values):
                return derivative.run(place, values)
        raise NotImplementedError(f"aten::{name} with these arguments")

    return run


# -- recording ----------------------------------------------------------------------------------------------------------------


def by_name(formula: Pointwise, operands: Sequence[Any]) -> Any:
    """Compute a formula's gradient by PyTorch's operator for it; NotImplemented if none is declared that reads the same values."""
    if formula.derivative_of is None:
        return NotImplemented
    forward, index, reads, params = formula.derivative_of
    derivative = declared().get(forward.op.aten_name)
    if derivative is None or index or len(derivative.forms) > 1:
        return NotImplemented
    parameters = [name for name, _ in forward.parameters]
    given = [name for name, runs in zip(parameters, forward.runtime_flags(params)) if runs]
    names = ("grad", *("self" if n == "input" else n for n in forward.operand_names), *given, "result")
    own = dict(zip(parameters, params or forward.defaults)) | {names[i]: v for i, v in zip(reads, operands)}
    if not derivative.forms[0].mentioned() <= own.keys() | {"inplace"}:
        return NotImplemented
    return derivative._called(derivative.forms[0], own, {})


def asks_for_gradients(args: tuple, kwargs: dict[str, Any]) -> bool:
    """Return whether a call with these arguments may be differentiated."""
    return grad_mode.enabled and any(isinstance(a, Tensor) and a.requires_grad for a in (*args, *kwargs.values()))


def recorded(recorder: Any, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Make a call whose derivative is declared, so that the backward pass makes the declared calls; NotImplemented if none is declared for
    such a call."""
    values = overload.bind(args, kwargs)
    if overload.derivative is None or not overload.derivative.covers(values):
        return NotImplemented
    inner: list[Any] = []  # the recorded result: autograd returns other tensors over the same memory
    result = _Declared.apply(overload.derivative, inner, *values)
    recorder.returned(inner[0], result)
    return result


class _Declared(Function):
    """A call whose derivative is declared, in the graph of gradients."""

    @staticmethod
    def forward(ctx: Any, derivative: Derivative, inner: list, *values: Any) -> Any:
        positional, named = derivative.forward._schema.as_call(list(values))
        result = derivative.forward(*positional, **named)
        inner.append(result)
        ctx.derivative, ctx.values, ctx.result = derivative, values, result
        ctx.set_materialize_grads(False)
        if isinstance(result, tuple):
            ctx.mark_non_differentiable(*(r for r in result if not r.is_floating_point()))
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *others: Any) -> Any:
        if grad_mode.enabled:
            raise NotImplementedError(
                "a graph of second derivatives of operators whose derivatives are operators of their own"
            )
        if grad is None or any(g is not None for g in others):
            raise NotImplementedError(f"a graph of the gradients of further results of {ctx.derivative.forward}")
        names = [a.name for a in ctx.derivative.forward._schema.arguments]
        results = ctx.result if isinstance(ctx.result, tuple) else (ctx.result,)
        own = dict(zip(names, ctx.values)) | {f"result{i}": r for i, r in enumerate(results)}
        own |= {"grad": grad, "result": results[0]}
        found = ctx.derivative.gradients(own, dict(zip(names, ctx.needs_input_grad[2:])))
        return (None, None, *(found.get(name) for name in names))
