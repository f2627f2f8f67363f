"""Stand-in for `mxnet`, limited to `mxnet.recordio`, for use where Flambeau stands in for other libraries."""

from __future__ import annotations

from typing import Any

from . import recordio

__all__ = ["recordio"]
__path__: list[str] = []  # `import mxnet.recordio` asks for a package


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"mxnet.{name} is not in Flambeau, which has mxnet.recordio only: install mxnet for the rest of it"
    )
