"""Examples of the reference, snippets.txt: calls as a person types them, and what they print.

    python docs/_tools/snippets.py          # write what the calls print again, after an example was added or changed
    python docs/_tools/snippets.py --check  # fails if they print something else

An example begins with "@" and the name of what it shows; the lines behind `>>>` are run one after the other, a line behind
`...` belongs to the one before it. The namespace of the name is imported first; `torch`, `nn` and `F` are there."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import linecache
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
            typed, answer = ("", "") if line.startswith(">>> ") else found[name].pop()
            if not answer and line.startswith((">>> ", "...")):
                found[name].append(("\n".join(filter(None, [typed, line[4:]])), ""))
            else:
                found[name].append((typed, f"{answer}{line}\n"))
    return head, found


def snippets() -> dict[str, Example]:
    """The examples by the name of what they show."""
    return _read()[1]


def home(name: str, library: ModuleType) -> Any:
    """The namespace of a name in a library; None where the library does not have it."""
    space = name.rpartition(".")[0].partition(".")[2]
    if space == "Tensor":
        return library.Tensor
    root = "flambeau.vision" if name.startswith("torchvision.") and library is flambeau else library.__name__
    try:
        return importlib.import_module(".".join(filter(None, [root, space])))
    except ImportError:
        return None


def register(typed: str, number: int) -> str:
    """The file name of a line of an example, under which Python finds its text (`torch.jit.script` asks for it)."""
    file = f"<example {number}>"
    linecache.cache[file] = (len(typed), None, typed.splitlines(keepends=True), file)
    return file


def setting(name: str, library: ModuleType) -> dict[str, Any]:
    """What the lines of an example can name when `torch` is the given library."""
    library.manual_seed(0)
    home(name, library)  # some namespaces are not loaded by themselves
    known = {"__name__": "__main__", "torch": library, "nn": library.nn, "F": library.nn.functional}
    return {**known, "torchvision": flambeau.vision} if library is flambeau else known


def printed(name: str, library: ModuleType, **others: Any) -> list[str]:
    """What each line of an example prints."""
    names = {**setting(name, library), **others}
    told = []
    for number, (typed, _) in enumerate(snippets()[name]):
        with contextlib.redirect_stdout(io.StringIO()) as text:
            exec(compile(typed + "\n", register(typed, number), "single"), names)
        told.append(text.getvalue())
    return told


def shown(example: Example) -> str:
    """An example as it is typed and answered."""
    return "".join(">>> " + typed.replace("\n", "\n... ") + f"\n{answer}" for typed, answer in example)


def main() -> int:
    head, found = _read()
    again = {name: [(t, p) for (t, _), p in zip(e, printed(name, flambeau))] for name, e in found.items()}
    if "--check" in sys.argv:
        for name in [n for n in found if found[n] != again[n]]:
            print(f"{name}: the page says\n{shown(found[name])}but now it is\n{shown(again[name])}")
        return int(found != again)
    FILE.write_text(head + "\n".join(f"@ {name}\n{shown(example)}" for name, example in sorted(again.items())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
