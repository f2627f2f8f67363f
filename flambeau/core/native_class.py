"""Classes that TorchScript knows by a name and by the schemas of their methods, not by source: PyTorch's are written in C++."""

from __future__ import annotations

from typing import Any, ClassVar

PREFIX = "__torch__.torch.classes."


class CustomClass:
    """The base of such classes. `schemas` says for each method what it takes and gives, and of which such class its result
    is; `script_names` which method of Python's runs, where that has another name."""

    schemas: ClassVar[dict[str, tuple[str, type | None]]] = {}
    script_names: ClassVar[dict[str, str]] = {}

    @classmethod
    def script_name(cls) -> str:
        """The full name, which files have."""
        return f"{cls.__module__}.{cls.__qualname__}"

    def __repr__(self) -> str:
        return f"<torch.ScriptObject object of {type(self).script_name()}>"


def scripted(kind: Any) -> Any:
    """The class that declares the schemas: others that derive from it are of its type in TorchScript."""
    return next(base for base in kind.__mro__ if "schemas" in base.__dict__)
