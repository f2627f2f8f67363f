"""Each dtype's record against what PyTorch, NumPy, ONNX, safetensors, DLPack and MPI call the same type."""

from __future__ import annotations

import copy
import ctypes
import pickle

import numpy as np
import pytest
from answers import judge

import flambeau
from flambeau.core import dtype as dt

TENSOR_DTYPES = (*dt.ALL_DTYPES, *dt.FLOAT8_DTYPES)
names = pytest.mark.parametrize("d", dt.RECORDS, ids=lambda d: d.name)
of_tensors = pytest.mark.parametrize("d", TENSOR_DTYPES, ids=lambda d: d.name)


@pytest.fixture(scope="module")
def torch():
    return judge("torch")


@names
def test_a_record_is_one_object(d) -> None:
    assert getattr(flambeau, d.name) is d is copy.deepcopy(d) is pickle.loads(pickle.dumps(d))


def test_names_and_numbers_are_distinct() -> None:
    for field in (
        "name",
        "number",
        "scalar_type",
        "short",
        "pt2",
        "onnx",
        "safetensors",
        "mpi",
        "nccl",
        "cuda",
        "cudnn",
        "dnnl",
    ):
        found = [getattr(d, field) for d in dt.RECORDS if getattr(d, field) is not None]
        assert len(set(found)) == len(found), field
    assert len({d.letter for d in dt.RECORDS} - {"n"}) == len(dt.RECORDS) - len(dt.NARROW_DTYPES) - len(dt.BITS_DTYPES)


@names
def test_pytorch_s_number(d, torch) -> None:
    program = torch.jit.CompilationUnit(f"def number(x: Tensor):\n    return torch.{d.name}\n")
    assert program.number(torch.ones(1)) == d.number


@of_tensors
def test_pytorch_s_names(d, torch) -> None:
    theirs = getattr(torch, d.name)
    assert torch.empty(1, dtype=theirs).type() == f"torch.{d.scalar_type}Tensor" == flambeau.empty(1, dtype=d).type()
    assert (theirs.itemsize, theirs.is_floating_point, theirs.is_complex, theirs.is_signed) == (
        d.itemsize, d.is_floating_point, d.is_complex, d.is_signed,
    )  # fmt: skip
    other = torch.int32 if d is dt.float64 else torch.float64
    with pytest.raises(RuntimeError) as told:
        torch.mm(torch.empty(1, 1, dtype=other), torch.empty(1, 1, dtype=theirs))
    assert str(told.value).endswith(f" != {d.cpp}")


def test_methods_and_aliases(torch) -> None:
    for name, d in dt.METHODS.items():
        assert str(getattr(torch.ones(1), name)().dtype) == str(d) == str(getattr(flambeau.ones(1), name)().dtype)
    assert {n: str(getattr(torch, n)) for n in dt.ALIASES} == {n: str(d) for n, d in dt.ALIASES.items()}


def test_short_names(torch) -> None:
    dtype_abbrs = judge("torch.utils._dtype_abbrs").dtype_abbrs

    theirs = {str(d): short for d, short in dtype_abbrs.items()}
    ours = {str(d): short for d, short in dt.ABBREVIATIONS.items()}
    assert {name: ours[name] for name in theirs} == theirs


def test_numbers_in_exported_programs(torch) -> None:
    ScalarType = judge("torch._export.serde.schema").ScalarType

    theirs = {e.name.lower(): e.value for e in ScalarType}
    for d in TENSOR_DTYPES:
        assert theirs[d.scalar_type.lower().replace("_", "")] == d.pt2


def test_storage_classes(torch) -> None:
    for d in dt.RECORDS:
        if d.storage_name is not None:
            assert str(getattr(torch, d.storage_name).dtype) == str(d)
        else:
            assert not hasattr(torch, f"{d.scalar_type}Storage")


def test_limits(torch) -> None:
    for d in TENSOR_DTYPES:
        assert (d.limits is not None) == d.is_floating_point
        if d.limits is not None:
            theirs = torch.finfo(getattr(torch, d.name))
            for field in ("min", "max", "eps", "smallest_normal", "resolution"):
                assert getattr(d.limits, field) == getattr(theirs, field), (d, field)


def test_precision_counts_the_integers_without_a_gap() -> None:
    for d in (dt.float16, dt.bfloat16, dt.float32, dt.float64):
        assert d.limits is not None
        edge = 2**d.limits.precision
        assert flambeau.tensor([edge - 1.0, edge, edge + 1.0], dtype=d).double().tolist() == [edge - 1, edge, edge]


def test_quantized_codes(torch) -> None:
    for d in dt.QUANTIZED_DTYPES:
        assert str(d.codes) == str(torch.ao.quantization.utils.to_underlying_dtype(getattr(torch, d.name)))


def test_numpy_and_dlpack() -> None:
    for d in dt.ALL_DTYPES:
        if d.has_numpy:
            assert np.dtype(d.name) == d.numpy == flambeau.empty(1, dtype=d).numpy().dtype
    for d in dt.ALL_DTYPES:
        assert flambeau.from_dlpack(flambeau.empty(3, dtype=d)).dtype is d


def test_dlpack_is_understood_by_pytorch(torch) -> None:
    for d in dt.ALL_DTYPES:
        assert str(torch.from_dlpack(flambeau.empty(3, dtype=d)).dtype) == str(d)


def test_c_types_have_the_size_of_an_element() -> None:
    for d in TENSOR_DTYPES:
        if not d.is_complex:
            assert ctypes.sizeof(getattr(ctypes, f"c_{d.c_type.removesuffix('_t')}")) == d.itemsize


def test_onnx_numbers() -> None:
    onnx = pytest.importorskip("onnx")
    theirs = dict(onnx.TensorProto.DataType.items())
    for d in TENSOR_DTYPES:
        plain = d.name.upper().replace("_", "").replace("E8M0FNU", "E8M0")
        assert theirs.get({"FLOAT32": "FLOAT", "FLOAT64": "DOUBLE"}.get(plain, plain)) == d.onnx


def test_safetensors_names(tmp_path, torch) -> None:
    saved = pytest.importorskip("safetensors.torch")
    for d in TENSOR_DTYPES:
        if d.safetensors is None:
            continue
        data = saved.save(
            {"x": torch.zeros(1, dtype=torch.uint8).expand(d.itemsize).contiguous().view(getattr(torch, d.name))}
        )
        assert f'"dtype":"{d.safetensors}"' in data.decode("latin-1")


def test_mpi_datatypes() -> None:
    mpi = pytest.importorskip("mpi4py.util.dtlib")
    from mpi4py import MPI

    for d in dt.ALL_DTYPES:
        if d.mpi is not None:
            assert np.dtype(mpi.to_numpy_dtype(getattr(MPI, d.mpi))) == d.numpy
