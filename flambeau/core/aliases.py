"""Types that many signatures share.

`AnyFunction` is a function whose arguments depend on the operator; `Values` are the operands or arguments of one call, in order: tensors,
numbers, texts, None, or sequences of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

AnyFunction: TypeAlias = Callable[..., Any]
Values: TypeAlias = tuple[Any, ...]
