"""Random choices for the statements of random programs: tensors alive, dimensions, positions, numbers, views.

Choices look at PyTorch's tensors (shapes, dtypes), so that most lines are valid; a few are wrong on purpose."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

FLOATS = ("float32", "float64")
SMALL_FLOATS = ("float16", "bfloat16")
INTEGERS = ("int64", "int32", "uint8", "int8", "int16")
COMPLEX = ("complex64", "complex128")
COMMON = ("float32", "float32", "float64", "int64", "bool", "int32", "uint8", "float16", "bfloat16", "complex64")


class Choice:
    """Random choices that know the tensors alive (PyTorch's, by name)."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tensors: dict[str, Any] = {}
        self.counter = 0

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def among(self, options: Any) -> Any:
        return self.random.choice(list(options))

    def fresh(self) -> str:
        self.counter += 1
        return f"t{self.counter}"

    def pick(self, *conditions: Callable[[Any], bool]) -> str:
        """The name of a tensor that meets the conditions, if there is one; recent tensors are more likely."""
        names = [n for n, t in self.tensors.items() if all(c(t) for c in conditions)] or list(self.tensors)
        return self.among([*names, *names[-3:]])

    def dim(self, t: Any, extra: int = 0) -> int:
        rank = t.dim() + extra
        if self.chance(0.02):
            return self.among((rank, -rank - 1, 7))
        return self.random.randrange(-rank, rank) if rank else self.among((0, -1))

    def size(self, t: Any, d: int) -> int:
        return t.shape[d] if t.dim() and -t.dim() <= d < t.dim() else 1

    def position(self, n: int) -> int:
        if n == 0 or self.chance(0.02):
            return self.among((n, -n - 1))
        return self.random.randrange(-n, n)

    def slice(self, n: int) -> str:
        start = self.among(("", self.random.randrange(-n - 1, n + 1)))
        stop = self.among(("", "", self.random.randrange(-n - 1, n + 2)))
        return f"{start}:{stop}" + self.among(("", "", ":2", ":3"))

    def number(self) -> str:
        return self.among(("2", "-1", "0", "3", "0.5", "-1.5", "2.0", "True", "1", "1.25", "-2", "(1+2j)", "1e-3"))

    def real_number(self) -> str:
        return self.among(("2", "-1", "0", "0.5", "-1.5", "1", "1.25", "True"))

    def dtype(self) -> str:
        return "torch." + self.among((*COMMON, "complex128", "int16", "int8"))

    def like(self, name: str) -> str:
        """A tensor that broadcasts with the named one: live, a number, or made from it."""
        shape = tuple(self.tensors[name].shape)
        fitting = [n for n, t in self.tensors.items() if broadcasts(tuple(t.shape), shape)]
        return self.among((*fitting, *fitting, self.number(), f"torch.tensor({self.number()})", self.made(shape)))

    def made(self, shape: tuple[int, ...], dtype: str | None = None) -> str:
        dtype = dtype or self.among(COMMON)
        return f"make({dtype!r}, {shape}, {self.random.randrange(1000)})"

    def shape(self) -> tuple[int, ...]:
        rank = self.among((0, 1, 1, 2, 2, 2, 3, 3, 4))
        return tuple(self.among((1, 2, 2, 3, 3, 4, 5)) if self.chance(0.97) else 0 for _ in range(rank))

    def permutation(self, n: int) -> list[int]:
        return self.random.sample(range(n), n)


def broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b)))


def is_float(t: Any) -> bool:
    return t.is_floating_point()


def is_integral(t: Any) -> bool:
    return not t.is_floating_point() and not t.is_complex()


def is_complex(t: Any) -> bool:
    return t.is_complex()


def is_inexact(t: Any) -> bool:
    return t.is_floating_point() or t.is_complex()


def tracked(t: Any) -> bool:
    return t.requires_grad


def tame(t: Any) -> bool:
    """Small finite numbers: what other conversions to integers give is not defined."""
    return t.numel() == 0 or (t.is_complex() is False and bool((t.detach().double().abs() < 100).all()))


def ranked(least: int, most: int = 9) -> Callable[[Any], bool]:
    return lambda t: least <= t.dim() <= most


def divisors(n: int) -> list[int]:
    return [k for k in range(1, n + 1) if n % k == 0]


# -- views -----------------------------------------------------------------------------------------------------------
def view_expression(c: Choice, name: str | None = None) -> str:
    """An expression that is a view of a live tensor."""
    name = name or c.pick(ranked(1))
    t = c.tensors[name]
    return f"{name}{c.among(VIEWS)(c, t)}"


def _narrow(c: Choice, t: Any) -> str:
    d = c.dim(t)
    n = c.size(t, d)
    start = c.random.randrange(n + 1)
    return f".narrow({d}, {start}, {c.random.randrange(n - start + 1) + c.chance(0.02)})"


def _index(c: Choice, t: Any) -> str:
    parts: list[str] = []
    for n in t.shape[: c.random.randrange(t.dim() + 1)]:
        parts.append(c.among((str(c.position(n)), c.slice(n), c.slice(n), ":")))
    if c.chance(0.2):
        parts.insert(c.random.randrange(len(parts) + 1), "None")
    if c.chance(0.15):
        parts.append("...")
    return f"[{', '.join(parts) or '...'}]"


def _reshape(c: Choice, t: Any) -> str:
    n, parts = t.numel(), []
    for _ in range(c.random.randrange(1, 4)):
        parts.append(c.among(divisors(n) or [0]))
        n = n // parts[-1] if parts[-1] else 0
    parts.append(n)
    if c.chance(0.3):
        parts[c.random.randrange(len(parts))] = -1
    return f".{c.among(('view', 'reshape', 'reshape'))}({', '.join(map(str, parts))})"


def _expand(c: Choice, t: Any) -> str:
    sizes = [c.among((-1, n)) if n != 1 else c.among((2, 3, 1, -1)) for n in t.shape]
    return f".expand({[2] * c.chance(0.3) + sizes})"


def _unfold(c: Choice, t: Any) -> str:
    d = c.dim(t)
    return f".unfold({d}, {c.random.randrange(c.size(t, d) + 1)}, {c.among((1, 1, 2))})"


def _strided(c: Choice, t: Any) -> str:
    room = t.numel() - 1
    sizes, strides = [], []
    for _ in range(c.random.randrange(3)):
        stride = c.among((0, 1, 1, 2, 3))
        size = c.among((1, 2, 3)) if stride == 0 else c.random.randrange(max(room, 0) // stride + 1) + 1
        sizes.append(min(size, 5))
        strides.append(stride)
        room -= (sizes[-1] - 1) * stride
    offset = c.among(("", f", {c.random.randrange(max(room, 0) + 1)}"))
    return f".as_strided({sizes}, {strides}{offset})"


def _two_dims(c: Choice, t: Any) -> tuple[int, int]:
    if t.dim() < 2:
        return 0, 1 if c.chance(0.1) else 0
    first, second = c.random.sample(range(t.dim()), 2)
    return first, second


def _piece(c: Choice, t: Any) -> str:
    d = c.dim(t)
    n = c.size(t, d)
    parts = c.random.randrange(1, 4)
    how = c.among((f"chunk({parts}, {d})", f"split({parts}, {d})", f"unbind({d})", f"tensor_split({parts}, {d})"))
    return f".{how}[{c.among((0, -1))}]" if n else f".chunk(2, {d})[0]"


def _select(c: Choice, t: Any) -> str:
    d = c.dim(t)
    return f".select({d}, {c.position(c.size(t, d))})"


VIEWS: tuple[Callable[[Choice, Any], str], ...] = (
    _narrow,
    _index,
    _index,
    _index,
    _reshape,
    _reshape,
    _expand,
    _unfold,
    _strided,
    _piece,
    _piece,
    _select,
    lambda c, t: f".transpose({c.dim(t)}, {c.dim(t)})",
    lambda c, t: f".permute({c.permutation(t.dim())})",
    lambda c, t: ".diagonal({}, {}, {})".format(c.among((0, 1, -1)), *_two_dims(c, t)),
    lambda c, t: f".unsqueeze({c.dim(t, 1)})",
    lambda c, t: c.among((".squeeze()", f".squeeze({c.dim(t)})")),
    lambda c, t: f".movedim({c.dim(t)}, {c.dim(t)})",
    lambda c, t: f".flatten({c.among((0, 0, 1))})",
    lambda c, t: f".swapaxes({c.dim(t)}, {c.dim(t)})",
    lambda c, t: c.among((".detach()", f".view_as(torch.ones({tuple(t.shape)}))", ".mT", ".ravel()", ".data")),
    lambda c, t: c.among((".real", ".imag")) if t.is_complex() else c.among((".real", ".adjoint()", ".conj()")),
    lambda c, t: "[...]",
    lambda c, t: f".unflatten({c.dim(t)}, (1, -1))",
)


def view(c: Choice) -> str:
    if c.chance(0.05):
        name = c.pick(is_complex)
        return f"{c.fresh()} = torch.view_as_real({name})"
    return f"{c.fresh()} = {view_expression(c)}"
