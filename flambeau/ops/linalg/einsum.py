"""einsum: sums of products described by subscripts."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import string
from collections import Counter
from typing import Any

from ...core.settings import may_change
from ...core.tensor import Tensor
from ..machinery.declare import composite
from ..machinery.quirks import Quirks
from ..shape.dimensions import expand_to, permute_dims
from ..shape.reshape import reshaped

_LETTERS = string.ascii_uppercase + string.ascii_lowercase
_NOTHING = "einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts list"


@may_change
class Order:
    """Order in which more than two operands are multiplied: that of the package opt_einsum if it is installed and `enabled` (None: not looked
    up yet), else from left to right. See `torch.backends.opt_einsum`."""

    enabled: bool | None = None
    strategy: str | None = "auto"

    @staticmethod
    def package() -> Any:
        """Return opt_einsum, or None if it is not installed."""
        return importlib.import_module("opt_einsum") if importlib.util.find_spec("opt_einsum") else None

    @classmethod
    def is_chosen(cls) -> bool:
        if cls.enabled is None:
            cls.enabled = cls.package() is not None
        return cls.enabled

    @classmethod
    def path(cls, equation: str, operands: tuple[Tensor, ...]) -> list[tuple[int, ...]] | None:
        """Return the order in which operands are multiplied; each product is appended after the others."""
        if len(operands) < 3 or not cls.is_chosen():
            return None
        shapes = [tuple(t.shape) for t in operands]
        return cls.package().contract_path(equation, *shapes, shapes=True, optimize=cls.strategy)[0]


def _equation_and_operands(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a call as (equation, *operands), in whichever form they were given."""
    if len(args) < 2:
        raise ValueError(_NOTHING)
    if isinstance(args[0], str):
        listed = len(args) == 2 and isinstance(args[1], (list, tuple))
        return (args[0], *args[1]) if listed else args
    equation = ",".join(_sublist(items) for items in args[1::2])
    if len(args) % 2:
        equation += "->" + _sublist(args[-1])
    return (equation, *args[0 : len(args) // 2 * 2 : 2])


@composite(method=False, quirks=Quirks(asked_with=_equation_and_operands))
def einsum(*args: Any) -> Tensor:
    """einsum(equation, *operands): the sum of products that the equation names, `einsum("ij,jk->ik", a, b)`. Or subscripts as numbers:
    `einsum(a, [0, 1], b, [1, 2], [0, 2])`."""
    equation, operands = _parse_arguments(args)
    inputs, output = _parse_equation(equation, tuple([len(t.shape) for t in operands]))
    return _contract(inputs, output, list(operands), Order.path(equation, operands))


@einsum.op.as_aten
def _(recorder: Any, *args: Any) -> Tensor:
    equation, operands = _parse_arguments(args)
    return recorder.aten.einsum.default(equation, list(operands))


def _parse_arguments(args: tuple[Any, ...]) -> tuple[str, tuple[Tensor, ...]]:
    equation, *operands = _equation_and_operands(args)
    if not operands:
        raise ValueError(_NOTHING)
    for i, t in enumerate(operands):
        if not isinstance(t, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 1, but got {type(t).__name__}")
    return equation, tuple(operands)


def _sublist(items: Any) -> str:
    """Return numbers as letters, capital ones first, which is their order in an implicit output."""
    text = ""
    for i in items:
        if i is Ellipsis:
            text += "..."
        elif not isinstance(i, int):
            raise TypeError(
                f"einsum(): expected subscript to be an integer or Ellipsis, but got an object of type {type(i).__name__}"
            )
        elif not 0 <= i < 52:
            raise ValueError(f"einsum(): subscript in subscript list is not within the valid range [0, 52), got {i}")
        else:
            text += _LETTERS[i]
    return text


@functools.lru_cache(1024)
def _parse_equation(equation: str, ranks: tuple[int, ...]) -> tuple[list[list[str]], list[str]]:
    """Return labels per operand dimension; an ellipsis stands for labels '#0', '#1', ... counted from the right."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        more = "more" if len(terms) < len(ranks) else "fewer"
        raise RuntimeError(f"einsum(): {more} operands were provided than specified in the equation")
    inputs, start = [], 0
    for i, (term, rank) in enumerate(zip(terms, ranks)):
        inputs.append(_labels(_scan(term, start, i), rank, i))
        start += len(term) + 1
    counts = Counter(label for labels in inputs for label in labels)
    hidden = sorted((x for x in counts if x.startswith("#")), key=lambda x: -int(x[1:]))
    if not arrow:
        return inputs, hidden + sorted(x for x, c in counts.items() if c == 1 and not x.startswith("#"))
    output: list[str] = []
    for x in _scan(right, len(left) + 2, None):
        if x in output:
            raise RuntimeError(f"einsum(): output subscript {x} appears more than once in the output")
        if x != "..." and x not in counts:
            raise RuntimeError(f"einsum(): output subscript {x} does not appear in the equation for any input operand")
        output += hidden if x == "..." else [x]
    return inputs, output


def _scan(term: str, start: int, which: int | None) -> list[str]:
    """Return the letters and the ellipsis of operand number `which` (None: of the output), which begins at `start` in the equation."""
    found: list[str] = []
    position = 0
    while position < len(term):
        character = term[position]
        if character == ".":
            _check_dots(found, term[position : position + 3], which)
            found.append("...")
            position += 2
        elif character in _LETTERS:
            found.append(character)
        elif character != " ":
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {start + position} in the equation string, subscripts must be in"
                " [a-zA-Z]"
            )
        position += 1
    return found


def _check_dots(found: list[str], dots: str, which: int | None) -> None:
    where = "output" if which is None else f"operand {which}"
    if "..." in found:
        again = (
            "but an ellipsis (...) was already found" if which is None else "for which an ellipsis was already found"
        )
        raise RuntimeError(f"einsum(): found '.' for {where} {again}")
    if dots != "...":
        raise RuntimeError(
            f"einsum(): found '.' for {where} that is not part of any ellipsis{' (...)' if which is None else ''}"
        )


def _labels(term: list[str], ndim: int, which: int) -> list[str]:
    dots = "..." in term
    named = len(term) - dots
    if named > ndim or (not dots and named != ndim):
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({named}) {'is more than' if dots else 'does not match'} the number of"
            f" dimensions ({ndim}) for operand {which}{'' if dots else ' and no ellipsis was given'}"
        )
    hidden = [f"#{i}" for i in range(ndim - named - 1, -1, -1)]
    return [label for x in term for label in (hidden if x == "..." else [x])]


def _diagonals(t: Tensor, labels: list[str], which: int) -> tuple[Tensor, list[str]]:
    """Take diagonals for labels that are repeated within one operand."""
    labels = list(labels)
    for label in list(dict.fromkeys(labels)):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            if t.shape[i] != t.shape[j]:
                raise RuntimeError(
                    f"einsum(): subscript {label} is repeated for operand {which} but the sizes don't match, {t.shape[j]} != {t.shape[i]}"
                )
            t = t.diagonal(0, i, j)
            labels = [x for k, x in enumerate(labels) if k not in (i, j)] + [label]
    return t, labels


def _contract(
    inputs: list[list[str]], output: list[str], operands: list[Tensor], path: list[tuple[int, ...]] | None
) -> Tensor:
    sizes: dict[str, int] = {}
    prepared = []
    for n, (t, labels) in enumerate(zip(operands, inputs)):
        t, labels = _diagonals(t, labels, n)
        for label, size in zip(labels, t.shape):
            known = sizes.setdefault(label, size)
            if size != known:
                if 1 not in (size, known):
                    raise RuntimeError(
                        f"einsum(): subscript {label} has size {size} for operand {n} which does not broadcast with previously seen size"
                        f" {known}"
                    )
                sizes[label] = max(size, known)
        prepared.append((t, labels))
    for places in path or [(0, 1)] * (len(operands) - 1):
        first, *others = [prepared.pop(i) for i in sorted(places, reverse=True)][::-1]
        while others:
            later = set(output).union(*(set(x[1]) for x in [*prepared, *others[1:]]))
            first = _pair(*first, *others.pop(0), later, output)
        prepared.insert(0 if path is None else len(prepared), first)
    current, labels = prepared[0]
    gone = [i for i, x in enumerate(labels) if x not in output]
    if gone:
        current = current.sum(gone)
        labels = [x for x in labels if x in output]
    if labels == output and (gone or len(operands) > 1):
        return current
    return current.permute(*[labels.index(x) for x in output])


def _outer(a: Tensor, la: list[str], b: Tensor, lb: list[str], output: list[str]) -> tuple[Tensor, list[str]]:
    """Multiply two operands with nothing to sum: elementwise, in the order of the output if it is known."""
    labels = sorted(dict.fromkeys(la + lb), key=lambda x: output.index(x) if x in output else len(output))

    def aligned(t: Tensor, own: list[str]) -> Tensor:
        t = t.permute(*[own.index(x) for x in labels if x in own])
        return t.reshape([t.shape[[y for y in labels if y in own].index(x)] if x in own else 1 for x in labels])

    return aligned(a, la) * aligned(b, lb), labels


def _pair(
    a: Tensor, la: list[str], b: Tensor, lb: list[str], keep: set[str], output: list[str]
) -> tuple[Tensor, list[str]]:
    """Contract a pair of operands, as a batched matrix product, or as an elementwise product if nothing is summed."""
    a, la = _sum_alone(a, la, lb, keep)
    b, lb = _sum_alone(b, lb, la, keep)
    shared = [x for x in la if x in lb]

    # A label of size one on one side and more on the other broadcasts: it is not contracted by the product itself.
    def size(t: Tensor, labels: list[str], x: str) -> int:
        return t.shape[labels.index(x)]

    contracted = [x for x in shared if x not in keep]
    if not contracted:
        return _outer(a, la, b, lb, output)
    for x in contracted:
        if size(a, la, x) != size(b, lb, x):
            if size(a, la, x) == 1:
                b = b.sum(lb.index(x), keepdim=True, dtype=b.dtype)
            else:
                a = a.sum(la.index(x), keepdim=True, dtype=a.dtype)
    single = [x for x in contracted if size(a, la, x) == 1]
    a, la = _without(a, la, single)
    b, lb = _without(b, lb, single)
    contracted = [x for x in contracted if x not in single]
    batch = [x for x in shared if x in keep]
    only_a = [x for x in la if x not in lb]
    only_b = [x for x in lb if x not in la]
    if [x for x in output if x in only_a + only_b] == only_b + only_a:  # so that the result has the requested layout
        a, la, only_a, b, lb, only_b = b, lb, only_b, a, la, only_a
    left = permute_dims(a, tuple([la.index(x) for x in batch + only_a + contracted]))
    right = permute_dims(b, tuple([lb.index(x) for x in batch + contracted + only_b]))
    nb, na, nc = len(batch), len(only_a), len(contracted)
    batch_shape = [
        max(left.shape[i], right.shape[i]) if 0 not in (left.shape[i], right.shape[i]) else 0 for i in range(nb)
    ]
    left = expand_to(left, (*batch_shape, *left.shape[nb:]))
    right = expand_to(right, (*batch_shape, *right.shape[nb:]))
    shape_a, shape_b = list(left.shape[nb : nb + na]), list(right.shape[nb + nc :])
    count = math.prod(left.shape[nb + na :])
    left3 = reshaped(left, (math.prod(batch_shape), math.prod(shape_a), count))
    right3 = reshaped(right, (math.prod(batch_shape), count, math.prod(shape_b)))
    out = reshaped(left3.bmm(right3), (*batch_shape, *shape_a, *shape_b))
    return out, batch + only_a + only_b


def _without(t: Tensor, labels: list[str], single: list[str]) -> tuple[Tensor, list[str]]:
    """Return the tensor without these dimensions of size one."""
    if not single:
        return t, labels
    rest = [x for x in labels if x not in single]
    return t.reshape([t.shape[labels.index(x)] for x in rest]), rest


def _sum_alone(t: Tensor, labels: list[str], others: list[str], keep: set[str]) -> tuple[Tensor, list[str]]:
    """Sum over the labels that no other operand or output has."""
    gone = [i for i, x in enumerate(labels) if x not in others and x not in keep]
    if not gone:
        return t, labels
    return t.sum(gone), [x for i, x in enumerate(labels) if i not in gone]
