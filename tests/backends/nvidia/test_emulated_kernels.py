"""Hand-written kernels on an emulated GPU beside the same operators on the CPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.kernels.cuda_on_cpu import COMPILER

_HEAD = """
import pathlib, sys
from tests.backends.nvidia import fake_driver
fake = fake_driver.install(pathlib.Path(sys.argv[1]))
import flambeau as fl
F = fl.nn.functional
fl.manual_seed(0)

def alike(make, rtol=1e-5, atol=1e-5):
    # make(device) returns tensors; those of both devices are compared
    ours, theirs = ([t.detach().cpu().double() for t in make(d)] for d in ("cuda", "cpu"))
    for a, b in zip(ours, theirs, strict=True):
        fl.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)

def weights(y):
    return fl.arange(float(y.numel())).view(y.shape).sin().to(y.device).to(y.dtype)
"""

_PROGRAMS = {
    "attention of float32": """
for heads, shared, rows, source, causal, turned, features in (
    (2, 2, 40, 40, True, True, 16), (4, 2, 33, 70, False, False, 16), (2, 1, 70, 33, True, False, 16),
    (2, 2, 70, 70, True, True, 32), (4, 2, 33, 70, False, False, 32), (2, 1, 70, 33, True, False, 32),
):
    shape = lambda h, n: (1, n, h, features) if turned else (1, h, n, features)
    base = [fl.randn(*shape(h, n)) for h, n in ((heads, rows), (shared, source), (shared, source))]
    def attend(device):
        leaves = [t.to(device).detach().requires_grad_() for t in base]
        q, k, v = (t.transpose(1, 2) if turned else t for t in leaves)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != shared)
        y.backward(weights(y))
        return y, *(t.grad for t in leaves)
    alike(attend)
q = fl.randn(1, 1, 4, 16).cuda()
launches = fake.calls["cuLaunchKernel"]
F.scaled_dot_product_attention(q, q, q)
assert fake.calls["cuLaunchKernel"] == launches + 1
""",
    "attention of a few queries in half-width floats": """
for heads, shared, rows, source, causal, turned, features, d in (
    (2, 2, 1, 70, False, True, 16, fl.bfloat16), (4, 2, 3, 20, True, False, 32, fl.float16), (1, 1, 1, 1100, False, False, 64, fl.bfloat16),
    (2, 1, 4, 600, False, True, 128, fl.float16), (1, 1, 2, 5, True, False, 256, fl.bfloat16),
):
    shape = lambda h, n: (2, n, h, features) if turned else (2, h, n, features)
    base = [fl.randn(*shape(h, n)).to(d) for h, n in ((heads, rows), (shared, source), (shared, source))]
    def attend(device):
        q, k, v = ((t.transpose(1, 2) if turned else t).to(device) for t in base)
        q, k, v = (q, k, v) if device == "cuda" else (t.float() for t in (q, k, v))
        return (F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != shared),)
    alike(attend, rtol=2e-2, atol=2e-2)
one = fl.randn(1, 1, 1, 64).to(fl.bfloat16).cuda()
compiled = fake.calls["cuModuleLoadData"]
for n in (50, 51, 52):  # a cache that grows needs no new kernel
    keys = fl.randn(1, 1, n, 64).to(fl.bfloat16).cuda()
    launches = fake.calls["cuLaunchKernel"]
    F.scaled_dot_product_attention(one, keys, keys)
    assert fake.calls["cuLaunchKernel"] == launches + 1
assert fake.calls["cuModuleLoadData"] <= compiled + 1
""",
    "attention of a few queries with a mask": """
for heads, shared, rows, source, causal, features, d, size in (
    (2, 2, 1, 70, False, 16, fl.bfloat16, (1, 1, 1, 70)), (4, 2, 3, 20, True, 32, fl.float16, (2, 4, 3, 20)), (1, 1, 2, 600, False, 64, fl.float16, (600,)),
):
    base = [fl.randn(2, h, n, features).to(d) for h, n in ((heads, rows), (shared, source), (shared, source))]
    seen = fl.rand(size) < 0.5
    if rows == 3:
        seen[0, 0, 1] = False  # a row that sees nothing is zero
    for mask in (seen, fl.randn(size).to(d), fl.zeros(size, dtype=d).masked_fill(~seen, float("-inf"))):
        def attend(device):
            q, k, v = (t.to(device) if device == "cuda" else t.float() for t in base)
            given = mask.to(device) if device == "cuda" or mask.dtype is fl.bool else mask.float()
            return (F.scaled_dot_product_attention(q, k, v, given, is_causal=causal, enable_gqa=heads != shared),)
        alike(attend, rtol=2e-2, atol=2e-2)
q, k, mask = fl.randn(1, 1, 1, 64).half().cuda(), fl.randn(1, 1, 9, 64).half().cuda(), (fl.arange(9) < 5).cuda()
launches = fake.calls["cuLaunchKernel"]
F.scaled_dot_product_attention(q, k, k, mask)
assert fake.calls["cuLaunchKernel"] == launches + 1
from flambeau.ops.nn.attention import takes_masks
assert takes_masks["cuda"](q, k, k) and not takes_masks["cuda"](q.requires_grad_(), k, k)  # it has no gradient with a mask
""",
    "index_copy_ and index_add_": """
for reduce in ("index_copy_", "index_add_"):
    def change(device):
        x, source = (fl.arange(24.0).view(2, 3, 4) * k for k in (1, 2))
        x = x.to(device)
        getattr(x, reduce)(1, fl.tensor([2, 0], device=device), source[:, :2].to(device))
        return (x,)
    alike(change)
x, at, source = fl.zeros(3, 2).cuda(), fl.tensor([1]).cuda(), fl.ones(1, 2).cuda()
launches = fake.calls["cuLaunchKernel"]
x.index_copy_(0, at, source)
assert fake.calls["cuLaunchKernel"] == launches + 1  # which looks at the indices, too
x.index_copy_(0, at + 5, source)
try:
    x.cpu()
    raise SystemExit("nothing was said")
except (IndexError, RuntimeError) as error:
    assert "6" in str(error), error
assert x.tolist() == [[0, 0], [1, 1], [0, 0]]
""",
    "batch normalisation in evaluation": """
for shape, last, d, narrow in (
    ((2, 8, 5, 5), False, fl.float32, False), ((2, 8, 5, 5), True, fl.float16, True), ((3, 30, 4, 2), True, fl.bfloat16, False),
    ((4, 7), False, fl.float32, False), ((1, 3, 4, 4), False, fl.float64, False),
):
    x = fl.randn(shape).to(d)
    x = x.to(memory_format=fl.channels_last) if last else x
    kind = d if narrow else fl.float64 if d is fl.float64 else fl.float32
    mean, var, weight, bias = (fl.rand(shape[1]).add(0.5).to(kind) for _ in range(4))
    for affine in (True, False):
        def evaluate(device):
            a = x.detach().to(device).requires_grad_()
            given = (weight.to(device), bias.to(device)) if affine else (None, None)
            y = F.batch_norm(a, mean.to(device), var.to(device), *given)
            y.backward(weights(y))
            return y, a.grad
        alike(evaluate, rtol=1e-2 if d.itemsize == 2 else 1e-5, atol=1e-2 if d.itemsize == 2 else 1e-5)
x, parameters = fl.randn(2, 8, 4, 4).half().cuda(), [fl.rand(8).half().cuda() for _ in range(4)]
launches = fake.calls["cuLaunchKernel"]
F.batch_norm(x, *parameters)
assert fake.calls["cuLaunchKernel"] == launches + 1
""",
    "attention of float32 by products": """
import ctypes
import numpy as np
from flambeau.backends.nvidia.operators import attention, attention_blocks
def matrices(t):
    memory = (ctypes.c_float * (t._storage.size_bytes // 4)).from_address(t._storage.ptr)
    return np.lib.stride_tricks.as_strided(np.frombuffer(memory, np.float32)[t._offset:], t.shape, [4 * s for s in t._strides])
def product(name, out, a, b, bias=None, alpha=1, beta=0):
    # there is no library here
    result = matrices(out)
    result[...] = matrices(a) @ matrices(b) + (result if beta else 0)
attention_blocks.product, attention._is_short = product, lambda *given: False
attention_blocks._ROWS, attention_blocks._SPACE = 16, 2048
for heads, shared, rows, source, causal, turned in (
    (3, 3, 40, 40, True, True), (4, 2, 33, 70, False, False), (2, 1, 70, 33, True, False), (2, 2, 20, 50, True, True), (1, 1, 1, 9, False, True),
):
    shape = lambda h, n: (2, n, h, 8) if turned else (2, h, n, 8)
    base = [fl.randn(*shape(h, n)) for h, n in ((heads, rows), (shared, source), (shared, source))]
    def attend(device):
        leaves = [t.to(device).detach().requires_grad_() for t in base]
        q, k, v = (t.transpose(1, 2) if turned else t for t in leaves)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != shared)
        logs = y.grad_fn._saved_logs
        y.backward(weights(y))
        return y, logs, *(t.grad for t in leaves)
    alike(attend)
""",
    "convolutions of float32": """
fl.backends.cudnn.allow_tf32 = False
for batch, channels, results, size, padding in ((5, 64, 64, (4, 4), 1), (1, 64, 64, (8, 16), 1), (1, 16, 128, (18, 10), 0)):
    x, w = fl.randn(batch, channels, *size), fl.randn(results, channels, 3, 3).div(10)
    def convolve(device):
        leaf = x.to(device).detach().requires_grad_(channels == 64)
        y = F.conv2d(leaf, w.to(device), padding=padding)
        if channels == 64:
            y.backward(weights(y))
        return [y] if leaf.grad is None else [y, leaf.grad]
    alike(convolve)
""",
    "small products": """
x, w, b = fl.randn(260, 128), fl.randn(128, 128).div(10), fl.randn(128)
def linear(device):
    leaves = [t.to(device).detach().requires_grad_() for t in (x, w, b)]
    y = F.linear(*leaves)
    y.backward(weights(y))
    return y, *(t.grad for t in leaves)
alike(linear, 1e-4, 1e-4)
from flambeau.backends.nvidia import products32
a, b = fl.randn(200, 68), fl.randn(200, 72)
A, B, out, sums = a.cuda(), b.cuda(), fl.zeros(68, 72, device="cuda"), fl.zeros(68, device="cuda")
plan = products32.ProductPlan(out.device, (68, 72, 200), (72, 68, 72), (False, False), (4, 4), 2, 3, True)
plan.run(*(t.data_ptr() for t in (out, A, B, sums)))
fl.testing.assert_close(out.cpu(), a.t() @ b, rtol=1e-4, atol=1e-4)
fl.testing.assert_close(sums.cpu(), a.sum(0), rtol=1e-4, atol=1e-4)
assert products32.chosen((1536, 512, 128), (True, True), 132)[2] == 1 < products32.chosen((384, 128, 1536), (False, False), 132)[2]
""",
    "gradients of layer normalisation": """
for rows, n, d, has_bias in ((40, 40, fl.float32, True), (600, 20, fl.float64, False), (5, 16, fl.bfloat16, True)):
    x, w, b = fl.randn(rows, n), fl.randn(n), fl.randn(n)
    def normalise(device):
        leaves = [t.to(device).to(d).detach().requires_grad_() for t in (x, w, b)]
        F.layer_norm(leaves[0], (n,), leaves[1], leaves[2] if has_bias else None).backward(weights(leaves[0]))
        return [t.grad for t in leaves if t.grad is not None]
    alike(normalise)
""",
    "joining": """
for shapes, dim, launches in ((((3, 8), (3, 4), (3, 12)), 1, 1), (((2, 4), (3, 4)), 0, 1), (((2, 3), (2, 5)), 1, 2), (((2, 0), (2, 4)), -1, 1)):
    parts = [fl.randn(*s) for s in shapes]
    given = [t.cuda() for t in parts]
    before = fake.calls["cuLaunchKernel"]
    found = fl.cat(given, dim)
    assert fake.calls["cuLaunchKernel"] == before + launches
    assert fl.equal(found.cpu(), fl.cat(parts, dim))
""",
    "max pooling": """
for settings in (dict(kernel_size=2), dict(kernel_size=3, stride=2, padding=1), dict(kernel_size=(2, 3), stride=(3, 2), padding=1, ceil_mode=True)):
    x = fl.randn(2, 3, 9, 8)
    x[0, 0, 1, 1] = float("nan")
    def pool(device):
        leaf = x.to(device).detach().requires_grad_()
        y = F.max_pool2d(leaf, **settings)
        y.backward(weights(y))
        return y, leaf.grad
    alike(pool)
""",
    "softmax of long rows": """
for d, near, name in ((fl.float32, 1e-5, "log_softmax"), (fl.bfloat16, 1e-2, "softmax")):
    x = fl.randn(5, 4992).mul(3)
    x[1:4] = -float("inf")
    x[1, 5], x[2, 7], x[4, 9] = 1.0, float("inf"), float("nan")
    def rows(device):
        leaf = x.to(device).to(d).detach().requires_grad_()
        y = getattr(leaf, name)(-1)
        y.backward(weights(y))
        return y, leaf.grad
    alike(rows, near, near)
""",
    "losses that report bad values later": """
waits = fake.calls["cuStreamSynchronize"]
good = F.binary_cross_entropy(fl.tensor([0.5, 0.25]).cuda(), fl.tensor([1.0, 0.0]).cuda())
F.binary_cross_entropy(fl.tensor([1.5, 0.25]).cuda(), fl.tensor([1.0, 0.0]).cuda())
assert fake.calls["cuStreamSynchronize"] == waits
try:
    good.item()
    raise SystemExit("nothing was said")
except RuntimeError as error:
    assert "binary_cross_entropy: all elements of input should be between 0 and 1" in str(error)
assert abs(good.item() - 0.4904146) < 1e-6
""",
    "a gradient scaler with a fused optimizer": """
def train(device):
    w = fl.nn.Parameter(fl.tensor([0.5, -1.0, 2.0, 0.25]).to(device))
    b = fl.nn.Parameter(fl.tensor([0.1, 0.2]).to(device))
    optimizer = fl.optim.Adam([w, b], lr=0.1, fused=True)
    scaler = fl.amp.GradScaler(device, init_scale=8.0, growth_interval=2)
    seen = []
    for i in range(6):
        optimizer.zero_grad()
        scaler.scale((w * (i + 1)).sum() + (b * b).sum() + (float("inf") * w[0] if i == 3 else 0)).backward()
        waits = fake.calls["cuStreamSynchronize"]
        scaler.step(optimizer)
        scaler.update()
        assert i < 1 or fake.calls["cuStreamSynchronize"] == waits  # the first step makes the state
        steps = [state["step"].clone() for state in optimizer.state.values()]
        seen += [w.detach().clone(), b.detach().clone(), scaler._scale.clone(), *steps]
    return seen
alike(train)
""",
    "sparse tensors": """
def entries(device):
    t = fl.sparse_coo_tensor([[0, 1, 1, 0], [2, 0, 0, 1]], [3.0, 4.0, 5.0, 6.0], (2, 3), device=device)
    held = t.coalesce()
    v = fl.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    product = fl.sparse.mm(fl.sparse_coo_tensor(fl.tensor([[0, 1, 1], [2, 0, 1]], device=device), v, (2, 3)), t.to_dense().t())
    product.backward(fl.ones(2, 2, device=device))
    assert all(p.device.type == device for p in (held, held.indices(), t.to_sparse_csr(), v.grad))
    rows = t.to_sparse_csr()
    return held.to_dense(), held.indices(), held.values(), product, v.grad, rows.crow_indices(), rows.col_indices()
alike(entries)
""",
    "max pooling, channels last": """
for shape, kernel, stride, padding, ceil_mode in (
    ((2, 8, 9, 7), 3, 2, 1, False), ((2, 5, 7, 7), 3, 1, 1, False), ((2, 8, 10, 6), (3, 2), (2, 3), (1, 0), True),
):
    picture = fl.randn(shape).to(memory_format=fl.channels_last)
    def pooled(device):
        x = picture.to(device).detach().requires_grad_()
        y = F.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil_mode)
        y.backward(weights(y).to(memory_format=fl.channels_last))
        assert x.grad.is_contiguous(memory_format=fl.channels_last)
        return y, x.grad
    alike(pooled)
""",
}


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler (g++) to run CUDA text on the CPU")
def test_kernels_give_what_the_cpu_gives(tmp_path):
    """All in one process, which shares compiled kernels."""
    parts = "".join(f"print({what!r}, flush=True)\n{text}" for what, text in _PROGRAMS.items())
    program = _HEAD + parts + "print('done')"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)], capture_output=True, text=True
    )
    assert done.stdout.strip().endswith("done"), done.stdout + done.stderr[-3000:]
