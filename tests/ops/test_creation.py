"""Operators that make tensors, against PyTorch: values, dtypes, strides and errors."""

from __future__ import annotations

import pytest
from answers import judge

import flambeau

FROM_DATA = """
torch.tensor(1)
torch.tensor(1.5)
torch.tensor(True)
torch.tensor(1j)
torch.tensor([[1, 2], [3, 4]])
torch.tensor([1, 2.5])
torch.tensor([True, 2])
torch.tensor([])
torch.tensor([1], dtype=torch.float64)
torch.tensor([s, n])
torch.tensor([[s, s], [s, s]])
torch.tensor(np.arange(3))
torch.tensor(np.float32(2))
torch.tensor([np.float64(1), np.float64(2)])
torch.tensor(range(3))
torch.tensor((1, 2))
torch.tensor([1.], requires_grad=True)
torch.tensor(3, device='cpu')
torch.as_tensor([1, 2])
torch.as_tensor(x) is x
torch.as_tensor(np.arange(3))
torch.as_tensor(x, dtype=torch.int64)
torch.asarray([1., 2.])
torch.asarray(x) is x
torch.asarray(x, copy=True) is x
torch.asarray(np.arange(3.))
torch.asarray(bytearray(b'abcd'), dtype=torch.uint8)
torch.asarray(torch.arange(6.).untyped_storage(), dtype=torch.int16)
torch.asarray(torch.arange(6).untyped_storage())
torch.asarray(torch.arange(6.).untyped_storage()[4:], dtype=torch.uint8)[:8]
torch.asarray(torch.UntypedStorage(0))
torch.asarray(torch.arange(6.)._typed_storage())
torch.as_tensor(torch.arange(6.).untyped_storage(), dtype=torch.float64)
torch.tensor(torch.arange(6).untyped_storage())
torch.ones(2).new_tensor(torch.arange(6.).untyped_storage())
torch.asarray(x.untyped_storage(), dtype=torch.uint8).data_ptr() == x.data_ptr()
torch.as_tensor(x.untyped_storage(), dtype=torch.float32).data_ptr() == x.data_ptr()
torch.frombuffer(bytearray(8), dtype=torch.int32)
torch.frombuffer(bytearray(b'abcdefgh'), dtype=torch.uint8, count=2, offset=3)
torch.from_numpy(np.ones((2, 2)))
torch.from_dlpack(np.arange(3))
x.numpy()
r.numpy(force=True)
np.asarray(x)
np.array(i, dtype=np.float32)
np.sin(s)
np.add(x, 1)
x.__array__()
x.new_tensor([1, 2])
i.new_tensor([1.7])
x.new_tensor(3, dtype=torch.int64)
"""

FILLED = """
x.new_zeros(2)
x.new_ones((2, 1))
i.new_full((2,), 7)
x.new_empty(3).shape
torch.zeros_like(i)
torch.ones_like(x, dtype=torch.int32)
torch.full_like(x, 3)
torch.empty_like(x.t()).stride()
torch.zeros_like(x.t()).stride()
torch.full((2,), 1)
torch.full((2,), 1.0)
torch.full((2,), True)
torch.full((), 2)
torch.zeros(2, 3, dtype=torch.bool)
torch.ones(2, requires_grad=True)
torch.eye(2)
torch.eye(2, 3)
torch.empty(2, 3, 4, 5, memory_format=torch.channels_last).stride()
torch.zeros((2,))
torch.zeros([2])
torch.zeros(())
torch.empty_strided((2, 3), (1, 2)).stride()
torch.empty_permuted((2, 3, 4), (2, 0, 1)).stride()
torch.scalar_tensor(2)
torch.scalar_tensor(2, dtype=torch.int8)
"""

SEQUENCES = """
torch.arange(5)
torch.arange(1, 4)
torch.arange(1, 2.5, 0.5)
torch.arange(5, 0, -2)
torch.arange(0.)
torch.arange(3, dtype=torch.float32)
torch.arange(0, 1, 0.1)
torch.arange(0, 1, 0.1, dtype=torch.float64)
torch.linspace(0, 1, 5)
torch.linspace(0.5, 3, 1, dtype=torch.bool)
torch.linspace(2.7, 3, 1, dtype=torch.int64)
torch.linspace(-3, 10, 7, dtype=torch.int64)
torch.linspace(0, 1, 50)
torch.logspace(0, 2, 3)
torch.logspace(-1, 1, 5, base=2)
torch.arange(0, 1, 0.05, dtype=torch.bfloat16)
torch.linspace(0, 1, 20, dtype=torch.bfloat16)
torch.linspace(0, 1, 20, dtype=torch.float16)
torch.arange(0, 3, 0.1, dtype=torch.float16)
torch.tril_indices(3, 3)
torch.triu_indices(3, 4, 1)
torch.meshgrid(torch.arange(2), torch.arange(3), indexing='ij')
torch.meshgrid(torch.arange(2), torch.arange(3), indexing='xy')
torch.cartesian_prod(torch.arange(2), torch.arange(2))
torch.combinations(torch.arange(4))
torch.combinations(torch.arange(3), 2, with_replacement=True)
torch.vander(torch.tensor([1., 2., 3.]))
torch.block_diag(x, s, x)
torch.complex(s, s)
torch.polar(s, s)
"""

ERRORS = """
torch.zeros(-1)
torch.zeros(2.5)
torch.zeros('a')
torch.zeros(2, dtype='float')
torch.zeros(2, foo=1)
torch.zeros()
torch.full((2,), 'a')
torch.full(2, 3)
torch.full((2,), 300, dtype=torch.int8)
torch.full((2,), 1j, dtype=torch.float32)
torch.ones(2, dtype=torch.int64, requires_grad=True)
torch.empty(2, memory_format=torch.channels_last)
torch.arange(0, 5, 0)
torch.arange(0, 5, -1)
torch.arange()
torch.arange('a')
torch.arange(float('inf'))
torch.linspace(0, 1, -1)
torch.linspace(0, 1, 2, dtype=torch.bool)
torch.logspace(0, 1, 2, dtype=torch.bool)
torch.linspace(0, 1, 2, dtype=torch.float8_e5m2)
torch.range(0, 3, dtype=torch.bool)
torch.eye(-1)
torch.tril_indices(-1, 2)
torch.tril_indices(2, 2, dtype=torch.int16)
torch.triu_indices(2, 2, dtype=torch.float32)
torch.empty_strided((2,), (1, 1))
torch.empty_permuted((2, 3), (0, 0))
torch.empty_permuted((2, 3), (0,))
torch.tensor('a')
torch.tensor([1, 'a'])
torch.tensor([[1, 2], [3]])
torch.tensor(None)
torch.tensor([1], dtype='x')
torch.tensor([1.], dtype=torch.int64, requires_grad=True)
torch.as_tensor('a')
torch.from_numpy([1])
torch.from_numpy(np.array(['a']))
torch.from_numpy(np.arange(4)[::-1])
torch.frombuffer(b'', dtype=torch.uint8)
torch.frombuffer(bytearray(3), dtype=torch.int32)
torch.frombuffer(bytearray(8), dtype=torch.int32, count=5)
torch.frombuffer(bytearray(8), dtype=torch.int32, offset=9)
torch.frombuffer(3, dtype=torch.uint8)
torch.asarray([1.], copy=False)
torch.asarray(torch.UntypedStorage(4), copy=False)
torch.asarray(x._typed_storage(), dtype=torch.int16)
torch.asarray(memoryview(bytearray(8))[::2], dtype=torch.uint8)
torch.asarray(x, dtype=torch.int64, copy=False)
torch.LongTensor(x)
torch.device('foo')
torch.device('cpu:x')
torch.set_default_dtype(torch.int64)
torch.result_type('a', x)
torch.promote_types(1, 2)
torch.finfo(torch.int64)
torch.iinfo(torch.float32)
"""


@pytest.mark.parametrize("expression", FROM_DATA.strip().splitlines())
def test_tensors_from_data(agrees, expression):
    agrees(expression)


@pytest.mark.parametrize("expression", FILLED.strip().splitlines())
def test_filled_tensors(agrees, expression):
    agrees(expression)


@pytest.mark.parametrize("expression", SEQUENCES.strip().splitlines())
def test_sequences_and_grids(agrees, expression):
    agrees(expression)


@pytest.mark.parametrize("expression", ERRORS.strip().splitlines())
def test_errors(agrees, expression):
    agrees(expression)


def test_new_tensors_have_the_layout_asked_for():
    x = flambeau.empty(2, 3, 4, 5, memory_format=flambeau.channels_last)
    assert x.stride() == (60, 1, 15, 3)
    assert flambeau.zeros_like(x).stride() == x.stride()
    assert flambeau.zeros_like(x, memory_format=flambeau.contiguous_format).is_contiguous()
    assert flambeau.ones(3).expand(2, 3).clone().stride() == (3, 1)


def test_out_is_resized_or_refused():
    out = flambeau.empty(0)
    assert flambeau.arange(3, out=out) is out and out.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(RuntimeError, match="does not match dtype of out"):
        flambeau.zeros(2, out=out, dtype=flambeau.int64)
    strided = flambeau.zeros(6)[::2]
    flambeau.linspace(0, 1, 3, out=strided)
    assert strided.tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int64"])
def test_sequences_are_equal_bit_for_bit(dtype):
    torch = judge("torch")
    for k in range(1, 40):
        start, step, count = -1.7 * k, 0.1 + k / 7, 3 * k
        if dtype == "int64":
            start, step = int(start), int(step) + 1
        bounds = (start, start + step * count, step)
        assert (
            flambeau.arange(*bounds, dtype=getattr(flambeau, dtype)).tolist()
            == torch.arange(*bounds, dtype=getattr(torch, dtype)).tolist()
        )
        ours = flambeau.linspace(start, step, count, dtype=getattr(flambeau, dtype))
        assert ours.tolist() == torch.linspace(start, step, count, dtype=getattr(torch, dtype)).tolist()
