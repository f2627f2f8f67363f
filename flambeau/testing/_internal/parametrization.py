"""Parametrized tests. A test has, in `_variants`, a function that lists its variants."""

from __future__ import annotations

import functools
import inspect
import re
import unittest
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# (part of the name, keyword arguments, decorators)
Variant = tuple[str, dict[str, Any], list[Callable]]


class subtest:  # noqa: N801 - PyTorch's name
    """Value of a test's parameter, with its own name or decorators."""

    def __init__(self, arg_values: Any, name: str | None = None, decorators: Iterable[Callable] | None = None):
        self.arg_values, self.name, self.decorators = arg_values, name, list(decorators or ())


def text_of(value: Any) -> str:
    shown = getattr(value, "__name__", None) or str(value)
    shown = re.sub(r" at 0x[0-9a-f]+", "", shown)  # the same in every process
    return "".join(c if c.isalnum() or c in "_-" else "_" for c in shown.replace("torch.", ""))


def add_variants(test: Callable, more: Callable[[], Iterator[Variant]], first: bool = False) -> Callable:
    """Combine the existing variants of a test with each of `more`; the names of the latter come `first` or last."""
    before = getattr(test, "_variants", None)

    def product() -> Iterator[Variant]:
        for name, arguments, decorators in more():
            if before is None:
                yield name, arguments, decorators
            else:
                for inner_name, inner_arguments, inner_decorators in before():
                    yield (
                        "_".join(filter(None, [name, inner_name] if first else [inner_name, name])),
                        {**inner_arguments, **arguments},
                        inner_decorators + decorators,
                    )

    test._variants = product  # type: ignore[attr-defined]
    return test


def parametrize(arg_str: str, arg_values: Iterable[Any], name_fn: Callable | None = None) -> Callable:
    names = [name.strip() for name in arg_str.split(",") if name.strip()]
    values = list(arg_values)

    def variants() -> Iterator[Variant]:
        for value in values:
            given = value if isinstance(value, subtest) else subtest(value)
            parts = given.arg_values if len(names) > 1 else [given.arg_values]
            if name_fn is not None and given.name is None:
                title = name_fn(*parts)
            else:
                title = given.name or "_".join(f"{name}_{text_of(part)}" for name, part in zip(names, parts))
            yield title, dict(zip(names, parts)), given.decorators

    return lambda test: add_variants(test, variants, first=True)


class _TestParametrizer:
    """Base of decorators that make variants from the database of operators, which is empty here."""

    def __call__(self, test: Callable) -> Callable:
        return test


def reparametrize(parametrizer: Callable, adapter_fn: Callable) -> Callable:
    return lambda test: unittest.skip("reparametrize is not written")(test)


def decorateIf(decorator: Callable, predicate_fn: Callable[[dict], bool]) -> Callable:  # noqa: N802
    """Decorate the variants for whose arguments the predicate holds."""

    def decorate(test: Callable) -> Callable:
        test._conditional = [*getattr(test, "_conditional", []), (decorator, predicate_fn)]  # type: ignore[attr-defined]
        return test

    return decorate


def made_for(test: Callable, name: str, arguments: dict[str, Any], decorators: list[Callable]) -> Callable:
    """Make the test method of one variant."""

    @functools.wraps(test)
    def method(self: Any) -> Any:
        return test(self, **arguments)

    del method.__wrapped__  # its signature is its own
    method.__name__ = name
    chosen = [decorator for decorator, holds in getattr(test, "_conditional", []) if holds(arguments)]
    result: Callable = method
    for decorator in [*decorators, *chosen]:
        result = decorator(result)
    return result


def variants_of(test: Callable) -> list[Variant]:
    variants = getattr(test, "_variants", None)
    return [("", {}, [])] if variants is None else list(variants())


def tests_of(cls: type) -> dict[str, Callable]:
    return {name: value for name, value in inspect.getmembers(cls, callable) if name.startswith("test")}


def put(cls: type, name: str, method: Callable) -> None:
    """Add a test under its name, numbered if the name exists because values print alike."""
    unique, count = name, 0
    while unique in vars(cls):
        count += 1
        unique = f"{name}_{count}"
    method.__name__ = unique
    setattr(cls, unique, method)


def instantiate_parametrized_tests(generic_cls: type) -> type:
    for name, test in list(vars(generic_cls).items()):
        if name.startswith("test") and hasattr(test, "_variants"):
            delattr(generic_cls, name)
            for title, arguments, decorators in variants_of(test):
                full = "_".join(filter(None, [name, title]))
                put(generic_cls, full, made_for(test, full, arguments, decorators))
    return generic_cls
