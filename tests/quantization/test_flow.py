"""Models quantized step by step, in eager and traced form, compute what PyTorch's compute."""

from __future__ import annotations

import copy
import importlib
import io
import re
from typing import Any

import numpy as np
import pytest
from answers import judge
from answers.programs import check_function

import flambeau

from .flow_models import data, difference, functions, layers, recurrent, stubbed, twins, warmed

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated"),
    pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max"),
    pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*quantize_per_tensor.*"),
]
IMAGES = data((2, 3, 8, 8))


@pytest.fixture(scope="module")
def torch() -> Any:
    torch = judge("torch")
    judge("torch.ao.quantization.quantize_fx")
    return torch


def _fx_steps(library: Any, model: Any, kind: str) -> list[Any]:
    """The texts and results of the traced model: prepared, as a reference, and with quantized operators."""
    quantization, fx = library.ao.quantization, library.ao.quantization.quantize_fx
    images = [library.tensor(x) for x in IMAGES]
    if kind == "qat":
        prepared = fx.prepare_qat_fx(model.train(), quantization.get_default_qat_qconfig_mapping("x86"), (images[0],))
        optimizer = library.optim.SGD(prepared.parameters(), lr=0.1)
        for x in images:
            result = prepared(x)
            optimizer.zero_grad()
            (result[0] if isinstance(result, tuple) else result).sum().backward()
            optimizer.step()
        prepared.eval()
    else:
        mapping = (
            quantization.QConfigMapping().set_global(quantization.default_dynamic_qconfig)
            if kind == "dynamic"
            else quantization.get_default_qconfig_mapping("x86")
            if kind == "x86"
            else quantization.QConfigMapping().set_global(quantization.default_per_channel_qconfig)
        )
        if kind == "part":
            mapping.set_module_name("conv2", None).set_module_name("fc2", quantization.default_qconfig)
        prepared = fx.prepare_fx(model.eval(), mapping, (images[0],))
        for x in images:
            prepared(x)
    reference, quantized = fx.convert_to_reference_fx(copy.deepcopy(prepared)), fx.convert_fx(prepared)
    return [prepared.code, reference.code, reference(images[0]), quantized.code, quantized(images[0])]


def _traced(library: Any, build: Any, kind: str) -> Any:
    importlib.import_module(f"{library.__name__}.ao.quantization.quantize_fx")
    return _fx_steps(library, warmed(build, library, IMAGES if build is layers else ()), kind)


@pytest.mark.parametrize(
    ("build", "kind"),
    [(layers, "x86"), (layers, "part"), (layers, "qat"), (functions, "smallest and largest"), (functions, "dynamic")],
)
def test_traced(build: Any, kind: str) -> None:
    check_function(_traced, build, kind)


def _shown(model: Any) -> str:
    """How a model prints, with scales to five digits: the last ones depend on how a sum is rounded."""
    return re.sub(r"\d+\.\d+(e-\d+)?", lambda m: f"{float(m[0]):.5g}", repr(model))


def _eager(library: Any, model: Any, backend: str, train: bool) -> Any:
    quantization = library.ao.quantization
    names = [["conv", "bn", "relu"]]
    images = [library.tensor(x) for x in IMAGES]
    if train:
        model = quantization.fuse_modules_qat(model.train(), names)
        model.qconfig = quantization.get_default_qat_qconfig(backend)
        model = quantization.prepare_qat(model)
        optimizer = library.optim.SGD(model.parameters(), lr=0.1)
        for x in images:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
        model.eval()
    else:
        model = quantization.fuse_modules(model.eval(), names)
        model.qconfig = quantization.default_per_channel_qconfig
        model = quantization.prepare(model)
        for x in images:
            model(x)
    return quantization.convert(model)


def _converted(library: Any, backend: str, train: bool) -> Any:
    model = _eager(library, warmed(stubbed, library, IMAGES), backend, train)
    return model(library.tensor(IMAGES[0])), _shown(model), list(model.state_dict())


@pytest.mark.parametrize(("backend", "train"), [("x86", False), ("qnnpack", True)])
def test_eager(backend: str, train: bool) -> None:
    check_function(_converted, backend, train)


@pytest.mark.parametrize(("backend", "train"), [("x86", False), ("qnnpack", True)])
def test_files_of_quantized_models_go_both_ways(torch: Any, backend: str, train: bool) -> None:
    theirs, ours = twins(stubbed, torch, IMAGES)
    theirs, ours = _eager(torch, theirs, backend, train), _eager(flambeau, ours, backend, train)
    x, expected, found = IMAGES[0], theirs.state_dict(), ours.state_dict()

    file = io.BytesIO()  # PyTorch's file in our model, and the other way round
    torch.save(expected, file)
    file.seek(0)
    state = flambeau.load(file)
    ours.load_state_dict(state)
    assert difference(theirs(torch.tensor(x)), ours(flambeau.tensor(x))) < 1e-6
    file = io.BytesIO()
    flambeau.save(found, file)
    file.seek(0)
    theirs.load_state_dict(torch.load(file, weights_only=False))
    assert difference(theirs(torch.tensor(x)), ours(flambeau.tensor(x))) < 1e-6


def _dynamic(library: Any, dtype: str) -> Any:
    made = library.ao.quantization.quantize_dynamic(recurrent(library), dtype=getattr(library, dtype))
    return made(library.tensor(data((7, 2, 6), 1)[0])), _shown(made)


@pytest.mark.parametrize("dtype", ["qint8", "float16"])
def test_dynamic(dtype: str) -> None:
    check_function(_dynamic, dtype)


def _taken_apart(library: Any) -> Any:
    quantization = library.ao.quantization
    model = library.nn.Sequential(quantization.QuantStub(), recurrent(library).lstm).eval()
    model.qconfig = quantization.default_qconfig
    prepared = quantization.prepare(model)
    x = library.tensor(data((3, 2, 6), 1)[0])
    prepared(x)
    out, (h, c) = quantization.convert(prepared)(x)
    return [t.dequantize() for t in (out, h, c)]


def test_lstm_taken_apart() -> None:
    check_function(_taken_apart)


def test_traced_models_know_what_they_left_alone() -> None:
    """What is observed, and what not, in a model without PyTorch beside it."""
    quantization, nn = flambeau.ao.quantization, flambeau.nn
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Softplus(), nn.Linear(4, 2)).eval()
    mapping = quantization.get_default_qconfig_mapping("x86")
    prepared = quantization.prepare_fx(model, mapping, (flambeau.randn(1, 4),))
    assert type(prepared.get_submodule("0")).__name__ == "LinearReLU"
    x = flambeau.randn(16, 4)
    expected = prepared(x)
    quantized = quantization.convert_fx(prepared)
    assert "softplus" not in quantized.code.lower() or "dequantize" in quantized.code
    assert (quantized(x) - expected).abs().max() < 0.1
    assert np.isfinite(quantized(x).numpy()).all()


@pytest.mark.parametrize("kind", ["Embedding", "EmbeddingBag"])
def test_reference_tables_keep_weight_and_settings(kind: str) -> None:
    table = getattr(flambeau.nn, kind)(6, 4, max_norm=2.0, padding_idx=1)
    made = getattr(flambeau.ao.nn.quantized.reference, kind).from_float(table, None)
    assert made.weight.requires_grad
    assert made.weight.equal(table.weight)
    assert (made.max_norm, made.padding_idx, made.weight.device) == (2.0, 1, table.weight.device)
