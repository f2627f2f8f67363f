"""ONNX files as modules: ONNX's own tests, training, exporting again."""

from __future__ import annotations

import functools
import io
import re
import warnings

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn

onnx = pytest.importorskip("onnx", reason="ONNX files need the package onnx")
pytest.importorskip("onnxscript", reason="operators are translated by onnxscript's functions")
pytest.importorskip("onnxruntime", reason="exported models are run by onnxruntime")


def saved(model, x, **options):
    file = io.BytesIO()
    torch.onnx.export(model, x, file, dynamo=False, **options)
    return file.getvalue()


def test_a_module_that_trains_and_is_exported_again():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    x, y = torch.randn(8, 1, 6, 6), torch.randint(0, 3, (8,))
    again = torch.onnx.load(saved(model, x))
    assert set(again.state_dict()) == set(model.state_dict())
    torch.testing.assert_close(again(x), model(x))
    optimizer = torch.optim.Adam(again.parameters(), 0.01)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(again(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    third = torch.onnx.load(saved(again, x))
    torch.testing.assert_close(third(x), again(x), rtol=1e-4, atol=1e-5)
    model.load_state_dict(again.state_dict())
    torch.testing.assert_close(model(x), again(x), rtol=1e-4, atol=1e-5)


def test_wrong_files_and_calls(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x01nonsense")
    with pytest.raises(torch.onnx.OnnxExporterError, match="not an ONNX file"):
        torch.onnx.load(tmp_path / "bad.onnx")
    with pytest.raises(FileNotFoundError):
        torch.onnx.load(tmp_path / "absent.onnx")
    model = torch.onnx.load(saved(nn.ReLU(), torch.ones(2)))
    with pytest.raises(TypeError, match="takes 1 inputs"):
        model(torch.ones(2), torch.ones(2))
    with pytest.raises(TypeError, match="missing"):
        model()
    node = onnx.helper.make_node("Strange", ["x"], ["y"], domain="nowhere")
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [1])],
        [onnx.helper.make_tensor_value_info("y", 1, [1])],
    )
    strange = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("nowhere", 1)]
    )
    with pytest.raises(torch.onnx.OnnxExporterError, match="nowhere::Strange"):
        torch.onnx.load(strange)


@pytest.mark.parametrize("kind", ["pytorch-converted", "pytorch-operator", "simple"])
def test_onnx_files_of_others(kind):
    """Networks that come with the package onnx."""
    from onnx.backend.test.loader import load_model_tests

    from tests.onnx_files.backend import run

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in load_model_tests(kind=kind):
            if "gradient" not in case.name:  # a preview of ONNX's training, for which nobody writes files
                run(case)


# Of ONNX's cases of single nodes: dtypes that no tensor has, numbers drawn by another generator, what differs from ONNX's own reference.
OTHERWISE = {
    r"u?int[24]|float4e2m1|e8m0": "dtypes of less than a byte are files' only",
    r"^test_(bernoulli|training_dropout)": "random numbers",
    r"no_saturate_FLOAT(16)?_to_FLOAT8E4M3FN": "overflow becomes the largest number, as in PyTorch",
    r"^test_resize_downsample_scales_(linear|cubic)_align_corners$": "ONNX's reference scales by the sizes before rounding",
    r"^test_roialign_mode_max$": "refused with a reason",
    r"^test_attention_4d_causal_fp16$": "the last digit of half precision",
}


@functools.cache
def cases_of_nodes():
    """ONNX's cases of single nodes by the first letters of their names, without those that write an operator out as a function."""
    from onnx.backend.test.loader import load_model_tests

    found = {}
    for case in load_model_tests(kind="node"):
        if "expanded" not in case.name and not any(re.search(p, case.name, re.I) for p in OTHERWISE):
            found.setdefault(case.name.removeprefix("test_")[:1], []).append(case)
    return found


@pytest.mark.parametrize("letter", "abcdefghilmnopqrstuwx")
def test_single_nodes(letter):
    """Cases that come with the package onnx: inputs, attributes and what must come out."""
    from tests.onnx_files.backend import run

    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases_of_nodes()[letter]:
            try:
                run(case)
            except Exception as error:
                wrong.append(f"{case.name}: {type(error).__name__} {str(error)[:200]}")
    assert not wrong, wrong


def test_every_single_node_has_a_letter():
    assert sorted(cases_of_nodes()) == list("abcdefghilmnopqrstuwx")
    assert sum(map(len, cases_of_nodes().values())) > 1000


def one_node(kind, *inputs, domain="", **attributes):
    helper = onnx.helper
    node = helper.make_node(kind, [f"x{i}" for i in range(len(inputs))], ["y"], domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_empty_tensor_value_info(n) for n in node.input],
        [helper.make_empty_tensor_value_info("y")],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    return torch.onnx.load(helper.make_model(graph, opset_imports=opsets))(*inputs)


def test_nodes_that_onnx_computes_itself():
    words = np.array(["a", "b"], object)
    assert one_node("StringConcat", words, words).tolist() == ["aa", "bb"]
    found = one_node("LabelEncoder", words, domain="ai.onnx.ml", keys_strings=["b"], values_int64s=[7])
    torch.testing.assert_close(found, torch.tensor([-1, 7]))


def test_definitions_have_the_default_attributes_of_their_operators():
    x = torch.randn(4)
    torch.testing.assert_close(one_node("Shrink", x), torch.where(abs(x) > 0.5, x, 0))
    torch.testing.assert_close(one_node("HannWindow", torch.tensor(5)), torch.hann_window(5))
