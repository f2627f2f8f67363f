"""Calls that PyTorch takes or refuses: the same result, or the same exception with the same words."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from answers import judge

import flambeau

torch = judge("torch")


def outcome(library, expression: str, exact: bool):
    names = {
        "t": library,
        "np": np,
        "F": library.nn.functional,
        "c": library.tensor([True, False]),
        "ones": library.ones,
    }
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
    # arguments of a wrong type, and numbers of other kinds that are taken
    "t.vander(ones(3), increasing='s')", "t.vander(ones(3), increasing=1)", "t.combinations(ones(3), 2, 1)",
    "t.combinations(ones(3), True)", "t.cov(ones(2, 2), correction=1.5)", "t.eye(2.0)", "t.zeros(2, requires_grad='s')",
    "t.allclose(ones(2), ones(2), equal_nan=1)", "t.cholesky_inverse(t.eye(2), upper=1)", "t.cholesky_solve(ones(2, 1), t.eye(2), 1)",
    "ones(2).contiguous(memory_format=1)", "ones(2).clone(memory_format='s')", "ones(2, 2).addmm_(3, ones(2, 2))",
    "ones(2, 2).addmm_(ones(2, 2), ones(2, 2), beta='s')", "ones(2, 2).cumsum_(None)", "t.linalg.qr(ones(2, 2), 3)",
    "t.linalg.qr(ones(2, 2), mode=1.5)", "t.fft.fft(ones(4), 1.0)", "t.fft.fft(ones(4), norm=1)", "F.avg_pool2d(ones(1, 2, 2), (1.0,))",
    "F.max_pool2d(ones(1, 2, 2), 's')", "ones(2).isclose(ones(2), np.float32(0.1))",
    "ones(2).isclose(ones(2), t.tensor(0.5), t.tensor(1))", "ones(2, 2).tril(np.int64(1))", "ones(2, 2).tril(t.tensor([1]))",
    "ones(4).polygamma(np.int64(1))", "ones(4).quantile(np.bool_(True))", "ones(4).unfold(0, t.tensor(2), np.int64(1))",
    "t.topk(ones(3), 2, largest=1)", "t.kthvalue(ones(3), 1, keepdim=1)", "t.logsumexp(ones(2, 2), 0, 1)",
    "t.multinomial(ones(3), 1, 1)", "t.narrow(ones(2), 0, 2**70, 1)", "t.resolve_conj(3)", "t.sort({})", "t.positive(np.int64(1))",
    "ones(3, 3).index_add(1, t.tensor([9]), ones(3, 1))",
    "t.frombuffer(bytearray(4), dtype=t.int8, count=1.5)", "t.asarray(ones(2), copy=0)", "t.asarray(ones(2), copy='s')",
    "t.asarray(ones(2), requires_grad=1)", "F.cosine_similarity([1.], ones(2))", "F.pairwise_distance(ones(2), 's')",
    "t.pdist([1.])", "F.bilinear(ones(2, 2), 2, ones(1, 2, 2))", "F.nll_loss([1.], t.tensor([0]))",
    "F.unfold([1.], 2)", "F.fold(3, 2, 2)", "F.multi_margin_loss(3, t.tensor([0]))", "F.multilabel_margin_loss([1.], t.tensor([0]))",
    "F.hinge_embedding_loss([1.], t.tensor([0]))", "F.triplet_margin_loss(1, ones(2), ones(2))", "F.grid_sample(1, ones(1, 2, 2, 2))",
    "F.linear(ones(2), 3)", "t.cat(3)", "t.stack([ones(1), None])",
]  # fmt: skip
SAME_KIND = [
    # arguments of a wrong type, of which PyTorch says more, or counts the positions otherwise for methods
    "t.eye(2, requires_grad=1)", "ones(2, 2).diag_embed(True)", "ones(4).chunk(True)", "ones(4).chunk(2, True)",
    "ones(2, 2).sum(1, 1)", "ones(2, 2).mean(1, keepdim=0)", "t.addmm(ones(2, 2), ones(2, 2), ones(2, 2), alpha=np.array(1))",
    "F.dropout(ones(2), 0.5, 's')", "F.max_pool2d(ones(1, 2, 2), 2, ceil_mode=1)", "F.embedding(t.tensor([0]), ones(2, 2), sparse=1)",
    "F.layer_norm(ones(2), (2,), eps='s')", "ones(2).scatter(0, t.tensor([0]), 's')", "ones(2).index_fill(0, t.tensor([0]), None)",
    "ones(2).isclose(ones(2), np.array(0.1))", "ones(2, 2).tril(1.0)", "ones(2, 2).roll(True, 0)", "ones(2, 2).roll(1, (0.0,))",
    "ones(2, 2).roll(1, 's')", "ones(2, 2).flip(0.0)", "t.isin(ones(2), ones(2), invert=1)", "t.stft(ones(8), 4, return_complex=1)",
    "t.searchsorted(ones(3), ones(2), right=1)", "t.bernoulli(ones(3), generator=1)", "ones(2).expand_as(3)",
    "t.bincount(t.tensor([2**63 - 1]))", "F.conv2d(ones(1, 2, 2), 3)", "F.conv2d(ones(1, 2, 2), ones(1, 1, 1, 1), stride=1.5)",
    "t.cat([1])",
    # values
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
    "ones(3).index_add(0, t.tensor([9]), ones(1))", "t.bincount(t.tensor([2**62]))", "t.fft.fftfreq(2**62)",
    "t.repeat_interleave(t.tensor([2**62]))", "F.pad(ones(1, 1, 3), (2**62, 0), mode='replicate')", "ones(1).expand(2**62, 4)",
    "ones(3).set_(ones(3).untyped_storage(), 0, (3,), (-1,))", "ones(3).set_(ones(3).untyped_storage(), 0, (-1,), (1,))",
    "t.histogram(ones(3), ones(1))", "t.histogram(ones(3), ones(0))",
    "t.tril_indices(2**62, 3)", "t.bincount(t.tensor([1]), minlength=2**62)",
]  # fmt: skip


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
