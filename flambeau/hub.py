"""Models from repositories with a `hubconf.py`, and weights from URLs; both are kept in a cache directory.

>>> model = flambeau.hub.load("/path/to/repository", "entry_point", source="local")
>>> weights = flambeau.hub.load_state_dict_from_url("https://example.org/weights-0123abcd.pth")

Repositories written for PyTorch import torch: load them in a program started with `python -m flambeau`, or after
`flambeau.install_as_torch()`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import URLError
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from .core.ownership import planted, refuse_planted
from .serialization import load as load_file
from .utils import progress as progress_bars

try:
    # Programs take it from here; not tqdm.auto, which starts iterating twice: loaders draw seeds then.
    from tqdm import tqdm
except ImportError:
    from .utils.progress import PlainBar as tqdm

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir", "tqdm"]

_CHUNK = 128 * 1024
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # the beginning of the SHA-256 in a file name; other packages read it here
_TRUSTED_OWNERS = ("facebookresearch", "facebookincubator", "pytorch", "fairinternal")
_chosen_dir: Any = []  # what set_dir was given, if anything


# -- the cache ----------------------------------------------------------------------------------------------------------


def _get_torch_home() -> str:
    """Return the folder of everything that is cached between runs."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """Return the folder of repositories and weights: PyTorch's own, so that both find what the other downloaded."""
    if _chosen_dir:
        return _chosen_dir[0]
    return os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Set the folder of repositories and weights."""
    _chosen_dir[:] = [os.path.expanduser(d)]


# -- downloading ----------------------------------------------------------------------------------------------------------


def _open_url(url: str) -> Any:
    try:
        return urlopen(Request(url, headers={"User-Agent": "flambeau.hub"}))
    except URLError as problem:
        if hasattr(problem, "code"):  # an HTTPError says it all
            raise
        raise URLError(f"{problem.reason} (while fetching {url})") from problem


def _chunks(response: Any) -> Iterator[bytes]:
    while chunk := response.read(_CHUNK):
        yield chunk


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Download `url` (http, https, file, ...) into the file `dst`, which appears only when it is complete.

    With `hash_prefix`, the SHA256 of the contents must begin with it."""
    target = Path(os.path.expanduser(dst))
    digest = hashlib.sha256()
    with _open_url(url) as response:
        size = response.headers.get("Content-Length")
        chunks: Any = _chunks(response)
        if progress:
            chunks = progress_bars.Progress(chunks, target.name, None if size is None else -(-int(size) // _CHUNK))
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f"{target.name}.", suffix=".partial")
        try:
            with os.fdopen(handle, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                    digest.update(chunk)
            found = digest.hexdigest()
            if hash_prefix and not found.startswith(hash_prefix):
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{found}")')
            os.replace(temporary, target)
        finally:
            Path(temporary).unlink(missing_ok=True)


def _unpacked(path: Path, model_dir: str) -> Path:
    """Return the file inside, if `path` is a zip archive around one file (and not a checkpoint, which is an archive itself)."""
    if not zipfile.is_zipfile(path):
        return path
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) != 1 or members[0].filename.endswith("data.pkl"):
            return path
        return Path(archive.extract(members[0], model_dir))


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> dict[str, Any]:
    """Load a state dict from the file at `url`, which is downloaded once and then kept in `model_dir`.

    With `check_hash`, names such as `resnet18-f37072fd.pth` promise the first digits of the file's SHA256."""
    model_dir = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(model_dir, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = Path(model_dir, name)
    if (
        found := planted(path)
    ) is not None and not weights_only:  # a cache that many share: pickles can run code, tensors cannot
        warnings.warn(f"{found}: only tensors are read from it", stacklevel=2)
        weights_only = True
    if not path.exists():
        sys.stdout.write(f'Downloading: "{url}" to {path}\n')
        promised = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, str(path), promised.group(1) if promised else None, progress)
    return load_file(_unpacked(path, model_dir), map_location=map_location, weights_only=weights_only)


# -- repositories -----------------------------------------------------------------------------------------------------------


def _parse(github: str) -> tuple[str, str, str | None]:
    """Return owner, name, and the branch or tag if one is given, of 'owner/name[:ref]'."""
    repository, _, ref = github.partition(":")
    owner, slash, name = repository.partition("/")
    if not (owner and slash and name) or "/" in name:
        raise ValueError(f"expected a repository as 'owner/name' or 'owner/name:branch', got {github!r}")
    return owner, name, ref or None


def _cached_repository(github: str, force_reload: bool, verbose: bool) -> str:
    owner, name, ref = _parse(github)
    refs = (ref,) if ref else ("main", "master")
    places = {r: os.path.join(get_dir(), f"{owner}_{name}_{r.replace('/', '_')}") for r in refs}
    if not force_reload:
        for place in places.values():
            if os.path.exists(place):
                refuse_planted(place, "a repository")  # its code is run
                if verbose:
                    sys.stderr.write(f"Using cache found in {place}\n")
                return place
    os.makedirs(get_dir(), exist_ok=True)
    problems = []
    for r, place in places.items():
        try:
            return _download_repository(f"https://github.com/{owner}/{name}/zipball/{r}", place)
        except URLError as problem:
            problems.append(str(problem))
    raise RuntimeError(
        f"the repository {github} is not in the cache {get_dir()} and could not be downloaded: {'; '.join(problems)}."
        ' A local copy can be used with source="local".'
    )


def _download_repository(url: str, place: str) -> str:
    sys.stdout.write(f'Downloading: "{url}" to {place}\n')
    with tempfile.TemporaryDirectory(dir=get_dir()) as work:
        archive = os.path.join(work, "repository.zip")
        download_url_to_file(url, archive, progress=False)
        with zipfile.ZipFile(archive) as packed:
            top = packed.namelist()[0].split("/")[0]
            packed.extractall(work)
        shutil.rmtree(place, ignore_errors=True)
        shutil.move(os.path.join(work, top), place)
    return place


def _check_trust(github: str, trust_repo: bool | str | None) -> None:
    """Ask the user, unless the repository or its owner is trusted, because loading a repository runs its code."""
    owner, name, _ = _parse(github)
    known = Path(get_dir(), "trusted_list")
    refuse_planted(known, "a list of trusted repositories")
    trusted = known.read_text().split() if known.exists() else []
    entry = f"{owner}_{name}"
    if trust_repo not in (True, False, "check", None):
        raise ValueError(f"trust_repo must be True, False, 'check' or None, got {trust_repo!r}")
    if entry in trusted or owner in _TRUSTED_OWNERS:
        return
    if trust_repo in (False, "check"):
        answer = input(
            f"The repository {owner}_{name} does not belong to the list of trusted repositories and as such cannot be downloaded or run"
            " without your consent. Do you trust this repository and wish to add it to the trusted list of repositories (y/N)?"
        )
        if answer.strip().lower() not in ("y", "yes"):
            raise RuntimeError(f"Untrusted repository: {github}")
    elif trust_repo is None:
        return
    os.makedirs(get_dir(), exist_ok=True)
    with known.open("a") as file:
        file.write(f"{entry}\n")


@contextlib.contextmanager
def _on_path(directory: str) -> Iterator[None]:
    sys.path.insert(0, directory)
    try:
        yield
    finally:
        sys.path.remove(directory)


@contextlib.contextmanager
def _hubconf(repository: str) -> Iterator[ModuleType]:
    """Context manager: import the repository's hubconf.py, with the files next to it importable."""
    path = os.path.join(os.path.abspath(os.path.expanduser(repository)), "hubconf.py")
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path} does not exist: a hub repository has a hubconf.py at its top")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    assert spec is not None and spec.loader is not None
    with _on_path(os.path.dirname(path)):
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except ModuleNotFoundError as problem:
            if problem.name not in ("torch", "torchvision"):
                raise
            raise ModuleNotFoundError(
                f"{path} imports {problem.name}, which is not installed: call flambeau.install_as_torch() before, or run the program"
                " with python -m flambeau",
                name=problem.name,
            ) from problem
        yield module


def _repository(repo_or_dir: str, source: str, trust_repo: Any, force_reload: bool, verbose: bool) -> str:
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "local":
        return repo_or_dir
    _check_trust(repo_or_dir, trust_repo)
    return _cached_repository(repo_or_dir, force_reload, verbose)


def _entry_point(hubconf: ModuleType, model: str) -> Callable:
    if not isinstance(model, str):
        raise ValueError(f"Invalid input: model should be a string of function name, got {type(model).__name__}")
    missing = [d for d in getattr(hubconf, "dependencies", ()) if importlib.util.find_spec(d) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    function = getattr(hubconf, model, None)
    if not callable(function):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return function


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: bool | str | None = "check",
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """Call an entry point of a repository's hubconf.py.

    `repo_or_dir` is 'owner/name[:branch]' on GitHub, or a directory with `source="local"`."""
    repository = _repository(repo_or_dir, source, trust_repo, force_reload, verbose)
    with _hubconf(repository) as hubconf:
        return _entry_point(hubconf, model)(*args, **kwargs)


def help(
    github: str,
    model: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | str | None = "check",
    source: str = "github",
) -> str | None:
    """Return the docstring of an entry point."""
    with _hubconf(_repository(github, source, trust_repo, force_reload, True)) as hubconf:
        return _entry_point(hubconf, model).__doc__


def list(
    github: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | str | None = "check",
    verbose: bool = True,
    source: str = "github",
) -> Any:
    """Return the names of a repository's entry points."""
    with _hubconf(_repository(github, source, trust_repo, force_reload, verbose)) as hubconf:
        return [n for n, value in vars(hubconf).items() if callable(value) and not n.startswith("_")]
