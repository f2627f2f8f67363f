"""Sizes as text, in the form of PyTorch's files: `Add(Mul(Integer(2), Symbol('s77', positive=True, integer=True)), Integer(1))`."""

from __future__ import annotations

import ast
import math
from typing import Any

from .symbols import Expression, Product, Symbol


def written(value: Expression) -> str:
    """Format an expression as text."""
    if isinstance(value, Product):
        factors = [f"Integer({value.times})"] if value.times != 1 else []
        factors += map(written, value.factors)
        return factors[0] if len(factors) == 1 else f"Mul({', '.join(factors)})"
    pieces = [
        _product(term, factor)
        for term, factor in sorted(value.terms.items(), key=lambda item: [s.name for s in item[0]])
    ]
    total = pieces[0] if len(pieces) == 1 else f"Add({', '.join(pieces)})"
    return total if value.divisor == 1 else f"FloorDiv({total}, Integer({value.divisor}))"


def _product(term: tuple[Symbol, ...], factor: int) -> str:
    names = [f"Symbol('{s.name}', positive=True, integer=True)" for s in term]
    if factor != 1 or not names:
        names.insert(0, f"Integer({factor})")
    return names[0] if len(names) == 1 else f"Mul({', '.join(names)})"


def read(text: str, hint: int, symbols: dict[str, Symbol]) -> Any:
    """Parse an expression; None if its form is not supported."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{text[:80]!r} is no expression") from None
    return _read(tree, hint, symbols)


def _read(tree: ast.AST, hint: int, symbols: dict[str, Symbol]) -> Any:
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        return None
    name, args = tree.func.id, tree.args
    if name == "Symbol" and args and isinstance(args[0], ast.Constant) and isinstance(args[0].value, str):
        symbol = symbols.setdefault(args[0].value, Symbol(args[0].value, hint))
        return Expression.of(symbol)
    if name == "Integer" and args:
        number = ast.literal_eval(args[0])
        return Expression(number) if isinstance(number, int) else None
    parts = [_read(arg, hint, symbols) for arg in args]
    if any(part is None for part in parts) or not parts:
        return None
    if name == "Add":
        try:
            return sum(parts[1:], parts[0])
        except NotImplementedError:
            return None
    if name == "Mul":
        return _multiply(parts)
    if name == "FloorDiv" and len(parts) == 2 and parts[1].is_constant and not isinstance(parts[0], Product):
        return Expression(parts[0].terms, parts[0].divisor * parts[1].terms.get((), 1))
    return None


def _multiply(parts: list[Expression]) -> Expression:
    if any(part.divisor != 1 or isinstance(part, Product) for part in parts):
        constants = [part for part in parts if part.is_constant]
        factors = [f for p in parts if not p.is_constant for f in getattr(p, "factors", (p,))]
        times = math.prod(getattr(p, "times", 1) for p in parts)
        return Product(factors, times * math.prod(part.hint for part in constants))
    found: dict[tuple[Symbol, ...], int] = {(): 1}
    for part in parts:
        found = {tuple(sorted((*a, *b))): x * y for a, x in found.items() for b, y in part.terms.items()}
    return Expression(found)
