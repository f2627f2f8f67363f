"""Event files hold what PyTorch's SummaryWriter writes."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
from answers import judge

import flambeau

pytest.importorskip("tensorboard", reason="writes TensorBoard's files")
torch = judge("torch")
from PIL import Image  # noqa: E402
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader, LegacyEventFileLoader  # noqa: E402
from tensorboard.compat.proto.graph_pb2 import GraphDef  # noqa: E402
from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: E402
from torch.utils import tensorboard as theirs  # noqa: E402

from flambeau.utils import tensorboard as ours  # noqa: E402


def written(folder):
    """Everything in the files, without times; pictures decoded."""
    found = []
    for path in sorted(folder.rglob("events*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                pixels = b""
                if value.HasField("tensor") and len(value.tensor.string_val) == 3:
                    pixels = np.asarray(Image.open(io.BytesIO(value.tensor.string_val[2]))).tobytes()
                    value.tensor.ClearField("string_val")
                found.append((str(path.parent.relative_to(folder)), event.step, str(value), pixels))
    return sorted(found)


def log(T, library, folder):
    picture = np.random.RandomState(0).rand(3, 4, 5).astype(np.float32)
    with library.SummaryWriter(folder) as writer:
        writer.add_scalar("loss", 0.5, 1)
        writer.add_scalar("loss", T.tensor([0.25]), 2, new_style=True)
        writer.add_scalar("exact", np.float64(0.1), 2, new_style=True, double_precision=True)
        writer.add_scalars("both", {"a": 1.0, "b": T.tensor(2.0)}, 3)
        writer.add_histogram("weights", T.tensor([0.1, 0.2, -5.0, 3.0, 0.1]), 4)
        writer.add_histogram("few", np.arange(10.0), 5, bins=4)
        writer.add_histogram("joined", np.arange(100.0), 5, max_bins=30)
        writer.add_image("picture", T.tensor(picture), 6)
        writer.add_image("grey", (picture[0] * 255).astype(np.uint8), 6, dataformats="HW")
        writer.add_images("batch", T.tensor(np.stack([picture] * 10)), 7)
        writer.add_text("words", "**bold**", 8)
        writer.add_pr_curve("curve", T.tensor([0, 1, 1, 0]), T.tensor([0.1, 0.8, 0.6, 0.7]), 9)
        corners = T.tensor([[[1.0, 1, 1], [-1, -1, 1], [1, -1, -1]]])
        writer.add_mesh(
            "mesh", corners, T.tensor([[[255, 0, 0], [0, 255, 0], [0, 0, 255]]]), T.tensor([[[0, 1, 2]]]), global_step=9
        )
        writer.add_audio("sound", T.linspace(-1, 1, 50), 9)
        writer.add_tensor("numbers", T.arange(3.0), 9)
        writer.add_histogram_raw("raw", 0.0, 1.0, 3, 2.0, 3.0, [0.5, 1.0], [1, 2], 9)
        writer.add_custom_scalars({"c": {"t": ["Multiline", ["a", "b"]], "u": ["Margin", ["a", "b", "c"]]}})
        writer.add_hparams({"lr": 0.1}, {"accuracy": 1.0}, {"lr": [0.1, 0.2]}, run_name="run")
        labels, pictures = ["a", "b"], T.ones(2, 3, 2, 2)
        writer.add_embedding(T.arange(6.0).reshape(2, 3), labels, pictures, 3, "points/x")
        with pytest.raises((AssertionError, ValueError)):
            writer.add_scalar("loss", T.ones(2), 1)
        assert str(writer.get_logdir()) == str(folder)


def test_the_same_events(tmp_path):
    log(flambeau, ours, tmp_path / "ours")
    log(torch, theirs, tmp_path / "theirs")
    first, second = written(tmp_path / "ours"), written(tmp_path / "theirs")
    assert len(first) == len(second) == 24
    for mine, other in zip(first, second):
        assert mine == other
    for name in ("00003/points%2fx/tensors.tsv", "00003/points%2fx/metadata.tsv", "projector_config.pbtxt"):
        assert (tmp_path / "ours" / name).read_text() == (tmp_path / "theirs" / name).read_text()
    sprites = [Image.open(tmp_path / who / "00003/points%2fx/sprite.png") for who in ("ours", "theirs")]
    assert np.array_equal(*sprites)


NET = """
class Net(T.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.fc = T.nn.Sequential(T.nn.Conv2d(1, 4, 3), T.nn.ReLU(), T.nn.MaxPool2d(2)), T.nn.Linear(36, 3)
    def forward(self, x):
        return self.fc(self.first(x).flatten(1))
"""


def graph(T, library, folder):
    names = {"T": T}
    exec(NET, names)
    with library.SummaryWriter(folder) as writer:
        writer.add_graph(names["Net"](), T.zeros(1, 1, 8, 8))
    events = [e for path in folder.glob("events*") for e in EventFileLoader(str(path)).Load()]
    found = GraphDef.FromString(next(e.graph_def for e in events if e.graph_def))
    shapes = {n.name: str(n.attr["_output_shapes"]) for n in found.node}
    return sorted((n.name.rpartition("/")[0], n.op, shapes[n.name]) for n in found.node if n.op.startswith("aten::"))


def test_graphs_have_the_same_operators_in_the_same_modules(tmp_path):
    found = graph(flambeau, ours, tmp_path / "ours")
    assert ("Net/Sequential[first]/Conv2d[0]", "aten::_convolution") in [entry[:2] for entry in found]
    assert found == graph(torch, theirs, tmp_path / "theirs")


def test_films_are_animated(tmp_path):
    with ours.SummaryWriter(tmp_path) as writer:
        writer.add_video("film", flambeau.rand(2, 5, 3, 4, 6))
    film = Image.open(io.BytesIO(next(v for v in raw(tmp_path) if v.tag == "film").image.encoded_image_string))
    assert film.n_frames == 5 and film.size == (12, 4)


def raw(folder):
    return [v for p in folder.glob("events*") for e in LegacyEventFileLoader(str(p)).Load() for v in e.summary.value]


def test_a_missing_package_is_named():
    code = "import sys; sys.modules['tensorboard'] = None\nimport flambeau.utils.tensorboard"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode and ("tensorboard" in result.stderr)


def test_summaries_of_other_libraries_go_to_the_same_file(tmp_path):
    with ours.SummaryWriter(tmp_path) as writer:
        summary = Summary(value=[Summary.Value(tag="own", simple_value=3.0)])
        writer._get_file_writer().add_summary(summary, global_step=2)
        writer.add_scalar("loss", 1.0)
    assert {v.tag for v in raw(tmp_path)} == {"own", "loss"}
    assert len(list(tmp_path.glob("events*"))) == 1
