"""Quantized tensors: parts, copies, activations and scales at the border, or the kind of the error, as with PyTorch."""

from __future__ import annotations

import pytest
from answers.programs import check, refusals, short

SETUP = """
t = L.tensor
x = exact(2, 3, 4)
def Q(v, s=0.05, z=10, k=L.quint8):
    return L.quantize_per_tensor(v, s, z, k)
q, i8 = Q(x), Q(x, 0.1, -3, L.qint8)
c = L.quantize_per_channel(exact(3, 4), t([0.1, 0.05, 0.2]), t([3, 10, 0]), 0, L.quint8)
"""
# A program for each line: expressions, between semicolons.
CALLS = """
c.q_scale(); q.q_scale(); q.q_zero_point(); c.q_zero_point(); q.q_per_channel_scales(); c.q_per_channel_scales(); c.q_per_channel_zero_points(); c.q_per_channel_axis(); q.q_per_channel_axis(); str(c.qscheme()); str(q.qscheme()); q.to(L.float32); q.to(L.qint8); q.to("cpu")
q.to(L.quint8); c.to("cpu"); q.cpu(); q.float(); q.int(); q.to(memory_format=L.channels_last)
q.clone().copy_(q); q.clone().copy_(i8); q.clone().copy_(x); q.clone().copy_(x.double()); x.clone().copy_(q); q.clone().copy_(x[:1]); c.clone().copy_(exact(3, 4) * 2); q.clone().copy_(Q(x, 0.2, 3)); q.clone().fill_(0.3); q.clone().fill_(100); q.clone().fill_(-100.0); c.clone().fill_(0.4); q.clone().fill_(t(0.25)); q.clone().zero_()
c.clone().zero_(); q.clone().resize_(2, 3); q.clone().resize_(6, 4); c.clone().resize_(2, 2); q.clone().resize_((24,)); q.resize(4, 6); q.resize(5); L.empty_like(q).shape; L.empty_like(q, dtype=L.quint8).dtype; L.empty_like(q, dtype=L.qint8); L.empty_like(q, dtype=L.float32); L.empty_like(c).qscheme(); L.zeros_like(q); L.ones_like(q)
q.select(0, 1); q.select(2, -1); q.select(0, 2); c.select(0, 1); q[0]; q[0, 1]; q[..., 1]; q[1:, ::2]; q[:, None]; q[None].shape; c[0]; c[..., 1:]; c[:, :2]; c[1:]
c[None]; q[0, 0, 0]; q[[0, 1]]; q[t([1, 0])]; q[x > 0]; q[:, 1, ...]; q[-1]; q[2]; c[[0]]; q.narrow(1, 1, 2); c.narrow(1, 1, 2); q.unbind(0); q.split(1, 0); q.chunk(2, 2)
q.squeeze(); Q(exact(1, 3, 1)).squeeze(); Q(exact(1, 3, 1)).squeeze(0); Q(exact(1, 3, 1)).squeeze(1); Q(exact(1, 3, 1)).squeeze(-1); L.quantize_per_channel(exact(3, 1, 4), t([0.1, 0.05, 0.2]), t([3, 10, 0]), 0, L.quint8).squeeze(1); L.quantize_per_channel(exact(1, 3, 4), t([0.1, 0.05, 0.2]), t([3, 10, 0]), 1, L.quint8).squeeze(0); q.unsqueeze(0).shape; c.unsqueeze(0); q.view(6, 4); q.view(-1); q.view(5); c.view(3, 2, 2); c.view(3, 4, 1)
q.reshape(4, 6); q.flatten(); q.transpose(0, 2); q.permute(2, 0, 1); c.t(); c.transpose(0, 1); c.permute(1, 0); q.t(); q.contiguous().shape; q.transpose(0, 1).contiguous(); q.expand(2, 2, 3, 4).shape
q.unflatten(2, (2, 2)).shape; q.movedim(0, 2); q.T.shape; q.mT
L.cat((q, q)); L.cat((q, q), 2); L.cat((q, Q(x, 0.2, 3))); L.cat((q, i8)); L.cat((c, c)); L.cat((q, q), 3); L.stack((q, q)); L.equal(q, q); L.equal(q, Q(x)); L.equal(q, Q(x, 0.06)); L.equal(q, Q(x, 0.05, 11)); L.equal(q, i8); L.equal(q, x); L.equal(x, q)
L.equal(c, c); q.equal(q.clone()); L.equal(c, q); q == q; q == x; q < 0.2; q != i8; q > q; q >= 0; q.eq(0.05); L.allclose(q.dequantize(), x, atol=0.03)
F.relu(q); q.relu(); q.clone().relu_(); F.relu(i8); i8.clone().relu_(); L.relu(c); c.clone().relu_(); F.relu6(q * 1) if False else 0; F.leaky_relu(q, 0.3); F.leaky_relu(i8, 0.3, True); L.clamp(q, -0.2, 0.3); q.clamp(min=0.1); q.clamp(max=0.1); F.hardtanh(q, -0.1, 0.4)
q.sigmoid(); q.tanh(); F.elu(q, 0.5); F.hardsigmoid(q); F.gelu(q); F.hardswish(q); F.threshold(q, 0.1, 0.2); q.max(); q.min(); q.max(1); q.sort(1); q.topk(2); q.mean(); q.mean((1, 2))
q.mean(0, True); q.std(1); q.sum(); q.median(); q.argmax(); F.avg_pool2d(Q(exact(1, 2, 4, 4)), 2); F.max_pool2d(Q(exact(1, 2, 4, 4)), 2); F.adaptive_avg_pool2d(Q(exact(1, 2, 5, 4)), (2, 3)); F.interpolate(Q(exact(1, 2, 3, 3)), scale_factor=2); F.interpolate(Q(exact(1, 2, 3, 3)), size=(5, 4), mode="bilinear"); F.pad(q, (1, 1)); F.pad(q, (1, 1), value=0.5); F.pad(q, (1, 1), "reflect"); F.max_pool1d(q, 2)
F.avg_pool1d(q, 2); F.adaptive_max_pool2d(Q(exact(1, 2, 4, 4)), 2)
q.masked_fill(x > 0, 0.2); q.masked_fill(x > 0, t(0.2)); q.clone().masked_fill_(x > 0, 0.2); c.masked_fill(exact(3, 4) > 0, 0.1); q.masked_fill(x > 0, 100); q.index_put((t([0]),), t(0.2)); q.index_put((t([0, 1]), t([1, 2])), exact(2, 4)); q.index_put((t([0]),), t(0.2), True); c.index_put((t([0]),), t(0.2)); q.index_select(0, t([1])); q.index_select(2, t([3, 0])); c.index_select(1, t([1])); q.gather(0, t([[[0]]])); q.flip(0)
q.flip(0, 2); c.flip(1); q.repeat(1, 1, 2); q.tile(2); q.tril(); q.clone().__setitem__(0, 0.5); (lambda r: (r.__setitem__(0, 0.5), r)[1])(q.clone()); (lambda r: (r.__setitem__((0, 1), x[0, 0]), r)[1])(q.clone()); (lambda r: (r.__setitem__(1, Q(x[0])), r)[1])(q.clone()); (lambda r: (r.__setitem__(x > 0, 0.1), r)[1])(q.clone()); (lambda r: (r.__setitem__(0, 0.5), r)[1])(c.clone())
q.tolist(); q.item(); q[0, 0, 0].item(); q.type(); c.type(); i8.type(); q.type(L.float32); q.type(L.qint8); q.new(2); q.new_zeros(2); q.numpy(); q.is_floating_point(); q.is_complex(); q.element_size()
q.nbytes; q.int_repr(); i8.int_repr(); c.int_repr(); q.dequantize(); c.dequantize(); L.dequantize([q, c]); x.dequantize(); q.numel(); q.stride(); q.is_contiguous(); q.is_quantized; x.is_quantized; q.dtype
q.storage().dtype; q.untyped_storage().nbytes(); q + q; -q; q.abs(); q @ q; q.requires_grad_(); q.detach().shape; repr(q[0, 0]); repr(c[:, :1]); str(i8[0, 0]); len(q); hash(q) == hash(q); [v.shape for v in q]
q.data.shape; q.share_memory_().shape; L.is_tensor(q); q.random_(); q.uniform_(); q.nonzero(); q.any(); L.where(x > 0, q, q); q.sqrt()
L.quantize_per_tensor(x, 0.1, 0, L.float32); L.quantize_per_tensor(x, 0.1, 300, L.quint8); L.quantize_per_tensor(x, 0.1, -1, L.quint8); L.quantize_per_tensor(x, 0.1, 255, L.quint8); L.quantize_per_tensor(x, 0.1, 128, L.qint8); L.quantize_per_tensor(x, -0.1, 1, L.quint8); L.quantize_per_tensor(x.long(), 0.1, 1, L.quint8); L.quantize_per_tensor(x.double(), 0.1, 1, L.quint8); L.quantize_per_tensor(q, 0.1, 1, L.quint8); L.quantize_per_tensor(x, 1e-6, 0, L.qint32).int_repr(); L.quantize_per_tensor([x, x * 2], t([0.1, 0.2]), t([0, 3]), L.qint8); L.quantize_per_tensor(x, t(0.1), t(3), L.quint8); L.quantize_per_tensor_dynamic(x, L.quint8, False); L.quantize_per_tensor_dynamic(x, L.quint8, True)
L.quantize_per_tensor_dynamic(x, L.qint8, False); L.quantize_per_tensor_dynamic(x, L.qint8, True).q_scale(); L.quantize_per_tensor_dynamic(x, L.float16, False).dtype; L.quantize_per_channel(exact(3, 4), t([0.1, 0.2]), t([0, 0]), 0, L.quint8); L.quantize_per_channel(exact(3, 4), t([0.1] * 4), t([0] * 4), 1, L.qint8); L.quantize_per_channel(exact(3, 4), t([0.1] * 4), t([0] * 4), 2, L.qint8); L.quantize_per_channel(exact(3, 4), t([0.1] * 4), t([0] * 4), -1, L.qint8); L.quantize_per_channel(exact(3, 4), t([0.1] * 3), t([0.5] * 3), 0, L.quint4x2) if False else 0; L.quantize_per_channel(exact(3, 4), t([0.1] * 3), t([1.5] * 3), 0, L.quint8); L.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255); L.fake_quantize_per_tensor_affine(x, 0.1, 3, 5, 2); L.fake_quantize_per_channel_affine(exact(3, 4), t([0.1, 0.2, 0.3]), t([0, 1, 2]), 0, -8, 7); L._make_per_tensor_quantized_tensor(x.byte(), 0.1, 3); L._make_per_channel_quantized_tensor(exact(3, 4).byte(), t([0.1, 0.2, 0.3]), t([0, 1, 2]), 0)
L._empty_affine_quantized((2, 3), scale=0.1, zero_point=2, dtype=L.quint8).q_scale(); L._empty_per_channel_affine_quantized((2, 3), scales=t([0.1, 0.2]), zero_points=t([0, 1]), axis=0, dtype=L.quint8).q_per_channel_axis()
"""


@pytest.mark.parametrize("program", refusals(CALLS), ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)
