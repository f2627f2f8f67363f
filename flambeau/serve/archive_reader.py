"""Model and workflow archives as a server reads them: fetch, unpack safely, read the manifest.

Archives are untrusted. No entry may leave the folder it is unpacked to, links and devices are refused, and the unpacked contents are
bounded in size, in number of files and in their ratio to the archive's size.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import re
import shutil
import stat
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import uuid
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from . import bounded_json
from .errors import (
    DownloadArchiveException,
    InternalServerException,
    InvalidModelException,
    InvalidWorkflowException,
    ModelNotFoundException,
    WorkflowNotFoundException,
)

RUNTIMES = ("python", "python3", "LSP")
_PACKERS: dict[bytes, Any] = {b"\x1f\x8b": gzip, b"BZh": bz2, b"\xfd7zXZ": lzma}
_BLOCK = 1 << 20  # read at once
_DAMAGED = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, OverflowError, NotImplementedError,
    RuntimeError,
)  # fmt: skip
_URL = re.compile(r"file?://.*|http(s)?://.*", re.IGNORECASE)


@dataclass(frozen=True)
class Limits:
    """Limits on what an archive may unpack to."""

    total_bytes: int = 64 << 30
    files: int = 20_000
    ratio: int = 1_000  # of unpacked to packed bytes, looked at beyond `ratio_from`
    ratio_from: int = 256 << 20


class _Budget:
    """Counts the unpacked files and bytes, and raises if an archive exceeds its limits."""

    def __init__(self, limits: Limits, packed: int):
        self.limits, self.packed = limits, max(packed, 1)
        self.bytes = self.files = 0

    def file(self) -> None:
        self.files += 1
        if self.files > self.limits.files:
            raise InvalidModelException(f"The archive has more than {self.limits.files} files.")

    def add(self, count: int) -> None:
        self.bytes += count
        if self.bytes > self.limits.total_bytes:
            raise InvalidModelException(f"The archive unpacks to more than {self.limits.total_bytes} bytes.")
        if self.bytes > self.limits.ratio_from and self.bytes > self.limits.ratio * self.packed:
            raise InvalidModelException("The archive unpacks to far more than it holds: refused as a zip bomb.")


def _destination(folder: Path, name: str) -> Path:
    """Return the path that an archive's entry is extracted to; raises an error if that is outside of the folder."""
    if not name or "\\" in name or "\0" in name:
        raise InvalidModelException(f"Detected Zip Slip vulnerability: {name}")
    path = Path(os.path.normpath(folder / name))
    if os.path.isabs(name) or not path.is_relative_to(folder):
        raise InvalidModelException(f"Detected Zip Slip vulnerability: {name}")
    return path


def _write(source: IO[bytes], path: Path, budget: _Budget) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "xb") as out:  # twice the same name is an attack or a broken archive
        while block := source.read(_BLOCK):
            budget.add(len(block))
            out.write(block)


def _unpack_zip(file: Path, folder: Path, budget: _Budget) -> None:
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            budget.file()
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise InvalidModelException(f"The archive has a link or device: {entry.filename}")
            path = _destination(folder, entry.filename)
            if entry.is_dir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            with archive.open(entry) as source:
                _write(source, path, budget)


class _BoundedReads:
    """A file for `tarfile`, which reads long headers of entries as a whole: refuses to read more at once than their contents need."""

    def __init__(self, file: Any):
        self._read, self.seek, self.tell = file.read, file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _BLOCK:
            raise InvalidModelException("A header of the archive is too large.")
        return self._read(size)


def _unpack_tar(file: Path, folder: Path, budget: _Budget) -> None:
    with open(file, "rb") as packed:
        magic = packed.read(6)
    unpacked = next((module.open for start, module in _PACKERS.items() if magic.startswith(start)), open)
    with contextlib.ExitStack() as opened:
        source: Any = _BoundedReads(opened.enter_context(unpacked(file, "rb")))
        archive = opened.enter_context(tarfile.open(fileobj=source, mode="r:"))
        for entry in archive:
            budget.file()
            path = _destination(folder, entry.name)
            if entry.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif entry.isreg():
                source = archive.extractfile(entry)
                assert source is not None  # a regular file has contents
                with source:
                    _write(source, path, budget)
            else:
                raise InvalidModelException(f"The archive has a link or device: {entry.name}")


def unpack(file: Path, folder: Path, limits: Limits | None = None) -> None:
    """Unpack a .mar, .war or .tar.gz file to a folder, which must not exist; the folder is removed again on an error."""
    folder.mkdir(parents=True)
    folder = folder.resolve()
    budget = _Budget(limits or Limits(), file.stat().st_size)
    try:
        if zipfile.is_zipfile(file):
            _unpack_zip(file, folder, budget)
        else:
            _unpack_tar(file, folder, budget)
        _lift_single_folder(folder)
    except _DAMAGED as e:
        shutil.rmtree(folder, ignore_errors=True)
        raise InvalidModelException(f"The archive cannot be unpacked: {e}") from e
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _lift_single_folder(folder: Path) -> None:
    """Move the contents of the single top-level folder of a tgz archive up into the model's folder."""
    inside = list(folder.iterdir())
    if len(inside) != 1 or not inside[0].is_dir() or inside[0].name in ("MAR-INF", "WAR-INF"):
        return
    lifted = folder.with_name(folder.name + ".lift")
    inside[0].rename(lifted)
    folder.rmdir()
    lifted.rename(folder)


# -- where archives come from --------------------------------------------------------------------------------------------------


def is_url(url: str) -> bool:
    return _URL.match(url) is not None


def file_name_of(url: str) -> str:
    """Return the last part of a URL or path: the archive's name in the store."""
    path = urllib.parse.urlsplit(url).path if is_url(url) else url
    return os.path.basename(path)


def check_allowed(url: str, allowed: list[str], error: type[Exception] = ModelNotFoundException) -> bool:
    """Return whether a text is a URL that the server may fetch from; False if it is no URL, an error if it is not allowed."""
    if any(re.fullmatch(pattern, url, re.IGNORECASE) for pattern in allowed):
        return True
    if is_url(url):
        raise error(f"Given URL {url} does not match any allowed URL(s)")
    return False


def download(url: str, destination: Path, allowed: list[str], max_bytes: int, error: type[Exception]) -> None:
    """Copy an archive from an allowed URL into the store. A file of that name already there is an error."""
    if not check_allowed(url, allowed, error) or not is_url(url):
        return
    if destination.exists():
        raise InternalServerException(f"Model file already exists {destination.name}")
    partial = destination.with_name(f".{destination.name}.{uuid.uuid4().hex}")
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "flambeau"})
        opener = urllib.request.build_opener(_CheckedRedirects(allowed, error))
        with opener.open(request, timeout=60) as source, open(partial, "xb") as out:
            size = 0
            while block := source.read(1 << 20):
                size += len(block)
                if size > max_bytes:
                    raise DownloadArchiveException(f"The archive at {url} is larger than {max_bytes} bytes")
                out.write(block)
        partial.rename(destination)
    except (OSError, ValueError, urllib.error.URLError) as e:
        raise DownloadArchiveException(f"Failed to download archive from: {url}") from e
    finally:
        partial.unlink(missing_ok=True)


class _CheckedRedirects(urllib.request.HTTPRedirectHandler):
    """Redirect handler that requires the target to be an allowed URL, too."""

    def __init__(self, allowed: list[str], error: type[Exception]):
        self.allowed, self.error = allowed, error

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        check_allowed(newurl, self.allowed, self.error)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


# -- what is in them -----------------------------------------------------------------------------------------------------------


@dataclass
class ModelArchive:
    """An unpacked model: its folder, its manifest and where it came from."""

    url: str | None
    folder: Path
    manifest: dict[str, Any]
    temporary: Path | None = None  # what `clean` removes

    @property
    def model(self) -> dict[str, Any]:
        return self.manifest["model"]

    @property
    def name(self) -> str:
        return self.model["modelName"]

    @property
    def version(self) -> str:
        return self.model["modelVersion"]

    @property
    def handler(self) -> str | None:
        return self.model.get("handler")

    @property
    def runtime(self) -> str:
        return self.manifest.get("runtime") or "python"

    def inside(self, name: str) -> Path:
        """Return the path of a file of the model, which must be in its folder."""
        path = (self.folder / name).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise InvalidModelException(f"The manifest names a file outside of the archive: {name}")
        return path

    def config(self) -> dict[str, Any]:
        """Return the model's own settings (model-config.yaml), empty if it has none."""
        name = self.model.get("configFile")
        return read_yaml(self.inside(name), InvalidModelException) if name else {}

    def clean(self) -> None:
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)


def read_yaml(path: Path, error: type[Exception]) -> dict[str, Any]:
    """Return the mapping in a YAML file."""
    try:
        import yaml  # noqa: PLC0415  an optional package, needed by models with settings of their own
    except ImportError as e:
        raise error(f"{path.name} needs the package pyyaml: pip install flambeau[serve]") from e
    try:
        if path.stat().st_size > _LARGEST_MANIFEST:
            raise error(f"{path.name} is larger than {_LARGEST_MANIFEST} bytes.")
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, AttributeError, LookupError, yaml.YAMLError, RecursionError) as e:
        raise error("Failed to parse model config yaml file.") from e
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise error("Failed to parse model config yaml file.")
    return content


_TEXTS = (
    "runtime", "modelName", "handler", "serializedFile", "modelFile", "configFile", "requirementsFile", "envelope", "workflowName",
    "specFile",
)  # fmt: skip


_LARGEST_MANIFEST = 1 << 20
_NAME = re.compile(r"\w[\w.:@+ -]{0,254}")


def check_name(name: str, error: type[Exception], what: str = "model name") -> None:
    """Raise unless a name is safe in a path, a log and a list of metrics."""
    if not _NAME.fullmatch(name) or name.endswith(" "):
        raise error(
            f"Invalid {what} {name[:80]!r}: letters, digits and _ . : @ + - are allowed, and at most 255 of them."
        )


def _read_manifest(path: Path, error: type[Exception]) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        if path.stat().st_size > _LARGEST_MANIFEST:
            raise error("The manifest is too large.")
        manifest = bounded_json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise error(f"Failed to parse signature.json. {e}") from e
    if not isinstance(manifest, dict):
        raise error("Failed to parse signature.json.")
    for entry in (manifest, manifest.get("model"), manifest.get("workflow")):
        for key, value in entry.items() if isinstance(entry, dict) else ():
            if key in _TEXTS and value is not None and (not isinstance(value, str) or "\0" in value):
                raise error(f"{key} in the manifest is not a text.")
    return manifest


@contextlib.contextmanager
def _unpack_source(
    url: str | None, store: str | None, allowed: list[str], kind: str, error: type[Exception], limits: Limits,
    work: Path | None,
) -> Iterator[tuple[Path, Path]]:  # fmt: skip
    """Context manager: yield the folder with the contents that a URL, a file of the store or a folder names, and the temporary folder,
    which is removed on an error. It is made in `work`, or among the system's temporary files."""
    if store is None:
        raise error(f"{kind.capitalize()} store has not been configured.")
    if not url:
        raise error("empty url")
    if ".." in url or "\0" in url:
        raise error(f"Relative path is not allowed in url: {url}")
    location = Path(store) / file_name_of(url)
    download(url, location, allowed, limits.total_bytes, error)
    if not location.is_file() and not location.is_dir() and not Path(url).is_dir():
        raise error(f"{kind.capitalize()} not found at: {url}")
    temporary = Path(tempfile.mkdtemp(prefix=f"flambeau-{kind}s-", dir=work))
    try:
        if location.is_file():
            folder = temporary / "content"
            unpack(location, folder, limits)
        else:
            folder = Path(url).resolve() if Path(url).is_dir() else location.resolve()
            inside = [p for p in folder.iterdir() if not p.name.startswith(".")]
            if len(inside) == 1 and inside[0].is_dir():
                folder = inside[0]
        yield folder, temporary
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def open_model(
    url: str | None, store: str | None, allowed: list[str], *, name: str | None = None,
    default_name: str | None = None, handler: str | None = None, default_handler: str | None = None,
    runtime: str | None = None, envelope: str | None = None, limits: Limits | None = None, work: Path | None = None,
) -> ModelArchive:  # fmt: skip
    """Fetch and unpack a model archive, and complete its manifest by the settings of the request and the server."""
    with _unpack_source(url, store, allowed, "model", ModelNotFoundException, limits or Limits(), work) as (
        folder,
        temporary,
    ):
        manifest = _read_manifest(folder / "MAR-INF" / "MANIFEST.json", InvalidModelException)
        model = manifest.setdefault("model", {})
        if not isinstance(model, dict):
            raise InvalidModelException("Missing Model entry in manifest file.")
        manifest["runtime"] = runtime or manifest.get("runtime") or "python"
        if manifest["runtime"] not in RUNTIMES:
            raise InvalidModelException("Runtime is not defined or invalid.")
        model["modelName"] = name or model.get("modelName") or default_name
        model["modelVersion"] = str(model.get("modelVersion") or "1.0")
        model["handler"] = handler or model.get("handler") or default_handler
        if envelope:
            model["envelope"] = envelope
        if not model["modelName"]:
            raise InvalidModelException("Model name is not defined.")
        check_name(model["modelName"], InvalidModelException)
        check_name(model["modelVersion"], InvalidModelException, "model version")
        archive = ModelArchive(url, folder, manifest, temporary)
        for key in ("serializedFile", "modelFile", "configFile", "requirementsFile"):
            if model.get(key):
                archive.inside(model[key])
        return archive


@dataclass
class WorkflowArchive:
    """An unpacked workflow: its specification, its handler and their folder."""

    url: str
    folder: Path
    name: str
    specification: dict[str, Any]
    handler: Path | None
    temporary: Path = field(repr=False)

    def clean(self) -> None:
        shutil.rmtree(self.temporary, ignore_errors=True)


def open_workflow(
    url: str | None,
    store: str | None,
    allowed: list[str],
    name: str | None = None,
    limits: Limits | None = None,
    work: Path | None = None,
) -> WorkflowArchive:
    """Fetch and unpack a workflow archive (.war)."""
    with _unpack_source(url, store, allowed, "workflow", WorkflowNotFoundException, limits or Limits(), work) as (
        folder,
        temporary,
    ):
        manifest = _read_manifest(folder / "WAR-INF" / "MANIFEST.json", InvalidWorkflowException)
        entry = manifest.get("workflow")
        if not isinstance(entry, dict):
            raise InvalidWorkflowException("Missing Workflow entry in manifest file.")
        name = name or entry.get("workflowName")
        if not name:
            raise InvalidWorkflowException("Workflow name is not defined.")
        check_name(name, InvalidWorkflowException, "workflow name")
        if not entry.get("specFile"):
            raise InvalidWorkflowException("Workflow specification is not defined.")
        files = ModelArchive(url, folder, {"model": {}})
        handler = files.inside(entry["handler"]) if entry.get("handler") else None
        specification = read_yaml(files.inside(entry["specFile"]), InvalidWorkflowException)
        assert url is not None  # checked by _unpack_source
        return WorkflowArchive(url, folder, name, specification, handler, temporary)
