"""PyTorch's operators by name: the lines of `schemas.txt`, parsed on demand."""

from __future__ import annotations

import functools
from pathlib import Path

from .schema import Schema, parse_schema


@functools.cache
def _table() -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    marks: dict[str, str] = {}
    # A path, and not importlib.resources, which two threads cannot import at once.
    for marked in (Path(__file__).parent / "schemas.txt").read_text().splitlines():
        line = marked.lstrip("=")
        head = line.partition("(")[0]
        if head and not head.startswith("#"):
            name, _, overload = head.partition(".")
            text, name = (line, name) if "::" in name else (f"aten::{line}", f"aten::{name}")
            found.setdefault(name, {})[overload] = text
            marks[f"{name}.{overload}"] = marked.removesuffix(line)
    return found, marks


def lines() -> dict[str, dict[str, str]]:
    """Return the text of each schema by the operator's name ("aten::add") and the overload's, in the order in which calls try them."""
    return _table()[0]


def is_composite(name: str, overload: str) -> bool:
    """Return whether PyTorch decomposes this overload of `aten::name` into other operators before it differentiates."""
    return _table()[1][f"aten::{name}.{overload}"] != ""


def is_core_composite(name: str, overload: str) -> bool:
    """Return whether PyTorch decomposes this overload and still counts it among its core operators."""
    return _table()[1][f"aten::{name}.{overload}"] == "=="


def overloads_of(name: str) -> list[str]:
    """Return the names of the overloads of `aten::name`; [] if there is no such operator."""
    return list(lines().get(f"aten::{name}", ()))


@functools.cache
def schema_of(name: str, overload: str) -> Schema:
    """Return the schema of one overload of `aten::name`."""
    return parse_schema(lines()[f"aten::{name}"][overload])


def aten_names() -> list[str]:
    """Return the names of all aten operators."""
    return sorted(name.removeprefix("aten::") for name in lines() if name.startswith("aten::"))
