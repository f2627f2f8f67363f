"""Printed forms of modules: text, and the tree that notebooks show, with the number and shapes of parameters."""

from __future__ import annotations

from html import escape
from typing import Any

from ...core.tensor import Tensor
from ..parameter import is_lazy

_OPEN_LEVELS = 2  # levels of the tree that are unfolded at first


class Text:
    """The printed forms of a module: PyTorch's text, and HTML for notebooks."""

    _modules: dict[str, Any]

    def extra_repr(self) -> str:
        """Return the text between the parentheses of the printed module."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        child_lines = []
        for name, child in self._modules.items():
            text = repr(child).replace("\n", "\n  ")
            child_lines.append(f"({name}): {text}")
        lines = extra_lines + child_lines
        if not lines:
            return self._get_name() + "()"
        if len(extra_lines) == 1 and not child_lines:
            return f"{self._get_name()}({extra_lines[0]})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"

    def _repr_html_(self) -> str:
        return f"<div style='font-family:monospace;font-size:12px'>{_tree(self, '', 0)}</div>"


def _tree(module: Any, name: str, level: int) -> str:
    title = _title(module, name)
    rows = [
        f"<div style='margin-left:20px;opacity:.75'>{escape(key)}: {_shape(p)}{'' if p.requires_grad else ', frozen'}</div>"
        for key, p in module._parameters.items()
        if p is not None
    ]
    rows += [_tree(child, key, level + 1) for key, child in module._modules.items() if child is not None]
    if not rows:
        return f"<div style='margin-left:20px'>{title}</div>"
    opened = " open" if level < _OPEN_LEVELS and module._modules else ""
    return f"<details style='margin-left:{20 if level else 0}px'{opened}><summary>{title}</summary>{''.join(rows)}</details>"


def _title(module: Any, name: str) -> str:
    parameters = list(module.parameters())
    known = sum(p.numel() for p in parameters if not is_lazy(p))
    count = f"{known:,} parameters" if parameters else ""
    extra = escape(module.extra_repr().replace("\n", ", "))
    label = f"({escape(name)}) " if name else ""
    return f"{label}<b>{escape(module._get_name())}</b>({extra}) <span style='opacity:.75'>{count}</span>"


def _shape(parameter: Tensor) -> str:
    return "not yet known" if is_lazy(parameter) else " &times; ".join(map(str, parameter.shape)) or "one number"
