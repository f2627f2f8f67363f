"""Forms hang on operators: every record says which nodes it becomes, is taken apart, or says why it is not there."""

from __future__ import annotations

import math

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


def _x(*shape: int) -> torch.Tensor:
    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape).sin()


CASES = [
    ("rot90", (_x(2, 3), 3, [1, 0])),
    ("var", (_x(3, 4), [1], True, True)),
    ("std_mean", (_x(3, 4), [0])),
    ("kthvalue", (_x(3, 5), 2)),
    ("median", (_x(3, 4),)),
    ("searchsorted", (_x(2, 4).sort().values, _x(2, 3))),
    ("index_add", (_x(4, 2), 0, torch.tensor([1, 1]), _x(2, 2))),
    ("masked_scatter", (_x(2, 3), _x(2, 3) > 0, _x(7))),
    ("embedding_bag", (_x(5, 2), torch.tensor([1, 0, 3]), torch.tensor([0, 0, 2]), False, 2)),
    ("diag_embed", (_x(2, 3), -1)),
    ("bitwise_right_shift", (torch.tensor([-(2**63), -5, 2**62]), torch.tensor([63, 1, 60]))),
    ("adaptive_max_pool2d", (_x(1, 2, 5, 7), [2, 3])),
    ("adaptive_avg_pool1d", (_x(2, 2, 5), [2])),
    ("cross_entropy_loss", (_x(3, 4), torch.tensor([1, -100, 2]), _x(4).abs(), 1, -100, 0.1)),
    ("cross_entropy_loss", (_x(2, 4, 3), torch.tensor([[1, 0, 2], [3, 3, -1]]), None, 0, -1, 0.2)),
    ("cross_entropy_loss", (_x(3, 4), _x(3, 4).abs(), _x(4).abs(), 1, -100, 0.1)),
    ("cross_entropy_loss", (_x(4), torch.tensor(2))),
    ("native_group_norm", (_x(2, 4, 3), None, None, 2, 4, 3, 2, 1e-5)),
]


@pytest.mark.parametrize(("name", "args"), CASES, ids=[name for name, _ in CASES])
def test_parts_compute_what_the_operator_computes(name, args):
    packet = getattr(torch.ops.aten, name)
    wanted, found = packet(*args), parts_of(f"aten::{name}", 11)(*args)
    wanted, found = ([r] if isinstance(r, torch.Tensor) else list(r) for r in (wanted, found))
    assert len(found) == len(wanted)
    for mine, right in list(zip(found, wanted))[
        : 1 if name == "embedding_bag" else None
    ]:  # the rest is for its gradient
        torch.testing.assert_close(mine, right)


def test_calls_with_parts_and_a_form_take_either():
    pooled = {size: _nodes(torch.nn.AdaptiveAvgPool2d(size), torch.rand(1, 2, 4, 4)) for size in (1, 2)}
    assert pooled == {1: ["GlobalAveragePool"], 2: ["AveragePool"]}


def _nodes(module, x):
    return [node.op_type for node in torch.onnx.export(module, (x,), verbose=False).model_proto.graph.node]


def test_the_last_of_the_parts_is_called_after_the_call():
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.GELU(), torch.nn.AdaptiveAvgPool2d(2))
    graph = torch.onnx.export(model, (torch.rand(1, 1, 6, 6),), opset_version=17, verbose=False).model_proto.graph
    names = [node.name for node in graph.node]
    assert names[0] == "node_conv2d" and "node_gelu" in names and names[-1] == "node_adaptive_avg_pool2d"
    assert [output.name for output in graph.output] == ["adaptive_avg_pool2d"]
