"""Operators that change shapes, against PyTorch: values, autograd nodes and errors."""

from __future__ import annotations

import pytest

import flambeau

RESHAPED = """
x.view(3, 2)
x.view(-1)
x.view((6,))
x.view(torch.int32)
x.view(torch.int16).shape
x.view(torch.uint8).shape
i.view(torch.float64).dtype
x.view(dtype=torch.int32)
x.view_as(torch.zeros(6))
x.reshape(6)
x.t().reshape(-1)
x.flatten()
x.unsqueeze(0).squeeze().shape
x.unflatten(1, (3, 1)).shape
x.expand(2, 2, 3)
x.broadcast_to((1, 2, 3)).shape
x.permute(1, 0)
x.movedim(0, 1)
x.transpose(0, 1)
x.swapaxes(0, 1)
torch.atleast_3d(x).shape
x.ravel()
x.adjoint()
x.narrow(1, 0, 2)
x.select(0, 1)
x.unbind()
x.split(1)
x.split([1, 1])
x.chunk(2, 1)
x.tensor_split(2, 1)
x.hsplit(3)
x.vsplit(2)
x.unfold(1, 2, 1)
x.diagonal()
x.diag()
x[0].diag()
torch.diag_embed(x)
x.tril()
x.triu(1)
x.flip(0)
x.flip(0, 1)
x.fliplr()
x.roll(1)
x.roll((1, 1), (0, 1))
x.rot90()
x.repeat(2, 1)
x.tile(2)
x.repeat_interleave(2)
x.repeat_interleave(2, 0)
x.repeat_interleave(torch.tensor([1, 2]), 0)
torch.repeat_interleave(torch.tensor([1, 2]))
torch.cat([x, x])
torch.cat([x, x], 1)
torch.cat([x, i])
torch.cat([torch.empty(0), x])
torch.cat((x, x), dim=-1)
torch.stack([x, x], 1)
torch.hstack([x, x])
torch.vstack([x, x])
torch.dstack([x, x])
torch.column_stack([x[0], x[0]])
torch.constant_pad_nd(x, (1, 2), 9)
torch.constant_pad_nd(x, (-1, 0, 1, 0))
x.as_strided((2, 2), (1, 1))
x.clone().t_()
x.clone().squeeze_()
x.clone().unsqueeze_(1).shape
x.clone().transpose_(0, 1)
x.sum_to_size(1, 3)
torch.view_as_real(z)
torch.view_as_complex(torch.arange(4.).view(2, 2))
z.real
z.imag
x.real
torch.broadcast_tensors(x, s)
torch.broadcast_shapes((2, 1), (3,))
torch.unravel_index(torch.tensor([4, 5]), (2, 3))
"""

RECORDED = """
r.view(3, 2)
r.reshape(6)
r.t()
r.T
r.mT
r.permute(1, 0)
r.transpose(0, 1)
r.squeeze()
r.squeeze(0)
r.squeeze((0, 1))
r.unsqueeze(0)
r.expand(2, 2, 3)
r.t().reshape(-1)
r.flatten()
r.select(0, 0)
r.narrow(0, 0, 1)
r.split(1)
r.split([1, 1])
r.chunk(2)
r.unbind()
r.unfold(1, 2, 1)
r.diagonal()
r.diag()
r[0].diag()
r.tril()
r.triu()
r.flip(0)
r.roll(1)
r.rot90()
r.repeat(1, 2)
r.repeat_interleave(2)
torch.cat([r, r])
torch.stack([r, r])
torch.hstack([r, r])
torch.vstack([r, r])
torch.constant_pad_nd(r, (1, 1))
r.as_strided((2,), (1,))
r.clone()
r.double()
r.t().contiguous()
r.to(torch.float64)
torch.fill(r, 1.)
torch.fill(r, r[0, 0])
(r * 1).zero_()
(r * 1).fill_(1)
(r * 1).copy_(x)
(r * 1).t_()
(r * 1).squeeze_()
(r * 1).unsqueeze_(0)
torch.block_diag(r, r)
torch.complex(r, r)
torch.polar(r, r)
torch.diag_embed(r)
r.diagflat()
torch.tensor_split(r, 2)
r.movedim(0, 1)
r.narrow_copy(0, 0, 1)
r.sum_to_size(1, 3)
r.cfloat()
r.cfloat().real
torch.view_as_real(r.cfloat())
r.as_subclass(torch.Tensor)
r.detach()
"""

ERRORS = """
x[0].mT
x[0].H
s.mT
x.T.view(6)
x.view(4)
x.view(-1, -1)
x.view(-2, 3)
x.reshape(7)
x.view(torch.float64)
s.view(torch.float64)
x.expand(3, 3)
x.expand(2)
x.expand(-1, 2, 3)
x.permute(0)
x.permute(0, 0)
x.permute(0, 5)
x.transpose(0, 2)
x.unsqueeze(4)
x.squeeze(3)
x.narrow(0, 0, 5)
x.narrow(0, 5, 1)
x.select(0, 2)
s.select(0, 0)
x.split(-1)
x.split([1, 3])
s.split(1)
x.chunk(0)
s.unbind()
x.unfold(0, 3, 1)
x.unfold(0, 1, 0)
x.diagonal(0, 0, 0)
x.diagonal(0, 2)
torch.diag(x.unsqueeze(0))
x[0].tril()
x.flip(0, 0)
x.flip(5)
s.fliplr()
x.roll((1, 2))
x.roll((1, 2), 0)
x.rot90(1, (0, 0))
x.rot90(1, (0,))
x[0].rot90()
x.repeat(2)
x.repeat(-1, 1)
x.repeat_interleave(-1)
torch.cat([])
torch.cat([x, s])
torch.cat([x, x[0]])
torch.cat([x, torch.zeros(3, 3)], 1)
torch.cat([x, 1])
torch.cat([x, x], 2)
torch.stack([])
torch.stack([x, x[0]])
torch.stack([x, x], 4)
torch.hstack([])
torch.constant_pad_nd(x, (1,))
torch.constant_pad_nd(x, (1,) * 6)
torch.constant_pad_nd(x, (-2, -2))
x.as_strided((7,), (1,))
x.as_strided((2,), (1, 1))
x.as_strided((2,), (-1,))
x.as_strided((2,), (1,), -1)
torch.view_as_real(x)
torch.view_as_complex(x)
torch.view_as_complex(i)
x.imag
torch.broadcast_tensors(x, torch.zeros(4))
torch.broadcast_shapes((2,), (3,))
x.unflatten(1, (2, 2))
x.flatten(1, 0)
x.movedim((0, 1), (0,))
x.movedim((0, 0), (0, 1))
x.hsplit(2)
x[0].vsplit(1)
x.dsplit(1)
torch.meshgrid(x, indexing='ij')
torch.meshgrid(x[0], indexing='zz')
torch.cartesian_prod(x)
torch.combinations(x)
torch.block_diag(x.unsqueeze(0))
torch.complex(i, i)
torch.complex(x, x.double())
x.sum_to_size(4, 3)
torch.unravel_index(x, (2,))
"""


@pytest.mark.parametrize("expression", RESHAPED.strip().splitlines())
def test_values(agrees, expression):
    agrees(expression)


@pytest.mark.parametrize("expression", RECORDED.strip().splitlines())
def test_recorded_nodes(agrees, expression):
    agrees(expression)


@pytest.mark.parametrize("expression", ERRORS.strip().splitlines())
def test_errors(agrees, expression):
    agrees(expression)


def test_views_share_memory_and_copies_do_not():
    x = flambeau.arange(6.0).reshape(2, 3)
    views = [
        x.view(6),
        x.t(),
        x[1],
        x[:, :2],
        x.unsqueeze(0),
        x.expand(2, 2, 3),
        x.split(1)[1],
        x.diagonal(),
        x.unfold(1, 2, 1),
    ]
    copies = [
        x.flip(0),
        x.roll(1),
        x.repeat(1, 2),
        x.t().reshape(6),
        x.tril(),
        flambeau.cat([x, x]),
        flambeau.permute_copy(x, (1, 0)),
    ]
    before = [c.tolist() for c in copies]
    x.fill_(7.0)
    assert all(set(v.reshape(-1).tolist()) == {7.0} for v in views)
    assert [c.tolist() for c in copies] == before


def test_gradients_of_shape_operators_are_right():
    x = flambeau.arange(12.0, dtype=flambeau.float64).reshape(3, 4).requires_grad_()
    functions = [
        lambda t: t.view(2, 6), lambda t: t.t()[1:], lambda t: t.flip(0), lambda t: t.roll((1, 2), (0, 1)), lambda t: t.rot90(),
        lambda t: t.repeat(2, 3), lambda t: t.repeat_interleave(2, 1), lambda t: t.unfold(1, 3, 1), lambda t: t.diagonal(1),
        lambda t: t.as_strided((3, 3), (2, 1), 1), lambda t: t.tril(-1), lambda t: flambeau.constant_pad_nd(t, (1, -1, 2, 0)),
        lambda t: flambeau.stack(t.unbind(1)[::-1]), lambda t: flambeau.cat(t.split([1, 3], 1)[::-1], 1),
        lambda t: flambeau.block_diag(t, t[0]), lambda t: flambeau.diag_embed(t), lambda t: t.narrow_copy(1, 1, 2),
    ]  # fmt: skip
    for function in functions:
        assert flambeau.autograd.gradcheck(lambda t, f=function: f(t) ** 2, (x,))
        assert flambeau.autograd.gradgradcheck(lambda t, f=function: f(t) ** 3, (x,))


def test_one_layout_rule_serves_views_at_any_offset():
    x = flambeau.arange(24.0)
    for start in (0, 6, 12):
        part = x[start : start + 6].view(2, 3)
        assert part.t().tolist() == [[start + i, start + i + 3] for i in range(3)]


def test_arguments_must_be_ints_even_after_an_equal_int_worked():
    x = flambeau.zeros(2, 3)
    assert x.transpose(0, 1).shape == (3, 2) and x.view(3, 2).shape == (3, 2)
    with pytest.raises(TypeError):
        x.transpose(0.0, 1)
    with pytest.raises(TypeError):
        x.view(3.0, 2)
