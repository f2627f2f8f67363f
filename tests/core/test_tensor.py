"""A tensor as a Python object, against PyTorch: printing, numbers, attributes, conversions, copies, errors."""

from __future__ import annotations

import pytest

PRINTED = """
x
i
b
z
r
s
n
h
r * 2
r.sum()
x.double()
x.half()
i.int()
i.to(torch.uint8)
torch.empty(0)
torch.empty(2, 0)
torch.zeros(2,0,dtype=torch.int64)
torch.arange(2000.)
torch.arange(10000).reshape(100, 100)
torch.tensor([1e-5, 1.0, 1e5])
torch.tensor([float('nan'), float('inf'), -1.0])
torch.tensor([[]])
str(x)
f"{s:.3f}"
f"{n:5d}"
f"{x}"
repr(torch.Size([2,3]))
len(x)
list(x)
[v.item() for v in x[0]]
bool(s)
bool(torch.tensor([0]))
int(s)
float(n)
complex(s)
[10,20,30,40][n]
range(n)
hex(n)
2.0 in x
9 in x
x.tolist()
z.tolist()
b.tolist()
s.tolist()
h.tolist()
s.item()
b[0].item()
h[1].item()
z[0].item()
x.half()[1,1].item()
"""

QUERIES = """
x.shape
x.size()
x.size(0)
x.size(-1)
x.stride()
x.stride(0)
x.t().stride()
x.ndim
x.dim()
x.numel()
x.nelement()
x.element_size()
x.itemsize
x.nbytes
x.dtype
x.device
x.layout
x.is_cuda
x.is_cpu
x.is_sparse
x.is_quantized
x.is_meta
x.is_leaf
r.is_leaf
(r*2).is_leaf
x.requires_grad
r.requires_grad
(r*1).requires_grad
x.is_floating_point()
i.is_floating_point()
z.is_complex()
i.is_signed()
x.is_contiguous()
x.t().is_contiguous()
x.storage_offset()
x[1].storage_offset()
x.get_device()
x.is_pinned()
x.is_shared()
x.type()
i.type()
z.type()
x.output_nr
x._version
x.grad
x.grad_fn
x.is_inference()
x.ndimension()
x.is_same_size(i)
x.is_same_size(s)
x.is_set_to(x)
x.dim_order()
x.t().dim_order()
x.T
x.mT
x.H
x.mH
s.T
x.storage().tolist()
x.storage()[2]
len(x.storage())
x.storage().size()
x.untyped_storage().nbytes()
x.untyped_storage().size()
i.storage().dtype
x.storage().element_size()
torch.is_tensor(x)
torch.is_tensor(1)
torch.is_storage(x.storage())
torch.is_floating_point(x)
torch.is_complex(z)
torch.numel(x)
torch.typename(x)
torch.typename(1)
torch.result_type(x, 1)
torch.result_type(i, 1.5)
torch.result_type(i, s)
torch.result_type(x, z)
torch.result_type(h, 1.0)
torch.promote_types(torch.int32, torch.float16)
torch.promote_types(torch.uint8, torch.int8)
torch.can_cast(torch.float32, torch.int32)
torch.can_cast(torch.int32, torch.float32)
torch.get_default_dtype()
torch.finfo(torch.float32)
torch.iinfo(torch.int8).max
torch.e
torch.pi
torch.inf
torch.nan
torch.newaxis
torch.device('cpu')
torch.device('meta')
torch.strided
torch.channels_last
torch.float
torch.long
torch.half
torch.bool
x == x
{x: 1}[x]
x.__class__
type(x).__name__
torch.Tensor.__name__
x.tolist() == [[0, 1, 2], [3, 4, 5]]
sorted([torch.tensor(2), torch.tensor(1)])
max(torch.tensor([1, 5, 3]))
sum([s, s])
[*x[0]]
dict(a=x)['a'].shape
x.untyped_storage().data_ptr() == x.data_ptr()
x[1].data_ptr() - x.data_ptr()
x.data.data_ptr() == x.data_ptr()
x.is_conj()
x.is_neg()
torch.is_inference(x)
torch.uint16
torch.zeros(2, dtype=torch.uint16)
torch.zeros(2, dtype=torch.uint32)
torch.tensor([2**63], dtype=torch.uint64)
torch.zeros(3, dtype=float)
torch.zeros(3, dtype=int)
torch.float32.itemsize
torch.float32.is_floating_point
torch.complex64.is_complex
torch.int8.is_signed
torch.float32.to_complex()
torch.bfloat16.to_complex()
torch.int64.to_complex()
torch.uint16.to_complex()
torch.float8_e5m2.to_complex()
torch.complex64.to_real()
"""

CONVERSIONS = """
x.type(torch.float64)
x.type('torch.IntTensor')
x.type(torch.LongTensor)
x.type_as(i)
x.to(torch.int32)
x.to(i)
x.to('cpu')
x.to('cpu', torch.float64)
x.to(device='cpu', dtype=torch.half)
x.to(torch.device('cpu'))
x.to(torch.float32) is x
x.to(x) is x
x.to(torch.float32, copy=True) is x
x.to(dtype=torch.int64, non_blocking=True)
x.to(torch.float64, False, True)
x.float() is x
x.int()
x.long()
x.short()
x.char()
x.byte()
x.bool()
x.cfloat()
x.cdouble()
x.bfloat16()
x.half()
x.cpu() is x
torch.tensor([-1.5, 300.7, 2.0]).to(torch.int8)
torch.tensor([-1.5, 2.0]).to(torch.uint8)
torch.tensor([1e10]).to(torch.int32)
torch.tensor([float('nan')]).to(torch.bool)
z.to(torch.float32)
torch.tensor([70000.]).half()
torch.tensor([1.00390625]).bfloat16()
torch.tensor([2**40]).int()
(lambda y: (y.fill_(2), y))(x.clone())
x.clone().zero_()
x.clone().fill_(s)
torch.fill(x, 3)
x.clone().copy_(i)
x.clone().copy_(torch.tensor(1))
i.clone().copy_(x + 0.7)
x.clone().resize_(3, 2)
x.clone().resize_(2)
x.clone().resize_as_(torch.zeros(4)).shape
torch.empty(0).set_(x.storage(), 1, (2, 2), (1, 1))
torch.empty(0).set_(x)
x.clone().apply_(lambda v: v * 2)
x.clone().map_(x, lambda a, b: a + b)
x.data
x.detach()
r.detach()
r.data
x.clone().requires_grad_()
x.share_memory_().is_shared()
"""

LEGACY = """
torch.Tensor(2, 3).shape
torch.Tensor([1, 2])
torch.Tensor(2).shape
torch.Tensor().shape
torch.FloatTensor([[1, 2]])
torch.IntTensor(2, 4).zero_()
torch.LongTensor([1, 2])
torch.ByteTensor([1])
torch.BoolTensor([True])
torch.DoubleTensor([1]).dtype
torch.HalfTensor([1])
isinstance(x, torch.FloatTensor)
isinstance(i, torch.FloatTensor)
isinstance(i, torch.LongTensor)
isinstance(x, torch.Tensor)
torch.Tensor(torch.Size([2, 2])).shape
torch.Tensor((1, 2))
torch.Tensor(x)
x.new(2).shape
x.new([1, 2])
i.new([1, 2])
"""

COPIES = """
copy.copy(x)
copy.deepcopy(x)
copy.deepcopy(r)
pickle.loads(pickle.dumps(x))
pickle.loads(pickle.dumps(r))
pickle.loads(pickle.dumps(x.t())).stride()
pickle.loads(pickle.dumps(torch.float32)) is torch.float32
pickle.loads(pickle.dumps(torch.bool)) is torch.bool
pickle.loads(pickle.dumps(torch.Size([1, 2])))
pickle.loads(pickle.dumps(torch.device('cpu')))
pickle.loads(pickle.dumps(torch.strided))
copy.deepcopy([x, x[0]])[1]
(lambda p: (p[0].zero_(), p[1]))(copy.deepcopy([x, x[0]]))
torch.zeros(2, 3, device='meta')
torch.zeros(2, 3, device='meta') + 1
torch.zeros(2, 3, device='meta').t().shape
torch.zeros(2, 3, device='meta').sum()
torch.empty(2, 3, device='meta').reshape(6)
torch.cat([torch.zeros(2, device='meta')] * 2)
torch.zeros(2, device='meta').is_meta
x.to('meta')
torch.zeros(2, device='meta').to(torch.float64)
torch.zeros(3, device='meta').view(3, 1).expand(3, 4).shape
"""

ERRORS = """
len(s)
list(s)
bool(x)
bool(torch.empty(0))
int(x)
float(x)
x.item()
torch.empty(0).item()
[1, 2][s]
'a' in x
r.numpy()
h.numpy()
x.size(5)
x.stride(2)
x.to('cuda')
x.cuda()
x.to('foo')
x.to()
x.type('foo')
x.copy_(3)
x.clone().copy_(torch.zeros(4))
r.copy_(x)
r.fill_(1)
r.zero_()
r.resize_(1)
r.t_()
x.expand(2, 2, 3).zero_()
i.requires_grad_()
i.clone().requires_grad_(True)
(r * 1).split(1)[0].mul_(2)
r.view(-1).zero_()
copy.deepcopy(r * 2)
x.fill_(x)
x.new_tensor('a')
x.new_full((2,), 'a')
torch.fill(x, x)
x.view()
x.apply_(3)
r.apply_(lambda v: v)
torch.zeros(2, device='meta').item()
torch.zeros(2, device='meta').numpy()
torch.zeros(2, device='meta').tolist()
torch.zeros(2, device='meta').cpu()
torch.zeros(2, device='meta') + torch.zeros(2)
torch.zeros(2, 3, out=torch.zeros(1), dtype=torch.int64)
torch.is_floating_point(3)
torch.numel(3)
x.set_(i.storage())
x.storage()[100]
x.contiguous(memory_format=torch.channels_last)
"""


@pytest.mark.parametrize("expression", PRINTED.strip().splitlines())
def test_printing_and_numbers(agrees, expression):
    agrees(expression)


@pytest.mark.parametrize("expression", QUERIES.strip().splitlines())
def test_queries(agrees, expression):
    agrees(expression)


@pytest.mark.parametrize("expression", CONVERSIONS.strip().splitlines())
def test_conversions_and_writes(agrees, expression):
    agrees(expression)


@pytest.mark.parametrize("expression", LEGACY.strip().splitlines())
def test_legacy_constructors(agrees, expression):
    agrees(expression)


@pytest.mark.parametrize("expression", COPIES.strip().splitlines())
def test_copies_and_meta_tensors(agrees, expression):
    agrees(expression)


@pytest.mark.parametrize("expression", ERRORS.strip().splitlines())
def test_errors(agrees, expression):
    agrees(expression)
