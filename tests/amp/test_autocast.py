"""The autocast context: switches, nesting, cache, autograd, threads, decorators, custom functions; the same as in PyTorch."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest

import flambeau
from flambeau.core import modes
from flambeau.overrides import TorchFunctionMode


def _states(torch, *devices):
    return [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices] + [
        torch.is_autocast_cache_enabled()
    ]


def _nested(torch):
    x = torch.ones(2, 2)
    seen = [_states(torch, "cpu", "cuda")]
    with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
        seen += [_states(torch, "cpu", "cuda"), (x @ x).dtype]
        with torch.autocast("cpu", enabled=False):
            seen += [_states(torch, "cpu"), (x @ x).dtype]
            with torch.amp.autocast("cpu", torch.bfloat16, cache_enabled=True):
                seen += [_states(torch, "cpu"), (x @ x).dtype]
            seen.append((x @ x).dtype)
        with torch.autocast("cpu"):
            seen += [_states(torch, "cpu"), (x @ x).dtype]
        with torch.autocast("cuda"):
            seen += [_states(torch, "cpu", "cuda"), (x @ x).dtype]
    return [*seen, _states(torch, "cpu", "cuda"), (x @ x).dtype]


def test_nested_contexts(same_outcome):
    same_outcome(_nested)


def test_leaving_by_an_exception(same_outcome):
    def scenario(torch):
        try:
            with torch.autocast("cpu"):
                raise KeyError
        except KeyError:
            return _states(torch, "cpu"), (torch.ones(2, 2) @ torch.ones(2, 2)).dtype

    same_outcome(scenario)
    assert not any(m.stays for m in modes.own.stack)


DEVICES = ["cpu", "cuda", "mps", "xpu", "hpu", "xla", "meta", "abacus", "cpu:0"]


@pytest.mark.parametrize("device", DEVICES)
def test_devices(same_outcome, device):
    same_outcome(lambda torch: torch.amp.is_autocast_available(device))
    same_outcome(lambda torch: torch.is_autocast_enabled(device))
    same_outcome(lambda torch: torch.get_autocast_dtype(device))
    same_outcome(lambda torch: (lambda a: (a.device, a.fast_dtype, a._enabled))(torch.autocast(device)))


@pytest.mark.parametrize(
    "arguments",
    ["0", "torch.device('cpu')", "'cpu', torch.float32", "'cpu', torch.float64, False", "'cuda', torch.bfloat16", "'mps', torch.float32"],
)  # fmt: skip
def test_what_a_context_makes_of_its_arguments(agrees, arguments):
    agrees(f"[(a.device, a.fast_dtype, a._enabled, a._cache_enabled) for a in [torch.autocast({arguments})]]")


def _warned(torch, make):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make(torch)
    return [(w.category.__name__, str(w.message).partition(" (Triggered")[0]) for w in caught]


WARNING = [
    lambda torch: torch.autocast("cuda"),
    lambda torch: torch.autocast("cpu", dtype=torch.float32),
    lambda torch: torch.cpu.amp.autocast(),
    lambda torch: torch.cpu.amp.GradScaler(),
    lambda torch: torch.cuda.amp.autocast(),
    lambda torch: torch.cuda.amp.GradScaler(),
    lambda torch: torch.cuda.amp.custom_fwd(lambda ctx: None),
    lambda torch: torch.cuda.amp.custom_bwd(lambda ctx: None),
    lambda torch: torch.amp.GradScaler("cuda"),
    lambda torch: torch.get_autocast_cpu_dtype(),
    lambda torch: torch.is_autocast_cpu_enabled(),
    lambda torch: torch.set_autocast_cpu_enabled(False),
    lambda torch: torch.set_autocast_cpu_dtype(torch.bfloat16),
    lambda torch: torch.get_autocast_gpu_dtype(),
    lambda torch: torch.set_autocast_gpu_dtype(torch.float16),
]


@pytest.mark.parametrize("make", WARNING)
def test_warnings(same_outcome, make):
    same_outcome(lambda torch: _warned(torch, make))


def _switched(torch):
    x, seen = torch.ones(2, 2), []
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_dtype("cpu", torch.float16)
    seen += [_states(torch, "cpu"), (x @ x).dtype, torch.autocast("cpu").fast_dtype]
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    torch.set_autocast_enabled(True)
    seen += [torch.is_autocast_enabled(), torch.is_autocast_enabled("cuda"), (x @ x).dtype]
    torch.set_autocast_enabled(False)
    torch.set_autocast_cache_enabled(False)
    seen += _states(torch, "cpu", "cuda")
    torch.set_autocast_cache_enabled(True)
    return seen, torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()


def test_switches(same_outcome):
    same_outcome(_switched)
    same_outcome(lambda torch: torch.set_autocast_enabled("cpu", 1))
    same_outcome(lambda torch: torch.set_autocast_dtype("cpu", "float16"))
    same_outcome(lambda torch: torch.set_autocast_enabled("abacus", True))


def _cached(torch, cache_enabled, clear, first_without_grad):
    """Whether a change of a parameter inside the context is seen, and what is recorded."""
    w, x = torch.eye(2, requires_grad=True), torch.ones(2, 2)
    with torch.autocast("cpu", cache_enabled=cache_enabled):
        with torch.set_grad_enabled(not first_without_grad):
            first = x @ w
        with torch.no_grad():
            w.add_(1)
        with torch.autocast("cpu", enabled=False):
            pass
        if clear:
            torch.clear_autocast_cache()
        second = x @ w
    with torch.autocast("cpu"):
        third = x @ w
    second.sum().backward()
    return first.tolist(), second.tolist(), third.tolist(), first.requires_grad, w.grad


@pytest.mark.parametrize("cache_enabled", [True, False])
@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize("first_without_grad", [True, False])
def test_cache(same_outcome, cache_enabled, clear, first_without_grad):
    same_outcome(lambda torch: _cached(torch, cache_enabled, clear, first_without_grad))


def test_a_parameter_is_cast_once():
    w, x = flambeau.ones(2, 2, requires_grad=True), flambeau.ones(2, 2)
    with flambeau.autocast("cpu"):
        y = (x @ w) @ w
        again = x @ w
    first, second = y.grad_fn.next_functions[0][0].next_functions[1][0], y.grad_fn.next_functions[1][0]
    assert first is second is again.grad_fn.next_functions[1][0] and first.name() == "ToCopyBackward0"
    with flambeau.autocast("cpu"):
        assert (x @ w).grad_fn.next_functions[1][0] is not first  # the copy did not outlive the context
    with flambeau.autocast("cpu"), flambeau.autocast("cpu", dtype=flambeau.float16):
        assert (x @ w).dtype is flambeau.float16  # nor is one of another dtype taken for it


def test_gradients_have_the_dtype_of_parameters(same_outcome):
    def scenario(torch):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
        )
        x = torch.ones(5, 3, requires_grad=True)
        with torch.autocast("cpu"):
            loss = model(x).square().mean()
        loss.backward()
        return loss.dtype, x.grad.dtype, [p.grad.dtype for p in model.parameters()]

    same_outcome(scenario)


def test_backward_inside_the_context(same_outcome):
    def scenario(torch):
        a = torch.full((3, 3), 1.001, requires_grad=True)
        y = a @ a  # in float32
        with torch.autocast("cpu"):
            (g,) = torch.autograd.grad(y, a, torch.full((3, 3), 1.001))
        return y.dtype, g

    same_outcome(scenario)


def test_left_alone(same_outcome):
    for call in (
        lambda t, x: torch_mm_into(t, x),
        lambda t, x: x.clone().addmm_(x, x),
        lambda t, x: x.double() @ x.double(),
        lambda t, x: x.long() @ x.long(),
        lambda t, x: (x + 0j) @ (x + 0j),
        lambda t, x: t.mm(x.double(), x),
        lambda t, x: t.cat([x.half(), x.half()]),
        lambda t, x: t.cat([x.bfloat16(), x.long()]),
        lambda t, x: t.cat([x.bfloat16(), x.double()]),
        lambda t, x: x.half() @ x,
        lambda t, x: x.to("meta") @ x.to("meta"),
        lambda t, x: x.to_sparse() @ x,
        lambda t, x: t.nn.functional.mse_loss(x.double(), x.double()),
    ):
        same_outcome(lambda torch, call=call: _under(torch, call))


def torch_mm_into(t, x):
    return t.mm(x, x, out=t.empty(2, 2))


def _under(torch, call):
    with torch.autocast("cpu"):
        return call(torch, torch.ones(2, 2)).dtype


def test_other_threads_are_not_concerned():
    x, seen = flambeau.ones(2, 2), []
    with flambeau.autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.extend([(x @ x).dtype, flambeau.is_autocast_enabled("cpu")]))
        thread.start()
        thread.join()
        assert (x @ x).dtype is flambeau.bfloat16
    assert seen == [flambeau.float32, False]


def test_threads_that_come_and_go():
    """Contexts opened and closed at the same time in several threads leave nothing behind and disturb nobody."""
    x, wrong = flambeau.ones(2, 2), []

    def work(use: bool) -> None:
        try:
            for _ in range(200):
                with flambeau.autocast("cpu", enabled=use):
                    if (x @ x + x).dtype is not flambeau.float32 or (x @ x).dtype is not (
                        flambeau.bfloat16 if use else flambeau.float32
                    ):
                        wrong.append(use)
        except Exception as problem:
            wrong.append(problem)

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == [] and not any(m.stays for m in modes.own.stack)


def test_decorator(same_outcome):
    def scenario(torch):
        @torch.autocast("cpu", dtype=torch.bfloat16)
        def product(x):
            "A product."
            return x @ x

        return product(torch.ones(2, 2)).dtype, product.__name__, product.__doc__, _states(torch, "cpu")

    same_outcome(scenario)


def test_a_decorated_function_may_call_itself():
    """PyTorch leaves autocast on after this: one context that is entered twice forgets what was outside."""

    @flambeau.autocast("cpu")
    def product(x, depth):
        return product(x, depth - 1) if depth else x @ x

    assert product(flambeau.ones(2, 2), 3).dtype is flambeau.bfloat16
    assert not flambeau.is_autocast_enabled("cpu") and not any(m.stays for m in modes.own.stack)


def test_function_modes_see_calls_before_they_are_cast():
    class Watch(TorchFunctionMode):
        def __init__(self):
            self.seen = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen += [a.dtype for a in args]
            return func(*args, **(kwargs or {}))

    x = flambeau.ones(2, 2)
    with flambeau.autocast("cpu"), Watch() as inner:
        y = flambeau.mm(x, x)
    with Watch() as outer, flambeau.autocast("cpu"):
        z = flambeau.mm(x, x)
    assert inner.seen == outer.seen == [flambeau.float32] * 2 and y.dtype is z.dtype is flambeau.bfloat16


def _custom(torch, cast_inputs, forward_under, backward_under):
    seen = []

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=cast_inputs and getattr(torch, cast_inputs))
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            seen.append((a.dtype, torch.is_autocast_enabled("cpu")))
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            seen.append((g.dtype, (g.float() @ g.float()).dtype, torch.is_autocast_enabled("cpu")))
            return g @ b.t(), a.t() @ g

    a = torch.ones(2, 2, requires_grad=True)
    with torch.autocast("cpu", enabled=forward_under):
        y = Product.apply(a, a * 2)
    with torch.autocast("cpu", enabled=backward_under):
        y.sum().backward()
    return y.dtype, a.grad, seen


@pytest.mark.parametrize("cast_inputs", [None, "float32", "bfloat16"])
@pytest.mark.parametrize("forward_under", [True, False])
@pytest.mark.parametrize("backward_under", [True, False])
def test_custom_functions(same_outcome, cast_inputs, forward_under, backward_under):
    same_outcome(lambda torch: _custom(torch, cast_inputs, forward_under, backward_under))
    same_outcome(lambda torch: torch.amp.custom_fwd(device_type=torch.device("cpu")))


def test_no_grad_and_inference(same_outcome):
    def scenario(torch):
        w, x, seen = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2), []
        with torch.autocast("cpu"):
            with torch.inference_mode():
                y = x @ w
                seen += [y.dtype, y.is_inference()]
            with torch.no_grad():
                seen.append((x @ w).requires_grad)
            y = x @ w
            seen += [y.requires_grad, y.is_inference()]
        y.sum().backward()
        return seen, w.grad

    same_outcome(scenario)


def test_packed_sequences(same_outcome):
    def scenario(torch):
        torch.manual_seed(0)
        packed, found = torch.nn.utils.rnn.pack_sequence([torch.ones(3, 4), torch.ones(2, 4)]), []
        with torch.autocast("cpu"):
            out, (h, c) = torch.nn.LSTM(4, 2)(packed)
            found += [out.data.dtype, h.dtype, c.dtype]
            for kind in (torch.nn.GRU, torch.nn.RNN):
                out, h = kind(4, 2)(packed)
                found += [out.data.dtype, h.dtype]
        return found

    same_outcome(scenario)


def test_values_of_a_product():
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((64, 64), dtype=np.float32) for _ in range(2))
    with flambeau.autocast("cpu"):
        got = flambeau.tensor(a) @ flambeau.tensor(b)
    rounded = [flambeau.tensor(v).bfloat16().float().numpy() for v in (a, b)]
    np.testing.assert_allclose(got.float().numpy(), rounded[0] @ rounded[1], rtol=2**-8, atol=1e-4)
