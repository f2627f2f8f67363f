"""What a newcomer does first: the manual's own example, exported models, several inputs, wrong ones, the line that is printed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("httptools", reason="serving needs flambeau[serve]")

import flambeau as torch  # noqa: E402
from flambeau import nn  # noqa: E402
from flambeau.serve import archiver  # noqa: E402

from .serving import Client, make_model  # noqa: E402


@pytest.fixture(autouse=True)
def _nothing_stays(client: Client):
    """The server is shared by all tests: models that a test has registered go when it ends."""

    def names() -> set[str]:
        return {model["modelName"] for model in client.manage("GET", "/models").json()["models"]}

    before = names()
    yield
    for name in names() - before:
        client.manage("DELETE", f"/models/{name}")


ROOT = Path(__file__).parents[2]


class Two(nn.Module):
    """Two inputs of different widths."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(4, 2), nn.Linear(3, 2)

    def forward(self, left, right):
        return self.wide(left) + self.narrow(right)


def exported(store: Path, kind: str) -> Path:
    torch.manual_seed(0)
    model, inputs = Two().eval(), (torch.zeros(1, 4), torch.zeros(1, 3))
    path = store / f"two_{kind}.{'pt' if kind == 'script' else kind}"
    if kind == "onnx":
        pytest.importorskip("onnx")
        torch.onnx.export(model, inputs, str(path))
    elif kind == "pt2":
        torch.export.save(torch.export.export(model, inputs), path)
    else:
        torch.jit.script(model).save(str(path))
    return path


@pytest.mark.parametrize("kind", ["onnx", "pt2", "script"])
def test_two_inputs_by_name_and_in_order(client: Client, store: Path, kind: str):
    path = exported(store, kind)
    archiver.package_model(path.stem, version="1.0", serialized_file=str(path), handler="tensor_handler",
                           export_path=str(store), force=True)  # fmt: skip
    assert client.register(f"{path.stem}.mar").status == 200
    torch.manual_seed(0)
    wanted = Two()(torch.tensor([1.0, 2, 3, 4]), torch.tensor([5.0, 6, 7])).tolist()
    left, right = [1, 2, 3, 4], [5, 6, 7]
    for body in (
        {"left": left, "right": right},
        [left, right],
        {"inputs": {"right": right, "left": left}},
        {"data": [left, right]},
    ):
        answer = client.predict(path.stem, body)
        assert answer.status == 200, answer.body
        assert answer.json() == pytest.approx(wanted, abs=1e-5)
    form = '--B\r\nContent-Disposition: form-data; name="left"\r\n\r\n[1, 2, 3, 4]\r\n--B\r\nContent-Disposition: form-data; name="right"\r\n\r\n[5, 6, 7]\r\n--B--\r\n'
    answer = client.predict(path.stem, form, {"Content-Type": "multipart/form-data; boundary=B"})
    assert answer.json() == pytest.approx(wanted, abs=1e-5)
    for body, words in (
        ({"left": left}, "right"), ({"left": left, "right": right, "more": 1}, "'more'"), ([left], "2 inputs"), (left, "2 inputs"),
        ({"left": [1, 2], "right": right}, "cannot take"), ({"left": left, "right": ["a"]}, "'right'"), ("7", "2 inputs"),
        ({"left": [[1], [2, 3]], "right": right}, "'left'"),
    ):  # fmt: skip
        answer = client.predict(path.stem, body)
        assert (answer.status, answer.json()["type"]) == (400, "BadRequestException"), body
        assert words in answer.json()["message"], answer.json()
    if kind != "script":  # the file says how many dimensions an input has: with the batch's, the answer has it, too
        assert client.predict(path.stem, [[left], [right]]).json()[0] == pytest.approx(wanted, abs=1e-5)


def test_tensors_beside_an_onnx_file_go_along(client: Client, store: Path, tmp_path: Path):
    pytest.importorskip("onnx")
    torch.onnx.export(nn.Linear(64, 64).eval(), (torch.zeros(1, 64),), str(tmp_path / "net.onnx"))
    assert (tmp_path / "net.onnx.data").exists()
    parts = {
        "version": "1.0",
        "serialized_file": str(tmp_path / "net.onnx"),
        "handler": "tensor_handler",
        "export_path": str(store),
    }
    archiver.package_model("beside", force=True, **parts)
    assert client.register("beside.mar").status == 200
    assert len(client.predict("beside", [1] * 64).json()) == 64
    (tmp_path / "net.onnx.data").unlink()
    with pytest.raises(archiver.ArchiverError, match=r"net\.onnx\.data, which is missing"):
        archiver.package_model("beside", force=True, **parts)


def test_the_manuals_example(client: Client, store: Path, tmp_path: Path):
    """The archive and the request of the tutorial on deployment."""
    manual = (ROOT / "docs" / "tutorials" / "deployment.md").read_text()
    (source,) = re.findall(r'```python title="net\.py"\n(.*?)```', manual, re.DOTALL)
    (sent,) = re.findall(r"curl .*http://127\.0\.0\.1:\d+/predictions/digits .* -d '(.*)'", manual)
    (tmp_path / "net.py").write_text(source)
    torch.save(nn.Sequential(), tmp_path / "x.pt")
    layer = nn.Linear(4, 2)
    torch.save({"layer.weight": layer.weight, "layer.bias": layer.bias}, tmp_path / "net.pt")
    archiver.package_model("digits", version="1.0", model_file=str(tmp_path / "net.py"), serialized_file=str(tmp_path / "net.pt"),
                           handler="base_handler", export_path=str(store), force=True)  # fmt: skip
    assert client.register("digits.mar").status == 200
    answer = client.predict("digits", sent, {"Content-Type": "application/json"})
    assert answer.status == 200, answer.body
    assert answer.json() == [pytest.approx(layer(torch.tensor([1.0, 2, 3, 4])).tolist(), abs=1e-5)]
    for body, words in (("[1, 2, 3]", "cannot take"), ('["a"]', "numbers"), ("{}", "1 input"), ("nothing", "no JSON")):
        answer = client.predict("digits", body, {"Content-Type": "application/json"})
        assert answer.status == 400
        assert words in answer.json()["message"], answer.json()


def test_one_wrong_request_does_not_fail_its_batch(start, store: Path, tmp_path: Path):
    torch.jit.script(nn.Linear(4, 2)).save(str(tmp_path / "line.pt"))
    archiver.package_model("line", version="1.0", serialized_file=str(tmp_path / "line.pt"), handler="tensor_handler",
                           export_path=str(store), force=True)  # fmt: skip
    client: Client = start()
    assert client.register("line.mar", batch_size=3, max_batch_delay=3000).status == 200
    answers: dict[str, int] = {}
    bodies = ("[1, 2, 3, 4]", "[1, 2]", "[5, 6, 7, 8]")

    def ask(body: str) -> None:
        answers[body] = client.predict("line", body, {"Content-Type": "application/json"}).status

    threads = [threading.Thread(target=ask, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [answers[body] for body in bodies] == [200, 400, 200]


def test_what_is_no_picture_is_a_bad_request(client: Client, store: Path, tmp_path: Path):
    pytest.importorskip("PIL")
    torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(12, 3))).save(str(tmp_path / "seen.pt"))
    archiver.package_model("seen", version="1.0", serialized_file=str(tmp_path / "seen.pt"), handler="image_classifier",
                           export_path=str(store), force=True)  # fmt: skip
    assert client.register("seen.mar").status == 200
    for body, words in ((b"no picture", "picture"), (b"", "picture"), ([[1, 2]], "cannot take"), ({"a": 1}, "picture")):
        answer = client.predict("seen", body)
        assert answer.status == 400, (body, answer.body)
        assert words in answer.json()["message"]
    assert client.predict("seen", [[[1, 2], [3, 4]]] * 3).status == 200


# -- the command --


def served(tmp_path: Path, *words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "flambeau.cli", "serve", *words, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT), "LOG_LOCATION": str(tmp_path / "logs")},
    )  # fmt: skip


def lines_until(process: subprocess.Popen, words: str, stream: str = "stdout") -> list[str]:
    lines = []
    for line in getattr(process, stream):
        lines.append(line)
        if words in line:
            return lines
    pytest.fail(f"{words!r} was not printed, but {lines}")


@pytest.fixture()
def ended():
    """Ends the servers that a test adds to it."""
    processes: list[subprocess.Popen] = []
    timer = threading.Timer(90, lambda: [p.kill() for p in processes])
    timer.start()
    yield processes
    timer.cancel()
    for process in processes:
        process.terminate()
        process.wait(30)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        process.stderr.close()


def test_the_printed_line_works(tmp_path: Path, ended: list):
    pytest.importorskip("onnx")
    torch.onnx.export(Two().eval(), (torch.zeros(1, 4), torch.zeros(1, 3)), str(tmp_path / "two.onnx"))
    torch.jit.script(nn.Sequential(nn.Linear(5, 2))).save(str(tmp_path / "line.pt"))
    ended.append(served(tmp_path, "two.onnx", "line.pt"))
    tries = [line.partition("try it:")[2] for line in lines_until(ended[0], "look at") if "try it" in line]
    assert len(tries) == 2
    for line in tries:
        done = subprocess.run(
            [*shlex.split(line), "-s", "-w", " %{http_code}"], capture_output=True, text=True, timeout=30
        )
        assert done.stdout.endswith(" 200"), (line, done.stdout)


def test_the_reason_of_a_failure_is_shown_without_asking(tmp_path: Path, ended: list):
    (tmp_path / "fails.py").write_text("def handle(data, context):\n    return data and [1 / len(data[0]['none'])]\n")
    ended.append(served(tmp_path, "fails.py"))
    (line,) = [line for line in lines_until(ended[0], "look at") if "try it" in line]
    done = subprocess.run(
        [*shlex.split(line.partition("try it:")[2]), "-s"], capture_output=True, text=True, timeout=30
    )
    assert json.loads(done.stdout)["message"] == "Prediction failed"  # clients are not told about the inside
    shown = lines_until(ended[0], "Prediction failed", "stderr")[-1]
    assert "KeyError: 'none' (fails.py:2)" in shown
    ended[0].terminate()
    ended[0].wait(30)
    assert "Prediction failed: KeyError" in (tmp_path / "logs" / "ts_log.log").read_text()


def test_a_failure_to_load_says_why_to_the_client(client: Client, store: Path):
    make_model(store, "unloadable", "raise ValueError('not like this')")
    assert client.register("unloadable.mar").json()["message"].endswith("ValueError: not like this")


@pytest.mark.parametrize(
    "words", [("--port", "80808080"), ("--port", "65535"), ("--workers", "0"), ("--batch-size", "0")]
)
def test_options_that_make_no_sense(tmp_path: Path, words: tuple[str, str]):
    (tmp_path / "h.py").write_text("def handle(data, context):\n    return data\n")
    done = subprocess.run([sys.executable, "-m", "flambeau.cli", "serve", "h.py", *({"--port": "0"} | dict([words])).popitem()],
                          capture_output=True, text=True, cwd=tmp_path, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(ROOT), "LOG_LOCATION": str(tmp_path / "logs")})  # fmt: skip
    assert done.returncode in (1, 2)
    assert "flambeau serve: " in done.stderr and "Traceback" not in done.stderr
