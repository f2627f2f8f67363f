"""Sizes as expressions of symbols: `2*s77 + 1`.

A program is run with several sizes; `fitted` finds an expression for the numbers that were observed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any


class Symbol:
    """A dynamic size; `hint` is its value in the example."""

    def __init__(self, name: str, hint: int) -> None:
        self.name, self.hint = name, hint

    def __repr__(self) -> str:
        return self.name

    def __lt__(self, other: Symbol) -> bool:
        return self.name < other.name


Term = tuple[Symbol, ...]  # a product of symbols, sorted


class Expression:
    """A sum of products of symbols with whole coefficients, divided (rounding down) by a number."""

    def __init__(self, terms: int | Mapping[Term, int], divisor: int = 1) -> None:
        given = {(): terms} if isinstance(terms, int) else terms
        self.terms = {term: factor for term, factor in given.items() if factor}
        self.divisor = divisor

    @classmethod
    def of(cls, symbol: Symbol) -> Expression:
        return cls({(symbol,): 1})

    @property
    def symbols(self) -> list[Symbol]:
        return sorted({symbol for term in self.terms for symbol in term})

    @property
    def is_constant(self) -> bool:
        return not self.symbols

    def value(self, sizes: Mapping[Symbol, int]) -> int:
        """Evaluate the expression for given sizes."""
        total = sum(factor * math.prod(sizes[s] for s in term) for term, factor in self.terms.items())
        return total // self.divisor

    @property
    def hint(self) -> int:
        return self.value({s: s.hint for s in self.symbols})

    def __add__(self, other: int | Expression) -> Expression:
        more = other if isinstance(other, Expression) else Expression(other)
        whole, rest = (more, self) if self.divisor == 1 else (self, more)
        if rest.divisor != 1 or isinstance(whole, Product) or isinstance(rest, Product):
            raise NotImplementedError(f"a sum of expressions that are rounded down: {self} + {more}")
        found = dict(whole.terms)
        for term, factor in rest.terms.items():
            found[term] = found.get(term, 0) + factor * whole.divisor
        return Expression(found, whole.divisor)

    def __mul__(self, other: int) -> Expression:
        if self.divisor != 1:
            return Product([self], other)
        return Expression({term: factor * other for term, factor in self.terms.items()})

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Expression) and (self.terms, self.divisor) == (other.terms, other.divisor)

    def __hash__(self) -> int:
        return hash((frozenset(self.terms.items()), self.divisor))

    def _format_product(self, factor: int, term: Term) -> str:
        names = [s.name for s in term]
        return "*".join(([str(factor)] if factor != 1 or not names else []) + names)

    def __str__(self) -> str:
        order = sorted(self.terms.items(), key=lambda item: (not item[0], -len(item[0]), [s.name for s in item[0]]))
        text = ""
        for term, factor in order:
            sign = (" - " if factor < 0 else " + ") if text else ("-" if factor < 0 else "")
            text += sign + self._format_product(abs(factor), term)
        text = text or "0"
        if self.divisor == 1:
            return text
        return f"(({text})//{self.divisor})" if len(self.terms) == 1 else f"(({text})//{self.divisor})"

    __repr__ = __str__


class Product(Expression):
    """A product of expressions, some of which are rounded down, and a whole number."""

    def __init__(self, factors: Iterable[Expression], times: int = 1) -> None:
        super().__init__(0)
        self.factors, self.times = tuple(sorted(factors, key=str)), times

    @property
    def symbols(self) -> list[Symbol]:
        return sorted({symbol for factor in self.factors for symbol in factor.symbols})

    def value(self, sizes: Mapping[Symbol, int]) -> int:
        return self.times * math.prod(factor.value(sizes) for factor in self.factors)

    def __mul__(self, other: int) -> Expression:
        return Product(self.factors, self.times * other)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Product) and (self.factors, self.times) == (other.factors, other.times)

    def __hash__(self) -> int:
        return hash((self.factors, self.times))

    def __str__(self) -> str:
        texts = [str(f) if len(f.terms) < 2 or f.divisor != 1 else f"({f})" for f in self.factors]
        return "*".join(texts if self.times == 1 else [str(self.times), *texts])

    __repr__ = __str__


def _shapes_of(symbols: list[Symbol]) -> Iterator[list[Term]]:
    """Yield sets of products to try, simple ones first."""
    singles: list[Term] = [(s,) for s in symbols]
    yield from ([term] for term in singles)
    pairs: list[Term] = [tuple(sorted(p)) for p in itertools.combinations_with_replacement(symbols, 2)]
    yield from ([term] for term in pairs)
    yield from (list(two) for two in itertools.combinations(singles, 2))
    yield from ([tuple(sorted(p))] for p in itertools.combinations_with_replacement(symbols, 3))
    if len(symbols) > 2:
        yield singles


def fitted(numbers: list[int], runs: list[dict[Symbol, int]], symbols: Iterable[Symbol]) -> list[Expression]:
    """Return the simple expressions with these values for these sizes: more than one only of those that are rounded down."""
    if len(set(numbers)) == 1:
        return [Expression(numbers[0])]
    known = list(symbols)
    for terms in _shapes_of(known):
        found = _solve(terms, numbers, runs)
        if found is not None:
            return [found]
    for symbol in known:  # rounded down: s // 2
        fit = []
        for divisor in range(2, 65):
            least = max(number * divisor - run[symbol] for run, number in zip(runs, numbers))
            most = min((number + 1) * divisor - run[symbol] for run, number in zip(runs, numbers))
            offsets = range(max(least, -divisor), min(most, divisor + 1))
            fit += [Expression({(symbol,): 1, (): offset}, divisor) for offset in offsets]
        if fit:
            return fit
    return []


def factored(numbers: list[int], runs: list[dict[Symbol, int]], sizes: Iterable[Expression]) -> Product | None:
    """Return a product of some of these sizes with these values, or None."""
    known = list(dict.fromkeys(sizes))
    for count in (1, 2, 3):
        for factors in itertools.combinations_with_replacement(known, count):
            found = Product(factors)
            parts = [divmod(number, found.value(run) or number + 1) for run, number in zip(runs, numbers)]
            if len(set(parts)) == 1 and not parts[0][1]:
                return Product(factors, parts[0][0])
    return None


def _solve(terms: list[Term], numbers: list[int], runs: list[dict[Symbol, int]]) -> Expression | None:
    """Return integer coefficients for the terms and a constant, by elimination; None if there are none."""
    rows = [
        [Fraction(math.prod(run[s] for s in term)) for term in terms] + [Fraction(1), Fraction(number)]
        for run, number in zip(runs, numbers)
    ]
    width = len(terms) + 1
    for column in range(width):
        pivot = next((r for r in range(column, len(rows)) if rows[r][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [v / rows[column][column] for v in rows[column]]
        for r in range(len(rows)):
            if r != column and rows[r][column]:
                factor = rows[r][column]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[column])]
    solution = [rows[i][width] for i in range(width)]
    if any(v.denominator != 1 for v in solution) or any(row[width] for row in rows[width:]):
        return None
    found = Expression({**{t: int(v) for t, v in zip(terms, solution)}, (): int(solution[-1])})
    return found if all(found.value(run) == number for run, number in zip(runs, numbers)) else None
