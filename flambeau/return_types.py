"""The named tuples that operators with several results return."""

from .core import naming as _naming
from .core.return_types import ALL as _ALL
from .core.return_types import NamedResult as _NamedResult
from .core.return_types import named_result as _named_result

globals().update(_ALL)
all_return_types = list(_ALL.values())


def pytree_register_structseq(cls: type) -> None:
    """Do nothing: trees flatten every named tuple."""


def __getattr__(name: str) -> type[_NamedResult]:
    """Return `max_out` and similar types: the results of operators with out=."""
    base = _ALL.get(name.removesuffix("_out"))
    if base is None or not name.endswith("_out"):
        raise _naming.no_attribute(__name__, name)
    return _named_result(name, *base._fields)
