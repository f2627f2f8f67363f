"""Forms hang on operators: every record says which nodes it becomes, is taken apart, or says why it is not there."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx", reason="ONNX files need the package onnx")
pytest.importorskip("onnxscript", reason="operators are translated by onnxscript's functions")

import flambeau as torch
from flambeau.library.aten.resolver import record_of
from flambeau.onnx.registry import form, form_of, in_torchlib, parts_of, reason
from flambeau.ops import OPS
from flambeau.ops.machinery.schema_table import aten_names

# A mode sees the parts of these, or PyTorch's exporter has nothing to say about them.
_TAKEN_APART = ("composite", "pointwise")


def test_every_operator_has_a_form_or_a_reason():
    named = {name: record_of(name) for name in aten_names() if not name.endswith("_")}
    missing = [
        name
        for name, record in named.items()
        if record is not None
        and record.key in OPS
        and record.kind not in (*_TAKEN_APART, "creation")
        and form_of(f"aten::{name}") is None
        and not in_torchlib(f"aten::{name}")
        and parts_of(f"aten::{name}", 20) is None
        and not reason(f"aten::{name}")
    ]
    assert missing == []


def test_aliases_have_the_form_of_the_operator():
    for name in ("divide", "multiply", "subtract", "clip", "concat", "special_expit", "linalg_matmul", "__and__"):
        assert in_torchlib(f"aten::{name}")
    assert form_of("aten::special_log_softmax") is form_of("aten::log_softmax") is torch.log_softmax.op.onnx is not None


def test_two_forms_are_one_too_many():
    with pytest.raises(ValueError, match="two ONNX forms"):
        form(torch.ops.aten.gelu)(lambda g, self: self)


def test_an_opset_that_is_too_old_is_told():
    with pytest.raises(torch.onnx.errors.UnsupportedOperatorError, match=r"grid_sampler: needs opset 16 or later"):
        model = torch.nn.Module()
        model.forward = lambda x, grid: torch.nn.functional.grid_sample(x, grid, align_corners=False)
        torch.onnx.export(model, (torch.rand(1, 1, 4, 4), torch.rand(1, 2, 2, 2)), opset_version=13, verbose=False)
