"""The operators over lists of tensors give what PyTorch's give, and change what they change."""

from __future__ import annotations

import pytest
from answers import judge

import flambeau
from flambeau.ops.pointwise.foreach import FOREACH, UNARY_NAMES

torch = judge("torch")

LISTS = ([[0.5, 0.25], [0.75, 0.1, 0.9]], [[0.3, 0.6], [0.2, 0.8, 0.4]])
SECOND = ("b", "2", "[2, 3]", "T.tensor(2.0)")
LINES = [f"T._foreach_{name}(a, {second})" for name in "add sub mul div".split() for second in SECOND]  # noqa: SIM905
LINES += [f"T._foreach_{name}(a, {second})" for name in ("pow", "maximum", "minimum") for second in SECOND[:3]]
LINES += [
    f"T._foreach_{name}(a, {second})" for name in ("clamp_min", "clamp_max") for second in ("b", "0.4", "[0.4, 0.5]")
]
LINES += [line.replace("(", "_(", 1) for line in LINES]
LINES += [f"{name}(a, b, b, {v})" for name in ("T._foreach_addcmul", "T._foreach_addcdiv_") for v in ("2", "[2, 3]")]
LINES += [f"T._foreach_lerp{end}(a, b, {w})" for end in ("", "_") for w in ("0.5", "[0.1, 0.2]", "b")]
LINES += """T._foreach_add(a, b, alpha=3)
T._foreach_sub_(a, b, alpha=2)
T._foreach_pow(2.0, a)
T._foreach_norm(a)
T._foreach_norm(a, 1)
T._foreach_norm(a, float("inf"), dtype=T.float64)
T._foreach_powsum(a, 3)
T._foreach_max(a)
T._foreach_clone(a)
T._foreach_zero_(a)
T._foreach_copy_(a, b)
T._foreach_mm([x.outer(x) for x in a], [x.outer(x) for x in b])
T._foreach_addcmul(a, b, b, T.tensor([1.0, 2.0]))
T._foreach_add(a, b[:1])
T._foreach_add(a, [1])
T._foreach_add([], 1)
T._foreach_add(a, T.ones(2))
T._foreach_neg(1)
T._foreach_neg([1])""".splitlines()


def outcome(library, line):
    a, b = [[library.tensor(row) for row in rows] for rows in LISTS]
    try:
        result = eval(line, {"T": library, "a": a, "b": b})
    except Exception as error:
        return type(error).__name__, str(error)
    return (
        [t.tolist() for t in result],
        result is a,
        type(result),
        [t.dtype.itemsize for t in result],
        [t.tolist() for t in a],
    )


def approximately(value):
    return pytest.approx(value, rel=1e-6) if isinstance(value, float) else value


def same(ours, theirs):
    if isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == approximately(theirs)


@pytest.mark.parametrize("line", LINES)
def test_lists(line):
    ours, theirs = outcome(flambeau, line), outcome(torch, line)
    assert same(ours, theirs), (ours, theirs)


@pytest.mark.parametrize("name", [f"_foreach_{name}{end}" for name in UNARY_NAMES for end in ("", "_")])
def test_unary(name):
    ours, theirs = outcome(flambeau, f"T.{name}(a)"), outcome(torch, f"T.{name}(a)")
    assert same(ours, theirs), (ours, theirs)


def test_all_names_are_there():
    assert set(FOREACH) == {name for name in dir(torch) if name.startswith("_foreach")}


def test_gradients_flow():
    x = flambeau.ones(2, requires_grad=True)
    flambeau._foreach_mul([x], 3.0)[0].sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
