"""einsum: sums of products described by subscripts."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from .declare import composite

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@composite(method=False)
def einsum(*args: Any) -> Tensor:
    """einsum("ij,jk->ik", a, b), or einsum(a, [0, 1], b, [1, 2], [0, 2])."""
    equation, operands = _parse_arguments(args)
    inputs, output = _parse_equation(equation, operands)
    return _contract(inputs, output, list(operands))


def _parse_arguments(args: tuple) -> tuple[str, tuple[Tensor, ...]]:
    if not args:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts list"
        )
    if isinstance(args[0], str):
        operands = args[1:]
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = tuple(operands[0])
        if not operands:
            raise ValueError("einsum(): must provide at least one operand")
        return args[0], operands
    parts: list[str] = []
    found: list[Tensor] = []
    rest = list(args)
    while len(rest) >= 2:
        found.append(rest.pop(0))
        parts.append(_sublist(rest.pop(0)))
    equation = ",".join(parts)
    if rest:
        equation += "->" + _sublist(rest[0])
    return equation, tuple(found)


def _sublist(items: Any) -> str:
    text = ""
    for i in items:
        if i is Ellipsis:
            text += "..."
        elif isinstance(i, int) and 0 <= i < 52:
            text += _LETTERS[i] if i >= 26 else _LETTERS[26 + i]
        else:
            raise ValueError(f"einsum(): not a valid subscript: {i}; expected an integer within [0, 52)")
    return text


def _parse_equation(equation: str, operands: tuple[Tensor, ...]) -> tuple[list[list[str]], list[str]]:
    """Labels per operand dimension; an ellipsis stands for labels '0', '1', ... counted from the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        more = "more" if len(terms) < len(operands) else "fewer"
        raise RuntimeError(f"einsum(): {more} operands were provided than specified in the equation")
    inputs = [_labels(term, len(t.shape), i) for i, (term, t) in enumerate(zip(terms, operands))]
    counts: dict[str, int] = {}
    for labels in inputs:
        for label in labels:
            counts[label] = counts.get(label, 0) + 1
    hidden = sorted((x for x in counts if x.startswith("#")), key=lambda x: -int(x[1:]))
    if not arrow:
        return inputs, hidden + sorted(x for x, c in counts.items() if c == 1 and not x.startswith("#"))
    output: list[str] = []
    position = 0
    while position < len(right):
        if right[position] == ".":
            if right[position : position + 3] != "...":
                raise RuntimeError("einsum(): found '.' for output but an ellipsis (...) was already found")
            output += hidden
            position += 3
            continue
        letter = right[position]
        if letter not in _LETTERS:
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {position} in the equation string, subscripts must be in [a-zA-Z]"
            )
        if letter in output:
            raise RuntimeError(f"einsum(): output subscript {letter} appears more than once in the output")
        if letter not in counts:
            raise RuntimeError(
                f"einsum(): output subscript {letter} does not appear in the equation for any input operand"
            )
        output.append(letter)
        position += 1
    return inputs, output


def _labels(term: str, ndim: int, which: int) -> list[str]:
    before, dots, after = term.partition("...")
    for letter in before + after:
        if letter not in _LETTERS:
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {term.index(letter)} in the equation string, subscripts must be in [a-zA-Z]"
            )
    named = len(before) + len(after)
    if named > ndim or (not dots and named != ndim):
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({named}) {'is more than' if dots else 'does not match'} the number of"
            f" dimensions ({ndim}) for operand {which}{'' if dots else ' and no ellipsis was given'}"
        )
    hidden = [f"#{i}" for i in range(ndim - named - 1, -1, -1)]
    return [*before, *hidden, *after]


def _diagonals(t: Tensor, labels: list[str]) -> tuple[Tensor, list[str]]:
    """A repeated label within one operand selects a diagonal."""
    labels = list(labels)
    for label in list(dict.fromkeys(labels)):
        while labels.count(label) > 1:
            i = labels.index(label)
            j = labels.index(label, i + 1)
            if t.shape[i] != t.shape[j]:
                raise RuntimeError(
                    f"einsum(): subscript {label} is repeated for operand 0 but the sizes don't match, {t.shape[j]} != {t.shape[i]}"
                )
            t = t.diagonal(0, i, j)
            labels = [x for k, x in enumerate(labels) if k not in (i, j)] + [label]
    return t, labels


def _contract(inputs: list[list[str]], output: list[str], operands: list[Tensor]) -> Tensor:
    sizes: dict[str, int] = {}
    prepared = []
    for n, (t, labels) in enumerate(zip(operands, inputs)):
        t, labels = _diagonals(t, labels)
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
    current, labels = prepared[0]
    for k, (other, other_labels) in enumerate(prepared[1:], 1):
        later = set(output).union(*(set(x[1]) for x in prepared[k + 1 :]))
        current, labels = _pair(current, labels, other, other_labels, later, output)
    gone = [i for i, x in enumerate(labels) if x not in output]
    if gone:
        current = current.sum(gone, dtype=current.dtype)
        labels = [x for x in labels if x in output]
    if labels == output and (gone or len(operands) > 1):
        return current
    return current.permute(*[labels.index(x) for x in output])


def _outer(a: Tensor, la: list[str], b: Tensor, lb: list[str], output: list[str]) -> tuple[Tensor, list[str]]:
    """A product of two operands with nothing to sum: elementwise, in the order of the output where it is known."""
    labels = sorted(dict.fromkeys(la + lb), key=lambda x: output.index(x) if x in output else len(output))

    def aligned(t: Tensor, own: list[str]) -> Tensor:
        t = t.permute(*[own.index(x) for x in labels if x in own])
        return t.reshape([t.shape[[y for y in labels if y in own].index(x)] if x in own else 1 for x in labels])

    return aligned(a, la) * aligned(b, lb), labels


def _pair(
    a: Tensor, la: list[str], b: Tensor, lb: list[str], keep: set[str], output: list[str]
) -> tuple[Tensor, list[str]]:
    """One pairwise contraction as a batched matrix product, or as a product of elements where nothing is summed."""
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
    left = a.permute(*[la.index(x) for x in batch + only_a + contracted])
    right = b.permute(*[lb.index(x) for x in batch + contracted + only_b])
    nb, na, nc = len(batch), len(only_a), len(contracted)
    batch_shape = [
        max(left.shape[i], right.shape[i]) if 0 not in (left.shape[i], right.shape[i]) else 0 for i in range(nb)
    ]
    left = left.expand(*batch_shape, *left.shape[nb:])
    right = right.expand(*batch_shape, *right.shape[nb:])
    shape_a, shape_b = list(left.shape[nb : nb + na]), list(right.shape[nb + nc :])
    count = _product(left.shape[nb + na :])
    left3 = left.reshape(_product(batch_shape), _product(shape_a), count)
    right3 = right.reshape(_product(batch_shape), count, _product(shape_b))
    out = (
        left3.bmm(right3).reshape(*batch_shape, *shape_a, *shape_b)
        if batch_shape + shape_a + shape_b
        else left3.bmm(right3).reshape(())
    )
    return out, batch + only_a + only_b


def _without(t: Tensor, labels: list[str], single: list[str]) -> tuple[Tensor, list[str]]:
    """The tensor without these dimensions of size one."""
    if not single:
        return t, labels
    rest = [x for x in labels if x not in single]
    return t.reshape([t.shape[labels.index(x)] for x in rest]), rest


def _product(sizes: Any) -> int:
    n = 1
    for s in sizes:
        n *= s
    return n


def _sum_alone(t: Tensor, labels: list[str], others: list[str], keep: set[str]) -> tuple[Tensor, list[str]]:
    """Labels that nobody else needs are summed away first."""
    gone = [i for i, x in enumerate(labels) if x not in others and x not in keep]
    if not gone:
        return t, labels
    return t.sum(gone, dtype=t.dtype), [x for i, x in enumerate(labels) if i not in gone]
