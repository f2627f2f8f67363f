"""JSON from untrusted clients: nesting deep enough to exhaust the parser's stack is refused as a bad request."""

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
    """Raised for JSON that is nested more deeply than MAX_DEPTH."""


def depth(text: bytes | bytearray) -> int:
    """Return the depth to which lists and objects are nested; brackets inside strings do not count."""
    steps = _STRING.sub(b"", text).translate(_STEPS, _OTHERS)
    return max(itertools.accumulate(memoryview(steps).cast("b")), default=0)


def loads(text: bytes | bytearray | str) -> Any:
    """Parse a JSON text; raises TooDeepError, a ValueError, if it is nested more deeply than MAX_DEPTH."""
    data = text.encode() if isinstance(text, str) else text
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and depth(data) > MAX_DEPTH:
        raise TooDeepError(f"The JSON is nested more than {MAX_DEPTH} deep.")
    try:
        return json.loads(text)
    except RecursionError as e:  # Python's own limit may be lower where the caller is deep in the stack
        raise TooDeepError("The JSON is nested too deeply.") from e
