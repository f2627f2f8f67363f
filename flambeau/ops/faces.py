"""The public faces of pointwise operators, written as Python source from their signatures.

A face has the parameters of its formula, so Python itself checks arguments, and the common case in line: one dictionary
look-up, one new tensor, one native call. Everything else is handed to the general path."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..core import graph, modes
from ..core.promotion import can_cast, scalar_dtype
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor, copy_of_array
from ..expr.node import Expr
from .dtype_rules import type_word
from .formula import OPTIONAL, Pointwise, as_operand
from .gradient import make_node, record
from .inplace import (
    check_history_writable,
    check_out,
    check_partial_overlap,
    check_writable,
    copy_values,
    has_internal_overlap,
    needs_copy_before_write,
    rebase_history,
    write_out,
)

_HEADER = """
def _face({signature}):
    if _stack:
        return _intercept(_face.op, _face, ({operands},), _given({options}))
"""

# One or two tensors, every parameter at its default.
_FAST = """
    if {plain}:{number_case}
        try:
            _plan = _plans.get(({key}))
        except AttributeError:
            _plan = None
        if _plan is None:
            return _general(_impl, ({operands},), (), None)
        _storage = _Storage(_plan.nbytes, _plan.device)
        _result = _new(_Tensor)
        _result._storage = _storage
        _result.shape = _plan.shape
        _result._strides = _plan.strides
        _result._offset = 0
        _result.dtype = _plan.dtype
        _result.device = _plan.device
        _result._contig = _plan.contig
        _result._meta = _result._base = None
        _fn = _plan.fn
        if _fn is None:
            _plan.run(_result, ({operands},))
        else:
            _fn(_plan.first, _storage.ptr, {addresses})
        if ({meta}) and _plan.records and _mode.enabled:
            _record(_plan, ({operands},), (), _result)
        return _result
"""

# A tensor and a Python number.
_NUMBER_CASE = """
        _kind = type({b})
        if _kind is float or _kind is int:
            try:
                _plan = _plans.get(({key_of_a}, {number_key}))
            except AttributeError:
                _plan = None
            if _plan is None:
                return _general(_impl, ({a}, {b}), (), None)
            _storage = _Storage(_plan.nbytes, _plan.device)
            _result = _new(_Tensor)
            _result._storage = _storage
            _result.shape = _plan.shape
            _result._strides = _plan.strides
            _result._offset = 0
            _result.dtype = _plan.dtype
            _result.device = _plan.device
            _result._contig = _plan.contig
            _result._meta = _result._base = None
            _fn = _plan.fn
            if _fn is None{unpassed}:
                _plan.run(_result, ({a}, {b}))
            else:
                _fn(_plan.first, _storage.ptr, {address_of_a}, {b})
            if ({meta_of_a}) and _plan.records and _mode.enabled:
                _record(_plan, ({a}, {b}), (), _result)
            return _result"""

_GENERAL = """
    return _general(_impl, ({operands},), ({params}), {out})
"""

# Where autograd has nothing to record: no history here, or a pass that does not record (an optimizer's step).
_INPLACE = """
    if {plain} and ({quiet} or not _mode.enabled):{choice}
        if _plan is not None:
            _storage = self._storage
            if _storage.watched:
                _note_write(self, _name)
            _address = _storage.ptr + self._offset * self.dtype.itemsize
            _plan.fn(_plan.first, _address, _address{second})
            _storage.version += 1
            return self
"""

_INPLACE_ONE = """
        _plan = _inplace_plans.get(({key}))"""

_INPLACE_TWO = """
        _kind = type({b})
        if _kind is float or _kind is int:
            _plan, _second = _inplace_plans.get(({key}, _kind)), {b}
        elif isinstance({b}, _Tensor) and {b}._storage.ptr != self._storage.ptr:
            _plan, _second = _inplace_plans.get(({key}, {key_of_b})), {address_of_b}
        else:
            _plan = None"""

_INPLACE_GENERAL = """
    return _run_inplace(_impl, self, ({operands},), ({params}), _name)
"""


def make_face(impl: Pointwise, has_out: bool, general_path: Any = None) -> Any:
    """The function (and method) form; `general_path` replaces what runs when the common case does not apply."""
    operands = impl.operand_names
    signature, plain = _signature(impl, has_out)
    options = [n for n, _ in impl.parameters] + (["out"] if has_out else [])
    names = {
        "signature": signature,
        "plain": plain,
        "operands": ", ".join(operands),
        "options": ", ".join(f"{n}={n}" for n in options),
        "params": "".join(f"{n}, " for n, _ in impl.parameters),
        "out": "out" if has_out else "None",
    }
    source = _HEADER.format(**names)
    if impl.arity <= 2:
        source += _fast(impl, names)
    return _define(source + _GENERAL.format(**names), impl, impl.name, general_path or general)


def _signature(impl: Pointwise, has_out: bool) -> tuple[str, str]:
    """The parameter list, and the condition that every parameter has its default (the same object)."""
    parts: list[str] = []
    conditions = ["out is None"] if has_out else []
    keyword_only = False
    for p in impl.signature:
        if p.kind is p.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            parts.append("*")
        if p.default is p.empty or p.default is OPTIONAL:
            parts.append(p.name if p.default is p.empty else f"{p.name}=None")
        else:
            parts.append(f"{p.name}=_default_{p.name}")
            conditions.append(f"{p.name} is _default_{p.name}")
    if has_out:
        parts += ["out=None"] if keyword_only else ["*", "out=None"]
    return ", ".join(parts), " and ".join(conditions) or "True"


def _fast(impl: Pointwise, names: dict[str, str]) -> str:
    operands = impl.operand_names
    number_case = ""
    if impl.arity == 2 and operands[1] in impl.numbers:
        a, b = operands
        special = 1 in impl.constant_operands
        number_case = _NUMBER_CASE.format(
            a=a,
            b=b,
            key_of_a=_key(a),
            address_of_a=_address(a),
            meta_of_a=_has_history(a),
            number_key=f"(_kind, {b}) if {b} in _special else _kind" if special else "_kind",
            unpassed=" or _plan.constants" if special else "",
        )
    return _FAST.format(
        **names,
        number_case=number_case,
        key=", ".join(_key(x) for x in operands),
        addresses=", ".join(_address(x) for x in operands),
        meta=" or ".join(_has_history(x) for x in operands),
    )


def _key(x: str) -> str:
    return f"{x}.dtype, {x}.device, {x}.shape, {x}._strides"


def _address(x: str) -> str:
    return f"{x}._storage.ptr + {x}._offset * {x}.dtype.itemsize"


def _has_history(x: str) -> str:
    """Whether autograd may know a tensor: by itself, or as a view of a base that was changed in place."""
    return f"{x}._meta is not None or ({x}._base is not None and {x}._base._meta is not None)"


@functools.cache
def _compiled(source: str) -> Any:
    """Most faces differ in nothing but what their names stand for: the same text is compiled once."""
    return compile(source, "<pointwise operator>", "exec")


def _define(source: str, impl: Pointwise, name: str, general_path: Any) -> Any:
    space: dict[str, Any] = {f"_default_{n}": d for n, d in impl.parameters}
    space.update(
        _stack=modes.stack, _intercept=modes.intercept, _impl=impl, _plans=impl.plans, _Storage=UntypedStorage,
        _Tensor=Tensor, _new=object.__new__, _mode=graph.mode, _record=record, _general=general_path, _given=_given,
        _special=impl.constant_operands.get(1), _run_inplace=run_inplace, _note_write=_note_write,
        _inplace_plans=impl.inplace_plans, _name=name, __name__=__name__,
    )  # fmt: skip
    exec(_compiled(source), space)  # noqa: S102 - made of parameter names only
    face = space["_face"]
    face.__name__ = face.__qualname__ = name
    return face


def _given(**options: Any) -> dict[str, Any]:
    """The optional arguments a mode gets to see."""
    return {k: v for k, v in options.items() if v is not None}


# -- the general path -------------------------------------------------------------------------------------------------


def general(impl: Pointwise, operands: tuple, params: tuple, out: Any) -> Any:
    """Any call: checks the operands, then computes a new tensor or fills `out`."""
    if any(isinstance(x, Expr) for x in operands):
        return impl.evaluate([*operands, *(params or impl.defaults)], None)  # used inside another formula
    operands = checked_operands(impl, operands)
    params = settle(impl, params)
    if out is None:
        return impl.call(operands, params)
    plan = impl.plan_for(operands, params, None, None)
    if not isinstance(out, Tensor) or not _writes_directly(out, plan, operands):
        return write_out(impl.name, out, impl.call(operands, params))
    check_out(impl.name, out, plan.dtype, plan.device, any(isinstance(x, Tensor) and x.requires_grad for x in operands))
    impl.into(out, operands, params)
    out._bump(impl.name)
    return out


def checked_operands(impl: Pointwise, operands: tuple) -> tuple:
    """Operands that are tensors, or numbers where the operator takes numbers."""
    result = tuple(as_operand(x, impl.name, i) for i, x in enumerate(operands))
    for i, (x, name) in enumerate(zip(result, impl.operand_names)):
        if not isinstance(x, Tensor) and x is not None and name not in impl.numbers:
            raise TypeError(
                f"{impl.name}(): argument '{name}' (position {i + 1}) must be Tensor, not {type(x).__name__}"
            )
    if not any(isinstance(x, Tensor) for x in result):
        if impl.only_numbers:
            return (_number_tensor(result[0]), *result[1:])
        raise TypeError(f"{impl.name}(): argument 'input' (position 1) must be Tensor, not {type(result[0]).__name__}")
    return result


def _number_tensor(value: Any) -> Tensor:
    d = scalar_dtype(value)
    return copy_of_array(np.asarray(value, d.numpy), d)


def _writes_directly(out: Tensor, plan: Any, operands: tuple) -> bool:
    """Whether a kernel can store straight into `out`: right shape, and no operand is overwritten before it is read."""
    if out.shape != plan.shape or has_internal_overlap(out.shape, out._strides):
        return False
    return not any(isinstance(x, Tensor) and needs_copy_before_write(out, x) for x in operands)


def settle(impl: Pointwise, params: tuple) -> tuple:
    """Parameter values as Python numbers; () when all are the defaults."""
    if not params:
        return ()
    values = tuple(_parameter(v) for v in params)
    unchanged = all(v is d or (type(v) is type(d) and v == d) for v, d in zip(values, impl.defaults))
    return () if unchanged else values


def _parameter(value: Any) -> Any:
    """A 0-dim tensor or NumPy scalar given where a number belongs."""
    if value is None or type(value) in (int, float, bool, str, complex):
        return value
    return value.item() if hasattr(value, "item") else value


# -- in place ---------------------------------------------------------------------------------------------------------


def make_inplace_face(impl: Pointwise) -> Any:
    """The method with an underscore."""
    first, *others = impl.operand_names
    signature, plain = _signature(impl, False)
    names = {
        "signature": "self" + signature[len(first) :],
        "operands": ", ".join(["self", *others]),
        "options": ", ".join(f"{n}={n}" for n, _ in impl.parameters),
        "params": "".join(f"{n}, " for n, _ in impl.parameters),
    }
    source = _HEADER.format(**names)
    if impl.arity <= 2 and not impl.constant_operands:
        source += _fast_inplace(impl, plain)
    return _define(source + _INPLACE_GENERAL.format(**names), impl, impl.name + "_", general)


def _fast_inplace(impl: Pointwise, plain: str) -> str:
    quiet = "self._meta is None and self._base is None"
    if impl.arity == 1:
        choice, second = _INPLACE_ONE.format(key=_key("self")), ""
    else:
        b = impl.operand_names[1]
        choice = _INPLACE_TWO.format(b=b, key=_key("self"), key_of_b=_key(b), address_of_b=_address(b))
        second = ", _second"
        quiet += f" and getattr({b}, '_meta', None) is None and getattr({b}, '_base', None) is None"
    return _INPLACE.format(plain=plain, quiet=quiet, choice=choice, second=second)


def run_inplace(impl: Pointwise, self: Tensor, operands: tuple, params: tuple, name: str) -> Tensor:
    """Compute a pointwise operator into its first operand."""
    if not isinstance(self, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(self).__name__}")
    check_writable(self, name)
    operands = checked_operands(impl, operands)
    params = settle(impl, params)
    sources = tuple(_readable(self, x) for x in operands)
    plan = impl.plan_for(sources, params, self.dtype, (self.shape, self._strides, self.device))
    if not can_cast(plan.natural, self.dtype):
        raise RuntimeError(
            f"result type {type_word(plan.natural)} can't be cast to the desired output type {type_word(self.dtype)}"
        )
    runtime = impl.runtime_params(params)
    node = make_node(plan, operands, runtime) if plan.records and graph.mode.enabled else None
    copied = node is not None and node.recipe.reads_operand(0)
    kept = (_copy_with_history(self), *sources[1:]) if copied else sources
    plan.run(self, sources + runtime)
    self._bump(name)
    if plan.fn is not None and not params and all(s is x for s, x in zip(sources, operands)):
        impl.inplace_plans[_inplace_key(operands)] = plan
    if node is not None:
        if copied or graph.unusual:  # the copy may be laid out in another way than the plan says
            node.save_through_hooks(kept, runtime, self)
        else:
            node.save((*kept, *runtime, self))
        rebase_history(self, node, 0)
    elif graph.mode.enabled and self._meta is not None and self._meta.grad_fn is not None:
        rebase_history(self, None, 0)
    return self


def _inplace_key(operands: tuple) -> tuple:
    key: list = []
    for x in operands:
        key += (x.dtype, x.device, x.shape, x._strides) if isinstance(x, Tensor) else (type(x),)
    return tuple(key)


def _note_write(t: Tensor, name: str) -> None:
    """Remember who changes memory that a graph has saved; refuse where it belongs to inference mode."""
    if t._storage.version < graph.INFERENCE:
        t._storage.last_write = (name, graph.user_frame())
    elif not graph.mode.inference:
        check_history_writable(t)


def _readable(self: Tensor, x: Any) -> Any:
    """An operand that writing to `self` does not change before it is read."""
    if not isinstance(x, Tensor) or x is self:
        return x
    check_partial_overlap(self, x)
    return bare_copy(x) if needs_copy_before_write(self, x) else x


def bare_copy(x: Tensor) -> Tensor:
    return copy_values.call((x._bare_alias(),))


def _copy_with_history(x: Tensor) -> Tensor:
    """The values and history x has now, before they are overwritten."""
    fresh = bare_copy(x)
    if x.grad_fn is not None:
        fresh._set_history(x.grad_fn, x.output_nr)
    return fresh


__all__ = ["general", "make_face", "make_inplace_face", "run_inplace", "settle"]
