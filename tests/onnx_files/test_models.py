"""Whole models as ONNX files: names as PyTorch's, sizes that change, detection, sequences, and files that are exported again."""

from __future__ import annotations

import collections
import io
import warnings

import numpy as np
import pytest

import flambeau
from flambeau import nn
from flambeau.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from flambeau.vision.models.detection.roi_masks import heatmaps_to_keypoints
from tests.onnx_files import zoo

onnx = pytest.importorskip("onnx", reason="ONNX files need the package onnx")
pytest.importorskip("onnxscript", reason="operators are translated by onnxscript's functions")
onnxruntime = pytest.importorskip("onnxruntime", reason="exported models are run by onnxruntime")


def run(data, *inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: np.asarray(v) for i, v in zip(session.get_inputs(), inputs)})


def written(torch, model, args, **options):
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, args, file, dynamo=False, **options)
    return file.getvalue()


def text(data):
    graph = onnx.load_from_string(data).graph
    lines = []
    for node in graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.name != "value"}
        lines.append((node.op_type, list(node.input), list(node.output), node.name, attributes))
    return (
        lines,
        [i.name for i in graph.input],
        sorted(i.name for i in graph.initializer),
        [o.name for o in graph.output],
    )


@pytest.mark.parametrize("build", zoo.EXACT, ids=lambda b: b.__name__)
def test_nodes_and_names_are_those_of_pytorch(build):
    torch = pytest.importorskip("torch", reason="PyTorch's exporter is the judge")
    shape = zoo.EXACT[build]
    mine, theirs = (text(written(t, build(t).eval(), t.rand(*shape), opset_version=17)) for t in (flambeau, torch))
    assert mine == theirs


def test_the_network_of_the_notes():
    _, inputs, _, outputs = text(
        written(flambeau, zoo.convnet(flambeau).eval(), flambeau.rand(1, 1, 28, 28), opset_version=13)
    )
    assert (inputs, outputs) == (["input.1"], ["29"])


def _tokens(batch, time):
    return flambeau.randint(0, 30, (batch, time))


@pytest.mark.parametrize(
    "build, make", [(zoo.gpt, _tokens), (zoo.encoder, lambda b, t: flambeau.randn(b, t, 16))], ids=["gpt", "encoder"]
)
@pytest.mark.parametrize("dynamo", [False, True])
def test_sequences_of_any_length(build, make, dynamo):
    model, example = build(flambeau).eval(), make(2, 7)
    if dynamo:
        batch, time = flambeau.export.dims("batch", "time")
        program = flambeau.onnx.export(model, (example,), verbose=False, dynamic_shapes=({0: batch, 1: time},))
        shape = program.model_proto.graph.input[0].type.tensor_type.shape
        assert [d.dim_param for d in shape.dim][:2] == ["batch", "time"]
        data = program.model_proto.SerializeToString()
    else:
        data = written(flambeau, model, example, input_names=["x"], dynamic_axes={"x": {0: "batch", 1: "time"}})
    for given in (example, make(3, 11), make(1, 2)):
        np.testing.assert_allclose(run(data, given)[0], model(given).detach().numpy(), atol=1e-5)


class Runs(nn.Module):
    """Counts its runs, and does something else for large batches."""

    def __init__(self):
        super().__init__()
        self.count, self.limit = 0, 100

    def forward(self, x):
        self.count += 1
        return x * 2 if x.shape[0] < self.limit else x.exp()


def test_how_often_a_model_runs():
    model, x = Runs(), flambeau.rand(2, 3)
    written(flambeau, model, x, input_names=["x"], dynamic_axes={"x": {0: "b"}})
    assert model.count == 1
    flambeau.onnx.export(model, (x,), verbose=False, dynamic_shapes=({0: flambeau.export.Dim("b")},))
    assert model.count == 6  # as torch.export runs it: with four other sizes, too
    model.limit = 3
    with pytest.raises(RuntimeError, match=r"Constraints violated \(b\)!"):
        flambeau.onnx.export(model, (x,), verbose=False, dynamic_shapes=({0: flambeau.export.Dim("b")},))


class Packed(nn.Module):
    def __init__(self, cls, enforce_sorted, **options):
        super().__init__()
        self.net, self.enforce_sorted = cls(3, 4, batch_first=True, **options), enforce_sorted

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=self.enforce_sorted)
        out, last = self.net(packed)
        padded, sizes = pad_packed_sequence(out, batch_first=True)
        return padded, last[0] if isinstance(last, tuple) else last, sizes


@pytest.mark.parametrize(
    "cls, options", [(nn.LSTM, {"num_layers": 2, "bidirectional": True}), (nn.GRU, {}), (nn.RNN, {})]
)
@pytest.mark.parametrize("ordered", [True, False])
def test_packed_sequences(cls, options, ordered):
    model = Packed(cls, ordered, **options).eval()
    axes = {"x": {0: "batch", 1: "time"}, "lengths": {0: "batch"}}
    example = (flambeau.randn(3, 5, 3), flambeau.tensor([5, 3, 2]))
    data = written(flambeau, model, example, input_names=["x", "lengths"], dynamic_axes=axes)
    for sizes, time in (([5, 3, 2], 5), ([4, 4, 1], 5), ([6, 5, 5, 2], 6)):
        lengths = flambeau.tensor(sizes if ordered else sizes[::-1])
        x = flambeau.randn(len(sizes), time, 3)
        for found, right in zip(run(data, x, lengths), model(x, lengths)):
            np.testing.assert_allclose(found, right.detach().numpy(), atol=1e-5)


def _detector():
    from flambeau.vision.models.detection import FasterRCNN
    from flambeau.vision.models.detection.anchor_utils import AnchorGenerator
    from flambeau.vision.ops import MultiScaleRoIAlign

    flambeau.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
    backbone.out_channels = 8
    return FasterRCNN(
        backbone, 4, rpn_anchor_generator=AnchorGenerator(((16, 32),), ((0.5, 1.0, 2.0),)), min_size=64, max_size=96,
        box_roi_pool=MultiScaleRoIAlign(["0"], 4, 2), box_score_thresh=0.27, rpn_score_thresh=0.45, rpn_nms_thresh=0.5, box_detections_per_img=300,
    ).eval()  # fmt: skip


def test_a_detector_with_any_number_of_boxes():
    model = _detector()
    images = [flambeau.rand(3, 64, 80) * scale for scale in (8.0, 5.0, 1.0)]
    data = written(flambeau, model, ([images[0]],), opset_version=17)
    kinds = {n.op_type for n in onnx.load_from_string(data).graph.node}
    assert {"NonMaxSuppression", "RoiAlign", "NonZero", "TopK"} <= kinds
    counts = set()
    for image in images:
        with flambeau.no_grad():
            right = [v.numpy() for v in model([image])[0].values()]
        for found, wanted in zip(run(data, image), right):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
        counts.add(len(right[0]))
    assert len(counts) == 3 and 0 in counts


AGAIN = [
    (zoo.mlp, (2, 3)),
    (zoo.normalised, (1, 3, 6, 6)),
    (zoo.convnet, (1, 1, 28, 28)),
    (zoo.layer_norm, (2, 3, 8)),
    (zoo.reshaped, (2, 3, 4)),
    (zoo.recurrent, (5, 2, 3)),
    (zoo.gated, (5, 2, 3)),
    (zoo.upsampled, (1, 3, 4, 4)),
    (zoo.encoder, (2, 5, 16)),
    (zoo.gpt, None),
]


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("build, shape", AGAIN, ids=lambda v: getattr(v, "__name__", ""))
def test_files_become_modules_and_files_again(build, shape, dynamo):
    model = build(flambeau).eval()
    x = _tokens(2, 7) if shape is None else flambeau.randn(*shape)

    def exported(module):
        if not dynamo:
            return written(flambeau, module, x, opset_version=17)
        return flambeau.onnx.export(module, (x,), verbose=False).model_proto.SerializeToString()

    once = exported(model)
    again = flambeau.onnx.load(once).eval()
    wanted = model(x).detach().numpy()
    for found in (run(once, x)[0], again(x).detach().numpy(), run(exported(again), x)[0]):
        np.testing.assert_allclose(found, wanted, atol=2e-5)


SLICES = {
    "positions": lambda p, i: p[:, : i.shape[1]] + i,
    "from a size": lambda p, i: p[:, i.shape[1] : 2 * i.shape[1]] + i,
    "without the last": lambda p, i: i[:, :-1],
    "the last three": lambda p, i: i[:, -3:],
    "the first twelve": lambda p, i: i[:, :12],
    "half": lambda p, i: i[:, i.shape[1] // 2 :],
    "shifted": lambda p, i: flambeau.cat([i.new_zeros(i.shape[0], 1), i[:, :-1]], 1),
    "sizes in a tensor": lambda p, i: i * flambeau.tensor([i.shape[1]]) + flambeau.tensor(i.shape[0]),
    "sizes put together": lambda p, i: i.reshape(-1, 1).view(i.size()[:-1] + (i.size(1), 1)),
}


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("what", SLICES)
def test_bounds_of_slices_may_change(what, dynamo):
    """The example has twelve columns, as one of the programs has in mind, and is read with seventeen."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("p", flambeau.arange(64)[None], persistent=False)

        def forward(self, ids):
            return SLICES[what](self.p, ids)

    model, given = Model(), flambeau.arange(24).reshape(2, 12)
    if dynamo:
        sizes = {"ids": {0: flambeau.export.Dim("b"), 1: flambeau.export.Dim("l", min=3, max=30)}}
        options = {"dynamo": True, "dynamic_shapes": sizes, "verbose": False}
        if what == "the first twelve":  # PyTorch takes it for a size that is always twelve
            with pytest.raises(RuntimeError, match="depends on the sizes of the inputs in a way that is not known"):
                flambeau.onnx.export(model, (given,), **options)
            return
        data = flambeau.onnx.export(model, (given,), **options).model_proto.SerializeToString()
    else:
        data = written(flambeau, model, given, input_names=["ids"], dynamic_axes={"ids": {0: "b", 1: "l"}})
    x = flambeau.arange(51).reshape(3, 17)
    np.testing.assert_array_equal(run(data, x.numpy())[0], model(x).numpy())


def test_images_of_any_size():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.c, self.n = nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4)

        def forward(self, x):
            y = flambeau.nn.functional.max_pool2d(self.n(self.c(x)), 3, 2, 1)
            return flambeau.nn.functional.interpolate(y, size=x.shape[-2:]) * y.shape[2]

    model, sizes = Model().eval(), {i: flambeau.export.Dim(name) for i, name in ((0, "b"), (2, "h"), (3, "w"))}
    program = flambeau.onnx.export(model, (flambeau.rand(2, 3, 32, 40),), dynamic_shapes=(sizes,), verbose=False)
    for shape in ((1, 3, 33, 47), (3, 3, 65, 18)):
        x = flambeau.rand(*shape)
        found = run(program.model_proto.SerializeToString(), x.numpy())[0]
        np.testing.assert_allclose(found, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def _rows_where(y):
    y[y[:, 0] > 0] = flambeau.arange(4.0)
    return y


CHOSEN = {
    "elements": lambda x: x[x > 0],
    "rows": lambda x: x[x[:, 0] > 0] @ flambeau.ones(4, 2),
    "columns": lambda x: x[:, x[0] > 0].relu(),
    "beside others": lambda x: flambeau.cat([x[x[:, 0] > 0], x]),
    "how many": lambda x: x[x > 0] * x[x > 0].shape[0],
    "places": lambda x: flambeau.cat([x.nonzero(), flambeau.ones(1, 2, dtype=flambeau.int64)]),
    "written": lambda x: _rows_where(x * 1),
}


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("what", CHOSEN)
def test_values_may_choose_how_many(what, dynamo):
    class Model(nn.Module):
        def forward(self, x):
            return CHOSEN[what](x)

    flambeau.manual_seed(0)
    example = flambeau.randn(5, 4)
    if dynamo:
        data = flambeau.onnx.export(Model(), (example,), verbose=False).model_proto.SerializeToString()
    else:
        data = written(flambeau, Model(), example)
    for x in (example, flambeau.randn(5, 4), -example.abs()):
        np.testing.assert_allclose(run(data, x.numpy())[0], Model()(x).numpy(), rtol=1e-6)


def test_sizes_of_the_newer_exporter_may_be_named_as_those_of_the_older():
    model, x = zoo.encoder(flambeau).eval(), flambeau.randn(2, 7, 16)
    axes = {"x": {0: "batch-size", 1: "time"}}
    program = flambeau.onnx.export(model, (x,), input_names=["x"], dynamic_axes=axes, verbose=False)
    shape = program.model_proto.graph.input[0].type.tensor_type.shape
    assert [d.dim_param for d in shape.dim][:2] == ["batch-size", "time"]
    other = flambeau.randn(3, 5, 16)
    found = run(program.model_proto.SerializeToString(), other.numpy())[0]
    np.testing.assert_allclose(found, model(other).detach().numpy(), atol=1e-5)
    assert program.exported_program.module()(other).shape == other.shape


def test_a_size_that_becomes_a_float_is_refused_where_it_may_change():
    class Model(nn.Module):
        def forward(self, x):
            return x * x.shape[1] ** -0.5

    x, sizes = flambeau.ones(2, 4), {"x": {1: flambeau.export.Dim("l")}}
    with pytest.raises(RuntimeError, match=r"a number at %mul .* depends on the sizes of the inputs: \[0\.5, 0\.37"):
        flambeau.onnx.export(Model(), (x,), dynamic_shapes=sizes, verbose=False)
    with pytest.raises(
        RuntimeError, match=r"(?s)becomes a Python float.*line \d+, in forward return x \* x.shape\[1\] \*\* -0.5"
    ):
        written(flambeau, Model(), x, input_names=["x"], dynamic_axes={"x": {1: "l"}})
    data = written(flambeau, Model(), x, input_names=["x"], dynamic_axes={"x": {0: "n"}})
    np.testing.assert_array_equal(run(data, np.ones((3, 4), np.float32))[0], np.full((3, 4), 0.5))


@pytest.mark.parametrize("compile", [flambeau.jit.script, lambda m: flambeau.jit.trace(m, flambeau.ones(2, 3, 8, 8))])
def test_a_compiled_model_from_its_archive(compile, tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()
    compile(model).save(str(tmp_path / "model.pt"))
    x = flambeau.randn(2, 3, 8, 8)
    data = written(flambeau, flambeau.jit.load(tmp_path / "model.pt"), x)
    np.testing.assert_allclose(run(data, x.numpy())[0], model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [17, 20])
def test_keypoints_are_a_loop(opset):
    class Model(nn.Module):
        def forward(self, maps, rois):
            return heatmaps_to_keypoints(maps, rois)

    def boxes(count):
        corner = flambeau.rand(count, 2) * 20
        return flambeau.cat([corner, corner + 1 + flambeau.rand(count, 2) * 30], 1)

    flambeau.manual_seed(0)
    axes = {"maps": {0: "n"}, "rois": {0: "n"}}
    data = written(
        flambeau, Model(), (flambeau.rand(2, 3, 8, 8), boxes(2)), opset_version=opset, input_names=["maps", "rois"], dynamic_axes=axes
    )  # fmt: skip
    for count in (3, 1):
        maps, rois = flambeau.rand(count, 3, 8, 8), boxes(count)
        for found, wanted in zip(run(data, maps.numpy(), rois.numpy()), heatmaps_to_keypoints(maps, rois)):
            np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-4)


def test_gradients_of_the_heights_of_keypoints():
    maps = flambeau.rand(1, 2, 4, 4, requires_grad=True)
    _, scores = heatmaps_to_keypoints(maps, flambeau.tensor([[0.0, 0.0, 4.0, 4.0]]))
    scores.sum().backward()
    assert maps.grad.sum().item() == pytest.approx(2)


def test_results_without_elements():
    class Model(nn.Module):
        def forward(self, x, y):
            product = flambeau.addmm(flambeau.ones(2, 3), x, y, beta=0.5)
            return (
                product,
                x.var(),
                flambeau.cdist(x, flambeau.ones(4, 0)[:0]),
                flambeau.nn.functional.group_norm(x[:0], 1),
            )

    given = (flambeau.ones(2, 0), flambeau.ones(0, 3))
    data = flambeau.onnx.export(Model(), given, verbose=False).model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    named = {i.name: t.numpy() for i, t in zip(session.get_inputs(), given)}
    for found, wanted in zip(session.run(None, named), Model()(*given)):
        np.testing.assert_array_equal(found, wanted.numpy())


# What computes; constants, sizes and rearrangements around it may be fewer here (docs/onnx.md says which).
COMPUTING = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Relu", "Erf", "Softmax", "LSTM", "GRU", "LayerNormalization", "InstanceNormalization",
             "MaxPool", "GlobalAveragePool", "Resize", "Gelu", "Tanh")  # fmt: skip
STRUCTURES = {
    zoo.recurrent: (5, 2, 3),
    zoo.gated: (5, 2, 3),
    zoo.encoder: (2, 5, 16),
    zoo.upsampled: (1, 3, 4, 4),
    zoo.residual: (1, 3, 16, 16),
    zoo.gpt: (2, 7),
}


@pytest.mark.parametrize("build", STRUCTURES, ids=lambda b: b.__name__)
def test_the_nodes_that_compute_are_those_of_pytorch(build):
    torch = pytest.importorskip("torch", reason="PyTorch's exporter is the judge")

    def counted(t):
        x = t.zeros(*STRUCTURES[build], dtype=t.int64) if build is zoo.gpt else t.rand(*STRUCTURES[build])
        graph = onnx.load_from_string(written(t, build(t).eval(), x, opset_version=17)).graph
        found = collections.Counter(node.op_type for node in graph.node)
        return {kind: found[kind] for kind in COMPUTING if found[kind]}

    mine, theirs = counted(flambeau), counted(torch)
    assert mine == theirs and mine
