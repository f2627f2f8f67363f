"""Sparse tensors: products, parts, sums and gradients of small matrices, or the kind of the error, as with PyTorch."""

from __future__ import annotations

import pytest
from answers.programs import check, refusals, short

SETUP = """
t = L.tensor
x = exact(3, 4)
x[0, 1] = x[2, 0] = x[1, 3] = 0
sp, sq, sr = x.to_sparse(), exact(4, 4).tril().to_sparse(), x.to_sparse_csr()
hy = L.sparse_coo_tensor(t([[0, 2, 0]]), exact(3, 4), (3, 4))
un = L.sparse_coo_tensor(t([[0, 2, 0, 1], [1, 3, 1, 0]]), exact(4), (3, 4))
ch = L.sparse_coo_tensor(t([[0, 2]]), exact(2, 3, 4), (5, 3, 4))
cc = x.to_sparse_csc()
def d(r):
    return [str(r.layout), r._nnz(), r.to_dense()] if r.layout != L.strided else ["strided", r]
def g(f, *given):
    leaves = [a.detach().clone().requires_grad_() for a in given]
    f(*leaves).sum().backward()
    return [d(a.grad) for a in leaves]
"""
# A program for each line: expressions, between semicolons.
CALLS = """
sp.mm(exact(4, 5)); d(L.mm(sp, sq)); L.mm(sp, exact(3, 4)); L.mm(hy, exact(4, 2)); L.mm(sp, exact(4)); d(L.mm(sr, sq.to_sparse_csr())); L.mm(sr, exact(4, 2)); L.mm(exact(2, 3), sp); d(L.mm(exact(2, 3), sr)); L.mm(ch, exact(4, 2)); L.mm(sp, ch); d(L.mm(sp, sp)); L.mm(sp, exact(4, 2).double()); sp @ exact(4, 2)
sp @ exact(4); d(sp @ sq); exact(2, 3) @ sp; exact(3) @ sp; sr @ exact(4); L.mv(sr, exact(4)); L.mv(sp, exact(4)); L.mv(sp, exact(3)); L.mv(sr, exact(3)); L.mv(sp, sp); L.mv(ch, exact(4)); L.mv(x, exact(4).to_sparse()); L.mv(hy, exact(4))
L.addmm(exact(3, 5), sp, exact(4, 5)); L.addmm(exact(3, 5), sp, exact(4, 5), beta=2, alpha=-3); L.addmm(exact(3, 5), sr, exact(4, 5), beta=2, alpha=-3); L.addmm(exact(3, 5), sp, exact(3, 5)); L.addmm(exact(5), sp, exact(4, 5)); L.addmm(exact(3, 5).double(), sp, exact(4, 5)); d(L.addmm(sp, sp, sq)); d(L.addmm(sp, sp, sq, beta=0)); d(L.addmm(sp, sp, sq, beta=2, alpha=3)); d(L.addmm(sr, sr, sq.to_sparse_csr(), beta=2, alpha=3)); L.addmm(sp, sp, exact(4, 4)); L.addmm(exact(3, 4), sr, sq.to_sparse_csr()); L.addmm(x, exact(3, 3), sr); L.sparse.addmm(exact(3, 5), sp, exact(4, 5), beta=2, alpha=3)
L.sparse.mm(sp, exact(4, 2)); d(L.sparse.mm(sp, sq)); L.sparse.mm(sr, exact(4, 2), "sum"); L.sparse.mm(sr, exact(4, 2), "mean"); L.sparse.mm(sr, exact(4, 2), "amax"); L.sparse.mm(sr, exact(4, 2), "amin"); L.sparse.mm(sr, exact(4, 2), "max"); L.sparse.mm(sp, exact(4, 2), "mean")
L.bmm(exact(2, 3, 4).to_sparse(), exact(2, 4, 2)); L.bmm(exact(2, 3, 4).to_sparse(), exact(2, 4, 2).to_sparse()); L.bmm(exact(2, 3, 4).to_sparse(), exact(3, 4, 2)); L.bmm(exact(2, 3, 4).to_sparse(), exact(2, 3, 2)); L.bmm(exact(2, 3, 4).to_sparse(), exact(2, 4, 2).double()); L.bmm(sp, exact(3, 4, 2)); L.bmm(ch, exact(5, 4, 2)); L.bmm(exact(2, 3, 4).to_sparse(), exact(4, 2)); L.bmm(exact(2, 3, 4), exact(2, 4, 2).to_sparse())
L.sspaddmm(x, sp, exact(4, 4)); L.sspaddmm(sp, x, exact(4, 4)); L.sspaddmm(sp, sp, sq); L.sspaddmm(sp, sp, exact(3, 4)); L.sspaddmm(sp, sp, exact(4, 5)); d(L.hspmm(sp, exact(4, 2))); L.hspmm(sr, exact(4, 2)); L.hspmm(x, exact(4, 2)); L.hspmm(sp, exact(3, 2)); L.hspmm(sp, sq); L.hspmm(sp, exact(4)); d(L.smm(sp, exact(4, 2))); d(L.dsmm(sp, exact(4, 2)))
L.triangular_solve(exact(3, 2), (exact(3, 3) + 2 * L.eye(3)).tril().to_sparse_csr(), upper=False)[0]; L.triangular_solve(exact(3, 2), (exact(3, 3) + 2 * L.eye(3)).triu().to_sparse_csr())[0]; L.triangular_solve(exact(3, 2), (exact(3, 3) + 2 * L.eye(3)).triu().to_sparse_csr(), transpose=True)[0]; L.triangular_solve(exact(3, 2), (exact(3, 3)).triu().to_sparse_csr(), unitriangular=True)[0]; L.triangular_solve(exact(3, 2), L.eye(3).to_sparse()); L.triangular_solve(exact(3, 2), L.eye(3).to_sparse_csc()); L.triangular_solve(exact(3, 2), L.zeros(3, 3).to_sparse_csr())[0]; L.triangular_solve(exact(3, 2), L.eye(3).to_sparse_csr())[1].shape
d(L.sparse.sampled_addmm(sr, exact(3, 2), exact(2, 4))); d(L.sparse.sampled_addmm(sr, exact(3, 2), exact(2, 4), beta=2, alpha=3)); L.sparse.sampled_addmm(sr, exact(3, 2), exact(3, 4)); d(L.sparse.sampled_addmm(sr, exact(2, 3, 2), exact(2, 2, 4))); d(L.sparse.sampled_addmm(sr, exact(2, 3, 2), exact(2, 2, 4), beta=0.5, alpha=2)); L.sparse.sampled_addmm(sr, exact(3, 2).double(), exact(2, 4)); L.sparse.sampled_addmm(sr.to(L.int32), exact(3, 2), exact(2, 4)); L.sparse.sampled_addmm(sr, exact(4, 2), exact(2, 4))
d(sp.t()); d(sp.transpose(0, 1)); d(hy.transpose(0, 1)); ch.transpose(0, 1); d(ch.permute(0, 2, 1)); ch.permute(1, 0, 2); d(exact(2, 3, 4).to_sparse().permute(2, 0, 1)); sp.permute(0); sp.permute(0, 0); sr.t().layout; d(sr.t()); d(cc.t()); L.stack((x, x)).to_sparse_csr().transpose(0, 1); d(L.stack((x, x)).to_sparse_csr().transpose(1, 2))
sp.transpose(0, 2); d(sp.transpose(0, 0)); d(sp.transpose_(0, 1))
d(sp.select(0, 1)); d(sp.select(1, -1)); sp.select(0, 3); sp.select(0, -4); d(sp.select(0, -3)); sp.select(2, 0); d(ch.select(0, 2)); d(ch.select(1, 1)); d(ch.select(2, -1)); d(ch.select(0, 1)); d(un.select(0, 0)); d(hy.select(0, 0)); hy.select(1, 2).layout; sr.select(0, 1)
d(sr.select(1, 1)); d(un[0]); un[0, 1]; sp[0, 1]; d(sp[..., 1]); d(sp[0, ...]); d(ch[..., 1]); d(ch[0, ..., 2]); d(sp[None]); d(sp[:, None]); d(ch[:, None, 1]); sp[0, 1, 2]; sp[3]; d(sp[1:])
d(sp[:, 1:3]); sp[::2]; d(sp[[0, 2]]); d(sp[t([2, 0])]); sp[x > 0]; d(ch[:, 1:]); d(ch[:, :, 1]); sr[0]; sr[0, 0]
d(sp.index_select(0, t([2, 0]))); d(sp.index_select(1, t([3, 0, 3]))); d(ch.index_select(0, t([2, 1, 2]))); d(ch.index_select(1, t([2, 0]))); d(ch.index_select(2, t([3, 3, 1]))); sp.index_select(0, t([3])); sp.index_select(0, t([-4])); d(sp.index_select(0, t([-1]))); sp.index_select(2, t([0])); d(sp.index_select(0, t([]).long())); d(un.index_select(1, t([1, 1])))
d(sp.narrow_copy(0, 1, 2)); d(sp.narrow_copy(1, 0, 3)); d(ch.narrow_copy(1, 1, 2)); d(ch.narrow_copy(2, 0, 1)); d(ch.narrow_copy(0, 2, 3)); sp.narrow_copy(0, 1, 3); sp.narrow_copy(0, -1, 1); d(sp.narrow_copy(0, 1, 0)); sp.narrow_copy(0, 0, -1); sp.narrow(0, 0, 1); d(un.narrow_copy(1, 1, 1)); sp.narrow_copy(0, 3, 0)
d(L.cat((sp, sp))); d(L.cat((sp, sp), 1)); d(L.cat((sp, un), -1)); d(L.cat((ch, ch), 1)); d(L.cat((ch, ch), 2)); d(L.cat((ch, ch), 0)); L.cat((sp, x)); L.cat((x, sp)); L.cat((sp, ch)); L.cat((sp, hy)); L.cat((sp, sq)).shape; L.cat((sp, sq), 1); L.cat((sp, sp), 2); d(L.cat((sp, sp.double())))
d(L.stack((sp, sp))); d(L.stack((sp, sp), 1)); d(L.stack((sp, sp), 2)); L.stack((sp, x))
d(sp + sp); d(sp + un); d(un + un); d(sp - un); d(L.add(sp, un, alpha=3)); x + sp; d(sp + x); sp + 1; 1 + sp; sp + sq; sp + hy; d(hy + hy); hy + sp; sr + sr
d(sr + sr); sr + sq.to_sparse_csr(); x + sr; sr + x; d(sp * 2); d(2 * sp); d(sp * sp); d(sp * un); d(sp * x); d(x * sp); sp * sq; sp * exact(4); d(sp * exact(3, 1)); sp * exact(2, 3, 4)
d(sp * t(2.0)); d(t(2.0) * sp); d(hy * hy); d(hy * sp); d(hy * x); d(sr * 2); d(sr * sr); d(sr * x); sr * sq.to_sparse_csr(); d(sr * t(3.0)); d(sp / 2); d(sp / t(2.0)); sp / x; sp / sp
1 / sp; d(L.div(sp, 2, rounding_mode="floor")); d(L.div(sp, 2, rounding_mode="trunc")); d(sp // 1); d(sp // 0.5); sp % 2; sp ** 2; d(sp ** 2); d(L.pow(sp, 3)); d(sp ** 0.5); sp ** 0; sp ** -1; 2 ** sp; sp ** sp
d(sp.square()); d(L.positive(sp)); d(+sp); L.positive(sp.to(L.complex64)).to_dense(); d(-sp); d(-sr)
d(sp.clone().add_(un)); d(sp.clone().mul_(2)); d(sp.clone().mul_(x)); sp.clone().add_(x); x.clone().add_(sp); x.clone().mul_(sp); d(sp.clone().div_(2)); sp.int().div_(2); d(sp.int().mul_(2)); sp.int().mul_(2.5); sp.int().add_(sp); d(sp.clone().sub_(un)); d(sp.clone().neg_()); d(sp.clone().conj_physical_())
d(sp.to(L.complex64).conj_physical_()); L.conj_physical(sp.to(L.complex64)).to_dense(); d(sr.clone().mul_(2)); d(sr.clone().copy_(sr * 2)); sr.clone().copy_(sp); sr.clone().copy_(sq.to_sparse_csr()); sr.clone().copy_(cc); d(sp.clone().copy_(un)); sp.clone().copy_(x); x.clone().copy_(sp); sp.clone().copy_(sq); d(sp.double().copy_(sp)); d(sp.int().copy_(sp * 3)); sp.clone().pow_(2)
d(sp.clone().zero_()); d(sp.clone().sqrt_()); d(sp.clone().abs_())
g(lambda a: (a * x), sp); g(lambda a: a.to_dense() * 2, sp); g(lambda a, b: L.mm(a, b), sp, exact(4, 2)); g(lambda a: L.sparse.sum(a / 2), sp); g(lambda a, b: (L.sparse.sum(a / b)), sp, t(2.0)); g(lambda a, b: L.sparse.mm(a, b), sr, exact(4, 2)); g(lambda a, b: L.mm(a, b).to_dense(), sp, sq); g(lambda a, b: L.addmm(exact(3, 2), a, b, beta=2, alpha=3), sp, exact(4, 2)); g(lambda a, b: (a * b).to_dense(), sp, un); g(lambda a: a.coalesce().values() * exact(9), sp); g(lambda a: (a + a).to_dense(), un); g(lambda v: L.sparse_coo_tensor(t([[0, 2, 0]]), v, (3,)).to_dense() * exact(3), exact(3)); g(lambda a: L.div(a, 2, rounding_mode="floor").to_dense(), sp); g(lambda a: a.to_dense() @ exact(4, 2), sr)
g(lambda a, b: (a * b).to_dense(), sp, t(3.0)); g(lambda a: a.values(), sp.coalesce()); g(lambda a: a._values(), un); g(lambda a: L.sparse.softmax(a, 1).to_dense() * x, sp); g(lambda a: L.sparse.log_softmax(a, 0).to_dense() * x, sp); g(lambda a: a.to_sparse_csr().to_dense() * x, x); g(lambda a: a.sparse_mask(sp).to_dense() * x, x); g(lambda a: a.permute(1, 0).to_dense() * x.T, sp)
sp.clone().copy_(sq).shape; d(sp.clone().copy_(ch)); d(ch.clone().copy_(sp)); d(ch.clone().copy_(hy.t())); sr.clone().copy_(L.stack((x, x)).to_sparse_csr()); g(lambda a: (sq.clone().copy_(a)).to_dense() * x, sp); d(L.zeros(0).to_sparse().copy_(sp)); d(sp.clone().copy_(L.zeros(2, 2).to_sparse()))
"""


@pytest.mark.parametrize("program", refusals(CALLS), ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)
