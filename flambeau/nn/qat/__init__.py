"""The former name of `ao.nn.qat`."""

from typing import Any

from ...core import naming as _naming

_HOME = f"{_naming.PACKAGE}.ao.nn.qat"
globals().update(
    _naming.former_name(
        __name__,
        _HOME,
        "modules modules.conv modules.linear modules.embedding_ops dynamic dynamic.modules",
    )
)


def __getattr__(name: str) -> Any:
    return getattr(_naming.load(_HOME), name)
