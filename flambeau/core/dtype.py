"""Element types: one immutable object per dtype, with everything the rest of the library asks about it."""

from __future__ import annotations

from typing import Any

import numpy as np


class dtype:
    """An element type. There is exactly one object per type, so `is` compares them."""

    __slots__ = (
        "name", "itemsize", "kind", "numpy", "is_floating_point", "is_complex", "is_signed", "category", "letter",
        "legacy_name", "index", "typecode", "__weakref__",
    )  # fmt: skip

    name: str
    itemsize: int
    kind: str  # "b" bool, "u" unsigned, "i" signed, "f" floating, "c" complex, "q" quantized
    numpy: np.dtype  # how NumPy holds the bytes; bfloat16 travels as uint16 bits
    is_floating_point: bool
    is_complex: bool
    is_signed: bool
    category: int  # 0 bool, 1 integer, 2 floating, 3 complex: the order of type promotion
    letter: str  # one-character name for kernel keys
    legacy_name: str | None  # "FloatTensor"

    def __init__(
        self, name: str, itemsize: int, kind: str, numpy_name: Any, letter: str, legacy: str | None, index: int
    ):
        self.name, self.itemsize, self.kind = name, itemsize, kind
        self.numpy = np.dtype(numpy_name)
        self.is_floating_point = kind == "f"
        self.is_complex = kind == "c"
        self.is_signed = kind in "ifc"
        self.category = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3, "q": 4}[kind]
        self.letter, self.legacy_name, self.index = letter, legacy, index

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple:
        return (by_name, (self.name,))

    def __copy__(self) -> dtype:
        return self

    def __deepcopy__(self, memo: dict) -> dtype:
        return self

    @property
    def has_numpy(self) -> bool:
        """Whether NumPy has this type itself (bfloat16 and the 8-bit floats are held as raw bits)."""
        return self is not bfloat16 and self not in FLOAT8 and self.kind != "q"

    def to_real(self) -> dtype:
        return _REAL.get(self, self)

    def to_complex(self) -> dtype:
        if self.is_complex:
            return self
        if not self.is_floating_point or self in FLOAT8:
            kind = (self.legacy_name or self.name.replace("uint", "UInt").replace("float", "Float")).removesuffix(
                "Tensor"
            )
            raise RuntimeError(f"Unknown Complex ScalarType for {kind}")
        return _COMPLEX.get(self, complex64)


_TABLE = [
    # name, bytes, kind, numpy, letter, legacy tensor type
    ("bool", 1, "b", "bool", "b", "BoolTensor"),
    ("uint8", 1, "u", "uint8", "B", "ByteTensor"),
    ("int8", 1, "i", "int8", "c", "CharTensor"),
    ("int16", 2, "i", "int16", "s", "ShortTensor"),
    ("int32", 4, "i", "int32", "i", "IntTensor"),
    ("int64", 8, "i", "int64", "l", "LongTensor"),
    ("float16", 2, "f", "float16", "h", "HalfTensor"),
    ("bfloat16", 2, "f", "uint16", "g", "BFloat16Tensor"),
    ("float32", 4, "f", "float32", "f", "FloatTensor"),
    ("float64", 8, "f", "float64", "d", "DoubleTensor"),
    ("complex64", 8, "c", "complex64", "F", "ComplexFloatTensor"),
    ("complex128", 16, "c", "complex128", "D", "ComplexDoubleTensor"),
    ("uint16", 2, "u", "uint16", "S", None),
    ("uint32", 4, "u", "uint32", "I", None),
    ("uint64", 8, "u", "uint64", "L", None),
]

ALL_DTYPES: tuple[dtype, ...] = tuple(dtype(*row, index) for index, row in enumerate(_TABLE))

# Kept in memory and converted, but hardly computed with (core/float8.py). NumPy sees records of one field: no arithmetic takes
# their bits for numbers by mistake.
_FLOAT8_NAMES = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
FLOAT8_DTYPES: tuple[dtype, ...] = tuple(
    dtype(name, 1, "f", [(name, "u1")], letter, None, len(ALL_DTYPES) + i)
    for i, (name, letter) in enumerate(zip(_FLOAT8_NAMES, "56789"))
)
FLOAT8 = frozenset(FLOAT8_DTYPES)

# Whole numbers that stand for others (core/quantized.py): only the codes of a quantized tensor lie in memory, as plain integers.
_QUANTIZED = (("qint8", 1, "int8", "q"), ("quint8", 1, "uint8", "Q"), ("qint32", 4, "int32", "w"), ("quint4x2", 1, "uint8", "4"), ("quint2x4", 1, "uint8", "2"))  # fmt: skip
QUANTIZED_DTYPES: tuple[dtype, ...] = tuple(
    dtype(name, size, "q", held, letter, None, len(ALL_DTYPES) + len(FLOAT8_DTYPES) + i)
    for i, (name, size, held, letter) in enumerate(_QUANTIZED)
)
# Names of whole numbers of less than a byte, which libraries mention: no tensor has such a dtype.
NARROW_DTYPES: tuple[dtype, ...] = tuple(
    dtype(f"{sign}int{bits}", 1, "q", "uint8", "n", None, len(ALL_DTYPES) + len(FLOAT8_DTYPES) + len(_QUANTIZED) + i)
    for i, (sign, bits) in enumerate((sign, bits) for sign in ("", "u") for bits in range(1, 8))
)
BY_NAME: dict[str, dtype] = {d.name: d for d in (*ALL_DTYPES, *FLOAT8_DTYPES, *QUANTIZED_DTYPES, *NARROW_DTYPES)}


def by_name(name: str) -> dtype:
    """The dtype called `name`: how a pickled dtype is found again."""
    return BY_NAME[name]


bool_ = BY_NAME["bool"]
uint8, int8, int16, int32, int64 = (BY_NAME[n] for n in ("uint8", "int8", "int16", "int32", "int64"))
uint16, uint32, uint64 = (BY_NAME[n] for n in ("uint16", "uint32", "uint64"))
float16, bfloat16, float32, float64 = (BY_NAME[n] for n in ("float16", "bfloat16", "float32", "float64"))
complex64, complex128 = BY_NAME["complex64"], BY_NAME["complex128"]
qint8, quint8, qint32, quint4x2, quint2x4 = QUANTIZED_DTYPES

# PyTorch's other spellings of the same objects.
ALIASES = {
    "half": float16, "float": float32, "double": float64, "short": int16, "int": int32, "long": int64,
    "cfloat": complex64, "cdouble": complex128,
}  # fmt: skip

_REAL = {complex64: float32, complex128: float64}
_COMPLEX = {float64: complex128, float32: complex64}

FROM_NUMPY: dict[np.dtype, dtype] = {d.numpy: d for d in ALL_DTYPES if d.has_numpy}


def opmath(d: dtype) -> dtype:
    """The type arithmetic happens in: narrow floats compute in float32."""
    return float32 if d is bfloat16 or d is float16 or d in FLOAT8 else d
