"""Results in stubs: the named tuples, and an overload for each result of a function whose arguments determine what it returns.

An operator's annotation lists its results, as in `Tensor NamedResult`: `max(x)` is a tensor, `max(x, 0)` a named tuple. The i-th of them is
returned by a call that sets i of the deciding parameters."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator
from typing import Any

from ..core.return_types import ALL
from ..ops.machinery.record import Op
from ..ops.machinery.schema_table import overloads_of, schema_of

_HEAD = """# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
from .core.return_types import NamedResult
from .core.tensor import Tensor

all_return_types: list[type[NamedResult]]

def pytree_register_structseq(cls: type) -> None: ...
def __getattr__(name: str) -> type[NamedResult]: ...
"""
_EMPTY = inspect.Parameter.empty
_TYPES = {"Tensor": "Tensor", "Tensor[]": "tuple[Tensor, ...]"}


def named_tuples() -> str:
    """Return the stub of `return_types`: tuples of known lengths, whose elements have names and types."""
    return _HEAD + "".join(_named_tuple(name, kind._fields) for name, kind in sorted(ALL.items()))


def _named_tuple(name: str, fields: tuple[str, ...]) -> str:
    schemas = (schema_of(name, overload) for overload in overloads_of(name))
    known = next((s.returns for s in schemas if len(s.returns) == len(fields)), ())
    types = [_TYPES[str(r.type)] for r in known] or ["Tensor"] * len(fields)
    members = (f"    @property\n    def {f}(self) -> {kind}: ...\n" for f, kind in zip(fields, types, strict=True))
    return f"\nclass {name}(tuple[{', '.join(types)}]):\n    _fields: tuple[str, ...]\n" + "".join(members)


def resolved(op: Op | None, result: str) -> str:
    """Return a result for a stub, with `NamedResult` replaced by the operator's own named tuple."""
    return result if op is None else result.replace("NamedResult", f"_results.{op.aten_name}")


def forms(
    op: Op | None, parameters: list[inspect.Parameter], annotation: Any
) -> list[tuple[list[inspect.Parameter], Any]]:
    """Return parameters and result of each overload of a function; most functions have one."""
    if annotation == "Any" and op is not None and op.aten_name in ALL:
        annotation = "NamedResult"
    results = re.split(r" \| (?![^\[]*\])", annotation) if isinstance(annotation, str) else []
    deciding = _deciding_parameters(parameters) if len(results) > 1 and "None" not in results else []
    if len(results) == 2 and [p.kind for p in parameters] == [inspect.Parameter.VAR_POSITIONAL]:
        one = inspect.Parameter("__one", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="Tensor")
        return [([one], results[0]), (parameters, results[1])]
    if not deciding:
        return [(parameters, annotation)]
    flags = deciding[0].default is False
    n = len(deciding)
    choices = itertools.product((False, True), repeat=n) if flags else iter(((False,) * n, (True,) * n))
    found = []
    for chosen in choices:
        result = results[sum(chosen) if flags else chosen[0]]
        decided = dict(zip((p.name for p in deciding), chosen, strict=True))
        found += [(form, result) for form in _orders([_fixed(p, decided.get(p.name)) for p in parameters], decided)]
    if flags:
        found.append((parameters, annotation))  # not known before the call
    if op is not None and "dim" in decided:
        found += _further_overloads(op, parameters, results)
    return found


def _deciding_parameters(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the parameters that determine the result type: flags for further results, else optional parameters, else other flags."""
    flags = [p for p in parameters if p.default is False]
    asking = [p for p in flags if p.name.startswith("return_")]
    return asking or [p for p in parameters if p.default is None and p.name != "out"] or flags


def _fixed(p: inspect.Parameter, given: bool | None) -> inspect.Parameter:
    """Return a parameter for an overload in which it is given (or set) or not; unchanged for None."""
    if given is None:
        return p
    if p.default is False:
        return p.replace(annotation=f"Literal[{given}]", default=_EMPTY if given else p.default)
    if not given:
        return p.replace(annotation="None")
    return p.replace(annotation="int | str" if p.name == "dim" else p.annotation, default=_EMPTY)


def _orders(parameters: list[inspect.Parameter], decided: dict[str, bool]) -> Iterator[list[inspect.Parameter]]:
    """Yield the ways to pass the required parameters: by name, and by position if others come before them."""
    given = [i for i, p in enumerate(parameters) if decided.get(p.name)]
    optional = given and any(
        p.default is not _EMPTY and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters[: given[-1]]
    )
    if optional and parameters[given[-1]].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        yield [p.replace(default=_EMPTY) if i < given[-1] else p for i, p in enumerate(parameters)]
        yield _keyword_only(parameters, given[0])
    else:
        yield parameters


def _keyword_only(parameters: list[inspect.Parameter], first: int) -> list[inspect.Parameter]:
    """Return the parameters with those from `first` on as keyword-only."""
    return [p.replace(kind=p.KEYWORD_ONLY) if i >= first else p for i, p in enumerate(parameters)]


def _further_overloads(
    op: Op, parameters: list[inspect.Parameter], results: list[str]
) -> Iterator[tuple[list[inspect.Parameter], str]]:
    """Yield further overloads: a dimension under NumPy's name, and another tensor in its place if PyTorch has that."""
    place = next(i for i, p in enumerate(parameters) if p.name == "dim")
    axis = parameters[place].replace(name="axis", annotation="int | str", default=_EMPTY)
    yield _keyword_only([*parameters[:place], axis, *parameters[place + 1 :]], place), results[1]
    if "other" in overloads_of(op.aten_name):
        other = axis.replace(name="other", annotation="Tensor")
        yield [*parameters[:place], other, *(p for p in parameters if p.name == "out")], results[0]
