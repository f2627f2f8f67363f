"""Classes that TorchScript knows by a name and by the schemas of their methods, without source: PyTorch's are written in C++."""

from __future__ import annotations

from typing import Any, ClassVar

PREFIX = "__torch__.torch.classes."


class CustomClass:
    """Base of classes that TorchScript knows by schemas. `schemas` maps each method to its schema and the class of its result; `script_names`
    maps a name to the Python method that runs, if that has another name."""

    schemas: ClassVar[dict[str, tuple[str, type | None]]] = {}
    script_names: ClassVar[dict[str, str]] = {}

    @classmethod
    def script_name(cls) -> str:
        """Return the full name that is written to files."""
        return f"{cls.__module__}.{cls.__qualname__}"

    def __repr__(self) -> str:
        return f"<torch.ScriptObject object of {type(self).script_name()}>"


def scripted(kind: Any) -> Any:
    """Return the base class that declares the schemas: its subclasses have its type in TorchScript."""
    return next(base for base in kind.__mro__ if "schemas" in base.__dict__)
