"""Functions that PyTorch does not have name all their arguments in their docstrings, and show a use that runs."""

from __future__ import annotations

import builtins
import doctest
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import flambeau
import flambeau.onnx
from flambeau import serialization
from flambeau.distributed.fsdp import load_shards
from flambeau.graph import checker, printer, recorder
from flambeau.serialization import safetensors
from flambeau.serve import archiver
from flambeau.utils import drawing, progress, recordio

OWN = [
    flambeau.ops.pointwise, flambeau.compiler.show, flambeau.onnx.load, flambeau.onnx.drawing, load_shards,
    recorder.record, printer.text, printer.line, checker.check, serialization.save_sharded, serialization.load_sharded,
    serialization.load_sharded_checkpoint, archiver.package_model, archiver.package_workflow, drawing.draw, progress.Progress,
    *(getattr(safetensors, name) for name in ("load", "save", "load_file", "save_file", "load_model", "save_model")),
    *(getattr(recordio, name) for name in recordio.__all__ if name not in ("IRHeader", "ImageRecordDataset")),
]  # fmt: skip


@pytest.mark.parametrize("own", OWN, ids=lambda own: own.__name__)
def test_arguments_are_named_and_the_example_runs(
    own: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if own.__module__.startswith("flambeau.onnx"):
        pytest.importorskip("onnx")
    text = inspect.getdoc(own) or ""
    unnamed = [name for name in inspect.signature(own).parameters if not re.search(rf"`{name}\b", text)]
    assert not unnamed
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(builtins, "_", None, raising=False)  # doctest leaves the value there that was shown last
    scope = {**vars(inspect.getmodule(own)), "flambeau": flambeau}
    (test,) = doctest.DocTestFinder(recurse=False).find(own, own.__name__, globs=scope, module=False)
    assert test.examples
    assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test).failed == 0, (
        capsys.readouterr().out
    )
