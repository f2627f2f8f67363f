"""Commands of the manual that tests do not run (servers, installations, hours of work): their programs and options exist."""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import subprocess
import sys

import pytest

from .blocks import ROOT, blocks, pages

PIECES = re.compile(r"&&|\|\||[;|&]")


def commands() -> list[tuple[str, list[str]]]:
    """(place, words) of each command that is only shown."""
    found = []
    for page in pages():
        for block in blocks(page):
            if block.language == "bash" and not block.title.startswith("Terminal"):
                lines = block.text.replace("\\\n", " ").splitlines()
                for place, line in enumerate(lines, block.line + 1):
                    for piece in PIECES.split(line.partition(" #")[0]):
                        words = [w for w in piece.split() if not re.match(r"[A-Z_]+=", w)]
                        if words:
                            found.append((f"{page.name}:{place}", words))
    return found


def program(words: list[str]) -> list[str] | None:
    """What runs one of our programs, without its arguments; None for programs of others."""
    name = words[0].rpartition("/")[2]
    if name == "flambeau" and len(words) > 1:
        return ["-m", "flambeau.cli", words[1]]
    if name in ("python", "python3") and "-m" in words[:2]:
        return words[1:3] if words[2].startswith(("flambeau.", "tests.")) else None
    if name in ("python", "python3") and len(words) > 1 and words[1].startswith(("benchmarks/", "examples/", "tests/")):
        return [words[1]]
    return None


@functools.cache
def told(command: tuple[str, ...]) -> str:
    """Where a program says which options it has: its help, or the text of a file that is run by itself."""
    if command[0] != "-m":
        return (ROOT / command[0]).read_text()
    if command[1].startswith("tests."):
        folder = ROOT.joinpath(*command[1].split("."))
        return "".join(
            file.read_text() for file in (folder.glob("*.py") if folder.is_dir() else [folder.with_suffix(".py")])
        )
    done = subprocess.run(
        [sys.executable, *command, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def options(words: list[str]) -> list[str]:
    """The options of the program itself, not those of a program that it runs."""
    if "run" in words[:2]:
        return []
    return [word.partition("=")[0] for word in words if word.startswith("--")]


OURS = sorted({(*found, *options(words)) for _, words in commands() if (found := program(words))})


@pytest.mark.parametrize("command", OURS, ids=" ".join)
def test_command_and_its_options_exist(command: tuple[str, ...]) -> None:
    given = [word for word in command if word.startswith("--")]
    own = command[: len(command) - len(given)]
    if own[0] == "-m":
        assert importlib.util.find_spec(own[1])
    assert not [option for option in given if option not in told(own)]


def test_blocks_are_correct_bash() -> None:
    for page in pages():
        for block in blocks(page):
            if block.language == "bash" and "<" not in block.text:
                done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"{page.name}:{block.line}: {done.stderr}"


def test_what_is_not_run_says_why() -> None:
    for page in pages():
        for block in blocks(page):
            if block.language == "bash":
                is_run = block.title.startswith("Terminal")
                assert is_run is not bool(block.not_run), f"{page.name}:{block.line}: run it, or say why not"


def test_there_are_such_commands() -> None:
    assert len(OURS) > 10
    assert all(shlex.join(words) for _, words in commands())
