"""Checkpoints in several files: shards and an index that says which tensor is where.

The layout is that of the Hugging Face libraries: `model-00001-of-00002.safetensors` with `model.safetensors.index.json`, or
`pytorch_model-00001-of-00002.bin` with `pytorch_model.bin.index.json`; a checkpoint that fits into one file has no index.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.tensor import Tensor
from ..nn.modules.module import Module
from .destination import written_file, written_path
from .reader import load
from .safetensors import duplicate_names, refuse_mismatch, safe_open, save_file
from .writer import save

_UNITS = {"": 1, "B": 1} | {
    letter + suffix: base**power
    for power, letter in enumerate("KMGT", start=1)
    for suffix, base in (("B", 1000), ("IB", 1024))
}


@dataclass(frozen=True)
class _Kind:
    """A kind of shard files."""

    stem: str
    extension: str

    @property
    def single(self) -> str:
        return f"{self.stem}.{self.extension}"

    @property
    def index(self) -> str:
        return f"{self.single}.index.json"

    def shard(self, number: int, count: int) -> str:
        return f"{self.stem}-{number:05d}-of-{count:05d}.{self.extension}"


SAFE = _Kind("model", "safetensors")
PICKLED = _Kind("pytorch_model", "bin")


# -- reading --------------------------------------------------------------------------------------------------------------


def _read_index(path: str) -> dict[str, str]:
    """Return {tensor: shard file}. The index is untrusted, so it may not name files outside its folder."""
    with open(path, encoding="utf-8") as file:
        try:
            contents = json.load(file)
        except (ValueError, RecursionError) as problem:
            raise RuntimeError(f"{path} is not an index of a checkpoint: {problem}") from None
    places = contents.get("weight_map") if isinstance(contents, dict) else None
    if not isinstance(places, dict) or not places or not all(isinstance(place, str) for place in places.values()):
        raise RuntimeError(f'{path} is not an index of a checkpoint: it has no "weight_map" from names to files')
    for place in set(places.values()):
        if place in ("", ".", "..") or "\0" in place or place != os.path.basename(place.replace("\\", "/")):
            raise RuntimeError(f"{path} names the shard {place!r}, which is not a plain file name")
    return places


def _locate_checkpoint(path: str, prefer_safe: bool) -> str:
    """Return the index, or the single file, that `path` means: itself, or the one in that folder."""
    if not os.path.isdir(path):
        if not os.path.exists(path):
            raise FileNotFoundError(f"no checkpoint at {path}")
        return path
    kinds = (SAFE, PICKLED) if prefer_safe else (PICKLED, SAFE)
    names = [name for kind in kinds for name in (kind.index, kind.single)]
    for name in names:
        if os.path.isfile(os.path.join(path, name)):
            return os.path.join(path, name)
    raise FileNotFoundError(f"{path} has none of {', '.join(names)}")


def _read_shard(path: str, map_location: Any, weights_only: bool) -> dict[str, Tensor]:
    if path.endswith(".safetensors"):
        with safe_open(path, "pt", "cpu" if map_location is None else map_location) as file:
            found = file.get_tensors()
            aliases = file.metadata() or {}
        # Of tied tensors one is stored, and the metadata say which names it has besides its own.
        return found | {n: found[kept] for n, kept in aliases.items() if kept in found and n not in found}
    found = load(path, map_location, weights_only=weights_only)
    if not isinstance(found, Mapping):
        raise RuntimeError(f"{path} holds a {type(found).__name__}, not a dictionary of tensors")
    return dict(found)


def shards(
    path: Any, *, map_location: Any = None, weights_only: bool = True, prefer_safe: bool = True
) -> Iterator[dict[str, Tensor]]:
    """Yield the parts of a checkpoint, one dictionary at a time, checked against the index. `path` is a folder, an index or a file."""
    start = _locate_checkpoint(os.fspath(path), prefer_safe)
    if not start.endswith(".index.json"):
        yield _read_shard(start, map_location, weights_only)
        return
    places = _read_index(start)
    folder = os.path.dirname(start)
    files = sorted(set(places.values()))
    absent = [name for name in files if not os.path.isfile(os.path.join(folder, name))]
    if absent:
        raise FileNotFoundError(f"{start} names shards that are not there: {', '.join(absent)}")
    for name in files:
        part = _read_shard(os.path.join(folder, name), map_location, weights_only)
        expected = {key for key, place in places.items() if place == name}
        if not expected <= set(part):
            lost = ", ".join(sorted(expected - set(part)))
            raise RuntimeError(f"shard {name} lacks tensors that {os.path.basename(start)} says it has: {lost}")
        yield part


def load_sharded(
    path: Any, *, map_location: Any = None, weights_only: bool = True, prefer_safe: bool = True
) -> dict[str, Tensor]:
    """Read a checkpoint in one or several files as one dictionary. `path` is a folder, an index or one file; `map_location` is that of
    `load`; `weights_only` refuses pickles that hold more than tensors; `prefer_safe` takes safetensors where both formats exist.

    >>> files = flambeau.serialization.save_sharded({"weight": flambeau.ones(2)}, "checkpoint")
    >>> load_sharded("checkpoint")
    {'weight': tensor([1., 1.])}
    """
    state: dict[str, Tensor] = {}
    for part in shards(path, map_location=map_location, weights_only=weights_only, prefer_safe=prefer_safe):
        twice = sorted(set(part) & set(state))
        if twice:
            raise RuntimeError(f"several shards hold the same tensors: {', '.join(twice)}")
        state.update(part)
    return state


def load_sharded_checkpoint(
    model: Module, folder: Any, strict: bool = True, prefer_safe: bool = True, *, weights_only: bool = True
) -> tuple[list[str], list[str]]:
    """Load a checkpoint in `folder` into `model`, one shard in memory at a time. `prefer_safe` takes safetensors where both formats
    exist; `weights_only` refuses pickles that hold more than tensors. Returns the names that were missing and those that were not
    expected; with `strict` either is an error, raised before the module changes.

    >>> layer = flambeau.nn.Linear(2, 2)
    >>> files = flambeau.serialization.save_sharded(layer.state_dict(), "checkpoint")
    >>> load_sharded_checkpoint(layer, "checkpoint")
    ([], [])
    """
    wanted = model.state_dict()
    start = _locate_checkpoint(os.fspath(folder), prefer_safe)
    parts = shards(start, weights_only=weights_only)
    found = set(_read_index(start)) if start.endswith(".index.json") else set()
    for part in parts:
        found.update(part)
        missing, unexpected = _missing_names(wanted, found), sorted(found - set(wanted))
        if strict:
            refuse_mismatch(model, missing, unexpected)
        model.load_state_dict(part, strict=False)
    return missing, unexpected


def _missing_names(wanted: Mapping[str, Tensor], found: set[str]) -> list[str]:
    """Return names that are neither found nor filled by another name of the same memory."""
    tied = duplicate_names(wanted, preferred=found)
    return sorted(name for name in wanted if name not in found and tied.get(name) not in found)


# -- writing --------------------------------------------------------------------------------------------------------------


def _byte_count(size: int | str) -> int:
    """Return a number of bytes given as 5_000_000_000, or "5GB" (powers of 1000), or "5GiB" (powers of 1024)."""
    if isinstance(size, int):
        count = size
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", size)
        if match is None or match[2].upper() not in _UNITS:
            raise ValueError(f'max_shard_size must be a number of bytes or a string such as "5GB", got {size!r}')
        count = int(float(match[1]) * _UNITS[match[2].upper()])
    if count <= 0:
        raise ValueError(f"max_shard_size must be positive, got {size!r}")
    return count


def _split(state: Mapping[str, Tensor], limit: int) -> list[dict[str, Tensor]]:
    """Split tensors in their order, with a new shard whenever the next one does not fit. Tensors over the same memory stay together: only
    within one file do they still share it after loading."""
    parts: list[dict[str, Tensor]] = [{}]
    room = limit
    home: dict[int, dict[str, Tensor]] = {}
    for name, tensor in state.items():
        address = tensor.untyped_storage().data_ptr()
        if address and address in home:
            home[address][name] = tensor
            continue
        size = tensor.numel() * tensor.dtype.itemsize
        if size > room and parts[-1]:
            parts.append({})
            room = limit
        parts[-1][name] = tensor
        home[address] = parts[-1]
        room -= size
    return parts


def save_sharded(
    state_dict: Mapping[str, Tensor],
    folder: Any,
    max_shard_size: int | str = "5GB",
    safe_serialization: bool = True,
    metadata: dict[str, str] | None = None,
) -> list[str]:
    """Write the tensors of `state_dict` to files of at most `max_shard_size` (a larger tensor has a file of its own) and an index in
    `folder`; return the names of the files. They are safetensors files with `metadata`, or pickles without `safe_serialization`.
    Nothing in the folder changes until everything is written.

    >>> save_sharded({"weight": flambeau.ones(2)}, "checkpoint", max_shard_size="2GB")
    ['model.safetensors']
    """
    limit = _byte_count(max_shard_size)
    for name, tensor in state_dict.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}")
    kind = SAFE if safe_serialization else PICKLED
    folder = os.fspath(folder)
    os.makedirs(folder, exist_ok=True)
    aliases = duplicate_names(state_dict) if safe_serialization else {}
    parts = _split({n: t for n, t in state_dict.items() if n not in aliases}, limit)
    count = len(parts)
    names = [kind.single] if count == 1 else [kind.shard(i + 1, count) for i in range(count)]
    places = {key: name for name, part in zip(names, parts) for key in part}
    places |= {alias: places[kept] for alias, kept in aliases.items()}
    # An ExitStack leaves in reverse: the index, entered first, takes its name last.
    with contextlib.ExitStack() as pending:
        if count > 1:
            total = sum(t.numel() * t.dtype.itemsize for part in parts for t in part.values())
            index = {"metadata": {"total_size": total} | (metadata or {}), "weight_map": dict(sorted(places.items()))}
            file = pending.enter_context(written_file(os.path.join(folder, kind.index)))
            file.write((json.dumps(index, indent=2) + "\n").encode())
        for name, part in zip(names, parts):
            temporary = pending.enter_context(written_path(os.path.join(folder, name)))
            _write_shard(part, temporary, aliases, safe_serialization)
    _remove_others(folder, kind, {*names, kind.index} if count > 1 else set(names))
    return names + ([kind.index] if count > 1 else [])


def _write_shard(part: dict[str, Tensor], path: str, aliases: dict[str, str], safe: bool) -> None:
    if not safe:
        save(part, path)
        return
    notes = {"format": "pt"} | {alias: kept for alias, kept in aliases.items() if kept in part}
    save_file({name: tensor.contiguous() for name, tensor in part.items()}, path, notes)


def _remove_others(folder: str, kind: _Kind, kept: set[str]) -> None:
    """Remove shards of an earlier checkpoint of this kind in the folder, which would be read by mistake."""
    pattern = re.compile(rf"{kind.stem}(-\d{{5}}-of-\d{{5}})?\.{kind.extension}(\.index\.json)?")
    for name in os.listdir(folder):
        if pattern.fullmatch(name) and name not in kept:
            os.unlink(os.path.join(folder, name))
