"""Parameters of sparse kernels written in Triton, by size. Kernels are compiled by Flambeau itself, so there are none to tune."""

from __future__ import annotations

from typing import Any, NoReturn


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(f"torch.sparse._triton_ops_meta.{name}: there are no Triton kernels in Flambeau")


def get_meta(op: str, key: Any, device_name: str | None = None, version: Any = (0,), exact: bool = False) -> Any:
    """Return None: no parameters are stored for any key."""
    return None


def minimize(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise an error: there are no kernels to tune."""
    _refuse("minimize")


def update(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise an error: there are no parameters to store."""
    _refuse("update")
