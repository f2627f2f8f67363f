"""`flambeau serve` and `flambeau bench-serve`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import urllib.request
import xml.etree.ElementTree
from pathlib import Path

import pytest

import flambeau as torch
from flambeau.cli import build_parser, main
from flambeau.serve import quick
from flambeau.serve.archive_reader import open_model
from flambeau.serve.bench import Results, picture, text
from flambeau.serve.settings import ConfigurationError

from .serving import Client


def options(*words: str) -> argparse.Namespace:
    return build_parser().parse_args(["serve", *words])


def packed(tmp_path: Path, *words: str):
    store = tmp_path / "store"
    store.mkdir(exist_ok=True)
    archive, name = quick.package(words[0], store, options(*words))
    return open_model(archive, str(store), [".*"]), name


def test_weights_find_their_model(tmp_path: Path):
    net = torch.nn.Sequential()  # names decide, not the weights
    from flambeau.vision import models

    net = models.resnet18(weights=None, num_classes=7)
    torch.save({"state_dict": {f"module.{k}": v for k, v in net.state_dict().items()}}, tmp_path / "resnet18-best.pth")
    archive, name = packed(tmp_path, str(tmp_path / "resnet18-best.pth"))
    assert name == "resnet18-best"
    assert archive.handler == "image_classifier"
    assert "get_model('resnet18', weights=None, num_classes=7)" in (archive.folder / "served_model.py").read_text()
    torch.save(net.state_dict(), tmp_path / "mine.pt")
    with pytest.raises(ConfigurationError, match="--arch"):
        packed(tmp_path, str(tmp_path / "mine.pt"))
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    archive, _ = packed(
        tmp_path, str(tmp_path / "mine.pt"), "--arch", "resnet18", "--labels", str(tmp_path / "names.txt")
    )
    assert json.loads((archive.folder / "index_to_name.json").read_text()) == {"0": "cat", "1": "dog"}


def test_what_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture):
    torch.save([1, 2], tmp_path / "resnet18.pt")
    with pytest.raises(ConfigurationError, match="no weights"):
        packed(tmp_path, str(tmp_path / "resnet18.pt"))
    assert main(["serve", "nothing-of-that-name"]) == 1
    assert "neither a file nor one of the models" in capsys.readouterr().err
    assert main(["serve"]) == 2


def test_one_command_serves_a_model(tmp_path: Path):
    (tmp_path / "double.py").write_text(
        "def handle(data, context):\n    return data and [2 * row['body'] for row in data]\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "flambeau.cli", "serve", str(tmp_path / "double.py"), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=Path(__file__).parents[2],
        env={**os.environ, "LOG_LOCATION": str(tmp_path / "logs")},
    )  # fmt: skip
    timer = threading.Timer(60, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip())
            if "look at" in line:
                break
        (curl,) = [line for line in lines if "try it" in line]
        _, address, _, header, _, body = shlex.split(curl.partition("try it:")[2])
        request = urllib.request.Request(address, body.encode(), dict([header.split(": ")]))
        assert json.load(urllib.request.urlopen(request)) == [1, 2, 3, 1, 2, 3]
        assert any("registered with 1 initial workers: double.py" in line for line in lines)
    finally:
        timer.cancel()
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert process.returncode == 0


def test_a_model_that_cannot_be_loaded_says_why(tmp_path: Path):
    (tmp_path / "wrong.py").write_text("raise ValueError('not like this')\n")
    done = subprocess.run(
        [sys.executable, "-m", "flambeau.cli", "serve", str(tmp_path / "wrong.py"), "--port", "0"], capture_output=True,
        text=True, cwd=Path(__file__).parents[2], env={**os.environ, "LOG_LOCATION": str(tmp_path / "logs")}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.endswith("Failed to start workers for model wrong version: 1.0: ValueError: not like this\n")


def test_the_load_generator(client: Client, tmp_path: Path, capsys: pytest.CaptureFixture):
    address = f"{client.server.addresses['inference']}/predictions/echo"
    assert (
        main(["bench-serve", address, "-d", "[1]", "-c", "2", "-s", "0.5", "-o", str(tmp_path / "l.svg"), "--json"])
        == 0
    )
    summary = json.loads(capsys.readouterr().out)
    assert summary["requests"] > 0
    assert summary["statuses"] == {"200": summary["requests"]}
    assert summary["p50_ms"] <= summary["p99_ms"]
    xml.etree.ElementTree.parse(tmp_path / "l.svg")
    assert main(["bench-serve", address, "-d", "[1]", "-c", "2", "-s", "0.5", "-r", "20"]) == 0
    assert "per_second" in capsys.readouterr().out
    assert main(["bench-serve", "ftp://x/"]) == 2
    assert main(["bench-serve", "http://127.0.0.1:1/", "-s", "0.1"]) == 1


def test_histograms_count_everything():
    results = Results([1.0, 2.0, 2.0, 9.0], seconds=2.0)
    assert sum(count for _, _, count in results.histogram()) == 4
    assert results.summary()["per_second"] == 2.0
    assert "#" in text(results)
    assert "a &lt; b" in picture(results, "a < b")
