"""The main job: training, interruption and resumption, the picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flambeau
from flambeau.cli import main as command
from flambeau.demo import History, Training, draw, main
from flambeau.utils.picture import Canvas


def test_the_network_learns_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    picture, checkpoint = tmp_path / "digits.png", tmp_path / "digits.pt"
    status = command(["demo", "--epochs", "4", "--output", str(picture), "--checkpoint", str(checkpoint)])
    assert status == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().out
    assert "test accuracy" in said and "best: " in said and "green is right, red is wrong" in said
    assert said.count("compiled when they are first used") == 1
    assert main(4, str(picture), str(checkpoint), resume=True) > 0.85
    said = capsys.readouterr().out
    assert "resumed" in said and "compiled when" not in said  # the pause is over


def test_the_best_epoch_is_the_first_of_equals() -> None:
    assert History(losses=[3.0, 2.0, 1.0], accuracies=[0.5, 0.9, 0.9]).best == 2


def test_a_resumed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole = Training(epochs=3)
    whole.run()
    interrupted = Training(epochs=3)
    interrupted.run(until=1, checkpoint=tmp_path / "run.pt")
    flambeau.manual_seed(99)  # whatever happened in between
    resumed = Training(epochs=3)
    resumed.load(tmp_path / "run.pt")
    resumed.run()
    assert resumed.history == whole.history
    for name, value in whole.model.state_dict().items():
        assert flambeau.equal(value, resumed.model.state_dict()[name]), name


def test_a_checkpoint_of_another_length_is_refused(tmp_path: Path) -> None:
    Training(epochs=3).save(tmp_path / "run.pt")
    with pytest.raises(ValueError, match="run of 3 epochs, not 5"):
        Training(epochs=5).load(tmp_path / "run.pt")


def test_canvas_draws_inside_and_refuses_unknown_characters() -> None:
    canvas = Canvas(60, 40)
    canvas.text(50, 30, "abc 12")  # runs out of the picture on the right
    canvas.plot((10, 5, 50, 30), [1.0, float("nan"), 3.0, 2.0], (0, 0, 255), "x")
    assert (canvas.pixels != 255).any()
    with pytest.raises(ValueError, match="no glyph"):
        canvas.text(0, 0, "é")


def test_checkpoint_of_the_demo_opens_in_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="reads the checkpoint with PyTorch: pip install torch==2.13.0")
    training = Training(epochs=2)
    training.run(until=1, checkpoint=tmp_path / "run.pt")
    state = torch.load(tmp_path / "run.pt", weights_only=True)
    assert np.array_equal(state["model"]["fc.weight"].numpy(), training.model.fc.weight.detach().numpy())


def test_labels_keep_clear_of_the_axis() -> None:
    canvas = Canvas(220, 120)
    canvas.plot((48, 20, 200, 100), [1.33, 0.998], (0, 0, 255), "x", low=0.0)  # labels of up to five characters
    assert (canvas.pixels[:, 44:48] == 255).all() and (canvas.pixels[:, :44] == 0).any()


def test_the_readme_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    readme = Path(flambeau.__file__).parents[1] / "README.md"
    if not readme.exists():
        pytest.skip("the README is beside the package in a checkout only")
    code = readme.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    promised = next(line for line in code.splitlines() if line.startswith("print(loss)")).partition("# ")[2]
    assert capsys.readouterr().out == promised + "\n"


def test_matplotlib_draws_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="draws with matplotlib: pip install matplotlib")
    training = Training(epochs=2)
    training.run(until=1)
    draw(training, tmp_path / "plotted.png")
    monkeypatch.setattr("flambeau.demo.find_spec", lambda name: None)
    draw(training, tmp_path / "canvas.png")
    for name in ("plotted.png", "canvas.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epochs", "0"], "--epochs: expected a whole number of at least 1, not '0'"),
        (["--epochs", "many"], "--epochs: expected a whole number of at least 1, not 'many'"),
        (["--resume"], "there is no checkpoint digits.pt; start without --resume"),
        (["--output", "no/such/folder/digits.png"], "no/such/folder does not exist; make it first: mkdir -p"),
        (["--checkpoint", "no/digits.pt"], "/no does not exist; make it first: mkdir -p"),
        (["--output", "."], "--output . is a folder"),
        (["--resume", "--checkpoint", "damaged.pt"], "damaged.pt is no checkpoint of this run"),
        (["--resume", "--checkpoint", "other.pt"], "other.pt is no checkpoint of this run"),
        (["--resume", "--epochs", "5", "--checkpoint", "short.pt"], "short.pt is of a run of 3 epochs, not 5"),
    ],
)
def test_options_that_cannot_be_followed_are_explained(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("damaged.pt").write_bytes(b"hello")
    flambeau.save({"weights": flambeau.ones(2)}, "other.pt")
    Training(epochs=3).save("short.pt")
    try:
        status = command(["demo", *options])
    except SystemExit as stopped:  # argparse
        status = stopped.code
    said = capsys.readouterr()
    assert status in (1, 2) and message in said.err and "Traceback" not in said.err


def test_the_command_alone_shows_its_help(capsys: pytest.CaptureFixture) -> None:
    assert command([]) == 0
    said = capsys.readouterr().out
    assert said.startswith("usage: flambeau") and all(
        name in said for name in ("demo", "serve", "torchrun", "activate")
    )


def test_info_tells_what_is_here_and_how_to_get_the_rest(capsys: pytest.CaptureFixture, monkeypatch) -> None:
    required = ["numpy", "pillow>=10; extra == 'vision'", 'no-such-package>=1; extra == "other"', "x; extra == 'dev'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: required)
    assert command(["info"]) == 0
    facts = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    facts = {name: value.strip() for name, value in facts.items()}
    assert facts["imitates"].startswith(f"PyTorch {flambeau.version.__version__}")
    assert facts["extra other"] == "not installed (no-such-package missing): pip install 'flambeau[other]'"
    assert facts["extra vision"].startswith("pillow ") and "extra dev" not in facts
    assert "GPUs" in facts or "GPU 0" in facts
    assert {"threads", "kernel cache", "downloads", "oneDNN"} <= set(facts)
