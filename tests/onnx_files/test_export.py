"""Models written as ONNX files, run by onnxruntime beside the models themselves."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

onnx = pytest.importorskip("onnx", reason="ONNX files need the package onnx")
pytest.importorskip("onnxscript", reason="operators are translated by onnxscript's functions")
onnxruntime = pytest.importorskip("onnxruntime", reason="exported models are run by onnxruntime")


def run(file, *inputs):
    data = file.getvalue() if isinstance(file, io.BytesIO) else file
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: np.asarray(v) for i, v in zip(session.get_inputs(), inputs)})


def check(model, args, opset=20, more=(), **options):
    """Export in both ways, and compare; `more` are other inputs that the file with changing sizes must take."""
    model.eval()
    wanted = model(*args)
    program = torch.onnx.export(model, args, opset_version=opset, verbose=False)
    onnx.checker.check_model(program.model_proto)
    for file in (program.model_proto.SerializeToString(), exported(model, args, opset, **options)):
        np.testing.assert_allclose(run(file, *[a.numpy() for a in args])[0], first(wanted), rtol=1e-3, atol=1e-4)
    for other in more:
        np.testing.assert_allclose(
            run(file, *[a.numpy() for a in other])[0], first(model(*other)), rtol=1e-3, atol=1e-4
        )
    return program.model_proto


def first(result):
    result = result[0] if isinstance(result, (tuple, list)) else result
    return result.detach().numpy()


def exported(model, args, opset=17, **options):
    file = io.BytesIO()
    torch.onnx.export(model, args, file, opset_version=opset, dynamo=False, **options)
    return file


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.n, self.f = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 3)
        self.seen = []

    def forward(self, x):
        self.seen.append(torch.onnx.is_in_onnx_export())
        return self.f(torch.relu(self.n(self.c(x))).mean((2, 3)))


def test_names_and_nodes():
    model, x = Net().eval(), torch.randn(1, 1, 5, 5)
    file = exported(model, x, 11, input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "b"}})
    graph = onnx.load_from_string(file.getvalue()).graph
    assert [(n.op_type, n.name) for n in graph.node] == [
        ("Conv", "/c/Conv"),
        ("Relu", "/Relu"),
        ("ReduceMean", "/ReduceMean"),
        ("Gemm", "/f/Gemm"),
    ]
    assert [i.name for i in graph.input] == ["x"] and [o.name for o in graph.output] == ["y"]
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "b"
    assert {t.name for t in graph.initializer} == {"onnx::Conv_16", "onnx::Conv_17", "f.weight", "f.bias"}
    assert model.seen == [True] and not torch.onnx.is_in_onnx_export()  # it runs once
    batch = torch.randn(7, 1, 5, 5)
    np.testing.assert_allclose(run(file, batch.numpy())[0], model(batch).detach().numpy(), atol=1e-5)


def test_a_program():
    model, x = Net().eval(), torch.randn(1, 1, 5, 5)
    program = torch.onnx.export(model, (x,), verbose=False)
    assert [n.op_type for n in program.model_proto.graph.node] == ["Conv", "Relu", "ReduceMean", "Gemm"]
    assert program.model_proto.graph.node[-1].name == "node_linear"
    torch.testing.assert_close(program(x)[0], model(x).detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(program.call_reference(x)[0], model(x).detach(), rtol=1e-4, atol=1e-5)


def test_a_program_is_optimized_by_onnxscript():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval(), torch.randn(2, 3)
    program = torch.onnx.export(model, (x,), verbose=False)
    program.optimize()
    assert [n.op_type for n in program.model_proto.graph.node] == ["Gemm"]
    torch.testing.assert_close(program(x)[0], model(x).detach(), rtol=1e-4, atol=1e-5)


def test_files(tmp_path):
    model, x = nn.Linear(64, 64), torch.randn(2, 64)
    torch.onnx.export(model, (x,), tmp_path / "m.onnx", verbose=False)
    assert (tmp_path / "m.onnx.data").exists()  # large tensors beside the file
    again = torch.onnx.load(tmp_path / "m.onnx")
    torch.testing.assert_close(again(x), model(x))
    torch.onnx.export(model, (x,), tmp_path / "one.onnx", verbose=False, external_data=False)
    assert not (tmp_path / "one.onnx.data").exists()


class Written(nn.Module):
    """Writes into views of its input's copy."""

    def forward(self, x):
        y = x + 1
        y[:, 0] = 2
        y.mul_(3)
        y[0].add_(x[1])
        y.view(-1)[::2] = 0
        z = y.t()
        z[1] = 7
        return F.dropout(y, 0.5, self.training)


def test_changes_in_place():
    check(Written(), (torch.randn(3, 4),))


class Recurrent(nn.Module):
    def __init__(self, cls, **options):
        super().__init__()
        self.net = cls(3, 4, **options)

    def forward(self, x):
        return self.net(x)[0]


@pytest.mark.parametrize("cls", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}])
def test_recurrent_networks(cls, options):
    check(Recurrent(cls, **options), (torch.randn(5, 2, 3),))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.table = nn.Embedding(10, 8)

    def forward(self, tokens):
        n = tokens.shape[1]
        mask = torch.triu(torch.full((n, n), float("-inf")), 1)
        return self.layer(self.table(tokens), src_mask=mask)


def test_attention_with_changing_sizes():
    tokens = torch.randint(0, 10, (2, 5))
    axes = {"tokens": {0: "batch", 1: "time"}}
    other = torch.randint(0, 10, (3, 9))
    check(Attention(), (tokens,), input_names=["tokens"], dynamic_axes=axes, more=[(other,)])


class Branches(nn.Module):
    def forward(self, x, n: int = 3):
        for _ in range(n):
            x = x * 2
        if x.sum() > 0:  # noqa: SIM108
            x = x + 1
        else:
            x = x - 1
        return x


def test_branches_and_loops_of_compiled_programs():
    model = torch.jit.script(Branches())
    file = exported(model, (torch.ones(2), 3))
    graph = onnx.load_from_string(file.getvalue()).graph
    assert {"Loop", "If"} <= {n.op_type for n in graph.node}
    for x in (torch.ones(2), -torch.ones(2)):
        for n in (0, 1, 5):
            np.testing.assert_allclose(run(file, x.numpy(), np.array(n))[0], model(x, n).numpy())


def test_symbolic_functions():
    from flambeau.onnx import register_custom_op_symbolic, unregister_custom_op_symbolic
    from flambeau.onnx.symbolic_helper import parse_args

    @parse_args("v", "f", "f")
    def scaled(g, x, low, high):
        return g.op("custom::Clamp", x, low_f=low, high_f=high)

    register_custom_op_symbolic("aten::hardtanh", scaled, 9)
    try:
        file = exported(nn.Hardtanh(-2.0, 3.0), torch.randn(2), 9, custom_opsets={"custom": 4})
    finally:
        unregister_custom_op_symbolic("aten::hardtanh", 9)
    model = onnx.load_from_string(file.getvalue())
    (node,) = model.graph.node
    assert (node.domain, node.op_type) == ("custom", "Clamp")
    assert {a.name: a.f for a in node.attribute} == {"low": -2.0, "high": 3.0}
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 9), ("custom", 4)]
    with pytest.raises(torch.onnx.OnnxExporterError, match="domain::name"):
        register_custom_op_symbolic("hardtanh", scaled, 9)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return torch.from_numpy(2 * a.detach().numpy() + b.detach().numpy())

    @staticmethod
    def symbolic(g, a, b):
        return g.op("Add", g.op("Mul", a, g.op("Constant", value_t=torch.tensor([2.0]))), b)


class UsesTwice(nn.Module):
    def forward(self, a, b):
        return Twice.apply(a, b)


def test_a_function_with_its_own_form():
    a, b = torch.rand(3), torch.rand(3)
    file = exported(UsesTwice(), (a, b))
    np.testing.assert_allclose(run(file, a.numpy(), b.numpy())[0], (2 * a + b).numpy())


class Inner(nn.Module):
    def forward(self, x):
        x = x + 1
        return torch.mode(x).values.sum() + x


class Missing(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential(nn.ReLU(), Inner())

    def forward(self, x):
        return torch.linalg.inv(self.parts(x)) + torch.linalg.qr(x)[0]


def test_everything_that_is_missing_is_named_at_once():
    with pytest.raises(torch.onnx.errors.UnsupportedOperatorError) as caught:
        exported(Missing(), torch.eye(2))
    text = str(caught.value)
    assert "for 3 operator call(s)" in text
    assert "aten::mode: it has no form yet" in text and "in forward return torch.mode(x).values.sum() + x" in text
    line = "in forward return torch.linalg.inv(self.parts(x)) + torch.linalg.qr(x)[0]"
    assert "aten::linalg_inv" in text and "aten::linalg_qr" in text and text.count(line) == 2


def test_a_picture():
    picture = torch.onnx.drawing(
        torch.onnx.export(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (torch.rand(2, 3),), verbose=False)
    )
    assert picture.startswith("<svg") and all(word in picture for word in ("onnx.Gemm", "node_relu", "float32[2, 4]"))


def test_wrong_calls():
    with pytest.raises(ValueError, match="opset version: 99"):
        exported(nn.ReLU(), torch.ones(1), 99)
    with pytest.raises(NotImplementedError, match="ONNX_ATEN"):
        exported(nn.ReLU(), torch.ones(1), operator_export_type=torch.onnx.OperatorExportTypes.ONNX_ATEN)
    with pytest.raises(RuntimeError, match="exceeded number of outputs"):
        exported(nn.ReLU(), torch.ones(1), output_names=["a", "b"])


def test_operators_of_torchvision_stay_one_node():
    from flambeau.vision.ops import DeformConv2d

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 18, 3), DeformConv2d(3, 3, 3)

        def forward(self, x):
            return self.b(x, self.a(x))

    program = torch.export.export(Model(), (torch.rand(1, 3, 10, 10),))
    assert [str(n.target) for n in program.graph.nodes if n.op == "call_function"][-1] == "torchvision.deform_conv2d"


@pytest.mark.parametrize("opset", [9, 13, 18, 20])
def test_a_network_in_many_versions(opset):
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU6(), nn.MaxPool2d(2), nn.Dropout(), nn.Flatten(), nn.Linear(64, 5), nn.Softmax(1)
    )  # fmt: skip
    check(model, (torch.randn(2, 3, 8, 8),), opset)


def test_a_compiled_program_of_operators_that_are_made_of_others():
    class Model(nn.Module):
        def forward(self, x):
            if bool(x.sum() > 0):
                y = F.gelu(x) + x.std(1, keepdim=True)
            else:
                y = torch.nansum(x, 0) * x
            return F.smooth_l1_loss(y, torch.zeros_like(y)), torch.rot90(x)

    model, x = Model(), torch.rand(2, 3)
    file = exported(torch.jit.script(model), (x,), 17)
    for given in (x, -x):
        for found, wanted in zip(run(file, given.numpy()), model(given)):
            np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-6)


class Lengths(nn.Module):
    def forward(self, x):
        y = x.sum(0)
        for i in range(len(x)):
            y = y + x[i]
        return y


def test_lengths_in_compiled_programs():
    model, x = torch.jit.script(Lengths()), torch.ones(2, 3)
    file = exported(model, (x,))
    assert run(file, x.numpy())[0].tolist() == [4.0, 4.0, 4.0]


def test_shifts_before_there_are_operators_of_bits():
    model = nn.Module()
    model.forward = lambda x: x >> 2
    x = torch.tensor([-(2**63), -7, 9])
    np.testing.assert_array_equal(run(exported(model, (x,), 11), x.numpy())[0], (x >> 2).numpy())


def test_operators_that_are_made_of_others_are_translated_by_the_users_table():
    class Model(nn.Module):
        def forward(self, x):
            return x.std(), F.gelu(x)

    def translated(g, x, *rest):
        return g.op("Relu", x)

    table = {
        torch.ops.aten.std.correction: translated,
        torch.ops.aten.std.default: translated,
        torch.ops.aten.gelu.default: translated,
    }
    program = torch.onnx.export(
        Model(), (torch.rand(3),), opset_version=17, custom_translation_table=table, verbose=False
    )
    assert [node.op_type for node in program.model_proto.graph.node] == ["Relu", "Relu"]


@pytest.mark.parametrize("changing", [False, True])
def test_an_exported_program_of_operators_that_are_made_of_others(changing):
    class Model(nn.Module):
        def forward(self, x):
            first, second = x.chunk(2, 1)
            y = F.gelu(first) + second.std(1, keepdim=True)
            return F.smooth_l1_loss(y, torch.zeros_like(y)), torch.rot90(x), y.topk(2)[0]

    model, x = Model(), torch.rand(3, 8)
    sizes = ({0: torch.export.Dim("rows")},) if changing else None
    program = torch.onnx.export(torch.export.export(model, (x,), dynamic_shapes=sizes), opset_version=17, verbose=False)
    for given in (x, torch.rand(5, 8)) if changing else (x,):
        for found, wanted in zip(run(program.model_proto.SerializeToString(), given.numpy()), model(given)):
            np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dynamo", [False, True])
def test_label_smoothing_is_not_lost(dynamo):
    model, x = nn.Module(), torch.rand(3, 4)
    model.forward = lambda x: F.cross_entropy(x, torch.tensor([1, 2, 0]), label_smoothing=0.3)
    file = io.BytesIO()
    torch.onnx.export(model, (x,), file, dynamo=dynamo, verbose=False)
    np.testing.assert_allclose(run(file, x.numpy())[0], model(x).numpy(), rtol=1e-5)


def test_formulas_with_parameters_that_are_not_given():
    model, x = nn.Module(), torch.tensor([1.0, math.nan, math.inf, -math.inf])
    model.forward = lambda x: (torch.nan_to_num(x, 5.0), torch.nan_to_num(x, posinf=2.0))
    for found, wanted in zip(run(exported(model, (x,)), x.numpy()), model(x)):
        np.testing.assert_array_equal(found, wanted.numpy())


@pytest.mark.parametrize("repeats, options", [([3], {}), ([1, 2, 3], {"output_size": 6})])
def test_values_of_an_exported_program_are_never_made_up(repeats, options):
    """What a call is made of is recorded on other values than the program's: none of them may get into the file."""
    model, x = nn.Module(), torch.rand(3, 2)
    model.forward = lambda x: x.repeat_interleave(torch.tensor(repeats), 0, **options)
    data = torch.onnx.export(torch.export.export(model, (x,)), verbose=False).model_proto.SerializeToString()
    np.testing.assert_array_equal(run(data, x.numpy())[0], model(x).numpy())
