"""`torch.testing`: the same verdicts, the same messages, the same random inputs as PyTorch's."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from answers import judge

import flambeau
import flambeau.testing

torch = judge("torch")

COMPARISONS = """
close(t([1.,2,3]), t([1.,2,4]))
close(t([[1.,2],[3,4]]), t([[1.,2],[3,float('nan')]]))
close(t(1.), t(2.))
close(t([1,2]), t([1,3]))
close(t([True,False]), t([True,True]))
close(1, 2)
close(1.0, 1.1)
close(1j, 2j)
close(True, False)
close("a", "b")
close("a", 1)
close(1, 1.0)
close(None, None)
close(None, 1)
close(t([1.]), t([1]))
close(t([1.]), t([1.,2.]))
close(t([1.]), t([1], dtype=T.float64), check_dtype=False)
close([t([1.]),t([2.])], [t([1.]),t([3.])])
close([t([1.])], [t([1.]),t([3.])])
close({"a":t([1.])}, {"b":t([1.])})
close({"a":{"q":[t([1.])]}}, {"a":{"q":[t([2.])]}})
close(t([1.]), 1.0)
close(t(1.), 1.0)
close(t([1.]), np.array([1.0],np.float32))
close(np.array([1.0]), np.array([2.0]))
close(t([1.,2]), t([1.,2]).requires_grad_(), rtol=1)
close(t([1.,2]), t([5.,2]), rtol=0,atol=1)
close(t([1.,2]), t([5.,2]), msg="hello")
close(t([1.,2]), t([5.,2]), msg=lambda m: "X"+m)
close(t([float('nan')]), t([float('nan')]))
close(t([float('nan')]), t([float('nan')]), equal_nan=True)
close(float('nan'), float('nan'), equal_nan=True)
close(float('nan'), float('nan'))
close(T.ones(2,3).t(), T.ones(3,2), check_stride=True)
close(T.eye(2).to_sparse(), T.eye(2))
close(T.eye(2).to_sparse(), T.eye(2), check_layout=False)
close(T.eye(2).to_sparse(), T.eye(2).to_sparse()*2)
close(T.eye(2).to_sparse_csr(), T.eye(2).to_sparse_csr()*2)
close(T.eye(3).to_sparse(), t([[1.,0,0],[0,0,0],[0,0,0]]).to_sparse())
close(t([1+1j]), t([1+2j]))
close(t([]), t([]))
close(t([1.]), t([1.], device="meta"))
close(t([1.], device="meta"), t([1.], device="meta"))
close(t([float('inf')]), t([1.]))
close(float('inf'), 1.0)
close(t([0.]), t([0.])+1e-4)
close(t([1.]), t([0.]))
close(t([200],dtype=T.uint8), t([1],dtype=T.uint8))
close(T.zeros(2,2,dtype=T.bfloat16), T.ones(2,2,dtype=T.bfloat16))
close(object(), object())
close([1,"x"],[1,"x"])
close([1,object],[1,object])
close((t([1.]),), [t([1.])])
close([], t([1.]))
close([t(1.)], t([1.]))
close(t([1.]), t([1.]), rtol=1, atol=0)
close(3, 5, rtol=0, atol=1)
close(t([1.]), T.nn.Parameter(t([1.])))
close(T.nn.Parameter(t([1.])), t([1.]), allow_subclasses=False)
close({"a":1,"c":3}, {"b":1,"c":3})
close(np.float32(1), np.float32(2))
close({}, {})
close(t([3],dtype=T.int8), t([5],dtype=T.int16), check_dtype=False)
close(1.0, 1.1, rtol=0.001, atol=0.002)
close([1,2,3],[1,2,4],msg=lambda m: m.upper())
close(t([1.,2,3,4,5,6,7]), t([9.,8,7,6,5,4,3]))
close(t([2**62]), t([2**62+1]))
close(t([1.]), t([2.]), check_device=False, check_dtype=False, equal_nan=True, rtol=1e-3, atol=1e-3)
close(T.ones(0,2), T.ones(0,3))
close(t([1.,1.]).to(T.float16), t([1.,2.]).to(T.float64), check_dtype=False)
close(t([float('nan'),1.,2.]), t([1.,1.,5.]))
close(t([0.,0.]), t([0.,1e-3]), rtol=0.1, atol=0)
close([[1,[2]],3],[[1,[9]],3])
close(1+2j, 1+2.5j, rtol=0., atol=0.)
"""


def outcome(library, line):
    names = {"T": library, "t": library.tensor, "np": np, "close": library.testing.assert_close}
    try:
        return eval(line, names)
    except Exception as error:  # whatever it raises is what is compared
        text = str(error).replace("flambeau.core.tensor.Tensor", "torch.Tensor").replace("flambeau.", "torch.")
        return type(error).__name__, text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", COMPARISONS.strip().splitlines())
def test_assert_close(line):
    assert outcome(flambeau, line) == outcome(torch, line)


def test_negative_tolerance():
    with pytest.raises(RuntimeError, match="rtol must be greater than or equal to zero, but got -1.0"):
        flambeau.testing.assert_close(flambeau.ones(1), flambeau.ones(1), rtol=-1.0, atol=0.0)


def test_assert_allclose_is_deprecated():
    with pytest.warns(FutureWarning, match="deprecated"):
        flambeau.testing.assert_allclose([1.0], flambeau.ones(1))
    with pytest.warns(FutureWarning), pytest.raises(AssertionError, match="not close"):
        flambeau.testing.assert_allclose([1.5], flambeau.ones(1))


INPUTS = [
    {"dtype": "float32"},
    {"dtype": "int64"},
    {"dtype": "bool"},
    {"dtype": "complex64"},
    {"dtype": "uint8"},
    {"dtype": "int32", "low": 2, "high": 5},
    {"dtype": "float16"},
    {"dtype": "bfloat16", "low": 0.0, "high": 1.0},
    {"dtype": "float64", "exclude_zero": True},
    {"dtype": "float32", "noncontiguous": True},
    {"dtype": "float32", "low": 3, "high": 1},
    {"dtype": "float32", "low": 1, "high": 1},
    {"dtype": "int32", "low": 1, "high": 1},
    {"dtype": "int32", "low": 0.5, "high": 1.2},
    {"dtype": "float32", "low": float("nan")},
    {"dtype": "float32", "low": float("-inf"), "high": float("inf")},
    {"dtype": "int32", "requires_grad": True},
    {"dtype": "bool", "low": 0, "high": 1},
    {"dtype": "int8", "exclude_zero": True, "low": 0, "high": 1},
    {"dtype": "bool", "low": 0, "high": 3},
    {"dtype": "uint8", "low": -5, "high": 3},
    {"dtype": "float16", "low": 0, "high": 1e9},
    {"dtype": "int32", "low": 0, "high": 1e12},
    {"dtype": "float16", "low": 1e9, "high": 1e10},
    {"dtype": "int8", "low": -128, "high": 128},
    {"dtype": "int64", "low": -(2**63), "high": 2**63 - 1},
    {"dtype": "int64", "high": 2**63},
    {"dtype": "int64", "noncontiguous": True},
    {"dtype": "uint16"},
    {"dtype": "uint64"},
]


def made(library, options, *shape):
    library.manual_seed(0)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            result = library.testing.make_tensor(
                *shape, device="cpu", **{**options, "dtype": getattr(library, options["dtype"])}
            )
    except Exception as error:
        return type(error).__name__, str(error).replace("flambeau.", "torch.")
    return result.tolist(), result.stride(), [str(w.message) for w in warned], library.rand(1).item()


@pytest.mark.parametrize("options", INPUTS, ids=str)
def test_make_tensor(options):
    assert made(flambeau, options, 2, 3) == made(torch, options, 2, 3)


@pytest.mark.parametrize("shape", [(), ((),), (2,), ((2, 3),), ([1, 4],), (0, 3), (1, 1)], ids=str)
@pytest.mark.parametrize("noncontiguous", [False, True])
def test_shapes_of_make_tensor(shape, noncontiguous):
    options = {"dtype": "float32", "noncontiguous": noncontiguous}
    assert made(flambeau, options, *shape) == made(torch, options, *shape)


def test_make_tensor_memory_format_and_grad():
    made_here, made_there = (
        library.testing.make_tensor(
            2, 3, 4, 5, dtype=library.float32, device="cpu", memory_format=library.channels_last, requires_grad=True
        )
        for library in (flambeau, torch)
    )
    assert made_here.stride() == made_there.stride() and made_here.requires_grad
