"""Reductions, scans, sorting, selection, statistics and norms against PyTorch: values, dtypes, gradients and errors."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau

SETUP = """
nan, inf = float('nan'), float('inf')
x = (torch.arange(24.) * 37 % 23 / 7 - 1.5).reshape(2, 3, 4)
m = x[0]
v = torch.tensor([3., -1., 2., 2., 5., -1.])
w = torch.tensor([1., nan, -2., inf, nan, 0.])
i = (torch.arange(24) * 37 % 23 - 9).reshape(2, 3, 4)
b = i > 0
z = torch.tensor([[1+2j, 3-1j], [0.5j, -2.]])
h = x.to(torch.bfloat16)
d = x.double()
e = torch.empty(0)
k = torch.empty(3, 0, 2)
s = torch.tensor(2.5)
r = x.clone().requires_grad_()
u = torch.tensor([3, 1, 3, 2, 1, 1])
def grads(fn, *tensors):
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    out = fn(*leaves)
    outs = [o for o in (out if isinstance(out, (tuple, list)) else (out,)) if o.requires_grad]
    total = sum((o * (1 + torch.arange(o.numel()).reshape(o.shape).to(o.dtype))).sum() for o in outs)
    total = total.abs() if total.dtype.is_complex else total
    return [g + 0 for g in torch.autograd.grad(total, leaves)]  # + 0: the sign of zero is nobody's promise
"""

REDUCTIONS = """
x.sum()
x.sum(1)
x.sum((0, 2))
x.sum(-1, True)
x.sum(dim=[0, 1], keepdim=True)
x.sum(axis=0, keepdims=True)
torch.sum(x, (), dtype=torch.float64)
i.sum()
b.sum(0)
h.sum(0)
z.sum(0)
s.sum(0)
s.sum(-1, True)
k.sum()
k.sum(1)
k.sum(0)
x.transpose(0, 2).sum(1)
x[:, ::2].sum(2)
x.expand(5, 2, 3, 4).sum((0, 2))
x.sum(1, dtype=torch.int64)
torch.sum(x, 1, out=torch.empty(0))
torch.sum(i, 1, out=torch.empty(0))
x.mean()
x.mean((0, 1))
i.mean(dtype=torch.float32)
z.mean()
e.mean()
h.mean(2)
x.prod()
i.prod(1)
b.prod()
z.prod(0)
e.prod()
x.amax()
x.amax((0, 2), True)
i.amin(1)
w.amax()
b.amax(0)
x.any()
b.all(2)
i.to(torch.uint8).any()
w.any()
e.all()
k.any(1)
x.all((0, 1))
x.argmax()
x.argmax(1)
x.argmin(2, True)
i.argmax(0)
w.argmax()
w.argmin()
u.argmax()
s.argmax(0)
x.max()
x.max(1)
x.max(1, True)
x.min(dim=0)
x.max(axis=-1)
torch.max(m, m.flip(0))
i.min()
b.max(0)
w.max(0)
x.max(1).indices
torch.max(x, 1, out=(torch.empty(0), torch.empty(0, dtype=torch.int64)))
torch.aminmax(x)
torch.aminmax(x, dim=1, keepdim=True)
w.nansum()
x.nansum((0, 1))
w[[0, 1, 2]].nanmean()
torch.count_nonzero(i)
torch.count_nonzero(i, 1)
torch.count_nonzero(b, (0, 2))
x.logsumexp(1)
x.logsumexp((0, 2), True)
torch.logsumexp(torch.tensor([inf, 1.]), 0)
torch.logsumexp(torch.tensor([-inf, -inf]), 0)
i.logsumexp(0)
z.logsumexp(0)
e.logsumexp(0)
x.sum_to_size(3, 1)
x.sum_to_size((1, 4))
x.sum_to_size(2, 3, 4) is x
m.trace()
i[0].trace()
"""

SCANS = """
x.cumsum(0)
x.cumsum(-1)
x.transpose(0, 2).cumsum(1)
i.cumsum(1)
b.cumsum(2)
h.cumsum(1)
z.cumsum(0)
s.cumsum(0)
e.cumsum(0)
x.cumsum(1, dtype=torch.float64)
x.cumprod(2)
i.cumprod(0)
z.cumprod(1)
x.clone().cumsum_(1)
i.to(torch.int32).cumsum_(1)
x.cummax(1)
x.cummin(2)
w.cummax(0)
u.cummin(0)
b.cummax(2)
x.logcumsumexp(1)
z.logcumsumexp(0)
torch.tensor([-inf, -inf, 1.]).logcumsumexp(0)
x.diff()
x.diff(2, 0)
x.diff(1, 1, m.reshape(3, 4)[None, :1].expand(2, 1, 4), x[:, :2])
b.diff()
i.diff(n=5)
torch.gradient(x)
torch.gradient(m, spacing=2., dim=1)
torch.gradient(m, spacing=(torch.tensor([0., 1., 3.]), torch.tensor([0., 2., 3., 7.])))
torch.gradient(m, edge_order=2)
torch.gradient(m, spacing=(torch.tensor([0., 1., 3.]),), dim=0, edge_order=2)
torch.gradient(i[0])
torch.trapezoid(m)
torch.trapezoid(m, dx=0.5, dim=0)
torch.trapezoid(m, torch.tensor([0., 1., 3., 4.]))
torch.trapz(m, m.cumsum(1))
torch.trapezoid(i)
torch.cumulative_trapezoid(m, dim=0)
torch.cumulative_trapezoid(m, torch.tensor([0., 1., 3., 4.]))
"""

ORDER = """
x.sort()
x.sort(1, True)
torch.sort(v, stable=True, dim=0)
torch.sort(v, stable=True, dim=0, descending=True)
w.sort()
w.sort(descending=True)
b.sort(1)
i.sort(0)
s.sort()
e.sort()
x.transpose(0, 2).sort(0)[0].stride()
x.msort()
x.argsort(1)
torch.argsort(v, stable=True)
x.topk(2)
x.topk(3, 1, False)
i.topk(4, sorted=False).values.sort()[0]
w.topk(3)
s.topk(1)
x.topk(0)
(torch.arange(4999) * 7919 % 4999).topk(5)
(torch.arange(4999) * 7919 % 4999).topk(100)[0][-5:]
x.kthvalue(2)
x.kthvalue(1, 1, True)
i.kthvalue(2, 0)
x.median()
x.median(1)
i.median(2)
w.median()
w.nanmedian()
w.nanmedian(0)
e.median()
(torch.arange(4998) * 7919 % 4999).median()
u.mode()
torch.tensor([2, 1, 2, 1]).mode()
b.mode(1)
x.quantile(0.3)
x.quantile(torch.tensor([0., 0.25, 1.]), 1)
x.quantile(torch.tensor([0.1, 0.9]), dim=2, keepdim=True)
w.quantile(0.5)
w.nanquantile(0.5)
x.nanquantile(torch.tensor(0.2), 0)
x.quantile(0.4, interpolation='lower')
x.quantile(0.4, interpolation='higher')
x.quantile(0.4, interpolation='midpoint')
x.quantile(0.4, interpolation='nearest')
torch.quantile(torch.arange(5.), 0.3, out=torch.empty(3))
torch.take_along_dim(torch.arange(4), torch.tensor([1]), 0, out=torch.empty(0, dtype=torch.int64))
u.unique()
u.unique(return_inverse=True, return_counts=True)
w.unique()
torch.unique(i[:, :2] // 3, dim=0)
torch.unique(u.reshape(2, 3), dim=1, return_inverse=True, return_counts=True)
u.unique_consecutive()
torch.unique_consecutive(u, return_inverse=True, return_counts=True)
s.unique(return_inverse=True)
torch.isin(u, torch.tensor([1, 7]))
torch.isin(u, 3, invert=True)
torch.isin(2, u)
torch.searchsorted(torch.tensor([1., 3., 3., 5.]), torch.tensor([[3., 0.], [9., nan]]))
torch.searchsorted(torch.tensor([1., 3., 3., 5.]), 3, right=True)
torch.searchsorted(torch.tensor([[1, 3], [5, 9]]), torch.tensor([[2, 3], [5, 10]]), side='right')
torch.searchsorted(torch.tensor([5., 1., 3.]), torch.tensor([2.]), sorter=torch.tensor([1, 2, 0]))
torch.bucketize(u, torch.tensor([1, 2]), out_int32=True)
torch.bincount(u)
torch.bincount(u, minlength=6)
torch.bincount(u, v)
torch.bincount(u, u)
torch.histc(v, 4)
torch.histc(v, 3, -1, 2)
torch.histogram(v, 3)
torch.histogram(v, torch.tensor([-1., 2., 5.]), weight=v, density=True)
torch.histogram(v, 4, range=(0., 4.))
torch.histogramdd(m, [2, 3, 2, 2]).hist.shape
torch.histogramdd(m[:, :2], [torch.tensor([-2., 0., 2.]), torch.tensor([-2., 2.])])
"""

STATISTICS = """
x.var()
x.var(1)
x.var(1, False)
x.var(False)
x.var((0, 2), correction=0, keepdim=True)
x.var(dim=2, correction=1.5)
x.std()
x.std(0, True, True)
h.std(1)
z.var(0)
torch.tensor([1.]).var()
torch.var_mean(x, 1)
torch.var_mean(z)
torch.std_mean(x, (0, 1), keepdim=True)
(torch.arange(1000.) + 1e5).var()
torch.cov(m)
torch.cov(m, correction=0, fweights=torch.tensor([1, 2, 0, 3]))
torch.cov(m, aweights=torch.tensor([1., .5, 2., 0.]))
torch.cov(v)
torch.cov(z)
torch.corrcoef(m)
x.norm()
x.norm(1, 1)
x.norm(inf, (0, 1))
x.norm(3, dim=2, keepdim=True)
x.norm(0)
x.norm(-inf)
x.norm(0.5, 1)
torch.norm(x, p='fro', dim=(1, 2))
torch.norm(z)
torch.norm(x, 2, dtype=torch.float64)
torch.dist(m, m.flip(0))
torch.dist(m, m[0], 1)
torch.renorm(m, 2, 0, 1.)
torch.renorm(m, 1, 1, 2.)
torch.allclose(m, m + 1e-7)
torch.allclose(m, m[0])
torch.allclose(w, w, equal_nan=True)
torch.equal(m, m.clone())
torch.equal(m, m[0])
x.softmax(1)
x.softmax(-1, torch.float64)
x.log_softmax(2)
x.transpose(0, 1).log_softmax(0)
i.softmax(1, dtype=torch.float32)
s.softmax(0)
e.softmax(0)
torch.nn.functional.softmin(x, 1)
torch.nn.functional.softmax(x, -1, dtype=torch.float64)
torch.tensor([-inf, -inf]).softmax(0)
torch.special.log_softmax(x, 1)
"""

GRADIENTS = """
grads(lambda t: t.sum(1), x)
grads(lambda t: t.mean((0, 2)), x)
grads(lambda t: t.prod(), x)
grads(lambda t: t.prod(1), x)
grads(lambda t: t.prod(0), torch.tensor([[0., 2.], [3., 0.]]))
grads(lambda t: t.amax(1), torch.tensor([[1., 3., 3.], [2., 2., 2.]]))
grads(lambda t: t.max(), torch.tensor([1., 3., 3.]))
grads(lambda t: t.max(2), x)
grads(lambda t: t.min(0, True), x)
grads(lambda t: torch.aminmax(t, dim=1), x)
grads(lambda t: t.nansum(), w)
grads(lambda t: t.logsumexp((0, 1)), x)
grads(lambda t: t.cumsum(1), x)
grads(lambda t: t.cumprod(1), x)
grads(lambda t: t.cumprod(0), torch.tensor([2., 0., 3., 0., 4.]))
grads(lambda t: t.cummax(1), x)
grads(lambda t: t.logcumsumexp(1), x)
grads(lambda t: t.sort(1, True)[0], x)
grads(lambda t: t.topk(2, 1)[0], x)
grads(lambda t: t.kthvalue(2, 0)[0], x)
grads(lambda t: t.median(), x)
grads(lambda t: t.median(2)[0], x)
grads(lambda t: t.quantile(torch.tensor([0.2, 0.7]), 1), x)
grads(lambda t: t.var(1), x)
grads(lambda t: t.std((0, 2)), x)
grads(lambda t: torch.var_mean(t, 1), x)
grads(lambda t: torch.std_mean(t), x)
grads(lambda t: t.norm(), x)
grads(lambda t: t.norm(1, 1), x)
grads(lambda t: t.norm(inf, 2), x)
grads(lambda t: t.norm(3, 0), x)
grads(lambda t: t.norm(1.5, 0), x)
grads(lambda t: t.norm(), torch.zeros(3))
grads(lambda t, o: torch.dist(t, o, 3), m, m[0])
grads(lambda t: torch.renorm(t, 2, 0, 1.), m)
grads(lambda t: t.softmax(1), x)
grads(lambda t: t.log_softmax(0), d)
grads(lambda t: torch.cov(t), m)
grads(lambda t: torch.trapezoid(t, dim=0), m)
grads(lambda t: t.diff(2), x)
grads(lambda t: t.trace(), m)
grads(lambda t: t.sum(0), z)
grads(lambda t: t.prod(0), z)
grads(lambda t: t.var(), z)
grads(lambda t: t.norm(), z)
r.sum().grad_fn.name()
r.sum(1).grad_fn.name()
r.mean(1).grad_fn.name()
r.max().grad_fn.name()
r.max(1)[0].grad_fn.name()
r.max(1)[1].requires_grad
r.prod(1).grad_fn.name()
r.amax(1).grad_fn.name()
r.softmax(1).grad_fn.name()
r.norm().grad_fn.name()
r.var().grad_fn.name()
r.cumsum(1).grad_fn.name()
r.sort()[0].grad_fn.name()
torch.sort(r, stable=True)[0].grad_fn.name()
r.median().grad_fn.name()
r.median(1)[0].grad_fn.name()
r.argmax().requires_grad
torch.unique(r).sum().backward()
"""

ERRORS = """
torch.quantile(torch.arange(5.), 0.3, out=torch.empty((), dtype=torch.float64))
torch.take_along_dim(torch.arange(4), torch.tensor([1]), 0, out=torch.empty(1))
torch.sum([1.])
x.sum('a')
x.sum(5)
x.sum((0, 0))
x.sum(1.5)
x.sum(1, 'yes')
torch.sum(x, 0, dtype=torch.float64, out=torch.empty(0))
i.mean()
x.prod((0, 1))
e.max()
k.max(1)
k.amax(1)
e.amax()
e.argmax()
b.argmax()
z.max()
z.amax()
x.max(0, 1)
x.max((0, 1))
torch.amax(x, 0, out=torch.empty(0, dtype=torch.int32))
torch.any(x, 0, out=torch.empty(0))
x.sum_to_size(5)
x.cumsum(7)
x.cumsum()
z.cummax(0)
i.logcumsumexp(0)
b.cumsum_(0)
z.sort()
x.sort(9)
torch.sort(x, 0, True, True)
x.topk(9)
b.topk(1)
x.kthvalue(0)
e.kthvalue(1)
b.median()
z.mode()
e.mode()
x.quantile(2.)
i.quantile(0.5)
e.quantile(0.5)
x.quantile(0.5, interpolation='a')
x.quantile(torch.rand(2, 2))
torch.bincount(v)
torch.bincount(torch.tensor([-1]))
torch.bincount(u, v[:2])
torch.histc(i)
torch.histc(v, 0)
torch.histc(v, 4, 5, 1)
torch.histogram(v, 4, range=(3., 1.))
torch.histogram(i, 4)
torch.histogramdd(v, [2])
torch.isin(b, b)
torch.isin(1, 2)
torch.searchsorted(s, v)
torch.searchsorted(v, v, side='x')
torch.searchsorted(v, v, sorter=torch.tensor([0]))
torch.bucketize(v, m)
i.var()
x.var(0, False, correction=1)
i.norm()
x.norm('abc')
torch.renorm(v, 2, 0, 1.)
torch.renorm(m, -1, 0, 1.)
torch.cov(x)
torch.cov(b)
torch.allclose(m, m.double())
torch.allclose(m, m, rtol=-1)
i.softmax(1)
x.softmax(9)
x.softmax()
x.diff(-1)
s.diff()
torch.gradient(x, edge_order=3)
torch.trapezoid(b)
torch.trapezoid(m, v)
v.trace()
b[0].trace()
"""


def rows(table):
    return table.strip().splitlines()


@pytest.mark.parametrize("expression", rows(REDUCTIONS))
def test_reductions(agrees, expression):
    agrees(expression, SETUP)


@pytest.mark.parametrize("expression", rows(SCANS))
def test_scans_and_differences(agrees, expression):
    agrees(expression, SETUP)


@pytest.mark.parametrize("expression", rows(ORDER))
def test_sorting_selecting_counting(agrees, expression):
    agrees(expression, SETUP)


@pytest.mark.parametrize("expression", rows(STATISTICS))
def test_statistics_norms_softmax(agrees, expression):
    agrees(expression, SETUP)


@pytest.mark.parametrize("expression", rows(GRADIENTS))
def test_gradients(agrees, expression):
    agrees(expression, SETUP)


@pytest.mark.parametrize("expression", rows(ERRORS))
def test_errors(agrees, expression):
    agrees(expression, SETUP)


# -- without PyTorch --------------------------------------------------------------------------------------------------


def layouts(rng, dtype):
    def make(*shape):
        return (rng.standard_normal(shape) * 20).astype(dtype)

    yield make(7)
    yield make(5, 1, 6)
    yield make(40, 50, 6).transpose(2, 0, 1)
    yield make(20, 30, 4)[::2, 1:, ::3]
    yield make(3, 3000)
    yield make(3000, 3)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int16", "uint8", "bool"])
def test_sort_is_stable_and_matches_numpy_in_every_layout(dtype):
    for array in layouts(np.random.default_rng(0), dtype):
        for dim in range(array.ndim):
            values, indices = flambeau.sort(flambeau.tensor(array), dim)
            order = np.argsort(array, axis=dim, kind="stable")
            np.testing.assert_array_equal(indices.numpy(), order)
            np.testing.assert_array_equal(values.numpy(), np.take_along_axis(array, order, dim))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8"])
def test_selection_matches_sorting(dtype):
    for array in layouts(np.random.default_rng(1), dtype):
        x = flambeau.tensor(array)
        for dim in range(array.ndim):
            n = array.shape[dim]
            ordered = np.sort(array, axis=dim)
            for k in {1, n // 2 + 1, n}:
                values, indices = flambeau.kthvalue(x, k, dim)
                np.testing.assert_array_equal(values.numpy(), ordered.take(k - 1, dim))
                picked = np.take_along_axis(array, np.expand_dims(indices.numpy(), dim), dim).squeeze(dim)
                np.testing.assert_array_equal(picked, values.numpy())
                top, places = flambeau.topk(x, k, dim)
                np.testing.assert_array_equal(top.numpy(), np.flip(ordered, dim).take(range(k), dim))
                np.testing.assert_array_equal(np.take_along_axis(array, places.numpy(), dim), top.numpy())


@pytest.mark.parametrize("shape", [(1,), (7,), (130, 3), (3, 130), (2, 65, 70)])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_match_numpy(shape, reverse):
    array = np.random.default_rng(2).standard_normal(shape)
    for dim in range(array.ndim):
        x = flambeau.tensor(array, requires_grad=True)
        if reverse:  # the derivative of a running sum runs backwards
            flambeau.cumsum(x, dim).sum().backward()
            want = np.flip(np.cumsum(np.ones(shape), dim), dim)
            np.testing.assert_allclose(x.grad.numpy(), want)
        else:
            np.testing.assert_allclose(flambeau.cumsum(x, dim).detach().numpy(), np.cumsum(array, dim), rtol=1e-12)


def test_variance_of_large_numbers_keeps_its_digits():
    array = np.random.default_rng(3).standard_normal(100_000).astype(np.float32) + np.float32(10_000)
    want = array.astype(np.float64).var(ddof=1)
    assert abs(flambeau.tensor(array).var().item() - want) < 1e-6 * want


def test_named_results_unpack_print_and_pickle():
    import pickle

    result = flambeau.tensor([[1, 5], [7, 2]]).max(1)
    values, indices = result
    assert values is result.values and indices is result.indices and isinstance(result, tuple)
    assert repr(result) == "torch.return_types.max(\nvalues=tensor([5, 7]),\nindices=tensor([1, 0]))"
    again = pickle.loads(pickle.dumps(result))
    assert type(again) is type(result) and again.values.tolist() == [5, 7]
    with pytest.raises(TypeError, match="2-sequence"):
        type(result)((1, 2, 3))


def test_changed_indices_are_refused_not_followed_out_of_bounds():
    x = flambeau.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    values, indices = x.max(1)
    indices.data.fill_(10**9)
    with pytest.raises(IndexError, match="out of bounds"):
        values.sum().backward()


def test_second_derivatives():
    from flambeau.autograd import gradgradcheck

    x = flambeau.tensor(np.random.default_rng(4).standard_normal((3, 4)), requires_grad=True)
    for function in (
        lambda t: t.softmax(1),
        lambda t: t.log_softmax(0),
        lambda t: t.prod(1),
        lambda t: t.var(1),
        lambda t: t.std(0),
        lambda t: t.norm(3, 1),
        lambda t: t.logsumexp(1),
        lambda t: t.cumprod(1),
        lambda t: t.amax(1),
        lambda t: t.sort(1)[0] ** 2,
    ):
        assert gradgradcheck(function, (x,))


def test_nansum_leaves_nan_out_before_it_converts():
    x = flambeau.tensor([[1.0, float("nan"), 2.9], [float("nan"), 3.0, 4.0]])
    assert x.nansum(1, dtype=flambeau.int64).tolist() == [3, 7]
    assert x.nansum(dtype=flambeau.int32).item() == 10


def test_an_unfit_out_leaves_the_others_unchanged():
    values = flambeau.zeros(2)
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype long int"):
        flambeau.sort(flambeau.tensor([3.0, 1.0]), out=(values, flambeau.zeros(2)))
    with pytest.raises(RuntimeError, match="to have dtype int, but got bool"):
        flambeau.frexp(flambeau.tensor([3.0, 1.0]), out=(values, flambeau.zeros(2, dtype=flambeau.bool)))
    assert values.tolist() == [0, 0]
