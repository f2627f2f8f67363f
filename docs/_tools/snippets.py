"""Examples of the reference, snippets.txt: calls as a person types them, and what they print.

    python docs/_tools/snippets.py          # write what the calls print again, after an example was added or changed
    python docs/_tools/snippets.py --check  # fails if they print something else

An example begins with "@" and the name of what it shows; the lines behind `>>>` are run one after the other."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import flambeau

FILE = Path(__file__).parent / "snippets.txt"
Example = list[tuple[str, str]]  # what is typed, and what is printed


@functools.cache
def _read() -> tuple[str, dict[str, Example]]:
    """What stands before the first example, and the examples by name."""
    head, *parts = re.split(r"(?m)^@ ", FILE.read_text())
    found: dict[str, Example] = {}
    for part in parts:
        name, *lines = part.rstrip("\n").split("\n")
        if name in found:
            raise ValueError(f"{name} has two examples")
        found[name] = []
        for line in lines:
            typed, printed = found[name].pop() if not line.startswith(">>> ") else ("", "")
            found[name].append((typed, f"{printed}{line}\n") if typed else (line[4:], ""))
    return head, found


def snippets() -> dict[str, Example]:
    """The examples by the name of what they show."""
    return _read()[1]


def printed(example: Example, library: ModuleType, **others: Any) -> list[str]:
    """What each line prints when `torch` is the given library."""
    library.manual_seed(0)
    importlib.import_module(f"{library.__name__}.nn.utils.prune")  # which PyTorch does not load by itself
    names: dict[str, Any] = {"torch": library, "nn": library.nn, "F": library.nn.functional, **others}
    if library is flambeau:
        names["torchvision"] = flambeau.vision
    told = []
    for typed, _ in example:
        with contextlib.redirect_stdout(io.StringIO()) as text:
            exec(compile(typed + "\n", "<example>", "single"), names)
        told.append(text.getvalue())
    return told


def shown(example: Example) -> str:
    """An example as it is typed and answered."""
    return "".join(f">>> {typed}\n{answer}" for typed, answer in example)


def main() -> int:
    head, found = _read()
    again = {name: [(t, p) for (t, _), p in zip(e, printed(e, flambeau))] for name, e in found.items()}
    if "--check" in sys.argv:
        for name in [n for n in found if found[n] != again[n]]:
            print(f"{name}: the page says\n{shown(found[name])}but now it is\n{shown(again[name])}")
        return int(found != again)
    FILE.write_text(head + "\n".join(f"@ {name}\n{shown(example)}" for name, example in sorted(again.items())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
