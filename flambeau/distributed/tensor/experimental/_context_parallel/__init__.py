"""Context parallelism: attention over a sequence that is sharded over ranks."""

from ._attention import context_parallel, context_parallel_unshard, set_rotate_method
from ._ring import _cp_options

__all__ = ["_cp_options", "context_parallel", "context_parallel_unshard", "set_rotate_method"]
