"""Event files hold what PyTorch's SummaryWriter writes."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest

import flambeau

pytest.importorskip("tensorboard", reason="writes TensorBoard's files")
torch = pytest.importorskip("torch", reason="compares with PyTorch")
from PIL import Image  # noqa: E402
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader  # noqa: E402
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
        with pytest.raises((AssertionError, ValueError)):
            writer.add_scalar("loss", T.ones(2), 1)
        assert str(writer.get_logdir()) == str(folder)


def test_the_same_events(tmp_path):
    log(flambeau, ours, tmp_path / "ours")
    log(torch, theirs, tmp_path / "theirs")
    first, second = written(tmp_path / "ours"), written(tmp_path / "theirs")
    assert len(first) == 12
    for mine, other in zip(first, second):
        assert mine == other


def test_a_missing_package_is_named():
    code = "import sys; sys.modules['tensorboard'] = None\nimport flambeau.utils.tensorboard"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode and ("tensorboard" in result.stderr)
