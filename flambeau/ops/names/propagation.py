"""The mode that makes calls on named tensors: on their values, with names for the results by the rule in the operator's record.

It is on while a named tensor exists. A composite without a rule of its own consists of parts that have one; any other operator without a rule
refuses named tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ...core import modes, naming
from ...core.backend import BACKENDS
from ...core.named import NamedOperand, Names, any_named, is_named, names_of, plain, refresh, set_names, unsupported
from ...core.tensor import Tensor
from ...core.user_frames import user_frame
from ..machinery.record import NUMPY_NAMES, Op
from .algebra import checked, position, quoted, shown, unify_all

# Arguments that name dimensions.
DIMENSIONS = {"dim", "dims", "dim0", "dim1", "dim2", "start_dim", "end_dim"}


class Call:
    """A call in the form that rules get: arguments by name, and the names of those that are tensors."""

    def __init__(self, op: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.op, self.function = op, function
        self.name: str = getattr(function, "__name__", op.name)
        self.places = _places(op, len(args))
        self.args, self.kwargs = list(args), dict(kwargs)
        self.tensors = list(_tensors((*args, *(v for k, v in kwargs.items() if k != "out"))))
        self.first = self.tensors[0] if self.tensors else None
        self._look_up()

    def _look_up(self) -> None:
        """Replace names of dimensions among the arguments by numbers."""
        for i, place in enumerate(self.places):
            if (
                place == "*dim"
                and self.first is not None
                and (self.args[i] is None or self.args[i] in names_of(self.first))
            ):
                self.places[i] = place = "dim"
            if NUMPY_NAMES.get(place, place) in DIMENSIONS:
                self.args[i] = self._numbers(self.args[i])
        for key, value in self.kwargs.items():
            if NUMPY_NAMES.get(key, key) in DIMENSIONS:
                self.kwargs[key] = self._numbers(value)

    def _numbers(self, dims: Any) -> Any:
        if self.first is None:
            return dims
        if isinstance(dims, str):
            return position(dims, names_of(self.first))
        if isinstance(dims, (list, tuple)) and any(d is None or isinstance(d, str) for d in dims):
            return [position(d, names_of(self.first)) if not isinstance(d, int) else d for d in dims]
        return dims

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument of the call."""
        for place, value in zip(self.places, self.args, strict=True):
            if NUMPY_NAMES.get(place, place).lstrip("*") == name:
                return value
        return next((v for k, v in self.kwargs.items() if NUMPY_NAMES.get(k, k) == name), default)

    def dim(self, name: str = "dim", default: Any = None) -> int | None:
        """Return the position of a dimension, from the left."""
        assert self.first is not None
        given = self.get(name, default)
        return None if given is None else int(given) % max(1, len(self.first.shape))

    @property
    def input(self) -> Names:
        """Return the names of the first tensor."""
        assert self.first is not None
        return names_of(self.first)


def _places(op: Any, count: int) -> list[str]:
    """Return the names of positional arguments. Of an operator that takes `*args`, the first may be a dimension."""
    found: list[str] = []
    for p in getattr(getattr(op, "plain", None) or op, "arguments", {}).values():
        found += ["*dim", "keepdim"] if p.kind is p.VAR_POSITIONAL else [p.name]
    return [found[i] if i < len(found) else "" for i in range(count)]


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif type(value) in (list, tuple):
            yield from _tensors(value)


def _values(value: Any) -> Any:
    """Return arguments with plain tensors in place of named ones."""
    if type(value) in (list, tuple):
        return type(value)(map(_values, value))
    return plain(value)


class NamesMode(modes.Mode):
    """Mode that propagates names through operators."""

    parts = False

    def handle(self, op: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not any_named():
            self.left, self.on = True, False
            modes.leave_everywhere(self)
        given = (*args, *kwargs.values())
        if any(map(is_named, _tensors(given))):
            return self.named_call(op, function, args, kwargs)
        return function(*args, **kwargs)

    on = False

    def start(self) -> None:
        if not self.on:
            self.left, self.on = False, True
            modes.enter_everywhere(self)

    def named_call(self, op: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rule = rule_of(op)
        if rule is None and getattr(op, "kind", "composite") == "composite":
            call = Call(op, function, args, kwargs)
            try:
                return self.through(function, tuple(call.args), call.kwargs)
            except NamedOperand:  # of a part that has no public name
                raise unsupported(f"aten::{call.name}") from None
        if rule is None or getattr(rule, "views_only", False) and op.in_place:
            raise unsupported(f"aten::{getattr(function, '__name__', op.name)}")
        if rule is no_names:
            return function(*_values(args), **{k: _values(v) for k, v in kwargs.items()})
        if getattr(rule, "whole", False):
            return rule(function, *args, **kwargs)
        return propagate(rule, Call(op, function, args, kwargs))


mode = NamesMode()


def propagate(rule: Callable[[Call], Any], call: Call) -> Any:
    """Make a call on the values, and name its results by the rule."""
    names = rule(call)
    out = call.kwargs.get("out")
    targets = list(_tensors([out])) if out is not None else []
    if getattr(call.op, "in_place", False) and call.args and isinstance(call.args[0], Tensor):
        targets.append(call.args[0])
    for i, target in enumerate(targets):
        _check_target(target, names[i] if isinstance(names, list) else names, getattr(rule, "moves", False))
    owners = {id(plain(t)): t for t in _tensors((*call.args, *call.kwargs.values())) if is_named(t)}
    result = call.function(*_values(tuple(call.args)), **{k: _values(v) for k, v in call.kwargs.items()})
    named = _named(result, names, owners)
    for owner in owners.values():
        refresh(owner)
    return named


def _check_target(target: Tensor, names: Names, moves: bool) -> None:
    """Raise if an out=, or a tensor that is changed in place, would get other names than it has."""
    if is_named(target) and not moves and names_of(target) != tuple(names):
        raise RuntimeError(
            f"Name mismatch: specified out tensor with names {shown(names_of(target))} are not the same as the computed output"
            f" names {shown(names)}. Please rename the out tensor's dims with `Tensor.rename`."
        )


def _named(result: Any, names: Any, owners: dict[int, Any]) -> Any:
    """Return the results with names: a list of names has one entry for each of them."""
    if isinstance(result, Tensor):
        owner = owners.get(id(result), result)
        return set_names(owner, tuple(names[0] if isinstance(names, list) else names))
    if isinstance(result, (tuple, list)):
        parts = [_named(r, names[i] if isinstance(names, list) else names, owners) for i, r in enumerate(result)]
        if all(new is old for new, old in zip(parts, result, strict=True)):
            return result
        return type(result)(parts)
    return result


# -- rules by kind -------------------------------------------------------------------------------------------------------------


def names_rule(*operators: Any, moves: bool = False, whole: bool = False) -> Callable[..., Any]:
    """Decorator: declare how operators name their results, in their records. The rule gets the `Call` and returns the names of each result,
    or a list of names, one entry for each. `moves`: in place it may change names. `whole`: it makes the call itself, as rule(function, *args,
    **kwargs)."""

    def declare(rule: Any) -> Any:
        rule.moves, rule.whole = moves, whole
        for operator in operators:
            record = operator if isinstance(operator, Op) else operator.op
            if record.names is not None and record.names is not rule:
                raise ValueError(f"the names of '{record.name}' are declared twice")
            record.names = rule
        return rule

    return declare


def no_names(call: Call) -> Names:
    return ()


def broadcast(call: Call) -> Names:
    """Return the unified names of all operands."""
    return unify_all(map(names_of, call.tensors))


def same(call: Call) -> Names:
    """Return the names of the first tensor."""
    return call.input


def reduced(call: Call) -> Names:
    """Return the names without those of the reduced dimensions."""
    assert call.first is not None
    names, dims = call.input, call.get("dim")
    if dims is None or dims == []:
        return names if call.get("keepdim") and dims == [] else ()
    gone = {int(d) % len(names) for d in (dims if isinstance(dims, (list, tuple)) else [dims])}
    return names if call.get("keepdim") else tuple(n for i, n in enumerate(names) if i not in gone)


_BY_KIND: dict[str, Callable[..., Any]] = {"pointwise": broadcast, "reduction": reduced}


def rule_of(op: Any) -> Callable[..., Any] | None:
    """Return the rule by which an operator names its results; None if there is none."""
    naming.above("ops.names.rules")  # declares them; needs all operators
    if not isinstance(op, Op):
        return None
    if op.names is not None:
        return op.names
    if op.tells and op.reads_values:
        return no_names
    if op.kind == "random" and op.in_place:
        return same
    if op.plain is not None:
        return rule_of(op.plain)
    return _BY_KIND.get(op.kind)


# -- giving names --------------------------------------------------------------------------------------------------------------

_warned = False


def give_names(t: Tensor, names: Any) -> Tensor:
    """Set a tensor's names in place, if they are valid."""
    names = (None,) * len(t.shape) if names is None else checked(names, len(t.shape))
    if any(name is not None for name in names):
        _announce()
        if not BACKENDS[t.device.type].has_values:
            raise RuntimeError(
                f"NYI: named tensors only support CPU, CUDA, XPU or PrivateUse1 tensors, got one on {t.device}."
            )
        mode.start()
    return set_names(t, names)


def _announce() -> None:
    global _warned
    if not _warned:
        _warned = True
        text = (
            "Named tensors and all their associated APIs are an experimental feature and subject to change. Please do not use them"
            " for anything important until they are released as stable."
        )
        file, _, line = user_frame().rpartition(":")
        warnings.warn_explicit(text, UserWarning, file, int(line))


def name_recourse(face: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    """Return the call to make instead of one that failed: for a new tensor that is given names, or a dimension given by its name."""
    op = face.op
    if "names" in kwargs and op.kind in ("creation", "random"):
        return lambda: _new_with_names(face, args, dict(kwargs))
    values = [v for k, v in kwargs.items() if NUMPY_NAMES.get(k, k) in DIMENSIONS] + list(args[1:])
    told = (op.plain or op).arguments
    if not any(NUMPY_NAMES.get(a, a) in DIMENSIONS for a in told):
        return None
    if any(isinstance(v, str) for v in values) and args and isinstance(args[0], Tensor):
        wanted = next(v for v in values if isinstance(v, str))
        rule: Any = rule_of(op)
        if getattr(rule, "whole", False):
            return lambda: rule(face, *args, **kwargs)
        if op.in_place:
            problem = f"{op.name.rstrip('_')}: You passed a dimname (string) to this op in place of a dimension index but it does not yet support"
            problem += " this behavior. Please pass a dimension index to work around this."
        elif is_named(args[0]):
            problem = f"Name {quoted(wanted)} not found in Tensor{shown(names_of(args[0]))}."
        else:
            return None
        return lambda: _raise(RuntimeError(problem))
    return None


def _raise(problem: Exception) -> None:
    raise problem from None


def _new_with_names(face: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    names = kwargs.pop("names")
    if isinstance(names, str):
        raise TypeError(
            f"{face.__name__}() received an invalid combination of arguments: names must be a tuple or list of names, got str"
        )
    made = face(*args, **kwargs)
    if names is None or (not names and made.shape):
        return made
    if is_named(made) and names_of(made) != tuple(names):
        raise RuntimeError(
            f"Name mismatch: specified out tensor with names {shown(names)} are not the same as the computed output names"
            f" {shown(names_of(made))}. Please rename the out tensor's dims with `Tensor.rename`."
        )
    return give_names(made, names)
