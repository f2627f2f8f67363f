"""`nested.infer` against `torch.tensor`: shapes, dtypes, values bit for bit, and errors."""

from __future__ import annotations

import array
import collections
import decimal
import fractions
import importlib.util
import math
import types
import warnings
from typing import Any

import numpy as np
import pytest
from answers import judge

from flambeau.core import dtype as dt
from flambeau.core.bfloat16 import bits_to_float32, float32_to_bits
from flambeau.core.nested import infer

nan, inf = math.nan, math.inf


def parse(data: Any, target: dt.dtype | None = None, default: dt.dtype = dt.float32) -> tuple:
    shape, kind, flat = infer(data, target, default_dtype=default, tensor_to_numpy=stand_in_to_numpy)
    assert flat.ndim == 1 and flat.dtype == kind.numpy and flat.size == math.prod(shape)
    return tuple(shape), kind, flat


class StandIn:
    """What a tensor looks like to `infer`: elements and a dtype."""

    def __init__(self, elements: np.ndarray, kind: dt.dtype):
        self.elements, self.dtype = elements, kind


def stand_in_to_numpy(value: Any) -> np.ndarray | None:
    return value.elements if isinstance(value, StandIn) else None


class Index:
    def __index__(self) -> int:
        return 3


class Float:
    def __float__(self) -> float:
        return 3.5


class FloatAndIndex(Float, Index):
    pass


class Complex:
    def __complex__(self) -> complex:
        return 1 + 2j


class ArrayLike:
    def __array__(self, dtype=None, copy=None):
        return np.array([1, 2], dtype=np.int16)


class Sequence:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> float:
        if i >= 2:
            raise IndexError(i)
        return i + 1.5


class BadSequence(Sequence):
    def __getitem__(self, i: int) -> float:
        raise KeyError(i)


class MyFloat(float):
    pass


class MyInt(int):
    pass


class MyList(list):
    pass


class MyDict(dict):
    pass


class BadIndex:
    def __index__(self) -> int:
        raise KeyError("x")


class Exchange:
    def __dlpack__(self, **kwargs: Any) -> Any:
        return np.array([1, 2]).__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class ExchangeSequence(Exchange, Sequence):
    pass


def deep(levels: int, value: Any = 1) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def circular() -> list:
    found: list = []
    found.append(found)
    return found


# Torch-free: the rules in miniature -----------------------------------------------------------------------------------

GOLDEN = [
    (1.5, None, (), "float32", [1.5]),
    (7, None, (), "int64", [7]),
    (True, None, (), "bool", [True]),
    (2j, None, (), "complex64", [2j]),
    ([], None, (0,), "float32", []),
    ([[], []], None, (2, 0), "float32", []),
    ([[1, 2], (3, 4)], None, (2, 2), "int64", [1, 2, 3, 4]),
    ([True, 2, 3.5], None, (3,), "float32", [1.0, 2.0, 3.5]),
    (range(3), None, (3,), "int64", [0, 1, 2]),
    ([np.float16(1), 2], None, (2,), "float16", [1.0, 2.0]),
    ([np.zeros(2, np.int8), np.ones(2, np.int8)], None, (2, 2), "int8", [0, 0, 1, 1]),
    ([1, -1, 255], "uint8", (3,), "uint8", [1, 255, 255]),
    ([1.9, -1.9], "int32", (2,), "int32", [1, -1]),
    ([0, 0.5, nan], "bool", (3,), "bool", [False, True, True]),
    ([2**64 - 1], "uint64", (1,), "uint64", [2**64 - 1]),
    ([1.0, 70000.0], "bfloat16", (2,), "bfloat16", [0x3F80, 0x4789]),
    ([1e300, -1e300], "float32", (2,), "float32", [inf, -inf]),
    (np.array([300, -1]), "uint8", (2,), "uint8", [44, 255]),
]


@pytest.mark.parametrize("data, target, shape, kind, values", GOLDEN, ids=lambda value: str(value)[:30])
def test_golden_values(data, target, shape, kind, values):
    found_shape, found_kind, flat = parse(data, target and dt.BY_NAME[target])
    assert (found_shape, found_kind.name) == (shape, kind)
    np.testing.assert_array_equal(flat, np.array(values, found_kind.numpy))


GOLDEN_ERRORS = [
    ("a", None, TypeError, "new(): invalid data type 'str'"),
    ([1, "a"], None, TypeError, "new(): invalid data type 'str'"),
    (["a"], None, ValueError, "too many dimensions 'str'"),
    ([[1, 2], [3, 4, 5]], None, ValueError, "expected sequence of length 2 at dim 1 (got 3)"),
    ([[1], 2], None, TypeError, "not a sequence"),
    ([1, [2]], None, TypeError, "'list' object cannot be interpreted as an integer"),
    ([1.0, [2]], None, TypeError, "must be real number, not list"),
    (None, None, RuntimeError, "Could not infer dtype of NoneType"),
    ([2**63], None, ValueError, "Overflow when unpacking long long"),
    ([128], "int8", RuntimeError, "value cannot be converted to type int8 without overflow"),
    ([nan], "int64", RuntimeError, "value cannot be converted to type int64 without overflow"),
    ([-1], "uint64", OverflowError, "can't convert negative int to unsigned"),
    (deep(129), None, ValueError, "too many dimensions 'list'"),
    (np.arange(3)[::-1], None, ValueError, "negative"),
    (np.array(["a"]), None, TypeError, "can't convert np.ndarray of type numpy.str_"),
]


@pytest.mark.parametrize("data, target, error, message", GOLDEN_ERRORS, ids=lambda value: str(value)[:30])
def test_golden_errors(data, target, error, message):
    with pytest.raises(error) as caught:
        parse(data, target and dt.BY_NAME[target])
    assert message in str(caught.value)


def test_deliberate_differences():
    # 2.0**63 does not fit into int64: PyTorch stores -2**63 without a word.
    with pytest.raises(RuntimeError, match="without overflow"):
        parse([2.0**63], dt.int64)
    with pytest.raises(RuntimeError, match="without overflow"):
        parse([2.0**63, 1], dt.int64)
    # PyTorch cannot read NumPy's own uint64 numbers.
    assert parse([np.uint64(2**63)])[2].tolist() == [2**63]
    assert parse([np.array([1, 2])], dt.uint64)[1] is dt.uint64


def test_result_never_shares_memory_with_the_data():
    source = np.arange(4)
    for data in (source, [source], [[source]]):
        assert not np.shares_memory(parse(data)[2], source)


def test_overflow_to_infinity_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for target in (dt.float32, dt.float16, dt.bfloat16, dt.complex64):
            assert parse([1e300], target)[2].size == 1
            parse([1e300] * 40, target)
        parse(np.array([1e300, nan]), dt.float16)
        parse(np.array([1e300, nan]), dt.uint8)


def test_bfloat16_rounds_to_nearest_even_and_keeps_nan():
    values = np.array([1.0, 1.00390625, 1.01171875, -0.0, inf, -inf, 3.4e38, nan], np.float32)
    bits = float32_to_bits(values)
    assert bits.tolist() == [0x3F80, 0x3F80, 0x3F82, 0x8000, 0x7F80, 0xFF80, 0x7F80, 0x7FC0]
    spoiled = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(bits_to_float32(float32_to_bits(spoiled))).all()
    everything = np.arange(65536, dtype=np.uint16)
    again = float32_to_bits(bits_to_float32(everything))
    numbers = ~np.isnan(bits_to_float32(everything))
    np.testing.assert_array_equal(again[numbers], everything[numbers])
    assert (again[~numbers] == 0x7FC0).all()


def test_bfloat16_takes_any_strides():
    values = np.arange(12, dtype=np.float32).reshape(3, 4).T[::2]
    assert float32_to_bits(values).shape == values.shape
    np.testing.assert_array_equal(bits_to_float32(float32_to_bits(values)[:, ::-1]), values[:, ::-1])


# Against PyTorch ------------------------------------------------------------------------------------------------------

DTYPES = [d.name for d in dt.ALL_DTYPES]

# Expressions, because each library needs its own tensors (T) in them.
UNTYPED = """
'a' | b'abc' | bytearray(b'abc') | memoryview(b'abc') | array.array('i', [1, 2]) | array.array('d', [1, 2]) | range(3)
[range(3), range(3)] | {1, 2} | {0: 1} | None | [None] | [1, None] | [None, 1.] | ['a'] | [1, 'a'] | ['ab', 'cd']
[[1, 2], [3]] | [[1, 2], [3, 4, 5]] | [[1], 2] | [1, [2]] | [1., [2]] | [[1., 2], 3] | [True, [2]] | [1j, [2]]
[[], [1]] | [[1], []] | [[], []] | [] | () | [[[]]] | [1, 2.5] | [True, 1] | [True, 1.5] | [1, 2j] | [1.5, 2j] | 2**63
-2**63 | -2**63 - 1 | [2**63] | [2**64] | [1.0, 2**63] | [1.0, 2**1100] | [2**1100, 1.] | [1j, 2**1100] | [2**200, 1j]
[True, 2**63] | np.float32(1) | np.float64(1) | [np.float64(1)] | [np.float64(1), 1] | [np.float16(1), 1.]
[np.float16(1), 1] | [np.int16(1), 1] | [np.int16(1), np.int8(3)] | [np.uint8(1), np.int8(3)]
[np.uint16(1), np.int8(3)] | [np.uint16(1), np.uint16(3)] | [np.uint16(1), np.float32(3)] | [np.bool_(True)]
[np.bool_(True), 2] | np.bool_(True) | np.complex64(1) | [np.complex64(1)] | [np.complex128(1)]
[np.complex64(1), 1.5] | [np.complex64(1), np.float64(1.5)] | np.array([1, 2], dtype=np.uint16)
np.array([1, 2], dtype='>i4') | np.array(['a']) | np.array([1, None]) | np.array([1, 2])[::-1] | np.array(3)
[np.array(3), np.array(4.)] | np.zeros((0, 3)) | [np.array([1, 2]), np.array([3, 4])]
[np.array([1, 2]), np.array([3., 4])] | [np.array([1, 2]), [3, 4]] | [[3, 4], np.array([1, 2])]
[np.array([1, 2]), np.array([3, 4, 5])] | [np.array([1, 2]), 3] | [3, np.array([1, 2])] | [3, np.array(4)]
[3, np.array([4])] | [3., np.array([4])] | np.longdouble(3) | np.array([1], dtype=np.longdouble)
np.datetime64('2020') | [np.datetime64('2020')] | np.str_('a') | [np.str_('a')] | decimal.Decimal(1)
[decimal.Decimal(1)] | fractions.Fraction(1, 2) | Index() | [Index()] | [Float()] | ArrayLike() | [ArrayLike()]
Sequence() | [Sequence(), Sequence()] | BadSequence() | MyFloat(1.5) | MyInt(4) | [MyFloat(1.5)] | [MyInt(4)]
[MyFloat(1.5), 2] | deep(64) | deep(128) | deep(129) | deep(2, 'a') | circular() | collections.deque([1, 2])
collections.OrderedDict(a=1) | iter([1]) | object() | [object()] | [''] | [b''] | [b'ab'] | [bytearray(b'ab')]
[1, b'ab'] | MyDict() | [MyDict()] | [{}] | [1, {}] | types.MappingProxyType({0: 1}) | MyList([1, 2])
[MyList([1, 2])] | [Complex()] | Exchange() | [Exchange()] | ExchangeSequence() | [[1, 2], 'ab'] | [[], [True]]
[[], [1j]] | [[], ['a']] | [[], [None]] | [[], 5] | [[1], [], [2]] | [[[1, 2], [3, 4]], [[5, 6], [7]]]
[[[1, 2], [3, 4]], [[5, 6]]] | [[[1, 2], [3, 4]], [5, 6]] | [[1, 2], [[1], [2]]] | [[1., 2], [[1], [2]]]
[(1, 2), [3, 4]] | [[1, 2], range(2)] | range(0) | [np.void(b'a')] | np.void(b'a') | np.array([(1, 2)], dtype='i4,i4')
np.array([1], dtype='<M8[s]') | np.arange(6).reshape(2, 3).T | np.ma.array([1, 2], mask=[0, 1]) | np.matrix([[1, 2]])
[np.matrix([[1, 2]])] | [np.array([1, 2], dtype='>i4')] | [np.array([1, 2], dtype=object)] | [np.array([1, 2])[::-1]]
[[np.array([1, 2]), [3, 4]], [[5, 6], [7, 8]]] | [np.zeros((0, 3))] | [np.zeros((2, 0))]
[np.uint32(1), np.complex64(1)] | [1, np.uint32(1)] | [np.uint16(1), True] | [T(1), T(2)] | [T(1.5), T(2)]
[T(1.5, 'float64'), T(2)] | [T(1.5, 'float16'), 1.0] | [T(1.5, 'bfloat16')] | [T(1.5, 'float16'), T(1.5, 'bfloat16')]
[T([1]), T([2])] | [T([1, 2]), T([2, 3])] | [[1, 2], T([2, 3])] | [T([2, 3]), [1, 2]] | [1, T(3)] | [1, T([3])]
[1, T([3, 4])] | [1., T([3])] | [T([[1]]), T([[2]])] | [T(2+1j), 1] | [T(True), T(False)] | [[1., 2.], T([2, 3])]
[[1., 2.], T([2, 3, 4])] | [[1., 2.], T(2)] | [[1., 2.], T([[1], [2]])] | [[T(1)], [T(2)]]
[[T(1), T([2])], [T(2), 3]] | [[[1, 2]], T([[3, 4]])] | [[[1, 2]], [T([3, 4])]] | [T(1, 'uint8'), np.int8(2)]
"""

TYPED = """
[True] | [[True, False], [1, 2]] | [1, 2] | [1.5] | [-1.5] | [-0.5] | [-0.0] | [0.1] | [255.5] | [255.0] | [127.5]
[1e20] | [nan] | [inf] | [-inf] | [1e300] | [70000] | [70000.] | [2**31] | [2.**31] | [2.**31 - 0.5] | [-2.**31 - 0.5]
[2.**63 - 1024] | [-2.**63] | [2.**63 + 4096] | [1+0j] | [0j] | [1+2j] | 1+2j | [2**53 + 1, 1.5] | [1.5, 2, True]
[2**63, 1.5] | [16777217.0000001] | [2**24 + 1, 2**60 + 2**36 + 1] | [1.0009766 + 1e-12] | ['a'] | 'a' | ['']
[b'ab'] | b'ab' | [None] | None | [object()] | [decimal.Decimal(1)] | [Index()] | [Float()] | Float()
[FloatAndIndex()] | [Complex()] | [BadIndex()] | ArrayLike() | [[1, 2], 3] | [1, [2]] | [[1, 2], 'ab'] | [[], [1]]
[[], 5] | [[], ['a']] | [np.float32(1.7)] | [np.float64(1.7)] | [np.float16(1.7)] | [np.bool_(1)] | np.bool_(1)
np.float32(1.5) | np.float64(1.5) | [np.complex64(1)] | [np.complex128(1)] | [np.int64(2**62)] | [np.int32(2), 3]
np.int64(300) | np.array(300) | [np.int64(-1)] | [np.uint8(200)] | [np.longdouble(3)] | [np.array([1.5, 2])]
[np.array([1.5, 2], np.float32)] | [np.array([1, 300])] | [np.array([1, -3])] | [np.array([True, False])]
[np.array([1, 2], dtype=object)] | [np.array(['a', 'b'])] | [True, np.array(2)] | np.complex64(1+1j) | np.array(1+1j)
np.array([2**40, 300, -1]) | np.array([1.5, -1.5, 0.0]) | np.array([0., 0.5, nan]) > 0 | np.array([0j, 1j, 2.5])
Exchange() | [T(1.5)] | [T(2)] | [T(True)] | [T(2+1j)] | [T([2+1j])] | [T([2+1j, 1])] | [T(2+0j), 1] | [T([1, 2])]
[T(300)] | [T([])] | [[1, 2], T([2, 3])] | [T(1.5, 'bfloat16')] | [1., T([3.5])] | [[1., 2.], T([2.5, 3.5])]
"""


# What the expressions may name; the classes are the ones above.
NAMES = {**globals(), **{module.__name__: module for module in (array, collections, decimal, fractions, types)}}


def expressions(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


# Deliberate differences, tested above: PyTorch's uint64 takes Python ints only.
def differs_on_purpose(source: str, target: str | None) -> bool:
    return target == "uint64" and ("np." in source or "T(" in source)


def outcome(action: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return action()
        except Exception as problem:
            return problem


def torch_parts(torch: Any, tensor: Any) -> tuple:
    kind = dt.BY_NAME[str(tensor.dtype).removeprefix("torch.")]
    tensor = tensor.detach().reshape(-1)
    elements = tensor.view(torch.int16).numpy().view(np.uint16) if kind is dt.bfloat16 else tensor.numpy()
    return kind, elements


def compare(torch: Any, source: str, target: str | None) -> None:
    def make_ours(value: Any, name: str | None = None) -> StandIn:
        made = torch.tensor(value, dtype=name and getattr(torch, name))
        kind, elements = torch_parts(torch, made)
        return StandIn(elements.reshape(tuple(made.shape)), kind)

    def make_theirs(value: Any, name: str | None = None) -> Any:
        return torch.tensor(value, dtype=name and getattr(torch, name))

    def torchs() -> Any:
        return torch.tensor(eval(source, {**NAMES, "T": make_theirs}), dtype=target and getattr(torch, target))

    ours = outcome(lambda: parse(eval(source, {**NAMES, "T": make_ours}), target and dt.BY_NAME[target]))
    theirs = outcome(torchs)
    if isinstance(theirs, Exception):
        assert type(ours) is type(theirs), f"{source} as {target}: {ours!r} instead of {theirs!r}"
        if "Promotion for" not in str(theirs):  # worded by the promotion module
            given, expected = (" ".join(str(problem).split()) for problem in (ours, theirs))
            assert given.startswith(expected), f"{source} as {target}"
        return
    assert not isinstance(ours, Exception), f"{source} as {target}: {ours!r}"
    kind, elements = torch_parts(torch, theirs)
    assert ours[:2] == (tuple(theirs.shape), kind), f"{source} as {target}"
    np.testing.assert_array_equal(ours[2], elements, err_msg=f"{source} as {target}", strict=True)


@pytest.fixture(scope="module")
def torch():
    """PyTorch. What it does with NumPy's objects depends on NumPy, too: recorded answers are those of 2.4 and newer."""
    if importlib.util.find_spec("torch") is None and np.lib.NumpyVersion(np.__version__) < "2.4.0":
        pytest.skip("PyTorch is not installed, and its answers were recorded with NumPy 2.4")
    return judge("torch")


@pytest.mark.parametrize("source", expressions(UNTYPED))
def test_inference_agrees_with_torch(torch, source):
    compare(torch, source, None)


@pytest.mark.parametrize("target", DTYPES)
def test_conversion_agrees_with_torch(torch, target):
    for source in expressions(TYPED):
        if not differs_on_purpose(source, target):
            compare(torch, source, target)


@pytest.mark.parametrize("target", DTYPES)
def test_integer_limits_agree_with_torch(torch, target):
    edges = {2**n + d for n in (7, 8, 15, 16, 31, 32, 53, 63, 64) for d in (-1, 0, 1)}
    for edge in sorted(edges | {-e for e in edges}):
        compare(torch, f"[{edge}]", target)
        compare(torch, f"[{edge}, 1] * 20", target)


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "bfloat16"])
def test_default_dtype_decides_python_floats(torch, name):
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, name))
    try:
        for data in (1.5, [], [1, 2.5], [True], [np.float32(1), 2.5], [np.float64(1), 1.0], [np.float16(1), 1.0]):
            theirs = torch.tensor(data)
            assert f"torch.{parse(data, default=dt.BY_NAME[name])[1].name}" == str(theirs.dtype)
    finally:
        torch.set_default_dtype(before)
    kind = dt.BY_NAME[name]
    if kind is dt.bfloat16:
        with pytest.raises(RuntimeError, match="invalid default scalar type for complex"):
            parse([1.0, 2j], default=kind)
    else:
        assert parse([1.0, 2j], default=kind)[1] is kind.to_complex()


@pytest.mark.parametrize("target", [None, *DTYPES])
def test_random_nests_agree_with_torch(torch, target):
    rng = np.random.default_rng(5)
    for dims in ((3,), (50,), (4, 5), (2, 3, 4), (1, 1, 30)):
        for make in (
            lambda n: rng.integers(0, 100, n).tolist(),
            lambda n: (rng.random(n) * 100).tolist(),
            lambda n: (rng.random(n) < 0.5).tolist(),
            lambda n: [value if value > 50 else int(value) for value in rng.random(n) * 100],
        ):
            nested: Any = np.array(make(math.prod(dims)), dtype=object).reshape(dims).tolist()
            compare(torch, repr(nested), target)


@pytest.mark.parametrize("target", DTYPES)
def test_array_casts_agree_with_torch(torch, target):
    # Inside the range of every type, where the conversion is defined; and wrap-around of integers.
    for kind in DTYPES:
        if kind == "bfloat16":
            continue
        values = [0, 1, 2, 100] if kind != "bool" else [True, False]
        compare(torch, f"np.array({values}, np.{kind})", target)
        if dt.BY_NAME[kind].kind == "i":
            compare(torch, f"np.array([-1, -128, 127, 5], np.{kind})", target)
        if dt.BY_NAME[kind].category > 1:
            compare(torch, f"np.array([0.5, -1.5, 99.9, -0.0], np.{kind})", target)
    compare(torch, "np.array([2**40 + 7, 70000, -70000, 300, -300])", target)


def test_bfloat16_rounding_agrees_with_torch(torch):
    bits = np.random.default_rng(0).integers(0, 2**32, 20000, dtype=np.uint64).astype(np.uint32)
    halfway = (np.arange(0x3F80, 0x4080, dtype=np.uint32) << 16) | 0x8000
    values = np.concatenate([bits, halfway]).view(np.float32)
    theirs = torch.from_numpy(values.copy()).to(torch.bfloat16)
    ours = bits_to_float32(float32_to_bits(values))
    np.testing.assert_array_equal(ours, theirs.float().numpy())
