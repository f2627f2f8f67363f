"""Tools that look at a model leave it as it was: modes of every submodule, parameters, buffers, hooks, and the random generator."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from answers import judge

import flambeau
from flambeau import nn
from flambeau.fx.experimental.proxy_tensor import make_fx
from flambeau.nn.unchanged import contents_kept, in_mode, unchanged
from flambeau.onnx import TrainingMode
from flambeau.vision.models.detection._utils import retrieve_out_channels
from flambeau.vision.models.feature_extraction import create_feature_extractor, get_graph_node_names


class Net(nn.Module):
    """Statistics that move in training, numbers that are drawn, a part in another mode than the rest, a buffer held twice."""

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
        self.frozen = nn.BatchNorm2d(4).eval()
        self.head = nn.Sequential(nn.Flatten(), nn.LazyLinear(3) if channels == 0 else nn.Linear(64, 3))
        self.register_buffer("calls", flambeau.zeros(()))
        self.features.register_buffer("calls", self.calls)

    def forward(self, x):
        if self.training:
            self.calls += 1
            return self.head(self.frozen(self.features(x)))
        return self.head(self.frozen(self.features(x)))


def add_graph(model: nn.Module, x: Any, folder: Path) -> None:
    board = pytest.importorskip("tensorboard", reason="pip install tensorboard") and flambeau.utils.tensorboard
    with board.SummaryWriter(str(folder)) as writer:
        writer.add_graph(model, x)


def to_onnx(**options: Any) -> Callable:
    def run(model: nn.Module, x: Any, folder: Path) -> None:
        pytest.importorskip("onnx", reason="pip install flambeau[onnx]")
        flambeau.onnx.export(model, (x,), io.BytesIO(), **options)

    return run


SIZES = {"dynamic_shapes": ({0: flambeau.export.Dim("batch", min=2)},)}
TOOLS: dict[str, Callable] = {
    "add_graph": add_graph,
    "summary": lambda m, x, f: flambeau.utils.summary(m, x.shape, verbose=0),
    "summary in training": lambda m, x, f: flambeau.utils.summary(m, x.shape, verbose=0, mode="train"),
    "draw": lambda m, x, f: flambeau.utils.draw(m, x, path=f / "net.svg"),
    "export": lambda m, x, f: flambeau.export.export(m, (x,)),
    "export, sizes that change": lambda m, x, f: flambeau.export.export(m, (x,), **SIZES),
    "export, taken apart": lambda m, x, f: flambeau.export.export(m, (x,)).run_decompositions(),
    "onnx": to_onnx(),
    "onnx, sizes that change": to_onnx(**SIZES),
    "onnx of TorchScript": to_onnx(dynamo=False),
    "onnx for training": to_onnx(dynamo=False, training=TrainingMode.TRAINING),
    "onnx in the model's modes": to_onnx(dynamo=False, training=TrainingMode.PRESERVE),
    "make_fx on fakes": lambda m, x, f: make_fx(m, tracing_mode="fake")(x),
    "make_fx with sizes": lambda m, x, f: make_fx(m.features[2], tracing_mode="symbolic")(x),
    "fx": lambda m, x, f: flambeau.fx.symbolic_trace(m.features),
    "jit.script": lambda m, x, f: flambeau.jit.script(m),
    "explain": lambda m, x, f: flambeau._dynamo.explain(m)(x),
    "names of features": lambda m, x, f: get_graph_node_names(m),
    "features": lambda m, x, f: create_feature_extractor(m, ["head"]),
}


def state(model: nn.Module) -> dict[str, Any]:
    """Everything about a model that a tool could change, and the random generator."""
    modules = list(model.modules())
    return {
        "modes": [m.training for m in modules],
        "tensors": {name: (id(t), t.tolist()) for name, t in model.state_dict(keep_vars=True).items()},
        "versions": [t._version for t in (*model.parameters(), *model.buffers())],
        "grads": [p.grad for p in model.parameters()],
        "requires": [p.requires_grad for p in model.parameters()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in modules],
        "attributes": [sorted(vars(m)) for m in modules],
        "random": flambeau.get_rng_state().tolist(),
    }


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluating"])
def test_a_tool_leaves_the_model_and_the_generator_alone(tool: str, training: bool, tmp_path: Path) -> None:
    flambeau.manual_seed(0)
    model = Net().train(training)
    model.frozen.eval()
    x = flambeau.randn(2, 1, 6, 6)
    before, given = state(model), x.clone()
    TOOLS[tool](model, x, tmp_path)
    after = state(model)
    if tool.startswith("make_fx"):  # its graphs hold the model's own tensors, which are written back
        del before["versions"]
    assert [name for name in before if before[name] != after[name]] == []
    assert flambeau.equal(x, given)
    model(x).sum().backward()


def test_a_library_beside_an_archive_leaves_the_module_in_its_mode(tmp_path: Path) -> None:
    from flambeau.utils.cpp_extension import _compiler

    try:
        _compiler()
    except RuntimeError:
        pytest.skip("no C++ compiler")
    path = tmp_path / "net.pt"
    flambeau.jit.save(flambeau.jit.script(nn.Sequential(nn.Linear(2, 2), nn.Dropout())), path)
    loaded = flambeau.jit.load(path)
    flambeau.export_library(loaded, (flambeau.ones(1, 2),), archive=path)
    assert [m.training for m in loaded.modules()] == [True, True, True]


def test_the_widths_of_a_backbone_are_found_without_training_it() -> None:
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    backbone[1].eval()
    before = state(backbone)
    assert retrieve_out_channels(backbone, (8, 8)) == [4]
    assert state(backbone) == before


def test_a_failing_model_is_put_back() -> None:
    model = Net()
    before = state(model)
    for tool in ("draw", "summary in training", "export"):
        with pytest.raises(Exception):  # noqa: B017  each tool says it in its own way
            TOOLS[tool](model, flambeau.ones(2, 5, 6, 6), Path())
        assert state(model) == before, tool


class Merged(nn.Linear):
    """Like low-rank adapters: evaluation adds something to the weight, training takes it away again."""

    def train(self, mode: bool = True) -> Any:
        if mode != self.training:
            self.weight.data += 1 if not mode else -1
        return super().train(mode)


def test_modes_are_put_back_by_the_modules_own_way() -> None:
    model = nn.Sequential(Merged(1, 1), Merged(1, 1))
    model[1].eval()
    before = [m.weight.item() for m in model]
    with in_mode(model, training=False):
        assert [m.weight.item() for m in model] == pytest.approx([before[0] + 1, before[1]])
    assert [m.weight.item() for m in model] == pytest.approx(before)
    assert [m.training for m in model.modules()] == [True, True, False]


def test_a_graph_that_waits_for_its_gradient_is_not_disturbed() -> None:
    model = nn.BatchNorm1d(2).eval()  # its backward reads the running statistics
    result = model(flambeau.ones(3, 2, requires_grad=True)).sum()
    flambeau.utils.summary(model, (3, 2), mode="train", verbose=0)
    result.backward()


def test_contents_are_kept_and_only_written_where_they_changed() -> None:
    changed, other = flambeau.ones(2), flambeau.ones(2)
    with contents_kept([changed, other]):
        changed += 1
        flambeau.rand(3)
    assert changed.tolist() == [1, 1] and other._version == 0
    with unchanged(lambda x: x):  # what is no module has no state to keep but the generator's
        flambeau.rand(3)


def test_jit_trace_runs_a_model_as_often_as_pytorch_does() -> None:
    """Tracing is calling, and checking calls four times more: statistics and random numbers go on as they do there."""
    flambeau.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    flambeau.jit.trace(model, flambeau.ones(3, 2), check_trace=False)
    assert model[1].num_batches_tracked == 1
    flambeau.jit.trace(model, flambeau.ones(3, 2))
    assert model[1].num_batches_tracked == 6


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("traced", ["module", "function"])
def test_jit_trace_moves_statistics_and_numbers_as_pytorch_does(check: bool, traced: str) -> None:
    torch = judge("torch")

    def left(library: Any) -> tuple[list, float]:
        library.manual_seed(3)
        layers = library.nn
        model = layers.Sequential(
            layers.Linear(4, 4), layers.BatchNorm1d(4), layers.Dropout(0.3), layers.Threshold(9.0, 9.0)
        )
        target = model if traced == "module" else lambda x: layers.functional.dropout(x, 0.5) * 0
        library.jit.trace(target, library.ones(3, 4), check_trace=check)
        return model[1].running_var.tolist(), library.rand(1).item()

    (ours, draw), (theirs, wanted) = left(flambeau), left(torch)
    assert ours == pytest.approx(theirs) and draw == wanted
