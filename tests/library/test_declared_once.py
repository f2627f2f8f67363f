"""An operator with a formula and one with a kernel of its own, declared in one place each: every room follows from the declaration."""

from __future__ import annotations

import copy
import io
import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest

import flambeau
from flambeau import nn
from flambeau.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh
from flambeau.distributed.tensor.debug import CommDebugMode
from flambeau.distributed.tensor.experimental import register_sharding
from flambeau.fx import symbolic_trace
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.utils.flop_counter import FlopCounterMode, register_flop_formula
from tests.kernels.cuda_on_cpu import COMPILER

# -- the declarations ---------------------------------------------------------------------------------------------------------


@flambeau.ops.pointwise
def swish(x, beta, *, shift=0.0):
    """A formula: everything else follows."""
    return x * sigmoid(beta * x) + shift  # noqa: F821 - formulas have a vocabulary of their own


@flambeau.library.custom_op("once::sine", mutates_args=())
def sine(x: flambeau.Tensor, scale: float) -> flambeau.Tensor:
    """A kernel: NumPy's here; what it means to differentiate, batch, count, shard and translate it stands below."""
    return flambeau.from_numpy(np.sin(x.numpy() * np.float32(scale)))


@sine.register_kernel("cuda")
def _(x, scale):
    return (x * scale).sin()


@sine.register_fake
def _(x, scale):
    return flambeau.empty_like(x)


def _backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return grad * ctx.scale * (x * ctx.scale).cos(), None


def _keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


sine.register_autograd(_backward, setup_context=_keep)
sine.register_vmap(lambda info, in_dims, x, scale: (sine(x, scale), in_dims[0]))
sine.register_autocast("cpu", flambeau.float32)
sine.register_autocast("cuda", flambeau.float32)


@register_flop_formula(flambeau.ops.once.sine)
def _(x_shape, scale, out_shape=None, **options):
    return 7 * x_shape[0] * x_shape[1]


@register_sharding(flambeau.ops.once.sine.default)
def _(x, scale):
    return [([Replicate()], [Replicate(), None])] + [([Shard(d)], [Shard(d), None]) for d in range(x.ndim)]


def _onnx_sine(graph, x, scale):
    return graph.op("Sin", graph.op("Mul", x, scale))


flambeau.onnx.register_custom_op_symbolic("once::sine", _onnx_sine, 17)


# -- and every verb -----------------------------------------------------------------------------------------------------------


class WithFormula(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return swish(self.layer(x), 1.5, shift=0.25).relu()

    function = staticmethod(lambda x: swish(x, 1.5, shift=0.25))
    exact = staticmethod(lambda x: x / (1 + (-1.5 * x).exp()) + 0.25)
    nodes = ("mul", "neg", "exp")


class WithKernel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return sine(self.layer(x), 1.5).relu()

    function = staticmethod(lambda x: sine(x, 1.5))
    exact = staticmethod(lambda x: (1.5 * x).sin())
    nodes = ("sine",)


both = pytest.mark.parametrize("kind", [WithFormula, WithKernel])


@pytest.fixture
def x() -> flambeau.Tensor:
    return flambeau.randn(5, 4, generator=flambeau.Generator().manual_seed(1))


@both
def test_it_computes_what_it_says_also_without_memory(kind, x) -> None:
    flambeau.testing.assert_close(kind.function(x), kind.exact(x))
    assert kind.function(x.to("meta")).shape == (5, 4)


@both
def test_it_is_differentiated(kind, x) -> None:
    found, expected = x.clone().requires_grad_(), x.clone().requires_grad_()
    kind.function(found).sum().backward()
    kind.exact(expected).sum().backward()
    flambeau.testing.assert_close(found.grad, expected.grad)
    tangent = flambeau.func.jvp(kind.function, (x,), (flambeau.ones_like(x),))[1]
    flambeau.testing.assert_close(tangent, expected.grad)
    second, wanted = (flambeau.func.hessian(lambda t, f=f: f(t).sum())(x[0]) for f in (kind.function, kind.exact))
    flambeau.testing.assert_close(second, wanted)


@both
def test_it_is_batched_also_when_differentiated(kind, x) -> None:
    assert flambeau.equal(flambeau.func.vmap(kind.function)(x), kind.function(x))
    rows = flambeau.func.vmap(flambeau.func.grad(lambda row: kind.function(row).sum()))(x)
    flambeau.testing.assert_close(rows, flambeau.func.grad(lambda t: kind.exact(t).sum())(x))


@both
def test_it_is_autocast(kind, x) -> None:
    """A formula takes what it gets, the kernel is declared to compute in float32."""
    with flambeau.autocast("cpu", flambeau.bfloat16):
        found = kind.function(x @ flambeau.eye(4))
    assert found.dtype is (flambeau.bfloat16 if kind is WithFormula else flambeau.float32)
    flambeau.testing.assert_close(found.float(), kind.exact(x), rtol=5e-2, atol=5e-2)


def _step(model: nn.Module):
    optimizer = flambeau.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss

    return step


@both
def test_it_is_compiled_and_fused_on_the_cpu(kind, x) -> None:
    model = kind()
    plain, compiled = _step(copy.deepcopy(model)), flambeau.compile(_step(model), fullgraph=True)
    for _ in range(6):
        flambeau.testing.assert_close(compiled(x), plain(x))
    told = flambeau.compiler.show(compiled)
    assert compiled._compiled.recordings()[0].calls >= 3
    if kind is WithFormula:
        assert "swish+relu" in told and "relu_backward+swish_backward" in told, told
    else:  # one call, and what stands around it is fused
        assert re.search(r"call once::sine\(", told) and "relu+pow" in told and "relu_backward+mul+cos" in told, told


_ON_GPU = """
import pathlib, sys, warnings
from tests.backends.nvidia import fake_driver
fake_driver.install(pathlib.Path(sys.argv[1]))
import flambeau as fl
from tests.library.test_declared_once import WithFormula, WithKernel, _Parts, sine, swish

def step(x):
    return sine(swish(x * 2, 1.5, shift=0.25).relu(), 1.5)

def names_of(compiled):
    return [call.op.name for call in compiled._compiled.recordings()[0].written.program.calls]

compiled, x = fl.compile(step), fl.linspace(-2, 2, 32).view(4, 8)
for _ in range(6):
    fl.testing.assert_close(compiled(x.cuda()).cpu(), step(x), rtol=1e-5, atol=1e-5)
names = names_of(compiled)
assert names[0] == "mul+swish+relu" and len(names) < 5, names

for kind in (WithFormula, WithKernel):  # differentiated, batched, autocast, and a step of training
    def gradient(x):
        x = x.detach().requires_grad_()
        kind.function(x).pow(2).sum().backward()
        return x.grad

    fl.testing.assert_close(gradient(x.cuda()).cpu(), gradient(x), rtol=1e-5, atol=1e-5)
    fl.testing.assert_close(fl.func.vmap(kind.function)(x.cuda()).cpu(), kind.function(x), rtol=1e-5, atol=1e-5)
    with fl.autocast("cuda", fl.bfloat16):
        found = kind.function(x.cuda().bfloat16())
    assert found.dtype is (fl.bfloat16 if kind is WithFormula else fl.float32), found.dtype
    plain, mine = _Parts(kind, x), _Parts(kind, x.cuda())
    compiled = fl.compile(mine.step)
    for _ in range(6):
        fl.testing.assert_close(compiled().cpu(), plain.step(), rtol=1e-4, atol=1e-4)
        fl.testing.assert_close(mine.weight.cpu(), plain.weight, rtol=1e-4, atol=1e-4)
    names = names_of(compiled)
    whole = ("mul+swish+relu+pow", "swish_backward") if kind is WithFormula else ("once::sine", "pow_backward+relu_backward")
    assert len(names) <= 6 and all(any(part in name for name in names) for part in whole), names
"""


class _Parts:
    """A step of training without matrix products, which the emulated GPU does not have."""

    def __init__(self, kind, x) -> None:
        self.kind, self.x = kind, x
        self.weight = flambeau.full_like(x, 0.5).requires_grad_()

    def step(self):
        loss = self.kind.function(self.x * self.weight).relu().pow(2).sum()
        (gradient,) = flambeau.autograd.grad(loss, [self.weight])
        with flambeau.no_grad():
            self.weight -= 0.01 * gradient
        return loss


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler, to emulate kernels")
def test_both_are_compiled_and_fused_on_an_emulated_gpu(tmp_path) -> None:
    done = subprocess.run([sys.executable, "-c", _ON_GPU, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@both
def test_it_is_exported_and_read_back(kind, x) -> None:
    model, file = kind(), io.BytesIO()
    program = flambeau.export.export(model, (x,), dynamic_shapes={"x": {0: flambeau.export.Dim("rows")}})
    names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert all(any(name in found for found in names) for name in kind.nodes), names
    flambeau.export.save(program, file)
    file.seek(0)
    for given in (x, x[:3]):
        flambeau.testing.assert_close(flambeau.export.load(file).module()(given), model(given))
        file.seek(0)


@both
@pytest.mark.parametrize("way", ["trace", "script"])
def test_it_is_in_torchscript(kind, way, x) -> None:
    model, file = kind(), io.BytesIO()
    made = flambeau.jit.trace(model, (x,)) if way == "trace" else flambeau.jit.script(model)
    assert all(name in str(made.inlined_graph) for name in kind.nodes), made.inlined_graph
    flambeau.jit.save(made, file)
    file.seek(0)
    flambeau.testing.assert_close(flambeau.jit.load(file)(x), model(x))


def test_a_number_that_is_not_known_is_one_in_torchscript(x) -> None:
    @flambeau.jit.script
    def scaled(x, beta: float):
        return swish(x, beta)

    flambeau.testing.assert_close(scaled(x, 0.5), swish(x, 0.5))
    flambeau.testing.assert_close(scaled(x, 2.5), swish(x, 2.5))


@both
@pytest.mark.parametrize("dynamo", [False, True])
def test_it_is_translated_to_onnx(kind, dynamo, x, tmp_path) -> None:
    """With both exporters, for other sizes than the example's."""
    runtime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    model, path = kind(), str(tmp_path / "model.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sizes = {"input_names": ["x"], "dynamic_axes": {"x": {0: "rows"}}, "verbose": False}
        flambeau.onnx.export(model, (x,), path, opset_version=17, dynamo=dynamo, **sizes)
    assert {"Sin" if kind is WithKernel else "Exp", "Relu"} <= {n.op_type for n in onnx.load(path).graph.node}
    session = runtime.InferenceSession(path)
    for given in (x, x[:3]):
        (found,) = session.run(None, {session.get_inputs()[0].name: given.numpy()})
        np.testing.assert_allclose(found, model(given).detach().numpy(), rtol=1e-5, atol=1e-6)


@both
def test_it_is_a_node_of_fx(kind, x) -> None:
    model = kind()
    traced = symbolic_trace(model)
    for other in (traced, copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        assert flambeau.equal(other(x), model(x)), other.code
    flambeau.testing.assert_close(make_fx(kind.function)(x)(x), kind.function(x))


@both
def test_it_is_counted(kind, x) -> None:
    with FlopCounterMode(display=False) as counter:
        kind()(x)
    found = {str(name): count for name, count in counter.get_flop_counts()["Global"].items()}
    assert found == {"aten.addmm": 120} | ({"once.sine": 7 * 15} if kind is WithKernel else {})


@both
def test_it_is_drawn_and_profiled(kind, x) -> None:
    drawing = flambeau.utils.draw(kind(), x)
    labels = re.findall(r">([^<>]+)</text>", drawing._repr_svg_())
    assert set(kind.nodes) <= set(labels), labels
    with flambeau.profiler.profile() as profile:
        kind.function(x)
    names = {event.key for event in profile.key_averages()}
    assert ("flambeau::swish" if kind is WithFormula else "once::sine") in names, names


@both
def test_it_is_sharded(kind, x) -> None:
    """Each rank computes its part and its gradient, and nothing is sent."""
    dist = flambeau.distributed
    dist.init_process_group("fake", rank=0, world_size=2, store=dist.HashStore())
    try:
        mesh = init_device_mesh("cpu", (2,))
        part = DTensor.from_local(x, mesh, [Shard(0)], run_check=False).requires_grad_()
        with CommDebugMode() as sent:
            found = kind.function(part)
            found.backward(flambeau.ones_like(found))
        assert not sent.get_total_counts()
        wanted = flambeau.func.grad(lambda t: kind.exact(t).sum())(x)
        assert part.grad.placements == (Shard(0),)
        flambeau.testing.assert_close(part.grad.to_local(), wanted)
        assert found.placements == (Shard(0),) and found.shape == (10, 4)
        flambeau.testing.assert_close(found.to_local(), kind.function(x))
    finally:
        dist.destroy_process_group()
