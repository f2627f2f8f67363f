"""JSON from outside: what is nested so deeply that it exhausts the stack of whoever reads it is refused as what it is, a bad request."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

MAX_DEPTH = 500
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKETS = b"[{]}"
_OTHERS = bytes(set(range(256)) - set(_BRACKETS))
_STEPS = bytes.maketrans(_BRACKETS, bytes([1, 1, 255, 255]))  # 255 is -1 as a signed byte


class TooDeepError(ValueError):
    """JSON that is nested more deeply than anybody needs."""


def depth(text: bytes | bytearray) -> int:
    """The depth to which lists and objects are nested; brackets inside of strings do not count."""
    steps = _STRING.sub(b"", text).translate(_STEPS, _OTHERS)
    return max(itertools.accumulate(memoryview(steps).cast("b")), default=0)


def loads(text: bytes | bytearray | str) -> Any:
    """The values of a JSON text; TooDeepError, a ValueError, for one nested more deeply than MAX_DEPTH."""
    data = text.encode() if isinstance(text, str) else text
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and depth(data) > MAX_DEPTH:
        raise TooDeepError(f"The JSON is nested more than {MAX_DEPTH} deep.")
    try:
        return json.loads(text)
    except RecursionError as e:  # Python's own limit may be lower where the caller is deep in the stack
        raise TooDeepError("The JSON is nested too deeply.") from e
