"""Tools beside tensors and modules; each is imported when first used."""

import importlib as _importlib

# The function has its module's name: imported here, so that `utils.summary` is always the function.
from .summary import summary as summary


def __getattr__(name: str):  # type: ignore[no-untyped-def]
    if not name.startswith("_"):
        full = f"{__name__}.{name}"
        try:
            return _importlib.import_module(full)
        except ModuleNotFoundError as problem:
            if problem.name != full:
                raise
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
