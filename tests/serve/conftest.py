"""The fixtures of these tests, where the packages of flambeau[serve] are installed; each file skips itself where they are not."""

import importlib.util

if all(importlib.util.find_spec(name) for name in ("httptools", "yaml")):
    from .serving import client, start, store  # noqa: F401
