"""Runs cases and writes what they found: `python runner.py OUT.npz OWN_FOLDER OTHER_FOLDER case ...`, with PyTorch, or with
`python -m flambeau runner.py ...`.

A case is `transformers/bert` or the name of a function of `programs.py`. Nothing here knows which of the two libraries `torch` is.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import traceback
import warnings
from typing import Any

import numpy as np


def plain(value: Any) -> np.ndarray:
    """A result as an array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        return value.float().numpy() if str(value.dtype) == "torch.bfloat16" else value.numpy().copy()
    return np.asarray(value)


def run(case: str, own: str, other: str | None) -> dict[str, Any]:
    library, _, name = case.partition("/")
    if library == "transformers":
        return importlib.import_module("transformers_models").run(name, own, other)
    return getattr(importlib.import_module("programs"), library)(own, other)


def main(out: str, own: str, other: str, *cases: str) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.makedirs(own, exist_ok=True)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    warnings.simplefilter("ignore")
    table: dict[str, np.ndarray] = {}
    for case in cases:
        start = time.process_time()
        try:
            found = run(case, own, None if other == "-" else other)
            table.update({f"{case}:{key}": plain(value) for key, value in found.items()})
        except Exception:  # told with the other results: one case must not hide the rest
            table[f"{case}:error"] = np.asarray(traceback.format_exc())
        table[f"{case}:seconds"] = np.asarray(time.process_time() - start)
    np.savez(out, **table)


if __name__ == "__main__":
    main(*sys.argv[1:])
