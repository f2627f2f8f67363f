"""Arguments that PyTorch takes or refuses, and so does Flambeau: same result or same exception."""

from __future__ import annotations

import numpy as np
import pytest
from answers import judge

import flambeau

torch = judge("torch")


def outcome(function, library):
    try:
        result = function(library)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        return type(error)
    return result.tolist() if hasattr(result, "tolist") else result


def with_grad(t):
    return t.zeros(3, requires_grad=True)


CASES = [
    lambda t: tuple(t.ones((np.array(3), np.int64(4))).shape),
    lambda t: tuple(t.ones(np.array(3)).shape),
    lambda t: tuple(t.ones(3).expand(np.array(2), 3).shape),
    lambda t: t.ones((np.array(3.0),)),
    lambda t: t.ones((np.array([3, 4]),)),
    lambda t: t.device("cuda:"),
    lambda t: t.device("cpu", -1),
    lambda t: t.device(-1),
    lambda t: t.device("cuda", "1"),
    lambda t: t.empty(2, 1, 4, 5).to(memory_format=t.channels_last).stride(),
    lambda t: t.empty(2, 3, 1, 1, memory_format=t.channels_last).to(memory_format=t.contiguous_format).stride(),
    lambda t: t.empty(2, 3, 1, 1).contiguous(memory_format=t.channels_last).stride(),
    lambda t: t.empty(2, 2, 1, 2).dim_order(ambiguity_check=[t.contiguous_format, t.channels_last]),
    lambda t: t.empty(2, 1, 2, 2).dim_order(ambiguity_check=[t.contiguous_format]),
    lambda t: t.set_num_threads(2**65),
    lambda t: t.set_num_threads(1.5),
    lambda t: t.set_num_interop_threads(True),
    lambda t: t.arange(3).apply_(lambda k: "a"),
    lambda t: t.arange(3).apply_(lambda k: 1.7),
    lambda t: t.zeros(2).apply_(lambda k: t.tensor(2)),
    lambda t: t.zeros(2).apply_(lambda k: None),
    lambda t: t.zeros(3).map_(with_grad(t), lambda a, b: a),
    lambda t: t.zeros(3).map2_(t.zeros(3), with_grad(t), lambda a, b, c: a),
    lambda t: t.ones(4).unflatten("a", (2, 2)),
    lambda t: t.ones(4).unflatten(1.5, (2, 2)),
    lambda t: type("Own", (t.FloatTensor,), {}),
    lambda t: t.ones(3).as_subclass(int),
    lambda t: t.index_select(t.randn(0, 3), 0, t.tensor([0, 1])),
    lambda t: t.empty_like(t.eye(2).to_sparse(), memory_format=t.preserve_format),
    lambda t: t.Size([1]) + [2],
    lambda t: t.Size([1]) + 5,
    lambda t: tuple(t.Size([1]) + (2,)),
    lambda t: t.empty(2, 1, 4, 5).dim_order(ambiguity_check=True),
    lambda t: t.empty(1, 3).dim_order(ambiguity_check=[t.contiguous_format]),
    lambda t: t.empty(1, 3).dim_order(ambiguity_check=[t.channels_last]),
    lambda t: t.empty(1, 3).expand(4, 3).dim_order(),
    lambda t: t.empty(1, 3).expand(4, 3).dim_order(ambiguity_check=True),
    lambda t: t.empty(2, 3, 4, 5, memory_format=t.channels_last).dim_order(ambiguity_check=True),
    lambda t: t.empty(2).dim_order(ambiguity_check=1),
]


@pytest.mark.parametrize("case", CASES)
def test_as_in_pytorch(case):
    assert outcome(case, flambeau) == outcome(case, torch)


def complex_ones(*shape):
    return flambeau.ones(*shape, dtype=flambeau.complex64)


# Parts of operators by PyTorch's names: kernels trust what the public functions have checked, so they check it again.
PARTS = [
    lambda a: a._ctc_loss(flambeau.zeros(4, 1, 3), flambeau.tensor([[1, 2]]), [9], [2]),
    lambda a: a._ctc_loss(flambeau.zeros(4, 2, 3), flambeau.tensor([[1, 2]]), [4], [2]),
    lambda a: a._ctc_loss(flambeau.zeros(4, 1, 3), flambeau.tensor([[1, 2]]), [4], [2], 7),
    lambda a: a._ctc_loss_backward(
        flambeau.ones(1),
        flambeau.zeros(4, 1, 3),
        flambeau.tensor([[1, 2]]),
        [4],
        [2],
        flambeau.zeros(1),
        flambeau.zeros(1, 1, 1),
        0,
    ),
    lambda a: a._fft_c2r(flambeau.ones(2, 3), [1], 0, 4),
    lambda a: a._fft_c2r(complex_ones(2, 3), [1], 0, 0),
    lambda a: a._fft_c2r(complex_ones(2, 3), [1], 0, 100),
    lambda a: a._fft_c2r(complex_ones(2, 3), [], 0, 4),
    lambda a: a._fft_c2r(complex_ones(2, 3, 4), [2, -1], 0, 4),
    lambda a: a._fft_c2c(complex_ones(2, 3), [-1], 0, True),
    lambda a: a._fft_c2c(flambeau.ones(2, 3), [1], 0, True),
    lambda a: a._fft_c2c(complex_ones(2, 0), [1], 0, True),
    lambda a: a._fft_r2c(flambeau.ones(2, 3), [1, 1], 0, True),
    lambda a: a._fft_r2c(complex_ones(2, 3), [1], 0, True),
    lambda a: a.select_backward(flambeau.ones(2), [-1, 2], 0, 0),
    lambda a: a.diagonal_backward(flambeau.ones(2), [-1, 2, 2], 0, 1, 2),
    lambda a: a.slice_backward(flambeau.ones(2), [-2], 0, 0, 2, 1),
    lambda a: a._cdist_backward(
        flambeau.ones(4, 4), flambeau.ones(2, 3, 4), flambeau.ones(3, 3), 1.0, flambeau.ones(4, 4)
    ),
    lambda a: a._cdist_backward(
        flambeau.ones(2, 3), flambeau.ones(2, 4), flambeau.ones(3, 4).double(), 2.0, flambeau.ones(2, 3)
    ),
]


@pytest.mark.parametrize("part", range(len(PARTS)))
def test_parts_of_operators_refuse_what_does_not_fit(part):
    with pytest.raises(
        RuntimeError, match="Expected|Only supports|Invalid number|negative dimension|must be|do not fit"
    ):
        PARTS[part](flambeau.ops.aten)
