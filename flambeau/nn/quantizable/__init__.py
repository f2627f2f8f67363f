"""The former name of `ao.nn.quantizable`."""

from typing import Any

from ...core import naming as _naming

_HOME = f"{_naming.PACKAGE}.ao.nn.quantizable"
globals().update(
    _naming.former_name(
        __name__,
        _HOME,
        "modules modules.rnn modules.activation",
    )
)


def __getattr__(name: str) -> Any:
    return getattr(_naming.load(_HOME), name)
