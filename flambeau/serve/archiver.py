"""Making model archives (.mar) and workflow archives (.war): `flambeau torch-model-archiver` and
`flambeau torch-workflow-archiver`.

>>> from flambeau.serve import archiver
>>> archiver.package_model("digits", version="1.0", handler="image_classifier", model_file="net.py",
...                        serialized_file="net.pt", export_path="store")          # doctest: +SKIP
PosixPath('store/digits.mar')
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..torch_version import TORCH_VERSION
from .archive_reader import RUNTIMES

ARCHIVER_VERSION = "0.12.0"  # the version of TorchServe's archiver whose files these are
BUILT_IN_HANDLERS = (
    "image_classifier", "image_segmenter", "object_detector", "text_classifier", "text_generator", "base_handler",
)  # fmt: skip
_FORMATS = {"default": ".mar", "tgz": ".tar.gz", "no-archive": "", "zip-store": ".mar"}
_NAME = re.compile(r"[\w.-]+\Z")


class ArchiverError(Exception):
    """Raised when an archive cannot be made."""


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise ArchiverError(
            f"Model name {name!r} has characters other than letters, digits, underscore, point and hyphen."
        )


def _archive_path(name: str, ending: str, export_path: str | None, force: bool) -> Path:
    """Return the path of a new archive, in an existing folder."""
    _check_name(name)
    folder = Path(export_path or os.getcwd())
    if not folder.is_dir():
        raise ArchiverError(f"Given export-path {folder} is not a directory. Point to a valid export-path directory.")
    target = folder / (name + ending)
    if target.exists() and not force:
        raise ArchiverError(
            f"{target} already exists. Please specify --force/-f option to overwrite the model archive."
        )
    return target


def _require_file(path: str) -> Path:
    found = Path(path)
    if not found.exists():
        raise ArchiverError(f"{path} does not exist")
    return found


def _copy_file(source: Path, folder: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, folder / source.name, dirs_exist_ok=True)
    else:
        shutil.copy(source, folder / source.name)


def _add_extra_files(paths: str | None, folder: Path) -> None:
    """Add extra files, given as names separated by commas; the contents of a named folder go to the top, as in TorchServe."""
    for name in (paths or "").split(","):
        if not name.strip():
            continue
        source = _require_file(name.strip())
        if source.is_dir():
            for inside in source.iterdir():
                _copy_file(inside, folder)
        else:
            _copy_file(source, folder)


# In an ONNX file, an entry `location` of the field external_data (13) of a tensor: the name of the file that its numbers are in.
_EXTERNAL = re.compile(rb"\x6a[\x80-\xff]*[\x00-\x7f]\x0a\x08location\x12([\x80-\xff]*[\x00-\x7f])", re.DOTALL)


def _external_files(path: Path) -> list[str]:
    """Return the files next to an ONNX file that hold its large tensors."""
    if not path.stat().st_size:
        return []
    names: dict[str, None] = {}
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for match in _EXTERNAL.finditer(content):
            size = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(match[1]))
            names[content[match.end() : match.end() + min(size, 4096)].decode("utf-8", "replace")] = None
    return list(names)


def _copy_external_files(path: Path, folder: Path) -> None:
    for name in _external_files(path):
        source = path.parent / name
        if not source.resolve().is_relative_to(path.parent.resolve()):
            raise ArchiverError(f"{path} keeps tensors outside of its folder, in {name}: export it again beside them")
        if not source.is_file():
            raise ArchiverError(f"{path} keeps its tensors in {source}, which is missing: copy both files")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / name)


def _archive(folder: Path, target: Path, form: str, top: str) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    if form == "no-archive":
        if target.exists():
            shutil.rmtree(target)
        shutil.copytree(folder, target)
        return target
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if form == "tgz":
            with tarfile.open(partial, "w:gz") as tar:
                tar.add(folder, arcname=top)
        else:
            method = zipfile.ZIP_STORED if form == "zip-store" else zipfile.ZIP_DEFLATED
            with zipfile.ZipFile(partial, "w", method) as archive:
                for path in sorted(p for p in folder.rglob("*") if p.is_file()):
                    archive.write(path, path.relative_to(folder).as_posix())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _write_manifest(folder: Path, kind: str, **entries: Any) -> None:
    """Write the manifest of an archive of this kind (MAR or WAR)."""
    manifest = {"createdOn": time.strftime("%d/%m/%Y %H:%M:%S"), **entries, "archiverVersion": ARCHIVER_VERSION}
    (folder / f"{kind}-INF").mkdir()
    (folder / f"{kind}-INF" / "MANIFEST.json").write_text(json.dumps(manifest, indent=2))


def _handler_file(handler: str, folder: Path) -> str:
    """Copy a custom handler into the archive, and return its name for the manifest; built-in handlers have no file."""
    if handler in BUILT_IN_HANDLERS and not Path(handler).exists():
        return handler
    path, colon, function = handler.partition(":")
    if path.endswith(".py"):
        shutil.copy(_require_file(path), folder / Path(path).name)
        return Path(path).name + colon + function
    if "/" not in path:  # the name of a handler the server is expected to have
        return handler
    raise ArchiverError(f"{handler} is neither a built-in handler nor a Python file")


def package_model(
    model_name: str, *, version: str, handler: str | None = None, serialized_file: str | None = None,
    model_file: str | None = None, extra_files: str | None = None, requirements_file: str | None = None,
    config_file: str | None = None, runtime: str = "python", export_path: str | None = None,
    archive_format: str = "default", force: bool = False,
) -> Path:  # fmt: skip
    """Make a model archive and return its path; the command `torch-model-archiver` has the same options.

    `model_name` and `version` identify the model in the server. `handler` is a built-in one or a Python file; `serialized_file` holds
    weights or a TorchScript program, `model_file` the class for weights. `extra_files` and `requirements_file` are added to the archive,
    `config_file` is its model-config.yaml, `runtime` the program that runs the handler. The archive is written to `export_path` in
    `archive_format` ("default", "tgz", "no-archive", "zip-store"); `force` replaces an existing one.

    >>> flambeau.jit.script(flambeau.nn.Linear(2, 2)).save("net.pt")
    >>> package_model("net", version="1.0", handler="base_handler", serialized_file="net.pt")  # doctest: +ELLIPSIS
    PosixPath('...net.mar')
    """
    if runtime not in RUNTIMES:
        raise ArchiverError(f"runtime is one of {', '.join(RUNTIMES)}, not {runtime!r}")
    if archive_format not in _FORMATS:
        raise ArchiverError(f"archive format is one of {', '.join(_FORMATS)}, not {archive_format!r}")
    if not handler and not serialized_file:
        raise ArchiverError("a model needs a handler or a serialized file")
    target = _archive_path(model_name, _FORMATS[archive_format], export_path, force)
    model: dict[str, Any] = {"modelName": model_name}
    with tempfile.TemporaryDirectory(prefix="flambeau-archiver-") as work:
        folder = Path(work)
        for key, path in (
            ("serializedFile", serialized_file),
            ("modelFile", model_file),
            ("requirementsFile", requirements_file),
            ("configFile", config_file),
        ):
            if path:
                model[key] = _require_file(path).name
                _copy_file(Path(path), folder)
        if serialized_file and serialized_file.endswith(".onnx"):
            _copy_external_files(Path(serialized_file), folder)
        if handler:
            model["handler"] = _handler_file(handler, folder)
        _add_extra_files(extra_files, folder)
        model["modelVersion"] = str(version)
        _write_manifest(folder, "MAR", runtime=runtime, model=model)
        return _archive(folder, target, archive_format, model_name)


def package_workflow(
    workflow_name: str, *, spec_file: str, handler: str | None = None, extra_files: str | None = None,
    export_path: str | None = None, force: bool = False,
) -> Path:  # fmt: skip
    """Make a workflow archive called `workflow_name` of the YAML file `spec_file` and return its path; the command
    `torch-workflow-archiver` has the same options. `handler` is the file with the workflow's functions; `extra_files` are added,
    `export_path` is the folder to write to, `force` replaces an existing archive.

    >>> _ = open("flow.yaml", "w").write("models: {net: {url: net.mar}}")
    >>> package_workflow("flow", spec_file="flow.yaml")  # doctest: +ELLIPSIS
    PosixPath('...flow.war')
    """
    target = _archive_path(workflow_name, ".war", export_path, force)
    with tempfile.TemporaryDirectory(prefix="flambeau-archiver-") as work:
        folder = Path(work)
        workflow = {"workflowName": workflow_name, "specFile": _require_file(spec_file).name}
        _copy_file(Path(spec_file), folder)
        if handler:
            workflow["handler"] = _require_file(handler).name
            _copy_file(Path(handler), folder)
        _add_extra_files(extra_files, folder)
        _write_manifest(folder, "WAR", workflow=workflow)
        return _archive(folder, target, "default", workflow_name)


def _add_common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--handler", help="a built-in handler's name, or a Python file (file.py:function)")
    parser.add_argument("--extra-files", help="more files, separated by commas")
    parser.add_argument("--export-path", help="where to write the archive (the current folder)")
    parser.add_argument("-f", "--force", action="store_true", help="replace an existing archive")


def _model_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torch-model-archiver", description="Makes a model archive (.mar).")
    parser.add_argument("--model-name", required=True, help="the archive's name, and the model's in the server")
    parser.add_argument("--serialized-file", help="weights, or a serialized model: .pt, .pth, .pt2, .onnx, .so")
    parser.add_argument("--model-file", help="the Python file that defines the model's class")
    _add_common_options(parser)
    parser.add_argument("--runtime", default="python", choices=list(RUNTIMES))
    parser.add_argument("--archive-format", default="default", choices=list(_FORMATS))
    parser.add_argument("-v", "--version", required=True, help="the model's version")
    parser.add_argument("-r", "--requirements-file", help="packages to install for this model")
    parser.add_argument("-c", "--config-file", help="the model's settings (model-config.yaml)")
    return parser


def model_archiver(arguments: Sequence[str] | None = None) -> int:
    """Run the command `torch-model-archiver`; return its exit status."""
    return _run(_model_parser(), package_model, "model_name", arguments)


def workflow_archiver(arguments: Sequence[str] | None = None) -> int:
    """Run the command `torch-workflow-archiver`; return its exit status."""
    parser = argparse.ArgumentParser(prog="torch-workflow-archiver", description="Makes a workflow archive (.war).")
    parser.add_argument("--workflow-name", required=True)
    parser.add_argument("--spec-file", required=True, help="the YAML file with models and dag")
    _add_common_options(parser)
    return _run(parser, package_workflow, "workflow_name", arguments)


def _run(parser: argparse.ArgumentParser, make: Callable[..., Path], name: str, arguments: Sequence[str] | None) -> int:
    options = vars(parser.parse_args(arguments))
    try:
        path = make(options.pop(name), **options)
    except (ArchiverError, OSError) as e:
        print(f"{parser.prog}: {e}", file=sys.stderr)
        return 1
    print(f"wrote {path} (for PyTorch {TORCH_VERSION}'s interface)")
    return 0
