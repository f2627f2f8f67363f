"""Matrix products by cuBLASLt: what is passed to the library, without a GPU."""

import ctypes

import pytest

import flambeau
from flambeau.backends.nvidia import cublaslt


@pytest.mark.parametrize("runner", [cublaslt._runner, lambda: cublaslt._through_ctypes])
def test_the_words_of_a_plan_reach_the_library(runner, monkeypatch):
    seen = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 16)

    @kind
    def library(*given):
        seen.append(given)
        return 7

    biases = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
    def setter(descriptor, attribute, value, size):
        biases.append((descriptor, attribute, ctypes.c_uint64.from_address(value).value, size))
        return 0

    functions = {"cublasLtMatmul": library, "cublasLtMatmulDescSetAttribute": setter}
    fake = type("Library", (), {name: staticmethod(f) for name, f in functions.items()})
    monkeypatch.setattr(cublaslt, "_library", lambda: fake)
    called, setting = (ctypes.cast(f, ctypes.c_void_p).value for f in (library, setter))
    words = (ctypes.c_uint64 * 15)(called, *range(101, 112), 0, setting)
    runner()(ctypes.addressof(words), 1, 2, 3, 0)
    for bias in (40, 40, 50, 0, 50):  # the library is told only where it has moved
        runner()(ctypes.addressof(words), 1, 2, 3, bias)
    assert biases == [(102, 8, 40, 8), (102, 8, 50, 8)] and len(seen) == 6
    del seen[1:]
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


class _Describing:
    """The part of the library that describes products, and writes down what it is told."""

    def __init__(self, knows=True):
        self.knows, self.attributes, self.calls = knows, [], []
        self.cublasLtMatmul = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 16)(self._multiply)
        self.cublasLtGetStatusString = lambda status: b"not supported"
        setting = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
        self.cublasLtMatmulDescSetAttribute = setting(self._set_attribute)

    def __getattr__(self, name):
        return lambda *given: 0

    def _multiply(self, *given):
        self.calls.append(given)
        return 0

    def _set_attribute(self, descriptor, attribute, value, size):
        self.attributes.append((attribute, {4: ctypes.c_int32, 8: ctypes.c_uint64}[size].from_address(value).value))
        return 0

    def cublasLtMatmulAlgoGetHeuristic(self, *given):
        given[-1]._obj.value = int(self.knows)
        return 0


@pytest.mark.parametrize("by_rows, epilogue", [(True, 512), (False, 256)])
def test_sums_of_rows_come_with_the_product(monkeypatch, by_rows, epilogue):
    """The library thinks in columns: where the result lies by rows, its second factor is our first."""
    library = _Describing()
    _install(monkeypatch, library)
    out = flambeau.empty(24, 16) if by_rows else flambeau.empty(16, 24).t()
    g, x, sums = flambeau.empty(40, 24), flambeau.empty(40, 16), flambeau.empty(24)
    for _ in range(2):  # the second time the plan is known
        assert cublaslt.sum_columns(out, g.t(), x, sums)
    assert (7, epilogue) in library.attributes and library.attributes.count((8, sums.data_ptr())) == 1
    first, second = (x, g) if by_rows else (g, x)
    assert [(c[3], c[5], c[8]) for c in library.calls] == [(first.data_ptr(), second.data_ptr(), out.data_ptr())] * 2


def test_sums_of_rows_where_the_library_knows_no_way(monkeypatch):
    library = _Describing(knows=False)
    _install(monkeypatch, library)
    g, x = flambeau.empty(40, 24), flambeau.empty(40, 16)
    for _ in range(2):
        assert not cublaslt.sum_columns(flambeau.empty(24, 16), g.t(), x, flambeau.empty(24))
    odd = flambeau.empty(40, 23, dtype=flambeau.bfloat16)
    narrow = flambeau.empty(40, 16, dtype=flambeau.bfloat16)
    assert not cublaslt.sum_columns(narrow.new_empty(23, 16), odd.t(), narrow, narrow.new_empty(23))
    assert not library.calls


def _install(monkeypatch, library):
    monkeypatch.setattr(cublaslt, "_library", lambda: library)
    monkeypatch.setattr(cublaslt, "_handle", lambda where: ctypes.c_void_p(1))
    monkeypatch.setattr(cublaslt, "_local", cublaslt._Local())
    monkeypatch.setattr(cublaslt.nvidia, "activate", lambda where: None)
    monkeypatch.setattr(cublaslt.nvidia, "current_stream", lambda where: 0)
    monkeypatch.setattr(cublaslt._Plan, "_enter", lambda plan, stream: None)
    monkeypatch.setattr(cublaslt, "_own_plan", lambda *given: None)
