"""`torch.utils._pytree`: nested containers as trees. See `core.pytree`, where it is."""

from typing import TYPE_CHECKING, Any

from ..core import pytree as _pytree

globals().update({name: value for name, value in vars(_pytree).items() if not name.startswith("__")})

if TYPE_CHECKING:  # names that are put here when the module is imported

    def __getattr__(name: str) -> Any: ...
