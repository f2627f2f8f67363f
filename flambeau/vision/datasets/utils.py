"""Files of data sets: downloads verified by checksum, and archives extracted without writing outside their folder."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import importlib
import lzma
import os
import pathlib
import re
import shutil
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any
from urllib.parse import urlparse

from ...utils.progress import Progress

USER_AGENT = "flambeau/vision"
_CHUNK = 1 << 20

# What data sets say that find no files.
MISSING = "Dataset not found. You can use download=True to download it"
MISSING_OR_CORRUPTED = "Dataset not found or corrupted. You can use download=True to download it"


def optional_module(name: str, purpose: str) -> Any:
    """Import a module that only some data sets need; raises RuntimeError with the install command if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise RuntimeError(f"{purpose} needs {name}: pip install {name.split('.')[0]}") from problem


# -- checksums ------------------------------------------------------------------------------------------------------------


def calculate_md5(fpath: Any, chunk_size: int = _CHUNK) -> str:
    found = hashlib.md5(usedforsecurity=False)
    with open(fpath, "rb") as file:
        while chunk := file.read(chunk_size):
            found.update(chunk)
    return found.hexdigest()


def check_md5(fpath: Any, md5: str, **options: Any) -> bool:
    return md5 == calculate_md5(fpath, **options)


def check_integrity(fpath: Any, md5: str | None = None) -> bool:
    """Return whether the file exists and has this checksum."""
    return os.path.isfile(fpath) and (md5 is None or check_md5(fpath, md5))


# -- downloads ------------------------------------------------------------------------------------------------------------


def _google_drive_id(url: str) -> str | None:
    parts = urlparse(url)
    match = re.match(r"/file/d/([^/]*)", parts.path)
    return match[1] if match and re.match(r"(drive|docs)[.]google[.]com", parts.netloc) else None


@contextlib.contextmanager
def _download_to(path: str, md5: str | None) -> Iterator[str]:
    """Context manager: yield a temporary path that is renamed to `path` when the file is complete and its checksum correct."""
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=os.path.dirname(path))
    os.close(handle)
    try:
        yield temporary
        if md5 is not None and not check_md5(temporary, md5):
            raise RuntimeError(
                f"File not found or corrupted. {os.path.basename(path)} has the MD5 sum {calculate_md5(temporary)}, not {md5}."
            )
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _fetch(url: str, path: str, hops: int) -> None:
    redirects = type("Redirects", (urllib.request.HTTPRedirectHandler,), {"max_redirections": hops})
    opener = urllib.request.build_opener(redirects)
    request = urllib.request.Request(url, headers={"User-Agent": USER_AGENT})
    with opener.open(request) as response, open(path, "wb") as file:
        length = response.headers.get("Content-Length")
        total = -(-int(length) // _CHUNK) if length and length.isdigit() else None
        for chunk in Progress(iter(lambda: response.read(_CHUNK), b""), os.path.basename(url), total):
            file.write(chunk)


def download_url(url: str, root: Any, filename: Any = None, md5: str | None = None, max_redirect_hops: int = 3) -> None:
    """Download a file into the folder `root`, unless it exists. It appears only when it is complete and its checksum is correct."""
    root = os.path.expanduser(root)
    path = os.path.join(root, os.fspath(filename or os.path.basename(url)))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if check_integrity(path, md5):
        return
    drive = _google_drive_id(url)
    if drive is not None:
        download_file_from_google_drive(drive, root, filename, md5)
        return
    with _download_to(path, md5) as temporary:
        _fetch(url, temporary, max_redirect_hops)


def download_file_from_google_drive(file_id: str, root: Any, filename: Any = None, md5: str | None = None) -> None:
    root = os.path.expanduser(root)
    path = os.path.join(root, os.fspath(filename or file_id))
    os.makedirs(root, exist_ok=True)
    if check_integrity(path, md5):
        return
    gdown = optional_module("gdown", "To download files from GDrive, this")
    with _download_to(path, md5) as temporary:
        gdown.download(id=file_id, output=temporary, quiet=False, user_agent=USER_AGENT)


# -- archives -------------------------------------------------------------------------------------------------------------


def _is_inside(folder: str, name: str) -> bool:
    base = os.path.realpath(folder)
    target = os.path.realpath(os.path.join(base, name))
    return target == base or target.startswith(base + os.sep)


def _refuse_member(archive: Any, member: str) -> None:
    raise RuntimeError(
        f"{archive} would write outside the folder it is unpacked in, or make a special file: {member!r}"
    )


def _extract_tar(archive: Any, folder: str) -> None:
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            link = member.linkname if member.islnk() else os.path.join(os.path.dirname(member.name), member.linkname)
            linked = (member.islnk() or member.issym()) and (
                os.path.isabs(member.linkname) or not _is_inside(folder, link)
            )
            plain = member.isreg() or member.isdir() or member.islnk() or member.issym()
            if not plain or linked or os.path.isabs(member.name) or not _is_inside(folder, member.name):
                _refuse_member(archive, member.name)
            if hasattr(tarfile, "data_filter"):
                tar.extract(member, folder, filter="data")
            else:
                tar.extract(member, folder)


def _extract_zip(archive: Any, folder: str) -> None:
    with zipfile.ZipFile(archive) as file:
        for name in file.namelist():
            if os.path.isabs(name) or not _is_inside(folder, name.replace("\\", "/")):
                _refuse_member(archive, name)
        file.extractall(folder)


_ARCHIVES: dict[str, Callable[[Any, str], None]] = {".tar": _extract_tar, ".zip": _extract_zip}
_OPENERS: dict[str, Callable[..., IO]] = {".bz2": bz2.open, ".gz": gzip.open, ".xz": lzma.open}
_ALIASES = {".tbz": (".tar", ".bz2"), ".tbz2": (".tar", ".bz2"), ".tgz": (".tar", ".gz")}


def _file_type(file: Any) -> tuple[str, str, str]:
    """Split a file name into (full suffix, archive kind or "", compression or "")."""
    endings = pathlib.Path(file).suffixes
    if not endings:
        raise RuntimeError(
            f"File '{file}' has no suffixes that could be used to detect the archive type and compression."
        )
    last = endings[-1]
    if last in _ALIASES:
        return (last, *_ALIASES[last])
    if last in _ARCHIVES:
        return last, last, ""
    if last in _OPENERS:
        before = endings[-2] if len(endings) > 1 else ""
        return (before + last, before, last) if before in _ARCHIVES else (last, "", last)
    known = sorted({*_ALIASES, *_ARCHIVES, *_OPENERS})
    raise RuntimeError(f"Unknown compression or archive type: '{last}'.\nKnown suffixes are: '{known}'.")


def extract_archive(from_path: Any, to_path: Any = None, remove_finished: bool = False) -> Any:
    """Extract an archive or a compressed file next to itself or into `to_path`; its type follows from its suffix.

    An archive with members outside that folder is refused."""
    folder = os.path.dirname(os.fspath(from_path)) if to_path is None else os.fspath(to_path)
    ending, kind, compression = _file_type(from_path)
    if kind:
        os.makedirs(folder or ".", exist_ok=True)
        _ARCHIVES[kind](from_path, folder or ".")
        result = folder
    else:
        result = os.path.join(folder, os.path.basename(os.fspath(from_path))[: -len(ending)])
        with _OPENERS[compression](from_path, "rb") as source, _temporary_name(result) as target:
            shutil.copyfileobj(source, target, _CHUNK)
    if remove_finished:
        os.remove(from_path)
    return result if isinstance(from_path, str) else pathlib.Path(result)


@contextlib.contextmanager
def _temporary_name(path: str) -> Iterator[IO]:
    with _download_to(os.path.abspath(path), None) as temporary, open(temporary, "wb") as file:
        yield file


def download_and_extract_archive(
    url: str,
    download_root: Any,
    extract_root: Any = None,
    filename: Any = None,
    md5: str | None = None,
    remove_finished: bool = False,
) -> None:
    """Download an archive and unpack it."""
    root = os.path.expanduser(download_root)
    name = filename or os.path.basename(url)
    download_url(url, root, name, md5)
    extract_archive(os.path.join(root, name), root if extract_root is None else extract_root, remove_finished)


# -- folders and arguments ------------------------------------------------------------------------------------------------


def list_dir(root: Any, prefix: bool = False) -> list[str]:
    """Return the folders in a folder."""
    root = os.path.expanduser(root)
    names = [name for name in os.listdir(root) if os.path.isdir(os.path.join(root, name))]
    return [os.path.join(root, name) for name in names] if prefix else names


def list_files(root: Any, suffix: Any, prefix: bool = False) -> list[str]:
    """Return the files in a folder whose names end in `suffix` (or one of several)."""
    root = os.path.expanduser(root)
    names = [name for name in os.listdir(root) if name.endswith(suffix) and os.path.isfile(os.path.join(root, name))]
    return [os.path.join(root, name) for name in names] if prefix else names


def iterable_to_str(iterable: Iterable) -> str:
    return "'" + "', '".join(str(item) for item in iterable) + "'"


def verify_str_arg(
    value: Any, arg: str | None = None, valid_values: Iterable[str] | None = None, custom_msg: str | None = None
) -> str:
    """Return `value` if it is a string and among `valid_values`; raises ValueError otherwise."""
    if not isinstance(value, str):
        raise ValueError(f"Expected type str{f' for argument {arg}' if arg else ''}, but got type {type(value)}.")
    if valid_values is not None:
        valid = list(valid_values)
        if value not in valid:
            message = f"Unknown value '{value}' for argument {arg}. Valid values are {{{iterable_to_str(valid)}}}."
            raise ValueError(custom_msg or message)
    return value
