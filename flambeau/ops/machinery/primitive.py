"""Operators with kernels of their own: how they are declared and how autograd records them.

    @primitive(grads={"input": lambda g, mat2: g @ mat2.mH, "mat2": lambda g, input: input.mH @ g})
    def mm(input, mat2): ...

A gradient rule names what it reads: arguments of the forward function, `out` (the result), anything the forward function passes on with
`Saved`, or `needs` (which gradients are wanted). Only what the needed rules read is kept alive. A rule that needs only the header of an
argument says `input_shape`, `input_strides`, `input_offset`, `input_dtype` or `input_device`: then the tensor itself is not kept, and may be
changed in place before the backward pass."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any, NoReturn

from ...core import graph, modes
from ...core.graph import (
    GONE,
    INFERENCE,
    RETRY_MESSAGE,
    Node,
    SavedTensor,
    declare_saved,
    grad_mode,
    gradient_edge,
    named_class,
    public_name,
    unusual,
    user_trace,
)
from ...core.tensor import Tensor
from .formula import camel
from .parameters import NO_DEFAULT, parameter_names, parameters, starred
from .quirks import NO_QUIRKS, Quirks

_new_object: Any = object.__new__
_sequence = graph._sequence


class Saved:
    """Result of a forward function whose derivative needs more than arguments and results. An extra called `hidden` is a further result that
    only the derivative sees: it has a history and a gradient of its own, the last one."""

    __slots__ = ("result", "extras")

    def __init__(self, result: Any, **extras: Any):
        self.result, self.extras = result, extras


def unknown_derivative(name: str) -> Callable[..., Any]:
    """Return a rule for arguments whose derivative is not implemented: asking for it is an error, not a silent zero."""

    def rule(g: Any) -> NoReturn:
        raise NotImplementedError(f"the derivative for '{name}' is not implemented.")

    return rule


class Primitive:
    """A native operator with its derivative rules."""

    def __init__(
        self,
        fn: Callable[..., Any],
        grads: dict[Any, Any],
        quirks: Quirks = NO_QUIRKS,
        view: bool = False,
        multi_view: bool = False,
    ):
        self.fn = fn
        self.name = fn.__name__
        self.view = view
        self.multi_view = multi_view
        self.label = quirks.label or camel(self.name) + "Backward0"
        self.saves: tuple[str, ...] = ()
        self.keeps: dict[str, int] = {}
        self.saved_as_input = quirks.saved_as_input
        self.node_class: Any = None
        self.known_needs: dict[tuple[Any, ...], Needs] = {}
        every = parameters(fn)
        self.names = tuple(p.name for p in every)
        self.star = starred(fn)
        self.defaults = {p.name: p.default for p in every if p.default is not NO_DEFAULT}
        self.rules: list[tuple[tuple[str, ...], Callable[..., Any], tuple[str, ...]]] = []
        self.joint: list[
            tuple[tuple[str, ...], Callable[..., Any], tuple[str, ...]]
        ] = []  # for several that have rules of their own
        for given, rule in grads.items():
            names = given if isinstance(given, tuple) else (given,)
            again = any(n in known for known, _, _ in self.rules for n in names)
            (self.joint if again else self.rules).append((names, rule, parameter_names(rule)[1:]))
        self.differentiable = tuple(n for names, _, _ in self.rules for n in names)

    def alphabetical(self, rule: tuple[Any, ...]) -> str:
        """Return PyTorch's names of the arguments whose gradients a rule computes."""
        return ", ".join(n if self.saved_as_input else graph.public_name(n) for n in rule[0])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not grad_mode.enabled or not any_needs_grad(args, kwargs):
            result = self.fn(*args, **kwargs)
            if self.view:
                if not grad_mode.enabled:
                    remember_no_grad_view(result, args[0])
                return result
            result = result.result if type(result) is Saved else result
            if type(result) is Tensor and result._base is not None:
                make_independent(result, args)
            return result
        grad_mode.enabled = False
        try:
            result = self.fn(*args, **kwargs)
        finally:
            grad_mode.enabled = True
        extras: dict[str, Any] = {}
        if type(result) is Saved:
            result, extras = result.result, result.extras
        if not self.view and type(result) is Tensor and result._base is not None:
            make_independent(result, args)
        self.record(self.bind(args, kwargs), result, extras)
        return result

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self.star is not None:
            bound = inspect.signature(self.fn).bind(*args, **kwargs)
            bound.apply_defaults()
            return dict(bound.arguments)
        given = dict(zip(self.names, args))
        return given if len(given) == len(self.names) else {**self.defaults, **given, **kwargs}

    def record(self, bound: dict[str, Any], result: Any, extras: dict[str, Any]) -> None:
        edges: list[Any] = []
        lists: dict[str, int] = {}  # lengths of the arguments that are lists of tensors
        for name in self.differentiable:
            value = bound.get(name)
            if isinstance(value, Tensor):
                edges.append(gradient_edge(value) if value._autograd is not None or value._base is not None else None)
            elif isinstance(value, (tuple, list)):
                edges += [gradient_edge(v) if isinstance(v, Tensor) else None for v in value]
                lists[name] = len(value)
            else:
                edges.append(None)
        flags = tuple(map(bool, edges))
        if True not in flags:
            return
        single = not isinstance(result, (tuple, list))
        outputs = (result,) if single else result
        if extras.get("hidden") is not None:
            single, outputs = False, (*outputs, extras["hidden"])
        if True not in [isinstance(o, Tensor) and o.dtype.category >= 2 for o in outputs]:
            return
        node = _new_object(self.node_class or self.make_class())
        node.edges = tuple(edges)
        node.sequence = next(_sequence)
        node.needs, node.general = self.needs_for(flags, lists), True
        if single:
            node.output_info = ((result.shape, result.dtype, result.device),)
        else:
            node.output_info = tuple([(o.shape, o.dtype, o.device) if isinstance(o, Tensor) else None for o in outputs])
            node.single, node.output_count = False, len(outputs)
        if unusual and grad_mode.anomaly:
            node.trace = user_trace()
        node.keep(bound, outputs, extras)
        for i, o in enumerate(outputs):
            if isinstance(o, Tensor) and o.dtype.category >= 2:
                self._attach(o, node, i, bound.get(self.names[0]))

    def make_class(self) -> Any:
        """Return the class of this operator's nodes, made when the operator is first recorded, which most never are."""
        self.node_class = named_class(PrimitiveNode, self.label)
        reads = dict.fromkeys(read for _, _, reads in (*self.rules, *self.joint) for read in reads)
        fields = [_header_field(read, (*self.names, self.star)) for read in reads]
        declare_saved(*(self.saved_name(read, *field) for read, field in zip(reads, fields)))
        return self.node_class

    def saved_name(self, read: str, name: str, field: str | None) -> str:
        """Return PyTorch's name for a value that a rule reads."""
        if read == "out":
            return "result"
        parameter = name if self.saved_as_input else public_name(name)
        return parameter + _HEADER_NAMES.get(field or "", "")

    def needs_for(self, flags: tuple[bool, ...], lists: dict[str, int]) -> Needs:
        """Return the `Needs` for the gradients that are wanted, cached for calls without lists."""
        needs = None if lists else self.known_needs.get(flags)
        if needs is None:
            needs = Needs(self, flags, lists)
            if not lists:
                self.known_needs[flags] = needs
        return needs

    def _attach(self, out: Tensor, node: Node, output_nr: int, source: Any) -> None:
        out._set_history(node, output_nr)
        if self.view and out._base is not None:
            meta = out._autograd
            assert meta is not None
            meta.view_version = out._storage.version
            is_view = isinstance(source, Tensor) and source._base is not None and source._autograd is not None
            above = source._autograd.creation if is_view else ""
            meta.creation = "multi" if self.multi_view else above


class Needs:
    """Gradients that a call wants, the rules that compute them, and what those rules read."""

    __slots__ = ("op", "wanted", "layout", "rules", "reads", "one_by_one", "joint", "saver", "holds", "apply")

    def __init__(self, op: Primitive, flags: tuple[bool, ...], lists: dict[str, int]):
        self.op = op
        self.saver: Callable[..., Any] | None = None  # these are made by `recording`
        self.apply: Callable[..., Any] | None = None
        self.holds = False
        self.layout = [(name, lists.get(name, -1)) for name in op.differentiable]
        self.wanted: dict[str, Any] = {}  # by parameter name: a flag, or a list of them for a list parameter
        rest = iter(flags)
        for name, count in self.layout:
            self.wanted[name] = next(rest) if count < 0 else list(itertools.islice(rest, count))
        self.joint = next((rule for rule in op.joint if all(_flag(self.wanted[n]) for n in rule[0])), None)
        taken: tuple[str, ...] = () if self.joint is None else self.joint[0]
        rules = [] if self.joint is None else [self.joint]
        rules += [rule for rule in op.rules if not any(n in taken for n in rule[0])]
        self.rules = [rule for rule in rules if any(_flag(self.wanted[n]) for n in rule[0])]
        self.rules.sort(key=op.alphabetical)  # as PyTorch's gradients are computed; only a mode sees the difference
        reads = dict.fromkeys(read for _, _, reads in self.rules for read in reads if read != "needs")
        self.reads = [(read, *_header_field(read, (*op.names, op.star))) for read in reads]
        # Where every gradient is a tensor with a rule of its own: the rules in the order of the gradients, and their reads. (None where
        # the joint rule gives it.)
        self.one_by_one: list[tuple[Callable[..., Any], tuple[str, ...]] | None] | None = None
        if not lists and all(len(names) == 1 for names, _, _ in op.rules):
            own = [self.wanted[name] and name not in taken for (name,), _, _ in op.rules]
            self.one_by_one = [(rule, reads) if mine else None for mine, (_, rule, reads) in zip(own, op.rules)]


def make_independent(result: Tensor, args: tuple[Any, ...]) -> None:
    """Remove the base of a result that is part of memory made for it: the user cannot reach the base."""
    if not any(isinstance(x, Tensor) and x._storage is result._storage for x in args):
        result._base = None


def remember_no_grad_view(result: Any, source: Tensor) -> None:
    """Mark a view of a tensor that requires grad, made without recording: it must not be changed in place with recording."""
    if source._autograd is None or not source.requires_grad or source._storage.version >= INFERENCE:
        return
    for out in result if isinstance(result, (tuple, list)) else (result,):
        if out._base is not None:
            meta = out._ensure_autograd()
            meta.creation = "inference" if grad_mode.inference else "no_grad"
            meta.view_version = out._storage.version


def any_needs_grad(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a tensor among the arguments, or in a list among them, requires grad."""
    for x in args:
        if isinstance(x, Tensor):
            if (x._autograd is not None or x._base is not None) and x.requires_grad:
                return True
        elif type(x) is list or type(x) is tuple:
            for y in x:
                if isinstance(y, Tensor) and (y._autograd is not None or y._base is not None) and y.requires_grad:
                    return True
    return any_needs_grad(tuple(kwargs.values()), {}) if kwargs else False


declare_saved(*(f"result{i}" for i in range(8)))


class PrimitiveNode(Node):
    """The recorded call of a primitive; `Primitive.record` sets its fields."""

    needs: Needs
    single = True
    general = False  # whether `Primitive.record` made it
    holds_tensors = False

    def keep(self, bound: dict[str, Any], outputs: Any, extras: dict[str, Any]) -> None:
        saved: dict[str, Any] = {}
        for read, name, field in self.needs.reads:
            if read == "out":
                packed = [SavedTensor(o, True, i) if isinstance(o, Tensor) else o for i, o in enumerate(outputs)]
                saved[read] = packed[0] if self.single else packed
                self.holds_tensors = True
                continue
            if read == "hidden":
                saved[read] = SavedTensor(outputs[-1], True, len(outputs) - 1)
                self.holds_tensors = True
                continue
            value = extras[read] if read in extras else bound[name]
            if field is not None and read not in extras:
                saved[read] = _header_of(value, field)
            elif isinstance(value, Tensor):
                saved[read] = SavedTensor(value, False)
                self.holds_tensors = True
            elif type(value) in (list, tuple) and any(isinstance(v, Tensor) for v in value):
                saved[read] = [SavedTensor(v, False) if isinstance(v, Tensor) else v for v in value]
                self.holds_tensors = True
            else:
                saved[read] = value
        self.saved = saved

    def saved_fields(self, hookable: bool = False) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for read, name, field in self.needs.reads:
            entry: Any = GONE if self.saved is None else self.saved[read]
            if read == "out" and not self.single and entry is not GONE:
                fields.update((f"result{i}", part) for i, part in enumerate(entry))
                continue
            fields[self.needs.op.saved_name(read, name, field)] = entry
        return fields

    def release(self) -> None:
        if self.holds_tensors:
            self.saved = None

    def apply(self, grads: list[Any]) -> tuple[Any, ...]:
        if grads[0] is None if self.single else all(g is None for g in grads):
            return (None,) * len(self.edges)
        saved = self.saved
        if saved is None:
            raise RuntimeError(RETRY_MESSAGE)
        needs = self.needs
        if needs.apply is not None and not self.general and not modes.active:
            return needs.apply(self, saved, grads[0] if self.single else tuple(grads))
        return self._by_rules(needs, saved, grads)

    def apply_some(self, grads: list[Any], wanted: tuple[bool, ...]) -> tuple[Any, ...]:
        if wanted == tuple([e is not None for e in self.edges]) or self.saved is None:
            return self.apply(grads)
        if all(g is None for g in grads):
            return (None,) * len(self.edges)
        lists = {name: count for name, count in self.needs.layout if count >= 0}
        return self._by_rules(self.needs.op.needs_for(wanted, lists), self.saved, grads)

    def _by_rules(self, needs: Needs, saved: dict[str, Any], grads: list[Any]) -> tuple[Any, ...]:
        """Call the rules for the gradients that are needed."""
        values = {read: _unpack(saved[read], self) for read, _, _ in needs.reads}
        values["needs"] = needs.wanted
        g = grads[0] if self.single else tuple(grads)
        if needs.one_by_one is not None and needs.joint is None and not modes.active:
            return tuple([r and r[0](g, *[values[read] for read in r[1]]) for r in needs.one_by_one])
        found: dict[str, Any] = {}
        for names, rule, reads in needs.rules:
            result = rule(g, *[values[r] for r in reads])
            if len(names) == 1:
                found[names[0]] = result
            else:
                found.update(zip(names, result))
        results: list[Any] = []
        for name, count in needs.layout:
            share = found.get(name)
            if count < 0:
                results.append(share)
            else:
                results += [None] * count if share is None else list(share)
        return tuple(results)


def _flag(wanted: Any) -> bool:
    return any(wanted) if isinstance(wanted, list) else wanted


_HEADER_FIELDS = {
    "shape": "shape", "strides": "_strides", "offset": "_offset", "dtype": "dtype", "device": "device", "layout": "layout",
}  # fmt: skip


# PyTorch's suffixes for these saved fields, after the name of the argument.
_HEADER_NAMES = {
    "shape": "_sym_sizes",
    "_strides": "_sym_strides",
    "_offset": "_sym_storage_offset",
    "dtype": "_scalar_type",
    "device": "_device",
    "layout": "_layout",
}


def _header_field(read: str, names: tuple[Any, ...]) -> tuple[str, str | None]:
    """Return the parameter that a rule's `read` refers to, and the slot of its header if the rule reads no more than that."""
    if read in names:
        return read, None
    name, _, field = read.rpartition("_")
    return (name, _HEADER_FIELDS[field]) if name in names and field in _HEADER_FIELDS else (read, None)


def _header_of(value: Any, slot: str) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple([getattr(v, slot) for v in value])
    return getattr(value, slot, None)


def _unpack(value: Any, node: Node) -> Any:
    if type(value) is SavedTensor:
        return value.unpack(node)
    if type(value) is list and any(isinstance(v, SavedTensor) for v in value):
        return [v.unpack(node) if isinstance(v, SavedTensor) else v for v in value]
    return value
