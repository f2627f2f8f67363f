"""Checks that a program is valid, before and after every pass.

Memory is written before it is read, and made once. Results have the layouts that the records' rules give. Calls that touch the same memory,
one of them writing, are in the order in which they were recorded."""

from __future__ import annotations

from typing import Any

from ..autograd.grad_mode import no_grad
from ..core.device import device
from ..core.records import replace
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor
from .memory import instances, mapped
from .printer import line, type_of
from .program import NO_MEMORY, Call, Program, Value

_META = device("meta")


def check(program: Program, recorded: Program | None = None) -> None:
    """Raise a ValueError that lists everything wrong with `program`; `recorded` is the program from which passes made it.

    >>> from flambeau.graph.recorder import record
    >>> check(record(flambeau.exp, flambeau.ones(2)))
    """
    problems = [*_undefined(program), *_layouts(program)]
    if recorded is not None:
        problems += _reordered(program, recorded)
    if problems:
        raise ValueError("this is no sound program:\n" + "\n".join(problems))


def _undefined(program: Program) -> list[str]:
    problems = []
    written = {b.index for b in program.buffers if b.source != "new"}
    made: set[int] = set()
    for call in program.calls:
        problems += [f"memory is made twice: {line(call)}" for b in call.makes if b in made]
        made.update(call.makes)
        # Effects such as fills read nothing of what they change; a formula in place does.
        unwritten = call.reads() - written - (frozenset() if call.op.kind == "pointwise" else call.changes)
        if unwritten:
            problems.append(f"memory {sorted(unwritten)} is read before it is written: {line(call)}")
        written |= call.writes()
    missing = program.lasting() - written - {NO_MEMORY}
    return problems + [f"memory {b} is returned, and nothing has written to it" for b in sorted(missing)]


def _layouts(program: Program) -> list[str]:
    problems = []
    for call in program.calls:
        expected = None if call.rewritten else described(call)
        if expected is None:
            continue
        found = [(tuple(v.shape), tuple(v.strides), v.dtype) for v in call.returned()]
        if found != expected:
            shown = ", ".join(map(type_of, call.returned()))
            problems.append(f"the layout rule says {expected}, and it returned {shown}: {line(call)}")
    return problems


def described(call: Call) -> list[tuple] | None:
    """Return shape, strides and dtype of a call's results by its layout rule, evaluated on the meta device. None if they depend on values, or
    if memory that existed before is returned."""
    if call.op.draws or call.op.reads_values or call.changes or not call.returned():
        return None
    args, kwargs = on_meta((call.args, call.kwargs))
    try:
        with no_grad():
            result = call.function(*args, **kwargs)
    except NotImplementedError:
        return None
    tensors = instances(tuple(result) if isinstance(result, tuple) else result, Tensor)
    found = [(tuple(t.shape), tuple(t._strides), t.dtype) for t in tensors]
    return found


def on_meta(given: Any) -> Any:
    """Move the values and devices among arguments to the meta device, where only layout rules run."""
    storages: dict[int, Any] = {}

    def moved(v: Value) -> Tensor:
        held = storages.setdefault(v.buffer, UntypedStorage(0, _META))
        return replace(v, device=_META).over(held)

    return mapped(mapped(given, Value, moved), device, lambda where: _META)


def _reordered(program: Program, recorded: Program) -> list[str]:
    """Describe pairs of recorded calls that depend on each other and are now in the opposite order."""
    position = {id(part): i for i, call in enumerate(program.calls) for part in call.origins()}
    problems = []
    touched: dict[int, list[Call]] = {}
    for call in recorded.calls:
        if id(call) not in position:
            continue
        for b in call.touches():
            for earlier in touched.get(b, ()):
                depends = b in call.writes() or b in earlier.writes()
                if depends and position[id(earlier)] > position[id(call)]:
                    problems.append(f"{line(call)} came after {line(earlier)}")
            touched.setdefault(b, []).append(call)
    return problems
