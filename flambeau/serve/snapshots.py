"""Snapshots from which a server restarts in its former state: logs/config/<time>-{startup,snapshot,shutdown}.cfg."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from ..core.ownership import planted, refuse_planted, write_own
from . import bounded_json
from .registry import Registry
from .settings import ConfigurationError, Settings, read_properties, write_properties


def last(folder: Path) -> Path | None:
    """Return the newest snapshot in a folder."""
    found = sorted(folder.glob("*.cfg"))
    return found[-1] if found else None


def save(settings: Settings, registry: Registry, kind: str) -> Path:
    """Write the settings and the registered models to a snapshot file; return its path."""
    now = datetime.datetime.now()
    name = f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}-{kind}.cfg"
    models: dict[str, Any] = {}
    for model_name, versions in registry.models.items():
        kept = {v: m.state(v == versions.default) for v, m in versions.by_version.items() if not m.in_workflow}
        if kept:
            models[model_name] = kept
    content = {
        "name": name,
        "modelCount": sum(map(len, models.values())),
        "created": int(now.timestamp() * 1000),
        "models": models,
    }
    values = {**settings.values, "model_snapshot": json.dumps(content, indent=2)}
    folder = settings.log_folder / "config"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    refuse_planted(path, "a snapshot")
    write_own(path, write_properties(values).encode("ascii"))
    return path


def models_of(settings: Settings) -> dict[str, dict[str, dict[str, Any]]] | None:
    """Return the models of the settings' snapshot, or None if the settings are no snapshot."""
    text = settings.text("model_snapshot")
    if text is None:
        return None
    try:
        content = bounded_json.loads(text)
        models = content["models"]
        if content["modelCount"] != sum(map(len, models.values())):
            raise ValueError("modelCount is not the number of its models")
        return models
    except (ValueError, KeyError, AttributeError, TypeError) as e:
        raise ConfigurationError(f"model_snapshot cannot be read: {e}") from e


def read(path: Path) -> dict[str, str]:
    """Return the settings in a snapshot that the server found by itself; raises if another user could have put it there to run code."""
    if (found := planted(path)) is not None:
        raise ConfigurationError(f"{path} is not used: {found}")
    return read_properties(path.read_text(encoding="utf-8"))
