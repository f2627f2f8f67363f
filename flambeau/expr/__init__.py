"""Scalar formulas: build, simplify, differentiate."""

from .derivative import pullback
from .functions import *
from .node import Expr, arg, arguments, as_expr, binary, const, node, show, substitute, walk

__all__ = ["Expr", "arg", "arguments", "as_expr", "binary", "const", "node", "pullback", "show", "substitute", "walk"]
