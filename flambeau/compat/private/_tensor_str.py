"""Parts of the printed form of tensors, which other libraries use for their own classes."""

from __future__ import annotations

from typing import Any

from ...core import printing
from ...core.print_options import options as PRINT_OPTS
from ...core.print_options import printoptions, set_printoptions

__all__ = ["PRINT_OPTS", "printoptions", "set_printoptions"]


def _str(self: Any, *, tensor_contents: str | None = None) -> str:
    """Return the printed form of a tensor, with other contents in place of its own."""
    return self.__repr__(tensor_contents=tensor_contents)


_str_intern = _str


def _tensor_str(self: Any, indent: int) -> str:
    """Return the elements of a tensor in brackets, lines after the first indented."""
    host = self.detach().resolve_conj().resolve_neg().cpu()
    return printing.body(host._array(), host.dtype, host.shape, indent)


def _add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """Return the text followed by `, name=value` suffixes, on new lines if they do not fit, and a closing bracket."""
    return printing.assemble("", tensor_str, suffixes, indent, force_newline)
