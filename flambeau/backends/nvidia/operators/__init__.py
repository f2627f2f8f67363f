"""Kernels of operators on NVIDIA GPUs: every module of this package declares some with `@operator.on("cuda")`.

It is imported when the device is first used: it is above the operators, whose records it adds to. No module needs a GPU or CUDA."""

from __future__ import annotations

import importlib
import pkgutil

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")
