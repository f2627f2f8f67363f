"""The named tuples that operators with several results return."""

from .core import naming as _naming
from .core.return_types import ALL as _ALL
from .core.return_types import NamedResult as _NamedResult
from .core.return_types import named_result as _named_result

globals().update(_ALL)
all_return_types = list(_ALL.values())


def pytree_register_structseq(cls: type) -> None:
    """Do nothing: trees take every named tuple apart."""


def __getattr__(name: str) -> type[_NamedResult]:
    """`max_out` and the like: what the operator returns when it is given out=."""
    base = _ALL.get(name.removesuffix("_out"))
    if base is None or not name.endswith("_out"):
        raise _naming.no_attribute(__name__, name)
    return _named_result(name, *base._fields)
