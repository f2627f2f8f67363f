"""Counts of floating point operations, by operator and by module.

>>> with FlopCounterMode(display=False) as counter:
...     y = flambeau.ones(2, 3) @ flambeau.ones(3, 4)
>>> counter.get_total_flops()
48

The formula of an operator is in its record (`flops=` of its declaration); `register_flop_formula` adds others, or replaces it."""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from ..core import modes
from ..core.pytree import tree_map
from ..core.tensor import Tensor
from ..library.aten import OpOverloadPacket, aten
from ..utils.module_tracker import ModuleTracker
from .recorder import operator_name

__all__ = ["FlopCounterMode", "register_flop_formula"]

flop_registry: dict[Any, Callable[..., Any]] = {}  # formulas that were registered, by operator
_SUFFIXES = ["", "K", "M", "B", "T"]


def get_shape(value: Any) -> Any:
    """Return the shape of a tensor; other values unchanged."""
    return value.shape if isinstance(value, Tensor) else value


def shape_wrapper(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Convert a formula of shapes to one of tensors."""

    @functools.wraps(formula)
    def of_tensors(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        shapes, named, out_shape = tree_map(get_shape, (args, kwargs, out_val))
        return formula(*shapes, out_shape=out_shape, **named)

    return of_tensors


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: register a formula for the FLOPs of these operators (`torch.ops.aten.mm`). It receives the shapes of a call's arguments
    and `out_shape`; with `get_raw`, the tensors and `out_val`."""

    def register(formula: Callable[..., Any]) -> Callable[..., Any]:
        counted = formula if get_raw else shape_wrapper(formula)
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            if not isinstance(target, OpOverloadPacket) and not hasattr(target, "overloads"):
                raise ValueError(
                    "register_flop_formula(targets): expected each target to be OpOverloadPacket (i.e. torch.ops.mylib.foo),"
                    f" JitFunction, or HigherOrderOperator, got {target} which is of type {type(target)}"
                )
            if target in flop_registry:
                raise RuntimeError(f"duplicate registrations for {target}")
            flop_registry[target] = counted
        return counted

    return register


def get_suffix_str(number: int) -> str:
    """Return the unit that a number is shown in; with some digits to spare, 1001M rather than 1.001B."""
    return _SUFFIXES[max(0, min(len(_SUFFIXES) - 1, (len(str(number)) - 2) // 3))]


def convert_num_with_suffix(number: float, suffix: str) -> str:
    return f"{number / 1000 ** _SUFFIXES.index(suffix):.3f}{suffix}"


def convert_to_percent_str(num: float, denom: float) -> str:
    return "0%" if denom == 0 else f"{num / denom:.2%}"


class FlopCounterMode:
    """Context manager: count the operations inside, and print a table on exit unless `display=False`; the table has modules down to a
    `depth`. `custom_mapping` has formulas for further operators (see register_flop_formula)."""

    def __init__(
        self, mods: Any = None, depth: int = 2, display: bool = True,
        custom_mapping: dict[Any, Callable[..., Any]] | None = None,
    ) -> None:  # fmt: skip
        if mods is not None:
            warnings.warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.depth, self.display = depth, display
        own = {k: v if getattr(v, "_get_raw", False) else shape_wrapper(v) for k, v in (custom_mapping or {}).items()}
        self.flop_registry = {**flop_registry, **own}
        self.mod_tracker = ModuleTracker()
        self.mode: _Counting | None = None

    def get_total_flops(self) -> int:
        """Return the number of floating-point operations counted so far."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """Return the counts by module and operator; "Global" is everything."""
        return {module: dict(counts) for module, counts in self.flop_counts.items()}

    def count(self, operator: Any, flops: int) -> None:
        """Add to the counts of the modules that are running."""
        for module in self.mod_tracker.parents:
            self.flop_counts[module][operator] += flops

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self.mod_tracker.__enter__()
        self.mode = _Counting(self)
        self.mode.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.mode is None:
            raise AssertionError("Internal error: FlopCounter.__exit__ called but mode is None")
        self.mode.__exit__(*exc)
        self.mode = None
        self.mod_tracker.__exit__()
        if self.display:
            print(self.get_table(self.depth))

    # -- the table ----------------------------------------------------------------------------------------------------
    def get_table(self, depth: int | None = None) -> str:
        """Return the counts as text, modules down to `depth`."""
        deepest = depth if depth is not None else self.depth if self.depth is not None else 999999
        total = self.get_total_flops()
        shown = [m for m in sorted(self.flop_counts) if m != "Global" and m.count(".") < deepest]
        rows = [row for module in shown for row in self._rows(module, total)]
        whole = any(sum(self.flop_counts[m].values()) >= total for m in shown)
        if "Global" in self.flop_counts and not whole:
            rows = [*self._rows("Global", total), *rows]
        return _align_columns([("Module", "FLOP", "% Total"), *(rows or [("Global", "0", "0%")])])

    def _rows(self, module: str, total: int) -> list[tuple[str, str, str]]:
        counts, unit = self.flop_counts[module], get_suffix_str(total)
        entries = [(module, sum(counts.values())), *((f"- {op}", n) for op, n in counts.items())]
        # Plain numbers are marked as such.
        told = (lambda n: convert_num_with_suffix(n, unit)) if unit.strip() else "{:g}".format
        return [(name, told(n), convert_to_percent_str(n, total)) for name, n in entries]


def _align_columns(rows: list[tuple[str, str, str]]) -> str:
    """Return columns under a heading and a rule: names to the left, numbers to the right."""
    first, second, third = (max(len(title) + 2, *(len(row[i]) for row in rows)) for i, title in enumerate(rows[0]))
    lines = [f"{a:<{first}}  {b:>{second}}  {c:>{third}}" for a, b, c in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in (first, second, third)), *lines[1:]])


class _Counting(modes.Mode):
    """Mode that decomposes composite operators and counts those whose record has a formula."""

    def __init__(self, counter: FlopCounterMode) -> None:
        self.counter = counter

    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        # A user's operator, or one of PyTorch's.
        packet = op.function if "::" in op.name else _packet(operator_name(op))
        formula = None if packet is None else self.counter.flop_registry.get(packet)
        if formula is None and op.flops is None and op.kind == "composite":
            return self.through(function, args, kwargs)
        result = function(*args, **kwargs)
        if formula is not None:
            self.counter.count(packet, formula(*args, **kwargs, out_val=result))
        elif op.flops is not None:
            name, flops = op.flops(*op.bind(args, {k: v for k, v in kwargs.items() if k != "out"}).values(), result)
            if name:
                self.counter.count(_packet(f"aten::{name}"), flops)
        return result


@functools.cache
def _packet(name: str) -> Any:
    """Return `torch.ops.aten.mm` for "aten::mm"; None if PyTorch has no such operator."""
    space, _, short = name.partition("::")
    return getattr(aten, short, None) if space == "aten" else None
