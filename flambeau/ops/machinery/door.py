"""The door: how a primitive with a layout rule is computed, on whatever device its arguments are.

The rule says what the results look like, memory is allocated on their device, and the kernel of that device fills it. On the device
meta that is all: nothing is allocated and no kernel runs. No kernel sees tensors of two devices."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...core.backend import backend_of
from ...core.device import cpu, device
from ...core.modes import active, intercept, watching
from ...core.tensor import Tensor, empty, empty_strided
from .primitive import Saved
from .record import Op

# The door of one operator, written out for its parameters: packing and unpacking arguments costs more than the rest.
_ONE = """
def compute({signature}):
    described = layout({arguments})
    if type(described) is not tuple:
        return several(described, {arguments})
    where = described[2]
    out = new(*described)
    kernel = kernel_on(where.type)
    if kernel is None:
        kernel = kernel_for(op, where)
        if kernel is None:
            return out
    if {runs}:
        {checks}
        kernel(out, {arguments})
    return out
"""

_SEVERAL = """
def several(described, {signature}):
    where = described[0][2]
    results = [new(*one) for one in described]
    kernel = kernel_for(op, where)
    if kernel is not None and ({any_runs}):
        {checks}
        kernel(results, {arguments})
    return finish(results)
"""

_CHANGED = """
def compute({signature}):
    {test}
    where = {first}.device
    kernel = kernel_on(where.type)
    if kernel is None:
        kernel = kernel_for(op, where)
        if kernel is None:
            return {first}
    if 0 not in {first}.shape:
        {checks}
        kernel({arguments})
    return {first}
"""

# Parameters annotated with one of these words may hold tensors; `tuple[int, ...]` and other types of one's own do not.
_MAY_HOLD = ("Tensor", "Any", "list", "tuple", "Sequence", "object")
_NEVER_HOLD = frozenset(("tuple[int, ...]", "tuple[int, ...] | None", "list[int]"))


def new_results(op: Op, layout: Callable, hidden: int, returns: Callable | None, runs_empty: bool) -> Callable:
    """The function that computes a primitive into new memory. `hidden` results at the end are for the derivative only."""
    names = op.impl.saves

    def finish(results: list[Tensor]) -> Any:
        public = results[: len(results) - hidden] if hidden else results
        if returns is not None:
            result = returns(public)
        else:
            result = public[0] if len(public) == 1 else tuple(public)
        return Saved(result, **dict(zip(names, results[len(results) - hidden :]))) if hidden else result

    runs = {
        "runs": "True" if runs_empty else "0 not in out.shape",
        "any_runs": "True" if runs_empty else "any([0 not in out.shape for out in results])",
    }
    return _written(op, _SEVERAL + _ONE, runs, layout=layout, finish=finish)


def changed_argument(op: Op) -> Callable:
    """The function that computes a primitive into its first argument."""
    return _written(op, _CHANGED, {"test": ""})


def watched_change(op: Op) -> Any:
    """The same as an operator's face: it tests the modes itself, and its `_unwatched` does not."""
    passed = "".join(f"{n}, " for n in op.arguments)
    test = f"if active and watching(): return intercept(op, op.function, ({passed}), {{}})"
    face: Any = _written(op, _CHANGED, {"test": test}, active=active, watching=watching, intercept=intercept)
    face.op, face._unwatched = op, changed_argument(op)
    face.__name__ = face.__qualname__ = op.name
    return face


def _written(op: Op, template: str, texts: dict[str, str], **names: Any) -> Callable:
    """The template filled in for the operator's parameters."""
    parameters = list(op.arguments.values())
    checks = [check for p in parameters for check in _check_text(p)]
    space: dict[str, Any] = {f"_default_{p.name}": p.default for p in parameters}
    space.update(
        names, op=op, new=new, kernel_for=kernel_for, kernel_on=op.kernels.get, refuse=_refuse, look_into=_look_into
    )
    source = template.format(
        signature=_signature(parameters),
        arguments=", ".join(_passed(p) for p in parameters),
        first=parameters[0].name if parameters else "",
        checks="\n        ".join(checks) or "pass",
        **texts,
    )
    exec(source, space)  # noqa: S102 - made of parameter names only
    return space["compute"]


def _signature(parameters: list[inspect.Parameter]) -> str:
    parts, starred = [], False
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            parts.append(f"*{p.name}")
            starred = True
            continue
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        parts.append(p.name if p.default is p.empty else f"{p.name}=_default_{p.name}")
    return ", ".join(parts)


def _passed(p: inspect.Parameter) -> str:
    if p.kind is p.VAR_POSITIONAL:
        return f"*{p.name}"
    return f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name


def _check_text(p: inspect.Parameter) -> list[str]:
    """What makes sure that tensors given for a parameter are where the result is."""
    kind = p.annotation if isinstance(p.annotation, str) else "Any"
    if kind in _NEVER_HOLD or not any(word in kind for word in _MAY_HOLD):
        return []
    if kind == "Tensor" and p.kind is not p.VAR_POSITIONAL:
        return [f"if {p.name}.device is not where: refuse(op, where, {p.name})"]
    if kind == "Tensor | None":
        return [f"if {p.name} is not None and {p.name}.device is not where: refuse(op, where, {p.name})"]
    return [f"look_into(op, where, {p.name})"]


def new(shape: tuple[int, ...], d: Any, where: device, strides: tuple[int, ...] | None = None) -> Tensor:
    """An uninitialised tensor of the layout that a rule describes."""
    return empty(shape, d, where) if strides is None else empty_strided(shape, strides, d, where)


def kernel_for(op: Op, where: device) -> Callable | None:
    """The kernel that computes an operator on a device; None where there is nothing to compute."""
    kind = where.type
    kernel = op.kernels.get(kind)
    if kernel is not None or kind == "meta":
        return kernel
    if "any" in op.kernels and (where is cpu or backend_of(where).compiles):
        return op.kernels["any"]
    known = ", ".join(sorted(op.kernels)) or "none"
    raise NotImplementedError(
        f"Could not run '{op.name}' on the device '{where}': it has no kernel there (it has kernels for: {known}). Move the"
        f" arguments with .to(), or declare one with the operator's `.on({kind!r})`."
    )


def _look_into(op: Op, where: device, x: Any) -> None:
    """Kernels read memory: all tensors must have it, in the same place."""
    if isinstance(x, Tensor):
        if x.device is not where:
            _refuse(op, where, x)
    elif type(x) is list or type(x) is tuple:
        for part in x:
            _look_into(op, where, part)


def _refuse(op: Op, where: device, x: Tensor) -> None:
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {where} and {x.device}!"
        f" (when calling {op.name}{'; a tensor on the meta device has no values' if x.device.type == 'meta' else ''})"
    )
