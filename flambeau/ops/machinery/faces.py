"""The public faces of pointwise operators, written as Python source from their signatures.

A face has the parameters of its formula, so that Python itself checks arguments, and the common case inline: one dictionary lookup, one new
tensor, one native call. Everything else goes to the general path. Its body is compiled at its first call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...core import graph, modes
from ...core.overrides import FACE_CODES
from ...core.sparse import SparseOperand
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor
from .calls import general, note_write, run_inplace
from .former import former_call
from .formula import OPTIONAL, Pointwise
from .gradient import record
from .parameters import NO_DEFAULT
from .shown import show_signature

# What an operand raises that has no plan: it is no tensor, or a sparse one.
_UNPLANNED = (AttributeError, SparseOperand)

_FIRST_CALL = """
def _face({signature}):
    return _completed(_itself)({passed})
"""

_HEADER = """
def _face({signature}):
    if _active:
        return _intercept(_face.op, _face, {positional}, _given({options}))
"""

# More positional arguments than operands: numbers stand among them, as in PyTorch's former signature.
_FORMER_HEADER = """
def _face({signature}):
    if _more:
        return _former(_face, _name, _former_numbers, ({operands}, *_more), _given({options}))
    if _active:
        return _intercept(_face.op, _face, {positional}, _given({options}))
"""

# A call like an earlier one.
_KNOWN = """
try:
    _plan = _plans.get(({key}))
except _Unplanned:
    _plan = None
if _plan is None:
    return _general(_impl, ({operands},), (), None, _face)
_storage = _Storage(_plan.nbytes, _plan.device)
_result = _new(_Tensor)
_result._storage = _storage
_result.shape = _plan.shape
_result._strides = _plan.strides
_result._offset = 0
_result.dtype = _plan.dtype
_result.device = _plan.device
_result._contig = _plan.contig
_result._autograd = _result._base = None
_fn = _plan.fn
if _fn is None{unpassed}:
    _plan.run(_result, ({operands},))
else:
    {call}
if ({meta}) and _plan.records and _mode.enabled:
    _record(_plan, ({operands},), (), _result)
return _result
"""
_CALL = "_fn(_plan.first, _storage.ptr, {addresses})"
# A whole number may be too large for the kernel's argument: see as_operand.
_CALL_WITH_NUMBER = """try:
        _fn(_plan.first, _storage.ptr, {addresses})
    except OverflowError:
        return _general(_impl, ({operands},), (), None, _face)"""

# One or two tensors, every parameter at its default.
_FAST = """
    if {plain}:{number_case}{known}"""

# A tensor and a Python number.
_NUMBER_CASE = """
        _kind = type({b})
        if _kind is float or _kind is int:{known}"""

_GENERAL = """
    return _general(_impl, ({operands},), ({params}), {out}, _face)
"""

# Where autograd has nothing to record: no history here, or a pass that does not record (an optimizer's step).
_INPLACE = """
    if {plain} and ({quiet} or not _mode.enabled):
        try:{choice}
        except _Sparse:
            _plan = None
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
    return _run_inplace(_impl, self, ({operands},), ({params}), _name, _face)
"""


def make_face(impl: Pointwise, has_out: bool, general_path: Any = None) -> Any:
    """Return the function (and method) form; `general_path` runs when the common case does not apply."""
    operands = impl.operand_names
    signature, plain = _signature(impl, has_out)
    options = [n for n, _ in impl.parameters] + (["out"] if has_out else [])
    names = {
        "signature": signature,
        "plain": plain,
        "operands": ", ".join(operands),
        "positional": _positional(impl, ", ".join(operands)),
        "options": _changed(options),
        "params": "".join(f"{n}, " for n, _ in impl.parameters),
        "out": "out" if has_out else "None",
    }

    def source() -> str:
        fast = _fast(impl, names) if impl.arity <= 2 else ""
        return (_FORMER_HEADER if impl.former else _HEADER).format(**names) + fast + _GENERAL.format(**names)

    return _define(source, signature, impl, impl.name, general_path or general)


def _signature(impl: Pointwise, has_out: bool) -> tuple[str, str]:
    """Return the parameter list, and the condition that every parameter has its default (the same object)."""
    parts: list[str] = []
    conditions = ["out is None"] if has_out else []
    keyword_only = False
    for p in impl.signature:
        if p.keyword_only and not keyword_only:
            keyword_only = True
            parts.append("*_more" if impl.former else "*")
        if p.default is NO_DEFAULT or p.default is OPTIONAL:
            parts.append(p.name if p.default is NO_DEFAULT else f"{p.name}=None")
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
        number_key = f"(_kind, {b}) if {b} in _special else _kind" if special else "_kind"
        known = _known(
            _CALL_WITH_NUMBER,
            12,
            names["operands"],
            f"{_key(a)}, {number_key}",
            f"{_address(a)}, {b}",
            _has_history(a),
            " or _plan.constants" if special else "",
        )
        number_case = _NUMBER_CASE.format(b=b, known=known)
    keys, addresses, meta = (map(part, operands) for part in (_key, _address, _has_history))
    known = _known(_CALL, 8, names["operands"], ", ".join(keys), ", ".join(addresses), " or ".join(meta))
    return _FAST.format(plain=names["plain"], number_case=number_case, known=known)


@functools.cache
def _known(call: str, indent: int, operands: str, key: str, addresses: str, meta: str, unpassed: str = "") -> str:
    call = call.format(addresses=addresses, operands=operands)
    text = _KNOWN.format(key=key, operands=operands, unpassed=unpassed, call=call, meta=meta)
    return text.replace("\n", "\n" + " " * indent)


def _key(x: str) -> str:
    return f"{x}.dtype, {x}.device, {x}.shape, {x}._strides"


def _address(x: str) -> str:
    return f"{x}._storage.ptr + {x}._offset * {x}.dtype.itemsize"


def _has_history(x: str) -> str:
    """Return the source of a test whether a tensor has a history: its own, or as a view of a base that was changed in place."""
    return f"{x}._autograd is not None or ({x}._base is not None and {x}._base._autograd is not None)"


def _run(source: str, space: dict[str, Any]) -> Any:
    """Return the function that a source defines, with these globals."""
    exec(_compiled(source), space)  # noqa: S102 - made of parameter names only
    return space["_face"]


@functools.cache
def _compiled(source: str) -> Any:
    """Compile the source of a face, once for equal texts: most faces differ only in their globals."""
    return compile(source, f"{__file__}<pointwise operator>", "exec")


def _define(source: Callable[[], str], signature: str, impl: Pointwise, name: str, general_path: Any) -> Any:
    space: dict[str, Any] = {f"_default_{n}": d for n, d in impl.parameters}
    space.update(
        _active=modes.active, _intercept=modes.intercept, _impl=impl, _plans=impl.plans, _Storage=UntypedStorage,
        _Tensor=Tensor, _new=object.__new__, _mode=graph.grad_mode, _record=record, _general=general_path, _given=_given,
        _up_to_last=_up_to_last,
        _special=impl.constant_operands.get(1), _run_inplace=run_inplace, _note_write=note_write,
        _inplace_plans=impl.inplace_plans, _name=name, __name__=__name__, _Sparse=SparseOperand, _Unplanned=_UNPLANNED,
        _former=former_call, _former_numbers=impl.former,
    )  # fmt: skip
    face = _run(_FIRST_CALL.format(signature=signature, passed=_passed(signature)), space)
    space.update(_completed=functools.partial(_complete, source), _itself=face)
    face.__name__ = face.__qualname__ = name
    show_signature(face, name)
    face.unwatched_twin = functools.partial(_unwatched_twin, face, source)
    return face


def _passed(signature: str) -> str:
    """Return the source of the arguments with which a function of this parameter list passes its own on."""
    positional, _, keywords = signature.partition("*")
    names = [p.partition("=")[0] for p in positional.split(", ") if p]
    star, *only = keywords.split(", ")
    return ", ".join(
        [*names, *([f"*{star}"] if star else []), *(f"{n}={n}" for n in (p.partition("=")[0] for p in only))]
    )


def _complete(source: Callable[[], str], face: Any) -> Any:
    """Give a face its body, which is compiled at its first call, since most programs call few operators."""
    code = _run(source(), dict(face.__globals__)).__code__
    FACE_CODES.discard(face.__code__)  # searches for the caller of a public function skip a first call
    face.__code__ = code
    FACE_CODES.add(code)
    return face


def _unwatched_twin(face: Any, source: Callable[[], str]) -> Any:
    """Compile an operator's face again, without its test of the modes."""
    own = {**face.__globals__, "_active": ()}
    twin, own["_face"] = _run(source(), own), face
    twin.__name__ = twin.__qualname__ = face.__name__
    return twin


def _positional(impl: Pointwise, operands: str) -> str:
    optional = any(p.default is OPTIONAL for p in impl.signature)
    return f"_up_to_last(({operands},))" if optional else f"({operands},)"


def _up_to_last(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the operands without the trailing optional ones that were not given."""
    while operands[-1] is None:
        operands = operands[:-1]
    return operands


def _changed(options: list[str]) -> str:
    defaults = ", ".join("None" if n == "out" else f"_default_{n}" for n in options)
    return ", ".join([f"({defaults},)", *(f"{n}={n}" for n in options)]) if options else "()"


def _given(defaults: tuple[Any, ...], /, **options: Any) -> dict[str, Any]:
    """Return the optional arguments that differ from their defaults: an override need not know the others."""
    return {k: v for (k, v), default in zip(options.items(), defaults) if v is not default}


# -- in place ---------------------------------------------------------------------------------------------------------


def make_inplace_face(impl: Pointwise) -> Any:
    """Make the in-place method, the one with an underscore."""
    first, *others = impl.operand_names
    signature, plain = _signature(impl, False)
    names = {
        "signature": "self" + signature[len(first) :],
        "operands": ", ".join(["self", *others]),
        "positional": _positional(impl, ", ".join(["self", *others])),
        "options": _changed([n for n, _ in impl.parameters]),
        "params": "".join(f"{n}, " for n, _ in impl.parameters),
    }

    def source() -> str:
        fast = _fast_inplace(impl, plain) if impl.arity <= 2 and not impl.constant_operands else ""
        return (_FORMER_HEADER if impl.former else _HEADER).format(**names) + fast + _INPLACE_GENERAL.format(**names)

    return _define(source, names["signature"], impl, impl.name + "_", general)


def _fast_inplace(impl: Pointwise, plain: str) -> str:
    quiet = "self._autograd is None and self._base is None"
    if impl.arity == 1:
        choice, second = _INPLACE_ONE.format(key=_key("self")), ""
    else:
        b = impl.operand_names[1]
        choice = _INPLACE_TWO.format(b=b, key=_key("self"), key_of_b=_key(b), address_of_b=_address(b))
        second = ", _second"
        quiet += f" and getattr({b}, '_autograd', None) is None and getattr({b}, '_base', None) is None"
    return _INPLACE.format(plain=plain, quiet=quiet, choice=choice, second=second)
