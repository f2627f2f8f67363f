"""Matrix products by cuBLASLt: what is passed to the library, without a GPU."""

import ctypes

import pytest

from flambeau.backends.nvidia import cublaslt


@pytest.mark.parametrize("runner", [cublaslt._runner, lambda: cublaslt._through_ctypes])
def test_the_words_of_a_plan_reach_the_library(runner, monkeypatch):
    seen = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 16)

    @kind
    def library(*given):
        seen.append(given)
        return 7

    fake = type("Library", (), {"cublasLtMatmul": staticmethod(library)})
    monkeypatch.setattr(cublaslt, "_library", lambda: fake)
    words = (ctypes.c_uint64 * 13)(ctypes.cast(library, ctypes.c_void_p).value, *range(101, 112), 0)
    runner()(ctypes.addressof(words), 1, 2, 3)
    handle, descriptor, alpha, first, second, beta, result, algorithm, space, size, stream = range(101, 112)
    assert seen == [
        (handle, descriptor, alpha, 2, first, 3, second, beta, 1, result, 1, result, algorithm, space, size, stream)
    ]
    assert words[cublaslt._STATUS] == 7


@pytest.mark.parametrize(
    "shape, strides, expected",
    [
        ((3, 4), (4, 1), (True, 4)),
        ((3, 4), (8, 1), (True, 8)),
        ((3, 4), (1, 3), (False, 3)),
        ((1, 4), (9, 2), (False, 2)),
        ((3, 1), (1, 7), (False, 3)),
        ((3, 1), (5, 7), (True, 5)),
        ((3, 4), (2, 1), None),
        ((3, 4), (8, 2), None),
        ((3, 4), (0, 1), None),
        ((5, 3, 4), (0, 4, 1), (True, 4)),
    ],
)
def test_which_matrices_are_taken_as_they_lie(shape, strides, expected):
    found = cublaslt.matrix_order(shape, strides)
    if expected == (False, 3):
        assert found in ((False, 3), (True, 1))  # a column is both
    else:
        assert found == expected
