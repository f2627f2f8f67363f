"""Batching: a call on one element of a batch becomes a call on the whole batch.

A `Level` is one running vmap: a mode that intercepts every operator called inside. The operator's declaration decides how a call is made:
pointwise operators align dimensions and broadcast, reductions shift theirs, composites run their bodies (whose calls come back here), and the
rest have a rule in their record (`Op.batching`): one of `func.rules`, by name, or one of their own. "each" runs element by element, with a
warning: correct, but slow."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from ..core import modes
from ..core.batched import BatchedTensor, VmapRefusal, batched
from ..core.generator import default_generator
from ..core.promotion import promote_types
from ..core.return_types import NamedResult
from ..core.tensor import Tensor, tensors_in
from ..ops.machinery.record import Batched, Op
from ..ops.shape.joining import stack

Rule = Callable[..., Any]  # rule(level, function, *args, **kwargs), with batched tensors among the arguments

KIND_RULES: dict[str, Rule] = {}  # for all operators of a kind: "reduction", "random"
FORMS: dict[str, Callable[[Batched], Rule]] = {}  # what makes the rules that records name


def rule(*operators: Any) -> Callable[[Rule], Rule]:
    """Decorator: declare the batching rule of operators, in their records."""

    def declare(fn: Rule) -> Rule:
        for operator in operators:
            operator.op.batching = fn
        return fn

    return declare


def form(word: str) -> Callable[[Callable[[Batched], Rule]], Callable[[Batched], Rule]]:
    """Decorator: declare the maker of batching rules for records whose `batching` is `word`."""

    def declare(make: Callable[[Batched], Rule]) -> Callable[[Batched], Rule]:
        FORMS[word] = make
        return make

    return declare


@functools.cache
def named_rule(declared: str | Batched) -> Rule:
    """Return the batching rule that a record names."""
    declared = Batched(declared) if isinstance(declared, str) else declared
    return FORMS[declared.form](declared)


@form("each")
def each(declared: Batched) -> Rule:
    """Return the rule that makes the call for one element after the other."""
    return lambda level, function, *args, **kwargs: level.one_by_one(function.op, function, args, kwargs)


def kind_rule(kind: str) -> Callable[[Rule], Rule]:
    """Decorator: declare the batching rule of all operators of a kind."""

    def declare(fn: Rule) -> Rule:
        KIND_RULES[kind] = fn
        return fn

    return declare


class Level(modes.Mode):
    """A running vmap over `size` elements."""

    def __init__(self, size: int, randomness: str):
        self.size, self.randomness = size, randomness
        self.depth: int = 1 + max((m.depth for m in modes.own.stack if isinstance(m, Level)), default=0)

    # -- values -----------------------------------------------------------------------------------------------------
    def owns(self, x: Any) -> bool:
        return isinstance(x, BatchedTensor) and x._level is self

    def front(self, x: Any) -> Any:
        """Return the value of a tensor of this level, batch first; anything else is returned unchanged."""
        if not self.owns(x):
            return x
        return x._value if x._hidden == 0 else x._value.movedim(x._hidden, 0)

    def full(self, x: Tensor) -> Tensor:
        """Return the value with the batch first; a tensor that is equal for all elements is repeated (without copying)."""
        return self.front(x) if self.owns(x) else x.unsqueeze(0).expand(self.size, *x.shape)

    def wrap(self, result: Any, hidden: int = 0) -> Any:
        """Return results of a call on values as batched tensors of this level."""
        if isinstance(result, Tensor):
            return batched(result, hidden, self)
        if isinstance(result, (tuple, list)):
            return remade(result, [self.wrap(r, hidden) for r in result])
        return result

    # -- calls ------------------------------------------------------------------------------------------------------
    def handle(self, op: Op, function: Callable, args: tuple, kwargs: dict) -> Any:
        if op.kind == "random":
            return KIND_RULES["random"](self, function, op, args, kwargs)
        if not any(self.owns(x) for x in tensors_in((args, kwargs))):
            return function(*args, **kwargs)
        if kwargs.get("out") is not None:
            raise VmapRefusal(
                f"vmap: calling {op.name}(..., out=) is not supported inside vmap: use the form without out="
            )
        rule = op.batching
        if rule is not None:
            return (rule if callable(rule) else named_rule(rule))(self, function, *args, **kwargs)
        if op.in_place:
            return self.in_place(op, function, args, kwargs)
        if op.kind == "pointwise":
            return self.pointwise(function, args, kwargs)
        if op.kind == "reduction":
            return KIND_RULES["reduction"](self, function, *args, **kwargs)
        if op.kind == "composite" or (op.kind == "view" and op.impl is None):
            return self.composite(op, function, args, kwargs)
        return self.one_by_one(op, function, args, kwargs)

    def pointwise(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Make a pointwise call: values with the batch first and the other dimensions aligned at the end broadcast."""
        if any(self.owns(x) for x in kwargs.values()):
            raise VmapRefusal("vmap: a tensor given by name to a pointwise operator must be equal for all elements")
        return self.wrap(function(*self.lined_up(args), **kwargs))

    def lined_up(self, operands: tuple) -> list:
        rank = max((len(x.shape) for x in operands if isinstance(x, Tensor)), default=0)
        own_dtype = self._dtype_of_dimensioned(operands)
        result: list = []
        for x in operands:
            if not self.owns(x):
                result.append(x)
                continue
            value = self.front(x)
            missing = rank - len(x.shape)
            if missing:
                value = value.reshape(value.shape[0], *(1,) * missing, *value.shape[1:])
            if not x.shape and own_dtype is not None and x.dtype.category <= own_dtype.category:
                value = value.to(own_dtype)  # inside it has no dimensions, so it does not widen the others' dtype
            result.append(value)
        return result

    @staticmethod
    def _dtype_of_dimensioned(operands: tuple) -> Any:
        found = None
        for x in operands:
            if isinstance(x, Tensor) and x.shape:
                found = x.dtype if found is None else promote_types(found, x.dtype)
        return found

    def in_place(self, op: Op, function: Callable, args: tuple, kwargs: dict) -> Any:
        target, *others = args
        self.check_target(target, op.name)
        if op.kind == "pointwise":
            self.writable(target)
            operands = self.lined_up(args)
            if operands[0].shape[1:] != target.shape:
                raise RuntimeError(
                    f"vmap: {op.name}(): the result does not fit into the tensor of shape {list(target.shape)}"
                )
            function(operands[0] if operands[0].dtype is target.dtype else self.front(target), *operands[1:], **kwargs)
            return target
        if op.plain is not None:
            with self:
                target.copy_(op.plain.function(target, *others, **kwargs))
            return target
        self.one_by_one(op, function, args, kwargs)
        return target

    def check_target(self, target: Any, name: str) -> None:
        if not self.owns(target):
            raise VmapRefusal(
                f"vmap: {name}(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that"
                " has more elements than `self`. This happened due to `self` not being vmapped over while a Tensor in extra_args"
                f" is being vmapped over in a vmap. Please try to use out-of-place operators instead of {name}, or"
                " make self from the other tensor (new_zeros, zeros_like)."
            )

    def writable(self, target: Any) -> None:
        """Make a batch safe to write to: one that repeats a single element is copied."""
        value = target._value
        if self.size > 1 and value.stride()[target._hidden] == 0:
            target._value = value.clone()

    def composite(self, op: Op, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Run the operator's own body with this level on; if that reads memory, run element by element."""
        body = getattr(function, "__wrapped__", None)
        if body is None:
            return self.one_by_one(op, function, args, kwargs)
        try:
            with self:
                return body(*args, **kwargs)
        except VmapRefusal:
            return self.one_by_one(op, function, args, kwargs)

    def one_by_one(self, op: Op, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Make the call for each element of the batch, and stack the results."""
        if not op.name.startswith("_"):
            warnings.warn(
                "There is a performance drop because we have not yet implemented the batching rule for"
                f" {op.name}. It is called once for each element of the batch.",
                UserWarning,
                stacklevel=4,
            )
        if not self.size:
            raise VmapRefusal(
                f"vmap: {op.name}() has no batching rule, and a batch of size 0 has no element to call it with"
            )
        numbers = default_generator.state_bytes()
        results = [function(*self.element(args, i), **self.element(kwargs, i)) for i in range(self.size)]
        if self.randomness != "different" and numbers != default_generator.state_bytes():
            self.refuse_randomness(op.name)
        return self.joined(results, op.name)

    def refuse_randomness(self, name: str) -> NoReturn:
        if self.randomness == "same":
            raise VmapRefusal(
                f"Vmap does not currently support same randomness with a batched tensor input: {name}() draws for each element"
            )
        raise VmapRefusal(
            "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different'"
            " randomness flags on vmap or perform the randomness operation out of vmap"
        )

    def element(self, tree: Any, i: int) -> Any:
        if self.owns(tree):
            return tree._value.select(tree._hidden, i)
        if type(tree) is dict:
            return {k: self.element(v, i) for k, v in tree.items()}
        if isinstance(tree, (tuple, list)):
            return remade(tree, [self.element(v, i) for v in tree])
        return tree

    def joined(self, results: list, name: str) -> Any:
        first = results[0]
        if isinstance(first, Tensor):
            if any(r.shape != first.shape for r in results):
                raise VmapRefusal(
                    f"vmap: the shape of {name}()'s result depends on the data, which vmap does not support"
                )
            return self.wrap(stack(results))
        if isinstance(first, (tuple, list)):
            return remade(first, [self.joined(list(parts), name) for parts in zip(*results)])
        if any(r != first for r in results):
            raise VmapRefusal(f"vmap: the result of {name}() differs from element to element and is not a Tensor")
        return first


def remade(like: Any, parts: list) -> Any:
    """Return a tuple, list or named tuple like `like` with other parts."""
    named = hasattr(like, "_fields") and not isinstance(like, NamedResult)
    return type(like)(*parts) if named else type(like)(parts)


def running_levels() -> list[Level]:
    """Return the running vmaps, outermost first."""
    return [m for m in modes.own.stack if isinstance(m, Level)]
