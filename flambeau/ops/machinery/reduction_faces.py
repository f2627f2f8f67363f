"""Declaring reductions: the decorator that turns one definition into function, method and out= forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core import modes
from ...core.overrides import with_attributes
from ...core.tensor import Tensor
from ...core.typenames import type_name
from .arguments import as_dtype, need_tensor
from .out import check_out_dtype, check_unrecorded, write_out
from .public import dress, recourse
from .quirks import NO_QUIRKS, Quirks
from .record import Op, register
from .reduction import Reduction, Rule, plain_dim, same_dtype

_active = modes.active
_intercept = modes.intercept


def reduction(
    combine: str,
    *,
    final: Callable[..., Any] | None = None,
    rule: Rule = same_dtype,
    grad: Callable[..., Any] | None = None,
    check: Callable[..., Any] | None = None,
    check_out: Callable[..., Any] | None = None,
    name: str | None = None,
    takes_dtype: bool = False,
    method: bool = True,
    function: bool = True,
    namespaces: tuple[str, ...] = ("torch",),
    aliases: tuple[str, ...] = (),
    quirks: Quirks = NO_QUIRKS,
    **fields: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Declare a reduction from the formula that maps its elements.

    `grad` names what it reads: `input`, `out` (saved), `shape`, `dims`, `keepdim`, `dtype` of the input (not saved).
    From it come the function and the method with dim=, keepdim= (axis=, keepdims=), out= and, if asked for, dtype=.
    `fields` are further fields of the record."""

    def declare(formula: Callable[..., Any]) -> Any:
        op_name = name or formula.__name__
        impl = Reduction(op_name, formula, combine, final, rule, grad, quirks.label, check)
        write = _into_chosen if takes_dtype else _into(check_out)
        face = _face(impl, takes_dtype, write)
        op = Op(
            op_name, "reduction", face, namespaces if function else (), face if method else None, None, True,
            grad is not None, impl, aliases, formula.__doc__ or "", quirks=quirks, **fields,
        )  # fmt: skip
        impl.op = op
        dress(face, op, formula, lambda: _face(impl, takes_dtype, write, ()))
        return register(op).function

    return declare


def read_aliases(name: str, dim: Any, keepdim: Any, others: dict[str, Any]) -> tuple[Any, bool]:
    """Return dim and keepdim, which may be given by NumPy's names."""
    for key, value in others.items():
        if key == "axis":
            dim = value
        elif key == "keepdims":
            keepdim = value
        else:
            raise TypeError(f"{name}() got an unexpected keyword argument '{key}'")
    if type(keepdim) is not bool:
        raise TypeError(f"{name}(): argument 'keepdim' must be bool, not {type_name(keepdim)}")
    return dim, keepdim


def _given(
    input: Any, dim: Any, keepdim: Any, dtype: Any, out: Any, others: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments as the user gave them: an override need not take more."""
    args = (input, dim, keepdim) if keepdim is not False else (input,) if dim is None else (input, dim)
    return args, {**others, **{k: v for k, v in (("dtype", dtype), ("out", out)) if v is not None}}


def _face(impl: Reduction, takes_dtype: bool, write: Callable[..., Any], active: Any = _active) -> Any:
    """Return the public function; a call that gives out= is made by `write`."""
    name = impl.name

    @with_attributes
    def face(
        input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None, **others: Any
    ) -> Tensor:
        if active:
            return _intercept(face.op, face, *_given(input, dim, keepdim, dtype, out, others))
        try:
            if not isinstance(input, Tensor):
                need_tensor(name, input)
            if others or type(keepdim) is not bool:
                dim, keepdim = read_aliases(name, dim, keepdim, others)
                others = {}
            if type(dim) is not int and dim is not None:
                dim = plain_dim(dim, name)
            if dtype is not None:
                if not takes_dtype:
                    raise TypeError(f"{name}() got an unexpected keyword argument 'dtype'")
                dtype = as_dtype(dtype, name)
            if out is None:
                return impl.reduce(input, dim, keepdim, dtype)
            return write(impl, input, dim, keepdim, dtype, out)
        except Exception as problem:
            instead = recourse(face, problem, *_given(input, dim, keepdim, dtype, out, others))
            if instead is None:
                raise
        return instead()

    return face


def _into(check_out: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return the function that writes into out= of the result's dtype, or of another that `check_out` accepts."""

    def write(impl: Reduction, input: Tensor, dim: Any, keepdim: bool, dtype: None, out: Any) -> Tensor:
        if impl.grad is not None and isinstance(out, Tensor):
            check_unrecorded(impl.name, out, input)
        if check_out is None or not isinstance(out, Tensor):
            return write_out(impl.name, out, impl.reduce(input, dim, keepdim), exact=True)
        check_out(impl, input, out)
        return write_out(impl.name, out, impl.reduce(input, dim, keepdim).to(out.dtype))

    return write


def _into_chosen(impl: Reduction, input: Tensor, dim: Any, keepdim: bool, dtype: Any, out: Any) -> Tensor:
    """Reduce into out=, whose dtype is the one to compute in."""
    if isinstance(out, Tensor):
        check_unrecorded(impl.name, out, input)
        if dtype is not None:
            check_out_dtype(out, dtype)
        elif impl.check is not None:
            impl.check(impl, input, dim, (), None)  # the input's own dtype must do, whatever out= has
        dtype = out.dtype
    return write_out(impl.name, out, impl.reduce(input, dim, keepdim, dtype))
