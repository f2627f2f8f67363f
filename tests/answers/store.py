"""Files of recorded answers: one for each file of tests, and one table of PyTorch's names.

A file is xz-compressed: a line of JSON (versions, and by test the answers, checks and digest) and, after it, the bytes of the arrays.
One file for each file of tests, so that two people who change two tests do not meet in one binary file.
"""

from __future__ import annotations

import functools
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from .values import Arrays

# A test with more bytes of answers is not recorded: one in a hundred is that large, and they would take half of the space.
LARGEST = 32_000
FOLDER = Path(__file__).parent / "recorded"


class Recorded:
    """The tapes of one file of tests."""

    def __init__(self, file: Path) -> None:
        self.file, self.rows, self.arrays, self.versions = file, {}, Arrays(), {}
        if file.exists():
            head, _, block = lzma.decompress(file.read_bytes()).partition(b"\n")
            kept = json.loads(head)
            self.rows, self.versions, self.arrays = kept["tests"], kept["versions"], Arrays(block)

    def write(self, rows: dict[str, Any], versions: dict[str, str]) -> None:
        """Replace the file by these rows, but for those that are too large; without any, remove it."""
        rows = {test: row for test, row in rows.items() if size(row["answers"]) <= LARGEST}
        if not rows:
            self.file.unlink(missing_ok=True)
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        used = Arrays()
        tests = _moved(rows, self.arrays, used)
        head = json.dumps({"versions": versions, "tests": tests}, separators=(",", ":"))
        raw = head.encode() + b"\n" + bytes(used.block)
        self.file.write_bytes(lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME))


def size(kept: Any) -> int:
    """About how many bytes answers take before they are compressed."""
    if isinstance(kept, list):
        return sum(map(size, kept))
    if not isinstance(kept, dict):
        return len(kept) if isinstance(kept, str) else 2
    if len(kept) == 1 and next(iter(kept)) in ("array", "scalar", "floats"):
        ((_, shape, _, stored),) = kept.values()
        return int(np.prod(shape, dtype=np.int64)) * np.dtype(stored).itemsize
    return sum(map(size, kept.values()))


def _moved(kept: Any, arrays: Arrays, to: Arrays) -> Any:
    """The same JSON with its arrays in another block, which then holds no others."""
    if isinstance(kept, list):
        return [_moved(k, arrays, to) for k in kept]
    if not isinstance(kept, dict):
        return kept
    if len(kept) == 1 and next(iter(kept)) in ("array", "scalar", "floats"):
        ((kind, content),) = kept.items()
        return {kind: to.keep(arrays.load(*content))}
    if len(kept) == 1 and "image" in kept:
        mode, content, palette = kept["image"]
        return {"image": [mode, to.keep(arrays.load(*content)), palette]}
    return {k: _moved(v, arrays, to) for k, v in kept.items()}


class Store:
    """The tables of names, classes and modules, and the tapes by file."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self.objects: dict[str, Any] = {}

    @functools.cached_property
    def _tables(self) -> dict[str, Any]:
        file = self.folder / "names.json"
        return json.loads(file.read_text()) if file.exists() else {}

    @functools.cached_property
    def names(self) -> dict[str, dict[str, Any]]:
        """By the path of a module or class: its attributes."""
        return self._tables.get("names", {})

    @functools.cached_property
    def classes(self) -> dict[str, list[str]]:
        """By the path of a class: its bases."""
        return self._tables.get("classes", {})

    @functools.cached_property
    def modules(self) -> set[str]:
        return set(self._tables.get("modules", ()))

    @functools.cache  # noqa: B019  one store a process
    def recorded(self, file: str) -> Recorded:
        """The tapes of a file of tests, "tests/ops/test_pool.py"."""
        return Recorded(self.folder / Path(file).relative_to("tests").with_suffix(".xz"))

    def arrays(self, key: str) -> Arrays:
        return self.recorded(key.partition("::")[0]).arrays

    def row(self, key: str) -> dict | None:
        file, _, test = key.partition("::")
        return self.recorded(file).rows.get(test)

    def write_names(self, before: dict[str, Any]) -> None:
        """Add what this process has seen to what stands in the file by now."""
        names = {k: dict(v) for k, v in before.get("names", {}).items()}
        for path, found in self.names.items():
            names.setdefault(path, {}).update(found)
        tables = {
            "modules": sorted(self.modules | set(before.get("modules", ()))),
            "classes": {**before.get("classes", {}), **self.classes},
            "names": names,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "names.json").write_text(json.dumps(tables, indent=0, sort_keys=True) + "\n")
