"""Equalization, comparing models, and operators whose scales are arguments, beside PyTorch's."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import numpy as np
import pytest
from answers.programs import check_function

import flambeau

from .flow_models import data

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated"),
    pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max"),
    pytest.mark.filterwarnings("ignore:.*deprecated.*"),
    pytest.mark.filterwarnings("ignore:.*quantize_per_tensor.*"),
]


PARTS = ("quantization.quantize_fx", "quantization._equalize", "quantization._correct_bias", "quantization.fx._equalize",
         "quantization.fx._decomposed", "ns._numeric_suite")  # fmt: skip


def _with_parts(library: Any) -> Any:
    """The library with the modules that these tests need."""
    for part in PARTS:
        importlib.import_module(f"{library.__name__}.ao.{part}")
    return library


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


def _called(library: Any, name: str) -> Any:
    operator: Any = _with_parts(library).ops.quantized_decomposed
    for part in name.split("."):
        operator = getattr(operator, part)
    return operator(*_calls()[name](library, library.tensor(data((4, 3))[0])))


@pytest.mark.parametrize("name", list(_calls()))
def test_operators_with_their_scales_as_arguments(name: str) -> None:
    check_function(_called, name)


def test_codes_become_values_again() -> None:
    codes = np.arange(-6, 6, dtype=np.int8).reshape(4, 3)
    home, x = flambeau.ops.quantized_decomposed, flambeau.tensor(codes)
    values = home.dequantize_per_tensor(x, 0.5, 2, -128, 127, flambeau.int8)
    assert values.tolist() == ((codes.astype(np.float32) - 2) * 0.5).tolist()
    groups = home.dequantize_per_channel_group(
        x.reshape(3, 4), flambeau.tensor([[1.0, 2.0]] * 3), None, -128, 127, flambeau.int8, 2, flambeau.float32
    )
    assert groups[0].tolist() == [-6.0, -5.0, -8.0, -6.0]


def _of_bytes(library: Any, name: str) -> Any:
    # PyTorch takes bytes above 127 for negative numbers here (2.13): its own tests have none either.
    a, b = (library.tensor(np.random.RandomState(seed).randint(0, 128, (16, 64)).astype(np.uint8)) for seed in (0, 1))
    return getattr(library.ops.onednn, name).tensor(a, 0.1, 1, b, 0.2, 2, 0.3, 3, library.uint8).float() / 255


@pytest.mark.parametrize("name", ["qadd", "qadd_relu", "qmul"])
def test_sums_and_products_of_bytes(name: str) -> None:
    check_function(_of_bytes, name)


def _best_ranges(library: Any) -> Any:
    x = library.tensor(data((64,))[0])
    return [[float(v) for v in library.choose_qparams_optimized(x, 64, 200, 0.16, bits)] for bits in (2, 4)]


def test_best_ranges_for_few_bits() -> None:
    check_function(_best_ranges)
    with pytest.raises(ValueError, match="input tensor is empty and has no data"):
        flambeau.choose_qparams_optimized(flambeau.tensor([]), 0, 200, 0.16, 4)


def _equalized(library: Any) -> Any:
    _with_parts(library)
    return list(library.ao.quantization._equalize.equalize(_model(library), [["0", "2", "4"]]).parameters())


def test_neighbouring_layers_are_equalized() -> None:
    check_function(_equalized)
    ours = flambeau.ao.quantization._equalize.equalize(_model(flambeau), [["0", "2", "4"]])
    x = flambeau.tensor(data((2, 6))[0])
    assert _near(ours(x), _model(flambeau)(x))  # what they compute together stays


def _inputs_equalized(library: Any) -> Any:
    quantization, x = _with_parts(library).ao.quantization, library.tensor(data((8, 6))[0])
    equalize = importlib.import_module(f"{library.__name__}.ao.quantization.fx._equalize")
    mapping = quantization.QConfigMapping()
    for kind in (library.nn.Linear, library.nn.ReLU):
        mapping.set_object_type(kind, equalize.default_equalization_qconfig)
    prepared = quantization.quantize_fx.prepare_fx(
        _model(library), quantization.get_default_qconfig_mapping("x86"), (x,), _equalization_config=mapping
    )
    prepared(x)
    converted = quantization.quantize_fx.convert_fx(prepared)
    assert "equalization_scale" in converted.code
    return converted.code, converted(x)


def test_inputs_and_weights_are_equalized_in_traced_models() -> None:
    check_function(_inputs_equalized)


def _prepared(library: Any) -> tuple[Any, Any, Any]:
    """A model, what it becomes with observers that have seen data, and the data."""
    x = library.tensor(data((8, 6))[0])
    model = _with_parts(library).ao.quantization.QuantWrapper(_model(library))
    model.qconfig = library.ao.quantization.get_default_qconfig("x86")
    prepared = library.ao.quantization.prepare(model)
    prepared(x)
    return model, prepared, x


def _side_by_side(library: Any) -> Any:
    model, prepared, x = _prepared(library)
    suite = library.ao.ns._numeric_suite
    quantized = library.ao.quantization.convert(prepared)
    found = (
        suite.compare_weights(model.state_dict(), quantized.state_dict()),
        suite.compare_model_stub(model, copy.deepcopy(quantized), {library.nn.Linear}, x),
        suite.compare_model_outputs(model, quantized, x),
    )

    def value(t: Any) -> Any:
        t = t[0] if isinstance(t, list) else t
        return t.dequantize() if t.is_quantized else t

    return [
        {key: [value(compared[key][kind]) for kind in ("float", "quantized")] for key in sorted(compared)}
        for compared in found
    ]


def test_models_and_their_quantized_forms_side_by_side() -> None:
    check_function(_side_by_side)


def _corrected(library: Any) -> Any:
    model, prepared, x = _prepared(library)
    quantized = library.ao.quantization.convert(prepared)
    library.ao.quantization._correct_bias.bias_correction(model, quantized, [(x,)])
    biases = [m.bias() for m in quantized.modules() if type(m) is library.ao.nn.quantized.Linear]
    assert len(biases) == 3
    return biases


def test_biases_are_moved_by_what_quantizing_shifts() -> None:
    check_function(_corrected)
