"""onnxscript's translations of operators are read without `torch`, and disturb nobody who has it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import flambeau
from flambeau.onnx.builder import Builder
from flambeau.onnx.converter import Converter
from flambeau.onnx.errors import UnsupportedOperatorError
from flambeau.onnx.torchlib.calls import _bind_arguments

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


@pytest.mark.parametrize(
    ("overload", "arguments"),
    [
        ("avg_pool2d.default", {"kernel_size": [2, 2], "divisor_override": 3}),
        ("avg_pool3d.default", {"kernel_size": [2, 2, 2], "divisor_override": 3}),
        (
            "cross_entropy_loss.default",
            {"target": flambeau.zeros(2, 2, 2, dtype=flambeau.int64), "label_smoothing": 0.5},
        ),
        ("allclose.default", {"other": flambeau.ones(2, 3, 2, 2), "equal_nan": True}),
    ],
)
def test_what_a_translation_ignores_is_refused_unless_it_says_nothing(overload, arguments):
    name, _, kind = overload.partition(".")
    schema = getattr(getattr(flambeau.ops.aten, name), kind)._schema
    ignored = list(arguments)[-1]

    def converted(given):
        converter = Converter(Builder(20))
        converter.call(schema, {"self": flambeau.ones(2, 3, 2, 2), **given}, None, "line 7")
        converter.finish()

    default = next(a.default_value for a in schema.arguments if a.name == ignored)
    converted({**arguments, ignored: default})
    with pytest.raises(UnsupportedOperatorError, match=f"aten::{name}: its argument {ignored}={arguments[ignored]}"):
        converted(arguments)


def test_an_ignored_argument_may_be_zero_only_where_that_is_its_default():
    def translation(self, other):  # as torchlib's functions: without the argument alpha
        return self, other

    schema = flambeau.ops.aten.add.Tensor._schema
    x = Builder(20).value(flambeau.ones(2))
    assert _bind_arguments(translation, schema, {"self": x, "other": x, "alpha": 1}).keys() == {"self", "other"}
    with pytest.raises(NotImplementedError, match="its argument alpha=0"):
        _bind_arguments(translation, schema, {"self": x, "other": x, "alpha": 0})


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_total_weight_of_a_loss_is_computed(reduction, weighted):
    x, target = flambeau.randn(4, 5).log_softmax(1), flambeau.tensor([0, 4, 2, 1])
    weight = flambeau.tensor([0.5, 2.0, 3.0, 1.0, 0.25]) if weighted else None

    def total(x):
        return flambeau.ops.aten.nll_loss_forward.default(x, target, weight, reduction, 2)[1]

    wanted = 0.0 if not reduction else 2.75 if weighted else 3.0  # PyTorch's, also for a sum
    assert total(x).item() == wanted
    assert exported(total, x, 20)[1] == wanted


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("shape", [(5,), (2, 5)])
def test_one_drawn_class_is_a_list_of_one(shape, replacement):
    chances = flambeau.zeros(shape)
    chances[..., 3] = 1.0
    found = exported(lambda x: flambeau.multinomial(x, 1, replacement), chances, 20)[1]
    assert found.tolist() == np.full((*shape[:-1], 1), 3).tolist()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: flambeau.ops.aten.elu.default(x, 0.5, 2.0, 3.0),  # positive numbers are not scaled by the last factor
        lambda x: x.argmax(None, True),
        lambda x: x.argmin(None, True),
        lambda x: flambeau.addmv(x[0] / 0, flambeau.ones(5, 5), x[1], beta=0),
        lambda x: flambeau.baddbmm(x[None] / 0, x[None], flambeau.ones(1, 5, 5), beta=0, alpha=2),
        lambda x: flambeau.addbmm(x / 0, x[None], flambeau.ones(1, 5, 5), beta=0),
        lambda x: flambeau.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(*[x[None, None]] * 3, 0.0, True)[1],
        lambda x: flambeau.ops.aten._native_batch_norm_legit_no_training.default(x, *[flambeau.ones(5)] * 4, 0.1, 1e-5)[1],
    ],
)  # fmt: skip
def test_what_torchlib_translates_wrongly_is_written_otherwise(function):
    x = flambeau.randn(4, 5)
    wanted, found = function(x).numpy(), exported(function, x, 20)[1]
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "refused"),
    [
        (lambda x: x.clone().fill_diagonal_(3.0, True), "aten::"),
        (
            lambda x: flambeau.ops.aten._native_batch_norm_legit_functional.default(
                x, *[flambeau.ones(5)] * 4, True, 0.1, 1e-5
            )[3],
            "aten::_native_batch_norm_legit_functional: it changes its statistics",
        ),
    ],
)
def test_what_cannot_be_written_is_named(function, refused):
    with pytest.raises(UnsupportedOperatorError, match=refused):
        exported(function, flambeau.randn(7, 5), 20)
