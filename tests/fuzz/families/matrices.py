"""Sparse tensors, decompositions and spectra."""

from __future__ import annotations

from ..draw import Draw
from .family import family, with_grads


def _sparse(draw: Draw, shape: tuple[int, ...], dtype: str) -> str:
    """A sparse matrix or batch of any layout, some elements given twice."""
    text = draw.tensor(shape, dtype, draw.kind())
    rank = len(shape)
    at = [
        [draw.number(0, max(n - 1, 0)) for n in shape[:2]]
        for _ in range(draw.number(0, 5) if min(shape, default=0) else 0)
    ]
    way = draw.number(0, 6)
    if way == 0 and rank >= 2 and at:
        values = draw.dense((len(at), *shape[2:]), dtype)
        made = f"torch.sparse_coo_tensor({[[i[d] for i in at] for d in range(2)]}, {values}, {shape})"
        return made + (".coalesce()" if draw.chance(0.4) else "")
    masked = f"({text} * ({draw.dense(shape, 'int64')} % 3 == 0))"
    if way <= 2 or rank < 2:
        return f"{masked}.to_sparse({draw.number(1, rank) if rank and draw.chance(0.3) else ''})"
    if way in (3, 4):
        return f"{masked}.to_sparse_cs{'rc'[way - 3]}()"
    return f"{masked}.to_sparse_bs{'rc'[way - 5]}(({draw.among(1, 2)}, {draw.among(1, 2)}))"


@family
def sparse(draw: Draw) -> list[str]:
    dtype = draw.among("float32", "float32", "float64", "complex64", "int64", "bool", "bfloat16")
    n, k, m = (draw.among(2, 4, 2, 4, 3, 1, 0) for _ in range(3))
    batch = (draw.number(1, 2),) if draw.chance(0.2) else ()
    a, b = _sparse(draw, (*batch, n, k), dtype), _sparse(draw, (*batch, n, k), dtype)
    c, d = _sparse(draw, (*batch, k, m), dtype), draw.tensor((*batch, k, m), dtype)
    grad = draw.chance(0.4) and dtype not in ("int64", "bool")
    lines = [f"a = {a}" + (".detach().requires_grad_()" if grad else ""), f"b = {b}", f"c = {c}", f"d = {d}", f"e = {draw.tensor((*batch, n, k), dtype)}", f"v = {draw.tensor((k,), dtype)}"]  # fmt: skip
    dim = draw.number(-2, 1)
    layout = draw.among("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "strided")
    block = ", blocksize=(2, 2)" if "_bs" in layout else ""
    call = draw.among(
        "a + b", "a - b", "a * b", "a * e", "e * a", "a + e", "e + a", "a * 2", "a / 2", "2 * a", "a / b", "-a", "a @ c", "a @ d", "e.mT @ a" if False else "a.mT", "a @ v", "torch.mv(a, v)",
        "torch.sparse.mm(a, d)", "torch.sparse.mm(a, c)", "torch.sparse.mm(a, d, 'mean')", "torch.mm(a, d)", "torch.addmm(e @ d, a, d, beta=0.5, alpha=2)", "torch.sparse.addmm(e @ d, a, d)",
        "torch.smm(a, d)", "torch.hspmm(a, d)", "torch.sspaddmm(a, b, e.mT)", "torch.bmm(a, d)", "torch.matmul(e, c)", "torch.sparse.sampled_addmm(a, e, e.mT @ e)",
        f"torch.sum(a, {dim})", "torch.sum(a)", f"torch.sparse.sum(a, {dim})", "torch.sparse.sum(a)", f"torch.sparse.softmax(a, {dim})", f"torch.sparse.log_softmax(a, {dim})", "a.to_dense()",
        f"a.to_sparse(layout=torch.{layout}{block})", "a.to_sparse_csr()", "a.to_sparse_csc()", "a.to_sparse_bsr((1, 2))", "a.to_sparse_coo()", f"a.to_dense().to_sparse(layout=torch.{layout}{block})",
        "a.transpose(0, 1)", "a.t()", "a.coalesce()", "a.sparse_mask(b)", "e.sparse_mask(a)", "a[0]", "a[:, 0]", "a[..., -1]", f"a.select({dim}, 0)", f"a.index_select({dim}, torch.tensor([1, 0, 0]))",
        f"a.narrow({dim}, 0, 1)", f"torch.narrow_copy(a, {dim}, 0, 1)", "torch.cat([a, b])", f"torch.cat([a, b], {dim})", "torch.stack([a, b])", "a.abs()", "a.sin()", "a.sqrt()", "a.neg()", "a.isnan()", "a.sign()",
        "a.relu()", "a.pow(2)", "a ** 0.5", "a.exp()", "torch.log1p(a)", "a.clone()", "a.to(torch.float64)", "a.to(torch.complex64)", "a.bool()", "a.conj()", "a.real", "torch.any(a)", "torch.norm(a)", "a.norm(p=1)",
        "a.mean()", "torch.zeros_like(a)", "torch.ones_like(a)", "torch.empty_like(a).shape", "a.unsqueeze(0)", "a.squeeze()", "a.flatten()", "a.reshape(-1)", "a.permute(1, 0)", "a.view(-1)", "a.is_coalesced()", "a._nnz()",
        "a.indices()", "a.values()", "a.crow_indices()", "a.col_indices()", "a.sparse_dim(), a.dense_dim()", "a.T @ e", "a.numel()", "torch.equal(a, b)", "torch.allclose(a, a)", "a == b", "a > 0", "torch.where(a, 1, 0)",
        "e.add_(a)", "e.mul_(a)", "e.copy_(a)", "a.add_(b)", "a.mul_(2)", "a.mul_(b)", "a.copy_(b)", "a.zero_()", "a.div_(2)", "a.div(2, rounding_mode='floor')", "a.floor_divide(2)", "a.t_()", "torch.nonzero(a)", "a.sparse_resize_((5, 5), 2, 0)",
        "F.linear(e, c.mT)", "F.relu(a)", "F.dropout(a, 0.5)", "F.embedding(torch.tensor([0]), a)", "a.tolist()", "a.numpy()", "torch.amax(a, 0)", "a.max()", "torch.argmax(a)", "a.cumsum(0)", "torch.tril(a)", "a.fill_(0)", "torch.add(a, b, alpha=3)", "torch.add(e, a, alpha=3)",
        "a.masked_fill(e > 0, 1)", "torch.dot(a[0], a[0])", "torch.svd_lowrank(a)[1].shape", "torch.pca_lowrank(a)[1].shape", "torch.spmm(a, d)", "torch.triangular_solve(d, a)", "torch.linalg.norm(a)", "torch.sparse.spdiags(e, torch.tensor([0, 1])[:e.shape[0]], (3, 3))",
        "a.requires_grad", "torch.bitwise_or(a, b)", "a.logical_not()", "torch.maximum(a, b)", "a.unbind()", "a.expand(2, *a.shape)", "a.repeat(2, 2)", "torch.broadcast_to(a, (2, *a.shape))", "a.diag()", "a.nan_to_num()", "a.ceil()", "a.trunc()", "a.isinf()", "a.signbit()", "a.erf()", "a.tanh()",
    )  # fmt: skip
    lines.append(f"result = {call}")
    if grad and draw.chance(0.7):
        lines += ["if not result.is_sparse and result.layout is not torch.strided: result = result.to_dense()", "slopes = torch.autograd.grad(result.to_dense().abs().sum() if result.layout is not torch.strided else (result * result).abs().sum(), a)"]  # fmt: skip
    return lines


def _matrix(draw: Draw, batch: tuple[int, ...], n: int, m: int, dtype: str) -> str:
    """Any matrix, singular ones among them, of which some have special values."""
    text = draw.tensor((*batch, n, m), dtype, "special" if draw.chance(0.05) else "plain", grad=False)
    if draw.chance(0.15):
        text = f"({text} * 0)"
    if draw.chance(0.6) and n == m:
        text = f"({text} + 3 * torch.eye({n}, dtype=torch.{dtype}))"
    return text


@family
def linalg(draw: Draw) -> list[str]:
    dtype = draw.among("float32", "float64", "float64", "complex64", "complex128", "complex128")
    batch = draw.shape(0, 2, 2) if draw.chance(0.5) else ()
    n, m, k = draw.size(3), draw.size(3), draw.size(3)
    square = draw.chance(0.7)
    grad = ".detach().requires_grad_()" if draw.chance(0.5) else ""
    a = _matrix(draw, batch, n, n if square else m, dtype)
    b = draw.tensor((*(draw.broadcast(batch) if draw.chance(0.2) else batch), n, k), dtype)
    lines = [
        f"a = {a}{grad}",
        f"b = {b}{grad}",
        f"s = a @ a.mH + torch.eye({n}, dtype=a.dtype) * {draw.among(1, 1, 0)}",
    ]
    flags = draw.options(upper=("True", "False"), left=("True", "False"), unitriangular="True")
    hermitian = draw.options(0.3, hermitian="True")
    call = draw.among(
        "torch.linalg.det(a)", "torch.linalg.slogdet(a)", "torch.logdet(a)", "torch.linalg.inv(a)", "torch.linalg.inv_ex(a)", "torch.linalg.solve(a, b)", "torch.linalg.solve(a, b.mT, left=False)",
        "torch.linalg.solve(a, b[..., 0])", "torch.linalg.solve_ex(a, b).info", "torch.linalg.cholesky(s)", "torch.linalg.cholesky(s, upper=True)", "torch.linalg.cholesky_ex(s)", "torch.cholesky_solve(b, torch.linalg.cholesky(s))",
        "torch.cholesky_inverse(torch.linalg.cholesky(s))", "torch.linalg.eigvalsh(s)", "torch.linalg.eigh(s).eigenvalues", "torch.linalg.eigh(s, UPLO='U').eigenvalues", "torch.linalg.eigvals(a).abs().sum(-1)", "torch.linalg.svdvals(a)",
        "torch.linalg.svd(a, full_matrices=False).S", "torch.linalg.qr(a).R.abs()", "torch.linalg.qr(a, mode='complete').R.abs()", "torch.linalg.qr(a, mode='r').R.abs()", "torch.linalg.lu(a)", "torch.linalg.lu_factor(a)", "torch.linalg.lu_factor_ex(a)",
        "torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b)", "torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b, adjoint=True)", "torch.linalg.ldl_factor(s)", "torch.linalg.ldl_solve(*torch.linalg.ldl_factor(s), b)",
        f"torch.linalg.solve_triangular(a.tril() if {square} else a, b, upper=False)", f"torch.linalg.solve_triangular(a.triu(), b{flags})", "torch.triangular_solve(b, a, upper=True, transpose=True).solution",
        f"torch.linalg.pinv(a{hermitian})", "torch.linalg.pinv(a, rtol=0.1)", f"torch.linalg.matrix_rank(a{hermitian})", "torch.linalg.matrix_rank(a, tol=0.5)", f"torch.linalg.matrix_power(a, {draw.number(-3, 4)})", "torch.linalg.matrix_exp(a / 4)",
        f"torch.linalg.matrix_norm(a, {draw.among(1, -1, 2, -2, 'inf', '-inf', repr('fro'), repr('nuc'))}{draw.options(keepdim='True', dim=(-1, 0) if draw.chance(0.2) else '(-2, -1)')})".replace("dim=-1", "dim=(-1, -2)").replace("dim=0", "dim=(-2, -1)"),
        f"torch.linalg.norm(a, {draw.among(None, 1, 2, 'inf', repr('fro'), 0, 3)})", f"torch.linalg.vector_norm(a, {draw.among(0, 1, 2, 3, 'inf', '-inf', 0.5, -1)}{draw.options(dim=draw.number(-2, 1), keepdim='True')})", f"torch.linalg.cond(a, {draw.among(None, 1, 2, -2, 'inf', repr('fro'))})",
        "torch.linalg.lstsq(a, b).solution", "torch.linalg.lstsq(a, b, driver='gelsd').rank", "torch.linalg.tensorinv(a, ind=1)", "torch.linalg.tensorsolve(a, b[..., 0])", "torch.linalg.householder_product(a, b[..., 0, :])", "torch.linalg.vander(b[..., 0])",
        "torch.linalg.cross(b, b + 1, dim=-2)", "torch.linalg.vecdot(b, b.conj())", "torch.linalg.diagonal(a, offset=1)", "torch.ormqr(a, b[..., 0, :], a)", "torch.lu_unpack(*torch.linalg.lu_factor(a))", "torch.geqrf(a).a.abs()", "torch.trace(a)", "torch.linalg.eig(a).eigenvalues.real.sum(-1)",
        "torch.linalg.matmul(a, b)", "torch.linalg.multi_dot([a, a, b])", "torch.block_diag(a, b)", "torch.lobpcg(s)[0]" if False else "torch.linalg.inv(s)", "torch.svd(a).S", "torch.linalg.svd(a).S", "torch.linalg.cholesky_ex(a).info", "torch.linalg.cholesky(a)", "torch.cholesky_inverse(s, upper=True)",
    )  # fmt: skip
    return with_grads(draw, [*lines, f"result = {call}"], "a, b")


@family
def spectra(draw: Draw) -> list[str]:
    dtype = draw.among("float32", "float32", "float64", "complex64", "complex128", "int64", "bool", "float16")
    shape = draw.shape(1, 3, 6)
    rank = len(shape)
    a = draw.tensor(shape, dtype, grad=draw.chance(0.6))
    norm = draw.options(0.5, norm=("'forward'", "'backward'", "'ortho'"))
    line = draw.among("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    dims = tuple(draw.dim(rank) for _ in range(draw.number(1, rank)))
    sizes = tuple(draw.number(1, 7) for _ in dims)
    call = draw.among(
        f"torch.fft.{line}(a{draw.options(n=draw.number(0, 8) if draw.chance(0.1) else draw.number(1, 8), dim=draw.dim(rank))}{norm})",
        f"torch.fft.{line}2(a{draw.options(s=str(tuple(draw.number(1, 6) for _ in range(2))), dim='(-1, -2)')}{norm})",
        f"torch.fft.{line}n(a, s={sizes}, dim={dims}{norm})", f"torch.fft.{line}n(a, dim={dims}{norm})", f"torch.fft.{line}n(a{norm})", f"torch.fft.fftshift(a{draw.options(dim=dims)})".replace("dim=" + str(dims[0]) + ")", f"dim={dims[0]})"),
        f"torch.fft.ifftshift(a, dim={dims})", f"torch.fft.fftfreq({draw.number(1, 7)}, d=0.5)", f"torch.fft.rfftfreq({draw.number(1, 7)})",
        f"torch.stft(a, {draw.number(1, 5)}{draw.options(hop_length=draw.number(1, 3), center='False', normalized='True', onesided='False')}, return_complex=True)",
        f"torch.istft(torch.stft(a, 4, 2, window=torch.ones(4), return_complex=True), 4, 2, window=torch.ones(4){draw.options(length=draw.number(1, 8))})",
    )  # fmt: skip
    return with_grads(draw, [f"a = {a}", f"result = {call}"], "a")
