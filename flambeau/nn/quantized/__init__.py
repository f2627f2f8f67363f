"""The former name of `ao.nn.quantized`."""

from typing import Any

from ...core import naming as _naming

_HOME = f"{_naming.PACKAGE}.ao.nn.quantized"
globals().update(
    _naming.former_name(
        __name__,
        _HOME,
        "functional modules modules.activation modules.batchnorm modules.conv modules.dropout modules.embedding_ops "
        "modules.functional_modules modules.linear modules.normalization modules.rnn modules.utils dynamic dynamic.modules "
        "dynamic.modules.conv dynamic.modules.linear dynamic.modules.rnn",
    )
)


def __getattr__(name: str) -> Any:
    return getattr(_naming.load(_HOME), name)
