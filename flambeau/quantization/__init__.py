"""The former name of `ao.quantization`."""

from typing import Any

from ..core import naming as _naming

_HOME = f"{_naming.PACKAGE}.ao.quantization"
globals().update(
    _naming.former_name(
        __name__,
        _HOME,
        "fake_quantize fuse_modules fuser_method_mappings observer qconfig quant_type quantization_mappings quantize "
        "quantize_fx stubs utils fx",
    )
)


def __getattr__(name: str) -> Any:
    return getattr(_naming.load(_HOME), name)
