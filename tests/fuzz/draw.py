"""Random choices, and random tensors as Python source that both libraries read alike."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

FLOATS = ("float32", "float64", "float16", "bfloat16")
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
SIGNED = ("int64", "int32", "int16", "int8")
INTEGERS = (*SIGNED, "uint8")
UNSIGNED = ("uint16", "uint32", "uint64")
COMPLEX = ("complex64", "complex128")
COMMON = ("float32", "float32", "float32", "float64", "int64", "bool", "uint8", "int32", "float16", "bfloat16", "complex64")  # fmt: skip
EVERY = (*FLOATS, *INTEGERS, *UNSIGNED, "bool", *COMPLEX, "complex32", *FLOAT8)

SPECIAL = ("nan", "inf", "-inf", "0.0", "-0.0", "1e-40", "-1e-45", "1e-8", "1e10", "-65504.0", "0.5", "1.0", "-1.0", "88.0", "2.5")  # fmt: skip
LARGEST = 40  # elements that are written out


class Draw:
    """Random choices of one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def among(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def shape(self, low: int = 0, high: int = 4, most: int = 4) -> tuple[int, ...]:
        """Sizes of which few are 0 and some are 1."""
        return tuple(self.size(most) for _ in range(self.number(low, high)))

    def size(self, most: int = 4) -> int:
        return 0 if self.chance(0.03) else 1 if self.chance(0.15) else self.number(1, most)

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that can be broadcast to the given one, most times."""
        sizes = [1 if self.chance(0.25) else n for n in shape]
        if self.chance(0.03) and sizes:
            sizes[self.number(0, len(sizes) - 1)] += 1
        return tuple(sizes[self.number(0, len(sizes)) if self.chance(0.2) else 0 :])

    def dim(self, rank: int) -> int:
        """A dimension, one of few that there are not."""
        if self.chance(0.03):
            return self.among(rank, -rank - 1)
        return self.number(-max(rank, 1), max(rank, 1) - 1)

    def options(self, likely: float = 0.5, /, **given: Any) -> str:
        """Some of the keyword arguments, as they are written in a call: values are source, or tuples of choices."""
        kept = [
            f", {key}={self.among(*value) if isinstance(value, tuple) else value}"
            for key, value in given.items()
            if self.chance(likely)
        ]
        return "".join(kept)

    def value(self, dtype: str, kind: str) -> str:
        """One element: "plain" ones are multiples of 1/8 that every dtype holds, "special" are extremes, "positive" above zero."""
        special = kind == "special" and self.chance(0.5)
        if dtype == "bool":
            return self.among("True", "False")
        if dtype.startswith("complex"):
            part = dtype.replace("complex", "float")
            return f"complex({self.value(part, kind)}, {self.value(part, kind)})"
        if "int" in dtype:
            low, high = int_range(dtype)
            if special:
                return str(self.among(low, low + 1, high, high - 1, 0, 1, high // 2, max(low, -1)))
            return str(self.number(1 if kind == "positive" else max(low, -3), 5))
        if special:
            return self.among(*SPECIAL)
        eighths = self.number(1, 16) if kind == "positive" else self.number(-16, 16)
        return repr(eighths / 8)

    def content(self, shape: Sequence[int], dtype: str, kind: str) -> str:
        if not shape:
            return self.value(dtype, kind)
        return "[" + ", ".join(self.content(shape[1:], dtype, kind) for _ in range(shape[0])) + "]"

    def dense(self, shape: Sequence[int], dtype: str, kind: str = "plain") -> str:
        """A contiguous tensor."""
        count = 1
        for n in shape:
            count *= n
        if count > LARGEST and kind != "special":
            low = 1 if kind == "positive" else -9
            base = f"((torch.arange({count}) * {self.among(7, 11, 13)} % 19 + {low}) / 8).reshape({tuple(shape)})"
            return f"{base}.to(torch.{dtype})"
        if count == 0:
            return f"torch.zeros({tuple(shape)}, dtype=torch.{dtype})"
        return f"torch.tensor({self.content(shape, dtype, kind)}, dtype=torch.{dtype})"

    def tensor(
        self, shape: Sequence[int], dtype: str = "float32", kind: str = "plain", layout: str = "any", grad: bool = False
    ) -> str:
        """A tensor in some layout: contiguous, transposed, part of another, expanded, channels last."""
        text = self.dense(shape, dtype, kind) if layout == "dense" else self._laid_out(list(shape), dtype, kind)
        floats = dtype.startswith(("float", "bfloat", "complex"))
        return f"{text}.requires_grad_()" if grad and floats else text

    def _laid_out(self, shape: list[int], dtype: str, kind: str) -> str:
        way = self.number(0, 9)
        if not shape or way < 5:
            return self.dense(shape, dtype, kind)
        at = self.number(0, len(shape) - 1)
        if way == 5 and len(shape) > 1:
            other = self.number(0, len(shape) - 1)
            shape[at], shape[other] = shape[other], shape[at]
            return f"{self.dense(shape, dtype, kind)}.transpose({at}, {other})"
        if way == 6:
            shape[at] += 1
            part = ":, " * at + ("1:" if self.chance(0.7) else ":-1")
            return f"{self.dense(shape, dtype, kind)}[{part}]"
        if way == 7:
            shape[at] = max(2 * shape[at] - 1, 0)
            return f"{self.dense(shape, dtype, kind)}[{':, ' * at}::2]"
        if way == 8 and shape[at] == 1:
            return f"{self.dense(shape, dtype, kind)}.expand({', '.join(map(str, shape))})"
        if way == 9 and len(shape) in (4, 5):
            form = "channels_last" if len(shape) == 4 else "channels_last_3d"
            return f"{self.dense(shape, dtype, kind)}.contiguous(memory_format=torch.{form})"
        return self.dense(shape, dtype, kind)

    def kind(self) -> str:
        return "special" if self.chance(0.2) else "plain"


def int_range(dtype: str) -> tuple[int, int]:
    bits = int(dtype.strip("uint"))
    return (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
