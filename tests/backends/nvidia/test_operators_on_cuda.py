"""What the kernels for NVIDIA GPUs do around their library calls: formats, copies, paddings, batches, cases without a library.

There is no GPU here. The libraries are replaced by NumPy and SciPy working on host memory by the same interfaces, and the kernels compute
tensors of the CPU; results must be what PyTorch gives."""

import contextlib
import ctypes
import math

import numpy as np
import pytest
from answers import judge

import flambeau as ft
from flambeau.backends import nvidia
from flambeau.backends.nvidia import (
    cublas,
    cublaslt,
    cudnn_attention,
    cudnn_conv,
    cudnn_graph,
    cudnn_rnn,
    cufft,
    cusolver,
    operators,  # noqa: F401  declares the kernels
)
from flambeau.ops import OPS
from flambeau.ops.nn import rnn

torch = judge("torch")
lapack = pytest.importorskip("scipy.linalg.lapack", reason="SciPy stands for cuSOLVER")


# -- the libraries, on the host ---------------------------------------------------------------------------------------------


def _at(address, count, d):
    """`count` elements at an address."""
    kind = np.dtype(d)
    return np.frombuffer((ctypes.c_char * (count * kind.itemsize)).from_address(address), kind)


def _columns(address, m, n, d):
    return _at(address, m * n, d.numpy).reshape(n, m).T


def _letter(name, d):
    return getattr(lapack, {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}[d.name] + name)


def _matmul(out, a, b, bias=None, epilogue="", alpha=1, beta=0, scales=None):
    for t in (out, a, b):
        assert cublaslt.matrix_order(t.shape, t._strides) is not None
    wide = (lambda t: t) if a.dtype.is_complex or a.dtype is ft.float64 else (lambda t: t.float())
    x, y, z = (wide(t._bare_alias())._array() for t in (a, b, out))
    found = alpha * (x @ y) + (beta * z if beta else 0)
    if scales is not None:
        found = found * float(scales[0]) * float(scales[1])
    if bias is not None:
        assert cublaslt.matrix_order(out.shape, out._strides)[0]
        found = found + wide(bias._bare_alias())._array()
    made = ft.from_numpy(np.ascontiguousarray(found)).to(out.dtype)
    if epilogue:
        made = ft.nn.functional.gelu(made) if epilogue == "gelu" else made.relu()
    out._array()[...] = made._array()


def _dot(out, n, x, x_step, y, y_step, d, where):
    first, second = (_at(p, (n - 1) * s + 1, d.numpy)[::s] for p, s in ((x, x_step), (y, y_step)))
    _at(out, 1, d.numpy)[0] = (first * second).sum()


def _trsm(b, ldb, a, lda, m, n, side, uplo, trans, unit, d, where):
    k = n if side else m
    matrix = _at(a, lda * (k - 1) + k, d.numpy)
    matrix = np.lib.stride_tricks.as_strided(matrix, (k, k), (d.itemsize, lda * d.itemsize))
    matrix = np.triu(matrix) if uplo else np.tril(matrix)
    if unit:
        matrix = matrix - np.diag(np.diag(matrix)) + np.eye(k, dtype=matrix.dtype)
    matrix = matrix.T if trans else matrix
    right = _columns(b, m, n, d)
    right[...] = np.linalg.solve(matrix.T, right.T).T if side else np.linalg.solve(matrix, right)


def _trsm_batch(b, ldb, a, lda, m, n, side, uplo, trans, unit, count, d, where):
    for x, y in zip(_at(b, count, np.int64), _at(a, count, np.int64)):
        _trsm(int(x), ldb, int(y), lda, m, n, side, uplo, trans, unit, d, where)


def _cholesky(a, n, uplo, info, d, where):
    x = _columns(a, n, n, d)
    found, code = _letter("potrf", d)(np.asfortranarray(x), lower=not uplo, clean=False)
    x[...] = found
    _at(info, 1, np.int32)[0] = code


def _cholesky_batch(a, n, uplo, infos, count, d, where):
    for i, x in enumerate(_at(a, count, np.int64)):
        _cholesky(int(x), n, uplo, infos + 4 * i, d, where)


def _lu(a, m, n, pivots, info, d, where):
    x = _columns(a, m, n, d)
    if not pivots:
        for j in range(min(m, n)):
            x[j + 1 :, j] /= x[j, j]
            x[j + 1 :, j + 1 :] -= np.outer(x[j + 1 :, j], x[j, j + 1 :])
        return
    found, swaps, code = _letter("getrf", d)(np.asfortranarray(x))
    x[...] = found
    _at(pivots, min(m, n), np.int32)[...] = swaps + 1
    _at(info, 1, np.int32)[0] = code


def _lu_batch(a, n, pivots, infos, count, d, where):
    for i, x in enumerate(_at(a, count, np.int64)):
        _lu(int(x), n, n, pivots and pivots + 4 * n * i, infos + 4 * i, d, where)


def _lu_solve(a, n, pivots, b, k, trans, info, d, where):
    x = _columns(b, n, k, d)
    x[...] = _letter("getrs", d)(_columns(a, n, n, d).copy(), _at(pivots, n, np.int32) - 1, x.copy(), trans=trans)[0]


def _qr(a, m, n, tau, info, d, where):
    x = _columns(a, m, n, d)
    found, factors, _, _ = _letter("geqrf", d)(np.asfortranarray(x))
    x[...] = found
    _at(tau, min(m, n), d.numpy)[...] = factors


def _hermitian(a, n, values, vectors, uplo, info, d, where):
    x = _columns(a, n, n, d)
    w, v = np.linalg.eigh(x, "U" if uplo else "L")
    _at(values, n, d.to_real().numpy)[...] = w
    if vectors:
        x[...] = v


def _singular(a, m, n, values, u, vh, job, info, d, where):
    assert m >= n
    left, s, right = np.linalg.svd(_columns(a, m, n, d), full_matrices=job == "A")
    _at(values, n, d.to_real().numpy)[...] = s
    if job != "N":
        _columns(u, m, left.shape[1], d)[...] = left
        _columns(vh, n, n, d)[...] = right


def _eigen(a, n, values, vectors, info, d, where):
    w, v = np.linalg.eig(_columns(a, n, n, d))
    _at(values, n, d.numpy)[...] = w
    if vectors:
        _columns(vectors, n, n, d)[...] = v


def _transform(out, x, sizes, batch, forward=True):
    count = math.prod(sizes)
    half = (*sizes[:-1], sizes[-1] // 2 + 1)
    axes = tuple(range(1, len(sizes) + 1))
    given, made = (
        sizes if t.dtype.is_complex == o.dtype.is_complex or not t.dtype.is_complex else half
        for t, o in ((x, out), (out, x))
    )
    source = _at(x.data_ptr(), batch * math.prod(given), x.dtype.numpy).reshape(batch, *given)
    result = _at(out.data_ptr(), batch * math.prod(made), out.dtype.numpy).reshape(batch, *made)
    if not x.dtype.is_complex:
        result[...] = np.fft.rfftn(source, axes=axes)
    elif not out.dtype.is_complex:
        result[...] = np.fft.irfftn(source, sizes, axes) * count
    else:
        result[...] = np.fft.fftn(source, axes=axes) if forward else np.fft.ifftn(source, axes=axes) * count


def _as_torch(t, last):
    made = torch.from_numpy(t._array())
    shape = t.shape
    wanted = (
        torch.empty(shape).to(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)
        if last
        else None
    )
    strides = wanted.stride() if last else torch.empty(shape).stride()
    assert all(n == 1 or s == w for n, s, w in zip(shape, t._strides, strides))
    return made


def _convolve(kind, x, w, y, stride, padding, dilation, last):
    x, w, y = (_as_torch(t, last) for t in (x, w, y))
    groups, zeros = x.shape[1] // w.shape[1], [0] * len(stride)
    if kind == "forward":
        y.copy_(torch.convolution(x, w, None, stride, padding, dilation, False, zeros, groups))
        return
    wants = [kind == "input", kind == "weight", False]
    found = torch.ops.aten.convolution_backward(
        y, x.clone(), w.clone(), None, stride, padding, dilation, False, zeros, groups, wants
    )
    (x if kind == "input" else w).copy_(found[0 if kind == "input" else 1])


class _Module:
    def __init__(self, source, where):
        pass

    def function(self, name, kinds):
        assert (name, kinds) == ("order_of", tuple("qqqqq"))

        def order_of(grid, block, orders, swaps, k, m, count):
            order = _at(orders, count * m, np.int64).reshape(count, m)
            for row, own in zip(order, _at(swaps, count * k, np.int32).reshape(count, k)):
                row[...] = range(m)
                for j, there in enumerate(np.clip(own - 1, 0, m - 1)):
                    row[j], row[there] = row[there], row[j]

        return order_of


_REPLACED = [
    (cublaslt, "matmul", _matmul), (cublaslt, "known_plan", lambda *given: None), (cublas, "dot", _dot), (cublas, "solve_triangular", _trsm),
    (cublas, "solve_triangular_batch", _trsm_batch), (cublas, "lu_batch", _lu_batch), (cusolver, "cholesky", _cholesky),
    (cusolver, "cholesky_batch", _cholesky_batch), (cusolver, "lu", _lu), (cusolver, "lu_solve", _lu_solve), (cusolver, "qr", _qr),
    (cusolver, "hermitian_eigen", _hermitian), (cusolver, "singular", _singular), (cusolver, "eigen", _eigen),
    (cufft, "transform", _transform), (cudnn_conv, "convolve", _convolve), (cudnn_conv, "run_known", lambda *given: False),
    (cudnn_conv, "keep", lambda *given: None), (nvidia, "load_source", _Module),
]  # fmt: skip
_ROOMS = ("matmul", "conv", "rnn", "fft", "linalg")


@contextlib.contextmanager
def _in_the_place_of_the_cpu():
    """The kernels of the GPU compute tensors of the CPU."""
    changed = []
    for op in OPS.values():
        kernel = op.kernels.get("cuda")
        home = getattr(kernel, "func", kernel).__module__ if kernel is not None else ""
        if kernel is not None and (home.rpartition(".")[2] in _ROOMS):
            changed.append((op, op.kernels.get("cpu")))
            op.kernels["cpu"] = kernel
            op.chosen.clear()
    patch = pytest.MonkeyPatch()
    for module, name, fake in _REPLACED:
        patch.setattr(module, name, fake)
    try:
        yield
    finally:
        patch.undo()
        for op, kernel in changed:
            if kernel is None:
                del op.kernels["cpu"]
            else:
                op.kernels["cpu"] = kernel
            op.chosen.clear()


@pytest.fixture(autouse=True)
def library():
    with ft.backends.mkldnn.flags(enabled=False), _in_the_place_of_the_cpu():
        yield


# -- comparing --------------------------------------------------------------------------------------------------------------


def _pair(*shape, d="float32", seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    theirs = torch.randn(*shape, dtype=getattr(torch, d), generator=generator)
    return _ours(theirs), theirs


def _ours(t):
    if t.dtype is torch.bfloat16:
        return ft.from_numpy(t.float().numpy().copy()).to(ft.bfloat16)
    return ft.from_numpy(t.numpy().copy())


def _close(ours, theirs, tolerance=2e-4):
    if isinstance(theirs, (tuple, list)):
        for a, b in zip(ours, theirs):
            _close(a, b, tolerance)
        return
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
    wide = ours.float() if ours.dtype is ft.bfloat16 else ours
    np.testing.assert_allclose(
        wide.detach().numpy(), (theirs.float() if theirs.dtype is torch.bfloat16 else theirs).detach().resolve_conj().numpy(),
        tolerance, tolerance * 10,
    )  # fmt: skip


def _both(f, *tensors, grad=False, tolerance=2e-4):
    """f(module, *tensors) by both, and its gradients."""
    ours, theirs = [_ours(t) for t in tensors], [t.clone() for t in tensors]
    if grad:
        ours, theirs = ([t.requires_grad_() for t in side] for side in (ours, theirs))
    a, b = f(ft, *ours), f(torch, *theirs)
    _close(a, b, tolerance)
    if grad:
        first = a[0] if isinstance(a, tuple) else a
        second = b[0] if isinstance(b, tuple) else b
        g = torch.randn(second.shape, dtype=second.dtype, generator=torch.Generator().manual_seed(1))
        first.backward(_ours(g))
        second.backward(g)
        _close([t.grad for t in ours], [t.grad for t in theirs], tolerance * 10)


def _r(*shape, d="float32", seed=0):
    return _pair(*shape, d=d, seed=seed)[1]


# -- matrix products --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", ["float32", "bfloat16", "float64", "complex64"])
def test_products(d):
    tolerance = 2e-2 if d == "bfloat16" else 2e-4
    a, b, v = _r(5, 7, d=d), _r(7, 4, d=d), _r(7, d=d)
    _both(lambda m, x, y: x @ y, a, b, tolerance=tolerance)
    _both(lambda m, x, y: x.t() @ y, _r(7, 5, d=d), b, tolerance=tolerance)
    _both(lambda m, x, y: x[:, ::2] @ y[::2], a, b, tolerance=tolerance)
    _both(lambda m, x, y: x @ y, a, v, tolerance=tolerance)
    _both(lambda m, x, y: m.addmm(x, y, y.t(), beta=0.5, alpha=2), _r(5, d=d), a, tolerance=tolerance)
    _both(lambda m, x, y: m.addmm(x, y, y.t()), _r(5, d=d), a, tolerance=tolerance)
    _both(
        lambda m, x, y, z: m.nn.functional.linear(x, y, z),
        _r(2, 3, 7, d=d),
        _r(4, 7, d=d),
        _r(4, d=d),
        tolerance=tolerance,
    )
    _both(lambda m, x, y: m.bmm(x, y.expand(3, 7, 4)), _r(3, 5, 7, d=d), b, tolerance=tolerance)
    if d != "bfloat16":
        _both(lambda m, x: m.dot(x, x), v)
        _both(lambda m, x, y: m.nn.functional.linear(x, y).sum(0), _r(6, 7, d=d), _r(1, 7, d=d), grad=True)


def test_products_of_nothing_and_of_integers():
    _both(lambda m, x, y: m.addmm(x, y[:, :0], y[:, :0].t()), _r(5), _r(5, 7))
    with pytest.raises(NotImplementedError, match="addmm_cuda.*not implemented for 'Long'"):
        ft.ones(2, 2, dtype=ft.int64) @ ft.ones(2, 2, dtype=ft.int64)


def test_scaled_products_and_activations(library):
    a, b = (t.to(torch.float8_e4m3fn) for t in (_r(16, 32), _r(16, 32, seed=1)))
    mine = [ft.from_numpy(t.float().numpy().copy()).to(ft.float8_e4m3fn) for t in (a, b)]
    for scales in ((torch.tensor(0.5), torch.tensor(2.0)), (torch.rand(16, 1), torch.rand(1, 16))):
        wanted = (a.float() * scales[0]) @ (b.float().t() * scales[1])
        found = ft._scaled_mm(mine[0], mine[1].t(), *map(_ours, scales), out_dtype=ft.float32)
        _close(found, wanted, 1e-3)
    with pytest.raises(RuntimeError, match="divisible by 16"):
        ft._scaled_mm(mine[0][:, :8], mine[1][:, :8].t(), ft.ones(()), ft.ones(()))
    with pytest.raises(ValueError, match="Invalid scaling configuration"):
        ft._scaled_mm(mine[0], mine[1].t(), ft.ones(3), ft.ones(()))
    for use_gelu in (False, True):
        _both(lambda m, c, x, y: m._addmm_activation(c, x, y, use_gelu=use_gelu), _r(4), _r(5, 7), _r(7, 4))  # noqa: B023


# -- convolutions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [{}, {"stride": 2, "padding": 1}, {"padding": "same"}, {"dilation": 2, "groups": 2}]
)
def test_convolutions(settings):
    x, w, b = _r(2, 4, 9, 8), _r(6, 4 // settings.get("groups", 1), 2, 4), _r(6)
    _both(lambda m, *t: m.nn.functional.conv2d(*t, **settings), x, w, b, grad=True)
    _both(
        lambda m, x, w, b: m.nn.functional.conv2d(x.to(memory_format=m.channels_last), w, b, **settings),
        x,
        w,
        b,
        grad=True,
    )

    _both(lambda m, *t: m.nn.functional.conv1d(*t, **settings), x[:, :, 0], w[:, :, 0], b, grad=True)


def test_transposed_and_complex_convolutions():
    x, w = _r(2, 4, 5, 6), _r(4, 3, 3, 3)
    for settings in ({}, {"stride": 3, "padding": 1, "output_padding": 2}, {"dilation": 2}):
        _both(lambda m, *t: m.nn.functional.conv_transpose2d(*t, **settings), x, w, _r(3), grad=True)  # noqa: B023
    _both(lambda m, *t: m.nn.functional.conv3d(*t, padding=1), _r(1, 2, 4, 5, 6), _r(3, 2, 3, 3, 3), grad=True)
    _both(lambda m, *t: m.nn.functional.conv1d(*t), _r(2, 3, 8, d="complex64"), _r(4, 3, 3, d="complex64"), grad=True)


# -- recurrent layers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers(kind):
    theirs = getattr(torch.nn, kind)(5, 6, 2, bidirectional=True)
    ours = getattr(ft.nn, kind)(5, 6, 2, bidirectional=True)
    ours.load_state_dict({k: ft.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()})
    x = _r(4, 3, 5)
    a, b = ours(_ours(x))[0], theirs(x)[0]
    _close(a, b)
    a.square().sum().backward()
    b.square().sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters()):
        _close(p.grad, q.grad, 2e-3)


@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
@pytest.mark.parametrize("biased", [False, True])
def test_networks_for_a_library(kind, biased, monkeypatch, replace_kernel):
    """The library gets all weights in one block, where it looks for them, and its result is that of the layers one by one."""
    op = OPS["internal.rnn_network"]
    gates, hidden, inputs, layers = rnn.GATES[kind], 6, 5, 2

    def compute(results, kind, data, h0, c0, weights, sizes, layers, both, biased, kept):
        starts = cudnn_rnn._order(kind, inputs, hidden, layers, 2, biased, 4)
        assert starts[-1] == weights.numel() * 4
        parts = [weights[a // 4 : b // 4] for a, b in zip(starts, starts[1:])]
        joined = [ft.cat(parts[i : i + gates]) for i in range(0, len(parts), gates)]
        matrices = [w.reshape(gates * hidden, -1) for w in joined[: 4 * layers]]
        biases = joined[4 * layers :]
        params = [p for i in range(0, 4 * layers, 2) for p in (*matrices[i : i + 2], *biases[i : i + 2])]
        with monkeypatch.context() as plain:
            plain.delitem(rnn.fused_networks, "cpu")
            found = rnn._run_stack(kind, data, sizes, h0, c0, (params, biased, layers, 0.0, True, both), False)
        for result, value in zip(results, [t for t in found if t is not None]):
            result.copy_(value)

    replace_kernel(op, "cpu", compute)
    sizes = (3, 3, 2, 1)
    shapes = [(gates * hidden, inputs), (gates * hidden, hidden), *[(gates * hidden,)] * 2 * biased] * 2
    shapes += [(gates * hidden, 2 * hidden), *shapes[1 : len(shapes) // 2]] * 2
    params = [_ours(_r(*shape, seed=i)) * 0.3 for i, shape in enumerate(shapes)]
    data, h0 = _ours(_r(9, inputs)), _ours(_r(2 * layers, 3, hidden))
    arguments = (
        kind,
        data,
        sizes,
        h0,
        h0 if kind == "lstm" else None,
        (params, biased, layers, 0.0, True, True),
        False,
    )
    wanted = rnn._run_stack(*arguments)
    calls = []
    monkeypatch.setitem(rnn.fused_networks, "cpu", lambda *given: calls.append(given) or 8)
    found = rnn._run_stack(*arguments)
    assert len(calls) == 1
    for a, b in zip(found, wanted):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-6)
    params[0] = params[0][:-1]  # what does not fit goes the ordinary way, which says so
    with pytest.raises(RuntimeError):
        rnn._run_stack(*arguments)
    assert len(calls) == 1
    op.chosen.clear()


# -- Fourier transforms -----------------------------------------------------------------------------------------------------


def test_transforms():
    z, x = _r(3, 4, 5, 6, d="complex64"), _r(3, 4, 5, 6)
    for dim in ((0,), (1, 3), (3, 1), (0, 1, 2), (0, 1, 2, 3)):
        for norm in ("backward", "ortho"):
            _both(lambda m, t: m.fft.fftn(t, dim=dim, norm=norm), z, grad=True)  # noqa: B023
            _both(lambda m, t: m.fft.ifftn(t.transpose(0, 2), dim=dim, norm=norm), z)  # noqa: B023
        _both(lambda m, t: m.fft.rfftn(t, dim=dim), x, grad=True)  # noqa: B023
        _both(lambda m, t: m.fft.irfftn(t, dim=dim), z)  # noqa: B023
        _both(lambda m, t: m.fft.fftn(t, dim=dim), x)  # noqa: B023
    _both(lambda m, t: m.fft.irfft(t, n=7), z, grad=True)
    _both(lambda m, t: m.fft.hfft(t, n=4), z)


# -- linear algebra ---------------------------------------------------------------------------------------------------------

_DTYPES = ["float32", "float64", "complex128"]
_SHAPES = [(4, 4), (3, 4, 4), (2, 1, 4, 4)]


@pytest.mark.parametrize("d", _DTYPES)
@pytest.mark.parametrize("shape", _SHAPES)
def test_square_matrices(d, shape):
    A = _r(*shape, d=d) + 3 * torch.eye(4, dtype=getattr(torch, d))
    P = A @ A.mH + torch.eye(4, dtype=A.dtype)
    B = _r(*shape[:-1], 3, d=d)
    _both(lambda m, a: m.linalg.cholesky(a), P, grad=True)
    _both(lambda m, a: m.linalg.cholesky(a, upper=True), P)
    _both(lambda m, b, a: m.cholesky_solve(b, m.linalg.cholesky(a)), B, P)
    _both(lambda m, a: m.cholesky_inverse(m.linalg.cholesky(a)), P)
    _both(lambda m, a, b: m.linalg.solve(a, b), A, B, grad=True)
    _both(lambda m, a, b: m.linalg.solve(a, b.mT, left=False), A, B)
    _both(lambda m, a: m.linalg.inv(a), A, grad=True)
    _both(lambda m, a: m.linalg.det(a), A, grad=True)
    _both(lambda m, a: m.linalg.slogdet(a), A)
    _both(lambda m, a: m.linalg.lu_factor(a)[:2], A)
    _both(lambda m, a: m.linalg.lu(a), A)
    _both(lambda m, a: m.linalg.eigvalsh(a), P)
    _both(lambda m, a: m.linalg.matrix_exp(a), A)
    _both(lambda m, a: m.linalg.eigvals(a).abs().sort(-1)[0], A)
    for upper in (False, True):
        for left in (False, True):
            b = B if left else B.mT
            _both(lambda m, x, y: m.linalg.solve_triangular(x, y, upper=upper, left=left), A, b)  # noqa: B023
            _both(lambda m, x, y: m.linalg.solve_triangular(x.mT, y, upper=upper, left=left, unitriangular=True), A, b)  # noqa: B023
    w, v = ft.linalg.eigh(_ours(P))
    _close(v @ (w.unsqueeze(-1) * v.mH), P, 1e-3)
    w, v = ft.linalg.eig(_ours(A))
    _close((v * w.unsqueeze(-2)).abs(), (torch.from_numpy((_ours(A).to(v.dtype) @ v).numpy())).abs(), 1e-3)


@pytest.mark.parametrize("d", _DTYPES)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 4), (2, 3, 5)])
def test_rectangular_matrices(d, shape):
    A = _r(*shape, d=d)
    B = _r(*shape[:-1], 2, d=d)
    for mode in ("reduced", "complete", "r"):
        _both(lambda m, a: m.linalg.qr(a, mode), A)  # noqa: B023
    _both(lambda m, a: m.linalg.svdvals(a), A)
    for full in (False, True):
        u, s, vh = ft.linalg.svd(_ours(A), full)
        k = s.shape[-1]
        assert tuple(u.shape) == tuple(torch.linalg.svd(A, full)[0].shape)
        _close(u[..., :k] @ (s.unsqueeze(-1) * vh[..., :k, :]), A, 1e-3)
    _both(lambda m, a: m.linalg.pinv(a), A, tolerance=1e-3)
    _both(lambda m, a: m.linalg.lu_factor(a)[:2], A)
    driver = {"driver": "gels"}
    _both(lambda m, a, b: m.linalg.lstsq(a, b, **driver)[0], A, B, tolerance=1e-3)
    for name in ("gelsy", "gelsd", "gelss"):
        _both(lambda m, a, b: m.linalg.lstsq(a, b, driver=name), A, B, tolerance=1e-3)  # noqa: B023
    if shape[-2] > shape[-1]:
        _both(lambda m, a, b: m.linalg.lstsq(a, b, **driver)[1], A, B, tolerance=1e-3)


def test_broadcast_batches():
    A, B = _r(4, 4) + 4 * torch.eye(4), _r(3, 4, 2)
    _both(lambda m, a, b: m.linalg.solve(a, b), A, B, grad=True)
    _both(lambda m, a, b: m.linalg.solve_triangular(a, b, upper=True), A, B, grad=True)
    _both(lambda m, a, b: m.linalg.solve(a, b), A.expand(3, 4, 4), B[:, :, 0])
    _both(lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b), A, B)


def test_failures_are_told():
    with pytest.raises(ft.linalg.LinAlgError, match="not positive-definite"):
        ft.linalg.cholesky(-ft.eye(3))
    with pytest.raises(ft.linalg.LinAlgError, match="singular"):
        ft.linalg.solve(ft.zeros(3, 3), ft.ones(3, 1))
    with pytest.raises(RuntimeError, match="infs or NaNs"):
        ft.linalg.eig(ft.full((2, 2), math.inf))


# -- attention: what the library is asked for ---------------------------------------------------------------------------------


def test_attention_falls_back_to_operators(monkeypatch):
    """Where the library has no kernel, operators give the same."""

    def refuse(*args):
        raise cudnn_graph.Unsupported("no engine")

    monkeypatch.setattr(cudnn_attention, "forward", refuse)
    monkeypatch.setattr(cudnn_attention, "backward", refuse)
    forward, backward = OPS["internal.flash_attention"].kernels["cuda"], OPS["internal.flash_gradients"].kernels["cuda"]
    q, k, v = _r(2, 4, 6, 8), _r(2, 2, 5, 8, seed=1), _r(2, 2, 5, 16, seed=2)
    for causal in (False, True):
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        wanted = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=True)
        g = _r(2, 4, 6, 16, seed=3)
        wanted.backward(g)
        ours = [_ours(t) for t in (q, k, v)]
        out, logs = ft.empty(2, 4, 6, 16), ft.empty(2, 4, 6)
        forward([out, logs], *ours, None, 8**-0.5, causal)
        _close(out, wanted)
        grads = [ft.empty(*t.shape) for t in ours]
        backward(grads, _ours(g), out, logs, *ours, None, 8**-0.5, causal)
        _close(grads, [t.grad for t in leaves], 1e-3)
