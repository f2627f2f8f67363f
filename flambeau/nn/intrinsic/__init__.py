"""The former name of `ao.nn.intrinsic`."""

from typing import Any

from ...core import naming as _naming

_HOME = f"{_naming.PACKAGE}.ao.nn.intrinsic"
globals().update(
    _naming.former_name(
        __name__,
        _HOME,
        "modules modules.fused qat qat.modules quantized quantized.modules quantized.dynamic",
    )
)


def __getattr__(name: str) -> Any:
    return getattr(_naming.load(_HOME), name)
