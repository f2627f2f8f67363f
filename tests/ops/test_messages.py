"""Calls that PyTorch takes or refuses: the same result, or the same exception with the same words."""

from __future__ import annotations

import warnings

import pytest
from answers import judge

import flambeau

torch = judge("torch")


def outcome(library, expression: str, exact: bool):
    names = {"t": library, "F": library.nn.functional, "c": library.tensor([True, False]), "ones": library.ones}
    names["byte"] = library.tensor([1], dtype=library.uint8)
    names["every"] = library.tensor([True, True, True])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = eval(expression, names)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            return type(error), str(error) if exact else ""
    return (result.tolist(), str(result.dtype).rpartition(".")[2]) if hasattr(result, "dtype") else result


EXACT = [
    # numbers that do not fit the result
    "t.where(c, byte, 1000)", "t.where(c, 1000, byte)", "t.where(c, byte, -1)", "t.where(c, byte, -300)",
    "t.where(c, byte, 255)", "byte.where(c, 1000)", "t.where(c, ones(2, dtype=t.int8), 200)",
    "t.where(c, ones(2, dtype=t.float16), 1e6)", "t.where(c, ones(2, dtype=t.bfloat16), 1e39)",
    "t.where(c, ones(2), 1e60)", "t.where(c, ones(2), float('inf'))", "t.where(c, ones(2, dtype=t.int32), 2**40)",
    "t.where(c, byte, 1.5)", "t.where(c, byte, True)", "t.where(c, ones(2, dtype=t.bool), 1000)", "t.where(c, 1, 2.5)",
    # kernels without extent
    "F.conv2d(ones(1, 1, 3, 3), ones(1, 1, 0, 0))", "F.conv2d(ones(1, 1, 3, 3), ones(1, 1, 0, 1))",
    "F.conv1d(ones(1, 1, 3), ones(1, 1, 0))", "F.conv3d(ones(1, 1, 3, 3, 3), ones(1, 1, 0, 1, 1))",
    "F.conv_transpose2d(ones(1, 1, 3, 3), ones(1, 1, 0, 0))", "F.conv_transpose1d(ones(1, 1, 3), ones(1, 1, 0))",
    "F.conv2d(ones(1, 3, 3), ones(1, 1, 0, 0))", "F.conv2d(ones(1, 1, 3, 3), ones(1, 1, 0, 0), padding='same')",
    "t.nn.Conv2d(1, 1, 0)(ones(1, 1, 3, 3))",
    # segments
    "t.segment_reduce(ones(4), 'sum', lengths=t.tensor([2, -1, 3]))",
    "t.segment_reduce(ones(4), 'sum', offsets=t.tensor([0, 2, 3]))",
    "t.segment_reduce(ones(4), 'sum', offsets=t.tensor([0, 2, 2, 4]))",
    # draws from nothing
    "t.multinomial(t.zeros(0), 1)", "t.multinomial(t.zeros(0), 0)", "t.multinomial(t.zeros(2, 0), 1)",
    "t.multinomial(t.zeros(0, 3), 1)", "t.multinomial(ones(0, 3), 2)", "t.multinomial(ones(3), -1, True)",
    # something else than a tensor
    "t.outer(1, ones(2))", "t.mm([1.0], ones(2, 2))", "t.mm(ones(2, 2), 'a')", "t.linalg.qr('a')", "t.fft.fft([1.0])", "t.aminmax(3)",
    "t.det((1, 2))", "t.cdist(ones(2, 2), 2)", "t.bmm(3.0, ones(2, 2))", "t.diff(ones(2, 2), prepend=True)", "t.topk([1], 1)",
    "t.chunk([1, 2], 2)", "t.logsumexp(3, 0)", "t.bernoulli(0.5)", "t.matmul(ones(2, 2), 2)", "t.mm(ones(2, 2), None)", "t.cov('a')",
    # more than one ellipsis
    "t.arange(3)[..., ...]", "t.arange(12).reshape(3, 4)[..., 0, ...]", "t.arange(12).reshape(3, 4)[1, ..., ...]",
    "t.arange(12).reshape(3, 4)[..., t.tensor([0]), ...]", "t.arange(12).reshape(3, 4)[2, ..., ..., 1]",
    "[x := t.zeros(3, 4), x.__setitem__((..., 0, ...), 5), x.tolist()][2]",
    # powers
    "t.vander(t.tensor([1, 2, 3]))", "t.vander(t.tensor([1., 2., 3.]), 5, increasing=True)", "t.vander(ones(3), -1)",
    "t.vander(t.tensor([True, False]), 3)", "t.vander(byte, 4)", "t.vander(ones(2), 0)", "t.vander(t.tensor([1j, 2]), 3)",
    "t.vander(ones(0), 3)",
    # dtypes that do not go together
    "ones(3).masked_scatter_(every, ones(3, dtype=t.int64))", "ones(3).masked_scatter(every, ones(3, dtype=t.int64))",
    "ones(3).masked_scatter_(ones(3, dtype=t.int64), ones(3))", "ones(3).masked_scatter_(ones(3), ones(3, dtype=t.int8))",
    "ones(3).masked_fill_(ones(3, dtype=t.int64), 1)",
]  # fmt: skip
SAME_KIND = [
    "t.segment_reduce(ones(4), 'sum', offsets=t.tensor([0, -6]))",
    "t.segment_reduce(ones(4), 'sum', offsets=t.tensor([0, -6]), unsafe=True)",
    "t.segment_reduce(ones(4), 'sum', offsets=t.tensor([0, 3, 2, 4]))",
    "t.segment_reduce(ones(2, 3), 'sum', offsets=t.tensor([[0, 1, 3], [0, 3, 1]]), axis=1)",
    "t.multinomial(t.zeros(0), 1, replacement=True)",
    "t.multinomial(t.zeros(2, 0), 2, replacement=True)",
    "ones(3, 4, 5)[..., 0, ..., 1]",
    "ones(3, 4, 5)[..., ..., 0]",
    "ones(3, 4)[..., ..., None]",
    "t.vander(ones(3), 2**62)",
    "t.linalg.vander(ones(3), N=2**62)",
]


@pytest.mark.parametrize("expression", EXACT)
def test_the_same_result_or_message(expression):
    assert outcome(flambeau, expression, True) == outcome(torch, expression, True)


@pytest.mark.parametrize("expression", SAME_KIND)
def test_the_same_exception(expression):
    assert outcome(flambeau, expression, False) == outcome(torch, expression, False)


def test_a_matrix_of_powers_too_large_for_the_memory_is_refused_at_once():
    with pytest.raises(RuntimeError, match="memory"):
        flambeau.vander(flambeau.ones(3), 2**42)


@pytest.mark.parametrize("call", ["a + b", "F.l1_loss(a, b)", "t.where(a > 0, b, a)", "a.expand(4, 5)"])
def test_sizes_that_do_not_fit_are_told_of_the_last_dimension(call):
    a, b = flambeau.ones(2, 3), flambeau.ones(4, 5)
    with pytest.raises(RuntimeError, match=r"\(\d\) must match .* \(\d\) at non-singleton dimension 1"):
        eval(call, {"t": flambeau, "F": flambeau.nn.functional, "a": a, "b": b})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("t.mm(a)", r"mm\(\) missing 1 required positional argument: 'mat2'"),
        ("t.mm(a, a, a)", r"mm\(\) takes 2 positional arguments but 3 were given"),
        ("t.mm(a, a, other=a)", r"mm\(\) got an unexpected keyword argument 'other'"),
        ("t.conv2d(a)", r"conv2d\(\) missing 1 required positional argument: 'weight'"),
        ("a.gather(0)", r"gather\(\) missing 1 required positional argument: 'index'"),
        ("t.linalg.lstsq(a)", r"linalg_lstsq\(\) missing 1 required positional argument: 'B'"),
        ("a.apply_(lambda x, y: x)", r"<lambda>\(\) missing 1 required positional argument: 'y'"),
    ],
)
def test_arguments_that_are_missing_or_too_many_are_told_of_the_function_that_was_called(call, message):
    with pytest.raises(TypeError, match=message):
        eval(call, {"t": flambeau, "a": flambeau.ones(2, 3)})
