"""What the backend itself does on a GPU, beside PyTorch there: memory, streams, graphs, random numbers, exchange, cost of a call.

    python -m tests.cuda.core_on_device [words of checks to run]

Every check is on its own: one that fails is printed with its traceback, and the next one runs."""

from __future__ import annotations

import faulthandler
import io
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau

try:
    import torch
except ImportError:
    torch = None

CHECKS: dict[str, Callable[[], Any]] = {}
fl: Any = flambeau


def check(function: Callable[[], Any]) -> Callable[[], Any]:
    CHECKS[function.__name__] = function
    return function


def same(a: Any, b: Any, tolerance: float = 0.0) -> None:
    """Both as arrays: equal, or nearly."""
    a, b = (x.detach().cpu().float().numpy() if hasattr(x, "detach") else np.asarray(x) for x in (a, b))
    assert a.shape == b.shape, f"{a.shape} is not {b.shape}"
    if tolerance:
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    else:
        wrong = (a != b) & ~(np.isnan(a) & np.isnan(b))
        assert not wrong.any(), (
            f"{wrong.sum()} of {a.size} differ, first at {np.argwhere(wrong)[0]}: {a[wrong][:4]} {b[wrong][:4]}"
        )


@check
def cost_of_calls() -> Any:
    lines = []

    def measure(f: Callable[[], Any], sync: Callable[[], Any], n: int = 2000) -> float:
        for _ in range(50):
            f()
        sync()
        best = 1e9
        for _ in range(3):
            start = time.perf_counter()
            for _ in range(n):
                f()
            best = min(best, (time.perf_counter() - start) / n)
            sync()
        return best * 1e6

    cases: dict[str, Callable[[Any], Callable[[], Any]]] = {
        "add": lambda m: (lambda a, b: lambda: a + b)(m.ones(1024, device="cuda"), m.ones(1024, device="cuda")),
        "add with grad": lambda m: (lambda a, b: lambda: a + b)(
            m.ones(1024, device="cuda", requires_grad=True), m.ones(1024, device="cuda")
        ),
        "mul number": lambda m: (lambda a: lambda: a * 2.5)(m.ones(1024, device="cuda")),
        "add_": lambda m: (lambda a, b: lambda: a.add_(b))(m.ones(1024, device="cuda"), m.ones(1024, device="cuda")),
        "broadcast": lambda m: (lambda a, b: lambda: a + b)(m.ones(32, 32, device="cuda"), m.ones(32, device="cuda")),
        "sum": lambda m: (lambda a: lambda: a.sum())(m.ones(1024, device="cuda")),
        "sum(1)": lambda m: (lambda a: lambda: a.sum(1))(m.ones(32, 32, device="cuda")),
        "softmax": lambda m: (lambda a: lambda: a.softmax(-1))(m.ones(32, 32, device="cuda")),
        "mm": lambda m: (lambda a: lambda: a @ a)(m.ones(64, 64, device="cuda")),
        "empty": lambda m: lambda: m.empty(1024, device="cuda"),
        "zeros": lambda m: lambda: m.zeros(1024, device="cuda"),
        "view": lambda m: (lambda a: lambda: a.view(32, 32))(m.ones(1024, device="cuda")),
        "item": lambda m: (lambda a: lambda: a.item())(m.ones((), device="cuda")),
        "rand": lambda m: lambda: m.rand(1024, device="cuda"),
    }
    for name, make in cases.items():
        try:
            mine = measure(make(fl), fl.cuda.synchronize)
            theirs = measure(make(torch), torch.cuda.synchronize) if torch is not None else float("nan")
            lines.append(f"{name:16} {mine:7.2f} us   PyTorch {theirs:7.2f} us   ratio {theirs / mine:.2f}")
        except Exception as error:  # the other figures are wanted all the same
            lines.append(f"{name:16} {type(error).__name__}: {str(error)[:200]}")
    return "\n    " + "\n    ".join(lines)


@check
def parts_of_a_call() -> Any:
    from flambeau.backends import nvidia
    from flambeau.core.storage import UntypedStorage

    where = fl.device("cuda", 0)
    source = 'extern "C" __global__ void nothing(long long a, long long b, long long c, long long d) {}'
    f = nvidia.load_source(source, where).function("nothing", ("q",) * 4)
    memory = nvidia.backend().memory(where)
    a = 1 << 40

    def measure(g: Callable[[], Any], n: int = 5000) -> str:
        g()
        start = time.perf_counter()
        for _ in range(n):
            g()
        return f"{(time.perf_counter() - start) / n * 1e6:.2f} us"

    result = {"launch": measure(lambda: f(1, 256, a, a, a, a))}
    fl.cuda.synchronize()
    result["allocate and release"] = measure(lambda: memory.release(memory.allocate(4096)))
    result["storage"] = measure(lambda: UntypedStorage(4096, where))
    return result


@check
def queries() -> Any:
    c = fl.cuda
    assert c.is_available() and c.device_count() >= 1 and c.current_device() == 0
    p = c.get_device_properties()
    free, total = c.mem_get_info()
    assert 0 < free <= total
    if torch is not None:
        t = torch.cuda.get_device_properties(0)
        assert (p.name, p.total_memory, p.multi_processor_count) == (t.name, t.total_memory, t.multi_processor_count)
        assert c.get_device_capability() == torch.cuda.get_device_capability()
    return p, c.get_arch_list(), c.is_bf16_supported()


@check
def copies() -> None:
    x = np.random.rand(1000, 7).astype(np.float32)
    a = fl.from_numpy(x).cuda()
    assert str(a.device) == "cuda:0" and a.is_cuda
    same(a.cpu(), x)
    same(a.t().contiguous().cpu(), x.T)
    same(a.to("cuda:0", fl.float64).cpu(), x)
    same(a.half().float().cpu(), x.astype(np.float16))
    b = fl.empty(7, 1000).pin_memory()
    assert b.is_pinned()
    b.copy_(a.t(), non_blocking=True)
    fl.cuda.synchronize()
    same(b, x.T)
    same(fl.from_numpy(x).pin_memory().to("cuda", non_blocking=True).cpu(), x)
    same((a + fl.tensor(2.5)).cpu(), x + np.float32(2.5))
    assert "device='cuda:0'" in repr(a[0])


@check
def pointwise_and_sums() -> None:
    x = np.random.randn(333, 257).astype(np.float32)
    a = fl.from_numpy(x).cuda()
    same((a * 2 + 1).exp().cpu(), np.exp(x * 2 + 1), 1e-5)
    same((a.t() + a.t()).cpu(), x.T + x.T)
    same(a.sum().cpu(), x.astype(np.float64).sum(), 1e-4)
    same(a.sum(0).cpu(), x.sum(0), 1e-4)
    same(a.amax(1).cpu(), x.max(1))
    same(a.softmax(-1).cpu().sum(-1), np.ones(333), 1e-5)
    assert (a > 0).sum().item() == (x > 0).sum()


@check
def backward() -> None:
    x = fl.randn(64, 32, device="cuda", requires_grad=True)
    (x.sin() * x).sum().backward()
    y = x.detach().cpu()
    same(x.grad.cpu(), y.cos() * y + y.sin(), 1e-5)


@check
def products() -> None:
    a, b = fl.randn(65, 33, device="cuda"), fl.randn(33, 17, device="cuda")
    same((a @ b).cpu(), a.cpu() @ b.cpu(), 1e-4)


@check
def a_network_learns() -> Any:
    fl.manual_seed(0)
    model = fl.nn.Sequential(fl.nn.Linear(20, 64), fl.nn.ReLU(), fl.nn.Linear(64, 3)).cuda()
    x, y = fl.randn(256, 20, device="cuda"), fl.randint(0, 3, (256,), device="cuda")
    optimizer = fl.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = fl.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] * 0.8, losses
    return losses[0], losses[-1]


@check
def memory() -> Any:
    c = fl.cuda
    before = c.memory_allocated()
    a = fl.empty(1000, device="cuda")
    assert c.memory_allocated() == before + 4096, (before, c.memory_allocated())
    del a
    assert c.memory_allocated() == before
    big = [fl.empty(1 << 20, device="cuda") for _ in range(20)]
    assert c.memory_reserved() >= c.memory_allocated() >= 20 << 22
    del big
    c.empty_cache()
    try:
        fl.empty(1 << 44, device="cuda")
    except fl.cuda.OutOfMemoryError as error:
        text = str(error)
    assert (fl.ones(3, device="cuda") + 1).sum().item() == 6
    return text, c.memory_summary()


@check
def streams_and_events() -> Any:
    c = fl.cuda
    s = c.Stream()
    a = fl.randn(1 << 22, device="cuda")
    start, end = c.Event(enable_timing=True), c.Event(enable_timing=True)
    s.wait_stream(c.current_stream())
    with c.stream(s):
        assert c.current_stream() == s
        start.record()
        for _ in range(20):
            b = a * 2
        end.record()
    a.record_stream(s)
    end.synchronize()
    c.current_stream().wait_stream(s)
    same(b[:100].cpu(), a[:100].cpu() * 2)
    assert c.current_stream() != s and s.query() and end.query()
    return f"20 multiplications: {start.elapsed_time(end):.3f} ms"


@check
def threads() -> None:
    results: list[Any] = []

    def work(k: int) -> None:
        with fl.cuda.stream(fl.cuda.Stream()):
            results.append((k, (fl.ones(1000, device="cuda") * k).sum().item()))

    every = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in every:
        t.start()
    for t in every:
        t.join()
    assert sorted(results) == [(k, 1000.0 * k) for k in range(4)], results


@check
def graphs() -> None:
    x = fl.ones(1000, device="cuda")
    y = x * 2 + 1  # once before, so that kernels are there
    fl.rand(1000, device="cuda")
    g = fl.cuda.CUDAGraph()
    with fl.cuda.graph(g):
        y = x * 2 + 1
        r = fl.rand(1000, device="cuda")
    x.fill_(5)
    g.replay()
    same(y.cpu(), np.full(1000, 11))
    first = r.cpu()
    g.replay()
    assert (r.cpu() != first).any()
    if torch is not None:
        torch.manual_seed(3)
        tx = torch.ones(1000, device="cuda")
        torch.rand(1000, device="cuda")
        tg = torch.cuda.CUDAGraph()
        with torch.cuda.graph(tg):
            tr = torch.rand(1000, device="cuda")
        torch.manual_seed(3)
        fl.manual_seed(3)
        for _ in range(3):
            tg.replay()
            g.replay()
            same(r.cpu(), tr.cpu())
        assert torch.cuda.get_rng_state().tolist() == fl.cuda.get_rng_state().tolist()
        del tx


@check
def graphed_module() -> None:
    model = fl.nn.Sequential(fl.nn.Linear(16, 32), fl.nn.Tanh(), fl.nn.Linear(32, 4)).cuda()
    x = fl.randn(8, 16, device="cuda")
    expected = model(x)
    expected.sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    graphed = fl.cuda.make_graphed_callables(model, (fl.randn(8, 16, device="cuda"),))
    out = graphed(x)
    same(out.cpu(), expected.cpu(), 1e-5)
    out.sum().backward()
    for p, g in zip(model.parameters(), grads):
        same(p.grad.cpu(), g.cpu(), 1e-5)


@check
def bad_index() -> None:
    x = fl.randn(10, 4, device="cuda")
    try:
        x.index_select(0, fl.tensor([3, 12], device="cuda"))
        fl.cuda.synchronize()
    except (IndexError, RuntimeError) as error:
        print("   ", type(error).__name__, str(error)[:200])
    else:
        raise AssertionError("a bad index raised nothing")
    assert (x * 0).sum().item() == 0


@check
def saving() -> None:
    x = fl.randn(5, device="cuda")
    for place in (None, "cpu", "cuda:0"):
        file = io.BytesIO()
        fl.save({"x": x}, file)
        file.seek(0)
        y = fl.load(file, map_location=place)["x"]
        assert str(y.device) == ("cpu" if place == "cpu" else "cuda:0")
        same(x.cpu(), y.cpu())
    if torch is not None:
        file = io.BytesIO()
        torch.save(torch.arange(5.0, device="cuda"), file)
        file.seek(0)
        same(fl.load(file).cpu(), np.arange(5.0))


@check
def exchange() -> None:
    assert torch is not None
    t = torch.arange(12.0, device="cuda").view(3, 4).t()
    a = fl.from_dlpack(t)
    assert a.data_ptr() == t.data_ptr() and tuple(a.stride()) == tuple(t.stride())
    same(a.cpu(), t.cpu())
    b = torch.from_dlpack(fl.arange(6.0, device="cuda"))
    same(b.cpu(), np.arange(6.0))
    c = fl.as_tensor(t.contiguous(), device="cuda")
    same(c.cpu(), t.cpu())
    d = torch.as_tensor(fl.arange(6.0, device="cuda"), device="cuda")
    same(d.cpu(), np.arange(6.0))


def _random(name: str, make: Callable[[Any], Any], bits: bool = True) -> None:
    def run() -> None:
        assert torch is not None
        wrong = []
        for n in (1, 5, 16, 100, 1000, 4096, 100_001, 1 << 20, 1_500_000, 10_000_000):
            torch.manual_seed(7)
            fl.manual_seed(7)
            for step in range(2):
                e, a = make((torch, n)), make((fl, n))
                e, a = e.cpu().double().numpy(), a.cpu().double().numpy()
                offset = torch.cuda.get_rng_state()[8:].tolist(), fl.cuda.get_rng_state()[8:].tolist()
                equal = np.array_equal(e, a) if bits else np.allclose(e, a, rtol=1e-5, atol=1e-6)
                if not equal or offset[0] != offset[1]:
                    share = float((np.isclose(e, a, rtol=1e-5, atol=1e-6)).mean())
                    wrong.append(f"n={n} call {step}: {share:.3f} equal, offsets {offset}, {e[:3]} {a[:3]}")
                    break
        assert not wrong, "\n      " + "\n      ".join(wrong)

    run.__name__ = name
    check(run)


_random("random_uniform", lambda m: m[0].rand(m[1], device="cuda"))
_random("random_uniform_double", lambda m: m[0].rand(m[1], device="cuda", dtype=m[0].float64))
_random("random_uniform_half", lambda m: m[0].rand(m[1], device="cuda", dtype=m[0].float16))
_random("random_uniform_bfloat16", lambda m: m[0].rand(m[1], device="cuda", dtype=m[0].bfloat16))
_random("random_uniform_range", lambda m: m[0].empty(m[1], device="cuda").uniform_(-2, 3))
_random("random_normal", lambda m: m[0].randn(m[1], device="cuda"))
_random("random_normal_double", lambda m: m[0].randn(m[1], device="cuda", dtype=m[0].float64), False)
_random("random_normal_bfloat16", lambda m: m[0].randn(m[1], device="cuda", dtype=m[0].bfloat16))
_random("random_integers", lambda m: m[0].randint(0, 1000, (m[1],), device="cuda"))
_random("random_integers_wide", lambda m: m[0].randint(-(2**40), 2**41, (m[1],), device="cuda"))
_random("random_integers_middle", lambda m: m[0].randint(0, 2**29, (m[1],), device="cuda"))
_random("random_full", lambda m: m[0].empty(m[1], device="cuda", dtype=m[0].int32).random_())
_random("random_full_long", lambda m: m[0].empty(m[1], device="cuda", dtype=m[0].int64).random_())
_random("random_bernoulli", lambda m: m[0].empty(m[1], device="cuda").bernoulli_(0.3))
_random("random_bernoulli_tensor", lambda m: m[0].bernoulli(m[0].full((m[1],), 0.3, device="cuda")))
_random("random_exponential", lambda m: m[0].empty(m[1], device="cuda").exponential_(1.5))
_random("random_cauchy", lambda m: m[0].empty(m[1], device="cuda").cauchy_())
_random("random_geometric", lambda m: m[0].empty(m[1], device="cuda").geometric_(0.3))
_random("random_log_normal", lambda m: m[0].empty(m[1], device="cuda").log_normal_())
_random("random_dropout", lambda m: m[0].nn.functional.dropout(m[0].ones(m[1], device="cuda"), 0.3))
_random(
    "random_dropout_bfloat16",
    lambda m: m[0].nn.functional.dropout(m[0].ones(m[1], device="cuda", dtype=m[0].bfloat16), 0.3),
)
_random("random_dropout2d", lambda m: m[0].nn.functional.dropout2d(m[0].ones(1, m[1], 1, 1, device="cuda"), 0.3))


@check
def dropout_of_halves() -> Any:
    """What there is to find out how sixteen-bit dropout takes its numbers."""
    assert torch is not None
    torch.manual_seed(7)
    mask = torch.nn.functional.dropout(torch.ones(64, device="cuda", dtype=torch.bfloat16), 0.3)
    return (mask.cpu().float() != 0).int().tolist()


_random("random_permutation", lambda m: m[0].randperm(m[1], device="cuda"))


def main() -> int:
    faulthandler.enable()
    words = sys.argv[1:]
    failed = []
    for name, run in CHECKS.items():
        if words and not any(w in name for w in words):
            continue
        start = time.perf_counter()
        try:
            told = run()
            print(f"ok   {name} ({time.perf_counter() - start:.2f} s){'' if told is None else f': {told}'}", flush=True)
        except Exception as error:
            failed.append(name)
            text = traceback.format_exc(limit=-4) if not isinstance(error, AssertionError) else str(error)
            print(f"FAIL {name}: {type(error).__name__} {text[:2500]}", flush=True)
    print(f"{len(failed)} failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
