"""Recording the calls of a primitive by source generated for its parameters: the general code of `Primitive` does the same at twice the cost.
Only for primitives whose differentiable arguments are single tensors and whose results are new memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...core import graph
from ...core.graph import SavedTensor, grad_mode, gradient_edge
from ...core.tensor import Tensor
from ...core.written import written
from .primitive import Needs, Primitive, Saved, make_independent

_CALL = """
def compute({signature}):
    try:
        _recorded = _mode.enabled and ({needed})
    except AttributeError:  # something else was given for a tensor
        return _impl({arguments})
    if not _recorded:
{door}
    _mode.enabled = False
    try:
        _result = _fn({arguments})
    finally:
        _mode.enabled = True
    _extras = _nothing
    if type(_result) is _Saved:
        _extras = _result.extras
        _result = _result.result
    if type(_result) is not _Tensor:
        _record({{{bound}}}, _result, _extras)
        return _result
    if _result._base is not None:
        _make_independent(_result, ({values}))
    if _result.dtype.category < 2:
        return _result
    try:
        _edges = ({edges})
    except AttributeError:
        _record({{{bound}}}, _result, _extras)
        return _result
    _flags = ({flags})
    _needs = _known_needs.get(_flags)
    if _needs is None:
        if True not in _flags:
            return _result
        _needs = _needs_for(_flags, _nothing)
    _node = _new(_impl.node_class or _impl.make_class())
    _node.edges = _edges
    _node.sequence = next(_sequence)
    _node.needs = _needs
    if "hidden" not in _extras:
        _node.output_info = ((_result.shape, _result.dtype, _result.device),)
    else:
        _hidden = _extras["hidden"]
        _node.output_info = (
            (_result.shape, _result.dtype, _result.device), (_hidden.shape, _hidden.dtype, _hidden.device),
        )
        _node.single, _node.output_count = False, 2
        _hidden._set_history(_node, 1)
    if _unusual and _mode.anomaly:
        _node.trace = _user_trace()
    _saver = _needs.saver or _make_saver(_needs)
    _node.saved = _saver(_extras, _result, {values})
    _node.holds_tensors = _needs.holds or _holds_tensors(_node.saved)
    _result._set_history(_node)
    return _result
"""
_HOLDS_NONE = frozenset(
    ["int", "float", "bool", "str", "int | None", "float | None", "str | None", "dtype", "dtype_type", "device"]
) | {"tuple[int, ...]"}


def specialised(impl: Primitive, parameters: dict[str, inspect.Parameter]) -> Callable[..., Any] | None:
    """Return a function that calls and records a primitive; None if only the general one works. Before its first call `repeat_door` must
    complete it."""
    kinds = {p.annotation for p in parameters.values() if p.name in impl.differentiable}
    plain = all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters.values())
    if "hidden" in impl.saves and any("out" in reads for _, _, reads in impl.rules):
        return None
    if not plain or not kinds or not kinds <= {"Tensor", "Tensor | None"} or impl.view or impl.star is not None:
        return None
    space: dict[str, Any] = {f"_default_{p.name}": p.default for p in parameters.values()}
    space.update(
        _mode=grad_mode, _Saved=Saved, _Tensor=Tensor, _make_independent=make_independent, _record=impl.record,
        _known_needs=impl.known_needs, _needs_for=impl.needs_for, _impl=impl, _new=object.__new__, _sequence=graph._sequence,
        _unusual=graph.unusual, _user_trace=graph.user_trace, _gradient_edge=gradient_edge, _nothing={}, __name__=__name__,
        _holds_tensors=_holds_tensors, _make_saver=lambda needs: _make_saver(needs, parameters),
    )  # fmt: skip
    return written(lambda: _source(impl, parameters, space["_door"]), space)


def repeat_door(calls: Any, door: Any, compute: Callable[..., Any]) -> None:
    """Complete a function of `specialised` with the code that it calls; where it records nothing it inlines the text of the door, which saves
    a call."""
    space = calls.__globals__
    several = door.several(finished=door.texts.get("public", ""))
    space.update({**door.names, **space, "_door": door, "_fn": compute, "several": several})


def _source(impl: Primitive, parameters: dict[str, inspect.Parameter], door: Any) -> str:
    by_name = [f"{n}={n}" if p.kind is p.KEYWORD_ONLY else n for n, p in parameters.items()]
    wanted = {n: parameters[n].annotation for n in impl.differentiable}
    signature = str(inspect.Signature([_bare(p) for p in parameters.values()]))[1:-1]
    return _CALL.format(
        door=door.body("        "),
        signature=signature,
        needed=" or ".join(_needs_grad(n, kind) for n, kind in wanted.items()),
        arguments=", ".join(by_name),
        values="".join(f"{n}, " for n in parameters),
        bound=", ".join(f"{n!r}: {n}" for n in parameters),
        edges="".join(f"{_edge(n, kind)}, " for n, kind in wanted.items()),
        flags="".join(f"_edges[{i}] is not None, " for i in range(len(wanted))),
    )


class _Name:
    """A default that is written in a signature by its name."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name


def _bare(p: inspect.Parameter) -> inspect.Parameter:
    default = p.default if p.default is p.empty else _Name(f"_default_{p.name}")
    return p.replace(annotation=p.empty, default=default)


def _needs_grad(name: str, kind: str) -> str:
    test = f"({name}._autograd is not None or {name}._base is not None) and {name}.requires_grad"
    return f"({test})" if kind == "Tensor" else f"({name} is not None and {test})"


def _edge(name: str, kind: str) -> str:
    test = f"{name}._autograd is not None or {name}._base is not None"
    test = test if kind == "Tensor" else f"{name} is not None and ({test})"
    return f"_gradient_edge({name}) if {test} else None"


def _make_saver(needs: Needs, parameters: dict[str, inspect.Parameter]) -> Callable[..., Any]:
    """Return the function that saves what the wanted rules read of one call, and set the one that calls the rules with it."""
    kept, read_back = [], {"needs": "_wanted"}
    for read, name, field in needs.reads:
        kind = _kind(parameters, read)
        if read == "hidden":
            kept.append(f"{read!r}: _Saved(_extras['hidden'], True, 1)")
            read_back[read] = f"_saved[{read!r}].unpack(_node)"
            needs.holds = True
        elif read == "out" or (field is None and kind == "Tensor"):
            kept.append(f"{read!r}: _Saved({'_result, True' if read == 'out' else f'{name}, False'})")
            read_back[read] = f"_saved[{read!r}].unpack(_node)"
            needs.holds = True
        elif field is not None and read not in needs.op.saves:
            kept.append(f"{read!r}: getattr({name}, {field!r}, None)")
            read_back[read] = f"_saved[{read!r}]"
        elif kind in _HOLDS_NONE:
            kept.append(f"{read!r}: {name}")
            read_back[read] = f"_saved[{read!r}]"
        else:
            kept.append(f"{read!r}: _pack({name if read in parameters else f'_extras[{read!r}]'})")
            read_back[read] = f"_unpack(_saved[{read!r}], _node)"
    space = {"_Saved": SavedTensor, "_pack": _pack, "_unpack": _unpack, "_wanted": needs.wanted, "__name__": __name__}
    needs.saver = _lambda(f"lambda _extras, _result, {', '.join(parameters)}: {{{', '.join(kept)}}}", space)
    if not needs.joint and len(needs.op.rules) == 1 and needs.op.rules[0][0] == needs.op.differentiable:
        _, space["_rule"], reads = needs.op.rules[0]  # one rule for all gradients
        given = ", ".join(["_g", *(read_back[r] for r in reads)])
        single = len(needs.op.differentiable) == 1
        needs.apply = _lambda(
            f"lambda _node, _saved, _g: {f'(_rule({given}),)' if single else f'tuple(_rule({given}))'}", space
        )
    elif needs.one_by_one is not None:
        shares = []
        for i, rule in enumerate(needs.one_by_one):
            if rule is not None:
                space[f"_rule{i}"] = rule[0]
            shares.append(
                "None" if rule is None else f"_rule{i}({', '.join(['_g', *(read_back[r] for r in rule[1])])})"
            )
        text = f"({', '.join(shares)},)"
        if needs.joint is not None:
            names, space["_joint"], reads = needs.joint
            for k, name in enumerate(names):
                shares[needs.op.differentiable.index(name)] = f"_both[{k}]"
            given = ", ".join(["_g", *(read_back[r] for r in reads)])
            text = f"(lambda _both: ({', '.join(shares)},))(_joint({given}))"
        needs.apply = _lambda(f"lambda _node, _saved, _g: {text}", space)
    return needs.saver


def _lambda(text: str, space: dict[str, Any]) -> Any:
    """Return a function compiled from a text. Its code names this file, so that observers of programs attribute it to the library."""
    return eval(compile(text, f"{__file__}<lambda>", "eval"), space)  # noqa: S307 - made of names only


def _unpack(value: Any, node: Any) -> Any:
    if type(value) is SavedTensor:
        return value.unpack(node)
    return [_unpack(v, node) for v in value] if type(value) is list else value


def _kind(parameters: dict[str, inspect.Parameter], name: str) -> Any:
    return parameters[name].annotation if name in parameters else None


def _holds_tensors(saved: dict[str, Any]) -> bool:
    kinds = [type(v) for v in saved.values()]
    return SavedTensor in kinds or any(type(v) is list and SavedTensor in map(type, v) for v in saved.values())


def _pack(value: Any) -> Any:
    if isinstance(value, Tensor):
        return SavedTensor(value, False)
    if type(value) in (list, tuple) and any(isinstance(v, Tensor) for v in value):
        return [SavedTensor(v, False) if isinstance(v, Tensor) else v for v in value]
    return value
