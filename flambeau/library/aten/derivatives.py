"""Derivatives as calls of PyTorch's operators, declared as `aten_backward` by records and `aten_only`.

    aten_backward="native_layer_norm_backward(grad, input, normalized_shape, result1, result2, weight, bias, needs(input, weight, bias))"

names the operator and says for each argument of its schema what it is: `grad` (`grads` where further results have gradients, too), an
argument of the forward operator by the name in PyTorch's schema, one of its results (`result`, `result1`), a constant, `needs(...)`: which of these gradients are wanted (it returns
them all), or a fact about a tensor (`length(bias)`). Gradients of several tensors are named behind an arrow. Of several texts each is the gradient of one tensor, in order.

The same text is read backwards when PyTorch's operator for the derivative is called and is no operator here: it is the derivative of the
formula, or that of the forward operator, found by autograd."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...autograd.api import grad as autograd_grad
from ...autograd.function import Function, FunctionNode
from ...autograd.grad_mode import enable_grad, grad_mode
from ...core.device import meta
from ...core.graph import named_class
from ...core.tensor import Tensor, empty
from ...expr import arg, as_expr, const
from ...ops import OPS
from ...ops.aten_only import ATEN_BACKWARD, ATEN_ONLY
from ...ops.machinery.aten_form import AtenForm
from ...ops.machinery.formula import Pointwise, derived
from ...ops.machinery.matching import bound
from ...ops.pointwise.activation import refuse_slope
from .overloads import OpOverload, aten, recording

# Facts about arguments: from the argument to the operand of PyTorch's operator, and from that and the gradient back to an argument.
_METADATA_QUERIES: dict[str, tuple[Callable, Callable]] = {
    "shape": (lambda t: list(t.shape), lambda shape, grad: grad.new_zeros(shape)),
    "rows": (lambda t: t.size(0), lambda rows, grad: grad.new_zeros(rows, grad.size(1))),
    "length": (
        lambda t: None if t is None else [t.size(0)],
        lambda size, grad: None if size is None else grad.new_zeros(size),
    ),
}


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

    @functools.cached_property
    def names(self) -> list[str]:
        """The names of the forward operator's arguments."""
        return [a.name for a in self.forward._schema.arguments]

    @functools.cached_property
    def reads(self) -> list[str]:
        """The names of the arguments and results whose values the derivative reads."""
        parts = [part for form in self.forms for part in form.parts or ()]
        return list(dict.fromkeys(part.id for part in parts if isinstance(part, ast.Name)))

    @functools.cached_property
    def function(self) -> Any:
        """The autograd function of such calls, whose nodes have PyTorch's name."""
        words = self.name.removesuffix("_forward").split("_")
        made: Any = type(self.name, (_Declared,), {})
        made._backward_cls = named_class(FunctionNode, "".join(word.title() for word in words) + "Backward0")
        return made

    def covers(self, values: Sequence[Any]) -> bool:
        """Return whether the derivative computes all gradients that a call with these arguments needs."""
        asked = [name for name, v in zip(self.names, values) if isinstance(v, Tensor) and v.requires_grad]
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
                result = self._called_overload(form, own, wanted)
                found.update(zip(names, result if isinstance(result, (list, tuple)) else [result]))
        return found

    def _called_overload(self, form: AtenForm, own: dict[str, Any], wanted: dict[str, bool]) -> Any:
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
            if self.name.endswith("_") and own[formula.parameters[0][0]] < 0:
                refuse_slope()
            return _differentiate_formula(formula, own)
        names = self.gives[place]
        flags = own.get("needs", [True] * len(names))
        wanted = [name for name, flag in zip(names, flags) if flag and own.get(name) is not None]
        found = iter(_pull_back(self.forward, own, wanted, [own["grad"]]))
        every = [next(found) if name in wanted else None for name in names]
        return tuple(every) if "needs" in own or len(every) > 1 else every[0]


def _needed(form: AtenForm) -> list[str]:
    return next(([a.id for a in part.args] for part in form.parts or () if _is_needs(part)), [])


def _read_fact(part: Any) -> tuple[Any, str]:
    """Return (the fact, the name of its argument) of `fact(argument)`."""
    return _METADATA_QUERIES[part.func.id], part.args[0].id


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


def _pull_back(overload: OpOverload, own: dict[str, Any], wanted: list[str], grads: Sequence[Any]) -> Sequence[Any]:
    """The gradients of a forward operator's arguments, which have a history where that is recorded and an argument has one."""
    again = grad_mode.enabled and any(isinstance(v, Tensor) and v.requires_grad for v in own.values())
    run = functools.partial(_recompute, overload, own, wanted, again)
    given, results = run() if recording.recorder is None else recording.recorder.unseen(run)
    pairs = [(r, g) for r, g in zip(results, grads) if g is not None and r.requires_grad]
    found, slopes = zip(*pairs) if pairs else ((), ())
    return autograd_grad(found, given, slopes, create_graph=again, allow_unused=True)


def _recompute(overload: OpOverload, own: dict[str, Any], wanted: list[str], again: bool) -> tuple[list, Sequence[Any]]:
    """Make a forward operator's call; returns the arguments that are wanted, as no others were computed from them, and the results."""
    values = []
    with enable_grad():
        for argument in overload._schema.arguments:
            value = own.get(argument.name, argument.default_value)
            if isinstance(value, Tensor) and again and value.requires_grad:
                value = value.view_as(value)
            elif isinstance(value, Tensor):
                value = value.detach().requires_grad_(argument.name in wanted)
                value = value.clone() if again and not value.requires_grad else value  # running statistics are written
            values.append(value)
        positional, named = overload._schema.as_call(values)
        result = overload.run(positional, named)
    given = [v for v, a in zip(values, overload._schema.arguments) if a.name in wanted]
    return given, result if isinstance(result, (list, tuple)) else [result]


# -- formulas -----------------------------------------------------------------------------------------------------------------


def _formula_of(name: str) -> Pointwise | None:
    keys = (name, f"internal.{name}", f"nn.functional.{name}")
    op = getattr(ATEN_ONLY.get(name), "op", None) or next((OPS[key] for key in keys if key in OPS), None)
    return op.impl if op is not None and op.kind == "pointwise" else None


def _differentiate_formula(formula: Pointwise, own: dict[str, Any]) -> Tensor:
    """Return the derivative of a formula with respect to its first operand, from the known operands or the result."""
    names = ("grad", *("self" if n == "input" else n for n in formula.operand_names), "result")
    given = [n for n in names if isinstance(own.get(n), Tensor)]
    known = tuple(None if n in given or n not in own else const(own[n]) for n in names)
    numbers = tuple(own.get(name, default) for name, default in formula.parameters)
    return _derive(formula, names, known, tuple(given), numbers).call(tuple(own[n] for n in given))


@functools.lru_cache(1024)
def _derive(formula: Pointwise, names: tuple, known: tuple, given: tuple[str, ...], numbers: tuple) -> Pointwise:
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
        if op.aten_backward:
            texts[op.aten_name] = op.aten_backward
    return {name: Derivative(name, (text,) if isinstance(text, str) else text) for name, text in texts.items()}


@functools.cache
def _declared_derivatives() -> dict[str, list[tuple[Derivative, int]]]:
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
    found = _declared_derivatives().get(name)
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
    if derivative is None or index or len(derivative.forms) > 1 or len(derivative.gives[0]) > 1:
        return NotImplemented
    parameters = [name for name, _ in forward.parameters]
    given = [name for name, runs in zip(parameters, forward.runtime_flags(params)) if runs]
    names = ("grad", *("self" if n == "input" else n for n in forward.operand_names), *given, "result")
    own = dict(zip(parameters, params or forward.defaults)) | {names[i]: v for i, v in zip(reads, operands)}
    if not derivative.forms[0].mentioned() <= own.keys() | {"inplace"}:
        return NotImplemented
    return derivative._called_overload(derivative.forms[0], own, {})


def asks_for_gradients(args: tuple, kwargs: dict[str, Any]) -> bool:
    """Return whether a call with these arguments may be differentiated."""
    return grad_mode.enabled and any(isinstance(a, Tensor) and a.requires_grad for a in (*args, *kwargs.values()))


def recorded(recorder: Any, overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Make a call whose derivative is declared, so that the backward pass makes the calls that it says; NotImplemented
    where none is declared for such a call."""
    if overload.derivative is None or overload._schema.is_mutable:
        return NotImplemented
    values = overload.bind(args, kwargs)
    if not overload.derivative.covers(values):
        return NotImplemented
    inner: list[Any] = []  # what was noted: autograd gives the program other tensors over the same memory
    result = overload.derivative.function.apply(overload.derivative, inner, *values)
    recorder.returned(inner[0], result)
    return result


class _Declared(Function):
    """A call whose derivative is declared, in the graph of gradients."""

    @staticmethod
    def forward(ctx: Any, derivative: Derivative, inner: list, *values: Any) -> Any:
        positional, named = derivative.forward._schema.as_call(list(values))
        result = derivative.forward(*positional, **named)
        inner.append(result)
        results = result if isinstance(result, tuple) else (result,)
        own = (
            dict(zip(derivative.names, values))
            | {f"result{i}": r for i, r in enumerate(results)}
            | {"result": results[0]}
        )
        kept = [name for name in derivative.reads if isinstance(own.get(name), Tensor)]
        ctx.derivative, ctx.kept = derivative, kept
        ctx.own = {
            n: empty(v.shape, v.dtype, meta) if isinstance(v, Tensor) else v for n, v in own.items() if n not in kept
        }
        ctx.save_for_backward(*(own[name] for name in kept))
        ctx.set_materialize_grads(False)
        every = "grads" in derivative.reads
        further = [r for r in results[1:] if not (every and r.is_floating_point() and r.numel())]
        ctx.mark_non_differentiable(*further)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        derivative, wanted = ctx.derivative, dict(zip(ctx.derivative.names, ctx.needs_input_grad[2:]))
        own = {**ctx.own, **dict(zip(ctx.kept, ctx.saved_tensors)), "grad": grads[0], "grads": grads[0]}
        again = grad_mode.enabled and _formula_of(derivative.name) is None
        if grads[0] is not None and not again and all(g is None for g in grads[1:]):
            found = derivative.gradients(own, wanted)
        else:  # to be differentiated again, or of further results; what the derivative does not read may have any value
            given = next(g for g in grads if g is not None)
            unread = {n: v for n, v in ctx.own.items() if isinstance(v, Tensor)}
            own.update((name, given.new_zeros(v.shape, dtype=v.dtype)) for name, v in unread.items())
            names = [name for name in derivative.names if wanted[name]]
            found = dict(zip(names, _pull_back(derivative.forward, own, names, grads)))
        return (None, None, *(found.get(name) for name in derivative.names))
