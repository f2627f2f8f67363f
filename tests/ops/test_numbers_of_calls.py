"""Numbers that come with a call are looked at in every call, not only in the first of its kind, for which a plan is made."""

from __future__ import annotations

import math
from typing import Any

import pytest
from answers import judge

import flambeau
from flambeau.ops.machinery.formula import OPTIONAL, Pointwise

torch = judge("torch")

DTYPES = ("float16", "float32", "complex64", "int32", "uint8")
NUMBERS = (1, -1, 300, 2**40, 1.0, -3.5, 70000.0, 1e300, math.nan)  # the first of each type is what all take
RECORDS = {key: op for key, op in sorted(flambeau.ops.OPS.items()) if isinstance(op.impl, Pointwise)}


class WasRead(Exception):
    """A value was asked for where only its type may be."""


def _refuse(*_: Any) -> Any:
    raise WasRead


_ASKED = (
    "__lt__ __le__ __gt__ __ge__ __eq__ __ne__ __abs__ __neg__ __bool__ __float__ __int__ __index__ __complex__ __hash__ __repr__"
    " __format__ __add__ __sub__ __mul__ __truediv__ __floordiv__ __mod__ __radd__ __rsub__ __rmul__ __rtruediv__ real imag"
)
HIDDEN = {
    kind: type(f"hidden_{kind.__name__}", (kind,), {n: property(_refuse) if n in ("real", "imag") else _refuse for n in _ASKED.split()})
    for kind in (int, float, complex)
}  # fmt: skip


def hidden(kind: type) -> Any:
    return HIDDEN[kind](1)


def slots(impl: Pointwise) -> list[str]:
    """Names of the operands and parameters of a formula that are numbers, and not part of the plan's key."""
    operands = [
        n for i, n in enumerate(impl.operand_names) if i and n in impl.numbers and i not in impl.constant_operands
    ]
    numbers = [n for n, d in impl.parameters if type(d) in (int, float)]
    fixed = {n for (n, _), yes in zip(impl.parameters, impl.constant_params) if yes} - set(impl.fits)
    return [*operands, *(n for n in numbers if n not in fixed)]


def arguments(library: Any, impl: Pointwise, slot: str, dtype: str, number: Any) -> tuple[list, dict]:
    """Tensors for all operands but the number's, which is the argument `slot`; what may be left out is left out."""
    where = "meta" if library is flambeau else "cpu"  # where nothing is compiled
    tensor = library.ones(3, dtype=getattr(library, dtype), device=where)
    given = [
        number if p.name == slot else None if p.default is OPTIONAL else 1 if p.name in impl.fits else tensor
        for p in impl.signature
        if p.name in impl.operand_names
    ]
    return given, {} if slot in impl.operand_names else {slot: number}


@pytest.mark.parametrize("key", [key for key, op in RECORDS.items() if slots(op.impl)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_checks_of_a_plan_ask_numbers_for_their_types_only(key: str, dtype: str) -> None:
    impl = RECORDS[key].impl
    for slot in slots(impl):
        for kind in (int, float, complex):
            given, named = arguments(flambeau, impl, slot, dtype, hidden(kind))
            params = tuple(named.get(n, default) for n, default in impl.parameters) if named else ()
            if any(n == slot for (n, _), yes in zip(impl.parameters, impl.constant_params) if yes):
                continue
            for ask in (
                lambda: impl.check and impl.check(impl, tuple(given), *([params or impl.defaults] * impl.check_reads_params)),
                lambda: impl.rule(impl, tuple(x for x in given if x is not None), *([params or impl.defaults] * impl.rule_reads_params)),
                lambda: impl.guard and impl.guard(getattr(flambeau, dtype), tuple(given)),
            ):  # fmt: skip
                try:
                    ask()
                except WasRead:
                    raise AssertionError(f"{key} reads the value of {slot} when a plan is made") from None
                except Exception:
                    continue


def public(library: Any, name: str) -> Any:
    for place in (library, library.nn.functional):
        if hasattr(place, name):
            return getattr(place, name)
    return None


def kind_of_answer(function: Any, given: list, named: dict) -> str:
    try:
        function(*given, **named)
    except Exception as error:
        return type(error).__name__
    return "accepted"


@pytest.mark.parametrize("key", [key for key, op in RECORDS.items() if slots(op.impl) and public(flambeau, op.name)])
def test_a_number_is_refused_behind_one_that_was_taken(key: str) -> None:
    impl, name = RECORDS[key].impl, RECORDS[key].name
    for slot in slots(impl):
        for dtype in DTYPES:
            for number in NUMBERS:
                given, named = arguments(flambeau, impl, slot, dtype, number)
                asked, options = arguments(torch, impl, slot, dtype, number)
                answer = kind_of_answer(public(flambeau, name), given, named)
                expected = kind_of_answer(public(torch, name), asked, options)
                assert answer == expected, f"{name} of {dtype} with {slot}={number}"


@pytest.mark.parametrize("key", [key for key, op in RECORDS.items() if op.impl.fits])
@pytest.mark.parametrize("form", ["new", "in place", "out"])
def test_kernels_that_are_called_directly_get_no_number_that_does_not_fit(key: str, form: str) -> None:
    op = RECORDS[key]
    memory = flambeau.ones(3)
    call: Any = op.function if form != "in place" else op.inplace
    if call is None or (form == "out" and not op.has_out):
        pytest.skip("there is no such form")
    for slot in set(slots(op.impl)) & set(op.impl.fits):
        for number in (1.0, 1e300, 1.0, math.inf):
            given, named = arguments(flambeau, op.impl, slot, "float32", number)
            given = [memory if isinstance(x, flambeau.Tensor) else x for x in given]
            options = named | ({"out": flambeau.ones(3)} if form == "out" else {})
            expected = "RuntimeError" if number == 1e300 else "accepted"
            for _ in range(2):
                assert kind_of_answer(call, given, options) == expected
