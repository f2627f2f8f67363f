"""Declaring operators: the decorators that turn one definition into function, method, in-place and out= forms."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import warnings
from collections.abc import Callable
from typing import Any

from ...core import graph, modes
from ...core.aliases import AnyFunction, Values
from ...core.dtype import dtype
from ...core.layout import has_internal_overlap
from ...core.overrides import FACE_CODES, with_attributes
from ...core.promotion import get_default_dtype, result_dtype
from ...core.tensor import Tensor
from ...expr import arg, const
from ...expr.functions import formula_globals
from ...expr.typing import infer
from .argument_types import guard
from .door import changed_argument, found_results, new_results, planned_result, watched_change
from .faces import make_face, make_inplace_face
from .former import accepting_former
from .formula import Pointwise
from .inplace import assign, check_history_writable, check_writable, needs_copy_before_write, same_memory
from .out import check_castable, check_disjoint, check_unrecorded, write_out
from .parameters import takes_options
from .primitive import Primitive, any_needs_grad
from .public import dress, recourse
from .quirks import NO_QUIRKS, Quirks
from .record import NUMPY_NAMES, Op, register
from .recording import repeat_door, specialised
from .watched import watched_face

_active = modes.active
_intercept = modes.intercept


# -- pointwise --------------------------------------------------------------------------------------------------------


def declare_pointwise(
    formula: AnyFunction,
    *,
    name: str | None = None,
    inplace_grad: AnyFunction | None = None,
    unrecorded: bool = False,
    quirks: Quirks = NO_QUIRKS,
    function: bool = True,
    method: bool = True,
    inplace: bool = True,
    out: bool | str = True,
    namespaces: tuple[str, ...] = ("torch",),
    aliases: tuple[str, ...] = (),
    autocast_cuda: str | None = None,
    flops: AnyFunction | None = None,
    aten: str = "",
    aten_backward: str = "",
    **options: Any,
) -> Any:
    """Declare a pointwise operator from its scalar formula. `options` are those of `Pointwise`: dtypes, derivative, checks.

    Parameters without a default are operands (tensors or numbers, broadcast and promoted together); parameters with a
    default are numbers or choices. Returns the public function; its record is `function.op`.

    `inplace_grad` is the derivative of the in-place form where it differs. `unrecorded`: autograd takes no notice of the in-place
    form, not even of one that changes a leaf. `quirks` are PyTorch's own (see `Quirks`). `out`: "exact" if out= must have the
    result's dtype.
    """
    op_name = name or formula.__name__

    def implementation(**changes: Any) -> Pointwise:
        made = Pointwise(op_name, formula, **{**options, "quirks": quirks, **changes})
        made.unrecorded, made.exact_out = unrecorded, out == "exact"
        return made

    impl = implementation()
    face = make_face(impl, bool(out))
    op = Op(
        op_name, "pointwise", face, namespaces if function else (), face if method else None, None, bool(out),
        impl.differentiable, impl, aliases, formula.__doc__ or "", quirks=quirks, autocast_cuda=autocast_cuda,
        flops=flops, aten=aten, aten_backward=aten_backward,
    )  # fmt: skip
    if inplace:
        changes: dict[str, Any] = {} if inplace_grad is None else {"grad": inplace_grad}
        if quirks.inplace_label is not None:
            changes["quirks"] = dataclasses.replace(quirks, label=quirks.inplace_label)
        op.inplace = _inplace_face(implementation(**changes) if changes else impl)
    dress(face, op, formula, face.unwatched_twin)
    impl.op = op
    return register(op).function


pointwise: Any = takes_options(declare_pointwise)


def _formula_rule(op: Pointwise, operands: tuple[Any, ...], params: tuple[Any, ...]) -> tuple[dtype, dtype]:
    """Return the dtypes of a user's formula: integers become floats if a function or a number in it makes floats of them, and comparisons
    return bools, as the same operators do one by one."""
    given = result_dtype(operands)
    made = _dtype_made(op, given, len(operands), params)
    if made.category == given.category:
        return given, given
    if made.category > given.category:
        floating = given if given.is_floating_point else get_default_dtype()
        made = floating.to_complex() if made.is_complex else floating if made.is_floating_point else made
        return made, made
    return given, given.to_real() if made.is_floating_point else made


@functools.lru_cache(1024)
def _dtype_made(op: Pointwise, given: dtype, count: int, params: tuple[Any, ...]) -> dtype:
    """Return the dtype that a formula makes of operands of dtype `given`, found by tracing it."""
    numbers = [const(p) if type(p) in (int, float, complex) else p for p in params]
    root = op.evaluate([*(arg(i) for i in range(count)), *numbers], given)
    return infer((root,), (given,) * count)[id(root)]


def user_pointwise(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator `@flambeau.ops.pointwise`: make an elementwise operator of `formula`, a function of one element per operand. It may call
    sigmoid, exp, where, ... without importing them. The operator broadcasts, promotes, runs on every device and is differentiable.

    >>> @flambeau.ops.pointwise
    ... def swish(x, beta):
    ...     return x * sigmoid(beta * x)
    >>> swish(flambeau.ones(2), 0.0)
    tensor([0.5000, 0.5000])
    """
    names = {**formula_globals(), **formula.__globals__}
    twin = types.FunctionType(formula.__code__, names, formula.__name__, formula.__defaults__, formula.__closure__)
    twin.__kwdefaults__ = formula.__kwdefaults__
    impl = Pointwise(formula.__name__, twin, _formula_rule)
    face = make_face(impl, True)
    inplace, doc = _inplace_face(impl), formula.__doc__ or ""
    op = Op(formula.__name__, "pointwise", face, (), None, inplace, True, True, impl, (), doc)
    dress(face, op, formula, face.unwatched_twin)
    face.__module__, face.__qualname__ = formula.__module__, formula.__qualname__
    impl.op = inplace.op.plain = op
    return face


def _inplace_face(impl: Pointwise) -> Any:
    face = make_inplace_face(impl)
    doc, name = face.__doc__, impl.name + "_"
    writes = impl.operand_names[:1]
    dress(
        face,
        Op(name, "pointwise", face, (), face, None, False, True, impl, writes=writes),
        impl.formula,
        face.unwatched_twin,
    )
    face.__doc__ = doc  # `binding` writes one
    return face


# -- everything else --------------------------------------------------------------------------------------------------


def declare_primitive(
    fn: AnyFunction,
    *,
    grads: dict[Any, Any] | None = None,
    kind: str = "primitive",
    multi_view: bool = False,
    quirks: Quirks = NO_QUIRKS,
    layout: AnyFunction | None = None,
    saves: tuple[str, ...] = (),
    returns: AnyFunction | None = None,
    runs_empty: bool = False,
    shortcut: AnyFunction | None = None,
    keeps: dict[str, int] | None = None,
    sums: bool = False,
    planned: bool = False,
    **declared: Any,
) -> Any:
    """Declare an operator with kernels of its own and derivative rules `grads` (see ops.machinery.primitive).

    A function that returns a `NewTensor` or `NewTensors` is a layout rule: it returns the layout of the results (see `Op`) without touching
    memory, and kernels are declared with `@operator.on("cpu")` or, if they call compiled kernels, `@operator.on("any")`. A rule that
    several operators share is passed as `layout`; then `fn` is only their signature and description.
    `saves` names results at the end of the list that are saved for the derivative and not returned, `keeps` saved ones that are also
    returned, by position; `returns` converts the list of the others to the value that users get. Kernels are not called for results without
    elements, unless it `runs_empty`; nor if tensors it `sums` over have none: all results are zero then. `shortcut(*args)` may return the
    whole result, from data that kernels cached in earlier calls, or None. The rule of an operator that is `planned` returns (shape, dtype,
    device, strides or None, plan) after it has checked the devices, and its kernels are `kernel(out, plan, *args)`. Without `layout`, an
    operator that `writes` changes its first argument and returns it, and the kernels of one that `reads_values` make and return
    its results. `declared` are other forms (see `_declare`) and other fields of the record."""
    described = fn.__annotations__.get("return")
    if layout is None and described in ("NewTensor", "NewTensors"):
        layout = fn
        plain = returns is None or returns is tuple
        fn.__annotations__["return"] = "Tensor" if described == "NewTensor" else "tuple" if plain else "Any"
    impl = Primitive(fn, grads or {}, quirks, kind == "view", multi_view)
    impl.saves, impl.keeps = saves, keeps or {}
    arguments = dict(inspect.signature(fn).parameters) if layout is not None else {}
    calls = specialised(impl, arguments) if layout is not None else None
    run = _calling(calls or impl, fn, quirks.former)
    face = _declare(fn, run, impl, kind, bool(grads), layout=layout, quirks=quirks, **declared)
    if layout is not None:
        face.op.arguments = arguments
        if planned:
            door = planned_result(face.op, layout)
        else:
            door = new_results(face.op, layout, len(saves), returns, runs_empty, shortcut, sums)
        impl.fn = door.function()
        if calls is not None:
            repeat_door(calls, door, impl.fn)
    elif face.op.writes:
        impl.fn = changed_argument(face.op, runs_empty)
    elif face.op.reads_values:
        impl.fn = found_results(face.op)
    face.on, face.unseen = face.op.on, calls or impl
    return face


primitive: Any = takes_options(declare_primitive)


def declare_internal(fn: AnyFunction, **options: Any) -> Any:
    """Declare a primitive that is a part of public operators and has no public name itself."""
    return declare_primitive(fn, function=False, method=False, **options)


internal: Any = takes_options(declare_internal)


def declare_effect(fn: AnyFunction, *, name: str | None = None, runs_empty: bool = False, **fields: Any) -> Any:
    """Declare an operator without a public name that changes its first argument without autograd's notice: a part of others. `fn` is its
    signature and description; kernels are declared with `@operator.on(...)`, and not called for an argument without elements unless it
    `runs_empty`. Returns its first argument."""
    op = Op(name or fn.__name__, "primitive", fn, (), doc=fn.__doc__ or "", source=fn, differentiable=False, **fields)
    op.writes = (next(iter(op.arguments)),)
    op.function = face = watched_change(op, runs_empty)
    face.on = op.on
    face.__doc__ = fn.__doc__
    return register(op).function


effect: Any = takes_options(declare_effect)


def declare_view(fn: AnyFunction, **options: Any) -> Any:
    """Declare an operator whose result shares memory with its input."""
    return declare_primitive(fn, kind="view", **options)


view: Any = takes_options(declare_view)


def declare_composite(fn: AnyFunction, *, kind: str = "composite", quirks: Quirks = NO_QUIRKS, **declared: Any) -> Any:
    """Declare an operator made of other operators: its derivative follows from theirs. `declared` as for `_declare`."""
    return _declare(fn, _calling(fn, fn, quirks.former), None, kind, True, quirks=quirks, **declared)


composite: Any = takes_options(declare_composite)


def declare_transparent(
    fn: AnyFunction,
    *,
    name: str | None = None,
    namespaces: tuple[str, ...] = ("torch",),
    inline: dict[str, Any] | None = None,
    **fields: Any,
) -> Any:
    """Declare a public function that only calls another operator, with as little overhead as possible (`inline`: see `watched_face`).
    `fields` are those of its record."""
    op = Op(name or fn.__name__, "composite", fn, namespaces, doc=fn.__doc__ or "", source=fn, **fields)
    op.function = watched_face(op, fn, **(inline or {}))
    op.function.__module__ = "flambeau"
    FACE_CODES.add(op.function.__code__)
    return register(op).function


transparent: Any = takes_options(declare_transparent)


def _calling(run: AnyFunction, fn: AnyFunction, former: tuple[str, ...]) -> AnyFunction:
    return accepting_former(run, fn.__name__, former, fn.__code__.co_argcount) if former else run


def _declare(
    fn: AnyFunction,
    run: AnyFunction,
    impl: Any,
    kind: str,
    differentiable: bool,
    *,
    name: str | None = None,
    function: bool = True,
    method: bool = True,
    inplace: bool | AnyFunction = False,
    shared: AnyFunction | None = None,
    out: bool | str = False,
    namespaces: tuple[str, ...] = ("torch",),
    aliases: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    **fields: Any,
) -> Any:
    """Make and register the public faces of an operator under their names. `inplace` may be the function that changes the tensor itself,
    `shared` one that does so where elements share memory (see `_assigning_inplace`); `out` is a rule for out= (see `_writing`). `fields` are
    further fields of the record."""
    op_name = name or fn.__name__
    code = fn.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    renames = {a: b for a, b in NUMPY_NAMES.items() if b in parameters and a not in parameters}
    recorded = kind == "primitive" and differentiable
    make = functools.partial(_face, run, renames, _writing(op_name, run, out, recorded) if out else None)
    face = make()
    op = Op(
        op_name, kind, face, namespaces if function else (), face if method else None, None, bool(out), differentiable, impl,
        aliases, fn.__doc__ or "", writes=writes, **fields,
    )  # fmt: skip
    if inplace:
        op.inplace = _assigning_inplace(op_name, run, inplace if callable(inplace) else None, shared)
    dress(face, op, fn, lambda: make(()))
    face.__wrapped__ = fn
    return register(op).function


def _face(run: AnyFunction, renames: dict[str, str], writing: AnyFunction | None, active: Any = _active) -> Any:
    """Return the public function of an operator. A call that gives out= is made by `writing`, unless that is None."""

    check: AnyFunction | None = None

    def first_check(args: Values, kwargs: dict[str, Any]) -> None:
        nonlocal check
        check = guard(face.op)
        if check is not None:
            check(args, kwargs)

    check = first_check

    @with_attributes
    def face(*args: Any, **kwargs: Any) -> Any:
        call = run
        if kwargs:
            if not renames.keys().isdisjoint(kwargs):
                kwargs = {renames.get(key, key): value for key, value in kwargs.items()}
            if writing is not None and "out" in kwargs:
                call = writing
        if active:
            return _intercept(face.op, face, args, kwargs)
        try:
            if check is not None and (kwargs or len(args) > 1):
                check(args, kwargs)
            return call(*args, **kwargs)
        except Exception as problem:
            instead = recourse(face, problem, args, kwargs)
            if instead is None:
                raise
        return instead()

    return face


def _writing(name: str, run: AnyFunction, rule: bool | str, recorded: bool) -> AnyFunction:
    """Return the function for calls with out=. `rule`: "exact" if out must have the result's dtype, "disjoint" if it must not share memory
    with an input either, "castable" if a wrong dtype raises the error of linear algebra; `recorded`: the operator is differentiable, so no
    tensor may require grad."""
    disjoint, exact = rule == "disjoint", rule in ("disjoint", "exact")

    def writing(*args: Any, out: Any, **kwargs: Any) -> Any:
        if out is None:
            return run(*args, **kwargs)
        if recorded:
            check_unrecorded(name, *(x for x in (out, *args) if isinstance(x, Tensor)))
        if disjoint:
            check_disjoint(out, args)
        result = run(*args, **kwargs)
        if rule == "castable":
            check_castable(name, out, result)
        return write_out(name, out, result, exact=exact)

    return writing


def _assigning_inplace(base_name: str, run: AnyFunction, direct: AnyFunction | None, shared: AnyFunction | None) -> Any:
    """Return the in-place method: `direct` changes the tensor itself if nothing is to be recorded and no argument shares its memory (it may
    decline by returning False); else the result is copied into it. `shared` changes only the elements concerned of an expanded tensor, which
    PyTorch allows a few operators, with a warning."""
    name = base_name + "_"

    def change(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if shared is not None and has_internal_overlap(self.shape, self._strides):
            return _change_shared(name, run, shared, self, args, kwargs)
        check_writable(self)
        if direct is not None and _is_apart(self, args, kwargs) and direct(self, *args, **kwargs):
            self._bump(name)
            return self
        return assign(self, run(self, *args, **kwargs), name)

    face = _face(change, {}, None)
    dress(face, Op(name, "composite", face, (), face, writes=("self",)), change, lambda: _face(change, {}, None, ()))
    return face


def _change_shared(
    name: str, run: AnyFunction, shared: AnyFunction, self: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Tensor:
    warnings.warn(
        f"Use of {name} on expanded tensors is deprecated. Please clone() the tensor before performing this operation.",
        UserWarning,
        stacklevel=3,
    )
    check_history_writable(self)
    return assign(self, run(self, *args, **kwargs), name, lambda: shared(self, *args, **kwargs))


def _is_apart(self: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an in-place call has nothing to record and no argument that shares memory with the tensor it changes."""
    if graph.grad_mode.enabled and any_needs_grad((self, *args), kwargs):
        return False
    return not any(_shares_memory(self, x) for x in (*args, *kwargs.values()))


def _shares_memory(t: Tensor, x: Any) -> bool:
    if isinstance(x, Tensor):
        return same_memory(t, x) or needs_copy_before_write(t, x)
    return isinstance(x, (tuple, list)) and any(_shares_memory(t, i) for i in x)
