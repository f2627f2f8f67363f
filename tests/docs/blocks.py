"""The code blocks of the manual and of the README: what they are, and how a page's blocks are run.

    python -m tests.docs.blocks docs/func.md docs/amp.md

runs pages, each in a process and a folder of its own: its Python blocks one after the other in one namespace. What a block is, its
first line says:

    ```python                             is run
    ```python title="train.py"            is a file, written for what comes later
    ```python title="needs onnx"          is run where the package is there; also "a GPU", "a C++ compiler", "PyTorch", "the network"
    ```python title="in flambeau/x.py"    is a shortened piece of that file
    ```text title="Output"                is what the Python block before it prints, "..." standing for anything
    ```bash title="Terminal"              is run, too; "Terminal, needs PIL" where that is there
    ```bash                               is not run; a comment at the end of what stands before it says why: <!-- not run: installs packages -->
    ```text, cpp, ...                     is for reading
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LANGUAGES = {"python", "text", "bash", "cpp", "c", "cmake", "yaml", "json"}
_FENCE = re.compile(r'( *)```(\w*)(?: title="([^"]*)")?$')
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->$")
_FILE = re.compile(r"[\w.-]+\.\w+$")
_COMMANDS = {
    "python": "",
    "flambeau": "-m flambeau.cli",
}


def _compiler() -> bool:
    return shutil.which("c++") is not None


def _gpu() -> bool:
    import flambeau

    return flambeau.cuda.is_available()


_NEEDS: dict[str, Callable[[], bool]] = {
    "a C++ compiler": _compiler,
    "a GPU": _gpu,
    "the network": lambda: False,
    "PyTorch": lambda: importlib.util.find_spec("torch") is not None,
}


@dataclass
class Block:
    """One block of a page; `line` is that of its first line of code."""

    language: str
    title: str
    text: str
    line: int
    not_run: str = ""  # why it is only shown

    @property
    def needs(self) -> list[str]:
        """What must be there to run it."""
        return re.split(r", | and ", self.title.partition("needs ")[2]) if "needs " in self.title else []

    @property
    def missing(self) -> list[str]:
        return [n for n in self.needs if not _NEEDS.get(n, lambda n=n: importlib.util.find_spec(n) is not None)()]

    @property
    def is_file(self) -> bool:
        return bool(_FILE.match(self.title))


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page. Indented ones, and those that do not say what they are, are errors."""
    lines = page.read_text().split("\n")
    place = 0
    in_list = False
    while place < len(lines):
        line, where = lines[place], f"{page.name}:{place + 1}"
        fence = _FENCE.match(line)
        if not fence and "```" in line and line.strip().startswith("```"):
            raise ValueError(f"{where}: {line.strip()!r} does not say what the block is")
        if fence:
            indent, language, title = fence.groups()
            if language not in LANGUAGES:
                raise ValueError(
                    f"{where}: the language of a block is one of {', '.join(sorted(LANGUAGES))}, not {language!r}"
                )
            end = lines.index(f"{indent}```", place + 1)
            text = "\n".join(one[len(indent) :] for one in lines[place + 1 : end])
            before = next((one for one in reversed(lines[:place]) if one.strip()), "")
            reason = _NOT_RUN.search(before)
            yield Block(language, title or "", text + "\n", place + 1, reason[1] if reason else "")
            place = end
        elif re.match(r"(\d+\.|[-*]) ", line):
            in_list = True
        elif line and not line.startswith(" "):
            in_list = False
        elif line.startswith("    ") and not in_list and not lines[place - 1].strip():
            raise ValueError(f"{where}: an indented block; write ```text")
        place += 1


def _expect(block: Block, printed: str, where: str) -> None:
    pattern = re.escape(block.text.rstrip()).replace(re.escape("..."), ".*?")
    told = "\n".join(line.rstrip() for line in printed.strip("\n").split("\n")).rstrip()
    if not re.fullmatch(pattern, told, re.DOTALL):
        raise AssertionError(f"{where}: the page says\n{block.text}\nbut this is printed:\n{told}\n")


def _shortened(block: Block, where: str) -> None:
    """A piece of the library's code: its functions are in that file."""
    path = ROOT / re.match(r"in ([\w./]+)", block.title).group(1)  # type: ignore[union-attr]
    names = [node.name for node in ast.walk(ast.parse(block.text)) if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    for name in names:
        if not re.search(rf"(def|class) {name}\b", path.read_text()):
            raise AssertionError(f"{where}: there is no {name} in {path.name}")


def _terminal(block: Block, where: str) -> str:
    folder = Path(".commands").absolute()
    folder.mkdir(exist_ok=True)
    for name, arguments in _COMMANDS.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-e", "-c", block.text], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        raise AssertionError(f"{where}: exit code {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}")
    return done.stdout


def run(page: Path) -> list[str]:
    """Run a page's blocks in the current folder; gives the titles of those that were left out because something is missing."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main  # so that what the page defines can be pickled
    sys.path.insert(0, os.getcwd())  # files of the page can be imported
    printed: str | None = None
    left_out = []
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.missing:
            left_out.append(f"{where} {block.title}")
            printed = None
        elif block.is_file:
            Path(block.title).write_text(block.text)
        elif block.title.startswith("in "):
            _shortened(block, where)
        elif block.language == "bash" and block.title.startswith("Terminal"):
            printed = _terminal(block, where)
        elif block.title == "Output":
            if printed is not None:
                _expect(block, printed, where)
        elif block.language == "python":
            # Padded, so that lines of code are lines of the page: for tracebacks and for `inspect.getsource`.
            code = compile("\n" * block.line + block.text, str(page), "exec")
            with contextlib.redirect_stdout(io.StringIO()) as text, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(code, vars(main))
            printed = text.getvalue()
    return left_out


def _alone(page: Path) -> int:
    """Run a page in a child of this process, which has the library loaded; gives the child's exit status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    status = 1
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            for title in run(page):
                print("left out:", title)
            os.chdir(ROOT)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    importlib.import_module("flambeau")
    sys.exit(max(_alone(Path(name).absolute()) for name in sys.argv[1:]) and 1)
