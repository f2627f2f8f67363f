"""onnxscript's translations of operators are read without `torch`, and disturb nobody who has it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import flambeau

onnx = pytest.importorskip("onnx", reason="ONNX files need the package onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="exported models are run by onnxruntime")
pytest.importorskip("onnxscript", reason="operators are translated by onnxscript's functions")

_EXPORT = """
import flambeau
model = flambeau.nn.Sequential(flambeau.nn.Linear(2, 2), flambeau.nn.Tanh())
def export():
    return flambeau.onnx.export(model, (flambeau.ones(1, 2),), verbose=False)
"""


def in_a_process(code: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _EXPORT + textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


def test_nothing_is_called_torch_afterwards():
    in_a_process("""
        import sys
        nodes = [node.op_type for node in export().model_proto.graph.node]
        assert nodes == ["Gemm", "Tanh"], nodes
        assert "torch" not in sys.modules
        assert "onnxscript.function_libs.torch_lib.ops.core" not in sys.modules
    """)


def test_a_real_torch_beside_it_keeps_its_own_functions():
    pytest.importorskip("torch", reason="the module whose place is not taken")
    in_a_process("""
        import torch
        from onnxscript.function_libs.torch_lib.ops import core
        from onnxscript.function_libs.torch_lib.registration import default_registry
        before = {name: entry.overloads[:] for name, entry in default_registry.items()}
        export()
        import sys
        assert sys.modules["torch"] is torch is core.torch
        assert {name: entry.overloads for name, entry in default_registry.items()} == before
    """)


def test_without_onnxscript_the_error_names_the_extra():
    in_a_process("""
        import sys
        sys.modules["onnxscript"] = None
        try:
            export()
        except ModuleNotFoundError as error:
            assert "onnxscript" in str(error) and "flambeau[onnx]" in str(error)
        else:
            raise AssertionError("exported without onnxscript")
    """)


def exported(function, x, opset):
    module = flambeau.nn.Module()
    module.forward = function
    proto = flambeau.onnx.export(module, (x,), opset_version=opset, verbose=False).model_proto
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return proto.graph.node, session.run(None, {proto.graph.input[0].name: x.numpy()})[0]


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 20, 23])
def test_what_became_an_input_is_an_attribute_in_older_versions(opset):
    x = flambeau.rand(3, 4)
    (node,), found = exported(lambda x: x.amax(1), x, opset)
    assert node.op_type == "ReduceMax"
    assert [a.name for a in node.attribute if a.name == "axes"] == (["axes"] if opset < 18 else [])
    np.testing.assert_array_equal(found, x.amax(1).numpy())


def test_an_operator_newer_than_the_version_is_taken_apart():
    x = flambeau.randn(5)
    kinds = {opset: [node.op_type for node in exported(flambeau.nn.functional.mish, x, opset)[0]] for opset in (17, 20)}
    assert kinds[20] == ["Mish"] and "Mish" not in kinds[17]
    np.testing.assert_allclose(
        exported(flambeau.nn.functional.mish, x, 17)[1], flambeau.nn.functional.mish(x).numpy(), rtol=1e-5, atol=1e-6
    )


def test_operands_are_promoted_as_the_operator_says():
    x = flambeau.arange(6)
    for function in (lambda x: x / 4, lambda x: x + 0.5, lambda x: x.sin(), lambda x: x > 2.5, lambda x: (x > 2) * x):
        np.testing.assert_allclose(exported(function, x, 20)[1], function(x).numpy(), rtol=1e-6)


def test_a_change_in_place_needs_no_node_of_its_own():
    x = flambeau.randn(2, 3)
    nodes, found = exported(lambda x: flambeau.relu_(x * 2), x, 20)
    assert [node.op_type for node in nodes] == ["Mul", "Relu"]
    np.testing.assert_array_equal(found, flambeau.relu(x * 2).numpy())
