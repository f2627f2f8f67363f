"""Files of exported programs (.pt2), as PyTorch writes and reads them.

A zip: `models/model.json` is the program, `data/weights` and `data/constants` are its tensors' bytes. Nothing of a file is run: nodes name
operators, which are looked up."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from ..nn import Parameter
from ..serialization import load as load_pickle
from ..serialization import save as save_pickle
from .exported_program import ExportedProgram
from .reader import Reader
from .tensors import tensor_bytes, tensor_from_bytes, tensor_meta
from .writer import Writer

_ARCHIVE_VERSION = "0"
_MODEL = "model"


def _root(name: str) -> str:
    stem = os.path.basename(name)
    return stem[: -len(".pt2")] if stem.endswith(".pt2") else os.path.splitext(stem)[0] or "archive"


def save(
    ep: ExportedProgram,
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    opset_version: dict[str, int] | None = None,
    pickle_protocol: int = 2,
) -> None:
    """Write a program to a file or file-like object. `extra_files` are stored in it, by name."""
    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' instead."
        )
    named = isinstance(f, (str, os.PathLike))
    root = _root(os.fspath(f)) if named else "archive"
    entries = _entries(ep, opset_version, pickle_protocol)
    entries.update({f"extra/{name}": _as_bytes(value) for name, value in (extra_files or {}).items()})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries.items():
            archive.writestr(f"{root}/{name}", data)
    if named:
        with open(f, "wb") as file:
            file.write(buffer.getvalue())
    else:
        f.write(buffer.getvalue())


def _as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _entries(ep: ExportedProgram, opset_version: dict[str, int] | None, protocol: int) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    found.update(_tensors("data/weights", "weight", "weights", ep.state_dict))
    found.update(_tensors("data/constants", "tensor", "constants", ep.constants))
    found[f"models/{_MODEL}.json"] = json.dumps(Writer(ep, opset_version).program()).encode()
    if ep.example_inputs is not None:
        buffer = io.BytesIO()
        save_pickle(ep.example_inputs, buffer, pickle_protocol=protocol)
        found[f"data/sample_inputs/{_MODEL}.pt"] = buffer.getvalue()
    found["archive_format"] = b"pt2"
    found["archive_version"] = _ARCHIVE_VERSION.encode()
    found[".data/version"] = b"6\n"
    found["byteorder"] = b"little"
    return found


def _tensors(folder: str, prefix: str, what: str, tensors: dict[str, Any]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    config = {}
    for number, (name, tensor) in enumerate(tensors.items()):
        plain = tensor.detach().contiguous()
        found[f"{folder}/{prefix}_{number}"] = tensor_bytes(plain)
        meta = {**tensor_meta(plain), "requires_grad": tensor.requires_grad}
        is_param = type(tensor).__name__ == "Parameter"
        config[name] = {
            "path_name": f"{prefix}_{number}",
            "is_param": is_param,
            "use_pickle": False,
            "tensor_meta": meta,
        }
    found[f"{folder}/{_MODEL}_{what}_config.json"] = json.dumps({"config": config}).encode()
    return found


# -- reading --------------------------------------------------------------------------------------------------------------


class _Archive:
    """The members of a file, without the common folder."""

    def __init__(self, f: Any) -> None:
        try:
            self.zip = zipfile.ZipFile(f)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as problem:
            if isinstance(problem, FileNotFoundError):
                raise
            raise RuntimeError(f"the file is no archive of an exported program: {problem}") from None
        names = self.zip.namelist()
        self.root = names[0].split("/")[0] + "/" if names and "/" in names[0] else ""

    def names(self) -> list[str]:
        return [n[len(self.root) :] for n in self.zip.namelist() if n.startswith(self.root)]

    def read(self, name: str) -> bytes:
        try:
            return self.zip.read(self.root + name)
        except KeyError:
            raise RuntimeError(f"the archive has no {name}: it is no exported program, or damaged") from None
        except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, ValueError) as problem:
            raise RuntimeError(f"{name} cannot be read from the archive: {problem}") from None

    def json(self, name: str) -> Any:
        try:
            return json.loads(self.read(name))
        except (ValueError, RecursionError) as problem:
            raise RuntimeError(f"{name} of the archive is damaged: {problem}") from None


def _read_tensors(archive: _Archive, folder: str, what: str) -> dict[str, Any]:
    config = archive.json(f"{folder}/{_MODEL}_{what}_config.json")["config"]
    found: dict[str, Any] = {}
    for name, entry in config.items():
        data = archive.read(f"{folder}/{entry['path_name']}")
        if entry["use_pickle"]:
            value: Any = load_pickle(io.BytesIO(data), weights_only=True)
        else:
            value = tensor_from_bytes(data, entry["tensor_meta"])
        if entry["is_param"] and isinstance(value, Tensor):
            value = Parameter(value, requires_grad=bool(entry["tensor_meta"]["requires_grad"]))
        found[name] = value
    return found


def load(
    f: Any, *, extra_files: dict[str, Any] | None = None, expected_opset_version: dict[str, int] | None = None
) -> ExportedProgram:
    """Read a program from a file written by `save`, here or in PyTorch. `extra_files` is filled with what was saved under its keys."""
    archive = _Archive(f)
    _check_format(archive)
    program = _uniform_errors(lambda: _program(archive))
    for name in list(extra_files or ()):
        assert extra_files is not None
        if f"extra/{name}" in archive.names():
            extra_files[name] = archive.read(f"extra/{name}").decode("utf-8", "replace")
    return program


def _check_format(archive: _Archive) -> None:
    if archive.read("archive_format").strip() != b"pt2":
        raise RuntimeError("the archive is no exported program: its format is not pt2")
    if "byteorder" in archive.names() and archive.read("byteorder").strip() != b"little":
        raise RuntimeError("the archive was written in another byte order")


_DAMAGE = (
    KeyError, TypeError, ValueError, IndexError, AttributeError, AssertionError, RecursionError, OverflowError, EOFError,
    MemoryError, pickle.PickleError, zipfile.BadZipFile,
)  # fmt: skip


def _uniform_errors(make: Callable[[], ExportedProgram]) -> ExportedProgram:
    """Context manager: raise one kind of error for every damage of a file."""
    try:
        return make()
    except _DAMAGE as problem:
        raise RuntimeError(
            f"the exported program is damaged or of a kind not known: {type(problem).__name__}: {problem}"
        ) from problem


def _program(archive: _Archive) -> ExportedProgram:
    data = archive.json(f"models/{_MODEL}.json")
    weights = _read_tensors(archive, "data/weights", "weights")
    constants = _read_tensors(archive, "data/constants", "constants")
    example = None
    if f"data/sample_inputs/{_MODEL}.pt" in archive.names():
        example = load_pickle(io.BytesIO(archive.read(f"data/sample_inputs/{_MODEL}.pt")), weights_only=True)
    return Reader(data).program(weights, constants, example)
