"""The programs of the tutorials, as files that type checkers read beside examples/."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

from tests.docs.blocks import ROOT, blocks


def write(folder: Path) -> list[Path]:
    """Write each tutorial's program into `folder`, its lines where they are on the page; returns these files and the examples.

    What needs a package that is not installed is left out, as it is not run either."""
    for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")):
        lines = [""] * (page.read_text().count("\n") + 1)
        for block in blocks(page):
            if block.language != "python" or block.missing or block.title.startswith("in "):
                continue
            if block.is_file:
                (folder / block.title).write_text(block.text)
            else:
                lines[block.line : block.line + block.text.count("\n")] = block.text.splitlines()
        if "import torch" not in lines:  # which has PyTorch's types
            (folder / f"{page.stem}_page.py").write_text("\n".join(lines) + "\n")
    examples = [path for path in sorted((ROOT / "examples").rglob("*.py")) if not _missing(path)]
    return [*sorted(folder.glob("*.py")), *examples]


def _missing(program: Path) -> bool:
    """Whether a program imports a package, at its top, that is not installed; one that says `import torch` has PyTorch's types."""
    imports = [node for node in ast.parse(program.read_text()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = [alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in imports if isinstance(node, ast.ImportFrom)]
    packages = {name.partition(".")[0] for name in names}
    return "torch" in packages or any(importlib.util.find_spec(name) is None for name in packages)
