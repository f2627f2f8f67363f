"""Examples of the reference, snippets.txt: calls as a person types them, and what they print.

    python docs/_tools/snippets.py          # write what the calls print again, after an example was added or changed
    python docs/_tools/snippets.py --check  # fails if they print something else
    python docs/_tools/snippets.py --check --device cuda  # the same of the examples that need a GPU, and of no others

An example begins with "@" and the name of what it shows; the lines behind `>>>` are run one after the other, a line behind
`...` belongs to the one before it. The namespace of the name is imported first; `torch`, `nn` and `F` are there.
A line may raise where the text behind it begins with "Traceback". A mark behind the name says where the example is run: `(GPU)`
where there is a GPU, `(no GPU)` where there is none, `(flambeau)` with this library only, `(compiler)` nowhere, because it compiles C++ for long,
`(compiled)` with torchvision only where its compiled operators load."""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import importlib
import io
import linecache
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import flambeau

_EXAMPLE = "<example>"  # the file name of an example's code
FILE = Path(__file__).parent / "snippets.txt"
Example = list[tuple[str, str]]  # what is typed, and what is printed
MARKS = ("GPU", "no GPU", "flambeau", "compiler", "compiled")


@functools.cache
def _read() -> tuple[str, dict[str, Example], dict[str, str]]:
    """What stands before the first example, the examples by name, and the marks of those that have one."""
    head, *parts = re.split(r"(?m)^@ ", FILE.read_text())
    found: dict[str, Example] = {}
    marks = {}
    for part in parts:
        title, *lines = part.rstrip("\n").split("\n")
        name, _, marked = title.partition(" ")
        if name in found:
            raise ValueError(f"{name} has two examples")
        if marked and marked[1:-1] not in MARKS:
            raise ValueError(f"{name} is marked {marked}, which is none of {MARKS}")
        if marked:
            marks[name] = marked[1:-1]
        found[name] = []
        for line in lines:
            typed, answer = ("", "") if line.startswith(">>> ") else found[name].pop()
            if not answer and line.startswith((">>> ", "...")):
                found[name].append(("\n".join(filter(None, [typed, line[4:]])), ""))
            else:
                found[name].append((typed, f"{answer}{line}\n"))
    return head, found, marks


def snippets() -> dict[str, Example]:
    """The examples by the name of what they show."""
    return _read()[1]


def mark(name: str) -> str:
    """Where the example of a name is run: one of `MARKS`; empty where it is run everywhere."""
    return _read()[2].get(name, "")


def why_not(name: str, library: ModuleType) -> str:
    """The reason why the example of a name is not run with a library on this machine; empty where it is run."""
    needed = mark(name)
    if home(name, library) is None:
        return "its namespace is not there, or needs a package that is not installed"
    if needed == "flambeau":
        return "" if library is flambeau else "shows what PyTorch does not have"
    if needed == "compiler":
        return "compiles C++, which takes too long"
    if needed == "compiled":
        has_them = library is flambeau or importlib.import_module("torchvision.extension")._has_ops()
        return "" if has_them else "asks operators of torchvision that are not compiled for this PyTorch"
    if needed and (needed == "GPU") != library.cuda.is_available():
        return "needs a GPU" if needed == "GPU" else "shows a machine without a GPU"
    return ""


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


def parsed(name: str, number: int) -> ast.AST:
    """A line of an example, at its place in the example's text."""
    before = [typed for typed, _ in snippets()[name][:number]]
    tree = ast.parse(snippets()[name][number][0] + "\n", mode="single")
    return ast.increment_lineno(tree, sum(typed.count("\n") + 1 for typed in before))


def code(tree: Any) -> CodeType:
    """A line of an example, to be run; annotations are values there, not text as in this file."""
    return compile(tree, _EXAMPLE, "single", dont_inherit=True)


@contextlib.contextmanager
def temporary() -> Iterator[None]:
    """Let the temporary files of an example be in a folder that is deleted afterwards."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as tempfile.tempdir:
        try:
            yield
        finally:
            tempfile.tempdir = before


def setting(name: str, library: ModuleType) -> dict[str, Any]:
    """What the lines of an example can name when `torch` is the given library."""
    library.manual_seed(0)
    home(name, library)  # some namespaces are not loaded by themselves
    module = sys.modules["example"] = ModuleType("example")
    module.__file__ = (
        _EXAMPLE  # so that Python finds the text of functions and classes, which `torch.jit.script` asks for
    )
    text = "".join(typed + "\n" for typed, _ in snippets()[name])
    linecache.cache[_EXAMPLE] = (len(text), None, text.splitlines(keepends=True), _EXAMPLE)
    vars(module).update(torch=library, nn=library.nn, F=library.nn.functional)
    if library is flambeau:
        vars(module)["torchvision"] = flambeau.vision
    return vars(module)


def printed(
    name: str, library: ModuleType, change: Callable[[ast.AST], ast.AST] = lambda tree: tree, **others: Any
) -> list[str]:
    """What each line of an example prints; `change` rewrites a line before it is run, `others` are names that it can use."""
    names = setting(name, library)
    names.update(others)
    lines = snippets()[name]
    with temporary():
        return [_printed(code(change(parsed(name, k))), answer, names) for k, (_, answer) in enumerate(lines)]


def _printed(line: CodeType, answer: str, names: dict[str, Any]) -> str:
    """What a line prints; its error where it is expected to raise."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        try:
            exec(line, names)
        except Exception as error:
            if not may_raise(answer):
                raise
            print(f"Traceback (most recent call last):\n  ...\n{type(error).__name__}: {error}")
        finally:
            vars(builtins).pop("_", None)  # the value that was shown last: fx, for one, looks at Python's builtins
    return text.getvalue()


def may_raise(answer: str) -> bool:
    """Whether the text behind a line says that it raises."""
    return answer.startswith("Traceback")


def shown(example: Example) -> str:
    """An example as it is typed and answered."""
    return "".join(">>> " + typed.replace("\n", "\n... ") + f"\n{answer}" for typed, answer in example)


def _again(name: str, example: Example) -> Example:
    if why_not(name, flambeau):
        return example
    return [(typed, text) for (typed, _), text in zip(example, printed(name, flambeau))]


def _title(name: str) -> str:
    return f"@ {name} ({mark(name)})" if mark(name) else f"@ {name}"


def main() -> int:
    head, found, _ = _read()
    only_gpu = "--device" in sys.argv
    if only_gpu and not flambeau.cuda.is_available():
        raise SystemExit("there is no GPU here")
    again = {name: _again(name, e) for name, e in found.items() if not only_gpu or mark(name) == "GPU"}
    if "--check" in sys.argv:
        wrong = [name for name in again if found[name] != again[name]]
        for name in wrong:
            print(f"{name}: the page says\n{shown(found[name])}but now it is\n{shown(again[name])}")
        print(f"{len(again) - len(wrong)} of {len(again)} examples print what they say")
        return int(bool(wrong))
    FILE.write_text(head + "\n".join(f"{_title(name)}\n{shown(e)}" for name, e in sorted({**found, **again}.items())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
