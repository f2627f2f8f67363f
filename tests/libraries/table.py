"""Writes docs/libraries.md: `python -m tests.libraries.table`, where the libraries and PyTorch are installed."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import Any

from . import harness

DISTRIBUTIONS = {
    "sentence_transformers": "sentence-transformers",
    "torch_geometric": "torch-geometric",
    "pyro": "pyro-ppl",
}
MARK = "<!-- results: python -m tests.libraries.table -->"


def _largest(found: dict[str, Any], names: list[str]) -> str:
    known = [found[name] for name in names if name in found]
    return f"{max(known):.0e}" if known else ""


def family_row(family: str, found: dict[str, Any]) -> str:
    if "error" in found:
        return f"| {family} | {found['error'].strip().splitlines()[-1]} | | | | | |"
    tokens = [found[name] for name in ("greedy", "beams", "sampled") if name in found]
    same = "" if not tokens else "the same" if max(tokens) == 0 else "differ"
    parts = [_largest(found, [name]) for name in ("result", "gradients", "steps", "loaded")]
    return f"| {family} | " + " | ".join(parts) + f" | {same} |"


def program_row(program: str, found: dict[str, Any], what: str) -> str:
    package = harness.PROGRAMS[program].split()[0]
    version = importlib.metadata.version(DISTRIBUTIONS.get(package, package))
    if "error" in found:
        return f"| {package} {version} | {what} | {found['error'].strip().splitlines()[-1]} | |"
    return f"| {package} {version} | {what} | {len(found)} | {_largest(found, list(found))} |"


def descriptions() -> dict[str, str]:
    """What each program does, from the first line of its docstring."""
    source = (harness.HERE / "programs.py").read_text()
    return dict(re.findall(r'^def (\w+)\(own.*?\n    """(.*?)\."""', source, re.M))


def text(results: dict[str, dict[str, Any]]) -> str:
    what = descriptions()
    families = [family_row(case.partition("/")[2], found) for case, found in results.items() if "/" in case]
    programs = [program_row(case, found, what[case]) for case, found in results.items() if "/" not in case]
    return "\n".join(
        [
            MARK, "",
            "| library | what is compared | results | largest relative difference |", "| --- | --- | ---: | ---: |", *programs, "",
            f"transformers {importlib.metadata.version('transformers')}, {len(families)} families; largest relative differences of the"
            " result, of all gradients, of the losses of three steps of AdamW with dropout, of the result of a model that the other"
            " library saved; and the tokens that are generated (greedy, with a static cache too, two beams, drawn with a seed):", "",
            "| family | result | gradients | steps | loaded | tokens |", "| --- | ---: | ---: | ---: | ---: | --- |", *families, "",
        ]
    )  # fmt: skip


if __name__ == "__main__":
    document = Path(harness.ROOT / "docs" / "libraries.md")
    before = document.read_text().partition(MARK)[0]
    chosen = [case for case in harness.cases() if not harness.missing(case)]
    document.write_text(before + text(harness.compared(chosen)))
