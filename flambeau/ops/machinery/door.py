"""The door: computation of a primitive with a layout rule, on the device of its arguments.

The rule gives the layout of the results, memory is allocated on their device, and the kernel of that device fills it. On the meta device
nothing is allocated and no kernel runs. No kernel sees tensors of two devices."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any, NoReturn

from ...core.backend import backend_of
from ...core.device import device
from ...core.modes import active, intercept, watching
from ...core.tensor import Tensor, empty, empty_strided
from ...core.written import written
from .primitive import Saved, make_independent
from .record import Op

# The door of one operator, written out for its parameters: packing and unpacking arguments costs more than the rest.
_ONE = """
{shortcut}
_described = layout({arguments})
if type(_described) is not tuple:
    return several(_described, {arguments})
_where = _described[2]
_out = empty(*_described) if len(_described) == 3 else new(*_described)
_kernel = kernel_on(_where.type)
if _kernel is None:
    _kernel = kernel_for(op, _where)
    if _kernel is None:
        return _out
if {runs}:
    {checks}
    {kernel}(_out, {arguments})
return _out
"""

_SHORTCUT = """
_found = known({arguments})
if _found is not None:
    if _found._base is not None:
        make_independent(_found, ({values}))
    return _found
"""

_SEVERAL = """
def compute(_described, {signature}):
    _where = _described[0][2]
    _results = [empty(*one) if len(one) == 3 else new(*one) for one in _described]
    _kernel = kernel_on(_where.type)
    if _kernel is None:
        _kernel = kernel_for(op, _where)
    if _kernel is not None and ({any_runs}):
        {checks}
        {kernel}(_results, {arguments})
    return {finished}
"""

_PLANNED = """
_shape, _d, _where, _strides, _plan = layout({arguments})
_out = empty(_shape, _d, _where) if _strides is None else empty_strided(_shape, _strides, _d, _where)
_kernel = kernel_on(_where.type)
if _kernel is None:
    _kernel = kernel_for(op, _where)
    if _kernel is None:
        return _out
if 0 not in _shape:
    _kernel(_out, _plan, {arguments})
return _out
"""

_CHANGED = """
{test}
_where = {first}.device
_kernel = kernel_on(_where.type)
if _kernel is None:
    _kernel = kernel_for(op, _where)
    if _kernel is None:
        return {first}
if {runs}:
    {checks}
    _kernel({arguments})
return {first}
"""

_FOUND = """
_where = {first}.device
_kernel = kernel_on(_where.type)
if _kernel is None:
    _kernel = kernel_for(op, _where) or refuse_meta(op)
{checks}
return _kernel({arguments})
"""

# Parameters annotated with one of these words may hold tensors; `tuple[int, ...]` and classes of this library do not.
_MAY_HOLD = ("Tensor", "Any", "list", "tuple", "Values", "Sequence", "object")
_NEVER_HOLD = frozenset(
    ("tuple[int, ...]", "tuple[int, ...] | None", "list[int]", "Callable[..., Any]", "Callable[..., Any] | None")
)


class Text:
    """Source of a door, which `recording` inlines: the body of a function, what it calls for several results, and the objects that they name."""

    def __init__(self, op: Op, body: str, texts: dict[str, str], several: str = "", **names: Any):
        self.op, self.texts = op, {"arguments": _arguments(op), **texts}
        self._several, self._body = several, body
        self.names: dict[str, Any] = {f"_default_{p.name}": p.default for p in op.arguments.values()}
        self.names.update(
            names, op=op, empty=empty, new=new, Saved=Saved, kernel_for=kernel_for, kernel_on=op.chosen.get, refuse=_refuse,
            look_into=_look_into, empty_strided=empty_strided, make_independent=make_independent, __name__=__name__,
        )  # fmt: skip
        taken = set(op.arguments) & {
            *self.names,
            "_described",
            "_found",
            "_kernel",
            "_out",
            "_plan",
            "_results",
            "_where",
        }
        if taken:
            raise ValueError(
                f"operator '{op.name}': its door uses the name {min(taken)!r} itself, call the parameter otherwise"
            )

    def several(self, **texts: str) -> Callable[..., Any]:
        """Return the function that a door calls for several results."""
        return written(lambda: self._filled(self._several, texts), dict(self.names))

    def body(self, margin: str = "    ") -> str:
        return textwrap.indent(self._filled(self._body, {}), margin)

    def function(self) -> Callable[..., Any]:
        """Compile the source as a function of its own."""
        signature = _signature(list(self.op.arguments.values()))
        return written(lambda: f"def compute({signature}):{self.body()}", {**self.names, "several": self.several()})

    def _filled(self, template: str, texts: dict[str, str]) -> str:
        parameters = list(self.op.arguments.values())
        margin = template.partition("{checks}")[0].rpartition("\n")[2]
        checked = parameters[1:] if "{first}.device" in template else parameters  # the first is where the kernel runs
        return template.format(
            signature=_signature(parameters),
            first=parameters[0].name if parameters else "",
            checks=f"\n{margin}".join([check for p in checked for check in _check_text(p)]) or "pass",
            **{**self.texts, **texts},
        )


def new_results(
    op: Op,
    layout: Callable[..., Any],
    hidden: int,
    returns: Callable[..., Any] | None,
    runs_empty: bool,
    shortcut: Callable[..., Any] | None,
    sums: bool,
) -> Text:
    """Return the door of a primitive that computes into new memory. `hidden` results at the end are for the derivative only, which also reads
    those that it `keeps`, by their positions. The `shortcut` is tried first, since it may know the whole result. A primitive that `sums` over
    its arguments returns zeros if one of them has no elements."""
    public = f"_results[:-{hidden}]" if hidden else "_results"
    finished = f"_results[0] if len(_results) == {hidden + 1} else tuple({public})"
    if returns is not None:
        finished = f"returns({public})"
    kept = [f"{name}=_results[{i - hidden}]" for i, name in enumerate(op.impl.saves)]
    kept += [f"{name}=_results[{position}]" for name, position in op.impl.keeps.items()]
    values = "".join(f"{name}, " for name in op.arguments)
    texts = {
        "kernel": f"(clear if {_nothing(op)} else _kernel)" if sums else "_kernel",
        "public": finished,
        "finished": f"Saved({finished}, {', '.join(kept)})" if kept else finished,
        "runs": "True" if runs_empty else f"0 not in _out.shape or unread({values})",
        "any_runs": "True"
        if runs_empty
        else f"0 not in _results[0].shape or any([0 not in _out.shape for _out in _results]) or unread({values})",
        "shortcut": "" if shortcut is None else _SHORTCUT.format(arguments=_arguments(op), values=values),
    }
    return Text(op, _ONE, texts, _SEVERAL, layout=layout, returns=returns, known=shortcut, clear=_clear, unread=_unread)


def _nothing(op: Op) -> str:
    return " or ".join(f"0 in {p.name}.shape" for p in op.arguments.values() if p.annotation == "Tensor")


def _unread(*values: Any) -> bool:
    """Return False for arguments that no kernel reads; raises, like a kernel, if one is no strided tensor."""
    return any(t._contig is None for t in values if isinstance(t, Tensor))


def _clear(results: Tensor | list[Tensor], *values: Any, **options: Any) -> None:
    """Fill results with zeros: the kernel of sums over nothing."""
    _unread(*values, *options.values())
    for t in results if isinstance(results, list) else (results,):
        t._storage.fill_(0)


def changed_argument(op: Op, runs_empty: bool = False) -> Callable[..., Any]:
    """Return the function that computes a primitive into its first argument."""
    return Text(op, _CHANGED, {"test": "", "runs": _runs(op, runs_empty)}).function()


def watched_change(op: Op, runs_empty: bool = False) -> Any:
    """Return the public function of an operator that changes an argument: it tests the modes itself, and its `_unwatched` does not."""
    passed = "".join(f"{n}, " for n in op.arguments)
    test = f"if active and watching(): return intercept(op, op.function, ({passed}), {{}})"
    texts = {"test": test, "runs": _runs(op, runs_empty)}
    face: Any = Text(op, _CHANGED, texts, active=active, watching=watching, intercept=intercept).function()
    face.op, face._unwatched = op, changed_argument(op, runs_empty)
    face.__name__ = face.__qualname__ = op.name
    return face


def _runs(op: Op, runs_empty: bool) -> str:
    return "True" if runs_empty else f"0 not in {next(iter(op.arguments))}.shape"


def found_results(op: Op) -> Callable[..., Any]:
    """Return the function that computes a primitive whose kernels make the results themselves, since their layout depends on values."""
    return Text(op, _FOUND, {}, refuse_meta=_refuse_meta).function()


def planned_result(op: Op, layout: Callable[..., Any]) -> Text:
    """Return the door of a primitive whose layout rule also returns a plan, which the kernel gets after the result. Plans are made for
    devices, so that nothing is left to check."""
    return Text(op, _PLANNED, {}, layout=layout)


def _arguments(op: Op) -> str:
    return ", ".join(_passed(p) for p in op.arguments.values())


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
    """Return source lines which check that tensors given for a parameter are on the result's device."""
    kind = p.annotation if isinstance(p.annotation, str) else "Any"
    if kind in _NEVER_HOLD or not any(word in kind for word in _MAY_HOLD):
        return []
    if kind == "Tensor" and p.kind is not p.VAR_POSITIONAL:
        return [f"if {p.name}.device is not _where: refuse(op, _where, {p.name})"]
    if kind == "Tensor | None":
        return [f"if {p.name} is not None and {p.name}.device is not _where: refuse(op, _where, {p.name})"]
    return [f"look_into(op, _where, {p.name})"]


def new(shape: tuple[int, ...], d: Any, where: device, strides: tuple[int, ...] | None = None) -> Tensor:
    """Return an uninitialised tensor with the layout of a rule's description."""
    return empty(shape, d, where) if strides is None else empty_strided(shape, strides, d, where)


def kernel_for(op: Op, where: device) -> Callable[..., Any] | None:
    """Return the kernel that computes an operator on a device; None if there is nothing to compute."""
    kind = where.type
    kernel = op.kernels.get(kind)
    if kernel is None and kind == "meta":
        return None
    if kernel is None and "any" in op.kernels and backend_of(where).compiles:
        kernel = op.kernels["any"]
    if kernel is not None:
        op.chosen[kind] = kernel
        return kernel
    known = ", ".join(sorted(op.kernels)) or "none"
    raise NotImplementedError(
        f"Could not run '{op.name}' on the device '{where}': it has no kernel there (it has kernels for: {known}). Move the"
        f" arguments with .to(), or declare one with the operator's `.on({kind!r})`."
    )


def _refuse_meta(op: Op) -> NoReturn:
    raise NotImplementedError(
        f"{op.name}: what the result looks like depends on the values of the arguments, and tensors on the meta device have none"
    )


def _look_into(op: Op, where: device, x: Any) -> None:
    """Raise if a tensor in an argument is on another device than `where`: kernels read memory of one device."""
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
