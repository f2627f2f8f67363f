"""Equalization, comparing models, and operators whose scales are arguments, beside PyTorch's."""

from __future__ import annotations

import copy
import importlib
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
]


@pytest.fixture(scope="module")
def torch() -> Any:
    torch = judge("torch")
    for name in ("quantize_fx", "_equalize", "_correct_bias", "fx._equalize", "fx._decomposed"):
        judge(f"torch.ao.quantization.{name}")
    judge("torch.ao.ns._numeric_suite")
    return torch


def _model(library: Any) -> Any:
    nn = library.nn
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
    with library.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(library.tensor(data(tuple(parameter.shape), number + 1)[number]))
    return model


def _near(a: Any, b: Any) -> bool:
    return np.allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)


def _calls() -> dict[str, Any]:
    """Calls of operators, made of a library."""

    def channels(library: Any, x: Any) -> tuple:
        scales, zero_points = library.tensor([0.03, 0.05, 0.02]), library.tensor([3, -4, 0])
        return x, scales, zero_points, 1, -128, 127, library.int8

    return {
        "quantize_per_tensor": lambda L, x: (x, 0.03, 5, -128, 127, L.int8),
        "quantize_per_channel": channels,
        "choose_qparams.tensor": lambda L, x: (x, -128, 127, 1e-6, L.int8),
        "choose_qparams_symmetric.tensor": lambda L, x: (x, -128, 127, 1e-6, L.int8),
        "choose_qparams_per_token_asymmetric": lambda L, x: (x, L.int8),
        "choose_qparams_per_token": lambda L, x: (x, L.int8),
        "fake_quant_per_channel": lambda L, x: channels(L, x)[:-1],
    }


@pytest.mark.parametrize("name", list(_calls()))
def test_operators_with_their_scales_as_arguments(torch: Any, name: str) -> None:
    results = []
    for library in (flambeau, torch):
        operator: Any = library.ops.quantized_decomposed
        for part in name.split("."):
            operator = getattr(operator, part)
        found = operator(*_calls()[name](library, library.tensor(data((4, 3))[0])))
        results.append(found if isinstance(found, tuple) else (found,))
    for mine, theirs in zip(*results, strict=True):
        assert str(mine.dtype) == str(theirs.dtype) and np.array_equal(mine.numpy(), theirs.numpy())


def test_codes_become_values_again(torch: Any) -> None:
    codes = np.arange(-6, 6, dtype=np.int8).reshape(4, 3)
    for library in (flambeau, torch):
        home, x = library.ops.quantized_decomposed, library.tensor(codes)
        values = home.dequantize_per_tensor(x, 0.5, 2, -128, 127, library.int8)
        assert values.tolist() == ((codes.astype(np.float32) - 2) * 0.5).tolist()
        groups = home.dequantize_per_channel_group(
            x.reshape(3, 4), library.tensor([[1.0, 2.0]] * 3), None, -128, 127, library.int8, 2, library.float32
        )
        assert groups[0].tolist() == [-6.0, -5.0, -8.0, -6.0]


@pytest.mark.parametrize("name", ["qadd", "qadd_relu", "qmul"])
def test_sums_and_products_of_bytes(torch: Any, name: str) -> None:
    # PyTorch takes bytes above 127 for negative numbers here (2.13): its own tests have none either.
    a, b = (np.random.RandomState(seed).randint(0, 128, (16, 64)).astype(np.uint8) for seed in (0, 1))
    mine, theirs = (
        getattr(L.ops.onednn, name).tensor(L.tensor(a), 0.1, 1, L.tensor(b), 0.2, 2, 0.3, 3, L.uint8)
        for L in (flambeau, torch)
    )
    assert np.abs(mine.numpy().astype(int) - theirs.numpy().astype(int)).max() <= 1


def test_best_ranges_for_few_bits(torch: Any) -> None:
    x = data((64,))[0]
    for bits in (2, 4):
        mine, theirs = (L.choose_qparams_optimized(L.tensor(x), 64, 200, 0.16, bits) for L in (flambeau, torch))
        assert [float(v) for v in mine] == [float(v) for v in theirs]
    with pytest.raises(ValueError, match="input tensor is empty and has no data"):
        flambeau.choose_qparams_optimized(flambeau.tensor([]), 0, 200, 0.16, 4)


def test_neighbouring_layers_are_equalized(torch: Any) -> None:
    models = [L.ao.quantization._equalize.equalize(_model(L), [["0", "2", "4"]]) for L in (flambeau, torch)]
    for mine, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert _near(mine, theirs)
    x = flambeau.tensor(data((2, 6))[0])
    assert _near(models[0](x), _model(flambeau)(x))  # what they compute together stays


def test_inputs_and_weights_are_equalized_in_traced_models(torch: Any) -> None:
    results = []
    for library in (flambeau, torch):
        quantization, x = library.ao.quantization, library.tensor(data((8, 6))[0])
        equalize = importlib.import_module(f"{library.__name__}.ao.quantization.fx._equalize")
        equalization = equalize.default_equalization_qconfig
        mapping = quantization.QConfigMapping()
        for kind in (library.nn.Linear, library.nn.ReLU):
            mapping.set_object_type(kind, equalization)
        prepared = quantization.quantize_fx.prepare_fx(
            _model(library), quantization.get_default_qconfig_mapping("x86"), (x,), _equalization_config=mapping
        )
        prepared(x)
        converted = quantization.quantize_fx.convert_fx(prepared)
        results.append((converted.code, converted(x)))
    (mine, y), (theirs, expected) = results
    assert mine == theirs and "equalization_scale" in mine
    assert _near(y, expected)


def test_models_and_their_quantized_forms_side_by_side(torch: Any) -> None:
    results = []
    for library in (flambeau, torch):
        suite, x = library.ao.ns._numeric_suite, library.tensor(data((8, 6))[0])
        model = library.ao.quantization.QuantWrapper(_model(library))
        model.qconfig = library.ao.quantization.get_default_qconfig("x86")
        prepared = library.ao.quantization.prepare(model)
        prepared(x)
        quantized = library.ao.quantization.convert(prepared)
        weights = suite.compare_weights(model.state_dict(), quantized.state_dict())
        stubs = suite.compare_model_stub(model, copy.deepcopy(quantized), {library.nn.Linear}, x)
        outputs = suite.compare_model_outputs(model, quantized, x)
        results.append((weights, stubs, outputs))
    for mine, theirs in zip(*results, strict=True):
        assert sorted(mine) == sorted(theirs) and mine
        for key in mine:
            for kind in ("float", "quantized"):
                a, b = mine[key][kind], theirs[key][kind]
                a, b = (t[0] if isinstance(t, list) else t for t in (a, b))
                assert _near(a.dequantize() if a.is_quantized else a, b.dequantize() if b.is_quantized else b)


def test_biases_are_moved_by_what_quantizing_shifts(torch: Any) -> None:
    results = []
    for library in (flambeau, torch):
        x = library.tensor(data((8, 6))[0])
        model = library.ao.quantization.QuantWrapper(_model(library))
        model.qconfig = library.ao.quantization.get_default_qconfig("x86")
        prepared = library.ao.quantization.prepare(model)
        prepared(x)
        quantized = library.ao.quantization.convert(prepared)
        library.ao.quantization._correct_bias.bias_correction(model, quantized, [(x,)])
        results.append([m.bias() for m in quantized.modules() if type(m) is library.ao.nn.quantized.Linear])
    assert len(results[0]) == 3
    for mine, theirs in zip(*results, strict=True):
        assert _near(mine, theirs)
