"""TorchScript of quantized layers, observers and packed weights: the same results, in files that cross both ways."""

from __future__ import annotations

import functools
import io
from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau

from .flow_models import data

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated"),
    pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max"),
    pytest.mark.filterwarnings("ignore:.*deprecated.*"),
    pytest.mark.filterwarnings("ignore:.*quantize_per_tensor.*"),
    pytest.mark.filterwarnings("ignore:Converting a tensor to a Python"),
    pytest.mark.filterwarnings("ignore:.*poor numerical accuracy.*"),
]


@pytest.fixture(scope="module")
def torch() -> Any:
    torch = judge("torch")
    judge("torch.ao.quantization.quantize_fx")
    # Generated code has the same file names in both libraries, and the first to use one keeps it (linecache).
    judge("torch.fx.graph_module")._loader.next_id += 1_000_000
    return torch


def _through_file(module: Any, library: Any = flambeau) -> Any:
    file = io.BytesIO()
    library.jit.save(module, file)
    file.seek(0)
    return library.jit.load(file)


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) else result


def _same(a: Any, b: Any) -> bool:
    a, b = (_first(x) for x in (a, b))
    a, b = ((x.dequantize() if x.is_quantized else x).detach().numpy() for x in (a, b))
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-5, atol=1e-6)


def _codes(library: Any, *shape: int) -> Any:
    return library.quantize_per_tensor(library.tensor(data(shape)[0]), 0.05, 10, library.quint8)


@functools.cache
def _layers() -> dict[str, tuple[Any, Any]]:
    """Layers with an input for each."""
    nnq, nnqd = flambeau.ao.nn.quantized, flambeau.ao.nn.quantized.dynamic
    nniq = flambeau.ao.nn.intrinsic.quantized
    found: dict[str, tuple[Any, Any]] = {}
    for d in (1, 2, 3):
        shape = (2, 4, *(5,) * d)
        for name in ("Conv", "ConvTranspose"):
            found[f"{name}{d}d"] = (getattr(nnq, f"{name}{d}d")(4, 6, 3, padding=1), _codes(flambeau, *shape))
        found[f"ConvReLU{d}d"] = (getattr(nniq, f"ConvReLU{d}d")(4, 6, 3), _codes(flambeau, *shape))
    found["reflected"] = (nnq.Conv2d(4, 6, 3, padding=2, padding_mode="reflect"), _codes(flambeau, 2, 4, 5, 5))
    found["dynamic Conv2d"] = (nnqd.Conv2d(4, 6, 3), flambeau.randn(2, 4, 5, 5))
    for name in ("Linear", "LinearReLU", "LinearTanh"):
        found[name] = (getattr(nnq if name == "Linear" else nniq, name)(4, 3), _codes(flambeau, 2, 4))
    found["dynamic Linear"] = (nnqd.Linear(4, 3), flambeau.randn(2, 4))
    found["half Linear"] = (nnqd.Linear(4, 3, dtype=flambeau.float16), flambeau.randn(2, 4))
    found["BatchNorm2d"] = (nnq.BatchNorm2d(4).eval(), _codes(flambeau, 2, 4, 5, 5))
    found["Hardswish"] = (nnq.Hardswish(0.1, 3), _codes(flambeau, 2, 4))
    found["LSTMCell"] = (nnqd.LSTMCell(4, 3), flambeau.randn(2, 4))
    found["Embedding"] = (nnq.Embedding(5, 8), flambeau.tensor([1, 3]))
    return found


LAYERS = list(_layers())


@pytest.mark.parametrize("name", LAYERS)
def test_layers_compute_the_same_when_compiled_recorded_and_read(name: str) -> None:
    layer, x = _layers()[name]
    expected = layer(x)
    script, trace = flambeau.jit.script(layer), flambeau.jit.trace(layer, x, check_trace=False)
    for made in (script, trace, _through_file(script), _through_file(trace)):
        assert _same(made(x), expected)


@pytest.mark.parametrize("dtype", ["quint8", "quint4x2"])
def test_tables_of_few_bits_cross_files(dtype: str) -> None:
    kind = getattr(flambeau, dtype)
    weight = flambeau.rand(6, 8) + 1
    scale = (weight.amax(1) - weight.amin(1)) / (255 if dtype == "quint8" else 15)
    table = flambeau.ao.nn.quantized.EmbeddingBag(6, 8, mode="sum", include_last_offset=True, dtype=kind)
    table.set_weight(flambeau.quantize_per_channel(weight, scale, -weight.amin(1) / scale, 0, kind))
    script = flambeau.jit.script(table)
    rows, offsets = flambeau.tensor([0, 2, 5]), flambeau.tensor([0, 2, 3])
    assert _same(_through_file(script)(rows, offsets), table(rows, offsets))


class _Recurrent(flambeau.nn.Module):
    def __init__(self, layer: Any):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)


class _Sequences(_Recurrent):
    def forward(
        self, x: flambeau.nn.utils.rnn.PackedSequence
    ) -> tuple[flambeau.nn.utils.rnn.PackedSequence, flambeau.Tensor]:
        return self.layer(x)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_run_in_pytorch(torch: Any, kind: str, tmp_path: Any) -> None:
    model = _Recurrent(getattr(flambeau.ao.nn.quantized.dynamic, kind)(4, 5, num_layers=2, bidirectional=True))
    x = data((6, 3, 4))[0]
    expected = model(flambeau.tensor(x))
    script = flambeau.jit.script(model)
    script.save(tmp_path / "model.pt")
    assert _same(torch.jit.load(str(tmp_path / "model.pt"))(torch.tensor(x)), expected)
    assert _same(flambeau.jit.load(tmp_path / "model.pt")(flambeau.tensor(x)), expected)


def test_packed_sequences_choose_their_overload() -> None:
    layer = flambeau.ao.nn.quantized.dynamic.GRU(4, 5)
    x = flambeau.nn.utils.rnn.pack_padded_sequence(flambeau.randn(6, 3, 4), flambeau.tensor([6, 4, 2]))
    assert _same(flambeau.jit.script(_Sequences(layer))(x)[0].data, layer(x)[0].data)


def _quantized(library: Any) -> Any:
    """A small model with weights of 8 bits, equal in both libraries."""
    nn, quantization = library.nn, library.ao.quantization
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval()
    with library.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(library.tensor(data(tuple(parameter.shape), number + 1)[number] * 0.2))
    images = library.tensor(data((2, 3, 8, 8))[0])
    prepared = library.ao.quantization.quantize_fx.prepare_fx(
        model, quantization.get_default_qconfig_mapping("x86"), (images,)
    )
    prepared(images)
    return library.ao.quantization.quantize_fx.convert_fx(prepared)


def test_quantized_models_cross_both_ways(torch: Any, tmp_path: Any) -> None:
    x = data((2, 3, 8, 8))[0]
    mine, theirs = _quantized(flambeau), _quantized(torch)
    expected = theirs(torch.tensor(x))
    flambeau.jit.script(mine).save(tmp_path / "mine.pt")
    assert _same(torch.jit.load(str(tmp_path / "mine.pt"))(torch.tensor(x)), expected)
    for name, made in (("script", torch.jit.script(theirs)), ("trace", torch.jit.trace(theirs, torch.tensor(x)))):
        made.save(str(tmp_path / f"{name}.pt"))
        loaded = flambeau.jit.load(tmp_path / f"{name}.pt")
        assert _same(loaded(flambeau.tensor(x)), expected)
        loaded.save(tmp_path / "again.pt")
        assert _same(torch.jit.load(str(tmp_path / "again.pt"))(torch.tensor(x)), expected)


def test_frozen_models_keep_packed_weights_as_constants(torch: Any, tmp_path: Any) -> None:
    x = data((2, 3, 8, 8))[0]
    model = _quantized(flambeau)
    frozen = flambeau.jit.freeze(flambeau.jit.script(model).eval())
    assert not list(frozen.named_modules())[1:]
    frozen.save(tmp_path / "frozen.pt")
    expected = model(flambeau.tensor(x))
    assert _same(torch.jit.load(str(tmp_path / "frozen.pt"))(torch.tensor(x)), expected)


@pytest.mark.parametrize(
    "name",
    [
        "MinMaxObserver", "MovingAverageMinMaxObserver", "PerChannelMinMaxObserver", "MovingAveragePerChannelMinMaxObserver",
        "HistogramObserver", "FakeQuantize", "default_fused_per_channel_wt_fake_quant",
    ],
)  # fmt: skip
def test_observers_find_the_same_scales_when_compiled(name: str) -> None:
    make = getattr(flambeau.ao.quantization, name)
    script, plain = flambeau.jit.script(make()), make()
    for x in data((4, 8), count=2):
        assert _same(script(flambeau.tensor(x)), plain(flambeau.tensor(x)))
    for made in (script, _through_file(script)):
        for found, wanted in zip(made.calculate_qparams(), plain.calculate_qparams()):
            assert flambeau.equal(found, wanted)


def test_compiled_rounding_can_be_switched_off() -> None:
    quantization = flambeau.ao.quantization
    script = flambeau.jit.script(quantization.FakeQuantize())
    script.apply(quantization.disable_fake_quant)
    assert int(script.fake_quant_enabled) == 0
    x = flambeau.randn(5)
    assert flambeau.equal(script(x), x)


def test_packed_weights_are_classes_of_their_own() -> None:
    weight = flambeau.quantize_per_tensor(flambeau.randn(3, 4), 0.1, 0, flambeau.qint8)
    packed = flambeau.ops.quantized.linear_prepack(weight, None)
    assert isinstance(packed, flambeau.classes.quantized.LinearPackedParamsBase)
    with pytest.raises(RuntimeError, match="Class quantized.Nothing is not registered"):
        flambeau.classes.quantized.Nothing  # noqa: B018


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_with_packed_weights_are_traced(kind: str) -> None:
    layer = getattr(flambeau.nn, kind)
    model = flambeau.ao.quantization.quantize_dynamic(flambeau.nn.Sequential(layer(4, 3)), {layer})
    x, other = flambeau.randn(2, 1, 4), flambeau.randn(5, 1, 4)
    traced = flambeau.jit.trace(model[0], (x,))
    assert f"aten::quantized_{kind.lower()}" in str(traced.inlined_graph)
    assert flambeau.equal(traced(other)[0], model[0](other)[0])
