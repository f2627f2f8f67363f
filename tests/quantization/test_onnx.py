"""Quantized models as ONNX files: QuantizeLinear and DequantizeLinear around operators in floating point."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flambeau

from .flow_models import data, layers


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Please use quant_min", "ignore:.*deprecated")
def test_reference_model_in_onnxruntime(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="runs the file: pip install onnxruntime")
    quantization = flambeau.ao.quantization
    images = [flambeau.tensor(x) for x in data((2, 3, 8, 8))]
    prepared = quantization.prepare_fx(
        layers(flambeau).eval(), quantization.get_default_qconfig_mapping("x86"), (images[0],)
    )
    for x in images:
        prepared(x)
    reference = quantization.convert_to_reference_fx(prepared)
    flambeau.onnx.export(reference, (images[0],), str(tmp_path / "model.onnx"), dynamo=True, verbose=False)
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"))
    (found,) = session.run(None, {session.get_inputs()[0].name: images[0].numpy()})
    assert np.abs(found - reference(images[0]).numpy()).max() < 1 / 256 + 1e-6  # one level of the sigmoid at the end
