"""A program that asks a type checker about every name of the reference, both as an attribute and as an import."""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from pathlib import Path

from .pages import ROOT

# What a checker says of a name it knows nothing of, or not what its containers hold and functions take. Of a class with parameters
# of its own, `Dataset[T]`, it says the same until someone gives them.
UNKNOWN = re.compile(r"^Any$|^(?!type\[\w+\[Unknown\]\]$).*\bUnknown\b")


def write_names(folder: Path) -> Path:
    """Write the program. Lines that end in `# wrong` ask for names that are not there."""
    sys.path.insert(0, str(ROOT / "docs" / "_tools"))
    import reference

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [e for e in reference.entries() if e[1] != "tqdm"]  # another package's, without types
    homes = {s: re.sub("^torchvision", "torch.vision", s).replace("torch", "flambeau", 1) for s, _, _ in found}
    lines = [f"import {home}" for space, home in homes.items() if space != "torch.Tensor"]
    for i, (space, name, value) in enumerate(found):
        lines.append(f"reveal_type({homes[space]}.{name})")
        if inspect.isclass(value) and value.__name__ == name and not getattr(value, "__parameters__", ()):
            lines.append(f"reveal_type({homes[space]}.{name}.__init__)  # constructor")
        if space != "torch.Tensor":
            lines += [f"from {homes[space]} import {name} as n{i}", f"reveal_type(n{i})"]
    lines += [f"{home}.not_a_name_of_this  # wrong" for home in homes.values()]
    program = folder / "names.py"
    program.write_text("\n".join(lines) + "\n")
    return program
