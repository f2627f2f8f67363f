"""Element types: one record per dtype, with all its properties that the library uses.

The names of a dtype elsewhere (PyTorch's enumeration, ONNX, safetensors, MPI, NCCL, CUDA's libraries, oneDNN) are fields of its record, so
that no package keeps a table of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

_CATEGORIES = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3, "n": 4, "q": 4}
_SIGNED = frozenset(f"int{bits}" for bits in range(1, 8))  # whose elements are no numbers
_DLPACK_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class FloatLimits(NamedTuple):
    """The numeric limits of a floating point dtype."""

    precision: int  # bits of the significand, the hidden one included
    min: float
    max: float
    eps: float
    smallest_normal: float
    resolution: float


def _ieee(precision: int, exponent: int, digits: int) -> FloatLimits:
    """Return the limits of a format with infinities, by its largest exponent and its decimal digits."""
    eps = 2.0 ** (1 - precision)
    largest = (2.0 - eps) * 2.0**exponent  # in this order no intermediate overflows
    return FloatLimits(precision, -largest, largest, eps, 2.0 ** (1 - exponent), float(f"1e-{digits}"))


class _WeaklyReferable:
    __slots__ = ("__weakref__",)


@dataclass(eq=False, repr=False, slots=True)
class dtype(_WeaklyReferable):
    """An element type. There is exactly one object per type, so `is` compares them."""

    name: str
    number: int  # c10::ScalarType's, which TorchScript and the C++ interface pass around
    scalar_type: str  # "Float": c10::ScalarType's name; torch.FloatTensor and torch.FloatStorage are called after it
    letter: str  # one-character name for kernel keys
    method: str | None = None  # "float": the tensor method that converts to it
    kind: str = ""  # "b" bool, "u" unsigned, "i" signed, "f" floating, "c" complex, "q" quantized, "n" no numbers; NumPy's unless given
    numpy: Any = (
        None  # the np.dtype that holds the bytes, of the same name unless given; bfloat16 travels as uint16 bits
    )
    cpp: str = ""  # "long int": the C++ type as PyTorch's messages and traces print it
    c_type: str = ""  # "int64_t": the C type that holds the bits of an element
    short: str = ""  # "i64"
    limits: Any = None  # FloatLimits of a floating point dtype
    codes: Any = None  # of a quantized dtype: the one of the integers in memory
    per_byte: int = 1  # codes to a byte in files, where a quantized dtype has less than eight bits
    # What other systems call it; None where they have no such type.
    pt2: Any = None  # the number in exported programs (torch._export.serde.schema.ScalarType)
    onnx: Any = None  # onnx.TensorProto.DataType
    safetensors: Any = None
    dlpack: Any = None  # DLDataTypeCode
    mpi: Any = None  # the name of MPI's predefined datatype
    nccl: Any = None  # ncclDataType_t
    cuda: Any = None  # cudaDataType, which cuBLAS and cuSOLVER take
    cudnn: Any = None  # cudnnDataType_t
    dnnl: Any = None  # dnnl_data_type_t
    blas: Any = None  # the letter of BLAS routines: S in SGEMM
    itemsize: int = field(init=False)
    is_floating_point: bool = field(init=False)
    is_complex: bool = field(init=False)
    is_signed: bool = field(init=False)
    category: int = field(init=False)  # 0 bool, 1 integer, 2 floating, 3 complex: the order of type promotion

    def __post_init__(self) -> None:
        self.numpy = np.dtype(self.numpy or self.name)
        self.kind = self.kind or self.numpy.kind
        self.itemsize = self.numpy.itemsize
        self.is_floating_point = self.kind == "f"
        self.is_complex = self.kind == "c"
        self.is_signed = self.kind in "ic" or self.name in _SIGNED or (self.limits is not None and self.limits.min < 0)
        self.category = _CATEGORIES[self.kind]
        self.short = self.short or f"{self.kind}{8 * self.itemsize}"
        self.cpp = self.cpp or self.name
        self.c_type = self.c_type or f"{self.name}_t"
        if self.dlpack is None:
            self.dlpack = _DLPACK_CODES.get(self.kind)

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (by_name, (self.name,))

    def __copy__(self) -> dtype:
        return self

    def __deepcopy__(self, memo: dict[Any, Any]) -> dtype:
        return self

    @property
    def has_numpy(self) -> bool:
        """Return whether NumPy has this type itself (bfloat16 and the 8-bit floats are held as raw bits, complex32 as pairs)."""
        return self is not bfloat16 and self.numpy.names is None and self.kind != "q"

    @property
    def storage_name(self) -> str | None:
        """Return the name of PyTorch's typed storage class, such as "FloatStorage"; None for later dtypes."""
        named = (self.method or self.codes) and self is not complex32  # which PyTorch's files keep as bytes
        return f"{self.scalar_type}Storage" if named else None

    def to_real(self) -> dtype:
        return _REAL.get(self, self)

    def to_complex(self) -> dtype:
        if self.is_complex:
            return self
        if not self.is_floating_point or self in FLOAT8:
            raise RuntimeError(f"Unknown Complex ScalarType for {self.scalar_type}")
        return _COMPLEX.get(self, complex64)


# fmt: off
bool_ = dtype(
    "bool", 11, "Bool", "b", "bool", c_type="uint8_t", pt2=12, onnx=9, safetensors="BOOL", mpi="C_BOOL", cudnn=11)
uint8 = dtype(
    "uint8", 0, "Byte", "B", "byte", cpp="unsigned char", pt2=1, onnx=2, safetensors="U8", mpi="UINT8_T", nccl=1, dnnl=6)
int8 = dtype(
    "int8", 1, "Char", "c", "char", cpp="signed char", pt2=2, onnx=3, safetensors="I8", mpi="INT8_T", nccl=0, cudnn=3, dnnl=5)
int16 = dtype(
    "int16", 2, "Short", "s", "short", cpp="short int", pt2=3, onnx=5, safetensors="I16", mpi="INT16_T")
int32 = dtype(
    "int32", 3, "Int", "i", "int", cpp="int", pt2=4, onnx=6, safetensors="I32", mpi="INT32_T", nccl=2, cudnn=4, dnnl=4)
int64 = dtype(
    "int64", 4, "Long", "l", "long", cpp="long int", pt2=5, onnx=7, safetensors="I64", mpi="INT64_T", nccl=4)
float16 = dtype(
    "float16", 5, "Half", "h", "half", cpp="c10::Half", c_type="uint16_t", limits=_ieee(11, 15, 3), pt2=6, onnx=10,
    safetensors="F16", nccl=6, cuda=2, cudnn=2, dnnl=1)
bfloat16 = dtype(
    "bfloat16", 15, "BFloat16", "g", "bfloat16", kind="f", numpy="uint16", cpp="c10::BFloat16", c_type="uint16_t", short="bf16",
    limits=_ieee(8, 127, 2), pt2=13, onnx=16, safetensors="BF16", dlpack=4, nccl=9, cuda=14, cudnn=9, dnnl=2)
float32 = dtype(
    "float32", 6, "Float", "f", "float", cpp="float", c_type="float", limits=_ieee(24, 127, 6), pt2=7, onnx=1, safetensors="F32",
    mpi="FLOAT", nccl=7, cuda=0, cudnn=0, dnnl=3, blas="S")
float64 = dtype(
    "float64", 7, "Double", "d", "double", cpp="double", c_type="double", limits=_ieee(53, 1023, 15), pt2=8, onnx=11,
    safetensors="F64", mpi="DOUBLE", nccl=8, cuda=1, cudnn=1, dnnl=7, blas="D")
complex64 = dtype(
    "complex64", 9, "ComplexFloat", "F", "cfloat", cpp="c10::complex<float>", pt2=10, onnx=14, safetensors="C64",
    mpi="C_FLOAT_COMPLEX", cuda=4, blas="C")
complex128 = dtype(
    "complex128", 10, "ComplexDouble", "D", "cdouble", cpp="c10::complex<double>", pt2=11, onnx=15, mpi="C_DOUBLE_COMPLEX", cuda=5,
    blas="Z")
# NumPy sees records of two fields; arithmetic happens in complex64.
complex32 = dtype(
    "complex32", 8, "ComplexHalf", "H", "chalf", kind="c", numpy=[("real", "f2"), ("imag", "f2")], cpp="c10::complex<c10::Half>",
    c_type="uint32_t", pt2=9)
uint16 = dtype(
    "uint16", 27, "UInt16", "S", cpp="short unsigned int", pt2=28, onnx=4, safetensors="U16", mpi="UINT16_T")
uint32 = dtype(
    "uint32", 28, "UInt32", "I", cpp="unsigned int", pt2=34, onnx=12, safetensors="U32", mpi="UINT32_T", nccl=3)
uint64 = dtype(
    "uint64", 29, "UInt64", "L", cpp="long unsigned int", pt2=35, onnx=13, safetensors="U64", mpi="UINT64_T", nccl=5)
# fmt: on

ALL_DTYPES: tuple[dtype, ...] = (
    bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64, complex64, complex128, uint16, uint32, uint64,
)  # fmt: skip


def _float8(name: str, number: int, letter: str, limits: FloatLimits, **facts: Any) -> dtype:
    """Return the record of an 8-bit float type. NumPy holds it as a record of one field, so that no arithmetic takes its bits for numbers."""
    form = name.removeprefix("float8_")
    return dtype(
        name, number, f"Float8_{form}", letter, kind="f", numpy=[(name, "u1")], cpp=f"c10::Float8_{form}", c_type="uint8_t",
        short=f"f8{form}", limits=limits, **facts,
    )  # fmt: skip


# Kept in memory and converted, but hardly computed with (core/float8.py). The eps of e5m2fnuz is what PyTorch says, not 0.25.
FLOAT8_DTYPES: tuple[dtype, ...] = (
    _float8(
        "float8_e4m3fn", 24, "5", FloatLimits(4, -448.0, 448.0, 0.125, 2.0**-6, 1.0), pt2=29, onnx=17, safetensors="F8_E4M3", cuda=28),
    _float8(
        "float8_e5m2", 23, "6", FloatLimits(3, -57344.0, 57344.0, 0.25, 2.0**-14, 1.0), pt2=30, onnx=19, safetensors="F8_E5M2", cuda=29),
    _float8("float8_e4m3fnuz", 26, "7", FloatLimits(4, -240.0, 240.0, 0.125, 2.0**-7, 1.0), pt2=31, onnx=18, safetensors="F8_E4M3FNUZ"),
    _float8("float8_e5m2fnuz", 25, "8", FloatLimits(3, -57344.0, 57344.0, 0.125, 2.0**-15, 1.0), pt2=32, onnx=20, safetensors="F8_E5M2FNUZ"),
    _float8("float8_e8m0fnu", 44, "9", FloatLimits(1, 2.0**-127, 2.0**127, 1.0, 2.0**-127, 1.0), pt2=33, onnx=24, safetensors="F8_E8M0"),
)  # fmt: skip
FLOAT8 = frozenset(FLOAT8_DTYPES)


def _quantized(name: str, number: int, scalar_type: str, letter: str, codes: dtype, per_byte: int = 1) -> dtype:
    return dtype(
        name, number, scalar_type, letter, kind="q", numpy=codes.name, cpp=f"c10::{name}", codes=codes, short=name, per_byte=per_byte
    )  # fmt: skip


# Integers that stand for other numbers (core/quantized.py): only the codes of a quantized tensor are in memory.
qint8 = _quantized("qint8", 12, "QInt8", "q", int8)
quint8 = _quantized("quint8", 13, "QUInt8", "Q", uint8)
qint32 = _quantized("qint32", 14, "QInt32", "w", int32)
quint4x2 = _quantized("quint4x2", 16, "QUInt4x2", "4", uint8, 2)
quint2x4 = _quantized("quint2x4", 17, "QUInt2x4", "2", uint8, 4)
QUANTIZED_DTYPES = (qint8, quint8, qint32, quint4x2, quint2x4)

# Integers of less than a byte, one to a byte: tensors of them are made, viewed and indexed, and nothing computes with them.
NARROW_DTYPES: tuple[dtype, ...] = tuple(
    dtype(
        f"{sign}int{bits}",
        first + bits,
        f"{sign.title()}Int{bits}",
        "n",
        kind="n",
        numpy=[(f"{sign}int{bits}", "u1")],
        short=f"{sign}int{bits}",
    )
    for sign, first in (("", 36), ("u", 29))
    for bits in range(1, 8)
)
# Bits without a meaning, so many times so many to an element.
BITS_DTYPES: tuple[dtype, ...] = tuple(
    dtype(name, number, name.title(), "n", kind="n", numpy=[(name, held)], short=short)
    for name, number, held, short in (
        ("bits1x8", 18, "u1", "b1x8"),
        ("bits2x4", 19, "u1", "b2x4"),
        ("bits4x2", 20, "u1", "b4x2"),
        ("bits8", 21, "u1", "b8x1"),
        ("bits16", 22, "u2", "b16x1"),
    )
)
# Two numbers of four bits to a byte: memory that products of a GPU read; nothing here converts to it.
float4_e2m1fn_x2 = dtype(
    "float4_e2m1fn_x2", 45, "Float4_e2m1fn_x2", "m", kind="f", numpy=[("float4_e2m1fn_x2", "u1")], c_type="uint8_t", short="f4e2m1fnx2",
    limits=FloatLimits(2, -6.0, 6.0, 0.5, 1.0, 1.0),
)  # fmt: skip
RECORDS = (*ALL_DTYPES, complex32, *FLOAT8_DTYPES, *QUANTIZED_DTYPES, *NARROW_DTYPES, *BITS_DTYPES, float4_e2m1fn_x2)
BY_NAME: dict[str, dtype] = {d.name: d for d in RECORDS}
ABBREVIATIONS: dict[dtype, str] = {d: d.short for d in RECORDS}
BY_NUMBER: dict[int, dtype] = {d.number: d for d in RECORDS}
METHODS: dict[str, dtype] = {d.method: d for d in RECORDS if d.method}


def by_name(name: str) -> dtype:
    """Return the dtype called `name`, for unpickling."""
    return BY_NAME[name]


# PyTorch's other spellings of the same objects; `torch.char` and `torch.byte` do not exist.
ALIASES = {"bit": BY_NAME["uint1"]} | {
    method: d for method, d in METHODS.items() if method not in BY_NAME and d.itemsize > 1
}
# How Python's numbers are held when their own precision counts.
OF_PYTHON: dict[type, dtype] = {bool: bool_, int: int64, float: float64, complex: complex128}

_REAL = {complex32: float16, complex64: float32, complex128: float64}
_COMPLEX = {float64: complex128, float32: complex64, float16: complex32}

FROM_NUMPY: dict[np.dtype, dtype] = {d.numpy: d for d in ALL_DTYPES if d.has_numpy}


def opmath(d: dtype) -> dtype:
    """Return the type of arithmetic: narrow floats compute in float32, complex32 in complex64."""
    if d is complex32:
        return complex64
    return float32 if d is bfloat16 or d is float16 or d in FLOAT8 else d
