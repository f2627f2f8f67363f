"""`flambeau info`: what is installed, which GPUs are available, and how to get what is missing."""

from __future__ import annotations

import importlib.metadata
import re
from typing import Any

from . import cuda, hub
from .config import NOT_INSTALLED, facts, table, version_of
from .core.backend import why_absent

_REQUIREMENT = re.compile(r"""(?P<package>[\w.-]+).*extra == ["'](?P<extra>\w+)["']""")
_FOR_DEVELOPERS = {"test", "docs", "benchmark", "dev"}


def show_all() -> str:
    """Return the text of `flambeau info`: `config.show()`, GPUs, optional packages, and the folders of downloads."""
    return table([*facts(), ("downloads", hub.get_dir()), *_gpus(), *_extras()])


def _gpus() -> list[tuple[str, str]]:
    if not cuda.is_available():
        return [("GPUs", f"none used: {why_absent('cuda')}")]
    found = []
    for index in range(cuda.device_count()):
        facts: Any = cuda.get_device_properties(index)  # its fields are the driver's
        found.append(
            (
                f"GPU {index}",
                f"{facts.name}, {facts.total_memory / 2**30:.0f} GiB, capability {facts.major}.{facts.minor}",
            )
        )
    return found


def _extras() -> list[tuple[str, str]]:
    """Return for each extra the versions of its packages, or how to install missing ones."""
    try:
        required = importlib.metadata.requires("flambeau") or []
    except importlib.metadata.PackageNotFoundError:
        return [
            ("extras", "unknown: Flambeau runs from a folder here and is not installed as a package (pip install .)")
        ]
    packages: dict[str, list[str]] = {}
    for line in required:
        if (found := _REQUIREMENT.match(line)) is not None:
            packages.setdefault(found["extra"], []).append(found["package"])
    return [(f"extra {name}", _extra(name, packages[name])) for name in packages if name not in _FOR_DEVELOPERS]


def _extra(name: str, packages: list[str]) -> str:
    versions = {package: version_of(package) for package in packages}
    missing = [package for package, version in versions.items() if version == NOT_INSTALLED]
    if missing:
        return f"not installed ({', '.join(missing)} missing): pip install 'flambeau[{name}]'"
    return ", ".join(f"{package} {version}" for package, version in versions.items())
